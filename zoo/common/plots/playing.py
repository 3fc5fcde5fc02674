"""Episodes as pictures: an agent plays, and each moment is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
from gymnasium import Env
from gymnasium.vector import VectorEnv

from zoo.common.envs.answers import LIFE_LOST
from zoo.common.tools.errors import InvalidValue


class Plays(Protocol):
    """What pictures of episodes need of an agent."""

    def initial_state(self) -> Any:
        """Return the state with which an episode begins; None for an agent without memory."""

    def predict(self, observation: Any, deterministic: bool = True, state: Any = None) -> Any:
        """Return an action and, since a state was given, the next state."""


class Moment(NamedTuple):
    """A moment of an episode: the step, the return so far, the picture, whether the episode ended there by itself."""

    step: int
    total: float
    frame: np.ndarray
    ended: bool


def check_drawable(env: Env | VectorEnv) -> None:
    """Refuse, by a ValueError, several copies, and a ``render_mode`` other than ``'rgb_array'``."""
    if not isinstance(env, Env | VectorEnv):
        raise InvalidValue(f"pictures need an environment of build_env(…, render_mode='rgb_array'), not {env!r}.")
    if isinstance(env, VectorEnv):
        raise InvalidValue(f'{env.num_envs} copies cannot be drawn: build the environment with nenv=1.')
    if env.render_mode != 'rgb_array':
        raise InvalidValue(
            f"the environment has render_mode={env.render_mode!r}: build it with build_env(…, render_mode='rgb_array')."
        )


def moments(agent: Plays, env: Env, seed: int | None, max_steps: int, deterministic: bool = True) -> Iterator[Moment]:
    """Play one whole episode and yield its moments, from the first observation to the last, or for ``max_steps``.

    A lost life is not an end: the game goes on, and a memory begins anew, as in training and in tests.
    """
    observation, _ = env.reset(seed=seed)
    state, total, ended = agent.initial_state(), 0.0, False
    unshaped = env.has_wrapper_attr('return_so_far')  # where reward_shaping changes rewards
    yield Moment(0, total, _picture(env), ended)
    for step in range(1, max_steps + 1):
        action, state = agent.predict(observation, deterministic, state)
        observation, reward, terminated, truncated, info = env.step(action)
        total, ended = total + float(reward), bool(terminated or truncated)
        if unshaped:
            total = env.get_wrapper_attr('return_so_far')
        if ended and info.get(LIFE_LOST):
            observation, _ = env.reset()
            state, ended = agent.initial_state(), False
        yield Moment(step, total, _picture(env), ended)
        if ended:
            return


def _picture(env: Env) -> np.ndarray:
    frame: Any = env.render()
    if not isinstance(frame, np.ndarray) or frame.ndim != 3:
        raise InvalidValue(f'the environment draws {type(frame).__name__} instead of a picture [height, width, 3].')
    return frame.copy()  # some environments draw into the same array again
