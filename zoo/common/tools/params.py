"""Parameters, each declared once, where it is taken: in a signature, or as a field of a class.

A parameter has a name, a type, a range, a meaning and a default::

    tau: Annotated[float, between(0, 1), 'step of the targets'] = 0.005

:func:`declared` reads a signature and :func:`fields` a class; both return :class:`Param` objects. These check values
and give defaults, documentation, and the tables of :func:`zoo.describe`. Types are Python's own hints:

=============================  =====================================================================
``int``                        a whole number; ``1e5`` is one too
``float``                      a finite number
``bool``                       True or False
``Literal['auto']``, …         one of these
``… | Linear``                 also a schedule with both ends in range
``… | None``                   also None
a class                        an instance of it
``dict[str, Any]``, with a     a dict whose keys are the dataclass's fields; each is checked, and a
dataclass beside the meaning   missing key has its default
anything else                  not checked, except by a function beside the meaning: it is called with
                               the value if that is not None, and raises a ``ValueError`` of one sentence
=============================  =====================================================================
"""

from __future__ import annotations

import copy
import functools
import inspect
import math
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Union

import numpy as np

from zoo.common.schedules import Linear
from zoo.common.tools import habits
from zoo.common.tools.errors import InvalidType, InvalidValue, article, unknown

if TYPE_CHECKING:

    class ParamDict(dict[str, Any]):
        """A dict of parameters. With ``|`` it stays one: of a plain dict a checker would then doubt every value."""

        def __or__(self, other: Mapping[str, Any]) -> ParamDict: ...  # type: ignore[override]

else:
    ParamDict = dict


@dataclass(frozen=True)
class Range:
    """The numbers from ``low`` to ``high``; ``open_low`` excludes ``low``, ``open_high`` excludes ``high``."""

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False

    def __contains__(self, value: float) -> bool:
        above_low = self.low < value if self.open_low else self.low <= value
        return above_low and (value < self.high if self.open_high else value <= self.high)

    def __str__(self) -> str:
        """Return it for a sentence: ``' from 0 to 1'``, ``' above 0'``, ``' of at least 1'``."""
        low, high = (f'{bound:g}' for bound in (self.low, self.high))
        if math.isinf(self.high):
            return '' if math.isinf(self.low) else f' above {low}' if self.open_low else f' of at least {low}'
        if math.isinf(self.low):
            return f' below {high}' if self.open_high else f' of at most {high}'
        return f' {"above" if self.open_low else "from"} {low} to {"below " if self.open_high else ""}{high}'


def between(low: float, high: float) -> Range:
    """Return the range from ``low`` to ``high``, both included."""
    return Range(low, high)


def at_least(low: float) -> Range:
    """Return the range from ``low`` upward."""
    return Range(low)


def above(low: float) -> Range:
    """Return the range above ``low``."""
    return Range(low, open_low=True)


@dataclass(frozen=True)
class Param:
    """One parameter.

    Attributes:
        default: ``Param.required`` where there is none.
        kind: ``'whole'``, ``'number'``, ``'flag'``, ``'choice'``, ``'instance'``, ``'keys'`` or ``'any'``.
        range: the numbers that may be given.
        meaning: what it does, a phrase.
        choices: the values of a choice, or further values besides numbers.
        classes: for an instance.
        keys: for a dict.
        optional: whether None may be given.
        scheduled: whether a :class:`Linear` schedule may be given.
        refuse: a function that raises a ``ValueError`` for a wrong value; for a parameter of any kind.
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
    refuse: Callable[[Any], Any] | None = None

    required = inspect.Parameter.empty

    def fresh(self) -> Any:
        """Return the default; a list or a dict is copied, so that nobody changes the default of others."""
        return copy.deepcopy(self.default) if isinstance(self.default, list | dict | set | np.ndarray) else self.default

    def check(self, value: Any) -> Any:
        """Return the value to keep; a whole number becomes an ``int``.

        Raises:
            ValueError: one sentence with the value and what may be given.
        """
        if (value is None and self.optional) or self.kind == 'any':
            if self.refuse is not None and value is not None:
                self.refuse(value)
            return value
        if any(type(value) is type(choice) and value == choice for choice in self.choices):
            return value
        if self.kind in ('whole', 'number'):
            if self.scheduled and isinstance(value, Linear):
                closed = replace(self.range, open_low=False)  # a clip range or a rate may end at 0
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
        raise InvalidValue(self._refusal(value))

    def _number(self, value: Any, given: Any, within: Range) -> int | float:
        real = isinstance(value, int | float | np.number) and not isinstance(value, bool | np.complexfloating)
        if not real or not math.isfinite(value) or value not in within:
            raise InvalidValue(self._refusal(given))
        if self.kind == 'number':
            return value if isinstance(value, int) else float(value)
        if value != int(value):
            raise InvalidValue(self._refusal(given))
        return int(value)

    def _dict(self, given: Mapping[str, Any]) -> dict[str, Any]:
        known = {key.name: key for key in self.keys}
        for name, value in given.items():
            if name not in known:
                raise InvalidValue(unknown(f'key of {self.name}', name, known))
            if known[name].kind == 'choice' and isinstance(value, str) and value not in known[name].choices:
                raise InvalidValue(unknown(f'{name} of {self.name}', value, known[name].choices))
        for name, key in known.items():
            if key.default is Param.required and name not in given:
                raise InvalidValue(f'{self.name} lacks {name!r}: give {self.wanted}.')
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
            'instance': [article(cls.__name__) for cls in self.classes],
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
    """Return what a key takes, short enough for a sentence."""
    return ' or '.join(map(repr, key.choices)) if key.kind == 'choice' else '…'


def declared(*functions: Callable[..., Any], only_keywords: bool = False) -> dict[str, Param]:
    """Return the parameters of functions (or classes) by name, in the order of their signatures.

    Args:
        only_keywords: leave out parameters that may be given by position.
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
    except Exception:  # only a type checker can read a hint: nothing is checked here
        return {}


def fields(cls: type, declares: Callable[[type], bool]) -> dict[str, Param]:
    """Return the parameters of a class, each with the default that the class itself has by Python's order of bases.

    An annotated attribute declares a parameter, unless it is a ``ClassVar``. A parameter that is declared again keeps
    the inherited range and meaning where it gives none. An attribute without annotation that has the name of a
    parameter is its new default, in a plain mixin too.

    Args:
        cls: the class; its attributes and the attributes of its bases are read.
        declares: whether annotations of a base declare parameters.

    Raises:
        ValueError: a default is out of its range; the message names class and parameter.
        TypeError: a method or a property has the name of a parameter.
    """
    found: dict[str, Param] = {}
    for base in reversed(cls.__mro__):
        own = inspect.get_annotations(base) if declares(base) else {}
        for name, hint in ((name, _hint(base, hint)) for name, hint in own.items()):
            if hint is not ClassVar and typing.get_origin(hint) is not ClassVar:
                param = _param(name, vars(base).get(name, Param.required), hint)
                before = found.get(name, param)
                limits = before.range if param.range == Range() else param.range
                found[name] = replace(param, range=limits, meaning=param.meaning or before.meaning)
        for name in [name for name in found if name in vars(base)]:
            given = vars(base)[name]
            if name not in own and isinstance(given, types.FunctionType | property | classmethod | staticmethod):
                raise InvalidType(f'{base.__name__}.{name} has the name of a parameter: name the method otherwise.')
            value = replace(found[name], name=f'{base.__name__}.{name}').check(given)
            found[name] = replace(found[name], default=value)
    return found


def _hint(cls: type, hint: Any) -> Any:
    """Return an annotation as a type; one that only a type checker can read is not checked."""
    if not isinstance(hint, str):
        return hint
    try:
        return eval(hint, vars(sys.modules[cls.__module__]), dict(vars(cls)))
    except Exception:
        return ClassVar if 'ClassVar' in hint else Any


def _param(name: str, default: Any, hint: Any) -> Param:
    options, extras = _options(hint)
    meaning = next((extra for extra in extras if isinstance(extra, str)), '')
    limits = next((extra for extra in extras if isinstance(extra, Range)), Range())
    choices = [x for option in options if typing.get_origin(option) is Literal for x in typing.get_args(option)]
    rest = [option for option in options if option not in (type(None), Linear) and typing.get_origin(option) is None]
    others = [option for option in options if typing.get_origin(option) not in (None, Literal)]
    kind, classes = 'any', ()
    form = next((extra for extra in extras if isinstance(extra, type)), None)
    refuse = next((extra for extra in extras if isinstance(extra, types.FunctionType)), None)
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
    optional, scheduled = type(None) in options, Linear in options
    return Param(name, default, kind, meaning, limits, tuple(choices), classes, keys, optional, scheduled, refuse)


def _options(hint: Any) -> tuple[list[Any], list[Any]]:
    """Return the types and notes of a hint, at any depth: Python 3.10 puts ``Optional`` around the whole."""
    if typing.get_origin(hint) is Annotated:
        inner, *extras = typing.get_args(hint)
        options, more = _options(inner)
        return options, [*extras, *more]
    if typing.get_origin(hint) not in (Union, types.UnionType):
        return [hint], []
    found = [_options(option) for option in typing.get_args(hint)]
    return [x for options, _ in found for x in options], [x for _, extras in found for x in extras]


def checked(given: Mapping[str, Any], known: Mapping[str, Param]) -> dict[str, Any]:
    """Return the values to keep (:meth:`Param.check`); ``known`` declares each name in ``given``."""
    return {name: known[name].check(value) for name, value in given.items()}


def refusal(kind: str, name: str, known: Iterable[str], elsewhere: Mapping[str, str]) -> str:
    """Return the sentence that refuses an unknown parameter.

    Args:
        kind: ``"parameter of PPO"``.
        name: the unknown name.
        known: names that would be accepted.
        elsewhere: names that belong elsewhere, and where.
    """
    known = list(known)
    if name in elsewhere:
        return f'{name!r} {elsewhere[name]}'
    here, there, told = habits.renamed(name, known), habits.renamed(name, elsewhere), habits.advice(name)
    if here is not None:
        told = f'it is called {here!r} here'
    elif there is not None:
        return f'unknown {kind} {name!r}: it is called {there!r} here, and {elsewhere[there]}'
    if told is not None:
        return f'unknown {kind} {name!r}: {told}.'
    return unknown(kind, name, known)


def documentation(known: Iterable[Param]) -> str:
    """Return the parameters as docstring lines: name, meaning, possible values, default."""
    lines = []
    for param in known:
        kind = f' ({param.type_name})' if param.type_name else ''
        default = '' if param.default is Param.required else f' Default: {param.default!r}.'
        text = f'{param.name}: {param.meaning}{kind}.{default}'
        lines += textwrap.wrap(text, 100, initial_indent=' ' * 4, subsequent_indent=' ' * 8)
    return '\n'.join(lines)
