"""Settings of the sepsis cohort, and the published mistakes that can be repeated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

RAGHU_IV_CUTS = (50.0, 180.435, 529.757)
"""Quartiles of the non-zero fluid doses of Raghu et al. 2017, mL of isotonic fluid in four hours."""

RAGHU_VASO_CUTS = (0.08, 0.225, 0.45)
"""Quartiles of the non-zero vasopressor doses of Raghu et al. 2017, micrograms/kg/min of norepinephrine."""

CHOICES = {"outcome": ("hospital", "90 days"), "cuts": ("raghu", "refit"), "fill": ("normal", "median")}
"""Allowed values of the settings with a choice."""

WINDOW_HOURS = (1, 2, 4, 8)
"""Allowed lengths of a window, in hours."""

_LARGEST = {
    "hours_before": (1000, "hours"),
    "hours_after": (1000, "hours"),
    "lab_delay_hours": (48, "hours"),
    "minimal_age": (150, "years"),
}


@dataclass(frozen=True)
class AsPublished:
    """Mistakes of the public code. All are corrected by default; True repeats one, to measure its effect.

    :meth:`from_names` reads names as the command line gives them; ``all`` means every one.

    Parameters
    ----------
    same_window_action : bool
        State and action are from the same window, so the state may show what the action did.
    nearest_row_imputation : bool
        Gaps are filled by interpolating down the stacked table and from the nearest row of any patient.
    discharge_codes : bool
        Comorbidities come from codes that were written at the discharge from the same admission.
    antibiotic_codes : bool
        Antibiotics are 126 GSN codes: without intravenous vancomycin, meropenem or ceftriaxone, with penicillamine.
    urine_creatinine : bool
        Lab item 51081, creatinine in urine, counts as creatinine in serum.
    urine_bilirubin : bool
        Lab item 51464, bilirubin in urine, counts as bilirubin in serum.
    narrow_blood_pressure : bool
        MetaVision's usual diastolic items and its arterial systolic item are missing.
    no_metavision_gcs : bool
        The three components of the coma scale in MetaVision are missing: it comes from the sedation scale.
    narrow_items : bool
        Other items with the right label are missing: CareVue temperatures in Celsius, MetaVision blood gases.
    wrong_items : bool
        Items with another label count, such as ectopy frequency as FiO2 and potassium as sodium.
    venous_gases : bool
        Blood gases from venous samples count as arterial.
    fluid_id_typo : bool
        Fluids 30006 and 30061 are lost: the published list has them as one number, 3000630061.
    rewritten_fluids : bool
        Fluid orders that were rewritten count beside the order that replaced them.
    grams_as_ml : bool
        Amounts in grams or litres count as millilitres.
    everyone_80_kg : bool
        Doses per minute are divided by 80 kg instead of the weight of the patient.
    tube_feed_as_urine : bool
        Output item 227510, residual of tube feeding, counts as urine.
    irrigation_as_urine : bool
        Fluid that was flushed into the bladder is not subtracted from the urine.
    preadmission_urine_lost : bool
        Urine charted as before admission is left out of the total.
    uncharted_urine_scores : bool
        A window without any charted urine scores four kidney points.
    sofa_gaps : bool
        A value exactly on a limit (a ratio of 400, platelets of 150) sets the whole SOFA score to zero.
    unsupported_lung_points : bool
        Three and four lung points are given without a ventilator, which the score requires.
    low_pressure_two_points : bool
        A mean pressure below 65 scores two points of circulation; the score gives one below 70, and no more.
    potassium_six_days : bool
        A potassium is held for 144 hours, where sodium is held for 14.
    closed_windows : bool
        What happens exactly between two windows counts in both.
    wide_windows : bool
        The record is 80 hours from the first entry between 29 hours before and 53 after onset, not 24 and 48.
    ward_rows : bool
        Windows outside the ICU count. No treatment is recorded there, so their dose is zero.

    Examples
    --------
    >>> AsPublished.from_names(["urine_bilirubin"]).urine_bilirubin
    True
    """

    same_window_action: bool = False
    nearest_row_imputation: bool = False
    discharge_codes: bool = False
    antibiotic_codes: bool = False
    urine_creatinine: bool = False
    urine_bilirubin: bool = False
    narrow_blood_pressure: bool = False
    no_metavision_gcs: bool = False
    narrow_items: bool = False
    wrong_items: bool = False
    venous_gases: bool = False
    fluid_id_typo: bool = False
    rewritten_fluids: bool = False
    grams_as_ml: bool = False
    everyone_80_kg: bool = False
    tube_feed_as_urine: bool = False
    irrigation_as_urine: bool = False
    preadmission_urine_lost: bool = False
    uncharted_urine_scores: bool = False
    sofa_gaps: bool = False
    unsupported_lung_points: bool = False
    low_pressure_two_points: bool = False
    potassium_six_days: bool = False
    closed_windows: bool = False
    wide_windows: bool = False
    ward_rows: bool = False

    @classmethod
    def from_names(cls, names: Iterable[str]) -> AsPublished:
        """Return settings that repeat the mistakes with these names."""
        known = [f.name for f in fields(cls)]
        given = list(names)
        unknown = sorted(set(given) - {*known, "all"})
        if unknown:
            raise ValueError(
                f"no published mistake is called {unknown[0]!r}; there are {', '.join(known)}, and all."
            )
        return cls(**dict.fromkeys(known if "all" in given else given, True))

    @property
    def repeated(self) -> tuple[str, ...]:
        """Names of the mistakes that are repeated."""
        return tuple(name for name, on in asdict(self).items() if on)


@dataclass(frozen=True)
class CohortSettings:
    """Choices that the paper leaves open, with a default for each.

    There is one decision per window, every four hours by default. Its state holds what was charted in the window
    **before** it (or the last earlier value), and its action is the dose of the window **after** it.

    Parameters
    ----------
    window_hours : {4, 1, 2, 8}
        Hours between two decisions. Fluid and urine are in mL per four hours in any case, so that dose limits and
        scores keep their meaning.
    hours_before : float
        Hours from the start of the record to the presumed onset of infection.
    hours_after : float
        Hours from that onset to the end of the record.
    lab_delay_hours : float
        Hours from a sample to its result, where the table has no time of the result.
    minimal_age : float
        Youngest age in years.
    outcome : {"hospital", "90 days"}
        Which death decides the last reward: in hospital, or within 90 days of ICU admission.
    terminal_reward : float
        Reward for survival at the last step; its negative for death.
    cuts : {"raghu", "refit"}
        Dose limits of the 25 actions: those of Raghu et al. 2017, or quartiles of the training patients.
    fill : {"normal", "median"}
        Substitute for a value never measured: a normal value, or the median of the training patients.
    train_share : float
        Share of patients (not stays) in the training set. Fitted statistics use the training patients only.
    seed : int
        Seed of the hash of ids that selects the training patients.
    exclude_withdrawal : bool
        Exclude stays in which treatment was probably withdrawn before death.
    exclude_died_recorded : bool
        Exclude stays that ended in death during the record.
    as_published : AsPublished
        Published mistakes to repeat.

    Examples
    --------
    >>> settings = CohortSettings(cuts="refit", as_published=AsPublished(grams_as_ml=True))
    >>> settings.outcome, settings.as_published.repeated
    ('hospital', ('grams_as_ml',))
    """

    window_hours: int = 4
    hours_before: float = 24.0
    hours_after: float = 48.0
    lab_delay_hours: float = 1.0
    minimal_age: float = 18.0
    outcome: Literal["hospital", "90 days"] = "hospital"
    terminal_reward: float = 15.0
    cuts: Literal["raghu", "refit"] = "raghu"
    fill: Literal["normal", "median"] = "normal"
    train_share: float = 0.8
    seed: int = 0
    exclude_withdrawal: bool = True
    exclude_died_recorded: bool = True
    as_published: AsPublished = field(default_factory=AsPublished)

    def __post_init__(self) -> None:
        for name, (high, unit) in _LARGEST.items():
            if not 0 <= getattr(self, name) <= high:
                raise ValueError(f"{name} must lie between 0 and {high} {unit}, got {getattr(self, name)}.")
        if isinstance(self.window_hours, bool) or self.window_hours not in WINDOW_HOURS:
            raise ValueError(
                f"window_hours must be one of {', '.join(map(str, WINDOW_HOURS))}, got {self.window_hours!r}."
            )
        if self.hours_before + self.hours_after < 2 * self.window_hours:
            raise ValueError(
                f"the record must span at least two windows: {2 * self.window_hours} hours in all, got "
                f"{self.hours_before + self.hours_after:g}."
            )
        if not 0 < self.terminal_reward < float("inf"):
            raise ValueError(f"terminal_reward must be a number above 0, got {self.terminal_reward}.")
        if not isinstance(self.seed, int):
            raise ValueError(f"seed must be a whole number, got {self.seed!r}.")
        if not 0 < self.train_share <= 1:
            raise ValueError(f"train_share must be above 0 and at most 1, got {self.train_share}.")
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}.")

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self) | {"as_published": list(self.as_published.repeated)}
