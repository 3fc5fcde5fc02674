"""The contract: every algorithm, on every kind of observation, for every kind of action that it claims.

Constructed, trained for a few updates, finite, moved, saved, loaded, equal; every other pairing refused in a sentence.
"""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import toys
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Text, Tuple
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

import zoo
from zoo import algorithms
from zoo.algorithms.base import Algorithm
from zoo.common.tools.compilation import PackedCall
from zoo.common.training import checkpoint

#: All kinds of action.
EVERY = ('Discrete', 'MultiDiscrete', 'MultiBinary', 'Box', 'Box 2-D', 'Dict', 'Tuple')

#: The kinds of action that each algorithm claims: written out, so that a claim cannot vanish unseen.
CLAIMS = {
    'A2C': EVERY,
    'A3C': EVERY,
    'AC': EVERY,
    'ApexDDPG': ('Box', 'Box 2-D'),
    'ApexDQN': ('Discrete',),
    'ARS': EVERY,
    'AWAC': ('Discrete', 'Box', 'Box 2-D'),
    'BC': EVERY,
    'C51': ('Discrete',),
    'CQL': ('Discrete', 'Box', 'Box 2-D'),
    'CrossQ': ('Box', 'Box 2-D'),
    'DAgger': EVERY,
    'DDPG': ('Box', 'Box 2-D'),
    'DPPO': EVERY,
    'DQN': ('Discrete',),
    'ES': EVERY,
    'FQL': ('Box', 'Box 2-D'),
    'GAIL': EVERY,
    'GAILTRPO': EVERY,
    'IMPALA': EVERY,
    'IQL': ('Discrete', 'Box', 'Box 2-D'),
    'MARWIL': EVERY,
    'OffPAC': EVERY,
    'PPO': EVERY,
    'PQN': ('Discrete',),
    'QRDQN': ('Discrete',),
    'R2D2': ('Discrete',),
    'Rainbow': ('Discrete',),
    'SAC': ('Discrete', 'Box', 'Box 2-D'),
    'TD3': ('Box', 'Box 2-D'),
    'TD3BC': ('Box', 'Box 2-D'),
    'TQC': ('Box', 'Box 2-D'),
    'TRPO': EVERY,
    'VPG': EVERY,
}

#: Kinds of action that can be masked.
MASKABLE = ('Discrete', 'MultiDiscrete', 'MultiBinary')

#: A few updates: two of PPO's iterations, nine of the others' updates in calls of three.
ON_POLICY = {'train_steps': 16, 'horizon': 8, 'epochs': 2, 'batch_size': 4, 'rollouts': 1}
OFF_POLICY = {
    'train_steps': 12,
    'explore_steps': 6,
    'batch_size': 4,
    'buffer_size': 40,
    'update_every': 2,
    'updates': 3,
}
#: Twelve updates on a dataset, and two iterations on labels of six steps.
FROM_DATA = {'train_updates': 12, 'batch_size': 4}
FROM_LABELS = {'train_steps': 12, 'horizon': 2, 'batch_size': 4, 'updates': 3}


def learn_params(agent: Algorithm, env: Any) -> dict[str, Any]:
    """A few updates for an algorithm."""
    cls = type(agent)
    if cls.loop.needs_data:
        return FROM_DATA | toys.needed(agent, env)
    if cls.loop.alone:
        return FROM_LABELS | toys.needed(agent, env)
    params = OFF_POLICY if cls.loop.experience == 'steps' else ON_POLICY
    return toys.taken(cls, params) | toys.needed(agent, env)


def make(name: str, observation_space: Space, action_space: Space, **params: Any) -> Algorithm:
    """An agent with tiny networks."""
    cls = getattr(algorithms, name)
    spec = {'hidden': [8], 'features': 8} | ({'recurrent': 'gru'} if name == 'R2D2' else {})
    specs = [spec | {'seed': i} for i in range(len(cls.network_names))]
    return cls(observation_space, action_space, net_list=specs, **toys.few_directions(cls) | params)


def compiled(agent: Algorithm) -> PackedCall:
    """The compiled update."""
    return agent.fused


def weights(agent: Algorithm) -> dict[str, list[np.ndarray]]:
    """The weights of each network."""
    return {name: [v.numpy() for v in network.variables] for name, network in agent.networks.items()}


def stack(space: Space, items: list[Any]) -> Any:
    """A batch of elements of a space, as a vector environment gives it."""
    return concatenate(space, items, create_empty_array(space, len(items)))


def assert_same(found: Any, expected: Any) -> None:
    """Two elements of an action space are equal, Boxes to rounding."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            assert_same(found[key], expected[key])
    elif isinstance(expected, tuple):
        for a, b in zip(found, expected, strict=True):
            assert_same(a, b)
    else:
        np.testing.assert_allclose(found, expected, atol=1e-5)


def check_training(agent: Algorithm, env: Any) -> None:
    """Trains for a few updates: all metrics finite, every network moved, no more traces than phases."""
    before = weights(agent)
    params = learn_params(agent, env)
    result = agent.learn(env, seed=0, run_dir=False, **params)
    planned = params['train_updates' if agent.loop.needs_data else 'train_steps']
    assert result.steps >= planned and agent.steps == result.steps
    assert set(result.losses) == set(agent.metric_names)
    assert all(np.isfinite(value) for value in result.losses.values()), result.losses
    for name, after in weights(agent).items():
        assert any(not np.array_equal(a, b) for a, b in zip(before[name], after, strict=True)), f'{name} has not moved'
        assert all(np.isfinite(x).all() for x in after), f'{name} is not finite'
    # Calls of three updates begin in as many phases.
    assert compiled(agent).traces == agent.phases // math.gcd(agent.phases, OFF_POLICY['updates'])


def check_loading(agent: Algorithm, env: gymnasium.Env, path: Path) -> None:
    """Saved and loaded, it has the same arrays and gives the same actions, which the environment takes."""
    agent.save(path / 'saved')
    twin = zoo.load(path / 'saved')
    assert type(twin) is type(agent)
    twin.save(path / 'again')
    saved, again = checkpoint.read(path / 'saved'), checkpoint.read(path / 'again')
    assert again.config.pop('saved_at') > saved.config.pop('saved_at')
    assert saved.config == again.config
    assert saved.arrays.keys() == again.arrays.keys()
    for name, array in saved.arrays.items():
        np.testing.assert_array_equal(again.arrays[name], array, err_msg=name)

    observations, actions = [], []
    for i in range(3):
        obs, _ = env.reset(seed=i)
        action = agent.predict(obs)
        env.step(action)  # refuses what is not in its action space, or masked
        assert_same(twin.predict(obs), action)
        observations.append(obs)
        actions.append(action)
    together = agent.predict(stack(env.observation_space, observations))
    for found, expected in zip(iterate(batch_space(env.action_space, 3), together), actions, strict=True):
        assert_same(found, expected)
    for obs in observations:  # explores with the same random numbers
        assert_same(twin.predict(obs, deterministic=False), agent.predict(obs, deterministic=False))


#: Beside every action over a vector, these are always run; the others pass through the same code, and are run with
#: ``-m matrix``.
ALWAYS = {('masked Dict', 'MultiDiscrete'), ('nested Dict', 'Dict')}

#: These are always run with every observation and their first action: one that learns from rollouts, one from replay.
OBSERVERS = ('DQN', 'PPO')

#: With its first action any other algorithm is always run over one of these, the first that it can be over.
ALWAYS_OF_OTHERS = ('masked Dict', 'nested Dict')


def pairing(name: str, observation: str, action: str) -> Any:
    """One pairing for the test below, marked where others represent it."""
    first = action == CLAIMS[name][0]
    stands_for_others = first and observation == ALWAYS_OF_OTHERS[action not in MASKABLE]
    if name not in toys.VARIANTS:
        stands_for_others |= observation == 'vector' or (observation, action) in ALWAYS or first and name in OBSERVERS
    return pytest.param(name, observation, action, marks=[] if stands_for_others else pytest.mark.matrix)


PAIRINGS = [
    pairing(name, observation, action)
    for name, claimed in CLAIMS.items()
    for observation in toys.OBSERVATIONS
    for action in claimed
    if observation != 'masked Dict' or action in MASKABLE
]


@pytest.mark.full(but='ES-vector-Box 2-D')
@pytest.mark.usefixtures('plain_graphs')
@pytest.mark.parametrize(('name', 'observation', 'action'), PAIRINGS)
def test_pairing(name, observation, action, tmp_path):
    action_space = toys.ACTIONS[action]
    observation_space = toys.observation_space(observation, action_space)
    agent = make(name, observation_space, action_space)
    check_training(agent, toys.AnySpaces(observation_space, action_space))
    check_loading(agent, toys.AnySpaces(observation_space, action_space), tmp_path)


@pytest.mark.full
@pytest.mark.parametrize('name', toys.kinds(CLAIMS, ('PPO',)))
def test_with_xla(name, tmp_path):
    observation_space, action_space = toys.OBSERVATIONS['Tuple'], toys.ACTIONS[CLAIMS[name][-1]]
    agent = make(name, observation_space, action_space)
    assert compiled(agent).xla
    check_training(agent, toys.AnySpaces(observation_space, action_space))
    check_loading(agent, toys.AnySpaces(observation_space, action_space), tmp_path)


@pytest.mark.full(but='ES')
@pytest.mark.usefixtures('plain_graphs')
@pytest.mark.parametrize('name', toys.kinds(CLAIMS, ('DQN', 'ES', 'PPO')))
def test_copies(name):
    action_space = toys.ACTIONS[CLAIMS[name][-1]]
    observation_space = toys.observation_space('nested Dict', action_space)
    factory = partial(toys.AnySpaces, observation_space, action_space)
    agent = make(name, observation_space, action_space)
    check_training(agent, zoo.build_env(factory, 'gymnasium', nenv=3))
    expected = {'rollouts': [24], 'steps': [12], 'evaluations': range(20, 40)}  # idle copies step, too
    assert agent.steps in expected[agent.loop.experience]


@pytest.mark.full(but='float64-DQN')
@pytest.mark.usefixtures('plain_graphs')
@pytest.mark.parametrize('name', toys.kinds(algorithms.NAMES, OBSERVERS))
@pytest.mark.parametrize(
    'observation_space',
    [
        Box(-np.inf, np.inf, (3,), np.float64),
        Box(0, 9, (4,), np.int64),
        Box(-1.0, 1.0, (), np.float32),
        Box(0, 255, (7, 9, 3), np.uint8),
        Box(0.0, 1.0, (2, 2, 2, 2), np.float32),
        Box(-1.0, 1.0, (1, 8, 8), np.float32),
        Dict(a=Tuple((Discrete(2), Dict(b=Box(0, 255, (8, 8), np.uint8))))),
    ],
    ids=['float64', 'integers', 'a number', 'a small image', 'four axes', 'a scaled image', 'deep'],
)
def test_further_observations(name, observation_space, tmp_path):
    action_space = toys.ACTIONS[CLAIMS[name][0]]
    agent = make(name, observation_space, action_space)
    check_training(agent, toys.AnySpaces(observation_space, action_space))
    check_loading(agent, toys.AnySpaces(observation_space, action_space), tmp_path)


def needs_bounds(name: str) -> bool:
    """Whether an algorithm takes only a Box with bounds."""
    cls = getattr(algorithms, name)
    return cls.squash or cls.bounded


FURTHER_ACTIONS = {
    'integers': Box(0, 10, (2,), np.int64),
    'a number': Box(-1.0, 1.0, (), np.float32),
    'float64': Box(-1.0, 1.0, (1,), np.float64),
    'unbounded': Box(-np.inf, np.inf, (2,), np.float32),
    'bounded below': Box(0.0, np.inf, (2,), np.float32),
    'partly bounded': Box(np.float32([-1.0, -np.inf]), np.float32([1.0, np.inf])),
}


@pytest.mark.full(but='ApexDDPG-bounded below')
@pytest.mark.usefixtures('plain_graphs')
@pytest.mark.parametrize(
    ('name', 'action'),
    [
        pytest.param(name, action, marks=[] if name in ('PPO', 'SAC') or refused else pytest.mark.matrix)
        for name, claimed in CLAIMS.items()
        if 'Box' in claimed
        for action in FURTHER_ACTIONS
        for refused in [needs_bounds(name) and 'bounded' in action]
    ],
)
def test_further_boxes(name, action, tmp_path):
    observation_space, action_space = toys.OBSERVATIONS['vector'], FURTHER_ACTIONS[action]
    if needs_bounds(name) and 'bounded' in action:
        with pytest.raises(ValueError, match=rf'^{name} needs a Box with finite bounds, but .*inf.* or use PPO\. Rec'):
            make(name, observation_space, action_space)
        return
    agent = make(name, observation_space, action_space)
    check_training(agent, toys.AnySpaces(observation_space, action_space))
    check_loading(agent, toys.AnySpaces(observation_space, action_space), tmp_path)


def test_the_claims_are_those_of_the_classes():
    assert CLAIMS.keys() == set(algorithms.NAMES)
    for name, claimed in CLAIMS.items():
        assert set(getattr(algorithms, name).acts_in) == {type(toys.ACTIONS[action]).__name__ for action in claimed}


REFUSED = [(name, action) for name in CLAIMS for action in toys.ACTIONS if action not in CLAIMS[name]]


@pytest.mark.parametrize(('name', 'action'), REFUSED)
@pytest.mark.parametrize('observation', ['vector', 'nested Dict'])
def test_every_other_pairing_is_refused(name, action, observation):
    space = toys.ACTIONS[action]
    able = [other for other in algorithms.NAMES if action in CLAIMS[other]]
    with pytest.raises(ValueError) as info:
        make(name, toys.OBSERVATIONS[observation], space)
    message = str(info.value)
    assert message.startswith(f'{name} cannot act in {type(space).__name__}')
    first = [other for other in ('PPO', 'DQN', 'SAC', 'TD3') if other in able]
    loops = {other: getattr(algorithms, other).loop for other in algorithms.NAMES}
    kinds = {other: (loop.experience, loop.needs_data) for other, loop in loops.items()}
    alike = [other for other in able if kinds[other] == kinds[name]]  # OffPAC, where a replay algorithm was asked for
    first += alike[:1] if not set(alike) & set(first) else []
    assert message.endswith(f'; use {" or ".join(first)}, or {len(able) - len(first)} others.')
    assert '\n' not in message


@pytest.mark.parametrize(
    ('name', 'action'),
    [(name, action) for name, claimed in CLAIMS.items() for action in claimed if action not in MASKABLE],
)
def test_a_mask_that_nothing_would_act_by_is_refused(name, action):
    space = toys.ACTIONS[action]
    with pytest.raises(ValueError, match=r"^the observation has an 'action_mask', but .* cannot be masked, .*\.$"):
        make(name, toys.observation_space('masked Dict', space), space)


@pytest.mark.parametrize('mask', [Dict(grip=MultiBinary(3)), Tuple((MultiBinary(2), MultiBinary(3)))])
@pytest.mark.parametrize('action', ['Discrete', 'MultiDiscrete', 'Dict'])
def test_a_mask_in_parts_is_refused(mask, action):
    with pytest.raises(
        ValueError, match=r"^the observation's 'action_mask' is a (Dict|Tuple)\(.*: give one array.*\.$"
    ):
        make('PPO', Dict(pose=toys.OBSERVATIONS['vector'], action_mask=mask), toys.ACTIONS[action])


@pytest.mark.parametrize('name', algorithms.NAMES)
def test_a_space_that_nothing_here_can_act_in(name):
    with pytest.raises(ValueError, match=rf'^{name} cannot act in Text.*; no algorithm here can\.$'):
        make(name, toys.OBSERVATIONS['vector'], Text(5))


@pytest.mark.parametrize('name', algorithms.NAMES)
def test_an_observation_that_has_no_array_form(name):
    with pytest.raises(
        TypeError, match="^the part 'words' is text, which no network reads: leave it out by a wrapper "
    ):
        make(name, Dict(words=Text(5)), toys.ACTIONS[CLAIMS[name][0]])


def test_a_leaf_of_an_action_that_has_no_array_form():
    with pytest.raises(
        TypeError, match="^the part 'words' is text, which no network reads: leave it out by a wrapper "
    ):
        make('PPO', toys.OBSERVATIONS['vector'], Dict(words=Text(5), number=Discrete(2)))


@pytest.mark.parametrize('actions', [Discrete(4), MultiDiscrete([2, 2])])
def test_the_toy_environment_can_refuse(actions):
    env = toys.AnySpaces(toys.observation_space('masked Dict', actions), actions)
    env.reset(seed=0)
    with pytest.raises(AssertionError, match='is not in'):
        env.step(7.5)
    env.allowed = (
        [np.array([False, True, True, True])] if isinstance(actions, Discrete) else [np.array([False, True])] * 2
    )
    with pytest.raises(AssertionError, match='is masked'):
        env.step(np.int64(0) if isinstance(actions, Discrete) else np.array([1, 0]))
