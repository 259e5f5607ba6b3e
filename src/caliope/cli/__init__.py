"""The command line: each command is a few lines over public functions."""

from __future__ import annotations

from typing import Any

import click

from caliope.cli._cohort import cohort

# Import nothing heavy here: --help should answer at once.
from caliope.cli._console import echo, one_line_errors
from caliope.cli._evaluate import calibrate, evaluate
from caliope.cli._several import compare
from caliope.cli._simulate import demo, simulate

__all__ = ["main"]


class OneLineGroup(click.Group):
    """A group whose commands report every error in one line, whether in the options or later."""

    def make_context(self, *given: Any, **options: Any) -> click.Context:
        """Read the options that stand before the command."""
        with one_line_errors():
            return super().make_context(*given, **options)

    def invoke(self, ctx: click.Context) -> Any:
        """Find the command, read its options, and run it."""
        with one_line_errors():
            return super().invoke(ctx)


_HELP = {"help_option_names": ["-h", "--help"]}


@click.group(cls=OneLineGroup, context_settings=_HELP)
@click.version_option(package_name="caliope")
def main() -> None:
    """Estimate what a new policy is worth on logged decisions, and whether to trust the number."""


@main.command()
@click.argument("code", required=False)
def explain(code: str | None) -> None:
    """Explain a finding, or list all of them.

    CODE is that of a finding, such as B104, or its name in words.
    """
    from caliope.checks import explain as explain_code

    echo(explain_code(code))


@main.command()
@click.argument("numbers", metavar="FILE.json")
@click.option(
    "--out", metavar="FILE.html", help="Page to write.  [default: the name of the JSON, with .html]"
)
def report(numbers: str, out: str | None) -> None:
    """Draw the page of an audit again.

    FILE.json is what evaluate --out report.html wrote beside the report; neither the log nor a model is needed.
    """
    from caliope.cli._console import needs_report

    echo(f"Report: {needs_report().draw_again(numbers, out)}")


for _command in (demo, evaluate, compare, calibrate, simulate, cohort):
    # Each by itself too: click keeps the option of the first context, which is not that of the group where a command is
    # called alone.
    _command.context_settings.update(_HELP)
    main.add_command(_command)
