from ._audits import (
    action_shares as action_shares,
    choices as choices,
    confounding as confounding,
    effective_sizes as effective_sizes,
    overlap as overlap,
    reach as reach,
    weight_fan as weight_fan,
    weight_means as weight_means,
)
from ._charts import (
    action_map as action_map,
    bar_list as bar_list,
    cells as cells,
    grouped_bars as grouped_bars,
    points as points,
)
from ._figures import (
    COLOURS as COLOURS,
    GREY as GREY,
    panels as panels,
    svg as svg,
)
from ._forest import (
    forest as forest,
)
from ._results import (
    balance as balance,
    estimates as estimates,
    likelihoods as likelihoods,
    paper_distances as paper_distances,
    ratio_reliability as ratio_reliability,
    reliability as reliability,
)
