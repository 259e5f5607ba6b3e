"""What was computed of one model and is not a single number."""

from __future__ import annotations

from dataclasses import dataclass

from caliope.calibration.moments import BalanceTable, WeightMoments
from caliope.calibration.neighbourhoods import NeighbourhoodCalibration
from caliope.calibration.reliability import CalibrationError, RatioReliability, ReliabilityCurve
from caliope.calibration.scores import SplitLoss
from caliope.calibration.truth import DistanceToTruth
from caliope.ragged import Float


@dataclass(frozen=True, eq=False)
class ModelDetails:
    """Curves and tables of one model, for plots and a closer look."""

    table: Float  # (N, A)
    near: NeighbourhoodCalibration
    reliability: ReliabilityCurve
    ratios: RatioReliability
    balance: BalanceTable
    top_label: CalibrationError
    classwise: CalibrationError
    nll_split: SplitLoss
    weights: WeightMoments | None  # of the target's weights
    truth: DistanceToTruth | None
