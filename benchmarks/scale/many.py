"""What a message costs a learner of 10, 100 and 1,000 actors: the processor time of IMPALA's learner, all in all.

    python benchmarks/scale/many.py               # writes results/many.json and results/many.md; some five minutes
    python benchmarks/scale/many.py --messages 2000 --engine local --dry

A few processes stand for all actors: they send rollouts as fast as they are answered. With ``local`` a process takes
the place of many ranks. With ``mpi`` each of its queues stands for an actor. The learner is zoo's own, with its updates
of 8 rollouts, answers and weights; and, beside it, a loop that only receives and answers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where common.py is
from common import (
    AS_ROOT,
    environment,
    header,
    launcher,
    parser_of,
    read_results,
    row,
    stamp,
    write_page,
    write_results,
)
from sleeping import Sleeping, agent_for

ACTORS = (10, 100, 1000)
ENGINES = ('local', 'mpi')
CROWDS = 2  # processes that stand for the actors
HORIZON, ROLLOUTS, AHEAD = 20, 8, 3
SKIPPED = 300  # messages before the measurement, for compilation


class Folded:
    """An engine whose many ranks are queues of a few real ones: rank 0 is itself, the others share the rest."""

    def __init__(self, engine: Any, size: int) -> None:
        self._engine, self.size, self._made = engine, size, defaultdict(int)
        self.name, self.label, self.ends_by_errors, self.restarts = engine.name, '', True, 0
        self.rank = engine.rank

    def real(self, rank: int) -> int:
        return rank and 1 + (rank - 1) % CROWDS

    def channel(self, source: int, target: int, index: int, maxsize: int, max_bytes: int) -> Any:
        own = index * self.size + max(source, target)
        return self._engine.channel(self.real(source), self.real(target), own, maxsize, max_bytes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def agent_and_plan(actors: int, steps: int) -> tuple[Any, Any, Any]:
    """Return IMPALA, its plan for so many actors, and an environment whose steps are sleeps."""
    from zoo import build_env
    from zoo.distributed.training.planning import plan_for

    env = build_env(Sleeping)
    agent, params = agent_for('IMPALA', env)
    names = ('replayed', 'replay_size')
    loop = {name: params[name] for name in names if name in params} | {
        'horizon': HORIZON,
        'rollouts': ROLLOUTS,
        'ahead': AHEAD,
    }
    return agent, plan_for(agent, env, {'learners': 1, 'actors': actors}, 0, 0, steps, loop), env


def lead(cluster: Any, actors: int, messages: int) -> dict[str, float]:
    """Be the learner; return seconds of the processor and of the clock, for a message, in two loops."""
    from zoo.common.training.training import Training
    from zoo.distributed import Inbox, Role
    from zoo.distributed.training import learner

    found = {}
    ins = [cluster.queue((Role.ACTOR, i), (Role.LEARNER, 0)) for i in range(actors)]
    outs = [cluster.queue((Role.LEARNER, 0), (Role.ACTOR, i)) for i in range(actors)]
    inbox = Inbox(ins)
    for number in range(-SKIPPED, messages):
        if number == 0:
            begin = time.process_time(), time.perf_counter()
        i = inbox.next()
        assert i is not None
        ins[i].get()
        outs[i].put({'version': np.int64(-1 if number >= messages - actors else 0)})
    found['exchange'] = (time.process_time() - begin[0]) / messages
    found['exchanges_per_second'] = messages / (time.perf_counter() - begin[1])
    cluster.save('plan', {'received': np.ones(1)})
    agent, plan, _ = agent_and_plan(actors, (SKIPPED + messages) * HORIZON)
    marks: list[tuple[float, float, int]] = []
    with learner.learning(cluster, plan, agent) as experience:
        training = Training(agent, None, plan.train_steps, verbose=0, start=0, experience=experience)
        stepped = training.stepped

        def noted(*args: Any) -> Any:
            marks.append((time.process_time(), time.perf_counter(), agent.steps))
            return stepped(*args)

        training.stepped = noted  # type: ignore[method-assign]
        training.run(agent.loop, **plan.loop_params)
    first, last = next(mark for mark in marks if mark[2] >= SKIPPED * HORIZON), marks[-1]
    count = (last[2] - first[2]) / HORIZON
    found['learner'] = (last[0] - first[0]) / count
    found['messages_per_second'] = count / (last[1] - first[1])
    return found


def crowd(clusters: dict[int, Any], actors: int) -> None:
    """Be some actors, by their numbers: send, and send again when answered, until the answer says that this ends."""
    from zoo.distributed import Inbox, PeerLost, Role
    from zoo.distributed.training.exchanges import no_episodes

    some = next(iter(clusters.values()))
    _, plan, env = agent_and_plan(actors, 10**6)
    rollout = plan.storage(env.observation_space, 1).rollout
    rollout.valid[:] = True
    content = {'start': 0, 'version': np.int64(0), 'begins': False, 'rollout': rollout, 'episodes': no_episodes()}
    content |= {'spent': np.array([1.0, 0.0, 0.0, np.nan])}
    numbers, me = list(clusters), (Role.LEARNER, 0)
    for learns in (False, True):
        bounds = (plan.ahead + 1, plan.max_bytes) if learns else ()
        answers = (plan.answers,) if learns else ()
        outs = [clusters[i].queue((Role.ACTOR, i), me, *bounds) for i in numbers]
        ins = [clusters[i].queue(me, (Role.ACTOR, i), *answers) for i in numbers]
        if learns:
            some.request(Role.LEARNER, 0, 'plan')
        for out in outs * (1 + plan.ahead if learns else 1):  # so many that the learner always finds some
            out.put(content)
        # Each actor of `local` is a rank with a door of its own: look at each.
        inbox = Inbox(ins) if len({id(cluster.engine) for cluster in clusters.values()}) == 1 else None
        waiting = set(range(len(numbers)))
        while waiting:
            ready = inbox.wait(1.0) if inbox else [k for k in waiting if ins[k].ready()]
            if not ready:
                time.sleep(1e-4)
            for k in ready:
                try:
                    ended = ins[k].get()['version'] < 0
                    if not ended:
                        outs[k].put(content)
                except PeerLost:
                    ended = True
                if ended:
                    waiting.discard(k)
                    if inbox:
                        inbox.remove(k)
    for out in outs:
        out.close()


def local_crowd(folder: str, actors: int, part: int) -> None:
    """Be a process of actors of ``local``, each at a rank's place."""
    from zoo.distributed import Cluster, Layout
    from zoo.distributed.engines.local.engine import LocalEngine
    from zoo.distributed.engines.local.folder import Seat

    layout = Layout(1, actors)
    numbers = range(part, actors, CROWDS)
    clusters = {i: Cluster(LocalEngine(Seat(folder, 1 + i, layout.size)), layout) for i in numbers}
    crowd(clusters, actors)
    for cluster in clusters.values():
        cluster.close()


def worker(engine: str, actors: int, messages: int, path: str, part: int = -1, folder: str = '') -> None:
    """Be a process of the measurement."""
    from zoo.distributed import Cluster, Layout

    layout = Layout(1, actors)
    if engine == 'mpi':
        from zoo.distributed.launchers import start_engine

        real = start_engine('mpi')
        folded = Folded(real, layout.size)
        if real.rank == 0:
            found = lead(Cluster(folded, layout), actors, messages)  # type: ignore[arg-type]
            Path(path).write_text(json.dumps(found))
        else:
            clusters = {}
            for i in range(real.rank - 1, actors, CROWDS):
                each = Folded(real, layout.size)
                each.rank = 1 + i
                clusters[i] = Cluster(each, layout)  # type: ignore[arg-type]
                clusters[i].engine = folded  # type: ignore[assignment]
            for cluster in clusters.values():
                cluster.engine = folded  # type: ignore[assignment]
            crowd(clusters, actors)
        real.close()
    elif part >= 0:
        local_crowd(folder, actors, part)
    else:
        from zoo.distributed.engines.local.engine import LocalEngine
        from zoo.distributed.engines.local.folder import JobFolder, Seat

        made = JobFolder(layout.size)
        command = [sys.executable, __file__, '--worker', engine, str(actors), str(messages), path]
        others = [subprocess.Popen([*command, str(i), str(made.path)], env=environment()) for i in range(CROWDS)]
        try:
            cluster = Cluster(LocalEngine(Seat(str(made.path), 0, layout.size)), layout)
            Path(path).write_text(json.dumps(lead(cluster, actors, messages)))
            cluster.close()
            for other in others:
                other.wait(60)
        finally:
            for other in others:
                other.kill()
                other.wait()
            made.remove()


def measured(engine: str, actors: int, messages: int) -> dict[str, float]:
    """Return what :func:`lead` measures in processes of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / 'found'
        start = [sys.executable] if engine == 'local' else launcher(engine, 1 + CROWDS)
        command = [*start, __file__, '--worker', engine, str(actors), str(messages), str(path)]
        subprocess.run(command, check=True, env=environment(**AS_ROOT), timeout=600)
        return json.loads(path.read_text())


def page(results: dict[str, Any]) -> list[str]:
    """Return the page of the results."""
    lines = ['# A message of many actors', '', 'Made by `python benchmarks/scale/many.py`.', '']
    for engine, part in results.items():
        lines += [
            f'## `{engine}`',
            '',
            part['versions']
            + ('' if part['load'] is None else f', load average at the start {part["load"]:.1f}')
            + '.',
            '',
            *header(
                'actors',
                'µs of processor: receive and answer',
                'of the learner, all in all',
                'times 10 actors',
                'messages a second',
            ),
        ]
        base = part['rows'][0]['learner']
        for found in part['rows']:
            learner, exchange = found['learner'], found['exchange']
            costs = f'{exchange * 1e6:.0f}', f'{learner * 1e6:.0f}', f'{learner / base:.2f}'
            lines.append(row(f'{found["actors"]:,}', *costs, f'{found["messages_per_second"]:,.0f}'))
        lines.append('')
    lines += [
        f'IMPALA with networks of 64 × 64 and rollouts of {HORIZON} steps, {ROLLOUTS} in an update. Each actor is',
        'always ready: it sends again when it is answered. The processor time is of the whole process of the learner,',
        'its updates and publishing included.',
    ]
    return lines


def main() -> None:
    """The command."""
    if sys.argv[1:2] == ['--worker']:
        engine, actors, messages, path, *rest = sys.argv[2:]
        worker(engine, int(actors), int(messages), path, *((int(rest[0]), rest[1]) if rest else ()))
        return
    parser = parser_of(__doc__)
    parser.add_argument('--engine', action='append', choices=ENGINES, help='local and mpi unless it is given')
    parser.add_argument('--messages', type=int, default=8000, help='that are measured')
    parser.add_argument('--dry', action='store_true', help='write no results')
    options = parser.parse_args()
    results = read_results('many')
    for engine in options.engine or ENGINES:
        load, rows = os.getloadavg()[0], []
        for actors in ACTORS:
            rows.append({'actors': actors} | measured(engine, actors, options.messages))
            print(engine, rows[-1], flush=True)
        results[engine] = {'versions': stamp('tensorflow', 'numpy'), 'load': load, 'rows': rows}
    if not options.dry:
        write_results('many', results)
        write_page('many', page(results))


if __name__ == '__main__':
    main()
