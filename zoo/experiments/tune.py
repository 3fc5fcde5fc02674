"""Tuning hyper-parameters with Optuna (the extra ``tune``): ``zoo.tune('TD3', 'Pendulum-v1', trials=10)``.

Each trial is a training in a process of its own, on any algorithm and environment. The study is a journal in the output
folder, which many processes share and which a call that is made again goes on with.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo import algorithms
from zoo.callbacks import Evaluate
from zoo.common.env_wrappers import find_env_type
from zoo.common.schedules import Linear, schedule_from_json, schedule_to_json
from zoo.common.tools.errors import unknown
from zoo.common.tools.files import write_json, write_text
from zoo.common.tools.processes import alone_in
from zoo.experiments import workers
from zoo.experiments.runs import runs_folder
from zoo.experiments.search_space import Choice, space_of
from zoo.experiments.train import copies_for, plain_settings, train

SAMPLERS = ('tpe', 'random')
PRUNERS = ('median', 'halving', 'none')

#: Tests along a trial, by which it may be ended early.
TESTS = 5


@dataclass(frozen=True)
class Trial:
    """One trial.

    Attributes:
        number: from 0 on.
        state: ``'complete'``, ``'pruned'`` or ``'fail'``.
        score: the last mean return of its tests; None where there was none.
        params: as :func:`zoo.train` takes them.
    """

    number: int
    state: str
    score: float | None
    params: Mapping[str, Any]


@dataclass(frozen=True)
class Tuning:
    """What :func:`tune` returns; the best trials, to be printed.

    Attributes:
        folder: with the study, ``trials.csv``, ``best.json``, and the run of each trial.
        alg, environment: what was tuned.
        trials: all of them.
    """

    folder: Path
    alg: str
    environment: str
    trials: tuple[Trial, ...]

    @property
    def best(self) -> Trial | None:
        """The complete trial with the highest score; None where there is none."""
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
            lines.append(f'  {trial.score:10.4g}  trial {trial.number}{_mark(trial.state)}: {values}')
        return '\n'.join([*lines, f'folder: {self.folder}'])

    def write(self) -> None:
        """Write ``trials.csv`` and ``best.json``."""
        names = list(dict.fromkeys(name for trial in self.trials for name in trial.params))
        table = io.StringIO(newline='')
        writer = csv.writer(table, lineterminator='\n')
        writer.writerow(['trial', 'state', 'score', *names])
        for trial in self.trials:
            score = '' if trial.score is None else trial.score
            writer.writerow([trial.number, trial.state, score, *(_short(trial.params.get(name, '')) for name in names)])
        write_text(self.folder / 'trials.csv', table.getvalue())
        if self.best is not None:
            params = {name: schedule_to_json(value) for name, value in self.params.items()}
            write_json(
                self.folder / 'best.json', {'score': self.best.score, 'trial': self.best.number, 'params': params}
            )


def _mark(state: str) -> str:
    return '' if state == 'complete' else f' ({state})'


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
    jobs: int | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: bool = True,
    **params: Any,
) -> Tuning:
    """Search hyper-parameters with which an algorithm does best in an environment.

    A trial's score is the mean return of a test without exploration at its end; four tests before decide whether it is
    ended early. The study in ``out`` goes on when the call is made again, up to ``trials`` in all: trials that were
    interrupted do not count, those that failed (a loss that is not finite) do.

    Args:
        alg, env_id, env_type: see :func:`zoo.train`.
        trials: how many in all.
        train_steps: of each; None: as the algorithm's defaults for this environment have it.
        search: names of parameters, searched around their defaults; or by name what is searched: a list of values, or
            a pair ``(low, high)``; None: those of :data:`SEARCHED` that the algorithm has and ``params`` does not fix.
        sampler: ``'tpe'`` (tree-structured Parzen estimators, Bergstra et al. 2011) or ``'random'``.
        pruner: ``'median'`` ends a trial that is worse than the median of the others, ``'halving'`` halves them again
            and again, ``'none'`` ends none.
        test_episodes: of each test.
        seed: of every training and of the sampler.
        jobs: trials at a time; None: as many as there are cores.
        out: the folder; None: ``tune_<algorithm>_<environment>`` where runs are.
        progress: print a line when a trial begins and ends.
        **params: of :func:`zoo.train`, the same in all trials.

    Returns:
        All trials, the best one first in what it prints.

    Raises:
        ValueError: something that :func:`zoo.train` refuses, or ``out`` holds a study with other settings.
        ImportError: Optuna is not installed.
        RuntimeError: every trial has failed.
    """
    _optuna()
    for name, value, known in (('algorithm', alg, algorithms.NAMES), ('sampler', sampler, SAMPLERS)):
        if value not in known:
            raise ValueError(unknown(name, value, known))
    if pruner not in PRUNERS:
        raise ValueError(unknown('pruner', pruner, PRUNERS))
    for name, count in (
        ('trials', trials),
        ('train_steps', train_steps),
        ('test_episodes', test_episodes),
        ('jobs', jobs),
    ):
        if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
            raise ValueError(f'{name} is {count!r}: give a whole number of at least 1.')
    env_type = find_env_type(env_id) if env_type is None else env_type
    for name in ('run_dir', 'callbacks', 'plot_func', 'render', 'resume'):
        if name in params:
            raise ValueError(f'{name} is not for tuning, in which each trial has its own: leave it out.')
    if params.get('nenv') is None:
        params['nenv'] = copies_for(alg, env_type, env_id)
    choices, environment, steps = space_of(alg, env_id, env_type, search, params, train_steps)
    named = re.sub(r'[^A-Za-z0-9._-]+', '-', environment)
    folder = runs_folder() / f'tune_{alg}_{named}' if out is None else Path(out).expanduser()
    fixed = {'train_steps': steps, 'seed': seed, **params}
    folder.mkdir(parents=True, exist_ok=True)
    with alone_in(folder):
        told = {name: str(choice) for name, choice in choices.items()}
        settings = {'alg': alg, 'search': told, 'test_episodes': test_episodes, 'fixed': fixed}
        _keep_settings(folder, settings | {'environment': environment, 'env_type': env_type})
        study = _open(folder, sampler, pruner, seed)
        _give_up_interrupted(study)
        begun = study.get_trials(deepcopy=False)
        done = sum(map(_counts, begun))
        if progress and done:
            _say(f'{min(done, trials)} of {trials} trials are there already.')
        args = (folder, alg, env_id, env_type, choices, fixed, test_episodes, sampler, pruner)
        tasks = [
            workers.Task(f'trial {done + i + 1} of {trials}', _work, (*args, seed + number), _output(folder, number))
            # By a seed that no trial has had, also none that was interrupted: it would be the same again.
            for i, number in enumerate(range(len(begun), len(begun) + trials - done))
        ]

        def ended(task: workers.Task, reason: str | None) -> None:
            if progress:
                best = read(folder, alg, environment).best
                so_far = 'no score yet' if best is None else f'the best score is {best.score:.4g}'
                _say(f'{task.name} has ended: {so_far if reason is None else reason}')

        workers.run(
            tasks, jobs or workers.cores(), lambda task: _say(f'{task.name} begins') if progress else None, ended
        )
        found = read(folder, alg, environment)
        found.write()
        if all(trial.state == 'fail' for trial in found.trials):
            raise RuntimeError(f"every trial has failed; '{folder / 'output'}' has their errors.")
        if len(found.trials) < trials:  # killed, most likely
            raise RuntimeError(
                f"{trials - len(found.trials)} of {trials} trials have ended without a score or an error; '"
                f"{folder / 'output'}' has what they said. The same again makes them anew."
            )
        return found


def read(folder: Path, alg: str, environment: str) -> Tuning:
    """The trials of a study that have ended."""
    found = []
    for trial in _open(folder, 'random', 'none', 0).get_trials(deepcopy=False):
        if _counts(trial):
            given = {name: schedule_from_json(x) for name, x in json.loads(trial.user_attrs['params']).items()}
            last = trial.value
            if last is None and trial.intermediate_values:
                last = trial.intermediate_values[max(trial.intermediate_values)]
            found.append(Trial(trial.number, trial.state.name.lower(), last, given))
    return Tuning(folder, alg, environment, tuple(found))


def _output(folder: Path, number: int) -> Path:
    return folder / 'output' / f'{number}.txt'


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise ImportError(f"tuning needs Optuna: pip install 'zoo-rl[tune]' ({error}).") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _open(folder: Path, sampler: str, pruner: str, seed: int) -> Any:
    """The study of a folder, made if need be."""
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
    return optuna.create_study(
        storage=JournalStorage(JournalFileBackend(os.fspath(folder / 'study.log'))),
        study_name='zoo',
        direction='maximize',
        load_if_exists=True,
        sampler=samplers[sampler](),
        pruner=pruners[pruner](),
    )


def _counts(trial: Any) -> bool:
    """Whether a trial has ended by itself: interrupted ones have left neither a score nor an error."""
    return trial.state.name in ('COMPLETE', 'PRUNED') or (trial.state.name == 'FAIL' and 'error' in trial.user_attrs)


def _give_up_interrupted(study: Any) -> None:
    from optuna.trial import TrialState

    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        study.tell(trial.number, state=TrialState.FAIL)


def _keep_settings(folder: Path, wanted: dict[str, Any]) -> None:
    """Write the settings of a study, or refuse to go on with others."""
    wanted = json.loads(json.dumps(plain_settings(wanted)))
    path = folder / 'settings.json'
    if path.exists():
        found = json.loads(path.read_text(encoding='utf-8'))
        names = sorted(name for name in wanted if found.get(name) != wanted[name])
        if names:
            differ = '; '.join(f'{name}: {found.get(name)} there, {wanted[name]} now' for name in names)
            raise ValueError(f"'{folder}' holds a study with other settings ({differ}): choose another folder, out=….")
        return
    write_json(path, wanted)


class _Report(Evaluate):
    """Tests along a trial, and ends it where the pruner says so."""

    def __init__(self, trial: Any, every: int, episodes: int) -> None:
        super().__init__(every, episodes, keep_best=False)
        self.trial = trial
        self.pruned = False

    def __call__(self, training: Any) -> bool | None:
        super().__call__(training)
        # By the number of the test: at which step an update ends is not the same in all trials, and what a pruner
        # compares are values of one and the same step.
        self.trial.report(self.returns[-1], TESTS if training.done else training.steps // self.every)
        self.pruned = not training.done and bool(self.trial.should_prune())
        return not self.pruned


def _work(
    folder: Path,
    alg: str,
    env_id: Any,
    env_type: str,
    choices: Mapping[str, Choice],
    fixed: Mapping[str, Any],
    test_episodes: int,
    sampler: str,
    pruner: str,
    seed: int,
) -> None:
    """One trial, in a process of its own."""
    study = _open(folder, sampler, pruner, seed)
    from optuna.exceptions import TrialPruned

    def objective(trial: Any) -> float:
        given = {name: choice.suggest(trial, name) for name, choice in choices.items()}
        if 'batch_size' in given and 'horizon' in given:  # of an iteration
            given['batch_size'] = min(given['batch_size'], given['horizon'] * fixed['nenv'])
        plain = {name: schedule_to_json(value) for name, value in given.items()}
        trial.set_user_attr('params', json.dumps(plain))
        report = _Report(trial, max(1, math.ceil(fixed['train_steps'] / TESTS)), test_episodes)
        place = folder / f'trial_{trial.number:04d}'
        try:
            settings = {'progress_bar': False, **fixed, **given}
            train(alg, env_id, env_type, run_dir=place, callbacks=[report], **settings)
        except Exception as error:
            trial.set_user_attr('error', str(error))
            raise
        if report.pruned:
            raise TrialPruned
        return report.returns[-1]

    study.optimize(objective, n_trials=1, catch=(FloatingPointError,))
