"""A REINFORCE of your own with a policy that remembers, on rollouts that you hold.

    python examples/your_own_reinforce.py [steps] [seed]

CartPole without its velocities: where the pole is says too little, and what it did a moment ago has to be remembered.
The policy is an LSTM. What is the book's (Sutton and Barto, *Reinforcement Learning: An Introduction*, section 13.4)
stands between the two lines of dashes, for you to change. The same lines learn with a policy that does not remember:
leave ``recurrent`` out, and see how much it was worth.
"""

from __future__ import annotations

import sys

import tensorflow as tf

import zoo

steps, seed = (int(x) for x in [*sys.argv[1:], *['200000', '0'][len(sys.argv) - 1 :]])
env = zoo.build_env('CartPole-v1', 'classic_control', nenv=16, hide_velocity=True, seed=seed)
actor = dict(hidden=[64], activation='tanh', recurrent='lstm', recurrent_units=32, seed=seed)
critic = 'actor'  # on the same memory
optimizer = dict(name='Adam', learning_rate=0.005, clip_norm=1.0)
spaces = env.single_observation_space, env.single_action_space
agent = zoo.algorithms.VPG(*spaces, net_list=[actor, critic], optimizers_list=[optimizer])
agent.reseed(seed, 'example')


# ----------------------------------------------------------------------------------------------------------------------
@tf.function
def update(rollout: zoo.Rollout) -> None:
    with tf.GradientTape() as tape:
        now = agent.evaluate(rollout, training=True)
        error = rollout.returns_to_go - now.value
        gain = now.log_prob * tf.stop_gradient(error) / 10.0 - 0.005 * tf.square(error)
        loss = -tf.reduce_mean(tf.boolean_mask(gain, rollout.valid))
    agent.apply_gradients(tape.gradient(loss, agent.trainable_variables))


for iteration in range(max(1, steps // 2048)):
    rollout = agent.rollout(env, steps=2048)
    update(rollout.with_fields(returns_to_go=rollout.returns(gamma=0.98)))
    if iteration % 10 == 9:
        print(f'{(iteration + 1) * 2048:,} steps: mean return {rollout.mean_return:.0f}')
# ----------------------------------------------------------------------------------------------------------------------

test_env = zoo.build_env('CartPole-v1', 'classic_control', hide_velocity=True)
tested = agent.rollout(test_env, episodes=20, deterministic=True, seed=seed + 1)
print(f'Mean return of 20 episodes after {steps:,} steps: {tested.mean_return:.0f} of 500')
