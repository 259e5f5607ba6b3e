"""Formulas as MathML, which browsers draw themselves: no script, and nothing to fetch when a page is read."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.utils.math import latex2mathml


def convert(tex: str, *, block: bool) -> str:
    """Return a formula as MathML; sizes of brackets, which the converter does not know, are left to the browser."""
    return latex2mathml.tex2mathml(re.sub(r"\\[bB]igg?[lr]?(?![a-zA-Z])", "", tex), as_block=block)


def _visit_inline(writer: Any, node: nodes.Node) -> None:
    writer.body.append(convert(node.astext(), block=False))
    raise nodes.SkipNode


def _visit_block(writer: Any, node: nodes.Node) -> None:
    writer.body.append(f'<div class="formula">{convert(node.astext(), block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Add the renderer; ``html_math_renderer = "mathml"`` chooses it."""
    app.add_html_math_renderer("mathml", (_visit_inline, None), (_visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
