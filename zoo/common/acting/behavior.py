"""The base of all behavior policies."""

from __future__ import annotations

import copy
import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.common import spaces
from zoo.common.acting.chain import Chain
from zoo.common.acting.forward import Forward
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.adaptors.masks import masked
from zoo.common.spaces import Flat
from zoo.common.tools.errors import InvalidValue

if TYPE_CHECKING:
    from zoo.common.records import Trajectories
    from zoo.common.sampling import Sampling


class Behavior:
    """A behavior policy: draws actions from the output of the forward pass.

    With a :class:`Chain` as forward pass it can be pickled and needs no TensorFlow.

    Args:
        forward: the forward pass; None if another process has it and this one draws only random actions.
        adaptor: the action adaptor.
        mask_path: the observation's leaf that says which actions are allowed.
    """

    #: The recurrent state of each copy before its next step, float32 ``[N, S]``; None: no state, or no episode yet.
    state: np.ndarray | None = None
    #: Length of ``params`` if rollouts store them, else 0: an algorithm sets it to the adaptor's ``param_size``.
    param_size: int = 0
    #: Parameters of the distribution that the last actions were drawn from, float32 ``[N, param_size]``.
    params: np.ndarray | None = None
    #: Noise of each copy that lasts for several steps, ``[N, …]``; None: no episode has begun.
    noise: np.ndarray | None = None
    #: Whether a copy keeps something along its episodes: then observations of different copies must not be mixed.
    along_episodes = False
    #: Whether each actor explores differently, so that no other actor can act for it.
    per_actor = False
    #: Whether `traced` does what a call does. Every subclass that acts otherwise says it anew.
    traces = False

    def __init__(self, forward: Forward | Chain | None, adaptor: ActionAdaptor, mask_path: str | None = None) -> None:
        self.forward: Forward | Chain = forward  # type: ignore[assignment] # never called where it is None
        self.adaptor = adaptor
        self.mask_path = mask_path

    def __call__(self, obs: Flat, rng: np.random.Generator, progress: float, deterministic: bool = False) -> Flat:
        """Stored actions ``[N, …]`` for flat observations ``[N, …]``.

        ``progress`` is the fraction of the training that is done, for schedules; ``deterministic`` does not explore.
        """
        raise NotImplementedError

    def step(
        self, obs: Flat, state: np.ndarray, rng: np.random.Generator, progress: float, deterministic: bool = False
    ) -> tuple[Flat, np.ndarray]:
        """Stored actions ``[N, …]`` and the recurrent state after the step ``[N, S]``, from a given state.

        A policy that is not recurrent returns ``state``. The copies' own state and noise are not used or changed.
        """
        alone = copy.copy(self)
        alone.noise = None
        return alone(obs, rng, progress, deterministic), state

    @property
    def traceable(self) -> Forward:
        """The forward pass with TensorFlow."""
        assert isinstance(self.forward, Forward)
        return self.forward

    @property
    def state_size(self) -> int:
        """Entries of the recurrent state, 0 where the policy has none."""
        return 0

    def chosen(self, output: Any, obs: Flat) -> Flat:
        """Stored actions ``[N, …]`` without exploration, from the forward pass' output for ``obs``; all are tensors.

        An exported agent acts by it. An agent cannot be exported if its behavior lacks this method.
        """
        raise NotImplementedError

    def traced(self, obs: Flat, state: Any, seed: Any, progress: Any) -> tuple[Flat, Any, Any]:
        """Explore, for tensors, to be traced into a call together with an environment that is compiled.

        Args:
            obs: flat observations ``[N, …]``.
            state: the recurrent state ``[N, S]``; ``()`` where the policy has none.
            seed: int32 ``[2]``.
            progress: float32 ``[]``, for schedules.

        Returns:
            Stored actions ``[N, …]``; the parameters of their distribution, ``()`` where there is none; and the state
            after the step.
        """
        raise NotImplementedError

    def traced_random(self, obs: Flat, seed: Any) -> Flat:
        """`random` for tensors, to be traced."""
        import tensorflow as tf

        from zoo.common.maths.distributions import split_seed, uniform_like

        count = next(x for _, x in spaces.tree_items(obs)).shape[0]
        if self.mask_path is not None:
            logits = tf.zeros([count, self.adaptor.param_size])
            logits = masked(logits, obs[self.mask_path], self.adaptor.parts[0].counts)
            return self.adaptor.distribution.sample(logits, seed)
        # Logits of zero are uniform; a Box with bounds is uniform between them, and one without is standard normal.
        action = self.adaptor.distribution.sample(tf.zeros([count, self.adaptor.param_size]), seed)
        found = dict(spaces.tree_items(action))
        seeds = split_seed(seed, len(self.adaptor.parts) + 1)[1:]
        for part, own in zip(self.adaptor.parts, seeds, strict=True):
            if 'gaussian' in part.kind and self.adaptor.is_scaled(part.path):
                found[part.path] = 2.0 * uniform_like(found[part.path], own) - 1.0
        return spaces.from_items(self.adaptor.space, found)

    def random(self, obs: Flat, rng: np.random.Generator) -> Flat:
        """Uniformly random stored actions for flat observations ``[N, …]``; with a mask, only allowed ones."""
        if self.mask_path is None:
            return self.adaptor.random(spaces.count(obs), rng)
        logits = np.zeros((spaces.count(obs), self.adaptor.param_size), np.float32)
        return self.adaptor.sample(masked(logits, obs[self.mask_path], self.adaptor.parts[0].counts), rng)

    def explore(self, obs: Flat, rng: np.random.Generator, progress: float) -> Flat:
        """Random actions, while only these are wanted; like acting, it may move the recurrent state."""
        return self.random(obs, rng)

    def episodes_begin(self, copies: np.ndarray) -> None:
        """Reset what copies keep along an episode, where ``copies``, bool ``[N]``, says that an episode begins."""

    def of_actor(self, number: int, actors: int) -> Behavior:
        """The behavior of one of several actors; the same for all unless :attr:`per_actor` is True."""
        return self

    def priorities(self, rollout: Trajectories, sampling: Sampling) -> np.ndarray | None:
        """The priorities, |δ| ``[T, N]``, of new steps with fields ``[T, N, …]``; None: the highest one so far."""
        return None

    def light(self) -> Behavior:
        """A copy without TensorFlow, to be pickled; it has no forward pass if that needs TensorFlow."""
        twin = copy.copy(self)
        twin.forward = getattr(self.forward, 'numpy', None)  # type: ignore[assignment]
        return twin


class Remembering(Behavior):
    """A behavior with a recurrent policy: keeps the recurrent state of each copy. A subclass defines `step`."""

    along_episodes = True

    @functools.cached_property
    def state_size(self) -> int:
        return self.forward.state_size

    def light(self) -> Behavior:
        _ = self.state_size  # kept where there is no forward pass any more
        return super().light()

    def episodes_begin(self, copies: np.ndarray) -> None:
        if self.state is None or len(self.state) != len(copies):
            self.state = np.zeros((len(copies), self.state_size), np.float32)
        else:
            self.state = np.where(copies[:, None], np.float32(0.0), self.state)

    def __call__(self, obs: Flat, rng: np.random.Generator, progress: float, deterministic: bool = False) -> Flat:
        count = spaces.count(obs)
        if self.state is None or len(self.state) != count:
            raise InvalidValue(
                f'a recurrent policy is asked to act in {count} copies of the environment, but '
                f'{"none has" if self.state is None else f"{len(self.state)} have"} begun an episode: '
                'give the state to act with, predict(obs, state=…).'
            )
        action, self.state = self.step(obs, self.state, rng, progress, deterministic)
        return action

    def explore(self, obs: Flat, rng: np.random.Generator, progress: float) -> Flat:
        self(obs, rng, progress)
        return self.random(obs, rng)
