"""The replay buffer of tensors draws what was written, in steps of n."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Dict, Discrete

from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.records import Transition
from zoo.common.replay.tensor_ring import TensorRing

GAMMA = 0.9


class Written:
    """A ring of 6 rows of 3 copies, and everything that was written to it, in lists."""

    def __init__(self, steps: int, chance: float = 0.3) -> None:
        space = Dict({'x': Box(-9, 99, (1,), np.float32), 'n': Discrete(1000)})
        self.ring = TensorRing(space, ActionAdaptor(Discrete(5)), 18, 3)
        rng, self.steps = np.random.default_rng(0), []
        for t in range(steps):
            number = 10 * t + np.arange(3)
            self.steps.append(
                Transition(
                    {'x': number[:, None].astype(np.float32), 'n': number.astype(np.int64)},
                    (number % 5).astype(np.int32),
                    rng.standard_normal(3).astype(np.float32),
                    {'x': number[:, None].astype(np.float32) + 0.5, 'n': number.astype(np.int64) + 500},
                    rng.random(3) < chance,
                    rng.random(3) < chance / 3,
                )
            )

        @tf.function(jit_compile=True, autograph=False)
        def put(step: Transition, written: tf.Tensor) -> None:
            self.ring.keep(self.ring.put(self.ring.tensors(), written, step))

        for step in self.steps:
            put(step, tf.constant(self.ring.written))
            self.ring.written += 1

    def draw(self, n_step: int, count: int = 400) -> Any:
        function = tf.function(self.ring.draw, jit_compile=True, autograph=False)
        drawn = function(self.ring.tensors(), tf.constant(self.ring.written), tf.constant([1, 2]), count, GAMMA, n_step)
        return tf.nest.map_structure(lambda x: x.numpy(), drawn)


@pytest.mark.parametrize('n_step', [1, 3])
@pytest.mark.parametrize('steps', [4, 6, 17])
def test_draws_what_was_written(n_step, steps):
    written = Written(steps)
    batch = written.draw(n_step)
    seen = set()
    for i, number in enumerate(batch.obs['n'].tolist()):
        t, copy = divmod(number, 10)
        seen.add((t, copy))
        total, discount, at = 0.0, 1.0, t
        for k in range(n_step):
            if t + k >= steps:
                break
            at = t + k
            total += GAMMA**k * float(written.steps[at].reward[copy])
            discount = GAMMA ** (k + 1)
            if written.steps[at].terminated[copy] or written.steps[at].truncated[copy]:
                break
        last = written.steps[at]
        assert batch.reward[i] == pytest.approx(total, abs=1e-5)
        assert batch.discount[i] == pytest.approx(0.0 if last.terminated[copy] else discount, abs=1e-6)
        assert batch.next_obs['n'][i] == 10 * at + copy + 500 and batch.next_obs['x'][i, 0] == 10 * at + copy + 0.5
        assert (batch.terminated[i], batch.truncated[i]) == (last.terminated[copy], last.truncated[copy])
        assert batch.action[i] == number % 5 and batch.weight[i] == 1.0
    # Every transition that is held is drawn, and none that was written over.
    assert seen == {(t, copy) for t in range(max(0, steps - 6), steps) for copy in range(3)}


def test_counts():
    written = Written(8)
    assert written.ring.rows == 6 and written.ring.added == 24
    numbers = written.draw(1, 6000).obs['n']
    counts = np.unique(numbers, return_counts=True)[1]
    assert len(counts) == 18 and abs(counts - 6000 / 18).max() < 90


def test_large_storage_is_announced(caplog):
    TensorRing(Box(0, 1, (100, 100), np.float32), ActionAdaptor(Discrete(2)), 2000, 1)
    assert 'takes 0.16 GB of memory' in caplog.text
