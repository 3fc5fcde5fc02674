"""IMPALA: one update computed again by NumPy, A2C's where nothing lags, and what rollouts hold of who played them."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import toys
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from reference import NumpyNetwork, assert_close, copies, finite_differences, stir
from rollouts import log_softmax, rollout

from zoo.algorithms import A2C, IMPALA
from zoo.common.records import Trajectories
from zoo.common.training import collection

VECTOR = Box(-np.inf, np.inf, (3,), np.float32)
SGD = [{'name': 'SGD', 'learning_rate': 0.1}]
SPECS = [{'hidden': [5], 'seed': i} for i in range(2)]

pytestmark = pytest.mark.usefixtures('plain_graphs')


def make(cls: Any = IMPALA, action_space: Any = None, **params: Any) -> Any:
    """An agent with small networks whose biases are not zero."""
    given = {'net_list': SPECS, 'max_grad_norm': None, 'optimizers_list': SGD} | params
    agent = cls(VECTOR, action_space or Discrete(3), **given)
    for i, network in enumerate(agent.networks.values()):
        stir(network.variables, seed=i)
    agent.forward.refresh()
    return agent


def played(agent: Any, data: Trajectories, stirred: float = 0.0) -> Trajectories:
    """A rollout whose actions an agent took, or one of other weights: logits that are stirred."""
    params = agent.forward(data.obs.reshape(-1, 3))
    params = params + stirred * np.random.default_rng(9).normal(size=params.shape)
    return data._replace(params=params.reshape(*data.reward.shape, -1).astype(np.float32))


@pytest.mark.full
@pytest.mark.parametrize('action_space', [Discrete(3), Box(-1.0, 1.0, (2,), np.float32)], ids=['Discrete', 'Box'])
def test_without_a_lag_it_takes_the_step_of_a2c(action_space: Any):
    """Returns of n steps, on the same rollout with ends of episodes and a row of a reset."""
    alike = {'gamma': 0.9, 'entropy_coef': 0.03, 'value_coef': 0.7, 'max_grad_norm': 0.8}
    agent, other = make(action_space=action_space, **alike), make(A2C, action_space, **alike)
    data = rollout(agent)
    start = copies(agent.trainable_variables)
    assert_close(start, copies(other.trainable_variables), 0.0, 0.0)
    metrics, expected = agent.update(played(agent, data)), other.update(data)
    assert_close(copies(agent.trainable_variables), copies(other.trainable_variables), 1e-5, 1e-6)
    for name, value in expected.items():
        assert metrics[name] == pytest.approx(value, rel=1e-5, abs=1e-6)
    assert metrics['rho'] == pytest.approx(1.0, abs=1e-6) and metrics['clip_fraction'] == 0.0
    assert max(np.abs(a - b).max() for a, b in zip(start, copies(agent.trainable_variables), strict=True)) > 1e-3


@pytest.mark.full
@pytest.mark.parametrize('params', [{}, {'rho_bar': 1.3, 'c_bar': 0.9, 'clip_range': 0.1}], ids=str)
def test_one_update_on_the_rollout_of_another_policy_computed_again(params: dict[str, Any]):
    """V-trace as the sum of its definition, and PPO's clipped objective by finite differences."""
    agent = make(gamma=0.9, entropy_coef=0.02, **params)
    data = played(agent, rollout(agent), stirred=0.5)
    actor, critic = (NumpyNetwork(network) for network in agent.networks.values())
    shape, valid = data.reward.shape, data.valid.ravel()
    obs, action = data.obs.reshape(20, 3), data.action.reshape(20)
    value, next_value = (critic(x.reshape(20, 3))[:, 0].reshape(shape) for x in (data.obs, data.next_obs))

    def log_prob(logits: np.ndarray) -> np.ndarray:
        return log_softmax(logits)[np.arange(20), action]

    behaviour = log_prob(np.float64(data.params.reshape(20, 3)))
    ratio = np.exp(log_prob(actor(obs)) - behaviour).reshape(shape)
    rho, c = np.minimum(ratio, agent.rho_bar), np.minimum(ratio, agent.c_bar)
    assert (ratio > 1.1).any() and (ratio < 0.9).any()
    done, alive = data.terminated | data.truncated, ~data.terminated
    delta = rho * (data.reward + 0.9 * alive * next_value - value)
    target, advantage = np.zeros(shape), np.zeros(shape)
    for n in range(shape[1]):
        for s in range(shape[0]):
            weight, total = 1.0, 0.0
            for t in range(s, shape[0]):  # equation 1
                total += weight * delta[t, n]
                weight *= 0.0 if done[t, n] else 0.9 * c[t, n]
            target[s, n] = value[s, n] + total
        for s in range(shape[0]):
            unseen = done[s, n] or s + 1 == shape[0]
            following = next_value[s, n] if unseen else target[s + 1, n]
            advantage[s, n] = data.reward[s, n] + 0.9 * alive[s, n] * following - value[s, n]
    advantage, weight = advantage.ravel(), rho.ravel()
    # The gradient of min(r A, clip(r) A) in the log-probability, with ρ in the place of r.
    epsilon = params.get('clip_range', np.inf)
    gone = np.where(advantage > 0, ratio.ravel() > 1 + epsilon, ratio.ravel() < 1 - epsilon)
    assert gone[valid].any() == bool(params)
    weight = np.where(gone, 0.0, weight)

    def loss() -> float:
        logits = actor(obs)
        logs = log_softmax(logits)
        entropy = -(np.exp(logs) * logs).sum(-1)
        error = np.square(critic(obs)[:, 0] - target.ravel())
        each = -weight * advantage * log_prob(logits) + 0.5 * error - 0.02 * entropy
        return float(each[valid].mean())

    gradients = finite_differences(loss, [*actor.weights, *critic.weights])
    before = [*copies(agent.networks['actor'].variables), *copies(agent.networks['critic'].variables)]
    metrics = agent.update(data)
    after = [*copies(agent.networks['actor'].variables), *copies(agent.networks['critic'].variables)]
    assert_close(after, [x - 0.1 * g for x, g in zip(before, gradients, strict=True)], 1e-4, 1e-5)
    assert metrics['rho'] == pytest.approx(rho.ravel()[valid].mean(), rel=1e-4)
    assert metrics['clip_fraction'] == pytest.approx(gone[valid].mean(), abs=1e-6)


@pytest.mark.full(but='AutoresetMode.NEXT_STEP')
@pytest.mark.parametrize('mode', [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_rollouts_hold_the_parameters_that_were_acted_by(mode: AutoresetMode):
    """In every row, also those after the end of an episode and those in which a copy is only reset."""
    agent = make()
    env = SyncVectorEnv([lambda: toys.AnySpaces(VECTOR, Discrete(3))] * 2, autoreset_mode=mode)
    seen = []
    update = agent.update

    def look(data: Trajectories, **rest: Any) -> Any:
        assert data.params.shape == (9, 4, 3) and data.params.dtype == np.float32  # two rollouts of two copies
        np.testing.assert_allclose(data.params.reshape(-1, 3), agent.forward(data.obs.reshape(-1, 3)), atol=1e-6)
        seen.append(data.valid.copy())
        return update(data, **rest)

    agent.update = look
    result = agent.learn(env, train_steps=60, horizon=9, rollouts=2, roles=None, run_dir=False, seed=0)
    assert result.episodes > 4 and len(seen) > 1
    assert all(x.all() for x in seen) == (mode == AutoresetMode.SAME_STEP)
    assert result.losses['rho'] == pytest.approx(1.0, abs=1e-5), 'nothing lags in one process'


@pytest.mark.full
def test_also_by_a_graph_of_tensorflow_over_images_and_for_actions_in_parts():
    """The ratios of the first update, before which nothing has moved, are 1."""
    space, actions = toys.OBSERVATIONS['image 2-D'], toys.ACTIONS['Dict']
    agent = IMPALA(space, actions, net_list=[{'hidden': [4], 'features': 4}, 'actor'])
    assert agent.behavior.light().forward is None
    given = {'train_steps': 12, 'horizon': 6, 'rollouts': 2, 'roles': None, 'run_dir': False}
    losses = agent.learn(toys.AnySpaces(space, actions), seed=0, **given).losses
    assert losses['rho'] == pytest.approx(1.0, abs=1e-4) and losses['entropy'] > 0.0


def test_others_do_not_keep_them():
    agent = make(A2C)
    assert agent.behavior.param_size == 0
    assert collection.buffer_for(agent, 2, 1).rollout.params is None
    assert collection.buffer_for(make(), 2, 1).rollout.params.shape == (2, 1, 3)


@pytest.mark.full
def test_a_recurrent_policy_of_another_age():
    """Its state at the beginning of a rollout is that with which it was played."""
    nets = [{'hidden': [4], 'recurrent': 'lstm', 'seed': 0}, 'actor']
    agent, other = make(net_list=nets), make(A2C, net_list=nets, entropy_coef=0.01)
    data = rollout(agent)
    rng = np.random.default_rng(3)
    begins = np.concatenate([np.zeros((1, 4), bool), (data.terminated | data.truncated)[:-1]])
    data = data._replace(state=rng.normal(size=(4, 8)).astype(np.float32), begins=begins)
    state, params = data.state, []
    for t in range(5):
        found, state = agent.forward.step(data.obs[t], np.where(begins[t][:, None], np.float32(0.0), state))
        params.append(found)
    metrics = agent.update(data._replace(params=np.stack(params)))
    assert metrics['rho'] == pytest.approx(1.0, abs=1e-5)
    other.update(data)
    assert_close(copies(agent.trainable_variables), copies(other.trainable_variables), 1e-5, 1e-6)


@pytest.mark.full
def test_earlier_rollouts_are_learned_from_too():
    """Each update sees the new ones and as many earlier ones as asked for; statistics take in the new ones alone."""
    agent = make(normalize_obs=True)
    iterate, seen = agent.iterate, []

    def look(data: Trajectories, **rest: Any) -> Any:
        seen.append(data)
        return iterate(data, **rest)

    agent.iterate = look
    given = [played(agent, rollout(agent, seed=seed))._replace(valid=np.ones((5, 4), bool)) for seed in range(4)]
    for data in given:
        metrics = agent.update(data, replayed=3, replay_size=8)
        assert all(np.isfinite(x) for x in metrics.values())
    assert agent.statistics[''].count == 4 * 20 and agent.fused.traces == 1
    drawn = []
    for step, (data, found) in enumerate(zip(given, seen, strict=True)):
        for name, x in found._asdict().items():
            if x is not None:
                np.testing.assert_array_equal(x[:, :4], getattr(data, name), err_msg=name)
        for i in range(4, 7):  # each is one of the last eight copies, whole
            origin = [
                (s, n) for s in range(4) for n in range(4) if np.array_equal(found.reward[:, i], given[s].reward[:, n])
            ]
            assert len(origin) == 1 and step - 2 < origin[0][0] <= step
            source, n = origin[0]
            np.testing.assert_array_equal(found.params[:, i], given[source].params[:, n])
            np.testing.assert_array_equal(found.obs[:, i], given[source].obs[:, n])
            drawn.append(step - source)
    assert set(drawn) == {0, 1}
    assert agent.params().keys().isdisjoint({'replayed'}) and agent.learn_params()['replayed'] == 0


@pytest.mark.full
def test_a_twin_has_the_earlier_rollouts_too():
    agent = make()
    given = [played(agent, rollout(agent, seed=seed)) for seed in range(2)]
    agent.update(given[0], replayed=3, replay_size=8)
    twin = copy.deepcopy(agent)
    for one in (agent, twin):
        one.update(given[1], replayed=3, replay_size=8)
    assert_close(copies(agent.trainable_variables), copies(twin.trainable_variables), 0.0, 0.0)
    assert agent._kept is not twin._kept


def test_exact_resume_needs_a_checkpoint_of_all_rollouts():
    with pytest.raises(ValueError, match='exact_resume=True cannot be kept with replayed, whose rollouts no checkpo'):
        make().learn(toys.AnySpaces(VECTOR, Discrete(3)), train_steps=10, replayed=2, exact_resume=True, run_dir=False)


def test_what_means_nothing_here_is_refused():
    for name, value in (('normalize_reward', True), ('gae_lambda', 0.9)):
        with pytest.raises(ValueError, match=f'{name}'):
            make(**{name: value})
