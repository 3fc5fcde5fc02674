"""One run of a peer for ``stability.py``, in the peers' virtual environment: Stable-Baselines3, contrib or SBX.

``--run`` gives the name of the row and the seed as JSON. The parameters have the names of RL Baselines3 Zoo: ``lin_x``
is a value that falls from x to zero, ``normalize`` scales observations and rewards by running statistics.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from common import versions
from stability import PARTS, ROWS, TEST_EPISODES, TEST_SEED

#: Each library's module, and its package with what it runs on.
LIBRARIES = {
    'sb3': ('stable_baselines3', ('stable-baselines3', 'torch', 'gymnasium', 'numpy')),
    'contrib': ('sb3_contrib', ('sb3-contrib', 'stable-baselines3', 'torch', 'gymnasium', 'numpy')),
    'sbx': ('sbx', ('sbx-rl', 'jax', 'flax', 'gymnasium', 'numpy')),
}


def falling(first: float) -> Callable[[float], float]:
    """Return a schedule of the part of the training that is left."""
    return lambda left: left * first


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--run', required=True)
    run = json.loads(parser.parse_args().run)
    asked, seed = ROWS[run['name']], run['seed']
    import numpy as np
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.noise import NormalActionNoise
    from stable_baselines3.common.vec_env import VecNormalize

    module, packages = LIBRARIES[asked.library]
    given = dict(asked.changes)
    for name, value in given.items():
        if isinstance(value, str) and value.startswith('lin_'):
            given[name] = falling(float(value.removeprefix('lin_')))
    policy: dict[str, Any] = {name: given.pop(name) for name in ('net_arch', 'n_quantiles') if name in given}
    scaled = given.pop('normalize', False)
    env = make_vec_env(asked.env_id, given.pop('n_envs', 1), seed=seed)
    if scaled:
        env = VecNormalize(env, gamma=given.get('gamma', 0.99))
    if 'noise_std' in given:
        size = env.action_space.shape
        given['action_noise'] = NormalActionNoise(np.zeros(size), np.full(size, given.pop('noise_std')))
    kind = 'LinearPolicy' if asked.alg == 'ARS' else 'MlpPolicy'
    model = getattr(importlib.import_module(module), asked.alg)(
        kind, env, seed=seed, device='cpu', policy_kwargs=policy or None, verbose=0, **given
    )

    def scores(episodes: int, test_seed: int) -> list[float]:
        tested = make_vec_env(asked.env_id, 1, seed=test_seed)
        if scaled:
            tested = VecNormalize(tested, training=False, norm_reward=False)
            tested.obs_rms = env.obs_rms
        returns, _ = evaluate_policy(model, tested, episodes, deterministic=True, return_episode_rewards=True)
        return [float(value) for value in returns]

    class Tests(BaseCallback):
        """Test after each part of the training."""

        found: list[float] = []

        def _on_step(self) -> bool:
            if self.num_timesteps >= (len(self.found) + 1) * asked.steps // PARTS:
                self.found.append(float(np.mean(scores(10, TEST_SEED + 1 + len(self.found)))))
            return True

    began = time.perf_counter()
    # ARS copies the policy, and calls no callback that could test it.
    model.learn(asked.steps, callback=None if asked.alg == 'ARS' else Tests())
    seconds = time.perf_counter() - began
    found = {'returns': scores(TEST_EPISODES, TEST_SEED), 'tests': Tests.found, 'seconds': seconds}
    print(json.dumps(found | {'versions': versions(*packages)}), flush=True)


if __name__ == '__main__':
    main()
