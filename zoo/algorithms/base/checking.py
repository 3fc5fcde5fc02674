"""What a constructor checks before it runs: that its parameters are known, in range, and of spaces."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gymnasium import Env
from gymnasium.spaces import Space
from gymnasium.vector import VectorEnv

from zoo.algorithms.base import learning
from zoo.common.tools import params

log = logging.getLogger('zoo')

#: What prioritised replay alone reads.
PRIORITY_PARAMS = ('priority_alpha', 'priority_beta')


def checked(init: Callable[..., None]) -> Callable[..., None]:
    """A constructor that checks its parameters before it runs."""

    @functools.wraps(init)
    def checking(self: Any, *args: Any, **kwargs: Any) -> None:
        cls, known = type(self), params.declared(init)
        if not params.takes_any(init):
            given = dict(zip(known, args, strict=False)) | kwargs
            _check_spaces(cls, given)
            for name in kwargs:
                if name not in known or name in cls.unused:
                    raise ValueError(_unknown_param(cls, name, cls.declared()))
            if len(args) + len(kwargs) > len(given):
                raise ValueError(f'{cls.__name__} was given more arguments than it takes, or one of them twice.')
            args, kwargs = (), given
        init(self, *args, **{name: known[name].check(x) if name in known else x for name, x in kwargs.items()})
        for name in known:
            if not hasattr(self, name):
                raise TypeError(
                    f'{cls.__name__} takes {name}, but does not keep it, so it could not be saved: set self.{name}.'
                )

    # For help and Tab; what the annotations say is in the documentation of the class.
    signature = inspect.signature(init)
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    checking.__signature__ = signature.replace(parameters=plain, return_annotation=None)  # type: ignore[attr-defined]
    return checking


def warn_of_unread(agent: Any, read_by: Mapping[tuple[str, Any], Sequence[str]]) -> None:
    """Say which parameters were given though nothing reads them.

    Args:
        agent: of which the parameters are attributes.
        read_by: for a parameter and a value the names of those that are read only where it has that value.
    """
    defaults = type(agent).params()
    for (choice, value), names in read_by.items():
        for name in names:
            # One that the class does not take was chosen by its author.
            if getattr(agent, choice) != value and name in defaults and getattr(agent, name) != defaults[name]:
                log.warning('%s=%s changes nothing without %s=%r.', name, getattr(agent, name), choice, value)


def warn_of_exploration(agent: Any) -> None:
    """Say where neither noisy layers nor random actions explore."""
    if not agent.noisy and agent.epsilon == 0.0:
        log.warning('epsilon=0 without noisy=True never explores: epsilon=None does, by random actions.')


def warn_of_sequences(agent: Any, network: Any) -> None:
    """Say which parameters of sequences change nothing, since the network that acts is not recurrent."""
    defaults = type(agent).params()
    for name in ('sequence_length', 'burn_in'):
        if not network.state_size and name in defaults and getattr(agent, name) != defaults[name]:
            log.warning('%s=%s changes nothing, since no network is recurrent.', name, getattr(agent, name))


def _unknown_param(cls: Any, name: str, known: Iterable[str]) -> str:
    elsewhere = {
        other: f'is a parameter of learn, not of {cls.__name__}: agent.learn(env, {other}=…).'
        for other in [*cls.learn_params(), *learning.ARGUMENTS]
    }
    return params.refusal(f'parameter of {cls.__name__}', name, known, elsewhere)


def _check_spaces(cls: type, given: Mapping[str, Any]) -> None:
    """That an agent is made of spaces, for those who come from libraries in which it is made of an environment.

    Raises:
        ValueError: one sentence that says how it is made here.
    """
    name = cls.__name__
    how = (
        f"{name}(**alg_params) with alg_params, learn_params = call_default_params(env, env_type, '{name}'), or "
        f'{name}(env.observation_space, env.action_space)'
    )
    for kind in ('observation_space', 'action_space'):
        if kind not in given:
            if any(isinstance(value, Env | VectorEnv) for value in given.values()):
                raise ValueError(f'{name} is made of spaces, not of an environment: {how}.')
            raise ValueError(f'{name} needs {kind}: {how}.')
        value = given[kind]
        if isinstance(value, Env | VectorEnv | str):
            what = 'an environment' if not isinstance(value, str) else f'the name {value!r}'
            raise ValueError(f'{name} is made of spaces, not of {what}: {how}.')
        if not isinstance(value, Space):
            raise ValueError(f'{kind} is {value!r}: give a space of gymnasium.spaces, or make the agent by {how}.')
