"""The saved agent that a new run begins with: ``zoo.train(start_from=…)``."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.common.tools.errors import InvalidValue, article
from zoo.common.tools.files import write_json
from zoo.experiments.runs import Run, open_run

if TYPE_CHECKING:
    from zoo.common.training.training import Training

#: The file of a checkpoint with its weights.
_WEIGHTS = 'weights.safetensors'


@dataclass(frozen=True)
class Origin:
    """What a run began with. As a callback it notes that in the run's ``config.json``.

    Attributes:
        agent: the saved agent.
        source: its checkpoint, or the name of a trained agent; None for an agent of a program.
    """

    agent: Any
    source: str | None

    steers = False
    every = None

    @property
    def name(self) -> str:
        """What messages call it."""
        return 'the given agent' if self.source is None else f"'{self.source}'"

    def give(self, agent: Any) -> None:
        """Let a new agent begin with the weights and statistics."""
        from zoo.algorithms.base.saving import take_weights

        take_weights(agent, self.agent)

    def begin(self, training: Training) -> None:
        if training.run_dir is None:
            return
        file = training.run_dir / 'config.json'
        known = json.loads(file.read_text(encoding='utf-8'))
        write_json(file, known | {'start_from': self.source or 'an agent of a program'})

    def __call__(self, training: Training) -> None:
        """Nothing is to be done at a row of the log."""


def origin(given: Any, alg: str, net_list: Sequence[Any] | None) -> Origin:
    """Return the agent of a run, the agent in a checkpoint, a trained agent, or a copy of an agent of a program.

    Raises:
        ValueError: it is none of these, it cannot be loaded, or it is of another algorithm.
    """
    from zoo.algorithms.base import Algorithm, load
    from zoo.common.training.checkpoint import newest_in

    source: str | None
    if isinstance(given, Algorithm):
        if net_list is not None:
            raise InvalidValue('net_list says other networks than the given agent has: leave net_list out.')
        agent, source = copy.deepcopy(given), None
    else:
        is_path = isinstance(given, str | os.PathLike) and os.fspath(given)
        name, path = None, Path(given).expanduser() if is_path else None
        if path is None or isinstance(given, Run) or not (path / _WEIGHTS).is_file():
            run = open_run(given)
            name, path = None if run.card is None else run.name, newest_in(run.path)
            if path is None:
                raise InvalidValue(f'{run.name} has no checkpoint yet: there is no agent to begin with.')
        agent, source = load(path, net_list), name or str(path)
    found = type(agent).__name__
    if found != alg:
        what = Origin(agent, source).name
        raise InvalidValue(f'{what} is {article(found)} agent, and {alg} cannot begin with its weights: train {found}.')
    return Origin(agent, source)
