"""The plan of a training with roles: what its ranks have to know of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from gymnasium.spaces import Space

from zoo.common.acting.behavior import Behavior
from zoo.common.envs.about import about
from zoo.common.replay.replay import Replay
from zoo.common.rollouts.rollout_buffer import RolloutBuffer, rollout_bytes
from zoo.common.sampling import Sampling
from zoo.common.tools.errors import unknown
from zoo.common.training.loops import updates_in_call
from zoo.distributed.cluster import Cluster
from zoo.distributed.engines.base import PeerLost
from zoo.distributed.layout import Layout, Role

if TYPE_CHECKING:
    from zoo.common.training.agent import Agent

#: The version of the weights that ends the training, in what learners save and in their replies to actors.
END = -1

#: Transitions in one message of an actor that feeds a replay buffer.
MESSAGE = 32

#: Chunks for each actor that a generation of evaluations is cut into.
CHUNKS = 4
#: Messages of steps that an actor may be ahead of a learner that waits for none.
FREE_AHEAD = 7

#: How often a dead actor is started again, where the engine can (``local``).
RESTARTS = 3

#: Calls of update whose batches are drawn ahead, where ranks of their own have the replay buffer; and how many batches
#: at least for a learner that waits for nothing, which is what Horgan et al. 2018 have.
DRAWN_AHEAD, FREE_DRAWN_AHEAD = 2, 16

#: Bytes of the messages of actors besides their rollout: for each step, in which an episode may end, and for the rest.
EPISODES, HEADER = 40, 1 << 16


class Stored(NamedTuple):
    """What a rank needs to know of the agent to hold its replay buffer.

    Attributes:
        observation_space, action_space: of one copy of the environment.
        sampling: how transitions are drawn.
    """

    observation_space: Space
    action_space: Space
    sampling: Sampling


@dataclass(frozen=True)
class Plan:
    """What a rank needs to know of a training. It can be pickled, and takes no TensorFlow to be read.

    Attributes:
        layout: how many ranks each role has.
        experience: what the loop is given, see :class:`zoo.common.training.agent.Loop`.
        horizon: steps of each copy in one message of an actor; of ``'evaluations'``, how many there are in one.
        max_bytes: of such a message.
        ahead: messages that an actor may send before the first of them is answered.
        has_gradients: whether those messages are gradients, which an actor computes of its own steps.
        num_envs: copies of the environment in each actor.
        explore_steps: steps of uniformly random actions, in the agent's life.
        seed: of the ranks' own randomness; None: from the operating system.
        start, train_steps: the steps at the beginning and at the end of the training.
        loop_params: of the training loop.
        behavior: the behaviour policy, without a forward pass where that takes TensorFlow.
        stored: what a replay buffer holds and how it is drawn from; None: the loop has none.
        rebuild: ``rebuild(seed=…)`` builds the environment; None: it cannot be built in another process.
        blueprint: of the whole agent, pickled, for the ranks of another process that need it.
    """

    layout: Layout
    experience: str
    horizon: int
    max_bytes: int
    ahead: int
    num_envs: int
    explore_steps: int
    seed: int | None
    start: int
    train_steps: int
    loop_params: dict[str, Any] = field(repr=False)
    behavior: Behavior = field(repr=False)
    stored: Stored | None = field(default=None, repr=False)
    rebuild: Callable[..., Any] | None = field(default=None, repr=False)
    blueprint: bytes | None = field(default=None, repr=False)
    has_gradients: bool = False

    def storage(self, observation_space: Space, num_envs: int) -> RolloutBuffer:
        """Storage of what is in one message of an actor: with the recurrent state of each step, if it is to be stored.

        Args:
            observation_space: of one copy of the environment, as who makes it has built it.
            num_envs: copies.
        """
        behavior = self.behavior
        sizes = behavior.state_size, behavior.param_size
        return RolloutBuffer(
            observation_space, behavior.adaptor, self.horizon, num_envs, *sizes, self.stored is not None
        )

    @property
    def needs_goals(self) -> bool:
        """Whether every learner computes rewards by the environment, though it steps none."""
        return self.loop_params.get('her') is not None

    def learner_of(self, actor: int) -> int:
        """The learner that an actor sends to."""
        return actor % self.layout.learners

    @property
    def is_free(self) -> bool:
        """Whether a learner of which ranks of their own have the replay buffer updates without waiting for steps."""
        return self.layout.buffers > 0 and self.loop_params.get('update_every', 1) is None

    @property
    def updates(self) -> int:
        """Updates in one call, of a loop over steps: see :func:`zoo.common.training.loops.updates_in_call`."""
        return updates_in_call(self.loop_params['update_every'], self.loop_params['updates'])

    @property
    def drawn_ahead(self) -> int:
        """Calls of update whose batches buffers draw ahead."""
        return max(DRAWN_AHEAD, -(-FREE_DRAWN_AHEAD // self.updates)) if self.is_free else DRAWN_AHEAD

    @property
    def answers(self) -> int:
        """Replies that may wait for an actor: to its messages, to those of one that died before it, and the last."""
        return (self.ahead + 1) * (1 + RESTARTS) + 1

    def receiver_of(self, actor: int) -> tuple[Role, int]:
        """Whom an actor sends its steps to: a buffer of its learner, or the learner."""
        if self.layout.buffers:
            return Role.BUFFER, actor % self.layout.buffers
        return Role.LEARNER, self.learner_of(actor)

    def actors_to(self, role: Role, number: int) -> list[int]:
        """The actors that send their steps to this rank."""
        return [actor for actor in range(self.layout.actors) if self.receiver_of(actor) == (role, number)]

    def buffers_of(self, learner: int) -> list[int]:
        """The buffers that hold the replay of a learner, each the same part of it."""
        return list(range(learner, self.layout.buffers, self.layout.learners))

    def server_of(self, actor: int) -> int:
        """The server that an actor asks."""
        return actor % self.layout.servers

    def actors_of(self, role: Role, number: int) -> list[int]:
        """The actors that send to a learner, or that ask a server."""
        of = self.learner_of if role == Role.LEARNER else self.server_of
        return [actor for actor in range(self.layout.actors) if of(actor) == number]

    def is_light(self, role: Role) -> bool:
        """Whether a rank of this role does without TensorFlow."""
        if role == Role.ACTOR and self.has_gradients:
            return False
        if role == Role.ACTOR:
            return self.layout.servers > 0 or self.behavior.forward is not None
        return role == Role.BUFFER or (role == Role.SERVER and self.behavior.forward is not None)


def newest_weights(cluster: Cluster, learner: int) -> dict[str, Any] | None:
    """What a learner has saved for those that act with it; None when the training has ended.

    A learner that has left without an answer has ended it too: one that fails ends the whole job.
    """
    try:
        saved = cluster.request(Role.LEARNER, learner, 'weights')
    except PeerLost:
        return None
    return None if saved['version'] == END else saved


def check_roles(roles: Any, replays: bool = False) -> Layout:
    """The layout for ``learn_params['roles']``.

    Args:
        roles: what was given.
        replays: whether the algorithm has a replay buffer.

    Raises:
        ValueError: not a dict of roles and numbers, or numbers that do not go together.
    """
    if not isinstance(roles, Mapping):
        raise ValueError(f'roles is {roles!r}: give a dict such as dict(learners=1, actors=4).')
    known = [f'{role}s' for role in Role]
    for name in roles:
        if name not in known:
            raise ValueError(unknown('role', name, known))
    layout = Layout(**{'learners': 1, **roles})
    if layout.learners < 1:
        raise ValueError('roles without a learner: give at least one.')
    if layout.actors < 1 or layout.actors % layout.learners:
        raise ValueError(
            f'{layout}: give each learner the same number of actors, at least one; dict(learners={layout.learners}, '
            f'actors={layout.learners * (layout.actors // layout.learners + 1)}) would do.'
        )
    if layout.servers > layout.actors:
        raise ValueError(f'{layout}: more servers than actors would have nothing to do; give fewer servers.')
    if layout.buffers and not replays:
        raise ValueError(f'{layout}: this algorithm learns from rollouts and replays none; leave out buffers.')
    if layout.buffers and (layout.buffers % layout.learners or layout.actors % layout.buffers):
        raise ValueError(
            f'{layout}: give each learner the same number of buffers, and each buffer the same number of actors; '
            f'dict(learners={layout.learners}, actors={layout.actors}, buffers={layout.learners}) would do.'
        )
    return layout


def check_evaluators(layout: Layout, name: str) -> None:
    """Refuse roles that have nothing to do where parameters are perturbed.

    Raises:
        ValueError: more than one learner, or servers.
    """
    if layout.learners > 1:
        raise ValueError(
            f'{layout}: the update of {name} is a weighted sum, which one learner does in no time: give learners=1 and '
            'more actors.'
        )
    if layout.servers:
        raise ValueError(
            f'{layout}: each actor of {name} acts with parameters of its own, which servers have not: leave out '
            'servers.'
        )


def evaluation_chunk(agent: Agent, actors: int, num_envs: int, episodes: int) -> tuple[int, int]:
    """How many evaluations an actor plays at a time, and the bytes of what they give.

    At least as many as it has copies; otherwise few enough that none waits long for the slowest at the end.
    """
    size = max(num_envs, 2 * agent.perturbations[0] // (CHUNKS * actors), 1)
    observed = sum(2 * 8 * moments.mean.size for moments in agent.statistics.values())
    return size, size * (2 * 8 + observed + EPISODES * episodes)


def plan_for(
    agent: Agent,
    env: Any,
    roles: Any,
    seed: int | None,
    start: int,
    train_steps: int,
    loop_params: dict[str, Any],
    checkpoint_buffer: bool = False,
) -> Plan:
    """The plan of a training.

    Args:
        agent: that trains.
        env: the environment of each actor, as this process has built it.
        roles: ``learn_params['roles']``.
        seed: of the call.
        start: steps that a resumed call has behind it.
        train_steps: where the training ends.
        loop_params: of the training loop.
        checkpoint_buffer: whether checkpoints are to have the replay buffer.

    Raises:
        ValueError: see :func:`check_roles`; or the behaviour keeps something along an episode, or each actor has one of
            its own, and servers have it; or actors are to compute gradients without a policy of their own, or for
            several learners; or buffers are not what this agent can be trained with now.
    """
    loop, behavior = agent.loop, agent.behavior
    plays, replays = (loop.experience == kind for kind in ('rollouts', 'steps'))
    layout = check_roles(roles, replays)
    if layout.servers and agent.behavior.along_episodes:
        raise ValueError(
            f'{layout}: what {type(agent).__name__} acts by is kept along each episode, but a server answers many '
            'environments as one: leave out servers.'
        )
    if layout.servers and agent.behavior.per_actor:
        raise ValueError(
            f'{layout}: every actor of {type(agent).__name__} explores in a way of its own, but a server acts for all '
            'alike: leave out servers.'
        )
    num_envs = about(env).copies
    stored = Stored(agent.observation_space, agent.action_space, agent.sampling) if replays else None
    if layout.buffers:
        _check_buffers(agent, layout, loop_params, checkpoint_buffer)
    has_gradients = plays and loop.pace == 'gradients'
    if has_gradients and (layout.servers or layout.learners > 1):
        raise ValueError(
            f'{layout}: the actors of {type(agent).__name__} compute its gradients, and one learner takes each as it '
            f'comes: give dict(learners=1, actors={layout.actors}).'
        )
    if has_gradients and any(network.moving_variables for network in agent.networks.values()):
        raise ValueError(
            f'{layout}: a network of {type(agent).__name__} has moving statistics, of which each actor would have its '
            'own: leave out batch normalisation, or give roles=None, which trains in this process.'
        )
    if loop.experience == 'evaluations':
        check_evaluators(layout, type(agent).__name__)
        horizon, size = evaluation_chunk(agent, layout.actors, num_envs, loop_params['episodes_per_evaluation'])
    else:
        horizon = loop_params['horizon'] if plays else max(1, MESSAGE // num_envs)
        sizes = behavior.state_size, behavior.param_size
        size = EPISODES * horizon * num_envs + rollout_bytes(
            agent.observation_space, agent.action_adaptor, horizon, num_envs, *sizes, every_state=replays
        )
    if has_gradients:
        moved = [variable for optimizer in agent.optimizers.values() for variable in optimizer.variables]
        size += sum(4 * int(np.prod(variable.shape)) for variable in moved)
    ahead = {'lockstep': 0, 'stream': loop_params.get('ahead', 1), 'gradients': 0}[loop.pace] if plays else 1
    if layout.buffers and loop_params['update_every'] is None:
        ahead = FREE_AHEAD
    return Plan(
        layout=layout,
        experience=agent.loop.experience,
        horizon=horizon,
        max_bytes=size + HEADER,
        ahead=ahead,
        num_envs=num_envs,
        explore_steps=loop_params.get('explore_steps', 0),
        seed=seed,
        start=start,
        train_steps=train_steps,
        loop_params=loop_params,
        behavior=behavior.light(),
        stored=stored,
        rebuild=about(env).rebuild,
        has_gradients=has_gradients,
    )


def _check_buffers(agent: Agent, layout: Layout, loop_params: dict[str, Any], checkpoint_buffer: bool) -> None:
    """Refuse what buffers in ranks of their own cannot do, or an agent whose own would be left aside."""
    if checkpoint_buffer:
        raise ValueError(
            f'{layout}: checkpoint_buffer=True saves the replay buffer of a learner, but here the buffers have it: '
            'leave out checkpoint_buffer, or the buffers.'
        )
    held = agent.saved_buffer if agent.replay is None else len(agent.replay)
    if held:
        raise ValueError(
            f'{layout}: the agent has a replay buffer with transitions already, which these buffers do not take over: '
            'forget it first, by agent.replay = agent.saved_buffer = None, or leave out buffers.'
        )
    # A small one like theirs, so that what it refuses is refused before anything is started.
    Replay(agent.observation_space, agent.action_adaptor, 1, 1, agent.sampling, loop_params['compress'])
    if loop_params['recorded'] is not None:
        from zoo.common.datasets.recordings import opened

        opened(agent, loop_params['recorded'])
