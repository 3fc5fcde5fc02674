"""The types of environments in JAX: equal to their libraries step by step, what they take, and training in them."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from gymnasium.vector import VectorEnv

import zoo
from zoo import algorithms, build_env, call_default_params
from zoo.common.env_wrappers import find_env_type
from zoo.common.envs.compiled import jax_functions
from zoo.common.tools.errors import Failure, InvalidType, InvalidValue, MissingPackage

jax = pytest.importorskip('jax')
PACKAGES = {'gymnax': 'gymnax', 'brax': 'brax', 'jumanji': 'jumanji', 'mjx': 'mujoco_playground'}
full = pytest.mark.full


def needs(env_type: str) -> None:
    pytest.importorskip(PACKAGES[env_type])


@pytest.mark.parametrize(
    ('env_id', 'env_type', 'steps'),
    [
        ('CartPole-v1', 'gymnax', 300),
        ('Pendulum-v1', 'gymnax', 300),
        ('Game2048-v1', 'jumanji', 300),
        ('Snake-v1', 'jumanji', 300),
        pytest.param('Tetris-v0', 'jumanji', 300, marks=full),
        pytest.param('inverted_pendulum', 'brax', 200, marks=full),
        pytest.param('PendulumSwingup', 'mjx', 200, marks=full),
    ],
)
def test_steps_are_those_of_the_library(env_id, env_type, steps):
    """The library goes on from the state after each reset with the same actions; its steps draw from the state."""
    needs(env_type)
    env = build_env(env_id, env_type, seed=1)
    functions = env.unwrapped.functions
    step = jax.jit(functions.step)
    tree = jax.tree.structure(jax.eval_shape(functions.reset, jax.ShapeDtypeStruct((2,), 'uint32'))[0])

    def leaves():
        return [x.numpy()[0] for x in env.unwrapped.state.inner]

    def begin():
        env.reset()
        return jax.tree.unflatten(tree, [jax.numpy.asarray(x) for x in leaves()])

    env.action_space.seed(0)
    state, ends, limit = begin(), 0, env.unwrapped.steps.copies.limit
    elapsed = 0
    for _ in range(steps):
        action = env.action_space.sample()
        obs, reward, terminated, truncated, _ = env.step(action)
        state, wanted, wanted_reward, wanted_end, wanted_cut = step(state, action, jax.random.PRNGKey(0))
        elapsed += 1
        flat = jax.tree.leaves(obs), jax.tree.leaves(wanted)
        for one, other in zip(*flat, strict=True):
            np.testing.assert_allclose(one, np.asarray(other, one.dtype), rtol=1e-4, atol=1e-4)
        assert reward == pytest.approx(float(wanted_reward), rel=1e-4, abs=1e-4)
        assert terminated == bool(wanted_end)
        assert truncated == (bool(wanted_cut) or (limit is not None and elapsed >= limit))
        # Small differences of rounding would grow.
        state = jax.tree.unflatten(tree, [jax.numpy.asarray(x) for x in leaves()])
        if terminated or truncated:
            state, ends, elapsed = begin(), ends + 1, 0
    assert ends or env_type in ('brax', 'mjx')


@pytest.mark.parametrize('env_type', ['gymnax', 'jumanji'])
def test_a_seed_fixes_the_episodes_and_copies_differ(env_type):
    needs(env_type)
    env = build_env({'gymnax': 'CartPole-v1', 'jumanji': 'Maze-v0'}[env_type], env_type, nenv=3)
    assert isinstance(env, VectorEnv) and env.num_envs == 3
    first, again, other = (jax.tree.leaves(env.reset(seed=seed)[0]) for seed in (4, 4, 5))
    assert all(np.array_equal(x, y) for x, y in zip(first, again, strict=True))
    assert any(not np.array_equal(x, y) for x, y in zip(first, other, strict=True))
    assert any(not np.array_equal(x[0], x[1]) for x in first)


def test_time_limits():
    needs('gymnax')
    env = build_env('Pendulum-v1', 'gymnax', max_episode_steps=4)
    env.reset()
    assert [env.step(env.action_space.sample())[2:4] for _ in range(4)] == [(False, False)] * 3 + [(False, True)]
    needs('jumanji')
    with pytest.raises(InvalidValue, match='Snake-v1.*4000 steps itself: give time_limit=5000'):
        build_env('Snake-v1', 'jumanji', max_episode_steps=5000)


def test_spaces_and_masks_of_jumanji():
    needs('jumanji')
    from zoo.common.envs.kinds import jumanji

    def made(env_id):
        functions = jumanji._SUITE.functions_of(env_id, None, {})
        return functions.action_space, functions.observation_space['action_mask']

    # A mask for each agent, and one for all combinations of a row and a column.
    assert made('Cleaner-v0') == (MultiDiscrete([4, 4, 4]), MultiBinary(12))
    assert made('Tetris-v0') == (Discrete(40), MultiBinary(40))
    assert made('MultiCVRP-v0') == (MultiDiscrete([21, 21]), MultiBinary(42))


def test_a_combination_is_the_entry_of_its_mask():
    """Each allowed field of a minefield is opened by the number of its entry."""
    needs('jumanji')
    env = build_env('Minesweeper-v0', 'jumanji')
    obs, _ = env.reset(seed=0)
    obs, *_ = env.step(37)
    opened = np.flatnonzero(obs['action_mask'] == 0)
    assert opened.tolist() == [37] and np.argwhere(obs['board'] >= 0).tolist() == [[3, 7]]


@pytest.mark.parametrize('env_type', PACKAGES)
def test_what_is_refused(env_type):
    needs(env_type)
    env_id = zoo.list_envs(env_type)[0]
    with pytest.raises(InvalidValue, match=f'unknown {env_type} environment'):
        build_env('Nothing-v9', env_type)
    with pytest.raises(InvalidType, match='by its name'):
        build_env(3, env_type)
    with pytest.raises(InvalidType, match=f'{env_id}.*does not take .*no_such_thing.*: it takes '):
        build_env(env_id, env_type, no_such_thing=1)
    for how in ('sync', 'async', 'envpool'):
        with pytest.raises(InvalidValue, match='step together'):
            build_env(env_id, env_type, nenv=2, vectorized=how)


def test_arguments_with_wrong_values_are_refused():
    needs('brax')
    with pytest.raises(InvalidValue, match="backend of 'ant' is 'bullet'"):
        build_env('ant', 'brax', backend='bullet')
    with pytest.raises(InvalidValue, match='action_repeat'):
        build_env('ant', 'brax', action_repeat=0)
    needs('mjx')
    with pytest.raises(InvalidValue, match='impl'):
        build_env('PendulumSwingup', 'mjx', impl='warp')
    with pytest.raises(InvalidType, match='has no parts'):
        build_env('PendulumSwingup', 'mjx', observation='privileged_state')


@pytest.mark.parametrize('env_type', PACKAGES)
def test_a_missing_package_is_named_with_the_line_that_installs_it(env_type, monkeypatch):
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None if name == PACKAGES[env_type] else real(name))
    with pytest.raises(MissingPackage, match=r"pip install 'zoo-rl\[jax\]'"):
        zoo.list_envs(env_type)


def test_versions_that_do_not_fit_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, 'jax.experimental.jax2tf', None)
    monkeypatch.delattr(jax.experimental, 'jax2tf', raising=False)
    with pytest.raises(Failure, match=rf'JAX {jax.__version__} cannot hand its programs to TensorFlow .*zoo-rl\[jax\]'):
        jax_functions._converter()


def test_linear_algebra_needs_no_kernel_of_jax():
    import tensorflow as tf

    def function(a):
        a = a @ a.T + jax.numpy.eye(4)
        return jax.numpy.linalg.cholesky(a), jax.numpy.linalg.inv(a), jax.numpy.linalg.qr(a)[1], jax.lax.top_k(a, 2)[0]

    def converted(a):
        with jax_functions._for_tensorflow():
            return jax_functions._converter()(function, with_gradient=False)(a)

    a = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
    for one, other in zip(tf.function(converted, jit_compile=True, autograph=False)(a), function(a), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    assert 'lapack' in jax.jit(jax.numpy.linalg.cholesky).lower(a).as_text()  # JAX itself keeps them


def test_names_of_jax_are_not_guessed():
    with pytest.raises(InvalidValue, match='jumanji or mjx give its type'):
        find_env_type('Sokobann-v77')


@pytest.mark.parametrize(
    ('alg', 'env_id', 'env_type', 'changes'),
    [
        pytest.param('PPO', 'CartPole-v1', 'gymnax', {'recurrent': 'gru'}, marks=full),
        ('PPO', 'Game2048-v1', 'jumanji', {}),
        pytest.param('DQN', 'Game2048-v1', 'jumanji', {}, marks=full),
        pytest.param('PPO', 'Cleaner-v0', 'jumanji', {}, marks=full),
        pytest.param('PPO', 'inverted_pendulum', 'brax', {'backend': 'positional'}, marks=full),
    ],
)
def test_training(alg, env_id, env_type, changes):
    needs(env_type)
    kwargs = {key: changes.pop(key) for key in ('backend',) if key in (changes := dict(changes))}
    env = build_env(env_id, env_type, nenv=4, **kwargs)
    alg_params, learn_params = call_default_params(env, env_type, alg, seed=0, **changes)
    agent = getattr(algorithms, alg)(**alg_params)
    small = {'train_steps': 256, 'batch_size': 16, 'test_episodes': 1, 'verbose': 0}
    small |= {'horizon': 8} if 'horizon' in learn_params else {'explore_steps': 32}
    result = agent.learn(env, run_dir=False, **learn_params | small)
    assert result.steps == 256 and isinstance(env.single_action_space, Discrete | MultiDiscrete | Box)


@pytest.mark.parametrize('name', ['CartPole-v1', 'Breakout-MinAtar'])
@pytest.mark.parametrize('nenv', [1, 2])
def test_tuned_defaults_are_found_by_name(name, nenv):
    from zoo.default_params import ppo

    env = zoo.build_env(name, 'gymnax', nenv=nenv)
    assert zoo.call_default_params(env, alg='PPO')[1]['train_steps'] == ppo.TUNED[name]['train_steps']
