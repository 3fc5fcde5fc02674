"""Evolution strategies in compiled environments: the episodes of all perturbations, played at once."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pure
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, MultiDiscrete

import zoo
from zoo import algorithms
from zoo.common.acting.forward import assign
from zoo.common.acting.perturbed import direction, episode_seed
from zoo.common.envs.compiled.env import steps_of
from zoo.common.rollouts.compiled_play import CompiledPlay
from zoo.common.rollouts.perturbed_play import both_ways
from zoo.common.tools.errors import NotFinite

QUIET = {'run_dir': False, 'verbose': 0, 'seed': 0}


def made(functions: Any, name: str = 'ES', **params: Any) -> tuple[Any, Any]:
    """An agent with a small network, and the compiled environment."""
    env = zoo.build_env(functions, 'compiled')
    given = {'net_list': [{'hidden': [6], 'seed': 0}], 'num_directions': 3} | params
    return getattr(algorithms, name)(env.observation_space, env.action_space, **given), env


def by_hand(agent: Any, env: Any, vector: np.ndarray, seed: int, episodes: int) -> tuple[float, int, np.ndarray]:
    """The mean return, the steps, and the sums of the observations and their squares, one step after the other."""
    kept = np.concatenate([v.numpy().ravel() for v in agent.forward.trained])
    assign(agent.forward.trained, vector)
    env = steps_of(env.functions, 1, None)
    state = env.begin(tf.constant([seed]))
    total, steps, ended, seen = 0.0, 0, 0, []
    while ended < episodes:
        obs = zoo.common.spaces.tree_map(lambda x: x.numpy(), state.obs)
        seen.append(obs['place'][0] if isinstance(obs, dict) else obs[0])
        one = zoo.common.spaces.tree_map(lambda x: x[0], obs)
        state, outcome = env.step(state, tf.constant(np.asarray(agent.predict(one, deterministic=True))[None]))
        total, steps = total + float(outcome.reward[0]), steps + 1
        ended += int(outcome.terminated[0] | outcome.truncated[0])
    assign(agent.forward.trained, kept)
    agent.forward.refresh()
    return total / episodes, steps, np.stack([np.sum(seen, 0, np.float64), np.square(seen).sum(0, np.float64)])


class Scaled(keras.Model):
    """A network of the user's own, whose weights are not those of a chain of dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = keras.layers.Dense(5, 'tanh'), keras.layers.LayerNormalization()

    def call(self, x: Any) -> Any:
        return self.second(self.first(x))


@pytest.mark.parametrize(
    ('functions', 'params'),
    [
        (pure.Line, {}),
        (pure.Choices, {'net_list': [{'hidden': []}]}),
        pytest.param(pure.Line, {'net_list': [Scaled]}, marks=pytest.mark.full),
    ],
)
def test_the_episodes_are_those_of_each_perturbation_by_itself(functions, params):
    made_of = dict(params)
    if params.get('net_list') == [Scaled]:
        made_of['net_list'] = [Scaled()]
    agent, env = made(functions(), **made_of)
    play = CompiledPlay(steps_of(env.functions, 6, None), agent.behavior, 7)  # a call ends within the episodes
    told: list[tuple[int, int]] = []
    seeds, signs = both_ways(np.array([11, 12, 13]))
    returns, lengths, _ = play(seeds, signs, 0.5, 2, lambda count, episodes: told.append((count, len(episodes))))
    parameters = np.concatenate([v.numpy().ravel() for v in agent.forward.trained])
    for seed, sign, one, length in zip(seeds, signs, returns, lengths, strict=True):
        vector = parameters + np.float32(sign * 0.5) * direction(int(seed), parameters.size)
        mean, steps, _ = by_hand(agent, env, vector, episode_seed(int(seed), int(sign), 0), 2)
        assert steps == length and mean == pytest.approx(one, abs=1e-4)
    assert sum(count for count, _ in told) == lengths.sum() and sum(ended for _, ended in told) == 12
    assert len(set(returns)) > 3


def test_running_statistics_take_in_what_was_seen():
    agent, env = made(pure.Line(), normalize_obs=True)
    agent.statistics[''].merge(10.0, np.array([0.3, -0.1]), np.array([5.0, 2.0]))
    play = CompiledPlay(steps_of(env.functions, 2, None), agent.behavior, 64)
    seeds, signs = both_ways(np.array([5]))
    returns, lengths, observed = play(seeds, signs, 0.5, 1, lambda count, episodes: None)
    parameters = np.concatenate([v.numpy().ravel() for v in agent.forward.trained])
    for i, sign in enumerate(signs):
        vector = parameters + np.float32(sign * 0.5) * direction(5, parameters.size)
        mean, steps, (total, squares) = by_hand(agent, env, vector, episode_seed(5, int(sign), 0), 1)
        assert mean == pytest.approx(returns[i], abs=1e-4)
        np.testing.assert_array_equal(observed[''][i, 0], steps)
        np.testing.assert_allclose(observed[''][i, 1], total / steps, rtol=1e-5)
        np.testing.assert_allclose(observed[''][i, 2], squares - total**2 / steps, rtol=1e-4)


@pytest.mark.parametrize('name', ['ARS', pytest.param('ES', marks=pytest.mark.full)])
def test_training_counts_what_was_played(name):
    agent, env = made(pure.Line(), name)
    before = agent.forward.numpy.packed.copy()
    result = agent.learn(env, 'train', train_steps=150, episodes_per_evaluation=2, **QUIET)
    assert result.steps == result.episode_steps[-1] >= 150 and result.episodes % 12 == 0
    assert (agent.forward.numpy.packed != before).any() and len(agent.calls) == 1


def test_each_generation_has_its_own_running_statistics():
    """The compiled call reads them anew."""
    agent, env = made(pure.Line(), 'ARS', normalize_obs=True)
    agent.learn(env, 'train', train_steps=150, **QUIET)
    assert agent.statistics[''].count >= 150


def test_weights_that_cannot_be_exchanged(caplog):
    class Plain(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kernel = tf.Variable(tf.ones([2, 4]))

        def __call__(self, x: Any) -> Any:
            return x @ self.kernel

    agent, env = made(pure.Line(), net_list=[Plain()])
    agent.learn(env, 'train', train_steps=20, **QUIET)
    assert 'stepped from Python, which takes longer: TensorFlow cannot run its network with other' in caplog.text


class Choosing(pure.Line):
    """Two choices with different numbers of options; a reward for the option that the second one lacks."""

    action_space = MultiDiscrete([3, 2])

    def push(self, action: Any) -> Any:
        return tf.cast(action[0], tf.float32) - 1.0

    def step(self, state: Any, action: Any, seed: Any) -> Any:
        state, obs, _, *ends = super().step(state, action, seed)
        return state, obs, tf.cast(action[1] > 1, tf.float32), *ends


def test_choices_stay_in_their_space():
    agent, env = made(Choosing(), num_directions=8)
    play = CompiledPlay(steps_of(env.functions, 16, None), agent.behavior, 64)
    returns, _, _ = play(*both_ways(np.arange(8)), 2.0, 1, lambda count, episodes: None)
    assert (returns == 0).all()


@pytest.mark.full
def test_a_convolution_is_stepped_from_python(caplog):
    class Picture(pure.Line):
        observation_space = Box(0, 255, (12, 12, 1), np.uint8)

        def reset(self, seed: Any) -> Any:
            state, _ = super().reset(seed)
            return state, tf.zeros([12, 12, 1], tf.uint8)

        def step(self, state: Any, action: Any, seed: Any) -> Any:
            state, _, *rest = super().step(state, action, seed)
            return state, tf.zeros([12, 12, 1], tf.uint8), *rest

    net = keras.Sequential([keras.layers.Conv2D(2, 3), keras.layers.Flatten()])
    agent, env = made(Picture(), net_list=[net])
    agent.learn(env, 'train', train_steps=20, **QUIET)
    assert 'stepped from Python, which takes longer: TensorFlow cannot run its network' in caplog.text


def test_nan():
    class Bad(pure.Line):
        def step(self, state, action, seed):
            state, obs, reward, *rest = super().step(state, action, seed)
            return state, obs, tf.where(state[0] > 0.2, float('nan'), reward), *rest

    agent, env = made(Bad())
    with pytest.raises(NotFinite, match=r'step \d+ of the copies: Bad gave an observation or a reward that is NaN'):
        agent.learn(env, 'train', train_steps=2000, **QUIET)
