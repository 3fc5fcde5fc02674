"""What a training shows where no bar can be drawn, and what is asked for by ``verbose``."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import zoo
from zoo.callbacks import Evaluate
from zoo.common.training.display import BarDisplay, Lines, display_for, in_verbose
from zoo.common.training.logger import Logger

METRICS = {'loss/q': 0.0123456, 'episode/length': 1834.5, 'episode/count': 81.0, 'episode/return': -198.44}


class Clock:
    """Seconds that only a test lets pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr('time.perf_counter', lambda: self.now)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def lines_of(capsys: Any) -> list[str]:
    out, err = capsys.readouterr()
    assert out == ''  # which is for results
    return err.splitlines()


def test_updates_on_a_dataset_are_called_so(clock: Clock, capsys):
    shown = display_for(1, 100, 'BC', unit='updates')
    clock.now = 2.0
    shown.show(50, {})
    assert lines_of(capsys) == ['BC:  50% 50/100, 25 updates/s']
    bar = BarDisplay(100, 'BC', unit='updates')
    bar.show(50, {})
    assert 'updates/s' in capsys.readouterr().err
    bar.close(50, {})


def test_a_line_in_words(clock: Clock, capsys):
    shown = Lines(100_000, 'DQN Pong')
    shown.begin()
    clock.now = 2.0
    shown.show(12_288, METRICS)
    clock.now = 3661.0
    shown.show(100_000, METRICS | {f'loss/{i}': i for i in range(9)} | {'roles/staleness': 2.5}, over=True)
    assert lines_of(capsys) == [
        'DQN Pong:   0% 0/100,000',
        'DQN Pong:  12% 12,288/100,000, 6,144 steps/s, return=-198.4, length=1834, q=0.01235',
        'DQN Pong: 100% 100,000/100,000, 27 steps/s, in 1:01:01, return=-198.4, length=1834, q=0.01235, 0=0, 1=1, 2=2, '
        'staleness=2.5',
    ]


def test_a_table_has_every_metric_with_its_name_in_progress_csv(clock: Clock, capsys):
    shown = Lines(100, 'DQN', tables=True)
    clock.now = 2.0
    shown.show(50, METRICS | {'test/return': 12.0, 'roles/staleness': 1.5})
    assert lines_of(capsys) == [
        'DQN:  50% 50/100, 25 steps/s',
        '  episode/return     -198.44',
        '  episode/length      1834.5',
        '  episode/count           81',
        '  loss/q           0.0123456',
        '  roles/staleness        1.5',
        '  test/return             12',
    ]


@pytest.mark.parametrize(
    ('seconds', 'fewest', 'most'), [(60, 18, 24), (600, 40, 50), (3600, 60, 70), (86_400, 320, 360)]
)
def test_a_long_training_has_a_short_log(clock: Clock, capsys, seconds: int, fewest: int, most: int):
    logger = Logger(None, 10 * seconds, verbose=1, name='PPO')
    logger.begin()
    times = []
    for tenth in range(10 * seconds):
        clock.now = (tenth + 1) / 10
        before = logger._due
        logger.advance()
        if logger._due != before:
            times.append(clock.now)
    logger.finish()
    logger.close()
    assert fewest <= len(lines_of(capsys)) <= most
    assert times[0] == 1 and all(b - a <= 300.2 for a, b in zip(times, times[1:], strict=False))


def test_the_speed_is_of_the_last_quarter_and_in_the_end_of_all(clock: Clock, capsys):
    shown = Lines(10_000, '')
    steps = 0
    for second in range(1, 101):  # 10 steps a second, and in the second half 100
        clock.now, steps = float(second), steps + (10 if second <= 50 else 100)
        shown.show(steps, {})
    shown.show(steps, {}, over=True)
    *_, last, end = lines_of(capsys)
    assert ', 100 steps/s, 00:45 left' in last and ', 55 steps/s, in 01:40' in end


@pytest.mark.parametrize(
    ('total', 'shown', 'expected'),
    [
        (100, [(8.0, 3), (16.0, 6)], ['  3% 3/100, 0.38 steps/s', '  6% 6/100, 0.38 steps/s, 04:11 left']),
        (10_000, [(10.0, 10), (12.0, 210)], ['  0% 10/10,000, 1 steps/s', '  2% 210/10,000, 100 steps/s, 01:38 left']),
    ],
    ids=['a slow environment', 'the first stretch compiles'],
)
def test_the_speed_of_the_first_stretch_tells_no_time_left(clock: Clock, capsys, total: int, shown: Any, expected: Any):
    lines = Lines(total, '')
    for clock.now, steps in shown:
        lines.show(steps, {})
    assert lines_of(capsys) == expected


def test_the_time_of_tests_does_not_count(clock: Clock, capsys):
    shown = Lines(1000, '')
    clock.now = 10.0
    shown.waited(8.0)
    shown.show(100, {})
    assert ' 50 steps/s' in lines_of(capsys)[0]


def test_a_resumed_training_goes_on_counting(clock: Clock, capsys, monkeypatch):
    shown = Lines(1000, 'PPO', start=600)
    shown.begin()
    clock.now = 10.0
    shown.show(700, {})
    assert lines_of(capsys) == ['PPO:  60% 600/1,000', 'PPO:  70% 700/1,000, 10 steps/s']
    stream = Terminal()
    monkeypatch.setattr(sys, 'stderr', stream)
    bar = BarDisplay(1000, 'PPO', start=600)
    bar.close(700, {})
    assert '700/1.00k' in stream.getvalue()


def test_the_end_is_said_once_even_of_a_training_of_no_time(clock: Clock, capsys):
    """The last steps have no line of their own: the end has one, with the losses of the last update."""
    logger = Logger(None, 64, verbose=1, name='PPO', measured=lambda: {'loss/policy': 1.5})
    logger.begin()
    logger.advance(32)
    clock.now = 5.0
    logger.advance(40)  # an iteration may pass the end
    logger.finish()
    assert lines_of(capsys) == ['PPO:   0% 0/64', 'PPO: 100% 72/72, 14 steps/s, in 00:05, policy=1.5']


def test_metrics_are_as_new_as_the_line(clock: Clock, capsys):
    """Not as old as the last row of the log, which may be minutes old in a slow environment."""
    found = {'episode/return': 1.0}
    logger = Logger(None, 100, verbose=1, measured=lambda: found)
    logger.log(1, {'episode/return': 0.0})
    clock.now = 1.0
    logger.advance()
    assert lines_of(capsys)[0].endswith('return=1')


def test_where_is_what(monkeypatch: pytest.MonkeyPatch):
    kinds = {}
    for name, stream in (('terminal', Terminal()), ('file', io.StringIO()), ('none', None)):
        monkeypatch.setattr(sys, 'stderr', stream)
        kinds[name] = [type(display_for(verbose, 10, '')).__name__ for verbose in (0, 1, 2)]
    monkeypatch.setattr(sys, 'stderr', io.StringIO())
    monkeypatch.setitem(sys.modules, 'ipykernel.zmqshell', sys)
    kinds['notebook'] = [type(display_for(verbose, 10, '')).__name__ for verbose in (0, 1, 2)]
    assert kinds == {
        'terminal': ['NoneType', 'BarDisplay', 'Lines'],
        'file': ['NoneType', 'Lines', 'Lines'],
        'none': ['NoneType'] * 3,
        'notebook': ['NoneType', 'BarDisplay', 'Lines'],
    }


class TestTheOldName:
    @pytest.mark.parametrize(
        ('given', 'verbose'),
        [
            ({}, None),
            ({'verbose': 2}, 2),
            ({'progress_bar': True}, 1),
            ({'progress_bar': False}, 0),
            ({'progress_bar': False, 'verbose': 1}, 0),  # 1 is the default, out of call_default_params
            ({'progress_bar': False, 'verbose': 0}, 0),
            ({'progress_bar': True, 'verbose': 2}, 2),
        ],
    )
    def test_means_verbose(self, given: dict[str, Any], verbose: int | None):
        assert in_verbose({'gamma': 1, **given}).get('verbose') == verbose

    @pytest.mark.parametrize(
        ('given', 'message'),
        [
            ({'progress_bar': True, 'verbose': 0}, 'progress_bar=True and verbose=0 contradict each other'),
            ({'progress_bar': False, 'verbose': 2}, 'progress_bar=False and verbose=2 contradict each other'),
            ({'progress_bar': 'no'}, "progress_bar is 'no': leave it out, and give verbose=0, 1 or 2"),
        ],
    )
    def test_is_refused_if_it_says_something_else(self, given: dict[str, Any], message: str):
        with pytest.raises(ValueError, match=message):
            in_verbose(given)

    def test_the_warning_is_about_the_user_s_own_line(self, capsys):
        few = {'train_steps': 20, 'explore_steps': 1000, 'buffer_size': 100, 'run_dir': False}
        with pytest.warns(DeprecationWarning, match='progress_bar=False is verbose=0 now') as caught:
            agent, _ = zoo.train('DQN', 'CartPole-v1', net='8', progress_bar=False, batch_size=8, **few)
            agent.learn(zoo.build_env('CartPole-v1'), progress_bar=False, batch_size=8, **few)
        assert [Path(warning.filename).name for warning in caught] == ['test_display.py'] * 2
        assert lines_of(capsys) == []

    def test_an_earlier_run_goes_on_as_quietly(self, tmp_path: Path, capsys):
        def interrupt(training: Any) -> None:
            raise KeyboardInterrupt

        few = {'train_steps': 20, 'explore_steps': 1000, 'log_every': 5, 'verbose': 0}
        with pytest.raises(KeyboardInterrupt):
            zoo.train('DQN', 'CartPole-v1', net='8', run_dir=tmp_path, callbacks=[interrupt], **few)
        config = json.loads((tmp_path / 'config.json').read_text())
        del config['learn_params']['verbose']
        config['learn_params']['progress_bar'] = False
        (tmp_path / 'config.json').write_text(json.dumps(config))
        with warnings.catch_warnings():
            warnings.simplefilter('error', DeprecationWarning)
            assert zoo.resume(tmp_path).result.steps == 15
        assert lines_of(capsys) == []

    def test_no_default_and_no_new_run_has_it(self, tmp_path: Path):
        with warnings.catch_warnings():
            warnings.simplefilter('error', DeprecationWarning)
            _, result = zoo.train('DQN', 'CartPole-v1', net='8', train_steps=20, run_dir=tmp_path, verbose=0)
        kept = zoo.open_run(result.run_dir).config['learn_params']
        assert kept['verbose'] == 0 and 'progress_bar' not in kept


@pytest.mark.parametrize('verbose', [3, -1, True, 'much'])
def test_other_values_are_refused(verbose: Any):
    with pytest.raises(ValueError, match=f'^verbose is {verbose!r}: give a whole number from 0 to 2'):
        zoo.train('DQN', 'CartPole-v1', train_steps=20, run_dir=False, verbose=verbose)


def check_lines(lines: list[str], runs: Path) -> None:
    """Three tests of 300 steps in order between the begin and the end, and a run with its best agent."""
    tests = [i for i, line in enumerate(lines) if re.match(r'Test at step \d+: \d', line)]
    (end,) = (i for i, line in enumerate(lines) if line.startswith('DQN CartPole-v1: 100% 300/300, '))
    assert lines[0] == 'DQN CartPole-v1:   0% 0/300' and len(tests) == 3 and tests[-1] < end
    assert ' steps/s, in 00:0' in lines[end] and 'return=' in lines[end]
    (run,) = runs.iterdir()
    assert (run / 'progress.csv').is_file() and (run / 'best').is_dir()


def test_a_training_without_a_terminal_speaks(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setenv('ZOO_RUNS', str(tmp_path))
    tests = Evaluate(every=100, episodes=1)
    zoo.train('DQN', 'CartPole-v1', net='8', train_steps=300, explore_steps=1000, evaluate=tests)
    check_lines(lines_of(capsys), tmp_path)


SCRIPT = """
import zoo
from zoo.callbacks import Evaluate
tests = Evaluate(every=100, episodes=1)
zoo.train('DQN', 'CartPole-v1', net='8', train_steps=300, explore_steps=1000, evaluate=tests)
print('the result')
"""


@pytest.mark.full
def test_a_script_whose_output_is_redirected_speaks(tmp_path: Path):
    """As with ``nohup``, Slurm or CI: both streams in one file, in order."""
    script, log = tmp_path / 'train.py', tmp_path / 'log.txt'
    script.write_text(SCRIPT)
    env = os.environ | {'ZOO_RUNS': str(tmp_path / 'runs'), 'PYTHONPATH': os.pathsep.join(sys.path)}
    with open(log, 'w') as file:
        subprocess.run([sys.executable, str(script)], stdout=file, stderr=file, check=True, env=env, timeout=120)
    lines = log.read_text().splitlines()
    assert lines[-1] == 'the result'
    check_lines(lines, tmp_path / 'runs')
