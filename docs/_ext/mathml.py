"""Equations as MathML, which browsers draw by themselves: without a script, without a network, in light and dark."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError


def converted(node: nodes.Element, inline: bool) -> str:
    """Return the MathML of a node; an equation that cannot be converted ends the build."""
    try:
        return tex2mathml(node.astext(), as_block=not inline)
    except MathError as error:
        raise ExtensionError(f'The equation {node.astext()!r} cannot be converted: {error}') from None


def visit_inline(translator: Any, node: nodes.Element) -> None:
    translator.body.append(converted(node, inline=True))
    raise nodes.SkipNode


def visit_block(translator: Any, node: nodes.Element) -> None:
    translator.body.append(f'<div class="equation">{converted(node, inline=False)}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer('mathml', (visit_inline, None), (visit_block, None))
    app.config.html_math_renderer = 'mathml'  # type: ignore[attr-defined]
    return {'parallel_read_safe': True, 'parallel_write_safe': True}
