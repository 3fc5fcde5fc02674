"""Settings in YAML: numbers as Python writes them, ``Linear(…)`` schedules, and no name twice."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

import yaml

from zoo.common.schedules import Linear
from zoo.common.tools.errors import InvalidValue
from zoo.common.tools.files import as_path
from zoo.common.tools.literals import read_literal

#: YAML 1.1, which PyYAML reads, takes ``1e-4`` and ``None`` for texts.
_FLOAT = re.compile(r'^[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$')
_NONE = re.compile(r'^None$')


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        names: set[str] = set()
        for key, _ in node.value:
            if key.tag == 'tag:yaml.org,2002:merge':
                continue
            name = self.construct_object(key, deep=True)
            if not isinstance(name, str):
                raise _at(key, f'{name!r} is no name: write it in quotes')
            if name in names:
                raise _at(key, f'{name!r} stands there twice: leave one of them out')
            names.add(name)
        return super().construct_mapping(node, deep)

    def construct_text(self, node: Any) -> Any:
        text = self.construct_scalar(node)
        if not text.startswith('Linear('):
            return text
        try:
            return read_literal(text)
        except InvalidValue as error:
            raise _at(node, f'{text!r} is refused, {str(error).rstrip(".")}') from None
        except (ValueError, SyntaxError, TypeError):
            told = f'{text!r} is no schedule: write Linear(start, end, until), inside brackets in quotes'
            raise _at(node, told) from None


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True

    def serialize(self, node: Any) -> None:
        node.flow_style = False  # a line for each name, whatever its value
        super().serialize(node)


for _kind in (_Loader, _Dumper):  # the dumper too: it quotes a text that would be read as a number
    _kind.add_implicit_resolver('tag:yaml.org,2002:float', _FLOAT, list('-+0123456789'))
    _kind.add_implicit_resolver('tag:yaml.org,2002:null', _NONE, ['N'])
_Loader.add_constructor('tag:yaml.org,2002:str', _Loader.construct_text)
_Dumper.add_representer(Linear, lambda dumper, value: dumper.represent_str(repr(value)))


def read_yaml(path: str | os.PathLike[str], what: str) -> dict[str, Any]:
    """Return the names and values in a YAML file.

    Raises:
        ValueError: the file is missing, is not YAML, or holds something else; the message calls it ``what``.
    """
    path = as_path(path, what)
    try:
        found = yaml.load(path.read_text(encoding='utf-8'), _Loader)  # a SafeLoader: nothing is executed
    except yaml.YAMLError as error:
        mark, problem = getattr(error, 'problem_mark', None), getattr(error, 'problem', None)
        line = '' if mark is None else f', line {mark.line + 1}'
        told = ' '.join(str(problem or error).split()).rstrip('.')
        raise InvalidValue(f"{what} '{path}'{line}: {told}.") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, 'strerror', None) or 'it is not text in UTF-8'
        raise InvalidValue(f"{what} '{path}' cannot be read: {reason}.") from None
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise InvalidValue(f"{what} '{path}' holds {found!r:.40}: give names and values, such as gamma: 0.98.")
    return dict(found)


def to_yaml(values: Mapping[str, Any]) -> str:
    """Return names and values as YAML, which :func:`read_yaml` reads to the last bit of every number."""
    style = {'sort_keys': False, 'default_flow_style': None, 'allow_unicode': True, 'width': 110}
    text: str = yaml.dump(dict(values), Dumper=_Dumper, **style)
    return text


def _at(node: Any, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
