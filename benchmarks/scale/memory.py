"""The memory that a training announces beside the memory that it takes, for each algorithm that learns from images.

    python benchmarks/scale/memory.py            # writes results/memory.json and results/memory.md; some ten minutes
    python benchmarks/scale/memory.py PPO SAC    # these algorithms

The images have 240 × 320 × 3 bytes. Rollouts and replay buffers are large enough to be announced. The memory taken is
the peak of the process less what it had before ``learn``. Each algorithm trains in a process of its own, without roles.
"""

from __future__ import annotations

import json
import logging
import os
import re
import resource
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where common.py is
from common import (
    answer_of,
    checked,
    environment,
    header,
    parser_of,
    read_results,
    row,
    stamp,
    write_page,
    write_results,
)

SHAPE = (240, 320, 3)
#: Steps of a rollout; transitions of a replay buffer.
HORIZON, CAPACITY = 2000, 2000
CONTINUOUS = ('DDPG', 'TD3', 'TQC', 'CrossQ', 'ApexDDPG')
ON_POLICY = ('PPO', 'DPPO', 'TRPO', 'A2C', 'AC', 'VPG', 'A3C', 'IMPALA')
OFF_POLICY = ('DQN', 'C51', 'QRDQN', 'Rainbow', 'SAC', 'OffPAC', 'ApexDQN', 'R2D2', *CONTINUOUS)


def measured(name: str) -> dict[str, float]:
    """Train an algorithm on images in this process; return the gigabytes announced and taken."""
    import gymnasium
    import numpy as np
    from gymnasium.spaces import Box, Discrete

    import zoo

    class Screen(gymnasium.Env):
        """Images that are nowhere zero, so that every page of memory is really taken."""

        observation_space = Box(0, 255, SHAPE, np.uint8)
        action_space = Box(-1, 1, (2,)) if name in CONTINUOUS else Discrete(3)

        def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
            super().reset(seed=seed)
            self.t = 0
            return np.full(SHAPE, 7, np.uint8), {}

        def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
            self.t += 1
            return np.full(SHAPE, 1 + self.t, np.uint8), 1.0, self.t == 100, False, {}

    said: list[float] = []

    class Said(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.extend(map(float, re.findall(r'([0-9.]+) GB', record.getMessage())))

    logging.getLogger('zoo').addHandler(Said())
    env = zoo.build_env(Screen)
    alg_params, learn_params = zoo.call_default_params(env, 'gymnasium', name, seed=0)
    agent = getattr(zoo.algorithms, name)(**alg_params)
    agent.predict(np.zeros(SHAPE, np.uint8))
    status = Path('/proc/self/status').read_text(encoding='ascii')
    before = int(re.search(r'VmRSS:\s+(\d+)', status)[1])
    given: dict[str, Any] = {'roles': None, 'run_dir': False, 'verbose': 0}
    if name in OFF_POLICY:
        steps = CAPACITY + 100
        given |= {'buffer_size': CAPACITY, 'explore_steps': CAPACITY, 'update_every': 50, 'updates': 1}
    else:
        steps = HORIZON
        given |= {'horizon': HORIZON, 'epochs': 1}
    given = {key: value for key, value in given.items() if key in agent.learn_params()}
    agent.learn(env, **learn_params | {'train_steps': steps} | given)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {'announced': sum(said), 'taken': (peak - before) / 1e6}


def report(results: dict[str, Any]) -> list[str]:
    """Return the lines of the result page."""
    lines = ['# Memory: announced and taken', '', '`python benchmarks/scale/memory.py`. Images of 240 × 320 × 3 bytes.']
    lines += [f'Rollouts of {HORIZON:,} steps on policy, replay buffers of {CAPACITY:,} transitions off policy.', '']
    lines += header('algorithm', 'announced, GB', 'taken, GB', 'announced / taken', 'measured')
    for name in (*ON_POLICY, *OFF_POLICY):
        if name in results:
            found = results[name]
            share = found['announced'] / found['taken']
            gigabytes = (f'{found[key]:.2f}' for key in ('announced', 'taken'))
            lines.append(row(name, *gigabytes, f'{share:.2f}', found['stamp']))
    return lines


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument('algorithms', nargs='*', metavar='algorithm', help='all when none is named')
    parser.add_argument('--run', help='train this one here and print its figures')
    args = parser.parse_args()
    if args.run:
        print(json.dumps(measured(args.run)), flush=True)
        os._exit(0)  # the peak is known
    for name in checked(parser, 'algorithm', args.algorithms, (*ON_POLICY, *OFF_POLICY)):
        found = answer_of([sys.executable, __file__, '--run', name], environment())
        print(f'{name}: announced {found["announced"]:.2f} GB, taken {found["taken"]:.2f} GB', flush=True)
        results = read_results('memory')
        results[name] = found | {'stamp': stamp('zoo-rl', 'tensorflow', 'keras')}
        write_results('memory', results)
        write_page('memory', report(results))


if __name__ == '__main__':
    main()
