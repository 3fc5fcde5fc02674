"""Ranks whose programs differ end the job with one sentence, before anything is trained."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
from gymnasium.spaces import Box
from launchers import ENGINES
from test_train import OFF, ON, Images, agent_for, launch

from zoo import build_env
from zoo.distributed import PeerLost
from zoo.distributed.training import built
from zoo.distributed.training.plan import Plan
from zoo.distributed.training.planning import plan_for


class Ended(Exception):
    """What a cluster raises in these tests where the job would end."""


class Rank:
    """The cluster of one rank. All share what is saved."""

    def __init__(self, rank: int, saved: dict[str, Any]) -> None:
        self.rank, self._saved = rank, saved

    def save(self, name: str, x: Any) -> None:
        self._saved[name] = x

    def request(self, role: str, number: int, name: str) -> Any:
        assert (str(role), number) == ('learner', 0)
        if name not in self._saved:
            raise PeerLost('it has left')
        return self._saved[name]

    def abort(self, message: str) -> None:
        raise Ended(message)


def plan_of(name: str = 'PPO', nenv: int = 1, roles: dict[str, int] | None = None, **changes: Any) -> Plan:
    """Return the plan of a rank: capital letters change the agent, the others what ``learn`` is given."""
    env = build_env('CartPole-v1', nenv=nenv)
    agent = agent_for(name, env, **{key.lower(): x for key, x in changes.items() if key.isupper()})
    params = (ON if name == 'PPO' else OFF) | {key: x for key, x in changes.items() if key.islower()}
    steps = params.pop('train_steps')
    return plan_for(agent, env, roles or {'actors': 2}, 0, 0, steps, params)


def compared(one: Plan, other: Plan) -> str:
    """Return what the rank with the other plan ends the job with; an empty string if it goes on."""
    saved: dict[str, Any] = {}
    built.compare(Rank(0, saved), one.built)
    try:
        built.compare(Rank(2, saved), other.built)
    except Ended as end:
        return str(end)
    return ''


SMALL = [{'hidden': [4]}, {'hidden': [8]}]


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        ({'NET_LIST': SMALL}, r"hidden of the network 'actor' is \[4\] here and \[8\] in rank 0 \(learner 0\)"),
        (
            {'NET_LIST': [{'hidden': [8], 'activation': 'relu'}, {'hidden': [8]}]},
            "activation of the network 'actor' is 'relu' here and 'tanh' in rank 0",
        ),
        ({'GAMMA': 0.9}, r'gamma is 0\.9 here and 0\.98 in rank 0 \(learner 0\): run the same program in every rank\.'),
        ({'OPTIMIZERS_LIST': [{'learning_rate': 1e-5}]}, "learning_rate of the optimizer 'all' is 1e-05 here and {"),
        ({'horizon': 10}, 'horizon is 10 here and 20 in rank 0'),
        ({'batch_size': 10}, 'batch_size is 10 here and 20 in rank 0'),
        ({'train_steps': 601}, 'train_steps is 601 here and 600 in rank 0'),
        ({'nenv': 2}, 'nenv is 2 here and 1 in rank 0'),
        ({'roles': {'actors': 1, 'servers': 1}}, r'roles is 1 learner \+ 1 actor \+ 1 server here and 1 l'),
        ({'name': 'DQN'}, 'algorithm is DQN here and PPO in rank 0'),
    ],
)
def test_a_difference_is_named(changes: dict[str, Any], message: str):
    assert re.match(message, compared(plan_of(), plan_of(**changes)))


def test_equal_programs_go_on_with_other_seeds():
    agent = agent_for('PPO', build_env('CartPole-v1'))
    seeds = [entry | {'seed': i} for i, entry in enumerate(agent.net_list)]
    assert not compared(plan_of(GAMMA=1), plan_of(GAMMA=np.float64(1.0), NET_LIST=seeds))
    assert not compared(plan_of(name='DQN', recorded='/here'), plan_of(name='DQN', recorded='/there'))
    one = plan_of()
    assert not compared(one, replace(one, seed=7, sample_timeout=3.0))


def test_spaces_with_other_bounds():
    one = plan_of()
    other = replace(one, built=one.built | {'bounds of observation_space': '#00'})
    assert compared(one, other).startswith('bounds of observation_space is not the same as in rank 0 (learner 0): run')


def test_networks_of_the_users_own(monkeypatch: pytest.MonkeyPatch):
    """Names that Keras counts up do not matter, and what a layer computes does."""

    def with_torso(activation: str) -> Plan:
        torso = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, activation)])
        return plan_of(NET_LIST=[torso, {'hidden': [8]}])

    one = with_torso('relu')
    assert not compared(one, with_torso('relu'))
    assert "settings of the network 'actor' is not the same as in rank 0" in compared(one, with_torso('elu'))


def test_versions(monkeypatch: pytest.MonkeyPatch):
    """A rank without TensorFlow does not compare its version."""
    plan, saved = plan_of(), dict[str, Any]()
    built.compare(Rank(0, saved), plan.built)
    monkeypatch.setattr('tensorflow.__version__', '2.3.4')
    with pytest.raises(Ended, match=r'^version of TensorFlow is 2\.3 here and .*: install the same versions for every'):
        built.compare(Rank(1, saved), plan.built)
    monkeypatch.setattr(built, 'sys', SimpleNamespace(modules={'zoo': SimpleNamespace(__version__='0.1.0')}))
    built.compare(Rank(1, saved), plan.built)
    monkeypatch.setattr(built, 'sys', SimpleNamespace(modules={'zoo': SimpleNamespace(__version__='0.0.1')}))
    with pytest.raises(Ended, match=r'^version of zoo is 0\.0\.1 here and 0\.1\.0 in rank 0'):
        built.compare(Rank(1, saved), plan.built)


def test_a_learner_that_has_left_is_for_others_to_say():
    built.compare(Rank(1, {}), {})


def test_the_digest_is_that_of_the_whole_space():
    env = build_env('CartPole-v1')
    one, other = (
        built.record(agent_for('PPO', env, observation_space=Box(-9, high, (4,), np.float32)), plan_of())
        for high in (8, 9)
    )
    assert {name for name in one if one[name] != other[name]} == {'bounds of observation_space'}


def test_weights_of_another_size_are_refused():
    one, other = (agent_for('PPO', build_env('CartPole-v1'), net_list=[{'hidden': [n]}] * 2) for n in (8, 4))
    with pytest.raises(ValueError, match=r'^58 weights for a network of 30: make the same agent in every process\.$'):
        other.behavior.light().forward.load(one.forward.weights())


def test_weights_of_more_arrays_are_refused():
    """Where a graph acts, each array is assigned by itself."""
    env = build_env(Images)
    deep, flat = (agent_for('DQN', env, net_list=[{'hidden': hidden, 'features': 4}]) for hidden in ([8, 8], [8]))
    assert flat.forward.numpy is None
    with pytest.raises(ValueError, match=r'^more weights than the \d+ arrays of this network: make the same agent in'):
        flat.forward.load(deep.forward.weights())


DIFFERENT = """
from test_train import agent_for, learn
from zoo import build_env
from zoo.distributed.launchers import launched_place

other = launched_place()[0] == {rank}
env = build_env({env_id!r})
agent = agent_for({name!r}, env, **({agent} if other else dict()))
learn(agent, env, roles={roles}, **({learn} if other else dict()))
"""


def launch_different(engine: str, folder: Path, name: str, roles: dict, rank: int, agent: dict, learn: dict) -> str:
    program = DIFFERENT
    for key, value in (('rank', rank), ('agent', agent), ('learn', learn)):
        program = program.replace(f'{{{key}}}', repr(value).replace('{', '{{').replace('}', '}}'))
    size = sum(({'learners': 1} | roles).values())
    result = launch(engine, size, folder, name, 'CartPole-v1', roles, program)
    assert result.returncode != 0, result.stdout
    return result.stdout


@pytest.mark.full(but='actor of PPO')
@pytest.mark.parametrize(
    ('name', 'roles', 'rank', 'agent', 'learn', 'words'),
    [
        pytest.param(
            *('PPO', {'actors': 1}, 1, {'net_list': [{'hidden': [4]}, {'hidden': [4]}]}, {}),
            r"rank 1 \(actor 0\): hidden of the network 'actor' is \[4\] here and \[8\] in rank 0 \(learner 0\): run",
            id='actor of PPO',
        ),
        pytest.param(
            *('PPO', {'learners': 2, 'actors': 2}, 1, {'gamma': 0.5}, {}),
            r'rank 1 \(learner 1\): gamma is 0\.5 here',
            id='learner with another gamma',
        ),
        pytest.param(
            *('PPO', {'learners': 2, 'actors': 2}, 1, {'net_list': [{'hidden': [4]}, {'hidden': [4]}]}, {}),
            r"rank 1 \(learner 1\): hidden of the network 'actor' is \[4\] here",
            id='learner with another network',
        ),
        pytest.param(
            *('DQN', {'actors': 1, 'buffers': 1}, 2, {}, {'batch_size': 99}),
            r'rank 2 \(buffer 0\): batch_size is 99 here',
            id='buffer',
        ),
        pytest.param(
            *('DQN', {'actors': 1, 'servers': 1}, 2, {'net_list': [{'hidden': [4]}]}, {}),
            r"rank 2 \(server 0\): hidden of the network 'q' is \[4\] here",
            id='server',
        ),
        pytest.param(
            *('ES', {'actors': 2}, 2, {'net_list': [{'hidden': [4]}]}, {'train_steps': 600}),
            r'rank 2 \(actor 1\): ',
            id='actor of ES',
        ),
        pytest.param(
            *('A3C', {'actors': 1}, 1, {}, {'horizon': 7}), r'rank 1 \(actor 0\): horizon is 7 here', id='actor of A3C'
        ),
    ],
)
def test_roles(name: str, roles: dict, rank: int, agent: dict, learn: dict, words: str, tmp_path: Path):
    said = launch_different('local', tmp_path, name, roles, rank, agent, learn)
    assert re.search(words, said), said
    assert 'Traceback' not in said and 'Started again' not in said


@pytest.mark.full
@pytest.mark.parametrize('engine', ENGINES[1:])
def test_over_each_launcher(engine: str, tmp_path: Path):
    said = launch_different(engine, tmp_path, 'PPO', {'actors': 2}, 2, {}, {'horizon': 10})
    assert re.search(r'rank 2 \(actor 1\): horizon is 10 here and 20 in rank 0 \(learner 0\): run the same', said), said


CHANGED = """
from pathlib import Path
from test_train import agent_for, learn
from traced import hanging
from zoo import build_env
from zoo.distributed.engines.local import engine

env = build_env(hanging(Path({folder!r}) / 'failed', 'step', 'dies', 1))
learn(agent_for({name!r}, env, gamma=0.5 if engine.seat.restarts else 0.9), env, roles={roles})
"""


@pytest.mark.full
def test_an_actor_that_was_started_again_compares_again(tmp_path: Path):
    """Its program may have been edited since."""
    (tmp_path / 'failed').mkdir()
    result = launch('local', 2, tmp_path, 'PPO', 'CartPole-v1', {'actors': 1}, CHANGED)
    assert result.returncode != 0 and result.stdout.count('Started again') == 1, result.stdout
    assert 'rank 1 (actor 0): gamma is 0.5 here and 0.9 in rank 0 (learner 0): run the same' in result.stdout
