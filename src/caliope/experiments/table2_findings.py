"""Table 2 in words: what agrees with the paper and what does not, from the numbers."""

from __future__ import annotations

import numpy as np

from caliope.experiments.pairs import NEUTRAL
from caliope.experiments.summaries import mean
from caliope.experiments.table2_results import NUMBERS, Found, distances, ranks


def findings(found: Found) -> list[str]:
    """A paragraph for each claim of the paper, and for what it could not know."""
    said = [_claim_neighbours(found), _claim_mean(found), _claim_values(found), _claim_distance(found)]
    if not found.config.data:
        said.append(_claim_selection(found))
    return [*filter(None, said), _claim_calibration(found)]


def _claim_neighbours(found: Found) -> str:
    """Whether neighbours do better than the network with PHWIS."""
    if not {"neighbours", "network"} <= set(found.config.families):
        return ""
    cells = [(design, fit) for design in found.pairs for fit in ("same", "cross")]
    texts, wins = [], 0
    for design, fit in cells:
        ours = [
            mean(found.mse(design, target="own", model=model, fit=fit, estimator="PHWIS"))
            for model in ("neighbours", "network")
        ]
        if None in ours:
            continue
        wins += bool(ours[0] < ours[1])  # type: ignore[operator]
        texts.append(f"{design}, {fit} patients: {ours[0]:.2f} and {ours[1]:.2f}")
    return (
        "The paper finds a lower error of PHWIS with neighbours than with the network in both splits (2.48 and 4.04, "
        f"2.04 and 4.65). Here it is lower in {wins} of {len(texts)} cases ({'; '.join(texts)})."
    )


def _claim_mean(found: Found) -> str:
    """What it costs to ignore the policy altogether."""
    texts = []
    for design in found.pairs:
        plain = mean(found.mse(design, target=NEUTRAL, model="marginal", estimator="mean"))
        by_model = {
            model: mean(found.mse(design, target="own", model=model, fit="cross", estimator="PHWIS"))
            for model in found.config.families
        }
        best = min((x, model) for model, x in by_model.items() if x is not None)
        texts.append(f"{design} {plain:.2f} and {best[0]:.2f} ({best[1]})")
    return (
        "Who ignores the policy and takes the mean return of the second log errs by the first number, PHWIS with the "
        f"best cross-fitted family by the second: {'; '.join(texts)}."
    )


def _claim_values(found: Found) -> str:
    """Whether PHWDR hardly depends on the behaviour model."""
    texts = []
    for design in found.pairs:
        spread = []
        for estimator in ("PHWIS", "PHWDR"):
            by_model = [
                mean(found.mse(design, target="own", model=model, fit="cross", estimator=estimator))
                for model in found.config.families
            ]
            values = [x for x in by_model if x is not None]
            spread.append(max(values) / min(values) if values and min(values) > 0 else float("nan"))
        am = mean(
            np.concatenate(
                [
                    found.mse(design, target="own", model=m, fit="cross", estimator="AM")
                    for m in found.config.families
                ]
            )
        )
        if am is not None:
            texts.append(f"{design}: {spread[1]:.1f} (PHWIS {spread[0]:.1f}), and AM alone errs by {am:.2f}")
    return (
        "With PHWDR the paper sees hardly any dependence on the behaviour model, for the approximate model dominates. "
        f"The largest error over the smallest among the families, with PHWDR: {'; '.join(texts)}."
    )


def _claim_distance(found: Found) -> str:
    texts = []
    for row in distances(found):
        values = [x for x in row[2:-1] if x is not None]
        exact = "unknown" if row[-1] is None else f"{row[-1]:.3f}"
        theirs = "" if row[1] is None else f" (paper about {row[1]})"
        texts.append(f"{row[0]} {min(values):.3f} to {max(values):.3f}{theirs}, exact {exact}")
    return (
        "Average total variation between the two fitted policies, by family: "
        + "; ".join(texts)
        + ". What stands above the exact number is the noise of two fits."
    )


def _claim_selection(found: Found) -> str:
    of = found.selection["survival"]
    on = found.selection["rewards"]
    bias, gain = on["mean_return"] - on["policy_value"], on["mean_return"] - on["practice_value"]
    return (
        "The intervention split selects its own truth. Patients never given vasopressors survive with chance "
        f"{of['mean_return']:.4f}, where the policy that they show is worth {of['policy_value']:.4f} and the "
        f"clinicians {of['practice_value']:.4f}; on the scale of this experiment {on['mean_return']:.2f}, "
        f"{on['policy_value']:.2f} and {on['practice_value']:.2f}. So {bias / gain:.0%} of the apparent gain is "
        "selection, and an estimator that finds "
        f"the value of the policy exactly has a squared error of {bias**2:.2f}."
    )


def _claim_calibration(found: Found) -> str:
    """Which number foretells the error."""
    by_number: dict[str, list[float]] = {name: [] for name in NUMBERS}
    for design in found.pairs:
        for target in (NEUTRAL, "truth"):
            for estimator in ("PHWIS", "WIS", "PHWDR"):
                for each in ranks(found, design, target, estimator):
                    for name in NUMBERS:
                        by_number[name].append(each[name])
    texts = [
        f"{name} {value:+.2f}" for name, values in by_number.items() if (value := mean(values)) is not None
    ]
    return (
        '"Better calibrated means better evaluation": the mean rank correlation with the squared error of PHWIS, WIS '
        f"and PHWDR over models is {', '.join(texts)} (1 if a number ranks the models as their errors do, 0 if it says "
        "nothing)."
    )
