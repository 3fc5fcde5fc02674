"""Networks of the user's own that serve actor and critic: one with two outputs, or two models that share layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from zoo.common.networks.heads import Head
from zoo.common.networks.network import PROBES, variables_of
from zoo.common.tools.errors import InvalidValue

#: The keys of a dict with both outputs.
KEYS = ('policy', 'value'), ('actor', 'critic')


def is_several(output: Any) -> bool:
    """Whether a network gave several outputs, in whatever form."""
    return isinstance(output, Mapping | list | tuple) and len(output) > 1


def joined(
    output: Any, call: Callable[..., Any], label: str, head: Head
) -> tuple[tf.Tensor, Callable[..., tf.Tensor], int]:
    """Return two outputs side by side, float32 ``[B, n + 1]``, the call that gives both like this, and ``n``.

    Args:
        output: what the network gave for ``PROBES`` observations.
        call: gives it.
        label: the network in messages.
        head: of the first output, with the head of the second one ``beside``.

    Raises:
        ValueError: outputs of other shapes, or under other names.
    """
    assert head.beside is not None
    keys = _keys(output, label)
    sizes = sorted({head.units, head.also_accepts or head.units})
    shapes = [tuple(getattr(output[key], 'shape', ())) for key in keys]
    if len(shapes) != 2 or shapes[0] not in [(PROBES, n) for n in sizes] or shapes[1] != (PROBES, head.beside.units):
        found = ' and '.join(f'[{", ".join(["batch", *map(str, shape[1:])])}]' for shape in shapes)
        raise InvalidValue(
            f'{label} gives {len(shapes)} outputs, {found}, but a network of policy and value gives two: first '
            f'{head.meaning}, [batch, {" or ".join(map(str, sizes))}], then {head.beside.meaning}, '
            f'[batch, {head.beside.units}].'
        )

    def side_by_side(given: Any) -> tf.Tensor:
        return tf.concat([tf.cast(given[key], tf.float32) for key in keys], -1)

    return side_by_side(output), lambda *inputs: side_by_side(call(*inputs)), shapes[0][1]


def _keys(output: Any, label: str) -> Sequence[Any]:
    """Return where the outputs are, the policy's first."""
    if not isinstance(output, Mapping):
        return range(len(output))
    for names in KEYS:
        if output.keys() == set(names):
            return names
    found = ', '.join(map(repr, output))
    raise InvalidValue(f"{label} gives a dict with the keys {found}: name its two outputs 'policy' and 'value'.")


def with_both(actor: Any, critic: Any) -> Any:
    """Return the network with both outputs that two entries mean; None if each is a network by itself.

    They mean one network if they are the same object, or Keras models that share layers and have the same inputs.
    """
    if isinstance(actor, dict | str):
        return None
    if actor is critic:
        return actor
    models = [x for x in (actor, critic) if isinstance(x, keras.Model) and getattr(x, 'inputs', None)]
    if len(models) < 2 or not _share(*models) or _inputs(actor) != _inputs(critic):
        return None
    return keras.Model(actor.input, [actor.output, critic.output])


def _share(one: keras.Model, other: keras.Model) -> bool:
    return bool({id(v) for v in variables_of(one)} & {id(v) for v in variables_of(other)})


def _inputs(model: keras.Model) -> list[int]:
    return [id(x) for x in model.inputs]
