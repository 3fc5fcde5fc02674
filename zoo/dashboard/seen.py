"""The part of the page that shows what is chosen: environment, networks, program."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Any

from zoo.dashboard import parts
from zoo.dashboard.experiment import Experiment
from zoo.dashboard.preview import diagram, preview
from zoo.dashboard.program import program_for
from zoo.dashboard.runs import PROGRAM
from zoo.dashboard.values import written


class Seen:
    """The environment with its spaces, the networks, and the program.

    Attributes:
        box: the environment and the networks.
        program: the program, a view of its own.
    """

    def __init__(self) -> None:
        self.spaces = parts.text(kind='zoo-spaces')
        self.frame = parts.text(kind='zoo-frame')
        self.diagram = parts.text(kind='zoo-diagram')
        self.box = parts.box(parts.box(self.spaces, self.frame, kind='zoo-seen'), self.diagram, kind='zoo-preview')
        self.program = parts.text(kind='zoo-program')
        self._previewed: Any = None

    def show(self, experiment: Experiment) -> None:
        """Show an experiment as it is now."""
        env = (experiment.env_type, experiment.env_id, experiment.arguments['seed'], written(experiment.env_params))
        if env != self._previewed:
            self._previewed = env
            seen = preview(experiment)
            self.spaces.value = _spaces(seen.observation_space, seen.action_space, experiment.fitting)
            if seen.picture is None:
                self.frame.value = f'<p class="zoo-faint">{html.escape(seen.refused)}</p>'
            else:
                self.frame.value = parts.picture(seen.picture, f'{experiment.env_id} at its beginning')
        try:
            self.diagram.value = parts.picture(diagram(experiment), 'the networks')
        except Exception as error:
            self.diagram.value = f'<p class="zoo-error">{html.escape(parts.sentence(error))}</p>'
        self.program.value = (
            '<p class="zoo-faint">The program that does the same, with what differs from the defaults. Every run of '
            f'this page leaves its own program in its folder, {PROGRAM}.</p>'
            f'<pre>{html.escape(program_for(experiment))}</pre>'
        )


def _spaces(observation: str, action: str, fitting: Iterable[str]) -> str:
    fit = ' '.join(f'<span>{name}</span>' for name in fitting)
    return (
        f'<h5>observation</h5><code>{html.escape(observation)}</code><h5>action</h5><code>{html.escape(action)}</code>'
        f'<h5>algorithms that act in it</h5><div class="zoo-chips">{fit}</div>'
    )
