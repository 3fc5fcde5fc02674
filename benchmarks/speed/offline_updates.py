"""Gradient updates a second on a dataset: zoo beside d3rlpy, in turn on the same machine.

    python benchmarks/speed/offline_updates.py                # every algorithm, seven rounds
    python benchmarks/speed/offline_updates.py TD3BC IQL
    python benchmarks/speed/offline_updates.py --rounds 3

Both learn from the same 100,000 random transitions of the size of ``HalfCheetah-v5``, in batches of 256, with networks
of 256 x 256 units. All other settings are each library's own. A measurement is a process: it makes 500 updates first,
then times 2,000. Nothing else may run meanwhile. The result is ``results/offline_updates.md``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where common.py is
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'scores'))
from common import (
    BENCHMARKS,
    answer_of,
    checked,
    environment,
    header,
    listed,
    middle_and_spread,
    parser_of,
    peers_python,
    ratios,
    row,
    show,
    take_turns,
    today,
    versions,
    write_page,
)
from offline import PEER

DATA = BENCHMARKS / 'runs' / 'offline' / 'random_halfcheetah.npz'
ALGORITHMS = ('TD3BC', 'IQL', 'CQL', 'AWAC', 'BC')
STEPS, LENGTH = 100_000, 1_000
WARM_UP, TIMED, BATCH = 500, 2_000, 256


def random_data() -> Path:
    """Return the file of random transitions in the form of D4RL, made if it is missing."""
    if not DATA.exists():
        import numpy as np

        rng = np.random.default_rng(0)
        ends = (np.arange(STEPS) % LENGTH == LENGTH - 1).astype(np.float32)
        DATA.parent.mkdir(parents=True, exist_ok=True)
        np.savez(
            DATA,
            observations=rng.normal(size=(STEPS, 17)).astype(np.float32),
            actions=rng.uniform(-1, 1, (STEPS, 6)).astype(np.float32),
            rewards=rng.normal(size=STEPS).astype(np.float32),
            terminals=np.zeros(STEPS, np.float32),
            timeouts=ends,
        )
    return DATA


def timed_here(alg: str) -> float:
    """Return zoo's updates a second."""
    from gymnasium.spaces import Box

    import zoo

    spaces = Box(-10, 10, (17,)), Box(-1, 1, (6,))
    data = zoo.open_dataset(str(random_data()), *spaces)
    cls = getattr(zoo.algorithms, alg)
    net = {'hidden': [256, 256], 'activation': 'relu'}
    agent = cls(*spaces, net_list=[net] * len(cls.network_names))
    marks: list[float] = []

    def mark(training: Any) -> None:
        marks.append(time.perf_counter())

    mark.every = WARM_UP  # type: ignore[attr-defined]
    given = {'dataset': data, 'train_updates': WARM_UP + TIMED, 'batch_size': BATCH}
    agent.learn(None, **given, callbacks=[mark], run_dir=False, verbose=0)
    return TIMED / (marks[-1] - marks[0])


def timed_there(alg: str) -> float:
    """Return d3rlpy's updates a second."""
    from offline_peer import made

    given = {'alg': alg, 'data': str(DATA), 'seed': 0, 'changes': {'batch_size': BATCH}}
    algorithm, data = made(given)
    from d3rlpy.logging import NoopAdapterFactory

    marks: list[float] = []
    quiet = {'show_progress': False, 'logger_adapter': NoopAdapterFactory()}

    def mark(algorithm: Any, epoch: int, step: int) -> None:
        if step in (WARM_UP, WARM_UP + TIMED):
            marks.append(time.perf_counter())

    algorithm.fit(data, n_steps=WARM_UP + TIMED, n_steps_per_epoch=WARM_UP + TIMED, callback=mark, **quiet)
    return TIMED / (marks[-1] - marks[0])


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument('algorithms', nargs='*', metavar='ALGORITHM')
    parser.add_argument('--rounds', type=int, default=7)
    parser.add_argument('--work', help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        alg, library = json.loads(args.work)
        if library == 'zoo':
            found = {'rate': timed_here(alg), 'versions': versions('tensorflow', 'keras', 'numpy')}
        else:
            found = {'rate': timed_there(alg), 'versions': versions('d3rlpy', 'torch', 'numpy')}
        print(json.dumps(found), flush=True)
        return
    names = checked(parser, 'algorithm', args.algorithms, ALGORITHMS) or list(ALGORITHMS)
    random_data()
    known: dict[str, Any] = {}

    def work(alg: str, library: str) -> float:
        python = sys.executable if library == 'zoo' else peers_python('.d3rlpy', PEER)
        command = [python, str(Path(__file__).resolve()), '--work', json.dumps([alg, library])]
        found = answer_of(command, environment())
        known[library] = found['versions']
        return float(found['rate'])

    lines = ['# Updates a second on a dataset', '', '`python benchmarks/speed/offline_updates.py`', '']
    lines += [f'Median of {args.rounds} rounds; a ratio is of one round, with its range.', '']
    lines += header('algorithm', 'zoo', 'd3rlpy', 'ratio')
    for alg in names:
        found = take_turns({name: partial(work, alg, name) for name in ('zoo', 'd3rlpy')}, args.rounds)
        rates = [f'{statistics.median(found[name]):,.0f}' for name in ('zoo', 'd3rlpy')]
        show(lines, row(alg, *rates, middle_and_spread(ratios(found['zoo'], found['d3rlpy']))))
    lines += ['', f'{today()}. ' + '; '.join(listed(found) for found in known.values())]
    write_page('offline_updates', lines)


if __name__ == '__main__':
    main()
