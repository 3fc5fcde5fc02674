"""The loop on policy in a compiled environment: rollouts and updates, several iterations in one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.common.acting.behavior import Behavior
from zoo.common.envs.compiled.copies import Copies
from zoo.common.rollouts.compiled_rollouts import PlayState, is_sound, take_steps, trajectories
from zoo.common.training.collection import Collection
from zoo.common.training.compiled_collection import CALL_STEPS, CompiledCollection
from zoo.common.training.training import Training


def learn_compiled(training: Training, experience: Collection, horizon: int, update_params: Any) -> None:
    """Make the iterations of a training, in the order and with the random numbers of iterations one by one.

    Args:
        horizon: as for :data:`zoo.common.training.loops.on_policy`.
        update_params: of the agent's ``update``.
    """
    assert isinstance(experience, CompiledCollection)  # as the loop has found
    agent: Any = training.agent
    copies = experience.env.steps.copies
    most, rows = max(1, CALL_STEPS // horizon), horizon * copies.num_envs
    valid = np.ones((horizon, copies.num_envs), bool)
    call = None
    while not training.done:
        agent.progress = training.progress
        count = min(most, -(-training.steps_to_next // rows))
        plans = [(experience.draw_call_seed(), *agent.draws(valid, **update_params)) for _ in range(count)]
        plans += plans[-1:] * (most - count)  # the call has a place for each, and makes the first ones
        seeds, *drawn = map(np.stack, zip(*plans, strict=True))
        if call is None:
            key = copies, agent.behavior, most, horizon, *(array.shape for array in drawn)
            call = experience.compiled(key, _call_of(agent, copies, agent.behavior, most, horizon))
        begun = training.steps + rows * np.arange(most)
        progress = np.minimum(1.0, begun / training.train_steps).astype(np.float32)
        now, reward, done, metrics, sound, packed = call(
            experience.now, experience.begins, np.int32(count), progress, seeds, drawn
        )
        experience.went_on(now)
        if int(sound) < count * horizon:
            experience.refuse_not_finite(int(sound))
        experience.report(training, _rows(reward, count), _rows(done, count))
        metrics = metrics.numpy()[:count]
        wrong = ~np.isfinite(metrics).all(1)
        told = metrics[wrong.argmax() if wrong.any() else -1]  # a training refuses what is not finite
        training.updated(agent.take(np.concatenate([told, packed.numpy()])))


def _rows(found: tf.Tensor, count: int) -> np.ndarray:
    """Return the first ``count`` iterations of ``[K, T, N]`` as steps in a row, ``[count T, N]``."""
    x = found.numpy()[:count]
    return x.reshape(-1, x.shape[-1])


def _call_of(agent: Any, copies: Copies, behavior: Behavior, most: int, horizon: int) -> Callable[..., Any]:
    """Return the function that is compiled: up to ``most`` iterations."""
    shape = [horizon, copies.num_envs]

    def run(
        now: PlayState, begins: tf.Tensor, count: tf.Tensor, progress: tf.Tensor, seeds: tf.Tensor, drawn: Any
    ) -> Any:
        stored = [
            tf.TensorArray(tf.float32, most, element_shape=shape),
            tf.TensorArray(tf.bool, most, element_shape=shape),
            tf.TensorArray(tf.float32, most, element_shape=[len(agent.metric_names)]),
        ]

        def iteration(k: tf.Tensor, now: PlayState, begins: tf.Tensor, sound: tf.Tensor, stored: Any) -> Any:
            now, taken = take_steps(copies, behavior, now, horizon, seeds[k], progress[k])
            steps = taken.transition
            done = tf.logical_or(steps.terminated, steps.truncated)
            rollout = trajectories(behavior, taken, tf.ones_like(done), tf.concat([begins[None], done[:-1]], 0))
            arrays = [x[k] for x in drawn]
            right = tf.cast(is_sound(copies, steps, 1), tf.int32)
            good = tf.reduce_sum(tf.math.cumprod(right))  # steps before a wrong one
            metrics = tf.cond(  # what is not finite would spoil the weights
                good == horizon,
                lambda: agent.traced_iteration(rollout, progress[k], *arrays),
                lambda: tf.zeros([len(agent.metric_names)]),
            )
            stored = [array.write(k, x) for array, x in zip(stored, (steps.reward, done, metrics), strict=True)]
            return k + 1, now, done[-1], sound + good, stored

        _, now, _, sound, stored = tf.while_loop(
            lambda k, now, begins, sound, _: tf.logical_and(k < count, sound == k * horizon),
            iteration,
            (tf.constant(0), now, begins, tf.constant(0), stored),
            parallel_iterations=1,
        )
        return now, *(array.stack() for array in stored), sound, agent.forward.pack()

    return run
