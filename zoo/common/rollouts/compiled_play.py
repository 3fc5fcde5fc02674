"""Whole episodes with perturbed parameters in a compiled environment: all perturbations play at once."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from gymnasium import Space

from zoo.common import spaces
from zoo.common.acting.greedy import Deterministic
from zoo.common.acting.perturbed import direction, episode_seed
from zoo.common.envs.compiled.copies import Copies
from zoo.common.envs.compiled.env import CompiledCopies
from zoo.common.envs.compiled.functions import name_of
from zoo.common.maths.normalize import grown, joined
from zoo.common.networks.network import keras_variables
from zoo.common.records import Episode
from zoo.common.rollouts.compiled_rollouts import Ends, PlayState, is_sound, take_step, tell
from zoo.common.tools.compilation import XlaCall
from zoo.common.tools.errors import NotFinite

#: Tells of steps and of the episodes that ended in them.
Stepped = Callable[[int, Sequence[Episode]], None]


class CompiledPlay:
    """Plays whole episodes of ``K`` evaluations at once, each in a copy of its own.

    Args:
        made: ``K`` copies of the environment.
        behavior: the policy; the running statistics of its observations stay fixed.
        most: the most steps of a copy in one call.
    """

    def __init__(self, made: CompiledCopies, behavior: Deterministic, most: int) -> None:
        self._made, self._behavior = made, behavior
        forward = behavior.traceable
        weights = keras_variables(forward.network, forward.trained)
        assert weights is not None  # as whoever chose to compile has found
        self._name = name_of(made.copies.functions)
        self._call = XlaCall(
            lambda now, left, vectors: play_steps(made.copies, behavior, weights, most, now, left, vectors),
            f'{self._name} together with the policy',
        )

    def __call__(
        self, seeds: np.ndarray, signs: np.ndarray, std: float, episodes: int, stepped: Stepped
    ) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Play so many episodes of each evaluation, as :class:`zoo.common.rollouts.perturbed_play.PerturbedPlay` does.

        Each evaluation has its own seed for the environment, so that its episodes do not depend on the others.
        """
        parameters = np.concatenate([variable.numpy().ravel() for variable in self._behavior.traceable.trained])
        noise = np.stack([direction(int(seed), parameters.size) for seed in seeds])
        vectors = tf.constant(parameters + (signs * std).astype(np.float32)[:, None] * noise)
        begun = [episode_seed(seed, sign, 0) for seed, sign in zip(seeds.tolist(), signs.tolist(), strict=True)]
        now = PlayState(self._made.begin(tf.constant(begun, tf.int32)), ())
        left = tf.fill([len(seeds)], np.int32(episodes))

        returns, lengths = np.zeros(len(seeds)), np.zeros(len(seeds), np.int64)
        statistics = self._behavior.forward.preprocess.statistics
        tally = {path: np.zeros((len(seeds), 3, moments.mean.size)) for path, moments in statistics.items()}
        ends = Ends(len(seeds))
        while np.any(left):
            found: Played = self._call(now, left, vectors)
            now, left, count = found.now, found.left, int(found.steps)
            if int(found.sound) < count:
                raise NotFinite(
                    f'step {int(lengths.max()) + count} of the copies: {self._name} gave an observation or a reward '
                    'that is NaN, infinite or outside a discrete space: mend its step().'
                )
            reward, done, playing = (x.numpy()[:count] for x in (found.reward, found.done, found.playing))
            tell(stepped, ends.found(reward, done), playing.sum(1))
            returns += reward.sum(0, np.float64)
            lengths += playing.sum(0)
            for path, moments in found.observed.items():
                tally[path] = joined(np.stack([tally[path], moments.numpy()], 1))
        return returns / episodes, lengths, tally


def can_map(behavior: Deterministic, observation_space: Space) -> bool:
    """Return whether TensorFlow acts for several copies with weights of their own as it acts for each one.

    It cannot map some operations, such as convolutions, and maps others wrongly without a word.
    """
    forward, count = behavior.traceable, 3
    weights = keras_variables(forward.network, forward.trained)
    if weights is None:
        return False
    rng, space = np.random.default_rng(0), copy.deepcopy(observation_space)
    space.seed(0)
    sampled = [spaces.flatten(space, space.sample()) for _ in range(count)]
    obs = spaces.tree_map(lambda *x: tf.constant(np.stack(x)), *sampled)
    size = sum(int(np.prod(weight.shape)) for weight in weights)
    vectors = tf.constant(rng.standard_normal((count, size), np.float32))

    def all_act() -> Any:
        return Perturbed(behavior, weights, vectors).traced(obs, (), tf.zeros([2], tf.int32), tf.zeros([]))[0]

    def alone(i: int) -> Any:
        pieces = [piece[0] for piece in Perturbed(behavior, weights, vectors[i : i + 1]).pieces]
        with keras.StatelessScope(state_mapping=list(zip(weights, pieces, strict=True))):
            return behavior.traced(
                spaces.tree_map(lambda x: x[i : i + 1], obs), (), tf.zeros([2], tf.int32), tf.zeros([])
            )[0]

    try:
        together = tf.function(all_act, autograph=False).get_concrete_function()()
    except (ValueError, TypeError, NotImplementedError, tf.errors.OpError):
        return False
    for i in range(count):
        own = dict(spaces.tree_items(alone(i)))
        if not all(np.allclose(x[i], own[path][0], atol=1e-3) for path, x in spaces.tree_items(together)):
            return False
    return True


class Played(NamedTuple):
    """What some steps of ``K`` evaluations gave; an evaluation that has no episode left adds nothing.

    Attributes:
        now: where the copies are.
        left: int32 ``[K]``, episodes to come.
        reward: float32 ``[T, K]``.
        done: bool ``[T, K]``.
        playing: bool ``[T, K]``, whether an episode was under way.
        observed: the moments of the observations acted on, by path float64 ``[K, 3, size]``
            (:func:`zoo.common.maths.normalize.moments_of`).
        steps: int32 ``[]``, how many of the ``T`` steps were taken.
        sound: int32 ``[]``, how many of them were finite: all, or all but the last one.
    """

    now: PlayState
    left: tf.Tensor
    reward: tf.Tensor
    done: tf.Tensor
    playing: tf.Tensor
    observed: dict[str, tf.Tensor]
    steps: tf.Tensor
    sound: tf.Tensor


class Perturbed(Deterministic):
    """A deterministic policy with other weights in each copy, to be traced.

    Args:
        behavior: the policy.
        weights: what to exchange.
        vectors: float32 ``[K, D]``, the weights of each copy, one after the other.
    """

    def __init__(self, behavior: Deterministic, weights: Sequence[keras.Variable], vectors: tf.Tensor) -> None:
        super().__init__(behavior.forward, behavior.adaptor, behavior.mask_path)
        sizes = [int(tf.TensorShape(weight.shape).num_elements()) for weight in weights]
        self._weights = weights
        self.pieces = [
            tf.reshape(piece, [-1, *weight.shape])
            for piece, weight in zip(tf.split(vectors, sizes, 1), weights, strict=True)
        ]

    def traced(self, obs: spaces.Flat, state: Any, seed: Any, progress: Any) -> tuple[spaces.Flat, Any, Any]:
        act = super().traced

        def of_one(given: Any) -> spaces.Flat:
            pieces, own = given
            with keras.StatelessScope(state_mapping=list(zip(self._weights, pieces, strict=True))):
                action, _, _ = act(spaces.tree_map(lambda x: x[None], own), state, seed, progress)
            return spaces.tree_map(lambda x: x[0], action)

        return tf.vectorized_map(of_one, (self.pieces, obs), fallback_to_while_loop=False), (), state


def play_steps(
    copies: Copies,
    behavior: Deterministic,
    weights: Sequence[keras.Variable],
    most: int,
    now: PlayState,
    left: tf.Tensor,
    vectors: tf.Tensor,
) -> Played:
    """Take up to ``most`` steps in every copy, until each has played the episodes that are ``left``, int32 ``[K]``.

    It is a function of tensors. ``vectors``, float32 ``[K, D]``, are the ``weights`` of each copy.
    """
    count = copies.num_envs
    perturbed = Perturbed(behavior, weights, vectors)
    statistics = behavior.forward.preprocess.statistics
    observed = {path: tf.zeros([count, 3, moments.mean.size], tf.float64) for path, moments in statistics.items()}
    stored = [tf.TensorArray(dtype, most, element_shape=[count]) for dtype in (tf.float32, tf.bool, tf.bool)]

    def step(t: Any, now: PlayState, left: Any, observed: Any, sound: Any, stored: Any) -> tuple[Any, ...]:
        playing = left > 0
        now, taken = take_step(copies, perturbed, now, tf.zeros([2], tf.int32), tf.zeros([]))
        found = taken.transition
        done = playing & (found.terminated | found.truncated)
        row = tf.where(playing, found.reward, 0.0), done, playing
        stored = [array.write(t, x) for array, x in zip(stored, row, strict=True)]
        observed = {path: _grown(moments, found.obs, path, playing) for path, moments in observed.items()}
        sound += tf.cast(is_sound(copies, found, 0), tf.int32)
        return t + 1, now, left - tf.cast(done, tf.int32), observed, sound, stored

    t, now, left, observed, sound, stored = tf.while_loop(
        lambda t, now, left, observed, sound, stored: (t < most) & tf.reduce_any(left > 0) & (sound == t),
        step,
        (tf.constant(0), now, left, observed, tf.constant(0), stored),
        parallel_iterations=1,
    )
    reward, done, playing = (array.stack() for array in stored)
    return Played(now, left, reward, done, playing, observed, t, sound)


def _grown(moments: tf.Tensor, obs: spaces.Flat, path: str, playing: tf.Tensor) -> tf.Tensor:
    """Return moments ``[K, 3, size]`` with an observation ``[K, …]`` more where an episode is being played."""
    x = tf.cast(obs[path] if path else obs, tf.float64)
    more = tf.stack(grown(tf.unstack(moments, axis=1), tf.reshape(x, [x.shape[0], -1])), 1)
    return tf.where(playing[:, None, None], more, moments)
