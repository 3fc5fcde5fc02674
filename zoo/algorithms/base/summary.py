"""What an agent is, in a page: ``agent.summary()``."""

from __future__ import annotations

import html
import inspect
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import keras

from zoo.common import spaces
from zoo.common.acting.stochastic import Stochastic
from zoo.common.adaptors.observation import Feature, features
from zoo.common.networks.layers.dueling import DuelingHead
from zoo.common.networks.layers.noisy import NoisyDense
from zoo.common.networks.pieces import activation_name
from zoo.common.tools.printing import Table

if TYPE_CHECKING:
    from zoo.common.adaptors.parts import Part
    from zoo.common.networks.network import Network

#: Parameters that are shown by themselves.
_SHOWN_APART = ('observation_space', 'action_space', 'net_list', 'optimizers_list')

#: Characters of a value in a table.
_WIDTH = 60


@dataclass(frozen=True)
class Summary:
    """An agent in a few tables, to be printed; a notebook shows them as such.

    Attributes:
        title: algorithm, number of weights and steps.
        tables: observation, action, one for each network, optimizers, parameters.
        weights: how many numbers the optimizers move.
    """

    title: str
    tables: tuple[Table, ...]
    weights: int

    def __repr__(self) -> str:
        lines = [self.title]
        for table in self.tables:
            lines += ['', table.title, *(f'  {line}' for line in table.lines())]
        return '\n'.join(lines)

    def _repr_html_(self) -> str:
        return f'<p><b>{html.escape(self.title)}</b></p>{"".join(table.html() for table in self.tables)}'


def summarize(agent: Any) -> Summary:
    """The summary of an agent; see :meth:`zoo.algorithms.base.algorithm.Algorithm.summary`."""
    weights = _count(agent.trainable_variables)
    tables = [_observation(agent), _action(agent)]
    tables += [_network(agent, name, network) for name, network in agent.networks.items()]
    tables += [_optimizers(agent), _parameters(agent)]
    title = f'{type(agent).__name__}: {weights:,} weights that are trained, {agent.steps:,} steps of experience'
    return Summary(title, tuple(table for table in tables if table.rows or table.below), weights)


def _count(variables: Iterable[Any]) -> int:
    return sum(math.prod(variable.shape) for variable in variables)


def _shape(shape: Sequence[int | None]) -> str:
    """``256``, ``84 × 84 × 4``; the batch's axis is left out."""
    return ' × '.join(str(n) for n in shape[1:]) or '1'


def _observation(agent: Any) -> Table:
    space = agent.observation_space
    found = features(space, agent.normalize_obs)
    rows = [
        (
            item.path or 'observation',
            spaces.describe(spaces.leaves(space)[item.path]),
            *_encoded(item, agent.statistics),
        )
        for item in found
    ]
    if agent.mask_path is not None:
        mask = spaces.describe(spaces.leaves(space)[agent.mask_path])
        rows.append((agent.mask_path, mask, 'the mask of the actions, which no network sees', ''))
    return Table(
        f'Observation: {_short(spaces.describe(space))}', ('part', 'space', 'encoded as', 'shape'), tuple(rows)
    )


def _encoded(item: Feature, statistics: dict[str, Any]) -> tuple[str, str]:
    """How a part is encoded, and in what shape the network is given it."""
    shape = ' × '.join(map(str, item.shape)) or '1'
    if item.kind == 'image':
        order = ', channels put last' if item.channels_first else ''
        scaled = ' scaled to [0, 1]' if item.scale is not None else ''
        return f'image{scaled}{order}, convolutions', shape
    names = {
        'one_hot': 'one-hot' if len(item.counts) == 1 else f'{len(item.counts)} one-hot vectors',
        'index': f'embedding of {item.counts[0]:,} values' if item.counts else '',
        'binary': 'zeros and ones',
        'vector': 'vector',
    }
    normal = ', normalised by its running mean and deviation' if item.path in statistics else ''
    return names[item.kind] + normal, shape


def _action(agent: Any) -> Table:
    leaves = spaces.leaves(agent.action_space)
    rows = [
        (part.path or 'action', spaces.describe(leaves[part.path]), _chosen(agent, part), str(part.size))
        for part in agent.action_adaptor.parts
    ]
    explores = inspect.cleandoc(type(agent.behavior).__doc__ or '').partition('\n')[0]
    title = f'Action: {_short(spaces.describe(agent.action_space))}'
    return Table(title, ('part', 'space', 'chosen by', 'size'), tuple(rows), f'in training: {explores}')


def _chosen(agent: Any, part: Part) -> str:
    """How a part of the action comes about."""
    if not isinstance(agent.behavior, Stochastic):
        return f'the highest of {part.counts[0]} values' if part.counts else 'a number in [-1, 1] for each entry'
    names = {
        'categorical': f'categorical distribution over {part.counts[0] if part.counts else 0} actions',
        'multi_categorical': f'{len(part.counts)} categorical distributions',
        'bernoulli': 'Bernoulli distributions',
        'gaussian': 'normal distribution, ',
        'squashed_gaussian': 'normal distribution squashed by tanh, ',
    }
    found = names[part.kind]
    if 'gaussian' in part.kind:
        free = agent.policy.log_std is not None
        found += 'its deviation a variable' if free else 'its deviation by the network'
    return found


def _network(agent: Any, name: str, network: Network) -> Table:
    rows: list[tuple[str, str, str, str]] = []
    if network.shares:
        owner = next(other for other in agent.networks.values() if other.torso is network.torso)
        rows.append((f'torso of {owner.name}', 'shared', '', '0'))
    else:
        rows += _layers(network.torso)
        if network.core is not None and network.custom is None:
            for cell in network.core.cells:
                rows.append(
                    (cell.layer.name, type(cell.layer).__name__, str(cell.units), f'{_count(cell.variables):,}')
                )
    if network.head is not None:
        rows += _layers(network.head)
    made = f' ({network.custom})' if network.custom is not None else ''
    wanted = network.wanted
    title = (
        f'Network {name}{made}: {"observation and action" if wanted.action_size else "observation"} to {wanted.meaning}'
    )
    below = f'{_count(network.trainable_variables):,} weights that are trained'
    below += ', and a target of the same shape' if network.target is not None else ''
    return Table(title, ('layer', 'type', 'output', 'weights'), tuple(rows), below, ('weights',))


def _layers(model: Any) -> list[tuple[str, str, str, str]]:
    """The layers of a Keras model; anything else as one."""
    if not isinstance(model, keras.Model) or not hasattr(model, 'layers'):
        name = getattr(model, 'name', None) or getattr(model, '__name__', '')
        return [(str(name), type(model).__name__, '', f'{_count(getattr(model, "trainable_variables", ())):,}')]
    rows = []
    for layer in model.layers:
        kind = type(layer).__name__
        if isinstance(layer, keras.layers.InputLayer):
            continue
        if isinstance(layer, DuelingHead):
            kind += ' of two noisy layers' if isinstance(layer.value, NoisyDense) else ' of two layers'
        activation = activation_name(getattr(layer, 'activation', None) or keras.activations.linear)
        kind += f', {activation}' if activation not in ('', 'linear') else ''
        try:
            shape = _shape(layer.output.shape)
        except (AttributeError, ValueError):  # several outputs, or none that Keras knows of
            shape = ''
        rows.append((layer.name, kind, shape, f'{_count(layer.weights):,}'))
    return rows


def _optimizers(agent: Any) -> Table:
    rows = []
    for (name, optimizer), entry in zip(agent.optimizers.items(), agent.optimizers_list, strict=True):
        if isinstance(entry, dict):
            entry = {'clip_norm': optimizer.clip_norm} | entry
            kind = str(entry.get('name', 'Adam'))
            settings = ', '.join(
                f'{key}={value!r}' for key, value in entry.items() if key != 'name' and value is not None
            )
        else:
            kind, settings = type(entry).__name__, 'an optimizer of Keras that was handed over'
        rows.append((name, kind, settings, f'{_count(optimizer.variables):,}'))
    return Table('Optimizers', ('name', 'type', 'settings', 'weights'), tuple(rows), right=('weights',))


def _parameters(agent: Any) -> Table:
    """What differs from the defaults of the algorithm's constructor."""
    rows = [
        (name, repr(getattr(agent, name)), param.default_text, param.meaning)
        for name, param in agent.declared().items()
        if name not in _SHOWN_APART and getattr(agent, name) != param.default
    ]
    below = '' if rows else f'all as {type(agent).__name__} has them'
    return Table(
        'Parameters that differ from the defaults', ('name', 'value', 'default', 'meaning'), tuple(rows), below
    )


def _short(text: str) -> str:
    return text if len(text) <= _WIDTH else f'{text[: _WIDTH - 1]}…'
