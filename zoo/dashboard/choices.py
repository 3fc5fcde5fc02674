"""The part of the page where environment and algorithm are chosen."""

from __future__ import annotations

import html
from collections.abc import Callable
from functools import partial
from typing import Any

import ipywidgets as widgets

from zoo.common.env_wrappers import TYPES
from zoo.dashboard import parts
from zoo.dashboard.experiment import Experiment
from zoo.dashboard.fields import ARGUMENTS
from zoo.dashboard.values import keywords, written


class Choices:
    """Fields for the environment, the algorithm and their arguments.

    Args:
        experiment: a function that returns the experiment.
        choose: runs a choice and brings the page up to date.
    """

    def __init__(self, experiment: Callable[[], Experiment], choose: Callable[[Callable[[], str | None]], Any]) -> None:
        self._experiment = experiment
        self._choose = choose
        self._quiet = False
        chosen = experiment()
        self.env_type = widgets.Dropdown(options=tuple(TYPES), value=chosen.env_type)
        self.env_id = widgets.Dropdown(options=self._names())
        self.other_env = widgets.Text(placeholder="another registered name, 'package:Name-v0'", continuous_update=False)
        self.env_params = widgets.Text(placeholder='max_episode_steps=200', continuous_update=False)
        self.arguments: dict[str, Any] = {
            name: widgets.Text(continuous_update=False) if options is None else parts.choice(options, default)
            for name, (default, options, _) in ARGUMENTS.items()
        }
        self.alg = widgets.Dropdown(options=chosen.fitting)
        self.summary = parts.text(kind='zoo-faint')
        self.env_type.observe(lambda change: self._chose(env_type=change.new), 'value')
        self.env_id.observe(lambda change: self._chose(env_id=change.new), 'value')
        self.other_env.observe(lambda change: self._chose(env_id=change.new.strip() or None), 'value')
        self.alg.observe(lambda change: self._chose(alg=change.new), 'value')
        self.env_params.observe(lambda change: self._typed('env_params', change.new), 'value')
        for name, widget in self.arguments.items():
            widget.observe(partial(self._argument, name), 'value')
        self._other_box = parts.labeled('or by its name', self.other_env)
        self.environment_box = parts.box(
            parts.labeled('type', self.env_type),
            parts.labeled('environment', self.env_id),
            self._other_box,
            self._fields(seed='seed', nenv='copies', vectorized='they run'),
            parts.labeled('other arguments', self.env_params, 'of build_env and the environment’s constructor'),
            kind='zoo-choices',
        )
        self.algorithm_box = parts.box(
            parts.labeled('algorithm', self.alg),
            self.summary,
            self._fields(layers='layers', dtype='precision', recurrent='memory'),
            self._fields(evaluate='tests'),
            kind='zoo-choices',
        )

    def _fields(self, **labels: str) -> Any:
        found = [parts.labeled(label, self.arguments[name], ARGUMENTS[name][2]) for name, label in labels.items()]
        return parts.box(*found, kind='zoo-three')

    def _names(self) -> list[str]:
        chosen = self._experiment()
        names = chosen.environments(chosen.env_type)
        return names if chosen.env_id in names else [chosen.env_id, *names]  # an older version

    def _chose(self, **choice: Any) -> None:
        if not self._quiet:
            self._choose(lambda: self._experiment().choose(**choice))

    def _argument(self, name: str, change: Any) -> None:
        options = ARGUMENTS[name][1]
        if options is None:
            self._typed(name, change.new)
        else:
            self._chose(**{name: options[change.new]})

    def _typed(self, name: str, typed: str) -> None:
        if not self._quiet:
            self._choose(lambda: self._experiment().type_argument(name, typed))

    def show(self) -> None:
        """Show what is chosen; after a refusal this is what was chosen before."""
        chosen = self._experiment()
        self._quiet = True
        try:
            self.env_type.value = chosen.env_type
            names = self._names()
            if tuple(self.env_id.options) != tuple(names):
                self.env_id.options = names
            self.env_id.value = chosen.env_id
            self.other_env.value = ''
            self._other_box.layout.display = '' if chosen.env_type == 'gymnasium' else 'none'
            if tuple(self.alg.options) != chosen.fitting:
                self.alg.options = chosen.fitting
            self.alg.value = chosen.alg
            self.env_params.value = keywords(chosen.env_params)
            for name, widget in self.arguments.items():
                value = chosen.arguments[name]
                options = ARGUMENTS[name][1]
                widget.value = written(value) if options is None else parts.label_of(options, value)
        finally:
            self._quiet = False
        self.summary.value = f'<p>{html.escape(chosen.describe().summary)}</p>'
