"""The commands ``evaluate`` and ``calibrate``, its first half."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from caliope.cli._config import ABOUT, FIT, LOG, OUTPUT, PARTS, TARGET, Study, add_options
from caliope.cli._console import (
    DISTRUSTED,
    UNMET,
    Display,
    collect_warnings,
    echo,
    one_line_errors,
    open_report,
    show_progress,
)
from caliope.cli._other_logs import beside_others, check_other_logs
from caliope.cli._study import read_study

# Import nothing heavy here: --help should answer at once.
if TYPE_CHECKING:
    from caliope._audit._about import About
    from caliope._audit._compare import BehaviourModels
    from caliope._audit._result import Audit
    from caliope._audit._settings import Stage
    from caliope.cli._columns import ReadLog

WORK = click.option(
    "--work",
    metavar="FOLDER",
    help="Keep finished stages there, so that the same command resumes after a stop. Its files are trusted: use a "
    "folder of your own.",
)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON on the standard output.")
QUIET = click.option("--quiet", is_flag=True, help="Show no progress.")
FAIL_ON = click.option(
    "--fail-on",
    type=click.Choice(["issue", "caution", "never"]),
    default="issue",
    show_default=True,
    help="Exit code 3 when the verdict is do not trust (issue), when it is caution or worse, or never.",
)
_AUDIT_STAGES, _CALIBRATE_STAGES = 14, 3  # beside one per behaviour model
_WARNINGS = 5  # of libraries that are printed


# -- evaluate --


@click.command()
@click.argument("log", nargs=-1, required=True)
@add_options(LOG, TARGET, ABOUT, OUTPUT)
@WORK
@add_options(FIT, PARTS)
@AS_JSON
@QUIET
def evaluate(log: tuple[str, ...], *, as_json: bool, quiet: bool, work: str | None, **given: Any) -> None:
    """Estimate the value of a new policy on a log.

    Prints the value, its confidence interval, a verdict that says whether to trust it, and the reasons.

    LOG is a Parquet, CSV or Excel file with one row per decision (also several files, a folder, a glob, or - for the
    standard input), or a study file in TOML with the same settings as the options below.

    Exit code: 0 if the number may be used, with caution or without; 3 if it should not be believed, see --fail-on; 4
    if a condition of --require is not met; 2 if the input is bad, with one line that says what to do.
    """
    with one_line_errors(stopped=stop_text(work)):
        study = from_stdin(read_study(log, given, needs_target=True))
        check_other_logs(study)
        write = open_report(study.out)
        check_work(work)
        with show_progress(quiet=quiet) as display, collect_warnings() as warned:
            found = _run(study, display, work, quiet=quiet)
            if study.other_logs:
                found = _ask_others(study, found, display, work)
        if not quiet:
            print_effort(found.stages, warned)
        _print_audit(found, as_json=as_json)
        # The result comes first: it took the time, and writing may fail.
        if write is not None:
            write(found)
        if not as_json:
            echo(f"\nReport: {study.out}" if write else "\nAdd --out report.html for the report.")
    exit_code = judge(found, fail_on=study.fail_on, tell=as_json)
    if exit_code:
        raise click.exceptions.Exit(exit_code)


def judge(found: Audit, *, fail_on: str = "issue", tell: bool = False) -> int:
    """The exit code of an audit: its verdict, then the conditions of --require; ``tell`` prints those that failed."""
    if tell:
        for each in found.requirements:
            if not each.met:
                echo(f"Required: {each.text}.", err=True)
    if code := judge_verdict(found.verdict, fail_on=fail_on):
        return code
    return 0 if all(each.met for each in found.requirements) else UNMET


def judge_verdict(verdict: str, *, fail_on: str) -> int:
    """The exit code of a verdict."""
    failing = {"issue": ("do not trust",), "caution": ("do not trust", "caution"), "never": ()}[fail_on]
    if verdict not in failing:
        return 0
    if fail_on == "caution":
        echo(f"The verdict is {verdict}, and --fail-on caution was asked for.", err=True)
    return DISTRUSTED


def stop_text(work: str | None) -> str:
    """What is said when a command was stopped."""
    hint = "add --work FOLDER to resume" if work is None else "the same command resumes from here"
    return f"Stopped; {hint}."


def check_work(work: str | None) -> None:
    """Raise unless the folder of finished stages can be used."""
    from caliope._cache import check_folder

    if work is not None:
        check_folder(work)


def from_stdin(study: Study) -> Study:
    """The study with the standard input in a file, where that is its log."""
    if study.log != "-":
        return study
    from caliope.io._stdin import spool

    return replace(study, log=str(spool()))


def _ask_others(study: Study, found: Audit, display: Display, work: str | None) -> Audit:
    """The audit with the answers of the other logs beside it."""

    def ask(other: Study, name: str) -> Audit:
        display.restart()
        display.say(f"the same question in {name}:")
        return _run(other, display, work, quiet=True)

    return beside_others(study, found, ask)


def _run(study: Study, display: Display, work: str | None, *, quiet: bool) -> Audit:
    if study.engine is None:
        return _run_audit(study, display, work, quiet=quiet)
    from caliope.cli._parts import audit_in_parts

    return audit_in_parts(study, display, work, quiet=quiet, about=about_of)


def _run_audit(study: Study, display: Display, work: str | None, *, quiet: bool) -> Audit:
    from caliope._audit._audit import audit
    from caliope._audit._settings import Stages
    from caliope.cli._columns import learnt_on_of, propensities_of, read_log, recorded_before_of, strata_of
    from caliope.cli._policies import behaviour_models, target_of

    begin = Stages(display)
    with begin("reading the log"):
        log = read_log(study, quiet=quiet)
        target = target_of(study, log.data)
        models = behaviour_models(study, target.data)
        logged = propensities_of(study, log.data)
    say_inferred(log, display, target.notes)
    display.expect(_AUDIT_STAGES + len(models) + (target.learn is not None))
    ask = partial(
        audit,
        target.data,
        models=models,
        learn=target.learn,
        gamma=study.gamma,
        logged=logged,
        by=strata_of(study, target.data),
        level=study.level,
        n_draws=study.draws,
        fit_steps=study.fit_steps,
        learnt_on=learnt_on_of(study, log.data),
        worst=study.worst,
        recorded_before=recorded_before_of(study),
        rng=study.seed,
        progress=display,
        work=work,
    )
    about = about_of(study, target.question)
    found = ask(target.policy, about=about)
    if study.restrict and found.support.changes:
        restricted = found.support.restrict(target.policy)
        question = f"{about.question} {found.support.restriction}"
        found = ask(restricted, about=replace(about, question=question))
    asked = {"evaluated": target.question} if study.question else {}
    settings = replace(found.settings, source={**asked, **log.settings, **target.notes})
    found = replace(found, settings=settings, stages=(*begin.done, *found.stages))
    return found.require(**dict(study.require))


def about_of(study: Study, question: str) -> About:
    """The names that a study gives; without a question of its own, the one that the settings make."""
    from caliope._audit._about import About

    return About(
        title=study.title or "",
        question=study.question or question,
        policy=study.policy_name or "",
        outcome=study.outcome or "",
        outcome_unit=study.outcome_unit or "",
        action_names=study.action_names,
        grid=study.action_grid or {},
        author=study.author or "",
        date=study.date or "",
    )


def say_inferred(log: ReadLog, display: Display, more: Mapping[str, str]) -> None:
    """Say what was inferred and found out, before anything is fitted."""
    for name in log.inferred:
        display.say(f"{name}: {log.settings[name]}")
    for name, text in more.items():
        display.say(f"{name}: {text}")


def print_effort(stages: Sequence[Stage], warned: Sequence[str]) -> None:
    """Print warnings of libraries, and what each stage took."""
    for text in warned[:_WARNINGS]:
        echo(f"warning of a library: {text}", err=True)
    for stage in stages:
        echo(f"{stage.seconds:9.1f} s {stage.peak_gb:7.2f} GB  {stage.name}", err=True)


def _print_audit(found: Audit, *, as_json: bool) -> None:
    if as_json:
        from caliope.report._numbers import numbers_json

        echo(numbers_json(found), nl=False)
        return
    echo(str(found))


# -- calibrate --


@click.command()
@click.argument("log", nargs=-1, required=True)
@add_options(LOG)
@WORK
@add_options(FIT, PARTS)
@AS_JSON
@QUIET
def calibrate(log: tuple[str, ...], *, as_json: bool, quiet: bool, work: str | None, **given: Any) -> None:
    """Fit, compare and recommend behaviour models.

    LOG is a table or a study file, as for evaluate; no new policy is needed. Every model is judged on held-out
    trajectories. This is the first half of evaluate: with the same settings it recommends the same model, and with the
    same --work folder evaluate takes over its fits.

    Exit code: 0; 3 if not even the recommended model should be believed; 2 if the input is bad.
    """
    with one_line_errors(stopped=stop_text(work)):
        study = from_stdin(read_study(log, given, needs_target=False))
        check_work(work)
        with show_progress(quiet=quiet) as display, collect_warnings() as warned:
            found = _compare_models(study, display, work, quiet=quiet)
        if not quiet:
            print_effort(found.stages, warned)
        _print_comparison(found, as_json=as_json)
        distrusted = _is_distrusted(found)
    if distrusted:
        raise click.exceptions.Exit(DISTRUSTED)


def _compare_models(study: Study, display: Display, work: str | None, *, quiet: bool) -> BehaviourModels:
    if study.engine is not None:
        from caliope.cli._parts import calibrate_in_parts

        return calibrate_in_parts(study, display, work, quiet=quiet)
    from caliope._audit._opened import compare_behaviour
    from caliope.cli._columns import read_log, strata_of
    from caliope.cli._policies import behaviour_models

    display("reading the log")
    log = read_log(study, quiet=quiet)
    say_inferred(log, display, {})
    models = behaviour_models(study, log.data)
    display.expect(_CALIBRATE_STAGES + len(models))
    return compare_behaviour(
        log.data,
        models,
        by=strata_of(study, log.data),
        level=study.level,
        fit_steps=study.fit_steps,
        rng=study.seed,
        progress=display,
        work=work,
    )


def _is_distrusted(found: BehaviourModels) -> bool:
    """Whether no model is recommended, or the recommended one or the log itself should not be believed."""
    from caliope.checks import verdict

    best = found.comparison.recommended
    return not best or verdict((*found.comparison[best].findings, *found.findings)) == "do not trust"


def _print_comparison(found: BehaviourModels, *, as_json: bool) -> None:
    if as_json:
        import json

        from caliope.report._numbers import finite

        content = {**found.comparison.to_dict(), "log": [finding.to_dict() for finding in found.findings]}
        echo(json.dumps(finite(content), indent=2, allow_nan=False))
        return
    echo(str(found.comparison))
    if found.findings:
        echo("\nAbout the log itself:")
    for finding in found.findings:
        echo(f"  {finding}")
