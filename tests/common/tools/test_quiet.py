"""What is on the screen while TensorFlow starts: nothing but ours, and everything when it fails."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import types
from pathlib import Path

import pytest

import zoo
from zoo.common.tools import quiet

ROOT = str(Path(zoo.__file__).parents[1])

NOTES = """\
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795288718.529869    5669 port.cc:153] oneDNN custom operations are on. You may see different results.
E0000 00:00:1795288722.610469    5669 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error
2026-01-02 03:04:05.678901: E external/local_xla/xla/stream_executor/cuda/cuda_fft.cc:477] Unable to register cuFFT
E0000 00:00:1795557455.281972   18697 cuda_platform.cc:57] failed call to cuInit: INTERNAL: CUDA error
=== Source Location Trace: ===\x20
external/xla/xla/stream_executor/cuda/cuda_status.cc:50

"""

#: A TensorFlow that writes to file descriptor 2 as the real one does, while it is imported and when asked for devices.
STAND_IN = f"""
import contextlib, os, types
def write(text):
    with contextlib.suppress(OSError):
        os.write(2, text)
write({NOTES.encode()!r})
def list_physical_devices(kind):
    write(b'E0000 00:00:1795288722.610469 1 cuda_platform.cc:52] of the devices\\n')
    return []
config = types.SimpleNamespace(list_physical_devices=list_physical_devices)
"""
LOAD = 'from zoo.common.tools.quiet import load_tensorflow; load_tensorflow()'


def run(code: str, path: Path | None = None, shell: str = '"$@"', **variables: str) -> subprocess.CompletedProcess:
    """A fresh interpreter that finds packages in ``path`` first, started by a line of the shell."""
    environment = {key: value for key, value in os.environ.items() if key != 'TF_CPP_MIN_LOG_LEVEL'}
    environment |= {'PYTHONPATH': os.pathsep.join([str(path), ROOT] if path else [ROOT]), **variables}
    command = ['sh', '-c', shell, 'sh', sys.executable, '-c', code]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    (tmp_path / 'tensorflow.py').write_text(STAND_IN)
    return tmp_path


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    (tmp_path / 'tensorflow.py').write_text(f'{STAND_IN}\nraise ImportError("a library is missing")')
    return tmp_path


@pytest.mark.full
def test_the_four_lines_write_nothing_else_on_standard_error():
    done = run("""
from zoo.common.env_wrappers import build_env
from zoo.common.utils import call_default_params
from zoo.algorithms import TD3

env = build_env('Pendulum-v1', 'classic_control')
alg_params, learn_params = call_default_params(env, 'classic_control', 'TD3')
learn_params |= {'train_steps': 120, 'explore_steps': 100, 'batch_size': 8, 'run_dir': False, 'verbose': 0}
agent = TD3(**alg_params)
print(agent.learn(env, 'train', **learn_params).steps)
""")
    assert (done.stderr, done.stdout) == ('', '120\n')


def test_tensorflows_notes_are_held_back(stand_in):
    assert run(LOAD, stand_in).stderr == ''


@pytest.mark.parametrize('code', ['import zoo, tensorflow', f'import zoo, tensorflow; {LOAD}', f'{LOAD}; {LOAD}'])
def test_after_zoo_anybody_may_import_tensorflow(stand_in, code):
    done = run(f'{code}; print(tensorflow.__name__)' if 'zoo,' in code else code, stand_in)
    assert (done.stderr, done.returncode) == ('', 0)


@pytest.mark.full
@pytest.mark.parametrize('first', ['keras', 'tensorflow', 'zoo.algorithms.ppo'])
def test_the_real_tensorflow_starts_quietly_whoever_imports_it(first):
    done = run(f'import zoo, {first}; from zoo.algorithms import PPO; import keras; print(keras.ops.ones(2).shape)')
    assert (done.stderr, done.stdout) == ('', '(2,)\n')


@pytest.mark.full
def test_the_real_tensorflow_before_zoo_writes_nothing_more():
    """What it wrote before cannot be taken back; but the error about CUDA is still to come."""
    begin = 'import sys, keras; print("zoo", file=sys.stderr, flush=True)'
    assert run(f'{begin}; from zoo.algorithms import PPO; keras.ops.ones(2)').stderr.rpartition('zoo\n')[2] == ''


def test_a_tensorflow_that_was_imported_before_opens_its_devices_quietly(stand_in):
    assert run(f'import tensorflow; {LOAD}', stand_in).stderr == NOTES


@pytest.mark.full(but='from zoo.algorithms import TD3')
@pytest.mark.parametrize(
    'code',
    [
        LOAD,
        'import zoo, tensorflow',
        'from zoo.algorithms import TD3',
        'import zoo; zoo.load',
        'from zoo import *; call_default_params(build_env("Pendulum-v1", "classic_control"), "classic_control", "SAC")',
        "from zoo.distributed.training.roles import build_agent; build_agent(b'')",
    ],
)
def test_a_tensorflow_that_cannot_be_loaded_shows_its_notes(broken, code):
    done = run(code, broken)
    assert done.returncode == 1
    assert done.stderr.startswith(NOTES)
    assert 'a library is missing' in done.stderr


@pytest.mark.parametrize(('level', 'shown'), [('0', True), ('1', True), ('2', False), ('3', False)])
def test_the_user_may_ask_for_them(stand_in, level, shown):
    assert (NOTES in run(LOAD, stand_in, TF_CPP_MIN_LOG_LEVEL=level).stderr) == shown


def test_an_unused_graphics_card_is_no_secret(stand_in):
    code = f'from zoo.common.tools import quiet; quiet._DRIVER = {str(stand_in)!r}; quiet.load_tensorflow()'
    done = run(code, stand_in)
    assert done.stderr.startswith(NOTES) and 'of the devices' in done.stderr


@pytest.mark.parametrize('before', ['', 'sys.stderr = None', 'sys.stderr and sys.stderr.close()'])
@pytest.mark.parametrize('shell', ['"$@" 2>&-', '"$@" 2>/dev/full', '"$@"'], ids=['closed', 'full', 'open'])
def test_a_standard_error_that_cannot_be_written_is_no_hindrance(stand_in, before, shell):
    done = run(f'import sys; {before}\n{LOAD}; print("tensorflow" in sys.modules)', stand_in, shell)
    assert (done.stdout, done.returncode) == ('True\n', 0)


def test_what_others_write_meanwhile_comes_through(monkeypatch, capfd):
    """In this process, where pytest has its own file at descriptor 2 and another stream in sys.stderr."""

    def list_physical_devices(kind: str) -> list[str]:
        os.write(2, NOTES.encode())
        writer = threading.Thread(target=os.write, args=(2, b'of another thread\nwithout an end'))
        writer.start()
        writer.join()
        return []

    config = types.SimpleNamespace(list_physical_devices=list_physical_devices)
    monkeypatch.setitem(sys.modules, 'tensorflow', types.SimpleNamespace(config=config))
    monkeypatch.setattr(quiet, '_loaded', False)
    monkeypatch.setattr(quiet, '_DRIVER', '/nowhere')
    monkeypatch.delenv('TF_CPP_MIN_LOG_LEVEL', raising=False)
    quiet.load_tensorflow()
    os.write(2, b' and what comes after')
    assert capfd.readouterr().err == 'of another thread\nwithout an end and what comes after'
    quiet.load_tensorflow()
    assert capfd.readouterr().err == ''
