from . import (
    icu_sepsis as icu_sepsis,
    random_mdp as random_mdp,
    tabular as tabular,
    toy_map as toy_map,
    ward as ward,
    zoo as zoo,
)
