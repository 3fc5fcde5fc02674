"""Experiment trackers: Weights & Biases and MLflow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from zoo.callbacks.base import Callback, settings_of, title_of
from zoo.common.tools.errors import MissingPackage

if TYPE_CHECKING:
    from zoo.common.training.training import Training

#: The longest parameter, in characters, that MLflow takes with every storage.
_MLFLOW_WIDTH = 500


class WandB(Callback):
    """Send the rows of the log to Weights & Biases.

    Args:
        project: name of the project there.
        **options: arguments of ``wandb.init``, such as ``mode='offline'``, ``group='…'``.

    Raises:
        ImportError: wandb is not installed.
    """

    steers = False

    def __init__(self, project: str = 'zoo', **options: Any) -> None:
        try:
            import wandb
        except ImportError as error:
            raise MissingPackage(f'the callback WandB needs a package: pip install wandb ({error}).') from error
        self.options = {'project': project, **options}
        self._wandb: Any = wandb
        self._run: Any = None

    def begin(self, training: Training) -> None:
        known = {'config': settings_of(training), 'name': title_of(training)}
        if training.run_dir is not None:
            known['dir'] = str(training.run_dir)
        self._run = self._wandb.init(**{**known, **self.options})

    def __call__(self, training: Training) -> None:
        self.logged(training, training.metrics)

    def logged(self, training: Training, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=training.agent.steps)

    def end(self, training: Training) -> None:
        self._run.finish(exit_code=0 if training.error is None else 1)


class MLflow(Callback):
    """Send the rows of the log to MLflow.

    Args:
        experiment: name of the experiment there; None: the active one.
        tracking_uri: address of the server or the database; None: as MLflow is configured.

    Raises:
        ImportError: mlflow is not installed.
    """

    steers = False

    def __init__(self, experiment: str | None = None, tracking_uri: str | None = None) -> None:
        try:
            import mlflow
        except ImportError as error:
            raise MissingPackage(f'the callback MLflow needs a package: pip install mlflow ({error}).') from error
        self.experiment = experiment
        self.tracking_uri = tracking_uri
        self._mlflow: Any = mlflow

    def begin(self, training: Training) -> None:
        if self.tracking_uri is not None:
            self._mlflow.set_tracking_uri(self.tracking_uri)
        if self.experiment is not None:
            self._mlflow.set_experiment(self.experiment)
        self._mlflow.start_run(run_name=title_of(training))
        self._mlflow.log_params({name: str(value)[:_MLFLOW_WIDTH] for name, value in settings_of(training).items()})

    def __call__(self, training: Training) -> None:
        self.logged(training, training.metrics)

    def logged(self, training: Training, metrics: Mapping[str, float]) -> None:
        self._mlflow.log_metrics(dict(metrics), step=training.agent.steps)

    def end(self, training: Training) -> None:
        statuses = {True: 'FINISHED', False: 'KILLED' if isinstance(training.error, KeyboardInterrupt) else 'FAILED'}
        self._mlflow.end_run(statuses[training.error is None])
