"""``zoo.compare_scores``: scores that are there already, over several environments."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from PIL import Image

import zoo
from zoo.experiments import references
from zoo.experiments.references import known, random_scores

#: 0 and 1 are the scores of a random policy and of the reference.
SCALE: dict[str, Any] = {'random_scores': {'A': 0.0, 'B': 100.0}, 'references': {'A': 1.0, 'B': 200.0}}


def test_by_hand():
    scores = {'low': {'A': [0.0, 0.5], 'B': [100.0, 150.0]}, 'high': {'A': [0.5, 1.0], 'B': [150, 300]}}
    made = zoo.compare_scores(scores, **SCALE)
    # high: 0.5, 1, 0.5 and 2, whose middle half is 0.5 and 1; the means of A and B are 0.75 and 1.25.
    found = {name: value for name, (value, _) in made.aggregates['high'].items()}
    assert found == {'IQM': 0.75, 'median': 1.0, 'mean': 1.0, 'optimality gap': 0.25}
    assert {name: value for name, (value, _) in made.aggregates['low'].items()} == {
        'IQM': 0.25, 'median': 0.25, 'mean': 0.25, 'optimality gap': 0.75,
    }  # fmt: skip
    assert list(made.aggregates) == ['high', 'low']
    assert made.aggregates['low']['mean'][1] == (0.0, 0.5)
    # Of four pairs in each environment, three are wins and one is a tie.
    assert made.improvement['high', 'low'][0] == 0.875
    assert made.table == [('high', '0.75', '225', '2'), ('low', '0.25', '125', '2')]
    assert '2 runs are few: intervals are too narrow with fewer than 5 runs' in repr(made)
    assert made.rows()[-1] == ('high', 'B', 1, 300.0, 2.0)


def test_one_run_has_no_interval():
    made = zoo.compare_scores(
        {'x': {'A': [0.3], 'B': [150.0, 160.0]}, 'y': {'A': [0.1, 0.2], 'B': [110, 120]}}, **SCALE
    )
    assert all(ends is None for _, ends in made.aggregates['x'].values())
    assert all(ends is not None for _, ends in made.aggregates['y'].values())
    assert made.improvement['x', 'y'] == (1.0, None)
    assert 'An interval needs two runs in every environment: x has one in A.' in repr(made)


def test_five_runs_are_enough():
    made = zoo.compare_scores({'x': {'A': np.linspace(0, 1, 5)}}, random_scores={'A': 0}, references={'A': 1})
    assert made.notes == [] and made.improvement == {}


def test_the_scale_of_common_environments_is_known():
    made = zoo.compare_scores(
        {'PPO': {'CartPole-v1': [500.0, 262.01], 'Own-v0': [3.0, 5.0]}}, random_scores={'Own-v0': 0}
    )
    np.testing.assert_allclose(made.normalized('PPO')[0], [1.0, 0.5])
    np.testing.assert_allclose(made.normalized('PPO')[1], [0.75, 1.25])  # the mean is the reference
    text = repr(made)
    assert "PPO in rl-zoo3's benchmark.md" in text and 'table, 100 episodes' in text and 'highest mean here' in text
    given = zoo.compare_scores({'PPO': {'CartPole-v1': [500.0]}}, random_scores={'CartPole-v1': 0})
    assert given.scales['CartPole-v1'].random == 0 and given.scales['CartPole-v1'].reference == 500


def test_what_lacks_scores_is_left_out_and_named(tmp_path):
    scores = {'all': {'A': [0.5, 1.0], 'B': [150.0, 160.0]}, 'part': {'A': [2.0, 3.0]}}
    made = zoo.compare_scores(scores, **SCALE)
    assert list(made.aggregates) == ['all'] and made.improvement['all', 'part'][0] == 0.0  # in A alone
    assert 'part is left out of the aggregates: it has no score in B.' in repr(made)
    assert made.table[1] == ('part', '2.5', '-', '2')
    bad = zoo.compare_scores(
        {'x': {'A': [-1.0], 'B': [150.0]}}, random_scores={'A': 0, 'B': 100}, references={'B': 200}
    )
    assert bad.environments == ['B'] and bad.aggregates['x']['mean'] == (0.5, None)
    assert 'A is left out of the aggregates: no algorithm is better than random there.' in repr(bad)
    assert bad.rows()[0] == ('x', 'A', 0, -1.0, None)
    apart = zoo.compare_scores({'x': {'A': [1.0]}, 'y': {'B': [150.0]}}, **SCALE)
    assert apart.aggregates == {} and 'x is left out' in apart._repr_html_()
    with pytest.raises(ValueError, match='there are no aggregates to draw: x is left out'):
        apart.plot(tmp_path / 'x.png')


def test_the_picture_and_the_page(tmp_path):
    rng = np.random.default_rng(0)
    scores = {f'alg {i}': {'A': rng.normal(0.2 * i, 0.2, 5), 'B': rng.normal(120, 9, 5)} for i in range(4)}
    made = zoo.compare_scores(scores, **SCALE)
    figure = made.plot(tmp_path / 'deep' / 'summary.png')
    with Image.open(tmp_path / 'deep' / 'summary.png') as picture:
        assert picture.width == 900 and (tmp_path / 'deep' / 'summary.png').stat().st_size < 200_000
    panels = [axes for part in figure.subfigs for axes in part.axes]
    assert [axes.get_title().partition('\n')[0] for axes in panels] == ['IQM', 'median', 'mean', 'optimality gap', '']
    bars = panels[0].patches
    assert [bar.get_x() for bar in bars] == [found['IQM'][1][0] for found in made.aggregates.values()]
    profiles = {line.get_label(): line.get_ydata() for line in panels[4].lines}
    assert profiles.keys() == scores.keys() and all((np.diff(y) <= 0).all() for y in profiles.values())
    page = made._repr_html_()
    assert page.count('data:image/png;base64,') == 1 and '<caption' in page and 'alg 3' in page


def test_many_pairs_are_cut_in_text_alone():
    made = zoo.compare_scores(
        {str(i): {'A': [i, i + 1]} for i in range(9)}, random_scores={'A': -1}, references={'A': 9}
    )
    assert len(made.improvement) == 36 and 'and 8 more pairs' in repr(made)
    assert len(made.tables[3].rows) == 36


@pytest.mark.parametrize(
    ('scores', 'given', 'message'),
    [
        ({}, {}, 'scores are by algorithm and environment: give'),
        ({'PPO': [1, 2]}, {}, 'scores are by algorithm and environment: give'),
        ({'PPO': {}}, {}, "scores\\['PPO'\\] has no environment"),
        ({'PPO': {'CartPole-v1': []}}, {}, r'the scores of PPO in CartPole-v1 are \[\]: give a list of finite numbers'),
        ({'PPO': {'CartPole-v1': 3.0}}, {}, 'are 3.0: give a list'),
        ({'PPO': {'CartPole-v1': [1, float('nan')]}}, {}, 'give a list of finite numbers'),
        ({'PPO': {'CartPole-v1': ['a']}}, {}, 'give a list of finite numbers'),
        ({'PPO': {'Own-v0': [1]}}, {}, r"random policy in Own-v0: give it, random_scores=\{'Own-v0': …\}"),
        ({'PPO': {'CartPole-v1': [1]}}, {'references': {'CartPol-v1': 3}}, "did you mean 'CartPole-v1'"),
        ({'PPO': {'CartPole-v1': [1]}}, {'references': {'CartPole-v1': 3}}, 'is 3, but a random policy has 24.02'),
        ({'PPO': {'CartPole-v1': [1]}}, {'references': {'CartPole-v1': 'x'}}, "is 'x': give a number"),
        ({'PPO': {'CartPole-v1': [1]}}, {'random_scores': {'CartPole-v1': True}}, 'is True: give a number'),
    ],
)
def test_what_is_refused(scores: Any, given: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        zoo.compare_scores(scores, **given)


def test_the_table_of_known_scores():
    for name, entry in known().items():
        assert entry.keys() == {'type', 'random', 'reference', 'source'}
        assert entry['reference'] > entry['random'] and entry['source'].startswith("PPO in rl-zoo3's benchmark.md"), (
            name
        )


@pytest.mark.full(but='CartPole-v1')
@pytest.mark.parametrize('name', ['CartPole-v1', 'MountainCarContinuous-v0'])
def test_a_random_policy_scores_as_the_table_says(name: str):
    env = zoo.build_env(name, 'classic_control')
    assert np.mean(random_scores(env, 100)) == pytest.approx(known()[name]['random'], abs=1e-3)
    env.close()


class Masked(gymnasium.Env):
    """Allows the second of two actions alone, which pays 1."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {'action_mask': np.array([0, 1], np.int8)}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return (
            np.zeros(1, np.float32),
            float(action),
            self.steps == 9,
            False,
            {'action_mask': np.array([0, 1], np.int8)},
        )


def test_a_random_policy_takes_allowed_actions():
    assert random_scores(zoo.build_env(Masked, 'gymnasium'), 3) == [9.0] * 3
    assert references.measured_scale(zoo.build_env(Masked, 'gymnasium')).random == 9.0
