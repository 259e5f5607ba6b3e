"""The numbers of an audit as JSON; needs neither matplotlib nor jinja2."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from caliope._audit._comparison import PolicyComparison
from caliope._audit._result import Audit

SCHEMA = 1  # of the JSON: it changes when a name in it changes its meaning
_PACKAGES = ("caliope", "numpy", "scipy", "scikit-learn", "polars", "faiss-cpu")


def numbers_json(
    audit: Audit | PolicyComparison,
    figures: Mapping[str, Any] | None = None,
    *,
    page: Mapping[str, Any] | None = None,
) -> str:
    """Write the numbers of an audit, or of a comparison of policies, as JSON.

    Parameters
    ----------
    audit : Audit or PolicyComparison
        The result.
    figures : mapping, optional
        Tables behind the figures, by name.
    page : mapping, optional
        The page itself, so that it can be drawn again.

    Returns
    -------
    str
        The audit, the versions of packages and the figures; what is not finite becomes null.

    Examples
    --------
    >>> text = numbers_json(audit)  # doctest: +SKIP
    """
    content = {"schema": SCHEMA} | audit.to_dict() | {"versions": versions()}
    content |= ({"figures": dict(figures)} if figures else {}) | ({"page": dict(page)} if page else {})
    return json.dumps(finite(content), indent=2, allow_nan=False) + "\n"


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide the numbers."""
    return {"python": platform.python_version()} | {name: _version(name) for name in _PACKAGES}


def finite(x: Any) -> Any:
    """Plain values for JSON: what is not finite becomes None, wherever it stands.

    >>> finite({"a": (1.5, float("nan"))})
    {'a': [1.5, None]}
    """
    if isinstance(x, Mapping):
        return {str(key): finite(value) for key, value in x.items()}
    if isinstance(x, list | tuple):
        return [finite(value) for value in x]
    if isinstance(x, np.generic):
        x = x.item()
    return None if isinstance(x, float) and not math.isfinite(x) else x


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed as a package"
