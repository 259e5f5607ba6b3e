"""The values of a fit on disk, so that it goes on where it was stopped."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from caliope.ragged import Float
from caliope.trajectories import Trajectories

_UNREADABLE = (OSError, EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile, zlib.error)


@dataclass(frozen=True)
class Iteration:
    """What one round of regression changed."""

    number: int
    value: float  # mean V of the first states
    change: float  # root mean square change of V over all logged states
    largest: float  # largest absolute Q


Rounds = tuple[tuple[Iteration, ...], Float, Float]  # trace, V of the last round but one, V of the last


class Checkpoint:
    """The values of the last two rounds, on disk: all that a fit needs to go on."""

    def __init__(self, path: str | Path | None, data: Trajectories, proba: Float, settings: tuple[Any, ...]):
        self.path, self.n_steps = None if path is None else Path(path), data.n_steps
        if self.path is None:
            return
        if not self.path.parent.is_dir():
            raise FileNotFoundError(
                f"checkpoint: the folder {self.path.parent} does not exist; make it, or name another place."
            )
        digest = hashlib.sha256(described(settings).encode())
        for x in (data.states, data.actions, data.rewards, data.offsets, data.terminated, proba):
            digest.update(f"{x.shape} {x.dtype}".encode())
            digest.update(np.ascontiguousarray(x).tobytes())
        self.fingerprint = digest.hexdigest()

    def load(self, n_iterations: int) -> Rounds:
        """What the file holds, if it is of the same fit and of no more rounds; zeros where there is no file."""
        if self.path is None or not self.path.exists():
            return (), np.zeros(self.n_steps), np.zeros(self.n_steps)
        try:
            fingerprint, rounds = _read(self.path)
        except _UNREADABLE as error:
            raise ValueError(
                f"{self.path} is not a checkpoint of fitted_q, or it is damaged ({type(error).__name__}: {error}); "
                "remove it to start anew, or name another file."
            ) from error
        if fingerprint != self.fingerprint:
            raise ValueError(
                f"{self.path} was written for other data, another policy or other settings; "
                "remove it to start anew, or name another file."
            )
        if len(rounds[0]) > n_iterations:
            raise ValueError(
                f"{self.path} holds {len(rounds[0])} rounds, and n_iterations is {n_iterations}: rounds cannot be "
                "taken back. Ask for as many or more, or name another file."
            )
        return rounds

    def save(self, trace: tuple[Iteration, ...], before: Float, v: Float) -> None:
        """Write beside, then move into place: a kill leaves the old file or the new one."""
        if self.path is None:
            return
        rows = np.array([(x.number, x.value, x.change, x.largest) for x in trace])
        partial = self.path.with_name(self.path.name + ".partial")
        with partial.open("wb") as file:
            np.savez(file, fingerprint=self.fingerprint, trace=rows, before=before, v=v)
        partial.replace(self.path)


def _read(path: Path) -> tuple[str, Rounds]:
    with path.open("rb") as file:
        found = np.load(file, allow_pickle=False)
        if not isinstance(found, np.lib.npyio.NpzFile):
            raise ValueError("a single array")
        trace = tuple(Iteration(int(row[0]), *map(float, row[1:])) for row in found["trace"])
        return str(found["fingerprint"]), (trace, found["before"], found["v"])


def described(x: Any) -> str:
    """Write settings in full, the same in every process: estimators by class and parameters, arrays by content.

    The number of jobs changes no result and is left out.
    """
    if isinstance(x, np.ndarray) and x.dtype != object:
        return f"array {x.shape} {x.dtype} {hashlib.sha256(np.ascontiguousarray(x).tobytes()).hexdigest()}"
    if isinstance(x, np.random.RandomState):
        return f"RandomState {described(x.get_state(legacy=False))}"
    if isinstance(x, Mapping):
        return f"{{{', '.join(f'{k!r}: {described(v)}' for k, v in x.items())}}}"
    if isinstance(x, (list, tuple, np.ndarray)):
        return f"{type(x).__name__}({', '.join(described(part) for part in x)})"
    if isinstance(x, type) or callable(x):
        return _path_of(x if hasattr(x, "__qualname__") else type(x))
    if hasattr(x, "get_params"):
        parameters = sorted(x.get_params(deep=True).items())
        kept = [(name, v) for name, v in parameters if name.split("__")[-1] != "n_jobs"]
        inside = (
            f"{name}={_path_of(type(v)) if hasattr(v, 'get_params') else described(v)}" for name, v in kept
        )
        return f"{_path_of(type(x))}({', '.join(inside)})"
    return _path_of(type(x)) if " at 0x" in repr(x) else repr(x)  # an address is another in every process


def _path_of(x: Any) -> str:
    return f"{x.__module__}.{x.__qualname__}"
