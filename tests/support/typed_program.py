"""A user's program with right and wrong calls, for type checkers: lines marked as wrong are to be reported."""

from __future__ import annotations

from typing import Annotated

from gymnasium.spaces import Box

import zoo
from zoo import algorithms
from zoo.algorithms import PPO, TD3, Rainbow
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
