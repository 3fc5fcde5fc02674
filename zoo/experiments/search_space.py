"""Which hyper-parameters are searched, and in which ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from zoo import algorithms
from zoo.common.env_wrappers import build_env
from zoo.common.envs.about import about
from zoo.common.schedules import Linear
from zoo.common.tools import habits
from zoo.common.tools.errors import InvalidValue
from zoo.common.tools.params import Param, Range, checked, refusal
from zoo.common.utils import call_default_params
from zoo.experiments.train import ARGUMENTS, RATE, check_names, known_params

#: The parameters that are searched by default, if the algorithm has them: they matter most.
SEARCHED = (
    'learning_rate', 'net', 'gamma', 'gae_lambda', 'n_step', 'tau', 'batch_size', 'horizon', 'epochs', 'update_every',
    'clip_range', 'entropy_coef', 'explore_noise', 'target_update_every',
)  # fmt: skip

#: How many rollouts a trial has at least: a training ends with a whole one, so that long ones make some trials longer.
ITERATIONS = 10

#: Networks that are tried.
NETS = ('64,64', '128,128', '256,256')


@dataclass(frozen=True)
class Choice:
    """The values among which a parameter is searched: a range of numbers, or a list.

    Attributes:
        low, high: ends of the range.
        whole: only whole numbers.
        scale: how the range is sampled: ``'linear'``, ``'log'``, or ``'log1m'``, evenly in log(1 − x), for discounts.
        values: the list; empty: the range counts.
        schedule: ``(end, until)`` of a ``Linear`` schedule that starts with the number; None: the number is constant.
    """

    low: float = 0.0
    high: float = 0.0
    whole: bool = False
    scale: str = 'linear'
    values: tuple[Any, ...] = ()
    schedule: tuple[float, float] | None = None

    def suggest(self, trial: Any, name: str) -> Any:
        """Return the value for a trial of Optuna."""
        if self.values:
            return trial.suggest_categorical(name, list(self.values))
        if self.whole:
            return trial.suggest_int(name, int(self.low), int(self.high), log=self.scale == 'log')
        if self.scale == 'log1m':
            return 1.0 - trial.suggest_float(f'1 - {name}', 1.0 - self.high, 1.0 - self.low, log=True)
        number = trial.suggest_float(name, self.low, self.high, log=self.scale == 'log')
        return number if self.schedule is None else Linear(number, *self.schedule)

    def at_most(self, high: int) -> Choice:
        """Return a range of whole numbers that ends at ``high`` if not before."""
        if self.values or high >= self.high or high < 2:
            return self
        return replace(self, low=min(self.low, max(1, high // 4)), high=high)

    def __str__(self) -> str:
        if self.values:
            return ', '.join(map(str, self.values))
        return f'{self.low:g} to {self.high:g}' + ('' if self.scale == 'linear' else ', log scale')


def choice_for(param: Param, default: Any) -> Choice | None:
    """Return the range of a parameter around its default, within its declared range; None if there is none.

    A whole number is searched from a quarter of the default to four times it, another number from a tenth to ten times
    it, both on a log scale. For a fraction x of 0.9 or more, 1 − x is searched so. A weight with the default 0 is
    searched from 1e-8 to 0.1.
    """
    if param.kind == 'flag':
        return Choice(values=(False, True))
    if param.kind == 'choice':
        return Choice(values=param.choices)
    schedule = None
    if isinstance(default, Linear):
        default, schedule = default.start, (default.end, default.until)
    if param.kind not in ('whole', 'number') or isinstance(default, bool) or not isinstance(default, int | float):
        return None
    limits = param.range
    if param.kind == 'whole':
        low, high = max(limits.low, default // 4, 1), min(limits.high, default * 4)
        return Choice(low, high, True, 'log') if 1 <= low < high else None
    if limits == Range(0, 1) and 0.9 <= default < 1:
        lacks = 1.0 - default
        return Choice(1.0 - min(10 * lacks, 0.5), 1.0 - lacks / 10, False, 'log1m')
    if default == 0:
        low, high = 1e-8, min(0.1, limits.high)
    elif limits.high == 1 and default >= 0.1:
        return Choice(max(limits.low, default / 4), 1.0, schedule=schedule)
    else:
        low, high = default / 10, min(default * 10, limits.high)
    if default < 0 or low < limits.low or high <= low:
        return None
    return Choice(low, high, False, 'log', schedule=schedule)


def space_of(
    alg: str, env_id: Any, env_type: str, search: Any, params: Mapping[str, Any], train_steps: int | None
) -> tuple[dict[str, Choice], str, int]:
    """Return the choices by name, the name of the environment, and the environment steps of a trial."""
    cls = getattr(algorithms, alg)
    own = {name: value for name, value in params.items() if name not in ARGUMENTS}
    check_names(cls, own)
    known = known_params(cls)
    checked(own, known)
    env = build_env(env_id, env_type, nenv=params['nenv'], **(params.get('env_params') or {}))
    try:
        alg_params, learn_params = call_default_params(env, env_type, alg)
        environment = about(env).name
    finally:
        env.close()
    defaults = alg_params | learn_params
    if cls.optimizer_names and 'learning_rate' not in known:
        known = known | {'learning_rate': RATE}
        defaults['learning_rate'] = alg_params['optimizers_list'][0].get('learning_rate', 1e-3)
    if isinstance(search, str) or not isinstance(search, Sequence | Mapping | None):
        right = "names, ['gamma', 'learning_rate'], or a dict of values by name"
        raise InvalidValue(f'search is {search!r}: give {right}.')
    names = SEARCHED if search is None else tuple(search)
    asked = search if isinstance(search, Mapping) else {}
    choices: dict[str, Choice] = {}
    for name in names:
        if search is None and (name in params or (name != 'net' and name not in known)):
            continue
        if name in params:
            raise InvalidValue(f'{name} is searched and fixed at {params[name]!r}: leave one of them out.')
        if name != 'net' and name not in known:
            other, searchable = habits.OF_TRAIN.get(name), [*known, 'net']
            if other in searchable:
                raise InvalidValue(f'unknown parameter {name!r} to search: it is called {other!r} here.')
            raise InvalidValue(refusal(f'parameter of {alg} to search', name, searchable, {}))
        choice = Choice(values=NETS) if name == 'net' else choice_for(known[name], defaults.get(name))
        if asked.get(name) is not None:
            choice = _asked(name, asked[name], known.get(name), choice)
        if choice is not None:
            choices[name] = choice
        elif search is not None:
            told = f'has no range around its default {defaults.get(name)!r}'
            told = f'search: {name} {told}: give values, such as'
            shell = f"{told} --search '{name}=[1, 2, 3]'."
            raise InvalidValue(f'{told} search={{{name!r}: [1, 2, 3]}}.', shell=shell)
    if not choices:
        told = f'nothing is left to search for {alg}: name parameters,'
        raise InvalidValue(f'{told} search=[…].', shell=f'{told} --search NAME.')
    steps = train_steps or int(learn_params[algorithms.length_of(alg, params)])
    if 'horizon' in choices and asked.get('horizon') is None:
        choices['horizon'] = choices['horizon'].at_most(steps // (ITERATIONS * params['nenv']))
    return choices, environment, steps


def _asked(name: str, value: Any, param: Param | None, usual: Choice | None) -> Choice:
    """Return the choice that a user asked for: a list of values, or a pair of bounds."""
    if isinstance(value, list) and value:
        if param is not None:
            value = [param.check(x) for x in value]
        return Choice(values=tuple(value))
    if isinstance(value, tuple) and len(value) == 2 and param is not None and param.kind in ('whole', 'number'):
        low, high = (param.check(x) for x in value)
        if not low < high:
            raise InvalidValue(f'search: {name} is {value!r}: the first of two bounds is the lower one.')
        scale = usual.scale if usual is not None else 'linear'
        if scale == 'log' and low <= 0 or scale == 'log1m' and high >= 1:
            scale = 'linear'
        return Choice(low, high, param.kind == 'whole', scale, schedule=None if usual is None else usual.schedule)
    raise InvalidValue(f'search: {name} is {value!r}: give a list of values, or a pair of bounds such as (0.1, 0.5).')
