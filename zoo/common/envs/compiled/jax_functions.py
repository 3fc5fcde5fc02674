"""Environments that are written in JAX, as functions of TensorFlow."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Iterator
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
        def call(*arguments: Any) -> Any:
            with warnings.catch_warnings(), _for_tensorflow():
                warnings.simplefilter('ignore')
                return converter(function, with_gradient=False)(*arguments)

        return call

    def stepped(state: Any, action: Any, seeds: Any) -> Any:
        flat = dict(spaces.tree_items(spaces.flatten(action_space, action)))
        return converted(step)(tuple(state), flat[''] if '' in flat else flat, seeds)

    return converted(reset), stepped


@contextlib.contextmanager
def _for_tensorflow() -> Iterator[None]:
    """Let JAX write programs that TensorFlow's compiler understands.

    TensorFlow 2.21 has StableHLO 1.13.7, which is JAX 0.10.2's version of twelve weeks before. JAX itself writes
    for readers of up to four weeks, and ``top_k`` differs between the two. On a CPU JAX factors matrices with kernels
    of its own package, which TensorFlow does not have. What JAX does on other platforms consists of operations that
    both have.
    """
    from jax._src.interpreters import mlir
    from jax._src.lax import linalg
    from jax._src.lib.mlir.dialects import hlo

    newest = hlo.get_version_from_compatibility_requirement
    hlo.get_version_from_compatibility_requirement = lambda _: newest(hlo.StablehloCompatibilityRequirement.WEEK_12)
    on_cpu = mlir._platform_specific_lowerings['cpu']
    kernels = (linalg.cholesky_p, linalg.triangular_solve_p, linalg.lu_p, linalg.geqrf_p, linalg.householder_product_p)
    replaced = {kernel: on_cpu.pop(kernel) for kernel in kernels if kernel in on_cpu and kernel in mlir._lowerings}
    try:
        yield
    finally:
        on_cpu.update(replaced)
        hlo.get_version_from_compatibility_requirement = newest


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
