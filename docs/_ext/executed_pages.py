"""Pages whose blocks are run when the site is built, with what they print and draw below them.

In the pages that ``EXECUTED`` names every block of Python is executed, one after the other, in one namespace and
one empty folder per page. So are blocks of commands (``bash``). What a block prints stands below it, and so do
its figures. A block that fails stops the build. Comments on the lines before a block change that:

- ``<!-- not run: reason -->``: the block is only shown.
- ``<!-- needs: torch -->``: the block is run where that can be imported, and only shown elsewhere.
- ``<!-- first: 12 -->``: only the first 12 lines of the output are shown.
- ``<!-- exit: 3 -->``: the exit code that the command must have.
- ``<!-- figure: what it shows -->``: the caption of the figures.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

BLOCK = re.compile(
    r"(?P<notes>(?:^<!-- [^\n]+ -->\n)*)^```(?P<language>python|bash)\n(?P<code>.*?)^```\n",
    flags=re.DOTALL | re.MULTILINE,
)
NOTE = re.compile(r"<!-- ([a-z ]+): (.+) -->")
EXECUTED = ("start/", "guides/", "reference/report-json")
WIDTH, WRAPPED = 84, 88  # of printed prose, in characters: lines above the second are wrapped at the first
FOLDED = 118  # where the package itself folds what it prints below a table
CODE = re.compile(r"^\S{0,2} *[A-Z]\d{3}  ")  # before the text of a finding
TESTS = str(Path(__file__).parents[2] / "tests")  # made-up tables of MIMIC are written by code of the tests
FIGURES = "_figures"  # below the sources, and not committed
# One core, no colours, and lines that fit the page.
ENVIRONMENT = {"COLUMNS": "84", "NO_COLOR": "1", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}


@dataclass
class Page:
    """The state of a page while its blocks are run: names, folder, and figures so far."""

    name: str
    figures: Path
    folder: Path
    names: dict[str, Any] = field(default_factory=dict)
    drawn: int = 0

    def run(self, match: re.Match[str]) -> str:
        """Return the block with its output."""
        notes, code = dict(NOTE.findall(match["notes"])), match["code"]
        shown = f"```{match['language']}\n{code}```\n"
        needed = notes.get("needs")
        if "not run" in notes or (needed and importlib.util.find_spec(needed) is None):
            return shown
        if match["language"] == "bash":
            return shown + _fence(self._run_commands(code, int(notes.get("exit", 0))), notes)
        printed = self._run_python(code)
        return shown + _fence(printed, notes) + self._save_figures(notes.get("figure", ""))

    def _run_python(self, code: str) -> str:
        out, before = io.StringIO(), Path.cwd()
        os.chdir(self.folder)
        added = [str(self.folder), TESTS]
        sys.path[:0] = added
        try:
            with contextlib.redirect_stdout(out):
                exec(compile(code, f"{self.name}.md", "exec"), self.names)
        finally:
            for path in added:
                sys.path.remove(path)
            os.chdir(before)
        return out.getvalue()

    def _run_commands(self, code: str, expected: int) -> str:
        shell = (
            f'caliope() {{ "{sys.executable}" -m caliope "$@"; }}\npython() {{ "{sys.executable}" "$@"; }}\n'
        )
        done = subprocess.run(
            ["bash", "-ec", shell + code],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | ENVIRONMENT | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        if done.returncode != expected:
            raise RuntimeError(f"{self.name}: exit code {done.returncode} of\n{code}\n{done.stderr}")
        return done.stdout

    def _save_figures(self, caption: str) -> str:
        from matplotlib import pyplot

        figures = [pyplot.figure(number) for number in pyplot.get_fignums()]
        pyplot.close("all")
        if bool(figures) != bool(caption):
            problem = f"no figure was drawn for {caption!r}" if caption else "a figure needs a caption"
            raise RuntimeError(f"{self.name}: {problem}; it is given by <!-- figure: ... -->")
        parts = []
        for figure in figures:
            self.drawn += 1
            path = self.figures / f"{self.name.replace('/', '-')}-{self.drawn}.png"
            path.parent.mkdir(exist_ok=True)
            figure.savefig(path, dpi=150, bbox_inches="tight")
            width = round(100 * figure.get_size_inches()[0])
            options = f":alt: {caption}\n:width: {width}px\n"
            parts.append(f"\n```{{figure}} /{FIGURES}/{path.name}\n{options}\n{caption}\n```\n")
        return "".join(parts)


def _fence(printed: str, notes: dict[str, str]) -> str:
    if not printed.strip():
        return ""
    lines = _unfold(printed.rstrip().splitlines())
    first = int(notes.get("first", len(lines)))
    shown = [part for line in lines[:first] for part in _wrap(line.rstrip())] + ["..."] * (first < len(lines))
    # Prose may be broken where a screen is narrow; a table must not be.
    kind = "output" if any("  " in _body(line) for line in shown) else "output prose"
    return f"\n````{{code-block}} text\n:class: {kind}\n\n" + "\n".join(shown) + "\n````\n"


def _body(line: str) -> str:
    """A line without what stands before its text."""
    return CODE.sub("", line).lstrip()


def _unfold(lines: list[str]) -> list[str]:
    """Join what the package folded at its own width, so that it can be folded at that of the page."""
    joined: list[str] = []
    for before, line in zip(["", *lines], lines, strict=False):
        room = FOLDED - len(before)
        new = re.match(r" *[A-Z]\d{3} ", line)
        prose = not ("  " in _body(before) or "  " in line.strip() or new)
        if prose and line.startswith("  ") and 0 <= room <= len(line.split()[0]):
            joined[-1] += " " + line.strip()
        else:
            joined.append(line)
    return joined


def _wrap(line: str) -> list[str]:
    """A long line of prose in several; tables, whose columns are two spaces apart, JSON and LaTeX stay as they are."""
    text = _body(line)
    if len(line) <= WRAPPED or "  " in text or text.startswith('"') or text.endswith("\\\\"):
        return [line]
    indent = " " * (len(line) - len(text) + 2 * (CODE.match(line) is None))
    return textwrap.wrap(
        line, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def run_blocks(text: str, name: str, figures: Path) -> str:
    """Return a page with the output of its blocks, which are run here."""
    import matplotlib as mpl

    mpl.use("agg")
    os.environ.update(ENVIRONMENT)
    with tempfile.TemporaryDirectory() as folder:
        return BLOCK.sub(Page(name, figures, Path(folder)).run, text)


def _run_pages(app: Any, env: Any, names: list[str]) -> None:
    """Run the pages that are about to be read, two at a time, each in a process of its own."""
    chosen = [name for name in names if name.startswith(EXECUTED)]
    figures = Path(app.srcdir) / FIGURES
    with ProcessPoolExecutor(2, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        texts = [Path(env.doc2path(name)).read_text(encoding="utf-8") for name in chosen]
        done = pool.map(run_blocks, texts, chosen, [figures] * len(chosen))
        env.executed_pages = dict(zip(chosen, done, strict=True))


def _on_source_read(app: Any, name: str, content: list[str]) -> None:
    content[0] = app.env.executed_pages.get(name, content[0])


def _forget(app: Any, env: Any) -> None:
    env.executed_pages = {}  # not to be kept with the environment


def setup(app: Any) -> dict[str, bool]:
    """Run the pages before they are read, and read them with their output."""
    app.connect("env-before-read-docs", _run_pages)
    app.connect("source-read", _on_source_read)
    app.connect("env-updated", _forget)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
