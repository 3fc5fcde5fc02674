from __future__ import annotations

import csv
import errno
import io
import json
import math
import os
import re
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tqdm import tqdm

from zoo.common.tools.errors import UserError
from zoo.common.tools.files import write_json
from zoo.common.training.logger import Logger
from zoo.common.training.run_directory import run_directory

#: What tqdm knows of a bar.
FORMAT = tqdm.format_dict.fget


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def rows(run_dir: Path) -> list[dict[str, str]]:
    with open(run_dir / 'progress.csv', newline='') as file:
        return list(csv.DictReader(file))


def events(run_dir: Path) -> list:
    """All events of a run, read back by TensorFlow's own TFRecord and Event readers, file by file."""
    import tensorflow as tf

    files = sorted(run_dir.glob('events.out.tfevents.*'), key=lambda file: int(file.name.rpartition('.')[2]))
    return [
        tf.compat.v1.Event.FromString(record.numpy())
        for file in files
        for record in tf.data.TFRecordDataset([str(file)])
    ]


# Run directories


def test_false_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert run_directory(False, 'TD3', 'Pendulum-v1') is None
    assert not any(tmp_path.iterdir())


def test_the_default_is_a_new_directory_in_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv('ZOO_RUNS', raising=False)
    path = run_directory(None, 'TD3', 'Pendulum-v1')
    assert path.is_dir() and path.parent == Path('runs')
    assert re.fullmatch(r'TD3_Pendulum-v1_\d{8}-\d{6}', path.name)


def test_the_variable_moves_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv('ZOO_RUNS', str(tmp_path / 'a' / 'b'))
    assert run_directory(None, 'TD3', 'X').parent == tmp_path / 'a' / 'b'


def test_runs_of_one_second_get_directories_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv('ZOO_RUNS', str(tmp_path))
    monkeypatch.setattr(time, 'strftime', lambda form: '20260102-030405')
    with ThreadPoolExecutor(8) as pool:
        paths = list(pool.map(lambda _: run_directory(None, 'DQN', 'CartPole-v1'), range(24)))
    assert len(set(paths)) == 24
    base = 'DQN_CartPole-v1_20260102-030405'
    assert {path.name for path in paths} == {base} | {f'{base}_{count}' for count in range(2, 25)}


@pytest.mark.parametrize(
    ('env_name', 'expected'),
    [
        ('ALE/Pong-v5', 'ALE-Pong-v5'),
        ('my module:Env v0', 'my-module-Env-v0'),
        ('../../etc', 'etc'),
        ('', 'env'),
        ('环境', 'env'),
        ('x' * 300, 'x' * 80),
    ],
)
def test_the_environment_name_is_made_fit_for_a_file_name(tmp_path: Path, monkeypatch, env_name: str, expected: str):
    monkeypatch.setenv('ZOO_RUNS', str(tmp_path))
    path = run_directory(None, 'PPO', env_name)
    assert path.parent == tmp_path
    assert path.name.split('_')[1] == expected


def test_a_path_is_used_and_used_again(tmp_path: Path):
    path = run_directory(tmp_path / 'deep' / 'mine', 'PPO', 'X')
    assert path == tmp_path / 'deep' / 'mine' and path.is_dir()
    assert run_directory(str(path), 'PPO', 'X') == path


def test_what_cannot_be_a_run_directory_is_refused(tmp_path: Path):
    (tmp_path / 'file').touch()
    for path in (tmp_path / 'file', tmp_path / 'file' / 'inside'):
        with pytest.raises(NotADirectoryError, match='cannot be a run directory'):
            run_directory(path, 'PPO', 'X')
    with pytest.raises(TypeError, match='run_dir is True'):
        run_directory(True, 'PPO', 'X')


def test_a_folder_with_other_files_is_refused(tmp_path: Path):
    (tmp_path / 'notes.txt').write_text('mine')
    with pytest.raises(ValueError, match="holds 'notes.txt' and is no run: choose an empty or a new folder"):
        run_directory(tmp_path, 'PPO', 'X')
    (tmp_path / 'config.json').write_text('{"port": 80}')
    with pytest.raises(ValueError, match="holds 'config.json' and is no run"):
        run_directory(tmp_path, 'PPO', 'X')
    assert sorted(path.name for path in tmp_path.iterdir()) == ['config.json', 'notes.txt']


def test_an_empty_folder_and_a_run_are_taken(tmp_path: Path):
    (tmp_path / '.DS_Store').touch()
    (tmp_path / 'output.txt').write_text('what the process has printed so far')
    assert run_directory(tmp_path, 'PPO', 'X') == tmp_path
    (tmp_path / 'config.json').write_text('{"algorithm": "PPO"}')
    (tmp_path / 'progress.csv').write_text('step\n')
    assert run_directory(tmp_path, 'PPO', 'X') == tmp_path
    with pytest.raises(ValueError, match='holds a run of PPO: choose another run_dir for DQN'):
        run_directory(tmp_path, 'DQN', 'X')


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refused(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.EROFS, 'Read-only file system')

    monkeypatch.setattr(tempfile, 'TemporaryFile', refused)
    with pytest.raises(OSError, match=r'cannot be a run directory \(Read-only file system\): choose a folder'):
        run_directory(tmp_path / 'a', 'PPO', 'X')
    monkeypatch.setenv('ZOO_RUNS', str(tmp_path / 'b'))
    with pytest.raises(UserError, match='cannot be the folder that ZOO_RUNS names'):
        run_directory(None, 'PPO', 'X')
    monkeypatch.undo()
    with pytest.raises(UserError, match='File name too long'):
        run_directory(tmp_path / ('x' * 300), 'PPO', 'X')
    with pytest.raises(UserError, match='null byte'):
        run_directory('a\0b', 'PPO', 'X')


# progress.csv


def test_rows_are_there_as_soon_as_they_are_logged(tmp_path: Path):
    with Logger(tmp_path, 100) as logger:
        logger.log(10, {'episode/return': 1.5, 'loss/critic': 0.123456789})
        assert rows(tmp_path) == [{'step': '10', 'episode/return': '1.5', 'loss/critic': '0.123457'}]
        logger.log(20, {'loss/critic': 2.0, 'episode/return': -3})
        assert rows(tmp_path)[1] == {'step': '20', 'episode/return': '-3', 'loss/critic': '2'}


@pytest.mark.parametrize(
    ('value', 'text'),
    [
        (1_234_567, '1234567'),
        (1_234_567.0, '1234567'),
        (1234.56789, '1234.57'),
        (1e-7, '1e-07'),
        (float('nan'), 'nan'),
        (float('-inf'), '-inf'),
        (np.float32(0.1), '0.1'),
        (np.array([7])[0], '7'),
        (np.array(0.25), '0.25'),
        (1e300, '1e+300'),
        (True, '1'),
    ],
)
def test_numbers_are_compact(tmp_path: Path, value, text: str):
    with Logger(tmp_path, 1) as logger:
        logger.log(1, {'x': value})
    assert rows(tmp_path)[0]['x'] == text


def test_columns_may_come_and_go(tmp_path: Path):
    with Logger(tmp_path, 1) as logger:
        logger.log(1, {'a': 1})
        logger.log(2, {'b': 2, 'a': 3})
        logger.log(3, {'c': 4})
        logger.log(4, {})
    assert [list(row.values()) for row in rows(tmp_path)] == [
        ['1', '1', '', ''],
        ['2', '3', '2', ''],
        ['3', '', '', '4'],
        ['4', '', '', ''],
    ]
    assert list(rows(tmp_path)[0]) == ['step', 'a', 'b', 'c']
    assert {path.name.split('.')[0] for path in tmp_path.iterdir()} == {'progress', 'events'}


def test_a_new_column_that_cannot_be_written_costs_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*args):
        raise OSError('power')

    logger = Logger(tmp_path, 1)
    logger.log(1, {'a': 1})
    monkeypatch.setattr(os, 'replace', fail)
    with pytest.raises(OSError, match='power'):
        logger.log(2, {'a': 1, 'b': 2})
    monkeypatch.undo()
    logger.log(3, {'a': 3})
    logger.close()
    assert [tuple(row.values()) for row in rows(tmp_path)] == [('1', '1'), ('3', '3')]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_run_is_continued(tmp_path: Path):
    with Logger(tmp_path, 1) as logger:
        logger.log(1, {'a': 1})
    with Logger(tmp_path, 1) as logger:
        logger.log(2, {'a': 2})
        logger.log(3, {'b': 3})
    assert [tuple(row.values()) for row in rows(tmp_path)] == [('1', '1', ''), ('2', '2', ''), ('3', '', '3')]


def test_half_a_row_does_not_spoil_the_next(tmp_path: Path):
    (tmp_path / 'progress.csv').write_text('step,a,b\n1,2,3\n2,4')
    with Logger(tmp_path, 1) as logger:
        logger.log(3, {'a': 5, 'b': 6})
        assert (tmp_path / 'progress.csv').read_text() == 'step,a,b\n1,2,3\n2,4\n3,5,6\n'
        logger.log(4, {'c': 7})
    assert (tmp_path / 'progress.csv').read_text() == 'step,a,b,c\n1,2,3,\n2,4,,\n3,5,6,\n4,,,7\n'


def test_rows_after_the_checkpoint_that_a_run_goes_on_from_are_taken_out(tmp_path: Path):
    (tmp_path / 'progress.csv').write_text('step,a\n10,1\n20,2\n30,3\n4')
    with Logger(tmp_path, 1, resumed_at=20) as logger:
        logger.log(25, {'b': 5})
    assert (tmp_path / 'progress.csv').read_text() == 'step,a,b\n10,1,\n20,2,\n25,,5\n'
    session = next(event for event in events(tmp_path) if event.HasField('session_log'))
    assert session.step == 21 and session.session_log.status == session.session_log.START
    (tmp_path / 'progress.csv').write_text('time,a\n')
    with pytest.raises(ValueError, match='was not written by zoo'):
        Logger(tmp_path, 1, resumed_at=20)


def test_bad_metrics_are_named(tmp_path: Path):
    with Logger(tmp_path, 1) as logger:
        with pytest.raises(TypeError, match="metric 'loss/q' is a ndarray: it must be a single number"):
            logger.log(1, {'loss/q': np.zeros(3)})
        with pytest.raises(TypeError, match="metric 'x' is a NoneType"):
            logger.log(1, {'x': None})
        with pytest.raises(ValueError, match="cannot be called 'step'"):
            logger.log(1, {'step': 3})
    with pytest.raises(ValueError, match='this logger is closed'):
        logger.log(1, {'x': 1})
    logger.close()


def test_without_a_run_directory_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with Logger(None, 10) as logger:
        logger.log(1, {'a': 1})
        logger.advance(3)
    assert not any(tmp_path.iterdir())


# TensorBoard


def test_events_are_read_back_by_tensorflow(tmp_path: Path):
    before = time.time()
    with Logger(tmp_path, 1) as logger:
        logger.log(10, {'episode/return': 1.5, 'loss/critic': float('nan')})
        assert len(events(tmp_path)) == 2, 'written as soon as logged, for a TensorBoard that looks on'
        logger.log(2**40, {'episode/return': -2})
    with Logger(tmp_path, 1) as logger:
        logger.log(30, {'episode/return': 3})
    written = events(tmp_path)
    assert [event.file_version for event in written if event.file_version] == ['brain.Event:2'] * 2
    scalars = [event for event in written if event.HasField('summary')]
    assert [event.step for event in scalars] == [10, 2**40, 30]
    assert all(before - 1 <= event.wall_time <= time.time() + 1 for event in written)
    first = {value.tag: value.simple_value for value in scalars[0].summary.value}
    assert first['episode/return'] == 1.5 and math.isnan(first['loss/critic'])
    assert [event.summary.value[0].simple_value for event in scalars[1:]] == [-2, 3]


# The bar


def test_nothing_is_shown_if_nothing_is_asked_for(monkeypatch: pytest.MonkeyPatch):
    for stream in (Terminal(), io.StringIO()):
        monkeypatch.setattr(sys, 'stderr', stream)
        with Logger(None, 10, verbose=0) as logger:
            logger.begin()
            logger.advance(10)
            logger.say('a test')
            logger.finish()
        assert stream.getvalue() == ''


#: What a DQN on Atari shows, the return last as the loops log it.
METRICS = {
    'loss/q': 0.0123,
    'loss/q_mean': 1.25,
    'episode/length': 1834.5,
    'episode/count': 81,
    'episode/return': -198.44,
}


def last_line(monkeypatch: pytest.MonkeyPatch, columns: int, description: str, metrics: dict[str, float]) -> str:
    """What a terminal of so many columns shows after 5,000 seconds and 3,170,000 of 6,000,000 steps."""
    stream = Terminal()
    monkeypatch.setattr(sys, 'stderr', stream)
    monkeypatch.setenv('COLUMNS', str(columns))
    now = [0.0]
    monkeypatch.setattr('tqdm.std.time', lambda: now[0])
    logger = Logger(None, 6_000_000, name=description)
    logger.log(1, metrics)
    now[0] = 5000.0
    logger.advance(3_170_000)
    logger._show()
    assert all(len(line) < columns for line in stream.getvalue().split('\r'))
    return stream.getvalue().split('\r')[-1].rstrip()


@pytest.mark.parametrize(
    ('columns', 'description', 'expected'),
    [
        (40, 'PPO LunarLander-v3', ' 53% 3.17M/6.00M, return=-198.4'),
        (60, 'PPO LunarLander-v3', 'PPO Lunar...:  53% 3.17M/6.00M, 1:14:23 left, return=-198.4'),
        (80, 'PPO LunarLander-v3', 'PPO LunarLander-v3:  53% 3.17M/6.00M, 634 steps/s, 1:14:23 left, return=-198.4'),
        (80, 'SAC Pendulum-v1', 'SAC Pendulum-v1:  53% 3.17M/6.00M, 634 steps/s, 1:14:23 left, return=-198.4'),
        (80, 'DQN PongNoFrameskip-v4', 'DQN PongN...:  53% 3.17M/6.00M, 634 steps/s, 1:14:23 left, return=-198.4'),
        (80, 'SAC', 'SAC:  53% 3.17M/6.00M, 634 steps/s, 1:14:23 left, return=-198.4, length=1834'),
        (
            120,
            'DQN PongNoFrameskip-v4',
            'DQN PongNoFrameskip-v4:  53%|######3     | 3.17M/6.00M, 634 steps/s, 1:14:23 left, return=-198.4, '
            'length=1834, count=81',
        ),
    ],
)
def test_the_bar_fits_its_terminal(monkeypatch: pytest.MonkeyPatch, columns: int, description: str, expected: str):
    assert last_line(monkeypatch, columns, description, METRICS) == expected


def test_a_wide_terminal_shows_four_metrics(monkeypatch: pytest.MonkeyPatch):
    line = last_line(monkeypatch, 160, 'TD3', METRICS)
    assert line.startswith('TD3:  53%|') and line.endswith('return=-198.4, length=1834, count=81, q=0.0123')


def test_a_terminal_without_a_size_has_a_bar(monkeypatch: pytest.MonkeyPatch):
    """As in a container, whose terminal has 0 columns: 80 are taken."""
    stream = Terminal()
    monkeypatch.setattr(sys, 'stderr', stream)
    monkeypatch.delenv('COLUMNS', raising=False)
    monkeypatch.setattr('tqdm.std.tqdm.format_dict', property(lambda bar: FORMAT(bar) | {'ncols': -1}))
    with Logger(None, 100, name='PPO') as logger:
        logger.advance(50)
    assert 'PPO:  50%' in stream.getvalue() and ' 50.0/100, ' in stream.getvalue()


def test_the_length_stands_behind_the_return(monkeypatch: pytest.MonkeyPatch):
    """Also where no episode had ended in the first row, which has their count alone."""
    stream = Terminal()
    monkeypatch.setattr(sys, 'stderr', stream)
    monkeypatch.setenv('COLUMNS', '160')
    with Logger(None, 100, name='PPO') as logger:
        logger.log(1, {'episode/count': 0})
        logger.log(2, {'episode/length': 3, 'episode/return': 2, 'episode/count': 1})
        logger.advance(2)
    assert 'return=2, length=3, count=1' in stream.getvalue()


def test_a_name_in_braces_is_shown_as_it_is(monkeypatch: pytest.MonkeyPatch):
    assert 'PPO {x}:  53%' in last_line(monkeypatch, 80, 'PPO {x}', {'loss/{n}': 1})


def test_the_end_shows_the_time_it_took(monkeypatch: pytest.MonkeyPatch):
    stream = Terminal()
    monkeypatch.setattr(sys, 'stderr', stream)
    with Logger(None, 100) as logger:
        logger.advance(100)
    assert ' 100/100' in stream.getvalue() and stream.getvalue().rstrip().endswith(' steps/s, 00:00')


def test_the_bar_is_drawn_a_few_times_a_second(monkeypatch: pytest.MonkeyPatch):
    stream = Terminal()
    monkeypatch.setattr(sys, 'stderr', stream)
    now = [0.0]
    monkeypatch.setattr('zoo.common.training.logger.time.perf_counter', lambda: now[0])
    logger = Logger(None, 10_000)
    for _ in range(10_000):
        now[0] += 1e-4  # 10,000 steps a second
        logger.advance()
    drawn = stream.getvalue().count('\r')
    logger.close()
    assert 3 <= drawn <= 8
    assert '10.0k/10.0k' in stream.getvalue()


def test_the_bar_may_pass_its_total(monkeypatch: pytest.MonkeyPatch):
    stream = Terminal()
    monkeypatch.setattr(sys, 'stderr', stream)
    with Logger(None, 100) as logger:
        logger.advance(128)
    assert '128/128' in stream.getvalue()


def test_a_notebook_shows_the_bar_although_it_is_no_terminal(monkeypatch: pytest.MonkeyPatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, 'stderr', stream)
    monkeypatch.setitem(sys.modules, 'ipykernel.zmqshell', sys)
    with Logger(None, 10) as logger:
        logger.advance(10)
    assert '10.0/10.0' in stream.getvalue()


def test_write_json(tmp_path: Path):
    write_json(tmp_path / 'config.json', {'gamma': np.float64(0.5)})
    assert json.loads((tmp_path / 'config.json').read_text()) == {'gamma': 0.5}
