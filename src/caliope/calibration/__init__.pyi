from ._compare import (
    Comparison as Comparison,
    compare_policies as compare_policies,
)
from ._neighbourhoods import (
    NeighbourhoodCalibration as NeighbourhoodCalibration,
    Neighbourhoods as Neighbourhoods,
    averaged_floor as averaged_floor,
    neighbourhood_calibration as neighbourhood_calibration,
    neighbourhoods as neighbourhoods,
    noise_floor as noise_floor,
    total_variation as total_variation,
)
from ._null import (
    AgainstNull as AgainstNull,
)
from ._reliability import (
    CalibrationError as CalibrationError,
    RatioReliability as RatioReliability,
    ReliabilityCurve as ReliabilityCurve,
    classwise_error as classwise_error,
    ratio_reliability as ratio_reliability,
    reliability_curve as reliability_curve,
    top_label_curve as top_label_curve,
    top_label_error as top_label_error,
)
from ._result import (
    CalibrationRow as CalibrationRow,
    Choice as Choice,
    Measured as Measured,
    choose as choose,
)
from ._scores import (
    DistanceToTruth as DistanceToTruth,
    SplitLoss as SplitLoss,
    brier_loss as brier_loss,
    distance_to_truth as distance_to_truth,
    log_loss as log_loss,
    marginal_baseline as marginal_baseline,
    repeat_baseline as repeat_baseline,
    severity_strata as severity_strata,
    split_loss as split_loss,
)
from ._tests import (
    BalanceTable as BalanceTable,
    WeightMoments as WeightMoments,
    balance_table as balance_table,
    kernel_error as kernel_error,
    weight_moments as weight_moments,
)
