"""Optimizers against Keras' own, and targets."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.common.maths import optimizers
from zoo.common.maths.optimizers import Optimizer, copy_weights, polyak, rectification
from zoo.common.schedules import Linear

LABEL = 'optimizers_list[0] (all)'
SHAPES = [(3, 4), (4,), (), (2, 2, 3)]


def variables(seed: int = 0) -> list[tf.Variable]:
    """Weights of several shapes, a scalar among them."""
    rng = np.random.default_rng(seed)
    return [tf.Variable(rng.standard_normal(shape), dtype=tf.float32) for shape in SHAPES]


def gradients(steps: int, seed: int = 1) -> list[list[np.ndarray]]:
    """For each step a gradient of each weight; of very different sizes."""
    rng = np.random.default_rng(seed)
    return [
        [(10.0 ** rng.integers(-4, 3) * rng.standard_normal(s)).astype(np.float32) for s in SHAPES]
        for _ in range(steps)
    ]


def assert_weights(found: list[tf.Variable], expected: list[Any], **tolerance: float) -> None:
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a.numpy(), np.asarray(b), **tolerance)


class TestAdam:
    """Our own Adam: one kernel for each weight in a plain graph, one vector for all under XLA."""

    @pytest.fixture(params=[False, True], ids=['each', 'flat'])
    def flat(self, request, monkeypatch):
        monkeypatch.setattr(optimizers, 'prefers_xla', lambda variables: request.param)
        return request.param

    @pytest.mark.full(but='each-all')
    @pytest.mark.parametrize(
        'spec',
        [
            {},
            {'name': 'adam', 'learning_rate': 0.01},
            {'learning_rate': 3e-4, 'beta_1': 0.5, 'beta_2': 0.9, 'epsilon': 1e-3},
        ],
        ids=['defaults', 'rate', 'all'],
    )
    def test_equals_keras_over_twenty_steps(self, flat, spec):
        ours, theirs = variables(), variables()
        optimizer = Optimizer(spec, ours, LABEL)
        assert optimizer.keras is None
        reference = keras.optimizers.Adam(**{key: value for key, value in spec.items() if key != 'name'})
        reference.build(theirs)
        step = tf.function(optimizer.apply, jit_compile=flat)
        for gradient in gradients(20):
            step([tf.constant(g) for g in gradient])
            reference.apply([tf.constant(g) for g in gradient])
            assert_weights(ours, theirs, rtol=1e-6, atol=1e-6)
        assert optimizer.iterations.numpy() == 20
        assert max(np.abs(a.numpy() - b.numpy()).max() for a, b in zip(ours, variables(), strict=True)) > 1e-3

    def test_first_step_by_hand(self, flat):
        weight = tf.Variable([1.0, 1.0, 1.0])
        optimizer = Optimizer({'learning_rate': 0.1, 'epsilon': 1e-12}, [weight], LABEL)
        optimizer.apply([tf.constant([4.0, -0.001, 30.0])])
        # Bias correction makes the first step one learning rate against the gradient's sign, whatever its size.
        np.testing.assert_allclose(weight.numpy(), [0.9, 1.1, 0.9], rtol=1e-6)

    def test_clip_norm_by_hand(self, flat):
        a, b = tf.Variable([0.0, 0.0]), tf.Variable(0.0)
        optimizer = Optimizer({'learning_rate': 1.0, 'clip_norm': 1.3}, [a, b], LABEL)
        optimizer.apply([tf.constant([3.0, 4.0]), tf.constant(12.0)])  # norm 13: scaled by a tenth
        state = optimizer.state(['a', 'b'])
        np.testing.assert_allclose(state['first_moment/a'], [0.03, 0.04], rtol=1e-5)  # (1 - beta_1) of the clipped one
        np.testing.assert_allclose(state['first_moment/b'], 0.12, rtol=1e-5)

    def test_a_missing_gradient_counts_as_zero(self, flat):
        ours, theirs = variables(), variables()
        optimizer, reference = (Optimizer({'learning_rate': 0.1}, group, LABEL) for group in (ours, theirs))
        for gradient in gradients(3):
            optimizer.apply([gradient[0], None, *gradient[2:]])
            reference.apply([gradient[0], np.zeros(4, np.float32), *gradient[2:]])
        assert_weights(ours, theirs, rtol=1e-6)

    def test_state_restores_it_exactly(self, flat):
        ours, theirs = variables(), variables()
        first, second = (Optimizer({'learning_rate': 0.1}, group, LABEL) for group in (ours, theirs))
        steps = gradients(6)
        for gradient in steps[:3]:
            first.apply(gradient)
        copy_weights(theirs, ours)
        names = ['w/0', 'w/1', 'w/2', 'w/3']
        saved = first.state(names)
        assert saved.keys() == {
            'iterations',
            'learning_rate',
            *(f'{kind}_moment/{name}' for kind in ('first', 'second') for name in names),
        }
        assert [saved[f'second_moment/{name}'].shape for name in names] == SHAPES
        second.restore(names, saved)
        for gradient in steps[3:]:
            first.apply(gradient)
            second.apply(gradient)
        assert_weights(ours, theirs, rtol=0, atol=0)
        assert second.iterations.numpy() == 6

    def test_constraints_hold_after_every_step(self, flat):
        own = tf.Variable([1.0, 1.0], constraint=lambda x: tf.clip_by_value(x, 0.95, 2.0))
        given, other = tf.Variable([1.0, 1.0]), tf.Variable([1.0])
        optimizer = Optimizer({'learning_rate': 0.1}, [own, given], LABEL)
        optimizer.constrain([(given, tf.abs), (given, lambda x: x + 5.0), (other, lambda x: x * 0.0)])
        step = tf.function(optimizer.apply, jit_compile=flat)
        step([tf.constant([1.0, -1.0]), tf.constant([1.0, -1.0])])
        np.testing.assert_allclose(own, [0.95, 1.1], atol=1e-5)
        np.testing.assert_allclose(given, [5.9, 6.1], atol=1e-5)
        np.testing.assert_array_equal(other, [1.0])  # not one of its own

    def test_schedule_moves_the_learning_rate_inside_a_compiled_step(self, flat):
        weight = tf.Variable([0.0])
        optimizer = Optimizer({'learning_rate': Linear(0.1, 0.0), 'epsilon': 1e-12}, [weight], LABEL)
        step = tf.function(optimizer.apply, jit_compile=flat)
        moved = []
        for progress in (0.0, 0.5, 0.75, 1.0):
            before = float(weight.numpy()[0])
            optimizer.set_progress(progress)
            step([tf.constant([1.0])])
            moved.append(before - float(weight.numpy()[0]))
        np.testing.assert_allclose(moved, [0.1, 0.05, 0.025, 0.0], rtol=1e-5, atol=1e-7)

    def test_a_constant_rate_does_not_move(self, flat):
        optimizer = Optimizer({'learning_rate': 0.1}, [tf.Variable([0.0])], LABEL)
        optimizer.set_progress(0.9)
        assert optimizer.state(['w'])['learning_rate'] == np.float32(0.1)


class TestRAdam:
    """Rectified Adam, in both kinds of graph."""

    @pytest.fixture(params=[False, True], ids=['each', 'flat'])
    def flat(self, request, monkeypatch):
        monkeypatch.setattr(optimizers, 'prefers_xla', lambda variables: request.param)
        return request.param

    def test_five_steps_by_hand(self, flat):
        """With one gradient g in all steps m̂ is g and √v̂ is |g|. For β₂ = 0.9 is ρ_∞ = 19, ρ₄ = 3.74 and ρ₅ = 4.58."""
        weight = tf.Variable([0.0, 0.0])
        spec = {'name': 'RAdam', 'learning_rate': 0.1, 'beta_2': 0.9, 'epsilon': 1e-12}
        optimizer = Optimizer(spec, [weight], LABEL)
        step = tf.function(optimizer.apply, jit_compile=flat)
        seen = []
        for _ in range(5):
            before = weight.numpy()
            step([tf.constant([2.0, -0.5])])
            seen.append(before - weight.numpy())
        np.testing.assert_allclose(seen[:4], [[0.2, -0.05]] * 4, rtol=1e-5)
        length = 19.0 - 10.0 * 0.9**5 / (1.0 - 0.9**5)
        assert length == pytest.approx(4.5806, abs=1e-4)
        ratio = np.sqrt((length - 4) * (length - 2) * 19 / (15 * 17 * length))
        assert ratio == pytest.approx(0.15611, abs=1e-4)
        np.testing.assert_allclose(seen[4], [0.1 * ratio, -0.1 * ratio], rtol=1e-4)

    def test_equals_float64_over_thirty_steps(self, flat):
        ours, expected = variables(), [v.numpy().astype(np.float64) for v in variables()]
        optimizer = Optimizer({'name': 'radam', 'learning_rate': 0.01, 'clip_norm': 10.0}, ours, LABEL)
        assert optimizer.keras is None and optimizer.flat == flat
        step = tf.function(optimizer.apply, jit_compile=flat)
        first, second = [0.0] * len(SHAPES), [0.0] * len(SHAPES)
        for t, found in enumerate(gradients(30), 1):
            step([tf.constant(g) for g in found])
            norm = np.sqrt(sum(np.square(g, dtype=np.float64).sum() for g in found))
            length = 1999 - 2 * t * 0.999**t / (1 - 0.999**t)
            for i, g in enumerate(found):
                g = g * min(1.0, 10.0 / norm)
                first[i] = 0.9 * first[i] + 0.1 * g
                second[i] = 0.999 * second[i] + 0.001 * g**2
                change = 0.01 * first[i] / (1 - 0.9**t)
                if length > 4:
                    change *= np.sqrt((length - 4) * (length - 2) * 1999 / (1995 * 1997 * length))
                    change *= np.sqrt(1 - 0.999**t) / (np.sqrt(second[i]) + 1e-7)
                expected[i] = expected[i] - change
            assert_weights(ours, expected, rtol=1e-5, atol=2e-6)
        assert optimizer.state(['a', 'b', 'c', 'd'])['iterations'] == 30

    def test_the_variance_is_known_from_the_fifth_step_on(self):
        assert [bool(rectification(tf.constant(t), 0.999)[1]) for t in range(1, 8)] == [False] * 4 + [True] * 3
        assert float(rectification(tf.constant(100_000), 0.999)[0]) == pytest.approx(1.0, abs=1e-6)

    @pytest.mark.parametrize('beta_2', [0.5, 0.6])
    def test_short_memories_never_know_it(self, beta_2, flat):
        weight = tf.Variable([0.0])
        optimizer = Optimizer({'name': 'RAdam', 'learning_rate': 0.1, 'beta_2': beta_2}, [weight], LABEL)
        for _ in range(40):
            optimizer.apply([tf.constant([2.0])])
        np.testing.assert_allclose(weight, [-8.0], rtol=1e-5)

    def test_a_saved_adam_is_no_radam(self, caplog):
        adam, radam = (Optimizer({'name': name}, variables(), LABEL) for name in ('Adam', 'RAdam'))
        names = ['a', 'b', 'c', 'd']
        adam.apply(gradients(1)[0])
        kept = radam.fitting(names, adam.state(names), {'name': 'Adam'})
        assert kept['iterations'] == 0
        assert 'another kind of optimizer (Adam of zoo) than the one given now (RAdam of zoo)' in caplog.text
        assert radam.fitting(names, adam.state(names), {'name': 'RAdam'})['iterations'] == 1


class TestKerasOptimizers:
    CASES = [
        ({'name': 'SGD', 'learning_rate': 0.1, 'momentum': 0.9, 'nesterov': True}, keras.optimizers.SGD),
        ({'name': 'rmsprop', 'learning_rate': 0.01, 'rho': 0.95, 'centered': True}, keras.optimizers.RMSprop),
        ({'name': 'AdamW', 'learning_rate': 0.01, 'weight_decay': 0.1}, keras.optimizers.AdamW),
        ({'name': 'Adam', 'learning_rate': 0.01, 'amsgrad': True}, keras.optimizers.Adam),
    ]

    @pytest.mark.full(but='object-SGD')
    @pytest.mark.parametrize(('spec', 'cls'), CASES, ids=[spec['name'] for spec, _ in CASES])
    @pytest.mark.parametrize('as_object', [False, True], ids=['spec', 'object'])
    def test_takes_the_steps_of_keras(self, spec, cls, as_object):
        arguments = {key: value for key, value in spec.items() if key != 'name'}
        ours, theirs = variables(), variables()
        optimizer = Optimizer(cls(**arguments) if as_object else spec, ours, LABEL)
        assert type(optimizer.keras) is cls
        reference = cls(**arguments)
        reference.build(theirs)
        step = tf.function(optimizer.apply)
        for gradient in gradients(5):
            step([tf.constant(g) for g in gradient])
            reference.apply([tf.constant(g) for g in gradient])
        assert_weights(ours, theirs, rtol=1e-5, atol=1e-6)
        assert not np.allclose(ours[0], variables()[0])

    def test_schedule_and_state(self):
        optimizer = Optimizer({'name': 'SGD', 'learning_rate': Linear(0.4)}, [tf.Variable([0.0])], LABEL)
        optimizer.set_progress(0.75)
        assert any(np.array_equal(array, np.float32(0.1)) for array in optimizer.state(['w']).values())
        optimizer.apply([tf.constant([1.0])])
        np.testing.assert_allclose(optimizer.variables[0].numpy(), [-0.1], rtol=1e-6)

    def test_clip_norm_of_the_algorithm_and_of_the_spec(self):
        def moved(spec: dict[str, Any], clip_norm: float | None) -> list[float]:
            weight = tf.Variable([0.0, 0.0])
            Optimizer({'name': 'SGD', 'learning_rate': 1.0, **spec}, [weight], LABEL, clip_norm).apply(
                [tf.constant([3.0, 4.0])]
            )
            return weight.numpy().tolist()

        assert moved({}, None) == [-3.0, -4.0]
        np.testing.assert_allclose(moved({}, 0.5), [-0.3, -0.4], rtol=1e-6)
        np.testing.assert_allclose(moved({'clip_norm': 2.5}, 0.5), [-1.5, -2.0], rtol=1e-6)
        assert moved({'clip_norm': None}, 0.5) == [-3.0, -4.0]
        assert moved({'clip_norm': 100.0}, None) == [-3.0, -4.0]

    @pytest.mark.parametrize('spec', [{'name': 'SGD', 'learning_rate': 0.1}, keras.optimizers.SGD(0.1)])
    def test_constraints_hold_after_every_step(self, spec):
        own, given = tf.Variable([1.0, 1.0], constraint=lambda x: x + 1.0), tf.Variable([1.0, 1.0])
        optimizer = Optimizer(spec, [own, given], LABEL)
        optimizer.constrain([(given, lambda x: x + 5.0)])
        optimizer.apply([tf.constant([1.0, -1.0]), tf.constant([1.0, -1.0])])
        np.testing.assert_allclose(own, [1.9, 2.1], atol=1e-5)  # once
        np.testing.assert_allclose(given, [5.9, 6.1], atol=1e-5)

    def test_belongs_to_one_agent(self):
        shared = keras.optimizers.SGD(0.1)
        Optimizer(shared, variables(), LABEL)
        with pytest.raises(ValueError, match=r'optimizers_list\[0\] \(all\) already belongs to another agent'):
            Optimizer(shared, variables(), LABEL)


@pytest.mark.parametrize(
    ('spec', 'message'),
    [
        (3e-4, r"is a float: give dict\(name='Adam', learning_rate=3e-4\) or a Keras optimizer\.$"),
        ('Adam', r'is a str: give dict'),
        (keras.optimizers.Adam, r'is a type: give dict'),
        ({'name': 'Adm'}, r": unknown optimizer 'Adm': did you mean 'Adam'\? Known: .*SGD\.$"),
        ({'name': 'Optimizer'}, r": unknown optimizer 'Optimizer'"),
        ({'learnin_rate': 0.1}, r": unknown key of Adam 'learnin_rate': did you mean 'learning_rate'\?"),
        ({'name': 'sgd', 'momentun': 0.1}, r": unknown key of SGD 'momentun': did you mean 'momentum'\?"),
        ({'learning_rate': 'fast'}, r": learning_rate is 'fast': give a number of at least 0 or a Linear .*\.$"),
        ({'learning_rate': -1e-3}, r': learning_rate is -0\.001: give a number of at least 0 or a Linear .*\.$'),
        ({'learning_rate': True}, r': learning_rate is True: give '),
        ({'learning_rate': float('nan')}, r': learning_rate is nan: give '),
        ({'learning_rate': Linear(-1.0)}, r': learning_rate is Linear.*: give '),
        ({'name': 'SGD', 'learning_rate': -1.0}, r': learning_rate is -1\.0: give '),
        (
            {'learning_rate': keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5)},
            r': .*give the Keras optimizer itself .*\.$',
        ),
        ({'beta_1': 2.0}, r': beta_1 is 2\.0: give a number from 0 to below 1\.$'),
        ({'beta_1': 1.0}, r': beta_1 is 1\.0: give a number from 0 to below 1\.$'),
        ({'beta_2': 'a'}, r": beta_2 is 'a': give a number from 0 to below 1\.$"),
        ({'epsilon': -1}, r': epsilon is -1: give a number above 0\.$'),
        ({'name': 'AdamW', 'weight_decay': -3}, r': weight_decay is -3: give a number of at least 0 or None\.$'),
        ({'clip_norm': -1}, r': clip_norm is -1: give a number above 0 or None\.$'),
        ({'clip_norm': 0}, r': clip_norm is 0: give '),
        ({'name': 'SGD', 'clip_norm': 'x'}, r": clip_norm is 'x': give "),
        ({'name': 'SGD', 'momentum': 7.0}, r': momentum is 7\.0: give a number from 0 to 1\.$'),
        ({'name': 'RMSprop', 'rho': -0.1}, r': rho is -0\.1: give a number from 0 to 1\.$'),
        ({'name': 'RAdam', 'weight_decay': 0.1}, r": unknown key of RAdam 'weight_decay'"),
        ({'name': 'RAdm'}, r": unknown optimizer 'RAdm': did you mean 'RAdam'"),
        ({'name': 'SGD', 'use_ema': True}, r' has use_ema=True without ema_overwrite_frequency, which'),
        (keras.optimizers.Adam(use_ema=True), r' has use_ema=True without ema_overwrite_frequency, which'),
        ({'name': 'Muon'}, r": Keras' Muon moves weights of Keras alone, not TensorFlow's variables: give "),
        ({'name': 'Adafactor'}, r": Keras' Adafactor moves weights of Keras alone, not TensorFlow's variables: give "),
        (keras.optimizers.Adafactor(), r": Keras' Adafactor moves weights of Keras alone, not TensorFlow's variables"),
        ({'name': 'SGD', 'loss_scale_factor': 1e3}, r' has loss_scale_factor=1000, by which .*: leave it out'),
        (keras.optimizers.Adam(loss_scale_factor=8), r' has loss_scale_factor=8, by which gradients would be divided'),
        ({'name': 'SGD', 'ema_momentum': 7.0, 'use_ema': True}, r': Keras refuses this optimizer: .*ema_momentum.*\.$'),
    ],
)
def test_a_wrong_spec_is_one_sentence_that_names_the_entry(spec, message):
    with pytest.raises(
        ValueError, match=r'^optimizers_list\[0\] \(all\)' + f'.*{message}' if message[0] == ':' else message
    ) as info:
        Optimizer(spec, variables(), LABEL)
    assert str(info.value).startswith(LABEL)
    assert '\n' not in str(info.value) and not str(info.value).endswith('..')


def test_averages_of_weights_that_are_written_back():
    """Worked by hand: 1 a step, and at every second one the weight becomes the mean, 1, 1.5, 2, 2.75, that follows."""
    weight = tf.Variable([0.0])
    spec = {'name': 'SGD', 'learning_rate': 1.0, 'use_ema': True, 'ema_momentum': 0.5, 'ema_overwrite_frequency': 2}
    optimizer = Optimizer(spec, [weight], LABEL)
    seen = []
    for _ in range(4):
        optimizer.apply([tf.constant([-1.0])])
        seen.append(float(weight[0]))
    assert seen == [1.0, 1.5, 2.5, 2.75]


def test_whole_numbers_and_those_of_numpy_are_numbers():
    given = {'learning_rate': np.float32(0.5), 'beta_1': 0, 'clip_norm': np.int64(2)}
    weight = tf.Variable([1.0])
    Optimizer(given, [weight], LABEL).apply([tf.constant([7.0])])
    np.testing.assert_allclose(weight, [0.5], rtol=1e-5)


def test_minimize_is_one_step_down_and_returns_the_loss():
    weight, other = tf.Variable([2.0, -1.0]), tf.Variable(5.0)
    optimizer = Optimizer({'name': 'SGD', 'learning_rate': 0.25}, [weight], LABEL)
    loss = tf.function(lambda: optimizer.minimize(lambda: tf.reduce_sum(tf.square(weight)) * other))()
    assert float(loss) == 25.0
    np.testing.assert_allclose(weight.numpy(), [2.0 - 0.25 * 20.0, -1.0 + 0.25 * 10.0])
    assert other.numpy() == 5.0


def test_polyak():
    targets, sources = [tf.Variable([0.0, 4.0]), tf.Variable(1.0)], [tf.Variable([1.0, 8.0]), tf.Variable(-1.0)]
    polyak(targets, sources, 0.25)
    assert_weights(targets, [[0.25, 5.0], 0.5])
    assert_weights(sources, [[1.0, 8.0], -1.0])
    polyak(targets, sources, 1.0)
    assert_weights(targets, [[1.0, 8.0], -1.0])
    polyak(targets, [tf.Variable([9.0, 9.0]), tf.Variable(9.0)], 0.0)
    assert_weights(targets, [[1.0, 8.0], -1.0])


def test_what_is_no_real_number_is_copied():
    targets = [tf.Variable(1), tf.Variable(False), tf.Variable([0.0])]
    polyak(targets, [tf.Variable(7), tf.Variable(True), tf.Variable([1.0])], 0.25)
    assert [target.numpy() for target in targets] == [7, True, [0.25]]


def test_copy_weights():
    targets, sources = variables(0), variables(7)
    copy_weights(targets, sources)
    assert_weights(targets, variables(7), rtol=0)
    sources[0].assign_add(tf.ones(SHAPES[0]))
    assert_weights(targets, variables(7), rtol=0)  # a copy, not the same


@pytest.mark.parametrize('move', [lambda a, b: polyak(a, b, 0.5), copy_weights])
def test_targets_of_another_length_are_an_error(move):
    with pytest.raises(ValueError, match='zip'):
        move(variables(), variables()[:-1])
