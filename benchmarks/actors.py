"""What training with roles costs and stands: actors on a slow environment, one actor's size, half an hour, deaths.

    python benchmarks/actors.py scaling               # 1 to 16 actors, an environment of 5 ms a step; three minutes
    python benchmarks/actors.py scaling --alg IMPALA  # the same with rollouts that are taken as they come
    python benchmarks/actors.py actor                 # memory and start of the actor of an MLP policy
    python benchmarks/actors.py endurance             # 30 minutes with 4 actors: memory and open handles
    python benchmarks/actors.py deaths                # kill -9 of each role in mid-training

The last two are for the engines local and mpi, or for those that are named: --engine kungfu, where kungfu-run is on the
path.

Each writes its part of results/actors.json, from which results/actors.md is made.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import gymnasium

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).resolve().parent / 'results'
STEP = 5e-3
ENGINES = ('local', 'mpi', 'kungfu')
#: How `local`, `mpirun` and `kungfu-run` tell that a rank was killed.
MESSAGE = (
    r'rank \d+ \([^)]*\) was killed by \w+.*'
    r'|process rank \d+ [^.]*? exited on\s+signal \d+ \(\w+\)'
    r'|#<[^>]*> exited with error: signal: killed'
)
#: The roles of the trainings in which ranks are killed, and the rank of each that is.
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
    """An algorithm with the parameters tuned for CartPole, and those of its ``learn``."""
    from zoo import algorithms, call_default_params

    alg_params, learn_params = call_default_params(env, 'classic_control', alg, seed=0)
    return getattr(algorithms, alg)(**alg_params), learn_params | {'run_dir': False, 'progress_bar': False} | params


#: What of each algorithm is changed for the slow environment: an update for each 128 steps of every actor, or for each
#: 160 steps of all.
SCALED: dict[str, dict[str, int]] = {
    'PPO': {'horizon': 128, 'epochs': 10, 'batch_size': 64},
    'IMPALA': {'horizon': 20, 'rollouts': 8},
}


def scaling(actors: list[int], alg: str, rounds: int = 32, size: int = 128) -> list[dict[str, float]]:
    """Steps per second for several numbers of actors, in rounds of 128 steps of each.

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
    """The processes that this one has started, by their id, with their command lines."""
    listing = subprocess.run(['ps', '-o', 'pid=,args=', '--ppid', str(os.getpid())], capture_output=True, text=True)
    found = {}
    for line in listing.stdout.splitlines():
        pid, _, command = line.strip().partition(' ')
        if 'spawn_main' in command:
            found[int(pid)] = command
    return found


def resident(pid: int) -> float:
    """Resident memory of a process, MB; of this it shares the pages of Python and its libraries with its siblings."""
    text = Path(f'/proc/{pid}/status').read_text()
    return int(re.search(r'VmRSS:\s+(\d+)', text)[1]) / 1024


def actor(rounds: int = 5) -> dict[str, Any]:
    """Memory of an actor in mid-training, whether it has TensorFlow, and the time from its start to its first step."""
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

agent.learn(env, callbacks=[look], **learn_params | dict(roles=roles, train_steps=10**9, progress_bar=False, {params}))
"""


def launchers(engine: str, ranks: int, script: str) -> list[str]:
    """The command that starts a program on so many ranks."""
    here = Path(sys.executable).parent
    if engine == 'local':
        return [sys.executable, '-m', 'zoo.distributed.run', '-np', str(ranks), script]
    if engine == 'mpi':
        mpirun = shutil.which('mpirun') or str(here / 'mpirun')
        return [mpirun, '--oversubscribe', '-n', str(ranks), sys.executable, script]
    return ['kungfu-run', '-q', '-np', str(ranks), '-H', f'127.0.0.1:{ranks}', sys.executable, script]


class Program:
    """A training on CartPole under a launcher; leaving the block ends it.

    Args:
        engine: whose launcher.
        roles: of the training.
        params: of ``learn``, as its source text.
    """

    def __init__(self, engine: str, roles: dict[str, int], params: str) -> None:
        self.ranks = roles.get('learners', 1) + sum(number for role, number in roles.items() if role != 'learners')
        self.folder = Path(tempfile.mkdtemp())
        script = self.folder / 'program.py'
        script.write_text(PROGRAM.format(roles=roles, folder=str(self.folder), params=params))
        environment = os.environ | {
            'PYTHONPATH': os.pathsep.join(filter(None, [str(ROOT), os.environ.get('PYTHONPATH')])),
            'OMPI_ALLOW_RUN_AS_ROOT': '1',
            'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1',
            'TF_CPP_MIN_LOG_LEVEL': '3',
        }
        command = launchers(engine, self.ranks, str(script))
        with open(self.folder / 'log', 'w') as log:
            self.process = subprocess.Popen(
                command, cwd=self.folder, env=environment, stdout=log, stderr=subprocess.STDOUT
            )

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
        """Steps and episodes so far."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            steps, episodes = (self.folder / 'progress').read_text().split()
            return int(steps), int(episodes)
        return 0, 0

    def log(self) -> str:
        """What was printed, without colours."""
        return re.sub(r'\x1b\[[0-9;]*m', '', (self.folder / 'log').read_text())


def wait_for(condition: Any, seconds: float) -> bool:
    """Wait until something is true; whether it has become so."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not condition():
        time.sleep(0.02)
    return bool(condition())


def endurance(engine: str, minutes: float = 30.0, every: float = 10.0) -> dict[str, Any]:
    """Memory and open handles of the learner and of 4 actors, from the first minute to the last."""
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
    """Kill a rank by ``kill -9`` in mid-training, and see how the job ends (or goes on, for an actor on ``local``)."""
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
    """Whether a process is there and not merely waiting for somebody to read its exit status."""
    try:
        return Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[0] != 'Z'
    except FileNotFoundError:
        return False


def checkpoint_is_good(run: Path) -> bool:
    """Whether the newest checkpoint can be loaded, in a process of its own."""
    code = f'import zoo; print(zoo.load({str(run)!r}).steps)'
    environment = os.environ | {'PYTHONPATH': str(ROOT)}
    return subprocess.run([sys.executable, '-c', code], env=environment, capture_output=True).returncode == 0


def versions() -> str:
    """One line of where and when."""
    packages = ', '.join(f'{name} {metadata.version(name)}' for name in ('tensorflow', 'numpy', 'gymnasium', 'mpi4py'))
    today = datetime.date.today().isoformat()
    return f'{today}. Python {platform.python_version()}, {packages}, {platform.system()}, {os.cpu_count()} cores.'


def write(results: dict[str, Any]) -> None:
    """The tables of results/actors.md."""
    lines = ['# Training with roles', '', 'Made by `benchmarks/actors.py`; every part says when.', '']
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
            f'`python benchmarks/actors.py scaling --alg {alg}`. {part["versions"]} CartPole with {STEP * 1000:g} ms '
            f'of sleep in a step, {updates}, one learner, all on one machine.',
            '',
            '| actors | steps per second | times one actor |',
            '|---|---|---|',
            *(f'| {r["actors"]} | {r["steps_per_second"]:.0f} | {r["ratio"]:.2f} |' for r in part['rows']),
            '',
        ]
    if part := results.get('actor'):
        row = part['row']
        seconds = row['start_seconds']
        lines += [
            '## One actor',
            '',
            f'`python benchmarks/actors.py actor`. {part["versions"]} PPO with an MLP, CartPole, {len(seconds)} runs.',
            '',
            '| what | figure |',
            '|---|---|',
            f'| resident memory, the largest | {row["megabytes"]:.0f} MB |',
            f'| TensorFlow loaded | {"yes" if row["tensorflow"] else "no"} |',
            f'| from the start of its process to its first step | {statistics.median(seconds):.2f} s '
            f'(median; largest {seconds[-1]:.2f} s) |',
            '',
        ]
    if any(f'endurance {engine}' in results for engine in ENGINES):
        lines += [
            '## Half an hour',
            '',
            '`python benchmarks/actors.py endurance`. PPO on CartPole, 1 learner and 4 actors. Resident memory and '
            'open handles, of the learner first, then of the actors.',
            '',
            '| engine | minutes | steps | episodes | MB after a minute | MB at the end | handles after a minute | '
            'handles at the end |',
            '|---|---|---|---|---|---|---|---|',
        ]
        notes = []
        for name in (f'endurance {engine}' for engine in ENGINES if f'endurance {engine}' in results):
            row = results[name]['row']
            cells = [f'`{name.split()[1]}`', f'{row["minutes"]:.0f}', f'{row["steps"]:,}', f'{row["episodes"]:,}']
            for what in ('megabytes', 'handles'):
                for when in ('after_a_minute', 'at_the_end'):
                    cells.append(', '.join(map(str, row[f'{what}_{when}'])))
            lines.append(f'| {" | ".join(cells)} |')
            notes.append(f'`{name}`: {results[name]["versions"]}')
        lines += ['', *(line for note in notes for line in (note, ''))]
    if any(f'deaths {engine}' in results for engine in ENGINES):
        lines += [
            '## kill -9 in mid-training',
            '',
            'PPO on CartPole with ' + ', '.join(f'{n} {role}' for role, n in ROLES.items()) + '. Seconds from the kill '
            'to the end of the job; for an actor on `local`, to 5,000 more steps of training.',
            '',
            '| engine | killed | outcome | seconds | processes left | last checkpoint loads | message |',
            '|---|---|---|---|---|---|---|',
        ]
        notes = []
        for name in (f'deaths {engine}' for engine in ENGINES if f'deaths {engine}' in results):
            for r in results[name]['rows']:
                lines.append(
                    f'| `{r["engine"]}` | {r["victim"]} | {r["outcome"]} | {r["seconds"]} | {r["left_over"]} | '
                    f'{"yes" if r["checkpoint"] else "**no**"} | {r["message"]} |'
                )
            if roles := results[name]['rows'][0].get('roles'):
                notes.append(
                    f'The roles behind the ranks of `{results[name]["rows"][0]["engine"]}` are in the first line '
                    f'of its log: "{roles}"'
                )
            notes.append(f'`{name}`: {results[name]["versions"]}')
        lines += ['', *(line for note in notes for line in (note, ''))]
    (RESULTS / 'actors.md').write_text('\n'.join(lines).rstrip() + '\n')


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('what', choices=['scaling', 'actor', 'endurance', 'deaths'])
    parser.add_argument('--minutes', type=float, default=30.0, help='of endurance')
    parser.add_argument('--engine', action='append', choices=ENGINES, help='of endurance, deaths')
    parser.add_argument('--alg', choices=list(SCALED), default='PPO', help='of scaling')
    options = parser.parse_args()
    path = RESULTS / 'actors.json'
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
    results = json.loads(path.read_text()) if path.exists() else {}
    for name, part in parts.items():
        results[name] = {'versions': versions(), **part}
    path.write_text(json.dumps(results, indent=1) + '\n')
    write(results)


if __name__ == '__main__':
    main()
