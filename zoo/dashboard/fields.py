"""What can be edited: the arguments that are chosen, the parameters of the form, networks given by code."""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from typing import Any

from zoo.common.env_wrappers import VECTORIZED
from zoo.common.tools.errors import InvalidValue
from zoo.dashboard.values import keywords

#: Keys of a network's spec that the form does not show: they are chosen elsewhere, or follow from the seed.
_HIDDEN = ('layers', 'seed', 'dtype', 'recurrent')

#: The arguments of ``build_env``, ``call_default_params`` and ``zoo.train`` that are chosen: the default, the choices
#: by their labels (None: a text field), and the meaning.
ARGUMENTS: dict[str, tuple[Any, dict[str, Any] | None, str]] = {
    'seed': (0, None, 'of the environment, the weights and the training; None: unpredictable'),
    'nenv': (1, None, 'copies of the environment that step together; by default as the algorithm needs'),
    'vectorized': (
        False,
        {'by default': False, **{name: name for name in VECTORIZED}, 'fastest': True},
        'how the copies run: one after the other, in processes, in EnvPool, or whichever is fastest',
    ),
    'layers': ('keras', {'Keras': 'keras', 'TensorLayer': 'tensorlayer'}, 'the library of the layers'),
    'dtype': (
        None,
        {'by default': None, 'float32': 'float32', 'mixed bfloat16': 'mixed_bfloat16'},
        'precision of the networks; by default Keras’ policy',
    ),
    'evaluate': (
        True,
        {'about ten times': True, 'never': False},
        'test while it trains, in at most a tenth of the time, and keep the best agent',
    ),
    'recurrent': (None, {'none': None, 'LSTM': 'lstm', 'GRU': 'gru'}, 'a layer with a memory in every network'),
}


@dataclass(frozen=True)
class Source:
    """A network as Python code, whose last line is an expression for the network."""

    text: str

    def evaluate(self, name: str) -> Any:
        """Run the code in this process, with the names of the notebook, which it cannot change.

        Raises:
            ValueError: the code fails; the message is one sentence.
        """
        before, last = self.parts(name)
        namespace = dict(vars(sys.modules['__main__']))
        try:
            exec(before, namespace)
            return eval(last, namespace)
        except Exception as error:
            raise InvalidValue(f'{name}: this code fails with {type(error).__name__}: {error}.') from error

    def parts(self, name: str) -> tuple[str, str]:
        """Return the lines before the last expression, and the last expression."""
        try:
            body = ast.parse(self.text).body
        except SyntaxError as error:
            raise InvalidValue(f'{name}: this is no Python, at line {error.lineno}: {error.msg}.') from None
        if not body or not isinstance(body[-1], ast.Expr):
            raise InvalidValue(f'{name}: the last line has to be an expression that gives the network.')
        lines = self.text.splitlines()
        before = '\n'.join([*lines[: body[-1].lineno - 1], lines[body[-1].lineno - 1][: body[-1].col_offset]])
        return before.rstrip(), ast.unparse(body[-1])


@dataclass(frozen=True)
class Field:
    """A parameter on the page.

    Attributes:
        name: ``'gamma'``, ``'net_list[0]'``.
        group: ``'agent'``, ``'learn'``, ``'networks'`` or ``'optimizers'``.
        param: its declaration; for networks and optimizers the declaration of the whole list.
        label: its name on the page.
        text: the value as it is typed.
    """

    name: str
    group: str
    param: Any
    label: str
    default: Any
    value: Any
    text: str
    changed: bool


def entry_text(value: Any) -> str:
    """Return an entry of ``net_list`` or ``optimizers_list`` as it is typed."""
    if isinstance(value, Source):
        return value.text
    if isinstance(value, str):
        return value
    return keywords({key: x for key, x in value.items() if key not in _HIDDEN or (key == 'recurrent' and x)})
