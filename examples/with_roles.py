"""A learner and four actors, each a process of its own: PPO on LunarLander.

    python examples/with_roles.py                                      # starts its actors itself
    python -m zoo.distributed.run -np 5 examples/with_roles.py         # or is started as five ranks, of this machine
    mpirun -n 5 python examples/with_roles.py                          # … or of several

The same program each time; `pip install -e '.[box2d]'` brings the environment, `'.[mpi]'` mpirun.
"""

from __future__ import annotations

import argparse

from zoo import algorithms, build_env, call_default_params

parser = argparse.ArgumentParser(description='PPO on LunarLander with a learner and four actors.')
parser.add_argument('--steps', type=int, default=1_000_000)
options = parser.parse_args()

env = build_env('LunarLander-v3', 'box2d')
alg_params, learn_params = call_default_params(env, 'box2d', 'PPO', seed=0)
learn_params['roles'] = dict(learners=1, actors=4)
learn_params['horizon'] //= 4  # as many steps in an iteration as one actor would take
learn_params['train_steps'] = options.steps
agent = algorithms.PPO(**alg_params)
trained = agent.learn(env, 'train', **learn_params)

# Learner 0 alone comes here, whatever the program was started by.
tested = agent.learn(env, 'test', test_episodes=10)
print(f'{trained}\nreturns of 10 episodes: {[round(x) for x in tested.returns]}')
