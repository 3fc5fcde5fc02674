"""An agent for programs without zoo: observations in, actions out, as a SavedModel or a model of LiteRT or ONNX.

The model does all that ``agent.predict(obs)`` does, from preprocessing and action masks to scaling and clipping. It
does not check that an observation lies in its space, and it does not do what the environment's wrappers do.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import logging
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from gymnasium.spaces import Box, Dict, Space, Tuple

from zoo.algorithms.base.algorithm import Algorithm
from zoo.algorithms.base.export_runtimes import RUNTIMES, Run, Runtime
from zoo.common import spaces
from zoo.common.maths.normalize import RunningMoments
from zoo.common.tools.errors import InvalidValue, a_type, unknown
from zoo.common.tools.files import as_path, beside, library_versions, put_in_place, write_json

log = logging.getLogger('zoo')

FORMAT_VERSION = 1
ABOUT = 'agent.json'
_FORMAT = 'zoo export'

#: The largest difference of an exported action, times the size of the action where that is above 1.
TOLERANCE = 1e-5

#: The number of observations to compare: once as a batch, and the first one alone.
ROWS = 32

#: How often an output is varied, to see which choices are between equal values.
_BENDS = 16


class ExportError(InvalidValue):
    """An agent that cannot be exported; one sentence says why."""


def export(agent: Algorithm, path: str | os.PathLike[str], to: str = 'savedmodel') -> Path:
    """Write an agent as a model that runs without zoo: a folder, whole or not at all.

    The model has one input for each leaf of the observation space, in the leaf's dtype, with the batch as a first axis.
    It has one output for each leaf of the action: the action of ``agent.predict(obs)``, in the environment's own form.
    A recurrent agent's state is one more input and output. ``agent.json`` in the folder lists names, shapes and dtypes,
    and how the leaves make up the observation and the action. ``docs/howto/export.md`` has programs that use it.

    Before anything is written to ``path``, the model runs in its own runtime on observations drawn from the space. Its
    actions must equal ``predict``'s to 1e-5 (relatively, where an action is above 1). Only a choice between
    values that are equal to 1e-5 may differ.

    Args:
        path: the folder to make; its parents are made too. An empty folder or an earlier export is replaced.
        to: ``'savedmodel'``, TensorFlow's own; ``'litert'``, formerly TensorFlow Lite, which computes in float32 only;
            or ``'onnx'``, which needs the extra ``export``.

    Raises:
        ExportError: ``path`` is something else; the agent cannot be converted; or the model gives other actions.
        ValueError: an unknown ``to``, or ``agent`` is not an agent.
        ImportError: the converter is not installed.
    """
    if to not in RUNTIMES:
        raise InvalidValue(unknown('value of to', to, RUNTIMES))
    if not isinstance(agent, Algorithm):
        raise InvalidValue(f"export takes an agent, such as zoo.load('{agent}') gives, not {a_type(agent)}.")
    runtime, given = RUNTIMES[to], as_path(path, 'path, the folder to export to,')
    path = given.resolve()
    if path.suffix in ('.onnx', '.tflite', '.pb', '.keras'):
        raise ExportError(f"an export is a folder, so '{given}' would mislead: leave out the ending.")
    _check_replaceable(path, given)
    model = _Model(agent, runtime)
    new = beside(path)
    try:
        new.mkdir(parents=True)
        model.write(new)
        about = model.about(to)
        loaded = model.loaded(new)
        if loaded is None:
            log.warning(
                "nothing is installed that runs %s, so the export was not compared with the agent's predict.",
                runtime.title,
            )
        else:
            about['checked'] = {'by': loaded[1], **model.check(loaded[0])}
        files = sorted(x.relative_to(new).as_posix() for x in new.rglob('*') if x.is_file())
        write_json(new / ABOUT, {**about, 'files': files})
        put_in_place(new, path, beside(path), functools.partial(shutil.rmtree, ignore_errors=True))
    except OSError as error:
        raise ExportError(f"'{given}' could not be written, and nothing was changed: {error}.") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return given


class _Model:
    """The function that is exported, the names of its inputs and outputs, and its comparison with the agent."""

    def __init__(self, agent: Algorithm, runtime: Runtime) -> None:
        self.agent = agent
        self.runtime = runtime
        self.inputs = tensor_names('obs', agent.observation_space)
        self.outputs = tensor_names('action', agent.action_space)
        self.state_size = agent.behavior.state_size
        network = agent.forward.network
        #: Acting in NumPy is in float32, also where training computes in bfloat16.
        self._acts_in_numpy = agent.forward.numpy is not None
        if network.mixed and not self._acts_in_numpy and runtime.file != '.':
            raise ExportError(
                f"the agent's network computes in bfloat16, which {runtime.title} does not do as TensorFlow does: "
                "export to 'savedmodel', or train a network of dtype='float32'."
            )
        leaves = spaces.leaves(agent.observation_space)
        self.specs = [
            tf.TensorSpec([None, *spaces.shape_of(leaves[path])], leaves[path].dtype, name=name)
            for path, name in self.inputs.items()
        ]
        if self.state_size:
            self.specs.append(tf.TensorSpec([None, self.state_size], name='state'))

    def __call__(self, *tensors: Any) -> dict[str, Any]:
        """Compute actions by the names of outputs, and the state after the step, from observations and state."""
        agent, known = self.agent, self.runtime.float32
        state = tensors[-1] if self.state_size else None
        obs = spaces.from_items(agent.observation_space, dict(zip(self.inputs, tensors, strict=False)))
        with contextlib.ExitStack() as stack:
            if known:
                stack.enter_context(agent.preprocess.in_float32())
            if self._acts_in_numpy:
                stack.enter_context(agent.forward.network.in_float32())
            output, after = agent.forward.tensors(obs, state)
        action = agent.action_adaptor.tensors_to_env(agent.behavior.chosen(output, obs), known)
        # By tf.identity an output that is an unchanged input gets a name of its own.
        found = {self.outputs[path]: tf.identity(x) for path, x in action.items()}
        return found if after is None else found | {'next_state': tf.identity(after)}

    def write(self, folder: Path) -> None:
        """Write the model into a folder."""
        try:
            self.runtime.write(tf.function(self.__call__, input_signature=self.specs), self.specs, folder)
        except NotImplementedError as error:
            behavior = type(self.agent.behavior).__name__
            raise ExportError(
                f'{type(self.agent).__name__} acts by {behavior}, which lacks the method chosen (see '
                'zoo.common.acting.behavior.Behavior), so it cannot be exported.'
            ) from error
        except (ImportError, OSError):
            raise
        except Exception as error:  # whatever a converter raises where it does not know an operation
            raise ExportError(f'the agent cannot be converted to {self.runtime.title}: {_first_line(error)}') from error

    def loaded(self, folder: Path) -> tuple[Run, str] | None:
        """Give a function that runs the written model, and the name of what runs it; None where nothing can."""
        try:
            return self.runtime.load(folder)
        except Exception as error:  # whatever a runtime raises where it lacks an operation
            raise ExportError(f'{self.runtime.title} cannot run the model: {_first_line(error)}') from error

    def about(self, to: str) -> dict[str, Any]:
        """Give the content of ``agent.json``."""
        agent = self.agent
        state = {'name': 'state', 'shape': [None, self.state_size], 'dtype': 'float32'}
        return {
            'format': _FORMAT,
            'format_version': FORMAT_VERSION,
            'libraries': library_versions(),
            'algorithm': type(agent).__name__,
            'steps': agent.steps,
            'to': to,
            'model': self.runtime.file,
            'inputs': _described(self.inputs, agent.observation_space) + ([state] if self.state_size else []),
            'outputs': _described(self.outputs, agent.action_space)
            + ([{**state, 'name': 'next_state'}] if self.state_size else []),
            'observation': _structure(agent.observation_space, self.inputs),
            'action': _structure(agent.action_space, self.outputs),
            'state': {'input': 'state', 'output': 'next_state', 'begins': 0.0} if self.state_size else None,
            'checked': None,
        }

    def check(self, run: Run) -> dict[str, Any]:
        """Compare the model with the agent's ``predict``; a difference above `TOLERANCE` is an ExportError."""
        agent, rng = self.agent, np.random.default_rng(0)
        obs = observations(agent.observation_space, agent.statistics, ROWS, rng)
        state = rng.normal(0.0, 0.3, (ROWS, self.state_size)).astype(np.float32)
        state[::2] = 0.0  # as at the beginning of an episode
        # One by one: a batch of another size would compile a graph, and the agent would keep it in place of training's.
        answers = [self._answer({path: x[i : i + 1] for path, x in obs.items()}, state[i : i + 1]) for i in range(ROWS)]
        expected = {name: np.concatenate([answer[name] for answer in answers]) for name in answers[0]}
        others = self._bent(spaces.from_items(agent.observation_space, obs), state)
        largest = 0.0
        for rows in (slice(None), slice(1)):  # a batch, and one by itself
            inputs = {self.inputs[path]: x[rows] for path, x in obs.items()}
            if self.state_size:
                inputs['state'] = state[rows]
            try:
                found = run(inputs)
            except Exception as error:  # whatever a runtime raises where it lacks an operation
                raise ExportError(f'{self.runtime.title} cannot run the model: {_first_line(error)}') from error
            for name, x in expected.items():
                bent = [other[name][rows] for other in others]
                largest = max(largest, self._compare(name, found[name], x[rows], bent))
        return {'observations': ROWS, 'largest_difference': largest}

    def _answer(self, obs: dict[str, np.ndarray], state: np.ndarray) -> dict[str, np.ndarray]:
        """Give the answer of ``predict``, by the names of the outputs."""
        agent = self.agent
        flat = spaces.from_items(agent.observation_space, obs)
        given = spaces.unflatten(agent.observation_space, flat)
        action, after = agent.predict(given, state=state) if self.state_size else (agent.predict(given), None)
        found = {self.outputs[path]: x for path, x in spaces.tree_items(spaces.flatten(agent.action_space, action))}
        return found if after is None else found | {'next_state': after}

    def _compare(self, name: str, found: np.ndarray, expected: np.ndarray, others: list[np.ndarray]) -> float:
        """Give the largest difference, relative where an action is above 1; refuse one above the tolerance."""
        title = self.runtime.title
        if found.shape != expected.shape or found.dtype != expected.dtype:
            raise ExportError(
                f'the {title} model gives {name!r} as {found.dtype} {list(found.shape)}, but predict as '
                f'{expected.dtype} {list(expected.shape)}; nothing was written.'
            )
        one, other = found.astype(np.float64), expected.astype(np.float64)
        difference = np.abs(one - other) / np.maximum(1.0, np.abs(other))
        if expected.dtype.kind != 'f':  # a choice between equals may fall either way
            difference = np.where([found == x for x in others], 0.0, difference).min(0)
        if not (difference <= TOLERANCE).all():  # so that NaN fails too
            worst = np.unravel_index(np.argmax(np.nan_to_num(difference, nan=np.inf)), difference.shape)
            raise ExportError(
                f"the {title} model gives other actions than the agent's predict: {name!r} is {one[worst]:.7g} in "
                f'place of {other[worst]:.7g}; nothing was written.'
            )
        return float(difference.max(initial=0.0))

    def _bent(self, obs: Any, state: np.ndarray) -> list[dict[str, np.ndarray]]:
        """Give actions by name for outputs of the network that differ from the true one within the tolerance."""
        agent, rng = self.agent, np.random.default_rng(1)
        tensors = spaces.tree_map(tf.convert_to_tensor, obs)
        output, _ = agent.forward.tensors(tensors, tf.constant(state) if self.state_size else None)
        output, found = output.numpy(), []
        for _ in range(_BENDS):
            step = TOLERANCE * rng.choice([-1.0, 0.0, 1.0], output.shape) * np.maximum(1.0, np.abs(output))
            action = agent.behavior.chosen(tf.constant((output + step).astype(np.float32)), tensors)
            items = agent.action_adaptor.tensors_to_env(action)
            found.append({self.outputs[path]: x.numpy() for path, x in items.items()} | {'next_state': state})
        return found


def observations(
    space: Space, statistics: Mapping[str, RunningMoments], count: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Draw observations of a space by path, ``[count, *shape]``: uniform between bounds, normal where there are none.

    With running statistics, every other one is drawn from the distribution that was seen.
    """
    found = {}
    for path, leaf in spaces.leaves(space).items():
        if isinstance(leaf, Box) and leaf.dtype.kind == 'f':
            low, high = (bound.astype(np.float64) for bound in spaces.bounds(leaf))
            bounded = high - low <= spaces.WIDEST_RANGE
            x = rng.standard_normal((count, *leaf.shape))
            uniform = rng.uniform(np.where(bounded, low, 0.0), np.where(bounded, high, 1.0), x.shape)
            x = np.where(bounded, uniform, x)
            if path in statistics:
                moments = statistics[path]
                seen = moments.mean + rng.standard_normal((count, moments.mean.size)) / moments.scale
                x[::2] = seen.reshape(x.shape)[::2]
            found[path] = np.clip(x, low, high).astype(leaf.dtype)
        else:
            drawn = copy.deepcopy(leaf)  # the environment may hold the same object
            drawn.seed(int(rng.integers(2**31 - 1)))
            found[path] = np.stack([np.asarray(drawn.sample()) for _ in range(count)]).astype(leaf.dtype)
    return found


def tensor_names(prefix: str, space: Space) -> dict[str, str]:
    """Name the tensor of each leaf, by path; names differ also when upper and lower case are not told apart."""
    found: dict[str, str] = {}
    for path in spaces.leaves(space):
        name = '_'.join([prefix, *re.findall('[A-Za-z0-9]+', path)])
        taken = {other.lower() for other in found.values()}
        unique, number = name, 2
        while unique.lower() in taken:
            unique, number = f'{name}_{number}', number + 1
        found[path] = unique
    return found


def _described(names: Mapping[str, str], space: Space) -> list[dict[str, Any]]:
    leaves = spaces.leaves(space)
    return [
        {
            'name': name,
            'shape': [None, *spaces.shape_of(leaves[path])],
            'dtype': str(leaves[path].dtype),
            'space': _plain(spaces.to_json(leaves[path])),
        }
        for path, name in names.items()
    ]


def _plain(value: Any) -> Any:
    """Replace infinities, which JSON does not have, by None: no bound."""
    if isinstance(value, dict):
        return {key: _plain(x) for key, x in value.items()}
    if isinstance(value, list):
        return [_plain(x) for x in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _structure(space: Space, names: Mapping[str, str], prefix: str = '') -> Any:
    """Give an element of the space with names for its leaves: an object for a ``Dict``, an array for a ``Tuple``."""
    if isinstance(space, Dict):
        parts = {key: f'{prefix}/{key}' if prefix else str(key) for key in space.spaces}
        return {str(key): _structure(space[key], names, path) for key, path in parts.items()}
    if isinstance(space, Tuple):
        return [_structure(x, names, f'{prefix}/{i}' if prefix else str(i)) for i, x in enumerate(space.spaces)]
    return names[prefix]


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f'{type(error).__name__}: {lines[0] if lines else "it does not say why"}'


def _check_replaceable(path: Path, given: Path) -> None:
    if not path.exists():
        return
    advice = 'it is left as it is, export to another path'
    if not path.is_dir():
        raise ExportError(f"'{given}' is a file: {advice}.")
    found = {x.relative_to(path).as_posix() for x in path.rglob('*') if x.is_file()}
    if not found:
        return
    try:
        about = json.loads((path / ABOUT).read_bytes())
        ours = {ABOUT, *about['files']} if about['format'] == _FORMAT else set()
    except (OSError, ValueError, KeyError, TypeError):
        ours = set()
    if foreign := sorted(found - ours):
        raise ExportError(f"'{given}' holds '{foreign[0]}', which is not part of an export: {advice}.")
