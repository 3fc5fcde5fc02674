"""One program, alone or on a cluster: learners, actors and buffers, each a process of its own.

    python train.py                                           # starts its actors itself
    python -m zoo.distributed.run -np 5 train.py              # five ranks of this machine
    mpirun -n 5 python train.py                               # five ranks of one machine or several
    python train.py --alg ApexDQN --actors 8 --buffers 2      # 11 ranks

The README.md beside this file has the commands for each launcher, for Slurm and for Kubernetes. An interrupted training
continues from its newest checkpoint when you start it again with the same --run-dir. The roles may differ.
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
parser.add_argument('--run-dir', type=Path, help='for a training that may have to continue; every rank has to see it')
for role, count in {'learners': 1, 'actors': 4, 'servers': 0, 'buffers': 0}.items():
    parser.add_argument(f'--{role}', type=int, default=count)
options = parser.parse_args()

env = zoo.build_env(options.env)
alg_params, learn_params = zoo.call_default_params(env, alg=options.alg, seed=0)
learn_params |= {'train_steps': options.steps, 'run_dir': options.run_dir}
learn_params['roles'] = {role: getattr(options, role) for role in ('learners', 'actors', 'servers', 'buffers')}
# These learners wait for all actors. Keep the default number of steps in an iteration, whatever the number of actors.
if options.alg in (shared := {'PPO': 1, 'TRPO': 1, 'DPPO': 2}):
    learn_params['horizon'] = -(-learn_params['horizon'] * shared[options.alg] // options.actors)

if options.run_dir is not None and any(options.run_dir.glob('checkpoints/*')):
    agent = zoo.load(options.run_dir)
    if agent.loop_state is None:  # a scheduler may start a job again that has ended
        print(f'The training in {options.run_dir} has ended, at step {agent.steps}.')
        sys.exit()
    learn_params['resume'] = True
else:
    agent = getattr(zoo.algorithms, options.alg)(**alg_params)
trained = agent.learn(env, 'train', **learn_params)

# Only learner 0 comes here, under every launcher.
tested = agent.learn(env, 'test', test_episodes=10)
print(f'{trained}\nmean return of 10 episodes: {sum(tested.returns) / 10:.1f}')
