"""Who imports whom (parsed, not run), and what an import costs.

An import counts wherever it stands: in a function too, and under ``if TYPE_CHECKING``, since a type is part of what a
module knows. Only two modules import from above, because they hand names on: ``zoo/__init__.py`` and
``zoo/common/utils.py``.
"""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import zoo

ROOT = Path(zoo.__file__).parent

#: The rooms of zoo from the ground up; '' is zoo/__init__.py. A module belongs to the room with the longest name that
#: begins its own. It may import its own room and rooms on lower floors; rooms on one floor do not know each other.
FLOORS: tuple[tuple[str, ...], ...] = (
    ('common.tools.errors',),
    ('common.schedules', 'common.spaces', 'common.records', 'common.networks.layers'),
    ('common.tools', 'common.sampling'),
    ('common.maths', 'common.parameters'),
    ('common.adaptors',),
    ('common.networks', 'common.envs.answers', 'common.envs.declared'),
    ('common.acting', 'common.envs.wrappers', 'common.envs.compiled'),
    ('common.envs.kinds',),
    ('common.envs',),
    ('common.env_wrappers', 'common.rollouts', 'common.plots'),
    ('common.replay', 'common.training.checkpoint'),
    ('common.datasets',),
    ('common.training',),
    ('common',),
    ('callbacks', 'distributed.engines.base', 'distributed.engines.memory', 'distributed.engines.waiting'),
    (
        'distributed.engines.endings',
        'distributed.engines.local',
        'distributed.engines.neighbor',
        'distributed.engines.polling',
        'distributed.wire',
    ),
    ('distributed.engines.messages',),
    ('distributed.engines',),
    ('distributed.layout', 'distributed.launchers', 'distributed.rank_process', 'distributed.queues'),
    ('distributed.cluster', 'distributed.jobs'),
    ('distributed',),
    ('distributed.training.plan', 'distributed.training.role_metrics'),
    ('distributed.training.built',),
    ('distributed.training.exchanges', 'distributed.training.planning'),
    ('distributed.training.server', 'distributed.training.shards', 'distributed.training.watch'),
    ('distributed.training.actor', 'distributed.training.buffer', 'distributed.training.evaluations'),
    ('distributed.training.learner',),
    ('distributed.training',),
    ('agents',),
    ('algorithms.base',),
    ('algorithms',),
    ('default_params',),
    ('common.utils',),
    ('experiments',),
    ('',),
    ('dashboard',),
    ('cli',),
    ('__main__',),
)

FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}

_PUBLIC = (
    '', 'algorithms', 'callbacks', 'common.env_wrappers', 'common.utils', 'common.tools', 'common.tools.errors',
    'distributed',
)  # fmt: skip

#: Rooms that may import these alone. ``common.utils`` only hands ``call_default_params`` on: the import path of the
#: paper's Listing 1. The dashboard and the command use the public interface, and tools, which know nothing of zoo.
ONLY: dict[str, tuple[str, ...]] = {
    'common.utils': ('default_params',),
    'dashboard': (*_PUBLIC, 'experiments'),
    'cli': (*_PUBLIC, 'dashboard'),
}

#: Imports that run up, and why.
ALLOWED_UP = {
    ('zoo.algorithms.base.catalog', 'algorithms'): 'the catalog knows the files of algorithms by their names',
}


class Import(NamedTuple):
    """One import of a module of zoo: what, and from which line."""

    target: str
    line: int


def read_sources() -> dict[str, str]:
    """Return the source of every module of zoo by its dotted name, packages as ``zoo.common.__init__``."""
    return {
        '.'.join(('zoo', *path.relative_to(ROOT).with_suffix('').parts)): path.read_text(encoding='utf-8')
        for path in sorted(ROOT.rglob('*.py'))
    }


@functools.cache
def parsed(source: str) -> ast.Module:
    """Return the syntax tree of a module."""
    return ast.parse(source)


def imports(name: str, sources: dict[str, str]) -> Iterator[Import]:
    """Yield the imports of zoo's modules in a module."""
    modules = {module.removesuffix('.__init__') for module in sources}

    def module_of(dotted: str) -> str:
        """Return the longest beginning of a dotted name that is a module; the rest are names in it."""
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


def room_of(module: str) -> str | None:
    """Return the room of a module (without ``zoo.``), or None if no floor has it."""
    while module and module not in FLOOR_OF:
        module = module.rpartition('.')[0]
    return module if module in FLOOR_OF else None


def upward(sources: dict[str, str]) -> list[str]:
    """Return a line for each import that runs up, or between rooms of one floor."""
    found = []
    for name in sources:
        module = name.removesuffix('.__init__').removeprefix('zoo').lstrip('.')
        room = room_of(module)
        if room is None or (room == '' and module):
            found.append(f'{name}: a part of zoo that FLOORS does not know')
            continue
        for item in imports(name, sources):
            target = room_of(item.target.removeprefix('zoo').lstrip('.')) or ''
            public = ONLY.get(room)
            down = FLOOR_OF[target] < FLOOR_OF[room] and (public is None or target in public)
            if target != room and not down and (name, target) not in ALLOWED_UP:
                found.append(f'{name}:{item.line} imports {item.target}')
    return found


def private_imports(sources: dict[str, str]) -> list[str]:
    """Return a line for each name with a leading underscore that is taken from another file."""
    found = []
    for name, source in sources.items():
        modules = set()
        for node in ast.walk(parsed(source)):
            if isinstance(node, ast.ImportFrom) and (node.module or '').split('.')[0] == 'zoo':
                modules |= {alias.asname or alias.name for alias in node.names if f'{node.module}.{alias.name}' in ALL}
                hidden = [alias.name for alias in node.names if alias.name.startswith('_') and alias.name[1:2] != '_']
                found += [f'{name}:{node.lineno} takes {node.module}.{item}' for item in hidden]
        for node in ast.walk(parsed(source)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
                if node.attr.startswith('_') and not node.attr.startswith('__'):
                    found.append(f'{name}:{node.lineno} takes {node.value.id}.{node.attr}')
    return found


def star_imports(sources: dict[str, str]) -> list[str]:
    """Return a line for each ``from … import *``."""
    return [
        f'{name}:{node.lineno}'
        for name, source in sources.items()
        for node in ast.walk(parsed(source))
        if isinstance(node, ast.ImportFrom) and any(alias.name == '*' for alias in node.names)
    ]


def cycle(sources: dict[str, str]) -> list[str]:
    """Return the modules of one import cycle in order, or nothing."""
    graph = {
        name.removesuffix('.__init__'): [
            item.target for item in imports(name, sources) if (name, item.target.removeprefix('zoo.')) not in ALLOWED_UP
        ]
        for name in sources
    }
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
ALL = {name.removesuffix('.__init__') for name in SOURCES}


def test_the_modules_are_found():
    assert {'zoo.__init__', 'zoo.common.training.loops', 'zoo.algorithms.base.algorithm'} <= SOURCES.keys()
    found = {item.target for item in imports('zoo.algorithms.base.algorithm', SOURCES)}
    assert {'zoo.common.training.training', 'zoo.common.tools.errors', 'zoo.algorithms.base.saving'} <= found


def test_no_import_runs_upward():
    assert upward(SOURCES) == []


def test_every_room_is_there_and_says_what_is_in_it():
    for room in FLOOR_OF:
        source = SOURCES.get(f'zoo.{room}', SOURCES.get(f'zoo.{room}.__init__' if room else 'zoo.__init__'))
        assert source is not None, f'{room} is no part of zoo'
        assert ast.get_docstring(parsed(source)), f'{room} does not say what is in it'


def test_no_file_takes_a_private_name_of_another():
    assert private_imports(SOURCES) == []


def test_no_star_import():
    assert star_imports(SOURCES) == []


def test_no_import_cycle():
    assert cycle(SOURCES) == []


def stations() -> list[tuple[str, list[str]]]:
    """The files that a transition visits, in order, with the functions that the page on the architecture names."""
    text = (ROOT.parent / 'docs' / 'development' / 'architecture.md').read_text(encoding='utf-8')
    table = text.split('## The path of one transition')[1].split('\n\n')[2]
    rows = [[cell.strip() for cell in row.strip('|').split('|')] for row in table.splitlines()[2:]]
    return [(file.strip('`'), re.findall(r'`(?:\w+\.)?(\w+)`', what)) for what, file, _ in rows]


def climbs(path: list[str], sources: dict[str, str]) -> list[str]:
    """A line for each import of a station that comes later on a path of files."""
    modules = ['zoo.' + file.removesuffix('.py').replace('/', '.') for file in path]
    return [
        f'{module}:{item.line} imports {item.target}'
        for place, module in enumerate(modules)
        for item in imports(module, sources)
        if item.target in modules[place + 1 :]
    ]


def test_the_path_of_a_transition_does_not_climb():
    path = stations()
    files = [file for file, _ in path]
    assert files[2] == 'common/envs/build.py' and files[-1] == 'algorithms/sac.py'
    assert len(set(files)) == len(files) <= 9
    for file, named in path:
        nodes = list(ast.walk(parsed((ROOT / file).read_text(encoding='utf-8'))))
        defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        defined |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        assert named[0] in defined, f'{file} does not define {named[0]}'
    assert climbs(files, SOURCES) == []
    assert climbs(files[::-1], SOURCES)  # it finds them


def planted(module: str, source: str) -> dict[str, str]:
    """Return the sources with one module added or replaced."""
    return SOURCES | {module: source}


@pytest.mark.full(but='zoo.common.training.bad-from zoo import build_env-zoo')
@pytest.mark.parametrize(
    ('module', 'source', 'target'),
    [
        ('zoo.common.training.bad', 'from zoo.algorithms.base import Algorithm', 'zoo.algorithms.base'),
        ('zoo.common.training.bad', 'import zoo.algorithms', 'zoo.algorithms'),
        ('zoo.common.training.bad', 'from zoo import algorithms', 'zoo.algorithms'),
        ('zoo.common.training.bad', 'from zoo import build_env', 'zoo'),
        ('zoo.common.training.bad', 'import zoo', 'zoo'),
        ('zoo.common.training.bad', 'from ...algorithms import ppo', 'zoo.algorithms.ppo'),
        ('zoo.common.envs.bad', 'from ...default_params import call_default_params', 'zoo.default_params'),
        ('zoo.common.training.bad', 'def f():\n    from zoo.algorithms import PPO', 'zoo.algorithms'),
        (
            'zoo.common.training.bad',
            'try:\n    import zoo.algorithms.sac as s\nexcept ImportError:\n    s = None',
            'zoo.algorithms.sac',
        ),
        (
            'zoo.common.training.bad',
            'if TYPE_CHECKING:\n    from zoo.algorithms.base import Algorithm',
            'zoo.algorithms.base',
        ),
        (
            'zoo.distributed.bad',
            'if TYPE_CHECKING:\n    from zoo.distributed.training.plan import Plan',
            'zoo.distributed.training.plan',
        ),
        ('zoo.common.training.bad', "importlib.import_module(f'zoo.algorithms.{name}')", 'zoo.algorithms'),
        ('zoo.common.utils', 'from zoo.algorithms import NAMES', 'zoo.algorithms'),
        ('zoo.common.env_wrappers', 'from zoo.default_params import call_default_params', 'zoo.default_params'),
        ('zoo.algorithms.bad', 'from zoo.default_params import call_default_params', 'zoo.default_params'),
        ('zoo.algorithms.bad', 'class A:\n    from zoo import default_params', 'zoo.default_params'),
        ('zoo.distributed.bad', 'from zoo.algorithms import PPO', 'zoo.algorithms'),
        ('zoo.distributed.bad', 'from zoo.distributed.training import plan', 'zoo.distributed.training.plan'),
        ('zoo.distributed.training.bad', 'from zoo.algorithms import PPO', 'zoo.algorithms'),
        ('zoo.distributed.training.plan', 'from .actor import Actor', 'zoo.distributed.training.actor'),
        ('zoo.distributed.training.actor', 'from .buffer import Buffer', 'zoo.distributed.training.buffer'),
        ('zoo.distributed.training.server', 'from .roles import train', 'zoo.distributed.training.roles'),
        ('zoo.default_params.bad', 'from zoo import load', 'zoo'),
        ('zoo.common.tools.bad', 'from zoo.common.networks.spec import full_spec', 'zoo.common.networks.spec'),
        ('zoo.common.tools.bad', 'from ..maths import returns', 'zoo.common.maths.returns'),
        ('zoo.common.networks.bad', 'from zoo.common.acting import forward', 'zoo.common.acting.forward'),
        ('zoo.common.networks.layers.bad', 'import zoo.common.networks.spec', 'zoo.common.networks.spec'),
        ('zoo.common.envs.kinds.bad', 'from zoo.common.envs.build import TYPES', 'zoo.common.envs.build'),
        ('zoo.distributed.engines.bad', 'from zoo.distributed import cluster', 'zoo.distributed.cluster'),
        ('zoo.distributed.engines.waiting', 'from .local import engine', 'zoo.distributed.engines.local.engine'),
        ('zoo.distributed.engines.local.bad', 'import zoo.distributed.engines.mpi', 'zoo.distributed.engines.mpi'),
        ('zoo.distributed.engines.neighbor', 'from .endings import watch_ends', 'zoo.distributed.engines.endings'),
        ('zoo.distributed.queues', 'from zoo.distributed.cluster import connect', 'zoo.distributed.cluster'),
        ('zoo.distributed.jobs', 'from zoo.distributed import connect', 'zoo.distributed'),
        ('zoo.distributed.wire', 'from zoo.distributed.engines import messages', 'zoo.distributed.engines.messages'),
        ('zoo.algorithms.base.bad', 'from zoo.algorithms import ppo', 'zoo.algorithms.ppo'),
        ('zoo.cli.bad', 'from zoo.common.training.loops import on_policy', 'zoo.common.training.loops'),
    ],
)
def test_a_planted_upward_import_is_found(module, source, target):
    line = 1 + source[: source.index('import')].count('\n')
    assert upward(planted(module, source)) == [f'{module}:{line} imports {target}']


@pytest.mark.parametrize(
    ('module', 'source'),
    [
        ('zoo.algorithms.fine', 'from zoo.common.training import loops\nfrom zoo.algorithms.base import Algorithm'),
        ('zoo.common.training.fine', 'from .. import spaces\nfrom ..adaptors.action import Part\nimport zoological'),
        ('zoo.cli', 'from zoo import build_env, algorithms, load'),
    ],
)
def test_what_is_allowed_passes(module, source):
    assert upward(planted(module, source)) == []


def test_else_of_type_checking_runs_and_counts():
    source = 'if TYPE_CHECKING:\n    pass\nelse:\n    from zoo.algorithms import PPO'
    assert upward(planted('zoo.common.training.bad', source)) == ['zoo.common.training.bad:4 imports zoo.algorithms']


def test_a_new_part_of_zoo_must_be_placed():
    assert upward(planted('zoo.extras', '')) == ['zoo.extras: a part of zoo that FLOORS does not know']


def test_a_planted_star_import_is_found():
    assert star_imports(planted('zoo.common.training.bad', 'import os\nfrom zoo.common.spaces import *')) == [
        'zoo.common.training.bad:2'
    ]


@pytest.mark.full(but='planted_modules1')
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
    """Return what a fresh interpreter prints."""
    return subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True).stdout


#: What an actor process needs, and it never imports TensorFlow.
LIGHT = [
    'zoo',
    'zoo.agents',
    'zoo.algorithms',
    'zoo.callbacks',
    'zoo.cli',
    'zoo.experiments.compare',
    'zoo.experiments.tune',
    'zoo.common.acting.behavior',
    'zoo.common.adaptors.action',
    'zoo.common.adaptors.observation',
    'zoo.common.training.checkpoint',
    'zoo.common.rollouts.collector',
    'zoo.common.env_wrappers',
    'zoo.common.tools.errors',
    'zoo.common.maths.normalize',
    'zoo.common.training.loops',
    'zoo.common.training.record',
    'zoo.common.datasets.opening',
    'zoo.common.datasets.replaying',
    'zoo.common.replay',
    'zoo.common.rollouts.rollout_buffer',
    'zoo.common.schedules',
    'zoo.common.tools.seeding',
    'zoo.common.spaces',
    'zoo.common.records',
    'zoo.distributed',
    'zoo.distributed.cluster',
    'zoo.distributed.jobs',
    'zoo.distributed.engines.local.engine',
    'zoo.distributed.training.actor',
    'zoo.distributed.training.plan',
    'zoo.distributed.training.server',
    'zoo.distributed.training.roles',
    'zoo.dashboard',
    'zoo.dashboard.training',
    'zoo.experiments.train',
    'zoo.experiments.runs',
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
        'Dataset',
        'EstimatedReturn',
        'Linear',
        'RecordedEpisode',
        'Rollout',
        '__version__',
        'algorithms',
        'as_config',
        'build_env',
        'call_default_params',
        'callbacks',
        'check_env',
        'compare',
        'compare_scores',
        'describe',
        'estimate_return',
        'export',
        'film',
        'list_agents',
        'list_envs',
        'list_runs',
        'load',
        'open_dataset',
        'open_run',
        'plot_runs',
        'plots',
        'push_to_hub',
        'read_config',
        'record_episodes',
        'resume',
        'train',
        'tune',
    }
    for name in dir(zoo):
        assert getattr(zoo, name) is not None
    with pytest.raises(AttributeError, match="'buildenv'"):
        zoo.buildenv  # noqa: B018
