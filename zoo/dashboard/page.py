"""The page: its parts side by side, and what each of its buttons does."""

from __future__ import annotations

import html
import os
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import ipywidgets as widgets

import zoo
from zoo.dashboard import parts
from zoo.dashboard.experiment import ARGUMENTS, Experiment, program_of
from zoo.dashboard.form import Form
from zoo.dashboard.runs import PROGRAM, Runs
from zoo.dashboard.table import Table
from zoo.dashboard.training import Film, Training
from zoo.dashboard.values import keywords, written
from zoo.dashboard.watch import Watch

#: Seconds between two looks at a training, and between two at the table meanwhile.
_LOOK, _TABLE = 0.5, 5.0


class Dashboard(widgets.Box):
    """Choose, edit, train, watch and compare agents in a notebook.

    >>> from zoo.dashboard import Dashboard
    >>> Dashboard()

    Trainings run in a process of their own, so that other cells answer meanwhile. The end of the notebook's kernel
    stops one as Ctrl-C does: it is saved and can be resumed.

    Args:
        environments: classes and functions that make environments, to choose under the type ``'gymnasium'`` besides
            the environment classes that the notebook defines.
        runs: folder of the runs; None: what ``ZOO_RUNS`` names, or else ``runs``.
        env_type, env_id, alg: what is chosen first.

    Attributes:
        experiment: what is chosen and edited.
        training: the training that is shown; None before the first.
        agent: what the button *load* has loaded; None before.

    Raises:
        ValueError, ImportError: what is to be chosen first is not there.
    """

    def __init__(
        self,
        environments: Iterable[Callable[..., Any]] = (),
        runs: str | os.PathLike[str] | None = None,
        env_type: str = 'classic_control',
        env_id: str = 'CartPole-v1',
        alg: str = 'PPO',
    ) -> None:
        self._environments = tuple(environments)
        self.experiment = Experiment(self._environments, env_type, env_id, alg)
        self.training: Training | None = None
        self.agent: Any = None
        self.folder = Path(runs or os.environ.get('ZOO_RUNS') or 'runs').expanduser().absolute()
        self._origins: dict[Path, Experiment] = {}  # of the runs of this page: what a folder may not say
        self._lock = threading.RLock()
        self._quiet = False
        self._follower: threading.Thread | None = None
        self._table_due = 0.0
        self.message = parts.text(kind='zoo-message')
        self.watch = Watch()
        self._make_choices()
        self.form = Form(lambda: self.experiment, self._edited, self._told)
        self._make_preview()
        self._make_buttons()
        self.table = Table(Runs(self.folder), self._told, self._actions(), program_of)
        style = (resources.files('zoo.dashboard') / 'style.css').read_text(encoding='utf-8')
        self._views = {
            'preview': parts.box(self.preview, kind='zoo-view'),
            'training': self.watch.box,
            'program': parts.box(self.program, kind='zoo-view'),
        }
        self.view = widgets.ToggleButtons(
            options=[('Environment & networks', 'preview'), ('Training', 'training'), ('Program', 'program')]
        )
        self.view.add_class('zoo-tabs')
        self.view.observe(lambda _: self._show_view(), 'value')
        stage = parts.box(kind='zoo-stage')
        self._stage = stage
        super().__init__(
            [
                parts.text(f'<style>{style}</style>', 'zoo-style'),
                parts.text('<h2>zoo</h2><span>agents, from the environment to the curve</span>', 'zoo-head-line'),
                self.message,
                parts.box(
                    parts.box(
                        parts.card('Environment', self._environment_box),
                        parts.card('Algorithm', self._algorithm_box, self.form.box),
                        kind='zoo-column',
                    ),
                    parts.box(self.view, self._control_box, stage, kind='zoo-card zoo-right'),
                    kind='zoo-grid',
                ),
                parts.card('Runs', self.table.box),
            ]
        )
        self.add_class('zoo-dashboard')
        self._show_view()
        self._show_choices()
        self._show_experiment()

    # Choices

    def _make_choices(self) -> None:
        self.env_type = widgets.Dropdown(options=self.experiment.types(), value=self.experiment.env_type)
        self.env_id = widgets.Dropdown(options=self._names())
        self.other_env = widgets.Text(placeholder="another registered name, 'package:Name-v0'", continuous_update=False)
        self.env_params = widgets.Text(placeholder='max_episode_steps=200', continuous_update=False)
        self.arguments: dict[str, Any] = {}
        for name, (default, options, _) in ARGUMENTS.items():
            if options is None:
                self.arguments[name] = widgets.Text(continuous_update=False)
            else:
                self.arguments[name] = parts.choice(options, default)
        self.alg = widgets.Dropdown(options=self.experiment.fitting)
        self.summary = parts.text(kind='zoo-faint')
        self.env_type.observe(lambda change: self._chose(env_type=change.new), 'value')
        self.env_id.observe(lambda change: self._chose(env_id=change.new), 'value')
        self.other_env.observe(lambda change: self._chose(env_id=change.new.strip() or None), 'value')
        self.alg.observe(lambda change: self._chose(alg=change.new), 'value')
        self.env_params.observe(lambda change: self._typed('env_params', change.new), 'value')
        for name, widget in self.arguments.items():
            widget.observe(partial(self._argument, name), 'value')

        def field(name: str, label: str) -> Any:
            return parts.labelled(label, self.arguments[name], ARGUMENTS[name][2])

        self._other_box = parts.labelled('or by its name', self.other_env)
        self._environment_box = parts.box(
            parts.labelled('type', self.env_type),
            parts.labelled('environment', self.env_id),
            self._other_box,
            parts.box(
                field('seed', 'seed'), field('nenv', 'copies'), field('vectorized', 'they run'), kind='zoo-three'
            ),
            parts.labelled('other arguments', self.env_params, 'of build_env and the environment’s constructor'),
            kind='zoo-choices',
        )
        self._algorithm_box = parts.box(
            parts.labelled('algorithm', self.alg),
            self.summary,
            parts.box(
                field('layers', 'layers'), field('dtype', 'precision'), field('recurrent', 'memory'), kind='zoo-three'
            ),
            kind='zoo-choices',
        )

    def _names(self) -> list[str]:
        names = self.experiment.environments(self.experiment.env_type)
        return names if self.experiment.env_id in names else [self.experiment.env_id, *names]  # an older version

    def _chose(self, **choice: Any) -> None:
        if not self._quiet:
            self._do_choose(lambda: self.experiment.choose(**choice))

    def _argument(self, name: str, change: Any) -> None:
        options = ARGUMENTS[name][1]
        if options is None:
            self._typed(name, change.new)
        else:
            self._chose(**{name: options[change.new]})

    def _typed(self, name: str, typed: str) -> None:
        if not self._quiet:
            self._do_choose(lambda: self.experiment.type_argument(name, typed))

    def _do_choose(self, choose: Callable[[], str | None]) -> None:
        with self._lock:
            self._told(choose)
            self._show_choices()
            self.form.show()
            self._show_experiment()

    def _show_choices(self) -> None:
        """Show what is chosen, which is what was chosen before where something was refused."""
        experiment = self.experiment
        self._quiet = True
        try:
            self.env_type.value = experiment.env_type
            names = self._names()
            if tuple(self.env_id.options) != tuple(names):
                self.env_id.options = names
            self.env_id.value = experiment.env_id
            self.other_env.value = ''
            self._other_box.layout.display = '' if experiment.env_type == 'gymnasium' else 'none'
            if tuple(self.alg.options) != experiment.fitting:
                self.alg.options = experiment.fitting
            self.alg.value = experiment.alg
            self.env_params.value = keywords(experiment.env_params)
            for name, widget in self.arguments.items():
                value = experiment.arguments[name]
                options = ARGUMENTS[name][1]
                widget.value = written(value) if options is None else parts.label_of(options, value)
        finally:
            self._quiet = False
        self.summary.value = f'<p>{html.escape(experiment.describe().summary)}</p>'

    # What is chosen, seen

    def _make_preview(self) -> None:
        self.spaces = parts.text(kind='zoo-spaces')
        self.frame = parts.text(kind='zoo-frame')
        self.diagram = parts.text(kind='zoo-diagram')
        self.preview = parts.box(parts.box(self.spaces, self.frame, kind='zoo-seen'), self.diagram)
        self.preview.add_class('zoo-preview')
        self.program = parts.text(kind='zoo-program')
        self._previewed: Any = None

    def _edited(self) -> None:
        self._show_experiment()

    def _show_experiment(self) -> None:
        """Show the environment, the networks and the program."""
        experiment = self.experiment
        env = (experiment.env_type, experiment.env_id, experiment.arguments['seed'], written(experiment.env_params))
        if env != self._previewed:
            self._previewed = env
            seen = experiment.preview()
            self.spaces.value = _spaces(seen.observation_space, seen.action_space, experiment.fitting)
            if seen.picture is None:
                self.frame.value = f'<p class="zoo-faint">{html.escape(seen.refused)}</p>'
            else:
                self.frame.value = parts.picture(seen.picture, f'{experiment.env_id} at its beginning')
        try:
            self.diagram.value = parts.picture(experiment.diagram(), 'the networks')
        except Exception as error:
            self.diagram.value = f'<p class="zoo-error">{html.escape(parts.sentence(error))}</p>'
        self.program.value = (
            '<p class="zoo-faint">The program that does the same, with what differs from the defaults; every run of '
            f'this page leaves its own in its folder, {PROGRAM}.</p><pre>{html.escape(experiment.program())}</pre>'
        )

    # Training

    def _make_buttons(self) -> None:
        self.start_button = parts.button('Train', self.start, 'in a process of its own', 'zoo-primary', 'play')
        self.pause_button = parts.button('Pause', self.pause, 'at the next update', icon='pause')
        self.stop_button = parts.button(
            'Stop',
            self.stop,
            'as Ctrl-C: it saves, and can be resumed; once more: without waiting for an update',
            icon='stop',
        )
        self.film_button = parts.button('Film', self.film, 'an episode of the newest checkpoint', icon='film')
        self._control_box = parts.box(
            self.start_button, self.pause_button, self.stop_button, self.film_button, kind='zoo-bar zoo-control'
        )
        self._show_buttons()

    def start(self) -> None:
        """Train what is chosen, in the background."""
        self._told(self._start)

    def _start(self) -> None:
        self._refuse_second()
        self.folder.mkdir(parents=True, exist_ok=True)
        snapshot = self.experiment.snapshot()
        self._follow(Training.start(self.experiment.order(), self.folder), snapshot)

    def resume(self, run: Any) -> None:
        """Go on with a run that was interrupted.

        Args:
            run: as ``zoo.open_run`` takes it.
        """
        self._told(lambda: self._resume(zoo.open_run(run)))

    def _resume(self, run: Any) -> None:
        self._refuse_second()
        env, net_list = self._made_of(run)
        self._follow(Training.resume(run.path, env, net_list), self._origins.get(run.path))

    def _refuse_second(self) -> None:
        if self.training is not None and self.training.alive:
            raise ValueError('a training is under way: stop it first, or wait for its end.')

    def _follow(self, training: Training, origin: Experiment | None) -> None:
        self.training = training
        self._origin = origin
        self.watch.clear()
        self.view.value = 'training'
        self.tick()
        if self._follower is None or not self._follower.is_alive():
            self._follower = threading.Thread(target=self._look, name='zoo-dashboard', daemon=True)
            self._follower.start()

    def _look(self) -> None:
        """In a thread, while there is something to see: a cell that runs does not hold the page up."""
        while self.training is not None and (self.training.alive or self.watch.filming):
            time.sleep(_LOOK)
            self._told(self.tick, keep=True)
        self._told(self.tick, keep=True)

    def tick(self) -> None:
        """Bring the page up to date."""
        with self._lock:
            training = self.training
            if training is None:
                return
            was, known = training.state, training.run_dir
            training.poll()
            if training.run_dir is not None and known is None and self._origin is not None:
                self._origins[training.run_dir] = self._origin
                program = training.run_dir / PROGRAM
                if not program.exists():
                    program.write_text(self._origin.program(), encoding='utf-8')
            self.watch.show(training)
            self.watch.poll_film()
            self._show_buttons()
            now = time.monotonic()
            ended = was != training.state and not training.alive
            if ended or now >= self._table_due:
                began = time.monotonic()
                self.table.show()
                self._table_due = time.monotonic() + max(_TABLE, 25 * (time.monotonic() - began))
            if ended and training.state in ('ended', 'stopped') and training.run_dir is not None:
                run = zoo.open_run(training.run_dir)
                if run.checkpoints and not self.watch.filming:
                    self._film(run)

    def pause(self) -> None:
        """Hold the training up, or let it go on."""

        def do() -> None:
            if self.training is not None:
                (self.training.go_on if self.training.state in ('paused', 'pausing') else self.training.pause)()
                self.tick()

        self._told(do)

    def stop(self) -> None:
        """Stop the training: it saves, and can be resumed. Once more: without waiting for an update."""

        def do() -> None:
            if self.training is not None:
                (self.training.interrupt if self.training.state == 'stopping' else self.training.stop)()
                self.tick()

        self._told(do)

    def film(self) -> None:
        """Film an episode of the newest checkpoint of the training that is shown."""

        def do() -> None:
            if self.training is None or self.training.run_dir is None:
                raise ValueError('nothing has been trained yet: there is no agent to film.')
            self._film(zoo.open_run(self.training.run_dir))

        self._told(do)

    def _film(self, run: Any) -> None:
        if self.watch.filming:
            raise ValueError('a film is in the making: wait for it.')
        if not run.checkpoints:
            raise ValueError(
                f'{run.name} has no checkpoint yet: one is written every checkpoint_every steps, and when it stops.'
            )
        self.watch.begin_film(Film(run, *self._made_of(run)))
        if self._follower is None or not self._follower.is_alive():
            self._follower = threading.Thread(target=self._look, name='zoo-dashboard', daemon=True)
            self._follower.start()

    def _made_of(self, run: Any) -> tuple[dict[str, Any] | None, list[Any] | None]:
        """Of a run of this page, what its folder cannot say: the arguments of ``build_env``, and the networks."""
        origin = self._origins.get(run.path)
        if origin is None or not origin.is_own():
            return None, None
        order = origin.order()
        env = None
        if not isinstance(order['env_id'], str):
            env = {name: order[name] for name in ('env_id', 'env_type', 'seed', 'nenv', 'vectorized')}
            env |= order['env_params']
        return env, order.get('net_list') if origin.has_sources() else None

    def _show_buttons(self) -> None:
        state = None if self.training is None else self.training.state
        alive = self.training is not None and self.training.alive
        self.start_button.disabled = alive
        self.pause_button.disabled = state not in ('training', 'paused', 'pausing')
        self.pause_button.description = 'Go on' if state in ('paused', 'pausing') else 'Pause'
        self.pause_button.icon = 'play' if state in ('paused', 'pausing') else 'pause'
        self.stop_button.disabled = not alive
        self.stop_button.description = 'Stop now' if state == 'stopping' else 'Stop'
        self.film_button.disabled = self.training is None or self.training.run_dir is None

    # Runs

    def _actions(self) -> list[Any]:
        self.save_path = widgets.Text(placeholder='folder to save the agent in')
        return [
            parts.button('resume', self._on_opened(self._resume), 'go on with a run that was interrupted', icon='play'),
            parts.button(
                'film', self._on_opened(self._film_opened), 'an episode of its newest checkpoint', icon='film'
            ),
            parts.button(
                'take over', self._on_opened(self._take), 'its settings into the fields above', icon='arrow-up'
            ),
            parts.button('load', self._on_opened(self._load), 'its agent, as the attribute agent of this dashboard'),
            self.save_path,
            parts.button('save', self._on_opened(self._save), 'its agent into that folder', icon='save'),
        ]

    def _on_opened(self, do: Callable[[Any], Any]) -> Callable[[], None]:
        def on_click() -> None:
            row = self.table.opened
            if row is not None:
                self._told(lambda: do(zoo.open_run(row.run.path)))

        return on_click

    def _film_opened(self, run: Any) -> None:
        self.view.value = 'training'
        self._film(run)

    def _take(self, run: Any) -> None:
        found = self._origins[run.path].snapshot() if run.path in self._origins else Experiment.of(run)
        found.keep(self._environments)
        self.experiment = found
        self._do_choose(lambda: f'The settings of {run.name} are in the fields above.')
        self.view.value = 'preview'

    def _load(self, run: Any) -> str:
        self.agent = run.load(net_list=self._made_of(run)[1])
        return f'The attribute agent of this dashboard is the {run.algorithm} of {run.name}, step {self.agent.steps:,}.'

    def _save(self, run: Any) -> str:
        wanted = self.save_path.value.strip()
        if not wanted:
            raise ValueError('no folder is given: write one beside the button, such as agents/best.')
        path = run.load(net_list=self._made_of(run)[1]).save(wanted)
        return f"The agent of {run.name} is saved: zoo.load('{path}') loads it."

    # Words

    def say(self, words: str, wrong: bool = False) -> None:
        """Show a sentence at the top."""
        kind = 'zoo-wrong' if wrong else 'zoo-note'
        self.message.value = f'<p class="{kind}">{html.escape(words)}</p>' if words else ''

    @property
    def said(self) -> str:
        """The sentence at the top."""
        shown = self.message.value
        return html.unescape(shown.partition('>')[2].rpartition('</p>')[0])

    def _told(self, do: Callable[[], Any], keep: bool = False) -> None:
        """Do something, and tell what it says or what it refuses.

        Args:
            do: returns a sentence or nothing.
            keep: let the sentence that is shown stay, if there is no new one.
        """
        with self._lock:
            try:
                words = do()
            except Exception as error:
                self.say(parts.sentence(error), wrong=True)
                return
            if isinstance(words, str):
                self.say(words)
            elif not keep:
                self.say('')

    def _show_view(self) -> None:
        self._stage.children = (self._views[self.view.value],)


def _spaces(observation: str, action: str, fitting: Iterable[str]) -> str:
    fit = ' '.join(f'<span>{name}</span>' for name in fitting)
    return (
        f'<h5>observation</h5><code>{html.escape(observation)}</code><h5>action</h5><code>{html.escape(action)}</code>'
        f'<h5>algorithms that act in it</h5><div class="zoo-chips">{fit}</div>'
    )
