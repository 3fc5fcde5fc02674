"""An algorithm of an author's own, outside the library: its file is all that it takes.

DDPG (Lillicrap et al. 2016, arXiv 1509.02971) in some fifty lines. It is built, checked, documented, compiled, trained
on copies, saved, loaded and resumed like those of the library, none of which know of it.
"""

from __future__ import annotations

import copy
import inspect
from typing import Annotated

import numpy as np
import pytest
import tensorflow as tf
import toys
from gymnasium.spaces import Box, Dict, Discrete

import zoo
from zoo.algorithms.base import Algorithm, saving
from zoo.common.acting.forward import Forward
from zoo.common.acting.noise import GaussianNoise
from zoo.common.maths.optimizers import polyak
from zoo.common.networks.heads import deterministic_head, value_head
from zoo.common.networks.network import penalized
from zoo.common.parameters import Gamma, NormalizeObs, Tau
from zoo.common.records import Transition
from zoo.common.sampling import Sampling
from zoo.common.schedules import Linear
from zoo.common.tools.params import at_least
from zoo.common.training import loops


class DDPG(Algorithm):
    """Deep deterministic policy gradient for bounded ``Box`` actions."""

    loop = loops.off_policy
    acts_in = ('Box',)
    squash = True
    network_names = ('actor', 'critic')
    optimizer_names = ('actor', 'critic')
    metric_names = ('critic', 'actor')

    default_network = {'hidden': [256, 256], 'activation': 'relu'}
    default_optimizer = {'name': 'Adam', 'learning_rate': 1e-3}

    gamma: Gamma = 0.99
    tau: Tau = 0.005
    explore_noise: Annotated[float, at_least(0), 'deviation of the Gaussian noise on actions while training'] = 0.1
    normalize_obs: NormalizeObs = False

    def build(self) -> None:
        size = self.action_adaptor.parts[0].size
        self.build_networks([deterministic_head(size), value_head(action_size=size)])
        self.actor, self.critic = self.networks['actor'], self.networks['critic']
        self.target_actor, self.target_critic = self.build_target('actor'), self.build_target('critic')
        self.build_optimizers([self.actor.trainable_variables, self.critic.trainable_variables])
        self.behavior = GaussianNoise(Forward(self.actor), self.action_adaptor, self.explore_noise)

    @property
    def sampling(self) -> Sampling:
        return Sampling(self.gamma)

    def critic_loss(self, batch: Transition) -> tf.Tensor:
        """mean (Q(s, a) − y)², y = r + γ (1 − terminated) Q′(s′, π′(s′)): algorithm 1."""
        next_q = self.target_critic(batch.next_obs, self.target_actor(batch.next_obs))[:, 0]
        target = batch.reward + self.gamma * (1.0 - tf.cast(batch.terminated, tf.float32)) * next_q
        error = self.critic(batch.obs, batch.action, training=True)[:, 0] - tf.stop_gradient(target)
        return penalized(tf.reduce_mean(tf.square(error)), self.critic)

    def actor_loss(self, batch: Transition) -> tf.Tensor:
        """−mean Q(s, π(s)): equation 6."""
        return penalized(-tf.reduce_mean(self.critic(batch.obs, self.actor(batch.obs, training=True))), self.actor)

    def update(self, batch: Transition, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """One gradient step of critic and actor, and a move of the targets."""
        critic_loss = self.optimizers['critic'].minimize(lambda: self.critic_loss(batch))
        actor_loss = self.optimizers['actor'].minimize(lambda: self.actor_loss(batch))
        for target, network in ((self.target_actor, self.actor), (self.target_critic, self.critic)):
            polyak(target.variables, network.variables, self.tau)
        return {'critic': critic_loss, 'actor': actor_loss}


SPACES = (toys.OBSERVATIONS['nested Dict'], Box(-1.0, 1.0, (2,)))
FEW = {'train_steps': 40, 'explore_steps': 10, 'batch_size': 4, 'buffer_size': 100}


def make() -> DDPG:
    return DDPG(*SPACES, net_list=[{'hidden': [8], 'features': 8, 'seed': i} for i in (0, 1)])


@pytest.mark.full
@pytest.mark.usefixtures('plain_graphs')
@pytest.mark.parametrize('nenv', [1, pytest.param(2, marks=pytest.mark.matrix)])
def test_trains_saves_loads_and_resumes(nenv: int, tmp_path):
    def build() -> toys.AnySpaces:
        return toys.AnySpaces(*SPACES)

    agent = make()
    before = saving.arrays(agent)
    result = agent.learn(zoo.build_env(build, nenv=nenv), seed=0, run_dir=tmp_path, **FEW)
    assert result.losses.keys() == {'critic', 'actor'} and agent.fused.traces == 1
    after = saving.arrays(agent)
    for name in before:
        if name.startswith(('network/', 'target/')):
            assert not np.array_equal(before[name], after[name]), name
    loaded = DDPG.load(tmp_path)
    obs = build().observation_space.sample()
    np.testing.assert_array_equal(loaded.predict(obs), agent.predict(obs))
    loaded.learn(zoo.build_env(build, nenv=nenv), run_dir=False, **FEW)


def test_is_checked_and_shown():
    with pytest.raises(ValueError, match='^tau is 2: give a number above 0 to 1'):
        DDPG(*SPACES, tau=2)
    with pytest.raises(ValueError, match='^DDPG cannot act in Discrete'):
        DDPG(SPACES[0], Discrete(2))
    assert 'explore_steps' in inspect.signature(DDPG.learn).parameters
    assert 'explore_noise' in repr(zoo.describe(DDPG)) and 'explore_noise' in DDPG.__doc__


def test_is_about_as_long_as_its_paper_says():
    code = [line for line in inspect.getsource(DDPG).splitlines() if line.strip()]
    assert len(code) < 70


@pytest.mark.parametrize(
    ('names', 'message'),
    [
        (('critic', 'actor', 'gap'), r"^metric_names of Off has 'gap', which its update does not return: return it, "),
        (('critic',), r"^the update of Off returns 'actor', which metric_names lacks: add it there\.$"),
    ],
)
def test_metric_names_are_what_update_returns(names, message):
    agent = type('Off', (DDPG,), {'metric_names': names})(*SPACES, net_list=[{'hidden': [4], 'features': 4}] * 2)
    with pytest.raises(ValueError, match=message):
        agent.learn(zoo.build_env(lambda: toys.AnySpaces(*SPACES)), run_dir=False, **FEW)


def test_a_build_without_that_of_its_base_is_refused():
    class Alone(DDPG):
        def build(self) -> None:
            self.scale = 2.0

    with pytest.raises(TypeError, match=r'^Alone\.build\(\) has not set behavior: call super\(\)\.build\(\) in it, or'):
        Alone(*SPACES)


@pytest.mark.usefixtures('plain_graphs')
def test_a_schedule_in_an_update_off_policy_is_refused():
    class Pushed(DDPG):
        push: Annotated[float | Linear, at_least(0), 'weight of the loss'] = 0.1

        def critic_loss(self, batch: Transition) -> tf.Tensor:
            return super().critic_loss(batch) * self.push

    nets = [{'hidden': [4], 'features': 4}] * 2
    env = zoo.build_env(lambda: toys.AnySpaces(*SPACES))
    Pushed(*SPACES, net_list=nets, push=0.5).learn(env, run_dir=False, **FEW)
    with pytest.raises(RuntimeError, match=r'^Linear\(start=1\.0, .*\) stands where an update needs a number: give a '):
        Pushed(*SPACES, net_list=nets, push=Linear(1.0)).learn(env, run_dir=False, **FEW)
    with pytest.raises(
        TypeError, match=r"^Named has scheduled=\('push',\), which only an algorithm with a method impr"
    ):
        type('Named', (Pushed,), {'scheduled': ('push',)})


class SquashedParts(DDPG):
    """The same for parts."""

    acts_in = ('Dict',)


def test_a_squashed_action_of_parts_needs_bounds_too():
    arms = Dict({'left': Box(-1.0, 1.0, (2,)), 'right': Box(-2.0, np.inf, (1,))})
    with pytest.raises(ValueError, match=r'^SquashedParts needs a Box .* from -2\.0 to inf: wrap the environment'):
        SquashedParts.check_action_space(arms)


@pytest.mark.usefixtures('plain_graphs')
def test_a_subclass_that_gives_its_own_networks_is_saved_and_copied(tmp_path):
    class Small(DDPG):
        """DDPG of one size."""

        unused = ('net_list', 'optimizers_list', 'tau')
        default_network = {'hidden': [4], 'features': 4}
        gamma = 0.9

    agent = Small(*SPACES)
    obs = agent.observation_space.sample()
    for twin in (Small.load(agent.save(tmp_path / 'saved')), copy.deepcopy(agent)):
        np.testing.assert_array_equal(twin.predict(obs), agent.predict(obs))
    with pytest.raises(AttributeError, match='^tau is fixed when the agent is made'):
        agent.tau = 0.5


def test_a_base_of_several_algorithms_needs_not_be_whole():
    class Base(Algorithm):
        """What two of them share."""

        loop = loops.off_policy
        acts_in = ('Box',)

    assert Base.acts_in == ('Box',)
