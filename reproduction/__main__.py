"""``python -m reproduction``: the figures and tables of the paper from the command line."""

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
from caliope.cli import OneLineGroup

COMMAND, RESULTS = "python -m reproduction", Path("reproduction-results")
EXPERIMENTS = {
    "figure1": "What an error of the behaviour policy costs, on a two-dimensional map.",
    "table1": "Calibration of behaviour models by severity of sepsis.",
    "figure2": "Predictive distributions where the models are at their worst.",
    "table2": "Error of estimators under random and intervention splits.",
    "table3": "Whole pipelines against the truth; not in the paper.",
    "zoo": "Which calibration number ranks models as the truth does; not in the paper.",
    "gate": "Whether the verdicts of an audit are honest; not in the paper, and not part of all.",
    "honesty": "Honesty and power of the default audit, by family of logs; not in the paper, and not part of all.",
}
APART = ("gate", "honesty")  # of verdicts, not of the paper: not part of all


@click.group(cls=OneLineGroup)
def main() -> None:
    """Reproduce the figures and tables of the paper, with the truth beside them.

    By default with fewer patients and seeds than the paper, in minutes; --full is the paper's size and may take hours.
    Results are written as they come: a run that was stopped resumes where it was.
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
            "--out", type=click.Path(path_type=Path), help=f"Folder of the results.  [{RESULTS}/SIZE]"
        ),
        click.option("--jobs", default=1, show_default=True, help="Number of processes, one core each."),
        click.option(
            "--times",
            type=click.IntRange(1),
            default=1,
            show_default=True,
            help="Multiply the replicates by this (table3, gate, honesty); finished ones are reused.",
        ),
        click.option(
            "--replicates",
            type=click.IntRange(1),
            help="Only the first so many seeds or pairs (figures, table1, table2, zoo); a longer run reuses them.",
        ),
        click.option(
            "--few",
            is_flag=True,
            help="Only the default pipeline and what it is compared with (table3).",
        ),
        click.option(
            "--trajectories",
            type=click.IntRange(1),
            help="Only logs with so many trajectories (table3); a run of all sizes reuses them.",
        ),
    )[::-1]:
        command = option(command)
    return command


def _add(name: str, text: str) -> None:
    @_options
    def command(smoke: bool, full: bool, **given: Any) -> None:
        _run(name, _size(smoke, full), **given)

    main.command(name, help=text)(command)


for _name, _text in EXPERIMENTS.items():
    _add(_name, _text)


@main.command("all")
@_options
def run_all(
    smoke: bool,
    full: bool,
    data: Path | None,
    times: int,
    few: bool,
    trajectories: int | None,
    **given: Any,
) -> None:
    """All of the paper, and table3 and zoo, one after the other; with --data those that a cohort allows."""
    size = _size(smoke, full)
    for name in EXPERIMENTS:
        config = import_module(f"reproduction.{name}").Config
        if name not in APART and (data is None or _takes_data(config)):
            click.echo(name, err=True)
            longer = times if hasattr(config, "longer") else 1
            fewer: dict[str, Any] = {} if _counts(config) else {"replicates": None}
            fewer |= {"few": few and hasattr(config, "fewer")}
            fewer |= {"trajectories": trajectories if hasattr(config, "only") else None}
            _run(name, size, data=data, times=longer, **given | fewer)


@main.command()
@click.option(
    "--from",
    "source",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=RESULTS / "default",
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
    from reproduction._report import write_page

    names = write_page(source, target, order=tuple(EXPERIMENTS))
    click.echo(f"Written: {target}, with {', '.join(names)}.")


def _size(smoke: bool, full: bool) -> str:
    if smoke and full:
        raise click.UsageError(
            "--smoke and --full exclude each other: give one, or neither for the usual size."
        )
    return "smoke" if smoke else "full" if full else "default"


def _run(
    name: str,
    size: str,
    *,
    data: Path | None,
    out: Path | None,
    jobs: int,
    times: int,
    replicates: int | None,
    few: bool,
    trajectories: int | None,
) -> None:
    module = import_module(f"reproduction.{name}")
    from reproduction._runs import run_units, total_work, write_atomically

    config = _lengthen(_use_data(getattr(module, size.upper()), name, data), name, times)
    config = _leave_out(config, name) if few else config
    config = config if trajectories is None else _only(config, name, trajectories)
    config = config if replicates is None else _shorten(config, name, replicates)
    folder = out or RESULTS / size
    work_folder = folder / "work" / name
    units, start = module.units(config), time.monotonic()
    try:
        results = run_units(units, work_folder, jobs=jobs)
    except KeyboardInterrupt:
        raise click.ClickException(
            f"stopped; finished units are in {work_folder}, and the same command resumes from there."
        ) from None
    report = module.report(config, results)
    report.write(folder, figure=module.figure(report))
    work = total_work(units, work_folder)
    times_record = {
        "seconds": round(work.seconds, 1),
        "units": len(units),
        "units_of_other_code": work.other_code,
        "command": _command(name, size, data, times, few, replicates, trajectories),
    }
    write_atomically(folder / f"{name}.times.json", json.dumps(times_record, indent=1))
    click.echo(report.to_markdown(details=False))
    click.echo(
        f"\n{len(units)} units, {work.seconds:.0f} s of work, {time.monotonic() - start:.0f} s now. Written: "
        f"{folder / name}.json, .md and .svg."
    )


def _command(
    name: str,
    size: str,
    data: Path | None,
    times: int,
    few: bool,
    replicates: int | None,
    trajectories: int | None,
) -> str:
    flag = {"default": "", "smoke": " --smoke", "full": " --full"}[size]
    flag += f" --times {times}" if times > 1 else ""
    flag += "" if replicates is None else f" --replicates {replicates}"
    flag += " --few" if few else ""
    flag += "" if trajectories is None else f" --trajectories {trajectories}"
    return f"{COMMAND} {name}{flag}{'' if data is None else f' --data {data.name}'}"


def _lengthen(config: Any, name: str, times: int) -> Any:
    if times == 1:
        return config
    if not hasattr(config, "longer"):
        raise click.UsageError(f"{name} has no replicates to add to: it takes no --times.")
    return config.longer(times)


def _counts(config: Any) -> list[str]:
    """Return the fields that say how many replicates there are."""
    return [
        field.name for field in dataclasses.fields(config) if field.name in ("seeds", "pairs", "value_pairs")
    ]


def _shorten(config: Any, name: str, replicates: int) -> Any:
    if not _counts(config):
        raise click.UsageError(
            f"{name} has neither seeds nor pairs to take the first of: it takes no --replicates."
        )
    return dataclasses.replace(
        config, **{count: min(getattr(config, count), replicates) for count in _counts(config)}
    )


def _leave_out(config: Any, name: str) -> Any:
    if not hasattr(config, "fewer"):
        raise click.UsageError(f"{name} has no pipelines to leave out: it takes no --few.")
    return config.fewer()


def _only(config: Any, name: str, trajectories: int) -> Any:
    if not hasattr(config, "only"):
        raise click.UsageError(f"{name} has no logs of several sizes: it takes no --trajectories.")
    return config.only(trajectories)


def _takes_data(config: Any) -> bool:
    return "data" in {field.name for field in dataclasses.fields(config)}


def _use_data(config: Any, name: str, data: Path | None) -> Any:
    """The configuration on the user's own cohort; the digest of its content tells it from other cohorts."""
    if data is None:
        return config
    if not _takes_data(config):
        raise click.UsageError(f"{name} runs on a domain whose truth is known: it takes no --data.")
    from reproduction._cohorts import digest_of

    return dataclasses.replace(config, data=str(data), digest=digest_of(data))


if __name__ == "__main__":
    main(prog_name=COMMAND)
