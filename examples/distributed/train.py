"""One program, alone or on a cluster: learners, actors and buffers, each a process of its own.

    python train.py                                           # starts its actors itself
    python -m zoo.distributed.run -np 5 train.py              # or is started as five ranks, of this machine
    mpirun -n 5 python train.py                               # … or of several
    python train.py --alg ApexDQN --actors 8 --buffers 2      # 11 ranks with these

The README.md beside it has the commands for each launcher, for Slurm and for Kubernetes. Started again with the same
--run-dir, a training that was cut short goes on from its newest checkpoint, with the roles that it is given now.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import zoo

parser = argparse.ArgumentParser(description='Train with roles.')
parser.add_argument('--env', default='CartPole-v1')
parser.add_argument('--alg', default='PPO')
parser.add_argument('--steps', type=int, default=100_000)
parser.add_argument('--run-dir', type=Path, help='of a training that may have to go on; every rank has to see it')
for role, count in {'learners': 1, 'actors': 4, 'servers': 0, 'buffers': 0}.items():
    parser.add_argument(f'--{role}', type=int, default=count)
options = parser.parse_args()

env = zoo.build_env(options.env)
alg_params, learn_params = zoo.call_default_params(env, alg=options.alg, seed=0)
learn_params |= {'train_steps': options.steps, 'run_dir': options.run_dir}
learn_params['roles'] = {role: getattr(options, role) for role in ('learners', 'actors', 'servers', 'buffers')}
# Whose learners wait for all actors: as many steps in an iteration as so many actors take by default.
if options.alg in (shared := {'PPO': 1, 'TRPO': 1, 'DPPO': 2}):
    learn_params['horizon'] = -(-learn_params['horizon'] * shared[options.alg] // options.actors)

if options.run_dir is not None and any(options.run_dir.glob('checkpoints/*')):
    agent = zoo.load(options.run_dir)
    if agent.loop_state is None:  # a scheduler may start the job again when only its end was lost
        print(f'The training in {options.run_dir} has ended, at step {agent.steps}.')
        sys.exit()
    learn_params['resume'] = True
else:
    agent = getattr(zoo.algorithms, options.alg)(**alg_params)
trained = agent.learn(env, 'train', **learn_params)

# Learner 0 alone comes here, whatever the program was started by.
tested = agent.learn(env, 'test', test_episodes=10)
print(f'{trained}\nmean return of 10 episodes: {sum(tested.returns) / 10:.1f}')
