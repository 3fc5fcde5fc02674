"""Trial calls of a network: they build it, tell its width, and tell whether XLA can compile it."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from zoo.common.adaptors.observation import Preprocess
from zoo.common.networks.network import Network

log = logging.getLogger('zoo')

#: Batch size of trial calls. Not 2: a tensor of two rows could be unpacked into an observation and an action.
PROBES = 3


def probe(
    preprocess: Preprocess, action_size: int, call_torso: Callable[..., Any], training: bool = False
) -> tf.Tensor:
    """The torso's output for a batch of zero observations; the call builds a network that is not built yet."""
    found = {
        item.path: tf.zeros([PROBES, *item.shape], tf.int32 if item.kind == 'index' else tf.float32)
        for item in preprocess.features
    }
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        # Keras only warns where it matches inputs of another structure by position.
        warnings.filterwarnings('error', message='The structure of `inputs`')
        return call_torso(found, tf.zeros([PROBES, action_size]) if action_size else None, training)


def encoded_width(network: Network) -> int:
    """The width of what the head is given."""
    return int(probe(network.preprocess, 0, network.encode_features).shape[-1])


def compiles_by_xla(network: Network) -> bool:
    """Whether XLA can compile a network, forward and backward, without running it; it can compile every spec."""
    if network.custom is None:
        return True

    def gradients() -> list[tf.Tensor | None]:
        with tf.GradientTape() as tape:
            output = probe(network.preprocess, network.wanted.action_size, network.encode_features, training=True)
        network.penalties()
        return [x for x in tape.gradient(output, network.trainable_variables) if x is not None]

    try:
        tf.function(gradients, jit_compile=True, autograph=False).experimental_get_compiler_ir()(stage='hlo')
    except (ValueError, TypeError, tf.errors.OpError):
        log.info('%s has operations that XLA cannot compile: updates run as a plain graph.', network.name)
        return False
    return True
