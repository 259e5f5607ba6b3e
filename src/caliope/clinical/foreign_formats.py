"""Which sepsis cohort a file is, told by the names of its columns, and one set of names for all of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

STAY, BLOC, CLOCK = "icustayid", "bloc", "charttime"
FLUID, VASOPRESSOR = "input_4hourly", "max_dose_vaso"

# Columns that hold what was given in the very window whose action they would predict.
DOSES = (
    *(VASOPRESSOR, "median_dose_vaso", FLUID, "input_total", "cumulated_balance"),
    *("iv_input", "vaso_input", "iv_level", "vaso_level"),
)
# Columns that may say who died, the most usual first; 1 for death in each of them.
OUTCOMES = ("died", "died_in_hosp", "mortality_90d", "outcome", "died_within_48h_of_out_time")
# What nobody knows at the time of a decision: no part of a state.
HINDSIGHT = (
    *(*OUTCOMES, "died_in_hospital", "died_within_90_days", "delay_end_of_record_and_discharge_or_death"),
    *("never_vasopressor", "terminated", "reward", "action"),
)

# The state of Raghu et al. (2017), in their order.
FEATURES = (
    *("Albumin", "Arterial_BE", "Arterial_lactate", "Arterial_pH", "BUN", "CO2_mEqL", "Calcium", "Chloride"),
    *(
        "Creatinine",
        "DiaBP",
        "FiO2_1",
        "GCS",
        "Glucose",
        "HCO3",
        "HR",
        "Hb",
        "INR",
        "Ionised_Ca",
        "Magnesium",
    ),
    *(
        "MeanBP",
        "PT",
        "PTT",
        "PaO2_FiO2",
        "Platelets_count",
        "Potassium",
        "RR",
        "SGOT",
        "SGPT",
        "SIRS",
        "SOFA",
    ),
    *("Shock_Index", "Sodium", "SpO2", "SysBP", "Temp_C", "Total_bili", "WBC_count", "Weight_kg", "age"),
    *(
        "elixhauser",
        "gender",
        "mechvent",
        "output_4hourly",
        "output_total",
        "paCO2",
        "paO2",
        "re_admission",
        BLOC,
    ),
)

_RENAMED = {
    "input_4hourly_tev": FLUID,
    "input_total_tev": "input_total",
    "cumulated_balance_tev": "cumulated_balance",
    "input_step": FLUID,
    "output_step": "output_4hourly",
    "morta_90": "mortality_90d",
    "morta_90d": "mortality_90d",
    "step": BLOC,
    "a:action": "action",
    "r:reward": "reward",
    "icustay_id": STAY,
    "m:icustayid": STAY,
    "m:charttime": CLOCK,
    "m:presumed_onset": "presumed_onset",
}


@dataclass(frozen=True)
class Format:
    """A kind of file: its name, and the columns it is known by, each with its alternatives."""

    name: str
    known_by: tuple[tuple[str, ...], ...]

    def missing(self, columns: list[str]) -> list[str]:
        """What the file would need to be of this kind."""
        return [" or ".join(names) for names in self.known_by if not set(names) & set(columns)]


_CALIOPE = Format(
    "caliope cohort",
    (("icustay_id",), (BLOC,), ("decided_at",), ("HR",), ("action",), ("reward",), ("died",)),
)
_MICROSOFT = Format(
    "microsoft/mimic_sepsis",
    (("traj",), ("step",), ("m:icustayid",), ("o:HR",), ("a:action",), ("r:reward",)),
)
_RAGHU = Format("Raghu 2017", ((STAY,), (BLOC,), ("HR",), ("vaso_input",), ("iv_input",)))
_CMU_WHOLE = Format(
    "cmudig/AI-Clinician-MIMICIV", ((STAY,), (BLOC,), ("HR",), (VASOPRESSOR,), ("input_step",))
)
_CMU_SPLIT = Format("cmudig/AI-Clinician-MIMICIV split", (("HR",), (VASOPRESSOR,), ("input_step",)))
_CLINICIAN = Format(
    "AI Clinician", ((STAY,), (BLOC,), ("HR",), (VASOPRESSOR,), ("input_4hourly", "input_4hourly_tev"))
)
FORMATS = (_CALIOPE, _MICROSOFT, _RAGHU, _CMU_WHOLE, _CMU_SPLIT, _CLINICIAN)  # the first that fits


@dataclass(frozen=True, eq=False)
class Opened:
    """A file under the common names, and what was done on the way."""

    frame: pl.DataFrame
    format: str
    remarks: tuple[str, ...]
    raw_doses: bool = False  # doses in their own units, whatever the scale of the features


def open_file(path: Path) -> Opened:
    """Read a file of any known kind, and what must lie beside it."""
    frame = read_file(path)
    found = next((known for known in FORMATS if not known.missing(frame.columns)), None)
    if found is None:
        tried = "\n".join(
            f"  {known.name}: lacks {', '.join(known.missing(frame.columns))}" for known in FORMATS
        )
        raise ValueError(
            f"{path} is no sepsis cohort that read_cohort knows: its {len(frame.columns)} columns begin with "
            f"{', '.join(frame.columns[:8])}.\n{tried}\nUse caliope.read_table and name the columns yourself."
        )
    remarks: tuple[str, ...] = ()
    if found is _CMU_SPLIT:
        frame, remarks = _join_metadata(frame, path)
    if found is _CMU_WHOLE:
        frame, remarks = _keep_cohort(frame, path)
    if found is _MICROSOFT:
        remarks = ("its last rewards tell of death within 48 hours of leaving the unit",)
    names = {name: _RENAMED.get(name, name.removeprefix("o:")) for name in frame.columns}
    clash = {new for new in names.values() if list(names.values()).count(new) > 1}
    if clash:
        raise ValueError(f"{path} has {sorted(clash)[0]!r} under two names: drop one of the two columns.")
    frame = frame.rename(names)
    _refuse_text(path, frame)
    return Opened(frame, found.name, remarks, raw_doses=found is _CMU_SPLIT)


def _refuse_text(path: Path, frame: pl.DataFrame) -> None:
    """Every column that will be read holds numbers, but for a gender in letters."""
    wanted = {*FEATURES, *DOSES, *OUTCOMES, "action", "reward"} - {"gender"}
    for name, dtype in frame.schema.items():
        if name not in wanted or dtype != pl.String():
            continue
        odd = frame.with_row_index("row", 1).filter(
            pl.col(name).is_not_null() & pl.col(name).cast(pl.Float64, strict=False).is_null()
        )
        if odd.height:
            raise ValueError(
                f"{path}: {name} must hold numbers, but {odd.height} rows do not (first: {odd[name][0]!r} in row "
                f"{odd['row'][0]} below the header). Correct them, or leave them empty and impute."
            )


def read_file(path: Path) -> pl.DataFrame:
    """A CSV or Parquet file; the types of a CSV file are found by reading all of it."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file.")
    try:
        if path.suffix == ".parquet":
            frame = pl.read_parquet(path)
        else:
            frame = pl.read_csv(path, infer_schema_length=None, null_values=["", "NA", "NaN", "nan", "NULL"])
    except (pl.exceptions.PolarsError, OSError) as error:
        raise ValueError(f"{path} cannot be read: {' '.join(str(error).split())[:200]}.") from error
    if frame.height == 0:
        raise ValueError(f"{path} has no rows.")
    return frame


def _join_metadata(frame: pl.DataFrame, path: Path) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Ids and outcomes of a cmudig split lie in metadata.csv, row by row; doses before scaling in MIMICraw.csv."""
    beside = path.parent / "metadata.csv"
    if not beside.is_file():
        raise FileNotFoundError(f"{path} names no stays: metadata.csv of the same folder must lie beside it.")
    keys = read_file(beside).select(BLOC, STAY, "outcome")
    raw = path if path.name == "MIMICraw.csv" else path.parent / "MIMICraw.csv"
    remarks = [f"ids, order and outcome come from {beside.name} beside it, row by row"]
    if raw != path:
        if not raw.is_file():
            raise FileNotFoundError(f"the doses of {path} are scaled: MIMICraw.csv must lie beside it.")
        doses = read_file(raw).select(VASOPRESSOR, "input_step")
        _check_rows(path, frame, raw, doses)
        frame = frame.with_columns(doses)
        remarks.append(f"doses come from {raw.name} beside it, row by row")
    _check_rows(path, frame, beside, keys)
    return pl.concat([keys, frame.drop(keys.columns, strict=False)], how="horizontal"), tuple(remarks)


def _check_rows(path: Path, frame: pl.DataFrame, beside: Path, other: pl.DataFrame) -> None:
    if frame.height != other.height:
        raise ValueError(
            f"{path} has {frame.height} rows and {beside} has {other.height}: they must come from the same run."
        )


def _keep_cohort(frame: pl.DataFrame, path: Path) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Keep the stays of sepsis_cohort.csv: mimic_dataset.csv beside it holds everyone."""
    beside = path.parent / "sepsis_cohort.csv"
    if not beside.is_file():
        return frame, ("no sepsis_cohort.csv lies beside it, so all of its stays are taken for the cohort",)
    kept = frame.join(read_file(beside).select(STAY), on=STAY, how="semi", maintain_order="left")
    before, after = frame[STAY].n_unique(), kept[STAY].n_unique()
    return kept, (f"{after} of its {before} stays are in {beside.name}; the others are left out",)
