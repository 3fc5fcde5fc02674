"""Environments that are written in JAX, as functions of TensorFlow."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable
from typing import Any

from zoo.common import spaces
from zoo.common.tools.errors import Failure, MissingPackage


def check_jax(what: str, package: str = 'jax') -> None:
    """Raise an ImportError with the ``pip install`` line where JAX, or another package, is missing."""
    import importlib.util

    for name in ('jax', package):
        if importlib.util.find_spec(name) is None:
            raise MissingPackage(f"{what} needs {name}: pip install 'zoo-rl[jax]'.")


def in_tensorflow(functions: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return ``reset`` and ``step`` of JAX functions for ``N`` copies of TensorFlow tensors.

    JAX maps the functions over the copies and hands on what its compiler would get. A state becomes the tuple of its
    arrays: the classes of JAX's libraries are unknown to TensorFlow.

    Raises:
        ImportError: JAX is not installed.
        RuntimeError: this JAX and this TensorFlow do not fit together.
    """
    check_jax('an environment in JAX')
    import jax

    converter = _converter()
    space, action_space = functions.observation_space, functions.action_space
    tree: dict[str, Any] = {}

    def key(seed: Any) -> Any:
        return jax.lax.bitcast_convert_type(seed, jax.numpy.uint32)

    def reset(seeds: Any) -> Any:
        state, obs = jax.vmap(lambda seed: functions.reset(key(seed)))(seeds)
        leaves, tree['state'] = jax.tree.flatten(state)
        return tuple(leaves), _plain(space, obs)

    def step(leaves: Any, action: Any, seeds: Any) -> Any:
        state = jax.tree.unflatten(tree['state'], leaves)
        taken = spaces.unflatten(action_space, action) if isinstance(action, dict) else action
        found = jax.vmap(lambda state, action, seed: functions.step(state, action, key(seed)))(state, taken, seeds)
        state, obs, *rest = found
        return (tuple(jax.tree.leaves(state)), _plain(space, obs), *rest)

    def converted(function: Callable[..., Any]) -> Callable[..., Any]:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            return converter(function, with_gradient=False)

    def stepped(state: Any, action: Any, seeds: Any) -> Any:
        flat = dict(spaces.tree_items(spaces.flatten(action_space, action)))
        return converted(step)(tuple(state), flat[''] if '' in flat else flat, seeds)

    return converted(reset), stepped


def _plain(space: Any, obs: Any) -> Any:
    """Return an observation as the space has it, in dicts and tuples."""
    return spaces.unflatten(space, spaces.flatten(space, obs))


def _converter() -> Callable[..., Any]:
    """Return JAX's converter to TensorFlow, or say which pair of versions does not fit."""
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter('ignore')
            from jax.experimental import jax2tf
    except (ImportError, AttributeError) as error:
        import jax
        import tensorflow as tf

        raise Failure(
            f'JAX {jax.__version__} cannot hand its programs to TensorFlow {tf.__version__} ({error}): '
            "pip install 'zoo-rl[jax]' has the versions that fit."
        ) from error
    return jax2tf.convert
