"""The networks of an agent as a picture: the output of each layer, and what the networks share."""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gymnasium.spaces import Discrete, MultiBinary, MultiDiscrete, Space
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from zoo.common import spaces
from zoo.common.plots.figures import INK, NotebookFigure, save, verbatim

#: The size of a box, and the distance of the middles of neighbors, in inches.
_BOX, _STEP = (1.22, 0.5), (1.52, 0.66)
#: Characters in a line of a box.
_LINE = 19
#: Layers that are not drawn, by the name of their type: they change no number.
_RESHAPING = ('Identity', 'Flatten')
#: Kind of box -> fill and edge. The fills differ in black and white, too.
_FILLS = {
    'input': ('#FFFFFF', '#666666'),
    'plain': ('#F3F3F3', '#999999'),
    'image': ('#CFE3F1', '#0072B2'),
    'dense': ('#E4EEF5', '#0072B2'),
    'recurrent': ('#F3DDB8', '#B27000'),
    'head': ('#F8E2D3', '#D55E00'),
    'output': ('#FFFFFF', '#333333'),
}


@dataclass
class Box:
    """One layer, input or output.

    Attributes:
        kind: a key of the table of fills.
        parents: the boxes from which it takes.
        column, lane: its place, from the left and from the top.
    """

    kind: str
    title: str
    shape: str = ''
    parents: list[Box] = field(default_factory=list)
    column: int = 0
    lane: float = 0.0


class Drawn(Protocol):
    """What a diagram needs of an agent."""

    @property
    def observation_space(self) -> Space:
        """The space of the observations."""

    @property
    def preprocess(self) -> Any:
        """What turns observations into features."""

    @property
    def networks(self) -> Mapping[str, Any]:
        """The networks by name."""

    @property
    def trainable_variables(self) -> Sequence[Any]:
        """The trained weights."""


def network_diagram(
    agent: Drawn, path: str | os.PathLike[str] | None = None, title: str | None = None
) -> NotebookFigure:
    """Draw the networks of an agent, from the parts of the observation through every layer to the outputs.

    The box of a layer has the shape of its output, without the batch axis; layers that only flatten are left out. A
    torso that several networks share is drawn once, with their heads beside it. A recurrent layer has an arrow back to
    itself. A network that is no Keras model is one box. The figure has 120 pixels an inch, and a notebook shows it.

    Args:
        agent: an agent of any algorithm.
        path: the PNG to write, its folder made if need be; None only makes the figure.
        title: above the picture; None: the algorithm and the number of trained weights.
    """
    boxes = boxes_of(agent)
    if title is None:
        weights = sum(math.prod(variable.shape) for variable in agent.trainable_variables)
        title = f'{type(agent).__name__}: {weights:,} weights'
    columns, lanes = 1 + max(box.column for box in boxes), 1 + max(box.lane for box in boxes)
    size = (columns * _STEP[0] + 0.2, lanes * _STEP[1] + 0.55)
    figure = NotebookFigure(figsize=size, dpi=120)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, size[0]), ylim=(0, size[1]))
    axes.axis('off')
    axes.text(0.12, size[1] - 0.12, verbatim(title), va='top', fontsize=12, fontweight='bold', color=INK)
    for box in boxes:
        _draw(axes, box, size[1] - 0.45)
    save(figure, path)
    return figure


def boxes_of(agent: Drawn) -> list[Box]:
    """Return the boxes of an agent's networks, each with its place."""
    owners = [network for network in agent.networks.values() if not network.shares]
    # Networks that are chains can take from one box without a line that crosses another box.
    one_for_all = all(not _is_branched(network.torso) for network in owners)
    inputs, action = _inputs(agent)
    boxes, lane = list[Box](), 0.0
    for network in owners:
        if not one_for_all:
            inputs, action = _inputs(agent)
        action.shape = str(network.wanted.action_size or action.shape)
        found = _torso_boxes(agent, network, inputs, action)
        ends = found[-1:] or [*inputs.values(), *([action] if network.wanted.action_size else [])]
        for name, each in agent.networks.items():
            if each.torso is network.torso:
                found += _head_boxes(name, each, ends, action)
        if not one_for_all:
            found = _taken([*inputs.values(), action], found) + found
        lane = _place(found, lane) + 0.4
        boxes += found
    if one_for_all:
        used = _taken([*inputs.values(), action], boxes)
        for box in used:
            lanes = [other.lane for other in boxes if box in other.parents]
            box.lane = sum(lanes) / len(lanes)
        _move_apart(used, 0.0)
        boxes = used + boxes
    return boxes


def _inputs(agent: Drawn) -> tuple[dict[str, Box], Box]:
    """Boxes of the parts of the observation, by path, and of the action that critics take."""
    leaves = spaces.leaves(agent.observation_space)
    found = {
        item.path: Box('input', item.path or 'observation', _space(leaves[item.path]))
        for item in agent.preprocess.features
    }
    return found, Box('input', 'action')


def _space(leaf: spaces.Leaf) -> str:
    if isinstance(leaf, Discrete):
        return f'one of {leaf.n:,}'
    if isinstance(leaf, MultiDiscrete):
        return 'one each of ' + ', '.join(map(str, leaf.nvec.ravel()))
    return _written(spaces.shape_of(leaf)) + (' switches' if isinstance(leaf, MultiBinary) else '')


def _taken(candidates: Sequence[Box], boxes: Sequence[Box]) -> list[Box]:
    """The candidates from which some of the boxes take."""
    return [box for box in candidates if any(box is parent for other in boxes for parent in other.parents)]


def _is_branched(torso: Any) -> bool:
    """Whether a torso is a Keras model with several inputs, and so no chain of layers."""
    import keras

    is_functional = isinstance(torso, keras.Model) and not isinstance(torso, keras.Sequential)
    return is_functional and getattr(torso, 'operations', None) is not None and len(torso.inputs) > 1


def _torso_boxes(agent: Drawn, network: Any, inputs: dict[str, Box], action: Box) -> list[Box]:
    """The layers of a network up to its head, each after the layers that it needs; the head takes from the last."""
    import keras

    takes = [*inputs.values(), *([action] if network.wanted.action_size and not network.joins_action else [])]
    torso, found = network.torso, list[Box]()
    chained = isinstance(torso, keras.Sequential)
    if not isinstance(torso, keras.Model) or getattr(torso, 'operations', None) is None and not chained:
        width = '' if network.head is None else _written(network.head.input_shape[1:])
        name = network.custom or type(torso).__name__
        found = [Box('dense', name, width, takes)]
    elif chained:
        first = agent.preprocess.features[0]
        if len(takes) > 1:
            found = [Box('plain', 'join', str(_width(torso) or ''), takes)]
        elif _written(first.shape) != takes[0].shape:
            names = {'one_hot': 'one-hot', 'image': 'prepare', 'index': 'index'}
            found = [Box('plain', names.get(first.kind, 'flatten'), _written(first.shape), takes)]
        for layer in torso.layers:
            if type(layer).__name__ not in _RESHAPING:
                found.append(_layer_box(layer, found[-1:] or takes))
    else:
        found = _functional_boxes(torso, _takes_of_inputs(network, inputs, takes))
    if network.core is not None and network.custom is None:
        for cell in network.core.cells:
            found.append(_layer_box(cell.layer, found[-1:] or takes))
    return found


def _takes_of_inputs(network: Any, inputs: dict[str, Box], takes: Sequence[Box]) -> list[list[Box]]:
    """The boxes from which each input of a functional Keras model takes.

    The inputs of an assembled model take from ``takes``, in that order. A user's model is called with the observation
    in its own form; if its inputs have another form, each may take from any box.
    """
    import keras

    model = network.torso
    if network.custom is None:
        return [[box] for box in takes]
    nested = network.preprocess.nested({path: path for path in inputs})
    for form in (nested, [nested, '']):
        try:
            keras.tree.assert_same_structure(model.input, form)
        except ValueError:
            continue
        return [[inputs.get(path, takes[-1])] for path in keras.tree.flatten(form)]
    return [list(takes)] * len(model.inputs)


def _functional_boxes(model: Any, takes: Sequence[Sequence[Box]]) -> list[Box]:
    """The layers of a functional Keras model; input ``i`` takes from the boxes ``takes[i]``."""
    from zoo.common.tools import keras_private

    inputs = zip(model.inputs, takes, strict=True)
    by_operation = {id(keras_private.maker_of(tensor)): list(boxes) for tensor, boxes in inputs}
    found = []
    for layer in model.operations:  # each after the layers that it takes from
        if id(layer) in by_operation:
            continue
        parents: list[Box] = []
        for node in keras_private.calls_of(layer):
            for parent in node.parent_nodes:
                parents += [box for box in by_operation.get(id(parent.operation), []) if box not in parents]
        if type(layer).__name__ in _RESHAPING:
            by_operation[id(layer)] = parents
            continue
        box = _layer_box(layer, parents)
        by_operation[id(layer)] = [box]
        found.append(box)
    return found


def _head_boxes(name: str, network: Any, ends: list[Box], action: Box) -> list[Box]:
    """The layers of a head, and the box of the output."""
    found: list[Box] = []
    parents = [*ends, action] if network.joins_action else list(ends)
    for layer in [] if network.head is None else network.head.layers:
        found.append(_layer_box(layer, found[-1:] or parents, 'head'))
    wanted = network.wanted
    bounded = ', by tanh' if network.bounds else ''
    meaning = 'values' if wanted.meaning.startswith('one value') else wanted.meaning
    box = Box('output', name, '', found[-1:] or parents)
    box.shape = ('value' if meaning == 'values' else meaning) + bounded + (', target too' if network.target else '')
    return [*found, box]


def _layer_box(layer: Any, parents: Sequence[Box], kind: str = '') -> Box:
    import keras

    name = type(layer).__name__
    short = {'BatchRenormalization': 'BatchRenorm', 'Concatenate': 'join', 'NoisyDense': 'Noisy'}
    title = (short | {'DuelingHead': 'Dueling'}).get(name, name)
    if hasattr(layer, 'advantage') and type(layer.advantage).__name__ == 'NoisyDense':
        title = 'Dueling, noisy'
    if isinstance(layer, keras.layers.Conv2D):
        size, strides = layer.kernel_size, layer.strides
        title = f'Conv {size[0]}×{size[1]}' + (f', stride {strides[0]}' if strides[0] > 1 else '')
        kind = kind or 'image'
    elif isinstance(layer, keras.layers.RNN):
        kind = 'recurrent'
    elif hasattr(layer, 'kernel') or name in ('DuelingHead', 'Embedding'):
        kind = kind or 'dense'
    activation = getattr(getattr(layer, 'activation', None), '__name__', 'linear')
    if activation != 'linear' and kind != 'recurrent':
        title += f', {activation}'
    return Box(kind or 'plain', title, _output(layer), list(parents))


def _output(layer: Any) -> str:
    """The shape of a layer's output; empty where Keras does not know it."""
    units = getattr(layer, 'units', None)
    if units is not None:
        return str(units)
    if hasattr(layer, 'advantage'):
        return str(layer.advantage.units)
    try:
        return _written(layer.output.shape[1:])
    except (AttributeError, ValueError):  # several outputs, or a layer that was not called on Keras' own tensors
        return ''


def _width(torso: Any) -> int | None:
    try:
        return int(torso.input_shape[-1])
    except (AttributeError, TypeError, ValueError):
        return None


def _written(shape: Sequence[int | None]) -> str:
    return ' × '.join('?' if n is None else str(n) for n in shape) or '1'


def _place(boxes: list[Box], top: float) -> float:
    """Give the boxes of a network their columns and lanes from ``top`` on; return the lane after the last.

    A box stands beside the middle of the boxes that it takes from. Boxes on the same place move apart.
    """
    own = {id(box) for box in boxes}
    for box in boxes:
        columns = [parent.column for parent in box.parents if id(parent) in own]
        box.column = 0 if box.kind == 'input' else 1 + max(columns, default=0)
    last = max(box.column for box in boxes)
    for box in boxes:
        if box.kind == 'output':  # one below the other, however deep their heads are
            box.column = last
    for column in sorted({box.column for box in boxes}):
        standing = [box for box in boxes if box.column == column]
        wishes = []
        for i, box in enumerate(standing):
            lanes = [parent.lane for parent in box.parents if id(parent) in own]
            wishes.append(sum(lanes) / len(lanes) if lanes else top + i)
        for i, box in enumerate(standing):
            alike = [j for j, wish in enumerate(wishes) if wish == wishes[i]]  # heads spread around their torso
            box.lane = wishes[i] + alike.index(i) - (len(alike) - 1) / 2
        _move_apart(standing, top if column == 0 else -math.inf)
    lowest = min(box.lane for box in boxes)
    for box in boxes:
        box.lane += max(0.0, top - lowest)
    return max(box.lane for box in boxes) + 1.0


def _move_apart(boxes: list[Box], top: float) -> None:
    """Give each box of a column its own lane, in order, not above ``top``."""
    lane = top - 1.0
    for box in sorted(boxes, key=lambda box: box.lane):
        box.lane = lane = max(box.lane, lane + 1.0)


def _draw(axes: Any, box: Box, top: float) -> None:
    x, y = _middle(box, top)
    fill, edge = _FILLS[box.kind]
    corner, width = (x - _BOX[0] / 2, y - _BOX[1] / 2), 1.8 if box.kind in ('recurrent', 'output') else 1.0
    form = 'round,pad=0,rounding_size=0.07' if box.kind in ('input', 'output') else 'square,pad=0'
    axes.add_patch(
        FancyBboxPatch(corner, *_BOX, boxstyle=form, facecolor=fill, edgecolor=edge, linewidth=width, zorder=2)
    )
    weight = 'bold' if box.kind in ('input', 'output') else 'normal'
    lines = textwrap.wrap(box.shape, _LINE + 3, max_lines=3, placeholder=' …')
    size = 8 if len(box.title) <= _LINE else 8 * _LINE / len(box.title)
    above, below = {0: (0.0, 0.0), 1: (0.1, 0.09), 2: (0.14, 0.09)}.get(len(lines), (0.165, 0.07))
    text: dict[str, Any] = {'ha': 'center', 'va': 'center', 'color': INK, 'zorder': 3}
    axes.text(x, y + above, verbatim(box.title), fontsize=size, fontweight=weight, **text)
    small = 8 if len(lines) < 2 and len(box.shape) <= _LINE - 3 else 6.5
    axes.text(x, y - below, '\n'.join(lines), fontsize=small, linespacing=1.05, **text)
    arrow: dict[str, Any] = {'arrowstyle': '-|>', 'mutation_scale': 8, 'zorder': 1}
    if box.kind == 'recurrent':
        right, left = ((x + side * _BOX[0] * 0.3, y + _BOX[1] / 2) for side in (1, -1))
        axes.add_patch(FancyArrowPatch(right, left, connectionstyle='arc3,rad=0.35', color=edge, **arrow))
    for parent in box.parents:
        px, py = _middle(parent, top)
        start, end = (px + _BOX[0] / 2, py), (x - _BOX[0] / 2, y)
        if box.column > parent.column + 1:  # along its own lane first, where no box stands
            turn = end[0] - (_STEP[0] - _BOX[0])
            axes.plot([start[0], turn], [py, py], color='#777777', linewidth=0.9, zorder=1)
            start = (turn, py)
        axes.add_patch(FancyArrowPatch(start, end, linewidth=0.9, color='#777777', shrinkA=0, shrinkB=0, **arrow))


def _middle(box: Box, top: float) -> tuple[float, float]:
    return 0.1 + (box.column + 0.5) * _STEP[0], top - (box.lane + 0.5) * _STEP[1]
