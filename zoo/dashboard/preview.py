"""The part of the page that shows what is chosen: environment, networks, program."""

from __future__ import annotations

import html
import io
from typing import Any

import zoo
from zoo.dashboard import parts
from zoo.dashboard.experiment import Experiment
from zoo.dashboard.program import program_for
from zoo.dashboard.runs import PROGRAM
from zoo.dashboard.values import written

#: Width of the picture of an environment, in pixels.
_WIDTH = 480


class Preview:
    """Show the environment with its spaces, the networks, and the program.

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
        env = (experiment.env_type, experiment.env_id, experiment.arguments['seed'], written(experiment.env_params))
        if env != self._previewed:
            self._previewed = env
            self.spaces.value = _spaces(experiment)
            frame = first_frame(experiment)
            if isinstance(frame, str):
                self.frame.value = f'<p class="zoo-faint">{html.escape(frame)}</p>'
            else:
                self.frame.value = parts.picture(frame, f'{experiment.env_id} at its beginning')
        try:
            picture = io.BytesIO()
            zoo.plots.network_diagram(experiment.assemble()).savefig(picture, format='png')
            self.diagram.value = parts.picture(picture.getvalue(), 'the networks')
        except Exception as error:
            self.diagram.value = f'<p class="zoo-error">{html.escape(parts.sentence(error))}</p>'
        self.program.value = (
            '<p class="zoo-faint">The program that does the same, with what differs from the defaults. Every run of '
            f'this page leaves its own program in its folder, {PROGRAM}.</p>'
            f'<pre>{html.escape(program_for(experiment))}</pre>'
        )


def _spaces(experiment: Experiment) -> str:
    observation, action = (html.escape(str(space)) for space in experiment.spaces)
    fit = ' '.join(f'<span>{name}</span>' for name in experiment.fitting)
    return (
        f'<h5>observation</h5><code>{observation}</code><h5>action</h5><code>{action}</code>'
        f'<h5>algorithms that act in it</h5><div class="zoo-chips">{fit}</div>'
    )


def first_frame(experiment: Experiment) -> bytes | str:
    """Return a picture of the environment, PNG; or a sentence that says why there is none."""
    try:
        env = experiment.build(nenv=1, render_mode='rgb_array')
        try:
            env.reset(seed=experiment.arguments['seed'])
            frame: Any = env.render()
        finally:
            env.close()
        from PIL import Image

        picture = Image.fromarray(frame)
        if picture.width > _WIDTH:
            picture = picture.resize((_WIDTH, max(1, round(picture.height * _WIDTH / picture.width))))
        file = io.BytesIO()
        picture.save(file, format='png')
        return file.getvalue()
    except Exception as error:  # simulators raise anything
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        return f'There is no picture of it: {why}'
