"""The plan of a training with roles: what its ranks have to know of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from zoo.common.acting import Behavior
from zoo.common.env_wrappers import rebuilder
from zoo.common.errors import unknown
from zoo.common.rollout import rollout_bytes
from zoo.distributed.cluster import Cluster, Layout, Role
from zoo.distributed.engines.base import PeerLost

if TYPE_CHECKING:
    from zoo.common.agent import Agent

#: The version of the weights that ends the training, in what learners save and in their replies to actors.
END = -1

#: Transitions in one message of an actor that feeds a replay buffer.
MESSAGE = 32

#: Chunks for each actor that a generation of evaluations is cut into.
CHUNKS = 4

#: Bytes of the messages of actors besides their rollout: for each step, in which an episode may end, and for the rest.
EPISODES, HEADER = 32, 1 << 16


@dataclass(frozen=True)
class Plan:
    """What a rank needs to know of a training. It can be pickled, and takes no TensorFlow to be read.

    Attributes:
        layout: how many ranks each role has.
        experience: what the loop is given, see :class:`zoo.common.agent.Loop`.
        horizon: steps of each copy in one message of an actor; of ``'evaluations'``, how many there are in one.
        max_bytes: of such a message.
        ahead: messages that an actor may send before the first of them is answered.
        num_envs: copies of the environment in each actor.
        explore_steps: steps of uniformly random actions, in the agent's life.
        seed: of the ranks' own randomness; None: from the operating system.
        start, train_steps: the steps at the beginning and at the end of the training.
        loop_params: of the training loop.
        behavior: the behaviour policy, without a forward pass where that takes TensorFlow.
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
    rebuild: Callable[..., Any] | None = field(default=None, repr=False)
    blueprint: bytes | None = field(default=None, repr=False)

    @property
    def needs_goals(self) -> bool:
        """Whether every learner computes rewards by the environment, though it steps none."""
        return self.loop_params.get('her') is not None

    def learner_of(self, actor: int) -> int:
        """The learner that an actor sends to."""
        return actor % self.layout.learners

    def server_of(self, actor: int) -> int:
        """The server that an actor asks."""
        return actor % self.layout.servers

    def actors_of(self, role: Role, number: int) -> list[int]:
        """The actors that send to a learner, or that ask a server."""
        of = self.learner_of if role == Role.LEARNER else self.server_of
        return [actor for actor in range(self.layout.actors) if of(actor) == number]

    def is_light(self, role: Role) -> bool:
        """Whether a rank of this role does without TensorFlow."""
        if role == Role.ACTOR:
            return self.layout.servers > 0 or self.behavior.forward is not None
        return role == Role.SERVER and self.behavior.forward is not None


def newest_weights(cluster: Cluster, learner: int) -> dict[str, Any] | None:
    """What a learner has saved for those that act with it; None when the training has ended.

    A learner that has left without an answer has ended it too: one that fails ends the whole job.
    """
    try:
        saved = cluster.request(Role.LEARNER, learner, 'weights')
    except PeerLost:
        return None
    return None if saved['version'] == END else saved


def check_roles(roles: Any) -> Layout:
    """The layout for ``learn_params['roles']``.

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
    if layout.buffers:
        raise ValueError(f'{layout}: replay is with the learners of these algorithms; leave out buffers.')
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
    agent: Agent, env: Any, roles: Any, seed: int | None, start: int, train_steps: int, loop_params: dict[str, Any]
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

    Raises:
        ValueError: see :func:`check_roles`; or the behaviour keeps something along an episode, and servers have it.
    """
    layout = check_roles(roles)
    if layout.servers and agent.behavior.along_episodes:
        raise ValueError(
            f'{layout}: what {type(agent).__name__} acts by is kept along each episode, but a server answers many '
            'environments as one: leave out servers.'
        )
    num_envs = getattr(env, 'num_envs', 1)
    if agent.loop.experience == 'evaluations':
        check_evaluators(layout, type(agent).__name__)
    lockstep = agent.loop.experience == 'rollouts'
    horizon = loop_params['horizon'] if lockstep else max(1, MESSAGE // num_envs)
    if agent.loop.experience == 'evaluations':
        horizon, size = evaluation_chunk(agent, layout.actors, num_envs, loop_params['episodes_per_evaluation'])
    else:
        size = rollout_bytes(
            agent.observation_space, agent.action_adaptor, horizon, num_envs, agent.behavior.state_size
        )
        size += EPISODES * horizon * num_envs
    return Plan(
        layout=layout,
        experience=agent.loop.experience,
        horizon=horizon,
        max_bytes=size + HEADER,
        ahead=0 if lockstep else 1,
        num_envs=num_envs,
        explore_steps=loop_params.get('explore_steps', 0),
        seed=seed,
        start=start,
        train_steps=train_steps,
        loop_params=loop_params,
        behavior=agent.behavior.light(),
        rebuild=rebuilder(env),
    )
