"""What ``check_env`` finds wrong with spaces, and with observations and action masks against their spaces."""

from __future__ import annotations

import numbers
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

from zoo.common import spaces
from zoo.common.adaptors.observation import feature, is_image
from zoo.common.envs import answers
from zoo.common.tools.errors import a_type


class Findings:
    """The problems of an environment, one for each key, and advice.

    Attributes:
        where: where the check is, the beginning of a sentence: ``'reset()'``, ``'step 3'``.
        problems: the sentences by key.
        advice: sentences on what works but costs memory, time or the choice of algorithm.
    """

    def __init__(self) -> None:
        self.where = 'reset()'
        self.problems: dict[str, str] = {}
        self.advice: list[str] = []

    def problem(self, key: str, sentence: str) -> None:
        """Note a problem; the first of each key counts."""
        self.problems.setdefault(key, sentence)

    def here(self, key: str, sentence: str) -> None:
        """Note a problem at the place where the check is."""
        self.problem(key, f'{self.where}: {sentence}')

    def report(self) -> list[str]:
        """Print everything and return the problems."""
        found = list(self.problems.values())
        for sentence in found or ['no problem found']:
            print(sentence)
        for sentence in self.advice:
            print(f'advice: {sentence}')
        return found


def check_spaces(env: gymnasium.Env, found: Findings) -> None:
    """Check both spaces of an environment."""
    for name in ('observation_space', 'action_space'):
        missing = answers.no_space(env, name)
        if missing is not None:
            found.problem(name, missing)
            continue
        try:
            leaves = spaces.leaves(getattr(env, name))
        except (TypeError, ValueError) as error:
            found.problem(name, f'{name}: {error}')
            continue
        for path, leaf in leaves.items():
            label = f'{name}[{path!r}]' if path else name
            if leaf.shape and 0 in leaf.shape:
                found.problem(label, f'{label} has the shape {leaf.shape}, which holds no number: leave it out.')
            elif isinstance(leaf, Box):
                (_check_action_box if name == 'action_space' else _check_observation_box)(label, leaf, found)


def _check_action_box(label: str, leaf: Box, found: Findings) -> None:
    if not (leaf.low < leaf.high).all():
        found.problem(label, f'{label} has entries whose low is not below their high: give each a range.')
    elif not leaf.is_bounded():
        found.advice.append(
            f'{label} has infinite bounds: algorithms whose actions fill the bounds (SAC, TD3) refuse it, PPO does '
            'not; give the range of useful actions, such as Box(-1, 1, ...).'
        )


def _check_observation_box(label: str, leaf: Box, found: Findings) -> None:
    if (leaf.low > leaf.high).any():
        found.problem(label, f'{label} has entries whose low is above their high: exchange them.')
    if not is_image(leaf):
        if len(leaf.shape) == 3:
            found.advice.append(
                f'{label} of shape {leaf.shape} is taken for a vector, not for an image: an image is at least 8 pixels '
                'high and wide.'
            )
        return
    image = feature('', leaf)
    height, width, channels = image.shape
    if channels > 16:
        order = f'({"channels, height, width" if image.channels_first else "height, width, channels"})'
        found.advice.append(
            f'{label} of shape {leaf.shape} is taken as {order} with {channels} channels of {height}x{width} pixels: '
            'if that is wrong, move the channels to the last axis.'
        )
    if leaf.dtype not in (np.uint8, np.bool_):  # both take one byte for each value
        found.advice.append(
            f'{label} is an image of {leaf.dtype}: as uint8 from 0 to 255 it takes less memory in replay buffers; '
            'agents scale it themselves.'
        )


def check_part(space: Space, x: Any, found: Findings, path: str = '') -> None:
    """Check an observation, or the part of one at ``path``."""
    label = f'{found.where}: the observation' + (f' {path!r}' if path else '')
    key = f'observation {path}'
    parts: list[tuple[Any, Space, Any]]
    if isinstance(space, Dict):
        if not isinstance(x, dict):
            found.problem(key, f'{label} is {kind(x)}, but its space is a Dict: return a dictionary.')
            return
        for verb, keys in (('lacks', space.spaces.keys() - x.keys()), ('has', x.keys() - space.spaces.keys())):
            if keys:
                other = 'which its space has' if verb == 'lacks' else 'which its space lacks'
                names = ', '.join(sorted(map(repr, keys)))
                found.problem(f'{key} {verb}', f'{label} {verb} {names}, {other}: give both the same keys.')
        parts = [(name, part, x[name]) for name, part in space.spaces.items() if name in x]
    elif isinstance(space, Tuple):
        if not isinstance(x, (tuple, list)) or len(x) != len(space.spaces):
            found.problem(
                key, f'{label} is {kind(x)}, but its space is a Tuple: return a tuple of {len(space.spaces)}.'
            )
            return
        parts = list(zip(range(len(x)), space.spaces, x, strict=True))
    else:
        problem = _problem_of_leaf(cast(spaces.Leaf, space), x)
        if problem is not None:
            found.problem(key, f'{label} {problem}')
        return
    for name, part, value in parts:
        check_part(part, value, found, f'{path}/{name}' if path else str(name))


def _problem_of_leaf(leaf: spaces.Leaf, x: Any) -> str | None:
    """What is wrong with one array of an observation, the end of a sentence; None if nothing is."""
    dtype = leaf.dtype
    if isinstance(leaf, Discrete):
        if isinstance(x, (bool, np.bool_)) or not isinstance(x, (numbers.Integral, np.ndarray)):
            return f'is {kind(x)}, but its space is {leaf}: return an int.'
    elif not isinstance(x, np.ndarray) and not (leaf.shape == () and isinstance(x, np.generic)):
        return f'is {kind(x)}, not an array: return np.array(..., dtype=np.{dtype}).'
    array = np.asarray(x)
    if array.shape != leaf.shape:
        return f'has the shape {array.shape}, but its space says {leaf.shape}: change one of the two.'
    if not (np.can_cast(array.dtype, leaf.dtype) if isinstance(leaf, Box) else array.dtype.kind in 'iub'):
        return f'is of {array.dtype}, but its space of {dtype}: return x.astype(np.{dtype}).'
    if not np.isfinite(array).all():
        return f'contains {array[~np.isfinite(array)][0]}: make every entry finite.'
    low, high = _bounds(leaf)
    # Physics oversteps its space in the last digits, and no algorithm minds.
    slack = 1e-5 * np.maximum(1.0, np.abs(array)) if array.dtype.kind == 'f' else 0
    outside = (array < low - slack) | (array > high + slack)
    if not outside.any():
        return None
    at = np.unravel_index(np.argmax(outside), outside.shape) if array.ndim else ()
    entry = f' at {[int(i) for i in at]}' if at else ''
    low, high = (np.broadcast_to(bound, array.shape)[at] for bound in (low, high))
    return f'has the value {array[at]}{entry}, but its space reaches from {low} to {high}: widen the bounds or clip it.'


def _bounds(leaf: spaces.Leaf) -> tuple[Any, Any]:
    """The least and the greatest value of a leaf."""
    if isinstance(leaf, Box):
        if leaf.dtype.kind != 'f':
            return leaf.low, leaf.high
        return leaf.low.astype(np.float64), leaf.high.astype(np.float64)  # room for the slack
    if isinstance(leaf, MultiBinary):
        return 0, 1
    if isinstance(leaf, Discrete):
        return int(leaf.start), int(leaf.start) + int(leaf.n) - 1
    return leaf.start, leaf.start + leaf.nvec - 1


def check_mask(space: Space, mask: Any, found: Findings) -> Any:
    """Check an action mask, and return what ``space.sample`` takes as a mask, or None."""
    label = f'{found.where}: the action_mask'
    if isinstance(space, Discrete | MultiDiscrete):
        counts = [int(n) for n in np.ravel(space.n if isinstance(space, Discrete) else space.nvec)]
    elif isinstance(space, MultiBinary):
        counts = [int(np.prod(space.shape))]
    else:
        found.problem(
            'mask',
            f'{label} is given, but only Discrete, MultiDiscrete and MultiBinary actions can be masked, not {space}.',
        )
        return None
    parts = mask if isinstance(mask, (tuple, list)) else [mask]
    flat = np.concatenate([np.asarray(part).ravel() for part in parts])
    if flat.shape != (sum(counts),) or not np.isin(flat, (0, 1)).all():
        found.problem(
            'mask',
            f'{label} has {len(flat)} entries, {flat.min(initial=0)} to {flat.max(initial=0)}, but {space} needs '
            f'{sum(counts)}, each 1 where the action is allowed, else 0.',
        )
        return None
    if isinstance(space, MultiBinary):
        return np.where(flat, 2, 0).astype(np.int8).reshape(space.shape)  # 2: either of them
    masks = np.split(flat.astype(np.int8), np.cumsum(counts)[:-1])
    if not all(part.any() for part in masks):
        found.problem('mask', f'{label} forbids every action: allow one, or end the episode.')
        return None
    return masks[0] if isinstance(space, Discrete) else tuple(masks) if space.nvec.ndim == 1 else None


def kind(x: Any) -> str:
    """Return what a value is, for a sentence."""
    if x is None:
        return 'None'
    if isinstance(x, np.ndarray):
        return f'an array of shape {x.shape} and {x.dtype}'
    if isinstance(x, (tuple, list)):
        return f'{a_type(x)} of {len(x)}'
    return f'{x!r} ({type(x).__name__})' if isinstance(x, (str, numbers.Number)) else a_type(x)
