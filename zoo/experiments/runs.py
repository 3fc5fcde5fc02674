"""Reading run directories: what was trained, how far it came, its agent and its environment.

Only loading an agent imports TensorFlow.
"""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.agents import Card
from zoo.agents.finding import card_of, named
from zoo.common.tools.errors import InvalidType, InvalidValue, nearest
from zoo.common.tools.files import as_path
from zoo.common.tools.processes import is_in_use
from zoo.common.training import hub

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure

_CONFIG = 'config.json'


def runs_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """Return where runs are: ``folder``, else the folder that the variable ``ZOO_RUNS`` names, else ``runs``."""
    return as_path(os.environ.get('ZOO_RUNS') or 'runs' if folder is None else folder, 'folder')


@dataclass(frozen=True)
class Run:
    """A run directory.

    Attributes:
        path: the folder.
        config: the content of ``config.json``: algorithm, spaces, parameters, environment, seed.
        source: where on the hub it was fetched from, ``'hf://name/repo'``; None: it is a run of this machine.
    """

    path: Path
    config: dict[str, Any] = field(repr=False)
    source: str | None = None

    @property
    def name(self) -> str:
        """Name of the folder, of a trained agent, or the source on the hub."""
        return self.source or (self.path.name if self.card is None else self.card.name)

    @cached_property
    def card(self) -> Card | None:
        """Card of a trained agent that comes with zoo; None for any other run."""
        return card_of(self.path)

    @property
    def algorithm(self) -> str:
        """Name of the algorithm, such as ``'PPO'``."""
        return str(self.config.get('algorithm', ''))

    @property
    def environment(self) -> str:
        """Name of the environment, such as ``'CartPole-v1'``."""
        return str(self.config.get('environment', ''))

    @property
    def has_environment(self) -> bool:
        """Whether it was trained or tested in an environment. A training on a dataset needs none."""
        return self.config.get('copies') != 0

    @property
    def seed(self) -> int | None:
        """Seed of ``learn``."""
        return self.config.get('seed')

    @property
    def train_steps(self) -> int:
        """Environment steps of the last call of ``learn``, or updates where it learned from a :attr:`dataset`."""
        name = 'train_steps' if self.dataset is None else 'train_updates'
        return int(self.config.get('learn_params', {}).get(name, 0))

    @property
    def end(self) -> int:
        """The value of :attr:`steps` at the end of the last call of ``learn``. It counts the steps of all calls."""
        return int(self.config.get('end', self.train_steps))

    @property
    def dataset(self) -> list[str] | None:
        """The paths of the dataset that the last call of ``learn`` learned from; None: it stepped an environment."""
        given = self.config.get('learn_params', {})
        return given.get('dataset') if 'train_updates' in given else None

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Every parameter by its name; networks and optimizers one key at a time, such as ``'net_list[0].hidden'``.

        The seed is left out, and so is the dtype of a network if it is float32.
        """
        from zoo.experiments.settings import settings_of

        return settings_of(self.config)

    @cached_property
    def differences(self) -> dict[str, tuple[Any, Any]]:
        """The settings that differ from the defaults for its environment, by name, each with its default.

        A key that all networks or all optimizers have alike is one setting, such as ``'net_list.hidden'``. Settings
        that have no default, such as arguments of ``build_env``, have ``inspect.Parameter.empty`` there. This imports
        TensorFlow.

        Raises:
            ValueError: there are no defaults for this algorithm or this environment.
        """
        from zoo.experiments.settings import differences

        return differences(self.config)

    @cached_property
    def progress(self) -> dict[str, list[float]]:
        """Columns of ``progress.csv`` by name; NaN where a row has no entry. Empty if nothing was logged yet."""
        return _columns(self.path / 'progress.csv')

    @cached_property
    def episodes(self) -> dict[str, list[float]]:
        """Columns of ``monitor.csv``, a row for each episode: return ``r``, length ``l``, seconds ``t``, ``step``.

        ``step`` counts all environment steps of the agent until the end of the episode. Empty if no episode has ended.
        """
        return _columns(self.path / 'monitor.csv')

    @property
    def steps(self) -> int:
        """Environment steps that it reached, by the last row of the log or the newest checkpoint; 0 without both.

        A run that was killed goes on from :attr:`checkpoint_steps`, not from here.
        """
        found = [step for step in self.progress.get('step', []) if math.isfinite(step)]
        return max(int(found[-1]) if found else 0, self.checkpoint_steps)

    @cached_property
    def checkpoint_steps(self) -> int:
        """Environment steps at the checkpoint from which ``zoo.resume`` goes on; 0 if there is none."""
        from zoo.common.training.checkpoint import steps_of

        found = self.to_resume()
        return 0 if found is None else steps_of(found)

    def last(self, column: str) -> float | None:
        """Return the last entry of a column of ``progress.csv``, such as ``'episode/return'``, or None."""
        found = [value for value in self.progress.get(column, []) if not math.isnan(value)]
        return found[-1] if found else None

    @cached_property
    def tests(self) -> dict[int, list[float]]:
        """The tests while it trained: the returns of their episodes, by the steps of the agent; empty without tests."""
        rows = _columns(self.path / 'evaluations.csv')
        found: dict[int, list[float]] = {}
        for step, total in zip(rows.get('step', []), rows.get('r', []), strict=True):
            found.setdefault(int(step), []).append(total)
        return found

    @property
    def curve(self) -> tuple[list[float], list[float]]:
        """Steps and returns of its episodes.

        If there are none, they are the means in the log, or of the tests where it learned from a dataset.
        """
        if self.episodes.get('r'):
            return self.episodes['step'], self.episodes['r']
        column = 'episode/return' if self.dataset is None else 'test/return'
        rows = zip(self.progress.get('step', []), self.progress.get(column, []), strict=False)
        known = [(step, mean) for step, mean in rows if not math.isnan(mean)]
        return [step for step, _ in known], [mean for _, mean in known]

    @property
    def smooth_curve(self) -> tuple[np.ndarray, np.ndarray]:
        """Steps, and the mean return of the last episodes there: a twentieth of all episodes, at most 100."""
        import numpy as np

        from zoo.common.plots.curves import running_mean

        steps, returns = (np.asarray(values, np.float64) for values in self.curve)
        return steps, running_mean(returns, int(np.clip(returns.size // 20, 1, 100)))

    @property
    def checkpoints(self) -> list[Path]:
        """Folders of its checkpoints, the oldest first."""
        return sorted(path for path in (self.path / 'checkpoints').glob('[!.]*') if path.is_dir())

    @property
    def best(self) -> Path | None:
        """Checkpoint of the best agent, if tests while it trained have kept one; else None."""
        path = self.path / 'best'
        return path if path.is_dir() else None

    @property
    def retested(self) -> dict[str, dict[str, float]]:
        """Results of the ``'best'`` and the ``'last'`` agent at the end, see :class:`zoo.callbacks.KeepBest`."""
        from zoo.callbacks.best import retested_in

        return retested_in(self.path)

    @property
    def is_training(self) -> bool:
        """Whether a process of this machine trains it now."""
        return is_in_use(self.path)

    def check_resumable(self) -> None:
        """Refuse a run that is under way, a trained agent of zoo without the state of its training, one on the hub."""
        if self.is_training:
            raise InvalidValue(f'{self.name} is being trained now: wait until that has ended, or interrupt it there.')
        if self.source is not None:
            told = f'{self.name} is on the hub, and a training goes on in its own folder: begin a new one with it'
            raise InvalidValue(f'{told}, start_from={self.source!r}.', shell=f'{told}, --from {self.source}.')
        if self.card is not None:
            told = f'{self.name} is a trained agent without the state of its training: begin a new run with its weights'
            python = f"zoo.train('{self.algorithm}', '{self.environment}', start_from='{self.name}')"
            shell = f'{told}, zoo train {self.algorithm} {self.environment} --from {self.name}.'
            raise InvalidValue(f'{told}, {python}.', shell=shell)

    def __fspath__(self) -> str:
        return str(self.path)

    def to_resume(self, exact: bool | None = None) -> Path | None:
        """Return the checkpoint that :func:`zoo.resume` goes on with: the newest one; None if there is none.

        With ``exact_resume`` it is the newest one that was due: there a training that is not interrupted begins new
        episodes, too. If none was due yet, it is the newest one.

        Args:
            exact: whether the resumed training has ``exact_resume``; None: as the run was begun.
        """
        from zoo.common.training.checkpoint import newest_in

        exact = (self.config.get('learn_params') or {}).get('exact_resume', False) if exact is None else exact
        due = newest_in(self.path, scheduled=True) if exact else None
        return newest_in(self.path) if due is None else due

    def load(self, best: bool = False, net_list: Sequence[Any] | None = None) -> Any:
        """Load its agent from the newest checkpoint.

        Args:
            best: load the best agent, which :class:`zoo.callbacks.KeepBest` or ``Evaluate`` kept. A trained agent of
                zoo is the best of its run in any case.
            net_list: networks that a checkpoint does not hold, as for ``zoo.load``.

        Raises:
            ValueError: there is no such checkpoint, or it cannot be loaded.
        """
        from zoo.common.tools.quiet import load_tensorflow

        if best and self.best is None and self.card is None:
            raise _without_best(self.name)
        if not best and not self.checkpoints:
            raise InvalidValue(f'{self.name} has no checkpoint yet: there is no agent to load.')
        load_tensorflow()
        from zoo.algorithms.base import load

        return load(self.best if best and self.best is not None else self.path, net_list)

    def build_env(self, seed: int | None = 0, **changes: Any) -> Any:
        """Build an environment like the one it was trained in.

        Args:
            seed: of the environment.
            **changes: arguments of ``build_env`` to change, such as ``nenv=1`` or ``render_mode='human'``.

        Raises:
            ValueError: the environment was not made from a name, so the folder does not say how to make it.
        """
        from zoo.common.env_wrappers import build_env

        if 'made_with' not in self.config:
            raise InvalidValue(
                f'{self.name} is of an earlier version, which did not note how an environment is made: build '
                f'{self.environment} by build_env and hand it to the agent of zoo.load.'
            )
        made_with = self.config['made_with']
        if not self.has_environment:
            told = f'{self.name} was trained without an environment'
            raise InvalidValue(
                f'{told}: build one and give it to the learn of zoo.load(run).', shell=f'{told}: test it in a program.'
            )
        if made_with is None:
            told = f'{self.name} was trained in {self.environment}, which no name makes'
            raise InvalidValue(
                f'{told} (a class of the program, a lambda, an object, or with reward_shaping): build it there, and '
                'give it to the learn of zoo.load(run).',
                shell=f'{told}: train in its class, by the name module:Class and with --env-set for its arguments, or '
                'test the agent in the program.',
            )
        if self.source is not None and ':' in str(made_with.get('env_id')):
            raise InvalidValue(
                f'{self.name} names the environment {made_with["env_id"]}, for which a package would be imported: if '
                'you trust it, build it in a program and hand it to the agent of zoo.load.'
            )
        return build_env(**{**made_with, 'seed': seed, **changes})


def _without_best(name: str) -> InvalidValue:
    told = f'{name} has no best agent: tests keep one, in trainings of 2,000 steps or more that have time for them'
    return InvalidValue(
        f'{told}; evaluate=KeepBest(every=…, share=None) makes every test.',
        shell=f'{told}; --evaluate STEPS makes every test.',
    )


def open_run(run: str | os.PathLike[str] | Run) -> Run:
    """Return a run, given by its folder, by its name in the folder of runs, or by ``'last'``, the newest there.

    The name of a trained agent, such as ``'TD3/Pendulum-v1'``, gives the run that it is kept as. A path that exists and
    a name in the folder of runs win over it.

    ``'hf://name/repo'`` is an agent on the Hugging Face hub, which is downloaded once.

    Raises:
        ValueError: there is no such run; the message has the nearest name.
    """
    if isinstance(run, Run):
        return run
    if hub.is_source(run):
        folder = hub.fetch(str(run))
        return Run(folder, _config(folder), str(run))
    if not isinstance(run, str | os.PathLike) or not os.fspath(run):
        raise InvalidValue(f'a run is given by the path of its folder or by its name in runs, not by {run!r}.')
    given = Path(run).expanduser()
    for path in (given, runs_folder() / given):
        if (path / _CONFIG).is_file() and not (path / 'weights.safetensors').exists():
            return Run(path, _config(path))
        if path.name == 'best' and (path.parent / _CONFIG).is_file() and not path.exists():
            raise _without_best(path.parent.name)
    known = list_runs()
    if os.fspath(run) == 'last':
        if not known:
            told = f"there is no run in '{runs_folder()}' yet"
            raise InvalidValue(f'{told}: zoo.train makes one.', shell=f'{told}: zoo train makes one.')
        return known[-1]
    if (given / 'weights.safetensors').exists():
        told = f"'{given}' is a saved agent, and a run is asked for"
        python = shell = f'{told}: zoo.load({str(given)!r}) opens it in a program.'
        if given.name == 'best':
            python, shell = (
                f'{told}: open_run({str(given.parent)!r}).load(best=True).',
                f'{told}: say {given.parent} --best.',
            )
        raise InvalidValue(python, shell=shell)
    if given.is_dir():
        raise InvalidValue(f"'{given}' is no run: a run's folder has a {_CONFIG} and checkpoints in it.")
    if given.is_file():
        told, data = f"'{given}' is a file, and a run is a folder", given.suffix in ('.npz', '.hdf5', '.h5')
        python = f'{told}. Recorded episodes are opened by zoo.open_dataset.' if data else f'{told}.'
        raise InvalidValue(python, shell=f'{told}. Recorded episodes: zoo show dataset {given}.' if data else python)
    trained = named(os.fspath(run))
    if trained is not None:
        return Run(trained, _config(trained))
    if not known:
        told = f"there is no run {os.fspath(run)!r}, nor any other in '{runs_folder()}'"
        raise InvalidValue(f'{told}: zoo.train makes one.', shell=f'{told}: zoo train makes one.')
    close = nearest(os.fspath(run), [other.name for other in known])
    told = f'unknown run {os.fspath(run)!r}: ' + (
        f'did you mean {close!r}?' if close else f'the newest is {known[-1].name!r}.'
    )
    raise InvalidValue(f'{told} zoo.list_runs() has all.', shell=f'{told} zoo list runs has all.')


def list_runs(folder: str | os.PathLike[str] | None = None) -> list[Run]:
    """Return the runs in a folder, the oldest first; None: the folder that ``ZOO_RUNS`` names, else ``runs``."""
    return sorted(_runs_in(runs_folder(folder)), key=lambda run: (run.path / _CONFIG).stat().st_mtime)


def plot_runs(runs: Sequence[Run | str | os.PathLike[str]], path: str | os.PathLike[str] | None = None) -> Figure:
    """Draw the learning curves of runs; runs that differ only in their seeds are drawn as their median, with a band.

    Args:
        runs: runs, as :func:`open_run` takes them. If runs of one algorithm in one environment have different settings,
            these settings are in their labels.
        path: the PNG to write; None: only return the figure.

    Raises:
        ValueError: no run was given, or one of them does not exist.
    """
    from zoo.common import plots

    if isinstance(runs, str | os.PathLike | Run) or not isinstance(runs, Iterable):
        raise InvalidType(f'runs is {runs!r}: give a list of runs, such as [{runs!r}].')
    found = [open_run(run) for run in runs]
    if not found:
        raise InvalidValue('no run was given: name one or more.')
    environments = sorted({run.environment for run in found})
    curves: dict[str, list[Any]] = {}
    for run, differing in zip(found, _differing(found), strict=True):
        label = run.algorithm if len(environments) == 1 else f'{run.algorithm}, {run.environment}'
        curves.setdefault(', '.join([label, *differing]), []).append(run.curve)
    title = environments[0] if len(environments) == 1 else 'Learning curves'
    if len(found) == 1:
        title = f'{found[0].algorithm} {title}'
    return plots.learning_curve(path, curves, title)


#: Settings that do not change what is learned.
_ASIDE = ('test_episodes', 'log_every', 'checkpoint_every', 'checkpoint_buffer', 'seed', 'restarts', 'sample_timeout')


def _differing(runs: Sequence[Run]) -> list[list[str]]:
    """Return, for each run, the settings (``'gamma=0.9'``) that differ among runs of its algorithm and environment."""
    told = [_told(run) for run in runs]
    groups: dict[tuple[str, str], list[int]] = {}
    for i, run in enumerate(runs):
        groups.setdefault((run.algorithm, run.environment), []).append(i)
    differ = {}
    for kind, group in groups.items():
        settings = [told[i] for i in group]
        of_env = {name for i in group for name in runs[i].config.get('made_with') or ()}
        names = dict.fromkeys(name for own in settings for name in own if name not in _ASIDE)
        differ[kind] = [
            name
            for name in names
            # What a program made does not say the arguments of build_env.
            if len({str(own.get(name)) for own in settings if name not in of_env or 'made_by' not in own}) > 1
        ]
    return [
        [f'{name}={x}' for name, x in own.items() if name in differ[run.algorithm, run.environment]]
        for run, own in zip(runs, told, strict=True)
    ]


def _told(run: Run) -> dict[str, Any]:
    """Return the settings of a run, with what it began from and what made its environment."""
    return run.settings | {name: run.config[name] for name in ('start_from', 'made_by') if run.config.get(name)}


def _runs_in(folder: Path) -> Iterator[Run]:
    for path in sorted(folder.glob(f'*/{_CONFIG}')):
        try:
            config = _config(path.parent)
        except ValueError:  # half written, or the file of another program
            continue
        if 'algorithm' in config:
            yield Run(path.parent, config)


def _config(path: Path) -> dict[str, Any]:
    from zoo.common.tools.files import from_jsonable

    try:
        found = json.loads((path / _CONFIG).read_text(encoding='utf-8'))
    except (OSError, ValueError) as error:
        raise InvalidValue(f"'{path / _CONFIG}' cannot be read: {error}.") from error
    if not isinstance(found, dict):
        raise InvalidValue(f"'{path / _CONFIG}' is not the configuration of a run.")
    config: dict[str, Any] = from_jsonable(found)
    return config


def _columns(path: Path) -> dict[str, list[float]]:
    """Return the columns of a CSV file of numbers, without a row that a killed run wrote only in part."""
    if not path.is_file():
        return {}
    with open(path, newline='', encoding='utf-8') as file:
        rows = csv.reader(line for line in file if not line.startswith('#'))
        header = next(rows, [])
        columns: dict[str, list[float]] = {name: [] for name in header}
        for row in rows:
            try:
                numbers = [float(cell) if cell else math.nan for cell in row]
            except ValueError:
                continue
            if len(numbers) == len(header):
                for name, number in zip(header, numbers, strict=True):
                    columns[name].append(number)
    return columns
