"""The page of an audit in its JSON, so that it can be drawn again without the audit."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from markupsafe import Markup

from caliope.report._blocks import (
    Banner,
    Bullets,
    Codes,
    Explanations,
    Fact,
    Facts,
    Grid,
    Picture,
    Reasons,
    Section,
    Text,
    Words,
    cell_text,
)

SCHEMA = 1  # of the page in the JSON
# What a drawing of ours never holds: a file from somebody else must not run anything.
_UNSAFE = re.compile(
    r"<\s*(script|foreignObject|iframe|image)\b|<[^>]*\son\w+\s*=|javascript:", re.IGNORECASE
)


@dataclass(frozen=True)
class Page:
    """All that a page is made of."""

    title: str
    about: str
    made: str
    sections: tuple[Section, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        sections = [
            {"name": s.name, "short": s.short, "title": s.title, "blocks": [_pack(x) for x in s.blocks]}
            for s in self.sections
        ]
        head = {"schema": SCHEMA, "title": self.title, "about": self.about, "made": self.made}
        return {**head, "sections": sections}


def read_page(path: str | Path) -> Page:
    """Read the page from the JSON that was written beside a report; raise in one line if it holds none."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{path} is no JSON file: {error}. Give the file that was written beside a report."
        ) from None
    page = content.get("page") if isinstance(content, dict) else None
    if not isinstance(page, dict):
        raise ValueError(
            f"{path} holds no page: give the JSON that evaluate --out report.html writes beside the report."
        )
    if page.get("schema") != SCHEMA:
        raise ValueError(
            f"{path} holds a page of schema {page.get('schema')!r}, and this version draws schema {SCHEMA}: use the "
            "version that wrote it."
        )
    try:
        sections = tuple(
            Section(s["name"], s["short"], s["title"], tuple(map(_unpack, s["blocks"])))
            for s in page["sections"]
        )
        return Page(page["title"], page["about"], page["made"], sections)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} holds a damaged page ({error}): write the report again.") from None


def _pack(block: Any) -> dict[str, Any]:
    kind = type(block).__name__
    if isinstance(block, Text):
        return {"kind": kind, "text": block.text}
    if isinstance(block, Bullets):
        return {"kind": kind, "items": list(block.items)}
    if isinstance(block, Words):
        return {"kind": kind, "items": dict(block.items)}
    if isinstance(block, Banner):
        return {"kind": kind, "verdict": block.verdict, "title": block.title, "text": block.text}
    if isinstance(block, Facts):
        items = [[fact.name, fact.number, fact.note] for fact in block.items]
        return {"kind": kind, "items": items, "doubted": block.doubted}
    if isinstance(block, Reasons):
        found = [{"code": f.code, "level": f.level, "message": f.message} for f in block.findings]
        return {"kind": kind, "title": block.title, "findings": found}
    if isinstance(block, Explanations):
        checks = [
            {"code": c.code, "title": c.title, "meaning": c.meaning, "remedy": c.remedy} for c in block.checks
        ]
        return {"kind": kind, "checks": checks}
    if isinstance(block, Grid):
        return {"kind": kind, **_pack_grid(block)}
    if isinstance(block, Picture):
        words = {"name": block.name, "label": block.label, "caption": block.caption, "small": block.small}
        return {"kind": kind, **words, "svg": str(block.svg), "data": _pack_grid(block.data)}
    raise TypeError(f"a page has no block {kind}.")


def _pack_grid(table: Grid) -> dict[str, Any]:
    """A table as it is shown: numbers with their digits, codes of findings as lists."""
    rows = [[x.names if isinstance(x, Codes) else cell_text(x) for x in row] for row in table.rows]
    words = {"caption": table.caption, "note": table.note, "folded": table.folded}
    return {**words, "columns": list(table.columns), "rows": rows}


def _unpack(x: dict[str, Any]) -> Any:
    kind = x["kind"]
    if kind == "Text":
        return Text(x["text"])
    if kind == "Bullets":
        return Bullets(tuple(x["items"]))
    if kind == "Words":
        return Words(x["items"])
    if kind == "Banner":
        return Banner(x["verdict"], x["title"], x["text"])
    if kind == "Facts":
        return Facts(tuple(Fact(*each) for each in x["items"]), x["doubted"])
    if kind == "Reasons":
        found: tuple[Any, ...] = tuple(SimpleNamespace(**each) for each in x["findings"])
        return Reasons(x["title"], found)
    if kind == "Explanations":
        return Explanations(tuple(SimpleNamespace(**each) for each in x["checks"]))
    if kind == "Grid":
        return _unpack_grid(x)
    if kind == "Picture":
        return _unpack_picture(x)
    raise TypeError(f"block {kind!r} is not known")


def _unpack_grid(x: dict[str, Any]) -> Grid:
    rows = tuple(tuple(_unpack_cell(cell) for cell in row) for row in x["rows"])
    return Grid(x["caption"], tuple(x["columns"]), rows, x["note"], x["folded"])


def _unpack_cell(cell: Any) -> Any:
    if not isinstance(cell, list):
        return str(cell)
    found: tuple[Any, ...] = tuple(SimpleNamespace(code=str(code)) for code in cell)
    return Codes(found)


def _unpack_picture(x: dict[str, Any]) -> Picture:
    if not x["svg"].startswith("<svg") or _UNSAFE.search(x["svg"]):
        raise TypeError(f"figure {x['name']!r} is no drawing of a report")
    drawn = StoredDrawing(x["svg"])
    return Picture(x["name"], drawn, x["label"], x["caption"], _unpack_grid(x["data"]), x["small"])


@dataclass(frozen=True)
class StoredDrawing:
    """A figure that was drawn before, in place of one of matplotlib."""

    text: str

    def __html__(self) -> Markup:
        return Markup(self.text)
