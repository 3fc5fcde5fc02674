"""Recurrent networks that learn from a replay buffer: what is drawn, the update computed again by NumPy, a memory."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from cue import Cue
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from reference import assert_close, copies, finite_differences, stir
from test_recurrent import MEMORY, VECTOR, Counts, sigmoid

import zoo
from zoo import algorithms, build_env, call_default_params
from zoo.algorithms import DQN, R2D2, SAC
from zoo.common.networks import remembered
from zoo.common.records import Transition
from zoo.common.replay import sequences
from zoo.common.replay.replay import Replay
from zoo.common.training.collection import Collection

pytestmark = pytest.mark.usefixtures('plain_graphs')

N_STEP, LENGTH, BURN_IN = 2, 4, 3


def make(cls: Any = DQN, **params: Any) -> Any:
    """A small agent whose biases are not zero."""
    params = {'net_list': [MEMORY], 'n_step': N_STEP, 'sequence_length': LENGTH, 'burn_in': BURN_IN} | params
    agent = cls(VECTOR, Discrete(2), **params)
    stir(agent.trainable_variables, seed=1)
    agent.forward.refresh()
    return agent


def played(agent: Any, replay: Replay, steps: int, copies: int = 2, mode: Any = AutoresetMode.SAME_STEP) -> list[list]:
    """Fill a replay buffer; of each copy the steps that were stored: obs, state, action, reward, next_obs, ends."""
    env = SyncVectorEnv([Counts] * copies, autoreset_mode=mode) if copies > 1 else Counts()
    collection, history = Collection(agent, env), [[] for _ in range(copies)]
    collection.restart(3)
    training = SimpleNamespace(stepped=lambda *_: None)
    for _ in range(steps):
        for step in collection.steps(training, explore_steps=20):
            agent.steps += 1
            replay.add(step.transition, step.valid, step.first, step.state)
            for i in np.flatnonzero(step.valid):
                obs, action, reward, next_obs, terminated, truncated = (x[i].copy() for x in step.transition)
                history[i].append((obs, step.state[i].copy(), action, reward, next_obs, terminated, truncated))
    return history


@pytest.mark.parametrize(
    ('copies', 'mode', 'capacity'),
    [(1, None, 500), (1, None, 60), (3, AutoresetMode.SAME_STEP, 90), (2, AutoresetMode.NEXT_STEP, 64)],
)
def test_what_is_drawn_is_what_was_played(copies: int, mode: Any, capacity: int):
    """Also around the seam of the ring and near its ends; and the states that lead to it are those acted with."""
    agent = make(prioritized=True)
    replay = agent.replay_for(capacity, copies)
    history = played(agent, replay, 150, copies, mode)
    known = {float(step[0][0]): (steps, i) for steps in history for i, step in enumerate(steps)}
    rng, states, replaced, shorter = np.random.default_rng(0), 0, 0, 0
    for _ in range(40):
        found = replay.sample((2, 3), rng)
        assert found.obs.shape == (2, BURN_IN + LENGTH + N_STEP, 3, 3) and found.valid[:, 0].all()
        for k, t, c in np.ndindex(found.at.shape):
            rows = found.obs[k].reshape(-1, 3)
            row, after = found.at[k, t, c], found.after[k, t, c]
            steps, i = known[float(rows[row][0])]
            obs, state, action, reward, next_obs, terminated, truncated = steps[i]
            count = 1
            if not (terminated or truncated) and i + 1 < len(steps):
                following = steps[i + 1]
                reward, count = reward + agent.gamma * following[3], 2
                next_obs, terminated, truncated = following[4:]
            assert found.action[k].ravel()[row] == action
            assert found.reward[k, t, c] == pytest.approx(reward, rel=1e-6)
            assert found.discount[k, t, c] == pytest.approx(agent.gamma**count * (not terminated), rel=1e-6)
            assert (found.terminated[k, t, c], found.truncated[k, t, c]) == (terminated, truncated)
            np.testing.assert_array_equal(rows[after], next_obs)
            if not found.valid[k, t, c]:
                replaced += 1
                continue
            assert row == (BURN_IN + t) * 3 + c
            sequence, begins = found.obs[k, :, c], found.begins[k, :, c]
            before = found.state[k, c][None]
            shorter += found.warm[k, c] < BURN_IN
            for j in (*range(found.warm[k, c]), *range(BURN_IN, BURN_IN + t)):
                before = np.zeros_like(before) if begins[j] else before
                _, before = agent.forward.step(sequence[j][None], before)
            before = np.zeros_like(before) if begins[BURN_IN + t] else before
            np.testing.assert_allclose(before[0], state, atol=1e-5)
            states += 1
    assert states > 200 and replaced > 0 and shorter > 0


def test_sequences_at_the_oldest_rows_of_a_full_ring_begin_with_the_states_stored_there():
    """A ring of 7 rows after 10 steps of one episode: by hand, rows 3 to 6 and 0 to 1 hold steps 4 to 9."""
    agent = make(n_step=1, sequence_length=2, burn_in=3)
    replay = agent.replay_for(6, 1)
    size = replay.sampling.sequences.state_size
    for t in range(10):
        obs, following = (np.full((1, 3), i, np.float32) for i in (t, t + 1))
        step = Transition(obs, np.zeros(1, np.int32), np.ones(1, np.float32), following, *np.zeros((2, 1), bool))
        replay.add(step, None, 0, np.full((1, size), 100.0 + t, np.float32))
    assert replay.rows == 7 and np.flatnonzero(replay.valid).tolist() == [0, 1, 2, 4, 5, 6]
    rows = np.array([4, 5, 6, 0])  # steps 4 to 7
    found = replay.gather(rows, np.random.default_rng(0))
    assert found.obs[:, :, 0].tolist() == [
        [4, 5, 6, 4, 5, 6],  # no burn-in: step 4 begins with its own state
        [4, 5, 6, 5, 6, 7],  # one row of burn-in, step 4
        [4, 5, 6, 6, 7, 8],  # two
        [4, 5, 6, 7, 8, 9],  # all three
    ]
    assert found.state[:, 0].tolist() == [104.0] * 4 and found.warm.tolist() == [0, 1, 2, 3]
    assert not found.begins.any() and found.valid.all()


def test_pieces_of_an_episode_in_another_number_of_copies_begin_with_the_states_stored_there():
    """Two copies take pieces of an episode of 30 steps. No sequence goes from one piece into the next."""
    agent = make(n_step=1, sequence_length=4, burn_in=3)
    replay, taken = agent.replay_for(48, 1), agent.replay_for(48, 2)
    size = replay.sampling.sequences.state_size
    for t in range(30):
        obs, following = (np.full((1, 3), i, np.float32) for i in (t, t + 1))
        step = Transition(obs, np.zeros(1, np.int32), np.ones(1, np.float32), following, *np.zeros((2, 1), bool))
        replay.add(step, None, 0, np.full((1, size), 100.0 * (t > 0) + t, np.float32))
    taken.restore(replay.state())
    rows = np.flatnonzero(taken.valid)
    starts = [row for row in rows if not taken.valid[row - 1]]
    assert len(starts) > 2, 'copies hold several pieces'
    found = taken.gather(rows, np.random.default_rng(0))
    whole = 0
    for k, row in enumerate(rows):
        now, warm, learned = taken.obs[row][0], found.warm[k], int(found.valid[k].sum())
        assert found.obs[k, :warm, 0].tolist() == [now - warm + i for i in range(warm)]
        assert found.obs[k, 3 : 3 + learned, 0].tolist() == [now + i for i in range(learned)]
        assert found.valid[k, :learned].all() and not found.begins[k, : 3 + learned].any()
        first = now - warm
        assert found.state[k, 0] == 100.0 * (first > 0) + first
        whole += warm == 3 and learned == 4
    assert whole > 4 and not found.warm[np.isin(rows, starts)].any()


@pytest.mark.parametrize('prioritized', [False, True])
def test_the_network_sees_the_stored_state_at_the_oldest_rows(prioritized: bool):
    agent = make(prioritized=prioritized)
    replay = agent.replay_for(40, 1)
    history = {float(step[0][0]): step for step in played(agent, replay, 150, 1)[0]}
    oldest = (replay.cursor[0] + replay.longest) % replay.rows
    rows = np.array([row for row in (oldest + np.arange(BURN_IN + 1)) % replay.rows if replay.valid[row]])
    drawn = sequences.side_by_side(
        replay.gather(rows, np.random.default_rng(0)), (1, len(rows)), np.random.default_rng(0)
    )
    batch = remembered.rows_of(type(drawn)(*(tf.nest.map_structure(lambda x: tf.constant(x[0]), drawn))), BURN_IN, 'q')
    _, before = batch.obs.run(agent.network, False, False)
    for i, row in enumerate(rows):  # the first step to learn from of each sequence
        np.testing.assert_allclose(before[i], history[float(replay.obs[row][0])][1], atol=1e-5)
    assert np.abs(before[: len(rows)]).max() > 1e-3


@pytest.mark.parametrize('ended', [True, False])
@pytest.mark.parametrize('cuts', [0, 2])
def test_what_fills_up_a_sequence_was_seen(ended: bool, cuts: int):
    """As running statistics of observations take it in: neither a cut before the first step nor an end leaves a gap."""
    replay = make().replay_for(20, 1)
    for _ in range(cuts):
        replay.cut()
    for t in range(6):
        obs, following = (np.full((1, 3), 50.0 + i, np.float32) for i in (t, t + 1))
        ends = np.zeros(1, bool), np.array([ended and t == 5])
        step = Transition(obs, np.zeros(1, np.int32), np.ones(1, np.float32), following, *ends)
        replay.add(step, None, 0, np.zeros((1, replay.sampling.sequences.state_size), np.float32))
    for _ in range(cuts * (not ended)):
        replay.cut()
    drawn = replay.sample((1, 50), np.random.default_rng(0))
    assert {*np.unique(drawn.obs)} == {50.0, 51.0, 52.0, 53.0, 54.0, 55.0, 56.0}
    assert len(replay) == 6


def test_priorities_of_sequences_by_hand():
    """0.9 of the greatest and 0.1 of the mean; what is not valid does not count."""
    priority = tf.constant([[1.0, -4.0], [3.0, 100.0], [-2.0, 2.0]])
    valid = tf.constant([[True, True], [True, False], [True, True]])
    found = remembered.of_sequences(priority, valid)
    np.testing.assert_allclose(found, [0.9 * 3 + 0.1 * 2, 0.9 * 4 + 0.1 * 3], rtol=1e-6)


class Reference:
    """A double Q-learner on an LSTM in float64: its loss on sequences, whose burn-in moves with no weight."""

    def __init__(self, agent: DQN, batch: Any) -> None:
        self.agent, self.batch = agent, batch
        self.weights = [np.float64(v.numpy()) for v in agent.trainable_variables]
        self.burnt = self.burn_in(self.weights)
        of_target = [np.float64(v.numpy()) for v in agent.target.variables]
        q, of_target = self.rows(self.weights, self.burnt), self.rows(of_target, self.burn_in(of_target))
        after, each = batch.after.ravel(), np.arange(batch.after.size)
        best = q[after].argmax(-1)
        self.target = self.backup(batch.reward.ravel(), batch.discount.ravel(), of_target[after][each, best])

    def backup(self, reward: np.ndarray, discount: np.ndarray, following: np.ndarray) -> np.ndarray:
        return reward + discount * following

    def losses(self, error: np.ndarray) -> np.ndarray:
        return np.where(error <= 1.0, 0.5 * error**2, error - 0.5)

    @staticmethod
    def head(h: np.ndarray, weights: list[np.ndarray]) -> np.ndarray:
        return h @ weights[0] + weights[1]

    def step(self, weights: list[np.ndarray], obs: np.ndarray, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        w, b, kernel, recurrent, bias, *of_head = weights
        units = len(recurrent)
        x = np.tanh(obs @ w + b)
        i, f, g, o = np.split(x @ kernel + state[:units] @ recurrent + bias, 4)
        c = sigmoid(f) * state[units:] + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        return self.head(h, of_head), np.concatenate([h, c])

    def burn_in(self, weights: list[np.ndarray]) -> np.ndarray:
        found = []
        for c, state in enumerate(np.float64(self.batch.state)):
            for t in range(self.batch.warm[c]):
                state = np.zeros_like(state) if self.batch.begins[t, c] else state
                _, state = self.step(weights, self.batch.obs[t, c], state)
            found.append(state)
        return np.array(found)

    def rows(self, weights: list[np.ndarray], state: np.ndarray) -> np.ndarray:
        """Values of all rows; those of the burn-in are not asked for."""
        found, state = np.full((*self.batch.begins.shape, 2), np.nan), state.copy()
        for t, c in np.ndindex(self.batch.begins.shape):
            if t >= BURN_IN:
                before = np.zeros_like(state[c]) if self.batch.begins[t, c] else state[c]
                found[t, c], state[c] = self.step(weights, self.batch.obs[t, c], before)
        return found.reshape(-1, 2)

    def loss(self) -> float:
        q = self.rows(self.weights, self.burnt)[self.batch.at.ravel()]
        q = q[np.arange(len(q)), self.batch.action.ravel()[self.batch.at.ravel()]]
        error = np.abs(q - self.target).reshape(self.batch.at.shape)
        self.error = error
        return float((self.losses(error) * self.batch.weight).mean())


class Rescaled(Reference):
    """The same for R2D2: streams of value and advantages, h of the paper, half the square of errors."""

    def backup(self, reward: np.ndarray, discount: np.ndarray, following: np.ndarray) -> np.ndarray:
        eps = self.agent.rescaling
        root = (np.sqrt(1 + 4 * eps * (np.abs(following) + 1 + eps)) - 1) / (2 * eps)
        y = reward + discount * np.sign(following) * (root**2 - 1)
        return np.sign(y) * (np.sqrt(np.abs(y) + 1) - 1) + eps * y

    def losses(self, error: np.ndarray) -> np.ndarray:
        return 0.5 * error**2

    @staticmethod
    def head(h: np.ndarray, weights: list[np.ndarray]) -> np.ndarray:
        advantage = h @ weights[2] + weights[3]
        return h @ weights[0] + weights[1] + advantage - advantage.mean()


@pytest.mark.full
@pytest.mark.parametrize(('cls', 'kind'), [(DQN, Reference), (R2D2, Rescaled)])
def test_an_update_computed_again(cls: Any, kind: Any):
    """One gradient step and the priorities, with weights of the sequences; of rows drawn from two copies."""
    sgd = [{'name': 'SGD', 'learning_rate': 0.05}]
    agent = make(cls, prioritized=True, net_list=[MEMORY | {'activation': 'tanh'}], optimizers_list=sgd)
    for variable in agent.target.variables:
        variable.assign(0.7 * variable)
    replay = agent.replay_for(60, 2)
    played(agent, replay, 100)
    batches = replay.sample((1, 5), np.random.default_rng(4))
    batches = batches._replace(weight=np.random.default_rng(0).uniform(0.2, 1.0, (1, 5)).astype(np.float32))
    batch = type(batches)(*(x[0] for x in batches))
    reference = kind(agent, batch)
    expected = [
        weight - 0.05 * gradient
        for weight, gradient in zip(
            reference.weights, finite_differences(reference.loss, reference.weights), strict=True
        )
    ]
    loss = reference.loss()
    metrics = agent.update_on(batches)
    assert metrics['q'] == pytest.approx(loss, rel=1e-4)
    assert_close(agent.trainable_variables, expected, 1e-3, 1e-5)
    size = np.where(batch.valid, reference.error, 0.0)
    mean = size.sum(0) / batch.valid.sum(0)
    np.testing.assert_allclose(agent.priorities[0], 0.9 * size.max(0) + 0.1 * mean, rtol=1e-4)


def test_a_critic_remembers_the_actions_taken_and_values_others():
    """Q(s, a) for an action that was not taken, after those that were, against steps one by one."""
    nets = [MEMORY | {'seed': i} for i in range(3)]
    space = Box(-1, 1, (1,), np.float32)
    agent = SAC(VECTOR, space, nets, sequence_length=LENGTH, burn_in=BURN_IN)
    stir(agent.trainable_variables, seed=2)
    rng = np.random.default_rng(0)
    rows, count = BURN_IN + LENGTH + 1, 2
    obs, action = rng.normal(size=(rows, count, 3)).astype('f'), rng.uniform(-1, 1, (rows, count, 1)).astype('f')
    begins = np.zeros((rows, count), bool)
    begins[1, 0] = begins[5, 1] = True
    at = np.array([6, 7, 13, 10], np.int32)
    other = rng.uniform(-1, 1, (len(at), 1)).astype('f')
    state = tf.zeros([count, agent.behavior.state_size])
    warm = tf.fill([begins.shape[1]], BURN_IN)
    seen = remembered.Remembered(obs, action, tf.constant(begins), state, 'actor', BURN_IN, warm, tf.constant(at))
    found = agent.critics[0](seen, other).numpy()[:, 0]
    critic = agent.critics[0]
    for i, row in enumerate(at):
        t, c = divmod(row, count)
        before = tf.zeros([1, critic.state_size])
        for j in range(t + 1):
            before = tf.zeros_like(before) if begins[j, c] else before
            taken = other[i] if j == t else action[j, c]
            x = critic.torso(np.concatenate([obs[j, c], taken])[None])
            x, before = critic.core.step(x, before)
        np.testing.assert_allclose(found[i], critic.from_torso(x)[0, 0], atol=1e-5)
    # A policy that was acted with begins with the state that was stored, and so does no other network.
    other_state = seen.__class__(**vars(seen) | {'state': state + 1.0})
    assert np.abs(agent.policy(seen).numpy() - agent.policy(other_state).numpy()).max() > 1e-3
    np.testing.assert_array_equal(critic(seen, other), critic(other_state, other))


LEARNERS = {
    'DQN': (Discrete(2), {'double_q': True, 'tau': 0.05, 'target_update_every': 1}),
    'QRDQN': (Discrete(2), {'quantiles': 8, 'tau': 0.05, 'target_update_every': 1}),
    'SAC': (Box(-1, 1, (1,), np.float32), {'tau': 0.05, 'alpha': 0.02}),
}


@pytest.mark.full
@pytest.mark.parametrize('name', ['DQN', pytest.param('QRDQN', marks=pytest.mark.matrix), 'SAC'])
def test_what_was_seen_before_is_learned(name: str):
    """Half of the episodes would be right without a memory, for 0.5 or 0 in the mean."""
    space, params = LEARNERS[name]
    cls = getattr(algorithms, name)
    net = {'hidden': [16], 'recurrent': 'gru' if name == 'DQN' else 'lstm', 'recurrent_units': 16}
    nets = [net | {'seed': i} for i in range(len(cls.network_names))]
    adam = [{'name': 'Adam', 'learning_rate': 5e-3}] * len(cls.optimizer_names)
    env = build_env(lambda: Cue(space), 'gymnasium', nenv=4)
    agent = cls(env.single_observation_space, space, nets, adam, gamma=0.9, sequence_length=6, burn_in=3, **params)
    settings = {'explore_steps': 200, 'batch_size': 16, 'update_every': 4, 'updates': 1, 'buffer_size': 2000}
    agent.learn(env, train_steps=2400, seed=0, run_dir=False, **settings)
    found = agent.learn(build_env(lambda: Cue(space), 'gymnasium'), 'test', test_episodes=20, seed=1)
    assert min(found.returns) > 0.6


@pytest.mark.full
def test_a_run_that_is_resumed_goes_on_alike(tmp_path: Path):
    """With the recurrent states in the checkpoint."""

    def run(**params: Any) -> Any:
        agent = make(prioritized=True)
        settings = {'explore_steps': 20, 'batch_size': 4, 'update_every': 4, 'buffer_size': 100}
        agent.learn(
            build_env(Counts, 'gymnasium'),
            checkpoint_every=60,
            exact_resume=True,
            seed=1,
            verbose=0,
            **settings | params,
        )
        return agent, settings

    whole, settings = run(train_steps=120, run_dir=tmp_path / 'whole')
    resumed = zoo.load(tmp_path / 'whole' / 'checkpoints' / '000000060')
    assert resumed.saved_buffer['state'].any()
    resumed.learn(build_env(Counts, 'gymnasium'), resume=True, run_dir=False, verbose=0, **settings)
    assert resumed.steps == 120 and resumed.replay.added == whole.replay.added
    assert_close(resumed.trainable_variables, copies(whole.trainable_variables), 1e-6, 1e-7)
    np.testing.assert_array_equal(resumed.replay.state()['state'], whole.replay.state()['state'])


def test_defaults_and_refusals(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    env = build_env('Pendulum-v1', 'classic_control', hide_velocity=True)
    params, learn_params = call_default_params(env, 'classic_control', 'SAC', recurrent='gru')
    assert all(spec['recurrent'] == 'gru' for spec in params['net_list'])
    assert learn_params['batch_size'] < 256  # of sequences
    with pytest.raises(ValueError, match=r'noisy=True cannot explore with a recurrent network'):
        make(noisy=True)
    with pytest.raises(ValueError, match=r'is recurrent, which TD3 cannot learn with: use .*DQN.* or'):
        call_default_params(env, 'classic_control', 'TD3', recurrent='gru')
    agent, train = make(), {'train_steps': 10, 'run_dir': False}
    file = zoo.record_episodes(agent, build_env(Counts, 'gymnasium'), tmp_path / 'file.npz', 1)
    with pytest.raises(ValueError, match=r'recorded cannot be used with a recurrent network, since'):
        agent.learn(build_env(Counts, 'gymnasium'), recorded=file, **train)
    with pytest.raises(ValueError, match=r'what DQN acts by is kept along each episode, .*: leave out servers\.$'):
        agent.learn(build_env(Counts, 'gymnasium'), roles={'actors': 1, 'servers': 1}, **train)
    with pytest.raises(ValueError, match=r'^net_list\[2\] \(critic_2\) is recurrent and the actor is not'):
        SAC(VECTOR, Discrete(2), net_list=[{'hidden': [4]}, {'hidden': [4]}, MEMORY])
    make(net_list=None)
    assert 'sequence_length=4 changes nothing, since no network is recurrent.' in caplog.text


@pytest.mark.full
def test_the_update_is_compiled_once():
    agent = make()
    env = build_env(Counts, 'gymnasium')
    agent.learn(env, train_steps=120, explore_steps=20, batch_size=4, update_every=4, run_dir=False)
    assert agent.fused.traces == 1
