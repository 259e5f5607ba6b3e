"""What commands share: errors in one line, exit codes, progress on the standard error."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from caliope.commands.time_left import time_left

DISTRUSTED, BAD_INPUT, INTERRUPTED = 3, 2, 130
_EXPECTED = (ValueError, TypeError, ImportError, OSError, MemoryError)


@contextmanager
def one_line_errors(*, stopped: str = "Stopped.") -> Iterator[None]:
    """What goes wrong is told in one line; CALIOPE_TRACEBACK=1 shows where it happened."""
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:
        raise  # nothing was asked for: the help is the answer
    except click.UsageError as error:
        click.echo(f"Error: {_mistake(error)}", err=True)
        raise click.exceptions.Exit(BAD_INPUT) from error
    except (click.ClickException, click.exceptions.Exit, click.exceptions.Abort, BrokenPipeError):
        raise
    except KeyboardInterrupt:
        click.echo(stopped, err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None
    except Exception as error:
        if os.environ.get("CALIOPE_TRACEBACK"):
            raise
        said = " ".join(_plain(error).split()) or type(error).__name__
        if not isinstance(error, _EXPECTED):
            said = f"{type(error).__name__}: {said}. Not foreseen; CALIOPE_TRACEBACK=1 shows where."
        click.echo(f"Error: {said}", err=True)
        raise click.exceptions.Exit(BAD_INPUT) from error


def _plain(error: Exception) -> str:
    """What an error says; of one of the system, which file it is about, and not its number."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.strerror}: {error.filename}. Check the path."
    return str(error)


def _mistake(error: click.UsageError) -> str:
    """What is wrong with the options, in one line, and which help lists them."""
    said = " ".join(error.format_message().split()).rstrip(".")
    command = "the command with" if error.ctx is None else error.ctx.command_path  # click does not always say
    return f"{said}. See {command} --help."


@contextmanager
def progress(*, quiet: bool, guess: bool = True) -> Iterator[Callable[[str], None]]:
    """Something to call with the name of every stage: shown with its time in a terminal, or as lines.

    ``guess``: say about how long the rest will take.
    """
    if quiet:
        yield lambda name: None
    elif sys.stderr.isatty():
        yield from _bar(guess)
    else:
        yield _Lines(guess)


class _Lines:
    def __init__(self, guess: bool) -> None:
        self.started, self.guess = time.monotonic(), guess

    def __call__(self, name: str) -> None:
        elapsed = time.monotonic() - self.started
        left = time_left(name, elapsed) if self.guess else ""
        click.echo(f"{elapsed:7.1f} s  {name} ...{left and f' ({left})'}", err=True)


def _bar(guess: bool) -> Iterator[Callable[[str], None]]:
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(finished_text="✓"), TextColumn("{task.description}"), TimeElapsedColumn())
    started = time.monotonic()
    with Progress(*columns, console=Console(stderr=True)) as bar:

        def stage(name: str) -> None:
            for task in bar.tasks:
                bar.update(task.id, total=1, completed=1, description=task.description.partition(" [dim]")[0])
            left = time_left(name, time.monotonic() - started) if guess else ""
            bar.add_task(f"{name}{left and f' [dim]{left}[/dim]'}", total=None)

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
