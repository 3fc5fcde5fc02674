"""What zoo uses of TensorFlow that TensorFlow does not promise to keep, and the public way beside it.

The names are in TensorFlow 2.18 to 2.22.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import logging
from collections.abc import Callable
from typing import Any

import tensorflow as tf

log = logging.getLogger('zoo')

#: ``call(inputs)``: the one output of a compiled function.
Call = Callable[[list[tf.Tensor]], tf.Tensor]

#: ``call(inputs)``: the outputs of a compiled function, in a list.
ManyCall = Callable[[list[tf.Tensor]], list[tf.Tensor]]

#: The parameters of ``tensorflow.python.eager.execute.execute`` that are given, by position.
_PARAMETERS = ['op_name', 'num_outputs', 'inputs', 'attrs', 'ctx']


def calling(function: Any) -> Call:
    """Give the fastest way to call a concrete function of one output: the runtime's own where it is known."""
    many = calling_many(function)
    return lambda inputs: many(inputs)[0]


def calling_many(function: Any) -> ManyCall:
    """Give the fastest way to call a concrete function of several outputs, which are flat."""
    direct = direct_call(function)
    if direct is None:
        say_public()
    return direct or public_call(function)


def public_call(function: Any) -> ManyCall:
    """Call a concrete function as a program does.

    Python then looks for gradient tapes and reports every variable that is read: longer than a small network's update.
    """
    return lambda inputs: tf.nest.flatten(function(*inputs))


def direct_call(function: Any) -> ManyCall | None:
    """Call a concrete function by TensorFlow's runtime alone; None where the runtime is not the known one."""
    try:
        from tensorflow.python.eager import context, execute

        runtime = context.context()
        parameters = inspect.signature(execute.execute).parameters.values()
        attributes = tuple(itertools.chain(*runtime.function_call_options.as_attrs().items()))
    except (ImportError, AttributeError, TypeError, ValueError):
        return None
    required = [p.name for p in parameters if p.default is p.empty]
    if required != _PARAMETERS or [p.name for p in parameters][: len(required)] != required:
        return None
    name, captured, count = tf.compat.as_str(function.name), function.captured_inputs, len(function.outputs)

    def call(inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        assert function is not None  # the runtime forgets the name when the function is no more
        return list(execute.execute(name, count, inputs + captured, attributes, runtime))

    return call


@functools.cache
def say_public() -> None:
    log.warning(
        'TensorFlow %s has a runtime that zoo does not know: updates are called in the public way, which takes longer.',
        tf.__version__,
    )
