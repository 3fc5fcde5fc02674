"""An environment as two pure functions, and the copies of it that step together.

A pure function gives the same result for the same arguments and changes nothing else. So TensorFlow can compile
thousands of steps, together with the policy that acts in them, into one call.
"""

from __future__ import annotations

import copy
import sys
import traceback
from collections.abc import Callable, Iterable
from typing import Any, Protocol, runtime_checkable

import numpy as np
import tensorflow as tf
from gymnasium import Space

from zoo.common import spaces
from zoo.common.tools.errors import InvalidType, InvalidValue

#: What ``step`` of functions returns.
STEP = 'state, observation, reward, terminated, truncated'
BACKENDS = ('tensorflow', 'jax')


@runtime_checkable
class Functions(Protocol):
    """What an environment of pure functions has.

    The functions are written for one copy, with tensors of TensorFlow or arrays of JAX. zoo maps them over the copies.
    A state is an array, or a tuple, list or dict of arrays; its shapes and dtypes never change. ``seed`` gives random
    numbers: int32 ``[2]``, as ``tf.random.stateless_uniform`` takes it; with JAX a key, as ``jax.random`` takes it.

    Attributes:
        observation_space, action_space: of one copy, as in Gymnasium.

    These attributes may be there, too: ``backend``, ``'tensorflow'`` (the default) or ``'jax'``;
    ``max_episode_steps``, the number of steps after which an episode is truncated; ``name``, for titles and file
    names; ``render(state)``, which returns a picture of one copy, uint8 ``[height, width, 3]``, for its state in
    NumPy arrays.
    """

    observation_space: Space
    action_space: Space

    def reset(self, seed: Any) -> tuple[Any, Any]:
        """Return the first state and observation of an episode."""

    def step(self, state: Any, action: Any, seed: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Return the next state, its observation, the reward, and whether the episode is terminated or truncated."""


def check(functions: Any) -> None:
    """Refuse what lacks something that an environment of pure functions has.

    Raises:
        TypeError: an attribute is missing.
        ValueError: a space that no network reads, or an unknown ``backend``.
    """
    name = name_of(functions)
    lacking = [part for part in ('observation_space', 'action_space', 'reset', 'step') if not hasattr(functions, part)]
    if lacking:
        raise InvalidType(
            f'{name} has no {lacking[0]}: a compiled environment has observation_space, action_space, reset(seed) -> '
            f'(state, observation) and step(state, action, seed) -> ({STEP}).'
        )
    for part in ('observation_space', 'action_space'):
        if not isinstance(space := getattr(functions, part), Space):
            raise InvalidType(f'{part} of {name} is {space!r}: give a space of Gymnasium.')
        spaces.leaves(space)
    if backend_of(functions) not in BACKENDS:
        raise InvalidValue(f"backend of {name} is {functions.backend!r}: say 'tensorflow' or 'jax'.")


def check_pure(functions: Functions) -> None:
    """Call both functions twice with the same arguments, and refuse other results.

    Inside a compiled call an impure function would be wrong without a word: what Python draws or counts there is drawn
    or counted once, while it is compiled.

    Raises:
        ValueError: the results differ, or a function fails.
    """
    name, before = name_of(functions), dict(vars(functions))
    own_state, space = np.random.get_state(), copy.deepcopy(functions.action_space)
    space.seed(0)
    action: Any = space.sample()
    if backend_of(functions) == 'jax':
        import jax

        one, other = (jax.random.PRNGKey(seed) for seed in (1, 2))
        flatten: Callable[[Any], list[Any]] = jax.tree.leaves
    else:
        one, other = (tf.constant([1, seed], tf.int32) for seed in (1, 2))
        action, flatten = tf.nest.map_structure(tf.constant, action), tf.nest.flatten
    try:
        first = functions.reset(one)
        if not (isinstance(first, tuple) and len(first) == 2):
            raise InvalidType(f'reset() of {name} returned {_kind(first)}, not the pair (state, observation).')
        for method, arguments in (('reset', (one,)), ('step', (first[0], action, other))):
            results = [flatten(getattr(functions, method)(*arguments)) for _ in range(2)]
            for x, y in zip(*results, strict=True):
                if not np.array_equal(np.asarray(x), np.asarray(y), equal_nan=np.asarray(x).dtype.kind == 'f'):
                    raise InvalidValue(
                        f'{method}() of {name} is no pure function: called twice with the same arguments, it returned '
                        f'{np.asarray(x)} and {np.asarray(y)}. Draw random numbers from its seed, and keep what '
                        'changes in its state.'
                    )
    except (InvalidType, InvalidValue):
        raise
    except Exception as error:
        raise InvalidValue(f'reset() or step() of {name} failed ({_said(error)}).') from error
    changed = [key for key, value in vars(functions).items() if before.get(key) is not value]
    if changed:
        raise InvalidValue(
            f'reset() or step() of {name} changed its attribute {changed[0]!r}, which happens once, while it is '
            'compiled: keep what changes in the state that it returns.'
        )
    if not all(np.array_equal(x, y) for x, y in zip(own_state, np.random.get_state(), strict=True)):
        raise InvalidValue(
            f'reset() or step() of {name} draws from numpy.random, which happens once, while it is compiled: draw from '
            'its seed, as in tf.random.stateless_uniform(shape, seed).'
        )


def check_mapped(functions: Functions) -> None:
    """Take a step in two copies at once; refuse what differs from the step of each copy by itself.

    TensorFlow maps a few operations wrongly and without a word: of 2.21 ``tf.pad`` loses ``constant_values``, and
    ``tf.roll`` with an axis from the end shifts copies. What JAX maps is right, and not looked at.

    Raises:
        TypeError, ValueError: the values differ, or have other shapes or dtypes than they should.
    """
    if backend_of(functions) == 'jax':
        return
    mapped, count = Mapped(functions), 2
    seeds = tf.constant([[1, 1], [1, 2]], tf.int32)
    space = copy.deepcopy(functions.action_space)
    space.seed(0)
    flat = [spaces.flatten(space, space.sample()) for _ in range(count)]
    actions = [spaces.unflatten(space, spaces.tree_map(tf.constant, one)) for one in flat]
    together = spaces.unflatten(space, spaces.tree_map(lambda *x: tf.constant(np.stack(x)), *flat))

    def run() -> Any:
        state, obs = mapped.reset(seeds)
        return (state, obs), mapped.step(state, together, seeds)

    # The concrete function: TensorFlow warns of functions that are called only once.
    begun, stepped = tf.function(run, autograph=False).get_concrete_function()()
    _check_indices(functions, actions[0], seeds[0])
    for i in range(count):
        own = functions.reset(seeds[i])
        alone = functions.step(own[0], actions[i], seeds[i])
        _compare(mapped, 'reset', begun, own, i)
        _compare(mapped, 'step', stepped, alone, i)


def _check_indices(functions: Functions, action: Any, seed: tf.Tensor) -> None:
    """Refuse ``table[action]``: XLA takes such an index for a constant, and compiles anew for each value."""

    def run(action: Any, seed: tf.Tensor) -> Any:
        state = _tensors(functions.reset(seed)[0])
        loose = tf.nest.map_structure(lambda x: tf.raw_ops.PlaceholderWithDefault(input=x, shape=x.shape), state)
        return functions.step(loose, action, seed)

    graph = tf.function(run, autograph=False).get_concrete_function(action, seed).graph
    for operation in graph.get_operations():
        if operation.type == 'StridedSlice' and any(tf.get_static_value(x) is None for x in operation.inputs[1:3]):
            raise InvalidValue(
                f'reset() or step() of {name_of(functions)} indexes a tensor by a tensor'
                f'{_place(operation.traceback, functions)}, as in table[action], and would be compiled anew for each '
                'value: write tf.gather(table, action).'
            )


def _compare(mapped: Mapped, method: str, together: tuple[Any, ...], alone: tuple[Any, ...], copy_: int) -> None:
    """Refuse values of one copy among others that are not its own."""
    path_of = dict(spaces.tree_items(spaces.flatten(mapped.functions.observation_space, alone[1])))
    found = [*tf.nest.flatten(together[0]), *(x for _, x in spaces.tree_items(together[1])), *together[2:]]
    parts = (path_of[path] for path, _ in spaces.tree_items(together[1]))
    wanted = [*tf.nest.flatten(_tensors(alone[0])), *parts, *alone[2:]]
    for x, y in zip(found, wanted, strict=True):
        x = np.asarray(x)[copy_]
        if not np.allclose(x, np.asarray(y), rtol=1e-3, atol=1e-4, equal_nan=True):
            raise InvalidValue(
                f'{method}() of {mapped.name} gives {np.asarray(y)} for one copy, and {x} for the same copy among '
                'others: TensorFlow maps one of its operations wrongly, such as tf.pad with constant_values, or '
                'tf.roll along axis -1: write it with other operations, such as tf.concat.'
            )


def name_of(functions: Any) -> str:
    """Return what to call an environment of pure functions."""
    return getattr(functions, 'name', None) or getattr(functions, '__name__', None) or type(functions).__name__


def backend_of(functions: Any) -> str:
    """Return what an environment of pure functions is written with."""
    return getattr(functions, 'backend', 'tensorflow')


class Mapped:
    """The functions of an environment for ``N`` copies at once, in TensorFlow.

    Observations are flat structures (:mod:`zoo.common.spaces`) in the dtypes of the space, rewards float32 and flags
    bool, all ``[N, …]``. Everything is checked while it is traced.
    """

    def __init__(self, functions: Functions) -> None:
        check(functions)
        self.functions, self.name = functions, name_of(functions)
        self.leaves = spaces.leaves(functions.observation_space)
        #: Shapes and dtypes of a state, of one copy; known after the first reset was traced.
        self.state_like: Any = None
        self._reset: Callable[..., Any] = functions.reset
        self._step: Callable[..., Any] = functions.step
        if backend_of(functions) == 'jax':
            from zoo.common.envs.compiled.jax_functions import in_tensorflow

            self._reset, self._step = in_tensorflow(functions)
            self._map = lambda function, arguments: function(*arguments)
        else:
            self._map = _vectorized

    def reset(self, seeds: tf.Tensor) -> tuple[Any, spaces.Flat]:
        """Return states and first observations for seeds, int32 ``[N, 2]``."""
        found = self._called('reset', self._first, self._reset, (seeds,))
        state, obs = found
        self.state_like = tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape[1:], x.dtype), state)
        return state, self._observed(obs, seeds.shape[0])

    def step(
        self, state: Any, action: Any, seeds: tf.Tensor
    ) -> tuple[Any, spaces.Flat, tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return states, observations, rewards and the two flags for states, actions and seeds ``[N, …]``."""
        count = seeds.shape[0]
        after, obs, reward, *flags = self._called('step', self._next, self._step, (state, action, seeds))
        tf.nest.assert_same_structure(state, after)
        reward = self._one_number('reward', reward, count)
        if reward.dtype.is_complex:
            raise InvalidType(f'step() of {self.name} gave a reward of dtype {reward.dtype.name}: give a float.')
        for name, flag in zip(('terminated', 'truncated'), flags, strict=True):
            if self._one_number(name, flag, count).dtype != tf.bool:
                raise InvalidType(
                    f'step() of {self.name} gave {name} of dtype {flag.dtype.name}: compare, as in x > 1, to make a '
                    'bool.'
                )
        return after, self._observed(obs, count), tf.cast(reward, tf.float32), flags[0], flags[1]

    def _called(self, method: str, checked: Callable[..., Any], function: Callable[..., Any], arguments: Any) -> Any:
        """Map one of the functions; a failure says which one it was."""
        failures: list[Exception] = []

        def guarded(*each: Any) -> Any:
            try:
                return checked(function(*each))
            except Exception as error:  # TensorFlow would wrap it in one of its own
                failures.append(error)
                raise

        try:
            return self._map(guarded, arguments)
        except Exception as error:
            found = failures[0] if failures else error
            if isinstance(found, InvalidType | InvalidValue):
                raise found from None
            where = _line(found, self.functions)
            if 'symbolic' in str(found).lower():  # TensorFlow would advise its own decorators
                raise InvalidValue(
                    f'{method}() of {self.name} needs the value of a tensor in Python{where}, as if, and, or, float() '
                    "and NumPy do: use tf.where, tf.cond and TensorFlow's functions."
                ) from found
            raise InvalidValue(
                f'{method}() of {self.name} cannot be traced{where} ({_said(found)}): it has to be a pure '
                f'function of {"JAX arrays" if backend_of(self.functions) == "jax" else "TensorFlow tensors"}.'
            ) from found

    def _first(self, found: Any) -> Any:
        if not (isinstance(found, tuple) and len(found) == 2):
            raise InvalidType(f'reset() of {self.name} returned {_kind(found)}, not the pair (state, observation).')
        state, obs = found
        return _tensors(state), self._parts('reset', obs)

    def _next(self, found: Any) -> Any:
        if not (isinstance(found, tuple) and len(found) == 5):
            raise InvalidType(f'step() of {self.name} returned {_kind(found)}, not ({STEP}).')
        state, obs, *rest = found
        state = _tensors(state)
        before = None if self.state_like is None else self.state_like
        self._check_state(before, state)
        return (state, self._parts('step', obs), *(tf.convert_to_tensor(x) for x in rest))

    def _check_state(self, before: Any, state: Any) -> None:
        """Refuse a state of another form than the first one: a compiled loop keeps shapes and dtypes."""
        if before is None:
            return
        try:
            tf.nest.assert_same_structure(before, state)
        except (ValueError, TypeError):
            raise InvalidValue(
                f'step() of {self.name} returned a state of another structure than reset(): return the same tuples, '
                'lists and dicts.'
            ) from None
        # With JAX the arrays have the copies as their first axis here.
        lead = 1 if backend_of(self.functions) == 'jax' else 0
        for one, other in zip(tf.nest.flatten(before), tf.nest.flatten(state), strict=True):
            if (one.shape, one.dtype) != (other.shape[lead:], other.dtype):
                raise InvalidValue(
                    f'step() of {self.name} changed a part of the state from {one.dtype.name} {one.shape} to '
                    f'{other.dtype.name} {other.shape[lead:]}: a compiled state keeps its shapes and dtypes.'
                )

    def _parts(self, method: str, obs: Any) -> dict[str, tf.Tensor]:
        """Return the parts of an observation by path, as tensors."""
        try:
            items = dict(spaces.tree_items(spaces.flatten(self.functions.observation_space, obs)))
        except TypeError as error:
            raise InvalidType(f'{method}() of {self.name}: in the observation {error}') from error
        return {path: tf.convert_to_tensor(items[path]) for path in self.leaves}

    def _observed(self, parts: dict[str, tf.Tensor], count: int) -> spaces.Flat:
        """Return observations in the shapes and dtypes of the space; refuse others."""
        items = {}
        for path, leaf in self.leaves.items():
            found, wanted = parts[path], (count, *spaces.shape_of(leaf))
            where = f'part {path!r} of the observation' if path else 'observation'
            if tuple(found.shape) != wanted:
                raise InvalidValue(
                    f'the {where} of {self.name} has shape {tuple(found.shape[1:])}, but its space declares '
                    f'{wanted[1:]}.'
                )
            own = tf.as_dtype(leaf.dtype)
            # A wider integer would wrap around, and a number with a fraction be cut off.
            if not own.is_floating and not np.can_cast(found.dtype.as_numpy_dtype, own.as_numpy_dtype):
                raise InvalidValue(
                    f'the {where} of {self.name} has dtype {found.dtype.name}, but its space declares {own.name}: cast '
                    'it, or declare the dtype.'
                )
            items[path] = tf.cast(found, own)
        return spaces.from_items(self.functions.observation_space, items)

    def _one_number(self, name: str, x: tf.Tensor, count: int) -> tf.Tensor:
        if tuple(x.shape) != (count,):
            raise InvalidValue(
                f'step() of {self.name} gave {name} of shape {tuple(x.shape[1:])}, but it is one number: shape ().'
            )
        return x


def _vectorized(function: Callable[..., Any], arguments: Any) -> Any:
    """Map a function over the first axis of its arguments."""
    plain = tf.autograph.experimental.do_not_convert(lambda x: function(*x))
    return tf.vectorized_map(plain, arguments, warn=False)


def _tensors(state: Any) -> Any:
    return tf.nest.map_structure(tf.convert_to_tensor, state)


def _line(error: BaseException, functions: Any) -> str:
    """Return the last line of the user's own file that an error came through, as ``' in line 12'``; empty if none."""
    return _place(traceback.extract_tb(error.__traceback__), functions)


def _place(frames: Iterable[Any], functions: Any) -> str:
    """Return the last line of the user's own file in a stack of calls; empty if it is not among them."""
    file = getattr(sys.modules.get(type(functions).__module__), '__file__', None)
    lines = [frame.lineno for frame in frames if frame.filename == file]
    return f' in line {lines[-1]}' if lines else ''


def _said(error: Exception) -> str:
    """Return the first line of an error of TensorFlow or JAX."""
    first = str(error).strip().partition('\n')[0]
    return f'{type(error).__name__}: {first}' if first else type(error).__name__


def _kind(x: Any) -> str:
    return f'{len(x)} values' if isinstance(x, tuple | list) else type(x).__name__
