"""Values that change over training."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any

from zoo.common.tools.errors import Failure, InvalidValue


@dataclass(frozen=True)
class Linear:
    """A value that changes linearly from ``start`` to ``end`` in a fraction ``until`` of the training, and then stays.

    Raises:
        ValueError: a value that is not a finite number, or ``until`` outside [0, 1].
    """

    start: float
    end: float = 0.0
    until: float = 1.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            real = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
            if not real or (name == 'until' and not 0.0 <= value <= 1.0):
                wanted = 'a fraction of the training, from 0 to 1' if name == 'until' else 'a finite number'
                raise InvalidValue(f'{name} of a Linear schedule is {value!r}: give {wanted}.')

    def __call__(self, progress: float) -> float:
        """Return the value at ``progress`` in [0, 1]."""
        return self.end if progress >= self.until else self.start + (self.end - self.start) * (progress / self.until)

    def __tf_tensor__(self, dtype: Any = None, name: str | None = None) -> Any:
        # An algorithm of a user's own reads its field. TensorFlow would word a ValueError or a TypeError anew.
        raise Failure(
            f'{self} stands where an update needs a number: give a number; with a method improve name the parameter in '
            'scheduled and read now[name].'
        )


def value_at(schedule: float | Linear, progress: float) -> float:
    """Return the value of a number or a schedule at ``progress`` in [0, 1]."""
    return schedule(progress) if isinstance(schedule, Linear) else schedule


def tensor_at(schedule: float | Linear, progress: Any) -> Any:
    """Return :func:`value_at` for a tensor ``progress``, float32 ``[]``, to be traced."""
    import tensorflow as tf

    if not isinstance(schedule, Linear):
        return tf.constant(schedule, tf.float32)
    if not schedule.until:
        return tf.constant(schedule.end, tf.float32)
    done = tf.minimum(progress / schedule.until, 1.0)
    return schedule.start + (schedule.end - schedule.start) * done


def schedule_to_json(value: Any) -> Any:
    """Return a schedule as JSON data, and anything else as it is."""
    return {'schedule': 'linear', **asdict(value)} if isinstance(value, Linear) else value


def schedule_from_json(value: Any) -> Any:
    """Return the schedule that :func:`schedule_to_json` wrote, and anything else as it is."""
    if isinstance(value, dict) and value.get('schedule') == 'linear':
        return Linear(value['start'], value['end'], value['until'])
    return value
