"""What every callback has: when it is due, and the settings of a training that it asks for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import Env
from gymnasium.vector import VectorEnv

from zoo.common.envs.about import about
from zoo.common.training.agent import mismatch

if TYPE_CHECKING:
    from zoo.common.training.training import Training


class Callback:
    """What a callback may have; a subclass gives what it needs of it.

    Attributes:
        every: steps between calls; None: whenever a row is logged.
    """

    every: int | None = None

    def begin(self, training: Training) -> None:
        """Called before the first step of the training."""

    def __call__(self, training: Training) -> bool | None:
        """Called when it is due; False ends the training."""
        raise NotImplementedError

    def logged(self, training: Training, metrics: Mapping[str, float]) -> None:
        """Called with the metrics of a row that another callback writes by ``training.log``."""

    def end(self, training: Training) -> None:
        """Called after the training, also one that was interrupted or has failed (``training.error``)."""

    def __repr__(self) -> str:
        return f'{type(self).__name__}(every={self.every})'


def settings_of(training: Training) -> dict[str, Any]:
    """What was trained, as plain data by name."""
    config: Mapping[str, Any] = training.agent.config()
    found = {
        name: value for name, value in config.items() if name not in ('params', 'observation_space', 'action_space')
    }
    return {**found, **config['params'], 'environment': _environment(training), 'train_steps': training.train_steps}


def _environment(training: Training) -> str:
    return '' if training.env is None else about(training.env).name


def title_of(training: Training) -> str:
    if training.run_dir is not None:
        return training.run_dir.name
    return f'{type(training.agent).__name__} {_environment(training)}'


def another_environment(training: Training, who: str, seed: int | None, **changes: Any) -> Any:
    """An environment like that of the training, of one copy.

    Raises:
        ValueError: it cannot be built again.
    """
    rebuild = None if training.env is None else about(training.env).rebuild
    if rebuild is None:
        raise ValueError(
            f'{who} needs an environment of its own, but build_env did not make that of the training from a name, a '
            f'class or a function, so that it could make another one: give {who}(env=…).'
        )
    if getattr(training.env, 'render_mode', None) == 'human':  # one window is enough
        changes = {'render_mode': None, **changes}
    return rebuild(seed=seed, nenv=1, **changes)


def environment_of(who: str, env: Any) -> Any:
    if env is not None and not isinstance(env, Env | VectorEnv):
        raise ValueError(
            f'env of {who} is {env!r}: give an environment from build_env, or None for one as in training.'
        )
    return env


def check_spaces(who: str, training: Training, env: Any) -> None:
    wrong = mismatch(training.agent, env)
    if wrong is not None:
        raise ValueError(f"{who}'s environment is another than the agent's: its {wrong}.")


def check_number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or math.isnan(value):
        raise ValueError(f'{name} is {value!r}: give a number.')
    return float(value)


def check_whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f'{name} is {value!r}: give a whole number of at least 1.')
    return int(value)
