"""The experience that an environment in this process gives: compiled, or stepped from Python."""

from __future__ import annotations

import logging

from gymnasium import Env
from gymnasium.vector import VectorEnv

from zoo.common.acting.greedy import Deterministic
from zoo.common.training.agent import Agent
from zoo.common.training.collection import Collection

log = logging.getLogger('zoo')

#: The warning where an environment could be compiled, but is not.
IN_PYTHON = 'This compiled environment is stepped from Python, which takes longer: %s.'


def experience_of(agent: Agent, env: Env | VectorEnv, render: bool, start: int) -> Collection:
    """Return the experience of an environment in this process: compiled where environment and agent can be."""
    if not is_compiled(env.unwrapped):
        return Collection(agent, env, render, start)
    from zoo.common.networks.network import compiles_by_xla
    from zoo.common.rollouts.compiled_play import can_map
    from zoo.common.training.compiled_collection import CompiledCollection

    why = None
    if not is_compiled(env):
        why = f'{type(env).__name__} around it is Python'
    elif render:
        why = 'every step is shown'
    elif not agent.behavior.traces:
        why = f'{type(agent).__name__} explores in a way that is not compiled'
    elif unable := [name for name, network in agent.networks.items() if not compiles_by_xla(network)]:
        why = f'the network {unable[0]} has operations that XLA cannot compile'
    elif isinstance(agent.behavior, Deterministic) and not can_map(agent.behavior, agent.observation_space):
        why = 'TensorFlow cannot run its network with other weights in each copy'
    if why is None:
        return CompiledCollection(agent, env, start)
    log.warning(IN_PYTHON, why)
    return Collection(agent, env, render, start)


def is_compiled(env: object) -> bool:
    """Return whether an environment is one of pure functions, with nothing around it."""
    return getattr(type(env), 'is_compiled', False)
