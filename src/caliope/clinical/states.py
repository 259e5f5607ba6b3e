"""Cohort rows -> trajectories: 48 features, on one scale, with the steps before if wanted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from caliope.behaviour import stack_history
from caliope.clinical.dictionaries import features
from caliope.io import read_table
from caliope.ragged import Bool, Float, Int
from caliope.trajectories import Trajectories

if TYPE_CHECKING:
    import polars as pl

KEPT = (
    "SOFA",
    "iv_level",
    "vaso_level",
    "max_dose_vaso",
    "input_4hourly",
    "never_vasopressor",
    "training",
    "died",
)
Padding = Literal["repeat", "zeros"]


@dataclass(frozen=True, eq=False)
class Normalisation:
    r"""Raghu's three scales, fitted on training rows only.

    Two-valued features become -0.5 and 0.5; most others :math:`(x - m) / s`; those with a long tail (enzymes,
    urine, the time) :math:`(\log(0.1 + x) - m) / s`.
    """

    logarithmic: Bool  # (d,)
    centre: Float  # (d,)
    spread: Float  # (d,)

    @classmethod
    def fit(cls, states: Float, training: Bool) -> Normalisation:
        """Fit centre and spread of each of the 48 features on the rows of training patients."""
        if not training.any():
            raise ValueError("no row belongs to a training patient: raise train_share or change the seed.")
        kinds = np.array([kind for _, kind in features()])
        logarithmic = kinds == "log"
        seen = _logged(states[training], logarithmic)
        centre, spread = seen.mean(axis=0), seen.std(axis=0)
        # A feature that never changes in training tells nothing: it is centred and left alone.
        spread = np.where(spread > 0, spread, 1.0)
        binary = kinds == "binary"
        return cls(logarithmic, np.where(binary, 0.5, centre), np.where(binary, 1.0, spread))

    def apply(self, states: Float) -> Float:
        """States on the common scale, (N, d)."""
        scaled: Float = (_logged(states, self.logarithmic) - self.centre) / self.spread
        return scaled


def _logged(states: Float, logarithmic: Bool) -> Float:
    out = np.array(states, dtype=np.float64)
    out[:, logarithmic] = np.log(0.1 + out[:, logarithmic])
    return out


def _levels(actions: Int) -> Float:
    return np.stack([actions // 5, actions % 5], axis=1).astype(np.float64)


def _none(actions: Int) -> Float:
    return np.empty((len(actions), 0))


def to_trajectories(
    rows: pl.DataFrame,
    *,
    history: int = 0,
    past_actions: bool = True,
    normalise: bool = True,
    padding: Padding = "repeat",
) -> Trajectories:
    """Make trajectories of a cohort table: one a stay, 25 actions, SOFA kept as a column in points.

    With ``history=3`` a state has 48 + 3 x (48 + 2) = 198 columns, as in Raghu et al. 2018: three steps before with
    the levels of both drugs (48 + 3 x 48 = 192 without ``past_actions``). Before the first step stands the first
    state again (``padding="repeat"``) or zeros, which after normalisation is the mean of the training patients.
    """
    if padding not in ("repeat", "zeros"):
        raise ValueError(f"padding must be repeat or zeros, got {padding!r}.")
    if history < 0:
        raise ValueError(f"history must be 0 or more, got {history}.")
    names = [name for name, _ in features()]
    data = read_table(
        rows.select("icustay_id", *names, *(name for name in KEPT if name not in names), "action", "reward"),
        episode="icustay_id",
        time="bloc",
        states=names,
        action="action",
        reward="reward",
        keep=KEPT,
        n_actions=25,
    )
    if normalise:
        scale = Normalisation.fit(data.states, np.asarray(data["training"], dtype=bool))
        data = _with_states(data, scale.apply(data.states), names)
    if history == 0:
        return data
    stacked = stack_history(data, history, action_features=_levels if past_actions else _none)
    return stacked if padding == "repeat" else _zeros_before_the_first(stacked, history)


def _zeros_before_the_first(stacked: Trajectories, history: int) -> Trajectories:
    """Put zeros where the first state was repeated."""
    states, known = stacked.states.copy(), len(features())
    width = (states.shape[1] - known) // history
    for lag in range(1, history + 1):
        start = known + (lag - 1) * width
        states[stacked.layout.time < lag, start : start + width] = 0.0
    return _with_states(stacked, states, stacked.feature_names)


def _with_states(data: Trajectories, states: Float, names: tuple[str, ...] | list[str]) -> Trajectories:
    return Trajectories(
        states,
        data.actions,
        data.rewards,
        data.offsets,
        n_actions=data.n_actions,
        terminated=data.terminated,
        columns=data.columns,
        feature_names=names,
        ids=data.ids,
    )
