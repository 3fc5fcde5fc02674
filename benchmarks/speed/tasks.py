"""The works that ``throughput.py`` measures: algorithm, environment, sizes and aims.

The tasks named ``-zoo``, ``-mujoco`` and ``-atari`` have the tuned settings that RL Baselines3 Zoo publishes
(DLR-RM/rl-baselines3-zoo, commit 22e3ff2, MIT license), as far as they decide how much work there is. Two settings
differ: ``learning_starts`` is shortened, because it only says when updates begin, and DQN's replay buffer on Atari has
a tenth of its size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

#: What the report compares, by the names that a task's bars have.
RATIOS = {
    'sb3': ('zoo', 'sb3'),
    'contrib': ('zoo', 'contrib'),
    'sbx': ('zoo', 'sbx'),
    'bf16': ('zoo-bf16', 'sb3'),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """The same work for every library; settings have the names of Stable-Baselines3.

    Attributes:
        alg, env, type: of zoo; the peers take the first two.
        nenv, vectorized: copies of the environment, and how zoo steps them.
        net_arch: hidden layers; on Atari those after the Nature CNN and its 512 features.
        n_steps, n_epochs: of the algorithms on rollouts; for TRPO the epochs of its critic.
        recurrent: units of an LSTM that policy and value share; 0: there is none.
        train_freq to target_update_interval: of the others; None leaves the last to the library.
        double_q: of zoo's DQN; the peers have none of it.
        fused: zoo takes so many steps, and then all of their updates in one call.
        learns: False only steps and acts.
        warm, piece: steps before measuring, and of one measured piece, which lasts a second or more for the fastest
            library; whole numbers of iterations. zoo logs a hundred times in a piece, and a compiled call ends there:
            a short piece hides what compiling gives.
        libraries: who takes part.
        bars: the ratios aimed at, by the names in :data:`RATIOS`.
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
        libraries=('zoo', 'zoo-compiled', 'sb3', 'sbx', 'rejax'),
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
        piece=20_000,
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
#: SBX takes no part on Atari: in PPO its actor and critic have a CNN each, while the other libraries share one, and
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
        piece=160_000,
        libraries=('zoo', 'zoo-compiled', 'sb3'),
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
#: Many copies and large minibatches: what an environment costs counts for more.
TASKS['ppo-64'] = dataclasses.replace(
    TASKS['ppo'],
    title='PPO, 64 copies of `CartPole-v1`, 128 steps each, 4 epochs, minibatch 512, 64×64',
    nenv=64,
    batch_size=512,
    n_steps=128,
    n_epochs=4,
    warm=8192,
    piece=163_840,
    libraries=('zoo', 'zoo-compiled', 'rejax'),
    bars={},
)
#: An environment in JAX: run it with a Python that has the extra jax.
TASKS['ppo-minatar'] = dataclasses.replace(
    TASKS['ppo-64'],
    title='PPO, 64 copies of `Breakout-MinAtar` of gymnax, 128 steps each, 4 epochs, minibatch 1,024, 64×64 on the '
    'flattened image',
    env='Breakout-MinAtar',
    type='gymnax',
    batch_size=1024,
    libraries=('zoo', 'rejax'),
)
#: Off policy: steps, replay buffer and updates in one call.
for _name, _more in (('sac', ('zoo-compiled',)), ('dqn', ('zoo-compiled', 'rejax'))):
    TASKS[_name] = dataclasses.replace(TASKS[_name], libraries=TASKS[_name].libraries + _more)
#: rejax's TD3 has layers of 64 units alone.
for _name, _alg in (('sac-64', 'SAC'), ('td3-64', 'TD3')):
    TASKS[_name] = dataclasses.replace(
        TASKS['sac'],
        title=f'{_alg}, `Pendulum-v1`, 64×64, batch 256, one update a step',
        alg=_alg,
        net_arch=(64, 64),
        piece=20_000,
        libraries=('zoo', 'zoo-compiled', 'rejax'),
        bars={},
    )
