"""``caliope reproduce``: the figures and tables of the paper from the command line."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import click

# Nothing heavy up here: --help should answer at once.

EXPERIMENTS = {
    "figure1": ("figure1", "What an error of the behaviour policy costs, on a two-dimensional map."),
    "table1": ("table1", "Calibration of behaviour models by severity of sepsis."),
    "figure2": ("figure2", "Predictive distributions where the models are at their worst."),
    "table2": ("table2", "Error of estimators under random and intervention splits."),
    "table3": ("table3", "Whole pipelines against the truth; not in the paper."),
    "zoo": ("zoo_ranking", "Which calibration number ranks models as the truth does; not in the paper."),
}


@click.group()
def reproduce() -> None:
    """Make the figures and tables of the paper again, with the truth beside them.

    By default with fewer patients and seeds than the paper, in minutes; --full is the paper's size and may take hours.
    Results are written as they come: a run that was stopped goes on where it was.
    """


def _options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option("--smoke", "size", flag_value="smoke", help="A run of seconds, to see that it works."),
        click.option("--full", "size", flag_value="full", help="The paper's size."),
        click.option(
            "--data",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Your own cohort, as written by caliope cohort.",
        ),
        click.option(
            "--out", type=click.Path(path_type=Path), help="Folder of the results.  [reproduction/SIZE]"
        ),
        click.option("--jobs", default=1, show_default=True, help="Processes, one core each."),
    )[::-1]:
        command = option(command)
    return command


def _add(name: str, text: str) -> None:
    @_options
    def command(size: str | None, data: Path | None, out: Path | None, jobs: int) -> None:
        _run(name, size or "default", data=data, out=out, jobs=jobs)

    reproduce.command(name, help=text)(command)


for _name, (_, _text) in EXPERIMENTS.items():
    _add(_name, _text)


@reproduce.command("all")
@_options
def every(size: str | None, data: Path | None, out: Path | None, jobs: int) -> None:
    """All of them, one after the other; with --data those that can be made from a cohort."""
    for name, (module, _) in EXPERIMENTS.items():
        if data is None or _takes_data(import_module(f"caliope.experiments.{module}")):
            click.echo(f"{name}", err=True)
            _run(name, size or "default", data=data, out=out, jobs=jobs)


@reproduce.command()
@click.option(
    "--from",
    "source",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path("reproduction/default"),
    show_default=True,
    help="Folder of the results.",
)
@click.option(
    "--to",
    "target",
    type=click.Path(path_type=Path),
    default=Path("docs/reproduction.md"),
    show_default=True,
    help="Page to write; pictures go into a folder of the same name.",
)
def docs(source: Path, target: Path) -> None:
    """Write the page of all results from their JSON files."""
    from caliope.experiments.documentation import write_page

    names = write_page(source, target, order=tuple(EXPERIMENTS))
    click.echo(f"Written: {target}, with {', '.join(names)}.")


def _run(name: str, size: str, *, data: Path | None, out: Path | None, jobs: int) -> None:
    module = import_module(f"caliope.experiments.{EXPERIMENTS[name][0]}")
    from caliope.experiments.runs import run_units, unit_seconds, write_atomically

    config = _with_data(getattr(module, size.upper()), module, name, data)
    folder = out or Path("reproduction") / size
    work = folder / "work" / name
    units, start = module.units(config), time.monotonic()
    try:
        results = run_units(units, work, jobs=jobs)
    except KeyboardInterrupt:
        raise click.ClickException(
            f"stopped; the units that were done are in {work}, and the same command goes on from there."
        ) from None
    report = module.report(config, results)
    report.write(folder, figure=module.figure(report))
    seconds = unit_seconds(units, work)
    times = {"seconds": round(seconds, 1), "units": len(units), "command": _command(name, size, data)}
    write_atomically(folder / f"{name}.times.json", json.dumps(times, indent=1))
    click.echo(report.to_markdown(details=False))
    click.echo(
        f"\n{len(units)} units, {seconds:.0f} s of work, {time.monotonic() - start:.0f} s now. Written: "
        f"{folder / name}.json, .md and .svg."
    )


def _command(name: str, size: str, data: Path | None) -> str:
    flag = {"default": "", "smoke": " --smoke", "full": " --full"}[size]
    return f"caliope reproduce {name}{flag}{'' if data is None else f' --data {data.name}'}"


def _takes_data(module: Any) -> bool:
    return "data" in {field.name for field in dataclasses.fields(module.Config)}


def _with_data(config: Any, module: Any, name: str, data: Path | None) -> Any:
    """The configuration on a reader's own cohort, named with its content so that no other is taken up."""
    if data is None:
        return config
    if not _takes_data(module):
        raise click.UsageError(f"{name} is made on a domain whose truth is known: it takes no --data.")
    from caliope.experiments.cohorts import digest_of

    return dataclasses.replace(config, data=str(data), digest=digest_of(data))
