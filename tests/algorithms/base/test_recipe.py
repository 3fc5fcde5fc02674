"""The algorithm in CONTRIBUTING.md: it trains as it stands there, is saved, loaded, checked and described."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toys

import zoo

CONTRIBUTING = Path(zoo.__file__).parents[1] / 'CONTRIBUTING.md'
TINY = [{'hidden': [16], 'seed': 0}]


def recipe() -> str:
    """The block of code in the section "Add an algorithm"."""
    section = CONTRIBUTING.read_text(encoding='utf-8').partition('## Add an algorithm\n')[2].partition('\n## ')[0]
    return section.partition('```python\n')[2].partition('```')[0]


@pytest.fixture(scope='module')
def cls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The class of the recipe, from a file of its own."""
    path = tmp_path_factory.mktemp('own') / 'soft_q.py'
    path.write_text(recipe(), encoding='utf-8')
    spec = importlib.util.spec_from_file_location('soft_q', path)
    module = importlib.util.module_from_spec(spec)
    sys.modules['soft_q'] = module
    spec.loader.exec_module(module)
    yield module.SoftQ
    del sys.modules['soft_q']


def test_is_about_sixty_lines():
    code = recipe()
    assert 40 < len([line for line in code.splitlines() if line.strip()]) < 75


@pytest.mark.usefixtures('plain_graphs')
def test_learns_is_saved_and_loaded(cls: Any, tmp_path: Path):
    env = zoo.build_env(toys.Chain)
    agent = cls(env.observation_space, env.action_space, net_list=TINY, gamma=0.9)
    few = {'train_steps': 1500, 'explore_steps': 200, 'batch_size': 32, 'buffer_size': 1000, 'verbose': 0}
    result = agent.learn(env, seed=0, run_dir=tmp_path, **few)
    assert result.losses.keys() == {'q', 'value'} and agent.fused.traces == 1
    before = np.mean(result.returns[:10])
    found = agent.learn(env, 'test', test_episodes=5)
    assert np.mean(found.returns) > before
    loaded = cls.load(tmp_path)
    obs, _ = env.reset(seed=0)
    assert loaded.predict(obs) == agent.predict(obs) and loaded.alpha == 0.1


def test_is_checked_and_described(cls: Any):
    env = zoo.build_env(toys.Chain)
    with pytest.raises(ValueError, match=r'^alpha is 0: give a number above 0\.$'):
        cls(env.observation_space, env.action_space, alpha=0)
    text = repr(zoo.describe(cls))
    assert text.startswith('Soft Q-learning') and 'temperature: how much the entropy' in text
    assert 'explore_steps' in text
