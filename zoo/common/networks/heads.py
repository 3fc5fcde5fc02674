"""Heads: what the last layer of a network gives."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import keras

from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.networks import pieces
from zoo.common.networks.layers import noisy
from zoo.common.networks.layers.dense import Dense
from zoo.common.networks.layers.dueling import DuelingHead


@dataclass(frozen=True)
class Head:
    """What a network takes besides the observation, and what it gives.

    Attributes:
        units: size of the output.
        meaning: what the output is, for messages: ``'the logits of 2 actions'``.
        gain: of the orthogonal initializer; None: the head has the torso's initializer.
        also_accepts: another output size that a complete network may have.
        dueling: separate streams for the state's value and the advantages (Wang et al. 2016, eq. 9).
        action_size: length of the action that a critic of state and action takes; 0 for any other network.
        values: numbers for each action; ``units`` is a multiple of it.
        sigma: σ₀ of noisy layers (Fortunato et al. 2018); 0 for plain layers.
        choices: places in the output, begin and end, that must not be probabilities: the logits or values of one
            choice, or the logit of one switch.
        is_value: whether the output is values or their atoms, which may be of any size.
        beside: the head of another network that a complete network may serve too, by a second output; None: there is
            no such network.
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
    choices: tuple[tuple[int, int], ...] = ()
    is_value: bool = False
    beside: Head | None = None


def value_head(gain: float | None = None, action_size: int = 0) -> Head:
    """One number: the value of a state, or of a state and an action of ``action_size`` entries."""
    return Head(1, 'one value', gain, action_size=action_size, is_value=True)


def action_value_head(
    actions: int, dueling: bool = False, values: int = 1, named: str = 'values', sigma: float = 0.0
) -> Head:
    """For each action one value, or the ``values`` atoms or quantiles of its distribution, which are ``named`` so."""
    meaning = f'the {named} of {actions} actions' if values == 1 else f'{values} {named} of each of {actions} actions'
    choices = _places([values] * actions if values > 1 else [actions])
    return Head(actions * values, meaning, dueling=dueling, values=values, sigma=sigma, choices=choices, is_value=True)


def deterministic_head(size: int, gain: float | None = None) -> Head:
    """An action in [−1, 1]."""
    return Head(size, f'an action of {size} entries in [-1, 1]', gain, 'tanh')


def stochastic_head(adaptor: ActionAdaptor, gain: float | None = None, free_log_std: bool = True) -> Head:
    """The parameters of the action's distribution; a Gaussian's free log standard deviation is a separate variable."""
    if not free_log_std:
        return Head(adaptor.param_size, _meaning(adaptor), gain, choices=_choices(adaptor, False))
    head = best_action_head(adaptor, gain)
    return replace(head, also_accepts=adaptor.param_size, choices=_choices(adaptor))


def best_action_head(adaptor: ActionAdaptor, gain: float | None = None) -> Head:
    """Logits and means, from which a deterministic policy takes the best action; for every action space."""
    units = sum(part.outputs for part in adaptor.parts)
    return Head(units, _meaning(adaptor), gain, choices=_choices(adaptor, of_best=True))


def _choices(adaptor: ActionAdaptor, free_log_std: bool = True, of_best: bool = False) -> tuple[tuple[int, int], ...]:
    """The `Head.choices`. Where the best action alone counts, a choice may have probabilities, but no switch."""
    sizes: list[int] = []
    wanted: list[bool] = []
    for part in adaptor.parts:
        if 'gaussian' in part.kind:
            sizes.append(part.outputs if free_log_std else part.param_size)
            wanted.append(False)
        else:
            sizes += part.counts or [1] * part.size
            wanted += [count > 1 and not of_best for count in part.counts] or [True] * part.size
    return tuple(place for place, is_wanted in zip(_places(sizes), wanted, strict=True) if is_wanted)


def _places(sizes: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Begin and end of each of some pieces, one after another."""
    return tuple(itertools.pairwise(itertools.accumulate(sizes, initial=0)))


def _meaning(adaptor: ActionAdaptor) -> str:
    names = {'gaussian': 'means', 'squashed_gaussian': 'means and log standard deviations'}
    return ' and '.join(
        f'{names.get(part.kind, "logits")} for {part.kind} {part.path or "action"}' for part in adaptor.parts
    )


def make_head(
    head: Head, width: int, initial: str, seeds: pieces.SeedSequence, hidden: bool = False
) -> keras.Sequential:
    """The head as a Keras model, in float32 whatever the torso's dtype and Keras' global dtype policy.

    ``hidden`` puts a layer before it, which mixes an action with the encoded observation.
    """
    name, gain = (initial, 1.0) if head.gain is None else ('orthogonal', head.gain)
    kernel, dtype = pieces.initializer(name, seeds(), gain), 'float32'
    layers: list[Any] = [keras.Input((width,), dtype=dtype)]
    if hidden:
        joined = pieces.initializer(initial, seeds())
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
