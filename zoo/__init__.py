"""zoo: deep reinforcement learning agents for any observation and any action space, in four lines."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what a type checker knows, since it does not run __getattr__; a test compares it with __all__
    from zoo import algorithms as algorithms
    from zoo import callbacks as callbacks
    from zoo.agents import list_agents as list_agents
    from zoo.algorithms.base import load as load
    from zoo.algorithms.base.describing import describe as describe
    from zoo.algorithms.base.exporting import export as export
    from zoo.common import plots as plots
    from zoo.common.datasets.dataset import Dataset as Dataset
    from zoo.common.datasets.episodes import RecordedEpisode as RecordedEpisode
    from zoo.common.datasets.opening import open_dataset as open_dataset
    from zoo.common.env_wrappers import build_env as build_env
    from zoo.common.env_wrappers import list_envs as list_envs
    from zoo.common.envs.check import check_env as check_env
    from zoo.common.plots.films import film as film
    from zoo.common.rollouts.rollout import Rollout as Rollout
    from zoo.common.schedules import Linear as Linear
    from zoo.common.training.record import record_episodes as record_episodes
    from zoo.common.utils import call_default_params as call_default_params
    from zoo.experiments.compare import compare as compare
    from zoo.experiments.config_file import as_config as as_config
    from zoo.experiments.config_file import read_config as read_config
    from zoo.experiments.off_policy_evaluation import EstimatedReturn as EstimatedReturn
    from zoo.experiments.off_policy_evaluation import estimate_return as estimate_return
    from zoo.experiments.push import push_to_hub as push_to_hub
    from zoo.experiments.runs import list_runs as list_runs
    from zoo.experiments.runs import open_run as open_run
    from zoo.experiments.runs import plot_runs as plot_runs
    from zoo.experiments.summary import compare_scores as compare_scores
    from zoo.experiments.train import resume as resume
    from zoo.experiments.train import train as train
    from zoo.experiments.tune import tune as tune

__version__ = '0.1.0'

# TensorFlow's start notes would bury the progress bar. The finder below holds back those that ignore this variable.
# Errors while training still show, and a value that the user set stays.
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')


class _QuietStart:
    """Finds TensorFlow for whoever imports it after zoo, so that it starts without its notes."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        if name != 'tensorflow':
            return None
        from zoo.common.tools.quiet import find_tensorflow

        return find_tensorflow()


sys.meta_path.insert(0, _QuietStart())

_HOME = {
    'build_env': 'zoo.common.env_wrappers',
    'list_envs': 'zoo.common.env_wrappers',
    'check_env': 'zoo.common.envs.check',
    'call_default_params': 'zoo.common.utils',
    'load': 'zoo.algorithms.base',
    'list_agents': 'zoo.agents',
    'open_dataset': 'zoo.common.datasets.opening',
    'record_episodes': 'zoo.common.training.record',
    'Dataset': 'zoo.common.datasets.dataset',
    'RecordedEpisode': 'zoo.common.datasets.episodes',
    'Rollout': 'zoo.common.rollouts.rollout',
    'describe': 'zoo.algorithms.base.describing',
    'Linear': 'zoo.common.schedules',
    'train': 'zoo.experiments.train',
    'resume': 'zoo.experiments.train',
    'read_config': 'zoo.experiments.config_file',
    'as_config': 'zoo.experiments.config_file',
    'push_to_hub': 'zoo.experiments.push',
    'open_run': 'zoo.experiments.runs',
    'list_runs': 'zoo.experiments.runs',
    'plot_runs': 'zoo.experiments.runs',
    'film': 'zoo.common.plots.films',
    'export': 'zoo.algorithms.base.exporting',
    'compare': 'zoo.experiments.compare',
    'compare_scores': 'zoo.experiments.summary',
    'tune': 'zoo.experiments.tune',
    'estimate_return': 'zoo.experiments.off_policy_evaluation',
    'EstimatedReturn': 'zoo.experiments.off_policy_evaluation',
}

_MODULES = {'algorithms': 'zoo.algorithms', 'callbacks': 'zoo.callbacks', 'plots': 'zoo.common.plots'}

#: Old names, which go on working with a warning.
_RENAMED = {'record': 'record_episodes', 'record_dataset': 'record_episodes'}

__all__ = [*_HOME, *_MODULES, '__version__']  # noqa: PLE0604


if not TYPE_CHECKING:  # where it is seen, any name seems to exist

    def __getattr__(name: str) -> Any:
        """Import a name when it is asked for: ``import zoo`` costs nothing and loads no TensorFlow."""
        if name in _RENAMED:
            told = f'zoo.{name} is called zoo.{_RENAMED[name]} now, which takes the path before the number of episodes.'
            warnings.warn(told, DeprecationWarning, stacklevel=2)
            return importlib.import_module(_HOME[_RENAMED[name]]).record_dataset
        if name in _MODULES:
            return importlib.import_module(_MODULES[name])
        if name not in _HOME:
            from zoo.common.tools.errors import nearest
            from zoo.common.tools.habits import PLACES

            close = None if name.startswith('_') else nearest(name, __all__)
            hint = f': did you mean {close!r}?' if close else ''
            if name in PLACES:
                hint = f': {PLACES[name]}.'
            elif not name.startswith('_'):
                from zoo.algorithms.base.catalog import NAMES

                hint = f': it is zoo.algorithms.{name}.' if name in NAMES else hint
            raise AttributeError(f'module {__name__!r} has no attribute {name!r}{hint}')
        home = _HOME[name]
        if home.startswith('zoo.algorithms.'):
            from zoo.common.tools.quiet import load_tensorflow

            load_tensorflow()
        return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
