from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.text import Text

from zoo.common.plots import curves as plots
from zoo.common.plots import learning_curve


def png_size(path: Path) -> tuple[int, int]:
    content = path.read_bytes()
    assert content.startswith(b'\x89PNG\r\n\x1a\n')
    return struct.unpack('>II', content[16:24])


def labelled(figure) -> dict[str, np.ndarray]:
    """The lines of the legend, as ``[points, 2]``."""
    lines = figure.axes[0].get_lines()
    return {line.get_label(): line.get_xydata() for line in lines if not line.get_label().startswith('_')}


def test_one_run_gets_its_episodes_and_their_running_mean(tmp_path: Path):
    steps, returns = [10, 20, 30, 40], [1.0, 3.0, 5.0, -1.0]
    figure = learning_curve(tmp_path / 'new' / 'curve.png', {'PPO': [(steps, returns)]}, 'PPO on X', window=2)
    assert png_size(tmp_path / 'new' / 'curve.png') == (840, 504)
    raw, mean = (line.get_xydata() for line in figure.axes[0].get_lines())
    np.testing.assert_array_equal(raw, np.stack([steps, returns], axis=1))
    np.testing.assert_allclose(mean, np.stack([steps, [1, 2, 4, 2]], axis=1))
    axes = figure.axes[0]
    assert axes.get_title(loc='left') == 'PPO on X'
    assert axes.get_legend().get_title().get_text() == 'mean of 2 episodes'


def test_the_running_mean_of_a_window_longer_than_the_run_is_the_mean_so_far():
    figure = learning_curve(None, {'a': [([1, 2, 3], [3, 6, 0])]}, window=50)
    np.testing.assert_allclose(labelled(figure)['a'][:, 1], [3, 4.5, 3])


def test_several_runs_get_their_median_on_a_band():
    steps = np.linspace(0, 1000, 201)
    runs = [(steps, np.full(201, level)) for level in (1.0, 2.0, 6.0)]
    figure = learning_curve(None, {'SAC': runs, 'TD3': [(steps, steps)]}, window=1)
    np.testing.assert_allclose(labelled(figure)['SAC (3 runs)'][:, 1], 2)
    band = figure.axes[0].collections[0].get_paths()[0].get_extents()
    assert (band.x0, band.y0, band.x1, band.y1) == (0, 1, 1000, 6)
    assert 'TD3' in labelled(figure)


def test_a_run_that_stopped_early_neither_cuts_nor_bends_the_median():
    long = np.arange(0, 1001, 10)
    short = long[long <= 300]
    runs = [(long, np.zeros(long.size)), (long, np.zeros(long.size)), (short, np.full(short.size, 9.0))]
    line = labelled(learning_curve(None, {'a': runs}, window=1))['a (3 runs)']
    assert line[-1, 0] == 1000
    np.testing.assert_array_equal(line[:, 1], 0)
    late = [(long, np.zeros(long.size)), (long, np.zeros(long.size)), (np.array([0, 2000]), np.array([0.0, 50.0]))]
    line = labelled(learning_curve(None, {'a': late}, window=1))['a (3 runs)']
    assert line[-1, 0] <= 1010, 'one run of three is no median'


def test_a_run_of_long_episodes_does_not_drop_out_before_the_others():
    short = np.arange(0, 1001, 10)
    runs = [(short, np.zeros(short.size)), (short, np.ones(short.size)), (np.arange(0, 901, 300), np.full(4, 500.0))]
    line = labelled(learning_curve(None, {'a': runs}, window=1, band='confidence'))['a (3 runs)']
    assert line[-1, 0] == 1000
    np.testing.assert_allclose(line[:, 1], 167)


def test_runs_one_after_the_other_are_drawn():
    runs = [([1, 2], [1.0, 1.0]), ([10, 11], [2.0, 2.0]), ([20, 21], [3.0, 3.0])]
    line = labelled(learning_curve(None, {'a': runs}))['a (3 runs)']
    assert set(np.unique(line[:, 1])) == {1, 2, 3}


@pytest.mark.filterwarnings('error::RuntimeWarning', 'error::UserWarning')
@pytest.mark.parametrize('curves', [{}, {'a': []}, {'a': [([], [])]}, {'a': [([], []), ([5], [np.nan])]}])
def test_no_episode_says_so(tmp_path: Path, curves):
    figure = learning_curve(tmp_path / 'curve.png', curves, 'nothing')
    assert png_size(tmp_path / 'curve.png') == (840, 504)
    assert [text.get_text() for text in figure.axes[0].texts] == ['no finished episode yet']


@pytest.mark.filterwarnings('error::RuntimeWarning', 'error::UserWarning')
@pytest.mark.parametrize(
    'runs', [[([200], [-1000.0])], [([200], [-1000.0]), ([200], [-900.0])], [([5], [1]), ([], [])]], ids=len
)
def test_one_episode_is_visible(tmp_path: Path, runs):
    figure = learning_curve(tmp_path / 'curve.png', {'a': runs})
    blank = learning_curve(tmp_path / 'blank.png', {})
    assert not figure.axes[0].texts and blank.axes[0].texts
    lines = figure.axes[0].get_lines()
    assert any(line.get_marker() == 'o' and line.get_alpha() is None for line in lines)


def test_returns_that_are_not_finite_are_left_out():
    figure = learning_curve(None, {'a': [([1, 2, 3], [1.0, np.inf, 3.0])]}, window=2)
    np.testing.assert_allclose(labelled(figure)['a'], [[1, 1], [3, 2]])


def test_many_episodes_make_a_small_picture(tmp_path: Path):
    rng = np.random.default_rng(0)
    steps = np.arange(200_000) * 50
    figure = learning_curve(tmp_path / 'curve.png', {'a': [(steps, rng.normal(size=steps.size))]})
    assert all(len(line.get_xydata()) <= 2000 for line in figure.axes[0].get_lines())
    assert labelled(figure)['a'][-1, 0] == steps[-1]
    assert (tmp_path / 'curve.png').stat().st_size < 150_000


def test_curves_are_told_apart_in_colour_and_without():
    figure = learning_curve(None, {str(index): [([1, 2], [0, index])] for index in range(15)})
    lines = [line for line in figure.axes[0].get_lines() if not line.get_label().startswith('_')]
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 15
    assert len({(line.get_marker(), line.get_linestyle()) for line in lines}) == 15
    assert len({line.get_marker() for line in lines[:7]}) == 7


def test_a_lone_curve_is_a_plain_line():
    (line,) = [line for line in learning_curve(None, {'a': [([1, 2, 3], [1, 2, 3])]}).axes[0].get_lines()][1:]
    assert (line.get_marker(), line.get_linestyle()) == ('None', '-')


RUNS = np.array([[1.0, 1.0, 1.0], [2.0, 2.0, 2.0], [6.0, 6.0, 6.0], [11.0, 11.0, np.nan]])


@pytest.mark.parametrize(
    ('band', 'expected'),
    [('range', (1, 4, 11)), ('quartiles', (1.75, 4, 7.25))],
)
def test_bands_by_hand(band, expected):
    found = plots.summary(RUNS, band)
    np.testing.assert_allclose([each[0] for each in found], expected)
    if band == 'range':
        np.testing.assert_allclose([each[2] for each in found], (1, 2, 6))


@pytest.mark.filterwarnings('error::RuntimeWarning')
def test_the_confidence_band_is_that_of_every_resample():
    # Of two runs a resample has the first one twice, both, or the second one twice: 1/4, 1/2, 1/4.
    low, middle, high = plots.summary(np.array([[0.0, 5.0], [1.0, np.nan]]), 'confidence')
    np.testing.assert_allclose([low[0], middle[0], high[0]], [0, 0.5, 1])
    np.testing.assert_allclose([low[1], middle[1], high[1]], [5, 5, 5])
    # Of many runs it is that of a normal mean.
    runs = np.random.default_rng(1).normal(size=(400, 1))
    low, middle, high = plots.summary(runs, 'confidence')
    np.testing.assert_allclose(middle, runs.mean(0))
    np.testing.assert_allclose((high - low) / 2, 1.96 * runs.std(0) / 20, rtol=0.1)


def test_the_legend_says_what_the_band_is():
    runs = [([1, 2], [0, 1]), ([1, 2], [0, 3])]
    for band, words in plots.BANDS.items():
        legend = learning_curve(None, {'a': runs}, band=band).axes[0].get_legend()
        assert legend.get_title().get_text() == words


@pytest.mark.parametrize(
    ('last', 'unit', 'drawn'),
    [(100, 'seconds', 100), (600, 'minutes', 10), (9000, 'hours', 2.5), (259200, 'days', 3)],
)
def test_returns_against_wall_clock(last, unit, drawn):
    figure = learning_curve(None, {'a': [([0, last], [0, 1])]}, against='seconds')
    assert figure.axes[0].get_xlabel() == f'Wall-clock time, {unit}'
    assert labelled(figure)['a'][-1, 0] == drawn


@pytest.mark.parametrize(
    'title',
    [
        'PPO LunarLander-v3',
        'PPO ' + 'WARMWOODS' * 14,
        'SAC a_package.of_mine.envs:AnEnvironmentWithAVeryLongName-v0 ' * 2,
    ],
)
def test_the_title_is_not_cut_off(title: str):
    figure = learning_curve(None, {'a': [([1, 2], [-8e6, 8e6])]}, title)
    figure.draw_without_rendering()
    (text,) = (
        child
        for child in figure.axes[0].get_children()
        if isinstance(child, Text) and child.get_text()[:3] == title[:3]
    )
    assert text.get_text().replace('\n', '').replace(' ', '') == title.replace(' ', '')
    box = text.get_window_extent()
    assert 0 <= box.x0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1


def test_episodes_do_not_show_through_the_legend():
    frame = learning_curve(None, {'a': [([1, 2], [3, 4])]}).axes[0].get_legend().get_frame()
    assert frame.get_visible() and frame.get_alpha() > 0.8


@pytest.mark.parametrize(
    ('steps', 'text'),
    [(0, '0'), (250, '250'), (20_000, '20k'), (2_500, '2.5k'), (1e6, '1M'), (1.25e6, '1.25M'), (2e9, '2G')],
)
def test_steps_are_written_short(steps: float, text: str):
    assert plots.steps_label(steps) == text


def test_labels_are_no_mathematics_and_none_is_hidden(tmp_path: Path):
    labels = ['a$_$b', '_hidden', '$', 'plain']
    runs = {label: [([1, 2, 3], [1.0, 2.0, 3.0])] for label in labels}
    figure = learning_curve(tmp_path / 'a.png', runs, 'cost in $_$')  # which Matplotlib could not read
    shown = [text.get_text().lstrip('\N{ZERO WIDTH SPACE}') for text in figure.axes[0].get_legend().get_texts()]
    assert shown == [r'a\$_\$b', '_hidden', r'\$', 'plain']


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="a run of 'TD3' has 2 steps and 1 returns"):
        learning_curve(None, {'TD3': [([1, 2], [3])]})
    with pytest.raises(ValueError, match="the steps of a run of 'TD3' fall at 1: sort them"):
        learning_curve(None, {'TD3': [([2, 1], [3, 3])]})
    with pytest.raises(ValueError, match="unknown value of band 'quartile': did you mean 'quartiles'"):
        learning_curve(None, {'TD3': [([1], [3])]}, band='quartile')
    with pytest.raises(ValueError, match="unknown value of against 'time'"):
        learning_curve(None, {'TD3': [([1], [3])]}, against='time')
    with pytest.raises(ValueError, match='window is 0: it must be at least 1 episode'):
        learning_curve(None, {'TD3': [([1], [3])]}, window=0)


def test_a_notebook_shows_the_figure():
    assert learning_curve(None, {'a': [([1, 2], [3, 4])]})._repr_png_().startswith(b'\x89PNG')


@pytest.mark.full
def test_pyplot_is_never_touched(tmp_path: Path):
    root = Path(plots.__file__).parents[3]
    code = (
        f'import sys; sys.path.insert(0, {str(root)!r}); from zoo.common.plots import learning_curve; '
        f'learning_curve({str(tmp_path / "curve.png")!r}, {{"a": [([1, 2], [3, 4])]}}); '
        'print("matplotlib.pyplot" in sys.modules)'
    )
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert done.stdout.strip() == 'False', done.stderr
    assert png_size(tmp_path / 'curve.png') == (840, 504)
