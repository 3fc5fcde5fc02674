"""Copies of networks that compute the same function: for targets and for twins of an agent.

Equal weights are not enough. What a network computes may also depend on the moments of an adapted
``keras.layers.Normalization``, on an argument of a subclass, or on a function of the user's. So probes compare them.
"""

from __future__ import annotations

import copy
import io
import logging
import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import cloudpickle
import keras
import numpy as np

from zoo.common.maths.optimizers import copy_weights
from zoo.common.networks.build import build_network
from zoo.common.networks.network import Network, unannounced
from zoo.common.networks.probes import Probe, outputs, random_probes, same
from zoo.common.tools import keras_private
from zoo.common.tools.errors import InvalidValue

log = logging.getLogger('zoo')


def target_of(network: Network, entry: Any, label: str) -> Network:
    """A network with its own weights that computes the same function, made from the same entry of ``net_list``.

    Raises:
        ValueError: the entry cannot be copied; one sentence says why.
    """

    def build(made: Any) -> Network:
        with unannounced():
            target = build_network(made, label, network.preprocess, network.wanted)
        copy_weights(target.variables, network.variables)
        settle(target)
        return target

    network.target = build(entry) if isinstance(entry, dict) else _equal_copy(network, entry, label, build)
    return network.target


def _equal_copy(network: Network, entry: Any, label: str, build: Callable[[Any], Network]) -> Network:
    probes = random_probes(network.preprocess.space, network.wanted.action_size)
    expected = outputs(network, probes)
    is_random = not same(expected, outputs(network, probes))
    if is_random:
        log.warning(
            '%s gives different numbers at every call, so zoo cannot check that its copy computes the same.', label
        )
    reasons = []
    for way in _ways_to_copy(entry):
        try:
            target = build(way(entry))
        except Exception as error:  # a user's network may raise anything
            reason = ' '.join(re.sub(r'\x1b\[\d*m', '', str(error)).split())[:200].rstrip('.')
            reasons.append(reason.replace(f'{label} ', 'the copy ', 1))
            continue
        if {id(v) for v in target.variables} & {id(v) for v in network.variables}:
            reasons.append('the copy has the same weights')
        elif not is_random and not same(expected, outputs(target, probes)):
            reasons.append('the copy computes something else from the same weights')
        elif not is_random and not _is_independent(target, network, probes):
            reasons.append('the copy uses weights of the original')
        else:
            return target
    raise InvalidValue(
        f'{label} cannot be copied, which a target network needs: give a Keras model with get_config, or a tf.Module '
        f'({reasons[0]}).'
    )


def copied_entries(networks: Sequence[Network], entries: Sequence[Any], names: Sequence[str]) -> list[Any]:
    """Entries of ``net_list`` for a twin: the same specs and names, and copies of networks with their own weights.

    Raises:
        ValueError: a network cannot be copied.
    """
    found = []
    for i, (network, entry, name) in enumerate(zip(networks, entries, names, strict=True)):
        if not isinstance(entry, dict | str):
            kept = network.target
            entry = target_of(network, entry, f'net_list[{i}] ({name})').torso
            network.target = kept
        found.append(entry)
    return found


def settle(network: Network) -> None:
    """After weights were assigned, let ``Normalization`` layers derive what they keep of them, in the target too."""
    if isinstance(network.torso, keras.Layer):
        for layer in keras_private.flattened(network.torso):
            if isinstance(layer, keras.layers.Normalization):
                layer.finalize_state()
    if network.target is not None:
        settle(network.target)


def _ways_to_copy(entry: Any) -> Iterator[Callable[[Any], Any]]:
    if isinstance(entry, keras.Layer):
        yield lambda model: pickle.loads(packed(model))  # all attributes; a configuration may leave some out
        yield lambda model: type(model).from_config(model.get_config())
    else:
        yield _deep_copy


def _deep_copy(entry: Any) -> Any:
    made = copy.deepcopy(entry)
    if made is entry:
        raise InvalidValue('a function has no copy with weights of its own')
    return made


def packed(entry: Any) -> bytes:
    """An entry of ``net_list``, pickled with all attributes of its Keras models; ``pickle.loads`` unpacks it."""
    stream = io.BytesIO()
    _Copier(stream).dump(entry)
    return stream.getvalue()


class _Copier(cloudpickle.Pickler):
    """Pickles Keras' objects by their attributes; by themselves they are pickled by their configuration."""

    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        if isinstance(obj, list | dict | set) and hasattr(obj, 'tracker'):
            builtin = next(base for base in (list, dict, set) if isinstance(obj, base))
            return builtin.__new__, (kind,), (builtin(obj), dict(vars(obj))), None, None, _fill
        # The latter is what preprocessing layers hold; it looks itself up without end while it is empty.
        if keras_private.is_saveable(kind) or kind.__name__ == 'DynamicBackend':
            return object.__new__, (kind,), ((), dict(vars(obj))), None, None, _fill
        return super().reducer_override(obj)


def _fill(made: Any, state: tuple[Any, dict[str, Any]]) -> None:
    """Give an object its content and attributes without calling its own methods, which would track them again."""
    content, attributes = state
    for builtin, add in ((list, list.extend), (dict, dict.update), (set, set.update)):
        if isinstance(made, builtin):
            add(cast(Any, made), content)
    vars(made).update(attributes)


def _is_independent(target: Network, network: Network, probes: Sequence[Probe]) -> bool:
    """Whether the target computes the same as before while the network has other weights."""
    before = outputs(target, probes)
    rng = np.random.default_rng(1)
    kept = [variable.numpy() for variable in network.variables]
    try:
        for variable, value in zip(network.variables, kept, strict=True):
            if variable.dtype.is_floating:
                variable.assign(value + rng.standard_normal(value.shape).astype(value.dtype))
        return same(before, outputs(target, probes))
    finally:
        for variable, value in zip(network.variables, kept, strict=True):
            variable.assign(value)
