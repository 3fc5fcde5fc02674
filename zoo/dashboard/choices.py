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

#: The names of fields on the page, where they differ from the names of arguments.
_LABELS = {'nenv': 'copies', 'vectorized': 'they run', 'dtype': 'precision', 'recurrent': 'memory', 'evaluate': 'tests'}
#: The fields that name the environment.
_OF_NAME = ('env_type', 'env_id', 'other_env')


class Choices:
    """Fields for the environment, the algorithm and their arguments.

    Args:
        experiment: a function that returns the experiment.
        choose: runs a choice, marks its field if it is refused, and brings the page up to date.
    """

    def __init__(
        self, experiment: Callable[[], Experiment], choose: Callable[[Callable[[], str | None], parts.Checked], Any]
    ) -> None:
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
        self.fields = {
            'env_type': parts.labeled('type', self.env_type),
            'env_id': parts.labeled('environment', self.env_id),
            'other_env': parts.labeled('or by its name', self.other_env),
            'env_params': parts.labeled(
                'other arguments', self.env_params, 'of build_env and the environment’s constructor'
            ),
            'alg': parts.labeled('algorithm', self.alg),
        }
        for name, widget in self.arguments.items():
            self.fields[name] = parts.labeled(_LABELS.get(name, name), widget, ARGUMENTS[name][2])
            widget.observe(partial(self._argument, name), 'value')
        self.env_type.observe(lambda change: self._chose('env_type', env_type=change.new), 'value')
        self.env_id.observe(lambda change: self._chose('env_id', env_id=change.new), 'value')
        self.other_env.observe(lambda change: self._chose('other_env', env_id=change.new.strip() or None), 'value')
        self.alg.observe(lambda change: self._chose('alg', alg=change.new), 'value')
        self.env_params.observe(lambda change: self._typed('env_params', change.new), 'value')
        self.environment_box = parts.box(
            self._row('env_type', 'env_id', 'other_env'),
            self._row('seed', 'nenv', 'vectorized', 'env_params'),
            kind='zoo-choices',
        )
        self.algorithm_box = parts.box(
            parts.box(self.fields['alg'].box, self.summary, kind='zoo-row zoo-alg'),
            self._row('layers', 'dtype', 'recurrent', 'evaluate'),
            kind='zoo-choices',
        )

    def _row(self, *names: str) -> Any:
        return parts.box(*(self.fields[name].box for name in names), kind='zoo-row')

    @property
    def refused(self) -> list[str]:
        """The labels of the fields whose values are refused."""
        return [field.label for field in self.fields.values() if field.refusal]

    def _names(self) -> list[str]:
        chosen = self._experiment()
        names = chosen.environments(chosen.env_type)
        return names if chosen.env_id in names else [chosen.env_id, *names]  # an older version

    def _chose(self, name: str, **choice: Any) -> None:
        self._try(name, lambda: self._experiment().choose(**choice))

    def _argument(self, name: str, change: Any) -> None:
        options = ARGUMENTS[name][1]
        if options is None:
            self._typed(name, change.new)
        else:
            self._chose(name, **{name: options[change.new]})

    def _typed(self, name: str, typed: str) -> None:
        self._try(name, lambda: self._experiment().type_argument(name, typed))

    def _try(self, name: str, choose: Callable[[], str | None]) -> None:
        if self._quiet:
            return
        if name == 'env_type' and self.env_type.value == self._experiment().env_type:
            self._choose(lambda: None, self.fields[name])  # back from a refused type: its environment stays
        else:
            self._choose(choose, self.fields[name])
        if name in _OF_NAME and not self.fields[name].refusal:  # which replaces what the others say
            self.accept(*_OF_NAME)
            self.show()

    def accept(self, *names: str) -> None:
        """Take the marks of refused values away; without names from all fields."""
        for name in names or self.fields:
            self.fields[name].refuse('')

    def show(self) -> None:
        """Show what is chosen. A field whose value is refused goes on showing that value."""
        chosen = self._experiment()
        self._quiet = True
        try:
            names = self._names()
            if tuple(self.env_id.options) != tuple(names):
                self.env_id.options = names
            if tuple(self.alg.options) != chosen.fitting:
                self.alg.options = chosen.fitting
            values = {'env_type': chosen.env_type, 'env_id': chosen.env_id, 'other_env': '', 'alg': chosen.alg}
            values['env_params'] = keywords(chosen.env_params)
            for name, value in chosen.arguments.items():
                options = ARGUMENTS[name][1]
                values[name] = written(value) if options is None else parts.label_of(options, value)
            for name, value in values.items():
                if not self.fields[name].refusal:
                    widget = self.arguments[name] if name in self.arguments else getattr(self, name)
                    widget.value = value
            self.fields['other_env'].box.layout.display = '' if chosen.env_type == 'gymnasium' else 'none'
        finally:
            self._quiet = False
        self.summary.value = f'<p>{html.escape(chosen.describe().summary)}</p>'
