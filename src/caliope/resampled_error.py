"""The paper's yardstick for estimators: their error over samples of one log, against a known value."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from caliope.estimators import Estimator, name_of
from caliope.evidence import Evidence
from caliope.uncertainty import Scheme, draws, with_replacement


@dataclass(frozen=True)
class ResampledError:
    """Mean squared error of an estimator over resamples, with its parts."""

    name: str
    truth: float
    mse: float
    bias: float
    variance: float
    mse_se: float  # Monte Carlo error of mse
    size: int
    n_draws: int
    failed: int  # resamples without a finite value, left out of the rest

    def __str__(self) -> str:
        text = (
            f"{self.name}: mse {self.mse:.4g} (+- {self.mse_se:.2g}) = bias^2 {self.bias**2:.4g} + variance "
            f"{self.variance:.4g}; {self.n_draws} samples of {self.size} trajectories, truth {self.truth:.4g}"
        )
        return text + (f"; {self.failed} samples had no finite value" if self.failed else "")


def resampled_mse(
    estimator: Estimator,
    e: Evidence,
    truth: float,
    *,
    size: int = 200,
    n_draws: int = 500,
    scheme: Scheme = with_replacement,
    rng: int | np.random.Generator,
) -> ResampledError:
    r"""Mean squared error against a known value over samples of the log: the paper's protocol.

    .. math:: \mathrm{MSE} = \frac{1}{B} \sum_b \big( \hat V_b - V \big)^2 = \mathrm{bias}^2 + \mathrm{variance}

    Raghu et al. (2018) draw n = 200 trajectories of D2, 500 times. Whether with replacement is not said; it
    is here unless ``scheme=without_replacement``. All samples come from one log, so the bias includes that
    log's own departure from the truth.
    """
    values = draws(estimator, e, n_draws=n_draws, size=size, scheme=scheme, rng=rng)
    finite = values[np.isfinite(values)]
    if not len(finite):
        nan = float("nan")
        return ResampledError(name_of(estimator), truth, nan, nan, nan, nan, size, n_draws, n_draws)
    squared = (finite - truth) ** 2
    return ResampledError(
        name_of(estimator),
        truth,
        mse=float(squared.mean()),
        bias=float(finite.mean() - truth),
        variance=float(finite.var()),
        mse_se=float(squared.std() / np.sqrt(len(finite))),
        size=size,
        n_draws=n_draws,
        failed=len(values) - len(finite),
    )
