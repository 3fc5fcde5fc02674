"""Second networks that compute the same function as the first: for targets, for twins of an agent, after loading.

Equal weights are not enough: a network may keep what it does elsewhere, as the moments of an adapted
``keras.layers.Normalization``, an argument of a subclass, or a function of the user's own. Whether two networks compute
the same is found out on probes, observations within the space's bounds and beyond them.
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
import tensorflow as tf
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Space

from zoo.common import spaces
from zoo.common.maths.optimizers import copy_weights
from zoo.common.networks.build import build_network
from zoo.common.networks.network import Network, unannounced
from zoo.common.tools import keras_private

log = logging.getLogger('zoo')

#: Observations in one batch of probes.
ROWS = 5

#: A ``Box`` that reaches farther is probed where observations are likely.
FAR = 1e6

#: How far the outputs may differ of a network here and where it was saved: processors round otherwise.
ELSEWHERE = 1e-3

#: The same of networks that compute in bfloat16, which rounds by up to 2⁻⁹ at every step.
ELSEWHERE_MIXED = 0.03


def target_of(network: Network, entry: Any, label: str) -> Network:
    """A network with weights of its own that computes the same function.

    Args:
        network: made of the entry.
        entry: of ``net_list``.
        label: how messages name it.

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
    probes = [(obs, _actions(network.wanted.action_size)) for obs in _random_probes(network.preprocess.space)]
    expected = _outputs(network, probes)
    is_random = not _same(expected, _outputs(network, probes))
    if is_random:
        log.warning(
            '%s gives other numbers every time, so it cannot be checked that its copy computes the same.', label
        )
    reasons = []
    for way in _ways_to_copy(entry):
        try:
            target = build(way(entry))
        except Exception as error:  # whatever a user's network raises says that this way does not lead there
            reason = ' '.join(re.sub(r'\x1b\[\d*m', '', str(error)).split())[:200].rstrip('.')
            reasons.append(reason.replace(f'{label} ', 'the copy ', 1))
            continue
        if _share(target, network):
            reasons.append('the copy has the same weights')
        elif not is_random and not _same(expected, _outputs(target, probes)):
            reasons.append('the copy computes something else from the same weights')
        elif not is_random and not _is_independent(target, network, probes):
            reasons.append('the copy uses weights of the original')
        else:
            return target
    raise ValueError(
        f'{label} cannot be copied, which a target network needs: give a Keras model with get_config, or a tf.Module '
        f'({reasons[0]}).'
    )


def copied_entries(networks: Sequence[Network], entries: Sequence[Any], names: Sequence[str]) -> list[Any]:
    """Entries of ``net_list`` for a twin: specs and names as they are, and of networks copies with their own weights.

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
    """Let Keras layers that compute something from their weights once and for all do so from the weights they have.

    Those of the network, after its weights were assigned, and those of its target.
    """
    if isinstance(network.torso, keras.Layer):
        for layer in keras_private.flattened(network.torso):
            if isinstance(layer, keras.layers.Normalization):
                layer.finalize_state()
    if network.target is not None:
        settle(network.target)


# What a checkpoint knows of a network that it does not hold


def fingerprint(network: Network) -> list[list[float]] | None:
    """The output for the same observations every time, ``[probes, units]``; None where it is random."""
    probes = [(obs, _actions(network.wanted.action_size)) for obs in _fixed_probes(network.preprocess.space)]
    outputs = _outputs(network, probes)
    if not _same(outputs, _outputs(network, probes)):
        return None
    return np.concatenate(outputs).astype(float).tolist()


def fingerprints(networks: dict[str, Network]) -> dict[str, list[list[float]] | None]:
    """The fingerprint of each network that is not made from a spec, by name."""
    return {name: fingerprint(network) for name, network in networks.items() if network.custom is not None}


def check_fingerprints(networks: dict[str, Network], saved: dict[str, Any]) -> None:
    """Refuse networks that compute something else than those of which `fingerprints` were saved.

    Raises:
        ValueError: one sentence that names the network.
    """
    for i, (name, network) in enumerate(networks.items()):
        if saved.get(name) is None:
            continue
        expected, output = np.array(saved[name], float), fingerprint(network)
        found = None if output is None else np.array(output, float)
        scale = np.abs(expected[np.isfinite(expected)]).max(initial=1e-3)
        near = ELSEWHERE_MIXED if network.mixed else ELSEWHERE
        if (
            found is None
            or found.shape != expected.shape
            or not np.allclose(found, expected, rtol=near, atol=near * scale, equal_nan=True)
        ):
            raise ValueError(
                f'net_list[{i}] ({name}) computes something else from the saved weights than the network that was '
                'saved: hand load one that is defined, and adapted, as that was.'
            )


def check_specs(networks: dict[str, Network], given: Sequence[Any], saved: Sequence[Any]) -> None:
    """Refuse networks that compute something else than the specs that were saved do with the same weights.

    In which dtype they do is no matter: an agent may be loaded in another one than it was saved in.

    Args:
        networks: with the saved weights.
        given: the entry of each.
        saved: the entry that each had.

    Raises:
        ValueError: one sentence that names the network.
    """
    expected = {}
    for (name, network), entry, spec in zip(networks.items(), given, saved, strict=True):
        if isinstance(spec, dict) and 'custom' not in spec and entry != spec:
            with unannounced():
                made = build_network(spec | {'dtype': 'float32'}, name, network.preprocess, network.wanted)
            copy_weights(made.variables, network.variables)
            expected[name] = fingerprint(made)
    check_fingerprints(networks, expected)


# Ways to copy


def _ways_to_copy(entry: Any) -> Iterator[Callable[[Any], Any]]:
    if isinstance(entry, keras.Layer):
        yield _copy_keras
        yield lambda model: type(model).from_config(model.get_config())
    else:
        yield _deep_copy


def _deep_copy(entry: Any) -> Any:
    made = copy.deepcopy(entry)
    if made is entry:
        raise ValueError('a function has no copy with weights of its own')
    return made


def _copy_keras(model: keras.Layer) -> keras.Layer:
    """A copy with all attributes, where Keras' own way rebuilds from a configuration that may leave some out."""
    return pickle.loads(packed(model))


def packed(entry: Any) -> bytes:
    """An entry of ``net_list``, pickled with all attributes that its Keras models have; ``pickle.loads`` unpacks it."""
    stream = io.BytesIO()
    _Copier(stream).dump(entry)
    return stream.getvalue()


class _Copier(cloudpickle.Pickler):
    """Takes Keras' objects apart attribute by attribute, for their own way of being pickled is by configuration."""

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
    """Give an object its content and its attributes without its own methods, which would keep account of them anew."""
    content, attributes = state
    for builtin, add in ((list, list.extend), (dict, dict.update), (set, set.update)):
        if isinstance(made, builtin):
            add(cast(Any, made), content)
    vars(made).update(attributes)


# Whether two networks are one function, and not one network


def _outputs(network: Network, probes: Sequence[tuple[spaces.Flat, Any]]) -> list[np.ndarray]:
    return [network(spaces.tree_map(tf.constant, obs), action).numpy() for obs, action in probes]


def _same(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> bool:
    pairs = zip(first, second, strict=True)
    return all(np.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True) for a, b in pairs)


def _share(one: Network, other: Network) -> bool:
    return bool({id(v) for v in one.variables} & {id(v) for v in other.variables})


def _is_independent(target: Network, network: Network, probes: Sequence[tuple[spaces.Flat, Any]]) -> bool:
    """Whether the target computes the same as before while the network has other weights."""
    before = _outputs(target, probes)
    rng = np.random.default_rng(1)
    kept = [variable.numpy() for variable in network.variables]
    try:
        for variable, value in zip(network.variables, kept, strict=True):
            if variable.dtype.is_floating:
                variable.assign(value + rng.standard_normal(value.shape).astype(value.dtype))
        return _same(before, _outputs(target, probes))
    finally:
        for variable, value in zip(network.variables, kept, strict=True):
            variable.assign(value)


# Probes


def _random_probes(space: Space) -> list[spaces.Flat]:
    rng = np.random.default_rng(0)
    return [_observations(space, rng.random, within) for within in (True, False, True, False)]


def _fixed_probes(space: Space) -> list[spaces.Flat]:
    """The same in every process and with every version of NumPy."""
    count = 0

    def draw(shape: tuple[int, ...]) -> np.ndarray:
        nonlocal count
        size = int(np.prod(shape))
        count += size
        return (np.arange(count - size + 1, count + 1) * ((5**0.5 - 1) / 2) % 1.0).reshape(shape)

    return [_observations(space, draw, within) for within in (True, False)]


def _observations(space: Space, draw: Callable[[tuple[int, ...]], np.ndarray], within: bool) -> spaces.Flat:
    """A batch of flat observations from numbers in [0, 1): spread over the space, or normal in spite of its bounds."""
    items = {
        path: _leaf(leaf, draw((ROWS, *spaces.shape_of(leaf))), within).astype(leaf.dtype)
        for path, leaf in spaces.leaves(space).items()
    }
    return spaces.from_items(space, items)


def _leaf(leaf: Space, uniform: np.ndarray, within: bool) -> np.ndarray:
    if isinstance(leaf, Discrete):
        return leaf.start + np.floor(uniform * int(leaf.n))
    if isinstance(leaf, MultiDiscrete):
        return leaf.start + np.floor(uniform * leaf.nvec)
    if not isinstance(leaf, Box):
        return uniform < 0.5
    # The logistic distribution, which is near enough to the normal one, from its quantiles.
    normal = np.log(np.clip(uniform, 1e-6, 1.0 - 1e-6)) - np.log1p(-np.clip(uniform, 1e-6, 1.0 - 1e-6))
    low, high = leaf.low.astype(float), leaf.high.astype(float)
    is_near = (np.abs(low) < FAR) & (np.abs(high) < FAR)
    if not within and np.issubdtype(leaf.dtype, np.floating):
        return normal
    spread = np.where(is_near, low, 0.0) + uniform * (np.where(is_near, high, 1.0) - np.where(is_near, low, 0.0))
    return np.where(is_near, spread, np.clip(normal, low, high))


def _actions(size: int) -> tf.Tensor | None:
    if not size:
        return None
    values = np.arange(1, ROWS * size + 1) * (2**0.5) % 2.0 - 1.0
    return tf.constant(values.reshape(ROWS, size), tf.float32)
