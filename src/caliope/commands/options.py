"""Options of the commands; a study file has the same ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

Option = Callable[[Any], Any]

LOG = (
    click.option("--episode", metavar="COLUMN", help="Which rows belong together.  [default: episode]"),
    click.option("--action", metavar="COLUMN", help="What was done, 0, 1, 2, ...  [default: action]"),
    click.option("--reward", metavar="COLUMN", help="What followed.  [default: reward]"),
    click.option(
        "--states",
        metavar="COLUMNS",
        help="What was known before the decision, with commas; x0..x9 is a range.  [default: all other numbers]",
    ),
    click.option(
        "--ignore",
        metavar="COLUMNS",
        help="Numbers that are not part of the state: what was recorded later, what another policy would do.",
    ),
    click.option("--time", metavar="COLUMN", help="What orders the rows.  [default: time, if there is one]"),
    click.option("--terminated", metavar="COLUMN", help="Whether the episode ended there or was cut off."),
    click.option("--n-actions", type=int, help="How many actions there are.  [default: as logged]"),
    click.option(
        "--by", metavar="COLUMN[:LIMITS]", help="Strata of the calibration table, e.g. sofa:5,10,14."
    ),
)
TARGET = (
    click.option(
        "--target-columns", metavar="COLUMNS", help="Probabilities of the new policy, one an action."
    ),
    click.option("--recommended", metavar="COLUMN", help="The action that the new policy recommends."),
    click.option("--model", metavar="FILE", help="A fitted model, as written by save_model."),
    click.option("--policy", metavar="MODULE:OBJECT", help="A policy in a Python module. Runs its code."),
    click.option(
        "--soften", type=float, metavar="SHARE", help="Leave this share of the decisions to practice."
    ),
    click.option(
        "--trust-trees", is_flag=True, default=None, help="Load a model of trees: of your own only."
    ),
    click.option("--propensity", metavar="COLUMN", help="Logged probability of the action taken."),
    click.option("--gamma", type=float, help="Discount a step.  [default: 1]"),
)
HOW = (
    click.option("--models", metavar="NAMES", help="Behaviour models to try, e.g. logistic,forest."),
    click.option("--fit-steps", type=int, help="Decisions to fit on, at most.  [default: 10000]"),
    click.option("--level", type=float, help="Of the intervals.  [default: 0.95]"),
    click.option("--seed", type=int, help="The same seed, the same numbers.  [default: 0]"),
    click.option("--json", "as_json", is_flag=True, help="Print JSON on the standard output."),
    click.option("--quiet", is_flag=True, help="No progress."),
)


def with_options(*groups: tuple[Option, ...]) -> Option:
    """Give a command the options of these groups, in their order."""

    def add(command: Any) -> Any:
        for option in [option for group in groups for option in group][::-1]:
            command = option(command)
        return command

    return add
