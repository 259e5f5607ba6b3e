"""What a reader may choose about the sepsis cohort, and which published mistakes to repeat."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

RAGHU_IV_CUTS = (50.0, 180.435, 529.757)
"""Quartiles of the non-zero fluid doses of Raghu et al. 2017, mL of isotonic fluid in four hours."""

RAGHU_VASO_CUTS = (0.08, 0.225, 0.45)
"""Quartiles of the non-zero vasopressor doses of Raghu et al. 2017, micrograms/kg/min of norepinephrine."""


@dataclass(frozen=True)
class AsPublished:
    """Mistakes of the public code, corrected by default; True repeats one, so that its effect can be seen.

    Each name is a field of its own. :meth:`named` reads names as the command line gives them; ``all`` is every one.

    Examples
    --------
    >>> AsPublished.named(["urine_bilirubin"]).urine_bilirubin
    True
    """

    same_window_action: bool = False
    """The action is that of the window whose measurements are the state: the state sees its own effect."""
    nearest_row_imputation: bool = False
    """Gaps are filled by interpolating down the stacked table and from the nearest row of any patient."""
    discharge_codes: bool = False
    """Comorbidities come from the codes written at the discharge from this very admission."""
    antibiotic_codes: bool = False
    """Antibiotics are 126 GSN codes: without intravenous vancomycin, meropenem or ceftriaxone, with penicillamine."""
    urine_creatinine: bool = False
    """Lab item 51081, creatinine in urine, counts as creatinine in serum."""
    urine_bilirubin: bool = False
    """Lab item 51464, bilirubin in urine, counts as bilirubin in serum."""
    narrow_blood_pressure: bool = False
    """MetaVision's usual diastolic items and its arterial systolic item are missing."""
    no_metavision_gcs: bool = False
    """The three components of the coma scale in MetaVision are missing: it comes from the sedation scale."""
    narrow_items: bool = False
    """Other items with the right label are missing: CareVue temperatures in Celsius, MetaVision blood gases..."""
    wrong_items: bool = False
    """Items whose label says something else: ectopy frequency as FiO2, potassium as sodium, skin temperature..."""
    venous_gases: bool = False
    """Blood gases from venous samples count as arterial."""
    fluid_id_typo: bool = False
    """Fluids 30006 and 30061 are lost: the published list has them as one number, 3000630061."""
    rewritten_fluids: bool = False
    """Fluid orders that were rewritten count beside the order that replaced them."""
    grams_as_ml: bool = False
    """An amount in grams or litres counts as so many millilitres."""
    everyone_80_kg: bool = False
    """Doses per minute are divided by 80 kg, whatever the patient weighs."""
    tube_feed_as_urine: bool = False
    """Output item 227510, residual of tube feeding, counts as urine."""
    irrigation_as_urine: bool = False
    """Fluid that was flushed into the bladder is not taken off the urine."""
    preadmission_urine_lost: bool = False
    """Urine charted as before admission is left out of the total."""
    uncharted_urine_scores: bool = False
    """A window without any charted urine scores four kidney points."""
    sofa_gaps: bool = False
    """A value exactly on a limit (a ratio of 400, platelets of 150) sets the whole SOFA score to zero."""
    unsupported_lung_points: bool = False
    """Three and four lung points are given without a ventilator, which the score requires."""
    low_pressure_two_points: bool = False
    """A mean pressure below 65 scores two points of circulation; the score gives one below 70, and no more."""
    potassium_six_days: bool = False
    """A potassium is held for 144 hours, where sodium is held for 14."""
    closed_windows: bool = False
    """What happens exactly between two windows counts in both."""
    wide_windows: bool = False
    """80 hours from the first record between 29 hours before and 53 after onset, instead of 24 and 48."""
    ward_rows: bool = False
    """Windows outside the ICU count, where no treatment is recorded: their dose is zero whatever was given."""

    @classmethod
    def named(cls, names: Iterable[str]) -> AsPublished:
        """Repeat the mistakes with these names."""
        known = [f.name for f in fields(cls)]
        wanted = list(names)
        unknown = sorted(set(wanted) - {*known, "all"})
        if unknown:
            raise ValueError(
                f"no published mistake is called {unknown[0]!r}; there are {', '.join(known)}, and all."
            )
        return cls(**dict.fromkeys(known if "all" in wanted else wanted, True))

    @property
    def repeated(self) -> tuple[str, ...]:
        """Names of those that are repeated."""
        return tuple(name for name, on in asdict(self).items() if on)


@dataclass(frozen=True)
class CohortSettings:
    """Choices that the paper leaves open, with the default for each.

    A decision is taken every four hours. By default its state is made of what was charted in the four hours
    **before** it (or earlier, held), and its action of the doses of the four hours **after** it.
    """

    hours_before: float = 24.0
    """Hours before the presumed onset of infection with which the record begins."""
    hours_after: float = 48.0
    """Hours after it with which the record ends."""
    lab_delay_hours: float = 1.0
    """Hours from the drawing of a sample until its result is known, where the table does not tell."""
    minimal_age: float = 18.0
    """Youngest age in years."""
    outcome: Literal["hospital", "90 days"] = "hospital"
    """Whose death decides the last reward: in hospital, or within 90 days of ICU admission."""
    terminal_reward: float = 15.0
    """Reward for survival at the last step; its negative for death."""
    cuts: Literal["raghu", "refit"] = "raghu"
    """Dose limits of the 25 actions: those of Raghu 2017, or quartiles of the training patients."""
    fill: Literal["normal", "median"] = "normal"
    """What stands for a value never measured: a normal value, or the median of the training patients."""
    train_share: float = 0.8
    """Share of patients (not stays) whose statistics may be used; chosen by a hash of the id and the seed."""
    seed: int = 0
    """Seed of that choice."""
    exclude_withdrawal: bool = True
    """Leave out stays where treatment seems to have been withdrawn before death."""
    exclude_died_recorded: bool = True
    """Leave out stays that ended in death while they were being recorded."""
    as_published: AsPublished = field(default_factory=AsPublished)
    """Published mistakes to repeat."""

    def __post_init__(self) -> None:
        positive = {"hours_before": self.hours_before, "hours_after": self.hours_after}
        for name, value in positive.items():
            if not 0 <= value <= 1000:
                raise ValueError(f"{name} must lie between 0 and 1000 hours, got {value}.")
        if self.hours_before + self.hours_after < 8:
            raise ValueError("the record must span at least two windows of four hours: 8 hours in all.")
        if not 0 <= self.lab_delay_hours <= 48:
            raise ValueError(f"lab_delay_hours must lie between 0 and 48, got {self.lab_delay_hours}.")
        if not 0 <= self.minimal_age <= 150:
            raise ValueError(f"minimal_age must lie between 0 and 150 years, got {self.minimal_age}.")
        if not 0 < self.terminal_reward < float("inf"):
            raise ValueError(f"terminal_reward must be a number above 0, got {self.terminal_reward}.")
        if not isinstance(self.seed, int):
            raise ValueError(f"seed must be a whole number, got {self.seed!r}.")
        if not 0 < self.train_share <= 1:
            raise ValueError(f"train_share must be above 0 and at most 1, got {self.train_share}.")
        for name in ("outcome", "cuts", "fill"):
            allowed = _CHOICES[name]
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}.")

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self) | {"as_published": list(self.as_published.repeated)}


_CHOICES = {"outcome": ("hospital", "90 days"), "cuts": ("raghu", "refit"), "fill": ("normal", "median")}
