"""Who imports whom (parsed, not run), and what an import costs.

An import counts wherever it stands: in a function too, and under ``if TYPE_CHECKING``, since a type is part of what a
module knows. The only imports that run upward are those of two modules that hand names on, ``zoo/__init__.py`` and
``zoo/common/utils.py``.
"""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import zoo

ROOT = Path(zoo.__file__).parent

#: Which parts of zoo a part may import besides itself; '' is zoo/__init__.py. A name with a dot is a part of another
#: one, which may not import it.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    '': ('algorithms', 'common'),
    'common': (),
    'common.utils': ('default_params',),
    'distributed': ('common',),
    'distributed.training': ('common', 'distributed'),
    'algorithms': ('common', 'distributed'),
    'default_params': ('algorithms', 'common'),
    'callbacks': ('common',),
    'runs': ('algorithms', 'common'),
    'running': ('algorithms', 'common', 'runs'),
    'workers': ('common',),
    'comparison': ('algorithms', 'common', 'runs', 'running', 'workers'),
    'tuning': ('algorithms', 'callbacks', 'common', 'runs', 'running', 'workers'),
    '__main__': ('cli',),
    # These two use the public interface alone; the dashboard trains in a process of its own.
    'dashboard': ('', 'algorithms', 'callbacks', 'common.env_wrappers', 'common.utils', 'distributed', 'workers'),
    'cli': ('', 'algorithms', 'callbacks', 'common.env_wrappers', 'common.utils', 'distributed', 'dashboard'),
}


class Import(NamedTuple):
    """One import of a module of zoo: what, and from which line."""

    target: str
    line: int


def read_sources() -> dict[str, str]:
    """Every module of zoo by its dotted name, packages as ``zoo.common.__init__``."""
    return {
        '.'.join(('zoo', *path.relative_to(ROOT).with_suffix('').parts)): path.read_text(encoding='utf-8')
        for path in sorted(ROOT.rglob('*.py'))
    }


@functools.cache
def parsed(source: str) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(source)


def imports(name: str, sources: dict[str, str]) -> Iterator[Import]:
    """The imports of zoo's modules in a module."""
    modules = {module.removesuffix('.__init__') for module in sources}

    def module_of(dotted: str) -> str:
        """The longest beginning of a dotted name that is a module: the rest are names in it."""
        while dotted not in modules and '.' in dotted:
            dotted = dotted.rpartition('.')[0]
        return dotted

    def targets(node: ast.AST) -> list[str]:
        if isinstance(node, ast.Import):
            return [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            base = node.module or ''
            if node.level:
                package = name.split('.')[: -node.level]
                base = '.'.join([*package, *([node.module] if node.module else [])])
            return [f'{base}.{alias.name}' for alias in node.names]
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition('.')[2] == 'import_module':
            first = node.args[0]
            text = first.values[0] if isinstance(first, ast.JoinedStr) else first
            return [str(text.value).rstrip('.')] if isinstance(text, ast.Constant) else []
        return []

    for node in ast.walk(parsed(sources[name])):
        for target in targets(node):
            # A package that imports one of its modules by a computed name is no import of itself.
            own = isinstance(node, ast.Call) and f'{target}.__init__' == name
            if target.split('.')[0] == 'zoo' and not own:
                yield Import(module_of(target), node.lineno)


def within(module: str, part: str) -> bool:
    """Whether a module (without ``zoo.``) is a part or lies in it; only zoo/__init__.py is in ''."""
    return module == part or (part != '' and module.startswith(f'{part}.'))


def upward(sources: dict[str, str]) -> list[str]:
    """A line for each import that ``MAY_IMPORT`` does not allow."""
    found = []
    for name in sources:
        module = name.removesuffix('.__init__').removeprefix('zoo').lstrip('.')
        parts = [part for part in MAY_IMPORT if within(module, part)]
        if not parts:
            found.append(f'{name}: a part of zoo that MAY_IMPORT does not know')
            continue
        allowed = [*parts, *(other for part in parts for other in MAY_IMPORT[part])]
        inner = [part for part in MAY_IMPORT if '.' in part and part not in parts and part.rpartition('.')[0] in parts]
        for item in imports(name, sources):
            target = item.target.removeprefix('zoo').lstrip('.')
            if any(within(target, part) for part in inner) or not any(within(target, part) for part in allowed):
                found.append(f'{name}:{item.line} imports {item.target}')
    return found


def star_imports(sources: dict[str, str]) -> list[str]:
    """A line for each ``from … import *``, whatever it imports from."""
    return [
        f'{name}:{node.lineno}'
        for name, source in sources.items()
        for node in ast.walk(parsed(source))
        if isinstance(node, ast.ImportFrom) and any(alias.name == '*' for alias in node.names)
    ]


def cycle(sources: dict[str, str]) -> list[str]:
    """The modules of one import cycle, in order, or nothing."""
    graph = {name.removesuffix('.__init__'): [item.target for item in imports(name, sources)] for name in sources}
    done: set[str] = set()

    def search(module: str, path: list[str]) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module not in done:
            for target in graph.get(module, ()):
                if found := search(target, [*path, module]):
                    return found
            done.add(module)
        return []

    return next((found for module in graph if (found := search(module, []))), [])


SOURCES = read_sources()


def test_the_modules_are_found():
    assert {'zoo.__init__', 'zoo.common.loops', 'zoo.common.adaptors.policy', 'zoo.algorithms.base'} <= SOURCES.keys()
    loops = [item.target for item in imports('zoo.algorithms.base', SOURCES)]
    assert {'zoo.common.loops', 'zoo.common.errors', 'zoo.algorithms'} <= set(loops)


def test_no_import_runs_upward():
    assert upward(SOURCES) == []


def test_no_star_import():
    assert star_imports(SOURCES) == []


def test_no_import_cycle():
    assert cycle(SOURCES) == []


def planted(module: str, source: str) -> dict[str, str]:
    """The sources with one module more (or another)."""
    return SOURCES | {module: source}


@pytest.mark.parametrize(
    ('module', 'source', 'target'),
    [
        ('zoo.common.bad', 'from zoo.algorithms.base import Algorithm', 'zoo.algorithms.base'),
        ('zoo.common.bad', 'import zoo.algorithms', 'zoo.algorithms'),
        ('zoo.common.bad', 'from zoo import algorithms', 'zoo.algorithms'),
        ('zoo.common.bad', 'from zoo import build_env', 'zoo'),
        ('zoo.common.bad', 'import zoo', 'zoo'),
        ('zoo.common.bad', 'from ..algorithms import ppo', 'zoo.algorithms.ppo'),
        ('zoo.common.envs.bad', 'from ...default_params import call_default_params', 'zoo.default_params'),
        ('zoo.common.bad', 'def f():\n    from zoo.algorithms import PPO', 'zoo.algorithms'),
        (
            'zoo.common.bad',
            'try:\n    import zoo.algorithms.sac as s\nexcept ImportError:\n    s = None',
            'zoo.algorithms.sac',
        ),
        ('zoo.common.bad', 'if TYPE_CHECKING:\n    from zoo.algorithms.base import Algorithm', 'zoo.algorithms.base'),
        (
            'zoo.distributed.bad',
            'if TYPE_CHECKING:\n    from zoo.distributed.training.plan import Plan',
            'zoo.distributed.training.plan',
        ),
        ('zoo.common.bad', "importlib.import_module(f'zoo.algorithms.{name}')", 'zoo.algorithms'),
        ('zoo.common.utils', 'from zoo.algorithms import NAMES', 'zoo.algorithms'),
        ('zoo.common.env_wrappers', 'from zoo.default_params import call_default_params', 'zoo.default_params'),
        ('zoo.algorithms.bad', 'from zoo.default_params import call_default_params', 'zoo.default_params'),
        ('zoo.algorithms.bad', 'class A:\n    from zoo import default_params', 'zoo.default_params'),
        ('zoo.distributed.bad', 'from zoo.algorithms import PPO', 'zoo.algorithms'),
        ('zoo.distributed.bad', 'from zoo.distributed.training import plan', 'zoo.distributed.training.plan'),
        ('zoo.distributed.training.bad', 'from zoo.algorithms import PPO', 'zoo.algorithms'),
        ('zoo.default_params.bad', 'from zoo import load', 'zoo'),
        ('zoo.cli', 'from zoo.common.loops import Training', 'zoo.common.loops'),
    ],
)
def test_a_planted_upward_import_is_found(module, source, target):
    line = 1 + source[: source.index('import')].count('\n')
    assert upward(planted(module, source)) == [f'{module}:{line} imports {target}']


@pytest.mark.parametrize(
    ('module', 'source'),
    [
        ('zoo.algorithms.fine', 'from zoo.common import loops\nfrom zoo.algorithms.base import Algorithm'),
        ('zoo.common.fine', 'from . import spaces\nfrom .adaptors.action import Part\nimport zoological'),
        ('zoo.cli', 'from zoo import build_env, algorithms, load'),
    ],
)
def test_what_is_allowed_passes(module, source):
    assert upward(planted(module, source)) == []


def test_else_of_type_checking_runs_and_counts():
    source = 'if TYPE_CHECKING:\n    pass\nelse:\n    from zoo.algorithms import PPO'
    assert upward(planted('zoo.common.bad', source)) == ['zoo.common.bad:4 imports zoo.algorithms']


def test_a_new_part_of_zoo_must_be_placed():
    assert upward(planted('zoo.extras', '')) == ['zoo.extras: a part of zoo that MAY_IMPORT does not know']


def test_a_planted_star_import_is_found():
    assert star_imports(planted('zoo.common.bad', 'import os\nfrom zoo.common.spaces import *')) == ['zoo.common.bad:2']


@pytest.mark.parametrize(
    'planted_modules',
    [
        {'zoo.common.a': 'from zoo.common import b', 'zoo.common.b': 'from zoo.common.a import x'},
        {'zoo.common.a': 'from . import b', 'zoo.common.b': 'import zoo.common.c', 'zoo.common.c': 'from .a import x'},
        {'zoo.common.a': 'from zoo.common import b', 'zoo.common.b': 'def f():\n    from zoo.common.a import x'},
        {'zoo.common.a': 'import zoo.common.b', 'zoo.common.b': 'if TYPE_CHECKING:\n    from zoo.common.a import x'},
        {'zoo.common.a': 'if True:\n    from zoo.common.a import x'},
    ],
)
def test_a_planted_cycle_is_found(planted_modules):
    found = cycle(SOURCES | planted_modules)
    assert found[0] == found[-1] and set(found) == planted_modules.keys()


def run(code: str) -> str:
    """What a fresh interpreter prints."""
    return subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True).stdout


#: What an actor process needs, and it never imports TensorFlow.
LIGHT = [
    'zoo',
    'zoo.algorithms',
    'zoo.callbacks',
    'zoo.cli',
    'zoo.comparison',
    'zoo.tuning',
    'zoo.common.acting',
    'zoo.common.adaptors.action',
    'zoo.common.adaptors.observation',
    'zoo.common.checkpoint',
    'zoo.common.collect',
    'zoo.common.env_wrappers',
    'zoo.common.errors',
    'zoo.common.normalize',
    'zoo.common.loops',
    'zoo.common.recorded',
    'zoo.common.replay',
    'zoo.common.rollout',
    'zoo.common.schedules',
    'zoo.common.seeding',
    'zoo.common.spaces',
    'zoo.common.types',
    'zoo.distributed',
    'zoo.distributed.cluster',
    'zoo.distributed.jobs',
    'zoo.distributed.engines.local',
    'zoo.distributed.training.actor',
    'zoo.distributed.training.plan',
    'zoo.distributed.training.server',
    'zoo.distributed.training.train',
    'zoo.dashboard',
    'zoo.dashboard.training',
    'zoo.running',
    'zoo.runs',
]


def test_no_tensorflow_before_something_needs_it():
    code = f"""
import importlib, sys
for module in {LIGHT}:
    importlib.import_module(module)
    heavy = {{'tensorflow', 'keras', 'torch', 'jax'}} & sys.modules.keys()
    if heavy:
        sys.exit(f'{{module}} imports {{heavy}}')
print('light')
"""
    assert run(code).strip() == 'light'


def test_building_an_environment_needs_no_tensorflow():
    code = "import sys, zoo; zoo.build_env('CartPole-v1', 'classic_control'); print('tensorflow' in sys.modules)"
    assert run(code).strip() == 'False'


def test_import_zoo_is_cheap():
    code = 'import time; begin = time.process_time(); import zoo; print(time.process_time() - begin)'
    # Processor time, and the least of several, so that a busy machine does not decide.
    assert min(float(run(code)) for _ in range(3)) < 0.3


def test_import_zoo_brings_no_other_part_of_it():
    code = "import sys, zoo; print(sorted(m for m in sys.modules if m.startswith('zoo.')))"
    assert run(code).strip() == '[]'


def test_names_of_the_package():
    assert set(dir(zoo)) == {
        'Linear',
        'Rollout',
        '__version__',
        'algorithms',
        'build_env',
        'call_default_params',
        'callbacks',
        'check_env',
        'compare',
        'describe',
        'export',
        'film',
        'list_envs',
        'list_runs',
        'load',
        'open_run',
        'plot_runs',
        'plots',
        'record',
        'resume',
        'train',
        'tune',
    }
    for name in dir(zoo):
        assert getattr(zoo, name) is not None
    with pytest.raises(AttributeError, match="'buildenv'"):
        zoo.buildenv  # noqa: B018
