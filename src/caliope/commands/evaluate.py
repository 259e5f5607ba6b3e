"""``caliope evaluate``: a table and a policy in; a value, an interval, a verdict and the reasons out."""

from __future__ import annotations

from typing import Any

import click

from caliope.commands.options import HOW, LOG, TARGET, with_options
from caliope.commands.running import DISTRUSTED, collected_warnings, one_line_errors, progress

# Nothing heavy up here: --help should answer at once.


@click.command()
@click.argument("log")
@with_options(LOG, TARGET)
@click.option("--out", metavar="FILE.html", help="Write the report there, and its numbers as JSON beside it.")
@click.option("--draws", type=int, help="Bootstrap draws.  [default: 1000]")
@click.option(
    "--work",
    metavar="FOLDER",
    help="Keep finished stages there: the same command, stopped and started again, goes on where it was. A folder of "
    "your own, for what is kept is trusted.",
)
@with_options(HOW)
def evaluate(log: str, **given: Any) -> None:
    """Say what a new policy is worth on a log, and whether to believe it.

    LOG is a Parquet or CSV file with one row a decision (also a folder or a glob), or a study file in TOML with the
    same settings as the options below.

    Exit code: 0 if the number may be used, with caution or without; 3 if it should not be believed; 2 if the input is
    bad, with one line that says what to do.
    """
    as_json, quiet, work = given.pop("as_json"), given.pop("quiet"), given.pop("work")
    hint = (
        "add --work FOLDER to go on where it stops" if work is None else "the same command goes on from here"
    )
    with one_line_errors(stopped=f"Stopped; {hint}."):
        found = _evaluate(log, given, work=work, as_json=as_json, quiet=quiet)
    if found.verdict == "do not trust":
        raise click.exceptions.Exit(DISTRUSTED)


def _evaluate(log: str, given: dict[str, Any], *, work: str | None, as_json: bool, quiet: bool) -> Any:
    from caliope.commands.study import study_from
    from caliope.commands.time_left import is_usual
    from caliope.commands.writing import report_writer

    study = study_from(log, given, needs_target=True)
    write = report_writer(study.out)
    if work is not None:
        _check_work(work)
    with progress(quiet=quiet, guess=is_usual(study.log)) as stage, collected_warnings() as warned:
        found, guessed = _audited(study, stage, work)
    if not quiet:
        _say_how(found, guessed, warned)
    _say(found, as_json=as_json)
    # The result is told first: it was what took the time.
    if write is not None:
        write(found)
    if not as_json:
        click.echo(f"\nReport: {study.out}" if write else "\nAdd --out report.html for the report.")
    return found


def _check_work(work: str) -> None:
    from caliope.auditing.keeping import usable_folder

    usable_folder(work)


def _audited(study: Any, stage: Any, work: str | None) -> Any:
    from caliope.auditing import audit
    from caliope.auditing.stages import Stages
    from caliope.commands.candidates import models_named
    from caliope.commands.reading import numbers_of, read_log, strata_of
    from caliope.commands.targets import target_of

    begin = Stages(stage)
    with begin("reading the log"):
        log = read_log(study)
        target = target_of(study, log.data)
    found = audit(
        target.data,
        target.policy,
        models_named(study.models, target.data, seed=study.seed),
        gamma=study.gamma,
        logged=None
        if study.propensity is None
        else numbers_of(log.data, study.propensity, "logged probability"),
        by=strata_of(study, target.data),
        level=study.level,
        n_draws=study.draws,
        fit_steps=study.fit_steps,
        rng=study.seed,
        progress=stage,
        work=work,
    )
    return _asked(found, target, log.settings, begin.done), log.guessed


def _asked(found: Any, target: Any, read: Any, before: list[Any]) -> Any:
    """The audit with the question that was put to it, and a finding on every row if it was changed."""
    from dataclasses import replace

    from caliope.results import Finding, Table

    settings = {"question": target.question, **read, **found.settings, **read}
    found = replace(found, settings=settings, stages=(*before, *found.stages))
    if not target.changed:
        return found
    note = Finding("Q101", "note", target.question)
    rows = [row if row.name == found.practice.name else _with(row, note) for row in found.table]
    return replace(found, table=Table(tuple(rows), found.table.title))


def _with(row: Any, note: Any) -> Any:
    from dataclasses import replace

    return replace(row, findings=(*row.findings, note))


def _say_how(found: Any, guessed: tuple[str, ...], warned: list[str]) -> None:
    for name in guessed:
        click.echo(f"{name}: {found.settings[name]}", err=True)
    for text in warned[:5]:
        click.echo(f"warning of a library: {text}", err=True)
    for stage in found.stages:
        click.echo(f"{stage.seconds:9.1f} s {stage.peak_gb:7.2f} GB  {stage.name}", err=True)


def _say(found: Any, *, as_json: bool) -> None:
    if as_json:
        from caliope.report.numbers import numbers_json

        click.echo(numbers_json(found), nl=False)
        return
    click.echo(f"{found.settings['question']}\n")
    click.echo(str(found))
