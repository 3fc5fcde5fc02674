"""What is to be trained: environment, algorithm, parameters. The page shows and edits it; it needs no page.

Whatever is refused is a ``ValueError`` of one sentence, and leaves everything as it was.
"""

from __future__ import annotations

import ast
import copy
import inspect
import io
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium

import zoo
from zoo import algorithms
from zoo.common.env_wrappers import TYPES, VECTORIZED
from zoo.common.utils import default_nenv
from zoo.dashboard.runs import PROGRAM, plain
from zoo.dashboard.values import keywords, nearest, read, read_keywords, written

#: Of a network's spec: what the page chooses elsewhere, or by the seed.
_HIDDEN = ('layers', 'seed', 'dtype', 'recurrent')
#: Width of the picture of an environment, in pixels.
_WIDTH = 480

#: The arguments of ``build_env`` and ``call_default_params`` that are chosen: the default, what may be chosen by what
#: the page calls it (None: whatever is typed), and the meaning.
ARGUMENTS: dict[str, tuple[Any, dict[str, Any] | None, str]] = {
    'seed': (0, None, 'of the environment, the weights and the training; None: unpredictable'),
    'nenv': (1, None, 'copies of the environment that step together; until chosen, as many as defaults are meant for'),
    'vectorized': (
        False,
        {'by default': False, **{name: name for name in VECTORIZED}, 'fastest': True},
        'how the copies run: one after the other, in processes, in EnvPool, or the fastest way there is',
    ),
    'layers': ('keras', {'Keras': 'keras', 'TensorLayer': 'tensorlayer'}, 'what networks are assembled from'),
    'dtype': (
        None,
        {'by default': None, 'float32': 'float32', 'mixed bfloat16': 'mixed_bfloat16'},
        'in which networks compute; by default what Keras’ policy says',
    ),
    'recurrent': (None, {'none': None, 'LSTM': 'lstm', 'GRU': 'gru'}, 'a layer with a memory in every network'),
}
_OF_ENV = ('seed', 'nenv', 'vectorized')


@dataclass(frozen=True)
class Source:
    """A network as Python code: the last line is an expression that gives it."""

    text: str

    def evaluate(self, name: str) -> Any:
        """Run it, in this process and with the names of the notebook, which stay as they are.

        Raises:
            ValueError: it fails, in one sentence.
        """
        before, last = self.parts(name)
        namespace = dict(vars(sys.modules['__main__']))
        try:
            exec(before, namespace)
            return eval(last, namespace)
        except Exception as error:
            raise ValueError(f'{name}: this code fails with {type(error).__name__}: {error}.') from error

    def parts(self, name: str) -> tuple[str, str]:
        """The lines before the last expression, and that."""
        try:
            body = ast.parse(self.text).body
        except SyntaxError as error:
            raise ValueError(f'{name}: this is no Python, at line {error.lineno}: {error.msg}.') from None
        if not body or not isinstance(body[-1], ast.Expr):
            raise ValueError(f'{name}: the last line has to be an expression that gives the network.')
        lines = self.text.splitlines()
        before = '\n'.join([*lines[: body[-1].lineno - 1], lines[body[-1].lineno - 1][: body[-1].col_offset]])
        return before.rstrip(), ast.unparse(body[-1])


@dataclass(frozen=True)
class Field:
    """A parameter on the page.

    Attributes:
        name: ``'gamma'``, ``'net_list[0]'``.
        group: ``'agent'``, ``'learn'``, ``'networks'`` or ``'optimizers'``.
        param: its declaration; of networks and optimizers that of the whole list.
        label: what the page calls it.
        default: for this environment.
        value: what it is now.
        text: that, as it is typed.
        changed: whether it was edited.
    """

    name: str
    group: str
    param: Any
    label: str
    default: Any
    value: Any
    text: str
    changed: bool


@dataclass(frozen=True)
class Preview:
    """What an environment looks like: its spaces, and a picture as PNG or why there is none."""

    observation_space: str
    action_space: str
    picture: bytes | None
    refused: str = ''


class Experiment:
    """An environment, an algorithm and their parameters, with what was edited.

    Args:
        environments: classes and functions that make environments, offered by their names under the type
            ``'gymnasium'``, besides the environment classes of the notebook itself.
        env_type, env_id, alg: chosen first.

    Attributes:
        env_type, env_id, alg: what is chosen.
        arguments: of ``build_env`` and ``call_default_params``, see :data:`ARGUMENTS`.
        env_params: further arguments of ``build_env``.
        nenv_chosen: whether somebody chose ``nenv``; until then it is what the algorithm's defaults are meant for.
        fitting: the algorithms that can act in the environment.
        edits: by algorithm and by name of a parameter what was edited.
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

    @classmethod
    def of(cls, run: Any) -> Experiment:
        """What was trained in a run.

        Raises:
            ValueError: its folder does not say: no name makes its environment, or a network is of the user's own.
        """
        config = plain(run.config)
        made_with = config.get('made_with')
        if made_with is None:
            run.build_env()  # which says why not
            raise ValueError(f'{run.name} does not say how its environment is made.')
        env = dict(made_with)
        env_id, env_type = env.pop('env_id'), env.pop('env_type')
        found = cls(env_type=env_type, env_id=env_id, alg=run.algorithm)
        entries = config['net_list']
        for i, entry in enumerate(entries):
            if isinstance(entry, dict) and 'custom' in entry:
                raise ValueError(
                    f'net_list[{i}] of {run.name} is a {entry["custom"]} of your own, which its folder does not hold.'
                )
        specs = [entry for entry in entries if isinstance(entry, dict)] or [{}]
        arguments = {name: env.pop(name, ARGUMENTS[name][0]) for name in ('nenv', 'vectorized')}
        arguments |= {name: specs[0][name] for name in ('layers', 'dtype', 'recurrent') if specs[0].get(name)}
        found.choose(seed=run.seed, env_params=env, **arguments)
        wanted = {**config['params'], **config['learn_params']}
        for given in ('net_list', 'optimizers_list'):
            for i, entry in enumerate(config[given]):
                hidden = ('seed', 'layers', 'dtype')
                own = entry if isinstance(entry, str) else {key: x for key, x in entry.items() if key not in hidden}
                wanted[f'{given}[{i}]'] = own
        # Of several that depend on each other only all are valid.
        edits = {}
        for field in found.fields():
            value = wanted.get(field.name, field.default)
            if (
                isinstance(value, dict)
                and isinstance(field.default, dict)
                and field.group in ('networks', 'optimizers')
            ):
                value = {key: x for key, x in value.items() if written(field.default.get(key)) != written(x)}
                if value:
                    edits[field.name] = value
            elif written(value) != written(field.default):
                edits[field.name] = value
        edits.pop('progress_bar', None)
        found.edits[found.alg] = edits
        found.assemble()
        return found

    # Choosing

    @staticmethod
    def types() -> tuple[str, ...]:
        """Types of environments."""
        return tuple(TYPES)

    def own(self) -> dict[str, Callable[..., Any]]:
        """Environments of the user's own by name: those that were given, and the classes of the notebook."""
        found = {
            name: value
            for name, value in vars(sys.modules['__main__']).items()
            if inspect.isclass(value) and issubclass(value, gymnasium.Env) and value.__module__ == '__main__'
        }
        return found | self._given

    def environments(self, env_type: str) -> list[str]:
        """The names of a type, those of the user's own first.

        Raises:
            ImportError: its package is not installed, with the line that installs it.
        """
        own = list(self.own()) if env_type == 'gymnasium' else []
        return own + zoo.list_envs(env_type, latest=True)

    def choose(
        self, env_type: str | None = None, env_id: str | None = None, alg: str | None = None, **arguments: Any
    ) -> str | None:
        """Choose an environment, an algorithm, or arguments of :data:`ARGUMENTS` and ``env_params``.

        Returns:
            A sentence, where the algorithm cannot act in the environment and another one was taken; else None.

        Raises:
            ValueError, TypeError, ImportError: the environment or the algorithm refuses it; nothing has changed.
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
                raise ValueError(f'{name} has a field of its own.')
        for name in arguments:
            if name not in ARGUMENTS:
                raise ValueError(f'{name!r} is not to be chosen here: choose one of {", ".join(ARGUMENTS)}.')
        self.nenv_chosen |= 'nenv' in arguments
        self.arguments = self.arguments | arguments
        wanted = alg or self.alg
        env = self._build(nenv=self._copies(wanted))
        try:
            self._observation_space = getattr(env, 'single_observation_space', env.observation_space)
            self._action_space = getattr(env, 'single_action_space', env.action_space)
            self.fitting = tuple(name for name in algorithms.NAMES if self._refusal(name) is None)
            refused = self._refusal(wanted)
            if refused is not None and (alg is not None or not self.fitting):
                raise ValueError(refused)
            if refused is not None:
                wanted = next((name for name in ('PPO', 'SAC', 'DQN') if name in self.fitting), self.fitting[0])
                env.close()
                env = self._build(nenv=self._copies(wanted))
            self.alg = wanted
            self.arguments['nenv'] = self._copies(wanted)
            given = {name: value for name, value in self.arguments.items() if name not in ('nenv', 'vectorized')}
            self._alg_params, self._learn_params = zoo.call_default_params(env, self.env_type, wanted, **given)
        finally:
            env.close()
        return None if refused is None else f'{refused} {wanted} was chosen.'

    def _copies(self, alg: str) -> int:
        """How many copies of the environment there are with an algorithm."""
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
        """What ``build_env`` is given: the name, or the class or function of the user's own."""
        return self.own().get(self.env_id, self.env_id) if self.env_type == 'gymnasium' else self.env_id

    def _build(self, **changes: Any) -> Any:
        """An environment of the kind that was chosen; its copies in this process, since it is only looked at."""
        given = {name: self.arguments[name] for name in _OF_ENV} | {'vectorized': False} | self.env_params | changes
        return zoo.build_env(self.environment(), self.env_type, **given)

    # Parameters

    def describe(self) -> Any:
        """``zoo.describe`` of the algorithm."""
        return zoo.describe(self.alg)

    def fields(self) -> list[Field]:
        """Every parameter that may be edited, with its value."""
        about, edits = self.describe(), self._edits
        found = []
        declared = {param.name: param for param in (*about.constructor, *about.learn)}
        cls = getattr(algorithms, self.alg)
        for group, given, names in (
            ('networks', 'net_list', cls.network_names),
            ('optimizers', 'optimizers_list', cls.optimizer_names),
        ):
            for i, default in enumerate(self._alg_params[given]):
                name = f'{given}[{i}]'
                value = self._entry(default, edits.get(name))
                found.append(
                    Field(name, group, declared[given], names[i], default, value, self.shown(value), name in edits)
                )
        for group, params in (('agent', self._alg_params), ('learn', self._learn_params)):
            for name, default in params.items():
                if name in declared and name not in (
                    'observation_space',
                    'action_space',
                    'net_list',
                    'optimizers_list',
                ):
                    value = edits.get(name, default)
                    bare = isinstance(value, str) and value.isidentifier()
                    text = value if bare else written(value)
                    found.append(Field(name, group, declared[name], name, default, value, text, name in edits))
        return found

    def field(self, name: str) -> Field:
        """One of :meth:`fields`.

        Raises:
            ValueError: there is none of that name.
        """
        fields = {field.name: field for field in self.fields()}
        if name not in fields:
            raise ValueError(f'{self.alg} has no parameter {name!r}: there are {", ".join(fields)}.')
        return fields[name]

    def set(self, name: str, value: Any) -> None:
        """Edit a parameter. A network is given by changes of its spec, the name of another one, or a :class:`Source`.

        Raises:
            ValueError: it is refused; nothing has changed. Where there is a nearest valid value it has been set, and
                the sentence says so.
        """
        field = self.field(name)
        if field.group in ('agent', 'learn'):
            try:
                value = field.param.check(value)
            except ValueError as error:
                close = nearest(field.param, value)
                if close is None:
                    raise
                self.set(name, close)
                raise ValueError(f'{error} It is {written(close)} now.') from None
            changed = written(value) != written(field.default)
        elif isinstance(value, Mapping):
            known = field.default if isinstance(field.default, dict) else {}
            value = {key: x for key, x in value.items() if key not in known or written(known[key]) != written(x)}
            changed = bool(value) or not isinstance(field.default, dict)
        elif isinstance(value, str | Source) and field.group == 'networks':
            changed = value != field.default
        else:
            raise ValueError(f"{name} is {value!r}: give names and values, such as learning_rate=3e-4, name='Adam'.")
        before = dict(self._edits)
        edits = {key: x for key, x in before.items() if key != name} | ({name: value} if changed else {})
        self.edits[self.alg] = edits
        if field.group != 'learn':
            try:
                self.assemble()
            except BaseException:
                self.edits[self.alg] = before
                raise

    def type(self, name: str, text: str) -> None:
        """Edit a parameter by what somebody typed; see :meth:`set`."""
        field = self.field(name)
        if field.group in ('networks', 'optimizers'):
            if field.group == 'networks' and text.strip().strip('\'"').isidentifier():
                self.set(name, text.strip().strip('\'"'))
            else:
                self.set(name, read_keywords(text, field.label))
        else:
            self.set(name, read(text, name))

    def type_argument(self, name: str, text: str) -> str | None:
        """Choose ``seed``, ``nenv`` or ``env_params`` by what somebody typed; see :meth:`choose`."""
        if name == 'env_params':
            return self.choose(env_params=read_keywords(text, 'arguments of the environment'))
        return self.choose(**{name: read(text, name)})

    def reset(self, name: str | None = None) -> None:
        """Back to the default: one parameter, or None: all of the algorithm."""
        self.edits[self.alg] = {} if name is None else {k: x for k, x in self._edits.items() if k != name}

    @property
    def _edits(self) -> dict[str, Any]:
        return self.edits.get(self.alg, {})

    def torsos(self, name: str) -> tuple[str, ...]:
        """Of a network: those before it on whose torso it may stand."""
        cls = getattr(algorithms, self.alg)
        if not name.startswith('net_list[') or not cls.shared_torso:
            return ()
        return tuple(cls.network_names[: int(name[len('net_list[') : -1])])

    @staticmethod
    def shown(value: Any) -> str:
        """An entry of ``net_list`` or ``optimizers_list`` as it is typed."""
        if isinstance(value, Source):
            return value.text
        if isinstance(value, str):
            return value
        return keywords({key: x for key, x in value.items() if key not in _HIDDEN or (key == 'recurrent' and x)})

    def _entry(self, default: Any, edit: Any) -> Any:
        """An entry of ``net_list`` or ``optimizers_list``."""
        if edit is None:
            return copy.deepcopy(default)
        if isinstance(edit, str | Source):
            return edit
        if isinstance(default, dict):
            return {**default, **edit}
        own = {key: x for key, x in self._alg_params['net_list'][0].items() if key in ('layers', 'dtype', 'recurrent')}
        return own | edit

    def params(self, evaluate: bool = True) -> dict[str, Any]:
        """What was edited, as ``zoo.train`` takes it.

        Args:
            evaluate: make networks of their code; otherwise they stay :class:`Source`.
        """
        edits = self._edits
        found = {name: copy.deepcopy(value) for name, value in edits.items() if '[' not in name}
        for given in ('net_list', 'optimizers_list'):
            if any(name.startswith(f'{given}[') for name in edits):
                found[given] = [
                    self._entry(default, edits.get(f'{given}[{i}]'))
                    for i, default in enumerate(self._alg_params[given])
                ]
        if evaluate and 'net_list' in found:
            found['net_list'] = [
                entry.evaluate(f'net_list[{i}]') if isinstance(entry, Source) else entry
                for i, entry in enumerate(found['net_list'])
            ]
        return found

    # What comes of it

    def assemble(self) -> Any:
        """An agent with these parameters.

        Raises:
            ValueError: a parameter or a network is refused.
        """
        params = self.params()
        given = {name: params.get(name, value) for name, value in self._alg_params.items()}
        return getattr(algorithms, self.alg)(**copy.copy(given))

    def preview(self) -> Preview:
        """The spaces and a picture of the environment."""
        spaces = f'{self._observation_space}', f'{self._action_space}'
        if sys.platform.startswith('linux') and not (os.environ.get('DISPLAY') or os.environ.get('WAYLAND_DISPLAY')):
            os.environ.setdefault('SDL_VIDEODRIVER', 'dummy')  # lest pygame complain in the notebook
        try:
            env = self._build(nenv=1, render_mode='rgb_array')
            try:
                env.reset(seed=self.arguments['seed'])
                frame: Any = env.render()
            finally:
                env.close()
            return Preview(*spaces, _png(frame))
        except Exception as error:  # whatever a simulator says
            why = str(error).splitlines()[0] if str(error) else type(error).__name__
            return Preview(*spaces, None, f'There is no picture of it: {why}')

    def diagram(self) -> bytes:
        """The networks as a picture, PNG."""
        picture = io.BytesIO()
        zoo.plots.network_diagram(self.assemble()).savefig(picture, format='png')
        return picture.getvalue()

    def order(self) -> dict[str, Any]:
        """The arguments with which ``zoo.train`` does it, besides callbacks and the run directory."""
        return {
            'alg': self.alg,
            'env_id': self.environment(),
            'env_type': self.env_type,
            **self.arguments,
            'env_params': dict(self.env_params),
            **self.params(),
        }

    def program(self) -> str:
        """The program that does the same."""
        own = self.env_type == 'gymnasium' and self.env_id in self.own()
        env = self.env_id if own else repr(self.env_id)
        of_env = {'seed': self.arguments['seed']}
        of_env |= {name: self.arguments[name] for name in ('nenv', 'vectorized') if self._chosen(name)}
        of_env |= self.env_params
        of_params = {'seed': self.arguments['seed']}
        of_params |= {name: self.arguments[name] for name in ('layers', 'dtype', 'recurrent') if self._chosen(name)}
        given, edits = keywords(of_params), self._edit_lines()
        names = ['algorithms', 'build_env', 'call_default_params']
        if any('Linear(' in line for line in edits):
            names.insert(0, 'Linear')
        lines = [f'from zoo import {", ".join(names)}', '']
        if own:
            lines += [f'# {self.env_id} is an environment of your own: define or import it here.']
        lines += [
            f'env = build_env({env}, {self.env_type!r}, {keywords(of_env)})',
            f'alg_params, learn_params = call_default_params(env, {self.env_type!r}, {self.alg!r}, {given})',
            *edits,
            f'agent = algorithms.{self.alg}(**alg_params)',
            "agent.learn(env, 'train', **learn_params)",
        ]
        return '\n'.join(lines) + '\n'

    def _chosen(self, name: str) -> bool:
        return bool(self.arguments[name] != ARGUMENTS[name][0])

    def _edit_lines(self) -> list[str]:
        lines = []
        for field in self.fields():
            if not field.changed:
                continue
            edit = self._edits[field.name]
            if field.group in ('agent', 'learn'):
                where = 'alg_params' if field.group == 'agent' else 'learn_params'
                lines.append(f'{where}[{field.name!r}] = {written(edit)}')
                continue
            given, _, index = field.name.partition('[')
            place = f'alg_params[{given!r}][{index}'
            if isinstance(edit, Source):
                before, last = edit.parts(field.name)
                lines += [*([before] if before else []), f'{place} = {last}']
            elif isinstance(edit, dict) and isinstance(field.default, dict):
                lines.append(f'{place}.update({keywords(edit)})')
            else:
                lines.append(f'{place} = {written(field.value)}')
        return lines

    def keep(self, environments: Iterable[Callable[..., Any]]) -> None:
        """Offer environments of the user's own, as the constructor does."""
        environments = tuple(environments)
        for made in environments:
            if not callable(made):
                raise ValueError(f'environments has {made!r} in it: give classes or functions that make environments.')
        self._given |= {made.__name__: made for made in environments}

    def snapshot(self) -> Experiment:
        """This, as it is now."""
        found = copy.copy(self)
        found.edits = copy.deepcopy(self.edits)
        return found

    def is_own(self) -> bool:
        """Whether environment or networks are of the user's own, so that no run's folder says how they are made."""
        return not isinstance(self.environment(), str) or self.has_sources()

    def has_sources(self) -> bool:
        """Whether a network is given by code."""
        return any(isinstance(edit, Source) for edit in self._edits.values())


def program_of(run: Any) -> str:
    """The program that does a run again: the one that the dashboard left in its folder, or one from its configuration.

    Raises:
        ValueError: its folder does not say, see :meth:`Experiment.of`.
    """
    kept = run.path / PROGRAM
    return str(kept.read_text(encoding='utf-8')) if kept.is_file() else Experiment.of(run).program()


def _png(frame: Any) -> bytes:
    """A picture ``[height, width, 3]`` as PNG, at most so wide."""
    from PIL import Image

    picture = Image.fromarray(frame)
    if picture.width > _WIDTH:
        picture = picture.resize((_WIDTH, max(1, round(picture.height * _WIDTH / picture.width))))
    file = io.BytesIO()
    picture.save(file, format='png')
    return file.getvalue()
