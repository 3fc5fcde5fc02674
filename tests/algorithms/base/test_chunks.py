"""Rollouts that are computed a chunk at a time: the same numbers as at once, and the memory that is announced."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Discrete

from zoo import algorithms
from zoo.common.maths.chunks import in_chunks, mean_in_chunks, split
from zoo.common.records import Trajectories

OBS, ACTIONS = Box(-np.inf, np.inf, (3,), np.float32), Discrete(4)
T, N = 7, 3


def rollout(agent: Any, seed: int = 0) -> Trajectories:
    rng = np.random.default_rng(seed)
    lead = (T, N)
    size = agent.behavior.state_size
    begins = rng.random(lead) < 0.2
    return Trajectories(
        rng.normal(size=(*lead, 3)).astype(np.float32),
        rng.integers(4, size=lead).astype(np.int32),
        rng.normal(size=lead).astype(np.float32),
        rng.normal(size=(*lead, 3)).astype(np.float32),
        rng.random(lead) < 0.1,
        rng.random(lead) < 0.1,
        rng.random(lead) < 0.9,
        state=rng.normal(size=(N, size)).astype(np.float32) if size else None,
        begins=begins if size else None,
        params=rng.normal(size=(*lead, 4)).astype(np.float32) if agent.behavior.param_size else None,
    )


@pytest.mark.usefixtures('plain_graphs')
@pytest.mark.parametrize(
    ('name', 'params', 'network'),
    [
        ('PPO', {'method': 'penalty'}, {}),
        ('PPO', {'method': 'penalty', 'sequence_length': 3}, {'recurrent': 'lstm'}),
        ('VPG', {}, {}),
        ('A2C', {}, {'recurrent': 'gru'}),
        ('IMPALA', {}, {}),
        ('TRPO', {}, {}),
    ],
)
@pytest.mark.parametrize('rows', [4, 1])
def test_an_update_in_chunks_is_that_at_once(
    name: str, params: dict[str, Any], network: dict[str, Any], rows: int, monkeypatch: pytest.MonkeyPatch
):
    """Rows that fill no chunk are left out, and sequences go on from chunk to chunk."""

    def updated() -> dict[str, np.ndarray]:
        cls = getattr(algorithms, name)
        second = 'actor' if network else {'hidden': [8], 'seed': 4}
        nets = [{'hidden': [8], 'seed': 3} | network, second]
        agent = cls(OBS, ACTIONS, net_list=nets, **params)
        agent.reseed(0, 'agent')
        found = [agent.update(rollout(agent, seed)) for seed in range(2)]
        assert agent.rows_at_once == most
        return agent.state() | {'metrics': np.array([list(x.values()) for x in found])}

    most = 64e6 // 12
    at_once = updated()
    most = rows
    monkeypatch.setattr('zoo.common.maths.chunks.CHUNK_BYTES', 12 * rows)
    in_parts = updated()
    for key, expected in at_once.items():
        np.testing.assert_allclose(in_parts[key], expected, rtol=2e-4, atol=2e-5, err_msg=key)


def test_what_a_policy_says_is_the_same_to_the_bit():
    agent = algorithms.PPO(OBS, ACTIONS, net_list=[{'hidden': [8], 'seed': i} for i in range(2)])
    obs = tf.constant(np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32))
    params, value, _ = agent.said_of(obs)
    agent.rows_at_once = 16
    for found, expected in zip(agent.said_of(obs), (params, value), strict=False):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize('graph', [False, True])
def test_chunks_of_rows(graph: bool):
    x = tf.reshape(tf.range(22.0), [11, 2])

    def running(part: dict[str, tf.Tensor], carry: tf.Tensor) -> tuple[Any, tf.Tensor]:
        total = tf.cumsum(part['x'], 0) + carry
        return {'total': total, 'twice': 2.0 * part['x'][:, 0]}, total[-1]

    def both() -> Any:
        return in_chunks(running, {'x': x}, 4, tf.zeros(2))[0]

    found = (tf.function(both) if graph else both)()
    np.testing.assert_array_equal(found['total'], np.cumsum(x, 0))
    np.testing.assert_array_equal(found['twice'], 2.0 * x[:, 0])
    assert found['total'].shape == (11, 2)
    assert (split(11, 4), split(12, 4), split(9, 8)) == ((3, 4), (3, 4), (2, 5))


def test_means_in_chunks_leave_out_what_is_not_valid():
    x, valid = tf.range(11.0), tf.constant([1, 0, 1, 1, 0, 0, 0, 0, 1, 1, 1], tf.float32)
    calls = []

    def mean(x: tf.Tensor, valid: tf.Tensor) -> list[Any]:
        calls.append(1)
        return [tf.reduce_sum(x * valid) / tf.maximum(tf.reduce_sum(valid), 1.0), None]

    found, nothing = mean_in_chunks(mean, (x,), valid, 4)
    assert nothing is None and len(calls) == 3
    assert float(found) == pytest.approx((0 + 2 + 3 + 8 + 9 + 10) / 6)


MEASURED = """
import logging, re, sys
import gymnasium, numpy as np
from gymnasium.spaces import Box, Discrete
import zoo

class Screen(gymnasium.Env):
    observation_space, action_space = Box(0, 255, (120, 160, 3), np.uint8), Discrete(3)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.full((120, 160, 3), 7, np.uint8), {}
    def step(self, action):
        self.t += 1
        return np.full((120, 160, 3), self.t, np.uint8), 1.0, self.t == 100, False, {}

said = []
class Said(logging.Handler):
    def emit(self, record):
        said.extend(map(float, re.findall(r'([0-9.]+) GB', record.getMessage())))

logging.getLogger('zoo').addHandler(Said())
env = zoo.build_env(Screen)
agent = zoo.algorithms.PPO(env.observation_space, env.action_space, net_list=[{}, 'actor'])
agent.predict(np.zeros((120, 160, 3), np.uint8))
def memory(kind):  # getrusage would begin with the peak of the process that started this one
    return int(re.search(kind + r':\\s+(\\d+)', open('/proc/self/status').read()).group(1))
before = memory('VmRSS')
horizon = 3000
agent.learn(env, train_steps=horizon, horizon=horizon, epochs=1, run_dir=False, verbose=0)
print(sum(said), (memory('VmHWM') - before) / 1e6)
"""


@pytest.mark.full
@pytest.mark.skipif(sys.platform != 'linux', reason='reads /proc')
def test_what_is_announced_is_what_is_taken():
    """Rollouts of 0.35 GB; before, the first update took 3 GB besides."""
    result = subprocess.run([sys.executable, '-c', MEASURED], capture_output=True, text=True, timeout=300)
    announced, taken = map(float, result.stdout.split()[-2:])
    assert announced == pytest.approx(taken, rel=0.2), result.stderr
