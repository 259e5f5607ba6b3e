"""Results of Table 2 by design: errors with their bias and variance, distances of policies, rank correlations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from caliope._ragged import Float
from reproduction._report import clustered_se, column, mean
from reproduction.table2 import VALUING, WEIGHING, Config

ESTIMATORS = (*WEIGHING, *VALUING)
WEIGHTLESS = ("mean", "AM")  # do not use the behaviour policy
NUMBERS = ("NLL", "paper TV", "NA-TV excess", "true TV")
# Raghu et al. (2018), table 2 and section 5.
PAPER = {
    ("random", "PHWIS"): {"neighbours": 2.48, "network": 4.04},
    ("intervention", "PHWIS"): {"neighbours": 2.04, "network": 4.65},
    ("random", "PHWDR"): {"neighbours": 2.04, "network": 2.02},
    ("intervention", "PHWDR"): {"neighbours": 3.90, "network": 3.90},
}
PAPER_AM = {"random": 0.177, "intervention": 3.87}  # one number per split: AM has no behaviour model
PAPER_TV = {"random": 0.09, "intervention": 0.29}


class Found:
    """The results of all pairs, by design."""

    def __init__(self, config: Config, results: Mapping[str, Any]) -> None:
        self.config, self.selection = config, results.get("selection", {})  # not for the user's own data
        self.pairs = {
            design: [results[f"{design}-pair{i}"] for i in range(config.pairs)]
            for design in config.designs
            if f"{design}-pair0" in results
        }

    def worth(self, design: str) -> float | None:
        """Exact value of the policy of the first log; None for the user's own data."""
        if self.config.data:
            return None
        if design == "intervention":
            return float(self.selection["rewards"]["policy_value"])
        return float(self.pairs[design][0]["worth"])

    def errors(self, design: str, **where: str) -> list[list[dict[str, Any]]]:
        """Records of each pair with these entries."""
        return [
            [row for row in pair["errors"] if all(row[name] == value for name, value in where.items())]
            for pair in self.pairs[design]
        ]

    def parts(self, design: str, **where: str) -> tuple[Float, Float]:
        """Bias and variance in each pair against the truth of the design, (P,) each.

        For a split that is the mean return of the first log, as in the paper; for a deployed policy its exact value,
        without the noise of that mean.
        """
        return self._parts(design, [self.shift(design, pair) for pair in self.pairs[design]], where)

    def mse(self, design: str, **where: str) -> Float:
        """Mean squared error in each pair against the truth of the design, (P,)."""
        bias, variance = self.parts(design, **where)
        return bias**2 + variance

    def exact_mse(self, design: str, **where: str) -> Float:
        """Mean squared error in each pair against the exact value of the policy of the first log, (P,)."""
        worth = self.worth(design)
        away = [np.nan if worth is None else pair["truth"] - worth for pair in self.pairs[design]]
        bias, variance = self._parts(design, away, where)
        return bias**2 + variance

    def shift(self, design: str, pair: Mapping[str, Any]) -> float:
        """From a bias against the mean return of the first log to one against the truth of the design."""
        return float(pair["truth"] - pair["worth"]) if design.startswith("deployed") else 0.0

    def _parts(self, design: str, shifts: Sequence[float], where: Mapping[str, str]) -> tuple[Float, Float]:
        each = zip(shifts, self.errors(design, **where), strict=True)
        rows = [(shift, row) for shift, rows in each for row in rows]
        records = [row for _, row in rows]
        return column(records, "bias") + [shift for shift, _ in rows], column(records, "variance")


def distances(found: Found) -> list[tuple[Any, ...]]:
    """Total variation between the two policies: design, the paper's, ours by family, their mean less that, exact."""
    rows = []
    for design, pairs in found.pairs.items():
        true = (
            found.selection["rewards"]["tv_second"]
            if design == "intervention" and not found.config.data
            else mean(column(pairs, "exact_tv"))
        )
        ours = [mean([pair["tv"][family] for pair in pairs]) for family in found.config.families]
        theirs = PAPER_TV.get(design)
        off = None if theirs is None else (mean(ours) or 0.0) - theirs
        rows.append((design, theirs, *ours, off, true))
    return rows


def ranks(found: Found, design: str, target: str, estimator: str) -> dict[int, dict[str, float]]:
    """Rank correlation of each calibration number with the squared error, by pair; empty if nothing was evaluated.

    Neither the true policy is ranked nor the family that made the target: its models would recognise it.
    """
    result = {}
    for i, (pair, rows) in enumerate(
        zip(found.pairs[design], found.errors(design, target=target, estimator=estimator), strict=True)
    ):
        shift = found.shift(design, pair)
        error = {
            (x["model"], x["fit"]): (x["bias"] + shift) ** 2 + x["variance"]
            for x in rows
            if x["bias"] is not None and x["model"] not in ("truth", target)
        }
        scored = [x for x in pair["scores"] if (x["model"], x["fit"]) in error]
        if len(scored) > 2:
            y = [error[x["model"], x["fit"]] for x in scored]
            result[i] = {name: _spearman(column(scored, name), y) for name in NUMBERS}
    return result


@dataclass(frozen=True)
class RankCorrelations:
    """Correlation of each calibration number with the errors of models, over cells in which all numbers are known."""

    correlation: dict[str, float | None]
    se: dict[str, float | None]  # the cells of one pair are one draw
    cells: int
    pairs: int


def correlate(
    found: Found, target: str, estimators: Sequence[str], designs: Iterable[str]
) -> RankCorrelations:
    """Mean rank correlations over designs, pairs and estimators for one target."""
    cells = {
        (design, pair, estimator): each
        for design in designs
        for estimator in estimators
        for pair, each in ranks(found, design, target, estimator).items()
    }
    names = [name for name in NUMBERS if any(np.isfinite(each[name]) for each in cells.values())]
    kept = {key: each for key, each in cells.items() if all(np.isfinite(each[name]) for name in names)}
    groups = [f"{design}-{pair}" for design, pair, _ in kept]
    by_number = {name: [each[name] for each in kept.values()] for name in names}
    return RankCorrelations(
        {name: mean(x) for name, x in by_number.items()},
        {name: clustered_se(x, groups) for name, x in by_number.items()},
        len(kept),
        len(set(groups)),
    )


def _spearman(x: Any, y: Sequence[float]) -> float:
    if not np.isfinite(x).all() or len(set(x)) < 2 or len(set(y)) < 2:
        return float("nan")
    return float(spearmanr(x, y).statistic)
