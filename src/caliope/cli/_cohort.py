"""``caliope cohort``: the sepsis cohort from the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from caliope._files import written_whole
from caliope.cli._console import echo, one_line_errors

# Nothing heavy is imported here: --help must answer at once.
from caliope.clinical._ablation import measure_mistakes
from caliope.clinical._cohort import Cohort, check_output_path
from caliope.clinical._databases import MIMIC3, MIMIC4, Database
from caliope.clinical._pipeline import STAGES, Resources, Stage, build_cohort
from caliope.clinical._settings import CHOICES, WINDOW_HOURS, AsPublished, CohortSettings
from caliope.clinical._sources import describe_source, is_address

Command = Callable[..., None]

_DATABASES = {database.name: database for database in (MIMIC3, MIMIC4)}
_INTERRUPTED = "Error: interrupted; nothing was written."


@click.group()
def cohort() -> None:
    """Build the sepsis cohort from the raw tables of MIMIC."""


def _setting(name: str, text: str) -> Any:
    """Option for a setting of the cohort, with its default and its choices."""
    kind = click.Choice(CHOICES[name]) if name in CHOICES else None
    shown = "|".join(map(str, WINDOW_HOURS)) if name == "window_hours" else None
    default = getattr(CohortSettings, name)
    return click.option(
        f"--{name.replace('_', '-')}", type=kind, metavar=shown, default=default, show_default=True, help=text
    )


_SETTINGS = {
    "window_hours": "Hours between two decisions.",
    "hours_before": "Hours of record before onset.",
    "hours_after": "Hours of record after onset.",
    "lab_delay_hours": "Hours from a sample to its result.",
    "outcome": "Death in hospital, or within 90 days.",
    "terminal_reward": "Last reward for survival; its negative for death.",
    "cuts": "Dose limits of the actions.",
    "fill": "Substitute for a value never measured.",
    "train_share": "Share of training patients.",
    "seed": "Random seed of the choice of training patients.",
}
_SOURCE = (
    click.option(
        "--source",
        required=True,
        help="Folder of csv, csv.gz or Parquet files, a DuckDB file, or postgresql://...",
    ),
    click.option("--schema", help="Schema of the tables in PostgreSQL or DuckDB."),
    click.option(
        "--memory", default="4GB", show_default=True, help="Memory limit; above it the work uses the disk."
    ),
)
_OPTIONS = (
    *_SOURCE,
    click.option("--out", type=click.Path(path_type=Path), required=True, help="Parquet file to write."),
    *(_setting(name, text) for name, text in _SETTINGS.items()),
    click.option("--keep-withdrawn", is_flag=True, help="Keep stays with treatment withdrawn."),
    click.option("--keep-died", is_flag=True, help="Keep stays that died during the record."),
    click.option(
        "--as-published",
        multiple=True,
        metavar="NAME",
        help="Repeat a mistake of the public code, or all of them. May be given several times.",
    ),
    click.option("--threads", type=int, help="Number of threads; by default all."),
    click.option(
        "--keep-stages",
        type=click.Path(path_type=Path),
        help="DuckDB file for the tables of every stage; a killed run resumes from it.",
    ),
)


def _add_options(*options: Any) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@cohort.command()
@_add_options(*_OPTIONS)
def mimic3(**given: Any) -> None:
    """MIMIC-III: CareVue and MetaVision."""
    _run(MIMIC3, given)


@cohort.command()
@_add_options(*_OPTIONS)
def mimic4(**given: Any) -> None:
    """MIMIC-IV: tables of the folders hosp and icu."""
    _run(MIMIC4, given)


@cohort.command()
@_add_options(*_SOURCE)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="csv file to write.")
@click.option("--database", type=click.Choice(list(_DATABASES)), default=MIMIC3.name, show_default=True)
@click.option("--name", "names", multiple=True, help="Mistake to measure; by default every one, then all.")
def mistakes(**given: Any) -> None:
    """Build the cohort with each mistake of the public code, and show what it changes."""
    with one_line_errors(stopped=_INTERRUPTED):
        check_output_path(given["out"], ".csv", source=given["source"])
        table = measure_mistakes(
            given["source"],
            given["names"] or None,
            database=_DATABASES[given["database"]],
            schema=given["schema"],
            resources=Resources(given["memory"]),
            progress=lambda name: echo(f"{name} ...", err=True),
        )
        with written_whole(given["out"]) as beside:
            table.to_frame().write_csv(beside)
    echo(table.grid())


def _run(database: Database, given: dict[str, Any]) -> None:
    done = []

    def progress(stage: Stage, seconds: float) -> None:
        done.append(stage)
        echo(
            f"{STAGES.index(stage) + 1:2d}/{len(STAGES)}  {stage.name:<13}{seconds:8.1f} s  {stage.purpose}",
            err=True,
        )

    with one_line_errors(stopped=_INTERRUPTED):
        check_output_path(given["out"], ".parquet", source=given["source"], keep_stages=given["keep_stages"])
        echo(f"reading {describe_source(given['source'])}", err=True)
        built = build_cohort(
            given["source"],
            settings=_read_settings(given),
            database=database,
            schema=given["schema"],
            resources=Resources(given["memory"], given["threads"], given["keep_stages"]),
            progress=progress,
        )
        written = built.write(given["out"])
    if len(done) < len(STAGES):
        _report_resumed(len(STAGES) - len(done), given)
    _report(built, written)


def _read_settings(given: dict[str, Any]) -> CohortSettings:
    return CohortSettings(
        **{name: given[name] for name in _SETTINGS},
        exclude_withdrawal=not given["keep_withdrawn"],
        exclude_died_recorded=not given["keep_died"],
        as_published=AsPublished.from_names(given["as_published"]),
    )


def _report_resumed(kept: int, given: dict[str, Any]) -> None:
    unsure = "; whether the server has changed since cannot be checked" if is_address(given["source"]) else ""
    echo(f"{kept} of {len(STAGES)} stages taken from {given['keep_stages']}{unsure}", err=True)


def _report(built: Cohort, written: list[Path]) -> None:
    echo(f"{'stays in':>9}{'left':>7}  why")
    for row in built.flow.iter_rows(named=True):
        echo(f"{row['stays_in']:>9}{row['stays_removed']:>7}  {row['reason']}")
    for name, value in built.summary().items():
        echo(f"{value:>9.4g}  {name}" if isinstance(value, float) else f"{value:>9}  {name}")
    for drug, cut in built.cuts.items():
        echo(f"{drug:>9}  cut points {', '.join(f'{x:g}' for x in cut)}")
    corrupt = int(built.quality["rows"].sum())
    echo(f"{corrupt:>9}  corrupt or unusable rows, counted in {written[3].name}")
    echo(f"Written: {', '.join(path.name for path in written)}")
