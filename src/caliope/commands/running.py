"""What commands share: errors in one line, exit codes, progress on the standard error."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

DISTRUSTED, BAD_INPUT, INTERRUPTED = 3, 2, 130
_EXPECTED = (ValueError, TypeError, ImportError, OSError, MemoryError)


@contextmanager
def one_line_errors() -> Iterator[None]:
    """What goes wrong is told in one line; CALIOPE_TRACEBACK=1 shows where it happened."""
    try:
        yield
    except (click.ClickException, click.exceptions.Exit, BrokenPipeError):
        raise
    except KeyboardInterrupt:
        click.echo("Stopped.", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None
    except Exception as error:
        if os.environ.get("CALIOPE_TRACEBACK"):
            raise
        said = " ".join(str(error).split()) or type(error).__name__
        if not isinstance(error, _EXPECTED):
            said = f"{type(error).__name__}: {said}. Not foreseen; CALIOPE_TRACEBACK=1 shows where."
        click.echo(f"Error: {said}", err=True)
        raise click.exceptions.Exit(BAD_INPUT) from error


@contextmanager
def progress(*, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Something to call with the name of every stage: shown with its time in a terminal, or as lines."""
    if quiet:
        yield lambda name: None
    elif sys.stderr.isatty():
        yield from _bar()
    else:
        started = time.monotonic()
        yield lambda name: click.echo(f"{time.monotonic() - started:7.1f} s  {name} ...", err=True)


def _bar() -> Iterator[Callable[[str], None]]:
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(finished_text="✓"), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:

        def stage(name: str) -> None:
            for task in bar.tasks:
                bar.update(task.id, total=1, completed=1)
            bar.add_task(name, total=None)

        yield stage
        for task in bar.tasks:
            bar.update(task.id, total=1, completed=1)


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """What libraries warn of meanwhile, each once: they would tear the progress apart."""
    found: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        yield found
    found += dict.fromkeys(f"{w.category.__name__}: {' '.join(str(w.message).split())[:200]}" for w in caught)
