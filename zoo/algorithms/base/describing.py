"""Show an algorithm's parameters: in ``help``, in Tab completion and by ``zoo.describe``."""

from __future__ import annotations

import functools
import html
import inspect
import shutil
import textwrap
from dataclasses import dataclass
from typing import Any

from zoo.algorithms.base import catalog
from zoo.algorithms.base.own_defaults import OwnDefaults, own_defaults
from zoo.common.tools.errors import InvalidType, InvalidValue
from zoo.common.tools.params import Param, documentation
from zoo.common.tools.printing import Table

_BY_POSITION = inspect.Parameter.POSITIONAL_OR_KEYWORD


@dataclass(frozen=True)
class Description:
    """Every parameter of an algorithm, for printing; a notebook shows tables.

    Attributes:
        name, summary: the algorithm and what it is.
        constructor: the parameters in ``alg_params``.
        learn: the parameters in ``learn_params``.
        own: the user's own defaults, by environment.
    """

    name: str
    summary: str
    constructor: tuple[Param, ...]
    learn: tuple[Param, ...]
    own: tuple[OwnDefaults, ...] = ()

    _columns = ('parameter', 'default', 'values', 'meaning')

    def _tables(self) -> list[tuple[str, list[tuple[str, ...]]]]:
        return [
            (f'{title} of {self.name}', [(p.name, p.default_text, p.type_name, p.meaning) for p in found])
            for title, found in (('Parameters', self.constructor), ('Parameters of learn', self.learn))
        ]

    def __repr__(self) -> str:
        width = min(100, shutil.get_terminal_size().columns)
        lines = textwrap.wrap(self.summary, width)
        for title, rows in self._tables():
            lines += ['', title, '']
            for name, default, values, meaning in rows:
                lines.append(f'  {name} = {default}' + (f'  ({values})' if values else ''))
                lines += textwrap.wrap(meaning, width, initial_indent=' ' * 6, subsequent_indent=' ' * 6)
        if self.own:
            lines += ['', f'Your own defaults of {self.name}', '']
            lines += [f'  {own.environment}: {own}' for own in self.own]
        return '\n'.join(lines)

    def _repr_html_(self) -> str:
        tables = ''.join(Table(title, self._columns, rows).html() for title, rows in self._tables())
        own = ''.join(f'<p>Your own defaults in {html.escape(f"{own.environment}: {own}")}</p>' for own in self.own)
        return f'<p>{html.escape(self.summary)}</p>{tables}{own}'


def describe(algorithm: Any, *others: Any) -> Description:
    """Return every parameter of an algorithm: name, default, possible values, meaning.

    Args:
        algorithm: its name, such as ``'PPO'``, its class or an agent.
        others: is refused. ``zoo.call_default_params`` has the defaults in an environment.

    Raises:
        ValueError: there is no such algorithm.
        TypeError: more than an algorithm was given.
    """
    if others:
        raise InvalidType(
            "describe takes one algorithm: zoo.call_default_params(env, alg='PPO') has the defaults in an environment, "
            'as zoo describe PPO CartPole-v1 in a shell.'
        )
    if isinstance(algorithm, str):
        algorithm = catalog.find(algorithm)
    cls: Any = algorithm if isinstance(algorithm, type) else type(algorithm)
    if not hasattr(cls, 'declared_for_learn'):
        raise InvalidValue(f'describe takes the name of an algorithm, its class or an agent, not {algorithm!r}.')
    summary = inspect.cleandoc(cls.__doc__ or cls.__name__).partition('\n\n')[0].replace('\n', ' ')
    own = tuple(own_defaults(cls.__name__).values())
    for defaults in own:
        defaults.checked()
    constructor, learn = tuple(cls.declared().values()), tuple(cls.declared_for_learn().values())
    return Description(cls.__name__, summary, constructor, learn, own)


def document(cls: Any) -> None:
    """Write the parameters into the docstrings and signatures of an algorithm's class and its ``learn``."""
    names = (
        f'Entries of ``net_list``: {", ".join(cls.network_names)}. Entries of ``optimizers_list``: '
        f'{", ".join(cls.optimizer_names)}.'
    )
    own = inspect.cleandoc(cls.__dict__.get('__doc__') or f'{cls.__name__}.')
    cls.__doc__ = f'{own}\n\n{names}\n\nArgs:\n{documentation(cls.declared().values())}\n'
    parameters = [
        inspect.Parameter(
            name, _BY_POSITION if name in cls.by_position else inspect.Parameter.KEYWORD_ONLY, default=param.default
        )
        for name, param in cls.declared().items()
    ]
    cls.__signature__ = inspect.Signature(parameters)

    def __init__(self: Any, *args: Any, **params: Any) -> None:
        super(cls, self).__init__(*args, **params)

    # Tab completion reads this signature.
    __init__.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter('self', _BY_POSITION), *parameters]
    )
    __init__.__qualname__ = f'{cls.__qualname__}.__init__'
    cls.__init__ = __init__
    if 'learn' in cls.__dict__:
        return

    known = cls.declared_for_learn()
    inherited = cls.learn

    @functools.wraps(inherited)
    def learn(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(self, cls):
            raise InvalidType(f'{cls.__name__} is a class: make an agent first, agent = {cls.__name__}(**alg_params).')
        return super(cls, self).learn(*args, **kwargs)

    signature = inspect.signature(inspect.unwrap(inherited))
    fixed = [
        p.replace(annotation=inspect.Parameter.empty)
        for p in signature.parameters.values()
        if p.kind is not p.VAR_KEYWORD
    ]
    keywords = [inspect.Parameter(p.name, inspect.Parameter.KEYWORD_ONLY, default=p.default) for p in known.values()]
    learn.__signature__ = signature.replace(parameters=fixed + keywords)  # type: ignore[attr-defined]
    learn.__qualname__ = f'{cls.__qualname__}.learn'
    before, _, after = inspect.cleandoc(inspect.unwrap(inherited).__doc__ or '').partition('    learn_params: ')
    after = after.partition('\n\n')[2]
    learn.__doc__ = f'{before.rstrip()}\n{documentation(known.values())}\n\n{after}'
    cls.learn = learn
