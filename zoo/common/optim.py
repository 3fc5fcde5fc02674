"""Optimisers, target networks, schedules, and how an update is compiled."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from zoo.common.errors import unknown

#: Keys of an optimiser spec besides those of the Keras optimiser that it names.
OWN_KEYS = ('name', 'learning_rate', 'clip_norm')


@dataclass(frozen=True)
class Linear:
    """A value that moves linearly over training and then stays.

    Attributes:
        start: value at the beginning.
        end: value at the end.
        until: fraction of the training steps after which ``end`` is reached.
    """

    start: float
    end: float = 0.0
    until: float = 1.0

    def __call__(self, progress: float) -> float:
        """The value at ``progress`` in [0, 1]."""
        return self.start + (self.end - self.start) * min(1.0, progress / self.until)


def value_at(schedule: float | Linear, progress: float) -> float:
    """The value of a number or a schedule at ``progress`` in [0, 1]."""
    return schedule(progress) if isinstance(schedule, Linear) else schedule


def schedule_to_json(value: Any) -> Any:
    """A schedule as JSON data; anything else as it is."""
    return {'schedule': 'linear', **asdict(value)} if isinstance(value, Linear) else value


def schedule_from_json(value: Any) -> Any:
    """The inverse of :func:`schedule_to_json`."""
    if isinstance(value, dict) and value.get('schedule') == 'linear':
        return Linear(value['start'], value['end'], value['until'])
    return value


class Optimizer:
    """A Keras optimiser over a fixed list of variables, with the fused kernel where it is plain Adam.

    Keras writes Adam as some ten small operations for each variable; ``ResourceApplyAdam`` is one, with the same formula
    (Kingma and Ba 2015, the form with the learning rate corrected, end of section 2), and uses the Keras optimiser's own
    slots, so that what is saved does not depend on the path.

    Args:
        spec: ``dict(name='Adam', learning_rate=3e-4, clip_norm=0.5, …)`` with the arguments of that Keras optimiser, or a
            Keras optimiser. ``learning_rate`` may be a :class:`Linear` schedule; ``clip_norm`` clips the global norm.
        variables: what it moves.
        label: how messages name it.
        clip_norm: bound of the gradient's global norm where the spec names none.

    Raises:
        ValueError: a spec that Keras does not take.
    """

    def __init__(
        self, spec: Any, variables: Sequence[tf.Variable], label: str, clip_norm: float | None = None
    ) -> None:
        self.label = label
        self.variables = list(variables)
        self.clip_norm = clip_norm
        self.schedule: float | Linear | None = None
        if isinstance(spec, dict):
            self.clip_norm = spec.get('clip_norm', clip_norm)
            self.schedule = spec.get('learning_rate', 1e-3)
            self.keras = _from_spec(spec, label)
        elif isinstance(spec, keras.optimizers.Optimizer):
            self.keras = spec
        else:
            raise ValueError(
                f'{label} is a {type(spec).__name__}: give dict(name=\'Adam\', learning_rate=3e-4) or a Keras optimizer.'
            )
        if self.keras.built:
            raise ValueError(f'{label} already belongs to another agent: give each agent an optimizer of its own.')
        self.keras.build(self.variables)
        plain = type(self.keras) is keras.optimizers.Adam and not self.keras.amsgrad
        extras = ('weight_decay', 'clipnorm', 'clipvalue', 'global_clipnorm', 'use_ema', 'loss_scale_factor')
        self._fused = plain and not any(getattr(self.keras, name, None) for name in extras)
        self._fused = self._fused and not self.keras.gradient_accumulation_steps

    def minimize(self, loss: Callable[[], tf.Tensor]) -> tf.Tensor:
        """One gradient step on ``loss()``, which is also the result. To be called inside a compiled function."""
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self.variables)
            value = loss()
        self.apply(tape.gradient(value, self.variables))
        return value

    def apply(self, gradients: Sequence[tf.Tensor | None]) -> None:
        """Apply gradients of the variables, clipped by their global norm if asked; a missing one counts as zero."""
        gradients = [
            tf.zeros_like(variable) if gradient is None else tf.convert_to_tensor(gradient)
            for gradient, variable in zip(gradients, self.variables, strict=True)
        ]
        if self.clip_norm is not None:
            gradients, _ = tf.clip_by_global_norm(gradients, self.clip_norm)
        if not self._fused:
            self.keras.apply(gradients)
            return
        adam = self.keras
        adam.iterations.assign_add(1)
        step = tf.cast(adam.iterations.value, tf.float32)
        beta1_power, beta2_power = tf.pow(adam.beta_1, step), tf.pow(adam.beta_2, step)
        rate = tf.convert_to_tensor(adam.learning_rate, tf.float32)
        for i, (variable, gradient) in enumerate(zip(self.variables, gradients, strict=True)):
            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle,
                m=adam._momentums[i].value.handle,
                v=adam._velocities[i].value.handle,
                beta1_power=beta1_power,
                beta2_power=beta2_power,
                lr=rate,
                beta1=adam.beta_1,
                beta2=adam.beta_2,
                epsilon=adam.epsilon,
                grad=gradient,
            )

    def set_progress(self, progress: float) -> None:
        """Move a scheduled learning rate to where training is, in [0, 1]."""
        if isinstance(self.schedule, Linear):
            self.keras.learning_rate.assign(self.schedule(progress))

    @property
    def state(self) -> list[tf.Variable]:
        """The variables to save: iterations, learning rate, slots."""
        return [variable.value for variable in self.keras.variables]


def _from_spec(spec: dict[str, Any], label: str) -> keras.optimizers.Optimizer:
    name = spec.get('name', 'Adam')
    classes = {
        key: value
        for key, value in vars(keras.optimizers).items()
        if isinstance(value, type) and issubclass(value, keras.optimizers.Optimizer)
    }
    by_lower = {key.lower(): value for key, value in classes.items()}
    if str(name).lower() not in by_lower:
        raise ValueError(f'{label}: {unknown("optimizer", name, classes)}')
    rate = spec.get('learning_rate', 1e-3)
    arguments = {key: value for key, value in spec.items() if key not in OWN_KEYS}
    try:
        return by_lower[str(name).lower()](learning_rate=value_at(rate, 0.0), **arguments)
    except (TypeError, ValueError) as error:
        raise ValueError(f'{label}: Keras refuses this optimizer: {error}.') from None


def polyak(targets: Iterable[tf.Variable], sources: Iterable[tf.Variable], tau: float) -> None:
    """Move target weights towards the sources': target ← (1 − τ) target + τ source."""
    for target, source in zip(targets, sources, strict=True):
        target.assign_add(tau * (source - target))


def copy_weights(targets: Iterable[tf.Variable], sources: Iterable[tf.Variable]) -> None:
    """Make target weights equal to the sources'."""
    for target, source in zip(targets, sources, strict=True):
        target.assign(source)


#: Networks up to this product of a kernel's sides gain from XLA. Measured on two cores, microseconds an update, without and
#: with it: PPO minibatch of 64 at 64×64 570 and 79; SAC at 256×256, batch 256, 1,810 and 2,300; convolutions 43,000 and
#: 70,000. (benchmarks/compilation.py prints the table again.)
XLA_UP_TO = 128 * 128


def prefers_xla(variables: Iterable[tf.Variable]) -> bool:
    """Whether an update of these weights runs faster compiled by XLA: narrow dense networks do."""
    kernels = [variable.shape for variable in variables if len(variable.shape) > 1]
    return all(len(shape) == 2 and int(np.prod(shape)) <= XLA_UP_TO for shape in kernels)


def set_threads(convolutional: bool) -> None:
    """Choose TensorFlow's threads before its first operation in this process; later calls change nothing.

    Dense networks of these sizes run fastest with each matrix product on one core and independent ones side by side (SAC's
    two critics: 1,810 µs an update against 2,100 with TensorFlow's own choice); a convolution wants all cores. The
    variables ``TF_NUM_INTRAOP_THREADS`` and ``TF_NUM_INTEROP_THREADS`` go before this choice.
    """
    if 'TF_NUM_INTRAOP_THREADS' in os.environ or 'TF_NUM_INTEROP_THREADS' in os.environ:
        return
    try:
        tf.config.threading.set_intra_op_parallelism_threads(0 if convolutional else 1)
        tf.config.threading.set_inter_op_parallelism_threads(2)
    except RuntimeError:  # TensorFlow has started: the first agent, or the user's own program, has chosen
        return


class PackedCall:
    """A function of nested structures of NumPy arrays, compiled, whose small inputs cross into the graph as one.

    Every tensor that a compiled function is given costs some 10 µs by itself, as much as a small network's forward pass,
    so all inputs but images travel in one float32 vector and are taken apart inside the graph, where that is free.
    Integers stay exact up to 2²⁴.

    Args:
        function: of tensors in the structure of the arrays; returns one float32 tensor.
        xla: compile by XLA.
    """

    def __init__(self, function: Callable[..., tf.Tensor], xla: bool) -> None:
        self._function = function
        self._xla = xla
        self._compiled: dict[tuple, Any] = {}

    @property
    def traces(self) -> int:
        """How many shapes of input it has been compiled for."""
        return len(self._compiled)

    def __call__(self, *arrays: Any) -> np.ndarray:
        leaves = tf.nest.flatten(arrays)
        packed, large = [], []
        for leaf in leaves:
            (large if leaf.dtype == np.uint8 else packed).append(leaf)
        vector = np.concatenate([leaf.ravel() for leaf in packed], dtype=np.float32, casting='unsafe')
        key = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
        if key not in self._compiled:
            self._compiled[key] = self._compile(arrays, leaves, vector.size)
        inputs = [tf.constant(vector), *(tf.convert_to_tensor(leaf) for leaf in large)]
        return self._compiled[key](*inputs).numpy()

    def _compile(self, arrays: Any, leaves: Sequence[np.ndarray], size: int) -> Any:
        shapes = [(leaf.shape, leaf.dtype) for leaf in leaves]

        def unpacked(vector: tf.Tensor, *large: tf.Tensor) -> tf.Tensor:
            found, offset, rest = [], 0, iter(large)
            for shape, dtype in shapes:
                if dtype == np.uint8:
                    found.append(next(rest))
                    continue
                count = int(np.prod(shape))
                piece = tf.reshape(vector[offset : offset + count], shape)
                found.append(tf.cast(piece, tf.float32 if dtype == np.float64 else tf.as_dtype(dtype)))
                offset += count
            return self._function(*tf.nest.pack_sequence_as(arrays, found))

        function = tf.function(unpacked, jit_compile=self._xla, autograph=False)
        signature = [tf.TensorSpec([size], tf.float32)]
        signature += [tf.TensorSpec(shape, tf.uint8) for shape, dtype in shapes if dtype == np.uint8]
        # The concrete function: its call skips the wrapper's look at every argument.
        return function.get_concrete_function(*signature)
