"""Where a report goes: tried before hours of work, written when the result has been told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any


def report_writer(out: str | None) -> Callable[[Any], None] | None:
    """What writes the report of an audit to ``out``; raise now, in one line, if that will not be possible."""
    if out is None:
        return None
    _check_place(Path(out))
    try:
        from caliope.report.writing import write_report
    except ModuleNotFoundError as error:
        raise ValueError(
            f"a report needs {error.name}: pip install 'caliope[report]', or leave --out out."
        ) from None

    def write(found: Any) -> None:
        write_report(found, out)

    return write


def _check_place(page: Path) -> None:
    for file in (page, page.with_suffix(".json")):
        if file.is_dir():
            raise ValueError(f"the report cannot be written: {file} is a folder. Give --out another name.")
    if not page.parent.is_dir():
        raise ValueError(f"the folder of {page} does not exist: make it first, or write elsewhere.")
    try:
        with TemporaryFile(dir=page.parent):
            pass
    except OSError as error:
        raise ValueError(
            f"the report cannot be written to {page} ({error.strerror}): give --out a place that you may write to."
        ) from None
