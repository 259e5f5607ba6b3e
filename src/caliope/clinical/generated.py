"""Made-up MIMIC databases: the raw tables of patients whose hidden states and decisions are known.

The patients follow the ICU-Sepsis process (extra ``sepsis``). What a hospital would have written down about them
lies in the tables of MIMIC-III or MIMIC-IV, with their columns and item ids; ``truth.parquet`` beside the tables
holds what no hospital knows. So the whole path from raw tables to an estimate can be compared with the truth,
without anybody's data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from caliope.clinical.generated_charts import charted
from caliope.clinical.generated_corruption import corrupt as add_corrupt_rows
from caliope.clinical.generated_doses import Doses, draw_doses, given
from caliope.clinical.generated_mimic4 import as_mimic4
from caliope.clinical.generated_records import hospital_records
from caliope.clinical.generated_stays import ADMISSIONS, STAYS, Batch, Hospital, clock, make_batch
from caliope.clinical.generated_writing import FileType, Layout, read_data, writing
from caliope.ragged import Int

_BATCH = 200  # patients made together: with 20 copies some two million rows of charts
_SAMPLE = 2000  # rows of each table that may be spoilt: of the small tables, all of the first batch
Tables = dict[str, pl.DataFrame]


@dataclass(frozen=True)
class Generated:
    """What was written: rows of each table, and how many spoilt ones of each kind are among them."""

    folder: Path
    n_patients: int
    rows: Mapping[str, int]
    corrupted: Mapping[str, int] = field(default_factory=dict)

    @property
    def truth(self) -> Path:
        """Where the hidden states and the true doses lie."""
        return self.folder / "truth.parquet"


def generate_mimic3(
    folder: str | Path,
    n_patients: int,
    *,
    rng: int | np.random.Generator,
    policy: ArrayLike | None = None,
    hospital: Hospital | None = None,
    chart_copies: int = 1,
    corrupt: bool = False,
    file_type: FileType = "csv.gz",
) -> Generated:
    """Write a made-up MIMIC-III: fourteen raw tables of patients whose truth is known.

    Every four hours a patient is in one of the states of ICU-Sepsis, which is charted with noise, at irregular
    minutes and with gaps; the doses lie inside the levels of the hidden action by the cut points of Raghu et al.
    (2017). Infected patients have antibiotics and a culture as Sepsis-3 looks for them. The first row of a stay is
    charted on arrival, so a grid of four hours from the first record is the grid of the truth.

    Made up are also all distributions but those of the process: do not learn medicine from it. Units and ranges
    are in ``generated_features.csv``.

    Parameters
    ----------
    folder : path
        Where the tables go, a file each.
    n_patients : int
        Number of stays; of fewer patients, for some come again (``Hospital.returning``).
    rng : int or Generator
        Seed; the same seed gives the same bytes.
    policy : array-like of shape (716, 25), optional
        Who decides; by default the clinicians of ICU-Sepsis.
    hospital : Hospital, optional
        Shares of CareVue stays, of children and of the uninfected; noise; delay from a state to its doses.
    chart_copies : int
        Chartings of each vital sign where there would be one: 300 rows a stay become 300 times as many. Memory
        does not grow with the number of patients.
    corrupt : bool
        Add rows with impossible dates, negative doses, text in numbers and the like; ``corrupted`` counts them.
    file_type : {"csv.gz", "parquet"}
        What the tables are written as; spoilt rows need csv.gz.

    Returns
    -------
    Generated
        With the rows of each table. ``truth.parquet`` has a row for each stay and step: ``subject``, ``stay``,
        ``step``, ``charted_from`` and ``dosed_from`` (when the four hours of either begin), ``state``, ``action``,
        ``behaviour`` (true probability of the action), ``vasopressor``, ``fluid``, ``infected``, ``age``,
        ``carevue``, ``survived`` and ``died_in_unit``.

    References
    ----------
    Choudhary et al. (2024), "ICU-Sepsis: a benchmark MDP built from real medical data". Johnson et al. (2016),
    "MIMIC-III, a freely accessible critical care database", for the tables.
    """
    job = _Job("mimic3", hospital or Hospital(), policy, chart_copies, corrupt)
    return _generate(Path(folder), n_patients, job, rng=rng, file_type=file_type)


def generate_mimic4(
    folder: str | Path,
    n_patients: int,
    *,
    rng: int | np.random.Generator,
    policy: ArrayLike | None = None,
    hospital: Hospital | None = None,
    chart_copies: int = 1,
    corrupt: bool = False,
    file_type: FileType = "csv.gz",
) -> Generated:
    """Write a made-up MIMIC-IV: the same patients in the folders ``hosp`` and ``icu``.

    As :func:`generate_mimic3`, with the columns of version 2.2. There is no CareVue, there are no children, and
    prescriptions know the hour.
    """
    modern = replace(hospital or Hospital(), carevue=0.0, children=0.0)
    job = _Job("mimic4", modern, policy, chart_copies, corrupt)
    return _generate(Path(folder), n_patients, job, rng=rng, file_type=file_type)


@dataclass(frozen=True, eq=False)
class _Job:
    layout: Layout
    hospital: Hospital
    policy: ArrayLike | None
    chart_copies: int
    corrupt: bool

    @property
    def arrange(self) -> Callable[[Tables], Tables]:
        return as_mimic4 if self.layout == "mimic4" else _as_it_is


def _as_it_is(tables: Tables) -> Tables:
    return tables


def _generate(
    folder: Path, n: int, job: _Job, *, rng: int | np.random.Generator, file_type: FileType
) -> Generated:
    for name, number in (("n_patients", n), ("chart_copies", job.chart_copies)):
        if not isinstance(number, int | np.integer) or number < 1:
            raise ValueError(f"{name} must be a whole number of 1 or more, got {number!r}.")
    if job.corrupt and file_type != "csv.gz":
        raise ValueError(
            "spoilt rows hold text in place of numbers: write csv.gz, or leave out corrupt=True."
        )
    starts = range(0, n, _BATCH)
    seeds = np.random.default_rng(rng).spawn(len(starts))
    truth: list[pl.DataFrame] = []
    samples: Tables = {}
    with writing(folder, job.layout, file_type) as writer:
        for start, seed in zip(starts, seeds, strict=True):
            tables, hidden = _tables(np.arange(start, min(start + _BATCH, n)), job, seed)
            for name, frame in tables.items():
                writer.add(name, frame)
            truth.append(hidden)
            samples = samples or _suspects(tables, hidden)
        for name, frame in job.arrange(_dictionaries()).items():
            writer.add(name, frame)
        corrupted = add_corrupt_rows(writer, samples) if job.corrupt else {}
    pl.concat(truth).write_parquet(folder / "truth.parquet")
    return Generated(folder, n, MappingProxyType(dict(writer.rows)), MappingProxyType(corrupted))


def _suspects(tables: Tables, truth: pl.DataFrame) -> Tables:
    """Rows of infected adults, if there are any: to spoil those of others would test little."""
    suspects = truth.filter("infected", pl.col("age") >= 18)
    chosen = suspects if suspects.height else truth
    whose = {
        "subject_id": chosen["subject"].unique(),
        "hadm_id": ADMISSIONS + 2 * (chosen["stay"].unique() - STAYS),
    }

    def mine(frame: pl.DataFrame) -> pl.DataFrame:
        key = "hadm_id" if "hadm_id" in frame.columns else "subject_id"
        return frame.filter(pl.col(key).is_in(whose[key].to_list())).head(_SAMPLE)

    return {name: mine(frame) for name, frame in tables.items()}


def _tables(numbers: Int, job: _Job, rng: np.random.Generator) -> tuple[Tables, pl.DataFrame]:
    batch = make_batch(numbers, job.hospital, policy=job.policy, rng=rng)
    doses = draw_doses(batch.log.actions, rng)
    tables = {
        **hospital_records(batch, rng),
        **charted(batch, rng, copies=job.chart_copies),
        **given(batch, doses, rng),
    }
    return job.arrange(tables), _truth(batch, doses)


def _truth(batch: Batch, doses: Doses) -> pl.DataFrame:
    step, owner = np.arange(batch.log.n_steps), batch.owner
    return pl.DataFrame(
        {
            "subject": batch.keys(owner)["subject_id"],
            "stay": batch.keys(owner)["icustay_id"],
            "step": batch.log.layout.time,
            "charted_from": clock(batch.moment(step, 0)),
            "dosed_from": clock(batch.moment(step, batch.delay)),
            "state": batch.log["state"],
            "action": batch.log.actions,
            "behaviour": batch.log["behaviour"],
            "vasopressor": doses.vasopressor,
            "fluid": doses.fluid,
            "infected": batch.infected[owner],
            "age": batch.age[owner],
            "carevue": batch.carevue[owner],
            "survived": batch.survived[owner],
            "died_in_unit": batch.died_in_unit[owner],
        }
    )


def _dictionaries() -> Tables:
    """What the item ids mean."""
    features = read_data("generated_features.csv")
    charts = features.filter(pl.col("table").is_in(["chartevents", "outputevents"]))
    parts = [
        charts.select(
            "label", itemid=system, dbsource=pl.lit(system), linksto="table", category=pl.lit(""), unit="unit"
        ).drop_nulls("itemid")
        for system in ("metavision", "carevue")
    ]
    items = read_data("generated_items.csv").select(
        "label", "itemid", "dbsource", "linksto", "category", "unit"
    )
    labs = features.filter(table="labevents").select("label", itemid="metavision")
    return {
        "d_items": pl.concat([*parts, items]).rename({"unit": "unitname"}).sort("itemid"),
        "d_labitems": labs.with_columns(fluid=pl.lit("Blood"), category=pl.lit("Chemistry")).sort("itemid"),
    }
