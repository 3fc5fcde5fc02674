"""The loop off policy in a compiled environment: steps, replay buffer and updates, hundreds of them in one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.common.acting.behavior import Behavior
from zoo.common.envs.compiled.copies import Copies
from zoo.common.maths.distributions import split_seed
from zoo.common.records import Transition
from zoo.common.replay.tensor_ring import TensorRing
from zoo.common.rollouts.compiled_rollouts import PlayState, is_sound, take_step
from zoo.common.training.collection import Collection
from zoo.common.training.compiled_collection import CALL_STEPS, CompiledCollection
from zoo.common.training.training import Training


def learn_compiled(
    training: Training,
    experience: Collection,
    ring: TensorRing,
    *,
    batch_size: int,
    needed: int,
    explore_steps: int,
    update_every: int,
    updates: int,
) -> bool:
    """Take the steps of a training and make the updates that are due; return whether updates could be due.

    The order is the same as in Python: after each step of all copies the updates that this step made due, each with the
    learning rate and the exploration of that step.

    Args:
        needed: how many transitions the buffer must hold before the first update.
        explore_steps, update_every, updates: as for :data:`zoo.common.training.loops.off_policy`.
    """
    assert isinstance(experience, CompiledCollection)  # as the loop has found
    agent, copies = training.agent, experience.env.steps.copies
    static = copies, agent.behavior, ring, batch_size, update_every, updates
    call = experience.compiled(static, _call_of(agent, *static))
    seed = experience.draw_call_seed()  # a call gives the next one's, so that it does not matter where calls end
    while not training.done:
        agent.progress = training.progress
        count = min(CALL_STEPS, -(-training.steps_to_next // copies.num_envs))
        explored = explore_steps if agent.data_steps else agent.steps  # a policy from a dataset explores by itself
        numbers = [count, ring.written, training.steps, explored, agent.updates]
        numbers += [training.train_steps, needed, explore_steps]
        now, seed, reward, done, made, bad, result = call(experience.now, np.array(numbers, np.int32), seed)
        experience.went_on(now)
        ring.written += count
        if int(bad) < count:
            experience.refuse_not_finite(int(bad))
        rewards = np.array(reward)[:count]
        agent.see_rewards(rewards)
        experience.report(training, rewards, np.array(done)[:count])
        made = int(made)
        agent.updates += made
        metrics = agent.take(result.numpy())
        training.updated(metrics if made else None)
    return ring.added >= max(batch_size, needed)


def _call_of(
    agent: Any, copies: Copies, behavior: Behavior, ring: TensorRing, batch_size: int, update_every: int, updates: int
) -> Callable[..., Any]:
    """Return the function that is compiled."""
    num_envs, sampling = copies.num_envs, agent.sampling
    metrics_like = tf.zeros([len(agent.metric_names)])

    def run(now: PlayState, numbers: tf.Tensor, seed: tf.Tensor) -> Any:
        count, written, steps, explored, updated, train_steps, needed, explore_steps = tf.unstack(numbers)
        rewards = tf.TensorArray(tf.float32, CALL_STEPS, element_shape=[num_envs])
        dones = tf.TensorArray(tf.bool, CALL_STEPS, element_shape=[num_envs])

        def one_step(t: tf.Tensor, now: PlayState, tensors: Transition, seed: tf.Tensor, *rest: Any) -> Any:
            made, bad, metrics, rewards, dones = rest
            before = steps + t * num_envs
            progress = tf.minimum(1.0, tf.cast(before, tf.float32) / tf.cast(train_steps, tf.float32))
            agent.trace_progress(progress)
            of_step, of_draws, following = split_seed(seed, 3)
            random = explored + t * num_envs < explore_steps
            now, (transition, _, _) = take_step(copies, behavior, now, of_step, progress, random)
            tensors = ring.put(tensors, written + t, transition)
            held = (written + t + 1) * num_envs
            ready = tf.logical_and(held >= batch_size, held >= needed)
            due = updates * ((before + num_envs) // update_every - before // update_every)
            due = tf.where(ready, due, 0)

            def one_update(i: tf.Tensor, seed: tf.Tensor, metrics: tf.Tensor) -> Any:
                own, following = split_seed(seed, 2)
                batch = ring.draw(tensors, written + t + 1, own, batch_size, sampling.gamma, sampling.n_step)
                return i + 1, following, agent.traced_update(batch, updated + made + i)

            _, _, metrics = tf.while_loop(
                lambda i, *_: i < due, one_update, (tf.constant(0), of_draws, metrics), parallel_iterations=1
            )
            bad = tf.where(tf.logical_or(bad <= t, is_sound(copies, transition, 0)), bad, t)
            done = tf.logical_or(transition.terminated, transition.truncated)
            rewards, dones = rewards.write(t, transition.reward), dones.write(t, done)
            return t + 1, now, tensors, following, made + due, bad, metrics, rewards, dones

        start = (tf.constant(0), now, ring.tensors(), seed, tf.constant(0), count, metrics_like, rewards, dones)
        found = tf.while_loop(lambda t, *_: t < count, one_step, start, parallel_iterations=1)
        _, now, tensors, following, made, bad, metrics, rewards, dones = found
        ring.keep(tensors)
        result = tf.concat([metrics, agent.forward.pack()], 0)
        return now, following, rewards.stack(), dones.stack(), made, bad, result

    return run
