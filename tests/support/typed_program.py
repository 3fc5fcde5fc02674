"""A user's program with right and wrong calls, for type checkers: lines marked as wrong are to be reported."""

from __future__ import annotations

from typing import Annotated

import gymnasium
from gymnasium.spaces import Box

import zoo
from zoo import algorithms, distributed
from zoo.algorithms import PPO, TD3, Rainbow
from zoo.algorithms.base import Algorithm
from zoo.callbacks import Evaluate
from zoo.common.tools.params import at_least
from zoo.common.utils import call_default_params

obs, act = Box(-1.0, 1.0, (3,)), Box(-1.0, 1.0, (1,))
env = zoo.build_env('Pendulum-v1', 'classic_control')
alg_params, learn_params = call_default_params(env, 'classic_control', 'TD3')

agent = TD3(**alg_params)
agent.learn(env, 'train', **learn_params)
TD3(obs, act, policy_delay=3, net_list=[{'hidden': [8]}] * 3)
TD3(obs, act, None, None, 0.9)
algorithms.PPO(obs, act, gamma=0.9, clip_range=zoo.Linear(0.2, 0.0), target_kl=None)
Rainbow(obs, act, atoms=21, gamma=0.9)
delay: int = agent.policy_delay


trained = agent.learn(env, 'train', train_steps=100, callbacks=[Evaluate(every=50, env=env)])
reached: int = trained.steps
lengths: list[int] = list(agent.learn(env, 'test', seed=0, test_episodes=2).lengths)
lengths = list(agent.learn(env=env, mode='test').lengths)
losses: dict[str, float] = agent.learn(env).losses
for mode in ('train', 'test'):
    returns: list[float] = list(agent.learn(env, mode, run_dir=False).returns)
found: Algorithm = zoo.load('runs/a')
again: TD3 = TD3.load('runs/a')
best, result = zoo.train('PPO', 'CartPole-v1', gamma=0.98, train_steps=1000)
reached = result.steps + best.steps
copies = zoo.build_env('CartPole-v1', 'classic_control', nenv=4)
gymnasium.wrappers.ClipAction(env)
TD3(copies.single_observation_space, copies.single_action_space, gamma=0.9)
TD3(**alg_params | {'gamma': 0.9, 'policy_delay': 3})
agent.learn(env, 'train', **learn_params | {'train_steps': 5, 'run_dir': False})
agent.learn(env, 'test', **TD3.learn_params() | {'test_episodes': 2})
rollout = agent.rollout(env, steps=64)
for batch in rollout.with_fields(weight=2 * rollout.reward).minibatches(4):
    print(batch.weight, agent.evaluate(batch).log_prob)
print(best.summary(), zoo.describe('PPO'), best.predict(env.reset()[0]), copies.action_space, zoo.__version__)

algorithms.PPP(obs, act)  # wrong
zoo.trian('PPO', 'CartPole-v1')  # wrong
print(agent.learn(env, 'train').lengths)  # wrong
print(agent.learn(env, 'test').losses)  # wrong
print(agent.learn(env).successes)  # wrong
agent.learn(env, 'test').forget()  # wrong
agent.learn('CartPole-v1', 'train')  # wrong
agent.learn(env, 'train', seed='0')  # wrong
agent.lern(env, 'train')  # wrong
zoo.load('runs/a').forget()  # wrong
zoo.train('PPO', 'CartPole-v1', nenv='4')  # wrong
zoo.build_env('CartPole-v1', 'classic_control', seed='0')  # wrong
Evaluate(env, every=50)  # wrong
zoo.Linear('0.2', 0.0)  # wrong
distributed.conect()  # wrong
TD3(obs, act, gama=0.9)  # wrong
TD3(obs, act, policy_delay='2')  # wrong
TD3(obs)  # wrong
algorithms.PPO(obs, act, clip_range='wide')  # wrong
PPO(obs, act, method='clap')  # wrong
Rainbow(obs, act, atom=21)  # wrong
name: str = agent.policy_delay  # wrong


class Bonus(PPO):
    """A variant: two fields and a method."""

    gamma = 0.9
    bonus: Annotated[float, at_least(0), 'added to every advantage'] = 0.1

    def build(self) -> None:
        super().build()
        self.doubled = 2 * self.bonus


doubled: float = Bonus(obs, act, bonus=0.5, entropy_coef=0.01).doubled
Bonus(obs, act, bonus='much')  # wrong
Bonus(obs, act, bonsu=0.5)  # wrong


class Typo(PPO):
    """A variant with a default of the wrong type."""

    gamma = 'much'  # wrong
