"""Engines are found by name or by entry point; the example of an engine passes the suite and trains."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from launchers import ROOT

from zoo.distributed import ClusterError, connect, launchers, testing

TOY = ROOT / 'examples' / 'distributed' / 'toy_engine.py'


@pytest.fixture(autouse=True)
def fresh():
    """Look for engines anew before and after a test."""
    clear()
    yield
    clear()


def clear() -> None:
    """Forget the engines that were found."""
    launchers.engines.cache_clear()
    launchers._usable.cache_clear()


def install(folder: Path, *engines: str, name: str = 'zoo-toy') -> None:
    """Install a distribution with these entry points of engines into a folder."""
    info = folder / f'{name.replace("-", "_")}-1.0.dist-info'
    info.mkdir(parents=True)
    (info / 'METADATA').write_text(f'Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n')
    (info / 'entry_points.txt').write_text('\n'.join(['[zoo.engines]', *engines]) + '\n')


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Install the engine of the example for programs that a test starts; give the command of its launcher."""
    install(tmp_path / 'site', 'toy = toy_engine')
    path = [str(tmp_path / 'site'), str(TOY.parent), str(ROOT), os.environ.get('PYTHONPATH', '')]
    monkeypatch.setenv('PYTHONPATH', os.pathsep.join(path))
    return [sys.executable, str(TOY)]


def test_the_example_of_an_engine_passes_the_suite(toy: list[str]):
    assert testing.run([*toy, '4']) > 900


@pytest.mark.full
@pytest.mark.parametrize('program', testing.PROGRAMS[1:])
def test_the_example_of_an_engine_keeps_its_promises(toy: list[str], program: str):
    assert testing.run([*toy, '4'], program) == testing.RANKS


def test_a_suite_that_fails_says_what_was_printed():
    with pytest.raises(AssertionError, match=r'exit status 1:\n(.*\n)*.*make 4 ranks, but 1 were started'):
        testing.run([sys.executable])


TRAINING = """
from zoo import algorithms, build_env
from zoo.distributed import launchers

assert launchers.is_launched() and launchers.launched_place()[1] == 3, launchers.launched_place()
assert launchers.can_become()
env = build_env('CartPole-v1')
agent = algorithms.PPO(env.observation_space, env.action_space)
agent.learn(env, seed=0, train_steps=256, horizon=32, batch_size=64, epochs=1, roles=dict(actors=2), run_dir=False)
print('trained', agent.steps)
"""


def test_a_program_trains_over_an_installed_engine(toy: list[str], tmp_path: Path):
    script = tmp_path / 'program.py'
    script.write_text(TRAINING)
    ended = subprocess.run([*toy, '3', str(script)], capture_output=True, text=True, timeout=200, cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count('trained 256') == 1
    assert 'Training over toy: rank 0 is a learner, ranks 1 to 2 are actors.' in ended.stderr


def test_an_engine_is_asked_for_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / 'alone.py').write_text(
        'from zoo.distributed.engines.local.engine import LocalEngine\n'
        'class Alone:\n'
        '    launched = staticmethod(lambda: False)\n'
        '    place = staticmethod(lambda: None)\n'
        '    can_become = staticmethod(lambda: False)\n'
        '    start = staticmethod(LocalEngine)\n'
    )
    install(tmp_path, 'alone = alone:Alone')
    monkeypatch.syspath_prepend(tmp_path)
    assert list(launchers.engines()) == ['local', 'alone', 'kungfu', 'mpi']
    connect(engine='alone').close()
    assert not launchers.is_launched() and not launchers.can_become()  # its answer counts
    with pytest.raises(ValueError, match=r"alon.*'alone'"):
        connect(engine='alon')


def test_an_engine_that_cannot_be_imported_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    (tmp_path / 'halved.py').write_text('def launched(): return True\n')
    install(tmp_path, 'broken = no_such_module', 'half = halved', 'mpi = halved')
    monkeypatch.syspath_prepend(tmp_path)
    broken = (
        r"the engine 'broken' of the package zoo-toy cannot be imported from 'no_such_module' \(ModuleNotFoundError"
    )
    with pytest.raises(ClusterError, match=broken):
        connect(engine='broken')
    with pytest.raises(ClusterError, match=r"the engine 'half' .* has no place\(\), start\(\), can_become\(\) in"):
        connect(engine='half')
    with caplog.at_level(logging.WARNING, 'zoo'):
        launchers.engines.cache_clear()
        assert not launchers.is_launched()  # the others are asked all the same
    assert 'no_such_module' in caplog.text and "the engine 'mpi' of the package zoo-toy is left out" in caplog.text
    assert launchers.engines()['mpi'].value == 'zoo.distributed.engines.mpi'


def test_own_engines_are_of_the_same_form():
    for entry in launchers.engines().values():
        assert isinstance(entry, metadata.EntryPoint) and entry.group == launchers.GROUP
