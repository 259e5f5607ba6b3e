"""Calibration: is the behaviour model honest? Every number beside what it would be if it were."""

from caliope.calibration.comparison import Comparison, compare_policies
from caliope.calibration.kernel import kernel_error
from caliope.calibration.moments import BalanceTable, WeightMoments, balance_table, weight_moments
from caliope.calibration.neighbourhoods import (
    NeighbourhoodCalibration,
    Neighbourhoods,
    averaged_floor,
    neighbourhood_calibration,
    neighbourhoods,
    noise_floor,
    total_variation,
)
from caliope.calibration.nulls import AgainstNull
from caliope.calibration.reliability import (
    CalibrationError,
    RatioReliability,
    ReliabilityCurve,
    classwise_error,
    ratio_reliability,
    reliability_curve,
    top_label_curve,
    top_label_error,
)
from caliope.calibration.rows import CalibrationRow, Measured
from caliope.calibration.scores import (
    SplitLoss,
    brier_loss,
    log_loss,
    marginal_baseline,
    repeat_baseline,
    split_loss,
)
from caliope.calibration.selection import Choice, choose
from caliope.calibration.strata import severity_strata
from caliope.calibration.truth import DistanceToTruth, distance_to_truth

__all__ = [
    "AgainstNull",
    "BalanceTable",
    "CalibrationError",
    "CalibrationRow",
    "Choice",
    "Comparison",
    "DistanceToTruth",
    "Measured",
    "NeighbourhoodCalibration",
    "Neighbourhoods",
    "RatioReliability",
    "ReliabilityCurve",
    "SplitLoss",
    "WeightMoments",
    "averaged_floor",
    "balance_table",
    "brier_loss",
    "choose",
    "classwise_error",
    "compare_policies",
    "distance_to_truth",
    "kernel_error",
    "log_loss",
    "marginal_baseline",
    "neighbourhood_calibration",
    "neighbourhoods",
    "noise_floor",
    "ratio_reliability",
    "reliability_curve",
    "repeat_baseline",
    "severity_strata",
    "split_loss",
    "top_label_curve",
    "top_label_error",
    "total_variation",
    "weight_moments",
]
