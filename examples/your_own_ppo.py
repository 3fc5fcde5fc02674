"""A PPO of your own: the algorithm in twenty lines, on rollouts that you hold.

    python examples/your_own_ppo.py [steps] [seed]

The agent gives networks, optimizer and acting. The paper's algorithm (Schulman et al. 2017, arXiv 1707.06347,
algorithm 1 with the clipped objective) stands between the two lines of dashes, for you to change. In less than a
minute it balances CartPole's pole for whole episodes. docs/howto/own_loop.md lists everything that a rollout can do.
"""

from __future__ import annotations

import sys

import zoo  # first: TensorFlow then starts without its notes

# isort: split
import tensorflow as tf

steps, seed = (int(x) for x in [*sys.argv[1:], *['100000', '0'][len(sys.argv) - 1 :]])
env = zoo.build_env('CartPole-v1', 'classic_control', nenv=8, seed=seed)
alg_params, _ = zoo.call_default_params(env, 'classic_control', 'PPO', seed=seed)
agent = zoo.algorithms.PPO(**alg_params)
agent.reseed(seed, 'example')


# ----------------------------------------------------------------------------------------------------------------------
@tf.function
def update(batch: zoo.Rollout, clip: tf.Tensor) -> None:
    with tf.GradientTape() as tape:
        now = agent.evaluate(batch, training=True)
        ratio = tf.exp(now.log_prob - batch.log_prob)
        advantage = (batch.advantage - tf.reduce_mean(batch.advantage)) / tf.math.reduce_std(batch.advantage)
        gain = tf.minimum(ratio * advantage, tf.clip_by_value(ratio, 1 - clip, 1 + clip) * advantage)
        loss = tf.reduce_mean(0.5 * tf.square(now.value - batch.target) - gain)
    agent.apply_gradients(tape.gradient(loss, agent.trainable_variables))


for begin in range(0, steps, 256):
    agent.progress = begin / steps  # the learning rate follows it
    rollout = agent.rollout(env, steps=256)
    advantage = rollout.advantages(gamma=0.98, lam=0.8)
    rollout = rollout.with_fields(advantage=advantage, target=advantage + agent.evaluate(rollout).value)
    for _ in range(20):
        for batch in rollout.minibatches(1):
            update(batch, tf.constant(0.2 * (1 - agent.progress)))
# ----------------------------------------------------------------------------------------------------------------------

tested = agent.rollout(zoo.build_env('CartPole-v1', 'classic_control'), episodes=20, deterministic=True, seed=seed + 1)
print(f'Mean return of 20 episodes after {steps:,} steps: {tested.mean_return:.0f} of 500')
