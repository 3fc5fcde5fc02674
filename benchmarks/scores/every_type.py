"""The four lines for every type of environment, with one copy and with four: do they run, and is all of it finite?

    python benchmarks/scores/every_type.py              # every row, about ten minutes on two cores
    python benchmarks/scores/every_type.py atari pixels # some rows

A fitting algorithm trains for 5,000 steps with its default parameters, then a test plays two episodes. The pixel rows
take 1,000 steps, because the CPU draws some hundred pictures a second. RLBench runs over the stand-in objects of its
test. So few steps teach little: `learning.py` measures what is learned. Writes `results/every_type.md`.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')

import gymnasium

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where common.py is
from common import (
    ROOT,
    checked,
    header,
    listed,
    parser_of,
    read_results,
    row,
    today,
    versions,
    write_page,
    write_results,
)


class WithPhase(gymnasium.Wrapper):
    """Adds a discrete field to a ``Dict`` observation: the quarter of a second of the episode, modulo 4."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        phase = gymnasium.spaces.Discrete(4)
        self.observation_space = gymnasium.spaces.Dict({**env.observation_space.spaces, 'phase': phase})

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(**kwargs)
        self.t = 0
        return {**observation, 'phase': 0}, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, *rest = self.env.step(action)
        self.t += 1
        return {**observation, 'phase': self.t // 5 % 4}, *rest


def two_cameras() -> gymnasium.Env:
    """HalfCheetah seen by two cameras with depth, with its state and a discrete field."""
    from zoo import build_env

    return WithPhase(
        build_env(
            'HalfCheetah-v5',
            'mujoco',
            pixels='both',
            cameras=['track', -1],
            depth=True,
            frame_size=48,
            max_episode_steps=100,
        )
    )


@dataclass(frozen=True)
class Row:
    """One environment: the arguments of ``build_env`` and ``call_default_params``, and what is changed."""

    env: Any
    type: str
    alg: str
    copies: tuple[int, ...] = (1, 4)
    steps: int = 5000
    kwargs: dict[str, Any] = field(default_factory=dict)
    learn: dict[str, Any] = field(default_factory=dict)


ROWS = {
    'classic_control': Row('CartPole-v1', 'classic_control', 'PPO'),
    'box2d': Row('LunarLander-v3', 'box2d', 'DQN'),
    'mujoco': Row('HalfCheetah-v5', 'mujoco', 'TD3', learn={'explore_steps': 1000}),
    'atari': Row(
        'PongNoFrameskip-v4', 'atari', 'DQN', kwargs={'max_episode_steps': 500}, learn={'explore_steps': 1000}
    ),
    'robotics': Row('FetchReach-v4', 'robotics', 'SAC'),
    'dm_control': Row('cartpole-swingup', 'dm_control', 'SAC'),
    'rlbench': Row('ReachTarget', 'rlbench', 'PPO'),
    'pixels-ppo': Row(two_cameras, 'gymnasium', 'PPO', copies=(1,), steps=1024, learn={'horizon': 256, 'epochs': 2}),
    'pixels-sac': Row(
        two_cameras, 'gymnasium', 'SAC', copies=(1,), steps=1000, learn={'update_every': 8, 'updates': 1}
    ),
}


def run(name: str, copies: int) -> dict[str, Any]:
    """Train and test one row."""
    from zoo import algorithms, build_env, call_default_params

    row = ROWS[name]
    env = build_env(row.env, row.type, nenv=copies, **row.kwargs)
    alg_params, learn_params = call_default_params(env, row.type, row.alg, seed=0)
    agent = getattr(algorithms, row.alg)(**alg_params)
    with tempfile.TemporaryDirectory() as folder:
        changed = learn_params | row.learn | {'train_steps': row.steps, 'verbose': 0}
        trained = agent.learn(env, 'train', run_dir=folder, **changed)
        left = sorted(path.name for path in Path(folder).iterdir() if not path.name.startswith('events'))
    tested = agent.learn(env, 'test', test_episodes=2)
    env.close()
    values = [*trained.losses.values(), *trained.returns, *tested.returns]
    return {
        'space': 'Dict' if hasattr(alg_params['observation_space'], 'spaces') else 'Box',
        'steps': trained.steps,
        'seconds': trained.wall_time,
        'finite': bool(trained.losses) and all(math.isfinite(value) for value in values),
        'left': left,
        'returns': [round(value, 1) for value in tested.returns],
        'successes': [success for success in tested.successes if success is not None],
    }


@contextlib.contextmanager
def rlbench_standin() -> Any:
    """Objects of the shape of RLBench's where RLBench is not installed."""
    sys.path.insert(0, str(ROOT / 'tests' / 'support'))
    import rlbench_standin as standin

    with standin.installed():
        yield


def report(results: dict[str, Any]) -> list[str]:
    """Return the lines of the result page."""
    lines = [
        '# Every type of environment',
        '',
        f'`python benchmarks/scores/every_type.py`, {today()}: the four lines, then a test of two '
        'episodes. RLBench over stand-in objects. Two cores, no GPU.',
        '',
        *header(
            *('row', 'environment', 'algorithm', 'observation', 'copies', 'steps'),
            *('seconds', 'finite', 'test returns', 'files'),
        ),
    ]
    for key, found in results.items():
        name, copies = key.rsplit('/', 1)
        asked = ROWS[name]
        env = asked.env if isinstance(asked.env, str) else 'HalfCheetah-v5, two cameras with depth, state, phase'
        returns = ', '.join(str(value) for value in found['returns'])
        returns += f' (successes {found["successes"]})' if found['successes'] else ''
        cells = (asked.alg, found['space'], copies, f'{found["steps"]:,}', f'{found["seconds"]:.0f}')
        lines.append(row(name, env, *cells, 'yes' if found['finite'] else 'NO', returns, ', '.join(found['left'])))
    packages = ('tensorflow', 'gymnasium', 'ale-py', 'mujoco', 'gymnasium-robotics', 'dm-control', 'numpy')
    return [*lines, '', listed(versions(*packages))]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument('rows', nargs='*', metavar='row', help=f'of {", ".join(ROWS)}; all when none is named')
    args = parser.parse_args()
    for name in checked(parser, 'row', args.rows, ROWS):
        for copies in ROWS[name].copies:
            begin = time.perf_counter()
            with rlbench_standin() if name == 'rlbench' else contextlib.nullcontext():
                entry = run(name, copies)
            print(f'{name}, {copies} copies: {entry} in {time.perf_counter() - begin:.0f} s', flush=True)
            results = read_results('every_type') | {f'{name}/{copies}': entry}
            keys = [f'{each}/{n}' for each in ROWS for n in ROWS[each].copies]
            ordered = {key: results[key] for key in keys if key in results}
            write_results('every_type', ordered)
            write_page('every_type', report(ordered))


if __name__ == '__main__':
    main()
