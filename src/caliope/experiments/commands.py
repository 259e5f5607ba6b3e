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
    "gate": ("gate", "Whether the verdicts of an audit are honest; not in the paper, and not part of all."),
}


@click.group()
def reproduce() -> None:
    """Make the figures and tables of the paper again, with the truth beside them.

    By default with fewer patients and seeds than the paper, in minutes; --full is the paper's size and may take hours.
    Results are written as they come: a run that was stopped goes on where it was.
    """


def _options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option("--smoke", is_flag=True, help="A run of seconds, to see that it works."),
        click.option("--full", is_flag=True, help="The paper's size; may take hours, or days."),
        click.option(
            "--data",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Your own cohort, as written by caliope cohort.",
        ),
        click.option(
            "--out", type=click.Path(path_type=Path), help="Folder of the results.  [reproduction/SIZE]"
        ),
        click.option("--jobs", default=1, show_default=True, help="Processes, one core each."),
        click.option(
            "--times",
            type=click.IntRange(1),
            default=1,
            show_default=True,
            help="So many times the replicates (table3, gate); those that are done are kept.",
        ),
    )[::-1]:
        command = option(command)
    return command


def _add(name: str, text: str) -> None:
    @_options
    def command(smoke: bool, full: bool, **given: Any) -> None:
        _run(name, _size(smoke, full), **given)

    reproduce.command(name, help=text)(command)


for _name, (_, _text) in EXPERIMENTS.items():
    _add(_name, _text)


@reproduce.command("all")
@_options
def every(smoke: bool, full: bool, data: Path | None, times: int, **given: Any) -> None:
    """All of them, one after the other; with --data those that can be made from a cohort."""
    size = _size(smoke, full)
    for name, (file, _) in EXPERIMENTS.items():
        module = import_module(f"caliope.experiments.{file}")
        if name != "gate" and (data is None or _takes_data(module)):
            click.echo(f"{name}", err=True)
            longer = times if hasattr(module.Config, "longer") else 1
            _run(name, size, data=data, times=longer, **given)


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


def _size(smoke: bool, full: bool) -> str:
    if smoke and full:
        raise click.UsageError(
            "--smoke and --full exclude each other: give one, or neither for the usual size."
        )
    return "smoke" if smoke else "full" if full else "default"


def _run(name: str, size: str, *, data: Path | None, out: Path | None, jobs: int, times: int) -> None:
    module = import_module(f"caliope.experiments.{EXPERIMENTS[name][0]}")
    from caliope.experiments.runs import run_units, spent, write_atomically

    config = _longer(_with_data(getattr(module, size.upper()), module, name, data), name, times)
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
    work_done = spent(units, work)
    took = {
        "seconds": round(work_done.seconds, 1),
        "units": len(units),
        "units_of_other_code": work_done.other_code,
        "command": _command(name, size, data, times),
    }
    write_atomically(folder / f"{name}.times.json", json.dumps(took, indent=1))
    click.echo(report.to_markdown(details=False))
    click.echo(
        f"\n{len(units)} units, {work_done.seconds:.0f} s of work, {time.monotonic() - start:.0f} s now. Written: "
        f"{folder / name}.json, .md and .svg."
    )


def _command(name: str, size: str, data: Path | None, times: int) -> str:
    flag = {"default": "", "smoke": " --smoke", "full": " --full"}[size]
    flag += f" --times {times}" if times > 1 else ""
    return f"caliope reproduce {name}{flag}{'' if data is None else f' --data {data.name}'}"


def _longer(config: Any, name: str, times: int) -> Any:
    if times == 1:
        return config
    if not hasattr(config, "longer"):
        raise click.UsageError(f"{name} has no replicates to add to: it takes no --times.")
    return config.longer(times)


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
