"""Where the time of an update goes, operation by operation, by TensorFlow's profiler.

    python benchmarks/speed/operations.py                 # some minutes; writes results/operations.md
    python benchmarks/speed/operations.py --before DIR    # beside another checkout of zoo

One update of SAC, TD3 and DQN at a time, of the tasks ``sac``, ``td3`` and ``dqn`` of ``tasks.py``, on a batch of
random numbers. Each column is profiled in processes of its own, which take turns. A figure is the median over the
processes of the median over the updates of each.

The table of operations is about the first updates of a process, in which TensorFlow traces all of them. The table of
the call is about later ones. Tiny operations then run on the thread that found them and leave no trace: they are in
its gaps. The time of an update is also measured without the profiler, which costs about a microsecond for each
operation.

An operation belongs to the first kind whose pattern matches its ``name:type``. XLA fuses operations into kernels; its
compiler keeps for each kernel the name and type of the last operation in it.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where common.py is
from common import ROOT, answer_of, commit, header, listed, parser_of, row, today, write_page
from tasks import TASKS
from throughput import versions_of
from trainers import zoo_agent

NAMES = ('sac', 'td3', 'dqn')
#: Updates that are profiled first, measured without the profiler, and profiled at last. TensorFlow does not trace an
#: operation any more that it has seen to take a few thousand cycles, which it knows after some 90 runs.
EARLY, UPDATES, LATE = 60, 300, 100

PRODUCT = r'\w*(MatMul|Conv2D\w*|Einsum)$'  # with the types that oneDNN gives them, such as _MklNativeFusedMatMul
KINDS = {
    # Layers and the gradients that TensorFlow makes have a scope; gradients of zoo's own layers have none.
    'products backward': rf'gradient_tape/.*{PRODUCT}|^MatMul(_\d+)?:{PRODUCT}',
    'products forward, with bias and activation where they are fused': PRODUCT,
    'Adam': r':ResourceApplyAdam$',
    'moving of targets, without the differences': r':(ResourceApplyGradientDescent|If)$',  # DQN moves them if it is due
    "activations' gradients": r':\w*(Relu|Tanh|Sigmoid|Softplus|Elu|Selu)Grad$',
    "biases' gradients": r':BiasAddGrad$',
    'biases and activations by themselves': r':(BiasAdd|Relu|Tanh|_FusedBiasAdd\w*)$',
    'random numbers': r':\w*Random\w*$',
    'reading and writing variables': r':(ReadVariableOp|Assign\w*VariableOp|VarHandleOp)$',
    'casts': r':(\w*Cast|(wrapped_)?convert\w*)$',
    'sums, means and extremes over an axis': r':(Sum|Mean|Max|Min|ArgMax|All|Any|L2Loss|wrapped_reduce\S*)$',
    'transposes': r':\w*Transpose$',
    'shapes, slices and copies': r':(Reshape|\w*Slice\w*|Concat\w*|Pack|Unpack|Split\w*|ExpandDims|Squeeze'
    r'|Tile|Broadcast\w*|Gather\w*|Fill|\w*Const|Identity\w*|Shape|ZerosLike|copy)$',
    'the rest: arithmetic, comparisons, control': '',
}
_KINDS = {kind: re.compile(pattern) for kind, pattern in KINDS.items()}


def kind_of(operation: str) -> str:
    """Return the kind of ``name:type``."""
    return next(kind for kind, pattern in _KINDS.items() if pattern.search(operation))


def random_batch(agent: Any, size: int) -> Any:
    """Return random transitions ``[1, size, …]`` of the agent's spaces."""
    import numpy as np

    from zoo.common.records import Batch, Transition

    rng = np.random.default_rng(0)
    shape = (1, size)
    obs, next_obs = rng.standard_normal((2, *shape, *agent.observation_space.shape)).astype(np.float32)
    if hasattr(agent.action_space, 'n'):
        action = rng.integers(agent.action_space.n, size=shape)
    else:
        action = rng.uniform(-1, 1, (*shape, *agent.action_space.shape)).astype(np.float32)
    reward = rng.standard_normal(shape).astype(np.float32)
    return Batch.of(
        Transition(obs, action, reward, next_obs, rng.random(shape) < 0.01, np.zeros(shape, bool)), agent.gamma
    )


def work(library: str, name: str) -> None:
    """The worker: print what an update takes, its call in parts and its operations by kind."""
    agent, _ = zoo_agent(library, TASKS[name])
    import tensorflow as tf

    batch = random_batch(agent, TASKS[name].batch_size)

    def profile(count: int) -> Trace:
        options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=3, python_tracer_level=0)
        with tempfile.TemporaryDirectory() as folder:
            with tf.profiler.experimental.Profile(folder, options):
                for _ in range(count):
                    with tf.profiler.experimental.Trace('update'):
                        agent.update_on(batch)
            (path,) = Path(folder).rglob('*.xplane.pb')
            return Trace(path.read_bytes())

    for _ in range(4):
        agent.update_on(batch)
    kinds = profile(EARLY).kinds()
    seconds = []
    for _ in range(UPDATES):
        begin = time.perf_counter()
        agent.update_on(batch)
        seconds.append(time.perf_counter() - begin)
    call = {'without the profiler': 1e6 * typical(seconds, agent.phases)} | profile(LATE).call(agent.phases)
    print(json.dumps({'call': call, 'kinds': kinds, 'versions': versions_of('zoo')}), flush=True)


def typical(values: Sequence[float], phases: int) -> float:
    """Return the median; where updates differ in turn (TD3's delayed actor), the mean of their medians."""
    return statistics.mean(statistics.median(values[phase::phases]) for phase in range(phases))


class Trace:
    """What a profile of updates says: spans ``(begin, end, …)`` in microseconds.

    Attributes:
        updates: of the annotation around each.
        calls: of the compiled functions.
        operations: with the operation's own time, without the operations inside it, and its ``name:type``.
    """

    def __init__(self, data: bytes) -> None:
        from tensorflow.tsl.profiler.protobuf import xplane_pb2

        space = xplane_pb2.XSpace.FromString(data)
        kernels = dict(pair for plane in space.planes if plane.name == '/host:metadata' for pair in kernels_of(plane))
        (plane,) = (plane for plane in space.planes if plane.name == '/host:CPU')
        self.updates: list[tuple[float, float]] = []
        self.calls: list[tuple[float, float]] = []
        self.operations: list[tuple[float, float, float, str]] = []
        for line in plane.lines:
            found = []
            for event in line.events:
                name = plane.event_metadata[event.metadata_id].name
                begin = line.timestamp_ns / 1e3 + event.offset_ps / 1e6
                span = (begin, begin + event.duration_ps / 1e6)
                if name == 'update':
                    self.updates.append(span)
                elif name.startswith('EagerLocalExecute: __inference'):
                    self.calls.append(span)
                elif any(plane.stat_metadata[stat.metadata_id].name == 'hlo_op' for stat in event.stats):
                    found.append((*span, kernels.get(name, f'{name}:{name.split(".")[0]}')))
                elif re.fullmatch(r'[^:]+:_?[A-Z]\w*', name):  # neither a function of C++ nor a whole one
                    found.append((*span, name))
            self.operations += own_times(found)
        self.updates.sort()
        self.operations.sort()

    def kinds(self) -> dict[str, tuple[float, float]]:
        """Return number and microseconds of an update's operations by kind: the median of each, times its number."""
        times: dict[str, list[float]] = collections.defaultdict(list)
        for begin, _, own, name in self.operations:
            if self.updates[0][0] <= begin:
                times[name].append(own)
        found = {kind: (0.0, 0.0) for kind in KINDS}
        for name, values in times.items():
            kind, often = kind_of(name), len(values) / len(self.updates)
            found[kind] = (found[kind][0] + often, found[kind][1] + often * statistics.median(values))
        return found

    def call(self, phases: int) -> dict[str, float]:
        """Return the microseconds of an update by parts of its call."""
        parts: dict[str, list[float]] = collections.defaultdict(list)
        for begin, end in self.updates:
            inside = [x for x in self.operations if begin <= x[0] < end]
            (call,) = (x for x in self.calls if begin <= x[0] < end)
            first, last = inside[0][0], max(x[1] for x in inside)
            covered, reached = 0.0, first  # by one operation at least
            for start, stop, _, _ in inside:
                covered += max(0.0, stop - max(start, reached))
                reached = max(reached, stop)
            total = sum(x[2] for x in inside)
            parts['under the profiler'].append(end - begin)
            parts['packing, unpacking and Python around the function'].append(end - begin - (call[1] - call[0]))
            parts['starting and ending the function'].append(call[1] - call[0] - (last - first))
            parts['between operations, or in tiny ones'].append(last - first - covered)
            parts['in one operation at least'].append(covered)
            parts['in two at a time'].append(total - covered)
            parts['cores busy from the first operation to the last'].append(total / (last - first))
        return {part: typical(values, phases) for part, values in parts.items()}


def kernels_of(plane: Any) -> Iterator[tuple[str, str]]:
    """Yield the kernels of XLA's modules, each with the ``name:type`` that it was compiled from."""
    from tensorflow.compiler.xla.service import hlo_pb2

    for event in plane.event_metadata.values():
        for stat in event.stats:
            for computation in hlo_pb2.HloProto.FromString(stat.bytes_value).hlo_module.computations:
                for instruction in computation.instructions:
                    made = instruction.metadata
                    if made.op_type:
                        yield instruction.name, f'{made.op_name}:{made.op_type}'


def own_times(events: list[tuple[float, float, str]]) -> list[tuple[float, float, float, str]]:
    """Return begin, end, own time without the events inside, and name of the events of one thread."""
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


def measure(library: str, name: str, checkout: Path) -> dict[str, Any]:
    """Return what a worker in a process of its own prints."""
    env = os.environ | {'PYTHONPATH': str(checkout)}  # nothing else of this checkout
    return answer_of([sys.executable, __file__, '--worker', library, '--task', name], env)


def table(title: str, rows: Sequence[str], columns: dict[str, list[dict[str, Any]]], key: str) -> list[str]:
    """Return the medians over the processes of each column: one number in a cell, or number and microseconds."""
    lines = header(title, *columns)
    for name in rows:
        cells = []
        for answers in columns.values():
            found = [x if isinstance(x, list) else [x] for x in (answer[key][name] for answer in answers)]
            middle = [statistics.median(values) for values in zip(*found, strict=True)]
            cells.append(' / '.join(f'{x:,.0f}' if x >= 10 else f'{x:.1f}' for x in middle))
        if any(cell != '0.0 / 0.0' for cell in cells):
            lines.append(row(name, *cells))
    return ['', *lines]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument('--task', choices=[*NAMES, 'all'], default='all')
    parser.add_argument('--rounds', type=int, default=3, help='processes of each column')
    parser.add_argument('--before', type=Path, help='another checkout of zoo')
    parser.add_argument('--worker', choices=('zoo', 'zoo-bf16'), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(args.worker, args.task)
        return
    columns = {'float32': ('zoo', ROOT), '`mixed_bfloat16`': ('zoo-bf16', ROOT)}
    before = ''
    if args.before:
        columns = {'before': ('zoo', args.before.resolve())} | columns
        before = f' Before is {commit(args.before.resolve())}.'
    lines = [
        '# Operations of an update',
        '',
        f'`python benchmarks/speed/operations.py{" --before DIR" if args.before else ""}`, {os.cpu_count()} cores, '
        f'no GPU. Medians over updates and {args.rounds} processes, the columns in turns. Tiny operations, which '
        'TensorFlow does not trace once it knows them, are in the table of operations alone, which is about the first '
        f'updates of a process.{before}',
    ]
    for name in NAMES if args.task == 'all' else (args.task,):
        print(TASKS[name].title, flush=True)
        found: dict[str, list[dict[str, Any]]] = {column: [] for column in columns}
        for _ in range(args.rounds):
            for column, place in columns.items():
                found[column].append(measure(place[0], name, place[1]))
        of_this = found['float32'][0]
        tables = table('microseconds of an update', list(of_this['call']), found, 'call')
        tables += table('operations: number / core-microseconds', list(KINDS), found, 'kinds')
        print('\n'.join(tables), flush=True)
        lines += ['', f'## {TASKS[name].title}', *tables]
    write_page('operations', [*lines, '', f'Versions: {listed(of_this["versions"])}.', '', f'Run on {today()}.'])


if __name__ == '__main__':
    main()
