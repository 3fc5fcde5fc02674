"""Pictures of what is chosen: the environment and the networks."""

from __future__ import annotations

import io
import os
import sys
from dataclasses import dataclass
from typing import Any

import zoo
from zoo.dashboard.experiment import Experiment

#: Width of the picture of an environment, in pixels.
_WIDTH = 480


@dataclass(frozen=True)
class Preview:
    """What an environment looks like: its spaces, and a picture as PNG or the reason why there is none."""

    observation_space: str
    action_space: str
    picture: bytes | None
    refused: str = ''


def preview(experiment: Experiment) -> Preview:
    """Return the spaces and a picture of the environment."""
    observation, action = map(str, experiment.spaces)
    if sys.platform.startswith('linux') and not (os.environ.get('DISPLAY') or os.environ.get('WAYLAND_DISPLAY')):
        os.environ.setdefault('SDL_VIDEODRIVER', 'dummy')  # pygame would complain in the notebook
    try:
        env = experiment.build(nenv=1, render_mode='rgb_array')
        try:
            env.reset(seed=experiment.arguments['seed'])
            frame: Any = env.render()
        finally:
            env.close()
        return Preview(observation, action, _png(frame))
    except Exception as error:  # simulators raise anything
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        return Preview(observation, action, None, f'There is no picture of it: {why}')


def diagram(experiment: Experiment) -> bytes:
    """Return a picture of the networks, PNG."""
    picture = io.BytesIO()
    zoo.plots.network_diagram(experiment.assemble()).savefig(picture, format='png')
    return picture.getvalue()


def _png(frame: Any) -> bytes:
    """Return a picture ``[height, width, 3]`` as PNG, at most :data:`_WIDTH` wide."""
    from PIL import Image

    picture = Image.fromarray(frame)
    if picture.width > _WIDTH:
        picture = picture.resize((_WIDTH, max(1, round(picture.height * _WIDTH / picture.width))))
    file = io.BytesIO()
    picture.save(file, format='png')
    return file.getvalue()
