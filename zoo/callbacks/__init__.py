"""Callbacks: what is done while an agent trains. Give them to ``learn(callbacks=[…])`` or
``zoo.train(callbacks=[…])``."""

from zoo.callbacks.base import Callback
from zoo.callbacks.evaluate import Evaluate
from zoo.callbacks.film import Record
from zoo.callbacks.saving import Checkpoint, StopOnPlateau
from zoo.callbacks.trackers import MLflow, WandB

__all__ = ['Callback', 'Checkpoint', 'Evaluate', 'MLflow', 'Record', 'StopOnPlateau', 'WandB']
