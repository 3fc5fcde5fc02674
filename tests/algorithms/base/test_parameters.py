"""Hyper-parameters as fields: what a class declares, what it may not, and what type checkers see of it."""

from __future__ import annotations

import copy
import inspect
import logging
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import zoo
from zoo.algorithms import DQN, PPO, R2D2, TD3, ApexDQN, CrossQ, Rainbow
from zoo.algorithms.base import Algorithm
from zoo.common.parameters import Gamma
from zoo.common.sampling import Sampling
from zoo.common.schedules import Linear
from zoo.common.tools.params import at_least
from zoo.common.training import loops

SPACES = (Box(-1.0, 1.0, (3,)), Discrete(2))
BOX = (Box(-1.0, 1.0, (3,)), Box(-1.0, 1.0, (1,)))
TINY = [{'hidden': [4]}] * 2


class Bonus(PPO):
    """PPO with something more, and another discount."""

    gamma = 0.9
    bonus: Annotated[float, at_least(0), 'added to every advantage'] = 0.1
    marks: list[int] = []  # noqa: RUF012

    def build(self) -> None:
        super().build()
        self.doubled = 2 * self.bonus


def test_a_variant_is_two_fields_and_a_method(tmp_path: Path):
    agent = Bonus(*SPACES, net_list=TINY, bonus=0.5)
    assert (agent.bonus, agent.doubled, agent.gamma) == (0.5, 1.0, 0.9)
    assert list(Bonus.params()) == [*PPO.params(), 'bonus', 'marks']
    assert PPO.params()['gamma'] == 0.99 and Bonus.params()['gamma'] == 0.9
    assert '    bonus: added to every advantage' in Bonus.__doc__ and 'bonus' in repr(zoo.describe(Bonus))
    for made in (inspect.signature(Bonus), inspect.signature(Bonus.__init__)):
        assert made.parameters['bonus'].kind is inspect.Parameter.KEYWORD_ONLY
        assert made.parameters['gamma'].default == 0.9
    for twin in (Bonus.load(agent.save(tmp_path / 'saved')), copy.deepcopy(agent)):
        assert (twin.bonus, twin.doubled) == (0.5, 1.0)
    cls, params = agent.blueprint()
    assert cls is Bonus and params['bonus'] == 0.5
    with pytest.raises(AttributeError, match=r'^bonus is fixed when the agent is made, .*Bonus\(bonus=…\)\.$'):
        agent.bonus = 1.0
    with pytest.raises(ValueError, match=r'^bonus is -1: give a number of at least 0\.$'):
        Bonus(*SPACES, bonus=-1)
    with pytest.raises(ValueError, match=r"^unknown parameter of Bonus 'bonsu': did you mean 'bonus'"):
        Bonus(*SPACES, bonsu=1)


def test_a_mutable_default_is_copied():
    one, other = (Bonus(*SPACES, net_list=TINY) for _ in range(2))
    one.marks.append(1)
    Bonus.params()['marks'].append(2)
    assert other.marks == [] and Bonus(*SPACES, net_list=TINY).marks == []


def test_arguments_go_by_position_in_the_order_of_the_signature():
    agent = TD3(*BOX, [{'hidden': [4]}] * 3, None, 0.5, 0.25, 3)
    assert (agent.gamma, agent.tau, agent.policy_delay) == (0.5, 0.25, 3)
    agent = CrossQ(*BOX, [{'hidden': [4]}] * 3, None, 0.5, 2, 0.25)
    assert (agent.gamma, agent.policy_delay, agent.alpha) == (0.5, 2, 0.25)
    for arguments, params in (((*BOX, None), {'net_list': None}), ((*BOX, *range(10)), {})):
        with pytest.raises(ValueError, match='^TD3 was given more arguments than it takes, or one of them twice'):
            TD3(*arguments, **params)


def test_a_field_without_a_default_is_required():
    class Needs(PPO, kw_only=True):
        """PPO with something that its user has to say."""

        bonus: Annotated[float, at_least(0), 'added to every advantage']

    with pytest.raises(ValueError, match=r'^Needs needs bonus: added to every advantage\.$'):
        Needs(*SPACES)
    assert Needs(*SPACES, net_list=TINY, bonus=1).bonus == 1
    assert inspect.signature(Needs).parameters['bonus'].default is inspect.Parameter.empty


def test_a_default_out_of_its_range_is_refused_when_the_class_is_made():
    with pytest.raises(ValueError, match=r'^Greedy\.gamma is 2: give a number from 0 to 1\.$'):
        type('Greedy', (PPO,), {'gamma': 2})
    with pytest.raises(ValueError, match=r"^Greedy\.method is 'clap': give 'clip' or 'penalty'\.$"):
        type('Greedy', (PPO,), {'method': 'clap'})


def test_a_constructor_is_refused_when_the_class_is_made():
    with pytest.raises(TypeError, match=r'^Old has a constructor, but the parameters .* are fields: .* build\(self\)'):

        class Old(PPO):
            """PPO in the old way."""

            def __init__(self, *args: Any, bonus: float = 0.1, **params: Any) -> None:
                super().__init__(*args, **params)
                self.bonus = bonus


def test_a_field_with_the_name_of_a_method_is_refused():
    with pytest.raises(TypeError, match=r'^Hides\.rollout is a method of PPO already: name the parameter other'):

        class Hides(PPO):
            """PPO with a parameter that hides a method."""

            rollout: int = 3  # type: ignore[assignment]


@pytest.mark.parametrize('name', ['steps', 'rng', 'updates', 'replay', 'progress', 'networks', 'is_built', 'policy'])
def test_a_field_with_the_name_of_an_attribute_is_refused(name):
    """``Algorithm.__init__`` or ``build`` of PPO would replace what the user gave."""
    with pytest.raises(TypeError, match=rf'^Hides\.{name} is an attribute of PPO already: name the parameter other'):
        type('Hides', (PPO,), {'__annotations__': {name: int}, name: 3})


def test_a_misspelt_default_is_refused_when_the_class_is_made():
    with pytest.raises(
        TypeError, match=r"^Typo\.clip_rnage is no parameter: did you mean 'clip_range'\? Begin the name"
    ):
        type('Typo', (PPO,), {'clip_rnage': 0.3})
    assert type('Own', (PPO,), {'_clip_rnage': 0.3, 'labels': ('a', 'b')}).labels == ('a', 'b')


def test_variants_are_combined_as_python_combines_classes():
    one, other = type('One', (PPO,), {'gamma': 0.5}), type('Other', (PPO,), {'clip_range': 0.3})
    both = type('Both', (one, other), {})
    assert (both.params()['gamma'], both.params()['clip_range']) == (0.5, 0.3)
    mixed = type('Mixed', (type('Mixin', (), {'gamma': 0.25}), other), {})
    agent = mixed(*SPACES, net_list=TINY)
    assert (agent.gamma, agent.clip_range) == (0.25, 0.3)


def test_a_field_with_a_name_of_its_own_is_no_attribute():
    assert 'bonus' in type('Free', (PPO,), {'__annotations__': {'bonus': int}, 'bonus': 3}).params()


def test_rewards_are_not_normalized_off_policy_and_the_message_says_what_to_do_instead():
    message = "unknown parameter of TD3 'normalize_reward': a replay buffer .* build_env\\(…, reward_shaping="
    with pytest.raises(ValueError, match=message):
        TD3(*SPACES, normalize_reward=True)
    with pytest.raises(ValueError, match="unknown parameter 'normalize_reward': a replay buffer"):
        zoo.train('TD3', 'Pendulum-v1', normalize_reward=True)


def test_a_default_of_learn_that_there_is_not_is_refused():
    with pytest.raises(TypeError, match="^unknown parameter of Wrong's learn 'horizn': did you mean 'horizon'"):
        type('Wrong', (PPO,), {'learn_defaults': {'horizn': 3}})


def test_what_several_variants_share_is_declared_once():
    """A range or a meaning that changes in DQN changes in each of its variants."""
    own = DQN.declared()
    for cls in (ApexDQN, Rainbow, R2D2):
        for name in ('n_step', 'priority_alpha', 'target_update_every'):
            found = cls.declared()[name]
            assert (found.meaning, found.range, found.kind) == (own[name].meaning, own[name].range, own[name].kind)
    assert [cls.params()['n_step'] for cls in (DQN, ApexDQN, Rainbow, R2D2)] == [1, 3, 3, 5]


def test_what_nothing_reads_is_said(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING, 'zoo'):
        DQN(*SPACES, net_list=TINY[:1], priority_alpha=0.3, noisy_std=0.1, burn_in=3)
    assert [record.getMessage() for record in caplog.records] == [
        'priority_alpha=0.3 changes nothing without prioritized=True.',
        'noisy_std=0.1 changes nothing without noisy=True.',
        'burn_in=3 changes nothing, since no network is recurrent.',
    ]


def learner(**attributes: Any) -> type[Algorithm]:
    """An algorithm that learns from steps, as far as its class is concerned."""
    names = {'network_names': ('q',), 'optimizer_names': ('q',), 'metric_names': ('q',), 'acts_in': ('Box',)}
    return type('Mine', (Algorithm,), {'loop': loops.off_policy, **names, **attributes})


def test_who_learns_from_steps_says_how_they_are_drawn():
    message = r'^Mine learns from a replay buffer, but does not say how transitions .*Sampling\(self\.gamma\)\.$'
    with pytest.raises(TypeError, match=message):
        learner()
    with pytest.raises(TypeError, match=message):
        learner(__annotations__={'discount': Gamma}, discount=0.9)
    made = learner(__annotations__={'discount': Gamma}, discount=0.9, sampling=property(lambda self: Sampling(0.9)))
    assert made.params()['discount'] == 0.9


def test_values_are_kept_as_declared():
    agent = TD3(*BOX, net_list=[{'hidden': [4]}] * 3, policy_delay=np.int64(3), tau=np.float32(0.5))
    assert type(agent.policy_delay) is int and type(agent.tau) is float
    assert DQN(*SPACES, net_list=TINY[:1], epsilon=Linear(1.0)).epsilon == Linear(1.0)
