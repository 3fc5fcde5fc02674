"""The part of the page that shows a training: its progress, its curves, and an episode of its agent."""

from __future__ import annotations

import html
import math
import os
import re
import time
from typing import Any

import zoo
from zoo.dashboard import parts
from zoo.dashboard.charts import Curve, chart
from zoo.dashboard.runs import curve
from zoo.dashboard.training import FILM_STEPS, BackgroundTraining, Filming

#: The states of a training, in words.
STATES = {
    'starting': 'starting a process',
    'training': 'training',
    'pausing': 'pausing at the next update',
    'paused': 'paused',
    'stopping': 'stopping and saving',
    'stopped': 'stopped and saved; it can be resumed',
    'ended': 'ended',
    'failed': 'failed',
}
#: The title of the learning curve.
_RETURNS = 'Return of the episodes'
#: Reading and drawing take at most this part of the time.
_SHARE = 0.04
#: Parts of lines that TensorFlow prints and that say nothing about the training.
_NOISE = (
    'WARNING: All log messages before absl', 'cudart_stub', 'cuda_', 'computation_placer', 'XLA service',
    'StreamExecutor',
)  # fmt: skip
#: What a training prints of its progress, which the page draws.
_PROGRESS = re.compile(r':\s+\d+% [\d,]+/[\d,]+|^  \w+/\w+ +\S+$')


class FilmView:
    """Shows an episode of one agent, once it is filmed."""

    def __init__(self, told: str) -> None:
        self.box = parts.text(kind='zoo-film')
        self._told = told
        self._filming: Filming | None = None
        self.clear()

    def clear(self) -> None:
        """Show no film; a film that is being made is given up, since it is another agent's."""
        if self._filming is not None:
            self._filming.cancel()
            self._filming = None
        self.box.value = _framed('', self._told) if self._told else ''

    def begin(self, film: Filming) -> None:
        """Show a film when it is done."""
        self._filming = film
        self.box.value = _framed('', f'filming the agent of step {film.steps:,} …')

    @property
    def filming(self) -> bool:
        return self._filming is not None

    def poll(self) -> None:
        """Show the film that is being made, once it is done."""
        film = self._filming
        if film is None or not film.done:
            return
        if film.error:
            self.box.value = _framed('', film.error)
        else:
            seen = f'the agent of step {film.steps:,}, without exploring, for {FILM_STEPS} steps at most'
            self.box.value = _framed(parts.picture(film.path.read_bytes(), 'an episode', 'webp'), seen)
        self._filming = None


class Watch:
    """Shows one training, and an episode of its agent.

    Attributes:
        box: the training.
        idle: what is shown instead while what is chosen has not been trained.
    """

    def __init__(self) -> None:
        self.status = parts.text(kind='zoo-status')
        self.changed = parts.text(kind='zoo-faint')
        self.returns = parts.text(kind='zoo-returns')
        self.metrics = parts.text(kind='zoo-metrics')
        self.said = parts.text(kind='zoo-said')
        self.film = FilmView('Film an episode of the newest checkpoint.')
        below = parts.box(self.metrics, self.film.box, kind='zoo-watch-below')
        self.box = parts.box(self.status, self.changed, self.said, self.returns, below, kind='zoo-watch')
        self.idle = parts.box(parts.text(_idle()), kind='zoo-watch')
        self._due = 0.0
        self._drawn = -1.0
        self._rate = math.nan
        self.clear()

    def clear(self) -> None:
        """Show nothing of an earlier training."""
        self.status.value = self.metrics.value = self.said.value = self.changed.value = ''
        self.returns.value = _no_curve()
        self.film.clear()
        self._due, self._drawn, self._rate = 0.0, -1.0, math.nan

    def show(self, training: BackgroundTraining) -> None:
        """Show a training as it is now. Curves are drawn less often, so that drawing stays cheap."""
        done = training.steps / max(training.train_steps, 1)
        now = time.monotonic()
        if training.run_dir is not None and (now >= self._due or not training.alive):
            self._draw(training)
            self._due = time.monotonic() + max(1.0, (time.monotonic() - now) / _SHARE)
        told = f'<b>{training.steps:,}</b> of {training.train_steps:,} steps' if training.train_steps else ''
        if training.result is not None:
            steps, seconds = training.result
            told += f' · {steps / max(seconds, 1e-9):,.0f} steps/s · {_clock(seconds)}'
        elif training.alive and math.isfinite(self._rate) and self._rate > 0:
            told += f' · {self._rate:,.0f} steps/s'
            if training.state == 'training':
                told += f' · {_clock((training.train_steps - training.steps) / self._rate)} left'
        name = f' · {html.escape(training.run_dir.name)}' if training.run_dir is not None else ''
        self.status.value = _status(training.state, STATES[training.state], done, told + name)
        lines = [line for line in training.output.splitlines() if line.strip() and not _PROGRESS.search(line)]
        said = [line for line in lines if not any(noise in line for noise in _NOISE)]
        if training.error:
            self.said.value = f'<p class="zoo-error">{html.escape(training.error)}</p>'
        else:
            tests = [line for line in said if line.startswith(('Test at step', 'Best: '))]
            said = [*[line for line in said if line not in tests][-3:], *tests[-1:]]  # ten tests would hide a warning
            said = [line.replace(f'{training.run_dir and training.run_dir.parent}{os.sep}', '') for line in said]
            self.said.value = ''.join(f'<p>{html.escape(line)}</p>' for line in said)

    def _draw(self, training: BackgroundTraining) -> None:
        assert training.run_dir is not None
        try:
            run = zoo.open_run(training.run_dir)
            stamps = [(run.path / name).stat().st_mtime for name in ('progress.csv', 'monitor.csv')]
        except (ValueError, OSError):  # it has only begun
            return
        if max(stamps) == self._drawn:
            return
        self._drawn = max(stamps)
        self.returns.value = chart([curve(run, run.name)], _RETURNS, empty='no episode has ended yet')
        self.metrics.value = metrics(run)
        rates = [rate for rate in run.progress.get('speed/steps_per_second', []) if math.isfinite(rate)][-5:]
        self._rate = sorted(rates)[len(rates) // 2] if rates else math.nan

    def tell_changed(self, changed: bool) -> None:
        """Say whether the fields of the page differ from the settings of the training that is shown."""
        told = 'The fields have changed since this training began. It goes on with the settings of its beginning.'
        self.changed.value = f'<p>{told}</p>' if changed else ''


def metrics(run: Any) -> str:
    """Return small charts of the losses, the speed and other logged metrics of a run, as HTML."""
    columns = run.progress
    names = [name for name in columns if name.startswith('loss/')]
    names += [name for name in columns if name.startswith(('test/', 'episode/success', 'schedule/'))]
    names += [name for name in ('episode/length', 'speed/steps_per_second') if name in columns]
    titles = {'speed/steps_per_second': 'steps per second', 'episode/length': 'length of the episodes'}
    drawn = ''
    for name in names:
        title = titles.get(
            name, name.removeprefix('loss/').removeprefix('schedule/').replace('/', ' ').replace('_', ' ')
        )
        drawn += f'<div>{chart([Curve(name, columns["step"], columns[name])], title, "", (240, 130))}</div>'
    return f'<div class="zoo-multiples">{drawn}</div>'


def _idle() -> str:
    return _status('idle', 'not trained yet', 0.0, 'Choose, edit, and press Train.') + _no_curve()


def _no_curve() -> str:
    return chart([], _RETURNS, empty='the learning curve will be here')


def _status(state: str, words: str, done: float, told: str) -> str:
    width = f'{100 * min(max(done, 0.0), 1.0):.2f}%'
    return (
        f'<div class="zoo-state zoo-is-{state}"><i></i><strong>{html.escape(words)}</strong><span>{told}</span></div>'
        f'<div class="zoo-progress zoo-is-{state}"><div style="width:{width}"></div></div>'
    )


def _framed(image: str, told: str) -> str:
    return f'<figure>{image or "<div class=zoo-nothing></div>"}<figcaption>{html.escape(told)}</figcaption></figure>'


def _clock(seconds: float) -> str:
    minutes, left = divmod(int(max(seconds, 0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f'{hours}:{minutes:02d}:{left:02d}' if hours else f'{minutes}:{left:02d} min'
