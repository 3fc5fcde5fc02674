"""Microseconds of one update as a plain graph and compiled by XLA, over the widths of networks.

    python benchmarks/speed/compilation.py       # about five minutes; writes results/compilation.md

The rule ``zoo.common.tools.compilation.prefers_xla`` rests on this table. Both columns are measured in turn, round by
round; each figure is the median.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from gymnasium.spaces import Box, Discrete

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where common.py is
from common import header, parser_of, row, show, take_turns, today, write_page

from zoo import algorithms
from zoo.algorithms.base import updating
from zoo.common.maths import optimizers
from zoo.common.records import Batch, Trajectories, Transition
from zoo.common.tools import compilation

ROUNDS = 15


def transitions(lead: tuple[int, ...], size: int, actions: int, discrete: bool) -> Batch:
    """Random transitions."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(lead + shape, dtype=np.float32)

    action = rng.integers(actions, size=lead).astype(np.int32) if discrete else np.tanh(normal(actions))
    ends = np.zeros(lead, bool)
    return Batch.of(Transition(normal(size), action, normal(), normal(size), ends, ends), 0.99)


def off_policy(alg: str, hidden: list[int], batch: int, size: int, actions: int) -> Callable[[], Any]:
    """One update in one call."""
    discrete = alg == 'DQN'
    space = Discrete(actions) if discrete else Box(-1.0, 1.0, (actions,))
    cls = getattr(algorithms, alg)
    specs = [{'hidden': hidden, 'activation': 'relu'}] * len(cls.network_names)
    agent = cls(Box(-np.inf, np.inf, (size,)), space, net_list=specs)
    data = transitions((1, batch), size, actions, discrete)
    return lambda: agent.update_on(data)


def on_policy(hidden: list[int], shape: tuple[int, ...], steps: int, batch: int) -> Callable[[], Any]:
    """One epoch of PPO over ``steps`` transitions."""
    image = len(shape) == 3
    observation = Box(0, 255, shape, np.uint8) if image else Box(-np.inf, np.inf, shape)
    spec = {'hidden': [] if image else hidden, 'activation': 'relu' if image else 'tanh'}
    agent = algorithms.PPO(observation, Discrete(4), net_list=[spec, spec])
    rng = np.random.default_rng(0)
    obs = rng.integers(255, size=(steps, 1, *shape), dtype=np.uint8)
    obs = obs if image else obs.astype(np.float32) / 255
    ends = np.zeros((steps, 1), bool)
    action = rng.integers(4, size=(steps, 1)).astype(np.int32)
    rollout = Trajectories(obs, action, rng.standard_normal((steps, 1), dtype=np.float32), obs, ends, ends, ~ends)
    return lambda: agent.update(rollout, epochs=1, batch_size=batch)


CASES: dict[str, tuple[Callable[[], Callable[[], Any]], int]] = {
    f'PPO {width}×{width}, minibatch 64': (lambda width=width: on_policy([width, width], (8,), 2048, 64), 32)
    for width in (64, 128, 256)
}
CASES |= {
    f'DQN {width}×{width}, batch 64': (lambda width=width: off_policy('DQN', [width, width], 64, 4, 2), 1)
    for width in (64, 128, 256)
}
CASES |= {
    f'SAC {width}×{width}, batch 256': (lambda width=width: off_policy('SAC', [width, width], 256, 17, 6), 1)
    for width in (64, 128, 256)
}
CASES['PPO, convolutions for 84×84×4, minibatch 64'] = (lambda: on_policy([], (84, 84, 4), 128, 64), 2)


def measure(make: Callable[[], Callable[[], Any]], updates: int) -> list[float]:
    """Median microseconds of one update: plain, XLA."""
    calls = []
    for xla in (False, True):
        with (
            mock.patch.multiple(optimizers, prefers_xla=lambda _, xla=xla: xla),
            mock.patch.object(updating, 'prefers_xla', lambda _, xla=xla: xla),
        ):
            call = make()
            call()  # off-policy updates are compiled at the first call
        calls.append(call)
    repeats = []
    for call in calls:
        begin = time.perf_counter()
        call()
        repeats.append(max(1, int(0.1 / (time.perf_counter() - begin))))

    def seconds(i: int) -> float:
        begin = time.perf_counter()
        for _ in range(repeats[i]):
            calls[i]()
        return (time.perf_counter() - begin) / repeats[i] / updates

    found = take_turns({'plain': lambda: seconds(0), 'XLA': lambda: seconds(1)}, ROUNDS)
    return [1e6 * statistics.median(values) for values in found.values()]


def main() -> None:
    parser_of(__doc__).parse_args()
    lines = [
        '# Plain graphs and XLA',
        '',
        f'`python benchmarks/speed/compilation.py`, {today()}, {os.cpu_count()} cores, no GPU. '
        'Microseconds of one update, with what it costs to call it once; medians. zoo compiles by XLA where '
        f"the product of a kernel's sides is at most {compilation.XLA_UP_TO:,} and nothing is convolutional.",
        '',
        *header('update', 'plain graph', 'XLA'),
    ]
    for name, (make, updates) in CASES.items():
        plain, xla = measure(make, updates)
        show(lines, row(name, f'{plain:,.0f}', f'{xla:,.0f}'))
    write_page('compilation', lines)


if __name__ == '__main__':
    main()
