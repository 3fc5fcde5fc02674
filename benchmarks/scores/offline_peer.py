"""One run of d3rlpy for ``offline.py``, in the peers' virtual environment.

``--run`` gives the algorithm, the environment, the file of the dataset, the number of updates and the seed as JSON.
The settings are d3rlpy's own. Actions are scaled by the bounds of their space, as d3rlpy's documentation advises, and
TD3+BC has standardized observations, as in its paper.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from common import versions

PACKAGES = ('d3rlpy', 'torch', 'gymnasium', 'numpy')
#: d3rlpy's names of the algorithms.
NAMES = {'TD3BC': 'TD3PlusBC', 'IQL': 'IQL', 'CQL': 'CQL', 'AWAC': 'AWAC', 'BC': 'BC'}


def made(run: dict[str, Any]) -> tuple[Any, Any]:
    """Return d3rlpy's algorithm, built, and the dataset."""
    import d3rlpy
    import numpy as np
    from d3rlpy.preprocessing import MinMaxActionScaler, StandardObservationScaler

    d3rlpy.seed(run['seed'])
    with np.load(run['data']) as held:
        data = d3rlpy.dataset.MDPDataset(**{name: held[name] for name in held.files if name not in ('low', 'high')})
        bounds = {'minimum': held['low'], 'maximum': held['high']} if 'low' in held.files else None
    given: dict[str, Any] = {} if bounds is None else {'action_scaler': MinMaxActionScaler(**bounds)}
    if run['alg'] == 'TD3BC':
        given['observation_scaler'] = StandardObservationScaler()
    algorithm = getattr(d3rlpy.algos, f'{NAMES[run["alg"]]}Config')(**given, **run.get('changes', {})).create('cpu:0')
    return algorithm, data


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--run', required=True)
    run = json.loads(parser.parse_args().run)
    import gymnasium
    import numpy as np
    from d3rlpy.logging import NoopAdapterFactory

    algorithm, data = made(run)
    began = time.perf_counter()
    quiet = {'show_progress': False, 'logger_adapter': NoopAdapterFactory()}
    algorithm.fit(data, n_steps=run['updates'], n_steps_per_epoch=run['updates'], **quiet)
    seconds = time.perf_counter() - began
    env = gymnasium.make(run['env_id'])
    returns = []
    for episode in range(run['episodes']):
        obs, _ = env.reset(seed=None if episode else run['test_seed'])
        total, ended = 0.0, False
        while not ended:
            obs, reward, terminated, truncated, _ = env.step(algorithm.predict(np.asarray(obs, np.float32)[None])[0])
            total, ended = total + float(reward), terminated or truncated
        returns.append(total)
    print(json.dumps({'returns': returns, 'seconds': seconds, 'versions': versions(*PACKAGES)}), flush=True)


if __name__ == '__main__':
    main()
