"""The directive ``pseudocode``: an algorithm in a few lines, each with a link to the lines of the file that do it.

    ```{pseudocode} zoo/algorithms/td3.py
    y ← r + γ (1 − terminated) min Q′(s′, ã)      | return batch.reward + batch.discount * next_q
    θ′ ← τ θ + (1 − τ) θ′                         | zoo/common/maths/optimizers.py: def polyak
    repeat
    ```

After the last ``|`` stands a part of the line that is meant, in the file of the directive or in another one that is
named. It has to occur in exactly one line of that file, so that a change of the file shows up when the site is built.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from repository import ROOT
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

_OTHER_FILE = re.compile(r'([\w/]+\.py): (.+)')


def line_of(path: str, part: str) -> int:
    """Return the number of the one line of a file that contains a text."""
    lines = (ROOT / path).read_text(encoding='utf-8').splitlines()
    found = [number for number, line in enumerate(lines, 1) if part in line]
    if len(found) != 1:
        raise ValueError(f'{part!r} occurs in {len(found)} lines of {path}; a line of pseudocode needs exactly one.')
    return found[0]


class Pseudocode(SphinxDirective):
    """The directive; see the module."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        main = self.arguments[0]
        files = {main}
        block = nodes.literal_block('a block with links is not highlighted', '', classes=['pseudocode'])
        for i, line in enumerate(self.content):
            if i:
                block += nodes.Text('\n')
            text, bar, part = line.rpartition('|')
            if not bar:
                block += nodes.Text(line)
                continue
            text, part = text.rstrip(), part.strip()
            other = _OTHER_FILE.fullmatch(part)
            path, part = (other[1], other[2]) if other else (main, part)
            files.add(path)
            try:
                number = line_of(path, part)
            except (ValueError, OSError) as error:
                raise self.error(str(error)) from None
            indent = text[: len(text) - len(text.lstrip())]
            block += nodes.Text(indent)
            link = nodes.reference('', text.strip(), refuri=f'source:{path}#L-{number}', classes=['pseudocode-line'])
            link['reftitle'] = f'{path}, line {number}'
            block += link
        for path in files:
            self.env.note_dependency(str(ROOT / path))
        return [block]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive('pseudocode', Pseudocode)
    return {'parallel_read_safe': True, 'parallel_write_safe': True}
