"""No state knows what came after its decision: the future is changed, and the past stays as it was."""

import os
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from caliope.clinical import AsPublished, CohortSettings, build_cohort
from caliope.clinical._databases import features
from support.clinical_tables import BILIRUBIN, HR, LACTATE, PLATELETS, SALINE, typical

duckdb = pytest.importorskip("duckdb")

STATE = ["icustay_id", *(name for name, _ in features())]
DEMO = os.environ.get("CALIOPE_MIMIC3_DEMO", "")


def states_until(cohort, hour_of):
    """States of the decisions up to the last one before the change."""
    rows = cohort.rows.join(hour_of, on="icustay_id").filter(pl.col("decided_at") <= pl.col("cut"))
    return rows.select(STATE)


@pytest.mark.slow
@pytest.mark.parametrize("cut", [4, 20, 44])
def test_rows_after_a_decision_do_not_change_its_state(tmp_path, cut):
    """Hours 4, 20 and 44: the first decision, one in the middle, the last one."""
    plain = typical(2).urine(3, 50).drip(0.2, 2, 30)
    changed = (
        typical(2).urine(3, 50).drip(0.2, 2, 30 if cut > 30 else 60)
    )  # how long it will run is future too
    for hour in range(cut, 72):
        changed.chart(HR, hour, 190).lab(LACTATE, hour - 0.9, 20.0).lab(BILIRUBIN, hour - 1, 30.0).urine(
            hour, 900
        )
        changed.drip(3.0, hour, hour + 1).infusion(SALINE, hour, hour + 1, amount=900).chart(
            226512, hour, 120
        )
        changed.chart(223762, hour, 40.5).chart(220339, hour, 10).chart(226732, hour, "Non-rebreather")
    changed.add("diagnoses_icd", subject_id=1, hadm_id=10, seq_num=2, icd9_code="4280")
    before = build_cohort(plain.write(tmp_path / "plain")).rows
    after = build_cohort(changed.write(tmp_path / "changed")).rows
    known = (pl.col("icustay_id") == 102) | (pl.col("bloc") <= cut // 4)
    assert_frame_equal(
        before.filter(known).select(STATE), after.filter(known).select(STATE), check_exact=True
    )
    # And the change is no trifle: the next state, where there is one, shows it.
    later = (pl.col("icustay_id") == 101) & (pl.col("bloc") == cut // 4 + 1)
    if cut < 44:
        assert after.filter(later)["HR"][0] > before.filter(later)["HR"][0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["same_window_action", "nearest_row_imputation", "discharge_codes"])
def test_as_published_the_state_does_know_the_future(tmp_path, name):
    plain, changed = typical(2), typical(2)
    for hour in range(20, 72):
        changed.chart(HR, hour, 190).lab(BILIRUBIN, hour, 30.0)
    plain.lab(BILIRUBIN, 60, 5.0, 2)
    changed.lab(BILIRUBIN, 60, 5.0, 2)
    changed.add("diagnoses_icd", subject_id=1, hadm_id=10, seq_num=2, icd9_code="4280")
    chosen = CohortSettings(as_published=AsPublished.from_names([name]))
    before = build_cohort(plain.write(tmp_path / "plain"), settings=chosen).rows
    after = build_cohort(changed.write(tmp_path / "changed"), settings=chosen).rows
    # Decisions at hour 20 or earlier: with the action of the same window the sixth begins at hour 20.
    known = pl.col("bloc") <= (6 if name == "same_window_action" else 5)
    assert not before.filter(known).select(STATE).equals(after.filter(known).select(STATE))


@pytest.mark.slow
@pytest.mark.skipif(
    not Path(DEMO, "chartevents.csv.gz").is_file(), reason="set CALIOPE_MIMIC3_DEMO to the MIMIC-III demo"
)
def test_on_real_tables_too(tmp_path):
    """In the demo all after the middle of each patient's last record is doubled, trebled or lost."""
    plain = build_cohort(DEMO)
    cuts = (
        plain.rows.group_by("icustay_id")
        .agg(pl.col("subject_id").first(), cut=pl.col("decided_at").sort().slice(pl.len() // 2).first())
        .sort("cut")
        .group_by("subject_id", maintain_order=True)
        .last()  # what is the future of an earlier stay is the past of the last one
    )
    source = tmp_path / "changed.duckdb"
    with duckdb.connect(str(source)) as connection:
        connection.register("cuts", cuts)
        for path in Path(DEMO).glob("*.csv.gz"):
            name = path.name.removesuffix(".csv.gz")
            options = "header = true, delim = ',', quote = '\"', escape = '\"', all_varchar = true"
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM read_csv('{path}', {options})")
        late = "USING (SELECT icustay_id::VARCHAR AS stay, cut FROM cuts)"
        connection.execute(
            "UPDATE chartevents t SET valuenum = (2 * t.valuenum::DOUBLE)::VARCHAR, value = 'Ventilator' FROM cuts c "
            "WHERE t.icustay_id = c.icustay_id::VARCHAR AND t.charttime::TIMESTAMP >= c.cut"
        )
        # A result is known an hour after its sample: those of the last hour before the cut are future too.
        connection.execute(
            "UPDATE labevents t SET valuenum = (2 * t.valuenum::DOUBLE)::VARCHAR FROM cuts c "
            "WHERE t.subject_id = c.subject_id::VARCHAR AND t.charttime::TIMESTAMP >= c.cut - INTERVAL 1 HOUR"
        )
        connection.execute(
            f"DELETE FROM outputevents t {late} c WHERE t.icustay_id = c.stay AND t.charttime::TIMESTAMP >= c.cut"
        )
        connection.execute(
            "UPDATE inputevents_mv t SET rate = (3 * t.rate::DOUBLE)::VARCHAR FROM cuts c "
            "WHERE t.icustay_id = c.icustay_id::VARCHAR AND t.starttime::TIMESTAMP >= c.cut"
        )
        connection.execute(
            "UPDATE inputevents_cv t SET rate = (3 * t.rate::DOUBLE)::VARCHAR FROM cuts c "
            "WHERE t.icustay_id = c.icustay_id::VARCHAR AND t.charttime::TIMESTAMP >= c.cut"
        )
        connection.execute(
            "DELETE FROM diagnoses_icd t USING cuts c WHERE t.subject_id = c.subject_id::VARCHAR "
            "AND t.hadm_id IN (SELECT hadm_id FROM icustays i WHERE i.icustay_id = c.icustay_id::VARCHAR)"
        )
    changed = build_cohort(source)
    both = (
        plain.rows.select("icustay_id")
        .unique()
        .join(changed.rows.select("icustay_id").unique(), on="icustay_id")
    )
    hours = cuts.select("icustay_id", "cut").join(both, on="icustay_id")
    assert len(hours) > 35  # of 49 patients; some leave because the new numbers change the exclusions
    before, after = states_until(plain, hours), states_until(changed, hours)
    assert len(before) > 150
    assert_frame_equal(before, after, check_exact=True)
    assert (
        not plain.rows.join(both, on="icustay_id")
        .select(STATE)
        .equals(changed.rows.join(both, on="icustay_id").select(STATE))
    )


@pytest.mark.slow
def test_platelets_are_what_makes_these_patients_septic(tmp_path):
    h = typical()
    h.rows["labevents"] = [row for row in h.rows["labevents"] if row["itemid"] != PLATELETS]
    assert len(build_cohort(h.write(tmp_path)).rows) == 0
