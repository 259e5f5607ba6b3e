"""The same question asked of other logs of the same decisions, such as cohorts with other windows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from caliope.cli._config import Study

if TYPE_CHECKING:
    from caliope._audit._result import Audit

HERE = "this log"


def beside_others(study: Study, found: Audit, ask: Callable[[Study, str], Audit]) -> Audit:
    """The audit of a study with the answers of its other logs; ``ask`` audits a study under a name."""
    names = _names(study)
    others = {}
    for file in study.other_logs:
        other = _other_study(study, found, file)
        with _named(other):
            others[names[file]] = ask(other, names[file])
    return found.beside(others, name=names[str(study.log)])


def check_other_logs(study: Study) -> None:
    """Raise where the question cannot be asked alike of all logs; before anything is fitted."""
    if not study.other_logs:
        return
    if not isinstance(study.log, str):
        raise ValueError("other_logs go with a log of one file, a folder or a pattern: give the log as that.")
    if study.log in study.other_logs:
        raise ValueError(f"--other-logs names the log itself, {study.log!r}: leave it out there.")
    gone = [
        file
        for file in study.other_logs
        if not set(file) & set("*?[") and not Path(file).expanduser().exists()
    ]
    if gone:
        raise ValueError(f"no file matches {gone[0]!r} of --other-logs (looked from {Path.cwd()}).")
    unknown = [file for file in (study.log, *study.other_logs) if window_of(file) is None]
    if unknown and study.gamma not in (0, 1):
        raise ValueError(
            f"gamma is per decision, and how many hours apart the decisions in {unknown[0]} are is not known: keep the "
            "settings (.json) beside cohorts that 'caliope cohort' wrote, or leave --gamma at 1."
        )
    if study.engine is None:
        for file in study.other_logs:
            _try_reading(replace(study, log=file, other_logs=()))


def window_of(file: str) -> float | None:
    """Hours from one decision to the next in a cohort, from the settings that were written beside it; None without."""
    try:
        content = json.loads(Path(file).with_suffix(".json").read_text(encoding="utf-8"))
        hours = content["settings"]["window_hours"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return float(hours) if isinstance(hours, int | float) and hours > 0 else None


def _names(study: Study) -> Mapping[str, str]:
    """What each log is called: by its window where all are known and differ, else by its file."""
    files = (str(study.log), *study.other_logs)
    windows = [window_of(file) for file in files]
    if None not in windows and len(set(windows)) == len(files):
        return {file: f"windows of {hours:g} h" for file, hours in zip(files, windows, strict=True)}
    short = [Path(file).name for file in study.other_logs]
    unique = len(set(short)) == len(short)
    return {files[0]: HERE, **dict(zip(study.other_logs, short if unique else study.other_logs, strict=True))}


def _other_study(study: Study, found: Audit, file: str) -> Study:
    """The study of another log: with the same states, doses cut at the same points, and the same discount per hour."""
    gamma, here, there = study.gamma, window_of(str(study.log)), window_of(file)
    if here is not None and there is not None and gamma > 0:
        gamma = gamma ** (there / here)
    same: dict[str, Any] = {"log": file, "other_logs": (), "by": None, "require": (), "gamma": gamma}
    encoder = found.data.encoder
    same["states"] = tuple(column.name for column in encoder.columns)
    cuts = {each.name: each.cuts for each in encoder.actions if each.cuts}
    if cuts:
        points = (f"{name}:{','.join(map(repr, x))}" for name, x in cuts.items())
        same |= {"levels": None, "cuts": ";".join(points)}
    return replace(study, **same)


def _try_reading(study: Study) -> None:
    """Raise for a table or a policy that cannot be read, before hours of work on the first log."""
    from caliope.cli._columns import read_log
    from caliope.cli._policies import target_of

    with _named(study):
        target_of(study, read_log(study).data)


@contextmanager
def _named(study: Study) -> Iterator[None]:
    """Say of which file something is wrong."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise ValueError(f"the other log {study.log}: {error}") from error
