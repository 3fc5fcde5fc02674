"""Training steps per second of zoo, Stable-Baselines3 (and sb3-contrib), SBX and rejax, alternating in one run.

    python benchmarks/throughput.py                 # every task, about an hour
    python benchmarks/throughput.py --task sac      # one of them
    python benchmarks/throughput.py --before DIR    # beside another checkout of zoo: ``results/change.md``

Each task's rates are kept in ``results/throughput.json``, and ``results/throughput.md`` is written from it.

The peers live in a virtual environment of their own, made beside this file at the first run (PyTorch for CPUs and JAX:
about 1.5 GB). Each library trains in a process of its own, which stays alive: all are started and warmed up first
(networks compiled, replay buffers past their first random steps), and then take turns, one measured piece of training
each, so that a drift of the machine's speed meets all of them alike. What is compared is the median over rounds of the
ratio of two pieces of one round.

Networks, batch sizes, copies of the environment, numbers of updates and random first steps are the same; everything
else is each library's default. Evaluation, checkpoints and logs are off. Learning rates stay where they begin, and DQN
explores with the probability at which its schedule ends, TD3 with noise of 0.1, so that every piece is the same work.

The tasks named ``-zoo``, ``-mujoco`` and ``-atari`` have the tuned settings that RL Baselines3 Zoo publishes
(DLR-RM/rl-baselines3-zoo, commit 22e3ff2, MIT licence), as far as they decide how much work there is, but for
``learning_starts``, which is shortened, since it only says when updates begin, and for DQN's replay buffer on Atari,
which is a tenth.

``zoo-bf16`` is zoo with ``dtype='mixed_bfloat16'``: the products of its networks are of bfloat16. ``rejax`` is PPO
whose environment, written in JAX (gymnax), is compiled with the update: the mark that compiled environments set. One
piece of it is one compiled call; nothing of its evaluation remains (the first one is skipped, and what is called after
the last step is replaced by nothing). It updates actor and critic by an optimiser each, and clips no gradient's norm.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import functools
import importlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PEERS_VENV = HERE / '.peers'
RESULTS = HERE / 'results' / 'throughput.json'
PEERS = (
    'torch==2.13.0',
    'stable-baselines3==2.9.2',
    'sb3-contrib==2.9.2',
    'sbx-rl==0.28.0',
    'jax==0.10.2',
    'rejax==0.1.3',
    'gymnax==0.0.9',
    'gymnasium[mujoco]==1.4.0',
    'mujoco==3.10.0',
    'ale-py==0.12.1',
    'opencv-python-headless>=4.10,<6',
)
LIBRARIES = {
    'zoo': 'zoo',
    'zoo-bf16': 'zoo, bfloat16',
    'sb3': 'Stable-Baselines3',
    'contrib': 'sb3-contrib',
    'sbx': 'SBX',
    'rejax': 'rejax',
}
#: What the report compares, by the names that a task's bars have.
RATIOS = {
    'sb3': ('zoo', 'sb3'),
    'contrib': ('zoo', 'contrib'),
    'sbx': ('zoo', 'sbx'),
    'bf16': ('zoo-bf16', 'sb3'),
}
#: Peers by the package that each is imported as.
PACKAGES = {'sb3': 'stable_baselines3', 'contrib': 'sb3_contrib', 'sbx': 'sbx'}

#: A function that trains so many more steps.
Train = Callable[[int], Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """The same work for every library; settings have the names of Stable-Baselines3.

    Attributes:
        alg, env, type: of zoo; the peers take the first two.
        nenv, vectorized: copies of the environment, and how zoo steps them.
        net_arch: hidden layers; on Atari those after the Nature CNN and its 512 features.
        n_steps, n_epochs: of the algorithms on rollouts; TRPO's epochs are those of its critic.
        recurrent: units of an LSTM that policy and value share; 0: there is none.
        train_freq to target_update_interval: of the others; None leaves the last to the library.
        double_q: of zoo's DQN; the peers have none of it.
        fused: zoo takes so many steps, and then all of their updates in one call.
        learns: False only steps and acts.
        warm, piece: steps before measuring, and of one measured piece, which lasts a few seconds for the fastest
            library; whole numbers of iterations.
        libraries: who takes part.
        bars: the ratios aimed at, by the names in ``RATIOS``.
    """

    title: str
    alg: str
    env: str
    type: str
    nenv: int = 1
    vectorized: bool | str = False
    net_arch: tuple[int, ...] = ()
    learning_rate: float = 3e-4
    batch_size: int = 256
    n_steps: int = 128
    n_epochs: int = 4
    recurrent: int = 0
    train_freq: int = 1
    gradient_steps: int = 1
    learning_starts: int = 1000
    buffer_size: int = 100_000
    target_update_interval: int | None = None
    exploration_final_eps: float = 0.05
    double_q: bool = True
    fused: int = 1
    learns: bool = True
    warm: int
    piece: int
    libraries: tuple[str, ...] = ('zoo', 'zoo-bf16', 'sb3', 'sbx')
    bars: Mapping[str, float] = dataclasses.field(default_factory=dict)


TASKS = {
    'ppo': Task(
        title='PPO, 8 copies of `CartPole-v1`, 256 steps each, 10 epochs, minibatch 64, 64×64',
        alg='PPO',
        env='CartPole-v1',
        type='classic_control',
        nenv=8,
        net_arch=(64, 64),
        batch_size=64,
        n_steps=256,
        n_epochs=10,
        warm=4096,
        piece=20_480,
        libraries=('zoo', 'sb3', 'sbx', 'rejax'),
        bars={'sb3': 11, 'sbx': 6},
    ),
    'sac': Task(
        title='SAC, `Pendulum-v1`, 256×256, batch 256, one update a step',
        alg='SAC',
        env='Pendulum-v1',
        type='classic_control',
        net_arch=(256, 256),
        warm=1200,
        piece=600,
        bars={'sb3': 2.5, 'sbx': 1.3, 'bf16': 4},
    ),
    'td3': Task(
        title='TD3, `HalfCheetah-v5`, 256×256, batch 256, one update a step',
        alg='TD3',
        env='HalfCheetah-v5',
        type='mujoco',
        net_arch=(256, 256),
        warm=1200,
        piece=600,
        bars={'sb3': 2.2, 'sbx': 1.4, 'bf16': 3},
    ),
    'dqn': Task(
        title='DQN, `CartPole-v1`, 64×64, batch 64, one update a step',
        alg='DQN',
        env='CartPole-v1',
        type='classic_control',
        net_arch=(64, 64),
        batch_size=64,
        warm=1500,
        piece=2000,
        libraries=('zoo', 'sb3', 'sbx'),
        bars={'sb3': 2.6, 'sbx': 2.5},
    ),
}
#: The same work with the updates of eight steps done in one call after them.
TASKS['sac8'] = dataclasses.replace(
    TASKS['sac'],
    title='SAC as above, zoo with `update_every=8, updates=8`: eight steps, then their eight updates in one call',
    fused=8,
    bars={'sb3': 2.5, 'sbx': 1},
)
TASKS['td38'] = dataclasses.replace(
    TASKS['td3'],
    title='TD3 as above, zoo with `update_every=8, updates=8`',
    fused=8,
    bars={'sb3': 2.5, 'sbx': 1},
)
TASKS['sac-mujoco'] = dataclasses.replace(
    TASKS['sac'],
    title='SAC, `HalfCheetah-v5`, tuned: 256×256, batch 256, one update a step',
    env='HalfCheetah-v5',
    type='mujoco',
    buffer_size=1_000_000,
    bars={},
)
TASKS['td3-mujoco'] = dataclasses.replace(
    TASKS['td3'],
    title='TD3, `HalfCheetah-v5`, tuned: 400×300, batch 256, one update a step',
    net_arch=(400, 300),
    learning_rate=1e-3,
    buffer_size=1_000_000,
    bars={},
)
TASKS['dqn-zoo'] = dataclasses.replace(
    TASKS['dqn'],
    title='DQN, `CartPole-v1`, tuned: 256×256, batch 64, 128 updates after every 256 steps, zoo with `double_q=False`',
    net_arch=(256, 256),
    learning_rate=2.3e-3,
    train_freq=256,
    gradient_steps=128,
    target_update_interval=10,
    exploration_final_eps=0.04,
    double_q=False,
    warm=1280,
    piece=10_240,
    libraries=('zoo', 'zoo-bf16', 'sb3', 'sbx'),
    bars={'sb3': 4, 'sbx': 3},
)
#: SBX takes no part on Atari: in PPO its actor and its critic have a CNN each, where those of the others share one, and
#: in DQN the gradient of XLA's convolutions takes a core about a second an update.
TASKS['ppo-atari'] = Task(
    title='PPO, 8 copies of `PongNoFrameskip-v4`, tuned: 128 steps each, 4 epochs, minibatch 256, Nature CNN on '
    '84×84×4, zoo with `vectorized=True`',
    alg='PPO',
    env='PongNoFrameskip-v4',
    type='atari',
    nenv=8,
    vectorized=True,
    learning_rate=2.5e-4,
    warm=1024,
    piece=4096,
    libraries=('zoo', 'zoo-bf16', 'sb3'),
    bars={'sb3': 1.5, 'bf16': 3},
)
TASKS['dqn-atari'] = Task(
    title='DQN, `PongNoFrameskip-v4`, tuned: batch 32, one update every 4 steps, Nature CNN on 84×84×4, zoo with '
    '`double_q=False`',
    alg='DQN',
    env='PongNoFrameskip-v4',
    type='atari',
    learning_rate=1e-4,
    batch_size=32,
    train_freq=4,
    buffer_size=10_000,
    target_update_interval=1000,
    exploration_final_eps=0.01,
    double_q=False,
    warm=1200,
    piece=1000,
    libraries=('zoo', 'zoo-bf16', 'sb3'),
    bars={'sb3': 1.5, 'bf16': 2.5},
)
#: Stepping and acting alone, without learning: the same preprocessing, the Nature CNN, samples of the policy.
TASKS['collect'] = dataclasses.replace(
    TASKS['ppo-atari'],
    title='collecting with PPO, 8 copies of `PongNoFrameskip-v4`, Nature CNN on 84×84×4, zoo with `vectorized=True`',
    learns=False,
    warm=80,
    piece=2000,
    libraries=('zoo', 'sb3'),
    bars={'sb3': 1.5},
)
TASKS['collect-sync'] = dataclasses.replace(
    TASKS['collect'],
    title="collecting as above, zoo with `vectorized='sync'`: all in one thread, as Stable-Baselines3 does it",
    vectorized='sync',
    bars={},
)

TASKS |= {
    'a2c': dataclasses.replace(
        TASKS['ppo'],
        title='A2C, 8 copies of `CartPole-v1`, 5 steps each, 64×64',
        alg='A2C',
        learning_rate=7e-4,
        n_steps=5,
        piece=8_000,
        libraries=('zoo', 'sb3'),
        bars={'sb3': 4},
    ),
    'ppo-lstm': dataclasses.replace(
        TASKS['ppo'],
        title='PPO with an LSTM of 64 besides a layer of 64, 8 copies of `CartPole-v1`, 128 steps each, 10 epochs, '
        'minibatches of two copies',
        net_arch=(64,),
        batch_size=256,
        n_steps=128,
        recurrent=64,
        piece=4096,
        libraries=('zoo', 'contrib'),
        bars={'contrib': 4},
    ),
    'trpo': dataclasses.replace(
        TASKS['ppo'],
        title='TRPO, 8 copies of `CartPole-v1`, 256 steps each, 15 steps of the conjugate gradient, 10 epochs and '
        'minibatches of 128 of the critic, 64×64',
        alg='TRPO',
        learning_rate=1e-3,
        batch_size=128,
        piece=8192,
        libraries=('zoo', 'contrib'),
        bars={'contrib': 4},
    ),
    'qrdqn': dataclasses.replace(
        TASKS['dqn'],
        title='QR-DQN, `CartPole-v1`, 200 quantiles, 64×64, batch 64, one update a step',
        alg='QRDQN',
        warm=1200,
        piece=400,  # an update compares 200 quantiles with 200, in each of 64 transitions
        libraries=('zoo', 'contrib'),
        bars={'contrib': 1.5},
    ),
    'ddpg': dataclasses.replace(
        TASKS['td3'],
        title='DDPG, `Pendulum-v1`, 256×256, batch 256, one update a step',
        alg='DDPG',
        env='Pendulum-v1',
        type='classic_control',
        libraries=('zoo', 'sb3', 'sbx'),
        bars={'sb3': 1.5, 'sbx': 1},
    ),
    'tqc': dataclasses.replace(
        TASKS['sac'],
        title='TQC, `Pendulum-v1`, two critics of 25 quantiles, 256×256, batch 256, one update a step',
        alg='TQC',
        libraries=('zoo', 'contrib', 'sbx'),
        bars={'contrib': 1.5, 'sbx': 1},
    ),
    'crossq': dataclasses.replace(
        TASKS['sac'],
        title='CrossQ, `Pendulum-v1`, 256×256, batch 256, one update a step',
        alg='CrossQ',
        libraries=('zoo', 'contrib', 'sbx'),
        bars={'contrib': 1.5, 'sbx': 1},
    ),
}

ON_POLICY = ('A2C', 'PPO', 'TRPO')
FROM_SPACES = ('observation_space', 'action_space', 'net_list', 'optimizers_list')


def zoo_arguments(task: Task) -> tuple[dict[str, Any], dict[str, Any]]:
    """What zoo's constructor and its ``learn`` take for a task, besides networks and optimisers."""
    made: dict[str, Any]
    learn: dict[str, Any] = {'batch_size': task.batch_size}
    if task.alg in ON_POLICY:
        parts = {
            'A2C': ({}, {}),
            'PPO': ({}, learn | {'epochs': task.n_epochs}),
            'TRPO': ({'cg_iterations': 15}, learn | {'critic_epochs': task.n_epochs}),  # as many as the peer's default
        }
        made, learn = parts[task.alg]
        return made, learn | {'horizon': task.n_steps}
    learn |= {
        'update_every': task.train_freq * task.fused,
        'updates': task.gradient_steps * task.fused,
        'explore_steps': task.learning_starts,
        'buffer_size': task.buffer_size,
    }
    if task.alg not in ('DQN', 'QRDQN'):
        return {}, learn
    made = {'epsilon': task.exploration_final_eps}
    if task.alg == 'DQN':
        made['double_q'] = task.double_q
    if task.target_update_interval is not None:
        # The peers count steps of the environment and zoo counts updates, of which there are fewer: the target is moved
        # as many times in all, which is every 5 updates where it is every 10 steps with 128 updates to 256 steps.
        made['target_update_every'] = task.target_update_interval * task.gradient_steps // task.train_freq
    return made, learn


def peer_arguments(library: str, task: Task, actions: tuple[int, ...]) -> dict[str, Any]:
    """What the constructors of Stable-Baselines3 and SBX take for a task, besides the policy and the environment.

    Args:
        library: which of them.
        task: the task.
        actions: shape of an action.
    """
    params: dict[str, Any] = {
        'policy_kwargs': {'net_arch': list(task.net_arch)},
        'batch_size': task.batch_size,
        'learning_rate': task.learning_rate,
        'verbose': 0,
    }
    if library in ('sb3', 'contrib'):
        params['device'] = 'cpu'
    if task.recurrent:
        shared = {'lstm_hidden_size': task.recurrent, 'shared_lstm': True, 'enable_critic_lstm': False}
        params['policy_kwargs'] |= shared
    if task.alg == 'A2C':
        del params['batch_size']
        return params | {'n_steps': task.n_steps}
    if task.alg in ON_POLICY:
        epochs = 'n_critic_updates' if task.alg == 'TRPO' else 'n_epochs'
        return params | {'n_steps': task.n_steps, epochs: task.n_epochs}
    params |= {
        'train_freq': task.train_freq,
        'gradient_steps': task.gradient_steps,
        'learning_starts': task.learning_starts,
        'buffer_size': task.buffer_size,
    }
    if task.alg in ('DQN', 'QRDQN'):
        eps = task.exploration_final_eps
        params |= {'exploration_initial_eps': eps, 'exploration_final_eps': eps}
        if task.target_update_interval is not None:
            params['target_update_interval'] = task.target_update_interval
    if task.alg in ('TD3', 'DDPG'):
        import numpy as np
        from stable_baselines3.common.noise import NormalActionNoise

        params['action_noise'] = NormalActionNoise(np.zeros(actions), np.full(actions, 0.1))
    return params


def zoo_agent(library: str, task: Task) -> tuple[Any, Any]:
    """zoo's agent for a task, and its environment."""
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
    from zoo import algorithms, build_env, call_default_params

    env = build_env(task.env, task.type, task.vectorized, nenv=task.nenv)
    dtype = {'dtype': 'mixed_bfloat16'} if library == 'zoo-bf16' else {}  # an older checkout does not know the name
    dtype |= {'recurrent': 'lstm'} if task.recurrent else {}
    alg_params, _ = call_default_params(env, task.type, task.alg, seed=0, **dtype)
    cls = getattr(algorithms, task.alg)
    alg_params |= {name: default for name, default in cls.params().items() if name not in FROM_SPACES}
    alg_params |= zoo_arguments(task)[0]
    for spec in alg_params['net_list']:
        if isinstance(spec, dict):  # not the name of a network whose layers it shares
            spec['hidden'] = list(task.net_arch)
            if task.recurrent:
                spec['recurrent_units'] = task.recurrent
    for spec in alg_params['optimizers_list']:
        spec['learning_rate'] = task.learning_rate
        if task.alg in ('DQN', 'QRDQN'):
            spec['clip_norm'] = 10.0  # Stable-Baselines3's default, which zoo's for an environment may not have
    return cls(**alg_params), env


def zoo_trainer(library: str, task: Task) -> Train:
    """Training by zoo, or only stepping and acting."""
    agent, env = zoo_agent(library, task)
    from zoo.common.rollouts.collector import Collector

    if task.learns:
        learn = zoo_arguments(task)[1] | {'seed': None, 'progress_bar': False, 'run_dir': False}
        return lambda n: agent.learn(env, 'train', train_steps=n, **learn)
    collector = Collector(env, agent.action_adaptor)
    collector.reset(0)

    def collect(n: int) -> None:
        for _ in range(n // task.nenv):
            collector.step(agent.act(collector.obs))

    return collect


def peer_trainer(library: str, task: Task) -> Train:
    """The same by Stable-Baselines3 or SBX, with the wrappers and the Nature CNN of the former on Atari."""
    peer = importlib.import_module(PACKAGES[library])
    from stable_baselines3.common.env_util import make_atari_env, make_vec_env
    from stable_baselines3.common.vec_env import VecFrameStack

    if task.type == 'atari':
        import ale_py
        import gymnasium

        gymnasium.register_envs(ale_py)
        env = VecFrameStack(make_atari_env(task.env, task.nenv, seed=0), 4)
    else:
        env = make_vec_env(task.env, task.nenv)
    policy = 'CnnPolicy' if task.type == 'atari' else 'MlpLstmPolicy' if task.recurrent else 'MlpPolicy'
    alg = 'RecurrentPPO' if task.recurrent else task.alg
    model = getattr(peer, alg)(policy, env, **peer_arguments(library, task, env.action_space.shape))
    if task.learns:
        return lambda n: model.learn(n, reset_num_timesteps=False)
    env = model.get_env()
    state = {'obs': env.reset()}

    def collect(n: int) -> None:
        for _ in range(n // task.nenv):
            actions, _ = model.predict(state['obs'], deterministic=False)  # it runs the actor alone
            state['obs'], *_ = env.step(actions)

    return collect


def rejax_trainer(library: str, task: Task) -> Train:
    """The same by rejax, in one compiled call, which is compiled for the number of steps."""
    import jax
    import rejax

    algo = (
        getattr(rejax, task.alg)
        .create(
            env=task.env,
            num_envs=task.nenv,
            num_steps=task.n_steps,
            num_epochs=task.n_epochs,
            num_minibatches=task.nenv * task.n_steps // task.batch_size,
            learning_rate=task.learning_rate,
            agent_kwargs={'activation': 'tanh', 'hidden_layer_sizes': task.net_arch},
            skip_initial_evaluation=True,
        )
        .replace(eval_callback=lambda *_: ())
    )
    state = [algo.init_state(jax.random.PRNGKey(0))]

    @functools.cache
    def compiled(n: int) -> Callable[[Any], Any]:
        training = algo.replace(total_timesteps=n, eval_freq=n)
        return jax.jit(lambda state: training.train(train_state=state)[0])

    def train(n: int) -> None:
        state[0] = jax.block_until_ready(compiled(n)(state[0]))

    return train


TRAINERS = {
    'zoo': zoo_trainer,
    'zoo-bf16': zoo_trainer,
    'sb3': peer_trainer,
    'contrib': peer_trainer,
    'sbx': peer_trainer,
    'rejax': rejax_trainer,
}


def work(library: str, name: str) -> None:
    """The worker: warm up, then train a piece for every line on standard input and print how long it took."""
    task = TASKS[name]
    train = TRAINERS[library](library, task)
    train(task.warm)
    train(task.piece)  # what is compiled only in full pieces is compiled now
    print(json.dumps({'ready': versions(library)}), flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        train(task.piece)
        print(json.dumps({'seconds': time.perf_counter() - begin}), flush=True)


def versions(library: str) -> dict[str, str]:
    """Versions of what a worker runs on."""
    names = {
        'zoo': ('zoo-rl', 'tensorflow', 'keras', 'numpy', 'gymnasium'),
        'sb3': ('stable-baselines3', 'torch', 'numpy', 'gymnasium'),
        'contrib': ('sb3-contrib', 'stable-baselines3', 'torch', 'numpy', 'gymnasium'),
        'sbx': ('sbx-rl', 'jax', 'flax', 'numpy', 'gymnasium'),
        'rejax': ('rejax', 'gymnax', 'jax', 'flax', 'numpy'),
    }[library.removesuffix('-bf16')]
    found = {'python': platform.python_version()}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # a checkout on the path, not installed
            found[name] = 'checkout'
    return found


def peers_python(folder: Path, packages: Sequence[str]) -> str:
    """The Python of the peers' virtual environment, which is made where it is missing or has other packages.

    Args:
        folder: where it is.
        packages: what is installed into it, PyTorch first.
    """
    python = folder / ('Scripts' if os.name == 'nt' else 'bin') / 'python'
    installed, wanted = folder / 'peers.txt', '\n'.join(packages)
    if not installed.exists() or installed.read_text(encoding='utf-8') != wanted:
        print(f'making {folder.name} for the peers …', flush=True)
        if not python.exists():
            venv.create(folder, with_pip=True)
        # PyTorch first and alone: a resolver that sees it with the others may choose a build with CUDA.
        for group in (packages[:1], packages):
            subprocess.run([str(python), '-m', 'pip', 'install', '-q', *group], check=True)
        installed.write_text(wanted, encoding='utf-8')
    return str(python)


class Worker:
    """One library's process."""

    def __init__(self, python: str, library: str, name: str, checkout: Path = HERE.parent) -> None:
        command = [python, str(HERE / 'throughput.py'), '--worker', library, '--task', name]
        self.library = library
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
            f'the worker of {self.library} ended with status {self.process.wait()}; run it by hand with --worker to '
            'see why.'
        )

    def close(self) -> None:
        """End the process."""
        self.process.stdin.close()
        self.process.wait()


def ratios(rates: Mapping[str, Sequence[float]], one: str, other: str) -> list[float]:
    """How many times as fast one library was as the other in each round."""
    return [a / b for a, b in zip(rates[one], rates[other], strict=True)]


def spread(values: Sequence[float], form: str = '.2f') -> str:
    """The smallest and the largest."""
    return f'{min(values):{form}} to {max(values):{form}}'


def compare(name: str, rounds: int, peers: str, libraries: Sequence[str]) -> dict[str, Any]:
    """All libraries on one task."""
    task = TASKS[name]
    print(f'\n{task.title}', flush=True)
    workers = {
        library: Worker(sys.executable if library.startswith('zoo') else peers, library, name)
        for library in task.libraries
        if library in libraries
    }
    rates: dict[str, list[float]] = {library: [] for library in workers}
    for _ in range(rounds):
        for library, worker in workers.items():
            rates[library].append(task.piece / worker.measure())
    for worker in workers.values():
        worker.close()
    for library, values in rates.items():
        line = f'  {library:8} {statistics.median(values):9.0f} steps/s  ({spread(values, ".0f")})'
        for mine in rates:
            if mine.startswith('zoo') and not library.startswith('zoo'):
                found = ratios(rates, mine, library)
                line += f'   {mine} is {statistics.median(found):.2f} times as fast ({spread(found)})'
        print(line, flush=True)
    return {
        'title': task.title,
        'rates': rates,
        'date': datetime.date.today().isoformat(),
        'versions': {library: worker.versions for library, worker in workers.items()},
    }


def compare_checkouts(names: Sequence[str], rounds: int, before: Path, libraries: Sequence[str]) -> str:
    """The page of this checkout beside another one, taking turns on each task."""
    lines = [
        '# Training throughput before and after a change',
        '',
        f'`python benchmarks/throughput.py --before DIR`, {os.cpu_count()} cores, no GPU; before is '
        f'{commit(before)}. Steps per second, median over {rounds} rounds in which the two took turns; the ratio is '
        'the median of the ratios within a round, with the smallest and the largest.',
        '',
        '| work | before | after | after / before |',
        '|---|---|---|---|',
    ]
    for name in names:
        task = TASKS[name]
        for library in (x for x in task.libraries if x.startswith('zoo') and x in libraries):
            title = task.title + (', `mixed_bfloat16`' if library == 'zoo-bf16' else '')
            workers = {'after': Worker(sys.executable, library, name)}
            try:
                workers = {'before': Worker(sys.executable, library, name, before)} | workers
            except RuntimeError:
                workers['after'].close()
                lines.append(f'| {title} | does not run | | |')
                print(lines[-1], flush=True)
                continue
            rates: dict[str, list[float]] = {when: [] for when in workers}
            for _ in range(rounds):
                for when, worker in workers.items():
                    rates[when].append(task.piece / worker.measure())
            for worker in workers.values():
                worker.close()
            found = ratios(rates, 'after', 'before')
            medians = ' | '.join(f'{statistics.median(values):,.0f}' for values in rates.values())
            lines.append(f'| {title} | {medians} | {statistics.median(found):.2f} ({spread(found)}) |')
            print(lines[-1], flush=True)
    lines += ['', 'Versions: ' + ', '.join(f'{name} {version}' for name, version in versions('zoo').items()) + '.']
    return '\n'.join([*lines, '', f'Run on {datetime.date.today().isoformat()}.', ''])


def commit(checkout: Path) -> str:
    """What is checked out there."""
    found = subprocess.run(['git', '-C', str(checkout), 'rev-parse', '--short', 'HEAD'], capture_output=True, text=True)
    return found.stdout.strip() or 'an unknown commit'


def report(results: dict[str, Any]) -> str:
    """The result page; what a result of an earlier run lacks is said to be not measured."""
    columns = [library for library in LIBRARIES if library != 'rejax']
    titles = [*(LIBRARIES[x] for x in columns), *(' / '.join(LIBRARIES[x] for x in pair) for pair in RATIOS.values())]
    lines = [
        '# Training throughput',
        '',
        f'`python benchmarks/throughput.py`, {os.cpu_count()} cores, no GPU. Steps per second, median over the '
        'rounds in which the libraries took turns; ratios are medians of the ratios within a round, with their '
        'smallest and largest. Compare ratios, not steps per second: those are this machine on that day. Bfloat16 is '
        "`dtype='mixed_bfloat16'`. Tuned settings are those that RL Baselines3 Zoo publishes.",
        '',
        f'| work | rounds | {" | ".join(titles)} |',
        '|---' * (2 + len(titles)) + '|',
    ]
    notes = []
    for name, result in results.items():
        task, rates = TASKS[name], result['rates']
        cells = [task.title, str(len(rates['zoo']))]
        for library in columns:
            known = f'{statistics.median(rates[library]):,.0f}' if library in rates else 'not measured'
            cells.append(known if library in task.libraries else '')
        for bar, pair in RATIOS.items():
            aim = f'; aim {task.bars[bar]:g}' if bar in task.bars else ''
            if all(library in rates for library in pair):
                found = ratios(rates, *pair)
                cells.append(f'**{statistics.median(found):.2f}** ({spread(found)}{aim})')
            else:
                cells.append(f'not measured{aim}' if all(library in task.libraries for library in pair) else '')
        lines.append('| ' + ' | '.join(cells) + ' |')
        if 'rejax' in rates:
            found = ratios(rates, 'zoo', 'rejax')
            notes += [
                '',
                f'{task.title}: rejax, whose environment is compiled with the update, made '
                f'{statistics.median(rates["rejax"]):,.0f} steps per second in the same run; zoo / rejax is '
                f'**{statistics.median(found):.2f}** ({spread(found)}).',
            ]
    lines += [*notes, '', 'Versions:', '']
    known_versions = {library: found for result in results.values() for library, found in result['versions'].items()}
    for library, found in known_versions.items():
        if library != 'zoo-bf16':  # those of zoo
            lines.append(f'* {library}: ' + ', '.join(f'{name} {version}' for name, version in found.items()))
    dates = sorted({result['date'] for result in results.values()})
    lines += ['', f'Run on {" and ".join(dates)}.']
    return '\n'.join(lines) + '\n'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--task', choices=[*TASKS, 'all'], default='all')
    parser.add_argument('--rounds', type=int, default=7, help='pieces of each library')
    parser.add_argument('--peers-python', help='Python that has the peers, instead of the environment made here')
    parser.add_argument('--libraries', default=','.join(LIBRARIES))
    parser.add_argument('--before', type=Path, help='another checkout of zoo, to compare this one with')
    parser.add_argument('--worker', choices=LIBRARIES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(args.worker, args.task)
        return
    libraries = args.libraries.split(',')
    if args.before:
        learning = [name for name, task in TASKS.items() if task.learns and task.fused == 1]
        names = learning if args.task == 'all' else [args.task]
        page = compare_checkouts(names, args.rounds, args.before.resolve(), libraries)
        RESULTS.with_name('change.md').write_text(page, encoding='utf-8')
        return
    peers = args.peers_python or peers_python(PEERS_VENV, PEERS)
    names = list(TASKS) if args.task == 'all' else [args.task]
    for name in names:
        found = compare(name, args.rounds, peers, libraries)
        # Read again before writing: results of other tasks are kept, so that they can be run one by one.
        results = json.loads(RESULTS.read_text(encoding='utf-8')) if RESULTS.exists() else {}
        results[name] = found
        results = {task: results[task] for task in TASKS if task in results}
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=1) + '\n', encoding='utf-8')
        RESULTS.with_suffix('.md').write_text(report(results), encoding='utf-8')


if __name__ == '__main__':
    main()
