"""What a comparison does in one environment: its settings, its copies of the environment, its runs and their scores."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zoo import algorithms
from zoo.common.env_wrappers import build_env
from zoo.common.tools.errors import InvalidValue
from zoo.common.tools.files import write_json
from zoo.common.tools.printing import say
from zoo.experiments import workers
from zoo.experiments.references import EPISODES, Scale, known_scale, measured_scale
from zoo.experiments.report import in_words
from zoo.experiments.results import Score, folder_name, keep_settings, read_result, read_score, settings_in
from zoo.experiments.runs import Run, open_run
from zoo.experiments.train import copies_for, kept_defaults, kept_environment, resume, train


@dataclass(frozen=True)
class Plan:
    """The runs in one environment.

    Attributes:
        env_id, env_type: as for :func:`zoo.train`.
        environment: its name.
        settings: by label, the arguments of :func:`zoo.train`.
        test_episodes: episodes of the test after each run.
    """

    env_id: Any
    env_type: str
    environment: str
    settings: dict[str, dict[str, Any]]
    test_episodes: int

    def settle(self, folder: Path) -> str:
        """Choose the copies of the environment, and keep all settings; return in words how many copies there are.

        Raises:
            ValueError: the folder holds runs with other settings.
        """
        _check_environment(folder, self.environment)
        open_copies = {label: own for label, own in self.settings.items() if own.get('nenv') is None}
        why = _share_copies(open_copies, self.env_type, self.env_id, folder)
        for label, own in self.settings.items():
            found = settings_in(folder / folder_name(label)).get('nenv', own['nenv'])
            if label in open_copies and found != own['nenv']:
                here = f"'{folder}' holds runs of {label} with nenv={found}, but all would have {own['nenv']} now"
                raise InvalidValue(f'{here}: give nenv={found}, or choose another folder (out).')
            kept = {**own, 'environment': self.environment, 'env_type': self.env_type}
            kept |= {'test_episodes': self.test_episodes} | kept_environment(self.env_id)
            kept |= kept_defaults(own['alg'], self.env_type, self.environment)
            keep_settings(folder / folder_name(label), kept)
        return in_words({label: own['nenv'] for label, own in self.settings.items()}) + why

    @property
    def length(self) -> int | None:
        """The steps or updates of each run, where all have the same; None: they differ, or are the defaults."""
        lengths = {own.get(algorithms.length_of(own['alg'], own)) for own in self.settings.values()}
        return lengths.pop() if len(lengths) == 1 else None

    def scale(self, progress: bool) -> Scale:
        """Return the scale for normalized scores; let a random policy play if the table does not have it.

        The settings of all algorithms have the same ``env_params`` here.
        """
        changed = [own['env_params'] for own in self.settings.values() if own.get('env_params')]
        known = known_scale(self.environment) if isinstance(self.env_id, str) and not changed else None
        if known is not None:
            return known
        if progress:
            say(f'{self.environment}: a random policy plays {EPISODES} episodes.')
        env = build_env(self.env_id, self.env_type, **(changed[0] if changed else {}))
        try:
            return measured_scale(env)
        finally:
            env.close()

    def task(self, folder: Path, label: str, seed: int, several: bool) -> workers.Task | None:
        """Return what does one run; None if that is done."""
        place = folder / folder_name(label) / f'seed_{seed}'
        if read_result(place) is not None:
            return None
        args = (place, self.settings[label], self.env_id, self.env_type, seed, self.test_episodes)
        name = f'{label} in {self.environment}, seed {seed}' if several else f'{label}, seed {seed}'
        return workers.Task(name, run_one, args, place / 'output.txt')

    def others(self, folder: Path) -> list[str]:
        """Return the folders in the folder that hold runs of none of these labels."""
        own = set(map(folder_name, self.settings))
        return sorted(path.parent.name for path in folder.glob('*/settings.json') if path.parent.name not in own)

    def scores(self, folder: Path, seeds: Sequence[int]) -> dict[str, tuple[Score, ...]]:
        """Return by label the scores of the runs that have ended."""
        found = {}
        for label in self.settings:
            scores = [read_score(folder / folder_name(label) / f'seed_{seed}', seed) for seed in seeds]
            if any(scores):
                found[label] = tuple(filter(None, scores))
        return found


def _share_copies(settings: Mapping[str, dict[str, Any]], env_type: str, env_id: Any, folder: Path) -> str:
    """Give all the largest number of copies among their defaults; return in words why it is this one.

    A larger number that all runs in the folder have is kept, so that algorithms can be added. Actors have copies each:
    an algorithm that has some keeps its default.
    """
    defaults = {}
    for label, own in settings.items():
        own['nenv'] = copies_for(own['alg'], env_type, env_id)
        if own.get('roles', getattr(algorithms, own['alg']).learn_params()['roles']) is None:
            defaults[label] = own['nenv']
    most = max(defaults.values(), default=1)
    there = {settings_in(path.parent).get('nenv', 1) for path in folder.glob('*/settings.json')}
    kept = len(there) == 1 and max(there) > most
    for label in defaults:
        settings[label]['nenv'] = max(there) if kept else most
    told = ' The runs that are there have as many.' if kept else ''
    if not kept and len(set(defaults.values())) > 1:
        meant = ', '.join(f'{label} {count}' for label, count in defaults.items())
        told = f' It is the largest default ({meant}); nenv (--nenv) sets another one.'
    with_actors = [label for label in settings if label not in defaults]
    return told + (f' Each actor of {", ".join(with_actors)} has so many.' if with_actors else '')


def _check_environment(folder: Path, environment: str) -> None:
    """Refuse a folder that holds runs in another environment, also under other labels."""
    for path in sorted(folder.glob('*/settings.json')):
        found = settings_in(path.parent).get('environment')
        if found != environment:
            raise InvalidValue(f"'{folder}' holds a comparison in {found}: choose another folder (out).")


def run_one(folder: Path, own: dict[str, Any], env_id: Any, env_type: str, seed: int, test_episodes: int) -> None:
    """Train and test one run; this is what each process does."""
    params = {'verbose': 0, 'evaluate': False, **own}
    alg = params.pop('alg')
    found, learned = resumed_agent(folder), True
    if found is None:
        agent, trained = train(alg, env_id, env_type, seed=seed, run_dir=folder, **params)
        found = agent, trained.wall_time
        learned = bool(trained.losses)
    agent, seconds = found
    # Not the seed of the training, and the same for all algorithms.
    env = build_env(env_id, env_type, seed=10_000 + seed, **(params.get('env_params') or {}))
    tested = agent.learn(env, 'test', test_episodes=test_episodes)
    env.close()
    result = {'score': float(np.mean(tested.returns)), 'returns': tested.returns}
    result |= {'steps_per_second': agent.steps / max(seconds, 1e-9), 'seconds': seconds}
    write_json(folder / 'result.json', result if learned else {**result, 'unlearned': True})


def resumed_agent(folder: Path) -> tuple[Any, float] | None:
    """Finish the training in a folder and return its agent and its seconds; None if it has to start again.

    To start again, the folder is emptied. The seconds before the interruption are known from ``monitor.csv``, up to the
    last episode that ended.
    """
    if not (folder / 'config.json').exists():
        return None
    run: Run = open_run(folder)
    if run.checkpoints and run.config.get('made_with') is not None:
        agent = run.load()
        ended = zip(run.episodes.get('t', []), run.episodes.get('step', []), strict=True)
        before = max((t for t, step in ended if step <= agent.steps), default=0.0)
        if agent.loop_state is None:  # it was interrupted while it was tested
            return agent, before
        if agent.loop.experience == 'rollouts' or agent.saved_buffer is not None:
            agent, result = resume(run, verbose=0)
            return agent, before + result.wall_time
    for path in folder.iterdir():
        if path.name != 'output.txt':
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return None
