"""Heads: what the last layer of a network has to give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import keras

from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.networks import torsos
from zoo.common.networks.layers import noisy
from zoo.common.networks.layers.dense import Dense
from zoo.common.networks.layers.dueling import DuelingHead


@dataclass(frozen=True)
class Head:
    """What a network takes besides the observation, and what it has to give.

    Attributes:
        units: the size of its output.
        meaning: what the output is, for messages: ``'the logits of 2 actions'``.
        gain: gain of the head's orthogonal initialiser; None for the torso's own initialiser.
        activation: of the output.
        also_accepts: another size of output that a complete network may have.
        dueling: separate streams for the state's value and the advantages (Wang et al. 2016, eq. 9).
        action_size: of a critic of state and action, the length of the action that it takes; 0 of any other network.
        values: numbers for each action, of which ``units`` are made.
        sigma: σ₀ of noisy layers (Fortunato et al. 2018); 0 for plain ones.
    """

    units: int
    meaning: str
    gain: float | None = None
    activation: str = 'linear'
    also_accepts: int | None = None
    dueling: bool = False
    action_size: int = 0
    values: int = 1
    sigma: float = 0.0


def value_head(gain: float | None = None, action_size: int = 0) -> Head:
    """One number: the value of a state, or of a state and an action of ``action_size`` entries."""
    return Head(1, 'one value', gain, action_size=action_size)


def action_value_head(
    actions: int, dueling: bool = False, values: int = 1, named: str = 'values', sigma: float = 0.0
) -> Head:
    """What there is to say of each of ``actions`` discrete actions.

    Args:
        actions: how many.
        dueling: separate streams for the state's value and the advantages.
        values: numbers for each action: one value, or the atoms or quantiles of its distribution.
        named: what these are, for messages.
        sigma: σ₀ of noisy layers; 0 for plain ones.
    """
    meaning = f'the {named} of {actions} actions' if values == 1 else f'{values} {named} of each of {actions} actions'
    return Head(actions * values, meaning, dueling=dueling, values=values, sigma=sigma)


def deterministic_head(size: int, gain: float | None = None) -> Head:
    """An action in [−1, 1]."""
    return Head(size, f'an action of {size} entries in [-1, 1]', gain, 'tanh')


def stochastic_head(adaptor: ActionAdaptor, gain: float | None = None, free_log_std: bool = True) -> Head:
    """The parameters of the action's distribution.

    Args:
        adaptor: the action adaptor.
        gain: of the initialiser.
        free_log_std: a Gaussian's log standard deviation is a variable of its own rather than an output.
    """
    outputs = sum(part.outputs for part in adaptor.parts)
    if not free_log_std:
        return Head(adaptor.param_size, _meaning(adaptor), gain)
    return Head(outputs, _meaning(adaptor), gain, also_accepts=adaptor.param_size)


def best_action_head(adaptor: ActionAdaptor, gain: float | None = None) -> Head:
    """Logits and means, of which a deterministic policy takes the best action, for every action space."""
    return Head(sum(part.outputs for part in adaptor.parts), _meaning(adaptor), gain)


def _meaning(adaptor: ActionAdaptor) -> str:
    names = {'gaussian': 'means', 'squashed_gaussian': 'means and log standard deviations'}
    return ' and '.join(
        f'{names.get(part.kind, "logits")} for {part.kind} {part.path or "action"}' for part in adaptor.parts
    )


def make_head(
    head: Head, width: int, initial: str, seeds: torsos.SeedSequence, hidden: bool = False
) -> keras.Sequential:
    """The head as a Keras model; ``hidden`` puts a layer before it, where an action joins an encoded image.

    It is of float32 whatever the torso computes in, and whatever Keras' global dtype policy is.
    """
    kernel = torsos.initializer(
        'orthogonal' if head.gain is not None else initial, seeds(), 1.0 if head.gain is None else head.gain
    )
    dtype = 'float32'
    layers: list[Any] = [keras.Input((width,), dtype=dtype)]
    if hidden:
        joined = torsos.initializer(initial, seeds())
        layers.append(Dense(256, 'relu', kernel_initializer=joined, dtype=dtype))

    def last(units: int, name: str) -> keras.layers.Layer:
        if head.sigma:
            return noisy.NoisyDense(units, head.sigma, (seeds(), seeds()), dtype=dtype, name=name)
        return Dense(units, head.activation, kernel_initializer=kernel, dtype=dtype, name=name)

    if head.dueling:
        value, advantage = last(head.values, 'value'), last(head.units, 'advantage')
        layers.append(DuelingHead(value, advantage, head.values, dtype=dtype, name='dueling'))
    else:
        layers.append(last(head.units, 'head'))
    return keras.Sequential(layers)
