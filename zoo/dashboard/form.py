"""The form of the parameters: a field and the meaning of each; edited ones are marked."""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import Any

import ipywidgets as widgets

from zoo.dashboard.experiment import Experiment
from zoo.dashboard.fields import Field, Source, entry_text
from zoo.dashboard.parts import Checked, box, button, choice, label_of, text

#: The groups of parameters and their titles.
GROUPS = {'networks': 'Networks', 'agent': 'Algorithm', 'learn': 'Learning', 'edited': 'Edited'}

_SPECS = {
    '64, 64 · tanh': {'hidden': [64, 64], 'activation': 'tanh'},
    '256, 256 · relu': {'hidden': [256, 256], 'activation': 'relu'},
    '400, 300 · relu': {'hidden': [400, 300], 'activation': 'relu'},
}
_SPEC, _CODE = 'as written below', 'Python code'
_EXAMPLE = """import keras

keras.Sequential([
    keras.layers.Dense(64, activation='tanh'),
    keras.layers.Dense(64, activation='tanh'),
])"""


class ParameterRow:
    """A parameter on the page.

    Args:
        field: the parameter.
        edit: called with the name and what was typed or chosen.
        reset: called with the name.
        torsos: the networks whose torso a network may share.

    Attributes:
        checked: the field, which marks a refused value.
        given: what was typed or chosen last.
    """

    def __init__(
        self, field: Field, edit: Callable[[str, Any], Any], reset: Callable[[str], Any], torsos: tuple[str, ...] = ()
    ) -> None:
        self.name = field.name
        self._edit = edit
        self._quiet = False
        self.given: Any = field.value
        self.label = text(kind='zoo-param-label')
        self.reset = button('', lambda: reset(field.name), 'back to the default', 'zoo-reset', 'undo')
        self.pick: Any = None
        self.code: Any = None
        self.options: dict[Any, Any] = {}
        self.input = self._field(field)
        parts = [self.input]
        if field.group == 'networks':
            options = [_SPEC, *_SPECS, *(f'torso of {name}' for name in torsos), _CODE]
            self.pick = widgets.Dropdown(options=options, value=_SPEC)
            self.pick.observe(self._picked, 'value')
            self.code = widgets.Textarea(continuous_update=False, placeholder=_EXAMPLE, rows=7)
            self.code.add_class('zoo-code')
            self.code.observe(lambda change: self._given(Source(change.new)), 'value')
            parts = [self.pick, self.input, self.code]
        inputs, meaning = box(*parts, kind='zoo-param-input'), text(_meaning(field), 'zoo-param-meaning')
        self.checked = Checked(field.name, self.label, inputs, self.reset, meaning, kind='zoo-param')
        self.box = self.checked.box
        if field.group in ('networks', 'optimizers'):
            self.box.add_class('zoo-param-wide')
        self.show(field)

    def _field(self, field: Field) -> Any:
        param = field.param
        if field.group in ('agent', 'learn') and param.kind == 'flag':
            found = widgets.Checkbox(indent=False)
        elif field.group in ('agent', 'learn') and param.kind == 'choice':
            self.options = {str(option): option for option in (*param.choices, *([None] if param.optional else []))}
            found = choice(self.options, field.value)
        elif field.group in ('agent', 'learn') and (param.choices or param.optional):
            options = [*(str(option) for option in param.choices), *(['None'] if param.optional else [])]
            found = widgets.Combobox(options=options, continuous_update=False)
        else:
            found = widgets.Text(continuous_update=False)
        found.observe(lambda change: self._given(self.options.get(change.new, change.new)), 'value')
        return found

    def _given(self, value: Any) -> None:
        if not self._quiet:
            self.given = value
            self._edit(self.name, value)

    def _picked(self, change: Any) -> None:
        if self._quiet:
            return
        if change.new == _CODE:
            self._code_shown(True)
        elif change.new == _SPEC:
            self._given(self.input.value)  # empty in place of code, which gives the default
        elif change.new in _SPECS:
            self._given(_SPECS[change.new])
        else:
            self._given(change.new.removeprefix('torso of '))

    def _code_shown(self, shown: bool) -> None:
        self.code.layout.display = '' if shown else 'none'
        self.input.layout.display = 'none' if shown else ''

    def show(self, field: Field) -> None:
        """Show the value of the parameter. A field whose value is refused goes on showing that value."""
        if not self.checked.refusal:
            self._quiet = True
            try:
                self._show_value(field)
            finally:
                self._quiet = False
        self.label.value = _label(field)
        (self.box.add_class if field.changed else self.box.remove_class)('zoo-edited')
        self.reset.layout.visibility = 'visible' if field.changed or self.checked.refusal else 'hidden'

    def _show_value(self, field: Field) -> None:
        if self.pick is not None:
            code = isinstance(field.value, Source)
            self.pick.value = _CODE if code else _SPEC
            self.code.value = field.text if code else ''
            self._code_shown(code)
            self.input.value = '' if code else field.text
        elif isinstance(self.input, widgets.Text):
            self.input.value = field.text
        else:
            self.input.value = label_of(self.options, field.value) if self.options else field.value


def _is_shown(field: Field, group: str, wanted: list[str], refused: bool) -> bool:
    """Whether a parameter is in a group; with ``wanted`` words, whether it has them all, in any group."""
    if wanted:
        return all(word in f'{field.name} {field.label} {field.param.meaning}'.lower() for word in wanted)
    own = 'networks' if field.group == 'optimizers' else field.group
    return own == group or (group == 'edited' and (field.changed or refused))


def _label(field: Field) -> str:
    default = entry_text(field.default) if field.group in ('networks', 'optimizers') else str(field.default)
    default = default if len(default) <= 60 else f'{default[:59]}…'
    was = f' <em>default {html.escape(default)}</em>' if field.changed else ''
    label = f'optimizer: {field.label}' if field.group == 'optimizers' else field.label
    return f'<b>{html.escape(label)}</b>{was}'


def _meaning(field: Field) -> str:
    if field.group == 'networks':
        meaning = 'a spec, a torso shared with another network, or code, which runs in this notebook as a cell would'
    elif field.group == 'optimizers':
        meaning = 'name, learning_rate, clip_norm and what else Keras’ optimizer of that name takes'
    else:
        meaning = field.param.meaning
    kind = field.param.type_name if field.group in ('agent', 'learn') else ''
    return f'<p>{html.escape(meaning)}{f" <small>{html.escape(kind)}</small>" if kind else ""}</p>'


class Form:
    """All parameters of an experiment.

    Args:
        experiment: a function that returns the experiment.
        edited: called after an edit.
        refusal: runs a function and returns the sentence that refuses it; empty if nothing does.
    """

    def __init__(
        self,
        experiment: Callable[[], Experiment],
        edited: Callable[[], Any],
        refusal: Callable[[Callable[[], Any]], str],
    ) -> None:
        self._experiment = experiment
        self._edited = edited
        self._refusal = refusal
        self._rows: dict[tuple[str, str], ParameterRow] = {}
        self._quiet = False
        self.group = widgets.ToggleButtons(options=[(label, name) for name, label in GROUPS.items()], value='networks')
        self.group.add_class('zoo-tabs')
        self.group.observe(lambda _: None if self._quiet else self.show(), 'value')
        self.filter = widgets.Text(placeholder='find a parameter', continuous_update=True)
        self.filter.add_class('zoo-filter')
        self.filter.observe(lambda _: self.show(), 'value')
        self.reset = button('reset all', lambda: self._reset(None), 'all of this algorithm back to the defaults')
        self.list = box(kind='zoo-params')
        self.box = box(box(self.group, kind='zoo-bar'), box(self.filter, self.reset, kind='zoo-bar'), self.list)
        self.box.add_class('zoo-form')
        self.show()

    def row(self, name: str) -> ParameterRow:
        """Return the row of a parameter of the chosen algorithm."""
        experiment = self._experiment()
        key = (experiment.alg, name)
        if key not in self._rows:
            self._rows[key] = ParameterRow(experiment.field(name), self._edit, self._reset, experiment.torsos(name))
        return self._rows[key]

    def refused(self) -> dict[str, ParameterRow]:
        """Return the rows of the chosen algorithm whose values are refused, by name."""
        alg = self._experiment().alg
        return {name: row for (of, name), row in self._rows.items() if of == alg and row.checked.refusal}

    def accept(self) -> None:
        """Take the marks of refused values away."""
        for row in self._rows.values():
            row.checked.refuse('')

    def show(self) -> None:
        experiment = self._experiment()
        fields, refused = experiment.fields(), self.refused()
        edited = sum(field.changed or field.name in refused for field in fields)
        titles = GROUPS | ({'edited': f'{GROUPS["edited"]} · {edited}'} if edited else {})
        labels = [(title, name) for name, title in titles.items()]
        if tuple(self.group.options) != tuple(labels):  # setting them forgets the choice
            chosen, self._quiet = self.group.value, True
            self.group.options, self.group.value = labels, chosen
            self._quiet = False
        wanted, group = self.filter.value.lower().split(), self.group.value
        shown = [self.row(field.name).box for field in fields if _is_shown(field, group, wanted, field.name in refused)]
        for field in fields:
            if (experiment.alg, field.name) in self._rows:
                self.row(field.name).show(field)
        if not shown:
            empty = 'no parameter is called so' if wanted else 'every parameter is at its default'
            shown = [text(f'<p class="zoo-empty">{empty}</p>')]
        self.list.children = tuple(shown)
        self.reset.disabled = not edited

    def _edit(self, name: str, value: Any) -> None:
        self._try(name, value)
        refused = self.refused()
        if name not in refused:  # some values are valid only together
            for other, row in refused.items():
                self._try(other, row.given)
        self.show()
        self._edited()

    def _try(self, name: str, value: Any) -> None:
        """Set a parameter; a refused value stays in its field, with the reason."""
        experiment = self._experiment()

        def edit() -> None:
            field = experiment.field(name)
            typed = isinstance(value, str) and not (field.group in ('agent', 'learn') and field.param.kind == 'choice')
            if not typed or value != field.text:
                (experiment.type if typed else experiment.set)(name, value)

        self.row(name).checked.refuse(self._refusal(edit))

    def _reset(self, name: str | None) -> None:
        for refused, row in self.refused().items():
            if name is None or name == refused:
                row.checked.refuse('')
        self._experiment().reset(name)
        self.show()
        self._edited()
