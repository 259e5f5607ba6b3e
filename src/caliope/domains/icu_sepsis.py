"""The ICU-Sepsis decision process: sepsis patients of MIMIC-III as 716 states and 25 actions, with exact values.

The numbers come with the distribution ``icu-sepsis`` (MIT licence, extra ``sepsis``). Only its data file is read:
importing the package would need gym.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

import numpy as np

from caliope.domains.tabular import TabularMDP
from caliope.ragged import Float, read_only

DEATH, SURVIVAL, SINK = 713, 714, 715


@dataclass(frozen=True, eq=False)
class IcuSepsis:
    """The process, the clinicians' policy in it, and what is known of each state."""

    process: TabularMDP
    expert: Float  # (716, 25); rows of absorbing states, which nobody acts in, are uniform
    sofa: Float  # (716,), mean SOFA score
    centres: Float  # (716, 47), mean features


@cache
def load(horizon: int = 500) -> IcuSepsis:
    """Read the process from the installed distribution.

    Episodes end in death or survival; 13 decisions suffice for three patients in four, and a horizon of 500
    leaves nothing out that a float can hold.
    """
    with np.load(_dynamics()) as found:
        arrays = {name: found[name] for name in found}
    absorbing = np.isin(np.arange(len(arrays["d_0"])), (DEATH, SURVIVAL, SINK))
    process = TabularMDP(arrays["d_0"], arrays["tx_mat"], arrays["r_mat"], absorbing, horizon)
    expert = np.where(absorbing[:, None], 1 / arrays["expert_policy"].shape[1], arrays["expert_policy"])
    sofa, centres = arrays["sofa_scores"], arrays["state_cluster_centers"]
    return IcuSepsis(process, read_only(expert), read_only(sofa), read_only(centres))


def _dynamics() -> Path:
    try:
        listed = metadata.files("icu-sepsis") or []
    except metadata.PackageNotFoundError:
        raise ModuleNotFoundError(
            "the ICU-Sepsis process is not installed: pip install 'caliope[sepsis]'."
        ) from None
    return next(Path(str(file.locate())) for file in listed if file.name == "dynamics.npz")
