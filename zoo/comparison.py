"""Comparing algorithms: each with several seeds in one environment, and what may be said of the difference.

With few runs a mean says little, and its error less. As Agarwal et al. 2021 (*Deep Reinforcement Learning at the Edge
of the Statistical Precipice*, arXiv 2108.13264) recommend, scores are summed up by their interquartile mean (section
4.3) with a confidence interval by bootstrap over the runs (section 4.1).
"""

from __future__ import annotations

import base64
import csv
import html
import io
import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo import algorithms, workers
from zoo.common.checkpoint import write_json, write_text
from zoo.common.env_wrappers import build_env, env_name, find_env_type
from zoo.common.errors import unknown
from zoo.common.params import checked
from zoo.common.processes import alone_in
from zoo.running import ARGUMENTS, check_names, copies_for, known_params, plain_settings, resume, train
from zoo.runs import Run, open_run, runs_folder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Resamples of a bootstrap.
RESAMPLES = 2000

_COLUMNS = ('algorithm', 'IQM', '95% interval', 'median', 'lowest', 'highest', 'seeds', 'steps/s', 'minutes')

#: Places along a curve.
_GRID = 200


def interquartile_mean(scores: Any, axis: int = -1) -> Any:
    """The mean of the middle half: a quarter of the scores, rounded down, is left out at either end.

    Args:
        scores: numbers, at least one along ``axis``.
        axis: which is summed up.
    """
    ordered = np.moveaxis(np.sort(np.asarray(scores, np.float64), axis), axis, -1)
    count = ordered.shape[-1]
    return ordered[..., count // 4 : count - count // 4].mean(-1)


def bootstrap_interval(
    scores: Any, statistic: Callable[..., Any] = interquartile_mean, level: float = 0.95, resamples: int = RESAMPLES
) -> tuple[Any, Any]:
    """The percentile interval of a statistic, by bootstrap over the first axis (Efron and Tibshirani 1993, chapter 13).

    With fewer than five runs it is too narrow, whatever the statistic.

    Args:
        scores: ``[R, …]``, of R runs.
        statistic: a function of numbers and of the axis that it sums up.
        level: of the confidence.
        resamples: how often R runs are drawn of the R, with the same seed every time.

    Returns:
        Its lower and its upper end, ``[…]``.
    """
    scores = np.asarray(scores, np.float64)
    drawn = np.random.default_rng(0).integers(len(scores), size=(resamples, len(scores)))
    found = statistic(scores[drawn], 1)
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high


@dataclass(frozen=True)
class Score:
    """How one run ended.

    Attributes:
        seed: of the run.
        score: the mean return of a test after it.
        returns: of that test.
        steps_per_second, seconds: of the training.
        folder: the run directory.
    """

    seed: int
    score: float
    returns: tuple[float, ...]
    steps_per_second: float
    seconds: float
    folder: Path


@dataclass(frozen=True)
class Comparison:
    """What :func:`compare` returns; a table to be printed, in a notebook the report.

    Attributes:
        folder: with ``report.html``, ``curves.png``, ``scores.png``, ``scores.csv``, and a folder for each algorithm.
        environment: its name.
        train_steps: of each run; None: as each algorithm has them.
        scores: by label, of each seed.
    """

    folder: Path
    environment: str
    train_steps: int | None
    scores: Mapping[str, tuple[Score, ...]]

    @property
    def table(self) -> list[tuple[str, ...]]:
        """The rows under :data:`_COLUMNS`, the highest interquartile mean first."""
        rows = []
        for label, found in self.scores.items():
            values = np.array([one.score for one in found])
            low, high = bootstrap_interval(values)
            numbers = (np.median(values), values.min(), values.max())
            rows.append(
                (
                    float(interquartile_mean(values)),
                    (label, f'{interquartile_mean(values):.4g}', f'{low:.4g} to {high:.4g}')
                    + tuple(f'{number:.4g}' for number in numbers)
                    + (str(len(found)), f'{np.median([one.steps_per_second for one in found]):,.0f}')
                    + (f'{np.median([one.seconds for one in found]) / 60:.1f}',),
                )
            )
        return [row for _, row in sorted(rows, key=lambda pair: -pair[0])]

    def __repr__(self) -> str:
        cells = [_COLUMNS, *self.table]
        widths = [max(len(row[i]) for row in cells) for i in range(len(_COLUMNS))]
        lines = [
            '  '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
        ]
        return '\n'.join([*lines, f'report: {self.folder / "report.html"}'])

    def _repr_html_(self) -> str:
        return self._body()

    def curves(self) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        """By label: steps, and the lower end, the interquartile mean and the upper end of the returns there."""
        found = {}
        for label, scores in self.scores.items():
            runs = [_running(*open_run(one.folder).curve) for one in scores]
            runs = [run for run in runs if run[0].size]
            if not runs:
                continue
            first, last = max(steps[0] for steps, _ in runs), min(steps[-1] for steps, _ in runs)
            if last <= first:
                continue
            grid = np.linspace(first, last, _GRID)
            means = np.array([np.interp(grid, steps, returns) for steps, returns in runs])
            low, high = bootstrap_interval(means)
            found[label] = grid, low, interquartile_mean(means, 0), high
        return found

    def write(self) -> Path:
        """Write the report anew; its path."""
        pictures = {'curves.png': _draw_curves(self), 'scores.png': _draw_scores(self)}
        for name, figure in pictures.items():
            figure.savefig(self.folder / name, format='png')
        table = io.StringIO(newline='')
        writer = csv.writer(table, lineterminator='\n')
        writer.writerow(['algorithm', 'seed', 'score', 'steps_per_second', 'seconds', 'folder'])
        for label, found in self.scores.items():
            for one in found:
                rate, seconds = round(one.steps_per_second, 1), round(one.seconds, 1)
                writer.writerow([label, one.seed, one.score, rate, seconds, one.folder.relative_to(self.folder)])
        write_text(self.folder / 'scores.csv', table.getvalue())
        page = (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(self.title)}</title>'
            '<meta name="viewport" content="width=device-width, initial-scale=1"><style>'
            'body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}'
            'table{border-collapse:collapse;margin:1rem 0}td,th{padding:.3rem .8rem;border-bottom:1px solid #ddd;'
            'text-align:right}td:first-child,th:first-child{text-align:left}img{max-width:100%}'
            f'</style></head><body>{self._body()}</body></html>\n'
        )
        return write_text(self.folder / 'report.html', page)

    @property
    def title(self) -> str:
        """``'PPO, A2C on CartPole-v1'``."""
        return f'{", ".join(self.scores)} on {self.environment}'

    def _body(self) -> str:
        head = ''.join(f'<th>{html.escape(name)}</th>' for name in _COLUMNS)
        rows = ''.join(f'<tr>{"".join(f"<td>{html.escape(cell)}</td>" for cell in row)}</tr>' for row in self.table)
        images = ''.join(
            f'<p><img alt="{text}" src="data:image/png;base64,{_encoded(self.folder / name)}"></p>'
            for name, text in (('curves.png', 'Learning curves'), ('scores.png', 'Scores of the trained agents'))
            if (self.folder / name).exists()
        )
        without = [label for label in self.scores if label not in self.curves()]
        if without:
            images += (
                f'<p>Without a curve, for want of common steps of its runs: {html.escape(", ".join(without))}.</p>'
            )
        told = {label: _told(_settings_in(self.folder / _folder_name(label))) for label in self.scores}
        settings = ''.join(f'<li><b>{html.escape(label)}</b>: {html.escape(text)}</li>' for label, text in told.items())
        steps = 'the steps of each algorithm’s defaults' if self.train_steps is None else f'{self.train_steps:,} steps'
        return (
            f'<h1>{html.escape(self.title)}</h1><table><tr>{head}</tr>{rows}</table>'
            f'<p>Scores are mean returns of tests without exploration after {steps} of training. IQM: interquartile '
            'mean over the seeds, with its 95% interval by bootstrap, which is too narrow for fewer than five '
            f'seeds.</p>{images}<h2>Settings</h2><ul>{settings}</ul>'
        )


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _told(settings: Mapping[str, Any]) -> str:
    return ', '.join(f'{name}={value!r}' for name, value in settings.items() if value is not None)


def compare(
    algs: Sequence[str] | Mapping[str, Mapping[str, Any]],
    env_id: Any,
    env_type: str | None = None,
    *,
    seeds: int | Sequence[int] = 3,
    train_steps: int | None = None,
    test_episodes: int = 20,
    jobs: int | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: bool = True,
    **params: Any,
) -> Comparison:
    """Train algorithms with several seeds each, in processes side by side, and compare them.

    What is done already in ``out`` is not done again: a call that was interrupted goes on when it is made again, and
    one with more seeds or algorithms adds them. A run that was interrupted is resumed where that is exact, and
    otherwise (its replay buffer was not saved) begun anew.

    >>> zoo.compare(['PPO', 'A2C'], 'CartPole-v1', seeds=3, train_steps=50_000)
    >>> zoo.compare({'large': dict(alg='PPO', net='256,256'), 'small': dict(alg='PPO', net='16')}, 'CartPole-v1')

    Args:
        algs: names of algorithms; or by label the parameters of ``zoo.train``, ``alg`` among them.
        env_id, env_type: see :func:`zoo.train`.
        seeds: how many, from 0 on; or which.
        train_steps: of each run; None: as the defaults of each algorithm for this environment have it.
        test_episodes: of the test after each run, whose mean return is its score.
        jobs: runs at a time; None: as many as there are cores.
        out: the folder; None: ``compare_<environment>`` where runs are.
        progress: print a line when a run begins and ends.
        **params: of :func:`zoo.train`, for all of them.

    Returns:
        The comparison; its report is written.

    Raises:
        ValueError: something that :func:`zoo.train` refuses, or ``out`` holds runs with other settings.
        RuntimeError: runs have failed, after all others have ended; their folder has the whole error.
    """
    chosen = _chosen(algs)
    wanted = _seeds(seeds)
    for name, value in (('test_episodes', test_episodes), ('jobs', jobs), ('train_steps', train_steps)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise ValueError(f'{name} is {value!r}: give a whole number of at least 1.')
    env_type = find_env_type(env_id) if env_type is None else env_type
    given = {'train_steps': train_steps} if train_steps is not None else {}
    settings = {label: {**params, **given, **own} for label, own in chosen.items()}
    environment = _check(settings, env_id, env_type)
    for own in settings.values():
        if own.get('nenv') is None:
            own['nenv'] = copies_for(own['alg'], env_type, env_id)
    name = re.sub(r'[^A-Za-z0-9._-]+', '-', environment)
    folder = runs_folder() / f'compare_{name}' if out is None else Path(out).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    with alone_in(folder):
        _check_environment(folder, environment)
        for label, own in settings.items():
            kept = {**own, 'environment': environment, 'env_type': env_type, 'test_episodes': test_episodes}
            _keep_settings(folder / _folder_name(label), kept)
        tasks = []
        for seed in wanted:  # of each algorithm one before the second of any
            for label, own in settings.items():
                place = folder / _folder_name(label) / f'seed_{seed}'
                if _result(place) is None:
                    args = (place, own, env_id, env_type, seed, test_episodes)
                    tasks.append(workers.Task(f'{label}, seed {seed}', _run_one, args, place / 'output.txt'))
        failed: list[str] = []
        total = len(settings) * len(wanted)
        done = total - len(tasks)
        if progress and done:
            _say(f'{done} of {total} runs are there already.')

        def ended(task: workers.Task, reason: str | None) -> None:
            nonlocal done
            done += 1
            if reason is not None:
                failed.append(f'{task.name} ({reason.rstrip(".")}; see {task.log})')
            if progress:
                found = _result(task.args[0])
                told = f'failed: {reason}' if found is None else f'{found["score"]:.4g} after {found["seconds"]:.0f} s'
                _say(f'[{done}/{total}] {task.name}: {told}')

        workers.run(
            tasks, jobs or workers.cores(), lambda task: _say(f'{task.name} begins') if progress else None, ended
        )
        scores = {
            label: tuple(filter(None, (_score(folder / _folder_name(label) / f'seed_{seed}', seed) for seed in wanted)))
            for label in settings
        }
        made = Comparison(folder, environment, train_steps, {label: found for label, found in scores.items() if found})
        if made.scores:
            made.write()
        if failed:
            raise RuntimeError(f'{len(failed)} of {total} runs have failed: {"; ".join(failed)}.')
        return made


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _chosen(algs: Any) -> dict[str, dict[str, Any]]:
    """By label the parameters of each."""
    if isinstance(algs, str) or not isinstance(algs, Mapping | Sequence) or not algs:
        raise ValueError(f"algs is {algs!r}: give names, ['PPO', 'A2C'], or a dict of labels and parameters.")
    if not isinstance(algs, Mapping):
        if len(set(algs)) < len(algs):
            raise ValueError(f'an algorithm is named twice in {list(algs)!r}: give a dict of labels and parameters.')
        algs = {name: {'alg': name} for name in algs}
    for label, own in algs.items():
        if not isinstance(label, str) or not isinstance(own, Mapping) or 'alg' not in own:
            raise ValueError(f'algs[{label!r}] is {own!r}: give parameters of zoo.train, such as dict(alg="PPO").')
        if own['alg'] not in algorithms.NAMES:
            raise ValueError(unknown('algorithm', own['alg'], algorithms.NAMES))
    names = [_folder_name(label) for label in algs]
    if len(set(names)) < len(names):
        raise ValueError(
            f'two of the labels {list(algs)!r} would be one folder: make them differ in letters or digits.'
        )
    return {label: dict(own) for label, own in algs.items()}


def _folder_name(label: str) -> str:
    return re.sub(r'[^A-Za-z0-9._-]+', '-', label).strip('.-') or 'run'


def _seeds(seeds: Any) -> list[int]:
    found = list(range(seeds)) if isinstance(seeds, int) and not isinstance(seeds, bool) else seeds
    fine = isinstance(found, Sequence) and not isinstance(found, str) and len(found) > 0
    if not fine or not all(isinstance(seed, int) and seed >= 0 for seed in found) or len(set(found)) < len(found):
        raise ValueError(f'seeds is {seeds!r}: give how many, from 1 on, or different whole numbers from 0 on.')
    return list(found)


#: What belongs to each run by itself.
_OWN = ('seed', 'run_dir', 'callbacks', 'plot_func', 'render', 'resume')


def _check(settings: Mapping[str, Mapping[str, Any]], env_id: Any, env_type: str) -> str:
    """Refuse before the first run what would end one of them at once; the name of the environment."""
    for own in settings.values():
        for name in _OWN:
            if name in own:
                raise ValueError(f'{name} is not for comparisons, in which each run has its own: leave it out.')
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
        return env_name(env)
    finally:
        env.close()


def _check_environment(folder: Path, environment: str) -> None:
    """Refuse a folder whose runs, of other labels than those that are asked for, are of another environment."""
    for path in sorted(folder.glob('*/settings.json')):
        found = _settings_in(path.parent).get('environment')
        if found != environment:
            raise ValueError(f"'{folder}' holds a comparison in {found}: choose another folder, out=….")


def _keep_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """Write the settings of a label, or refuse others than those that its runs were made with."""
    wanted = json.loads(json.dumps(plain_settings(settings)))
    path = folder / 'settings.json'
    if path.exists():
        found = _settings_in(folder)
        if found != wanted:
            names = sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))
            differ = ', '.join(f'{name} {found.get(name)!r} there and {wanted.get(name)!r} now' for name in names)
            raise ValueError(f"'{folder}' holds runs with other settings ({differ}): choose another folder, out=….")
        return
    folder.mkdir(parents=True, exist_ok=True)
    write_json(path, wanted)


def _settings_in(folder: Path) -> dict[str, Any]:
    path = folder / 'settings.json'
    found: dict[str, Any] = json.loads(path.read_text(encoding='utf-8')) if path.exists() else {}
    return found


def _result(folder: Path) -> dict[str, Any] | None:
    """What a run that has ended left."""
    path = folder / 'result.json'
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding='utf-8'))
        return found
    except (OSError, ValueError):
        return None


def _score(folder: Path, seed: int) -> Score | None:
    found = _result(folder)
    if found is None:
        return None
    return Score(seed, found['score'], tuple(found['returns']), found['steps_per_second'], found['seconds'], folder)


def _run_one(folder: Path, own: dict[str, Any], env_id: Any, env_type: str, seed: int, test_episodes: int) -> None:
    """One run with the test after it, in a process of its own."""
    params = {'progress_bar': False, **own}
    alg = params.pop('alg')
    found = _resumed(folder)
    if found is None:
        agent, result = train(alg, env_id, env_type, seed=seed, run_dir=folder, **params)
        found = agent, result.wall_time
    agent, seconds = found
    # Another seed than that of the training, the same for all algorithms.
    env = build_env(env_id, env_type, seed=10_000 + seed, **(params.get('env_params') or {}))
    tested = agent.learn(env, 'test', test_episodes=test_episodes)
    env.close()
    write_json(
        folder / 'result.json',
        {
            'score': float(np.mean(tested.returns)),
            'returns': tested.returns,
            'steps_per_second': agent.steps / max(seconds, 1e-9),
            'seconds': seconds,
        },
    )


def _resumed(folder: Path) -> tuple[Any, float] | None:
    """The agent of a folder, its training brought to its end, and the seconds of all parts of that; or None where it
    has to begin anew, in a folder without traces.

    Of the parts before only the monitor knows how long they took, up to the last episode that ended in them.
    """
    if not (folder / 'config.json').exists():
        return None
    run: Run = open_run(folder)
    if run.checkpoints and run.config.get('made_with') is not None:
        agent = run.load()
        ended = zip(run.episodes.get('t', []), run.episodes.get('step', []), strict=True)
        before = max((t for t, step in ended if step <= agent.steps), default=0.0)
        if agent.loop_state is None:  # it was interrupted in its test
            return agent, before
        if agent.loop.experience == 'rollouts' or agent.saved_buffer is not None:
            agent, result = resume(run, progress_bar=False)
            return agent, before + result.wall_time
    for path in folder.iterdir():
        if path.name != 'output.txt':
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return None


def _running(steps: Sequence[float], returns: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Steps and the mean of the last episodes at each, a twentieth of them, 100 at the most."""
    from zoo.common.plots.curves import running_mean

    x, y = np.asarray(steps, np.float64), np.asarray(returns, np.float64)
    window = int(np.clip(y.size // 20, 1, 100))
    return x, running_mean(y, window)


def _figure(height: float) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, height), dpi=120, layout='constrained')
    axes = figure.add_subplot()
    axes.grid(color='#E6E6E6', linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[['top', 'right']].set_visible(False)
    return figure, axes


def _draw_curves(made: Comparison) -> Figure:
    from zoo.common.plots.curves import style_of
    from zoo.common.plots.figures import verbatim

    figure, axes = _figure(4.8)
    order = {label: i for i, label in enumerate(made.scores)}
    for label, (steps, low, middle, high) in made.curves().items():
        style = style_of(order[label], len(order))
        axes.fill_between(steps, low, high, alpha=0.18, linewidth=0, color=style['color'])
        axes.plot(steps, middle, label=verbatim(f'{label} ({len(made.scores[label])} seeds)'), linewidth=2, **style)
    axes.set_title(verbatim(textwrap.fill(made.title, 70)), loc='left', fontweight='bold')
    axes.set(xlabel='Environment steps', ylabel='Episode return in training')
    if axes.lines:
        title, columns = 'interquartile mean over the seeds, with its 95% interval', min(len(axes.lines), 4)
        figure.legend(loc='outside lower center', ncols=columns, title=title, handlelength=4, frameon=False)
    return figure


def _draw_scores(made: Comparison) -> Figure:
    from zoo.common.plots.figures import verbatim

    labels = [row[0] for row in made.table][::-1]
    figure, axes = _figure(1.4 + 0.55 * len(labels))
    for i, label in enumerate(labels):
        values = np.array([one.score for one in made.scores[label]])
        low, high = bootstrap_interval(values)
        axes.plot([low, high], [i, i], color='#999999', linewidth=9, alpha=0.6, solid_capstyle='butt')
        axes.plot(values, np.full(values.size, i), 'o', markerfacecolor='none', markeredgecolor='#333333', markersize=6)
        axes.plot([interquartile_mean(values)], [i], '|', color='black', markersize=22, markeredgewidth=3)
    axes.set_yticks(range(len(labels)), [verbatim(label) for label in labels])
    axes.set_ylim(-0.6, len(labels) - 0.4)
    axes.set_title('Scores after training', loc='left', fontweight='bold')
    axes.set_xlabel('Mean return of a test: each seed (ring), interquartile mean (bar), 95% interval (grey)')
    return figure
