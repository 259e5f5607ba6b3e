"""The command line: each command a few lines over public functions."""

from __future__ import annotations

from typing import Any

import click

# Nothing heavy up here: --help should answer at once.
from caliope.clinical.commands import cohort
from caliope.commands.calibrate import calibrate
from caliope.commands.demo import demo
from caliope.commands.evaluate import evaluate
from caliope.commands.running import one_line_errors
from caliope.experiments.commands import reproduce


class OneLineGroup(click.Group):
    """A group whose commands tell every mistake in one line: those in the options, and those found later."""

    def make_context(self, *given: Any, **options: Any) -> click.Context:
        """Read the options that stand before the command."""
        with one_line_errors():
            return super().make_context(*given, **options)

    def invoke(self, ctx: click.Context) -> Any:
        """Find the command, read its options, and run it."""
        with one_line_errors():
            return super().invoke(ctx)


@click.group(cls=OneLineGroup)
@click.version_option(package_name="caliope")
def main() -> None:
    """Say what a new policy is worth on logged decisions, and whether to believe the number."""


main.add_command(demo)
main.add_command(evaluate)
main.add_command(calibrate)
main.add_command(cohort)
main.add_command(reproduce)


if __name__ == "__main__":
    main()
