"""TQC: the truncated target and one update, against NumPy and finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box
from reference import NumpyNetwork, assert_close, copies, finite_differences, stir
from test_sac import SEED, SGD, batch, lead, noise, sample_by_hand
from toys import altered

from zoo import describe
from zoo.algorithms import TQC

VECTOR = Box(-np.inf, np.inf, (3,), np.float32)
ACTION = Box(np.float32([-2.0, 0.0]), np.float32([2.0, 10.0]))

pytestmark = pytest.mark.usefixtures('plain_graphs')


def make(cls: type[TQC] = TQC, **params: Any) -> TQC:
    """An agent of few quantiles whose networks all differ and whose temperature is not 1."""
    specs = [{'hidden': [6], 'activation': 'tanh', 'seed': i} for i in range(len(cls.network_names))]
    agent = cls(VECTOR, ACTION, **{'net_list': specs, 'quantiles': 5, 'drop': 2} | params)
    for i, network in enumerate([*agent.networks.values(), *agent.targets]):
        stir(network.variables, seed=i, scale=0.3)
    if agent.alpha == 'auto':
        agent.log_alpha.assign(-0.7)
    agent.forward.refresh()
    return agent


def target_by_hand(agent: TQC, data: Any, seed: tf.Tensor) -> np.ndarray:
    """Of each transition the atoms in ascending order, all but the largest."""
    actor, size = NumpyNetwork(agent.networks['actor']), len(data.reward)
    action, log_prob = sample_by_hand(actor, data.next_obs, noise(agent, size, seed))
    atoms = np.concatenate([NumpyNetwork(target)(data.next_obs, action) for target in agent.targets], -1)
    kept = len(agent.targets) * (agent.quantiles - agent.drop)
    atoms = np.sort(atoms, -1)[:, :kept] - np.exp(agent.log_alpha.numpy()) * log_prob[:, None]
    return data.reward[:, None] + (agent.gamma * ~data.terminated)[:, None] * atoms


def quantile_loss_by_hand(quantiles: np.ndarray, target: np.ndarray) -> float:
    """The loss as the paper writes it, in loops over transitions, quantiles and atoms."""
    count, terms = quantiles.shape[-1], []
    for thetas, atoms in zip(quantiles, target, strict=True):
        for m, theta in enumerate(thetas):
            tau = (2 * (m + 1) - 1) / (2 * count)
            for y in atoms:
                u = y - theta
                huber = 0.5 * u**2 if abs(u) <= 1 else abs(u) - 0.5
                terms.append(abs(tau - (u < 0)) * huber)
    return float(np.mean(terms))


@pytest.mark.full(but='params1')
@pytest.mark.parametrize('params', [{}, {'drop': 0}, {'drop': 4}, {'quantiles': 1, 'drop': 0}, {'gamma': 0.5}])
def test_critic_target(params):
    agent = make(**params)
    data = altered(batch(64), agent.gamma)
    found = np.sort(agent.critic_target(data, SEED), -1)
    expected = target_by_hand(agent, data, SEED)
    assert found.shape == expected.shape == (64, 2 * (agent.quantiles - agent.drop))
    np.testing.assert_allclose(found, np.sort(expected, -1), rtol=1e-4, atol=1e-4)


def test_the_largest_of_all_critics_together_are_left_out():
    """Where one critic is far above the other, all that is left out is of that one."""
    agent, data = make(), batch(8)
    high, low = agent.targets
    high.variables[-1].assign_add(tf.fill([5], 100.0))
    going_on = altered(data, terminated=np.zeros(8, bool), reward=np.zeros(8, np.float32))
    found = np.sort(agent.critic_target(going_on, SEED), -1)
    assert (found[:, :5] < 50).all() and (found[:, 5:] > 50).all()  # all five of the low one, and one of the high one


def test_terminated_takes_the_reward_alone_and_truncated_bootstraps():
    agent, data = make(), batch(8)
    over = altered(data, terminated=np.ones(8, bool))
    np.testing.assert_array_equal(agent.critic_target(over, SEED), np.repeat(data.reward[:, None], 6, 1))
    going_on = altered(data, terminated=np.zeros(8, bool))
    cut, not_cut = going_on._replace(truncated=np.ones(8, bool)), going_on._replace(truncated=np.zeros(8, bool))
    np.testing.assert_array_equal(agent.critic_target(cut, SEED), agent.critic_target(not_cut, SEED))
    assert np.abs(agent.critic_target(cut, SEED) - data.reward[:, None]).min() > 1e-5


class ThreeCritics(TQC):
    """TQC with a critic more."""

    network_names = ('actor', 'critic_1', 'critic_2', 'critic_3')


@pytest.mark.full
@pytest.mark.parametrize('cls', [TQC, ThreeCritics])
def test_one_update_by_finite_differences(cls):
    """Critics, then the actor on the critics that moved, the temperature by that sample's entropy, and the targets."""
    agent, data = make(cls, optimizers_list=[SGD] * 3, tau=0.1), batch()
    seed = agent.noise_seed + [0, 2]
    target = target_by_hand(agent, data, seed)
    critics = [NumpyNetwork(critic) for critic in agent.critics]
    assert len(critics) == len(cls.network_names) - 1
    before_targets = [copies(network.variables) for network in agent.targets]
    for critic in critics:

        def loss(critic: NumpyNetwork = critic) -> float:
            return quantile_loss_by_hand(critic(data.obs, data.action), target)

        gradients = finite_differences(loss, critic.weights)
        critic.weights = [w - 0.1 * g for w, g in zip(critic.weights, gradients, strict=True)]
    actor, drawn, alpha = NumpyNetwork(agent.networks['actor']), noise(agent, 8, seed + 1), np.exp(-0.7)

    def actor_loss() -> tuple[float, float, float]:
        action, log_prob = sample_by_hand(actor, data.obs, drawn)
        q = np.mean([critic(data.obs, action) for critic in critics], (0, 2))  # of all quantiles, none left out
        return np.mean(alpha * log_prob - q), -log_prob.mean(), q.mean()

    _, entropy, q = actor_loss()
    gradients = finite_differences(lambda: actor_loss()[0], actor.weights)
    moved_actor = [w - 0.1 * g for w, g in zip(actor.weights, gradients, strict=True)]

    metrics = agent.update_on(lead(data))
    for critic, expected in zip(agent.critics, critics, strict=True):
        assert_close(critic.variables, expected.weights, 1e-3, 1e-4)
    assert_close(agent.networks['actor'].variables, moved_actor, 1e-3, 1e-4)
    assert float(agent.log_alpha) == pytest.approx(-0.7 - 0.1 * (entropy + 2.0), rel=1e-3)
    assert metrics['entropy'] == pytest.approx(entropy, rel=1e-3, abs=1e-5)
    assert metrics['q'] == pytest.approx(q, rel=1e-3, abs=1e-4)
    for network, source, before in zip(agent.targets, agent.critics, before_targets, strict=True):
        moved = [0.9 * old + 0.1 * new.numpy() for old, new in zip(before, source.variables, strict=True)]
        assert_close(network.variables, moved)


def test_parameters():
    assert {'quantiles', 'drop', 'gamma', 'target_entropy'} <= TQC.params().keys()
    assert 'quantiles that each critic gives' in repr(describe(TQC)) and 'the temperature' in TQC.__doc__
    with pytest.raises(ValueError, match=r'^drop is 5: leave at least one of the 5 quantiles of each critic\.$'):
        make(drop=5)
    with pytest.raises(ValueError, match='^quantiles is 0: give a whole number of at least 1'):
        make(quantiles=0)
    with pytest.raises(ValueError, match=r"^unknown parameter of TQC 'drops'.*'drop'"):
        make(drops=1)


def test_a_critic_of_another_size_gets_a_head_and_one_of_the_right_size_none():
    import keras

    def critic(units: int) -> keras.Model:
        obs, action = keras.Input((3,)), keras.Input((2,))
        return keras.Model([obs, action], keras.layers.Dense(units)(keras.layers.Concatenate()([obs, action])))

    agent = TQC(VECTOR, ACTION, net_list=[{'hidden': [4]}, critic(7), critic(5)], quantiles=5)
    assert [network.head is None for network in agent.critics] == [False, True]
    assert agent.critics[0](tf.zeros([4, 3]), tf.zeros([4, 2])).shape == (4, 5)
