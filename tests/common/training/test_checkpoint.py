from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import time
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

import zoo
from zoo.common.tools.files import from_jsonable, jsonable, write_json
from zoo.common.training import checkpoint
from zoo.common.training.checkpoint import CheckpointError, read, write

CONFIG = {'algorithm': 'TD3', 'gamma': 0.99, 'steps': 20_000, 'net': {'hidden': [256, 256]}}
ARRAYS = {'actor/kernel': np.arange(12, dtype=np.float32).reshape(3, 4), 'steps': np.array(7, dtype=np.int64)}
BUFFER = {'obs/camera': np.arange(48, dtype=np.uint8).reshape(2, 2, 3, 4), 'reward': np.array([0.5, -1.0])}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return write(tmp_path / 'last', CONFIG, ARRAYS, BUFFER)


def names(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


def edit_config(path: Path, change, reseal: bool = False) -> None:
    """Rewrites config.json; with ``reseal`` its checksum is made right again."""
    body = json.loads((path / 'config.json').read_text())
    change(body)
    if reseal:
        body.pop('sha256')
        body['sha256'] = checkpoint.json_sha256(body)
    (path / 'config.json').write_text(json.dumps(body))


def test_round_trip(saved: Path):
    assert names(saved) == {'config.json', 'weights.safetensors', 'buffer.npz'}
    loaded = read(saved, 'TD3')
    assert loaded.config == CONFIG
    assert loaded.arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(loaded.arrays[name], array, strict=True)
    assert set(loaded.buffer) == set(BUFFER)
    for name, array in loaded.buffer.items():
        np.testing.assert_array_equal(array, BUFFER[name], strict=True)


def test_without_a_buffer_there_is_no_buffer_file(tmp_path: Path):
    write(tmp_path / 'last', CONFIG, ARRAYS, BUFFER)
    path = write(tmp_path / 'last', CONFIG, ARRAYS)
    assert names(path) == {'config.json', 'weights.safetensors'}
    assert read(path).buffer is None


@pytest.mark.parametrize(
    'array',
    [
        np.array(3.5, dtype=np.float32),
        np.array(True),
        np.array([True, False]),
        np.array([-(2**63), 2**63 - 1]),
        np.array([2**64 - 1], dtype=np.uint64),
        np.zeros((0, 3), dtype=np.float32),
        np.arange(24, dtype=np.float32).reshape(2, 3, 4).transpose(2, 0, 1),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(10, dtype=np.int16)[::-3],
        np.array([np.nan, np.inf, -0.0], dtype=np.float16),
    ],
    ids=lambda array: f'{array.dtype}{array.shape}',
)
def test_every_shape_and_dtype_comes_back(tmp_path: Path, array: np.ndarray):
    loaded = read(write(tmp_path / 'last', {}, {'x/y': array}, {'x/y': array}))
    for again in (loaded.arrays['x/y'], loaded.buffer['x/y']):
        np.testing.assert_array_equal(again, array, strict=True)
        again[...] = 0  # writable


def test_big_endian_arrays_come_back_equal(tmp_path: Path):
    array = np.arange(5, dtype='>f8')
    np.testing.assert_array_equal(read(write(tmp_path / 'last', {}, {'x': array})).arrays['x'], array)


@pytest.mark.parametrize('array', [np.array(['a']), np.array([None]), np.zeros(2, np.complex64)])
def test_an_array_that_cannot_be_stored_is_named(tmp_path: Path, array: np.ndarray):
    with pytest.raises(TypeError, match="'critic/x' has dtype"):
        write(tmp_path / 'last', {}, {'critic/x': array})
    assert not names(tmp_path)


def test_objects_never_enter_the_buffer(tmp_path: Path):
    with pytest.raises(TypeError, match="'info' of the buffer has dtype object"):
        write(tmp_path / 'last', {}, {}, {'info': np.array([{}])})


@pytest.mark.parametrize('name', ['', '__metadata__', 3])
def test_a_name_that_cannot_be_stored_is_refused(tmp_path: Path, name):
    with pytest.raises(TypeError, match='cannot name an array'):
        write(tmp_path / 'last', {}, {name: np.zeros(1)})


def test_buffer_arrays_may_have_any_name(tmp_path: Path):
    buffer = {'file': np.ones(2), 'allow_pickle': np.ones(1), 'é/0': np.ones(3)}
    assert set(read(write(tmp_path / 'last', {}, {}, buffer)).buffer) == set(buffer)


def test_the_buffer_is_an_ordinary_npz(saved: Path):
    with np.load(saved / 'buffer.npz') as archive:
        np.testing.assert_array_equal(archive['reward'], BUFFER['reward'])
    with zipfile.ZipFile(saved / 'buffer.npz') as archive:
        assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_STORED}


@pytest.mark.full
def test_the_buffer_is_not_copied_in_memory(tmp_path: Path):
    buffer = {'obs': np.ones((64, 2**20), dtype=np.uint8), 'next_obs': np.ones((2**20, 32), dtype=np.uint8).T}
    size = 96 * 2**20
    tracemalloc.start()
    try:
        path = write(tmp_path / 'last', {}, {}, buffer)
        assert tracemalloc.get_traced_memory()[1] < size / 2
        tracemalloc.reset_peak()
        loaded = read(path)
        assert tracemalloc.get_traced_memory()[1] < size / 2
        loaded.buffer['obs']
        assert tracemalloc.get_traced_memory()[1] < size * 0.8  # one array at a time
    finally:
        tracemalloc.stop()


def test_replacing_leaves_the_new_one_alone(tmp_path: Path):
    for step in range(3):
        write(tmp_path / 'last', {'step': step}, {'w': np.full(4, step)})
        assert read(tmp_path / 'last').config == {'step': step}
        assert names(tmp_path) == {'last'}


def test_parents_are_made_and_the_given_path_is_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert write('runs/a/last', {}, {}) == Path('runs/a/last')
    assert read('runs/a/last').arrays == {}


def test_all_files_have_the_permissions_of_a_file_made_by_open(saved: Path, tmp_path: Path):
    (tmp_path / 'plain').touch()
    modes = {stat.S_IMODE(file.stat().st_mode) for file in [*saved.iterdir(), tmp_path / 'plain']}
    assert len(modes) == 1


def test_a_link_is_followed(tmp_path: Path):
    write(tmp_path / 'step_1', {'step': 1}, {})
    (tmp_path / 'best').symlink_to('step_1')
    write(tmp_path / 'best', {'step': 2}, {})
    assert (tmp_path / 'best').is_symlink()
    assert read(tmp_path / 'step_1').config == {'step': 2}
    assert names(tmp_path) == {'best', 'step_1'}


# What is not ours


def test_an_empty_folder_may_be_replaced(tmp_path: Path):
    (tmp_path / 'last').mkdir()
    (tmp_path / 'last' / '.DS_Store').touch()
    assert read(write(tmp_path / 'last', {'a': 1}, {})).config == {'a': 1}


def test_a_folder_of_the_users_is_refused(tmp_path: Path):
    folder = tmp_path / 'thesis'
    folder.mkdir()
    (folder / 'chapter.tex').write_text('x')
    with pytest.raises(CheckpointError, match="holds 'chapter.tex', which is not part of a checkpoint"):
        write(folder, {}, {})
    assert names(tmp_path) == {'thesis'} and names(folder) == {'chapter.tex'}


def test_a_checkpoint_with_a_file_of_the_users_is_refused(saved: Path):
    (saved / 'notes.txt').write_text('the good one')
    with pytest.raises(CheckpointError, match=r"holds 'notes\.txt'"):
        write(saved, {}, {})
    assert read(saved).config == CONFIG


@pytest.mark.parametrize('text', ['{"name": "web app"}', '[]', 'not JSON'])
def test_somebody_elses_config_json_is_refused(tmp_path: Path, text: str):
    folder = tmp_path / 'app'
    folder.mkdir()
    (folder / 'config.json').write_text(text)
    with pytest.raises(CheckpointError, match='not a checkpoint'):
        write(folder, {}, {})
    assert (folder / 'config.json').read_text() == text


def test_a_file_is_refused(tmp_path: Path):
    (tmp_path / 'last').write_text('x')
    with pytest.raises(CheckpointError, match='is a file'):
        write(tmp_path / 'last', {}, {})
    assert (tmp_path / 'last').read_text() == 'x'


# Crashes


@pytest.mark.parametrize('fail_at', [1, 2])
def test_a_failing_rename_leaves_the_old_one(saved: Path, monkeypatch: pytest.MonkeyPatch, fail_at: int):
    real, calls = os.rename, []

    def rename(old, new):
        calls.append(new)
        if len(calls) == fail_at:
            raise OSError('power')
        real(old, new)

    monkeypatch.setattr(os, 'rename', rename)
    with pytest.raises(CheckpointError, match='could not be written.*power'):
        write(saved, {'algorithm': 'new'}, {})
    assert len(calls) >= fail_at
    assert names(saved.parent) == {'last'}
    assert read(saved).config == CONFIG


def test_the_old_one_is_read_when_even_putting_it_back_fails(saved: Path, monkeypatch: pytest.MonkeyPatch):
    real = os.rename

    def rename(old, new):
        if Path(new).name == 'last':
            raise OSError('power')
        real(old, new)

    with monkeypatch.context() as patch:
        patch.setattr(os, 'rename', rename)
        with pytest.raises(CheckpointError, match='could not be written.*power'):
            write(saved, {'algorithm': 'new'}, {})
    assert not saved.exists()
    assert read(saved).config == CONFIG
    np.testing.assert_array_equal(read(saved).buffer['reward'], BUFFER['reward'])
    write(saved, {'algorithm': 'new'}, {})
    assert read(saved).config == {'algorithm': 'new'}
    assert names(saved.parent) == {'last'}


@pytest.mark.parametrize('function', ['fsync', 'replace'])
def test_a_full_disk_leaves_the_old_one(saved: Path, monkeypatch: pytest.MonkeyPatch, function: str):
    def full(*args):
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr(os, function, full)
    with pytest.raises(CheckpointError, match='could not be written, and nothing was changed: .*No space left'):
        write(saved, {}, {})
    assert names(saved.parent) == {'last'}
    assert read(saved).config == CONFIG


CRASH = """
import os, sys
from pathlib import Path
import numpy as np
from zoo.common.training import checkpoint
path, function, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
owner = Path if function in ('unlink', 'rmdir') else os
real, calls = getattr(owner, function), []
def crash(*args, **options):
    calls.append(args)
    if len(calls) == count:
        os._exit(9)
    return real(*args, **options)
setattr(owner, function, crash)
checkpoint.write(path, {'version': 'new'}, {'w': np.ones(3)}, {'obs': np.ones(3)})
"""


@pytest.mark.full(but='unlink-1-new')
@pytest.mark.parametrize(
    ('function', 'count', 'version'),
    [
        ('fsync', 1, 'old'),  # nothing but the weights written
        ('replace', 1, 'old'),  # config.json not there yet
        ('rename', 1, 'old'),  # all there, not in place
        ('rename', 2, 'old'),  # the old one aside, the new one not in place
        ('unlink', 1, 'new'),  # the new one in place, the old one not deleted
        ('rmdir', 1, 'new'),  # its files deleted
    ],
)
def test_a_process_that_dies_leaves_one_that_can_be_read(tmp_path: Path, function: str, count: int, version: str):
    path = write(tmp_path / 'last', {'version': 'old'}, {'w': np.zeros(3)}, {'obs': np.zeros(3)})
    root = Path(zoo.__file__).parents[1]
    command = [sys.executable, '-c', CRASH, str(path), function, str(count)]
    assert subprocess.run(command, env={**os.environ, 'PYTHONPATH': str(root)}).returncode == 9
    loaded = read(path)
    assert loaded.config == {'version': version}
    expected = np.full(3, float(version == 'new'))
    np.testing.assert_array_equal(loaded.arrays['w'], expected)
    np.testing.assert_array_equal(loaded.buffer['obs'], expected)
    loaded.buffer.close()
    for abandoned in tmp_path.glob('.last.new-*'):
        os.utime(abandoned, (time.time() - 1e6,) * 2)
    write(path, {'version': 'next'}, {})
    assert read(path).config == {'version': 'next'}
    assert names(tmp_path) == {'last'}


def test_what_another_process_is_writing_is_left_alone(saved: Path):
    other = saved.with_name('.last.new-01234567')
    other.mkdir()
    write(saved, CONFIG, ARRAYS)
    assert other.is_dir()


# Damage


@pytest.mark.parametrize('name', ['weights.safetensors', 'buffer.npz', 'config.json'])
def test_a_truncated_file_is_named(saved: Path, name: str):
    content = (saved / name).read_bytes()
    for size in (0, len(content) // 2, len(content) - 2):  # config.json ends with a newline, which is not missed
        (saved / name).write_bytes(content[:size])
        with pytest.raises(CheckpointError, match=rf"last/{name}' is truncated"):
            read(saved)


@pytest.mark.parametrize('name', ['weights.safetensors', 'buffer.npz'])
def test_a_flipped_bit_is_found(saved: Path, name: str):
    content = bytearray((saved / name).read_bytes())
    for place in range(0, len(content), 37):
        content[place] ^= 4
        (saved / name).write_bytes(content)
        with pytest.raises(CheckpointError, match=rf"{name}' is altered"):
            read(saved)
        content[place] ^= 4


def test_a_longer_file_is_found(saved: Path):
    with open(saved / 'weights.safetensors', 'ab') as file:
        file.write(b'\0')
    with pytest.raises(CheckpointError, match=r"weights\.safetensors' is altered"):
        read(saved)


def test_a_flipped_bit_in_the_configuration_is_found(saved: Path):
    content = bytearray((saved / 'config.json').read_bytes())
    whole, harmless = read(saved).config, 0
    for place in range(len(content)):
        content[place] ^= 1
        (saved / 'config.json').write_bytes(content)
        try:
            assert read(saved).config == whole
            harmless += 1
        except CheckpointError as error:
            assert 'config.json' in str(error)
        content[place] ^= 1
    assert harmless <= content.count(b'\n'), 'only the white space between values may differ'


@pytest.mark.parametrize('name', ['weights.safetensors', 'buffer.npz', 'config.json'])
def test_a_missing_file_is_named(saved: Path, name: str):
    (saved / name).unlink()
    with pytest.raises(CheckpointError, match=rf"last/{name}' is missing"):
        read(saved)


def test_a_missing_checkpoint_is_named(tmp_path: Path):
    with pytest.raises(CheckpointError, match="there is no checkpoint at '.*nowhere'"):
        read(tmp_path / 'nowhere')
    (tmp_path / 'file').touch()
    with pytest.raises(CheckpointError, match='a checkpoint is a folder'):
        read(tmp_path / 'file')


def test_a_run_directory_is_refused_with_a_hint(saved: Path, tmp_path: Path):
    run = tmp_path / 'run'
    (run / 'checkpoints').mkdir(parents=True)
    write_json(run / 'config.json', {})
    with pytest.raises(CheckpointError, match="is a run, not a checkpoint: load one from '.*run/checkpoints'"):
        read(run)


@pytest.mark.parametrize(
    'change',
    [
        lambda body: body['config'].update(gamma=0.98),
        lambda body: body['config'].pop('steps'),
        lambda body: body['libraries'].update(numpy='1.0'),
        lambda body: body['files']['buffer.npz'].update(bytes=1),
        lambda body: body['files'].pop('buffer.npz'),
        lambda body: body.update(format_version=0),
        lambda body: body.update(extra=float('nan')),
        lambda body: body.pop('sha256'),
    ],
)
def test_an_altered_configuration_is_found(saved: Path, change):
    edit_config(saved, change)
    with pytest.raises(CheckpointError, match=r"config\.json' is altered"):
        read(saved)


def test_a_newer_format_says_so(saved: Path):
    edit_config(saved, lambda body: body.update(format_version=checkpoint.FORMAT_VERSION + 1))
    with pytest.raises(CheckpointError, match='format 3 and this zoo reads formats up to 2: upgrade zoo'):
        read(saved)


def test_another_algorithm_says_so(saved: Path):
    with pytest.raises(
        CheckpointError, match=r'holds a TD3 agent: load it with TD3\.load, or an algorithm of zoo with zoo\.load'
    ):
        read(saved, 'DQN')
    path = write(saved.with_name('other'), {'algorithm': 'A2C'}, {})
    with pytest.raises(CheckpointError, match=r'holds an A2C agent: load it with A2C\.load'):
        read(path, 'DQN')


def test_a_file_name_in_the_configuration_cannot_lead_elsewhere(saved: Path):
    edit_config(saved, lambda body: body['files'].update({'../x': body['files']['buffer.npz']}), reseal=True)
    with pytest.raises(CheckpointError, match='not a configuration of checkpoint format 1'):
        read(saved)


def test_a_pickle_with_right_checksums_is_not_run(saved: Path, tmp_path: Path):
    class Bomb:
        def __reduce__(self):
            return (Path.touch, (tmp_path / 'executed',))

    np.savez(saved / 'buffer.npz', reward=np.array([Bomb()], dtype=object))
    entry = {'bytes': (saved / 'buffer.npz').stat().st_size, 'sha256': checkpoint.sha256_of(saved / 'buffer.npz')}
    edit_config(saved, lambda body: body['files'].update({'buffer.npz': entry}), reseal=True)
    with pytest.raises(ValueError, match='allow_pickle'):
        read(saved).buffer['reward']
    assert not (tmp_path / 'executed').exists()


def test_weights_that_are_no_safetensors_are_named(saved: Path):
    shutil.copy(saved / 'buffer.npz', saved / 'weights.safetensors')
    edit_config(
        saved, lambda body: body['files'].update({'weights.safetensors': body['files']['buffer.npz']}), reseal=True
    )
    with pytest.raises(CheckpointError, match=r"weights\.safetensors' cannot be read"):
        read(saved)


# JSON


def test_jsonable_converts_numpy():
    value = {
        'a': np.float32(0.5), 'b': np.int64(3), 'c': np.bool_(True), 'd': np.arange(4).reshape(2, 2), 'e': (1, None),
        'f': np.array(2.5), 'g': Path('runs/x'), 'h': np.array([]), 'i': 2**100, 'j': np.str_('s'),
        'k': np.longdouble(1),
    }  # fmt: skip
    expected = {
        'a': 0.5, 'b': 3, 'c': True, 'd': [[0, 1], [2, 3]], 'e': [1, None], 'f': 2.5, 'g': str(Path('runs/x')), 'h': [],
        'i': 2**100, 'j': 's', 'k': 1.0,
    }  # fmt: skip
    assert jsonable(value) == expected
    assert json.loads(json.dumps(jsonable(value))) == expected


def test_not_finite_numbers_come_back_through_strict_json():
    value = {'high': np.array([np.inf, -np.inf, 1.0], dtype=np.float32), 'best': float('nan')}
    text = json.dumps(jsonable(value), allow_nan=False)
    again = from_jsonable(json.loads(text))
    assert again['high'] == [float('inf'), float('-inf'), 1.0]
    assert np.isnan(again['best'])


def test_not_finite_numbers_survive_a_checkpoint(tmp_path: Path):
    assert read(write(tmp_path / 'last', {'low': [-np.inf, np.float32(np.inf)]}, {})).config == {
        'low': [float('-inf'), float('inf')]
    }


@pytest.mark.parametrize(
    ('value', 'message'),
    [
        ({'net': [{'f': print}]}, r"config\['net'\]\[0\]\['f'\] is a builtin.*, which JSON cannot hold"),
        ({'a': {1, 2}}, r"config\['a'\] is a set"),
        ({'a': 1j}, r"config\['a'\] is a complex"),
        ({'a': np.array([None, print])}, r"config\['a'\]\[1\] is a builtin"),
        ({'a': {3: 'x'}}, r"config\['a'\] has the key 3, an int: keys must be strings"),
    ],
)
def test_what_json_cannot_hold_is_named(tmp_path: Path, value, message: str):
    with pytest.raises(TypeError, match=message):
        write(tmp_path / 'last', value, {})
    assert not names(tmp_path)


def test_write_json_is_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = write_json(tmp_path / 'config.json', {'a': np.int64(1)})
    assert json.loads(path.read_text()) == {'a': 1}
    with pytest.raises(TypeError, match=r"config\.json\['b'\] is an object"):
        write_json(path, {'b': object()})

    def fail(*args):
        raise OSError('power')

    monkeypatch.setattr(os, 'replace', fail)
    with pytest.raises(OSError, match='power'):
        write_json(path, {'a': 2})
    assert json.loads(path.read_text()) == {'a': 1}
    assert names(tmp_path) == {'config.json'}


def test_the_same_state_has_the_same_weights_file(tmp_path: Path):
    first, second = (write(tmp_path / name, CONFIG, ARRAYS) for name in 'ab')
    assert (first / 'weights.safetensors').read_bytes() == (second / 'weights.safetensors').read_bytes()
    assert (first / 'config.json').read_bytes() == (second / 'config.json').read_bytes()


@pytest.mark.full
def test_importing_does_not_import_tensorflow():
    root = Path(zoo.__file__).parents[1]
    modules = 'zoo.common.training.checkpoint, zoo.common.training.logger, zoo.common.plots'
    code = f'import sys, {modules}; print("tensorflow" in sys.modules)'
    done = subprocess.run(
        [sys.executable, '-c', code], env={**os.environ, 'PYTHONPATH': str(root)}, capture_output=True, text=True
    )
    assert done.stdout.strip() == 'False', done.stderr
