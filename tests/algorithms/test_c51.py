"""C51: the projection, the loss and its gradient by hand."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Discrete

import zoo
from zoo.algorithms import C51
from zoo.common.records import Batch, Transition

pytestmark = pytest.mark.usefixtures('plain_graphs')


def make() -> C51:
    """Atoms 0, 1, 2 for two actions."""
    return C51(Box(-1, 1, (1,)), Discrete(2), net_list=[{'hidden': []}], atoms=3, v_min=0.0, v_max=2.0)


def batch(reward: float, discount: float) -> Batch:
    x = np.zeros((1, 1), np.float32)
    flags = np.zeros(1, bool)
    data = Batch.of(Transition(x, np.zeros(1, np.int32), np.float32([reward]), x, flags, flags), 1.0)
    return data._replace(discount=np.float32([discount]))


@pytest.mark.parametrize(
    ('reward', 'discount', 'expected'),
    [
        (0.0, 1.0, [0.2, 0.3, 0.5]),  # the same again
        (0.5, 1.0, [0.1, 0.25, 0.65]),  # 0.5, 1.5, 2.5: halves to both sides, the last at the end
        (0.0, 0.5, [0.35, 0.65, 0.0]),  # 0, 0.5, 1
        (1.0, 0.0, [0.0, 1.0, 0.0]),  # terminated: the reward alone
        (-7.0, 1.0, [1.0, 0.0, 0.0]),
        (1.25, 0.0, [0.0, 0.75, 0.25]),
    ],
)
def test_backup_by_hand(reward, discount, expected):
    following = tf.math.log([[0.2, 0.3, 0.5]])
    np.testing.assert_allclose(make().backup(batch(reward, discount), following)[0], expected, atol=1e-6)


def test_loss_and_gradient_by_hand():
    # p = (1/4, 1/4, 1/2), m = (1/2, 1/2, 0): KL = log 2, and its gradient by the logits is p - m.
    logits = tf.math.log([[0.25, 0.25, 0.5]])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss, priority = make().losses(logits, tf.constant([[0.5, 0.5, 0.0]]))
    np.testing.assert_allclose([loss[0], priority[0]], np.log(2.0), rtol=1e-6)
    np.testing.assert_allclose(tape.gradient(loss, logits), [[-0.25, -0.25, 0.5]], atol=1e-6)
    loss, priority = make().losses(logits, tf.nn.softmax(logits))
    np.testing.assert_allclose(loss, 0.0, atol=1e-6)
    assert priority[0] >= 0.0


def test_rewards_beyond_the_atoms_are_told_of_once(caplog):
    agent = make()
    within, beyond = (tf.nest.map_structure(lambda x: x[None], batch(reward, 0.0)) for reward in (2.0, 2.5))
    agent.update_on(within)
    assert not caplog.records
    for _ in range(2):
        agent.update_on(beyond)
    assert [x.getMessage().partition(':')[0] for x in caplog.records] == [
        'Rewards go from 2.5 to 2.5, but the atoms of returns from v_min=0 to v_max=2'
    ]


def test_rewards_beyond_the_atoms_of_a_compiled_environment_are_told_of(caplog):
    env = zoo.build_env('CartPole-v1', 'classic_control', vectorized='compiled', nenv=2)
    agent = C51(
        env.single_observation_space, env.single_action_space, net_list=[{'hidden': [4]}], atoms=3, v_min=0.0, v_max=0.5
    )
    agent.learn(env, train_steps=40, explore_steps=8, batch_size=4, buffer_size=100, run_dir=False, verbose=0)
    assert agent.updates and 'Rewards go from 1 to 1, but the atoms' in caplog.text
