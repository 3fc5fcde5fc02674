"""What training with roles costs and stands: actors on a slow environment, one actor's size, half an hour, deaths.

    python benchmarks/scale/actors.py scaling               # 1 to 16 actors, with 5 ms a step; three minutes
    python benchmarks/scale/actors.py scaling --alg IMPALA  # the same with rollouts that are taken as they come
    python benchmarks/scale/actors.py actor                 # memory and start of the actor of an MLP policy
    python benchmarks/scale/actors.py endurance             # 30 minutes with 4 actors: memory and open handles
    python benchmarks/scale/actors.py deaths                # kill -9 of each role in mid-training

The last two measure the engines local and mpi, or those that are named: ``--engine kungfu`` where kungfu-run is on the
path. Each writes its part of results/actors.json, and results/actors.md is made from it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium

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

STEP = 5e-3
ENGINES = ('local', 'mpi', 'kungfu')
#: How `local`, `mpirun` and `kungfu-run` report that a rank was killed.
MESSAGE = (
    r'rank \d+ \([^)]*\) was killed by \w+.*'
    r'|process rank \d+ [^.]*? exited on\s+signal \d+ \(\w+\)'
    r'|#<[^>]*> exited with error: signal: killed'
)
#: The roles of the trainings in which ranks are killed, and the rank of each role that is killed.
ROLES = {'learners': 2, 'actors': 2, 'servers': 1}
VICTIMS = {'learner': 1, 'actor': 3, 'server': 4}


class SlowCartPole(gymnasium.Wrapper):
    """CartPole that takes 5 ms a step, as a simulator or a robot does."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make('CartPole-v1'))

    def step(self, action: Any) -> Any:
        time.sleep(STEP)
        return super().step(action)


def agent_for(env: Any, alg: str = 'PPO', **params: Any) -> tuple[Any, dict[str, Any]]:
    """Return an algorithm with the parameters tuned for CartPole, and the parameters of its ``learn``."""
    from zoo import algorithms, call_default_params

    alg_params, learn_params = call_default_params(env, 'classic_control', alg, seed=0)
    return getattr(algorithms, alg)(**alg_params), learn_params | {'run_dir': False, 'verbose': 0} | params


#: What is changed for the slow environment: PPO updates after 128 steps of every actor, IMPALA after 160 steps of all.
SCALED: dict[str, dict[str, int]] = {
    'PPO': {'horizon': 128, 'epochs': 10, 'batch_size': 64},
    'IMPALA': {'horizon': 20, 'rollouts': 8},
}


def scaling(actors: list[int], alg: str, rounds: int = 32, size: int = 128) -> list[dict[str, float]]:
    """Return the steps per second for several numbers of actors, in rounds of 128 steps of each.

    The first ten, some seven seconds, are not counted: in them the update is compiled.
    """
    from zoo import build_env

    rows = []
    for count in actors:
        times: list[tuple[float, int]] = []
        env = build_env(SlowCartPole)
        agent, params = agent_for(
            env,
            alg,
            **SCALED[alg],
            log_every=size * count,
            train_steps=rounds * size * count,
            roles={'learners': 1, 'actors': count},
            callbacks=[lambda training, times=times: times.append((time.perf_counter(), training.steps))],
        )
        agent.learn(env, **params)
        (begin, before), (end, after) = times[9], times[-1]
        rate = (after - before) / (end - begin)
        rows.append(
            {'actors': count, 'steps_per_second': rate, 'ratio': rate / rows[0]['steps_per_second'] if rows else 1.0}
        )
        print(f'{count:3d} actors: {rate:7.1f} steps/s, {rows[-1]["ratio"]:.2f} times one actor', flush=True)
    return rows


def children() -> dict[int, str]:
    """Return the processes that this one has started, by their id, with their command lines."""
    listing = subprocess.run(['ps', '-o', 'pid=,args=', '--ppid', str(os.getpid())], capture_output=True, text=True)
    found = {}
    for line in listing.stdout.splitlines():
        pid, _, command = line.strip().partition(' ')
        if 'spawn_main' in command:
            found[int(pid)] = command
    return found


def resident(pid: int) -> float:
    """Return the resident memory of a process, MB. It shares the pages of Python and its libraries with others."""
    text = Path(f'/proc/{pid}/status').read_text()
    return int(re.search(r'VmRSS:\s+(\d+)', text)[1]) / 1024


def actor(rounds: int = 5) -> dict[str, Any]:
    """Return the memory of an actor, whether it has TensorFlow, and the time from its start to its first step."""
    from zoo import build_env

    sizes, loaded = [], []
    starts = []
    for _ in range(rounds):
        marks = Path(tempfile.mkdtemp())
        env = build_env(FirstStep, marks=str(marks))

        def look(training: Any) -> None:
            if training.steps > 2000:
                for pid in children():
                    sizes.append(resident(pid))
                    loaded.append('tensorflow' in Path(f'/proc/{pid}/maps').read_text())

        agent, params = agent_for(env, train_steps=4000, log_every=1000, roles={'actors': 1}, callbacks=[look])
        agent.learn(env, **params)
        pid, begin, first = (marks / 'times').read_text().split()
        starts.append(float(first) - float(begin))
        shutil.rmtree(marks)
    row = {
        'megabytes': max(sizes),
        'tensorflow': any(loaded),
        'start_seconds': [round(x, 2) for x in sorted(starts)],
    }
    print(row)
    return row


class FirstStep(gymnasium.Wrapper):
    """CartPole that writes down when its process has started and when its first step of training is taken."""

    def __init__(self, marks: str) -> None:
        super().__init__(gymnasium.make('CartPole-v1'))
        self.marks = Path(marks) / 'times'

    def step(self, action: Any) -> Any:
        if not self.marks.exists():
            ticks = int(Path('/proc/self/stat').read_text().rpartition(')')[2].split()[19])
            boot = time.time() - float(Path('/proc/uptime').read_text().split()[0])
            begin = boot + ticks / os.sysconf('SC_CLK_TCK')
            self.marks.write_text(f'{os.getpid()} {begin} {time.time()}')
        return super().step(action)


PROGRAM = """
import os, sys, time
from pathlib import Path
from zoo import algorithms, build_env, call_default_params
from zoo.distributed.launchers import launched_place

env = build_env('CartPole-v1', 'classic_control')
alg_params, learn_params = call_default_params(env, 'classic_control', 'PPO', seed=0)
roles = {roles}
agent = algorithms.PPO(**alg_params)
mark = Path({folder!r})
rank = launched_place()[0]
(mark / f'rank-{{rank}}').write_text(str(os.getpid()))  # an actor keeps this id when it becomes light

def look(training):
    (mark / 'new').write_text(f'{{training.steps}} {{len(training.returns)}}')
    os.replace(mark / 'new', mark / 'progress')

agent.learn(env, callbacks=[look], **learn_params | dict(roles=roles, train_steps=10**9, verbose=0, {params}))
"""


class Program:
    """A training on CartPole under a launcher; leaving the block ends it.

    Args:
        engine: Its launcher starts the ranks.
        roles: The roles of the training.
        params: Further arguments of ``learn``, as source text.
    """

    def __init__(self, engine: str, roles: dict[str, int], params: str) -> None:
        self.ranks = roles.get('learners', 1) + sum(number for role, number in roles.items() if role != 'learners')
        self.folder = Path(tempfile.mkdtemp())
        script = self.folder / 'program.py'
        script.write_text(PROGRAM.format(roles=roles, folder=str(self.folder), params=params))
        command, env = [*launcher(engine, self.ranks), str(script)], environment(**AS_ROOT)
        with open(self.folder / 'log', 'w') as log:
            self.process = subprocess.Popen(command, cwd=self.folder, env=env, stdout=log, stderr=subprocess.STDOUT)

    def __enter__(self) -> Program:
        wait_for(lambda: self.progress()[0] > 5000 or self.process.poll() is not None, 120)
        self.pids = [int(path.read_text()) for path in sorted(self.folder.glob('rank-*'))]
        if self.progress()[0] <= 5000 or self.process.poll() is not None:
            self.__exit__()
            raise RuntimeError(f'this does not train: {self.log()[-2000:]}')
        return self

    def __exit__(self, *error: Any) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait()
            wait_for(lambda: not any(map(runs, self.pids)), 10)
            for pid in filter(runs, self.pids):  # KungFu's launcher does not end its ranks when it is ended
                os.kill(pid, signal.SIGKILL)

    def progress(self) -> tuple[int, int]:
        """Return steps and episodes so far."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            steps, episodes = (self.folder / 'progress').read_text().split()
            return int(steps), int(episodes)
        return 0, 0

    def log(self) -> str:
        """Return what was printed, without colors."""
        return re.sub(r'\x1b\[[0-9;]*m', '', (self.folder / 'log').read_text())


def wait_for(condition: Any, seconds: float) -> bool:
    """Wait until something is true; return whether it is."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not condition():
        time.sleep(0.02)
    return bool(condition())


def endurance(engine: str, minutes: float = 30.0, every: float = 10.0) -> dict[str, Any]:
    """Return memory and open handles of the learner and of 4 actors, from the first minute to the last."""
    params = 'log_every=2000, horizon=128, run_dir=False'
    with Program(engine, {'actors': 4}, params) as program:
        begin = time.monotonic()
        samples: list[dict[str, Any]] = []
        while (seconds := time.monotonic() - begin) < 60 * minutes:
            if program.process.poll() is not None:
                raise RuntimeError(f'it has ended: {program.log()[-2000:]}')
            steps, episodes = program.progress()
            samples.append(
                {
                    'seconds': seconds,
                    'steps': steps,
                    'episodes': episodes,
                    'megabytes': [round(resident(pid), 1) for pid in program.pids],
                    'handles': [len(os.listdir(f'/proc/{pid}/fd')) for pid in program.pids],
                }
            )
            time.sleep(every)
    shutil.rmtree(program.folder)
    settled = [sample for sample in samples if sample['seconds'] >= 60]
    first, last = settled[0], settled[-1]
    row = {
        'minutes': last['seconds'] / 60,
        'steps': last['steps'],
        'episodes': last['episodes'],
        'megabytes_after_a_minute': first['megabytes'],
        'megabytes_at_the_end': last['megabytes'],
        'handles_after_a_minute': first['handles'],
        'handles_at_the_end': last['handles'],
        'samples': [settled[i] for i in range(0, len(settled), max(1, len(settled) // 30))],
    }
    print({key: value for key, value in row.items() if key != 'samples'})
    return row


def death(engine: str, victim: str) -> dict[str, Any]:
    """Kill a rank by ``kill -9``; return how the job ends (or goes on, where an actor of ``local`` is killed)."""
    row: dict[str, Any] = {'engine': engine, 'victim': victim}
    params = "log_every=200, horizon=64, checkpoint_every=2000, run_dir=mark / 'run'"
    with Program(engine, ROLES, params) as program:
        os.kill(program.pids[VICTIMS[victim]], signal.SIGKILL)
        killed, at = time.monotonic(), program.progress()[0]
        if engine == 'local' and victim == 'actor':
            went_on = wait_for(lambda: program.progress()[0] > at + 5000, 60)
            row['outcome'] = 'training went on' if went_on else 'stood still'
            row['seconds'] = round(time.monotonic() - killed, 1)
            program.process.send_signal(signal.SIGINT)
            program.process.wait(60)
        else:
            program.process.wait(60)
            row['seconds'] = round(time.monotonic() - killed, 1)
            row['outcome'] = f'exit status {program.process.returncode}'
    wait_for(lambda: not any(map(runs, program.pids)), 10 - row['seconds'])
    row['left_over'] = sum(map(runs, program.pids))
    found = re.search(MESSAGE, program.log())
    message = re.sub(r' with PID \d+ on node \S+', '', found[0]) if found else ''
    row['message'] = ' '.join(message.split())
    roles = re.search(r'Training over .*', program.log())
    row['roles'] = roles[0] if roles else ''
    row['checkpoint'] = checkpoint_is_good(program.folder / 'run')
    shutil.rmtree(program.folder)
    print(row, flush=True)
    return row


def runs(pid: int) -> bool:
    """Return whether a process runs, and does not merely wait for somebody to read its exit status."""
    try:
        return Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[0] != 'Z'
    except FileNotFoundError:
        return False


def checkpoint_is_good(run: Path) -> bool:
    """Return whether the newest checkpoint can be loaded, in a process of its own."""
    code = f'import zoo; print(zoo.load({str(run)!r}).steps)'
    return subprocess.run([sys.executable, '-c', code], env=environment(), capture_output=True).returncode == 0


def report(results: dict[str, Any]) -> None:
    """Write the tables of results/actors.md."""
    lines = ['# Training with roles', '', 'Made by `benchmarks/scale/actors.py`; every part says when.', '']
    for alg, updates in (
        ('PPO', '128 steps of every actor in an iteration, 10 epochs'),
        ('IMPALA', '8 rollouts of 20 steps in an update, of whichever actors'),
    ):
        part = results.get('scaling' if alg == 'PPO' else f'scaling {alg}')
        if part is None:
            continue
        lines += [
            f'## A slow environment: {alg}',
            '',
            f'`python benchmarks/scale/actors.py scaling --alg {alg}`. {part["versions"]} CartPole with '
            f'{STEP * 1000:g} ms of sleep in a step, {updates}, one learner, all on one machine.',
            '',
            *header('actors', 'steps per second', 'times one actor'),
            *(row(r['actors'], f'{r["steps_per_second"]:.0f}', f'{r["ratio"]:.2f}') for r in part['rows']),
            '',
        ]
    if part := results.get('actor'):
        found = part['row']
        seconds = found['start_seconds']
        lines += [
            '## One actor',
            '',
            f'`python benchmarks/scale/actors.py actor`. {part["versions"]} PPO with an MLP, CartPole, '
            f'{len(seconds)} runs.',
            '',
            *header('what', 'figure'),
            row('resident memory, the largest', f'{found["megabytes"]:.0f} MB'),
            row('TensorFlow loaded', 'yes' if found['tensorflow'] else 'no'),
            row(
                'from the start of its process to its first step',
                f'{statistics.median(seconds):.2f} s (median; largest {seconds[-1]:.2f} s)',
            ),
            '',
        ]
    if names := [name for name in (f'endurance {engine}' for engine in ENGINES) if name in results]:
        lines += [
            '## Half an hour',
            '',
            '`python benchmarks/scale/actors.py endurance`. PPO on CartPole, 1 learner and 4 actors. Resident memory '
            'and open handles, of the learner first, then of the actors.',
            '',
            *header(
                *('engine', 'minutes', 'steps', 'episodes', 'MB after a minute', 'MB at the end'),
                *('handles after a minute', 'handles at the end'),
            ),
        ]
        for name in names:
            found = results[name]['row']
            cells = [f'{found["minutes"]:.0f}', f'{found["steps"]:,}', f'{found["episodes"]:,}']
            for what in ('megabytes', 'handles'):
                for when in ('after_a_minute', 'at_the_end'):
                    cells.append(', '.join(map(str, found[f'{what}_{when}'])))
            lines.append(row(f'`{name.split()[1]}`', *cells))
        lines += [line for name in names for line in ('', f'`{name}`: {results[name]["versions"]}')] + ['']
    if names := [name for name in (f'deaths {engine}' for engine in ENGINES) if name in results]:
        lines += [
            '## kill -9 in mid-training',
            '',
            'PPO on CartPole with ' + ', '.join(f'{n} {role}' for role, n in ROLES.items()) + '. Seconds from the kill '
            'to the end of the job; for an actor on `local`, to 5,000 more steps of training.',
            '',
            *header(
                *('engine', 'killed', 'outcome', 'seconds', 'processes left', 'last checkpoint loads', 'message'),
            ),
        ]
        notes = []
        for name in names:
            rows = results[name]['rows']
            for r in rows:
                loads = 'yes' if r['checkpoint'] else '**no**'
                cells = (r['victim'], r['outcome'], r['seconds'], r['left_over'], loads, r['message'])
                lines.append(row(f'`{r["engine"]}`', *cells))
            if roles := rows[0].get('roles'):
                notes += [
                    '',
                    f'The roles behind the ranks of `{rows[0]["engine"]}` are in the first line of its log: "{roles}"',
                ]
            notes += ['', f'`{name}`: {results[name]["versions"]}']
        lines += notes
    write_page('actors', lines)


def main() -> None:
    """The command."""
    parser = parser_of(__doc__)
    parser.add_argument('what', choices=['scaling', 'actor', 'endurance', 'deaths'])
    parser.add_argument('--minutes', type=float, default=30.0, help='of endurance')
    parser.add_argument('--engine', action='append', choices=ENGINES, help='of endurance, deaths')
    parser.add_argument('--alg', choices=list(SCALED), default='PPO', help='of scaling')
    options = parser.parse_args()
    parts: dict[str, Any] = {}
    if options.what == 'scaling':
        name = 'scaling' if options.alg == 'PPO' else f'scaling {options.alg}'
        parts[name] = {'rows': scaling([1, 2, 4, 8, 16], options.alg)}
    elif options.what == 'actor':
        parts['actor'] = {'row': actor()}
    elif options.what == 'endurance':
        for engine in options.engine or ['local', 'mpi']:
            parts[f'endurance {engine}'] = {'row': endurance(engine, options.minutes)}
    else:
        for engine in options.engine or ['local', 'mpi']:
            parts[f'deaths {engine}'] = {'rows': [death(engine, victim) for victim in VICTIMS]}
    measured = stamp('tensorflow', 'numpy', 'gymnasium', 'mpi4py') + '.'
    results = read_results('actors') | {name: {'versions': measured, **part} for name, part in parts.items()}
    write_results('actors', results)
    report(results)


if __name__ == '__main__':
    main()
