"""Training steps per second of zoo, Stable-Baselines3 and SBX on the same work, alternating in one run.

    python benchmarks/throughput.py                 # every task, about 20 minutes
    python benchmarks/throughput.py --task sac      # one of them
    python benchmarks/throughput.py --before DIR    # beside another checkout of zoo: ``results/change.md``

Each task's result is kept in ``results/throughput.json``, and ``results/throughput.md`` is written from it.

The peers live in a virtual environment of their own, made beside this file at the first run (PyTorch for CPUs and JAX:
about 1.5 GB). Each library trains in a process of its own, which stays alive: all are started and warmed up first
(networks compiled, replay buffers past their first random steps), and then take turns, one measured piece of training
each, so that a drift of the machine's speed meets all of them alike. What is compared is the median over rounds of the
ratio of two pieces of one round.

Networks, batch sizes, copies of the environment, numbers of updates and random first steps are the same; everything
else is each library's default. Evaluation, checkpoints and logs are off.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import time
import venv
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PEERS_VENV = HERE / '.peers'
RESULTS = HERE / 'results' / 'throughput.json'
PEERS = (
    'torch==2.13.0',
    'stable-baselines3==2.9.2',
    'sbx-rl==0.28.0',
    'jax==0.10.2',
    'gymnasium[mujoco]==1.4.0',
    'mujoco==3.10.0',
    'ale-py==0.12.1',
    'opencv-python-headless>=4.10,<6',
)

#: Steps of one measured piece are chosen so that it lasts a few seconds for the fastest library.
TASKS: dict[str, dict[str, Any]] = {
    'ppo': {
        'title': 'PPO, 8 copies of `CartPole-v1`, 256 steps each, 10 epochs, minibatch 64, 64×64',
        'alg': 'PPO',
        'env': 'CartPole-v1',
        'type': 'classic_control',
        'nenv': 8,
        'hidden': [64, 64],
        'batch': 64,
        'horizon': 256,
        'epochs': 10,
        'warm': 4096,
        'piece': 20_480,
        'bars': {'sb3': 8.0, 'sbx': 3.0},
    },
    'sac': {
        'title': 'SAC, `Pendulum-v1`, 256×256, batch 256, one update a step',
        'alg': 'SAC',
        'env': 'Pendulum-v1',
        'type': 'classic_control',
        'hidden': [256, 256],
        'batch': 256,
        'warm': 1200,
        'piece': 600,
        'bars': {'sb3': 2.5, 'sbx': 1.0},
    },
    'td3': {
        'title': 'TD3, `HalfCheetah-v5`, 256×256, batch 256, one update a step',
        'alg': 'TD3',
        'env': 'HalfCheetah-v5',
        'type': 'mujoco',
        'hidden': [256, 256],
        'batch': 256,
        'warm': 1200,
        'piece': 600,
        'bars': {'sb3': 2.5, 'sbx': 1.0},
    },
    'dqn': {
        'title': 'DQN, `CartPole-v1`, 64×64, batch 64, one update a step',
        'alg': 'DQN',
        'env': 'CartPole-v1',
        'type': 'classic_control',
        'hidden': [64, 64],
        'batch': 64,
        'warm': 1500,
        'piece': 2000,
        'bars': {'sb3': 3.0},
    },
}
#: The same work with the updates of eight steps done in one call after them.
TASKS['sac8'] = TASKS['sac'] | {
    'title': 'SAC as above, zoo with `update_every=8, updates=8`: eight steps, then their eight updates in one call',
    'every': 8,
}
TASKS['td38'] = TASKS['td3'] | {
    'title': 'TD3 as above, zoo with `update_every=8, updates=8`',
    'every': 8,
}
#: Stepping and acting alone, without learning: the same preprocessing, the Nature CNN, samples of the policy.
TASKS['collect'] = {
    'title': 'collecting with PPO, 8 copies of `PongNoFrameskip-v4`, Nature CNN on 84×84×4, zoo with `vectorized=True`',
    'alg': 'PPO',
    'env': 'PongNoFrameskip-v4',
    'type': 'atari',
    'nenv': 8,
    'collect': True,
    'warm': 80,
    'piece': 2000,
    'libraries': ('zoo', 'sb3'),
    'bars': {'sb3': 1.5},
}
TASKS['collect-sync'] = TASKS['collect'] | {
    'title': "collecting as above, zoo with `vectorized='sync'`: all in one thread, as Stable-Baselines3 does it",
    'collect': 'sync',
    'bars': {},
}

EXPLORE = 1000


def zoo_trainer(task: dict[str, Any]) -> Any:
    """A function that trains ``n`` more steps."""
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
    from zoo import algorithms, build_env, call_default_params

    env = build_env(task['env'], task['type'], nenv=task.get('nenv', 1))
    alg_params, learn_params = call_default_params(env, task['type'], task['alg'], seed=0)
    cls = getattr(algorithms, task['alg'])
    alg_params |= {name: default for name, default in cls.params().items() if name not in FROM_SPACES}
    for spec in alg_params['net_list']:
        spec['hidden'] = task['hidden']
    for spec in alg_params['optimizers_list']:
        spec['learning_rate'] = 3e-4
    agent = cls(**alg_params)
    learn_params = {'batch_size': task['batch'], 'seed': None, 'progress_bar': False}
    if task['alg'] == 'PPO':
        learn_params |= {'horizon': task['horizon'], 'epochs': task['epochs']}
    else:
        every = task.get('every', 1)
        learn_params |= {'buffer_size': 100_000, 'explore_steps': EXPLORE, 'update_every': every}
    return lambda n: agent.learn(env, 'train', run_dir=False, train_steps=n, **learn_params)


def zoo_collector(task: dict[str, Any]) -> Any:
    """A function that takes ``n`` more steps with the policy."""
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
    from zoo import algorithms, build_env, call_default_params
    from zoo.common.collect import Collector

    env = build_env(task['env'], task['type'], task['collect'], nenv=task['nenv'])
    alg_params, _ = call_default_params(env, task['type'], task['alg'], seed=0)
    agent = getattr(algorithms, task['alg'])(**alg_params)
    collector = Collector(env, agent.action_adaptor)
    collector.reset(0)

    def collect(n: int) -> None:
        for _ in range(n // task['nenv']):
            collector.step(agent.act(collector.obs))

    return collect


def peer_collector(task: dict[str, Any]) -> Any:
    """The same with Stable-Baselines3: its wrappers, its Nature CNN, and ``predict``, which runs the actor alone."""
    import ale_py
    import gymnasium
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    gymnasium.register_envs(ale_py)
    env = VecFrameStack(make_atari_env(task['env'], n_envs=task['nenv'], seed=0), n_stack=4)
    model = PPO('CnnPolicy', env, device='cpu', verbose=0)
    state = {'obs': model.get_env().reset()}

    def collect(n: int) -> None:
        for _ in range(n // task['nenv']):
            actions, _ = model.predict(state['obs'], deterministic=False)
            state['obs'], *_ = model.get_env().step(actions)

    return collect


FROM_SPACES = ('observation_space', 'action_space', 'net_list', 'optimizers_list')


def peer_trainer(library: str, task: dict[str, Any]) -> Any:
    """The same for Stable-Baselines3 or SBX."""
    if library == 'sb3':
        import stable_baselines3 as peer
    else:
        import sbx as peer
    import gymnasium
    from stable_baselines3.common.env_util import make_vec_env

    params: dict[str, Any] = {
        'policy_kwargs': {'net_arch': task['hidden']},
        'batch_size': task['batch'],
        'learning_rate': 3e-4,
        'verbose': 0,
    }
    if library == 'sb3':
        params['device'] = 'cpu'
    if task['alg'] == 'PPO':
        env = make_vec_env(task['env'], task['nenv'])
        params |= {'n_steps': task['horizon'], 'n_epochs': task['epochs']}
    else:
        env = gymnasium.make(task['env'])
        params |= {'train_freq': 1, 'gradient_steps': 1, 'buffer_size': 100_000, 'learning_starts': EXPLORE}
    model = getattr(peer, task['alg'])('MlpPolicy', env, **params)
    return lambda n: model.learn(n, reset_num_timesteps=False)


def work(library: str, name: str) -> None:
    """The worker: warm up, then train a piece for every line on standard input and print how long it took."""
    task = TASKS[name]
    if 'collect' in task:
        train = zoo_collector(task) if library == 'zoo' else peer_collector(task)
    else:
        train = zoo_trainer(task) if library == 'zoo' else peer_trainer(library, task)
    train(task['warm'])
    train(task['piece'])  # what is compiled only in full pieces is compiled now
    print(json.dumps({'ready': versions(library)}), flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        train(task['piece'])
        print(json.dumps({'seconds': time.perf_counter() - begin}), flush=True)


def versions(library: str) -> dict[str, str]:
    """Versions of what a worker runs on."""
    names = {
        'zoo': ('zoo-rl', 'tensorflow', 'keras', 'numpy', 'gymnasium'),
        'sb3': ('stable-baselines3', 'torch', 'numpy', 'gymnasium'),
        'sbx': ('sbx-rl', 'jax', 'flax', 'numpy', 'gymnasium'),
    }[library]
    found = {'python': platform.python_version()}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # a checkout on the path, not installed
            found[name] = 'checkout'
    return found


def peers_python(given: str | None) -> str:
    """The Python of the peers' virtual environment, which is made when it is missing."""
    if given:
        return given
    python = PEERS_VENV / ('Scripts' if os.name == 'nt' else 'bin') / 'python'
    if not python.exists():
        print(f'making {PEERS_VENV.name} for the peers …', flush=True)
        venv.create(PEERS_VENV, with_pip=True)
        # PyTorch first and alone: a resolver that sees it with the others may choose a build with CUDA.
        for group in (PEERS[:1], PEERS):
            subprocess.run([str(python), '-m', 'pip', 'install', '-q', *group], check=True)
    return str(python)


class Worker:
    """One library's process."""

    def __init__(self, python: str, library: str, name: str, checkout: Path = HERE.parent) -> None:
        command = [python, str(HERE / 'throughput.py'), '--worker', library, '--task', name]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | {'PYTHONPATH': str(checkout)},
        )
        self.versions = self._answer()['ready']

    def measure(self) -> float:
        """Seconds of one piece."""
        self.process.stdin.write('go\n')
        self.process.stdin.flush()
        return self._answer()['seconds']

    def _answer(self) -> dict[str, Any]:
        for line in self.process.stdout:
            if line.startswith('{'):
                return json.loads(line)
        raise RuntimeError(
            f'a worker ended with status {self.process.wait()}; run it by hand with --worker to see why.'
        )

    def close(self) -> None:
        """End the process."""
        self.process.stdin.close()
        self.process.wait()


def compare(name: str, rounds: int, peers: str, libraries: tuple[str, ...]) -> dict[str, Any]:
    """All libraries on one task."""
    task = TASKS[name]
    print(f'\n{task["title"]}', flush=True)
    libraries = tuple(library for library in libraries if library in task.get('libraries', libraries))
    workers = {library: Worker(sys.executable if library == 'zoo' else peers, library, name) for library in libraries}
    seconds: dict[str, list[float]] = {library: [] for library in libraries}
    for _ in range(rounds):
        for library, worker in workers.items():
            seconds[library].append(worker.measure())
    for worker in workers.values():
        worker.close()
    rates = {library: [task['piece'] / s for s in values] for library, values in seconds.items()}
    result: dict[str, Any] = {'title': task['title'], 'rates': rates, 'bars': task['bars'], 'ratios': {}}
    result['date'] = datetime.date.today().isoformat()
    result['versions'] = {library: worker.versions for library, worker in workers.items()}
    for library, values in rates.items():
        line = f'  {library:4} {statistics.median(values):9.0f} steps/s  ({min(values):.0f} to {max(values):.0f})'
        if library != 'zoo':
            ratios = [a / b for a, b in zip(rates['zoo'], values, strict=True)]
            result['ratios'][library] = ratios
            line += f'   zoo is {statistics.median(ratios):.2f} times as fast ({min(ratios):.2f} to {max(ratios):.2f})'
        print(line, flush=True)
    return result


def compare_checkouts(names: Sequence[str], rounds: int, before: Path) -> str:
    """The page of this checkout beside another one, taking turns on each task."""
    lines = [
        '# Training throughput before and after a change',
        '',
        f'`python benchmarks/throughput.py --before DIR`, {os.cpu_count()} cores, no GPU; before is '
        f'{_commit(before)}. Steps per second, median over {rounds} rounds in which the two took turns; the ratio is '
        'the median of the ratios within a round, with the smallest and the largest.',
        '',
        '| work | before | after | after / before |',
        '|---|---|---|---|',
    ]
    for name in names:
        task = TASKS[name]
        workers = [Worker(sys.executable, 'zoo', name, checkout) for checkout in (before, HERE.parent)]
        rates = [[task['piece'] / worker.measure() for worker in workers] for _ in range(rounds)]
        for worker in workers:
            worker.close()
        ratios = [after / before for before, after in rates]
        medians = [f'{statistics.median(column):,.0f}' for column in zip(*rates, strict=True)]
        spread = f'{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})'
        lines.append(f'| {task["title"]} | {" | ".join(medians)} | {spread} |')
        print(lines[-1], flush=True)
    lines += ['', 'Versions: ' + ', '.join(f'{name} {version}' for name, version in workers[1].versions.items()) + '.']
    return '\n'.join([*lines, '', f'Run on {datetime.date.today().isoformat()}.', ''])


def _commit(checkout: Path) -> str:
    found = subprocess.run(['git', '-C', str(checkout), 'rev-parse', '--short', 'HEAD'], capture_output=True, text=True)
    return found.stdout.strip() or 'an unknown commit'


def report(results: dict[str, Any]) -> str:
    """The result page."""
    lines = [
        '# Training throughput',
        '',
        f'`python benchmarks/throughput.py`, {os.cpu_count()} cores, no GPU. Steps per second, median over the '
        'rounds in which the libraries took turns; ratios are medians of the ratios within a round, with their '
        'smallest and largest. Compare ratios, not steps per second: those are this machine on that day.',
        '',
        '| work | rounds | zoo | Stable-Baselines3 | SBX | zoo / Stable-Baselines3 | zoo / SBX |',
        '|---|---|---|---|---|---|---|',
    ]
    for result in results.values():
        rates = {library: f'{statistics.median(values):,.0f}' for library, values in result['rates'].items()}
        ratios = {
            library: f'**{statistics.median(values):.2f}** ({min(values):.2f} to {max(values):.2f}'
            + (f'; aim {result["bars"][library]:g})' if library in result['bars'] else ')')
            for library, values in result['ratios'].items()
        }
        cells = [
            result['title'],
            str(len(result['rates']['zoo'])),
            *(rates.get(x, '') for x in ('zoo', 'sb3', 'sbx')),
            *(ratios.get(x, '') for x in ('sb3', 'sbx')),
        ]
        lines.append('| ' + ' | '.join(cells) + ' |')
    lines += ['', 'Versions:', '']
    versions = {library: found for result in results.values() for library, found in result['versions'].items()}
    for library, found in versions.items():
        lines.append(f'* {library}: ' + ', '.join(f'{name} {version}' for name, version in found.items()))
    dates = sorted({result['date'] for result in results.values()})
    lines += ['', f'Run on {" and ".join(dates)}.']
    return '\n'.join(lines) + '\n'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--task', choices=[*TASKS, 'all'], default='all')
    parser.add_argument('--rounds', type=int, default=7, help='pieces of each library')
    parser.add_argument('--peers-python', help='Python that has the peers, instead of the environment made here')
    parser.add_argument('--libraries', default='zoo,sb3,sbx')
    parser.add_argument('--before', type=Path, help='another checkout of zoo, to compare this one with')
    parser.add_argument('--worker', help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(args.worker, args.task)
        return
    if args.before:
        names = ('ppo', 'sac', 'td3', 'dqn') if args.task == 'all' else (args.task,)
        page = compare_checkouts(names, args.rounds, args.before.resolve())
        RESULTS.with_name('change.md').write_text(page, encoding='utf-8')
        return
    peers = peers_python(args.peers_python)
    names = list(TASKS) if args.task == 'all' else [args.task]
    for name in names:
        found = compare(name, args.rounds, peers, tuple(args.libraries.split(',')))
        # Read again before writing: results of other tasks are kept, so that they can be run one by one.
        results = json.loads(RESULTS.read_text(encoding='utf-8')) if RESULTS.exists() else {}
        results[name] = found
        results = {task: results[task] for task in TASKS if task in results}
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=1) + '\n', encoding='utf-8')
        RESULTS.with_suffix('.md').write_text(report(results), encoding='utf-8')


if __name__ == '__main__':
    main()
