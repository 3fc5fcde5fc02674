"""``agent.summary()``: an agent on one page."""

from __future__ import annotations

import html
import inspect
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import keras

from zoo.algorithms.base.saving import APART
from zoo.common import spaces
from zoo.common.acting.stochastic import Stochastic
from zoo.common.adaptors.observation import Feature, features
from zoo.common.networks.layers.dueling import DuelingHead
from zoo.common.networks.layers.noisy import NoisyDense
from zoo.common.networks.pieces import activation_name
from zoo.common.tools.printing import Table
from zoo.common.training.agent import Agent

if TYPE_CHECKING:
    import tensorflow as tf

    from zoo.common.adaptors.parts import Part
    from zoo.common.networks.network import Network
    from zoo.common.tools.params import Param

#: Characters of a value in a table.
_WIDTH = 60


class SummarizedAgent(Agent, Protocol):
    """An agent whose parts a summary shows.

    Attributes:
        normalize_obs: whether vector observations are normalized.
        mask_path: where the observation has the mask of actions; None where there is no mask.
    """

    normalize_obs: bool
    mask_path: str | None

    @property
    def trainable_variables(self) -> list[tf.Variable]:
        """Every weight that an optimizer moves."""

    @classmethod
    def declared(cls) -> dict[str, Param]:
        """Give the hyper-parameters by name."""


@dataclass(frozen=True)
class Summary:
    """An agent in a few tables. It is made to be printed; a notebook shows real tables.

    Attributes:
        title: algorithm, number of weights and steps.
        tables: observation, action, one for each network, optimizers, parameters.
        weights: the number of weights that the optimizers move.
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


def summarize(agent: SummarizedAgent) -> Summary:
    """Make the summary of an agent."""
    weights = _count(agent.trainable_variables)
    tables = [_observation(agent), _action(agent)]
    tables += [_network(agent, name, network) for name, network in agent.networks.items()]
    tables += [_optimizers(agent), _parameters(agent)]
    title = f'{type(agent).__name__}: {weights:,} weights that are trained, {agent.steps:,} steps of experience'
    return Summary(title, tuple(table for table in tables if table.rows or table.below), weights)


def _count(variables: Iterable[Any]) -> int:
    return sum(math.prod(variable.shape) for variable in variables)


def _shape(shape: Sequence[int | None]) -> str:
    """Write a shape as ``84 × 84 × 4``, without the axis of the batch."""
    return ' × '.join(str(n) for n in shape[1:]) or '1'


def _observation(agent: SummarizedAgent) -> Table:
    space = agent.observation_space
    found = features(space, agent.normalize_obs)
    described = {path: spaces.describe(leaf) for path, leaf in spaces.leaves(space).items()}
    rows = [(x.path or 'observation', described[x.path], *_encoded(x, agent.statistics)) for x in found]
    if agent.mask_path is not None:
        mask = described[agent.mask_path]
        rows.append((agent.mask_path, mask, 'the mask of the actions, which no network sees', ''))
    title = f'Observation: {_short(spaces.describe(space))}'
    return Table(title, ('part', 'space', 'encoded as', 'shape'), tuple(rows))


def _encoded(item: Feature, statistics: dict[str, Any]) -> tuple[str, str]:
    """Say how a part is encoded, and in what shape the network gets it."""
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
    normal = ', normalized by its running mean and deviation' if item.path in statistics else ''
    return names[item.kind] + normal, shape


def _action(agent: SummarizedAgent) -> Table:
    leaves = spaces.leaves(agent.action_space)
    rows = [
        (part.path or 'action', spaces.describe(leaves[part.path]), _chosen(agent, part), str(part.size))
        for part in agent.action_adaptor.parts
    ]
    explores = inspect.cleandoc(type(agent.behavior).__doc__ or '').partition('\n')[0]
    title = f'Action: {_short(spaces.describe(agent.action_space))}'
    return Table(title, ('part', 'space', 'chosen by', 'size'), tuple(rows), f'in training: {explores}')


def _chosen(agent: SummarizedAgent, part: Part) -> str:
    """Say how a part of the action is chosen."""
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
        policy: Any = getattr(agent, 'policy', None)  # all that act by a Stochastic behavior have one
        found += 'its deviation a variable' if policy.log_std is not None else 'its deviation by the network'
    return found


def _network(agent: SummarizedAgent, name: str, network: Network) -> Table:
    rows: list[tuple[str, str, str, str]] = []
    if network.shares:
        owner = next(other for other in agent.networks.values() if other.torso is network.torso)
        rows.append((f'torso of {owner.name}', 'shared', '', '0'))
    else:
        rows += _layers(network.torso)
        if network.core is not None and network.custom is None:
            for cell in network.core.cells:
                kind = type(cell.layer).__name__
                rows.append((cell.layer.name, kind, str(cell.units), f'{_count(cell.variables):,}'))
    if network.head is not None:
        rows += _layers(network.head)
    made = f' ({network.custom})' if network.custom is not None else ''
    wanted = network.wanted
    inputs = 'observation and action' if wanted.action_size else 'observation'
    title = f'Network {name}{made}: {inputs} to {wanted.meaning}'
    below = f'{_count(network.trainable_variables):,} weights that are trained'
    below += ', and a target of the same shape' if network.target is not None else ''
    return Table(title, ('layer', 'type', 'output', 'weights'), tuple(rows), below, ('weights',))


def _layers(model: Any) -> list[tuple[str, str, str, str]]:
    """Give a row for each layer of a Keras model, and one row for anything else."""
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
        except (AttributeError, ValueError):  # several outputs, or none known to Keras
            shape = ''
        rows.append((layer.name, kind, shape, f'{_count(layer.weights):,}'))
    return rows


def _optimizers(agent: SummarizedAgent) -> Table:
    rows = []
    for (name, optimizer), entry in zip(agent.optimizers.items(), agent.optimizers_list, strict=True):
        if isinstance(entry, dict):
            entry = {'clip_norm': optimizer.clip_norm} | entry
            kind = str(entry.get('name', 'Adam'))
            given = {key: value for key, value in entry.items() if key != 'name' and value is not None}
            settings = ', '.join(f'{key}={value!r}' for key, value in given.items())
        else:
            kind, settings = type(entry).__name__, 'an optimizer of Keras that was given'
        rows.append((name, kind, settings, f'{_count(optimizer.variables):,}'))
    return Table('Optimizers', ('name', 'type', 'settings', 'weights'), tuple(rows), right=('weights',))


def _parameters(agent: SummarizedAgent) -> Table:
    rows = [
        (name, repr(getattr(agent, name)), param.default_text, param.meaning)
        for name, param in agent.declared().items()
        if name not in APART and getattr(agent, name) != param.default
    ]
    below = '' if rows else f'all as {type(agent).__name__} has them'
    columns = ('name', 'value', 'default', 'meaning')
    return Table('Parameters that differ from the defaults of the class', columns, tuple(rows), below)


def _short(text: str) -> str:
    return text if len(text) <= _WIDTH else f'{text[: _WIDTH - 1]}…'
