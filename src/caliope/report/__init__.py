"""The report: an audit as one HTML page that a clinician can read, with its numbers as JSON beside it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from caliope.report.writing import report_html, write_report

# The numbers alone need neither matplotlib nor jinja2, which come with the extra "report".
_LAZY = ("report_html", "write_report")


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module("caliope.report.writing"), name)
    raise AttributeError(f"module 'caliope.report' has no attribute {name!r}")


__all__ = ["report_html", "write_report"]
