"""What is to be trained: environment, algorithm, parameters. The page shows and edits it.

A refused change is a ``ValueError`` of one sentence, and nothing has changed.
"""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import gymnasium

import zoo
from zoo import algorithms
from zoo.common.tools.errors import InvalidValue
from zoo.common.utils import default_nenv
from zoo.dashboard.fields import ARGUMENTS, Field, Source, entry_text
from zoo.dashboard.values import read, read_keywords, written

_OF_ENV = ('seed', 'nenv', 'vectorized')
#: Parameters without a field: the environment gives the first two, and the others have a field for each entry.
_NO_FIELD = ('observation_space', 'action_space', 'net_list', 'optimizers_list')


class Experiment:
    """An environment, an algorithm and their parameters, with what was edited.

    Args:
        environments: classes and functions that make environments, offered by their names under the type
            ``'gymnasium'``, besides the environment classes of the notebook itself.
        env_type, env_id, alg: what is chosen at first.

    Attributes:
        env_type, env_id, alg: what is chosen.
        arguments: what is chosen of :data:`zoo.dashboard.fields.ARGUMENTS`.
        env_params: further arguments of ``build_env``.
        nenv_chosen: whether the user chose ``nenv``; until then it follows the algorithm's defaults.
        fitting: the algorithms that can act in the environment.
        edits: what was edited, by algorithm and by name of a parameter.
    """

    def __init__(
        self,
        environments: Iterable[Callable[..., Any]] = (),
        env_type: str = 'classic_control',
        env_id: str = 'CartPole-v1',
        alg: str = 'PPO',
    ) -> None:
        self._given: dict[str, Callable[..., Any]] = {}
        self.keep(environments)
        self.env_type, self.env_id, self.alg = env_type, env_id, alg
        self.arguments = {name: default for name, (default, _, _) in ARGUMENTS.items()}
        self.env_params: dict[str, Any] = {}
        self.nenv_chosen = False
        self.fitting: tuple[str, ...] = ()
        self.edits: dict[str, dict[str, Any]] = {}
        self._observation_space: Any = None
        self._action_space: Any = None
        self._alg_params: dict[str, Any] = {}
        self._learn_params: dict[str, Any] = {}
        self.choose()

    # Choosing

    def own(self) -> dict[str, Callable[..., Any]]:
        """Return the user's own environments by name: the given ones, and the classes of the notebook."""
        classes = {name: value for name, value in vars(sys.modules['__main__']).items() if inspect.isclass(value)}
        found = {name: cls for name, cls in classes.items() if cls.__module__ == '__main__'}
        return {name: cls for name, cls in found.items() if issubclass(cls, gymnasium.Env)} | self._given

    def environments(self, env_type: str) -> list[str]:
        """Return the environments of a type, the user's own first.

        Raises:
            ImportError: its package is not installed; the message has the line that installs it.
        """
        own = list(self.own()) if env_type == 'gymnasium' else []
        return own + zoo.list_envs(env_type, latest=True)

    def choose(
        self, env_type: str | None = None, env_id: str | None = None, alg: str | None = None, **arguments: Any
    ) -> str | None:
        """Choose an environment, an algorithm, arguments of :data:`zoo.dashboard.fields.ARGUMENTS`, or ``env_params``.

        Returns:
            A sentence if the algorithm cannot act in the environment and another one was chosen.

        Raises:
            ValueError, TypeError, ImportError: the environment or the algorithm is refused; nothing has changed.
        """
        before = dict(self.__dict__)
        try:
            return self._choose(env_type, env_id, alg, arguments)
        except BaseException:
            self.__dict__.update(before)
            raise

    def _choose(
        self, env_type: str | None, env_id: str | None, alg: str | None, arguments: dict[str, Any]
    ) -> str | None:
        self.env_type = env_type or self.env_type
        if env_type is not None and env_id is None:
            env_id = self.environments(env_type)[0]
        self.env_id = env_id or self.env_id
        self.env_params = arguments.pop('env_params', self.env_params)
        for name in self.env_params:
            if name in ARGUMENTS:
                raise InvalidValue(f'{name} has a field of its own.')
        for name in arguments:
            if name not in ARGUMENTS:
                raise InvalidValue(f'{name!r} is not to be chosen here: choose one of {", ".join(ARGUMENTS)}.')
        self.nenv_chosen |= 'nenv' in arguments
        self.arguments = self.arguments | arguments
        wanted = alg or self.alg
        env = self.build(nenv=self._copies(wanted))
        try:
            self._observation_space = getattr(env, 'single_observation_space', env.observation_space)
            self._action_space = getattr(env, 'single_action_space', env.action_space)
            self.fitting = tuple(name for name in algorithms.NAMES if self._refusal(name) is None)
            refused = self._refusal(wanted)
            if refused is not None and (alg is not None or not self.fitting):
                raise InvalidValue(refused)
            if refused is not None:
                wanted = next((name for name in ('PPO', 'SAC', 'DQN') if name in self.fitting), self.fitting[0])
                env.close()
                env = self.build(nenv=self._copies(wanted))
            self.alg = wanted
            self.arguments['nenv'] = self._copies(wanted)
            aside = ('nenv', 'vectorized', 'evaluate')
            given = {name: value for name, value in self.arguments.items() if name not in aside}
            self._alg_params, self._learn_params = zoo.call_default_params(env, self.env_type, wanted, **given)
        finally:
            env.close()
        return None if refused is None else f'{refused} {wanted} was chosen.'

    def _copies(self, alg: str) -> int:
        if self.nenv_chosen:
            return int(self.arguments['nenv'])
        return int(default_nenv(alg, self.env_type, self.env_id))

    def _refusal(self, alg: str) -> str | None:
        try:
            getattr(algorithms, alg).check_action_space(self._action_space)
        except ValueError as error:
            return str(error)
        return None

    def environment(self) -> Any:
        """Return what ``build_env`` is given: the name, or the user's own class or function."""
        return self.own().get(self.env_id, self.env_id) if self.env_type == 'gymnasium' else self.env_id

    def build(self, **changes: Any) -> Any:
        """Build the chosen environment, with all copies in this process: it is only looked at."""
        given = {name: self.arguments[name] for name in _OF_ENV} | {'vectorized': False} | self.env_params | changes
        return zoo.build_env(self.environment(), self.env_type, **given)

    # Parameters

    def describe(self) -> Any:
        return zoo.describe(self.alg)

    def fields(self) -> list[Field]:
        """Return every parameter that can be edited, with its value."""
        about, edits = self.describe(), self.own_edits
        found = []
        declared = {param.name: param for param in (*about.constructor, *about.learn)}
        cls = getattr(algorithms, self.alg)
        lists = ('networks', 'net_list', cls.network_names), ('optimizers', 'optimizers_list', cls.optimizer_names)
        for group, given, names in lists:
            for i, default in enumerate(self._alg_params[given]):
                name = f'{given}[{i}]'
                value = self._entry(default, edits.get(name))
                text = entry_text(value)
                found.append(Field(name, group, declared[given], names[i], default, value, text, name in edits))
        for group, params in (('agent', self._alg_params), ('learn', self._learn_params)):
            for name, default in params.items():
                if name in declared and name not in _NO_FIELD:
                    value = edits.get(name, default)
                    text = value if isinstance(value, str) and value.isidentifier() else written(value)
                    found.append(Field(name, group, declared[name], name, default, value, text, name in edits))
        return found

    def field(self, name: str) -> Field:
        """Return one of :meth:`fields`; ValueError if there is none of this name."""
        fields = {field.name: field for field in self.fields()}
        if name not in fields:
            raise InvalidValue(f'{self.alg} has no parameter {name!r}: there are {", ".join(fields)}.')
        return fields[name]

    def set(self, name: str, value: Any) -> None:
        """Edit a parameter. A network is given as changes to its spec, as the name of another network, or as code.

        Raises:
            ValueError: the value is refused, and nothing has changed.
        """
        field = self.field(name)
        if field.group in ('agent', 'learn'):
            value = field.param.check(value)
            changed = written(value) != written(field.default)
        elif isinstance(value, Mapping):
            known = field.default if isinstance(field.default, dict) else {}
            value = {key: x for key, x in value.items() if key not in known or written(known[key]) != written(x)}
            changed = bool(value) or not isinstance(field.default, dict)
        elif isinstance(value, str | Source) and field.group == 'networks':
            changed = value != field.default
        else:
            raise InvalidValue(f"{name} is {value!r}: give names and values, such as learning_rate=3e-4, name='Adam'.")
        before = dict(self.own_edits)
        edits = {key: x for key, x in before.items() if key != name} | ({name: value} if changed else {})
        self.edits[self.alg] = edits
        if field.group != 'learn':
            try:
                self.assemble()
            except BaseException:
                self.edits[self.alg] = before
                raise

    def type(self, name: str, text: str) -> None:
        """Edit a parameter with a typed text, as :meth:`set` does."""
        field = self.field(name)
        word = text.strip().strip('\'"')
        if field.group in ('agent', 'learn'):
            self.set(name, read(text, name))
        elif field.group == 'networks' and word.isidentifier():
            self.set(name, word)
        else:
            self.set(name, read_keywords(text, field.label))

    def type_argument(self, name: str, text: str) -> str | None:
        """Choose ``seed``, ``nenv`` or ``env_params`` with a typed text, as :meth:`choose` does."""
        if name == 'env_params':
            return self.choose(env_params=read_keywords(text, 'arguments of the environment'))
        return self.choose(**{name: read(text, name)})

    def edit_all(self, edits: dict[str, Any]) -> None:
        """Replace all edits of the algorithm at once; some values are valid only together."""
        self.edits[self.alg] = edits
        self.assemble()

    @property
    def spaces(self) -> tuple[Any, Any]:
        """The observation space and the action space of one copy."""
        return self._observation_space, self._action_space

    def reset(self, name: str | None = None) -> None:
        """Set one parameter back to its default; None: all parameters of the algorithm."""
        self.edits[self.alg] = {} if name is None else {k: x for k, x in self.own_edits.items() if k != name}

    @property
    def own_edits(self) -> dict[str, Any]:
        """What was edited of the chosen algorithm, by name."""
        return self.edits.get(self.alg, {})

    def torsos(self, name: str) -> tuple[str, ...]:
        """Return the networks whose torso a network may share."""
        cls = getattr(algorithms, self.alg)
        shares = name.startswith('net_list[') and cls.shared_torso
        return tuple(cls.network_names[: int(name[len('net_list[') : -1])]) if shares else ()

    def _entry(self, default: Any, edit: Any) -> Any:
        """Return an entry of ``net_list`` or ``optimizers_list`` with its edits."""
        if edit is None:
            return copy.deepcopy(default)
        if isinstance(edit, str | Source):
            return edit
        if isinstance(default, dict):
            return {**default, **edit}
        own = {key: x for key, x in self._alg_params['net_list'][0].items() if key in ('layers', 'dtype', 'recurrent')}
        return own | edit

    def params(self, evaluate: bool = True) -> dict[str, Any]:
        """Return what was edited, as arguments of ``zoo.train``.

        Args:
            evaluate: run the code of networks; otherwise they stay a :class:`zoo.dashboard.fields.Source`.
        """
        edits = self.own_edits
        found = {name: copy.deepcopy(value) for name, value in edits.items() if '[' not in name}
        for given in ('net_list', 'optimizers_list'):
            if any(name.startswith(f'{given}[') for name in edits):
                defaults = enumerate(self._alg_params[given])
                found[given] = [self._entry(default, edits.get(f'{given}[{i}]')) for i, default in defaults]
        if evaluate and 'net_list' in found:
            found['net_list'] = [
                entry.evaluate(f'net_list[{i}]') if isinstance(entry, Source) else entry
                for i, entry in enumerate(found['net_list'])
            ]
        return found

    def assemble(self) -> Any:
        """Return an agent with these parameters; ValueError if a parameter or a network is refused."""
        params = self.params()
        given = {name: params.get(name, value) for name, value in self._alg_params.items()}
        return getattr(algorithms, self.alg)(**given)

    def order(self) -> dict[str, Any]:
        """Return the arguments of ``zoo.train``, without callbacks and run directory."""
        chosen = {'alg': self.alg, 'env_id': self.environment(), 'env_type': self.env_type, **self.arguments}
        return chosen | {'env_params': dict(self.env_params)} | self.params()

    def keep(self, environments: Iterable[Callable[..., Any]]) -> None:
        """Offer the user's own environments, as the constructor does."""
        environments = tuple(environments)
        for made in environments:
            if not callable(made):
                raise InvalidValue(f'environments has {made!r} in it: give classes or functions that build one.')
        self._given |= {made.__name__: made for made in environments}

    def snapshot(self) -> Experiment:
        """Return a copy, which later edits do not change."""
        found = copy.copy(self)
        found.edits = copy.deepcopy(self.edits)
        return found

    def is_own(self) -> bool:
        """Return whether environment or networks are the user's own, so that a run's folder does not hold them."""
        return not isinstance(self.environment(), str) or self.has_sources()

    def has_sources(self) -> bool:
        """Return whether a network is given as code."""
        return any(isinstance(edit, Source) for edit in self.own_edits.values())
