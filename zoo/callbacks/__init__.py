"""Callbacks: what is done while an agent trains. Give them to ``learn(callbacks=[…])`` or ``zoo.train(callbacks=[…])``.

A callback is any function of a :class:`zoo.common.training.training.Training`. It is called whenever a row is logged,
and ends the training by returning False. A subclass of :class:`Callback` can do more.
"""

import warnings
from typing import TYPE_CHECKING, Any

from zoo.callbacks.base import Callback
from zoo.callbacks.best import KeepBest
from zoo.callbacks.evaluate import Evaluate
from zoo.callbacks.film import Film
from zoo.callbacks.saving import Checkpoint, StopOnPlateau
from zoo.callbacks.trackers import MLflow, WandB

__all__ = ['Callback', 'Checkpoint', 'Evaluate', 'Film', 'KeepBest', 'MLflow', 'StopOnPlateau', 'WandB']


if not TYPE_CHECKING:  # where it is seen, any name seems to exist

    def __getattr__(name: str) -> Any:
        if name != 'Record':
            from zoo.common.tools.habits import PLACES

            told = f': {PLACES[name]}.' if name in PLACES else ''
            raise AttributeError(f'module {__name__!r} has no attribute {name!r}{told}')
        warnings.warn('zoo.callbacks.Record is called zoo.callbacks.Film now.', DeprecationWarning, stacklevel=2)
        return Film
