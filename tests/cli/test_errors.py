"""One class of exceptions for what a user did: the command's exit status follows from the class alone."""

from __future__ import annotations

import ast
import importlib
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import zoo
from zoo.cli import main
from zoo.common.tools import errors

ROOT = Path(zoo.__file__).parent
BUILT_IN = {'ValueError', 'TypeError', 'ImportError', 'RuntimeError', 'FloatingPointError'}
BUILT_IN |= {'TimeoutError', 'NotADirectoryError'}

#: Files that raise built-in exceptions: AutoGraph hands them on and wraps others, and these functions may run in a
#: user's own tf.function.
TRACED = [ROOT / 'common' / 'maths' / f'{name}.py' for name in ('returns', 'distributions', 'quantiles')]


def bare(source: str) -> list[int]:
    """The lines that raise, return, or inherit from, a built-in exception that a class of zoo stands for."""
    found = []
    for node in ast.walk(ast.parse(source)):
        names: list[Any] = node.bases if isinstance(node, ast.ClassDef) else []
        if isinstance(node, ast.Raise):
            names = [node.exc.func if isinstance(node.exc, ast.Call) else node.exc]
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Call):
            names = [node.value.func]
        found += [node.lineno for name in names if isinstance(name, ast.Name) and name.id in BUILT_IN]
    return found


def test_zoo_raises_its_own_classes_everywhere():
    own = ROOT / 'common' / 'tools' / 'errors.py'
    files = [path for path in ROOT.rglob('*.py') if path != own and path not in TRACED]
    found = {str(path.relative_to(ROOT)): bare(path.read_text()) for path in files}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    'source', ['raise ValueError', "def f():\n    raise TypeError('x')", 'class A(ImportError): x = 1']
)
def test_a_bare_one_is_found(source: str):
    assert bare(source)


@pytest.mark.parametrize(
    ('made', 'status', 'text'),
    [
        (errors.InvalidValue('gamma is 2: give less.'), 2, 'zoo describe: gamma is 2: give less.\n'),
        (errors.InvalidType('gamma is a list.'), 2, 'zoo describe: gamma is a list.\n'),
        (errors.MissingPackage('pip install x.'), 1, 'zoo describe: pip install x.\n'),
        (errors.Failure('2 runs failed.'), 1, 'zoo describe: 2 runs failed.\n'),
        (errors.NotFinite('a loss became NaN.'), 1, 'zoo describe: a loss became NaN.\n'),
        (errors.NotAFolder('x is a file.'), 2, 'zoo describe: x is a file.\n'),
        (errors.TimedOut('x took 3 s.'), 1, 'zoo describe: x took 3 s.\n'),
        (ValueError('shapes'), 1, 'zoo describe: ValueError: shapes (--traceback shows where).\n'),
        (TypeError('of a user'), 1, 'zoo describe: TypeError: of a user (--traceback shows where).\n'),
        (KeyboardInterrupt(), 130, 'zoo describe: interrupted.\n'),
    ],
)
def test_the_class_decides(made: BaseException, status: int, text: str, capsys, monkeypatch):
    def fail(*args: Any) -> None:
        raise made

    monkeypatch.setattr(zoo, 'describe', fail, raising=False)
    assert main(['describe', 'PPO']) == status
    assert capsys.readouterr().err == text


def test_a_user_s_own_environment_fails_without_blame(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, 'path', [str(tmp_path), *sys.path])
    (tmp_path / 'own_failing.py').write_text(
        'import gymnasium\n'
        'class Own(gymnasium.Env):\n'
        '    observation_space = gymnasium.spaces.Discrete(3)\n'
        '    action_space = gymnasium.spaces.Discrete(2)\n'
        '    def reset(self, *, seed=None, options=None):\n'
        "        raise ValueError('the simulator is not there')\n"
        "gymnasium.register('OwnFailing-v0', Own)\n"
    )
    words = ['train', 'DQN', 'own_failing:OwnFailing-v0', '--steps', '20', '--net', '4', '--quiet']
    assert main(words) == 1
    assert 'ValueError: the simulator is not there (--traceback shows where).' in capsys.readouterr().err


@pytest.mark.parametrize(
    'kind', [errors.InvalidValue, errors.InvalidType, errors.MissingPackage, errors.Failure, errors.TimedOut]
)
def test_they_can_be_pickled_and_caught_as_before(kind: type):
    found = pickle.loads(pickle.dumps(kind('why')))
    assert type(found) is kind and str(found) == 'why'
    built_in = {
        'InvalidValue': ValueError,
        'InvalidType': TypeError,
        'MissingPackage': ImportError,
        'TimedOut': TimeoutError,
    }
    assert isinstance(found, built_in.get(kind.__name__, RuntimeError))


def test_known_errors_belong_to_the_classes():
    for module, name, base in (
        ('zoo.common.training.checkpoint', 'CheckpointError', errors.UserError),
        ('zoo.algorithms.base.exporting', 'ExportError', errors.UserError),
        ('zoo.distributed', 'ClusterError', errors.ZooError),
    ):
        assert issubclass(getattr(importlib.import_module(module), name), base)


def test_the_process_ends_with_the_status(tmp_path):
    done = subprocess.run(
        [sys.executable, '-m', 'zoo', 'train', 'PPO', 'CartPole-v1', '--set', 'gamma=2'],
        cwd=tmp_path, env=None, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2 and done.stderr.count('\n') == 2 and 'Traceback' not in done.stderr
