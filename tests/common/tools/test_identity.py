"""What tells objects of a user's program apart, in any process."""

from __future__ import annotations

import functools
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from zoo.common.tools.identity import identity


def scaled(factor: float):
    return lambda reward: factor * reward


def bound(reward: float, most: float = 1.0) -> float:
    return min(reward, most)


def network(units: int) -> keras.Model:
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(units, activation='relu')])


class Scale:
    def __init__(self, factor: float, table: np.ndarray | None = None) -> None:
        self.factor, self.table, self.me = factor, table, self  # which leads to itself

    def __call__(self, reward: float) -> float:
        return self.factor * reward


@pytest.mark.parametrize(
    'make',
    [
        scaled,
        lambda x: functools.partial(bound, most=x),
        Scale,
        lambda x: Scale(1.0, np.array([0.0, x])),
        lambda x: Scale(x).__call__,
        lambda x: SimpleNamespace(name=x, seed=0),
        lambda x: network(int(x)),
        lambda x: keras.optimizers.SGD(1.0 / x),
    ],
)
def test_other_values_have_another_identity_and_the_same_values_have_the_same(make):
    assert identity(make(2.0)) == identity(make(2.0))
    assert identity(make(2.0)) != identity(make(3.0))


def test_the_code_of_a_function_counts():
    assert identity(lambda r: r + 1) == identity(lambda r: r + 1)
    assert identity(lambda r: r + 1) != identity(lambda r: r + 2)
    assert identity(lambda r: (lambda: r + 1)()) != identity(lambda r: (lambda: r + 2)())
    assert identity(lambda r: abs(r)) != identity(lambda r: max(r))


def test_it_begins_with_the_name():
    assert identity(bound).startswith('bound ') and identity(Scale(1.0)).startswith('Scale ')
    assert identity(Scale) == 'Scale'


def test_it_is_the_same_in_another_process():
    code = 'import test_identity as t; print(t.identity(t.scaled(2.0)), t.identity(t.network(4)))'
    done = subprocess.run([sys.executable, '-c', code], cwd=Path(__file__).parent, capture_output=True, text=True)
    assert done.stdout.split() == f'{identity(scaled(2.0))} {identity(network(4))}'.split(), done.stderr


def test_what_refers_to_itself_and_what_is_large_takes_no_time():
    many = [SimpleNamespace(all=None) for _ in range(200)]
    for one in many:
        one.all = many
    begun = time.perf_counter()
    assert identity(SimpleNamespace(many=many, numbers=list(range(10**6)))).startswith('SimpleNamespace ')
    assert time.perf_counter() - begun < 10.0
