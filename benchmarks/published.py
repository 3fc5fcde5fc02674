"""Published scores, which ``scores/agents.py`` puts beside its own.

From ``benchmark.md`` of DLR-RM/rl-baselines3-zoo, commit 22e3ff2: one trained agent each, with tuned hyper-parameters,
in the environments of that time.
"""

from __future__ import annotations

from typing import Any

SOURCE = 'RL Baselines3 Zoo, benchmark.md, commit 22e3ff2'

#: Environments whose version was another one.
_THEN = {
    'LunarLander-v3': 'LunarLander-v2',
    'LunarLanderContinuous-v3': 'LunarLanderContinuous-v2',
    'FetchReach-v4': 'FetchReach-v1',
    'FetchPush-v4': 'FetchPush-v1',
    **{f'{name}-v5': f'{name}-v3' for name in ('Ant', 'HalfCheetah', 'Hopper', 'Walker2d')},
}

#: By environment and algorithm: mean and standard deviation of the return, and training steps.
_SCORES: dict[str, dict[str, tuple[float, float, str]]] = {
    'CartPole-v1': {
        'A2C': (500.0, 0.0, '500k'),
        'ARS': (500.0, 0.0, '50k'),
        'DQN': (500.0, 0.0, '50k'),
        'PPO': (500.0, 0.0, '100k'),
        'QRDQN': (500.0, 0.0, '50k'),
        'TRPO': (500.0, 0.0, '100k'),
    },
    'Acrobot-v1': {
        'A2C': (-83.353, 17.213, '500k'),
        'ARS': (-82.884, 23.825, '500k'),
        'DQN': (-76.639, 11.752, '100k'),
        'PPO': (-73.506, 18.201, '1M'),
        'QRDQN': (-69.135, 9.967, '100k'),
        'TRPO': (-83.114, 18.648, '100k'),
    },
    'MountainCar-v0': {
        'A2C': (-111.263, 24.087, '1M'),
        'DQN': (-100.849, 9.925, '120k'),
        'PPO': (-110.423, 19.473, '1M'),
        'QRDQN': (-106.042, 15.536, '120k'),
    },
    'MountainCarContinuous-v0': {
        'A2C': (91.166, 0.255, '100k'),
        'DDPG': (93.512, 0.048, '300k'),
        'PPO': (88.343, 2.572, '20k'),
        'SAC': (94.679, 1.134, '50k'),
        'TD3': (93.483, 0.075, '300k'),
        'TQC': (63.641, 45.259, '50k'),
    },
    'Pendulum-v1': {
        'A2C': (-162.965, 103.210, '1M'),
        'DDPG': (-152.099, 94.282, '20k'),
        'PPO': (-172.225, 104.159, '100k'),
        'SAC': (-156.995, 88.714, '20k'),
        'TD3': (-151.855, 90.227, '20k'),
        'TQC': (-151.340, 87.893, '20k'),
        'TRPO': (-174.631, 127.577, '100k'),
    },
    'LunarLander-v3': {
        'A2C': (155.751, 80.419, '200k'),
        'DQN': (154.382, 79.241, '100k'),
        'PPO': (242.119, 31.823, '1M'),
        'QRDQN': (70.236, 225.491, '100k'),
        'TRPO': (133.166, 112.173, '200k'),
    },
    'LunarLanderContinuous-v3': {
        'DDPG': (230.217, 92.372, '300k'),
        'PPO': (270.863, 32.072, '1M'),
        'SAC': (260.390, 65.467, '500k'),
        'TD3': (207.451, 67.562, '300k'),
        'TQC': (277.956, 25.466, '500k'),
        'TRPO': (262.387, 21.428, '200k'),
    },
    'BipedalWalker-v3': {
        'PPO': (287.939, 2.448, '5M'),
        'SAC': (297.668, 33.060, '500k'),
        'TD3': (305.990, 56.886, '1M'),
        'TQC': (329.808, 45.083, '500k'),
    },
    'HalfCheetah-v5': {
        'A2C': (3041.174, 157.265, '1M'),
        'PPO': (5819.099, 663.530, '1M'),
        'SAC': (9535.451, 100.470, '1M'),
        'TD3': (9655.666, 969.916, '1M'),
        'TQC': (12089.939, 127.440, '1M'),
    },
    'Hopper-v5': {
        'PPO': (2410.435, 10.026, '1M'),
        'SAC': (2325.547, 1129.676, '1M'),
        'TD3': (3606.390, 4.027, '1M'),
        'TQC': (3754.199, 8.276, '1M'),
    },
    'Walker2d-v5': {
        'PPO': (3478.798, 821.708, '1M'),
        'SAC': (3863.203, 254.347, '1M'),
        'TD3': (4717.823, 46.303, '1M'),
        'TQC': (4380.720, 500.489, '1M'),
    },
    'Ant-v5': {
        'PPO': (1327.158, 451.577, '1M'),
        'SAC': (4615.791, 1354.111, '1M'),
        'TD3': (5813.274, 589.773, '1M'),
        'TQC': (3339.362, 1969.906, '1M'),
    },
    'FetchReach-v4': {'TQC': (-1.659, 0.873, '20k')},
    'FetchPush-v4': {'TQC': (-8.799, 5.438, '1M')},
    'PongNoFrameskip-v4': {
        'A2C': (17.292, 3.214, '10M'),
        'DQN': (20.602, 0.613, '10M'),
        'PPO': (20.989, 0.105, '10M'),
        'QRDQN': (20.492, 0.687, '10M'),
    },
}


def published(alg: str, env_id: str) -> dict[str, Any] | None:
    """Return the published score of an algorithm in an environment, as a card has it; None if there is none."""
    found = _SCORES.get(env_id, {}).get(alg)
    if found is None:
        return None
    mean, std, steps = found
    return {'mean': mean, 'std': std, 'environment': _THEN.get(env_id, env_id), 'steps': steps, 'source': SOURCE}
