"""The sum tree: it finds what a running sum of all values would, and never a value of 0."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from zoo.common.replay import sum_tree
from zoo.common.replay.sum_tree import TOP, SumTree

SIZES = [1, 2, 3, 100, TOP, TOP + 1, 5000, 70_001]


def filled(size: int, rng: np.random.Generator, whole: bool = True) -> SumTree:
    """A tree with many zeros; sums of whole numbers are exact."""
    tree = SumTree(size)
    values = rng.integers(1, 50, size=size) if whole else rng.random(size) ** 8
    tree.values[:] = values * (rng.random(size) < 0.4)
    tree.values[rng.integers(size)] = 7
    tree.rebuild()
    return tree


@pytest.mark.parametrize('size', SIZES)
def test_finds_what_a_running_sum_of_all_does(size: int):
    rng = np.random.default_rng(size)
    tree = filled(size, rng)
    for turn in range(30):
        rows = rng.integers(size, size=int(rng.integers(1, 400)))
        tree.put(rows, rng.integers(0, 30, size=len(rows)).astype(float))
        if turn % 3 == 0:
            continue
        tree.put(rng.integers(size, size=3), 5.0)
        running = np.cumsum(tree.values)
        # Between two whole numbers, where no rounding of the product decides.
        wanted = rng.integers(int(running[-1]), size=300) + 0.5
        found = tree.find(wanted / running[-1])
        np.testing.assert_array_equal(found, running.searchsorted(wanted, side='right'))


def test_by_hand():
    tree = SumTree(5)
    tree.put(np.array([0, 2, 3, 4]), np.array([1.0, 2.0, 0.0, 1.0]))
    np.testing.assert_array_equal(tree.find(np.array([0.0, 0.24, 0.25, 0.5, 0.74, 0.76, 1.0])), [0, 0, 2, 2, 2, 4, 4])


def test_of_a_row_that_is_there_twice_the_last_value_stays():
    tree = SumTree(6)
    tree.put(np.array([1, 1, 2, 1]), np.array([9.0, 8.0, 3.0, 1.0]))
    np.testing.assert_array_equal(tree.values, [0, 1, 3, 0, 0, 0])
    np.testing.assert_array_equal(tree.find(np.array([0.2, 0.3])), [1, 2])


@pytest.mark.parametrize('size', SIZES)
@pytest.mark.parametrize('waiting', [0, 4096])
def test_built_anew_it_is_the_same_to_the_last_bit(size: int, waiting: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sum_tree, 'WAITING', waiting)
    rng = np.random.default_rng(size)
    tree, other = filled(size, rng, whole=False), SumTree(size)
    for _ in range(50):
        rows = rng.integers(size, size=200)
        tree.put(rows, rng.random(200) ** 5)
    tree.find(np.zeros(1))
    other.values[:] = tree.values
    other.rebuild()
    assert tree.total() == other.total()
    fractions = np.concatenate([np.cumsum(tree.values) / tree.total(), rng.random(10_000)]).clip(0.0, 1.0)
    np.testing.assert_array_equal(tree.find(fractions), other.find(fractions))


@pytest.mark.parametrize('size', SIZES)
def test_a_value_of_zero_is_never_found(size: int):
    rng = np.random.default_rng(size)
    for turn in range(20):
        tree = filled(size, rng, whole=False)
        if turn % 2:
            tree.values[size // 3 :] = 0.0
            tree.values[0] = 1e-300
            tree.rebuild()
        running = np.cumsum(tree.values)
        # At the bounds between rows, at the ends, and anywhere.
        fractions = np.concatenate([running / running[-1], [0.0, 1.0], rng.random(1000)])
        assert (tree.values[tree.find(fractions)] > 0.0).all()


def test_where_a_sum_was_rounded_up_the_last_row_that_is_not_zero_is_found():
    """What is wanted is the sum itself, which neither child exceeds."""
    tree = SumTree(2 * TOP)
    tree.put(np.array([0]), 1.0)
    first_root, first_value = TOP, 2 * TOP  # one level below the roots, in a heap
    nodes, wanted = np.array([first_root]), np.array([1.0])
    assert tree.descend(nodes, wanted) == first_value + 1, 'a zero'
    assert tree.descend_past_zeros(nodes, wanted) == first_value


def test_rounding_that_leads_to_a_zero_is_mended(monkeypatch: pytest.MonkeyPatch):
    tree = SumTree(5000)
    tree.put(np.array([6, 4444]), 1.0)
    honest = SumTree.descend
    monkeypatch.setattr(SumTree, 'descend', lambda self, nodes, wanted: honest(self, nodes, wanted + 1.0))
    np.testing.assert_array_equal(tree.find(np.array([0.0, 0.4, 0.6])), [6, 6, 4444])


def test_a_deep_copy_is_a_tree_of_its_own():
    tree = SumTree(5000)
    tree.put(np.arange(5000), 1.0)
    other = copy.deepcopy(tree)
    other.put(np.arange(4999), 0.0)
    assert other.find(np.array([0.1, 0.9])).tolist() == [4999, 4999]
    assert tree.find(np.array([0.5])) == 2500


def test_nothing_to_find_is_refused():
    tree = SumTree(10)
    with pytest.raises(
        ValueError,
        match=r'^every value of the sum tree is 0: put a value above 0 before drawing\.$',
    ):
        tree.find(np.zeros(1))


@pytest.mark.parametrize('size', [*SIZES, 1_000_001])
def test_memory(size: int):
    tree = SumTree(size)
    held = sum(x.nbytes for x in vars(tree).values() if isinstance(x, np.ndarray))
    assert held == SumTree.bytes_of(size) <= 16.1 * (size + TOP)
