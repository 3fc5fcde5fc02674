"""Where the time of an update goes, operation by operation, by TensorFlow's profiler.

    python benchmarks/operations.py                 # some minutes; writes results/operations.md
    python benchmarks/operations.py --before DIR    # beside another checkout of zoo

One update of SAC, TD3 and DQN at a time, as the rows ``sac``, ``td3`` and ``dqn`` of ``throughput.py`` make them, on a
batch of random numbers. Each column is profiled in processes of its own, which take turns; a figure is the median over
the updates of one process, and of that the median over the processes. The profiler itself costs about a microsecond an
operation: the time of an update is also measured without it.

An operation belongs to the first kind whose pattern its ``name:type`` matches. A kernel of XLA has the name
and type that its compiler keeps for it, of the last of the operations that are fused in it.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from throughput import TASKS, commit, versions, zoo_agent

HERE = Path(__file__).resolve().parent
RESULT = HERE / 'results' / 'operations.md'
NAMES = ('sac', 'td3', 'dqn')
UPDATES = 300  # measured without the profiler
PROFILED = 100

PRODUCT = r'(MatMul|Conv2D\w*|Einsum)$'  # with the types that oneDNN gives them, such as _MklNativeFusedMatMul
KINDS = {
    'products backward': rf'gradient_tape/.*{PRODUCT}',
    'products forward, with bias and activation where they are fused': PRODUCT,
    'Adam': r':ResourceApplyAdam$',
    'moving of targets, without the differences': r':ResourceApplyGradientDescent$',
    "activations' gradients": r':\w*(Relu|Tanh|Sigmoid|Softplus|Elu|Selu)Grad$',
    "biases' gradients": r':BiasAddGrad$',
    'biases and activations by themselves': r':(BiasAdd|Relu|Tanh|_FusedBiasAdd\w*)$',
    'random numbers': r':\w*Random\w*$',
    'reading and writing variables': r':(ReadVariableOp|Assign\w*VariableOp|VarHandleOp)$',
    'casts': r':\w*Cast$',
    'sums, means and extremes over an axis': r':(Sum|Mean|Max|Min|ArgMax|All|Any|L2Loss)$',
    'shapes, slices and copies': r':(Reshape|\w*Slice\w*|Concat\w*|Pack|Unpack|Split\w*|Transpose|ExpandDims|Squeeze'
    r'|Tile|Broadcast\w*|Gather\w*|Fill|\w*Const|Identity\w*|Shape|ZerosLike|copy)$',
    'the rest: arithmetic, comparisons, control': '',
}
_KINDS = {kind: re.compile(pattern) for kind, pattern in KINDS.items()}


def kind_of(operation: str) -> str:
    """The kind of ``name:type``."""
    return next(kind for kind, pattern in _KINDS.items() if pattern.search(operation))


def random_batch(agent: Any, size: int) -> Any:
    """Transitions ``[1, size, …]`` of the agent's spaces."""
    import numpy as np

    from zoo.common.types import Transition

    rng = np.random.default_rng(0)
    shape = (1, size)
    obs, next_obs = rng.standard_normal((2, *shape, *agent.observation_space.shape)).astype(np.float32)
    if hasattr(agent.action_space, 'n'):
        action = rng.integers(agent.action_space.n, size=shape)
    else:
        action = rng.uniform(-1, 1, (*shape, *agent.action_space.shape)).astype(np.float32)
    reward = rng.standard_normal(shape).astype(np.float32)
    return Transition(obs, action, reward, next_obs, rng.random(shape) < 0.01, np.zeros(shape, bool))


def work(library: str, name: str) -> None:
    """The worker: print what an update takes, see :func:`profiled`."""
    agent, _ = zoo_agent(library, TASKS[name])
    import tensorflow as tf

    batch = random_batch(agent, TASKS[name].batch_size)
    for _ in range(50):
        agent.update_on(batch)
    seconds = []
    for _ in range(UPDATES):
        begin = time.perf_counter()
        agent.update_on(batch)
        seconds.append(time.perf_counter() - begin)
    with tempfile.TemporaryDirectory() as folder:
        options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=3, python_tracer_level=0)
        with tf.profiler.experimental.Profile(folder, options):
            for _ in range(PROFILED):
                with tf.profiler.experimental.Trace('update'):
                    agent.update_on(batch)
        (path,) = Path(folder).rglob('*.xplane.pb')
        found = profiled(path.read_bytes())
    wall = {'without the profiler': 1e6 * statistics.median(seconds)}
    print(json.dumps({'call': wall | found[0], 'kinds': found[1], 'versions': versions('zoo')}), flush=True)


def profiled(trace: bytes) -> tuple[dict[str, float], dict[str, tuple[float, float]]]:
    """Read a profile.

    Returns:
        Microseconds of an update by parts of the call, and the number of operations and their microseconds by kind.
    """
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace.FromString(trace)
    kernels = dict(pair for plane in space.planes if plane.name == '/host:metadata' for pair in kernels_of(plane))
    (plane,) = (plane for plane in space.planes if plane.name == '/host:CPU')
    updates, calls, operations = [], [], []
    for line in plane.lines:
        events = []
        for event in line.events:
            name = plane.event_metadata[event.metadata_id].name
            begin = line.timestamp_ns / 1e3 + event.offset_ps / 1e6
            span = (begin, begin + event.duration_ps / 1e6)
            stats = {plane.stat_metadata[stat.metadata_id].name for stat in event.stats}
            if name == 'update':
                updates.append(span)
            elif name.startswith('EagerLocalExecute: __inference'):
                calls.append(span)
            elif 'hlo_op' in stats:
                events.append((*span, kernels.get(name, f'{name}:{name.split(".")[0]}')))
            elif re.fullmatch(r'[^:]+:_?[A-Z]\w*', name):  # neither a function of C++ nor a function as a whole
                events.append((*span, name))
        operations += own_times(events)
    calls.sort()
    operations.sort()
    parts: dict[str, list[float]] = collections.defaultdict(list)
    kinds: dict[str, list[tuple[int, float]]] = collections.defaultdict(list)
    for begin, end in sorted(updates):
        inside = [x for x in operations if begin <= x[0] < end]
        (call,) = (x for x in calls if begin <= x[0] < end)
        first, last = inside[0][0], max(x[1] for x in inside)
        covered, reached = 0.0, first  # by one operation at least
        for start, stop, _, _ in inside:
            covered += max(0.0, stop - max(start, reached))
            reached = max(reached, stop)
        total = sum(x[2] for x in inside)
        parts['under the profiler'].append(end - begin)
        parts['packing, unpacking and Python, before and after the function'].append(end - begin - (call[1] - call[0]))
        parts['starting and ending the function, no operation yet or any more'].append(
            call[1] - call[0] - (last - first)
        )
        parts['gaps between operations'].append(last - first - covered)
        parts['one operation at least'].append(covered)
        parts['operations, summed over cores'].append(total)
        parts['cores busy from the first operation to the last'].append(total / (last - first))
        for kind in KINDS:
            own = [x[2] for x in inside if kind_of(x[3]) == kind]
            kinds[kind].append((len(own), sum(own)))
    return (
        {part: statistics.median(values) for part, values in parts.items()},
        {
            kind: (statistics.mean(x[0] for x in values), statistics.median(x[1] for x in values))
            for kind, values in kinds.items()
        },
    )


def kernels_of(plane: Any) -> Iterator[tuple[str, str]]:
    """The kernels of XLA's modules, with the ``name:type`` that each was compiled from."""
    from tensorflow.compiler.xla.service import hlo_pb2

    for event in plane.event_metadata.values():
        for stat in event.stats:
            for computation in hlo_pb2.HloProto.FromString(stat.bytes_value).hlo_module.computations:
                for instruction in computation.instructions:
                    made = instruction.metadata
                    if made.op_type:
                        yield instruction.name, f'{made.op_name}:{made.op_type}'


def own_times(events: list[tuple[float, float, str]]) -> list[tuple[float, float, float, str]]:
    """Begin, end, time without that of the events inside, and name, for the events of one thread."""
    found: list[list[Any]] = []
    open_: list[list[Any]] = []
    for begin, end, name in sorted(events, key=lambda event: (event[0], -event[1])):
        while open_ and open_[-1][1] <= begin:
            open_.pop()
        if open_:
            open_[-1][2] -= end - begin
        found.append([begin, end, end - begin, name])
        open_.append(found[-1])
    return [(begin, end, own, name) for begin, end, own, name in found]


def measure(library: str, name: str, checkout: Path) -> dict[str, Any] | None:
    """What a worker in a process of its own printed; None if it does not run there."""
    done = subprocess.run(
        [sys.executable, str(HERE / 'operations.py'), '--worker', library, '--task', name],
        capture_output=True,
        text=True,
        env=os.environ | {'PYTHONPATH': str(checkout)},
    )
    answers = [line for line in done.stdout.splitlines() if line.startswith('{')]
    if not answers:
        print(f'  {library} in {checkout.name}: {done.stderr.strip().splitlines()[-1:]}', flush=True)
        return None
    return json.loads(answers[-1])


def section(name: str, columns: dict[str, tuple[str, Path]], rounds: int) -> tuple[list[str], dict[str, str]]:
    """One task's tables, and the versions."""
    print(TASKS[name].title, flush=True)
    answers: dict[str, list[dict[str, Any]]] = {column: [] for column in columns}
    for _ in range(rounds):
        for column, (library, checkout) in columns.items():
            answer = measure(library, name, checkout)
            answers[column] += [answer] if answer else []
    known = {column: found for column, found in answers.items() if found}
    missing = [f'{column} does not run.' for column in columns if column not in known]
    lines = ['', f'## {TASKS[name].title}', '', *missing, '' if missing else None]
    head = [line for line in lines if line is not None]
    if not known:
        return head, {}

    def table(title: str, rows: dict[str, list[str]]) -> list[str]:
        top = [f'| {title} | {" | ".join(known)} |', '|---' * (1 + len(known)) + '|']
        return [*top, *(f'| {row} | {" | ".join(cells)} |' for row, cells in rows.items()), '']

    def middle(values: Any) -> str:
        value = statistics.median(values)
        return f'{value:,.0f}' if value >= 10 else f'{value:.1f}'

    parts = next(iter(known.values()))[0]['call']
    call = {part: [middle(x['call'][part] for x in found) for found in known.values()] for part in parts}
    kinds = {
        kind: [
            f'{middle(x["kinds"][kind][0] for x in found)} / {middle(x["kinds"][kind][1] for x in found)}'
            for found in known.values()
        ]
        for kind in KINDS
        if any(x['kinds'][kind][0] for found in known.values() for x in found)
    }
    tables = [*table('microseconds of an update', call), *table('operations: number / core-microseconds', kinds)]
    print('\n'.join(tables), flush=True)
    return [*head, *tables[:-1]], next(iter(known.values()))[0]['versions']


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--task', choices=[*NAMES, 'all'], default='all')
    parser.add_argument('--rounds', type=int, default=3, help='processes of each column')
    parser.add_argument('--before', type=Path, help='another checkout of zoo')
    parser.add_argument('--worker', choices=('zoo', 'zoo-bf16'), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(args.worker, args.task)
        return
    columns = {'float32': ('zoo', HERE.parent), '`mixed_bfloat16`': ('zoo-bf16', HERE.parent)}
    before = ''
    if args.before:
        columns = {'before': ('zoo', args.before.resolve())} | columns
        before = f' Before is {commit(args.before.resolve())}.'
    lines = [
        '# Operations of an update',
        '',
        f'`python benchmarks/operations.py`, {os.cpu_count()} cores, no GPU. Medians over {PROFILED} profiled updates '
        f'and {args.rounds} processes, the columns in turns; the time without the profiler over {UPDATES} updates.'
        f'{before}',
    ]
    found: dict[str, str] = {}
    for name in NAMES if args.task == 'all' else (args.task,):
        more, of_this = section(name, columns, args.rounds)
        lines += more
        found |= of_this
    lines += ['', 'Versions: ' + ', '.join(f'{name} {version}' for name, version in found.items()) + '.']
    lines += ['', f'Run on {datetime.date.today().isoformat()}.', '']
    RESULT.write_text('\n'.join(lines), encoding='utf-8')


if __name__ == '__main__':
    main()
