"""The hyper-parameters of an algorithm: fields, each declared once, as an annotated attribute of the class.

::

    class TD3(Algorithm):
        gamma: Gamma = 0.99
        policy_delay: Annotated[int, at_least(1), 'critic updates for each update of the actor'] = 2

From the fields come the constructor's arguments and their checks, ``params()``, ``help``, Tab, ``zoo.describe`` and
what a type checker knows. A variant changes a default by an attribute without annotation: ``policy_delay = 3``.
"""

from __future__ import annotations

import copy
import dataclasses
import difflib
import dis
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from gymnasium import Env
from gymnasium.spaces import Box, Space
from gymnasium.vector import VectorEnv

from zoo.algorithms.base import catalog, describing, learning
from zoo.algorithms.base.updating import Updating
from zoo.common import spaces
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.networks.network import announces
from zoo.common.tools import habits, params
from zoo.common.tools.errors import InvalidType, InvalidValue, unknown
from zoo.common.tools.habits import OF_CONSTRUCTORS
from zoo.common.tools.params import Param, ParamDict
from zoo.common.training.agent import Loop

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Callable[[type], type]:
        """Type checkers alone read it; ``typing`` has it from Python 3.11 on."""
        return lambda cls: cls


log = logging.getLogger('zoo')

#: What a user calls or reads of an agent, besides its hyper-parameters: what Tab shows. docs/howto/training.md explains
#: each name. All other names are for authors of algorithms: they work, but ``dir`` leaves them out.
FOR_USERS = (
    'learn', 'predict', 'initial_state', 'save', 'load', 'summary', 'config', 'params', 'learn_params', 'networks',
    'steps', 'data_steps', 'replay', 'learned', 'loop_state',
    # a training loop of the user's own
    'rollout', 'evaluate', 'observe', 'apply_gradients', 'trainable_variables', 'action_adaptor', 'progress', 'reseed',
)  # fmt: skip

#: The algorithms that the refusal of an action space names first.
_FIRST = ('PPO', 'DQN', 'SAC', 'TD3')
#: What is said of a field without a meaning that is not given.
_NO_DEFAULT = 'it has no default; annotate it as ClassVar, or set it in build(), if it is no parameter'


@dataclass_transform(eq_default=False)
class Parameterized(Updating):
    """The parameters and action spaces of a :class:`zoo.algorithms.base.Algorithm`."""

    loop: ClassVar[Loop]
    #: Kinds of action space that it acts in.
    acts_in: ClassVar[tuple[str, ...]]
    #: Whether actions are squashed by tanh, which needs bounds.
    squash: ClassVar[bool] = False
    #: Whether a ``Box`` needs bounds though actions are not squashed: the mean of a Gaussian is kept in [−1, 1].
    bounded: ClassVar[bool] = False
    #: Whether it learns with networks that are recurrent over the environment's steps.
    recurrent: ClassVar[bool] = False
    #: The fields of the class by name, inherited ones too.
    fields: ClassVar[dict[str, Param]] = {}
    #: Fields that may be given by position, in this order: all fields of a direct subclass of :class:`Algorithm`. A
    #: variant takes the fields that it adds by keyword.
    by_position: ClassVar[tuple[str, ...]] = ()
    #: Inherited fields without meaning here: they keep their defaults; the constructor does not take them.
    unused: ClassVar[tuple[str, ...]] = ()
    #: Other defaults of ``learn`` for this algorithm: ``{'horizon': 5}``.
    learn_defaults: ClassVar[dict[str, Any]] = {}
    #: Parameters of ``learn`` that a training cannot do without, and what each is: ``{'expert': 'an expert'}``.
    needed: ClassVar[dict[str, str]] = {}
    #: Whether the constructor has ended; from then on fields are fixed.
    is_built = False

    def __init_subclass__(cls, kw_only: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if '__init__' in cls.__dict__ and cls.fields:
            raise InvalidType(
                f'{cls.__name__} has a constructor, but the parameters of an algorithm are fields: declare each in the '
                'class, such as bonus: float = 0.1, and move the rest of __init__ to a method build(self), which calls '
                'super().build().'
            )
        inherited = cls.fields
        cls.fields = params.fields(cls, lambda base: issubclass(base, Parameterized))
        _refuse_misspelt(cls)
        assigned = _assigned(cls.__mro__[1:])
        for name in [name for name in cls.fields if name not in inherited]:
            known = inspect.getattr_static(cls.__mro__[1], name, None)
            if callable(known) or isinstance(known, property) or name in assigned:
                what = f'{"an attribute" if name in assigned else "a method"} of {cls.__mro__[1].__name__}'
                raise InvalidType(f'{cls.__name__}.{name} is {what} already: name the parameter otherwise.')
        if not kw_only and 'by_position' not in cls.__dict__ and len(cls.by_position) <= 4:  # spaces and lists alone
            cls.by_position = tuple(cls.fields)
        scheduled = vars(cls).get('scheduled')
        if scheduled is not None and not hasattr(cls, 'improve'):
            raise InvalidType(
                f'{cls.__name__} has scheduled={scheduled!r}, which only an algorithm with a method improve reads: '
                'leave it out, and let update read numbers.'
            )
        if not cls.is_whole():
            return
        if cls.loop.experience == 'steps' and cls.sampling is Updating.sampling:
            raise InvalidType(
                f'{cls.__name__} learns from a replay buffer, but does not say how transitions are drawn from it: give '
                'it a property sampling, such as one that returns Sampling(self.gamma).'
            )
        describing.document(cls)

    if not TYPE_CHECKING:  # type checkers would take every attribute for one that is there

        def __getattr__(self, name: str) -> Any:
            told = f'{type(self).__name__!r} object has no attribute {name!r}'
            raise AttributeError(f'{told}: {habits.OF_AGENTS[name]}.' if name in habits.OF_AGENTS else told)

    def __setattr__(self, name: str, value: Any) -> None:
        if self.is_built and name in self.fields:
            raise AttributeError(
                f'{name} is fixed when the agent is made, since it is compiled into the update: make a new agent with '
                f'{type(self).__name__}({name}=…).'
            )
        if self.is_built and name in habits.HABITS and not hasattr(type(self), name):
            here = habits.renamed(name, self.fields)
            if here is not None:
                raise AttributeError(
                    f'{name} is called {here} here, and is fixed when the agent is made: make a new agent with '
                    f'{type(self).__name__}({here}=…).'
                )
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        """Return what users call, the hyper-parameters, and what classes outside zoo add to those inside."""
        cls = type(self)
        inside = next(base for base in cls.__mro__ if base.__module__.partition('.')[0] == 'zoo')
        outside = (base for base in cls.__mro__ if base.__module__.partition('.')[0] != 'zoo')
        added = {name for base in outside for name in vars(base) if not hasattr(inside, name)}
        special = {name for name in super().__dir__() if name.startswith('__')}
        return sorted({*FOR_USERS, *cls.declared(), *added, *special})

    @classmethod
    def is_whole(cls) -> bool:
        """Return whether this is an algorithm, not a shared base."""
        return all(hasattr(cls, name) for name in ('loop', 'network_names', 'optimizer_names'))

    @classmethod
    def declared(cls) -> dict[str, Param]:
        """Return the constructor's parameters by name, in its order."""
        names = [*cls.by_position, *(name for name in cls.fields if name not in cls.by_position)]
        return {name: cls.fields[name] for name in names if name not in cls.unused}

    @classmethod
    def declared_for_learn(cls) -> dict[str, Param]:
        """Return the parameters by name that ``learn`` takes for this algorithm, besides its own arguments."""
        loop = cls.loop
        passed_on = _updates(cls) if loop.experience != 'steps' else []
        loops = [loop.run] if loop.from_data is None else [loop.run, loop.from_data]
        found = params.declared(learning.Settings) | params.declared(*loops, *passed_on, only_keywords=True)
        if loop.needs_data:
            del found['train_steps']
        for base in reversed(cls.__mro__):
            for name, default in vars(base).get('learn_defaults', {}).items():
                if name not in found:
                    raise InvalidType(unknown(f"parameter of {cls.__name__}'s learn", name, found))
                found[name] = dataclasses.replace(found[name], default=copy.deepcopy(default))
        return found

    @classmethod
    def params(cls) -> ParamDict:
        """Return the constructor's parameters with their defaults."""
        return ParamDict({name: param.fresh() for name, param in cls.declared().items()})

    @classmethod
    def learn_params(cls) -> ParamDict:
        """Return the parameters that ``learn`` takes for this algorithm, with their defaults."""
        return ParamDict({name: param.fresh() for name, param in cls.declared_for_learn().items()})

    def take_parameters(self, args: Sequence[Any], given: Mapping[str, Any]) -> None:
        """Check the arguments of the constructor, and keep each field under its name.

        Raises:
            ValueError: one sentence about what is missing, unknown or out of its range.
        """
        cls, known = type(self), type(self).declared()
        by_position = [name for name in cls.by_position if name in known]
        values = dict(zip(by_position, args, strict=False)) | dict(given)
        _check_spaces(cls, values)
        for name in given:
            if name not in known:
                raise InvalidValue(_unknown_param(cls, name, known))
        if len(args) + len(given) > len(values):
            raise InvalidValue(f'{cls.__name__} was given more arguments than it takes, or one of them twice.')
        for name, param in known.items():
            if param.default is Param.required and name not in values:
                raise InvalidValue(f'{cls.__name__} needs {name}: {param.meaning or _NO_DEFAULT}.')
        checked = params.checked(values, known)
        self.unread: set[str] = set()
        for name, param in cls.fields.items():
            setattr(self, name, checked[name] if name in checked else param.fresh())

    @classmethod
    def check_action_space(cls, space: Space) -> None:
        """Refuse an action space that this algorithm cannot act in, by a ValueError that names algorithms that can."""
        kind = type(space).__name__
        if kind not in cls.acts_in:
            able = [name for name in catalog.NAMES if kind in catalog.find(name).acts_in]
            first = [name for name in _FIRST if name in able] or able
            alike = [name for name in able if _learns_alike(catalog.find(name), cls)]
            first += alike[:1] if not set(alike) & set(first) else []
            others = f', or {len(able) - len(first)} others' if len(able) > len(first) else ''
            raise InvalidValue(
                f'{cls.__name__} cannot act in {spaces.describe(space)}; '
                + (f'use {" or ".join(first)}{others}.' if able else 'no algorithm here can.')
            )
        if (cls.squash or cls.bounded) and not ActionAdaptor(space).bounded:
            boxes = [leaf for leaf in spaces.leaves(space).values() if isinstance(leaf, Box)]
            low, high = min(box.low.min() for box in boxes), max(box.high.max() for box in boxes)
            raise InvalidValue(
                f'{cls.__name__} needs a Box with finite bounds, but this one reaches from {low} to '
                f'{high}: wrap the environment in gymnasium.wrappers.ClipAction with bounds, or use PPO. Recorded '
                'episodes without an environment: zoo.open_dataset(path, action_space=Box(low, high, …)).'
            )

    @classmethod
    def check_recurrent(cls, label: str) -> None:
        """Refuse a recurrent network if this algorithm cannot learn with one.

        Raises:
            ValueError: a sentence that begins with ``label`` and names algorithms that can.
        """
        if not cls.recurrent:
            able = [name for name in catalog.NAMES if catalog.find(name).recurrent]
            told = f'{label} is recurrent, which {cls.__name__} cannot learn with: use {" or ".join(able)}, or see the '
            told += 'last observations at once by'
            raise InvalidValue(f'{told} build_env(…, frame_stack=4).', shell=f'{told} --env-set frame_stack=4.')

    def warn_of_unread(self, names: Sequence[str], reason: str) -> None:
        """Note that nothing reads these parameters, and log each whose value differs from its default.

        One that the constructor does not take is skipped. ``reason`` ends the sentence: ``' without noisy=True'``. A
        saved agent says nothing: its values may be defaults of an earlier version.
        """
        self.unread.update(names)
        if not announces.get():
            return
        defaults = type(self).params()
        for name in names:
            if name in defaults and getattr(self, name) != defaults[name]:
                log.warning('%s=%s changes nothing%s.', name, getattr(self, name), reason)

    def warn_of_unread_priorities(self) -> None:
        """Log the parameters of prioritized replay that nothing reads."""
        if not getattr(self, 'prioritized', False):
            self.warn_of_unread(('priority_alpha', 'priority_beta'), ' without prioritized=True')
        elif getattr(self, 'priority_alpha', None) == 0.0:
            self.warn_of_unread(('priority_beta',), ' beside priority_alpha=0, which draws uniformly')


def _learns_alike(one: type[Parameterized], other: type[Parameterized]) -> bool:
    """Return whether two algorithms learn from the same kind of experience."""
    return (one.loop.experience, one.loop.needs_data) == (other.loop.experience, other.loop.needs_data)


def _updates(cls: type[Parameterized]) -> list[Callable[..., Any]]:
    """Return ``update``, and what it hands further keywords to: the ``update`` of the next class that has one."""
    found: list[Callable[..., Any]] = []
    for base in cls.__mro__:
        if 'update' in vars(base):
            found.append(vars(base)['update'])
            kinds = {param.kind for param in inspect.signature(found[-1]).parameters.values()}
            if inspect.Parameter.VAR_KEYWORD not in kinds:
                break
    return found


def _refuse_misspelt(cls: type[Parameterized]) -> None:
    """Refuse a new attribute that is all but the name of a field: a misspelt default would change nothing.

    Raises:
        TypeError: one sentence with the field that may be meant.
    """
    for name, value in vars(cls).items():
        new = (
            not name.startswith('_')
            and name not in cls.fields
            and not any(hasattr(base, name) for base in cls.__bases__)
        )
        if new and not callable(value) and not isinstance(value, property | classmethod | staticmethod):
            for close in difflib.get_close_matches(name, cls.fields, n=1, cutoff=0.85):
                raise InvalidType(
                    f'{cls.__name__}.{name} is no parameter: did you mean {close!r}? Begin the name with _ if it is an '
                    'attribute of your own.'
                )


def _assigned(bases: Iterable[type]) -> set[str]:
    """Return the attributes that the constructors and ``build`` of these classes assign: they would replace a field."""
    makers = [vars(base)[name] for base in bases for name in ('__init__', 'build') if name in vars(base)]
    code = [step for make in makers if inspect.isfunction(make) for step in dis.get_instructions(make)]
    return {step.argval for step in code if step.opname == 'STORE_ATTR'}


def _unknown_param(cls: type[Parameterized], name: str, known: Iterable[str]) -> str:
    elsewhere = {
        other: f'is a parameter of learn, not of {cls.__name__}: agent.learn(env, {other}=…).'
        for other in [*cls.learn_params(), *learning.ARGUMENTS]
    }
    elsewhere['seed'] = (
        f'is a parameter of learn, not of {cls.__name__}: agent.learn(env, seed=…) seeds the training, and '
        'call_default_params(env, seed=…) the first weights.'
    )
    if name in OF_CONSTRUCTORS and name not in elsewhere:
        return f'unknown parameter of {cls.__name__} {name!r}: {OF_CONSTRUCTORS[name]}.'
    return params.refusal(f'parameter of {cls.__name__}', name, known, elsewhere)


def _check_spaces(cls: type[Any], given: Mapping[str, Any]) -> None:
    """Refuse anything but spaces, by a ValueError that says how to make an agent: other libraries take environments."""
    name = cls.__name__
    known = [base.__name__ for base in cls.__mro__ if base.__name__ in catalog.NAMES]  # the parent of a user's class
    of_one = 'single_' if any(isinstance(value, VectorEnv) for value in given.values()) else ''
    how = f'{name}(env.{of_one}observation_space, env.{of_one}action_space)'
    if known:
        table = f"alg_params, learn_params = call_default_params(env, env_type, '{known[0]}')"
        how = f'{name}(**alg_params) with {table}, or {how}'
    for kind in ('observation_space', 'action_space'):
        if kind not in given:
            if any(isinstance(value, Env | VectorEnv) for value in given.values()):
                raise InvalidValue(f'{name} is made of spaces, not of an environment: {how}.')
            raise InvalidValue(f'{name} needs {kind}: {how}.')
        value = given[kind]
        if isinstance(value, Env | VectorEnv | str):
            what = 'an environment' if not isinstance(value, str) else f'the name {value!r}'
            raise InvalidValue(f'{name} is made of spaces, not of {what}: {how}.')
        if not isinstance(value, Space):
            raise InvalidValue(f'{kind} is {value!r}: give a space of gymnasium.spaces, or make the agent by {how}.')
