"""The ICU-Sepsis decision process: its numbers, the clinicians' policy, and the features of its states."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from caliope._ragged import Float, read_only
from caliope.domains.tabular import TabularMDP

DEATH, SURVIVAL, SINK = 713, 714, 715
# Action = 5 * level of fluids + level of vasopressors, each level from 0 to 4.
N_ACTIONS, LEVELS = 25, 5

# Columns of the centres, with Komorowski's transforms: binary ones are shifted, the rest z-scored, from SpO2 on after
# a logarithm.
ACTION_NAMES = tuple(f"fluid {a // LEVELS}, vasopressor {a % LEVELS}" for a in range(N_ACTIONS))

FEATURES = (
    *("gender", "mechvent", "max_dose_vaso", "re_admission", "age", "Weight_kg", "GCS", "HR", "SysBP"),
    *("MeanBP", "DiaBP", "RR", "Temp_C", "FiO2_1", "Potassium", "Sodium", "Chloride", "Glucose", "Magnesium"),
    *("Calcium", "Hb", "WBC_count", "Platelets_count", "PTT", "PT", "Arterial_pH", "paO2", "paCO2"),
    *("Arterial_BE", "HCO3", "Arterial_lactate", "SOFA", "SIRS", "Shock_Index", "PaO2_FiO2"),
    *("cumulated_balance", "SpO2", "BUN", "Creatinine", "SGOT", "SGPT", "Total_bili", "INR"),
    *("input_total", "input_4hourly", "output_total", "output_4hourly"),
)
# Columns 2, 35, 43 and 44 hold the doses of the same time window: they leak the action. The mean of input_4hourly in
# a state correlates 0.99 with the mean level of fluids there.
DOSES = ("max_dose_vaso", "cumulated_balance", "input_total", "input_4hourly")
OBSERVED = tuple(name for name in FEATURES if name not in DOSES)


@dataclass(frozen=True, eq=False)
class IcuSepsis:
    """The process, the clinicians' policy, and the features of each state.

    Parameters
    ----------
    process : TabularMDP
        Transitions and rewards.
    expert : (716, 25)
        The clinicians' policy; rows of absorbing states, where there are no decisions, are uniform.
    sofa : (716,)
        Mean SOFA score of each state.
    centres : (716, 47)
        Mean of each of ``FEATURES`` in each state.

    Examples
    --------
    >>> load().expert.shape
    (716, 25)
    """

    process: TabularMDP
    expert: Float
    sofa: Float
    centres: Float


@cache
def load(horizon: int = 500) -> IcuSepsis:
    """Read the process from the installed distribution ``icu-sepsis``.

    Trajectories end in death or survival: three patients in four after at most 13 decisions, and practically all
    before a horizon of 500.

    Parameters
    ----------
    horizon : int
        Largest number of steps.

    Returns
    -------
    IcuSepsis
        The process and the clinicians' policy.

    Examples
    --------
    >>> load().process.horizon
    500
    """
    with np.load(_find_dynamics()) as file:
        arrays = {name: file[name] for name in file}
    absorbing = np.isin(np.arange(len(arrays["d_0"])), (DEATH, SURVIVAL, SINK))
    process = TabularMDP(arrays["d_0"], arrays["tx_mat"], arrays["r_mat"], absorbing, horizon)
    expert = np.where(absorbing[:, None], 1 / arrays["expert_policy"].shape[1], arrays["expert_policy"])
    sofa, centres = arrays["sofa_scores"], arrays["state_cluster_centers"]
    return IcuSepsis(process, read_only(expert), read_only(sofa), read_only(centres))


def _find_dynamics() -> Path:
    try:
        listed = metadata.files("icu-sepsis") or []
    except metadata.PackageNotFoundError:
        raise ModuleNotFoundError(
            "the ICU-Sepsis process is not installed: pip install 'caliope[sepsis]'."
        ) from None
    return next(Path(str(file.locate())) for file in listed if file.name == "dynamics.npz")


def policy_table(policy: ArrayLike | None) -> Float:
    """Return a policy as a table (716, 25), by default the clinicians'; raise unless it holds probabilities."""
    sepsis = load()
    if policy is None:
        return sepsis.expert
    table = np.asarray(policy, dtype=np.float64)
    if table.shape != sepsis.expert.shape:
        raise ValueError(f"policy must be a table of shape {sepsis.expert.shape}, got {table.shape}.")
    living = table[~sepsis.process.absorbing]
    if not ((living >= 0).all() and np.allclose(living.sum(axis=1), 1)):
        raise ValueError("policy must hold probabilities: in every living state from 0, with a sum of 1.")
    return table


@cache
def survival_chance() -> Float:
    """Compute the chance to survive from every state under the clinicians, (716,)."""
    sepsis = load()
    living = ~sepsis.process.absorbing
    step = np.einsum("sa,sau->su", sepsis.expert, sepsis.process.transitions)
    chance = (np.arange(len(living)) == SURVIVAL).astype(np.float64)
    stay = np.eye(living.sum()) - step[np.ix_(living, living)]
    chance[living] = np.linalg.solve(stay, step[living, SURVIVAL])
    return read_only(chance)


def observed_centres() -> tuple[Float, Float]:
    """Return the means of the observed features in every state, (716, 43), and their spread over states, (43,)."""
    sepsis = load()
    centres = sepsis.centres[:, [FEATURES.index(name) for name in OBSERVED]].astype(np.float32)
    return centres, centres[~sepsis.process.absorbing].std(axis=0)


def without_vasopressors() -> Float:
    """Return the clinicians' policy without vasopressors: their actions of level 0, rescaled, (716, 25).

    In the one state where they always give vasopressors, their policy stays as it is.

    Returns
    -------
    (716, 25)
        Probabilities of the actions in each state.

    Examples
    --------
    >>> without_vasopressors().shape
    (716, 25)
    """
    expert = load().expert
    kept = np.where(np.arange(N_ACTIONS) % LEVELS == 0, expert, 0.0)
    share = kept.sum(axis=1, keepdims=True)
    return read_only(np.where(share > 0, kept / np.where(share > 0, share, 1.0), expert))
