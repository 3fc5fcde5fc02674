"""What ``step`` and ``reset`` of an environment return: read if it can mean only one thing, else refused in a sentence.

``who``, an argument of many functions here, returns the beginning of the sentence: the step, the environment, the copy.
"""

from __future__ import annotations

import inspect
import math
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.vector import AutoresetMode, VectorEnv

from zoo.common.tools.errors import Failure, InvalidType, InvalidValue

#: The key of ``info`` that marks the end of only a part of a longer game, such as a lost life in Atari.
LIFE_LOST = 'zoo/life_lost'

STEP = 'observation, reward, terminated, truncated, info'
RESET = 'def reset(self, *, seed=None, options=None): super().reset(seed=seed); ...; return observation, info'
#: How to make one reward of one for each objective, the end of a sentence.
WEIGH = (
    'weigh them into one, as in build_env(lambda: gymnasium.wrappers.TransformReward(env, '
    'lambda r: float(numpy.dot(r, [0.7, 0.3]))))'
)


def autoreset_mode(env: VectorEnv) -> AutoresetMode:
    """Return ``env.metadata['autoreset_mode']``; a ValueError says that it is missing, or no mode (nor its name)."""
    metadata = env.metadata if isinstance(env.metadata, dict) else {}
    said = metadata.get('autoreset_mode')
    if isinstance(said, AutoresetMode):
        return said
    for mode in AutoresetMode:
        if _letters(said) == _letters(mode.value):
            return mode
    what = 'does not say' if said is None else f'says {said!r} of'
    raise InvalidValue(
        f'the vector environment {type(env.unwrapped).__name__} {what} when it resets a copy whose episode has ended: '
        "set metadata['autoreset_mode'] to NEXT_STEP, SAME_STEP or DISABLED of gymnasium.vector.AutoresetMode."
    )


def _letters(name: Any) -> str:
    return ''.join(letter for letter in str(name).rpartition('.')[2].lower() if letter.isalpha())


def step(result: Any, who: Callable[..., str]) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
    """Return the five values of ``step`` (else ValueError); only ``info`` is checked, a dictionary (else TypeError)."""
    try:
        observation, reward, terminated, truncated, info = result
    except (TypeError, ValueError):
        raise not_a_step(result, who) from None
    if not isinstance(info, dict):
        raise not_an_info(info, who)
    return observation, reward, terminated, truncated, info


def not_a_step(result: Any, who: Callable[..., str]) -> ValueError:
    found = f'{len(result)} values' if isinstance(result, (tuple, list)) else shown(result)
    return InvalidValue(f'{who()} returned {found} from step(), not {STEP}.')


def not_an_info(info: Any, who: Callable[..., str]) -> TypeError:
    return InvalidType(f'{who()} gave the info {shown(info)}, not a dictionary.')


def first(result: Any, where: str) -> tuple[Any, dict[str, Any]]:
    """Return the pair that ``reset`` returned, or raise a ValueError."""
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict):
        return result
    raise InvalidValue(f'{where}: reset() must return the pair (observation, info), where info is a dictionary.')


def no_space(env: Any, name: str) -> str | None:
    """Return the sentence that an attribute of an environment is no space; None if it is one."""
    space = getattr(env, name, None)
    if isinstance(space, Space):
        return None
    given = 'is missing' if space is None else f'is a {type(space).__module__}.{type(space).__name__}'
    return f'{name} {given}: set it in __init__ to a space of gymnasium.spaces.'


def reset_lacks(env: Any) -> dict[str, str]:
    """Return what ``reset`` of an environment, or of what it wraps, does not take: a sentence for each argument."""
    found = {}
    for layer in (env, env.unwrapped):
        parameters = inspect.signature(layer.reset).parameters
        if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            continue
        for name in ('seed', 'options'):
            if name not in parameters:
                found[name] = f'reset() does not take {name}: write {RESET}.'
    return found


def refuse_reset(error: TypeError, env: Any, where: str) -> None:
    """Raise a TypeError in a sentence if ``error`` says that ``reset`` does not take an argument."""
    for argument, sentence in reset_lacks(env).items():
        if f'unexpected keyword argument {argument!r}' in str(error):
            raise InvalidType(f'{where}: {sentence}') from error


def own_fault(what: str, error: Exception) -> Failure:
    """Return the error for an exception in the environment's own code, as the sentence that begins with ``what``.

    It is for the ``OverflowError`` of NumPy 2, where older versions took a number modulo the size of its type: packages
    that were written for them fail like this, and NumPy's words alone do not say where.
    """
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f'{place.filename}, line {place.lineno}'
    return Failure(f'{what}, by a fault of its own: {where}, raised {type(error).__name__} ({error}).')


def number(reward: Any, who: Callable[..., str]) -> float:
    """Return a reward from a number, or from an array that holds one; else raise a TypeError."""
    if isinstance(reward, (float, int)):
        return reward
    found = _one(reward)
    if found is None:
        raise InvalidType(f'{who()} gave the reward {shown(reward)}, {several(reward) or "not one number"}.')
    return found


def several(reward: Any) -> str:
    """Return what a reward of several numbers is and what to do with it, to end a sentence; empty for any other one."""
    if isinstance(reward, dict):
        return 'a number for each agent, not one number: zoo trains one agent, see examples/self_play.py'
    size = _size(reward)
    return f'a number for each of {size} objectives, not one number: {WEIGH}' if size > 1 else ''


def flag(name: str, value: Any, who: Callable[..., str]) -> bool:
    """Return ``terminated`` or ``truncated`` from a bool, 0 or 1, or from an array that holds one; else TypeError."""
    if isinstance(value, (bool, np.bool_)):
        return value  # type: ignore[return-value] # NumPy's bool will do
    found = _one(value)
    if found not in (0, 1):
        raise InvalidType(f'{who()} gave {name} as {shown(value)}, which is neither True nor False.')
    return bool(found)


def numbers(rewards: Any, n: int, who: Callable[..., str]) -> np.ndarray:
    """Return the rewards of ``n`` copies, ``[n]``; a TypeError says that there is not one number for each."""
    x = _of_each('rewards', rewards, n, who)
    return x if x.dtype.kind in 'fiub' else np.array([number(x[i], partial(who, i)) for i in range(n)], np.float64)


def flags(name: str, values: Any, n: int, who: Callable[..., str]) -> np.ndarray:
    """Return ``terminated`` or ``truncated`` of ``n`` copies, bool ``[n]``; else raise a TypeError."""
    x = _of_each(name, values, n, who)
    return x if x.dtype == bool else np.array([flag(name, x[i], partial(who, i)) for i in range(n)], bool)


def _of_each(name: str, values: Any, n: int, who: Callable[..., str]) -> np.ndarray:
    x = values if isinstance(values, np.ndarray) else np.asarray(values)
    if x.shape != (n,):
        objectives = name == 'rewards' and x.ndim == 2 and len(x) == n and x.shape[1] > 1
        hint = f'; a copy has one number, not one for each of {x.shape[1]} objectives: weigh them' if objectives else ''
        raise InvalidType(f'{who()} gave {name} of shape {x.shape}, not one for each copy, ({n},){hint}.')
    return x


def of_copy(info: Any, key: str, i: int) -> Any:
    """Return what copy ``i`` of a vector environment set in ``info``; None where it set nothing, or in another form.

    The mask ``_key`` says which copies set it. An array with one dictionary for each copy is understood, too.
    """
    try:
        if isinstance(info, np.ndarray):
            return info[i].get(key)
        given = info.get(f'_{key}')
        if key not in info or not (given is None or given[i]):
            return None
        value = info[key]
        return {name: x[i] for name, x in value.items() if name[0] != '_'} if isinstance(value, dict) else value[i]
    except (AttributeError, IndexError, KeyError, TypeError):
        return None


def account(episode: Any) -> tuple[float, int] | None:
    """Return the return and length that the environment has in ``info['episode']``; None for any other form."""
    if not isinstance(episode, dict):
        return None
    total, length = _one(episode.get('r')), _one(episode.get('l'))
    if total is None or length is None or not (math.isfinite(total) and math.isfinite(length)):
        return None
    return total, int(length)


def success(value: Any) -> bool | None:
    """Return a bool from a bool, 0 or 1, or from an array that holds one; None for anything else."""
    found = _one(value)
    return bool(found) if found in (0, 1) else None


def _one(value: Any) -> float | None:
    """The one number that ``value`` is or holds, else None."""
    try:
        x = np.asarray(value)
    except ValueError:  # lists of several lengths
        return None
    return float(x.item()) if x.size == 1 and x.dtype.kind in 'fiub' else None


def _size(value: Any) -> int:
    try:
        return np.size(value)
    except ValueError:  # as above
        return len(value)


def shown(value: Any) -> str:
    """Return a value for a sentence, in one line and not too long."""
    text = ' '.join(repr(value.item() if isinstance(value, np.generic) else value).split())
    return text if len(text) <= 80 else f'{text[:77]}…'
