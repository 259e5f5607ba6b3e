"""Read sepsis cohorts made by others: the format is recognised by the columns, and every decision is noted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from caliope._trajectories import Trajectories
from caliope.checks import C101, C107, C108, C114, Finding
from caliope.clinical._databases import features
from caliope.clinical._foreign_values import (
    BLOC,
    CLOCK,
    FLUID,
    OUTCOMES,
    STAY,
    VASOPRESSOR,
    DoseCuts,
    Rewards,
    add_death,
    build_rewards,
    convert_units,
    find_actions,
    find_gaps,
    is_standardised,
    pair_rows,
)
from caliope.io._intact import try_reading
from caliope.io._table import read_table

# Doses of the window whose action they would predict.
_DOSES = (
    *(VASOPRESSOR, "median_dose_vaso", FLUID, "input_total", "cumulated_balance"),
    *("iv_input", "vaso_input", "iv_level", "vaso_level"),
)
# Known only after the decision: not allowed in a state.
_HINDSIGHT = (
    *(*OUTCOMES, "died_in_hospital", "died_within_90_days", "delay_end_of_record_and_discharge_or_death"),
    *("never_vasopressor", "terminated", "reward", "action"),
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
class _Format:
    """A file format: its name, and the columns by which it is recognised, each with its alternatives."""

    name: str
    required: tuple[tuple[str, ...], ...]

    def missing(self, columns: list[str]) -> list[str]:
        """Columns that the file lacks for this format."""
        return [" or ".join(names) for names in self.required if not set(names) & set(columns)]


_CALIOPE = _Format(
    "caliope cohort",
    (("icustay_id",), (BLOC,), ("decided_at",), ("HR",), ("action",), ("reward",), ("died",)),
)
_MICROSOFT = _Format(
    "microsoft/mimic_sepsis",
    (("traj",), ("step",), ("m:icustayid",), ("o:HR",), ("a:action",), ("r:reward",)),
)
_RAGHU = _Format("Raghu 2017", ((STAY,), (BLOC,), ("HR",), ("vaso_input",), ("iv_input",)))
_CMU_WHOLE = _Format(
    "cmudig/AI-Clinician-MIMICIV", ((STAY,), (BLOC,), ("HR",), (VASOPRESSOR,), ("input_step",))
)
_CMU_SPLIT = _Format("cmudig/AI-Clinician-MIMICIV split", (("HR",), (VASOPRESSOR,), ("input_step",)))
_CLINICIAN = _Format(
    "AI Clinician", ((STAY,), (BLOC,), ("HR",), (VASOPRESSOR,), ("input_4hourly", "input_4hourly_tev"))
)
# The first that fits is taken.
_FORMATS = (_CALIOPE, _MICROSOFT, _RAGHU, _CMU_WHOLE, _CMU_SPLIT, _CLINICIAN)


@dataclass(frozen=True, eq=False)
class ForeignCohort:
    """A cohort made by others, and the decisions that were taken to read it.

    Parameters
    ----------
    data : Trajectories
        One trajectory per stay.
    notes : tuple of Finding
        The decisions that were taken to read the file, with codes C101 to C115.
    format : str
        Name of the recognised format.
    """

    data: Trajectories
    notes: tuple[Finding, ...]
    format: str

    def __str__(self) -> str:
        return "\n".join([f"{self.format}: {self.data!r}", *(f"  {note}" for note in self.notes)])


def read_cohort(
    path: str | Path,
    *,
    states: Sequence[str] | None = None,
    keep_doses: bool = False,
    outcome: str | None = None,
    rewards: Rewards | None = None,
    terminal: tuple[float, float] = (-15.0, 15.0),
    cuts: DoseCuts | None = None,
    refit_cuts: bool = False,
    first_action: int | None = None,
    next_window: bool = False,
) -> ForeignCohort:
    """Read a sepsis cohort made by others, in one of the published formats.

    The format is recognised by the names of the columns:

    - the AI Clinician: ``MIMICtable.csv``, also with the older names that end in _tev;
    - microsoft/mimic_sepsis: ``sepsis_final_data``, raw and standardised;
    - cmudig/AI-Clinician-MIMICIV: ``mimic_dataset.csv``, ``MIMICraw.csv`` and ``MIMICzs.csv``;
    - Raghu et al.: ``discretised_input_data.csv``, ``rl_*_set_*`` and ``rl_*_data_final_cont.csv``;
    - :mod:`caliope.clinical`: files of :meth:`Cohort.write`.

    Columns are selected by name. Older names become the newer ones, and ``input_step`` becomes ``input_4hourly``.

    Parameters
    ----------
    path : str or path
        CSV or Parquet file.
    states : sequence of str, optional
        Columns of the state, by their common names. By default those of the 48 of Raghu et al. (2017) that the file
        has; none of them is a dose.
    keep_doses : bool
        Add the dose columns of the file to the default state. They hold the doses of the same window as the action:
        a behaviour model then looks certain, and is useless.
    outcome : str, optional
        Column that is 1 for death; by default the first of died_in_hosp, mortality_90d, outcome and
        died_within_48h_of_out_time that the file has.
    rewards : {"terminal", "shaped", "file"}, optional
        The outcome only; the outcome and the rewards of Raghu et al. (2017) for the change of SOFA and lactate, which
        need raw values; or those of the file. By default those of the file if it has any, otherwise the outcome.
    terminal : (float, float)
        Reward of the last row for death and for survival.
    cuts : DoseCuts, optional
        Cut points of the doses. By default the actions of the file are used, and if it has none, the cut points of
        Raghu et al. (2017).
    refit_cuts : bool
        Use the quartiles of the doses above zero in this file. They depend on all of its patients.
    first_action : int, optional
        Number of the first action, 0 or 1, if the actions of the file do not show it.
    next_window : bool
        Pair the state of a row with the action of the next row, so that the state is known before the decision. The
        last row of every stay is lost. By default both are from the same four hours, as published.

    Returns
    -------
    ForeignCohort
        ``data`` with the columns ``died``, ``sofa`` (if the file has SOFA), ``fluid_level`` and
        ``vasopressor_level``; ``notes`` with codes C101 to C115; and the name of the ``format``.

    Examples
    --------
    >>> cohort = read_cohort("MIMICtable.csv", next_window=True)  # doctest: +SKIP
    >>> print(cohort)  # doctest: +SKIP
    >>> cohort.data  # doctest: +SKIP
    """
    opened = _open_file(Path(path))
    frame, order_notes = _sort_rows(opened)
    scaled = is_standardised(frame)
    actions, action_note = find_actions(
        frame, cuts=cuts, refit=refit_cuts, first_action=first_action, scaled=scaled and not opened.raw_doses
    )
    frame, died_note = add_death(frame, outcome)
    last = np.flatnonzero((frame[STAY] != frame[STAY].shift(-1)).fill_null(True).to_numpy())
    numbers, reward_note = build_rewards(frame, rewards, terminal, last=last, scaled=scaled)
    gaps = find_gaps(frame, standardised=scaled)
    chosen, state_notes = _choose_states(frame, states, keep_doses=keep_doses)
    frame, value_notes = convert_units(frame, chosen, scaled=scaled)
    frame, rows_note = pair_rows(
        frame.with_columns(action=pl.Series(actions), reward=pl.Series(numbers)), next_window=next_window
    )
    notes = (*order_notes, *value_notes, action_note, died_note, reward_note, gaps, *state_notes, rows_note)
    return ForeignCohort(_assemble(frame, chosen), tuple(sorted(notes, key=lambda f: f.code)), opened.format)


def _sort_rows(opened: ForeignFile) -> tuple[pl.DataFrame, list[Finding]]:
    """Sort rows by stay and window, stays in the order in which they first appear."""
    frame = opened.frame
    keys = frame.select(STAY, BLOC)
    if keys.null_count().sum_horizontal().item():
        raise ValueError(
            f"{STAY} and {BLOC} are required in every row: {keys.null_count().row(0)} are missing."
        )
    twice = keys.filter(keys.is_duplicated())
    if twice.height:
        raise ValueError(
            f"{twice.height} rows share their {STAY} and {BLOC} with another (first: stay {twice[STAY][0]}, {BLOC} "
            f"{twice[BLOC][0]}). Drop the copies."
        )
    if frame[STAY].dtype.is_float() and (frame[STAY] == frame[STAY].floor()).all():
        # pandas writes ids as floats where one was missing.
        frame = frame.with_columns(pl.col(STAY).cast(pl.Int64))
    place = "row of the file"
    frame = frame.with_row_index(place).sort(pl.col(place).min().over(STAY), BLOC).drop(place)
    facts = {"rows": float(frame.height), "format": opened.format}
    if not opened.remarks:
        return frame, [C101.finding("note", **facts)]
    return frame, [C101.finding("note", "remarks", **facts, remarks="; ".join(opened.remarks))]


def _choose_states(
    frame: pl.DataFrame, states: Sequence[str] | None, *, keep_doses: bool
) -> tuple[list[str], list[Finding]]:
    names = _feature_names()
    doses = [name for name in _DOSES if name in frame.columns]
    if states is None:
        chosen = [name for name in names if name in frame.columns] + (doses if keep_doses else [])
    else:
        chosen = list(states)
        unknown = [name for name in chosen if name not in frame.columns]
        if unknown:
            raise ValueError(
                f"no column is called {unknown[0]!r}; there are {', '.join(sorted(frame.columns))}."
            )
        known_later = [name for name in chosen if name in _HINDSIGHT]
        if known_later:
            raise ValueError(
                f"{known_later[0]!r} is known only after the decision: it cannot be part of a state."
            )
    lacking = [name for name in names if name not in frame.columns]
    leaking = [name for name in chosen if name in _DOSES]
    if leaking:
        leak = C107.finding("caution", doses=float(len(leaking)), columns=", ".join(leaking))
    else:
        leak = C114.finding("note", columns=", ".join(doses) or "none")
    return chosen, [leak, C108.finding("note", columns=len(chosen), lacking=", ".join(lacking) or "none")]


def _assemble(frame: pl.DataFrame, chosen: list[str]) -> Trajectories:
    frame = frame.with_columns(
        fluid_level=pl.col("action") // 5, vasopressor_level=pl.col("action") % 5
    ).with_columns(pl.col(name).cast(pl.Float64) for name in chosen)
    if "SOFA" in frame.columns:
        frame = frame.with_columns(sofa=pl.col("SOFA"))
    kept = [
        name
        for name in ("died", "sofa", "fluid_level", "vasopressor_level", "training")
        if name in frame.columns
    ]
    for name in chosen:
        gaps = int((~np.isfinite(frame[name].to_numpy())).sum())
        if gaps:
            raise ValueError(
                f"{name} has no value in {gaps} of {len(frame)} rows. Fill it in as the rest of the file was, or leave "
                "it out with states=."
            )
    return read_table(
        frame, episode=STAY, action="action", reward="reward", states=chosen, keep=kept, n_actions=25
    )


def _feature_names() -> list[str]:
    return [name for name, _ in features()]


@dataclass(frozen=True, eq=False)
class ForeignFile:
    """A file under the common names of columns, its format, and what was done to read it."""

    frame: pl.DataFrame
    format: str
    remarks: tuple[str, ...]
    # Whether doses are in their own units, even if the features are scaled.
    raw_doses: bool = False


def _open_file(path: Path) -> ForeignFile:
    """Read a file of any known format, and the files that belong to it."""
    frame = _read_file(path)
    found = next((known for known in _FORMATS if not known.missing(frame.columns)), None)
    if found is None:
        tried = "\n".join(
            f"  {known.name}: lacks {', '.join(known.missing(frame.columns))}" for known in _FORMATS
        )
        raise ValueError(
            f"{path} is not a sepsis cohort that read_cohort knows: its {len(frame.columns)} columns begin with "
            f"{', '.join(frame.columns[:8])}.\n{tried}\nUse caliope.read_table and name the columns yourself."
        )
    remarks: tuple[str, ...] = ()
    if found is _CMU_SPLIT:
        frame, remarks = _join_metadata(frame, path)
    if found is _CMU_WHOLE:
        frame, remarks = _keep_cohort(frame, path)
    if found is _MICROSOFT:
        remarks = ("its last rewards count death within 48 hours of leaving the unit",)
    names = {name: _RENAMED.get(name, name.removeprefix("o:")) for name in frame.columns}
    clash = {new for new in names.values() if list(names.values()).count(new) > 1}
    if clash:
        raise ValueError(f"{path} has {sorted(clash)[0]!r} under two names: drop one of the two columns.")
    frame = frame.rename(names)
    _refuse_text(path, frame)
    return ForeignFile(frame, found.name, remarks, raw_doses=found is _CMU_SPLIT)


def _refuse_text(path: Path, frame: pl.DataFrame) -> None:
    """Refuse text in columns that must hold numbers; gender may be in letters."""
    numeric = {*_feature_names(), *_DOSES, *OUTCOMES, "action", "reward"} - {"gender"}
    for name, dtype in frame.schema.items():
        if name not in numeric or dtype != pl.String():
            continue
        odd = frame.with_row_index("row", 1).filter(
            pl.col(name).is_not_null() & pl.col(name).cast(pl.Float64, strict=False).is_null()
        )
        if odd.height:
            raise ValueError(
                f"{path}: {name} must hold numbers, but {odd.height} rows do not (first: {odd[name][0]!r} in row "
                f"{odd['row'][0]} below the header). Correct them, or leave them empty and impute."
            )


def _read_file(path: Path) -> pl.DataFrame:
    """Read a CSV or Parquet file; the types of a CSV file are inferred from all of its rows."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file.")
    try:
        if path.suffix == ".parquet":
            try_reading(path, None)
            frame = pl.read_parquet(path)
        else:
            frame = pl.read_csv(path, infer_schema_length=None, null_values=["", "NA", "NaN", "nan", "NULL"])
    except (pl.exceptions.PolarsError, OSError) as error:
        raise ValueError(f"{path} cannot be read: {' '.join(str(error).split())[:200]}.") from error
    if frame.height == 0:
        raise ValueError(f"{path} has no rows.")
    return frame


def _join_metadata(frame: pl.DataFrame, path: Path) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Add ids and outcomes of a cmudig split from metadata.csv, and doses before scaling from MIMICraw.csv."""
    beside = path.parent / "metadata.csv"
    if not beside.is_file():
        raise FileNotFoundError(f"{path} has no stay ids: metadata.csv must be in the same folder.")
    keys = _read_file(beside).select(BLOC, STAY, "outcome")
    raw = path if path.name == "MIMICraw.csv" else path.parent / "MIMICraw.csv"
    remarks = [f"ids, order and outcome come from {beside.name} beside it, row by row"]
    if raw != path:
        if not raw.is_file():
            raise FileNotFoundError(
                f"the doses of {path} are scaled: MIMICraw.csv must be in the same folder."
            )
        doses = _read_file(raw).select(VASOPRESSOR, "input_step")
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
    """Keep the stays of sepsis_cohort.csv, if it is there: mimic_dataset.csv holds all stays."""
    beside = path.parent / "sepsis_cohort.csv"
    if not beside.is_file():
        return frame, ("no sepsis_cohort.csv is beside it, so all of its stays are read",)
    kept = frame.join(_read_file(beside).select(STAY), on=STAY, how="semi", maintain_order="left")
    before, after = frame[STAY].n_unique(), kept[STAY].n_unique()
    return kept, (f"{after} of its {before} stays are in {beside.name}; the others are left out",)
