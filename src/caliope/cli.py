"""The command line: each command a few lines over public functions."""

from __future__ import annotations

import click

# Nothing heavy up here: --help should answer at once.
from caliope.clinical.commands import cohort
from caliope.commands.calibrate import calibrate
from caliope.commands.demo import demo
from caliope.commands.evaluate import evaluate
from caliope.experiments.commands import reproduce


@click.group()
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
