"""Running statistics off policy: of the observations that were collected, each counted once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import toys
from gymnasium.spaces import Box, Discrete

import zoo
from zoo import algorithms, build_env
from zoo.common import spaces
from zoo.common.maths.normalize import Collected, moments_of
from zoo.common.rollouts.collector import Collector

LEARN: dict[str, Any] = {'batch_size': 16, 'buffer_size': 64, 'explore_steps': 40, 'verbose': 0, 'seed': 0}


class Rising(gymnasium.Env):
    """Observations that rise from 0 to 4 over 200 steps, in episodes of 7; every 50th entry of the second is 10."""

    observation_space = Box(-np.inf, np.inf, (2,), np.float32)

    def __init__(self, continuous: bool = False) -> None:
        self.action_space = Box(-1.0, 1.0, (1,), np.float32) if continuous else Discrete(2)
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.t = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.t += 1
        self.steps += 1
        return self._observe(), 1.0, self.t == 7, False, {}

    def _observe(self) -> Any:
        return np.array([self.steps / 50, 10.0 * (self.steps % 50 == 0)], np.float32)


@pytest.fixture
def acted_on(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that will hold each flat observation ``[N, …]`` that a collector acts on."""
    seen: list[Any] = []
    step = Collector.step

    def noted(self: Collector, action: Any) -> Any:
        seen.append(spaces.tree_map(np.copy, self.obs))
        return step(self, action)

    monkeypatch.setattr(Collector, 'step', noted)
    return seen


@pytest.mark.usefixtures('plain_graphs')
@pytest.mark.parametrize(
    ('name', 'params', 'nenv', 'kind'),
    [
        ('DQN', {}, 1, Rising),
        ('DQN', {'prioritized': True, 'n_step': 3}, 2, Rising),
        ('DQN', {}, 1, lambda: gymnasium.wrappers.FlattenObservation(toys.BitFlip(3))),
        ('SAC', {}, 1, lambda: Rising(True)),
    ],
)
def test_each_observation_counts_once_when_it_is_collected(
    name: str, params: dict[str, Any], nenv: int, kind: Any, acted_on: list[Any]
):
    """Neither how often an observation is drawn nor its priority changes the statistics; random steps count."""
    env = build_env(kind, nenv=nenv)
    single = build_env(kind)
    cls = getattr(algorithms, name)
    nets = [{'hidden': [4]}] * len(cls.network_names)
    agent = cls(single.observation_space, single.action_space, net_list=nets, normalize_obs=True, **params)
    agent.learn(env, train_steps=200, run_dir=False, **LEARN)
    assert agent.updates > 100
    expected = np.concatenate(acted_on).astype(np.float64)
    (moments,) = agent.statistics.values()
    assert moments.count == len(expected) == 200
    np.testing.assert_allclose(moments.mean, expected.mean(0), rtol=1e-9)
    np.testing.assert_allclose(moments.sum_squares / 200, expected.var(0), rtol=1e-9)


class Places(gymnasium.ObservationWrapper):
    """BitFlip whose goals are vectors of numbers, which are normalized."""

    def __init__(self) -> None:
        super().__init__(toys.BitFlip(4))
        box = Box(-9.0, 9.0, (4,), np.float32)
        self.observation_space = gymnasium.spaces.Dict({key: box for key in self.env.observation_space.spaces})

    def observation(self, observation: Any) -> Any:
        return {key: x.astype(np.float32) for key, x in observation.items()}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)


@pytest.mark.usefixtures('plain_graphs')
def test_goals_of_hindsight_do_not_count(acted_on: list[Any]):
    env = build_env(Places)
    agent = algorithms.DQN(env.observation_space, env.action_space, net_list=[{'hidden': [4]}], normalize_obs=True)
    agent.learn(env, train_steps=120, run_dir=False, her={'k': 4}, **LEARN)
    assert set(agent.statistics) == {'observation', 'achieved_goal', 'desired_goal'}
    for path, moments in agent.statistics.items():
        expected = np.concatenate([obs[path] for obs in acted_on]).astype(np.float64)
        assert moments.count == 120
        np.testing.assert_allclose(moments.mean, expected.mean(0), atol=1e-9)


@pytest.mark.usefixtures('plain_graphs')
@pytest.mark.parametrize('buffer', [True, False])
def test_recorded_observations_count_once_and_a_resumed_training_fills_them_in_uncounted(buffer: bool, tmp_path: Path):
    env = build_env('CartPole-v1')
    agent = algorithms.DQN(env.observation_space, env.action_space, net_list=[{'hidden': [4]}], normalize_obs=True)
    recorded = zoo.record_episodes(agent, env, tmp_path / 'seen.npz', 3, seed=0).path
    with np.load(recorded) as held:
        lengths, seen = held['lengths'], held['obs/']
    ends = np.cumsum(lengths + 1) - 1
    steps = lengths.sum()
    params = LEARN | {'buffer_size': 5000, 'explore_steps': 0, 'recorded': recorded, 'checkpoint_buffer': buffer}
    agent.learn(env, train_steps=1, run_dir=False, **params | {'update_every': 9})
    expected = np.concatenate([np.delete(seen, ends, 0), agent.replay.obs[agent.replay.valid][steps:]]).astype(float)
    assert agent.statistics[''].count == steps + 1 == len(expected)
    np.testing.assert_allclose(agent.statistics[''].mean, expected.mean(0), rtol=1e-9)

    agent = algorithms.DQN(env.observation_space, env.action_space, net_list=[{'hidden': [4]}], normalize_obs=True)
    agent.learn(env, train_steps=40, run_dir=tmp_path / 'run', checkpoint_every=20, **params)
    loaded = zoo.load(tmp_path / 'run' / 'checkpoints' / '000000020')
    del params['seed']
    loaded.learn(env, resume=True, run_dir=False, **params)
    assert loaded.statistics[''].count == steps + 40

    plain = algorithms.DQN(env.observation_space, env.action_space, net_list=[{'hidden': [4]}], normalize_obs=True)
    without = params | {'recorded': None, 'seed': 0}
    plain.learn(env, train_steps=40, run_dir=tmp_path / 'plain', checkpoint_every=20, **without)
    later = zoo.load(tmp_path / 'plain' / 'checkpoints' / '000000020')
    later.learn(env, resume=True, run_dir=False, **params)
    assert later.statistics[''].count == steps + 40, 'these are recordings that it has not seen'


def test_moments_travel_in_parts():
    """What another process has collected, with rows that are not valid, and a share where others have the same."""
    rng = np.random.default_rng(0)
    obs = {'a': rng.normal(3.0, 2.0, (5, 2, 4)), 'b': rng.normal(size=(5, 2, 1)), 'image': np.zeros((5, 2, 9))}
    valid = rng.random((5, 2)) < 0.5
    there, here = Collected({'a': 4, 'b': 1}), Collected({'a': 4, 'b': 1})
    there.add(obs, valid)
    here.join(there.take())
    here.add(obs)
    found = here.take(0.5)
    assert {path: x.shape for path, x in found.items()} == {'a': (2, 3, 4), 'b': (2, 3, 1)}
    expected = np.stack([moments_of(obs['a'][valid], 4), moments_of(obs['a'], 4)])
    expected[:, [0, 2]] /= 2
    np.testing.assert_allclose(found['a'], expected)
    assert all(not len(x) for x in here.take().values()), 'they are forgotten'
