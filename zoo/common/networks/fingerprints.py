"""Fingerprints: outputs of a user's networks, saved in checkpoints, by which other networks are refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from zoo.common.maths.optimizers import copy_weights
from zoo.common.networks.build import build_network
from zoo.common.networks.network import Network, unannounced
from zoo.common.networks.probes import fixed_probes, outputs, same
from zoo.common.tools.errors import InvalidValue

#: How far outputs may differ from the saved ones, since another processor rounds differently: in float32, and in
#: bfloat16, which rounds by up to 2⁻⁹ at every step.
ELSEWHERE, ELSEWHERE_MIXED = 1e-3, 0.03


def fingerprint(network: Network) -> list[list[float]] | None:
    """The output for the fixed probes, ``[probes, units]``; None if the output is random."""
    probes = fixed_probes(network.preprocess.space, network.wanted.action_size)
    found = outputs(network, probes)
    return np.concatenate(found).astype(float).tolist() if same(found, outputs(network, probes)) else None


def fingerprints(networks: dict[str, Network]) -> dict[str, list[list[float]] | None]:
    """By name, the fingerprint of each network that is not made from a spec."""
    return {name: fingerprint(network) for name, network in networks.items() if network.custom is not None}


def check_fingerprints(networks: dict[str, Network], saved: dict[str, Any]) -> None:
    """Refuse networks that compute something else than the networks whose `fingerprints` were saved.

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
            raise InvalidValue(
                f'net_list[{i}] ({name}) computes something else from the saved weights than the network that was '
                'saved: give load a network that is defined, and adapted, as the saved one was.'
            )


def check_specs(networks: dict[str, Network], given: Sequence[Any], saved: Sequence[Any]) -> None:
    """Refuse networks that compute something else from the saved weights than the saved specs do.

    The dtype does not matter: an agent may be loaded in another dtype than the one it was saved in.

    Args:
        networks: with the saved weights.
        given, saved: the entry of each network, now and when it was saved.

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
