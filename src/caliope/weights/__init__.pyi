from ._calibrated import (
    calibrate_ratios as calibrate_ratios,
)
from ._effective import (
    effective_n as effective_n,
    kish as kish,
)
from ._marginalised import (
    marginalise_weights as marginalise_weights,
)
from ._transforms import (
    clip_ratios as clip_ratios,
    clip_weights as clip_weights,
    normalise_under_way as normalise_under_way,
    shrink_weights as shrink_weights,
    smooth_weights as smooth_weights,
)
