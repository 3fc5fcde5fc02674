"""TD3: the smoothed target, both losses, the delayed actor and targets, exploration noise, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box
from reference import NumpyNetwork, assert_close, copies, finite_differences, stir
from toys import altered

from zoo.algorithms import TD3
from zoo.common.maths.distributions import normal_like
from zoo.common.records import Batch, Transition

VECTOR = Box(-np.inf, np.inf, (3,), np.float32)
ACTION = Box(np.float32([-2.0, 0.0]), np.float32([2.0, 10.0]))
SGD = {'name': 'SGD', 'learning_rate': 0.1}
SEED = tf.constant([3, 4])

pytestmark = pytest.mark.usefixtures('plain_graphs')


def make(**params: Any) -> TD3:
    """An agent whose networks all differ."""
    params = {'net_list': [{'hidden': [6], 'seed': i} for i in range(3)]} | params
    agent = TD3(VECTOR, ACTION, **params)
    for i, network in enumerate([*agent.networks.values(), agent.target_actor, *agent.target_critics]):
        stir(network.variables, seed=i)
    agent.forward.refresh()
    return agent


def batch(size: int = 8, seed: int = 0) -> Batch:
    rng = np.random.default_rng(seed)
    return Batch.of(
        Transition(
            rng.normal(size=(size, 3)).astype(np.float32),
            rng.uniform(-1, 1, (size, 2)).astype(np.float32),
            rng.normal(size=size).astype(np.float32),
            rng.normal(size=(size, 3)).astype(np.float32),
            np.arange(size) % 4 >= 2,
            np.arange(size) % 2 == 1,
        ),
        0.99,
    )


def lead(data: Batch) -> Batch:
    return tf.nest.map_structure(lambda x: np.asarray(x)[None], data)


def target_by_hand(agent: TD3, data: Batch, seed: tf.Tensor) -> np.ndarray:
    """Algorithm 1, lines 8 and 9, by NumPy."""
    noise = agent.target_noise * normal_like(data.action, seed).numpy()
    noise = np.clip(noise, -agent.noise_clip, agent.noise_clip)
    action = np.clip(NumpyNetwork(agent.target_actor)(data.next_obs) + noise, -1.0, 1.0)
    q = [NumpyNetwork(critic)(data.next_obs, action)[:, 0] for critic in agent.target_critics]
    return data.reward + agent.gamma * ~data.terminated * np.minimum(*q)


def next_seed(agent: TD3) -> tf.Tensor:
    """The seed that the next update will be given."""
    return agent.noise_seed + [0, 2]


@pytest.mark.full(but='params2')
@pytest.mark.parametrize(
    'params',
    [{}, {'target_noise': 5.0}, {'target_noise': 0.0}, {'target_noise': 1.0, 'noise_clip': 0.01}, {'gamma': 0.5}],
)
def test_critic_target(params):
    agent = make(**params)
    data = altered(batch(64), agent.gamma)
    np.testing.assert_allclose(agent.critic_target(data, SEED), target_by_hand(agent, data, SEED), rtol=1e-5, atol=1e-5)


def test_target_noise_is_clipped():
    """With noise far beyond its bound, the target is that of an action exactly the bound away."""
    agent, data = make(target_noise=1e6, noise_clip=0.1), altered(batch(64), 1.0)
    sign = np.sign(normal_like(data.action, SEED).numpy())
    action = np.clip(NumpyNetwork(agent.target_actor)(data.next_obs) + 0.1 * sign, -1.0, 1.0)
    q = np.minimum(*(NumpyNetwork(critic)(data.next_obs, action)[:, 0] for critic in agent.target_critics))
    np.testing.assert_allclose(
        agent.critic_target(data, SEED), data.reward + ~data.terminated * q, rtol=1e-5, atol=1e-5
    )


def test_target_noise_differs_between_seeds_and_entries():
    agent, data = make(target_noise=0.01), batch(4)
    data = altered(
        data, next_obs=np.repeat(data.next_obs[:1], 4, 0), reward=np.zeros(4, np.float32), terminated=np.zeros(4, bool)
    )
    first, second = agent.critic_target(data, SEED).numpy(), agent.critic_target(data, SEED + 1).numpy()
    assert len(np.unique(np.concatenate([first, second]))) == 8


def test_terminated_takes_the_reward_alone_and_truncated_bootstraps():
    agent, data = make(), batch(8)
    over = altered(data, terminated=np.ones(8, bool))
    np.testing.assert_array_equal(agent.critic_target(over, SEED), data.reward)
    going_on = altered(data, terminated=np.zeros(8, bool))
    cut, not_cut = going_on._replace(truncated=np.ones(8, bool)), going_on._replace(truncated=np.zeros(8, bool))
    np.testing.assert_array_equal(agent.critic_target(cut, SEED), agent.critic_target(not_cut, SEED))
    assert np.abs(agent.critic_target(cut, SEED) - data.reward).min() > 1e-4


def test_losses_by_hand():
    agent, data = make(), batch()
    target = np.linspace(-1, 1, 8).astype(np.float32)
    q = [NumpyNetwork(critic)(data.obs, data.action)[:, 0] for critic in agent.critics]
    expected = np.mean((q[0] - target) ** 2) + np.mean((q[1] - target) ** 2)
    assert float(agent.critic_loss(data, target)) == pytest.approx(expected, rel=1e-5)
    action = NumpyNetwork(agent.actor)(data.obs)
    expected = -NumpyNetwork(agent.critics[0])(data.obs, action).mean()  # the first critic's alone
    assert float(agent.actor_loss(data)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.full
def test_one_update_with_the_actor_by_finite_differences():
    agent, data = make(optimizers_list=[SGD, SGD], policy_delay=1, tau=0.1), batch()
    target = target_by_hand(agent, data, next_seed(agent))
    critics = [NumpyNetwork(critic) for critic in agent.critics]
    targets = [agent.target_actor, *agent.target_critics]
    before_targets = [copies(network.variables) for network in targets]

    expected = []
    for critic in critics:

        def loss(critic: NumpyNetwork = critic) -> float:
            return np.mean((critic(data.obs, data.action)[:, 0] - target) ** 2)

        gradients = finite_differences(loss, critic.weights)
        expected.append([w - 0.1 * g for w, g in zip(critic.weights, gradients, strict=True)])
    critics[0].weights = expected[0]  # the actor climbs the critic that has moved already
    actor = NumpyNetwork(agent.actor)
    gradients = finite_differences(lambda: -critics[0](data.obs, actor(data.obs)).mean(), actor.weights)
    moved_actor = [w - 0.1 * g for w, g in zip(actor.weights, gradients, strict=True)]

    agent.update_on(lead(data))
    for critic, weights in zip(agent.critics, expected, strict=True):
        assert_close(critic.variables, weights, 1e-4, 1e-5)
    assert_close(agent.actor.variables, moved_actor, 1e-4, 1e-5)
    for network, source, before in zip(targets, [agent.actor, *agent.critics], before_targets, strict=True):
        moved = [0.9 * old + 0.1 * new.numpy() for old, new in zip(before, source.variables, strict=True)]
        assert_close(network.variables, moved)


@pytest.mark.full
@pytest.mark.parametrize('delay', [2, 3])
def test_actor_and_targets_move_every_so_many_updates(delay):
    agent = make(policy_delay=delay)
    delayed = [agent.actor, agent.target_actor, *agent.target_critics]
    losses = [0.0]
    for update in range(1, 2 * delay + 2):
        kept = [copies(network.variables) for network in delayed]
        critic = copies(agent.critics[1].variables)
        losses.append(agent.update_on(lead(batch(seed=update)))['actor'])
        assert not np.array_equal(critic[0], agent.critics[1].variables[0])
        for network, before in zip(delayed, kept, strict=True):
            unchanged = all(np.array_equal(a, b.numpy()) for a, b in zip(before, network.variables, strict=True))
            assert unchanged is (update % delay != 0), f'update {update}'
        # Between its moves the actor's last loss is reported.
        assert (losses[-1] == losses[-2]) is (update % delay != 0)


@pytest.mark.full
def test_the_delay_goes_on_after_loading(tmp_path):
    agent = make(policy_delay=2)
    agent.update_on(lead(batch()))
    loaded = TD3.load(agent.save(tmp_path / 'saved'))
    before = copies(loaded.actor.variables)
    loaded.update_on(lead(batch()))
    assert not np.array_equal(before[0], loaded.actor.variables[0])


class TestActing:
    OBS = np.random.default_rng(1).normal(size=(5000, 3)).astype(np.float32)

    def test_deterministic_is_the_actor(self):
        agent = make()
        np.testing.assert_allclose(
            agent.act(self.OBS, deterministic=True), NumpyNetwork(agent.actor)(self.OBS), atol=1e-5
        )

    def test_exploration_noise_has_its_deviation_and_stays_in_bounds(self):
        agent = make(explore_noise=0.1)
        agent.rng = np.random.default_rng(0)
        mean, action = agent.act(self.OBS, deterministic=True), agent.act(self.OBS)
        assert np.abs(action).max() <= 1.0
        inside = (np.abs(mean) < 0.5).all(-1)
        assert inside.sum() > 200
        noise = (action - mean)[inside]
        np.testing.assert_allclose(noise.std(0), 0.1, rtol=0.1)
        np.testing.assert_allclose(noise.mean(0), 0.0, atol=0.02)
        assert abs(np.corrcoef(noise.T)[0, 1]) < 0.15

    def test_minus_one_and_one_are_the_bounds_of_the_space(self):
        agent = make(explore_noise=1e6)
        action = agent.predict(self.OBS, deterministic=False)
        np.testing.assert_array_equal(np.unique(action, axis=0), [[-2, 0], [-2, 10], [2, 0], [2, 10]])

    def test_no_noise_where_none_is_asked_for(self):
        agent = make(explore_noise=0.0)
        np.testing.assert_array_equal(agent.act(self.OBS), agent.act(self.OBS, deterministic=True))


def test_noise_that_is_switched_off_is_told_of(caplog):
    make(target_noise=0.0)
    make(noise_clip=0.0)
    make(noise_clip=0.3)
    assert not caplog.records
    make(target_noise=0.0, noise_clip=0.3)
    make(target_noise=0.3, noise_clip=0.0)
    make(explore_noise=0.0)
    assert [record.getMessage() for record in caplog.records] == [
        'noise_clip=0.3 changes nothing beside target_noise=0.',
        'target_noise=0.3 changes nothing beside noise_clip=0.',
        'explore_noise=0: nothing explores but the random actions of explore_steps.',
    ]
