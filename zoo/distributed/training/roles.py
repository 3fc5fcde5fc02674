"""Training over ranks: what ``agent.learn(env, roles=dict(learners=…, actors=…, …))`` does.

Under a launcher every rank runs the same program up to this point and takes its role here. Without one, this process is
learner 0 and starts the other ranks as processes of this machine. In both cases ``learn`` returns only in learner 0.
"""

from __future__ import annotations

import contextlib
import logging
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import cloudpickle

from zoo.common.tools.errors import InvalidValue
from zoo.common.tools.quiet import load_tensorflow
from zoo.common.training.experience import Experience
from zoo.distributed import jobs, launchers, rank_process
from zoo.distributed.cluster import Cluster, connect
from zoo.distributed.engines.base import ClusterError, PeerLost
from zoo.distributed.layout import Role
from zoo.distributed.training import buffer, evaluations, learner, server
from zoo.distributed.training.actor import Actor, close_env
from zoo.distributed.training.built import compare, record
from zoo.distributed.training.plan import Plan
from zoo.distributed.training.watch import Watch

if TYPE_CHECKING:
    from zoo.common.training.agent import Agent, AgentOfGradients

log = logging.getLogger('zoo')

Result = TypeVar('Result')

_has_trained = False


def train(agent: Agent, env: Any, plan: Plan, lead: Callable[[Experience], Result]) -> Result:
    """Train with the roles of a plan; return what ``lead`` returns, which trains on an experience as learner 0.

    In the ranks of a launcher other than learner 0 this ends the process.

    Raises:
        ClusterError: a rank has failed, or the roles do not add up to the ranks that were launched.
        ValueError: without a launcher: the environment or the agent cannot be built in another process.
    """
    if not launchers.is_launched():
        return _train_here(agent, env, plan, lead)
    global _has_trained
    if _has_trained:
        raise ClusterError(
            'a launched program trains with roles once: the other ranks took their part in that and have ended.'
        )
    _has_trained = True
    place = launchers.launched_place()
    if place is not None and place[1] == plan.layout.size and plan.rebuild is not None:
        role = plan.layout.place(place[0])[0]
        if role in (Role.ACTOR, Role.BUFFER) and plan.is_light(role) and launchers.can_become():
            try:
                call = rank_process.pack(take_part, (plan, True))
            except Exception as error:
                log.warning(
                    'This %s keeps TensorFlow: its environment cannot be sent to a new process (%s).', role, error
                )
            else:
                close_env(env)
                rank_process.become(call)
    joined = _connected(plan)
    compare(joined, plan.built)
    if joined.role() == Role.LEARNER and joined.role_rank() == 0:
        if joined.engine.name != 'local':  # its messages name the role; a launcher's messages have only the rank
            named = joined.engine.name
            log.warning('Training over %s: %s. A rank that dies ends the job.', named, plan.layout.by_rank())
        with learner.learning(joined, plan, agent) as experience:
            return lead(experience)
    _play(joined, plan, agent, env, True)
    sys.exit(0)


def _train_here(agent: Agent, env: Any, plan: Plan, lead: Callable[[Experience], Result]) -> Result:
    if plan.rebuild is None:
        raise InvalidValue(
            'roles need to build the environment in other processes, but this one was not built by build_env from a '
            'name, a class or a function: use build_env(make_env), where make_env is a function that builds all of it, '
            'or roles=None, which trains in this process.'
        )
    layout = plan.layout
    if layout.learners > 1 or not all(plan.is_light(role) for role in (Role.ACTOR, Role.SERVER) if layout.count(role)):
        plan = replace(plan, blueprint=pack_agent(agent))
    try:
        rank_process.pack(take_part, (plan,))
    except Exception as error:
        raise InvalidValue(
            f'roles need to build the environment in other processes, but this one cannot be sent there ({error}): '
            'give build_env a name, a class, or a function that opens what it needs itself.'
        ) from error
    restarts = dict.fromkeys(layout.ranks(Role.ACTOR), plan.restarts)
    with jobs.Job(take_part, layout.size, (plan,), first=1, restarts=restarts, prepare=True):
        with connect(*layout.counts) as joined:
            compare(joined, plan.built)
            with learner.learning(joined, plan, agent) as experience:
                return lead(experience)


def take_part(plan: Plan, is_launched: bool = False) -> None:
    """Take a role in a process that was started for a plan, or that a program started by a launcher became."""
    joined = _connected(plan)
    role, env = joined.role(), None
    agent = None if plan.is_light(role) else build_agent(plan.blueprint)
    compare(joined, plan.built if agent is None else record(agent, plan))
    assert plan.rebuild is not None  # otherwise no process would have this plan
    with _exits_are_errors():
        if role == Role.ACTOR:
            begun = 'the construction', time.monotonic()
            with Watch(joined, plan.sample_timeout, lambda: begun):
                env = plan.rebuild(seed=None)
        elif role != Role.SERVER and plan.needs_goals:
            env = plan.rebuild(seed=None, nenv=1)
    _play(joined, plan, agent, env, is_launched)


def _connected(plan: Plan) -> Cluster:
    """Join the cluster. From now on an actor may be started again."""
    joined = connect(*plan.layout.counts)
    if joined.role() == Role.ACTOR:
        joined.allow_restarts(plan.restarts, works=False)
    return joined


def build_agent(blueprint: bytes | None) -> Agent:
    """Build the agent of :func:`pack_agent` in this process.

    Raises:
        ClusterError: it cannot be built here.
    """
    assert blueprint is not None  # a role needs the agent
    try:
        load_tensorflow()
        agent_class, params, entries = pickle.loads(blueprint)
        return agent_class(**params, net_list=[pickle.loads(entry) for entry in entries])
    except Exception as error:
        why = str(error).strip().partition('\n')[0]
        raise ClusterError(
            f'the agent cannot be built again in this process ({type(error).__name__}: {why:.300}): put the classes of '
            'its networks into a module, or start the program by python -m zoo.distributed.run, where every rank '
            'makes its own.'
        ) from None


def _play(joined: Cluster, plan: Plan, agent: Agent | None, env: Any, is_launched: bool) -> None:
    """Play a role from beginning to end. The environment is closed last, when nobody waits for this rank any more.

    Under a launcher a rank ends only when the program of learner 0 has ended, and uses no processor until then: some
    launchers take a rank that ends early for a failure, and MPI would wait for the others without sleeping.
    """
    role = joined.role()
    behavior = plan.behavior if agent is None else agent.behavior
    if role == Role.LEARNER:
        assert agent is not None  # no learner is light
        learner.follow(joined, plan, agent, env)
    elif role == Role.SERVER:
        server.run(joined, plan, behavior)
    elif role == Role.BUFFER:
        buffer.run(joined, plan, env)
    else:
        joined.allow_restarts(plan.restarts)
        with _exits_are_errors():
            if plan.experience == 'evaluations':
                evaluations.run(joined, plan, behavior, env)
            else:
                gradients = cast('AgentOfGradients | None', agent if plan.has_gradients else None)
                playing = Actor(joined, plan, behavior, env, gradients)
                playing.run()
                playing.close()
    if is_launched:
        with contextlib.suppress(PeerLost):
            joined.queue((Role.LEARNER, 0), (role, joined.role_rank())).get()
    joined.close()
    if env is not None:
        close_env(env)


@contextlib.contextmanager
def _exits_are_errors() -> Iterator[None]:
    """Turn ``SystemExit`` into an error: an environment that ends the program has not done this rank's part."""
    try:
        yield
    except SystemExit as end:
        raise ClusterError(f'the environment ended the program, by sys.exit({end.code!r}).') from end


def pack_agent(agent: Agent) -> bytes:
    """Return an agent's class, arguments and networks, pickled, to build one like it in another process.

    Raises:
        ValueError: a network cannot be sent there.
    """
    from zoo.common.networks.copies import packed

    agent_class, params = agent.blueprint()
    entries = []
    for name, entry in zip(agent.network_names, params.pop('net_list'), strict=True):
        try:
            # By its configuration, Keras' own way, a model would lose attributes and compute another function.
            entries.append(packed(entry))
        except Exception as error:
            why = ' '.join(str(error).split())[:200].rstrip('.')
            raise InvalidValue(
                f'the network {name!r} cannot be sent to another process ({why}): give a spec or a network without '
                'that, or start the program by python -m zoo.distributed.run, where every rank makes its own.'
            ) from error
    return cloudpickle.dumps((agent_class, params, entries))
