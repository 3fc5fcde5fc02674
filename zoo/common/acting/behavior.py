"""The base of all behavior policies."""

from __future__ import annotations

import copy
import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.common import spaces
from zoo.common.acting.chain import Chain
from zoo.common.acting.forward import Forward
from zoo.common.adaptors.action import ActionAdaptor, masked

if TYPE_CHECKING:
    from zoo.common.records import Trajectories
    from zoo.common.sampling import Sampling


class Behavior:
    """The behaviour policy: how actions are drawn from what the forward pass gives.

    It can be pickled where the forward pass is a :class:`Chain`, and needs no TensorFlow then.

    Args:
        forward: the forward pass, or None where another process has it and this one draws random actions alone.
        adaptor: the action adaptor.
        mask_path: the observation's leaf that says which actions are allowed.
    """

    #: The recurrent state of each copy of the environment before its next step, float32 ``[N, S]``; None where the
    #: policy has none, or no episode has begun.
    state: np.ndarray | None = None
    #: Parameters of the distribution that actions are drawn from, where an algorithm asks that rollouts hold them: it
    #: sets this to the adaptor's ``param_size``, and what acts keeps those of its last actions in ``params``. 0: none.
    param_size: int = 0
    #: float32 ``[N, param_size]``, those of the last actions of a stochastic policy.
    params: np.ndarray | None = None
    #: What is kept along an episode of each copy by noise that is not drawn anew in every step, ``[N, …]``; None where
    #: no episode has begun.
    noise: np.ndarray | None = None

    def __init__(self, forward: Forward | Chain | None, adaptor: ActionAdaptor, mask_path: str | None = None) -> None:
        self.forward = forward
        self.adaptor = adaptor
        self.mask_path = mask_path

    def __call__(
        self, obs: spaces.Flat, rng: np.random.Generator, progress: float, deterministic: bool = False
    ) -> spaces.Flat:
        """Stored actions ``[N, …]`` for flat observations ``[N, …]``.

        Args:
            obs: flat observations.
            rng: exploration draws from it.
            progress: fraction of the training done, for what is scheduled.
            deterministic: without exploration.
        """
        raise NotImplementedError

    def step(
        self,
        obs: spaces.Flat,
        state: np.ndarray,
        rng: np.random.Generator,
        progress: float,
        deterministic: bool = False,
    ) -> tuple[spaces.Flat, np.ndarray]:
        """Stored actions ``[N, …]`` and the recurrent state after the step ``[N, S]``, from one that is given.

        A policy that has none hands ``state`` back as it is. Nothing that is kept of the copies is touched, nor is the
        noise of theirs that of these observations.
        """
        alone = copy.copy(self)
        alone.noise = None
        return alone(obs, rng, progress, deterministic), state

    @property
    def state_size(self) -> int:
        """Entries of the recurrent state, 0 where the policy has none."""
        return 0

    def chosen(self, output: Any, obs: spaces.Flat) -> spaces.Flat:
        """Stored actions ``[N, …]`` without exploration for what the forward pass gives, all of them tensors.

        ``obs`` is what it was given, for a behaviour that looks at it besides. So an exported agent acts; one whose
        behaviour lacks this cannot be exported.
        """
        raise NotImplementedError

    def random(self, obs: spaces.Flat, rng: np.random.Generator) -> spaces.Flat:
        """Uniformly random stored actions for flat observations ``[N, …]``, of the allowed ones if masked."""
        if self.mask_path is None:
            return self.adaptor.random(spaces.count(obs), rng)
        logits = np.zeros((spaces.count(obs), self.adaptor.param_size), np.float32)
        return self.adaptor.sample(masked(logits, obs[self.mask_path], self.adaptor.parts[0].counts), rng)

    def explore(self, obs: spaces.Flat, rng: np.random.Generator, progress: float) -> spaces.Flat:
        """What is done in place of acting while only random actions are wanted: see `random`."""
        return self.random(obs, rng)

    def episodes_begin(self, copies: np.ndarray) -> None:
        """Told before acting in them that new episodes begin in these copies of the environment, bool ``[N]``.

        For what is kept along an episode of each copy, and belongs to one process that steps them all.
        """

    #: Whether something is, so that observations of one copy must not be mixed with those of others.
    along_episodes = False

    #: Whether each of several actors explores in a way of its own, so that none other can act for it.
    per_actor = False

    def of_actor(self, number: int, actors: int) -> Behavior:
        """The behaviour of one of several actors: the same for all where :attr:`per_actor` does not say otherwise."""
        return self

    def priorities(self, rollout: Trajectories, sampling: Sampling) -> np.ndarray | None:
        """The priorities that steps just taken are stored with, |δ| ``[T, N]``; None: the highest that there is.

        Args:
            rollout: the steps, fields ``[T, N, …]``.
            sampling: how they will be drawn.
        """
        return None

    def light(self) -> Behavior:
        """The same without TensorFlow, to be pickled; where that cannot be, without a forward pass."""
        twin = copy.copy(self)
        twin.forward = getattr(self.forward, 'numpy', None)
        return twin


class Remembering(Behavior):
    """A behaviour whose policy is recurrent: it keeps the state of each copy. A subclass says what a `step` is.

    Args:
        forward, adaptor, mask_path: see :class:`Behavior`.
    """

    along_episodes = True

    @property
    def state_size(self) -> int:
        """See :class:`Behavior`."""
        return self._state_size

    @functools.cached_property
    def _state_size(self) -> int:  # kept where there is no forward pass any more
        return int(self.forward.state_size)  # type: ignore[union-attr] # a recurrent one has it

    def light(self) -> Behavior:
        """See :class:`Behavior`."""
        _ = self._state_size
        return super().light()

    def episodes_begin(self, copies: np.ndarray) -> None:
        """See :class:`Behavior`: their state is zero then."""
        if self.state is None or len(self.state) != len(copies):
            self.state = np.zeros((len(copies), self.state_size), np.float32)
        else:
            self.state = np.where(copies[:, None], np.float32(0.0), self.state)

    def __call__(
        self, obs: spaces.Flat, rng: np.random.Generator, progress: float, deterministic: bool = False
    ) -> spaces.Flat:
        """See :class:`Behavior`; with the state that is kept of the copies, which takes a step."""
        count = spaces.count(obs)
        if self.state is None or len(self.state) != count:
            raise ValueError(
                f'a recurrent policy is asked to act in {count} copies of the environment, but '
                f'{"none has" if self.state is None else f"{len(self.state)} have"} begun an episode: '
                'predict(obs, state=…) takes the state that it is to act with.'
            )
        action, self.state = self.step(obs, self.state, rng, progress, deterministic)
        return action

    def explore(self, obs: spaces.Flat, rng: np.random.Generator, progress: float) -> spaces.Flat:
        """See :class:`Behavior`; the state takes a step."""
        self(obs, rng, progress)
        return self.random(obs, rng)
