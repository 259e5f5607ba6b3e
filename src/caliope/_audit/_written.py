"""What results that have a report share: their JSON and their page."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar


class Reported:
    """A result with ``to_dict``, that is written as JSON and as a page."""

    _writer: ClassVar[str]  # function of caliope.report that writes its page

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite becomes None."""
        raise NotImplementedError

    def to_json(self, *, indent: int | None = 2) -> str:
        """Write the result as JSON.

        Parameters
        ----------
        indent : int, optional
            Spaces per level; None for one line.

        Returns
        -------
        str
            What is not finite becomes null.
        """
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def write_html(self, path: str | Path) -> Path:
        """Write the report, one page that needs no other file, and its numbers as JSON beside it (extra report).

        Parameters
        ----------
        path : path
            Where to write it; the name must end in .html.

        Returns
        -------
        Path
            The page.
        """
        # Imported by name: the report is made of results, and nothing here is made of it.
        page: Path = getattr(import_module("caliope.report"), self._writer)(self, path)[0]
        return page
