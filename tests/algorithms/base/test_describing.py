"""How parameters are shown, and what a constructor says to those who come from elsewhere."""

from __future__ import annotations

import inspect
import re

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import zoo
from zoo import algorithms
from zoo.algorithms.base import Algorithm

SPACES = (Box(-1.0, 1.0, (3,)), Discrete(2))


@pytest.mark.parametrize('name', algorithms.NAMES)
def test_every_parameter_is_declared_with_a_meaning(name: str):
    described = zoo.describe(name)
    for param in (*described.constructor, *described.learn):
        assert param.meaning, param.name
        assert param.kind != 'any' or param.name in (
            'net_list',
            'optimizers_list',
            'roles',
            'recorded',
            'dataset',
            'expert',
        ), param.name
    text, page = repr(described), described._repr_html_()
    cls = getattr(algorithms, name)
    for parameter in (*cls.params(), *cls.learn_params()):
        assert re.search(rf'^  {parameter} = ', text, re.M) and f'<td style="text-align:left">{parameter}</td>' in page


@pytest.mark.parametrize('name', algorithms.NAMES)
def test_help_and_tab_show_the_parameters(name: str):
    cls = getattr(algorithms, name)
    signature = inspect.signature(cls.learn)
    assert set(cls.learn_params()) < set(signature.parameters)
    assert 'learn_params' not in signature.parameters
    for parameter, default in cls.learn_params().items():
        assert signature.parameters[parameter].default == default
        assert f'    {parameter}: ' in cls.learn.__doc__
    for parameter in cls.params():
        assert f'    {parameter}: ' in cls.__doc__
    assert list(inspect.signature(cls).parameters) == list(cls.params())


def test_describe_takes_a_class_and_an_agent():
    assert zoo.describe(algorithms.PPO) == zoo.describe('PPO') == zoo.describe(algorithms.PPO(*SPACES))
    with pytest.raises(ValueError, match=r"^unknown algorithm 'PP0': did you mean 'PPO'\?"):
        zoo.describe('PP0')
    with pytest.raises(ValueError, match='takes the name of an algorithm, its class or an agent'):
        zoo.describe(3)
    with pytest.raises(TypeError, match=r'^describe takes one algorithm: zoo\.call_default_params\(env, alg='):
        zoo.describe('PPO', 'CartPole-v1')


def test_an_agent_shows_itself():
    agent = algorithms.PPO(*SPACES, net_list=[{'hidden': [4]}] * 2)
    assert repr(agent) == '<PPO from Box(3,) float32 to Discrete(2): 47 weights, 0 steps>'


RANGES = [
    ('SAC', 'alpha', 0.0),
    ('SAC', 'alpha', 'none'),
    ('SAC', 'tau', 1.5),
    ('PPO', 'clip_range', -0.2),
    ('PPO', 'target_kl', -1.0),
    ('PPO', 'entropy_coef', float('nan')),
    ('PPO', 'max_grad_norm', 0.0),
    ('PPO', 'gamma', 2.0),
    ('PPO', 'normalize_obs', 'abc'),
    ('DQN', 'epsilon', 5.0),
    ('DQN', 'target_update_every', 0),
    ('TD3', 'policy_delay', 1.5),
    ('TD3', 'explore_noise', -0.1),
]


@pytest.mark.parametrize(('name', 'parameter', 'value'), RANGES)
def test_a_value_out_of_range_is_refused_at_construction(name: str, parameter: str, value: object):
    cls = getattr(algorithms, name)
    space = SPACES[1] if 'Discrete' in cls.acts_in else Box(-1.0, 1.0, (1,))
    with pytest.raises(ValueError, match=rf'^{parameter} is .*: give .*\.$'):
        cls(SPACES[0], space, **{parameter: value})


def test_what_is_compiled_in_cannot_be_set_afterwards():
    agent = algorithms.PPO(*SPACES)
    with pytest.raises(
        AttributeError, match=r'^gamma is fixed when the agent is made, .*: make a new agent with PPO\('
    ):
        agent.gamma = 0.5
    assert agent.gamma == 0.99
    agent.progress = 0.5  # no parameter
    with pytest.raises(
        AttributeError, match=r'^ent_coef is called entropy_coef here, and is fixed .*PPO\(entropy_coef=…\)'
    ):
        agent.ent_coef = 0.5


def test_an_attribute_of_others_agents_says_what_to_write():
    agent = algorithms.PPO(*SPACES)
    with pytest.raises(
        AttributeError, match=r"^'PPO' object has no attribute 'test': write agent.learn\(env, 'test'\)\.$"
    ):
        agent.test  # noqa: B018
    with pytest.raises(AttributeError, match=r"^'PPO' object has no attribute 'nonesuch'$"):
        agent.nonesuch  # noqa: B018
    with pytest.raises(TypeError, match=r'^PPO is a class: make an agent first, agent = PPO\(\*\*alg_params\)\.$'):
        algorithms.PPO.learn(None, 'train')


def test_numbers_are_kept_as_plain_ones():
    agent = algorithms.TD3(SPACES[0], Box(-1.0, 1.0, (1,)), policy_delay=np.int64(3), tau=np.float32(0.5))
    assert type(agent.policy_delay) is int and type(agent.tau) is float


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        ((gymnasium.make('CartPole-v1'),), 'PPO is made of spaces, not of an environment: PPO\\(\\*\\*alg_params\\)'),
        (('MlpPolicy', gymnasium.make('CartPole-v1')), "PPO is made of spaces, not of the name 'MlpPolicy'"),
        ((), 'PPO needs observation_space: PPO\\('),
        ((SPACES[0],), 'PPO needs action_space: PPO\\('),
        ((3, SPACES[1]), 'observation_space is 3: give a space of gymnasium.spaces, or'),
        ((*SPACES, None, None, *range(30)), 'PPO was given more arguments than it takes'),
    ],
)
def test_other_ways_of_making_an_agent(arguments: tuple, message: str):
    with pytest.raises(ValueError, match=f'^{message}'):
        algorithms.PPO(*arguments)


@pytest.mark.parametrize(
    ('parameter', 'message'),
    [
        ('lr', 'optimizers_list'),
        ('learning_rate', 'optimizers_list'),
        ('n_envs', r'build_env\(…, nenv=…\)'),
        ('num_envs', r'build_env\(…, nenv=…\)'),
        ('total_timesteps', "it is called 'train_steps' here, and is a parameter of learn"),
        ('n_epochs', "it is called 'epochs' here, and is a parameter of learn"),
        ('ent_coef', "it is called 'entropy_coef' here"),
        ('train_steps', r'is a parameter of learn, not of PPO: agent.learn\(env, train_steps=…\)'),
        ('gama', "did you mean 'gamma'"),
        ('buffer_size', "unknown parameter of PPO 'buffer_size': it has no replay buffer; DQN, SAC, TD3 and others"),
        ('dataset', "'dataset': it learns from its own steps alone; BC, IQL, CQL, TD3BC and AWAC learn from recorded"),
    ],
)
def test_habits(parameter: str, message: str):
    with pytest.raises(ValueError, match=message):
        algorithms.PPO(*SPACES, **{parameter: 1})


def test_the_first_lines_of_other_libraries():
    env = gymnasium.make('CartPole-v1')
    for given in ({'policy': 'MlpPolicy', 'env': env}, {'env': env, 'verbose': 1}):
        with pytest.raises(ValueError, match='^PPO is made of spaces, not of an environment'):
            algorithms.PPO(**given)
    with pytest.raises(ValueError, match=r"^PPO is made of spaces, not of the name 'MlpPolicy'"):
        algorithms.PPO('MlpPolicy', env, verbose=1)
    mine = type('Mine', (algorithms.PPO,), {})
    with pytest.raises(ValueError, match=r"^Mine .*call_default_params\(env, env_type, 'PPO'\), or Mine\(env\.obs"):
        mine(env)
    with pytest.raises(ValueError, match=r'Mine\(env\.single_observation_space, env\.single_action_space\)'):
        mine(gymnasium.make_vec('CartPole-v1', 2))
    agent = algorithms.PPO(*SPACES, net_list=[{'hidden': [4]}] * 2)
    with pytest.raises(ValueError, match="'total_timesteps': it is called 'train_steps' here"):
        agent.learn(total_timesteps=10)
    with pytest.raises(ValueError, match=r'^learn needs an environment: agent.learn\(env, train_steps=…\)'):
        agent.learn()
    with pytest.raises(ValueError, match=r'the environment comes first: agent\.learn\(env, train_steps=…\)\.$'):
        agent.learn(total_timesteps=1000)
    with pytest.raises(
        ValueError, match=r"^learn takes the environment first: agent\.learn\(env, 'train', train_steps=1000"
    ):
        agent.learn(1000)
    with pytest.raises(ValueError, match="^unknown parameter of PPO 'policy': networks follow from the spaces"):
        algorithms.PPO(*SPACES, policy='MlpPolicy')
    with pytest.raises(ValueError, match=r"called 'horizon' here, and is a parameter of learn, .*horizon=…"):
        algorithms.PPO(*SPACES, n_steps=128)


def test_a_subclass_of_a_users_own_keeps_the_parameters():
    class Bonus(algorithms.PPO):
        """PPO with something more."""

        bonus: float = 0.1

    agent = Bonus(*SPACES, bonus=0.5, gamma=0.9)
    assert (agent.bonus, agent.gamma) == (0.5, 0.9)
    assert set(Bonus.params()) == {*algorithms.PPO.params(), 'bonus'}
    with pytest.raises(ValueError, match='^gamma is 3: give'):
        Bonus(*SPACES, gamma=3)
    with pytest.raises(ValueError, match="^unknown parameter of Bonus 'gama'"):
        Bonus(*SPACES, gama=3)
    assert isinstance(agent, Algorithm) and 'bonus' in Bonus.__doc__
