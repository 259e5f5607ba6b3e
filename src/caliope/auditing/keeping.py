"""Finished stages of an audit on disk, so that one that was stopped goes on where it was."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from pickle import PicklingError
from tempfile import TemporaryFile
from typing import Any

import joblib

from caliope.source_digest import source_digest
from caliope.trajectories import Trajectories

Keep = Callable[[str, Callable[[], Any]], Any]  # name of a stage, how to do it -> its result
_PACKAGES = ("numpy", "scipy", "scikit-learn", "joblib", "faiss-cpu", "lightgbm", "torch")
_LETTERS = 60  # of a stage's name in the name of its file
_UNWRITABLE = (PicklingError, AttributeError, TypeError)  # what pickle raises, depending on what it meets


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
    def of(cls, folder: str | Path, fingerprint: str) -> Keeping:
        """A folder for the results of one question, made if it is not there."""
        return cls(usable_folder(folder), fingerprint)

    def __call__(self, name: str, make: Callable[[], Any]) -> Any:
        """What was kept under that name, or else what ``make`` makes, kept from now on."""
        file = self._file(name)
        try:
            return joblib.load(file)
        except Exception:  # absent, torn or of another program: whatever it is, it can be made again
            made = make()
        part = file.with_suffix(f".{os.getpid()}.part")
        try:
            joblib.dump(made, part)
            part.replace(file)
        except _UNWRITABLE as error:
            raise _cannot_be_kept(f"what comes of {name!r}", error) from None
        finally:
            part.unlink(missing_ok=True)
        return made

    def _file(self, name: str) -> Path:
        # For a reader the words of the name; they may be those of another, so the exact name is in the digest.
        words = re.sub(r"[^A-Za-z0-9]+", "-", name)[:_LETTERS]
        return self.folder / f"{words}.{_digest(self.fingerprint, name)}.joblib"

    def for_policy(self, wanted: Any, regressor: Any) -> Keeping:
        """The same folder for what also depends on the new policy, and on the model of its values."""
        how = _digest_of_model("of values", regressor)
        return Keeping(self.folder, _digest(self.fingerprint, wanted, how))


def fingerprint_of(data: Trajectories, models: Mapping[str, Any] | None, settings: Mapping[str, Any]) -> str:
    """A name for all that the fits of an audit depend on: the log to the last digit, models, settings, and code."""
    log = (data.states, data.actions, data.rewards, data.offsets, data.terminated, data.n_actions)
    return _digest(
        [_digest(part) for part in (*log, data.feature_names, data.ids)],
        # In their order, which decides between models that are alike.
        [(name, _digest_of_model(name, model)) for name, model in (models or {}).items()],
        dict(settings),
        [platform.python_version(), source_digest(), *map(_version, _PACKAGES)],
    )


def usable_folder(folder: str | Path) -> Path:
    """The folder, made if it is not there; raise, in one line, unless files can be written in it."""
    if not str(folder).strip():
        raise ValueError("the folder for work has no name: give one of your own, or leave it out.")
    made = Path(folder)
    if made.exists() and not made.is_dir():
        raise ValueError(f"work must be a folder, and {made} is a file: name another.")
    try:
        made.mkdir(parents=True, exist_ok=True, mode=0o700)
        with TemporaryFile(dir=made):
            pass
    except OSError as error:
        raise ValueError(
            f"the folder {made} cannot be used for work ({error.strerror}): name one that you may write to."
        ) from None
    return made


def _digest(*what: Any) -> str:
    return str(joblib.hash(what))


def _digest_of_model(name: str, model: Any) -> str:
    try:
        return _digest(model)
    except _UNWRITABLE as error:
        raise _cannot_be_kept(f"the model {name!r}", error) from None


def _cannot_be_kept(what: str, error: Exception) -> ValueError:
    said = " ".join(str(error.args[0] if error.args else error).split()).rstrip(".:")
    return ValueError(
        f"{what} cannot be written to disk ({said}): define its functions and classes in a module, not as a lambda or "
        "inside a function, or leave work out."
    )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
