"""A cache of finished work, for audits and fitted values: what was stopped goes on where it was."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from pickle import PicklingError
from tempfile import TemporaryFile
from typing import Any, BinaryIO

import joblib
from sklearn.base import clone

from caliope._trajectories import Trajectories

_PACKAGES = ("numpy", "scipy", "scikit-learn", "joblib", "faiss-cpu", "lightgbm", "torch")
_LETTERS = 60  # of an entry's name in the name of its file
_CHUNK = 1 << 20  # bytes that are read at once
_DIGEST = 32  # bytes at the end of a file that tell whether it is whole
_UNWRITABLE = (PicklingError, AttributeError, TypeError)  # what pickle raises, depending on what it meets


@cache
def source_digest() -> str:
    """Hash of the package source, used to invalidate cached results: every Python file, by path and content."""
    root, digest = Path(__file__).parent, blake2b(digest_size=8)
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root).as_posix()}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Folder:
    """Entries as files in a folder. They are pickles, which can run code: use a folder of your own."""

    path: Path

    def get(self, name: str, default: Any = None) -> Any:
        """The entry of that name; the default where there is none, or where its file is damaged."""
        file = self._file(name)
        if not file.is_file():
            return default
        with file.open("rb") as opened:
            # An error that a whole file raises is a bug, and is not hidden.
            return joblib.load(opened) if _is_whole(opened) else default

    def __setitem__(self, name: str, value: Any) -> None:
        """Write beside, then move into place: a kill leaves the old file or the new one."""
        file = self._file(name)
        part = file.with_suffix(f".{os.getpid()}.part")
        try:
            with part.open("w+b") as opened:
                joblib.dump(value, opened)
                size = opened.tell()
                opened.seek(0)
                digest = _digest_of_bytes(opened, size)
                opened.seek(size)
                opened.write(digest)
            part.replace(file)
        except OSError as error:
            raise OSError(
                f"{file.name} could not be written to the folder for work {self.path} ({error.strerror or error}): "
                "what was finished before is kept. Make room, or name another folder."
            ) from error
        finally:
            part.unlink(missing_ok=True)

    def _file(self, name: str) -> Path:
        return self.path / f"{name}.joblib"


def _is_whole(file: BinaryIO) -> bool:
    """Whether the bytes end with their own digest; leaves the file at its beginning."""
    size = file.seek(0, os.SEEK_END) - _DIGEST
    file.seek(0)
    whole = size > 0 and _digest_of_bytes(file, size) == file.read(_DIGEST)
    file.seek(0)
    return whole


def _digest_of_bytes(file: BinaryIO, size: int) -> bytes:
    digest = blake2b(digest_size=_DIGEST)
    while size > 0 and (chunk := file.read(min(size, _CHUNK))):
        digest.update(chunk)
        size -= len(chunk)
    return digest.digest()


@dataclass(frozen=True)
class Cache:
    """Results by name, found again by whoever asks the same of the same data with the same code.

    Attributes
    ----------
    store : Folder, dict or None
        Where entries are kept: on disk, in memory, or not at all.
    key : str
        Digest of everything that the entries depend on.

    Examples
    --------
    >>> kept = Cache({})
    >>> kept("sum", lambda: 1 + 1), kept("sum", lambda: 0), kept.keyed("other data")("sum", lambda: 0)
    (2, 2, 0)
    """

    store: Folder | dict[str, Any] | None = field(default=None, repr=False)
    key: str = ""

    @classmethod
    def of(cls, work: str | Path | Cache | None) -> Cache:
        """The cache in a folder, made if it is not there; a cache as it is; one that keeps nothing for None."""
        if isinstance(work, Cache):
            return work
        if work is None:
            return cls()
        code = [platform.python_version(), source_digest(), *map(_version, _PACKAGES)]
        return cls(Folder(check_folder(work)), _digest(code))

    def __call__(self, name: str, make: Callable[[], Any]) -> Any:
        """What is kept under that name, or else what ``make`` returns, kept from now on."""
        if self.store is None:
            return make()
        entry = self.store.get(self._entry(name))
        if entry is None:
            entry = (make(),)
            self._keep(name, entry)
        return entry[0]

    def get(self, name: str, default: Any = None) -> Any:
        """What is kept under that name, or the default."""
        entry = None if self.store is None else self.store.get(self._entry(name))
        return default if entry is None else entry[0]

    def put(self, name: str, value: Any) -> None:
        """Keep a value under that name, in place of what was there."""
        self._keep(name, (value,))

    def keyed(self, *what: Any) -> Cache:
        """The same store for what also depends on these: numbers, arrays, models by name, trajectories."""
        if self.store is None:
            return self
        return Cache(self.store, _digest(self.key, *(_digest_of(x) for x in what)))

    def _keep(self, name: str, entry: tuple[Any]) -> None:
        if self.store is None:
            return
        try:
            self.store[self._entry(name)] = entry
        except _UNWRITABLE as error:
            raise _cannot_be_kept(f"the result of {name!r}", error) from None

    def _entry(self, name: str) -> str:
        # For a reader the words of the name; they may be those of another, so the exact name is in the digest.
        words = re.sub(r"[^A-Za-z0-9]+", "-", name)[:_LETTERS]
        return f"{words}.{_digest(self.key, name)}"


def check_folder(folder: str | Path) -> Path:
    """The folder, made if it is not there; raise, in one line, unless files can be written in it."""
    if not str(folder).strip():
        raise ValueError("the folder for work has no name: give one of your own, or leave it out.")
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise ValueError(f"work must be a folder, and {path} is a file: name another.")
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        with TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise ValueError(
            f"the folder {path} cannot be used for work ({error.strerror}): name one that you may write to."
        ) from None
    return path


def _digest(*what: Any) -> str:
    return str(joblib.hash(what))


def _digest_of(x: Any) -> str:
    if isinstance(x, Trajectories):
        # To the last digit, and each array alone: together, equal arrays would be told from one that is shared.
        parts: tuple[Any, ...]
        parts = (x.states, x.actions, x.rewards, x.offsets, x.terminated, x.n_actions, x.feature_names, x.ids)
        parts += (x.calendar,) if x.cluster is None else (x.calendar, x.cluster)
        return _digest(*map(_digest, parts))
    if isinstance(x, Mapping):
        # In their order, which decides between models that are alike.
        return _digest(*((name, _digest_of_model(f"the model {name!r}", model)) for name, model in x.items()))
    return _digest_of_model(f"the {type(x).__name__}", x)


def _digest_of_model(name: str, model: Any) -> str:
    try:
        return _digest(_without_jobs(model))
    except _UNWRITABLE as error:
        raise _cannot_be_kept(name, error) from None


def _without_jobs(model: Any) -> Any:
    """A model without its number of jobs, which changes no result; anything else as it is."""
    if isinstance(model, type) or not hasattr(model, "get_params"):
        return model
    jobs = {name: None for name in model.get_params() if name.split("__")[-1] == "n_jobs"}
    return clone(model).set_params(**jobs) if jobs else model


def _cannot_be_kept(what: str, error: Exception) -> ValueError:
    reason = " ".join(str(error.args[0] if error.args else error).split()).rstrip(".:")
    return ValueError(
        f"{what} cannot be written to disk ({reason}): define its functions and classes in a module, not as a lambda "
        "or inside a function, or leave work out."
    )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
