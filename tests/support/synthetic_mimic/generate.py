"""Synthetic MIMIC databases: the raw tables of patients whose hidden states and decisions are known.

The patients follow the ICU-Sepsis process (extra ``sepsis``). Their records have the columns and item ids of MIMIC-III
or MIMIC-IV; ``truth.parquet`` beside the tables holds the hidden states and the true doses. So the whole path from
raw tables to an estimate can be compared with the truth, without real patients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from caliope._ragged import Int
from support.synthetic_mimic.charts import charted
from support.synthetic_mimic.corruption import corrupt as add_corrupt_rows
from support.synthetic_mimic.doses import Doses, draw_doses, given
from support.synthetic_mimic.mimic4 import as_mimic4
from support.synthetic_mimic.records import hospital_records
from support.synthetic_mimic.stays import ADMISSIONS, STAYS, Batch, Hospital, clock, make_batch
from support.synthetic_mimic.writing import FileType, Layout, read_data, writing

_BATCH = 200  # patients made together: with 20 copies some two million rows of charts
_SAMPLE = 2000  # rows of each table that may be corrupted: of the small tables, all of the first batch
Tables = dict[str, pl.DataFrame]


@dataclass(frozen=True)
class Generated:
    """What was written: rows of each table, and how many corrupt ones of each kind are among them."""

    folder: Path
    n_patients: int
    rows: Mapping[str, int]
    corrupted: Mapping[str, int] = field(default_factory=dict)

    @property
    def truth(self) -> Path:
        """File with the hidden states and the true doses."""
        return self.folder / "truth.parquet"


def generate_mimic(
    folder: str | Path,
    n_patients: int,
    *,
    layout: Layout,
    rng: int | np.random.Generator,
    policy: ArrayLike | None = None,
    hospital: Hospital | None = None,
    chart_copies: int = 1,
    corrupt: bool = False,
    file_type: FileType = "csv.gz",
) -> Generated:
    """Write the raw tables of a synthetic MIMIC-III or MIMIC-IV database.

    Every four hours a patient is in one of the states of ICU-Sepsis. The state is charted with noise, at irregular
    minutes and with gaps. The doses lie inside the levels of the hidden action by the cut points of Raghu et al.
    (2017). Infected patients have antibiotics and a culture as Sepsis-3 requires. The first row of a stay is
    charted on arrival, so a grid of four hours from the first record is the grid of the truth.

    All distributions but those of the process are made up too: they carry no medical knowledge. Units and ranges
    are in ``features.csv``.

    Parameters
    ----------
    folder : path
        Where the tables go, one file each; for MIMIC-IV in its folders ``hosp`` and ``icu``.
    n_patients : int
        Number of stays; some patients have two (``Hospital.returning``).
    layout : {"mimic3", "mimic4"}
        Columns of MIMIC-III 1.4 or of MIMIC-IV 2.2. The latter has no CareVue and no children, and its
        prescriptions have an hour.
    rng : int or Generator
        Seed; the same seed gives the same bytes.
    policy : array-like of shape (716, 25), optional
        Behaviour policy; by default the clinicians of ICU-Sepsis.
    hospital : Hospital, optional
        Shares of CareVue stays, of children and of the uninfected; noise; delay from a state to its doses.
    chart_copies : int
        Chartings of each vital sign where there would be one. Memory does not grow with the number of patients.
    corrupt : bool
        Add rows with impossible dates, negative doses, text in numbers and the like; ``corrupted`` counts them.
    file_type : {"csv.gz", "parquet"}
        Type of the files; corrupt rows need csv.gz.

    Returns
    -------
    Generated
        With the rows of each table. ``truth.parquet`` has one row per stay and step: ``subject``, ``stay``,
        ``step``, ``charted_from`` and ``dosed_from`` (when the four hours of either begin), ``state``, ``action``,
        ``behaviour`` (true probability of the action), ``vasopressor``, ``fluid``, ``infected``, ``age``,
        ``carevue``, ``survived`` and ``died_in_unit``.

    References
    ----------
    Choudhary et al. (2024), "ICU-Sepsis: a benchmark MDP built from real medical data". Johnson et al. (2016),
    "MIMIC-III, a freely accessible critical care database", for the tables.
    """
    for name, number in (("n_patients", n_patients), ("chart_copies", chart_copies)):
        if not isinstance(number, int | np.integer) or number < 1:
            raise ValueError(f"{name} must be a whole number of 1 or more, got {number!r}.")
    if corrupt and file_type != "csv.gz":
        raise ValueError(
            "corrupt rows hold text in place of numbers: write csv.gz, or leave out corrupt=True."
        )
    job = _Job(layout, hospital or Hospital(), policy, chart_copies)
    folder, starts = Path(folder), range(0, n_patients, _BATCH)
    seeds = np.random.default_rng(rng).spawn(len(starts))
    truth: list[pl.DataFrame] = []
    samples: Tables = {}
    with writing(folder, layout, file_type) as writer:
        for start, seed in zip(starts, seeds, strict=True):
            tables, hidden = _tables(np.arange(start, min(start + _BATCH, n_patients)), job, seed)
            for name, frame in tables.items():
                writer.add(name, frame)
            truth.append(hidden)
            samples = samples or _suspects(tables, hidden)
        for name, frame in job.arrange(_dictionaries()).items():
            writer.add(name, frame)
        corrupted = add_corrupt_rows(writer, samples) if corrupt else {}
    pl.concat(truth).write_parquet(folder / "truth.parquet")
    return Generated(folder, n_patients, MappingProxyType(dict(writer.rows)), MappingProxyType(corrupted))


generate_mimic3 = partial(generate_mimic, layout="mimic3")
generate_mimic4 = partial(generate_mimic, layout="mimic4")


@dataclass(frozen=True, eq=False)
class _Job:
    layout: Layout
    hospital: Hospital
    policy: ArrayLike | None
    chart_copies: int

    def make_batch(self, numbers: Int, rng: np.random.Generator) -> Batch:
        modern = replace(self.hospital, carevue=0.0, children=0.0)
        hospital = modern if self.layout == "mimic4" else self.hospital
        return make_batch(numbers, hospital, policy=self.policy, rng=rng)

    def arrange(self, tables: Tables) -> Tables:
        return as_mimic4(tables) if self.layout == "mimic4" else tables


def _suspects(tables: Tables, truth: pl.DataFrame) -> Tables:
    """Rows of infected adults, if there are any: to corrupt those of others would test little."""
    suspects = truth.filter("infected", pl.col("age") >= 18)
    chosen = suspects if suspects.height else truth
    whose = {
        "subject_id": chosen["subject"].unique(),
        "hadm_id": ADMISSIONS + 2 * (chosen["stay"].unique() - STAYS),
    }

    def of_suspects(frame: pl.DataFrame) -> pl.DataFrame:
        key = "hadm_id" if "hadm_id" in frame.columns else "subject_id"
        return frame.filter(pl.col(key).is_in(whose[key].to_list())).head(_SAMPLE)

    return {name: of_suspects(frame) for name, frame in tables.items()}


def _tables(numbers: Int, job: _Job, rng: np.random.Generator) -> tuple[Tables, pl.DataFrame]:
    batch = job.make_batch(numbers, rng)
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
    features = read_data("features.csv")
    charts = features.filter(pl.col("table").is_in(["chartevents", "outputevents"]))
    parts = [
        charts.select(
            "label", itemid=system, dbsource=pl.lit(system), linksto="table", category=pl.lit(""), unit="unit"
        ).drop_nulls("itemid")
        for system in ("metavision", "carevue")
    ]
    items = read_data("items.csv").select("label", "itemid", "dbsource", "linksto", "category", "unit")
    labs = features.filter(table="labevents").select("label", itemid="metavision")
    return {
        "d_items": pl.concat([*parts, items]).rename({"unit": "unitname"}).sort("itemid"),
        "d_labitems": labs.with_columns(fluid=pl.lit("Blood"), category=pl.lit("Chemistry")).sort("itemid"),
    }
