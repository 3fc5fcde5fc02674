"""DDPG: target, losses and one update against NumPy and finite differences; noise along episodes; resuming."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box
from reference import NumpyNetwork, assert_close, copies, finite_differences, stir
from test_td3 import ACTION, SGD, VECTOR, batch, lead
from toys import OBSERVATIONS, AnySpaces, altered

import zoo
from zoo.algorithms import DDPG
from zoo.algorithms.base import saving
from zoo.common.acting.noise import GaussianNoise, OrnsteinUhlenbeck
from zoo.common.sampling import Priorities, Sampling
from zoo.common.schedules import Linear
from zoo.distributed.layout import Role
from zoo.distributed.training import actor
from zoo.distributed.training.plan import END, Plan

pytestmark = pytest.mark.usefixtures('plain_graphs')


def make(**params: Any) -> DDPG:
    """An agent whose networks all differ."""
    agent = DDPG(VECTOR, ACTION, **{'net_list': [{'hidden': [6], 'seed': i} for i in range(2)]} | params)
    for i, network in enumerate([*agent.networks.values(), agent.target_actor, agent.target_critic]):
        stir(network.variables, seed=i)
    agent.forward.refresh()
    return agent


def target_by_hand(agent: DDPG, data: Any) -> np.ndarray:
    action = NumpyNetwork(agent.target_actor)(data.next_obs)
    return data.reward + data.discount * NumpyNetwork(agent.target_critic)(data.next_obs, action)[:, 0]


def test_critic_target_of_one_step_and_of_several():
    agent, data = make(), batch(64)
    single = data.reward + 0.99 * ~data.terminated * (target_by_hand(agent, data) - data.reward) / np.where(
        data.discount > 0, data.discount, 1.0
    )
    np.testing.assert_allclose(agent.critic_target(data), single, rtol=1e-5, atol=1e-5)
    several = data._replace(discount=data.discount**3)
    np.testing.assert_allclose(agent.critic_target(several), target_by_hand(agent, several), rtol=1e-5, atol=1e-5)
    assert np.abs(agent.critic_target(several) - agent.critic_target(data))[~data.terminated].min() > 1e-5


def test_terminated_takes_the_reward_alone_and_truncated_bootstraps():
    agent, data = make(), batch(8)
    over = altered(data, terminated=np.ones(8, bool))
    np.testing.assert_array_equal(agent.critic_target(over), data.reward)
    going_on = altered(data, terminated=np.zeros(8, bool))
    assert np.abs(agent.critic_target(going_on) - data.reward).min() > 1e-4


@pytest.mark.parametrize('prioritized', [False, True])
def test_one_update_by_finite_differences(prioritized):
    """The critic by the weighted error, then the actor on the critic that moved, then both targets."""
    agent, data = make(optimizers_list=[SGD, SGD], tau=0.1, prioritized=prioritized), batch()
    weight = np.linspace(0.1, 1.0, 8).astype(np.float32) if prioritized else data.weight
    data = data._replace(weight=weight)
    target, critic = target_by_hand(agent, data), NumpyNetwork(agent.critic)
    before_targets = [copies(network.variables) for network in (agent.target_actor, agent.target_critic)]
    error = critic(data.obs, data.action)[:, 0] - target

    def critic_loss() -> float:
        return np.mean(weight * (critic(data.obs, data.action)[:, 0] - target) ** 2)

    loss = critic_loss()
    gradients = finite_differences(critic_loss, critic.weights)
    critic.weights = [w - 0.1 * g for w, g in zip(critic.weights, gradients, strict=True)]
    actor = NumpyNetwork(agent.actor)
    gradients = finite_differences(lambda: -np.mean(weight * critic(data.obs, actor(data.obs))[:, 0]), actor.weights)
    moved_actor = [w - 0.1 * g for w, g in zip(actor.weights, gradients, strict=True)]

    metrics = agent.update_on(lead(data))
    assert metrics['critic'] == pytest.approx(loss, rel=1e-4)
    assert metrics['q'] == pytest.approx(target.mean(), rel=1e-4)
    assert_close(agent.critic.variables, critic.weights, 1e-4, 1e-5)
    assert_close(agent.actor.variables, moved_actor, 1e-4, 1e-5)
    networks = (agent.target_actor, agent.target_critic)
    for network, source, before in zip(networks, (agent.actor, agent.critic), before_targets, strict=True):
        assert_close(
            network.variables, [0.9 * a + 0.1 * b.numpy() for a, b in zip(before, source.variables, strict=True)]
        )
    if prioritized:
        np.testing.assert_allclose(agent.priorities, np.abs(error)[None], rtol=1e-4, atol=1e-5)
    else:
        assert agent.priorities is None


def test_sampling():
    assert make(gamma=0.9).sampling == Sampling(0.9)
    found = make(gamma=0.9, n_step=5, prioritized=True, priority_alpha=0.7, priority_beta=0.5).sampling
    assert found == Sampling(0.9, 5, Priorities(0.7, 0.5))
    assert make(prioritized=True).sampling.priorities == Priorities(0.6, Linear(0.4, 1.0))


def test_parameters_that_nothing_reads_are_told_of(caplog):
    make(noise='ornstein_uhlenbeck', theta=0.3, dt=0.1, prioritized=True, priority_alpha=0.7)
    make()
    assert not caplog.records
    make(theta=0.3, priority_beta=1.0)
    assert "theta=0.3 changes nothing without noise='ornstein_uhlenbeck'." in caplog.text
    assert 'priority_beta=1.0 changes nothing without prioritized=True.' in caplog.text
    make(prioritized=True, priority_alpha=0.0, priority_beta=0.5)
    assert 'priority_beta=0.5 changes nothing beside priority_alpha=0, which draws uniformly.' in caplog.text
    caplog.clear()
    make(explore_noise=0.0, noise='ornstein_uhlenbeck', theta=0.3)
    assert [record.getMessage() for record in caplog.records] == [
        'explore_noise=0: nothing explores but the random actions of explore_steps.',
        'noise=ornstein_uhlenbeck changes nothing beside explore_noise=0.',
        'theta=0.3 changes nothing beside explore_noise=0.',
    ]
    with pytest.raises(
        ValueError, match=r'^theta · dt is 2\.5, with which the process grows without end: give less than 2'
    ):
        make(noise='ornstein_uhlenbeck', theta=2.5, dt=1.0)
    with pytest.raises(ValueError, match="^noise is 'pink': give 'gaussian' or 'ornstein_uhlenbeck'"):
        make(noise='pink')


def test_the_kinds_of_noise():
    assert type(make().behavior) is GaussianNoise
    behavior = make(noise='ornstein_uhlenbeck', explore_noise=0.3, theta=0.2, dt=0.5).behavior
    assert isinstance(behavior, OrnsteinUhlenbeck)
    assert (behavior.scale, behavior.theta, behavior.dt) == (0.3, 0.2, 0.5)


SPACES = (OBSERVATIONS['vector'], Box(-1.0, 1.0, (2,)))
FEW = {'train_steps': 40, 'explore_steps': 10, 'batch_size': 4, 'buffer_size': 100}


def noted(behavior: OrnsteinUhlenbeck, monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """A list of the noise of every step to come, which grows by the same in each of an episode."""
    drawn: list[np.ndarray] = []
    ones = SimpleNamespace(standard_normal=np.ones)

    def draw(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        drawn.append(OrnsteinUhlenbeck.draw(behavior, shape, ones))
        return drawn[-1]

    monkeypatch.setattr(behavior, 'draw', draw)
    return drawn


def assert_grows_along_episodes(drawn: list[np.ndarray], scale: float, nenv: int) -> None:
    """Episodes last 5 steps: what the noise is in the sixth does not depend on what it was before."""
    found, expected = np.stack(drawn) / scale, np.tile([1, 2, 3, 4, 5], 3)[:12]
    assert found.shape == (12, nenv, 2)
    np.testing.assert_allclose(found, np.broadcast_to(expected[:, None, None], found.shape), rtol=1e-2)


@pytest.mark.full(but='1')
@pytest.mark.parametrize('nenv', [1, 3])
def test_noise_begins_anew_with_every_episode_of_a_copy(nenv, monkeypatch):
    agent = DDPG(*SPACES, net_list=[{'hidden': [4]}] * 2, noise='ornstein_uhlenbeck', dt=1.0, theta=0.0001)
    drawn = noted(agent.behavior, monkeypatch)
    env = zoo.build_env(partial(AnySpaces, *SPACES), nenv=nenv)
    agent.learn(env, run_dir=False, **FEW | {'explore_steps': 0, 'train_steps': 12 * nenv})
    assert_grows_along_episodes(drawn, agent.behavior.scale, nenv)


@pytest.mark.parametrize('nenv', [1, 3])
def test_noise_begins_anew_with_every_episode_of_a_copy_of_an_actor(nenv, monkeypatch):
    agent = DDPG(*SPACES, net_list=[{'hidden': [4]}] * 2, noise='ornstein_uhlenbeck', dt=1.0, theta=0.0001)
    state = {'version': 0, 'steps': 0, 'progress': 0.0, 'weights': agent.forward.weights()}
    monkeypatch.setattr(actor, 'newest_weights', lambda cluster, learner: state)
    sent: list[dict[str, Any]] = []
    queue = SimpleNamespace(put=sent.append, get=lambda: {'version': END}, ready=lambda: True, close=lambda: None)
    cluster = SimpleNamespace(role_rank=lambda: 0, queue=lambda *arguments: queue, restarts=0)
    plan = SimpleNamespace(
        layout=SimpleNamespace(servers=0, actors=1),
        sample_timeout=None,
        learner_of=lambda i: 0,
        receiver_of=lambda i: (Role.LEARNER, 0),
        stored=None,
        has_gradients=False,
        ahead=0,
        answers=1,
        max_bytes=1,
        seed=0,
        horizon=12,
        explore_steps=0,
    )
    plan.behavior = light = agent.behavior.light()
    plan.storage = partial(Plan.storage, plan)
    drawn = noted(light, monkeypatch)
    actor.Actor(cluster, plan, light, zoo.build_env(partial(AnySpaces, *SPACES), nenv=nenv)).run()
    assert sent[0]['rollout'].reward.shape == (12, nenv)
    assert_grows_along_episodes(drawn, light.scale, nenv)


@pytest.mark.full
@pytest.mark.parametrize('noise', ['gaussian', 'ornstein_uhlenbeck'])
def test_a_resumed_training_ends_like_one_that_was_not_interrupted(noise, tmp_path):
    def build() -> Any:
        return zoo.build_env('Pendulum-v1', max_episode_steps=7, nenv=2)

    def train(run: str) -> DDPG:
        env, specs = build(), [{'hidden': [8], 'seed': i} for i in (0, 1)]
        agent = DDPG(env.single_observation_space, env.single_action_space, net_list=specs, noise=noise, dt=1.0)
        params = FEW | {'train_steps': 100, 'checkpoint_every': 40, 'exact_resume': True, 'seed': 0}
        agent.learn(env, run_dir=tmp_path / run, **params)
        return agent

    whole = train('whole')
    saved = sorted((tmp_path / 'whole' / 'checkpoints').iterdir())[0]
    assert saved.name == '000000040'
    resumed = DDPG.load(saved)
    params = FEW | {'train_steps': 100, 'checkpoint_every': 40, 'exact_resume': True}
    resumed.learn(build(), run_dir=tmp_path / 'resumed', resume=True, **params)
    expected = saving.arrays(whole)
    for name, array in saving.arrays(resumed).items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)


def test_actors_keep_the_noise_but_servers_would_mix_it():
    agent = DDPG(*SPACES, net_list=[{'hidden': [4]}] * 2, noise='ornstein_uhlenbeck')
    env = zoo.build_env(partial(AnySpaces, *SPACES))
    with pytest.raises(ValueError, match=r'kept along each episode, .*: leave out servers\.$'):
        agent.learn(env, run_dir=False, roles={'actors': 2, 'servers': 1}, **FEW)


@pytest.mark.full
def test_prioritized_training_of_several_steps_hands_priorities_on():
    agent = DDPG(*SPACES, net_list=[{'hidden': [4]}] * 2, n_step=3, prioritized=True)
    result = agent.learn(zoo.build_env(partial(AnySpaces, *SPACES)), seed=0, run_dir=False, **FEW)
    assert all(np.isfinite(value) for value in result.losses.values())
    assert agent.priorities.shape == (1, 4) and (agent.priorities >= 0).all()
    assert agent.replay.sampling == agent.sampling


class TestOrnsteinUhlenbeck:
    def behavior(self, **params: Any) -> OrnsteinUhlenbeck:
        agent = make(noise='ornstein_uhlenbeck', **params)
        agent.behavior.episodes_begin(np.ones(3, bool))
        return agent.behavior

    def test_steps_by_hand(self):
        behavior, same = self.behavior(explore_noise=0.5, theta=0.2, dt=0.25), np.random.default_rng(0)
        rng, x = np.random.default_rng(0), np.zeros((3, 2))
        for _ in range(5):
            x = x - 0.2 * x * 0.25 + 0.5 * np.sqrt(0.25) * same.standard_normal((3, 2), dtype=np.float32)
            found = behavior.draw((3, 2), rng)
            np.testing.assert_allclose(found, x, rtol=1e-5, atol=1e-6)
            assert found.dtype == np.float32

    def test_deviation_and_correlation_after_long(self):
        theta, dt, sigma = 0.15, 1.0, 0.2
        behavior = self.behavior(explore_noise=sigma, theta=theta, dt=dt)
        behavior.episodes_begin(np.ones(500, bool))
        rng = np.random.default_rng(0)
        drawn = np.stack([behavior.draw((500, 2), rng) for _ in range(120)])[60:]
        assert drawn.std() == pytest.approx(sigma / np.sqrt(theta * (2 - theta * dt)), rel=0.03)
        assert abs(drawn.mean()) < 0.01
        flat = drawn.reshape(60, -1)
        assert np.corrcoef(flat[10], flat[11])[0, 1] == pytest.approx(1 - theta * dt, abs=0.03)
        assert np.corrcoef(flat[10], flat[20])[0, 1] == pytest.approx((1 - theta * dt) ** 10, abs=0.08)
        assert abs(np.corrcoef(drawn[30].T)[0, 1]) < 0.15  # entries are independent

    def test_copies_begin_anew_by_themselves(self):
        behavior, rng = self.behavior(), np.random.default_rng(0)
        kept = [behavior.draw((3, 2), rng) for _ in range(4)][-1]
        behavior.episodes_begin(np.array([False, True, False]))
        np.testing.assert_array_equal(behavior.noise, kept * [[1], [0], [1]])
        assert np.abs(kept).min() > 0

    def test_other_observations_than_those_of_the_copies_leave_it_alone(self):
        behavior, rng = self.behavior(), np.random.default_rng(0)
        kept = behavior.draw((3, 2), rng)
        assert behavior.draw((1, 2), rng).shape == (1, 2)
        np.testing.assert_array_equal(behavior.noise, kept)

    def test_a_light_twin_has_noise_of_its_own(self):
        behavior, rng = self.behavior(), np.random.default_rng(0)
        kept, twin = behavior.draw((3, 2), rng).copy(), behavior.light()
        twin.draw((3, 2), rng)
        twin.episodes_begin(np.array([True, False, False]))
        np.testing.assert_array_equal(behavior.noise, kept)

    def test_actions_stay_in_bounds_and_deterministic_ones_have_no_noise(self):
        agent, obs = make(noise='ornstein_uhlenbeck', explore_noise=10.0, dt=1.0), np.zeros((3, 3), np.float32)
        agent.behavior.episodes_begin(np.ones(3, bool))
        assert all(np.abs(agent.act(obs)).max() <= 1.0 for _ in range(10))
        noise = agent.behavior.noise
        np.testing.assert_allclose(agent.act(obs, deterministic=True), NumpyNetwork(agent.actor)(obs), atol=1e-5)
        assert agent.behavior.noise is noise
