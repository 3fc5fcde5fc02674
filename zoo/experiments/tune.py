"""Tuning hyper-parameters with Optuna (the extra ``tune``): ``zoo.tune('TD3', 'Pendulum-v1', trials=10)``.

Each trial is a process with a training for each seed. The processes share the study, a journal in the output folder.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from zoo import algorithms
from zoo.callbacks import Evaluate
from zoo.common.env_wrappers import find_env_type
from zoo.common.schedules import Linear, schedule_from_json, schedule_to_json
from zoo.common.tools.checks import whole
from zoo.common.tools.errors import Failure, InvalidValue, MissingPackage, unknown
from zoo.common.tools.files import as_path, make_directory, write_json, write_text
from zoo.common.tools.printing import Table, say
from zoo.common.tools.processes import alone_in
from zoo.common.training.display import in_verbose
from zoo.experiments import workers
from zoo.experiments.results import UNLEARNED, keep_settings
from zoo.experiments.runs import runs_folder
from zoo.experiments.search_space import Choice, space_of
from zoo.experiments.train import copies_for, kept_defaults, kept_environment, train

SAMPLERS = ('tpe', 'random')
PRUNERS = ('median', 'halving', 'none')

#: Tests in a trial; after each the pruner may end the trial.
TESTS = 5


@dataclass(frozen=True)
class Trial:
    """A trial that has ended.

    Attributes:
        number: its number, from 0.
        state: ``'complete'``, ``'pruned'`` or ``'fail'``.
        score: the mean over the seeds of the mean return of the last test; None if there was none. A trial that was
            pruned counts the seeds that it had begun.
        params: the searched parameters, as :func:`zoo.train` takes them.
        scores: by seed, the mean return of the last test, of the seeds that it has trained to the end.
    """

    number: int
    state: str
    score: float | None
    params: Mapping[str, Any]
    scores: Mapping[int, float] = field(default_factory=dict)
    learned: bool = True


def folder_of(number: int) -> str:
    """Return the name of a trial's folder, which is also its name in lists; its number counts from 0."""
    return f'trial_{number:04d}'


@dataclass(frozen=True)
class Tuning:
    """What :func:`tune` returns. It prints as a list of the best trials.

    Attributes:
        folder: has the study, ``trials.csv``, ``best.json``, and the run of each trial.
        alg, environment: what was tuned.
        trials: all trials that have ended.
    """

    folder: Path
    alg: str
    environment: str
    trials: tuple[Trial, ...]

    @property
    def best(self) -> Trial | None:
        """The complete trial with the highest score; None if no trial is complete."""
        complete = [trial for trial in self.trials if trial.state == 'complete' and trial.score is not None]
        return max(complete, key=lambda trial: trial.score or 0.0, default=None)

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of the best trial: ``zoo.train(alg, env_id, **tuning.params)``."""
        return {} if self.best is None else dict(self.best.params)

    def __repr__(self) -> str:
        states = [trial.state for trial in self.trials]
        told = ', '.join(f'{states.count(state)} {state}' for state in dict.fromkeys(states))
        lines = [f'{self.alg} on {self.environment}: {len(self.trials)} trials ({told})']
        known = [trial for trial in self.trials if trial.score is not None]
        for trial in sorted(known, key=lambda trial: -(trial.score or 0.0))[:5]:
            values = ', '.join(f'{name}={_short(value)}' for name, value in trial.params.items())
            mark = '' if trial.state == 'complete' else f' ({trial.state})'
            mark += '' if trial.learned else f' ({UNLEARNED})'
            if len(trial.scores) > 1:
                mark += f' [{", ".join(f"{score:.4g}" for score in trial.scores.values())}]'
            lines.append(f'  {trial.score:10.4g}  {folder_of(trial.number)}{mark}: {values}')
        return '\n'.join([*lines, f'folder: {self.folder}'])

    def write(self) -> None:
        """Write ``trials.csv`` and ``best.json``."""
        names = list(dict.fromkeys(name for trial in self.trials for name in trial.params))
        seeds = sorted({seed for trial in self.trials for seed in trial.scores})
        seeds = seeds if len(seeds) > 1 else []  # the score of one seed is the score
        rows = []
        for trial in self.trials:
            score = '' if trial.score is None else trial.score
            own = [trial.scores.get(seed, '') for seed in seeds]
            values = (_short(trial.params.get(name, '')) for name in names)
            rows.append([trial.number, trial.state, score, *own, *values])
        columns = ['trial', 'state', 'score', *(f'seed {seed}' for seed in seeds), *names]
        write_text(self.folder / 'trials.csv', Table('', columns, rows).csv())
        if self.best is not None:
            params = {name: schedule_to_json(value) for name, value in self.params.items()}
            found = {'score': self.best.score, 'trial': self.best.number, 'params': params}
            if len(self.best.scores) > 1:
                found['scores'] = {str(seed): score for seed, score in self.best.scores.items()}
            write_json(self.folder / 'best.json', found)


def _short(value: Any) -> str:
    if isinstance(value, Linear):
        return f'Linear({value.start:.4g}, {value.end:g}, {value.until:g})'
    return f'{value:.4g}' if isinstance(value, float) else str(value)


def tune(
    alg: str,
    env_id: Any,
    env_type: str | None = None,
    *,
    trials: int = 20,
    train_steps: int | None = None,
    search: Sequence[str] | Mapping[str, Any] | None = None,
    sampler: str = 'tpe',
    pruner: str = 'median',
    test_episodes: int = 10,
    seed: int = 0,
    seeds: int = 1,
    jobs: int | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: bool = True,
    **params: Any,
) -> Tuning:
    """Search the hyper-parameters with which an algorithm does best in an environment.

    A trial's score is the mean return of a test without exploration at its end. Four earlier tests decide whether the
    trial ends early. The same call continues the study in ``out``, up to ``trials`` in all. Interrupted trials do not
    count; trials that failed (a loss that is not finite) do.

    With several ``seeds`` each trial trains once with each, one after the other, and its score is the mean of their
    scores: parameters that do well by luck with one seed do not win. The seeds are the same in every trial, so trials
    differ by their parameters alone. A trial may end early at every test of every seed. It is then judged by the mean
    over the seeds so far.

    Args:
        alg, env_id, env_type: the algorithm and the environment, as for :func:`zoo.train`.
        trials: number of trials in all.
        train_steps: environment steps of each trial, or with ``dataset`` updates; None: the algorithm's default for
            this environment.
        search: names of parameters, which are searched around their defaults; or, by name, a list of values or a pair
            ``(low, high)``. None: the parameters in :data:`zoo.experiments.search_space.SEARCHED` that the algorithm
            has and ``params`` does not fix.
        sampler: ``'tpe'`` (tree-structured Parzen estimators, Bergstra et al. 2011) or ``'random'``.
        pruner: ``'median'`` ends a trial that is worse than the median of the others, ``'halving'`` ends the worse half
            again and again, ``'none'`` ends none.
        test_episodes: episodes of each test.
        seed: of the sampler and of every training; with several seeds, of the first training.
        seeds: number of trainings in each trial, with the seeds ``seed, seed + 1, …``.
        jobs: trials at a time; None: one for each core.
        out: the folder; None: ``tune_<algorithm>_<environment>`` in the folder of runs.
        progress: print a line when a trial begins and when it ends.
        **params: arguments of :func:`zoo.train`, the same in all trials.

    Raises:
        ValueError: :func:`zoo.train` would refuse an argument, or ``out`` holds a study with other settings.
        ImportError: Optuna is not installed.
        RuntimeError: every trial failed.
    """
    optuna = _optuna()
    alg = algorithms.check_name(alg)
    params = in_verbose(params, warn=True)
    names = {'sampler': (sampler, SAMPLERS), 'pruner': (pruner, PRUNERS)}
    for kind, (value, known) in names.items():
        if value not in known:
            raise InvalidValue(unknown(kind, value, known))
    counts = {'trials': trials, 'seeds': seeds, 'train_steps': train_steps}
    counts |= {'test_episodes': test_episodes, 'jobs': jobs}
    for name, count in counts.items():
        if count is not None:
            whole(name, count)
    env_type = find_env_type(env_id) if env_type is None else env_type
    for name in ('run_dir', 'callbacks', 'evaluate', 'plot_func', 'render', 'resume'):
        if name in params:
            raise InvalidValue(f'{name} is chosen for each trial of a study: leave it out.')
    if params.get('nenv') is None:
        params['nenv'] = copies_for(alg, env_type, env_id)
    choices, environment, steps = space_of(alg, env_id, env_type, search, params, train_steps)
    named = re.sub(r'[^A-Za-z0-9._-]+', '-', environment)
    folder = runs_folder() / f'tune_{alg}_{named}' if out is None else as_path(out, 'out')
    fixed = {algorithms.length_of(alg, params): steps, 'seed': seed, **params}
    make_directory(folder, 'the folder of a study')
    with alone_in(folder):
        told = {name: str(choice) for name, choice in choices.items()}
        settings = {'alg': alg, 'search': told, 'test_episodes': test_episodes, 'fixed': fixed}
        settings |= {'seeds': seeds} if seeds > 1 else {}
        settings |= kept_defaults(alg, env_type, environment)
        keep_settings(
            folder, settings | {'environment': environment, 'env_type': env_type} | kept_environment(env_id), 'a study'
        )
        study = open_study(folder, sampler, pruner, seed)
        for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):  # interrupted
            study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        begun = study.get_trials(deepcopy=False)
        done = sum(map(_counts, begun))
        if progress and done:
            say(f'{min(done, trials)} of {trials} trials are there already.')
        output = folder / 'output'
        args = (folder, alg, env_id, env_type, choices, fixed, seeds, test_episodes, sampler, pruner)
        if progress and seeds > 1:
            which = f'with the seeds {seed} to {seed + seeds - 1}'
            say(f'Each trial is {seeds} trainings, {which}; its score is their mean.')
        tasks = [
            workers.Task(f'trial {done + i + 1} of {trials}', _work, (*args, seed + number), output / f'{number}.txt')
            # A seed that no trial has had, not even an interrupted one: it would repeat that trial.
            for i, number in enumerate(range(len(begun), len(begun) + trials - done))
        ]

        def ended(task: workers.Task, reason: str | None) -> None:
            if progress:
                best = read(folder, alg, environment).best
                so_far = 'no score yet' if best is None else f'the best score is {best.score:.4g}'
                say(f'{task.name} has ended: {reason}' if reason else f'a trial has ended: {so_far}')

        began = (lambda task: say(f'{task.name} begins')) if progress else (lambda _: None)
        workers.run(tasks, jobs or workers.cores(), began, ended)
        found = read(folder, alg, environment)
        found.write()
        if all(trial.state == 'fail' for trial in found.trials):
            raise Failure(f"every trial has failed; '{output}' has their errors.")
        if len(found.trials) < trials:  # killed, most likely
            why = f"trials have ended without a score or an error; '{output}' has what they said"
            raise Failure(f'{trials - len(found.trials)} of {trials} {why}. The same again makes them anew.')
        return found


def read(folder: Path, alg: str, environment: str) -> Tuning:
    """Return the trials of a study that have ended."""
    found = []
    for trial in open_study(folder, 'random', 'none', 0).get_trials(deepcopy=False):
        if _counts(trial):
            given = {name: schedule_from_json(x) for name, x in json.loads(trial.user_attrs['params']).items()}
            last = trial.value
            if last is None and trial.intermediate_values:
                last = trial.intermediate_values[max(trial.intermediate_values)]
            scores = {int(seed): score for seed, score in json.loads(trial.user_attrs.get('scores', '{}')).items()}
            learned = 'unlearned' not in trial.user_attrs
            found.append(Trial(trial.number, trial.state.name.lower(), last, given, scores, learned))
    return Tuning(folder, alg, environment, tuple(found))


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise MissingPackage(f"tuning needs Optuna: pip install 'zoo-rl[tune]' ({error}).") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def open_study(folder: Path, sampler: str, pruner: str, seed: int) -> Any:
    """Return the study of a folder; make it if need be."""
    optuna = _optuna()
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    samplers = {'tpe': lambda: optuna.samplers.TPESampler(seed=seed, n_startup_trials=5, constant_liar=True)}
    samplers['random'] = lambda: optuna.samplers.RandomSampler(seed=seed)
    pruners = {
        'median': lambda: optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=1),
        'halving': lambda: optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=2),
        'none': optuna.pruners.NopPruner,
    }
    chosen = {'sampler': samplers[sampler](), 'pruner': pruners[pruner](), 'direction': 'maximize'}
    storage = JournalStorage(JournalFileBackend(os.fspath(folder / 'study.log')))
    return optuna.create_study(storage=storage, study_name='zoo', load_if_exists=True, **chosen)


def _counts(trial: Any) -> bool:
    """Whether a trial has ended by itself: an interrupted one left neither a score nor an error."""
    return trial.state.name in ('COMPLETE', 'PRUNED') or (trial.state.name == 'FAIL' and 'error' in trial.user_attrs)


class ReportToStudy(Evaluate):
    """Tests during one training of a trial; ends the trial if the pruner says so.

    Args:
        trial: Optuna's.
        every, episodes: as for :class:`Evaluate`.
        earlier: the scores of the seeds before this one.
        last: whether this is the last training of the trial, which is not pruned at its end.
    """

    def __init__(self, trial: Any, every: int, episodes: int, earlier: Sequence[float] = (), last: bool = True) -> None:
        super().__init__(every, episodes, keep_best=False)
        self.trial, self.earlier, self.last = trial, earlier, last
        self.done = self.pruned = False

    def __call__(self, training: Any) -> bool | None:
        super().__call__(training)
        # A pruner compares values of the same step. Updates end at different steps in different trials, so the
        # number of the test stands for the step. All trials have the same seeds in the same order.
        self.done = training.done
        number = TESTS if self.done else training.steps // self.every
        self.trial.report(fmean([*self.earlier, self.returns[-1]]), TESTS * len(self.earlier) + number)
        self.pruned = not (self.done and self.last) and bool(self.trial.should_prune())
        return not self.pruned


def _work(
    folder: Path, alg: str, env_id: Any, env_type: str, choices: Mapping[str, Choice], fixed: Mapping[str, Any],
    seeds: int, test_episodes: int, sampler: str, pruner: str, seed: int,
) -> None:  # fmt: skip
    """Do one trial; this is what each process does."""
    study = open_study(folder, sampler, pruner, seed)
    from optuna.exceptions import TrialPruned

    def objective(trial: Any) -> float:
        given = {name: choice.suggest(trial, name) for name, choice in choices.items()}
        if 'batch_size' in given and 'horizon' in given:  # an iteration has no more samples
            given['batch_size'] = min(given['batch_size'], given['horizon'] * fixed['nenv'])
        trial.set_user_attr('params', json.dumps({name: schedule_to_json(value) for name, value in given.items()}))
        length, place = fixed[algorithms.length_of(alg, fixed)], folder / folder_of(trial.number)
        every = max(1, math.ceil(length / TESTS))
        scores: dict[int, float] = {}
        for i in range(seeds):
            settings = {'verbose': 0, **fixed, **given, 'seed': fixed['seed'] + i}
            where = place / f'seed_{settings["seed"]}' if seeds > 1 else place
            report = ReportToStudy(trial, every, test_episodes, [*scores.values()], i == seeds - 1)
            try:
                _, result = train(alg, env_id, env_type, run_dir=where, callbacks=[report], **settings)
            except Exception as error:
                trial.set_user_attr('error', str(error))
                raise
            if report.done and not result.losses:
                trial.set_user_attr('unlearned', True)
            if report.done:
                scores[settings['seed']] = report.returns[-1]
                trial.set_user_attr('scores', json.dumps(scores))
            if report.pruned:
                raise TrialPruned
        return fmean(scores.values())

    study.optimize(objective, n_trials=1, catch=(FloatingPointError,))
