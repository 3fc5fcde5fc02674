"""The published scores beside ours: each is of a row of the benchmarks."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path += [str(ROOT / 'benchmarks' / part) for part in ('', 'scores')]

import learning  # noqa: E402
import published  # noqa: E402
import stability  # noqa: E402


def test_each_published_score_has_a_row_of_ours():
    ours = {(row.alg, row.env_id) for row in (*learning.ROWS.values(), *stability.ROWS.values())}
    assert published.SCORES.keys() <= ours


def test_a_score_names_its_environment_where_that_differs():
    assert published.published('TD3', 'Pendulum-v1') == '-151.9 ± 90.2 (20k)'
    assert published.published('DQN', 'LunarLander-v3') == '154.4 ± 79.2 (100k, `LunarLander-v2`)'
    assert published.published('DQN', 'NoSuch-v0') == '–'
