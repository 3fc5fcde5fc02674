"""Three ways to swap the networks of an agent, through ``net_list``: a spec, a torso, a complete network.

    python examples/swap_networks.py

PPO has two networks, actor and critic. Each has an entry in ``net_list`` that you can replace. The three agents train
for 40,000 steps each, less than a minute in all.
"""

from __future__ import annotations

import logging

from zoo.algorithms import PPO  # zoo first: Keras and TensorFlow then start without their notes
from zoo.common.env_wrappers import build_env
from zoo.common.utils import call_default_params

# isort: split
import keras
import tensorflow as tf

logging.basicConfig(format='%(message)s')
logging.getLogger('zoo').setLevel(logging.INFO)  # shows the log line about an attached head


def spec() -> list:
    """Specs: zoo builds layers and head. A missing key keeps its default."""
    return [dict(hidden=[32, 32], activation='relu'), dict(hidden=[128], activation='tanh')]


def torso() -> list:
    """A torso: zoo attaches a head, because 64 numbers are neither two logits nor one value."""
    layers = keras.layers
    return [
        keras.Sequential([layers.Dense(64), layers.LayerNormalization(), layers.Activation('silu')]),
        dict(hidden=[64, 64]),
    ]


class Critic(tf.Module):
    """A complete network: one value for each observation, computed in your own way."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [4, 64, 64, 1]
        glorot = keras.initializers.GlorotUniform()
        self.kernels = [tf.Variable(glorot(pair)) for pair in zip(sizes[:-1], sizes[1:], strict=True)]
        self.biases = [tf.Variable(tf.zeros([size])) for size in sizes[1:]]

    def __call__(self, obs: tf.Tensor) -> tf.Tensor:
        x = tf.tanh(obs @ self.kernels[0] + self.biases[0])
        x = x + tf.tanh(x @ self.kernels[1] + self.biases[1])
        return x @ self.kernels[2] + self.biases[2]


def complete() -> list:
    """Complete networks: they return two logits and one value, so zoo uses them as they are."""
    obs = keras.Input((4,))
    x = keras.layers.Dense(64, activation='tanh')(obs)
    x = keras.layers.Concatenate()([obs, x])
    return [keras.Model(obs, keras.layers.Dense(2)(x)), Critic()]


env = build_env('CartPole-v1', 'classic_control', nenv=8)
for make in (spec, torso, complete):
    alg_params, learn_params = call_default_params(env, 'classic_control', 'PPO')
    alg_params['net_list'] = make()
    learn_params['train_steps'] = 40_000
    agent = PPO(**alg_params)
    agent.learn(env, 'train', run_dir=False, **learn_params)
    tested = agent.learn(env, 'test', test_episodes=20)
    print(f'{make.__name__}: mean return {sum(tested.returns) / 20:.0f} of 500')
