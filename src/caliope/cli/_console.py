"""What commands share at the terminal: errors in one line, exit codes, progress, and the check of output files."""

from __future__ import annotations

import errno
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

DISTRUSTED, UNMET, BAD_INPUT, INTERRUPTED = 3, 4, 2, 130
_EXPECTED = (ValueError, TypeError, ImportError, OSError, MemoryError)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_A_DAY = 86_400.0  # seconds; speed is estimated from all stages, and one stage may take hours


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print text with the control characters of names spelt out."""
    from caliope._cells import visible

    click.echo(visible(text), err=err, nl=nl)


# -- errors --


@contextmanager
def one_line_errors(*, stopped: str = "Stopped.") -> Iterator[None]:
    """Report every error in one line; CALIOPE_TRACEBACK=1 shows where it happened."""
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:
        raise  # no command was given: the help is the answer
    except click.UsageError as error:
        echo(f"Error: {_usage_text(error)}", err=True)
        raise click.exceptions.Exit(BAD_INPUT) from error
    except (click.ClickException, click.exceptions.Exit, click.exceptions.Abort, BrokenPipeError):
        raise
    except KeyboardInterrupt:
        echo(stopped, err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None
    except Exception as error:
        if os.environ.get("CALIOPE_TRACEBACK"):
            raise
        echo(f"Error: {_error_text(error)}", err=True)
        raise click.exceptions.Exit(BAD_INPUT) from error


def _error_text(error: Exception) -> str:
    text = str(error)
    if isinstance(error, OSError) and error.filename and error.strerror:
        text = f"{error.strerror}: {error.filename}. Check the path."
    elif isinstance(error, OSError) and error.errno in _FULL:
        text = f"{error.strerror}. Make room, also where temporary files are kept (TMPDIR)."
    text = " ".join(text.split()) or type(error).__name__
    if isinstance(error, _EXPECTED):
        return text
    return f"{type(error).__name__}: {text}. This is unexpected; CALIOPE_TRACEBACK=1 shows where it happened."


def _usage_text(error: click.UsageError) -> str:
    """What is wrong with the options, and which help lists them."""
    text = " ".join(error.format_message().split()).rstrip(".")
    # Click does not always say which command it was.
    command = "the command with" if error.ctx is None else error.ctx.command_path
    return f"{text}{'' if text.endswith('?') else '.'} See {command} --help."


@contextmanager
def collect_warnings() -> Iterator[list[str]]:
    """Collect warnings of libraries, each once, so that they do not interrupt the progress display."""
    found: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        yield found
    found += dict.fromkeys(f"{w.category.__name__}: {' '.join(str(w.message).split())[:200]}" for w in caught)


# -- progress --


class Display:
    """Shows which stage runs: call it with the name of each stage as it begins. This one shows nothing."""

    def __call__(self, name: str) -> None:
        """Begin a stage; the one before it is done."""

    def expect(self, total: int) -> None:
        """Say how many stages there will be in all."""

    def say(self, text: str) -> None:
        """Show a line that stays."""

    def restart(self) -> None:
        """Count stages anew, for another log."""


@contextmanager
def show_progress(*, quiet: bool) -> Iterator[Display]:
    """Show stages on the standard error: a bar with the time left in a terminal, plain lines elsewhere."""
    if quiet:
        yield Display()
    elif sys.stderr.isatty():
        with _open_bar() as bar:
            yield _Bar(bar, bar.add_task("starting", total=None))
    else:
        yield _Lines()


class _Lines(Display):
    def __init__(self) -> None:
        self.started, self.begun, self.total = time.monotonic(), 0, 0

    def __call__(self, name: str) -> None:
        self.begun += 1
        self.total = max(self.total, self.begun) if self.total else 0  # some stages depend on what is found
        place = f"{self.begun}/{self.total}" if self.total else f"{self.begun}"
        echo(f"{time.monotonic() - self.started:7.1f} s  {place:>5}  {name} ...", err=True)

    def expect(self, total: int) -> None:
        self.total = total

    def say(self, text: str) -> None:
        echo(text, err=True)

    def restart(self) -> None:
        self.begun, self.total = 0, 0


class _Bar(Display):
    def __init__(self, bar: Progress, task: TaskID) -> None:
        self.bar, self.task, self.begun, self.total = bar, task, 0, 0

    def __call__(self, name: str) -> None:
        if self.total and self.begun >= self.total:
            self.expect(self.begun + 1)  # some stages depend on what is found
        self.bar.update(self.task, description=name, completed=self.begun)
        self.begun += 1

    def expect(self, total: int) -> None:
        self.total = total
        self.bar.update(self.task, total=total)

    def say(self, text: str) -> None:
        from caliope._cells import visible

        self.bar.console.print(visible(text), markup=False, highlight=False, soft_wrap=True)

    def restart(self) -> None:
        self.begun, self.total = 0, 0
        self.bar.reset(self.task, total=None)


@contextmanager
def _open_bar() -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    # Transient: what each stage took is printed when all are done.
    with Progress(
        *columns, console=Console(stderr=True), transient=True, speed_estimate_period=_A_DAY
    ) as bar:
        yield bar


# -- files --


def open_report(out: str | None) -> Callable[[Any], None] | None:
    """Return what writes the report of an audit to ``out``; raise now if that will not be possible."""
    if out is None:
        return None
    page = Path(out)
    check_writable(page, page.with_suffix(".json"))
    pages = needs_report()

    def write(audit: Any) -> None:
        pages.write_report(audit, out)

    return write


def needs_report() -> Any:
    """The module that writes pages; raise in one line where the extra is missing."""
    try:
        from caliope.report import _page
    except ModuleNotFoundError as error:
        raise ValueError(
            f"a report needs {error.name}: pip install 'caliope[report]', or leave --out out."
        ) from None
    return _page


def check_writable(*files: Path) -> None:
    """Raise unless these files can be written; tried before hours of work."""
    for file in files:
        if file.is_dir():
            raise ValueError(f"{file} cannot be written: it is a folder. Give --out another name.")
        if not file.parent.is_dir():
            raise ValueError(f"the folder of {file} does not exist: make it first, or write elsewhere.")
        try:
            with TemporaryFile(dir=file.parent):
                pass
        except OSError as error:
            raise ValueError(
                f"{file} cannot be written ({error.strerror}): give --out a place that you may write to."
            ) from None
