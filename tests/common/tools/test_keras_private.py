"""The private names of Keras that zoo uses are in the installed version; what stands in for them gives the same."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from zoo.common.tools import keras_private


class Nested(keras.layers.Layer):
    """A layer with others in attributes, lists and dicts."""

    def __init__(self) -> None:
        super().__init__()
        self.flat = keras.layers.Flatten()
        self.first = keras.layers.Dense(2)
        self.others = [keras.layers.Dropout(0.5), keras.Sequential([keras.layers.BatchNormalization()])]
        self.named = {'last': keras.layers.Dense(1, activity_regularizer='l2')}
        self.count = self.add_weight(shape=(), trainable=False)

    def call(self, x: Any, training: bool = False) -> Any:
        x = self.others[0](self.first(self.flat(x)), training=training)
        return self.named['last'](self.others[1](x, training=training))


def nested() -> Nested:
    layer = Nested()
    layer(np.ones((3, 4), np.float32))
    return layer


def functional() -> keras.Model:
    x = keras.Input((3,))
    shared = keras.layers.Dense(3)
    return keras.Model(x, keras.layers.Add()([shared(x), shared(shared(x))]))


#: Each private name, and an object that has to have it.
NAMES = {
    '_flatten_layers': nested,
    '_clear_losses': nested,
    '_call_has_training_arg': nested,
    '_non_trainable_variables': nested,
    '_inbound_nodes': lambda: functional().layers[1],
    '_keras_history': lambda: functional().inputs[0],
    '_unpickle_model': lambda: keras.layers.Dense,
}


@pytest.mark.parametrize('name', NAMES)
def test_this_version_of_keras_has_it(name):
    assert hasattr(NAMES[name](), name), f'Keras {keras.__version__} has no {name}'


@pytest.mark.parametrize(
    ('arguments', 'name'),
    [({'var_list': True}, '_exclude_from_weight_decay'), ({'var_names': ['b']}, '_exclude_from_weight_decay_pattern')],
)
def test_this_version_of_keras_keeps_what_weight_decay_leaves_out(arguments, name):
    variable, optimizer = keras.Variable(np.ones(2)), keras.optimizers.AdamW(0.1)
    assert not keras_private.excludes_variables(optimizer) and keras_private.excluded_names(optimizer) is None
    optimizer.exclude_from_weight_decay(**{key: [variable] if x is True else x for key, x in arguments.items()})
    assert hasattr(optimizer, name), f'Keras {keras.__version__} has no {name}'
    found = keras_private.excludes_variables(optimizer), keras_private.excluded_names(optimizer)
    assert bool(found[0]) == ('var_list' in arguments) and (found[1] is not None) == ('var_names' in arguments)


def without(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Keras as a version without these names: `hasattr` says no."""
    import builtins

    monkeypatch.setattr(
        keras_private, 'hasattr', lambda x, name: name not in names and builtins.hasattr(x, name), raising=False
    )


def inner(model: keras.Model) -> list[keras.Layer]:
    """The layers that do something; a Sequential has no public way to its InputLayer."""
    return [layer for layer in keras_private.flattened(model) if not isinstance(layer, keras.layers.InputLayer)]


def test_the_public_ways_give_the_same(monkeypatch):
    layer = nested()
    model = keras.Sequential([keras.Input((4,)), layer])
    layers = inner(model)
    untrained = {id(x): [id(v) for v in keras_private.own_untrained(x)] for x in layers}
    assert {type(x).__name__ for x in layers} >= {'Sequential', 'Nested', 'Dense', 'Dropout', 'BatchNormalization'}
    assert sum(map(len, untrained.values())) == 3  # the count, and two moving statistics
    takes = {id(x): keras_private.takes_training(x) for x in layers}
    assert set(takes.values()) == {True, False}

    without(monkeypatch, '_flatten_layers', '_non_trainable_variables', '_call_has_training_arg')
    assert {id(x) for x in inner(model)} == {id(x) for x in layers}
    assert {id(x): [id(v) for v in keras_private.own_untrained(x)] for x in layers} == untrained
    assert {id(x): keras_private.takes_training(x) for x in layers} == takes


@pytest.mark.parametrize(
    ('kind', 'expected'),
    [
        (keras.layers.Dense, True),
        (keras.Sequential, True),
        (keras.optimizers.Adam, True),
        (keras.metrics.Mean, True),
        (keras.losses.MeanSquaredError, True),
        (dict, False),
    ],
)
def test_what_keras_pickles_by_its_configuration(monkeypatch, kind, expected):
    assert keras_private.is_saveable(kind) is expected
    without(monkeypatch, '_unpickle_model')
    assert keras_private.is_saveable(kind) is expected


def test_calls_and_makers_of_a_functional_model():
    model = functional()
    shared, add = model.layers[1:]
    assert keras_private.maker_of(model.inputs[0]) is model.layers[0]
    assert len(keras_private.calls_of(shared)) == 3
    (node,) = keras_private.calls_of(add)
    assert [parent.operation for parent in node.parent_nodes] == [shared, shared]


def test_losses_are_forgotten():
    layer = keras.layers.Dense(2, activity_regularizer='l2')
    layer(np.ones((3, 4), np.float32))
    assert layer.losses
    keras_private.clear_losses(layer)
    assert not layer.losses


def test_what_has_no_public_way_is_missed_in_a_sentence():
    with pytest.raises(RuntimeError, match=r'^Keras 3.* has no int\._inbound_nodes, which zoo needs: install Keras'):
        keras_private.calls_of(3)
