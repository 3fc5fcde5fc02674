"""Checkpoints of earlier versions load, act and train on as the version that wrote them did.

``tests/checkpoints/<version>/`` has one of each algorithm, written in mid-training, and in ``expected.npz`` what that
version predicted from it and the weights with which its interrupted training ended.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Discrete

import zoo
from zoo import build_env
from zoo.algorithms.base import saving

ROOT = Path(__file__).parent / 'checkpoints'

OFF_POLICY = {
    'explore_steps': 20,
    'buffer_size': 60,
    'batch_size': 8,
    'checkpoint_buffer': True,
    'checkpoint_every': 60,
    'exact_resume': True,  # in that version every checkpoint began new episodes
}

#: The parameters of the training that was cut, by how an algorithm takes its experience.
TRAINED: dict[str, dict[str, Any]] = {
    'steps': OFF_POLICY,
    'rollouts': {'horizon': 32, 'epochs': 2, 'batch_size': 8, 'checkpoint_every': 64, 'exact_resume': True},
}

#: How far weights may be off, where later versions draw other numbers: TD3's noise comes from another generator, and
#: SAC's statistics of observations count each one once.
SINCE_CHANGED = {'TD3': 1e-3, 'SAC': 5e-3}

#: Each version has what there was in its days.
SAVED = sorted((path.parent.name, path.name) for path in ROOT.glob('*/*') if path.is_dir())


def test_the_first_version_is_there():
    assert {name for version, name in SAVED if version == '0.1.0'} == {'DQN', 'PPO', 'SAC', 'TD3'}


@pytest.mark.full(but='0.1.0-DQN')
@pytest.mark.parametrize(('version', 'name'), SAVED)
def test_loads_acts_and_trains_on(version: str, name: str):
    folder = ROOT / version
    expected = np.load(folder / 'expected.npz')
    agent = zoo.load(folder / name)
    obs = expected[f'{name}/obs']
    np.testing.assert_allclose(agent.predict(obs), expected[f'{name}/action'], atol=1e-6)
    np.testing.assert_allclose(agent.predict(obs, deterministic=False), expected[f'{name}/sampled'], atol=1e-6)

    agent = zoo.load(folder / name)
    env_id = 'CartPole-v1' if isinstance(agent.action_space, Discrete) else 'Pendulum-v1'
    params = TRAINED[agent.loop.experience]
    agent.learn(build_env(env_id, 'classic_control', seed=3), run_dir=False, resume=True, **params)
    found = saving.arrays(agent)
    resumed = [key for key in expected if key.startswith(f'{name}/resumed/')]
    assert resumed
    for key in resumed:
        atol = SINCE_CHANGED.get(name, 1e-5)
        np.testing.assert_allclose(found[key.partition('/resumed/')[2]], expected[key], atol=atol, err_msg=key)
