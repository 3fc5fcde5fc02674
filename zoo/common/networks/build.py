"""The policy adaptor: from an entry of ``net_list`` to the network that an algorithm needs.

An algorithm states what its network must give as a :class:`Head`. :func:`build_network` makes the network from

* a **spec**, ``dict(hidden=[256, 256], activation='tanh')``: torso and head are assembled;
* a **torso**, a network whose output does not have the head's size: a head is attached, and one log line says so;
* a **complete network**, whose output has the head's size;
* the **name** of an earlier network in the list: the head is put on that network's torso, so both share an encoder. A
  complete network may have an output for each of the two (:mod:`zoo.common.networks.pairs`).

Torsos and complete networks are Keras 3 models, TensorLayer 2 models, ``tf.Module`` objects, or callables with
``trainable_variables``. They are called with the preprocessed observation in the environment's form: a tensor for a
leaf space, a dict or tuple of tensors for ``Dict`` and ``Tuple``, without the action mask
(:mod:`zoo.common.adaptors.observation`). A critic of state *and* action is called with ``[obs, action]``, with two
arguments, or with one joined vector if the observation is a vector, whichever it takes. If a torso takes the
observation alone, the action joins in the head. A callable is given ``training`` if it takes
that; a TensorLayer model is put in training mode by ``is_train``.

A network may be recurrent over environment steps: a spec with ``recurrent='lstm'``, or a chain of Keras layers that
takes sequences, ``keras.Sequential([Dense(64), LSTM(64), Dense(64)])`` (:mod:`zoo.common.networks.recurrent`). The
caller holds its state, ``[N, S]``.

A torso or complete network with Keras' dtype policy ``'mixed_bfloat16'`` computes in bfloat16, from float32 weights.
Its output is cast to float32, and heads compute in float32. A spec asks for it by ``dtype``
(:mod:`zoo.common.networks.torsos`).
"""

from __future__ import annotations

import logging
from typing import Any

import tensorflow as tf

from zoo.common.adaptors.observation import Preprocess
from zoo.common.networks import pieces, recurrent, torsos
from zoo.common.networks.heads import Head, make_head
from zoo.common.networks.network import Network, announces, encoded_width, probe
from zoo.common.networks.spec import full_spec
from zoo.common.networks.users import adapt
from zoo.common.tools.errors import InvalidValue, a_type

log = logging.getLogger('zoo')


#: Packages whose networks cannot be trained here, and their names.
FRAMEWORKS = {'torch': 'PyTorch', 'flax': 'Flax', 'equinox': 'Equinox'}


def build_network(entry: Any, label: str, preprocess: Preprocess, head: Head) -> Network:
    """The network of one entry of ``net_list``, which messages name by its label: ``'net_list[0] (actor)'``.

    Raises:
        ValueError: the entry does not fit; the message says which one, what it maps, and what the algorithm needs.
    """
    name, action_size = label.partition('(')[2].rstrip(')'), head.action_size
    if isinstance(entry, dict):
        spec = full_spec(entry, label)
        torso, call = torsos.torso(preprocess.features, spec, action_size)
        paths = [item.path for item in preprocess.features]
        has_images = any(item.kind == 'image' for item in preprocess.features)
        if 'features' in entry and not has_images and spec['recurrent_units'] != spec['features'] and announces.get():
            log.warning('%s: features=%s changes nothing, since no observation is an image.', label, spec['features'])

        def call_torso(found: dict[str, tf.Tensor], action: tf.Tensor | None, training: bool) -> tf.Tensor:
            inputs = [found[path] for path in paths]
            return call(inputs if action is None else [*inputs, action], training)

        seeds = pieces.SeedSequence(None if spec['seed'] is None else [spec['seed'], 1])
        width, core = probe(preprocess, action_size, call_torso).shape[-1], None
        if spec['recurrent'] is not None:
            core = recurrent.Core([recurrent.Cell(recurrent.recurrent_layer(spec, width))])
            width = core.cells[0].units
        made = make_head(head, width, spec['initializer'], seeds)
        mixed = spec['dtype'] == 'mixed_bfloat16' and torsos.rounds(torso)
        if spec['dtype'] == 'mixed_bfloat16' and not mixed and announces.get():
            log.warning(
                "%s: dtype='mixed_bfloat16' changes nothing, since no layer is wide enough to gain by it.", label
            )
        return Network(name, preprocess, torso, call_torso, made, wanted=head, mixed=mixed, core=core)
    foreign = _framework(entry)
    if foreign:
        raise InvalidValue(
            f'{label} is a network of {foreign}, but zoo trains networks of TensorFlow: write its layers in Keras, '
            "such as keras.Sequential([keras.layers.Dense(64, 'relu')]), or give a spec, such as dict(hidden=[64, 64])."
        )
    if isinstance(entry, type):
        raise InvalidValue(f'{label} is the class {entry.__name__}: give an instance of it.')
    if not callable(entry):
        raise InvalidValue(
            f'{label} is {a_type(entry)}: give a dict such as dict(hidden=[64, 64]), or a network that can be '
            'called (Keras model, TensorLayer model, tf.Module).'
        )
    return adapt(entry, label, name, preprocess, head)


def _framework(entry: Any) -> str | None:
    """Return the name of another framework that a network is of, judging by its classes; None for any other object."""
    packages = {
        kind.__module__.partition('.')[0] for kind in (entry if isinstance(entry, type) else type(entry)).__mro__
    }
    return next((name for package, name in FRAMEWORKS.items() if package in packages), None)


def build_on(other: Network, label: str, head: Head, initial: str = 'glorot_uniform', seed: Any = None) -> Network:
    """A network with its own head on the torso of another network.

    Args:
        other: owns the torso.
        label: its name in messages: ``'net_list[1] (critic)'``.
        initial: initializer of the head, if the head has no gain.

    Raises:
        ValueError: the other network is complete and has one output, so there is nothing to share.
    """
    if other.head is None and other.columns is None:
        raise InvalidValue(
            f'{label} shares the torso of {other.name}, but {other.name} is a complete network: give a torso there, '
            'without its last layer, or a network with two outputs, [policy, value].'
        )
    name, made, columns = label.partition('(')[2].rstrip(')'), None, None
    if other.columns is None:
        made = make_head(head, encoded_width(other), initial, pieces.SeedSequence(seed))
    else:
        columns = slice(other.columns.stop, None)
    return Network(
        name,
        other.preprocess,
        other.torso,
        other.call_torso,
        made,
        custom=other.custom,
        shares=True,
        wanted=head,
        mixed=other.mixed,
        core=other.core,
        columns=columns,
    )
