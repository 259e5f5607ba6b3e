from ._charts import (
    COLOURS as COLOURS,
    GREY as GREY,
    action_map as action_map,
    bar_list as bar_list,
    cells as cells,
    grouped_bars as grouped_bars,
    panels as panels,
    points as points,
    svg as svg,
)
from ._results import (
    balance as balance,
    estimates as estimates,
    likelihoods as likelihoods,
    paper_distances as paper_distances,
    ratio_reliability as ratio_reliability,
    reach as reach,
    reliability as reliability,
    weight_fan as weight_fan,
    weight_means as weight_means,
)
