"""Networks from the entries of ``net_list``."""

from __future__ import annotations

import logging
from typing import Any

import tensorflow as tf

from zoo.common.adaptors.observation import Preprocess
from zoo.common.networks import recurrent, torsos
from zoo.common.networks.heads import Head, make_head
from zoo.common.networks.network import Network, announces, encoded_zeros, probe
from zoo.common.networks.spec import full_spec
from zoo.common.networks.users import adapt

log = logging.getLogger('zoo')


def build_network(
    entry: Any,
    label: str,
    preprocess: Preprocess,
    head: Head,
) -> Network:
    """The network of one entry of ``net_list``.

    Args:
        entry: a spec, a torso or a complete network.
        label: how messages name it: ``'net_list[0] (actor)'``.
        preprocess: of the observations.
        head: what it takes and what its output has to be.

    Raises:
        ValueError: the entry does not fit: which one, what it maps, what is needed.
    """
    name, action_size = label.partition('(')[2].rstrip(')'), head.action_size
    if isinstance(entry, dict):
        spec = full_spec(entry, label)
        torso, call = torsos.torso(preprocess.features, spec, action_size)
        paths = [item.path for item in preprocess.features]

        def call_torso(found: dict[str, tf.Tensor], action: tf.Tensor | None, training: bool) -> tf.Tensor:
            inputs = [found[path] for path in paths]
            return call(inputs if action is None else [*inputs, action], training)

        seeds = torsos.SeedSequence(None if spec['seed'] is None else [spec['seed'], 1])
        width, core = probe(preprocess, action_size, call_torso).shape[-1], None
        if spec['recurrent'] is not None:
            core = recurrent.Core([recurrent.Cell(recurrent.recurrent_layer(spec, width))])
            width = core.cells[0].units
        made = make_head(head, width, spec['initializer'], seeds)
        mixed = spec['dtype'] == 'mixed_bfloat16' and torsos.rounds(torso)
        if spec['dtype'] == 'mixed_bfloat16' and not mixed and announces.get():
            log.warning(
                "%s: dtype='mixed_bfloat16' changes nothing, since it has no layer that is wide enough to gain by it.",
                label,
            )
        return Network(name, preprocess, torso, call_torso, made, wanted=head, mixed=mixed, core=core)
    if isinstance(entry, type):
        raise ValueError(f'{label} is the class {entry.__name__}: give an instance of it.')
    if not callable(entry):
        raise ValueError(
            f'{label} is a {type(entry).__name__}: give a dict such as dict(hidden=[64, 64]), or a network that can be '
            'called (Keras model, TensorLayer model, tf.Module).'
        )
    return adapt(entry, label, name, preprocess, head)


def build_on(other: Network, label: str, head: Head, initial: str = 'glorot_uniform', seed: Any = None) -> Network:
    """A network that puts a head of its own on the torso of another one.

    Args:
        other: whose torso it is.
        label: how messages name it: ``'net_list[1] (critic)'``.
        head: what the output has to be.
        initial: initialiser of the head, where that names no gain.
        seed: of the head's weights.

    Raises:
        ValueError: the other network is complete, so that there is no torso to stand on.
    """
    if other.head is None:
        raise ValueError(
            f'{label} is to share the torso of {other.name}, which is a complete network: give a torso there, whose '
            'output is not yet the head.'
        )
    name = label.partition('(')[2].rstrip(')')
    made = make_head(head, encoded_zeros(other).shape[-1], initial, torsos.SeedSequence(seed))
    return Network(
        name,
        other.preprocess,
        other.torso,
        other._call_torso,
        made,
        custom=other.custom,
        shares=True,
        wanted=head,
        mixed=other.mixed,
        core=other.core,
    )
