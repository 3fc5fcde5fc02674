"""Compiled updates: the compiler, the threads, and the call."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.common.tools import tensorflow_private

log = logging.getLogger('zoo')

#: Dense layers whose kernel has up to this many entries are faster with XLA; wider ones and convolutions are slower.
#: benchmarks/speed/compilation.py measures it; its table is in benchmarks/results/compilation.md.
XLA_UP_TO = 128 * 128


def prefers_xla(variables: Iterable[tf.Variable]) -> bool:
    """Whether an update of these weights runs faster compiled by XLA: narrow dense networks do."""
    kernels = [variable.shape for variable in variables if len(variable.shape) > 1]
    return all(len(shape) == 2 and int(np.prod(shape)) <= XLA_UP_TO for shape in kernels)


def set_threads(convolutional: bool) -> None:
    """Choose TensorFlow's threads before its first operation in this process; later calls change nothing.

    Dense networks of these sizes run fastest with each matrix product on one core. Independent products, as by two
    critics, run at the same time. A convolution needs all cores. The environment variables ``TF_NUM_INTRAOP_THREADS``
    and ``TF_NUM_INTEROP_THREADS`` override this choice.
    """
    if 'TF_NUM_INTRAOP_THREADS' in os.environ or 'TF_NUM_INTEROP_THREADS' in os.environ:
        return
    try:
        tf.config.threading.set_intra_op_parallelism_threads(0 if convolutional else 1)
        tf.config.threading.set_inter_op_parallelism_threads(2)
    except RuntimeError:  # TensorFlow has started: the first agent or the user's program made the choice
        return


#: A tensor's memory begins at a multiple of this many bytes: kernels load whole registers.
ALIGNMENT = 64


class PackedCall:
    """A compiled function of nested structures of NumPy arrays that passes its small inputs as one tensor.

    Every input tensor of a compiled function costs some 10 µs, as much as the forward pass of a small network. So all
    inputs except images travel in one vector and are split inside the graph, where that is free. The vector is float32,
    without arithmetic on it: numbers of 4 and 8 bytes are copied bit by bit, into one word or two. Smaller numbers are
    converted to float32, which holds them exactly.

    Args:
        function: takes tensors in the structure, shapes and dtypes of the arrays, with ``()`` for None; returns one
            float32 tensor.
        xla: compile by XLA.
    """

    def __init__(self, function: Callable[..., tf.Tensor], xla: bool) -> None:
        self._function = function
        self.xla = xla
        self._compiled: dict[tuple, tensorflow_private.Call] = {}

    @property
    def traces(self) -> int:
        """The number of input shapes that it was compiled for."""
        return len(self._compiled)

    def __call__(self, *arrays: Any, static: tuple = ()) -> np.ndarray:
        """Call the function with the arrays and then ``static``; each value of ``static`` has its own graph."""
        leaves: list[np.ndarray] = []
        _collect(arrays, leaves)
        words, large = [], []
        for leaf in leaves:
            if leaf.dtype == np.uint8:
                large.append(leaf)
            else:
                words.append(leaf.ravel().view(np.float32) if leaf.itemsize >= 4 else leaf.ravel())
        vector = np.concatenate(words, out=_aligned(sum(map(len, words))), casting='unsafe')
        key = (static, *((leaf.shape, leaf.dtype) for leaf in leaves))
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = self._compiled[key] = self._compile(arrays, static, leaves, vector.size)
        return compiled([_shared(vector), *map(_shared, large)]).numpy()

    def _compile(self, arrays: Any, static: tuple, leaves: Sequence[np.ndarray], size: int) -> tensorflow_private.Call:
        shapes = [(leaf.shape, leaf.dtype) for leaf in leaves]

        def unpacked(vector: tf.Tensor, *large: tf.Tensor) -> tf.Tensor:
            found, offset, rest = [], 0, iter(large)
            for shape, dtype in shapes:
                if dtype == np.uint8:
                    found.append(next(rest))
                    continue
                words = max(1, dtype.itemsize // 4)
                count = words * int(np.prod(shape))
                piece = tf.reshape(vector[offset : offset + count], shape if words == 1 else (*shape, words))
                found.append((tf.bitcast if dtype.itemsize >= 4 else tf.cast)(piece, tf.as_dtype(dtype)))
                offset += count
            known = tf.nest.map_structure(lambda x: () if x is None else x, arrays)
            return self._function(*tf.nest.pack_sequence_as(known, found), *static)

        function = tf.function(unpacked, jit_compile=self.xla, autograph=False)
        signature = [tf.TensorSpec([size], tf.float32)]
        signature += [tf.TensorSpec(shape, tf.uint8) for shape, dtype in shapes if dtype == np.uint8]
        return tensorflow_private.calling(function.get_concrete_function(*signature))


def _collect(structure: Any, leaves: list[np.ndarray]) -> None:
    """Append the arrays of a structure, in the machine's byte order, sorted as by ``tf.nest``, which is slower."""
    if isinstance(structure, tuple | list):
        for part in structure:
            _collect(part, leaves)
    elif isinstance(structure, dict):
        for key in sorted(structure):
            _collect(structure[key], leaves)
    elif structure is not None:
        native = structure.dtype.isnative
        leaves.append(structure if native else structure.astype(structure.dtype.newbyteorder('=')))


def _shared(x: np.ndarray) -> tf.Tensor:
    """Return a tensor in an array's own memory if that is aligned; else a copy. The array has to stay as it is."""
    if x.ctypes.data % ALIGNMENT or not x.flags.c_contiguous or not x.flags.writeable or not x.size:
        return tf.constant(x)
    return tf.experimental.dlpack.from_dlpack(x.__dlpack__())


def _aligned(size: int) -> np.ndarray:
    """Make a float32 vector whose alignment lets TensorFlow use its memory; ``tf.constant`` would copy it."""
    room = np.empty(size + ALIGNMENT // 4, np.float32)
    begin = -room.ctypes.data % ALIGNMENT // 4
    return room[begin : begin + size]


#: Seconds of compiling after which it is said.
LONG = 10.0


@contextlib.contextmanager
def telling(what: str) -> Iterator[None]:
    """Say in the log what takes so long, if it does."""
    said = threading.Event()

    def tell() -> None:
        said.set()
        log.warning('Compiling %s takes a while; it happens once.', what)

    begun, timer = time.monotonic(), threading.Timer(LONG, tell)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
    if said.is_set():
        log.warning('Compiled %s in %.0f seconds.', what, time.monotonic() - begun)


class XlaCall:
    """A function of nested tensors that XLA compiles once, for the shapes of its first call.

    Args:
        function: takes and returns nested structures of tensors.
        what: what to call it where compiling takes long.
    """

    def __init__(self, function: Callable[..., Any], what: str = 'the environment') -> None:
        self._function = tf.function(function, jit_compile=True, autograph=False)
        self._what = what
        self._call: tensorflow_private.ManyCall | None = None
        self._structure: Any = None

    @property
    def is_traced(self) -> bool:
        """Whether it has been called before."""
        return self._call is not None

    def __call__(self, *arguments: Any) -> Any:
        flat = [tf.convert_to_tensor(x) for x in tf.nest.flatten(arguments)]
        if self._call is not None:
            return tf.nest.pack_sequence_as(self._structure, self._call(flat))
        with telling(self._what):
            given = tf.nest.pack_sequence_as(arguments, flat)
            concrete = self._function.get_concrete_function(
                *tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), given)
            )
            self._call, self._structure = tensorflow_private.calling_many(concrete), concrete.structured_outputs
            return tf.nest.pack_sequence_as(self._structure, self._call(flat))
