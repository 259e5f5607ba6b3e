"""Fits of models and values that outlast a unit: found again unless the log or the code that fits has changed."""

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from pathlib import Path

import caliope
from caliope._cache import Cache, Folder, check_folder

# What fits depend on beside the log. Estimators, weights and checks are not here: changing them refits nothing.
_SOURCES = ("behaviour/*.py", "values/*.py", "_trajectories.py", "_ragged.py", "_policies.py")


def kept_fits(folder: str | None) -> Cache:
    """Return the fits in a folder, or in memory alone."""
    return Cache({}) if folder is None else Cache(Folder(check_folder(folder)), _source_of_fits())


@cache
def _source_of_fits() -> str:
    package, digest = Path(caliope.__file__).parent, blake2b(digest_size=8)
    files = sorted(path for pattern in _SOURCES for path in package.glob(pattern))
    for path in (*files, Path(__file__).with_name("_problems.py")):
        digest.update(f"{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()
