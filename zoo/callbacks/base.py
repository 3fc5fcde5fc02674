"""What every callback has: when it is due, and what it asks of a training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gymnasium import Env
from gymnasium.vector import VectorEnv

from zoo.common.envs.about import about
from zoo.common.tools.errors import InvalidValue
from zoo.common.training.agent import mismatch

if TYPE_CHECKING:
    from zoo.common.training.training import Training


class Callback:
    """A callback of a training; a subclass overrides what it needs.

    Attributes:
        every: environment steps between calls. A call happens at the first update from there on, and at the end. None:
            whenever a row is logged.
        steers: whether it may end or change the training. A run with such a callback is not said by a file
            (:func:`zoo.as_config`).
        saves_buffer: whether it saves the replay buffer. A compiled environment then keeps the buffer in Python.
    """

    every: int | None = None
    steers: bool = True
    saves_buffer: bool = False

    def begin(self, training: Training) -> None:
        """Prepare; called before the first step of the training."""

    def __call__(self, training: Training) -> bool | None:
        """Do what is due; False ends the training."""
        raise NotImplementedError

    def logged(self, training: Training, metrics: Mapping[str, float]) -> None:
        """Take the metrics of a row that another callback wrote with ``training.log``."""

    def end(self, training: Training) -> None:
        """Clean up; called after the training, also if it was interrupted or failed (``training.error``)."""

    def __repr__(self) -> str:
        return f'{type(self).__name__}(every={self.every})'


class WithEnvironment(Callback):
    """A callback that plays in an environment of its own.

    Args:
        env: the environment; None builds one like the training's, of one copy.
        seed: of the environment that is built.
        **changes: arguments of ``build_env`` to change in it.
    """

    def __init__(self, env: Env | VectorEnv | None, seed: int | None, **changes: Any) -> None:
        if env is not None and not isinstance(env, Env | VectorEnv):
            right = 'an environment from build_env, or None for one as in training'
            raise InvalidValue(f'env of {type(self).__name__} is {env!r}: give {right}.')
        self.env = env
        self.seed = seed
        self._changes = changes
        self._own: Any = None
        self._lent: Any = None

    def begin(self, training: Training) -> None:
        self.check_environment(training)
        self.open_environment(training)

    def check_environment(self, training: Training) -> None:
        """Refuse an environment that was given and in which the agent cannot be played."""
        who = type(self).__name__
        if self.env is not None and self.env is training.env:
            raise InvalidValue(f'{who} was given the environment of the training, which only the training may step.')
        if self.env is not None and (wrong := mismatch(training.agent, self.env)) is not None:
            raise InvalidValue(f"{who}'s environment is another than the agent's: its {wrong}.")

    def open_environment(self, training: Training) -> None:
        """Build the environment if none was given and none is open."""
        if self.env is None and self._own is None:
            if training.env is not None and about(training.env).rebuild is None and not training.experience.num_envs:
                self._lent = training.env  # a training on a dataset does not step it
            else:
                self._own = self._build(training)

    def can_build(self, training: Training) -> bool:
        """Whether there is an environment to play in, or one can be built like the training's."""
        if self.env is not None or training.env is None:
            return self.env is not None
        return about(training.env).rebuild is not None or not training.experience.num_envs

    def _build(self, training: Training) -> Any:
        who = type(self).__name__
        if training.env is None:
            raise InvalidValue(f'{who} needs an environment, but learn was given none: give {who}(env=…).')
        rebuild = about(training.env).rebuild
        if rebuild is None:
            raise InvalidValue(
                f'{who} needs an environment of its own, but build_env did not make the training environment from a '
                f'name, a class or a function, so that it could make another one: give {who}(env=…).'
            )
        changes = self._changes
        if getattr(training.env, 'render_mode', None) == 'human':  # one window is enough
            changes = {'render_mode': None, **changes}
        return rebuild(seed=self.seed, nenv=1, **changes)

    @property
    def playing_env(self) -> Any:
        """The environment that it plays in."""
        own = self._lent if self._own is None else self._own
        return own if self.env is None else self.env

    def end(self, training: Training) -> None:
        self._lent = None
        if self._own is not None:
            self._own.close()
            self._own = None


def settings_of(training: Training) -> dict[str, Any]:
    """Return what is trained, as plain data by name."""
    config: Mapping[str, Any] = training.agent.config()
    apart = ('params', 'observation_space', 'action_space')
    found = {name: value for name, value in config.items() if name not in apart}
    learned = {name: value for name, value in training.learn_params.items() if name not in ('verbose', 'resume')}
    found |= {**config['params'], **learned, 'environment': _environment(training)}
    if training.env is not None:
        found['nenv'] = about(training.env).copies
    return found | {'train_steps': training.train_steps}


def title_of(training: Training) -> str:
    """Return the name of the run directory, or the algorithm and the environment where there is none."""
    if training.run_dir is not None:
        return training.run_dir.name
    return f'{type(training.agent).__name__} {_environment(training)}'


def _environment(training: Training) -> str:
    return '' if training.env is None else about(training.env).name
