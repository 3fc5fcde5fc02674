"""An experiment as a program, and a run as an experiment."""

from __future__ import annotations

from typing import Any

from zoo.callbacks import KeepBest
from zoo.common.tools.errors import InvalidValue, article
from zoo.dashboard.experiment import Experiment
from zoo.dashboard.fields import ARGUMENTS, Source
from zoo.dashboard.runs import PROGRAM, plain
from zoo.dashboard.values import keywords, written


def program_for(experiment: Experiment) -> str:
    """Return a program that trains what is chosen."""
    own = experiment.env_type == 'gymnasium' and experiment.env_id in experiment.own()
    env = experiment.env_id if own else repr(experiment.env_id)
    chosen = {name: x for name, x in experiment.arguments.items() if name == 'seed' or x != ARGUMENTS[name][0]}
    of_env = {name: chosen[name] for name in ('seed', 'nenv', 'vectorized') if name in chosen} | experiment.env_params
    given = keywords({name: chosen[name] for name in ('seed', 'layers', 'dtype', 'recurrent') if name in chosen})
    edits = _edit_lines(experiment)
    names = ['algorithms', 'build_env', 'call_default_params']
    tests = ', callbacks=[callbacks.KeepBest()]' if experiment.arguments['evaluate'] else ''
    if tests:
        names.append('callbacks')
    if any('Linear(' in line for line in edits):
        names.insert(0, 'Linear')
    lines = [f'from zoo import {", ".join(names)}', '']
    if own:
        lines += [f'# {experiment.env_id} is an environment of your own: define or import it here.']
    lines += [
        f'env = build_env({env}, {experiment.env_type!r}, {keywords(of_env)})',
        f'alg_params, learn_params = call_default_params(env, {experiment.env_type!r}, {experiment.alg!r}, {given})',
        *edits,
        f'agent = algorithms.{experiment.alg}(**alg_params)',
        f"agent.learn(env, 'train'{tests}, **learn_params)",
    ]
    return '\n'.join(lines) + '\n'


def _edit_lines(experiment: Experiment) -> list[str]:
    lines = []
    for field in experiment.fields():
        if not field.changed:
            continue
        edit = experiment.own_edits[field.name]
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


def experiment_of(run: Any) -> Experiment:
    """Return the experiment of a run.

    Raises:
        ValueError: the folder does not say enough: its environment has no name, or a network is the user's own.
    """
    config = plain(run.config)
    made_with = config.get('made_with')
    if made_with is None:
        run.build_env()  # which says why not
        raise InvalidValue(f'{run.name} does not say how its environment is made.')
    env = dict(made_with)
    env_id, env_type = env.pop('env_id'), env.pop('env_type')
    found = Experiment(env_type=env_type, env_id=env_id, alg=run.algorithm)
    entries = config['net_list']
    for i, entry in enumerate(entries):
        if isinstance(entry, dict) and 'custom' in entry:
            told = f'is {article(entry["custom"])} of your own, which its folder does not hold'
            raise InvalidValue(f'net_list[{i}] of {run.name} {told}.')
    specs = [entry for entry in entries if isinstance(entry, dict)] or [{}]
    arguments = {name: env.pop(name, ARGUMENTS[name][0]) for name in ('nenv', 'vectorized')}
    arguments['evaluate'] = KeepBest.of_run(run.path) is not None
    arguments |= {name: specs[0][name] for name in ('layers', 'dtype', 'recurrent') if specs[0].get(name)}
    found.choose(seed=run.seed, env_params=env, **arguments)
    wanted = {**config['params'], **config['learn_params']}
    for given in ('net_list', 'optimizers_list'):
        for i, entry in enumerate(config[given]):
            if not isinstance(entry, str):
                entry = {key: x for key, x in entry.items() if key not in ('seed', 'layers', 'dtype')}
            wanted[f'{given}[{i}]'] = entry
    edits = {}
    for field in found.fields():
        value = wanted.get(field.name, field.default)
        if isinstance(value, dict) and isinstance(field.default, dict) and field.group in ('networks', 'optimizers'):
            value = {key: x for key, x in value.items() if written(field.default.get(key)) != written(x)}
            if value:
                edits[field.name] = value
        elif written(value) != written(field.default):
            edits[field.name] = value
    edits.pop('verbose', None)
    found.edit_all(edits)
    return found


def program_of(run: Any) -> str:
    """Return a program that repeats a run: the one that the dashboard left in its folder, else one for its settings.

    Raises:
        ValueError: the folder does not say enough, see :func:`experiment_of`.
    """
    kept = run.path / PROGRAM
    return str(kept.read_text(encoding='utf-8')) if kept.is_file() else program_for(experiment_of(run))
