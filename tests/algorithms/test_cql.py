"""CQL: the soft maximum, the target, one update against float64, and what the conservative weight does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from batches import ACTION, MASKED, SGD, VECTOR, box_batch, discrete_batch, lead, specs
from gymnasium.spaces import Box, Discrete
from reference import NumpyNetwork, assert_close, copies, finite_differences, stir

from zoo.algorithms import CQL
from zoo.common.maths.distributions import normal_like, split_seed, uniform_like

pytestmark = pytest.mark.usefixtures('plain_graphs')

SPACES = ['box', 'discrete', 'masked']
ALPHA = np.exp(np.float64(np.float32(-0.7)))


def make(kind: str = 'box', **params: Any) -> CQL:
    """An agent whose networks all differ."""
    obs, action = MASKED if kind == 'masked' else VECTOR, ACTION if kind == 'box' else Discrete(3)
    agent = CQL(obs, action, **{'net_list': specs(3)} | params)
    for i, network in enumerate([*agent.networks.values(), *agent.targets]):
        stir(network.variables, seed=i, scale=0.3)
    agent.log_alpha.assign(-0.7)
    agent.forward.refresh()
    return agent


def batch_of(kind: str, size: int = 8) -> Any:
    return box_batch(size) if kind == 'box' else discrete_batch(size, masked=kind == 'masked')


def pose(obs: Any) -> np.ndarray:
    return obs['pose'] if isinstance(obs, dict) else obs


def masked(values: np.ndarray, obs: Any, low: float) -> np.ndarray:
    return np.where(obs['action_mask'], values, low) if isinstance(obs, dict) else values


def sample(actor: NumpyNetwork, obs: np.ndarray, seed: Any, count: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """tanh(mean + std · noise) ``[count · B, n]`` and its log-density (SAC, appendix C)."""
    mean, log_std = np.split(np.repeat(actor(obs), count, 0), 2, -1)
    drawn = np.float64(normal_like(tf.zeros(mean.shape), seed).numpy())
    u = mean + np.exp(log_std) * drawn
    log_prob = -0.5 * drawn**2 - log_std - 0.5 * np.log(2 * np.pi) - np.log(1.0 - np.tanh(u) ** 2)
    return np.tanh(u), log_prob.sum(-1)


def expectations(
    kind: str, actor: NumpyNetwork, critics: list[NumpyNetwork], obs: Any, seed: Any
) -> tuple[np.ndarray, np.ndarray]:
    if kind == 'box':
        action, log_prob = sample(actor, obs, seed)
        return np.minimum(*(critic(obs, action)[:, 0] for critic in critics)), -log_prob
    logits = masked(actor(pose(obs)), obs, -1e9)
    log_prob = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    prob = np.exp(log_prob)
    q = np.minimum(*(critic(pose(obs)) for critic in critics))
    return (prob * q).sum(-1), -(prob * log_prob).sum(-1)


def soft_maximum(kind: str, actor: NumpyNetwork, critic: NumpyNetwork, data: Any, seed: Any, count: int) -> np.ndarray:
    """log Σ exp Q: exact, or log Σ exp (Q(s, aᵢ) − log density) over uniform actions and two kinds of the policy's."""
    if kind != 'box':
        return np.log(np.exp(masked(critic(pose(data.obs)), data.obs, -np.inf)).sum(-1))
    seeds, terms = split_seed(seed, 3), []
    rows = len(data.reward)
    uniform = 2.0 * np.float64(uniform_like(tf.zeros([rows * count, 2]), seeds[0]).numpy()) - 1.0
    drawn = [(uniform, np.full(rows * count, np.log(0.25)))]
    drawn += [sample(actor, obs, own, count) for obs, own in ((data.obs, seeds[1]), (data.next_obs, seeds[2]))]
    for action, log_prob in drawn:
        q = critic(np.repeat(data.obs, count, 0), action)[:, 0]
        terms.append((q - log_prob).reshape(rows, count))
    return np.log(np.exp(np.concatenate(terms, 1)).sum(1))


def value(kind: str, critic: NumpyNetwork, data: Any) -> np.ndarray:
    if kind == 'box':
        return critic(data.obs, data.action)[:, 0]
    return critic(pose(data.obs))[np.arange(len(data.action)), data.action]


@pytest.mark.parametrize('backup_entropy', [False, True])
@pytest.mark.parametrize('kind', SPACES)
def test_one_update_by_finite_differences(kind, backup_entropy):
    """Critics by equation 4, then the actor on the critics that moved, the temperature, and the targets."""
    params = {'n_actions': 3} if kind == 'box' else {}
    agent = make(
        kind, optimizers_list=[SGD] * 3, tau=0.1, conservative_weight=0.6, backup_entropy=backup_entropy, **params
    )
    agent.reseed(0, 'test')  # with other noise a unit may be so near to its kink that differences cross it
    data, seed = batch_of(kind), agent.noise_seed + [0, 2]
    of_target, of_drawn = split_seed(seed, 2)
    actor, *critics = map(NumpyNetwork, agent.networks.values())
    targets = [NumpyNetwork(target) for target in agent.targets]
    before = [copies(network.variables) for network in agent.targets]
    q, entropy = expectations(kind, actor, targets, data.next_obs, of_target)
    target = data.reward + 0.99 * ~data.terminated * (q + ALPHA * entropy * backup_entropy)
    gaps = []
    for critic in critics:

        def gap(critic: NumpyNetwork = critic) -> float:
            return np.mean(soft_maximum(kind, actor, critic, data, of_drawn, 3) - value(kind, critic, data))

        def loss(critic: NumpyNetwork = critic, gap: Any = gap) -> float:
            return np.mean((value(kind, critic, data) - target) ** 2) + 0.6 * gap()

        gaps.append(gap())
        gradients = finite_differences(loss, critic.weights)
        critic.weights = [w - 0.1 * g for w, g in zip(critic.weights, gradients, strict=True)]

    def actor_loss() -> float:
        q, entropy = expectations(kind, actor, critics, data.obs, seed + 1)
        return -np.mean(q + ALPHA * entropy)

    _, entropy = expectations(kind, actor, critics, data.obs, seed + 1)
    wanted = np.mean(agent.wanted_entropy(data.obs))
    gradients = finite_differences(actor_loss, actor.weights)
    moved = [w - 0.1 * g for w, g in zip(actor.weights, gradients, strict=True)]

    metrics = agent.update_on(lead(data))
    for network, reference in zip(agent.critics, critics, strict=True):
        assert_close(network.variables, reference.weights)
    assert_close(agent.networks['actor'].variables, moved)
    assert float(agent.log_alpha) == pytest.approx(-0.7 - 0.1 * (entropy.mean() - wanted), rel=1e-5)
    assert metrics['gap'] == pytest.approx(np.mean(gaps), rel=1e-5)
    for network, source, old in zip(agent.targets, agent.critics, before, strict=True):
        assert_close(network.variables, [0.9 * a + 0.1 * b.numpy() for a, b in zip(old, source.variables, strict=True)])


def test_the_estimate_is_the_integral():
    """∫ exp Q(s, a) da over [−1, 1] by importance sampling, less log m, against a fine sum."""
    agent = CQL(VECTOR, Box(-1.0, 1.0, (1,), np.float32), net_list=specs(3), n_actions=2000)
    stir(agent.critics[0].variables, scale=0.5)
    for variable in agent.networks['actor'].variables:  # a wide policy, whose importance weights vary little
        variable.assign(tf.zeros_like(variable))
    data = box_batch(4)
    data = data._replace(action=data.action[:, :1], next_obs=data.obs)
    drawn = agent.drawn(data, tf.constant([5, 6]))
    found = agent.soft_maximum(agent.critics[0], data.obs, drawn) - np.log(6000)
    grid = ((np.arange(2000) + 0.5) / 1000 - 1.0)[:, None]
    critic = NumpyNetwork(agent.critics[0])
    expected = [np.log(2.0 * np.exp(critic(np.repeat(row[None], 2000, 0), grid)).mean()) for row in data.obs]
    np.testing.assert_allclose(found, expected, atol=0.03)


def test_forbidden_actions_count_for_nothing():
    agent, data = make('masked'), discrete_batch(masked=True)
    data.obs['action_mask'][:, 2] = 0
    before = agent.soft_maximum(agent.critics[0], data.obs, None)
    agent.critics[0].variables[-1].assign_add([0.0, 0.0, 1000.0])
    np.testing.assert_allclose(agent.soft_maximum(agent.critics[0], data.obs, None), before, rtol=1e-6)


def test_the_weight_pushes_down_what_the_data_lack():
    """Every action of the data is near 0.5; with the weight the values near −0.5 fall below theirs."""
    found = {}
    for weight in (0.0, 5.0):
        agent = CQL(
            VECTOR, Box(-1.0, 1.0, (1,), np.float32), net_list=specs(3, hidden=[16]), conservative_weight=weight
        )
        data = box_batch(64)
        data = data._replace(
            action=np.clip(0.5 + 0.05 * data.action[:, :1], -1, 1),
            discount=np.zeros(64, np.float32),
            reward=np.ones(64, np.float32),
        )
        for _ in range(100):
            metrics = agent.update_on(lead(*[data] * 10))
        inside = agent.critics[0](data.obs, data.action).numpy().mean()
        outside = agent.critics[0](data.obs, -data.action).numpy().mean()
        found[weight] = inside - outside, metrics['gap']
    assert found[5.0][0] > found[0.0][0] + 0.5
    assert found[5.0][1] < found[0.0][1]


def test_actions_that_are_not_drawn_are_told_of(caplog):
    make('discrete', n_actions=4)
    assert 'n_actions=4 changes nothing, since the soft maximum over Discrete actions is exact.' in caplog.text
