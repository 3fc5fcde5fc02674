"""``list_envs``: the names that each type opens, from what is installed."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.util import find_spec
from types import ModuleType

import gymnasium
import pytest

import zoo
from zoo.common.env_wrappers import TYPES, build_env, find_env_type, list_envs

needs_atari = pytest.mark.skipif(find_spec('ale_py') is None, reason='ALE is not installed')
needs_mujoco = pytest.mark.skipif(find_spec('mujoco') is None, reason='MuJoCo is not installed')
needs_box2d = pytest.mark.skipif(find_spec('Box2D') is None, reason='Box2D is not installed')


@pytest.mark.parametrize(
    ('env_type', 'names'),
    [
        ('classic_control', {'CartPole-v0', 'CartPole-v1', 'Pendulum-v1', 'Acrobot-v1'}),
        pytest.param('box2d', {'LunarLander-v3', 'BipedalWalker-v3', 'CarRacing-v3'}, marks=needs_box2d),
        pytest.param('mujoco', {'HalfCheetah-v4', 'HalfCheetah-v5', 'Humanoid-v5'}, marks=needs_mujoco),
        pytest.param('atari', {'ALE/Pong-v5', 'PongNoFrameskip-v4', 'Breakout-v4'}, marks=needs_atari),
        ('gymnasium', {'CartPole-v1', 'FrozenLake-v1'}),
    ],
)
def test_names_of_a_type(env_type: str, names: set[str]):
    found = zoo.list_envs(env_type)
    assert names <= set(found) and found == sorted(set(found))
    if env_type != 'gymnasium':
        assert 'FrozenLake-v1' not in found


@pytest.mark.parametrize('env_type', ['classic_control', pytest.param('box2d', marks=needs_box2d)])
def test_every_name_opens(env_type: str):
    for name in list_envs(env_type):
        build_env(name, env_type).close()


@pytest.mark.full
@needs_atari
def test_every_kind_of_atari_name_opens():
    names = [name for name in list_envs('atari') if name.startswith(('ALE/Tetris', 'Pong'))]
    assert len(names) == 5
    for name in names:
        assert build_env(name, 'atari').observation_space.shape == (84, 84, 4)


@needs_mujoco
def test_latest_versions():
    latest = list_envs('mujoco', latest=True)
    assert 'HalfCheetah-v5' in latest and 'HalfCheetah-v4' not in latest
    assert len({name.rpartition('-v')[0] for name in list_envs('mujoco')}) == len(latest)
    assert 'Pendulum-v1' in list_envs('classic_control', latest=True)


def test_what_a_user_registers_is_listed():
    gymnasium.register('mine/Cart-v3', entry_point='gymnasium.envs.classic_control.cartpole:CartPoleEnv')
    try:
        assert 'mine/Cart-v3' in list_envs('gymnasium') and 'mine/Cart-v3' in list_envs('classic_control')
    finally:
        del gymnasium.registry['mine/Cart-v3']


def test_types_of_modules_that_know_their_own_names(monkeypatch):
    module = ModuleType('zoo.common.envs.kinds.dm_control')
    module.ids = lambda: ['cartpole-swingup', 'walker-v10', 'walker-v9']
    monkeypatch.setitem(sys.modules, 'zoo.common.envs.kinds.dm_control', module)
    assert list_envs('dm_control') == ['cartpole-swingup', 'walker-v10', 'walker-v9']
    assert list_envs('dm_control', latest=True) == ['cartpole-swingup', 'walker-v10']


def test_an_unknown_type_names_the_nearest():
    with pytest.raises(ValueError, match="unknown environment type 'ataro': did you mean 'atari'?") as caught:
        list_envs('ataro')
    assert all(name in str(caught.value) for name in TYPES)


@pytest.mark.parametrize('env_type', ['box2d', 'mujoco', 'atari', 'robotics'])
def test_a_missing_package_names_the_extra(env_type: str, monkeypatch):
    packages = ('Box2D', 'mujoco', 'ale_py', 'gymnasium_robotics')
    find, load = importlib.util.find_spec, importlib.import_module

    def load_without(name: str, *args: object) -> ModuleType:
        if name in packages:
            raise ModuleNotFoundError(f'No module named {name!r}', name=name)
        return load(name, *args)

    monkeypatch.setattr(
        importlib.util, 'find_spec', lambda name, *args: None if name in packages else find(name, *args)
    )
    monkeypatch.setattr(importlib, 'import_module', load_without)
    with pytest.raises(ImportError, match=rf"pip install 'zoo-rl\[{env_type}\]'"):
        list_envs(env_type)
    assert 'CartPole-v1' in list_envs('gymnasium')


@pytest.mark.parametrize('env_id', ['Hopper-v3', 'Pong-v5', 'CheetahRun-v1'])
def test_names_that_only_envpool_has_need_the_type(env_id):
    pytest.importorskip('envpool')
    with pytest.raises(ValueError, match=rf"EnvPool has it: build_env\('{env_id}', 'envpool'\)\.$"):
        find_env_type(env_id)


def test_names_that_envpool_has_too_keep_their_type():
    assert find_env_type('CartPole-v1') == 'classic_control' and find_env_type('HalfCheetah-v4') == 'mujoco'
