"""What is refused of environments of pure functions, each in a sentence."""

from __future__ import annotations

import numpy as np
import pure
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Discrete

import zoo
from zoo.common.tools.errors import InvalidType, InvalidValue

FALSE = tf.constant(False)


def changed(**parts: object) -> pure.Line:
    """Line with other attributes."""
    return type('Mine', (pure.Line,), parts)()


def ends(state: object) -> tuple[object, ...]:
    return state, tf.zeros(2), 0.0, FALSE, FALSE


WRONG = {
    'draws': (
        {'reset': lambda self, seed: (tf.constant(np.random.rand(2), tf.float32),) * 2},
        r'reset\(\) of Mine is no pure function',
    ),
    'counts': (
        {'reset': lambda self, seed: (setattr(self, 'n', getattr(self, 'n', 0) + 1), (tf.zeros(2), tf.zeros(2)))[1]},
        "changed its attribute 'n'",
    ),
    'no pair': ({'reset': lambda self, seed: tf.zeros(2)}, 'not the pair'),
    'other shape': ({'reset': lambda self, seed: (tf.zeros(2), tf.zeros(3))}, r'has shape \(3,\), but its space'),
    'other state': (
        {'step': lambda self, state, action, seed: ends(tf.zeros(3))},
        r'from float32 \(2,\) to float32 \(3,\)',
    ),
    'other dtype': (
        {'step': lambda self, state, action, seed: ends(tf.zeros(2, tf.float64))},
        r'from float32 \(2,\) to float64 \(2,\)',
    ),
    'other structure': (
        {'step': lambda self, state, action, seed: ends((state, state))},
        'another structure than reset',
    ),
    'no bool': (
        {'step': lambda self, state, action, seed: (state, state, 0.0, 0.0, FALSE)},
        'terminated of dtype float32: compare',
    ),
    'four': ({'step': lambda self, state, action, seed: (state, state, 0.0, FALSE)}, 'returned 4 values'),
    'two rewards': (
        {'step': lambda self, state, action, seed: (state, state, [0.0, 1.0], FALSE, FALSE)},
        r'reward of shape \(2,\)',
    ),
    'Python': (
        {'step': lambda self, state, action, seed: ends(state) if state[0] > 0 else ends(state)},
        r'step\(\) of Mine needs the value of a tensor in Python in line \d+, as if, and, or',
    ),
    'NumPy': (
        {'step': lambda self, state, action, seed: ends(tf.constant(state.numpy()))},
        'needs the value of a tensor in Python|has to be a pure function of TensorFlow tensors',
    ),
    'integers': ({'observation_space': Box(0, 9, (2,), np.int32)}, 'has dtype float32, but its space declares int32'),
    'wide integers': (
        {
            'observation_space': Box(0, 255, (2,), np.uint8),
            'reset': lambda self, seed: (tf.zeros(2), tf.zeros(2, tf.uint8)),
            'step': lambda self, state, action, seed: (state, tf.constant([1, 260]), 0.0, FALSE, FALSE),
        },
        'has dtype int32, but its space declares uint8: cast it',
    ),
    'rolled': (
        {'step': lambda self, state, action, seed: ends(tf.roll(state, 1, -1))},
        'for the same copy among others: TensorFlow maps one of its operations wrongly',
    ),
    'padded': (
        {'step': lambda self, state, action, seed: ends(tf.pad(state[:1], [[0, 1]], constant_values=7.0))},
        'for the same copy among others: TensorFlow maps one of its operations wrongly',
    ),
    'no space': ({'observation_space': 3}, 'give a space of Gymnasium'),
    'backend': ({'backend': 'torch'}, "say 'tensorflow' or 'jax'"),
}


@pytest.mark.parametrize('case', WRONG)
def test_is_refused(case):
    parts, words = WRONG[case]
    with pytest.raises((InvalidType, InvalidValue), match=words):
        zoo.build_env(changed(**parts), 'compiled', nenv=2)


def test_a_changed_object_is_compiled_anew():
    functions = pure.Counter(5)
    first = zoo.build_env(functions, 'compiled')
    assert zoo.build_env(functions, 'compiled').steps is first.steps
    functions.length = 1
    env = zoo.build_env(functions, 'compiled')
    env.reset(seed=0)
    assert env.step(0)[2] and env.steps is not first.steps


class Table(pure.Line):
    """Looks something up by its action."""

    action_space = Discrete(3)

    def step(self, state, action, seed):
        moved = state + tf.constant([-0.1, 0.0, 0.1])[action]
        return moved, moved, moved[0], tf.constant(False), tf.constant(False)


def test_a_table_that_is_indexed_by_a_tensor_would_be_compiled_for_each_value():
    told = r'indexes a tensor by a tensor in line \d+, as in table\[action\], .* write tf.gather\(table, action\)'
    with pytest.raises(InvalidValue, match=told):
        zoo.build_env(Table(), 'compiled', nenv=4)


def test_something_is_missing():
    with pytest.raises(InvalidType, match='no environment of pure functions'):
        zoo.build_env(object(), 'compiled')


def test_check_env(capsys):
    assert zoo.check_env(pure.Line()) == []
    assert zoo.check_env(pure.Choices()) == []
    parts, _ = WRONG['draws']
    (problem,) = zoo.check_env(changed(**parts))
    assert 'no pure function' in problem
    outside = changed(observation_space=Box(-0.1, 0.1, (2,), np.float32))
    assert any('outside' in problem or 'bounds' in problem for problem in zoo.check_env(outside))


def test_a_state_of_several_parts():
    class Nested(pure.Line):
        def reset(self, seed):
            state, obs = super().reset(seed)
            return {'place': state, 'count': (tf.constant(0), [tf.constant(1.0)])}, obs

        def step(self, state, action, seed):
            count, others = state['count']
            place, *rest = super().step(state['place'], action, seed)
            return {'place': place, 'count': (count + 1, others)}, *rest

    one, other = (zoo.build_env(functions(), 'compiled', nenv=3) for functions in (Nested, pure.Line))
    for env in (one, other):
        env.reset(seed=2)
    for _ in range(30):
        action = np.full((3, 1), 0.5, np.float32)
        np.testing.assert_array_equal(one.step(action)[0], other.step(action)[0])
