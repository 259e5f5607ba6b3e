"""Finished stages of an audit on disk, so that one that was stopped goes on where it was."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import joblib

Keep = Callable[[str, Callable[[], Any]], Any]  # name of a stage, how to do it -> its result


def forget(name: str, make: Callable[[], Any]) -> Any:
    """Keep nothing: do it."""
    return make()


@dataclass(frozen=True)
class Keeping:
    """Results in a folder, found again by whoever asks the same of the same data.

    They are pickles, which can hold any program: use a folder of your own, never one from somebody else.
    """

    folder: Path
    fingerprint: str  # of everything that the results depend on

    @classmethod
    def of(cls, folder: str | Path, *what: Any) -> Keeping:
        """A folder for an audit of ``what``: data, models, settings."""
        made = Path(folder)
        made.mkdir(parents=True, exist_ok=True, mode=0o700)
        versions = [version(name) for name in ("caliope", "numpy", "scikit-learn")]
        return cls(made, str(joblib.hash((what, versions)))[:16])

    def __call__(self, name: str, make: Callable[[], Any]) -> Any:
        """What was kept under that name, or else what ``make`` makes, kept from now on."""
        file = self.folder / f"{re.sub(r'[^A-Za-z0-9]+', '-', name)}.{self.fingerprint}.joblib"
        try:
            return joblib.load(file)
        except Exception:  # absent, torn or of another program: whatever it is, it can be made again
            made = make()
        part = file.with_suffix(f".{os.getpid()}.part")
        joblib.dump(made, part)
        part.replace(file)
        return made

    def for_policy(self, *what: Any) -> Keeping:
        """The same folder for what also depends on the new policy."""
        return Keeping(self.folder, str(joblib.hash((self.fingerprint, what)))[:16])
