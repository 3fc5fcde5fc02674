"""Training over ranks: what ``agent.learn(env, roles=dict(learners=…, actors=…, servers=…))`` does.

Under a launcher every rank runs the same program to this point and takes its role here. Without one, this process is
learner 0 and starts the others itself, as processes of this machine. Either way ``learn`` returns in learner 0 alone.
"""

from __future__ import annotations

import contextlib
import logging
import pickle
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import cloudpickle

from zoo.common import loops
from zoo.common.acting import Behavior
from zoo.common.errors import unknown
from zoo.common.rollout import rollout_bytes
from zoo.distributed import actor, cluster, jobs, learner, server
from zoo.distributed.cluster import Cluster, Layout, Role
from zoo.distributed.engines.base import ClusterError, PeerLost

if TYPE_CHECKING:
    from zoo.algorithms.base import Algorithm

log = logging.getLogger('zoo')

Result = TypeVar('Result')

#: Transitions in one message of an actor that feeds a replay buffer.
MESSAGE = 32

#: Bytes of the messages of actors besides their rollout: for each step, in which an episode may end, and for the rest.
EPISODES, HEADER = 32, 1 << 16

#: How often a dead actor is started again, where the engine can (``local``).
RESTARTS = 3

_has_trained = False


@dataclass(frozen=True)
class Plan:
    """What a rank needs to know of a training. It can be pickled, and takes no TensorFlow to be read.

    Attributes:
        layout: how many ranks each role has.
        horizon: steps of each copy in one message of an actor.
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


def plan_for(
    agent: Algorithm, env: Any, roles: Any, seed: int | None, start: int, train_steps: int, loop_params: dict[str, Any]
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
        ValueError: see :func:`check_roles`.
    """
    layout = check_roles(roles)
    num_envs = getattr(env, 'num_envs', 1)
    on_policy = type(agent).loop is loops.on_policy
    horizon = loop_params['horizon'] if on_policy else max(1, MESSAGE // num_envs)
    size = rollout_bytes(agent.observation_space, agent.action_adaptor, horizon, num_envs)
    return Plan(
        layout=layout,
        horizon=horizon,
        max_bytes=size + EPISODES * horizon * num_envs + HEADER,
        ahead=0 if on_policy else 1,
        num_envs=num_envs,
        explore_steps=loop_params.get('explore_steps', 0),
        seed=seed,
        start=start,
        train_steps=train_steps,
        loop_params=loop_params,
        behavior=agent.behavior.light(),
        rebuild=vars(env).get('rebuild'),
    )


def train(agent: Algorithm, env: Any, plan: Plan, lead: Callable[[learner.Actors], Result]) -> Result:
    """Train with the roles of a plan.

    Args:
        agent: of this rank.
        env: of this rank.
        plan: of the training.
        lead: trains as learner 0, on the experience that it is given.

    Returns:
        what ``lead`` does, in learner 0; in the other ranks of a launcher this ends the process.

    Raises:
        ClusterError: a rank has failed, or the roles do not add up to the ranks that were launched.
        ValueError: without a launcher: the environment or the agent cannot be built in another process.
    """
    if not cluster.is_launched():
        return _train_here(agent, env, plan, lead)
    global _has_trained
    if _has_trained:
        raise ClusterError(
            'a launched program trains with roles once: the other ranks took their part in that and have ended.'
        )
    _has_trained = True
    place = cluster.launched_place()
    if place is not None and place[1] == plan.layout.size and plan.rebuild is not None:
        role, _ = plan.layout.place(place[0])
        if role == Role.ACTOR and plan.is_light(role) and jobs.can_become():
            try:
                call = jobs.pack(take_part, (plan, True))
            except Exception as error:
                log.warning('This actor keeps TensorFlow: its environment cannot be sent to a new process (%s).', error)
            else:
                actor.close_env(env)
                jobs.become(call)
    joined = cluster.connect(*_counts(plan.layout))
    if joined.role() == Role.LEARNER and joined.role_rank() == 0:
        if joined.engine.name != 'local':  # whose own messages name the role; a launcher's have but the rank
            log.warning('Training over %s: %s.', joined.engine.name, plan.layout.by_rank())
        with learner.learning(joined, plan, agent) as experience:
            return lead(experience)
    _play(joined, plan, agent, env)
    _end(joined)


def _train_here(agent: Algorithm, env: Any, plan: Plan, lead: Callable[[learner.Actors], Result]) -> Result:
    if plan.rebuild is None:
        raise ValueError(
            'roles need to build the environment in other processes, but this one was not built by build_env from a '
            'name, a class or a function: use build_env(make_env), where make_env is a function that builds all of it.'
        )
    layout = plan.layout
    if layout.learners > 1 or not all(plan.is_light(role) for role in (Role.ACTOR, Role.SERVER) if layout.count(role)):
        plan = replace(plan, blueprint=_blueprint(agent))
    try:
        jobs.pack(take_part, (plan,))
    except Exception as error:
        raise ValueError(
            f'roles need to build the environment in other processes, but this one cannot be sent there ({error}): '
            'give build_env a name, a class, or a function that opens what it needs itself.'
        ) from error
    with jobs.Job(take_part, layout.size, (plan,), first=1):
        with cluster.connect(*_counts(layout)) as joined, learner.learning(joined, plan, agent) as experience:
            return lead(experience)


def take_part(plan: Plan, is_launched: bool = False) -> None:
    """What a process does that was started for a plan, or that has become an actor of a launched program."""
    joined = cluster.connect(*_counts(plan.layout))
    agent = None
    if not plan.is_light(joined.role()):
        agent = _build(plan.blueprint)
    _play(joined, plan, agent, None)
    if is_launched:
        _end(joined)
    joined.close()


def _build(blueprint: bytes) -> Algorithm:
    try:
        agent_class, params = pickle.loads(blueprint)
        return agent_class(**params)
    except Exception as error:
        why = str(error).strip().partition('\n')[0]
        raise ClusterError(
            f'the agent cannot be built again in this process ({type(error).__name__}: {why:.300}): put the classes of '
            'its networks into a module, or start the program by python -m zoo.distributed.run, where every rank '
            'makes its own.'
        ) from None


def _play(joined: Cluster, plan: Plan, agent: Algorithm | None, env: Any) -> None:
    role = joined.role()
    behavior = plan.behavior if agent is None else agent.behavior
    if role == Role.LEARNER:
        learner.follow(joined, plan, agent)
    elif role == Role.SERVER:
        server.run(joined, plan, behavior)
    else:
        if env is None:
            env = plan.rebuild(seed=None)
        joined.allow_restarts(RESTARTS)  # not before: an environment that cannot be built is tried once
        actor.run(joined, plan, behavior, env)


def _end(joined: Cluster) -> NoReturn:
    """End this process, but not before the program of learner 0 has ended: until then it waits, and uses nothing.

    Some launchers take a rank that ends early for a failure, and MPI would wait for the others without sleeping.
    """
    with contextlib.suppress(PeerLost):
        joined.queue((Role.LEARNER, 0), (joined.role(), joined.role_rank())).get()
    joined.close()
    sys.exit(0)


def _counts(layout: Layout) -> tuple[int, ...]:
    return tuple(layout.count(role) for role in Role)


def _blueprint(agent: Algorithm) -> bytes:
    """The agent as it can be built in another process.

    Raises:
        ValueError: a network that cannot be sent there.
    """
    agent_class, params = agent.blueprint()
    for name, entry in zip(agent.network_names, params['net_list'], strict=True):
        try:
            cloudpickle.dumps(entry)
        except Exception as error:
            raise ValueError(
                f'the network {name!r} cannot be sent to another process ({error}): give a spec or a Keras model, or '
                'start the program by python -m zoo.distributed.run, where every rank makes its own.'
            ) from error
    return cloudpickle.dumps((agent_class, params))
