"""Four lines train an agent: TD3 learns to swing up a pendulum and to hold it there, in a minute or two.

    python examples/four_lines.py

A random policy returns about -1,200. The best policy returns about -150 on average; its return depends on where the
pendulum hangs at the start of an episode.
"""

from zoo.algorithms import TD3
from zoo.common.env_wrappers import build_env
from zoo.common.utils import call_default_params

env = build_env('Pendulum-v1', 'classic_control')
alg_params, learn_params = call_default_params(env, 'classic_control', 'TD3')
agent = TD3(**alg_params)
trained = agent.learn(env, 'train', **learn_params)

tested = agent.learn(env, 'test', test_episodes=20)
mean = sum(tested.returns) / len(tested.returns)
print(f'Mean return of {len(tested.returns)} test episodes after {trained.steps:,} steps: {mean:.1f}')
print(f'Run directory, with the learning curve in curve.png: {trained.run_dir}')
