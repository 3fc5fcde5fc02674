"""The page: its parts, and what each button does."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from importlib import resources
from pathlib import Path
from typing import Any

import ipywidgets as widgets

import zoo
from zoo.common.tools.errors import InvalidValue
from zoo.dashboard import parts
from zoo.dashboard.choices import Choices
from zoo.dashboard.experiment import Experiment
from zoo.dashboard.form import Form
from zoo.dashboard.preview import Preview
from zoo.dashboard.program import experiment_of, program_for, program_of
from zoo.dashboard.runs import PROGRAM, Runs
from zoo.dashboard.table import RunsTable
from zoo.dashboard.training import BackgroundTraining, Filming
from zoo.dashboard.watch import FilmView, Watch

#: Seconds between two updates of the page while it trains; seconds between two updates of the table.
_LOOK, _TABLE = 0.5, 5.0
#: What a notebook shows in place of the page while no kernel stands behind it.
_RUN_AGAIN = 'The dashboard is not connected: run this cell again.'
#: The same as HTML, hidden while the page is shown. JupyterLab shows several notebooks in one document; other front
#: ends put outputs elsewhere, so there any page in the document hides it.
_AGAIN = (
    f'<p class="zoo-run-again">{_RUN_AGAIN}</p><style>body:has(.zoo-dashboard) .zoo-run-again {{ display: none }} '
    '.jp-OutputArea:not(:has(.zoo-dashboard)) .zoo-run-again { display: block !important }</style>'
)


class Dashboard(widgets.Box):
    """Choose, edit, train, watch and compare agents in a notebook.

    >>> from zoo.dashboard import Dashboard
    >>> Dashboard()

    A training runs in its own process, so other cells run meanwhile. When the notebook's kernel ends, the training is
    interrupted as with Ctrl-C: it is saved and can be resumed.

    Args:
        environments: classes and functions that make environments, to choose under the type ``'gymnasium'`` besides
            the environment classes that the notebook defines.
        runs: folder of the runs; None: the folder that the variable ``ZOO_RUNS`` names, else ``runs``.
        env_type, env_id, alg: what is chosen at first.

    Attributes:
        experiment: what is chosen and edited.
        training: the training that is shown; None before the first.
        agent: the agent that the button *load* loaded; None before.

    Raises:
        ValueError, ImportError: ``env_type``, ``env_id`` or ``alg`` is unknown, or a package is not installed.
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
        self.training: BackgroundTraining | None = None
        self.agent: object | None = None
        self.folder = Path(runs or os.environ.get('ZOO_RUNS') or 'runs').expanduser().absolute()
        self._origins: dict[Path, Experiment] = {}  # what the folders of this page's runs may not say
        self._lock = threading.RLock()
        self._follower: threading.Thread | None = None
        self._table_due = 0.0
        self._fields = self._fields_then = ''  # the fields as a program: now, and when the shown training began
        self.message, self.runs_message = parts.Message(), parts.Message()
        self.watch = Watch()
        self.choices = Choices(lambda: self.experiment, self._do_choose)
        self.seen = Preview()
        self.form = Form(lambda: self.experiment, self._show_experiment, self._refusal)
        self._make_buttons()
        self.table = RunsTable(Runs(self.folder), self._told_of_runs, self.runs_message, self._actions(), program_of)
        self._views = {
            'preview': parts.box(self.seen.box, kind='zoo-view'),
            'program': parts.box(self.seen.program, kind='zoo-view'),
        }
        self.view = widgets.ToggleButtons(
            options=[('Environment & networks', 'preview'), ('Training', 'training'), ('Program', 'program')]
        )
        self.view.add_class('zoo-tabs')
        self.view.observe(lambda _: self._show_view(), 'value')
        self._stage = parts.box(kind='zoo-stage')
        style = (resources.files('zoo.dashboard') / 'style.css').read_text(encoding='utf-8')
        styled = parts.text(f'<style>{style}</style>', 'zoo-style')
        head = parts.text('<h2>zoo</h2><span>agents, from the environment to the curve</span>', 'zoo-head-line')
        chosen = parts.box(
            parts.card('Environment', self.choices.environment_box),
            parts.card('Algorithm', self.choices.algorithm_box),
            kind='zoo-chosen',
        )
        right = parts.box(self.view, self._control_box, self.message.box, self._stage, kind='zoo-card zoo-right')
        grid = parts.box(parts.card('Parameters', self.form.box), right, kind='zoo-grid')
        super().__init__([styled, head, chosen, grid, parts.card('Runs', self.table.box)])
        self.add_class('zoo-dashboard')
        self.choices.show()
        self._show_experiment()

    def _ipython_display_(self) -> None:
        """Show the page, and a line of HTML that is seen wherever the page is not, as in a notebook opened again."""
        from IPython.display import display

        display({'text/html': _AGAIN, 'text/plain': _RUN_AGAIN}, raw=True)
        display(self._repr_mimebundle_() | {'text/plain': _RUN_AGAIN}, raw=True)

    def _show_experiment(self) -> None:
        self._fields = program_for(self.experiment)
        self.seen.show(self.experiment)
        self._show_view()
        self._show_buttons()

    def _do_choose(self, choose: Callable[[], str | None], field: parts.Checked) -> None:
        def do() -> None:
            self.message.say(choose() or '')

        with self._lock:
            field.refuse(self._refusal(do))
            self.choices.show()
            self.form.show()
            self._show_experiment()

    # Training

    def _make_buttons(self) -> None:
        self.start_button = parts.button('Train', self.start, 'in a process of its own', 'zoo-primary', 'play')
        self.pause_button = parts.button('Pause', self.pause, 'at the next update', icon='pause')
        told = 'as Ctrl-C: it saves and can be resumed; a second click does not wait for an update'
        self.stop_button = parts.button('Stop', self.stop, told, icon='stop')
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
        refused = [*self.choices.refused, *self.form.refused()]
        if refused:
            raise InvalidValue(f'not started, since a value is refused: correct {", ".join(refused)} first.')
        self.folder.mkdir(parents=True, exist_ok=True)
        snapshot = self.experiment.snapshot()
        self._follow(BackgroundTraining.start(self.experiment.order(), self.folder), snapshot)

    def resume(self, run: Any) -> None:
        """Resume an interrupted run, given as for ``zoo.open_run``."""
        self._told(lambda: self._resume(zoo.open_run(run)))

    def _resume(self, run: Any) -> None:
        self._refuse_second()
        env, net_list = self._made_of(run)
        self._follow(BackgroundTraining.resume(run.path, env, net_list), self._origins.get(run.path))

    def _refuse_second(self) -> None:
        if self.training is not None and self.training.alive:
            raise InvalidValue('a training is under way: stop it first, or wait for its end.')

    def _follow(self, training: BackgroundTraining, origin: Experiment | None) -> None:
        self.training = training
        self._origin = origin
        # Made here: a click may come in another thread while the last edit is still being shown.
        self._fields = self._fields_then = program_for(self.experiment)
        self._table_due = 0.0
        self.watch.clear()
        self.view.value = 'training'
        self._show_view()
        self.tick()
        self._begin_looking()

    def _begin_looking(self) -> None:
        if self._follower is None or not self._follower.is_alive():
            self._follower = threading.Thread(target=self._look, name='zoo-dashboard', daemon=True)
            self._follower.start()

    def _look(self) -> None:
        """Update the page from a thread while something happens, so that a running cell does not block it."""
        while self._busy:
            time.sleep(_LOOK)
            self._told(self.tick, keep=True)
        self._told(self.tick, keep=True)

    @property
    def _busy(self) -> bool:
        training = self.training is not None and self.training.alive
        return training or self.watch.film.filming or self.table.film.filming

    def tick(self) -> None:
        """Bring the page up to date."""
        with self._lock:
            self.watch.film.poll()
            self.table.film.poll()
            training = self.training
            if training is None:
                return
            was, known = training.state, training.run_dir
            training.poll()
            if training.run_dir is not None and known is None and self._origin is not None:
                self._origins[training.run_dir] = self._origin
                kept = training.run_dir / PROGRAM
                if not kept.exists():
                    kept.write_text(program_for(self._origin), encoding='utf-8')
            if training.run_dir is not None and known is None:
                self._table_due = 0.0  # the new run is in the table at once
            self.watch.show(training)
            self._show_view()
            self._show_buttons()
            now = time.monotonic()
            ended = was != training.state and not training.alive
            if ended or now >= self._table_due:
                began = time.monotonic()
                self.table.show()
                self._table_due = time.monotonic() + max(_TABLE, 25 * (time.monotonic() - began))
            if ended and training.state in ('ended', 'stopped') and training.run_dir is not None:
                run = zoo.open_run(training.run_dir)
                if run.checkpoints:
                    self.watch.film.clear()  # a film that is being made has an earlier agent
                    self._film(run, self.watch.film)

    def pause(self) -> None:
        """Pause the training, or let it go on."""

        def do() -> None:
            if self.training is not None:
                (self.training.go_on if self.training.state in ('paused', 'pausing') else self.training.pause)()
                self.tick()

        self._told(do)

    def stop(self) -> None:
        """Stop the training, which saves and can be resumed; the second call does not wait for an update."""

        def do() -> None:
            if self.training is not None:
                (self.training.interrupt if self.training.state == 'stopping' else self.training.stop)()
                self.tick()

        self._told(do)

    def film(self) -> None:
        """Film an episode of the newest checkpoint of the shown training."""

        def do() -> None:
            if self.training is None or self.training.run_dir is None:
                raise InvalidValue('nothing has been trained yet: there is no agent to film.')
            self._film(zoo.open_run(self.training.run_dir), self.watch.film)

        self._told(do)

    def _film(self, run: Any, view: FilmView) -> None:
        if view.filming:
            raise InvalidValue('a film is in the making: wait for it.')
        if not run.checkpoints:
            when = 'one is written every checkpoint_every steps, and when it stops'
            raise InvalidValue(f'{run.name} has no checkpoint yet: {when}.')
        view.begin(Filming(run, *self._made_of(run)))
        self._begin_looking()

    def _made_of(self, run: Any) -> tuple[dict[str, Any] | None, list[Any] | None]:
        """Return what the folder of a run of this page cannot say: arguments of ``build_env``, and networks."""
        origin = self._origins.get(run.path)
        if origin is None or not origin.is_own():
            return None, None
        order = origin.order()
        names = ('env_id', 'env_type', 'seed', 'nenv', 'vectorized')
        named = isinstance(order['env_id'], str)
        env = None if named else {name: order[name] for name in names} | order['env_params']
        return env, order.get('net_list') if origin.has_sources() else None

    def _show_buttons(self) -> None:
        state = None if self.training is None else self.training.state
        alive, paused = self.training is not None and self.training.alive, state in ('paused', 'pausing')
        self.start_button.disabled = alive
        self.pause_button.disabled = state != 'training' and not paused
        self.pause_button.description, self.pause_button.icon = ('Go on', 'play') if paused else ('Pause', 'pause')
        self.stop_button.disabled = not alive
        self.stop_button.description = 'Stop now' if state == 'stopping' else 'Stop'
        self.film_button.disabled = self.training is None or self.training.run_dir is None or not self._is_current

    # Runs

    def _actions(self) -> list[Any]:
        self.save_path = widgets.Text(placeholder='folder to save the agent in')
        resume, film, take, load, save = (
            parts.button(label, self._on_opened(do), told, icon=icon)
            for label, do, told, icon in (
                ('resume', self._resume_opened, 'go on with a run that was interrupted', 'play'),
                ('film', self._film_opened, 'an episode of its newest checkpoint', 'film'),
                ('take over', self._take, 'its settings into the fields above', 'arrow-up'),
                ('load', self._load, 'its agent, as the attribute agent of this dashboard', ''),
                ('save', self._save, 'its agent into that folder', 'save'),
            )
        )
        return [resume, film, take, load, self.save_path, save]

    def _on_opened(self, do: Callable[[Any], Any]) -> Callable[[], None]:
        def on_click() -> None:
            row = self.table.opened
            if row is not None:
                self._told_of_runs(lambda: do(zoo.open_run(row.run.path)))

        return on_click

    def _resume_opened(self, run: Any) -> str:
        self._resume(run)
        return f'{run.name} goes on: the view Training above shows it.'

    def _film_opened(self, run: Any) -> None:
        self._film(run, self.table.film)

    def _take(self, run: Any) -> str:
        found = self._origins[run.path].snapshot() if run.path in self._origins else experiment_of(run)
        found.keep(self._environments)
        self.experiment = found
        self.choices.accept()
        self.form.accept()
        self.choices.show()
        self.form.show()
        self._show_experiment()
        self.view.value = 'preview'
        return f'The settings of {run.name} are in the fields above.'

    def _load(self, run: Any) -> str:
        self.agent = agent = run.load(net_list=self._made_of(run)[1])
        return f'The attribute agent of this dashboard is the {run.algorithm} of {run.name}, step {agent.steps:,}.'

    def _save(self, run: Any) -> str:
        wanted = self.save_path.value.strip()
        if not wanted:
            raise InvalidValue('no folder is given: write one beside the button, such as agents/best.')
        path = run.load(net_list=self._made_of(run)[1]).save(wanted)
        return f"The agent of {run.name} is saved: zoo.load('{path}') loads it."

    # Words

    def _refusal(self, do: Callable[[], Any]) -> str:
        """Do something; return the sentence that refuses it, or an empty one."""
        with self._lock:
            try:
                do()
            except Exception as error:
                return parts.sentence(error)
            return ''

    def _told(self, do: Callable[[], Any], keep: bool = False, message: parts.Message | None = None) -> None:
        """Do something, and show the sentence that it returns or its error; with ``keep`` else the shown one stays."""
        message = message or self.message
        with self._lock:
            try:
                words = do()
            except Exception as error:
                message.say(parts.sentence(error), wrong=True)
                return
            if isinstance(words, str):
                message.say(words)
            elif not keep:
                message.say('')

    def _told_of_runs(self, do: Callable[[], Any]) -> None:
        self._told(do, message=self.runs_message)

    @property
    def _is_current(self) -> bool:
        """Whether the last training is the one to show: it is under way, or the fields are as it has left them."""
        if self.training is None:
            return False
        return self.training.alive or self._fields == self._fields_then

    def _show_view(self) -> None:
        if self.view.value == 'training':
            if self.training is not None:
                self.watch.tell_changed(self._fields != self._fields_then)
            shown = self.watch.box if self._is_current else self.watch.idle
        else:
            shown = self._views[self.view.value]
        if self._stage.children != (shown,):
            self._stage.children = (shown,)
