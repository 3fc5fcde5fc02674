"""Seeds: streams that are repeatable, independent of each other, and that go on where they were saved."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from zoo.common.tools import seeding


def test_same_seed_and_stream_same_numbers():
    one, two = (seeding.generator(3, 'agent').random(5) for _ in range(2))
    np.testing.assert_array_equal(one, two)


def test_same_numbers_in_another_process():
    """The stream's name is not hashed by ``hash``, which differs from process to process."""
    code = "from zoo.common.tools import seeding; print(seeding.generator(3, 'agent').integers(10**9))"
    found = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True).stdout
    assert int(found) == seeding.generator(3, 'agent').integers(10**9)


def test_streams_and_seeds_are_independent():
    streams = [
        seeding.generator(seed, name).normal(size=2000) for seed in (0, 1, 2**40) for name in ('agent', 'env/train')
    ]
    correlation = np.corrcoef(streams)
    assert np.abs(correlation[~np.eye(len(streams), dtype=bool)]).max() < 0.1


def test_without_a_seed_every_generator_differs():
    assert seeding.generator(None, 'agent').integers(2**62) != seeding.generator(None, 'agent').integers(2**62)


def test_state_through_json():
    rng = seeding.generator(1, 'agent')
    rng.random(7)
    rng.integers(10, dtype=np.int32)  # leaves half of a 64-bit word for the next call
    saved = json.loads(json.dumps(seeding.state(rng)))
    ahead = rng.integers(10**6, size=4, dtype=np.int32), rng.random(3)
    other = seeding.generator(None, 'agent')
    seeding.restore(other, saved)
    np.testing.assert_array_equal(other.integers(10**6, size=4, dtype=np.int32), ahead[0])
    np.testing.assert_array_equal(other.random(3), ahead[1])


@pytest.mark.parametrize('seed', [-1, 1.5, '3'])
def test_seeds_that_are_none(seed: object):
    with pytest.raises(ValueError, match=r'^the seed is .*: give a whole number of at least 0, or None'):
        seeding.generator(seed, 'agent')
