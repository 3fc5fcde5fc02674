"""Several learners that learn as one: against one learner that is given all that they are given."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Discrete

from zoo.algorithms import AC, DPPO, DQN, PPO, SAC, TD3, TRPO
from zoo.algorithms.actor_critic import normalized
from zoo.algorithms.base import Algorithm
from zoo.common.maths.normalize import RunningMoments
from zoo.common.records import Batch, Trajectories, Transition
from zoo.common.training.training import Training

pytestmark = pytest.mark.usefixtures('plain_updates')

OBS = Box(-np.inf, np.inf, (3,), np.float32)
ACTIONS = Box(-2.0, 2.0, (2,), np.float32)


class AllReduce:
    """``all_reduce(x, op)`` over so many threads, each of which calls it equally often.

    Attributes:
        calls: how often each thread has called it.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.calls = 0
        self._given: list[np.ndarray] = []
        self._lock = threading.Lock()
        self._meet = threading.Barrier(size, timeout=60)

    def __call__(self, x: np.ndarray, op: str) -> np.ndarray:
        with self._lock:
            self._given.append(np.array(x))
        self._meet.wait()
        total = np.sum(np.sort(self._given, axis=0), axis=0)  # in an order that is the same for all
        if self._meet.wait() == 0:
            self._given.clear()
            self.calls += 1
        self._meet.wait()
        return (total / self.size if op == 'mean' else total).astype(x.dtype)


def in_threads(size: int, function: Callable[[int], Any]) -> list[Any]:
    """What a function of each number gives, all of them at the same time."""
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(function, range(size)))


def agents(make: Callable[[], Algorithm], size: int) -> tuple[list[Algorithm], AllReduce]:
    """Learners with the same weights that learn together; not more of them than TensorFlow has threads, 2."""
    together = AllReduce(size)
    made = [make() for _ in range(size)]
    for agent in made[1:]:
        agent.restore_state(made[0].state())
    for agent in made:
        agent.learn_together(together)
    return made, together


def transitions(count: int, discrete: bool, seed: int = 0) -> Batch:
    """Fields ``[1, count, …]``: of one update."""
    rng = np.random.default_rng(seed)
    lead = (1, count)
    action = rng.integers(4, size=lead).astype(np.int32) if discrete else rng.uniform(-1, 1, (*lead, 2))
    return Batch.of(
        Transition(
            rng.normal(size=(*lead, 3)).astype(np.float32),
            action if discrete else action.astype(np.float32),
            rng.normal(size=lead).astype(np.float32),
            rng.normal(size=(*lead, 3)).astype(np.float32),
            rng.random(lead) < 0.2,
            np.zeros(lead, bool),
        ),
        0.99,
    )


def part(batch: Batch, i: int, of: int) -> Batch:
    """The transitions of learner ``i``."""
    return Batch(*(np.split(field, of, axis=1)[i] for field in batch))


def assert_weights(agent: Algorithm, other: Algorithm, tolerance: float = 0.0) -> None:
    state, expected = agent.state(), other.state()
    for name, value in expected.items():
        if name not in ('noise_seed', 'last_actor_loss'):  # each has its own
            np.testing.assert_allclose(state[name], value, rtol=tolerance, atol=tolerance, err_msg=name)


SPECS = [{'hidden': [8, 8], 'seed': 3}]
MAKERS = {
    'DQN': lambda: DQN(OBS, Discrete(4), net_list=SPECS, normalize_obs=True),
    # Without noise in the target, which each learner draws for itself.
    'TD3': lambda: TD3(OBS, ACTIONS, net_list=SPECS * 3, target_noise=0.0),
}


NOISY = {
    'TD3': lambda: TD3(OBS, ACTIONS, net_list=SPECS * 3),
    'DQN': lambda: DQN(OBS, Discrete(4), net_list=SPECS, noisy=True),
    'SAC': lambda: SAC(OBS, ACTIONS, net_list=SPECS * 3),
}


@pytest.mark.full(but='TD3')
@pytest.mark.parametrize('name', NOISY)
def test_a_seed_gives_the_same_noise_with_and_without_xla(name: str, monkeypatch: pytest.MonkeyPatch):
    """XLA compiles the updates of one learner. It does not compile the updates of several learners."""
    monkeypatch.setattr('zoo.algorithms.base.updating.prefers_xla', lambda variables: True)
    alone, other = NOISY[name](), NOISY[name]()
    other.restore_state(alone.state())
    other.learn_together(lambda x, op: x)
    for seed in range(3):
        data = transitions(8, discrete=name == 'DQN', seed=seed)
        found, expected = (agent.update_on(data) for agent in (other, alone))
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-4)
    assert_weights(other, alone, 1e-4)


@pytest.mark.full
@pytest.mark.parametrize('name', MAKERS)
def test_they_take_the_step_that_one_takes_on_all_of_their_batches(name: str):
    learners, together = agents(MAKERS[name], 2)
    alone = MAKERS[name]()
    alone.restore_state(learners[0].state())
    for step in range(4):
        batch = transitions(12, name == 'DQN', seed=step)
        in_threads(2, lambda i, batch=batch: learners[i].update_on(part(batch, i, 2)))
        alone.update_on(batch)
    assert together.calls >= 4
    for learner in learners:
        assert_weights(learner, learners[0])  # bit by bit
        assert_weights(learner, alone, 1e-5)


def test_statistics_cover_what_all_learners_have_collected():
    """Also where one has collected nothing, or more messages than another; all hold the same to the bit."""
    learners, _ = agents(MAKERS['DQN'], 2)
    rng = np.random.default_rng(0)
    given = [[rng.normal(1e3, 2.0, (n, 3)) for n in sizes] for sizes in ([5, 3], [4])]

    def observe(i: int) -> None:
        for messages in (given[i], given[i] if i else [], []):
            collected = learners[i].collected()
            for obs in messages:
                collected.add(obs)
            learners[i].observe_moments(collected.take())

    in_threads(2, observe)
    seen = np.concatenate([*given[0], *given[1], *given[1]])
    one, other = (learner.statistics[''] for learner in learners)
    assert one.count == len(seen)
    np.testing.assert_allclose(one.mean, seen.mean(0), rtol=1e-12)
    np.testing.assert_allclose(one.sum_squares / one.count, seen.var(0), rtol=1e-9)
    for name, x in one.state().items():
        np.testing.assert_array_equal(x, other.state()[name])


@pytest.mark.full
def test_the_temperature_and_both_losses_of_sac_are_averaged():
    learners, _ = agents(lambda: SAC(OBS, ACTIONS, net_list=SPECS * 3), 2)
    start = learners[0].state()
    for step in range(3):
        batch = transitions(8, False, seed=step)
        in_threads(2, lambda i, batch=batch: learners[i].update_on(part(batch, i, 2)))
    assert_weights(learners[0], learners[1])
    moved = learners[0].state()
    for name in ('log_alpha', 'network/actor/0', 'network/critic_1/0', 'target/critic_2/0'):
        assert np.abs(moved[name] - start[name]).max() > 0, name


def rollout(steps: int, copies: int, seed: int) -> Trajectories:
    rng = np.random.default_rng(seed)
    lead = (steps, copies)
    return Trajectories(
        rng.normal(size=(*lead, 3)).astype(np.float32),
        rng.integers(4, size=lead).astype(np.int32),
        rng.normal(size=lead).astype(np.float32),
        rng.normal(size=(*lead, 3)).astype(np.float32),
        rng.random(lead) < 0.1,
        np.zeros(lead, bool),
        np.ones(lead, bool),
    )


@pytest.mark.full
@pytest.mark.parametrize(
    'params', [{}, {'target_kl': 1e-9}, {'normalize_obs': True, 'normalize_reward': True}], ids=str
)
def test_ppo_with_several_learners(params: dict[str, Any]):
    """They stay equal, also where the divergence, of which each sees another one, ends the epochs."""
    specs = SPECS * 2
    learners, together = agents(
        lambda: PPO(OBS, Discrete(4), net_list=specs, optimizers_list=[{'learning_rate': 0.05}], **params), 2
    )
    start = learners[0].state()
    for step in range(2):
        in_threads(2, lambda i, step=step: learners[i].update(rollout(16, 2, 10 * step + i), epochs=3, batch_size=8))
    assert_weights(learners[0], learners[1])
    assert np.abs(learners[0].state()['network/actor/0'] - start['network/actor/0']).max() > 0
    # One exchange for each gradient, and two in an iteration for the advantages' mean and deviation.
    minibatches = 2 * (3 * 4 + 2)
    if 'target_kl' in params:
        assert together.calls < 2 * minibatches, 'it has not stopped'
    elif not params:
        assert together.calls == minibatches


def joined(parts: list[Trajectories]) -> Trajectories:
    """The rollouts of several learners as one of all copies."""
    return Trajectories(*(None if x[0] is None else np.concatenate(x, 1) for x in zip(*parts, strict=True)))


def of_copies(batches: np.ndarray, first: int, copies: int, all_copies: int) -> np.ndarray:
    """The numbers of transitions in a rollout of all copies, for those in the rollout of the copies from ``first``."""
    return batches // copies * all_copies + first + batches % copies


@pytest.mark.full
@pytest.mark.parametrize(
    'params',
    [
        {'target_kl': 0.002, 'clip_range_value': 0.2},
        {'method': 'penalty', 'normalize_obs': True, 'normalize_advantage': False},
        {'net_list': [{'hidden': [6], 'recurrent': 'gru', 'seed': 3}, 'actor'], 'sequence_length': 4},
    ],
    ids=str,
)
def test_dppo_takes_the_steps_that_one_learner_takes_on_all_minibatches_joined(params: dict[str, Any]):
    """To 1e-5: minibatches, split among learners, are normalized, averaged and stopped as one."""
    arguments = {'net_list': SPECS * 2, 'optimizers_list': [{'learning_rate': 0.01}]} | params
    learners, _ = agents(lambda: DPPO(OBS, Discrete(4), **arguments), 2)
    alone = DPPO(OBS, Discrete(4), **arguments)
    alone.restore_state(learners[0].state())
    rng = np.random.default_rng(5)
    start = alone.state()['network/actor/0']
    for step in range(2):
        parts = [rollout(8, 2, 10 * step + i) for i in range(2)]
        if learners[0].is_recurrent:
            states = [rng.normal(size=(2, 6)).astype(np.float32) for _ in parts]
            begins = [np.concatenate([np.zeros((1, 2), bool), x.terminated[:-1]]) for x in parts]
            parts = [x._replace(state=s, begins=b) for x, s, b in zip(parts, states, begins, strict=True)]
            whole = joined([x._replace(state=None) for x in parts])._replace(state=np.concatenate(states))
            count, size = 2 * 2, 2  # of sequences
        else:
            whole = joined(parts)
            count, size = 16, 4
        drawn = [np.concatenate([rng.permutation(count) for _ in range(3)]).astype(np.int32) for _ in parts]
        drawn = [x.reshape(-1, size) for x in drawn]
        in_threads(2, lambda i, parts=parts, drawn=drawn: learners[i].iterate(parts[i], drawn[i]))
        alone.iterate(whole, np.concatenate([of_copies(x, 2 * i, 2, 4) for i, x in enumerate(drawn)], 1))
        for learner in learners:
            assert_weights(learner, learners[0])
            assert_weights(learner, alone, 1e-5)
    assert np.abs(alone.state()['network/actor/0'] - start).max() > 1e-3


@pytest.mark.full
def test_trpo_takes_the_steps_that_one_learner_takes_on_all_rollouts_joined():
    """One order of exchanges in all of them, though the policy's and the critic's share no tensor; one scale."""

    def make() -> TRPO:
        return TRPO(OBS, Discrete(4), net_list=SPECS * 2, cg_iterations=4)

    learners, together = agents(make, 2)
    alone = make()
    alone.restore_state(learners[0].state())
    start = alone.state()['network/actor/0']
    order: list[list[int]] = [[], []]
    for agent, seen in zip(learners, order, strict=True):

        def exchange(x: np.ndarray, op: str, seen: list[int] = seen) -> np.ndarray:
            seen.append(x.size)
            return together(x, op)

        agent.learn_together(exchange)
    rng = np.random.default_rng(5)
    for step in range(2):
        parts = [rollout(16, 2, 10 * step + i) for i in range(2)]
        parts[1].reward[:] *= 30.0  # whose advantages would be as large as the others' on a scale of their own
        drawn = [rng.permutation(32).astype(np.int32).reshape(-1, 8) for _ in parts]
        in_threads(2, lambda i, parts=parts, drawn=drawn: learners[i].iterate(parts[i], drawn[i]))
        alone.iterate(joined(parts), np.concatenate([of_copies(x, 2 * i, 2, 4) for i, x in enumerate(drawn)], 1))
        for learner in learners:
            assert_weights(learner, learners[0])
            assert_weights(learner, alone, 1e-3)
    critic = sum(v.numpy().size for v in alone.critic.trainable_variables)
    assert order[0] == order[1] and order[0][-4:] == [critic] * 4, 'the critic comes after the policy'
    assert np.abs(alone.state()['network/actor/0'] - start).max() > 1e-2


def test_normalized_advantages_are_those_of_all_learners():
    """Worked by hand: 1, 3 and 5, 7 have the mean 4 and the variance 5; what is not valid counts for nothing."""
    together = AllReduce(2)
    given = [[1.0, 3.0, 100.0], [5.0, 7.0, -9.0]]
    valid = tf.constant([1.0, 1.0, 0.0])
    found = in_threads(
        2, lambda i: tf.function(lambda: normalized(tf.constant(given[i]), valid, together), autograph=False)()
    )
    for i, expected in enumerate(([-3.0, -1.0], [1.0, 3.0])):
        np.testing.assert_allclose(found[i][:2], np.array(expected) / 5**0.5, rtol=1e-6)


@pytest.mark.full
def test_an_iteration_in_which_one_learner_has_nothing_is_left_out_by_all():
    """Or the other would wait for its gradients."""
    learners, together = agents(lambda: AC(OBS, Discrete(4), net_list=SPECS * 2), 2)
    taken = [iter([True, False, True]), iter([True, True, True])]

    class Given:
        """Experience of one step a time, which is not valid where a copy was only reset."""

        learners, num_envs = 2, 1

        def __init__(self, i: int) -> None:
            self.i = i

        def restart(self, seed: int | None) -> None:
            return

        def rollout(self, training: Any, horizon: int) -> Trajectories:
            training.stepped(1, [])
            return rollout(1, 1, self.i)._replace(valid=np.full((1, 1), next(taken[self.i])))

        def least(self, number: int) -> int:
            return -int(round(np.sort(gather(np.float32(-int(number)), self.i))[-1]))

        def measured(self) -> dict[str, float]:
            return {}

    lock, seen, meet = threading.Lock(), {}, threading.Barrier(2, timeout=60)

    def gather(x: np.ndarray, i: int) -> np.ndarray:
        with lock:
            seen[i] = x
        meet.wait()
        found = np.array([seen[0], seen[1]])
        meet.wait()
        return found

    def train(i: int) -> None:
        Training(learners[i], None, 3, verbose=0, experience=Given(i)).run(AC.loop, horizon=1)

    in_threads(2, train)
    assert together.calls == 2 and learners[0].steps == 3
    assert_weights(learners[0], learners[1])


@pytest.mark.full
def test_alone_again():
    """After training together an agent compiles its update anew, without the exchange."""
    learners, together = agents(MAKERS['DQN'], 2)
    batch = transitions(8, True)
    in_threads(2, lambda i: learners[i].update_on(part(batch, i, 2)))
    calls = together.calls
    learners[0].learn_together(None)
    learners[0].update_on(batch)
    assert together.calls == calls
    assert np.abs(learners[0].state()['network/q/0'] - learners[1].state()['network/q/0']).max() > 0


def test_gradients_of_odd_shapes_are_averaged_by_name():
    """Scalars, matrices and vectors travel as one array and come back in their own places."""
    from zoo.common.maths.optimizers import mean_over

    together = AllReduce(2)
    shapes = [(), (2, 3), (4,)]

    def reduce(i: int) -> list[np.ndarray]:
        given = [tf.fill(shape, float(10 * k + i)) for k, shape in enumerate(shapes)]
        return [x.numpy() for x in tf.function(lambda: mean_over(together, given), autograph=False)()]

    for found in in_threads(2, reduce):
        for k, (x, shape) in enumerate(zip(found, shapes, strict=True)):
            np.testing.assert_array_equal(x, np.full(shape, 10 * k + 0.5, np.float32))


def test_several_learners_have_the_moments_of_what_all_have_seen():
    rng = np.random.default_rng(0)
    x = rng.normal([1e6, -3.0], [1.0, 1e-3], (3, 40, 2))
    together = AllReduce(3)
    moments = [RunningMoments(2) for _ in range(3)]
    for each in moments:
        each.all_reduce = together

    def learn(i: int) -> None:
        moments[i].update(x[i, : 10 * i])  # one of them has seen nothing yet
        moments[i].update(x[i, 10 * i :])

    in_threads(3, learn)
    seen = x.reshape(-1, 2)
    for each in moments:
        assert each.count == len(seen)
        np.testing.assert_allclose(each.mean, seen.mean(0), rtol=1e-12)
        np.testing.assert_allclose(each.sum_squares / each.count, seen.var(0), rtol=1e-6)
        np.testing.assert_array_equal(each.mean, moments[0].mean)
