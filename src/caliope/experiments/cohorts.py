"""Sepsis patients to fit on and others to measure with: simulated with the truth, or from a reader's own cohort."""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from caliope.domains import icu_sepsis
from caliope.ragged import Float
from caliope.trajectories import Trajectories

# The paper's appendix B: these count twice in the distance between patients. Of "fluid output" it does not say which
# of the two columns is meant.
INFORMATIVE = (
    "SOFA", "Arterial_lactate", "output_total", "output_4hourly", "MeanBP", "DiaBP", "PaO2_FiO2", "Chloride",
    "Weight_kg", "age",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Cohorts:
    """Two logs without a patient in common."""

    train: Trajectories
    test: Trajectories
    sofa: Float  # (N,), score at every step of the test log
    truth: Float | None  # (N, 25), who acted in the test log; None where nobody knows


def simulated(train: int, test: int, rng: np.random.Generator) -> Cohorts:
    """So many patients of ICU-Sepsis, with three steps of history in every state."""
    fit, measure = (icu_sepsis.simulate(n, rng=rng) for n in (train, test))
    return Cohorts(fit, measure, measure["sofa"], icu_sepsis.true_probabilities(measure))


def from_file(path: str | Path) -> Cohorts:
    """A Parquet file as ``caliope cohort`` writes it, parted into training patients and others as the file says."""
    data = read_cohort(path)
    training = np.asarray(data["training"], dtype=bool)[data.layout.first]
    if training.all() or not training.any():
        raise ValueError(
            f"{path} needs training patients and others; column training is {training[0]} in all rows."
        )
    test = data[~training]
    return Cohorts(data[training], test, np.asarray(test["SOFA"], dtype=np.float64), None)


def read_cohort(path: str | Path) -> Trajectories:
    """A Parquet file as ``caliope cohort`` writes it, with three steps of history in every state."""
    import polars as pl

    from caliope.clinical.states import to_trajectories

    try:
        rows = pl.read_parquet(path)
        return to_trajectories(rows, history=3)
    except pl.exceptions.PolarsError as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"{path} is no cohort file: that is a Parquet file as caliope cohort writes it, a row for every four hours "
            f"of a stay, with its 48 features, action, reward and training ({first})."
        ) from error


def digest_of(path: str | Path) -> str:
    """A short name for the content of a file: results of another content are not taken up again."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()[:16]


def kernel_weights(names: Sequence[str], *, lags: bool) -> Float:
    """Weight 2 for informative features and 1 for the others; ``lags``: for their copies of earlier steps too."""
    present = [re.sub(r"_lag\d+$", "", name) if lags else name for name in names]
    return np.where(np.isin(present, INFORMATIVE), 2.0, 1.0)


@contextmanager
def unfinished_training() -> Iterator[None]:
    """Let a network stop after its 100 epochs: that it goes on improving on its own log is the point of the paper."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield
