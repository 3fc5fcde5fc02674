"""Published scores of the algorithms and environments that ``scores/learning.py`` and ``scores/stability.py`` have.

Source: RL Baselines3 Zoo (DLR-RM/rl-baselines3-zoo, MIT license), ``benchmark.md``, commit 22e3ff2. One agent each,
trained with its tuned hyper-parameters by Stable-Baselines3 or sb3-contrib, and tested with the deterministic policy.
"""

from __future__ import annotations

from typing import NamedTuple

SOURCE = 'RL Baselines3 Zoo, benchmark.md, commit 22e3ff2'
URL = 'https://github.com/DLR-RM/rl-baselines3-zoo/blob/22e3ff2/benchmark.md'


class Published(NamedTuple):
    """One published agent.

    Attributes:
        env_id: the version of the environment that was used. Scores of ``-v3`` of MuJoCo are close to ``-v5``, not
            equal.
        mean, std: of the returns of its test episodes.
        steps: environment steps of its training.
    """

    env_id: str
    mean: float
    std: float
    steps: int


#: By algorithm and the version of the environment that is used here.
SCORES: dict[tuple[str, str], Published] = {
    ('A2C', 'Acrobot-v1'): Published('Acrobot-v1', -83.353, 17.213, 500_000),
    ('A2C', 'CartPole-v1'): Published('CartPole-v1', 500.0, 0.0, 500_000),
    ('A2C', 'MountainCar-v0'): Published('MountainCar-v0', -111.263, 24.087, 1_000_000),
    ('A2C', 'MountainCarContinuous-v0'): Published('MountainCarContinuous-v0', 91.166, 0.255, 100_000),
    ('ARS', 'CartPole-v1'): Published('CartPole-v1', 500.0, 0.0, 50_000),
    ('DDPG', 'Pendulum-v1'): Published('Pendulum-v1', -152.099, 94.282, 20_000),
    ('DQN', 'Acrobot-v1'): Published('Acrobot-v1', -76.639, 11.752, 100_000),
    ('DQN', 'CartPole-v1'): Published('CartPole-v1', 500.0, 0.0, 50_000),
    ('DQN', 'LunarLander-v3'): Published('LunarLander-v2', 154.382, 79.241, 100_000),
    ('DQN', 'MountainCar-v0'): Published('MountainCar-v0', -100.849, 9.925, 120_000),
    ('PPO', 'Acrobot-v1'): Published('Acrobot-v1', -73.506, 18.201, 1_000_000),
    ('PPO', 'BipedalWalker-v3'): Published('BipedalWalker-v3', 287.939, 2.448, 5_000_000),
    ('PPO', 'CartPole-v1'): Published('CartPole-v1', 500.0, 0.0, 100_000),
    ('PPO', 'HalfCheetah-v5'): Published('HalfCheetah-v3', 5819.099, 663.53, 1_000_000),
    ('PPO', 'LunarLander-v3'): Published('LunarLander-v2', 242.119, 31.823, 1_000_000),
    ('PPO', 'MountainCar-v0'): Published('MountainCar-v0', -110.423, 19.473, 1_000_000),
    ('PPO', 'MountainCarContinuous-v0'): Published('MountainCarContinuous-v0', 88.343, 2.572, 20_000),
    ('PPO', 'Pendulum-v1'): Published('Pendulum-v1', -172.225, 104.159, 100_000),
    ('QRDQN', 'Acrobot-v1'): Published('Acrobot-v1', -69.135, 9.967, 100_000),
    ('QRDQN', 'CartPole-v1'): Published('CartPole-v1', 500.0, 0.0, 50_000),
    ('QRDQN', 'LunarLander-v3'): Published('LunarLander-v2', 70.236, 225.491, 100_000),
    ('QRDQN', 'MountainCar-v0'): Published('MountainCar-v0', -106.042, 15.536, 120_000),
    ('SAC', 'HalfCheetah-v5'): Published('HalfCheetah-v3', 9535.451, 100.47, 1_000_000),
    ('SAC', 'Pendulum-v1'): Published('Pendulum-v1', -156.995, 88.714, 20_000),
    ('TD3', 'Pendulum-v1'): Published('Pendulum-v1', -151.855, 90.227, 20_000),
    ('TQC', 'HalfCheetah-v5'): Published('HalfCheetah-v3', 12089.939, 127.44, 1_000_000),
    ('TQC', 'Pendulum-v1'): Published('Pendulum-v1', -151.34, 87.893, 20_000),
    ('TRPO', 'Acrobot-v1'): Published('Acrobot-v1', -83.114, 18.648, 100_000),
    ('TRPO', 'CartPole-v1'): Published('CartPole-v1', 500.0, 0.0, 100_000),
    ('TRPO', 'LunarLander-v3'): Published('LunarLander-v2', 133.166, 112.173, 200_000),
    ('TRPO', 'LunarLanderContinuous-v3'): Published('LunarLanderContinuous-v2', 262.387, 21.428, 200_000),
    ('TRPO', 'Pendulum-v1'): Published('Pendulum-v1', -174.631, 127.577, 100_000),
}


def published(alg: str, env_id: str) -> str:
    """Return the score in one line, with its steps and, where it differs, its environment; or a dash."""
    found = SCORES.get((alg, env_id))
    if found is None:
        return '–'
    steps = f'{found.steps // 1_000_000}M' if found.steps >= 1_000_000 else f'{found.steps // 1000}k'
    environment = '' if found.env_id == env_id else f', `{found.env_id}`'
    return f'{found.mean:.1f} ± {found.std:.1f} ({steps}{environment})'
