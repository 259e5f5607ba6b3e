"""Results of Table 2 asked for by design, and the numbers that tables and words share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import spearmanr

from caliope.experiments.pairs import VALUING, WEIGHING
from caliope.experiments.summaries import column, mean

if TYPE_CHECKING:
    from caliope.experiments.table2 import Config

ESTIMATORS = (*WEIGHING, *VALUING)
WEIGHTLESS = ("mean", "AM")  # do not look at the behaviour policy
NUMBERS = ("NLL", "paper TV", "NA-TV excess", "true TV")
# Raghu et al. (2018), table 2 and section 5.
PAPER = {
    ("random", "PHWIS"): {"neighbours": 2.48, "network": 4.04},
    ("intervention", "PHWIS"): {"neighbours": 2.04, "network": 4.65},
    ("random", "PHWDR"): {"neighbours": 2.04, "network": 2.02},
    ("intervention", "PHWDR"): {"neighbours": 3.90, "network": 3.90},
    ("random", "AM"): {"neighbours": 0.177, "network": 0.177},
    ("intervention", "AM"): {"neighbours": 3.87, "network": 3.87},
}
PAPER_TV = {"random": 0.09, "intervention": 0.29}


class Found:
    """The results of all pairs, asked for by design."""

    def __init__(self, config: Config, results: Mapping[str, Any]) -> None:
        self.config, self.selection = config, results["selection"]
        self.pairs = {
            design: [results[f"{design}-pair{i}"] for i in range(config.pairs)]
            for design in config.designs
            if f"{design}-pair0" in results
        }

    def worth(self, design: str) -> float | None:
        """Exact value of the policy of the first log; None on a reader's own data."""
        if self.config.data:
            return None
        if design == "intervention":
            return float(self.selection["rewards"]["policy_value"])
        return float(self.pairs[design][0]["worth"])

    def errors(self, design: str, **wanted: str) -> list[list[dict[str, Any]]]:
        """Records of each pair that agree with what is wanted."""
        return [
            [row for row in pair["errors"] if all(row[name] == value for name, value in wanted.items())]
            for pair in self.pairs[design]
        ]

    def mse(self, design: str, **wanted: str) -> Any:
        """Mean squared error in each pair against the paper's truth, the mean return of the first log."""
        return self._mse(design, [0.0] * len(self.pairs[design]), wanted)

    def exact_mse(self, design: str, **wanted: str) -> Any:
        """Mean squared error in each pair against the exact value of the policy of the first log."""
        worth = self.worth(design)
        away = [np.nan if worth is None else pair["truth"] - worth for pair in self.pairs[design]]
        return self._mse(design, away, wanted)

    def _mse(self, design: str, shifts: Sequence[float], wanted: Mapping[str, str]) -> Any:
        found = []
        for shift, rows in zip(shifts, self.errors(design, **wanted), strict=True):
            found += [np.nan if x["bias"] is None else (x["bias"] + shift) ** 2 + x["variance"] for x in rows]
        return np.array(found, dtype=np.float64)


def distances(found: Found) -> list[tuple[Any, ...]]:
    """Total variation between the two policies: design, the paper's, ours by family, exact."""
    rows = []
    for design, pairs in found.pairs.items():
        exact = (
            found.selection["rewards"]["tv_second"]
            if design == "intervention" and not found.config.data
            else mean(column(pairs, "exact_tv"))
        )
        ours = [mean([pair["tv"][family] for pair in pairs]) for family in found.config.families]
        rows.append((design, PAPER_TV.get(design), *ours, exact))
    return rows


def ranks(found: Found, design: str, target: str, estimator: str) -> list[dict[str, float]]:
    """Rank correlation of each calibration number with the squared error, a pair; empty where nothing was evaluated."""
    result = []
    for pair, rows in zip(
        found.pairs[design], found.errors(design, target=target, estimator=estimator), strict=True
    ):
        shift = pair["truth"] - pair["worth"] if design.startswith("deployed") else 0.0
        error = {
            (x["model"], x["fit"]): (x["bias"] + shift) ** 2 + x["variance"]
            for x in rows
            if x["bias"] is not None
        }
        scored = [x for x in pair["scores"] if x["model"] != "truth" and (x["model"], x["fit"]) in error]
        if len(scored) > 2:
            y = [error[x["model"], x["fit"]] for x in scored]
            result.append({name: _spearman(column(scored, name), y) for name in NUMBERS})
    return result


def _spearman(x: Any, y: Sequence[float]) -> float:
    if not np.isfinite(x).all() or len(set(x)) < 2 or len(set(y)) < 2:
        return float("nan")
    return float(spearmanr(x, y).statistic)
