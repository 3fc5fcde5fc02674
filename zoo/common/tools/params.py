"""Parameters, each declared once: in the signature that takes it.

A parameter's type, range and meaning stand beside its name and default::

    def __init__(self, ..., tau: Annotated[float, between(0, 1), 'step of the targets'] = 0.005) -> None:

From that :func:`declared` makes a :class:`Param`, and everything else comes of it: the check when it is given, the
defaults, the documentation, the tables of :func:`zoo.describe`. The types are those of Python's own hints:

=============================  =====================================================================
``int``                        a whole number; ``1e5`` is one too
``float``                      a finite number
``bool``                       True or False
``Literal['auto']``, …         one of these
``… | Linear``                 a schedule as well, both of whose ends are in range
``… | None``                   None as well
a class                        an instance of it
``dict[str, Any]``, with a     a dict with the fields of the dataclass as its keys, each checked as it
dataclass beside the meaning   is declared there; those that are left out have their defaults
anything else                  not checked here
=============================  =====================================================================
"""

from __future__ import annotations

import functools
import inspect
import math
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Union

import numpy as np

from zoo.common.schedules import Linear
from zoo.common.tools.errors import unknown
from zoo.common.tools.habits import HABITS


@dataclass(frozen=True)
class Range:
    """The numbers from ``low`` to ``high``; ``open_low`` leaves out ``low`` itself, ``open_high`` ``high``."""

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False

    def __contains__(self, value: float) -> bool:
        above_low = self.low < value if self.open_low else self.low <= value
        return above_low and (value < self.high if self.open_high else value <= self.high)

    def __str__(self) -> str:
        """For a sentence: ``' from 0 to 1'``, ``' above 0'``, ``' of at least 1'``."""
        low, high = (f'{bound:g}' for bound in (self.low, self.high))
        if math.isinf(self.high):
            return '' if math.isinf(self.low) else f' above {low}' if self.open_low else f' of at least {low}'
        if math.isinf(self.low):
            return f' below {high}' if self.open_high else f' of at most {high}'
        return f' {"above" if self.open_low else "from"} {low} to {"below " if self.open_high else ""}{high}'


def between(low: float, high: float) -> Range:
    """From ``low`` to ``high``, both included."""
    return Range(low, high)


def at_least(low: float) -> Range:
    """``low`` and more."""
    return Range(low)


def above(low: float) -> Range:
    """More than ``low``."""
    return Range(low, open_low=True)


@dataclass(frozen=True)
class Param:
    """One parameter.

    Attributes:
        name: its name.
        default: its default; ``required`` where it has none.
        kind: ``'whole'``, ``'number'``, ``'flag'``, ``'choice'``, ``'instance'``, ``'keys'`` or ``'any'``.
        range: of a number.
        meaning: what it does, a phrase.
        choices: values beside the numbers that may be given, or all of a choice.
        classes: of which an instance has one.
        keys: what a dict of further parameters holds.
        optional: None may be given.
        scheduled: a :class:`Linear` schedule may be given.
    """

    name: str
    default: Any
    kind: str
    meaning: str = ''
    range: Range = Range()
    choices: tuple[Any, ...] = ()
    classes: tuple[type, ...] = ()
    keys: tuple[Param, ...] = ()
    optional: bool = False
    scheduled: bool = False

    required = inspect.Parameter.empty

    def check(self, value: Any) -> Any:
        """The value as it is kept: a whole number as an ``int``, any other number as a ``float``.

        Raises:
            ValueError: one sentence with the value and what may be given.
        """
        if (value is None and self.optional) or self.kind == 'any':
            return value
        if any(type(value) is type(choice) and value == choice for choice in self.choices):
            return value
        if self.kind in ('whole', 'number'):
            if self.scheduled and isinstance(value, Linear):
                closed = replace(self.range, open_low=False)  # a clip range or a rate may end at nothing
                return Linear(
                    self._number(value.start, value, self.range), self._number(value.end, value, closed), value.until
                )
            return self._number(value, value, self.range)
        if self.kind == 'flag' and isinstance(value, bool | np.bool_):
            return bool(value)
        if self.kind == 'instance' and isinstance(value, self.classes):
            return value
        if self.kind == 'keys' and isinstance(value, Mapping):
            return self._dict(value)
        raise ValueError(self._refusal(value))

    def _number(self, value: Any, given: Any, within: Range) -> int | float:
        real = isinstance(value, int | float | np.number) and not isinstance(value, bool | np.complexfloating)
        if not real or not math.isfinite(value) or value not in within:
            raise ValueError(self._refusal(given))
        if self.kind == 'number':
            return value if isinstance(value, int) else float(value)
        if value != int(value):
            raise ValueError(self._refusal(given))
        return int(value)

    def _dict(self, given: Mapping[str, Any]) -> dict[str, Any]:
        known = {key.name: key for key in self.keys}
        for name, value in given.items():
            if name not in known:
                raise ValueError(unknown(f'key of {self.name}', name, known))
            if known[name].kind == 'choice' and isinstance(value, str) and value not in known[name].choices:
                raise ValueError(unknown(f'{name} of {self.name}', value, known[name].choices))
        for name, key in known.items():
            if key.default is Param.required and name not in given:
                raise ValueError(f'{self.name} lacks {name!r}: give {self.wanted}.')
        named = {name: replace(key, name=f'{self.name}[{name!r}]') for name, key in known.items()}
        return {name: key.default for name, key in known.items()} | checked(given, named)

    def _refusal(self, value: Any) -> str:
        return f'{self.name} is {value!r}: give {self.wanted}.'

    @property
    def wanted(self) -> str:
        """What may be given, for a sentence: ``'a number from 0 to 1, a Linear schedule of such, or None'``."""
        kinds = {
            'whole': [f'a whole number{self.range}'],
            'number': [f'a number{self.range}'],
            'flag': ['True or False'],
            'instance': [f'a {cls.__name__}' for cls in self.classes],
            'keys': [f'dict({", ".join(f"{key.name}={_example(key)}" for key in self.keys)})'],
        }
        ways = kinds.get(self.kind, [])
        ways += ['a Linear schedule of such'] if self.scheduled else []
        ways += [repr(choice) for choice in self.choices]
        ways += ['None'] if self.optional else []
        return ways[0] if len(ways) == 1 else f'{", ".join(ways[:-1])} or {ways[-1]}'

    @property
    def type_name(self) -> str:
        """The kind of value for a table: ``'number from 0 to 1'``."""
        return '' if self.kind == 'any' else self.wanted.removeprefix('a ')

    @property
    def default_text(self) -> str:
        """The default for a table."""
        return 'required' if self.default is Param.required else repr(self.default)


def _example(key: Param) -> str:
    """What may be given for a key, short enough for a sentence."""
    return ' or '.join(map(repr, key.choices)) if key.kind == 'choice' else '…'


def declared(*functions: Callable[..., Any], only_keywords: bool = False) -> dict[str, Param]:
    """The parameters of functions (or classes) by name, in the order of their signatures.

    Args:
        functions: whose parameters.
        only_keywords: leave out those that may be given by position.
    """
    found: dict[str, Param] = {}
    for function in functions:
        found |= _declared(inspect.unwrap(function), only_keywords)
    return found


@functools.cache
def _declared(function: Callable[..., Any], only_keywords: bool) -> dict[str, Param]:
    hints = _hints(function)
    kinds = {inspect.Parameter.KEYWORD_ONLY} | (set() if only_keywords else {inspect.Parameter.POSITIONAL_OR_KEYWORD})
    return {
        p.name: _param(p.name, p.default, hints.get(p.name, Any))
        for p in inspect.signature(function).parameters.values()
        if p.kind in kinds and p.name != 'self'
    }


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception:  # a hint that only a type checker can read: those of this function are not checked
        return {}


def _param(name: str, default: Any, hint: Any) -> Param:
    options, extras = _options(hint)
    meaning = next((extra for extra in extras if isinstance(extra, str)), '')
    limits = next((extra for extra in extras if isinstance(extra, Range)), Range())
    choices = [x for option in options if typing.get_origin(option) is Literal for x in typing.get_args(option)]
    rest = [option for option in options if option not in (type(None), Linear) and typing.get_origin(option) is None]
    others = [option for option in options if typing.get_origin(option) not in (None, Literal)]
    kind, classes = 'any', ()
    form = next((extra for extra in extras if isinstance(extra, type)), None)
    keys = () if form is None else tuple(declared(form).values())
    if keys:
        kind = 'keys'
    elif Any in rest or others:
        pass
    elif float in rest:
        kind = 'number'
    elif int in rest:
        kind = 'whole'
    elif bool in rest:
        kind = 'flag'
    elif rest and all(isinstance(option, type) for option in rest):
        kind, classes = 'instance', tuple(rest)
    elif choices:
        kind = 'choice'
    return Param(
        name, default, kind, meaning, limits, tuple(choices), classes, keys, type(None) in options, Linear in options
    )


def _options(hint: Any) -> tuple[list[Any], list[Any]]:
    """The types of a hint, and what is said of them, wherever in it: Python 3.10 puts ``Optional`` around the whole."""
    if typing.get_origin(hint) is Annotated:
        inner, *extras = typing.get_args(hint)
        options, more = _options(inner)
        return options, [*extras, *more]
    if typing.get_origin(hint) not in (Union, types.UnionType):
        return [hint], []
    found = [_options(option) for option in typing.get_args(hint)]
    return [x for options, _ in found for x in options], [x for _, extras in found for x in extras]


def takes_any(function: Callable[..., Any]) -> bool:
    """Whether a function takes keyword arguments of any name, to hand them on."""
    kinds = [p.kind for p in inspect.signature(inspect.unwrap(function)).parameters.values()]
    return inspect.Parameter.VAR_KEYWORD in kinds


def checked(given: Mapping[str, Any], known: Mapping[str, Param]) -> dict[str, Any]:
    """The values of parameters as they are kept; see :meth:`Param.check`.

    Args:
        given: values by name, all of them known.
        known: the declarations.
    """
    return {name: known[name].check(value) for name, value in given.items()}


def refusal(kind: str, name: str, known: Iterable[str], elsewhere: Mapping[str, str]) -> str:
    """The sentence for a parameter that is not known.

    Args:
        kind: what has parameters, for example ``"parameter of PPO"``.
        name: what was given.
        known: the names that would have been accepted.
        elsewhere: names that belong elsewhere, and where.
    """
    known = list(known)
    habit = HABITS.get(name)
    if name in elsewhere:
        return f'{name!r} {elsewhere[name]}'
    if habit in known:
        return f'unknown {kind} {name!r}: it is called {habit!r} here.'
    if habit is not None and habit in elsewhere:
        return f'unknown {kind} {name!r}: it is called {habit!r} here, and {elsewhere[habit]}'
    if habit is not None and ' ' in habit:
        return f'unknown {kind} {name!r}: {habit}.'
    return unknown(kind, name, known)


def documentation(known: Iterable[Param]) -> str:
    """The parameters as the lines of a docstring: name, meaning, what may be given, default."""
    lines = []
    for param in known:
        kind = f' ({param.type_name})' if param.type_name else ''
        default = '' if param.default is Param.required else f' Default: {param.default!r}.'
        text = f'{param.name}: {param.meaning}{kind}.{default}'
        lines += textwrap.wrap(text, 100, initial_indent=' ' * 4, subsequent_indent=' ' * 8)
    return '\n'.join(lines)
