"""The command ``compare``: several target policies on one log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from caliope.cli._config import ABOUT, ALONE, FIT, LOG, OUTPUT, PARTS, TARGET, Study, add_options
from caliope.cli._console import Display, collect_warnings, echo, one_line_errors, open_report, show_progress
from caliope.cli._evaluate import (
    AS_JSON,
    QUIET,
    WORK,
    about_of,
    check_work,
    from_stdin,
    judge_verdict,
    print_effort,
    say_inferred,
    stop_text,
)
from caliope.cli._study import read_study
from caliope.cli._targets import each_target, parse_options

# Import nothing heavy here: --help should answer at once.
if TYPE_CHECKING:
    from caliope._audit._comparison import PolicyComparison
    from caliope._trajectories import Trajectories
    from caliope.cli._policies import Target

_QUESTION = "Which of several policies would achieve most?"
_PREPARING, _PER_POLICY = 6, 8  # stages of a log, beside one per behaviour model, and of each policy


@click.command()
@click.argument("log", nargs=-1, required=True)
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="NAME=POLICY",
    help="A policy and its name, twice or more often: target-columns:p0..p2, recommended:COLUMN, model:FILE, "
    "policy:MODULE:OBJECT or learn:MODULE:OBJECT.",
)
@add_options(LOG, TARGET, ABOUT, OUTPUT, without=ALONE)
@WORK
@add_options(FIT, PARTS)
@AS_JSON
@QUIET
def compare(
    log: tuple[str, ...],
    *,
    targets: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    work: str | None,
    **given: Any,
) -> None:
    """Compare several new policies on a log.

    Prints the value of each, its difference from current practice and from the others, with intervals that hold
    together, and the best one, corrected for having been picked.

    LOG is a table or a study file, as for evaluate. A study file has the policies in a table [targets].

    Exit code: 0 if the best policy's numbers may be used, with caution or without; 3 if no policy can be evaluated, see
    --fail-on; 2 if the input is bad, with one line that says what to do.
    """
    with one_line_errors(stopped=stop_text(work)):
        named = {"targets": parse_options(targets)} if targets else {}
        study = from_stdin(read_study(log, given | named, needs_target=True, several=True))
        wanted = open_report(study.out) is not None
        check_work(work)
        with show_progress(quiet=quiet) as display, collect_warnings() as warned:
            found = _run(study, display, work, quiet=quiet)
        if not quiet:
            print_effort([stage for audit in found.audits.values() for stage in audit.stages], warned)
        _print(found, as_json=as_json)
        if wanted:
            found.write_html(str(study.out))
        if not as_json:
            echo(f"\nReport: {study.out}" if wanted else "\nAdd --out comparison.html for the report.")
    exit_code = judge_verdict(found.verdict, fail_on=study.fail_on)
    if exit_code:
        raise click.exceptions.Exit(exit_code)


def _print(found: PolicyComparison, *, as_json: bool) -> None:
    if as_json:
        from caliope.report._numbers import numbers_json

        echo(numbers_json(found), nl=False)
        return
    echo(str(found))


def _run(study: Study, display: Display, work: str | None, *, quiet: bool) -> PolicyComparison:
    if study.engine is None:
        return _run_in_memory(study, display, work, quiet=quiet)
    from caliope.cli._parts import compare_in_parts

    about = about_of(study, _QUESTION)
    return compare_in_parts(study, display, work, quiet=quiet, about=about)


def _run_in_memory(study: Study, display: Display, work: str | None, *, quiet: bool) -> PolicyComparison:
    from dataclasses import replace

    from caliope._audit._several import compare as compare_targets
    from caliope.cli._columns import learnt_on_of, propensities_of, read_log, recorded_before_of, strata_of
    from caliope.cli._policies import behaviour_models

    display("reading the log")
    log = read_log(study, quiet=quiet)
    targets, data = _targets_of(study, log.data)
    models = behaviour_models(study, data)
    logged = propensities_of(study, log.data)
    notes = {f"{name}, {key}": x for name, each in targets.items() for key, x in each.notes.items()}
    say_inferred(log, display, notes)
    learners = sum(each.learn is not None for each in targets.values())
    display.expect(_PREPARING + len(models) + _PER_POLICY * len(targets) + learners)
    found = compare_targets(
        data,
        {name: each.policy for name, each in targets.items() if each.learn is None},
        models,
        learn={name: each.learn for name, each in targets.items() if each.learn is not None},
        gamma=study.gamma,
        logged=logged,
        by=strata_of(study, data),
        level=study.level,
        n_draws=study.draws,
        fit_steps=study.fit_steps,
        about=about_of(study, _QUESTION),
        learnt_on=learnt_on_of(study, log.data),
        worst=study.worst,
        restrict=study.restrict,
        recorded_before=recorded_before_of(study),
        rng=study.seed,
        progress=display,
        work=work,
    )
    source = {**log.settings, **notes}
    audits = {
        name: replace(x, settings=replace(x.settings, source=source)) for name, x in found.audits.items()
    }
    return replace(found, audits=audits)


def _targets_of(study: Study, data: Trajectories) -> tuple[dict[str, Target], Trajectories]:
    """The policies of a study, and the log with room for the actions of all of them."""
    found = _read_targets(study, data)
    widest = max((each.data for each in found.values()), key=lambda log: log.n_actions)
    if any(each.data.n_actions < widest.n_actions for each in found.values()):
        found = _read_targets(study, widest)
    return found, widest


def _read_targets(study: Study, data: Trajectories) -> dict[str, Target]:
    from caliope.cli._policies import target_of

    found = {}
    for name, each in each_target(study).items():
        try:
            found[name] = target_of(each, data)
        except ValueError as error:
            raise ValueError(f"policy {name!r}: {error}") from error
        except TypeError as error:
            raise TypeError(f"policy {name!r}: {error}") from error
    return found
