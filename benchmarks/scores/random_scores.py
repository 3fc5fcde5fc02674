"""The score of a random policy in the environments of zoo/experiments/reference_scores.json.

    python benchmarks/scores/random_scores.py                # every environment, about ten minutes
    python benchmarks/scores/random_scores.py CartPole-v1    # some of them

A policy with uniformly random actions plays 100 whole episodes in each environment, with seed 0. Their mean is the 0 of
the normalized scores of ``zoo.compare``. It is written to the file, as ``random``. ``reference``, the 1 of the
normalized scores, stays: it is a published score, and ``source`` says whose. To add an environment, write its ``type``,
``reference`` and ``source`` into the file and run this command with its name.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where common.py is
from common import checked, parser_of

import zoo
from zoo.common.tools.files import write_json
from zoo.experiments.references import FILE, known, random_scores

EPISODES = 100


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument('environments', nargs='*', help='their names; none: every environment of the file')
    entries = {name: dict(entry) for name, entry in known().items()}
    for name in checked(parser, 'environment', parser.parse_args().environments, entries):
        env = zoo.build_env(name, entries[name]['type'])
        played = random_scores(env, EPISODES)
        env.close()
        entries[name]['random'] = round(float(np.mean(played)), 3)
        write_json(FILE, entries)
        print(f'{name}: {np.mean(played):.3f}, standard deviation {np.std(played):.3f}', flush=True)


if __name__ == '__main__':
    main()
