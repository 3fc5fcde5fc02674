"""Optimizers, and the updates of target networks."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from zoo.common.schedules import Linear, tensor_at, value_at
from zoo.common.tools.compilation import prefers_xla
from zoo.common.tools.errors import InvalidValue, a_type, unknown
from zoo.common.tools.params import Param, Range, above, at_least, between

log = logging.getLogger('zoo')

#: ``all_reduce(array, op)``: every learner gets the mean or the sum (``op``) of the array over all learners.
AllReduce = Callable[[np.ndarray, str], np.ndarray]

_BELOW_ONE = Range(0, 1, open_high=True)

#: The allowed values of a spec. Keras checks all other keys.
PARAMS = {
    param.name: param
    for param in (
        Param('learning_rate', 1e-3, 'number', 'size of the steps', at_least(0), scheduled=True),
        Param('clip_norm', None, 'number', "bound of the gradient's global norm", above(0), optional=True),
        Param('beta_1', 0.9, 'number', 'decay of the first moment', _BELOW_ONE),
        Param('beta_2', 0.999, 'number', 'decay of the second moment', _BELOW_ONE),
        Param('epsilon', 1e-7, 'number', 'added to the divisor', above(0)),
        Param('weight_decay', None, 'number', 'share of the weights that a step subtracts', at_least(0), optional=True),
        Param('momentum', 0.0, 'number', 'fraction of a step that the next step repeats', between(0, 1)),
        Param('rho', 0.9, 'number', 'decay of the mean square gradient', between(0, 1)),
    )
}

#: Zoo's own optimizers by their names in lower case.
OWN = {'adam': 'Adam', 'radam': 'RAdam'}

#: The keys of a spec for zoo's own Adam and RAdam, with their defaults, which are Keras' own for Adam.
ADAM: dict[str, Any] = {'name': 'Adam'} | {
    name: PARAMS[name].default for name in ('learning_rate', 'beta_1', 'beta_2', 'epsilon', 'clip_norm')
}


class Optimizer:
    """An optimizer over a fixed list of variables: zoo's own Adam or RAdam, or any optimizer of Keras.

    Adam (Kingma and Ba 2015, with the corrected learning rate of their section 2) is fast in both kinds of graph. In a
    plain graph one kernel, ``ResourceApplyAdam``, moves each variable; Keras makes some ten small operations. XLA fuses
    arithmetic at no cost, but each variable that crosses into its code costs some 5 µs. So under XLA one vector holds
    each moment of all variables (``flat``).

    RAdam (Liu et al. 2020, *On the Variance of the Adaptive Learning Rate and Beyond*, arXiv 1908.03265, algorithm 2)
    has the same moments. Its first steps follow the first moment alone; later ones are Adam's, shortened where the
    second moment is known from few gradients. ``epsilon`` is added as in Adam; the paper's algorithm has none.

    Args:
        spec: ``dict(name='Adam', learning_rate=3e-4, clip_norm=0.5, …)``: ``'Adam'``, ``'RAdam'``, or the name of a
            Keras optimizer with its arguments; or a Keras optimizer. ``learning_rate`` may be a :class:`Linear`
            schedule.
        label: how messages name the optimizer.
        clip_norm: bound of the gradient's global norm where the spec names none.

    Attributes:
        all_reduce: the exchange with other learners that move the same weights; None where there are none.

    Raises:
        ValueError: Keras does not take the spec, a value is out of its range, or the optimizer is already in use.
    """

    def __init__(self, spec: Any, variables: Sequence[tf.Variable], label: str, clip_norm: float | None = None) -> None:
        self.label = label
        self.variables = list(variables)
        self.clip_norm = clip_norm
        self.all_reduce: AllReduce | None = None
        self.schedule: float | Linear | None = None
        self.keras: keras.optimizers.Optimizer | None = None
        self._constraints: list[tuple[tf.Variable, Callable[[tf.Tensor], tf.Tensor]]] = []
        self._moving: list[tf.Variable] = []
        self._moments: dict[str, list[tf.Variable]] = {}  # of zoo's own
        if isinstance(spec, dict):
            spec = _checked(spec, label)
            self.clip_norm = spec.get('clip_norm', clip_norm)
            self.schedule = spec.get('learning_rate', ADAM['learning_rate'])
            if self.schedule == 0.0:
                log.warning('%s has learning_rate=0, so it moves no weight.', label)
            if _is_ours(spec):
                self._init_own({**ADAM, **spec})
                # Keras' optimizers apply the constraints of TensorFlow's variables themselves.
                self.constrain((v, v.constraint) for v in self.variables if v.constraint is not None)
                return
            self.keras = _from_spec(spec, label)
        elif isinstance(spec, keras.optimizers.LossScaleOptimizer):
            raise InvalidValue(
                f'{label} is a LossScaleOptimizer, but losses are not scaled here: give the optimizer inside it.'
            )
        elif isinstance(spec, keras.optimizers.Optimizer):
            self.keras = spec
        else:
            raise InvalidValue(
                f"{label} is {a_type(spec)}: give dict(name='Adam', learning_rate=3e-4) or a Keras optimizer."
            )
        if self.keras.loss_scale_factor is not None:
            raise InvalidValue(
                f'{label} has loss_scale_factor={self.keras.loss_scale_factor:g}, by which gradients would be divided, '
                'but losses are not scaled here: leave it out.'
            )
        if self.keras.use_ema and self.keras.ema_overwrite_frequency is None:
            raise InvalidValue(
                f'{label} has use_ema=True without ema_overwrite_frequency, which changes no weight: give both.'
            )
        if self.keras.built:
            raise InvalidValue(f'{label} already belongs to another agent: give each agent an optimizer of its own.')
        for name in ('Muon', 'Adafactor'):  # which read more of a weight than its numbers
            if isinstance(self.keras, getattr(keras.optimizers, name, ())):
                told = f"Keras' {name} moves weights of Keras alone, not TensorFlow's variables"
                raise InvalidValue(f"{label}: {told}: give another, such as dict(name='Adam').")
        self.keras.build(self.variables)

    def _init_own(self, spec: dict[str, Any]) -> None:
        self._own_name = OWN[spec['name'].lower()]
        self._beta_1, self._beta_2, self._epsilon = spec['beta_1'], spec['beta_2'], spec['epsilon']
        self._learning_rate = tf.Variable(value_at(spec['learning_rate'], 0.0), dtype=tf.float32, trainable=False)
        self.iterations = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.flat = prefers_xla(self.variables)
        self._sizes = [int(np.prod(variable.shape)) for variable in self.variables]
        shapes = [[sum(self._sizes)]] if self.flat else [variable.shape for variable in self.variables]
        self._moments = {
            kind: [tf.Variable(tf.zeros(shape), trainable=False) for shape in shapes]
            for kind in ('first_moment', 'second_moment')
        }

    def constrain(self, constraints: Iterable[tuple[tf.Variable, Callable[[tf.Tensor], tf.Tensor]]]) -> None:
        """End every step with ``variable ← constraint(variable)``, for those pairs whose variable it moves."""
        own = {id(variable) for variable in self.variables}
        self._constraints += [(variable, function) for variable, function in constraints if id(variable) in own]

    def share(self, moving: Iterable[tf.Variable]) -> None:
        """With every step, set these variables, which the losses move, to their mean over all learners."""
        self._moving += moving

    def minimize(self, loss: Callable[[], tf.Tensor]) -> tf.Tensor:
        """Take one gradient step on ``loss()`` and give its value. To be called inside a compiled function."""
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self.variables)
            value = loss()
        self.apply(tape.gradient(value, self.variables))
        return value

    def apply(self, gradients: Sequence[tf.Tensor | None]) -> None:
        """Apply gradients, clipped by their global norm if asked; a missing gradient counts as zero."""
        gradients = [
            tf.zeros_like(variable) if gradient is None else tf.convert_to_tensor(gradient)
            for gradient, variable in zip(gradients, self.variables, strict=True)
        ]
        if self.all_reduce is not None:
            moved = [variable.read_value() for variable in self._moving]
            means = mean_over(self.all_reduce, [*gradients, *moved])
            gradients = means[: len(gradients)]
            for variable, mean in zip(self._moving, means[len(gradients) :], strict=True):
                variable.assign(mean)
        if self.keras is None and self.flat:
            gradients = [tf.concat([tf.reshape(gradient, [-1]) for gradient in gradients], 0)]
        if self.clip_norm is not None:
            gradients, _ = tf.clip_by_global_norm(gradients, self.clip_norm)
        if self.keras is not None:
            self.keras.apply(gradients)
        else:
            self._apply_own(gradients)
        for variable, function in self._constraints:
            variable.assign(function(tf.convert_to_tensor(variable)))

    def _apply_own(self, gradients: Sequence[tf.Tensor]) -> None:
        step = tf.cast(self.iterations.assign_add(1), tf.float32)
        powers = tf.pow(self._beta_1, step), tf.pow(self._beta_2, step)
        rate, known = self._learning_rate.read_value(), None
        if self._own_name == 'RAdam':
            factor, known = rectification(self.iterations, self._beta_2)
            rate *= tf.where(known, factor, 1.0)
        if self.flat:
            self._apply_flat(gradients[0], rate, known, *powers)
        elif known is None:
            self._apply_each(gradients, rate, *powers)
        else:
            tf.cond(
                known,
                lambda: self._apply_each(gradients, rate, *powers),
                lambda: self._apply_first_moments(gradients, rate, powers[0]),
            )

    def _apply_each(
        self, gradients: Sequence[tf.Tensor], rate: tf.Tensor, beta_1_power: tf.Tensor, beta_2_power: tf.Tensor
    ) -> None:
        given = {'lr': rate, 'beta1_power': beta_1_power, 'beta2_power': beta_2_power}
        given |= {'beta1': self._beta_1, 'beta2': self._beta_2, 'epsilon': self._epsilon}
        for v, gradient, first, second in zip(self.variables, gradients, *self._moments.values(), strict=True):
            tf.raw_ops.ResourceApplyAdam(var=v.handle, m=first.handle, v=second.handle, grad=gradient, **given)

    def _apply_first_moments(self, gradients: Sequence[tf.Tensor], rate: tf.Tensor, beta_1_power: tf.Tensor) -> None:
        for variable, gradient, first, second in zip(self.variables, gradients, *self._moments.values(), strict=True):
            m, _ = self._moved(gradient, first, second)
            variable.assign_sub(rate / (1.0 - beta_1_power) * m)

    def _apply_flat(
        self,
        gradient: tf.Tensor,
        rate: tf.Tensor,
        known: tf.Tensor | None,
        beta_1_power: tf.Tensor,
        beta_2_power: tf.Tensor,
    ) -> None:
        m, v = self._moved(gradient, *(moment for (moment,) in self._moments.values()))
        step = rate * tf.sqrt(1.0 - beta_2_power) / (1.0 - beta_1_power) * m / (tf.sqrt(v) + self._epsilon)
        if known is not None:
            step = tf.where(known, step, rate / (1.0 - beta_1_power) * m)
        for variable, piece in zip(self.variables, tf.split(step, self._sizes), strict=True):
            variable.assign_sub(tf.reshape(piece, variable.shape))

    def _moved(self, gradient: tf.Tensor, first: tf.Variable, second: tf.Variable) -> tuple[tf.Tensor, tf.Tensor]:
        m = first.assign(self._beta_1 * first + (1.0 - self._beta_1) * gradient)
        return m, second.assign(self._beta_2 * second + (1.0 - self._beta_2) * tf.square(gradient))

    def set_progress(self, progress: float) -> None:
        """Set a scheduled learning rate for this progress of training, in [0, 1]."""
        if isinstance(self.schedule, Linear):
            self._rate.assign(self.schedule(progress), read_value=False)

    def trace_progress(self, progress: tf.Tensor) -> None:
        """Do the same inside a compiled function, for a tensor float32 ``[]``."""
        if isinstance(self.schedule, Linear):
            self._rate.assign(tensor_at(self.schedule, progress))

    def scheduled_rate(self, progress: float) -> float | None:
        """Return the learning rate at this progress of training, in [0, 1]; None where it never changes.

        A schedule of Keras goes by the optimizer's own count of updates.
        """
        if isinstance(self.schedule, Linear):
            return self.schedule(progress)
        keeps = self.keras is None or self._rate is not None
        return None if keeps else float(self.keras.learning_rate)  # type: ignore[union-attr]

    @property
    def _rate(self) -> Any:
        """The learning rate; None where Keras computes it by a schedule of its own, which gives a tensor."""
        return self._learning_rate if self.keras is None else getattr(self.keras.learning_rate, 'value', None)

    @property
    def _held(self) -> dict[str, tf.Variable]:
        """The variables other than zoo's moments, by the names in `state`."""
        if self.keras is None:
            return {'iterations': self.iterations, 'learning_rate': self._learning_rate}
        return {str(i): variable.value for i, variable in enumerate(self.keras.variables)}

    def state(self, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Give the arrays to save, by names that do not depend on their layout in memory.

        Zoo's Adam and RAdam have ``iterations``, ``learning_rate``, and for each weight ``first_moment/<name>`` and
        ``second_moment/<name>``. An optimizer of Keras has its own variables: ``0``, ``1``, ….

        Args:
            names: the names of ``variables``, in their order.
        """
        found = {key: variable.numpy() for key, variable in self._held.items()}
        for kind, moments in self._moments.items():
            values = _reshaped([moment.numpy() for moment in moments], self.variables)
            found |= {f'{kind}/{name}': value for name, value in zip(names, values, strict=True)}
        return found

    def restore(self, names: Sequence[str], saved: Mapping[str, np.ndarray]) -> None:
        """Take over what `state` gave with the same names, in either layout."""
        for key, variable in self._held.items():
            variable.assign(saved[key])
        for kind, moments in self._moments.items():
            values = _reshaped([saved[f'{kind}/{name}'] for name in names], moments)
            for variable, value in zip(moments, values, strict=True):
                variable.assign(value)

    def upgraded(self, names: Sequence[str], saved: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Rename the arrays of zoo's Adam from the numbers ``0``, ``1``, … of checkpoint format 1 to the names of now.

        In that format the iterations and the learning rate come first, then the first moments of all weights, then the
        second ones: one vector each, or an array for each weight. Other arrays are given as they are.
        """
        numbers = [saved[str(i)] for i in range(len(saved)) if str(i) in saved]
        if self.keras is not None or len(numbers) < len(saved):
            return dict(saved)
        moments = numbers[2:]
        if [x.size for x in moments] != (self._sizes * 2 if len(moments) > 2 else [sum(self._sizes)] * 2):
            return dict(saved)
        keys = [f'{kind}/{name}' for kind in self._moments for name in names]
        values = [*numbers[:2], *_reshaped(moments, self.variables * 2)]
        return dict(zip(['iterations', 'learning_rate', *keys], values, strict=True))

    def fitting(self, names: Sequence[str], saved: Mapping[str, np.ndarray], entry: Any) -> dict[str, np.ndarray]:
        """Give the `state` to take over from a saved optimizer that this one replaces: all but the learning rate.

        If the kind or a shape differs, this optimizer starts anew and a warning is logged. ``entry`` is the saved
        optimizer's spec, or ``{'custom': class name}``.
        """
        own = self.state(names)
        kind = entry.get('custom', entry.get('name', 'Adam'))
        kind = f'{OWN[kind.lower()]} of zoo' if _is_ours(entry) else kind
        own_kind = type(self.keras).__name__ if self.keras is not None else f'{self._own_name} of zoo'
        fits = kind.lower() == own_kind.lower() and own.keys() == saved.keys()
        if not fits or any(saved[name].shape != value.shape for name, value in own.items()):
            log.warning(
                '%s was saved as another kind of optimizer (%s) than the one given now (%s), which starts anew.',
                self.label,
                kind,
                own_kind,
            )
            return own
        return {**saved, **{key: own[key] for key, variable in self._held.items() if variable is self._rate}}


def _reshaped(arrays: Sequence[np.ndarray], like: Sequence[tf.Variable]) -> list[np.ndarray]:
    """Give the same numbers, in the same order, as arrays of other shapes."""
    vector = np.concatenate([array.ravel() for array in arrays])
    pieces = np.split(vector, np.cumsum([int(np.prod(variable.shape)) for variable in like])[:-1])
    return [piece.reshape(variable.shape) for piece, variable in zip(pieces, like, strict=True)]


def _is_ours(spec: dict[str, Any]) -> bool:
    """Whether a spec means an optimizer of zoo's own, and not Keras' Adam."""
    if 'custom' in spec or str(spec.get('name', 'Adam')).lower() not in OWN or not ADAM.keys() >= spec.keys():
        return False
    return isinstance(spec.get('learning_rate', ADAM['learning_rate']), Real | Linear)


def _checked(spec: dict[str, Any], label: str) -> dict[str, Any]:
    """Check the values of a spec, and give them in the types that are kept."""
    rate = spec.get('learning_rate')
    if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
        raise InvalidValue(
            f'{label}: learning_rate is {a_type(rate)}, which a spec cannot hold: give the Keras optimizer '
            'itself in place of the spec, or a Linear schedule.'
        )
    try:
        return {key: PARAMS[key].check(value) if key in PARAMS else value for key, value in spec.items()}
    except ValueError as error:
        raise InvalidValue(f'{label}: {error}') from None


def _from_spec(spec: dict[str, Any], label: str) -> keras.optimizers.Optimizer:
    name = spec.get('name', 'Adam')
    classes = {
        key: value
        for key, value in vars(keras.optimizers).items()
        # Neither the base nor LossScaleOptimizer, which wraps another one, takes a learning rate.
        if isinstance(value, type)
        and issubclass(value, keras.optimizers.Optimizer)
        and 'learning_rate' in inspect.signature(value).parameters
    }
    by_lower = {key.lower(): value for key, value in classes.items()}
    if str(name).lower() not in by_lower:
        if str(name).lower() in OWN:  # with a key that it does not have
            key = next(key for key in spec if key not in ADAM)
            raise InvalidValue(f'{label}: {unknown(f"key of {OWN[name.lower()]}", key, ADAM)}')
        raise InvalidValue(f'{label}: {unknown("optimizer", name, list(dict.fromkeys([*OWN.values(), *classes])))}')
    cls = by_lower[str(name).lower()]
    known = [key for key in inspect.signature(cls).parameters if key not in ('name', 'kwargs')]
    for key in spec:
        if key not in ('name', 'clip_norm', *known):
            raise InvalidValue(f'{label}: {unknown(f"key of {cls.__name__}", key, ("name", "clip_norm", *known))}')
    for key, needed in (('nesterov', 'momentum'), ('ema_momentum', 'use_ema'), ('ema_overwrite_frequency', 'use_ema')):
        if spec.get(key) and needed in known and not spec.get(needed):
            raise InvalidValue(f'{label}: {key}={spec[key]} changes nothing without {needed}: give both, or neither.')
    arguments = {key: value for key, value in spec.items() if key not in ('name', 'clip_norm')}
    arguments['learning_rate'] = value_at(spec.get('learning_rate', ADAM['learning_rate']), 0.0)
    try:
        return cls(**arguments)
    except (TypeError, ValueError) as error:
        raise InvalidValue(f'{label}: Keras refuses this optimizer: {str(error).rstrip(".")}.') from None


def rectification(step: tf.Tensor, beta_2: float) -> tuple[tf.Tensor, tf.Tensor]:
    """Compute the factor of RAdam's step ``t``, and whether the variance of the adaptive rate is known by then.

    Liu et al. 2020, algorithm 2: ``ρ_∞ = 2 / (1 − β₂) − 1``, ``ρ_t = ρ_∞ − 2 t β₂ᵗ / (1 − β₂ᵗ)``, the variance is
    tractable if ``ρ_t > 4``, and then ``r_t = √((ρ_t − 4) (ρ_t − 2) ρ_∞ / ((ρ_∞ − 4) (ρ_∞ − 2) ρ_t))``.

    Args:
        step: integer, from 1 on.

    Returns:
        float32 ``r_t``, without meaning where the variance is not known; and a bool.
    """
    # Nearly equal numbers of some thousands are subtracted: float32 would be off by a tenth.
    t, limit = tf.cast(step, tf.float64), 2.0 / (1.0 - beta_2) - 1.0
    power = tf.pow(tf.constant(beta_2, tf.float64), t)
    length = limit - 2.0 * t * power / (1.0 - power)
    known = length > 4.0
    length = tf.where(known, length, tf.constant(5.0, tf.float64))
    ratio = (length - 4.0) * (length - 2.0) * limit / (((limit - 4.0) * (limit - 2.0) or 1.0) * length)
    return tf.cast(tf.sqrt(tf.abs(ratio)), tf.float32), known


def mean_over(all_reduce: AllReduce | None, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Give the means of float32 tensors of any shapes over all learners, exchanged as one array.

    To be called inside a compiled function. Every learner must make the same exchanges in the same order. The graph
    runs an exchange as soon as its tensors are computed. Two exchanges that share no tensor need
    ``tf.control_dependencies`` to keep their order.
    Without ``all_reduce`` the tensors are given unchanged.
    """
    if all_reduce is None:
        return list(tensors)
    flat = tf.concat([tf.reshape(x, [-1]) for x in tensors], 0)
    mean = tf.numpy_function(lambda x: all_reduce(x, 'mean'), [flat], tf.float32)
    mean.set_shape(flat.shape)
    pieces = tf.split(mean, [int(np.prod(x.shape)) for x in tensors])
    return [tf.reshape(piece, x.shape) for piece, x in zip(pieces, tensors, strict=True)]


def polyak(targets: Iterable[tf.Variable], sources: Iterable[tf.Variable], tau: float) -> None:
    """Move targets toward sources: target ← (1 − τ) target + τ source. Variables of integers or bool are copied.

    A network's moving statistics are among its variables: they follow as slowly as its weights.
    """
    if tau == 1.0:
        copy_weights(targets, sources)  # the formula below would round
        return
    for target, source in zip(targets, sources, strict=True):
        if not target.dtype.is_floating:
            target.assign(source)
            continue
        # target − τ (target − source) by the kernel of gradient descent saves one pass over the weights.
        tf.raw_ops.ResourceApplyGradientDescent(var=target.handle, alpha=tau, delta=target - source)


def copy_weights(targets: Iterable[tf.Variable], sources: Iterable[tf.Variable]) -> None:
    """Copy the values of the sources to the targets."""
    for target, source in zip(targets, sources, strict=True):
        target.assign(source)
