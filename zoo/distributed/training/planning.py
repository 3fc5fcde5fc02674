"""How the plan of a training is made, and which roles are refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.common.envs.about import about
from zoo.common.replay.replay import Replay, check_capacity
from zoo.common.rollouts.rollout_buffer import rollout_bytes
from zoo.common.tools.errors import InvalidValue, unknown
from zoo.distributed.layout import Layout, Role
from zoo.distributed.training.built import record
from zoo.distributed.training.plan import EPISODES, HEADER, Plan, Stored

if TYPE_CHECKING:
    from zoo.common.training.agent import Agent

#: Transitions in one message of an actor that feeds a replay buffer.
_MESSAGE = 32

#: Chunks for each actor that a generation of evaluations is cut into.
_CHUNKS = 4

#: Messages of steps that an actor may be ahead of a learner that does not wait for steps.
_FREE_AHEAD = 7


def check_roles(roles: Any, replays: bool = False) -> Layout:
    """Return the layout for ``learn_params['roles']`` of an algorithm that has a replay buffer, or none.

    Raises:
        ValueError: this is not a dict of roles and numbers, or the numbers do not fit together.
    """
    if not isinstance(roles, Mapping):
        raise InvalidValue(f'roles is {roles!r}: give a dict such as dict(learners=1, actors=4).')
    known = [f'{role}s' for role in Role]
    for name in roles:
        if name not in known:
            raise InvalidValue(unknown('role', name, known))
    layout = Layout(**{'learners': 1, **roles})
    if layout.learners < 1:
        raise InvalidValue('roles without a learner: give at least one.')
    if layout.actors < 1 or layout.actors % layout.learners:
        raise InvalidValue(
            f'{layout}: give each learner the same number of actors, at least one; dict(learners={layout.learners}, '
            f'actors={layout.learners * (layout.actors // layout.learners + 1)}) would do.'
        )
    if layout.servers > layout.actors:
        raise InvalidValue(f'{layout}: more servers than actors would have nothing to do; give fewer servers.')
    if layout.buffers and not replays:
        raise InvalidValue(f'{layout}: this algorithm learns from rollouts and replays none; leave out buffers.')
    if layout.buffers and (layout.buffers % layout.learners or layout.actors % layout.buffers):
        raise InvalidValue(
            f'{layout}: give each learner the same number of buffers, and each buffer the same number of actors; '
            f'dict(learners={layout.learners}, actors={layout.actors}, buffers={layout.learners}) would do.'
        )
    return layout


def plan_for(
    agent: Agent,
    env: Any,
    roles: Any,
    seed: int | None,
    start: int,
    train_steps: int,
    loop_params: dict[str, Any],
    checkpoint_buffer: bool = False,
    restarts: int = 3,
    sample_timeout: float | None = None,
    exact_resume: bool = False,
) -> Plan:
    """Return the plan of a training.

    Args:
        env: the environment of each actor, as this process has built it.
        roles: ``learn_params['roles']``.
        start: the steps that a resumed call has behind it.
        checkpoint_buffer: whether checkpoints hold the replay buffer.
        restarts, sample_timeout: as in :class:`Plan`.
        exact_resume: whether a resumed training has to equal an uninterrupted one.

    Raises:
        ValueError: the roles do not fit together, or do not fit this agent.
    """
    loop, behavior = agent.loop, agent.behavior
    plays, replays = (loop.experience == kind for kind in ('rollouts', 'steps'))
    layout = check_roles(roles, replays)
    if loop.alone:
        raise InvalidValue(f'{layout}: {type(agent).__name__} trains in one process: give roles=None.')
    has_gradients = plays and loop.pace == 'gradients'
    if exact_resume and loop.experience != 'evaluations':
        raise InvalidValue(
            f'{layout}: exact_resume=True begins new episodes at every checkpoint, but the episodes of actors go on: '
            'give exact_resume=False, or roles=None, which trains in this process.'
        )
    if layout.servers:
        _check_servers(agent, layout)
    if layout.buffers:
        _check_buffers(agent, layout, loop_params, checkpoint_buffer)
    if has_gradients:
        _check_gradients(agent, layout)
    num_envs = about(env).copies
    if replays:
        size, batch_size = (loop_params[name] for name in ('buffer_size', 'batch_size'))
        check_capacity(agent.sampling, size, batch_size, -(-layout.actors // layout.learners) * num_envs)
    if loop.experience == 'evaluations':
        if layout.learners > 1:
            raise InvalidValue(
                f'{layout}: the update of {type(agent).__name__} is a weighted sum, which one learner does in no time: '
                'give learners=1 and more actors.'
            )
        horizon, size = _evaluation_chunk(agent, layout.actors, num_envs, loop_params['episodes_per_evaluation'])
    else:
        horizon = loop_params['horizon'] if plays else max(1, _MESSAGE // num_envs)
        sizes = behavior.state_size, behavior.param_size
        size = EPISODES * horizon * num_envs + rollout_bytes(
            agent.observation_space, agent.action_adaptor, horizon, num_envs, *sizes, every_state=replays
        )
    normalized = {path: moments.mean.size for path, moments in agent.statistics.items()}
    if replays:
        size += sum(3 * 8 * entries for entries in normalized.values())
    if has_gradients:
        moved = [variable for optimizer in agent.optimizers.values() for variable in optimizer.variables]
        size += sum(4 * int(np.prod(variable.shape)) for variable in moved)
    ahead = {'lockstep': 0, 'stream': loop_params.get('ahead', 1), 'gradients': 0}[loop.pace] if plays else 1
    if layout.buffers and loop_params['update_every'] is None:
        ahead = _FREE_AHEAD
    plan = Plan(
        layout=layout,
        experience=loop.experience,
        horizon=horizon,
        max_bytes=size + HEADER,
        ahead=ahead,
        num_envs=num_envs,
        explore_steps=0 if agent.data_steps else loop_params.get('explore_steps', 0),
        seed=seed,
        start=start,
        train_steps=train_steps,
        loop_params=loop_params,
        behavior=behavior.light(),
        stored=Stored(agent.observation_space, agent.action_space, agent.sampling, normalized) if replays else None,
        rebuild=about(env).rebuild,
        has_gradients=has_gradients,
        restarts=restarts,
        sample_timeout=sample_timeout,
    )
    return replace(plan, built=record(agent, plan))


def _evaluation_chunk(agent: Agent, actors: int, num_envs: int, episodes: int) -> tuple[int, int]:
    """Return how many evaluations an actor plays at a time, and the bytes of their results.

    At least as many as its copies, else few enough that no actor waits long at the end of a generation.
    """
    size = max(num_envs, 2 * agent.perturbations[0] // (_CHUNKS * actors), 1)
    observed = sum(3 * 8 * moments.mean.size for moments in agent.statistics.values())
    return size, size * (2 * 8 + observed + EPISODES * episodes)


def _check_servers(agent: Agent, layout: Layout) -> None:
    """Refuse servers where a policy differs between actors, or keeps something along an episode."""
    name, why = type(agent).__name__, ''
    if agent.loop.experience == 'evaluations':
        why = f'each actor of {name} acts with parameters of its own, which servers have not'
    elif agent.behavior.along_episodes:
        why = f'what {name} acts by is kept along each episode, but a server answers many environments as one'
    elif agent.behavior.per_actor:
        why = f'every actor of {name} explores in a way of its own, but a server acts for all alike'
    if why:
        raise InvalidValue(f'{layout}: {why}: leave out servers.')


def _check_gradients(agent: Agent, layout: Layout) -> None:
    """Refuse roles and networks with which actors cannot compute gradients."""
    name = type(agent).__name__
    if layout.servers or layout.learners > 1:
        raise InvalidValue(
            f'{layout}: the actors of {name} compute its gradients, and one learner takes each as it comes: give '
            f'dict(learners=1, actors={layout.actors}).'
        )
    if any(network.moving_variables for network in agent.networks.values()):
        raise InvalidValue(
            f'{layout}: a network of {name} has moving statistics, and each actor would have its own: leave out batch '
            'normalization, or give roles=None, which trains in this process.'
        )


def _check_buffers(agent: Agent, layout: Layout, loop_params: dict[str, Any], checkpoint_buffer: bool) -> None:
    """Refuse what buffers in ranks of their own cannot do, and an agent with a replay buffer that they would ignore."""
    if checkpoint_buffer:
        raise InvalidValue(
            f'{layout}: checkpoint_buffer=True saves the replay buffer of a learner, but here the buffers have it: '
            'leave out checkpoint_buffer, or the buffers.'
        )
    held = agent.saved_buffer if agent.replay is None else len(agent.replay)
    if held:
        raise InvalidValue(
            f'{layout}: the agent has a replay buffer with transitions already, which these buffers do not take over: '
            'forget it first, by agent.replay = agent.saved_buffer = None, or leave out buffers.'
        )
    # A small replay buffer like theirs refuses what they would refuse, before any process is started.
    Replay(agent.observation_space, agent.action_adaptor, 1, 1, agent.sampling, loop_params['compress'])
    if loop_params['recorded'] is not None:
        from zoo.common.datasets.opening import opened

        opened(agent, loop_params['recorded'])
