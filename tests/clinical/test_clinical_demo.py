"""The open MIMIC-III demo: real tables of 100 patients. CALIOPE_MIMIC3_DEMO says where they lie; else skipped."""

import csv
import gzip
import os
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from caliope.clinical import AsPublished, CohortSettings, build_cohort

pytest.importorskip("duckdb")

PLACE = os.environ.get("CALIOPE_MIMIC3_DEMO", "")
pytestmark = pytest.mark.skipif(
    not Path(PLACE, "chartevents.csv.gz").is_file(),
    reason="set CALIOPE_MIMIC3_DEMO to the folder of the MIMIC-III demo (physionet.org/content/mimiciii-demo)",
)


@pytest.fixture(scope="module")
def cohort():
    return build_cohort(PLACE)


def test_stays_at_each_stage(cohort):
    assert cohort.flow.select("stays_in", "stays_removed").rows() == [
        (136, 0),  # impossible dates
        (136, 1),  # too young
        (135, 30),  # no antibiotic
        (105, 5),  # no culture
        (100, 6),  # too far apart
        (94, 12),  # the infection was not during the ICU stay
        (82, 2),  # no sepsis
        (80, 0),
        (80, 0),
        (80, 0),
        (80, 2),  # left before a second window
        (78, 1),  # withdrawal
        (77, 7),  # died while being recorded
    ]
    assert cohort.flow["patients_out"][-1] == cohort.rows["subject_id"].n_unique() == 49


@pytest.mark.slow
def test_rows_doses_and_cut_points(cohort):
    numbers = cohort.summary()
    assert (numbers["stays"], numbers["decisions"]) == (70, 585)
    assert round(numbers["share of decisions without vasopressor"], 3) == 0.774  # Raghu's whole set: 0.822
    assert round(numbers["share of decisions without fluid"], 3) == 0.193  # Raghu's: 0.230
    assert numbers["stays never given a vasopressor"] == 45
    assert cohort.cuts == {"iv": (50.0, 180.435, 529.757), "vaso": (0.08, 0.225, 0.45)}
    refit = build_cohort(PLACE, settings=CohortSettings(cuts="refit", train_share=1.0))
    nonzero = refit.rows.filter(pl.col("max_dose_vaso") > 0)["max_dose_vaso"].to_numpy()
    assert refit.cuts["vaso"] == pytest.approx(np.quantile(nonzero, [0.25, 0.5, 0.75]), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("hours", "stays", "decisions"), [(1, 72, 2556), (2, 71, 1248), (8, 68, 248)])
def test_windows_of_another_length_hold_the_same_doses(cohort, hours, stays, decisions):
    other = build_cohort(PLACE, settings=CohortSettings(window_hours=hours))
    numbers = other.summary()
    assert (numbers["stays"], numbers["decisions"]) == (stays, decisions)
    assert other.to_dict()["settings"]["window_hours"] == hours
    assert other.cuts == cohort.cuts  # in mL per four hours, as before
    short, long = sorted([(hours, other.rows), (4, cohort.rows)], key=lambda pair: pair[0])
    ratio = long[0] // short[0]
    parts = short[1].select("icustay_id", "decided_at", ml=pl.col("input_4hourly") * short[0] / 4)
    whole = long[1].select("icustay_id", start="decided_at", ml=pl.col("input_4hourly") * long[0] / 4)
    inside = whole.join(parts, on="icustay_id", suffix="_part").filter(
        (pl.col("decided_at") >= pl.col("start"))
        & (pl.col("decided_at") < pl.col("start") + pl.duration(hours=long[0]))
    )
    summed = inside.group_by("icustay_id", "start").agg(
        pl.col("ml").first(), pl.col("ml_part").sum(), pl.len().alias("parts")
    )
    full = summed.filter(pl.col("parts") == ratio)
    assert len(full) > 200
    assert full["ml_part"].to_numpy() == pytest.approx(full["ml"].to_numpy(), abs=1e-4)


@pytest.mark.parametrize("hours", [3, 0, True, "4"])
def test_other_lengths_of_a_window_are_refused(hours):
    with pytest.raises(ValueError, match="window_hours must be one of 1, 2, 4, 8, got"):
        CohortSettings(window_hours=hours)


def test_missing_before_anything_was_filled_in(cohort):
    table = {row["variable"]: row for row in cohort.missingness.iter_rows(named=True)}
    assert table["HR"]["measured"] > 0.98
    assert table["DiaBP"]["measured"] > 0.98
    assert 0.2 < table["Arterial_lactate"]["missing"] < 0.25
    for row in table.values():
        shares = [row[k] for k in ("measured", "held", "carried", "estimated", "missing")]
        assert sum(shares) == pytest.approx(1, abs=1e-12)


def test_values_are_those_of_living_people(cohort):
    rows = cohort.rows
    # Between the least and the most that is compatible with life for a while; medians as on any ICU.
    bounds = {
        "HR": (20, 220), "MeanBP": (25, 160), "SysBP": (40, 240), "DiaBP": (15, 140), "RR": (4, 60), "SpO2": (50, 100),
        "Temp_C": (30, 43), "GCS": (3, 15), "Arterial_pH": (6.8, 7.8), "Potassium": (1.5, 9), "Sodium": (100, 175),
        "Arterial_lactate": (0.2, 25), "FiO2_1": (0.2, 1), "SOFA": (0, 24), "SIRS": (0, 4), "Weight_kg": (30, 300),
        "max_dose_vaso": (0, 5), "input_4hourly": (0, 10_000), "output_4hourly": (0, 12_000),
    }  # fmt: skip
    for name, (low, high) in bounds.items():
        assert low <= rows[name].min() <= rows[name].max() <= high, name
    medians = {"HR": (70, 100), "MeanBP": (70, 85), "RR": (15, 25), "SOFA": (3, 8), "Creatinine": (0.6, 1.6)}
    for name, (low, high) in medians.items():
        assert low <= rows[name].median() <= high, name
    assert rows.null_count().row(0) == (0,) * rows.width


def rows_of(table, key, number):
    with gzip.open(Path(PLACE, f"{table}.csv.gz"), "rt", encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if row[key] == str(number)]


@pytest.mark.slow
def test_a_stay_checked_by_hand(cohort):
    """Stay 239396: liver failure on a ventilator. Its second decision, from the raw rows."""
    stay, patient = 239396, 44212
    arrival = datetime.fromisoformat(rows_of("icustays", "icustay_id", stay)[0]["intime"])
    begins, ends = (
        arrival + timedelta(hours=4),
        arrival + timedelta(hours=8),
    )  # the second window of four hours
    charts = rows_of("chartevents", "icustay_id", stay)
    labs = rows_of("labevents", "subject_id", patient)

    def charted(item, since=begins):
        return [
            float(row["valuenum"]) for row in charts
            if row["itemid"] == str(item) and since <= datetime.fromisoformat(row["charttime"]) < ends
        ]  # fmt: skip

    def last_lab(item):
        """The last sample whose result was known, an hour after it was drawn."""
        known = [
            (datetime.fromisoformat(row["charttime"]), float(row["valuenum"])) for row in labs
            if row["itemid"] == str(item) and datetime.fromisoformat(row["charttime"]) + timedelta(hours=1) < ends
        ]  # fmt: skip
        return max(known)[1]

    # Lungs: oxygen pressure over inspired oxygen, on a ventilator (a PEEP is charted). 55 / 0.8 = 69: 4 points.
    oxygen, inspired = last_lab(50821), np.mean(charted(223835)) / 100
    assert charted(220339)
    assert oxygen / inspired < 100
    # Coagulation: platelets of 71, 2 points. Liver: bilirubin of 19.8, 4 points.
    assert 50 <= last_lab(51265) < 100
    assert last_lab(50885) >= 12
    # Circulation: norepinephrine ran at 0.10, 0.12 and 0.14 micrograms/kg/min; above 0.1 is 4 points.
    rates = [
        float(row["rate"]) for row in rows_of("inputevents_mv", "icustay_id", stay)
        if row["itemid"] == "221906" and row["statusdescription"] != "Rewritten"
        and datetime.fromisoformat(row["starttime"]) < ends and datetime.fromisoformat(row["endtime"]) > begins
    ]  # fmt: skip
    assert max(rates) > 0.1
    # Brain: eyes, words and movement make 7, 3 points.
    coma = charted(220739)[0] + charted(223900)[0] + charted(223901)[0]
    assert 5 < coma <= 9
    # Kidneys: 13 mL of urine in four hours, less than 200 mL a day: 4 points whatever the creatinine.
    urine = sum(
        float(row["value"]) for row in rows_of("outputevents", "icustay_id", stay)
        if row["itemid"] == "226559" and begins <= datetime.fromisoformat(row["charttime"]) < ends
    )  # fmt: skip
    assert 0 < urine < 34

    row = cohort.rows.filter((pl.col("icustay_id") == stay) & (pl.col("bloc") == 2)).row(0, named=True)
    assert row["SOFA"] == 4 + 2 + 4 + 4 + 3 + 4
    assert row["PaO2_FiO2"] == pytest.approx(oxygen / inspired, rel=1e-9)
    assert row["MeanBP"] == pytest.approx(np.mean(charted(220052)), rel=1e-9)
    assert (row["GCS"], row["output_4hourly"]) == (coma, urine)
    # The rates of this window are the dose that followed the first decision.
    before = cohort.rows.filter((pl.col("icustay_id") == stay) & (pl.col("bloc") == 1)).row(0, named=True)
    assert before["max_dose_vaso"] == pytest.approx(max(rates), rel=1e-12)
    assert row["decided_at"] == ends


@pytest.mark.slow
def test_all_published_mistakes_together_come_near_the_published_numbers(cohort):
    as_it_was = build_cohort(PLACE, settings=CohortSettings(as_published=AsPublished.from_names(["all"])))
    numbers = as_it_was.summary()
    # Raghu's set: 13.5 rows a stay, 82.2 % of rows without vasopressor. A few stays: within three standard errors.
    stays, rows = numbers["stays"], numbers["decisions"]
    lengths = as_it_was.rows.group_by("icustay_id").len()["len"]
    assert abs(rows / stays - 13.5) < 3 * lengths.std() / stays**0.5
    by_stay = as_it_was.rows.group_by("icustay_id").agg((pl.col("max_dose_vaso") == 0).mean())[
        "max_dose_vaso"
    ]
    assert abs(numbers["share of decisions without vasopressor"] - 0.822) < 3 * by_stay.std() / stays**0.5
    # Rows outside the ICU, where treatment is not recorded, are what makes untreated rows common.
    assert (
        numbers["share of decisions without fluid"]
        > cohort.summary()["share of decisions without fluid"] + 0.1
    )


def test_the_corrected_states_make_trajectories(cohort):
    data = cohort.to_trajectories(history=3)
    assert data.states.shape == (585, 198)
    assert len(data) == 70
    assert data.n_actions == 25
    assert np.isfinite(data.states).all()
