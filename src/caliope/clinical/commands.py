"""``caliope cohort``: the sepsis cohort from the command line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

# Nothing heavy up here: --help should answer at once.


@click.group()
def cohort() -> None:
    """Build the sepsis cohort from the raw tables of MIMIC."""


_OPTIONS = (
    click.option(
        "--source",
        required=True,
        help="Folder of csv, csv.gz or Parquet files, a DuckDB file, or postgresql://...",
    ),
    click.option("--out", type=click.Path(path_type=Path), required=True, help="Parquet file to write."),
    click.option("--schema", help="Schema of the tables in PostgreSQL or DuckDB."),
    click.option("--hours-before", default=24.0, show_default=True, help="Record before onset."),
    click.option("--hours-after", default=48.0, show_default=True, help="Record after onset."),
    click.option("--lab-delay-hours", default=1.0, show_default=True, help="From a sample to its result."),
    click.option(
        "--outcome", type=click.Choice(["hospital", "90 days"]), default="hospital", show_default=True
    ),
    click.option("--terminal-reward", default=15.0, show_default=True),
    click.option(
        "--cuts",
        type=click.Choice(["raghu", "refit"]),
        default="raghu",
        show_default=True,
        help="Dose limits of the actions.",
    ),
    click.option(
        "--fill",
        type=click.Choice(["normal", "median"]),
        default="normal",
        show_default=True,
        help="What stands for a value never measured.",
    ),
    click.option("--train-share", default=0.8, show_default=True, help="Share of training patients."),
    click.option("--seed", default=0, show_default=True, help="Seed of the choice of them."),
    click.option("--keep-withdrawn", is_flag=True, help="Keep stays with treatment withdrawn."),
    click.option("--keep-died", is_flag=True, help="Keep stays that died while being recorded."),
    click.option(
        "--as-published",
        multiple=True,
        metavar="NAME",
        help="Repeat a mistake of the public code; all for every one. May be given several times.",
    ),
    click.option("--memory", default="4GB", show_default=True, help="Above it work goes to disk."),
    click.option("--threads", type=int, help="Threads to use; by default all."),
    click.option("--keep-stages", type=click.Path(path_type=Path), help="New DuckDB file for every stage."),
)


def _options(command: Any) -> Any:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@cohort.command()
@_options
def mimic3(**given: Any) -> None:
    """MIMIC-III: CareVue and MetaVision."""
    _run("MIMIC3", given)


@cohort.command()
@_options
def mimic4(**given: Any) -> None:
    """MIMIC-IV: tables of the folders hosp and icu."""
    _run("MIMIC4", given)


@cohort.command()
@click.option("--source", required=True, help="As for mimic3 and mimic4.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="csv file to write.")
@click.option("--database", type=click.Choice(["mimic3", "mimic4"]), default="mimic3", show_default=True)
@click.option("--schema", help="Schema of the tables in PostgreSQL or DuckDB.")
@click.option("--name", "names", multiple=True, help="A mistake to try; by default every one, then all.")
@click.option("--memory", default="4GB", show_default=True, help="Above it work goes to disk.")
def mistakes(**given: Any) -> None:
    """Build the cohort with each mistake of the public code, and tell what it changes."""
    from caliope.clinical import tables
    from caliope.clinical.mistakes import effects_of_mistakes
    from caliope.clinical.pipeline import Resources
    from caliope.clinical.targets import check_target

    with _one_line_errors():
        check_target(given["out"], ".csv", source=given["source"])
        table = effects_of_mistakes(
            given["source"],
            given["names"] or None,
            database=getattr(tables, given["database"].upper()),
            schema=given["schema"],
            resources=Resources(given["memory"]),
            progress=lambda name: click.echo(f"{name} ...", err=True),
        )
        table.write_csv(given["out"])
    head = ("stays", "decisions", "no vaso", "no fluid", "SOFA", "states", "actions")
    click.echo(f"{'mistake':<26}" + "".join(f"{name:>10}" for name in head))
    for row in table.iter_rows(named=True):
        shares = [row[name] for name in ("no_vasopressor", "no_fluid")]
        changed = [row[name] for name in ("states_changed", "actions_changed")]
        numbers = [f"{row['stays']:>10}", f"{row['decisions']:>10}", *(f"{x:>10.1%}" for x in shares)]
        numbers += [f"{row['mean_sofa']:>10.2f}", *(f"{x:>10.1%}" for x in changed)]
        click.echo(f"{row['mistake']:<26}" + "".join(numbers))


@contextmanager
def _one_line_errors() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as error:
        click.echo("Error: interrupted; nothing was written.", err=True)
        raise click.exceptions.Exit(130) from error
    except (ValueError, ImportError, OSError) as error:
        click.echo(f"Error: {' '.join(str(error).split())}", err=True)
        raise click.exceptions.Exit(2) from error


def _run(database: str, given: dict[str, Any]) -> None:
    from caliope.clinical import tables
    from caliope.clinical.pipeline import STAGES, Resources, Stage, build_cohort
    from caliope.clinical.sources import plain_name
    from caliope.clinical.targets import check_target

    done = []

    def progress(stage: Stage, seconds: float) -> None:
        done.append(stage)
        click.echo(
            f"{STAGES.index(stage) + 1:2d}/{len(STAGES)}  {stage.name:<13}{seconds:8.1f} s  {stage.purpose}",
            err=True,
        )

    with _one_line_errors():
        check_target(given["out"], ".parquet", source=given["source"], keep_stages=given["keep_stages"])
        click.echo(f"reading {plain_name(given['source'])}", err=True)
        built = build_cohort(
            given["source"],
            settings=_settings(given),
            database=getattr(tables, database),
            schema=given["schema"],
            resources=Resources(given["memory"], given["threads"], given["keep_stages"]),
            progress=progress,
        )
        written = built.write(given["out"])
    if len(done) < len(STAGES):
        _tell_kept(len(STAGES) - len(done), len(STAGES), given)
    _report(built, written)


def _tell_kept(kept: int, stages: int, given: dict[str, Any]) -> None:
    from caliope.clinical.sources import is_address

    unsure = "; whether the server has changed since cannot be checked" if is_address(given["source"]) else ""
    click.echo(f"{kept} of {stages} stages taken from {given['keep_stages']}{unsure}", err=True)


def _settings(given: dict[str, Any]) -> Any:
    from caliope.clinical.settings import AsPublished, CohortSettings

    same = ("hours_before", "hours_after", "lab_delay_hours", "outcome", "terminal_reward", "cuts", "fill")
    return CohortSettings(
        **{name: given[name] for name in (*same, "train_share", "seed")},
        exclude_withdrawal=not given["keep_withdrawn"],
        exclude_died_recorded=not given["keep_died"],
        as_published=AsPublished.named(given["as_published"]),
    )


def _report(built: Any, written: list[Path]) -> None:
    click.echo(f"{'stays in':>9}{'left':>7}  why")
    for row in built.flow.iter_rows(named=True):
        click.echo(f"{row['stays_in']:>9}{row['stays_removed']:>7}  {row['reason']}")
    for name, value in built.summary().items():
        click.echo(f"{value:>9.4g}  {name}" if isinstance(value, float) else f"{value:>9}  {name}")
    for drug, cut in built.cuts.items():
        click.echo(f"{drug:>9}  cut points {', '.join(f'{x:g}' for x in cut)}")
    corrupt = int(built.quality["rows"].sum())
    click.echo(f"{corrupt:>9}  corrupt or unusable rows, counted in {written[3].name}")
    click.echo(f"Written: {', '.join(path.name for path in written)}")
