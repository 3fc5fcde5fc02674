"""Comparing algorithms: each with several seeds in one environment or in several.

With few runs a mean says little. Scores are summarized by their interquartile mean with a confidence interval by
bootstrap over the runs: Agarwal et al. 2021, *Deep Reinforcement Learning at the Edge of the Statistical Precipice*
(arXiv 2108.13264), sections 4.3 and 4.1.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np

from zoo import algorithms
from zoo.common.env_wrappers import build_env, find_env_type
from zoo.common.envs.about import about
from zoo.common.tools.checks import whole
from zoo.common.tools.errors import Failure, InvalidValue
from zoo.common.tools.files import as_path, make_directory
from zoo.common.tools.params import checked
from zoo.common.tools.printing import say
from zoo.common.tools.processes import alone_in
from zoo.common.training.display import in_verbose
from zoo.experiments import workers
from zoo.experiments.plans import Plan
from zoo.experiments.references import Scale
from zoo.experiments.report import Comparison, Comparisons, few
from zoo.experiments.results import UNLEARNED, folder_name, read_result
from zoo.experiments.runs import runs_folder
from zoo.experiments.statistics import ENOUGH
from zoo.experiments.summary import check_names as check_environments
from zoo.experiments.summary import summarize
from zoo.experiments.train import ARGUMENTS, check_names, known_params


@overload
def compare(
    algs: Sequence[str] | Mapping[str, Mapping[str, Any]],
    env_id: list[Any] | tuple[Any, ...],
    env_type: str | None = None,
    *,
    seeds: int | Sequence[int] = ENOUGH,
    train_steps: int | None = None,
    test_episodes: int = 20,
    references: Mapping[str, float] | None = None,
    jobs: int | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: bool = True,
    **params: Any,
) -> Comparisons: ...


@overload
def compare(
    algs: Sequence[str] | Mapping[str, Mapping[str, Any]],
    env_id: Any,
    env_type: str | None = None,
    *,
    seeds: int | Sequence[int] = ENOUGH,
    train_steps: int | None = None,
    test_episodes: int = 20,
    references: Mapping[str, float] | None = None,
    jobs: int | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: bool = True,
    **params: Any,
) -> Comparison: ...


def compare(
    algs: Sequence[str] | Mapping[str, Mapping[str, Any]],
    env_id: Any,
    env_type: str | None = None,
    *,
    seeds: int | Sequence[int] = ENOUGH,
    train_steps: int | None = None,
    test_episodes: int = 20,
    references: Mapping[str, float] | None = None,
    jobs: int | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: bool = True,
    **params: Any,
) -> Comparison | Comparisons:
    """Train algorithms with several seeds each, in processes side by side, and compare them.

    Runs that are in ``out`` already are not repeated: the same call continues an interrupted comparison, and a call
    with more seeds, algorithms or environments adds their runs. An interrupted run is resumed. It starts again where
    the replay buffer was not saved. With ``exact_resume=True`` a resumed run equals an uninterrupted one.

    All runs in an environment have equally many copies of it: the largest number among the defaults of the algorithms,
    since with fewer copies than its defaults are meant for an algorithm may do worse. ``nenv`` sets another number for
    all; a label's own ``nenv`` sets its number alone. An algorithm with actors keeps its default, since each actor has
    as many.

    Over several environments scores are normalized: 0 is a random policy, 1 is a reference. Common environments have
    both in a table. In others, and with ``env_params``, a random policy plays some episodes first, and the reference is
    the highest mean among the algorithms.

    >>> zoo.compare(['PPO', 'A2C'], 'CartPole-v1', seeds=5, train_steps=50_000)
    >>> zoo.compare(['PPO', 'A2C'], ['CartPole-v1', 'Acrobot-v1'], seeds=5)
    >>> zoo.compare({'large': dict(alg='PPO', net='256,256'), 'small': dict(alg='PPO', net='16')}, 'CartPole-v1')

    Args:
        algs: names of algorithms; or, by label, arguments of ``zoo.train``, including ``alg``.
        env_id, env_type: the environment, as for :func:`zoo.train`; or a list of environments, and the type of all.
        seeds: the number of seeds, which begin at 0; or the seeds. With fewer than five the intervals are too narrow.
        train_steps: environment steps of each run, or with ``dataset`` updates; None: the default of each algorithm for
            the environment.
        test_episodes: episodes of the test after each run. Their mean return is the score of the run.
        references: by environment, the score that counts as 1; only for several environments.
        jobs: runs at a time; None: one for each core.
        out: the folder; None: ``compare_<environment>`` or ``compare_environments`` in the folder of runs.
        progress: print a line when a run begins and when it ends.
        **params: arguments of :func:`zoo.train` for all runs.

    Returns:
        The comparison, over several environments the comparisons; the report is written.

    Raises:
        ValueError: :func:`zoo.train` would refuse an argument, or ``out`` holds runs with other settings.
        RuntimeError: runs failed. It is raised after all others have ended; the folder of a run has its whole error.
    """
    chosen, wanted = _chosen(algs), _seeds(seeds)
    params = in_verbose(params, warn=True)
    for name, value in (('test_episodes', test_episodes), ('jobs', jobs), ('train_steps', train_steps)):
        if value is not None:
            whole(name, value)
    several = isinstance(env_id, list | tuple)
    plans = []
    for one in env_id if several else [env_id]:
        settings = {}
        for label, own in chosen.items():
            length = {} if train_steps is None else {algorithms.length_of(own['alg'], {**params, **own}): train_steps}
            settings[label] = {**params, **length, **own}
        kind = find_env_type(one) if env_type is None else env_type
        plans.append(Plan(one, kind, _check(settings, one, kind), settings, test_episodes))
    _check_plans(plans, references, several)
    default = 'compare_environments' if several else f'compare_{folder_name(plans[0].environment)}'
    folder = runs_folder() / default if out is None else as_path(out, 'out')
    places = [folder / folder_name(plan.environment) for plan in plans] if several else [folder]
    with contextlib.ExitStack() as held:
        for place in dict.fromkeys([folder, *places]):
            make_directory(place, 'the folder of a comparison')
            held.enter_context(alone_in(place))
        told = {plan.environment: plan.settle(place) for plan, place in zip(plans, places, strict=True)}
        if progress:
            for name, sentence in told.items():
                say(f'{name}: {sentence}' if several else sentence)
            for plan, place in zip(plans, places, strict=True):
                if others := plan.others(place):
                    say(f"'{place}' also holds runs of {', '.join(others)}: they are kept, but not in this report.")
            if few(len(wanted)):
                say(few(len(wanted)))
        scales = {plan.environment: plan.scale(progress) for plan in plans} if several else {}
        for name, reference in (references or {}).items():
            scales[name].with_reference(reference, name)  # refused now rather than after the trainings
        failed = _do(plans, places, wanted, jobs, progress)
        made = {}
        for plan, place in zip(plans, places, strict=True):
            one = Comparison(place, plan.environment, plan.length, plan.scores(place, wanted))
            made[plan.environment] = one
            if one.scores:
                one.write()
        result = _summed(folder, made, scales, references or {}) if several else made[plans[0].environment]
        if failed:
            total = len(wanted) * len(chosen) * len(plans)
            raise Failure(f'{len(failed)} of {total} runs have failed: {"; ".join(failed)}.')
        return result


def _do(
    plans: Sequence[Plan], places: Sequence[Path], seeds: Sequence[int], jobs: int | None, progress: bool
) -> list[str]:
    """Do all runs that are missing; return for each that failed its name, its error and its log."""
    several = len(plans) > 1
    tasks = [
        # Every algorithm has its first run in every environment before any has its second.
        plan.task(place, label, seed, several)
        for seed in seeds
        for plan, place in zip(plans, places, strict=True)
        for label in plan.settings
    ]
    missing = [task for task in tasks if task is not None]
    failed: list[str] = []
    total, done = len(tasks), len(tasks) - len(missing)
    if progress and done:
        say(f'{done} of {total} runs are there already.')

    def ended(task: workers.Task, reason: str | None) -> None:
        nonlocal done
        done += 1
        if reason is not None:
            failed.append(f'{task.name} ({reason.rstrip(".")}; see {task.log})')
        if progress:
            found = read_result(task.args[0])
            told = f'failed: {reason}' if found is None else f'{found["score"]:.4g} after {found["seconds"]:.0f} s'
            if found is not None and 'unlearned' in found:
                told += f' ({UNLEARNED})'
            say(f'[{done}/{total}] {task.name}: {told}')

    begun = (lambda task: say(f'{task.name} begins')) if progress else (lambda _: None)
    workers.run(missing, jobs or workers.cores(), begun, ended)
    return failed


def _summed(
    folder: Path, made: Mapping[str, Comparison], scales: Mapping[str, Scale], references: Mapping[str, float]
) -> Comparisons:
    """Return comparisons in several environments together; their report is written if there is a score."""
    values: dict[str, dict[str, np.ndarray]] = {}
    for name, one in made.items():
        for label, scores in one.scores.items():
            values.setdefault(label, {})[name] = np.array([score.score for score in scores])
    scored = {name: scales[name] for name, one in made.items() if one.scores}
    found = Comparisons(folder, made, summarize(values, scored, references))
    if values:
        found.write()
    return found


def _check_plans(plans: Sequence[Plan], references: Any, several: bool) -> None:
    """Refuse no environments, two alike, different arguments for several, and references of none."""
    names = [plan.environment for plan in plans]
    if not names:
        raise InvalidValue("env_id is an empty list: give environments, such as ['CartPole-v1', 'Acrobot-v1'].")
    for name in names:
        if names.count(name) > 1:
            raise InvalidValue(f'the environment {name} is named twice: leave it out once.')
    if len(set(map(folder_name, names))) < len(names):
        raise InvalidValue(f'two of the environments {names} would be one folder: compare them one by one.')
    if references and not several:
        raise InvalidValue(
            'references normalize scores over several environments, and there is one: leave them out.',
            shell='--reference normalizes scores over several environments, and there is one: leave it out.',
        )
    arguments = [own.get('env_params') or {} for own in plans[0].settings.values()]
    if several and any(own != arguments[0] for own in arguments):
        raise InvalidValue(
            'scores in several environments are normalized by one random score in each, but the env_params of the '
            'algorithms differ: give all the same, or compare in one environment.'
        )
    if references is not None:
        check_environments('references', references, names)


def _chosen(algs: Any) -> dict[str, dict[str, Any]]:
    """Return, by label, the arguments of ``zoo.train``."""
    if isinstance(algs, str) or not isinstance(algs, Mapping | Sequence) or not algs:
        raise InvalidValue(f"algs is {algs!r}: give names, ['PPO', 'A2C'], or a dict of labels and parameters.")
    if not isinstance(algs, Mapping):
        if len(set(map(algorithms.check_name, algs))) < len(algs):
            told = f'an algorithm is named twice in {list(algs)!r}'
            shell = f'{told}: leave one of them out.'
            raise InvalidValue(f'{told}: give a dict of labels and parameters.', shell=shell)
        algs = {name: {'alg': name} for name in map(algorithms.check_name, algs)}
    for label, own in algs.items():
        if not isinstance(label, str) or not isinstance(own, Mapping) or 'alg' not in own:
            raise InvalidValue(f'algs[{label!r}] is {own!r}: give parameters of zoo.train, such as dict(alg="PPO").')
    names = [folder_name(label) for label in algs]
    if len(set(names)) < len(names):
        told = 'would be one folder: make them differ in letters or digits'
        raise InvalidValue(f'two of the labels {list(algs)!r} {told}.')
    return {label: {**own, 'alg': algorithms.check_name(own['alg'])} for label, own in algs.items()}


def _seeds(seeds: Any) -> list[int]:
    found = list(range(seeds)) if isinstance(seeds, int) and not isinstance(seeds, bool) else seeds
    fine = isinstance(found, Sequence) and not isinstance(found, str) and len(found) > 0
    if not fine or not all(isinstance(seed, int) and seed >= 0 for seed in found) or len(set(found)) < len(found):
        raise InvalidValue(f'seeds is {seeds!r}: give how many, from 1 on, or different whole numbers from 0 on.')
    return list(found)


def _check(settings: Mapping[str, Mapping[str, Any]], env_id: Any, env_type: str) -> str:
    """Refuse before the first run what would end one of them at once; return the name of the environment."""
    for own in settings.values():
        for name in ('seed', 'run_dir', 'callbacks', 'evaluate', 'plot_func', 'render', 'resume'):
            if name in own:
                raise InvalidValue(f'{name} is chosen for each run of a comparison: leave it out.')
    env_params = next(iter(settings.values())).get('env_params') or {}
    env = build_env(env_id, env_type, **env_params)
    try:
        space = getattr(env, 'single_action_space', env.action_space)
        for own in settings.values():
            cls = getattr(algorithms, own['alg'])
            cls.check_action_space(space)
            values = {name: value for name, value in own.items() if name not in (*ARGUMENTS, 'alg')}
            check_names(cls, values)
            checked(values, known_params(cls))
        return about(env).name
    finally:
        env.close()
