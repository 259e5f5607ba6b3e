"""Every stage of the sepsis pipeline on tables that can be checked with a pencil.

Cases that need nothing of each other share a hospital: patient n is case n, and the pipeline runs once.
"""

import math

import polars as pl
import pytest

from caliope.clinical import AsPublished, CohortSettings, Resources, build_cohort
from support.clinical_tables import (
    BILIRUBIN,
    CREATININE,
    DIA,
    FIO2,
    HR,
    LACTATE,
    MEAN,
    NOREPINEPHRINE,
    PEEP,
    PLATELETS,
    PO2,
    SALINE,
    SYS,
    Hospital,
    at,
    sparse,
    typical,
)

pytestmark = pytest.mark.slow

duckdb = pytest.importorskip("duckdb")


@pytest.fixture
def build(tmp_path):
    def run(hospital, *names, **settings):
        chosen = CohortSettings(as_published=AsPublished.from_names(names), **settings)
        return build_cohort(hospital.write(tmp_path / "raw"), settings=chosen)

    return run


@pytest.fixture
def stages(tmp_path):
    """Run, and ask what a stage left behind."""

    def run(hospital, query, *names, **settings):
        chosen = CohortSettings(as_published=AsPublished.from_names(names), **settings)
        kept = tmp_path / "stages.duckdb"
        kept.unlink(missing_ok=True)
        build_cohort(hospital.write(tmp_path / "raw"), settings=chosen, resources=Resources(keep_stages=kept))
        with duckdb.connect(str(kept), read_only=True) as connection:
            return connection.execute(query).fetchall()

    return run


def first(cohort, column):
    """What the first decision of each patient shows, in the order of patients."""
    return cohort.rows.filter(pl.col("bloc") == 1).sort("icustay_id")[column].to_list()


def removed(cohort):
    return {
        row["reason"]: row["stays_removed"]
        for row in cohort.flow.iter_rows(named=True)
        if row["stays_removed"]
    }


def test_a_state_is_made_before_the_decision_and_the_action_after_it(build):
    h = typical().drip(0.3, 4, 8).infusion(SALINE, 8, 12, amount=400)
    rows = build(h).rows
    assert rows["bloc"].to_list() == list(range(1, 12))
    one, two, three = rows.head(3).iter_rows(named=True)
    # At hour 4 the heart rates of the hours 0 and 2 are known: (80 + 82) / 2.
    assert one["HR"] == 81
    assert str(one["decided_at"]) == at(4)
    assert two["HR"] == (84 + 86) / 2
    # The drip of hours 4 to 8 is the action of the first decision, and in the SOFA score of the second.
    assert (one["max_dose_vaso"], one["vaso_level"], two["max_dose_vaso"]) == (0.3, 3, 0)
    assert two["SOFA"] - one["SOFA"] == 4  # above 0.1: four points of circulation, and none before
    assert (two["input_4hourly"], two["iv_level"], two["action"]) == (400, 3, 15)
    assert three["action"] == 0


def test_as_published_the_state_sees_the_window_of_its_own_action(build):
    rows = build(typical().drip(0.3, 4, 8), "same_window_action").rows
    two = rows.row(1, named=True)
    assert (two["HR"], two["max_dose_vaso"]) == (85, 0.3)
    assert len(rows) == 12  # every window has an action then


def test_vasopressors_become_norepinephrine(build):
    cases = [
        (221906, 0.2, "mcg/kg/min", 0.2),  # norepinephrine is the measure
        (221289, 0.2, "mcg/kg/min", 0.2),  # epinephrine counts the same
        (221749, 2.0, "mcg/kg/min", 0.9),  # phenylephrine: 2 x 0.45
        (221662, 10.0, "mcg/kg/min", 0.1),  # dopamine: 10 x 0.01
        (222315, 2.4, "units/hour", 0.2),  # vasopressin: 2.4 / 60 x 5
        (222315, 0.04, "units/min", 0.2),  # vasopressin: 0.04 x 5
        (221906, 10.0, "mcg/min", 0.2),  # the patient weighs 50 kg: 10 / 50
    ]
    h = typical(len(cases))
    for n, (item, rate, unit, _) in enumerate(cases, start=1):
        h.drip(rate, 4, 8, n, item=item, per=unit)
    doses = [dose for *_, dose in cases]
    assert first(build(h), "max_dose_vaso") == pytest.approx(doses, rel=1e-12)
    assert first(build(h, "everyone_80_kg"), "max_dose_vaso") == pytest.approx(
        [*doses[:-1], 10 / 80], rel=1e-12
    )


def test_of_several_rates_the_largest_and_the_median_are_kept(build):
    rows = build(typical().drip(0.1, 4, 5).drip(0.2, 5, 6).drip(0.6, 6, 9)).rows
    assert (rows["max_dose_vaso"][0], rows["median_dose_vaso"][0]) == (0.6, 0.2)
    assert rows["max_dose_vaso"][1] == 0.6  # it still ran from hour 8 to 9


def test_a_running_fluid_is_spread_and_a_bolus_is_not(build):
    h = typical().infusion(
        SALINE, 6, 14, amount=800
    )  # 100 mL/h: 2, 4 and 2 hours of the windows at 4, 8 and 12
    h.infusion(SALINE, 9, 9, amount=250)
    assert build(h).rows["input_4hourly"][:4].to_list() == [200, 400 + 250, 200, 0]


def test_fluids_count_by_tonicity_and_unit(build):
    cases = [
        (220862, 100, "ml", 500, 500),  # albumin 25%: five times its volume
        (225159, 500, "ml", 250, 250),  # half saline: half
        (225941, 400, "ml", 100, 100),  # quarter saline: a quarter
        (220995, 50, "mEq", 333, 333),  # bicarbonate 8.4%: 1 mEq is 1 mL, 50 x 6.66
        (SALINE, 1, "L", 1000, 1),  # as published a litre is a millilitre
        (227531, 50, "grams", 550, 137.5),  # mannitol 25%: 4 mL a gram, 50 x 4 x 2.75; as published 50 x 2.75
    ]
    h = typical(len(cases))
    for n, (item, amount, unit, *_) in enumerate(cases, start=1):
        h.infusion(item, 5, 6, n, amount=amount, unit=unit)
    assert first(build(h), "input_4hourly") == pytest.approx([case[3] for case in cases], rel=1e-9)
    as_it_was = first(build(h, "grams_as_ml"), "input_4hourly")
    assert as_it_was == pytest.approx([case[4] for case in cases], rel=1e-9)


def test_rewritten_orders_do_not_count(build):
    h = typical().infusion(SALINE, 4, 8, amount=400, status="Rewritten").infusion(SALINE, 4, 8, amount=100)
    assert build(h).rows["input_4hourly"][0] == 100
    assert build(h, "rewritten_fluids").rows["input_4hourly"][0] == 500


def test_carevue_doses_are_those_charted_in_the_window(build):
    h = typical()
    for hour, rate in ((4, 0.1), (5, 0.15), (6, 0.0)):
        h.add(
            "inputevents_cv", icustay_id=101, itemid=30120, charttime=at(hour), rate=rate, rateuom="mcgkgmin"
        )
    h.add("inputevents_cv", icustay_id=101, itemid=30006, charttime=at(6), amount=250, amountuom="ml")
    rows = build(h).rows
    assert (rows["max_dose_vaso"][0], rows["input_4hourly"][0]) == (0.15, 250)  # 30006 is platelets
    assert build(h, "fluid_id_typo").rows["input_4hourly"][0] == 0


def test_urine_is_summed_without_what_was_flushed_in(build):
    h = typical().urine(1, 100).urine(3, 50).urine(3.5, 3000, item=227489).urine(3.5, 2900, item=227488)
    h.urine(2, 70, item=227510)  # residual of tube feeding is not urine
    h.urine(-3, 500, item=226633)  # before admission: in the total only
    one = build(h).rows.row(0, named=True)
    assert one["output_4hourly"] == 100 + 50 + 3000 - 2900
    assert one["output_total"] == 250 + 500
    one = build(h, "tube_feed_as_urine", "irrigation_as_urine", "preadmission_urine_lost").rows.row(
        0, named=True
    )
    assert (one["output_4hourly"], one["output_total"]) == (3220, 3220)


def test_what_is_flushed_in_is_taken_off_later_windows_too(stages):
    # 200 mL of urine; 500 mL flushed in at hour 5 and out again, with 100 mL of urine, at hour 9; 40 mL at hour 13.
    h = typical().urine(1, 200).urine(5, 500, item=227488).urine(9, 600, item=227489).urine(13, 40)
    query = "SELECT output_4hourly, output_total, kidneys FROM step_scores WHERE step BETWEEN 0 AND 3 ORDER BY step"
    # Nothing came out at hour 5: that is not "little urine". 40 mL in four hours are three points.
    assert stages(h, query) == [(200, 200, 0), (0, 200, 0), (100, 300, 0), (40, 340, 3)]
    published = stages(h, query, "irrigation_as_urine")
    assert [row[1] for row in published] == [200, 200, 800, 840]


def test_who_is_on_a_ventilator(stages):
    h = typical(4)
    h.chart(PEEP, 5, 5, 1).chart(640, 7, "Extubated", 1)  # ventilated in the second window, and not after it
    h.chart(640, 5, "Extubated", 2).chart(PEEP, 7, 5, 2)  # a new tube
    h.chart(223849, 5, "Standby", 3)  # a ventilator beside the bed
    h.chart(223849, 5, "CPAP/PSV", 4).chart(223849, 7, "Standby", 4)
    query = "SELECT step, icustay_id - 100 FROM step_states WHERE mechvent = 1 AND step BETWEEN 0 AND 2 ORDER BY ALL"
    assert stages(h, query) == [(1, 1), (1, 2), (1, 4), (2, 2)]


ORGANS = ["lungs", "coagulation", "liver", "circulation", "brain", "kidneys"]


def test_organ_points_of_the_sofa_score(stages):
    cases = [
        ("coagulation", 0, {PLATELETS: 150}),
        ("coagulation", 3, {PLATELETS: 49}),
        ("coagulation", 4, {PLATELETS: 19}),
        ("liver", 0, {BILIRUBIN: 1.1}),
        ("liver", 1, {BILIRUBIN: 1.2}),
        ("liver", 4, {BILIRUBIN: 12.0}),
        ("kidneys", 1, {CREATININE: 1.9}),
        ("kidneys", 3, {CREATININE: 4.9}),
        ("kidneys", 4, {CREATININE: 5.0}),
        ("lungs", 1, {PO2: 150, FIO2: 50}),  # 150 / 0.5 = 300
        ("lungs", 2, {PO2: 60, FIO2: 50}),  # 120, but no ventilator: two points at most
        ("lungs", 3, {PO2: 60, FIO2: 50, PEEP: 5}),
        ("lungs", 4, {PO2: 49, FIO2: 50, PEEP: 5}),
        ("circulation", 1, {MEAN: 64}),
        ("brain", 2, {220739: 3, 223900: 4, 223901: 5}),  # 3 + 4 + 5 = 12
        ("brain", 4, {220739: 1, 223900: 1, 223901: 3}),
    ]
    h = Hospital()
    for n, (_, _, rows) in enumerate(cases, start=1):
        h.stay(n).infected(n).chart(HR, 0, 80, n)
        for item, value in rows.items():
            h.lab(item, 1, value, n) if item in (PLATELETS, BILIRUBIN, CREATININE, PO2) else h.chart(
                item, 2, value, n
            )
    query = f"SELECT {', '.join(ORGANS)}, SOFA FROM step_scores WHERE step = 0 ORDER BY icustay_id"
    for (organ, points, rows), found in zip(cases, stages(h, query), strict=True):
        # The organ in question has its points, every other none.
        expected = [points if name == organ else 0 for name in ORGANS]
        assert list(found) == [*expected, points], (organ, rows)


def test_little_urine_scores_kidney_points_and_none_charted_scores_nothing(stages):
    cases = [(33, 4, 4), (34, 3, 3), (83, 3, 3), (84, 0, 0), (None, 0, 4)]
    h = typical(len(cases))
    for n, (ml, *_) in enumerate(cases, start=1):
        if ml is not None:
            h.urine(1, ml, n)
    query = "SELECT kidneys FROM step_scores WHERE step = 0 ORDER BY icustay_id"
    assert stages(h, query) == [(points,) for _, points, _ in cases]
    assert stages(h, query, "uncharted_urine_scores") == [(points,) for *_, points in cases]


def test_as_published_scores_differ(build):
    h = typical(3)
    h.lab(PO2, 1, 84, 1).chart(FIO2, 1, 21, 1)  # 84 / 0.21 is 400 exactly
    h.lab(PO2, 1, 60, 2).chart(FIO2, 1, 50, 2)  # 120 without a ventilator
    h.rows["chartevents"] = [
        row for row in h.rows["chartevents"] if row["icustay_id"] != 103 or row["itemid"] != MEAN
    ]
    h.chart(MEAN, 1, 64, 3)
    assert first(build(h), "SOFA") == [2, 2 + 2, 2 + 1]
    names = ("sofa_gaps", "unsupported_lung_points", "low_pressure_two_points")
    assert first(build(h, *names), "SOFA") == [0, 2 + 3, 2 + 2]


def test_sirs_and_shock_index(build):
    h = typical().chart(HR, 1, 108).lab(51301, 1, 13.0)  # heart rates 80, 108, 82: mean 90; white cells 13
    one = build(h).rows.row(0, named=True)
    assert one["HR"] == 90
    assert one["Shock_Index"] == 90 / 120
    # Temperature 37, heart rate not above 90, breathing 18, carbon dioxide normal, white cells 12 or more: one.
    assert one["SIRS"] == 1


def test_values_hold_then_are_carried_then_are_missing(stages):
    h = (
        Hospital()
        .stay()
        .infected()
        .chart(HR, 0, 70)
        .chart(HR, 1, 80)
        .lab(LACTATE, 0, 6.0)
        .lab(PLATELETS, 0, 40)
    )
    query = (
        "SELECT variable, step, origin FROM known WHERE variable IN ('HR', 'Arterial_lactate', 'Potassium')"
    )
    origin = {(variable, step): how for variable, step, how in stages(h, query)}
    # Charted in the first window; a heart rate holds for two hours, so at hour 8 it is only carried.
    assert (origin["HR", 0], origin["HR", 1]) == ("measured", "carried")
    # Known at hour 1 and held for 8 hours: at hour 8 it still holds, at hour 12 it does not.
    found = [origin["Arterial_lactate", step] for step in (-1, 0, 1, 2)]
    assert found == [None, "measured", "held", "carried"]
    assert origin["Potassium", 3] is None
    value = dict(stages(h, "SELECT step, HR FROM step_states"))
    assert (value[-1], value[0], value[1], value[5]) == (
        80,
        75,
        75,
        75,
    )  # before the first one: a normal rate


def test_a_result_is_not_known_when_the_sample_is_drawn(build):
    h = typical().lab(LACTATE, 3.5, 20.0)
    # Drawn half an hour before the decision at hour 4, known half an hour after it.
    assert build(h).rows["Arterial_lactate"][:2].to_list() == [4.0, 20.0]
    assert build(h, lab_delay_hours=0.0).rows["Arterial_lactate"][0] == 20.0


def test_missing_pressures_follow_from_the_others(build):
    h = sparse(3).chart(SYS, 1, 120, 1).chart(MEAN, 1, 80, 1).chart(SYS, 1, 120, 2).chart(DIA, 1, 60, 2)
    h.chart(MEAN, 1, 80, 3).chart(DIA, 1, 60, 3)
    cohort = build(h)
    assert first(cohort, "DiaBP")[0] == (3 * 80 - 120) / 2
    assert first(cohort, "MeanBP")[1] == (120 + 2 * 60) / 3
    assert first(cohort, "SysBP")[2] == 3 * 80 - 2 * 60
    # As published the usual diastolic item of MetaVision is unknown, and with it the second mean pressure.
    assert first(build(h, "narrow_blood_pressure"), "MeanBP")[1] == 85


def test_what_follows_from_the_others_keeps_to_the_limits(build):
    h = sparse(3).chart(MEAN, 1, 190, 1).chart(DIA, 1, 10, 1)  # 3 x 190 - 2 x 10 = 550 mmHg
    h.chart(MEAN, 1, 200, 2).chart(SYS, 1, 20, 2)  # (3 x 200 - 20) / 2 = 290 mmHg
    h.lab(51221, 1, 1.0, 3)  # a haematocrit of 1: (1 - 1.216) / 2.862 is below zero
    cohort = build(h)
    assert first(cohort, "SysBP")[0] == 120  # what stands for a value never measured
    assert first(cohort, "DiaBP")[1] == 70
    assert first(cohort, "Hb")[2] == 13


def test_units_are_made_one(build):
    h = sparse().chart(223761, 1, 104.0).chart(223835, 1, 40).chart(226531, 1, 220.462262)
    one = build(h).rows.row(0, named=True)
    assert one["Temp_C"] == pytest.approx(40, abs=1e-6)
    assert one["FiO2_1"] == 0.4
    assert one["Weight_kg"] == pytest.approx(100, abs=1e-5)


def test_oxygen_follows_from_device_and_flow(build):
    cases = [
        ("Nasal cannula", 2, 0.28),
        ("Nasal cannula", None, 0.21),
        ("Face tent", 8, 0.58),
        ("Non-rebreather", 15, 1.0),
        ("High flow nasal cannula", 40, 0.7),  # the table ends at 15: more flow is not room air
    ]
    h = typical(len(cases))
    for n, (device, flow, _) in enumerate(cases, start=1):
        h.chart(226732, 1, device, n)
        if flow is not None:
            h.chart(223834, 1, flow, n)
    assert first(build(h), "FiO2_1") == [fio2 for *_, fio2 in cases]


def test_venous_gases_are_not_arterial(build):
    h = typical(3).lab(PO2, 1, 60, 1).lab(PO2, 1, 60, 2).lab(PO2, 1, 60, 3)
    h.lab(50800, 1, "ART", 1).lab(50800, 1, "VEN", 2)
    assert first(build(h), "paO2") == [60, 90, 60]  # 90 is what stands for a value never measured
    assert first(build(h, "venous_gases"), "paO2") == [60, 60, 60]


def test_items_that_are_something_else_count_only_as_published(build):
    h = typical().lab(51081, 1, 90.0).lab(51464, 1, 8.0).chart(4194, 1, 3.0)
    one = build(h).rows.row(0, named=True)
    assert (one["Creatinine"], one["Total_bili"], one["Potassium"]) == (1.0, 0.7, 3.0)
    one = build(h, "urine_creatinine", "urine_bilirubin", "wrong_items").rows.row(0, named=True)
    assert (one["Creatinine"], one["Total_bili"], one["Potassium"]) == (90.0, 8.0, 4.0)
    # Base excess of a capillary is no arterial one, a urinalysis no culture; a manual systolic pressure is one.
    h = sparse(2).chart(4196, 1, -8.0, 1).chart(442, 1, 90.0, 1)
    h.rows["microbiologyevents"].pop()
    h.chart(6035, 1, "sent", 2)
    cohort = build(h)
    assert (first(cohort, "Arterial_BE"), first(cohort, "SysBP"), removed(cohort)) == (
        [0],
        [90],
        {"no culture": 1},
    )
    cohort = build(h, "wrong_items", "narrow_items")
    assert (first(cohort, "Arterial_BE"), first(cohort, "SysBP"), removed(cohort)) == (
        [-8, 0],
        [120, 120],
        {},
    )


def test_the_coma_scale_of_metavision_has_three_parts(build):
    h = typical().chart(220739, 1, 2).chart(223900, 1, 3).chart(223901, 1, 4).chart(228096, 1, -4)
    assert build(h).rows["GCS"][0] == 2 + 3 + 4
    assert build(h, "no_metavision_gcs").rows["GCS"][0] == 6  # from a sedation of -4


def test_presumed_infection_is_an_antibiotic_near_a_culture(stages):
    cases = [
        (10, 20, 10),  # antibiotic first, culture 10 h later
        (10, 34, 10),  # exactly 24 h
        (10, 35, None),
        (40, 10, 10),  # culture first, antibiotic 30 h later
        (40, -32, -32),  # exactly 72 h
        (40, -33, None),
    ]
    h = Hospital()
    for n, (antibiotic, culture, _) in enumerate(cases, start=1):
        h.stay(n, hours=120).infected(n, antibiotic=antibiotic, culture=culture)
    found = dict(stages(h, "SELECT icustay_id - 100, onset::VARCHAR FROM infections"))
    assert found == {n: at(onset) for n, (*_, onset) in enumerate(cases, start=1) if onset is not None}


def test_which_drugs_are_antibiotics(stages):
    cases = [
        ("Vancomycin", "IV", "009331", True, False),  # the published codes miss it
        ("Meropenem", "IV", None, True, False),
        ("CefePIME", "IV", "024095", True, True),
        ("Erythromycin 0.5% Ophth Oint", "OU", None, False, False),  # for the eye
        ("Penicillamine", "PO", "002542", False, True),  # no antibiotic at all
        ("Furosemide", "IV", None, False, False),
    ]
    h = Hospital()
    for n, (drug, route, gsn, *_) in enumerate(cases, start=1):
        h.stay(n).infected(n, drug=drug, route=route, gsn=gsn)
    query = "SELECT DISTINCT icustay_id - 100 AS n FROM antibiotics ORDER BY n"
    assert stages(h, query) == [(n,) for n, case in enumerate(cases, start=1) if case[3]]
    assert stages(h, query, "antibiotic_codes") == [(n,) for n, case in enumerate(cases, start=1) if case[4]]


def test_an_antibiotic_without_a_stay_goes_to_the_nearest(stages):
    h = Hospital().stay(hours=24).stay(stay=200, arrives=60, hours=24)
    h.rows["admissions"].pop()  # both stays are of one admission
    h.infected(stay=False, antibiotic=50, culture=51)  # 26 h after the first stay, 10 h before the second
    assert stages(h, "SELECT DISTINCT icustay_id FROM infection_events") == [(200,)]


def test_every_stay_that_leaves_is_counted_with_its_reason(build):
    h = typical()
    for n in range(2, 9):
        h.stay(n, born="2140-01-01" if n == 2 else "2090-01-01", hours=3 if n == 7 else 72)
        h.infected(n, antibiotic=None if n == 3 else 0, culture=None if n == 4 else 60 if n == 5 else 1)
        if n != 6:
            h.chart(HR, 1, 80, n)
        if n != 8:
            h.lab(PLATELETS, 0, 40, n)
    cohort = build(h)
    assert removed(cohort) == {
        "too young": 1,
        "no antibiotic": 1,
        "no culture": 1,
        "antibiotic and culture too far apart: no presumed infection": 1,
        "nothing charted in the record": 1,
        "no decision: less than a window of treatment in the ICU": 1,
        "SOFA below 2: no sepsis": 1,
    }
    assert cohort.rows["icustay_id"].unique().to_list() == [101]
    assert (cohort.flow["stays_out"][:-1] == cohort.flow["stays_in"][1:]).all()


def test_floods_are_left_out(build):
    h = typical(3).urine(5, 12001, 1).infusion(SALINE, 5, 6, 2, amount=10001)
    cohort = build(h)
    assert removed(cohort) == {"more than 12 L of urine in 4 h": 1, "more than 10 L of fluid in 4 h": 1}


def test_withdrawal_and_death_while_recorded_are_left_out_unless_kept(build):
    # Norepinephrine of 0.5 until hour 8 and none after; dead at hour 20: SOFA 4 at the end and 8 at most.
    h = (
        Hospital()
        .stay(hours=20, died=at(20))
        .infected()
        .lab(PLATELETS, 0, 19)
        .drip(0.5, 0, 8)
        .chart(HR, 1, 80)
    )
    assert removed(build(h)) == {"treatment seems to have been withdrawn before death": 1}
    assert removed(build(h, exclude_withdrawal=False)) == {"died while being recorded": 1}
    kept = build(h, exclude_withdrawal=False, exclude_died_recorded=False).rows
    assert kept["reward"][-1] == -15
    assert kept["died"].all()


def test_rewards_are_those_of_raghu(build):
    h = typical().lab(LACTATE, 6, 2.0).lab(LACTATE, 14, 3.0).drip(0.05, 8, 12)
    rows = build(h).rows
    # SOFA 2, 2, 5 (any vasopressor: three points), 2; lactate 4, 2, 4 (sample of hour 10), 3.
    assert rows["SOFA"][:4].to_list() == [2, 2, 5, 2]
    assert rows["Arterial_lactate"][:4].to_list() == [4, 2, 4, 3]
    expected = [
        -0.025 - 2 * math.tanh(2 - 4),  # as ill as before, lactate falls
        -0.125 * 3 - 2 * math.tanh(4 - 2),
        -0.125 * -3 - 2 * math.tanh(3 - 4),
    ]
    assert rows["reward"][:3].to_list() == pytest.approx(expected, abs=1e-12)
    assert rows["reward"][-1] == 15
    assert rows["terminated"].to_list() == [False] * 10 + [True]


def test_the_outcome_is_death_in_hospital_or_within_90_days(build):
    h = typical()
    h.rows["patients"][0]["dod"] = at(24 * 60)
    assert build(h).rows["reward"][-1] == 15
    assert build(h, outcome="90 days", terminal_reward=100.0).rows["reward"][-1] == -100


def test_without_an_outcome_there_is_no_reward(build):
    def admitted(**changes):
        return lambda h, n: h.rows["admissions"][n - 1].update(changes)

    cases = [
        (admitted(hospital_expire_flag=None), "no outcome"),
        (admitted(hospital_expire_flag="x"), "no outcome"),
        (admitted(hospital_expire_flag=2), "no outcome"),
        (admitted(deathtime=at(90)), "no outcome"),  # and the flag says 0
        (admitted(deathtime="soon", hospital_expire_flag=1), "unreadable time of death"),
        (admitted(dischtime="garbage"), "no time of discharge"),
        (lambda h, n: h.rows["patients"][n - 1].update(dod="not a date"), "unreadable time of death"),
        (lambda h, n: h.add("admissions", **h.rows["admissions"][n - 1]), None),  # the same once more
        (
            lambda h, n: h.add("admissions", **h.rows["admissions"][n - 1] | {"hospital_expire_flag": 1}),
            "patient or admission written twice, with a difference",
        ),
        # Died in hospital: the flag says so, or the time; neither needs the other, nor a date of death.
        (admitted(hospital_expire_flag=1), None),
        (admitted(hospital_expire_flag=None, deathtime=at(96)), None),
    ]
    h = typical(len(cases))
    for n, (spoil, _) in enumerate(cases, start=1):
        spoil(h, n)
    for outcome in ("hospital", "90 days"):
        cohort = build(h, outcome=outcome)
        ends = cohort.rows.filter("terminated").sort("icustay_id")
        assert ends.select("subject_id", "reward").rows() == [(8, 15), (10, -15), (11, -15)]
        lost = [fault for _, fault in cases if fault]
        assert removed(cohort) == {"impossible or missing dates, age, sex or outcome": len(lost)}
        assert {problem: rows for _, problem, rows in cohort.quality.rows()} == {
            fault: lost.count(fault) for fault in lost
        } | {"the same admission again": 2}


def test_a_row_twice_is_counted_once(build):
    h = typical()
    for table in ("patients", "admissions", "icustays"):
        h.add(table, **h.rows[table][0])
    cohort = build(h)
    assert cohort.quality.rows() == [
        ("admissions", "the same admission again", 1),
        ("icustays", "the same stay twice", 1),
        ("patients", "the same patient again", 1),
    ]
    assert len(cohort.rows) == 11


def test_doses_that_nobody_gives_are_counted(build):
    h = typical().drip(5000, 5, 9).infusion(SALINE, 5, 9, rate=250)
    h.infusion(NOREPINEPHRINE, 5, 9, amount=4, unit="mg", per=None)
    cohort = build(h)
    assert cohort.rows["max_dose_vaso"].sum() + cohort.rows["input_4hourly"].sum() == 0
    assert cohort.quality.rows() == [
        ("fluids", "a rate without an amount", 1),
        ("vasopressors", "above 10 micrograms/kg/min", 1),
        ("vasopressors", "an amount without a rate", 1),
    ]


def test_a_dose_on_a_limit_belongs_to_the_level_above(build):
    cases = [(0.079, 1), (0.08, 2), (0.224, 2), (0.225, 3), (0.449, 3), (0.45, 4), (3.0, 4)]
    h = typical(len(cases))
    for n, (dose, _) in enumerate(cases, start=1):
        h.drip(dose, 4, 8, n)
    assert first(build(h), "vaso_level") == [level for _, level in cases]


def test_cut_points_can_be_refitted_on_training_patients(build):
    h = typical()
    for k, ml in enumerate((100, 200, 300, 400, 500)):
        h.infusion(SALINE, 4 + 4 * k, 8 + 4 * k, amount=ml)
    cohort = build(h, cuts="refit", train_share=1.0)
    assert cohort.cuts["iv"] == (200, 300, 400)  # quartiles of 100, ..., 500
    assert cohort.rows["iv_level"][:6].to_list() == [1, 2, 3, 4, 4, 0]
    assert cohort.cuts["vaso"] == ()  # nobody had any


def test_cut_points_cannot_be_refitted_without_doses_in_training(build):
    h = typical(2).infusion(SALINE, 5, 6, 1, amount=100).infusion(SALINE, 5, 6, 2, amount=100)
    rows = build(h, train_share=0.5, seed=1).rows
    outside = rows.filter(~pl.col("training"))["subject_id"].unique().to_list()
    assert len(outside) == 1  # with this seed one of the two
    h.drip(0.3, 5, 9, outside[0])
    with pytest.raises(ValueError, match="only other patients were given vaso: raise train_share"):
        build(h, cuts="refit", train_share=0.5, seed=1)


def test_a_drip_before_the_first_decision_is_a_vasopressor_too(build):
    cohort = build(typical(3).drip(0.3, 1, 3.5, 1).drip(0.3, 5, 9, 2))
    assert first(cohort, "never_vasopressor") == [False, False, True]
    assert first(cohort, "max_dose_vaso") == [0, 0.3, 0]  # the action of the first decision


def test_comorbidities_are_those_coded_before_this_admission(build):
    h = typical()
    h.add("admissions", subject_id=1, hadm_id=9, admittime=at(-2000), dischtime=at(-1900))
    codes = {9: ["25000", "25040", "4280"], 10: ["42731", "41401", "2866"]}
    for admission, listed in codes.items():
        for number, code in enumerate(listed, start=1):
            h.add("diagnoses_icd", subject_id=1, hadm_id=admission, seq_num=number, icd9_code=code)
    # Before: diabetes with and without complications counts once, and heart failure. In this admission, once it
    # is over: not the first code (arrhythmia), 41401 is in no group, 2866 is a coagulopathy.
    assert build(h).rows["elixhauser"][0] == 2
    assert build(h, "discharge_codes").rows["elixhauser"][0] == 1


def test_a_later_stay_is_a_readmission_and_great_ages_are_91(build):
    h = typical().stay(stay=200, admission=20, arrives=300)
    h.add(
        "prescriptions",
        subject_id=1,
        hadm_id=20,
        icustay_id=200,
        startdate=at(300),
        drug="Meropenem",
        route="IV",
    )
    h.add("microbiologyevents", subject_id=1, hadm_id=20, charttime=at(301))
    h.chart(HR, 301, 80, stay=200).lab(PLATELETS, 300, 40)
    h.rows["patients"][0]["dob"] = "1850-01-01 00:00:00"
    cohort = build(h)
    assert first(cohort, "re_admission") == [0, 1]
    assert first(cohort, "age") == [91.4 * 365.25] * 2


def test_windows_outside_the_icu_only_as_published(build):
    h = Hospital().stay(hours=12).infected().chart(HR, 1, 80)
    for hour in range(-20, 30, 4):
        h.lab(PLATELETS, hour, 40)
    assert len(build(h).rows) == 2  # decisions at the hours 4 and 8
    # Laboratory values from 19 h before to 29 h after arrival make windows in which nobody recorded treatment.
    assert len(build(h, "ward_rows").rows) > 8


def test_wide_windows_make_twenty_steps(build):
    h = Hospital().stay(hours=200, arrives=-100).infected(antibiotic=0, culture=1)
    for hour in range(-100, 100):
        h.chart(HR, hour, 80).lab(PLATELETS, hour, 40)
    assert len(build(h, "wide_windows", "same_window_action").rows) == 20
    assert len(build(h, "same_window_action").rows) == 18  # 72 hours


def test_as_published_a_limit_belongs_to_both_windows(build):
    h = typical().urine(4, 300)
    assert build(h).rows["output_4hourly"][:2].to_list() == [0, 300]
    assert build(h, "closed_windows").rows["output_4hourly"][:2].to_list() == [300, 300]


def test_potassium_is_held_for_six_days_only_as_published(stages):
    query = "SELECT origin FROM known WHERE variable = 'Potassium' AND step = 8"
    h = typical().lab(50971, 0, 4.4)
    assert stages(h, query) == [("carried",)]
    assert stages(h, query, "potassium_six_days") == [("held",)]


def test_medians_come_from_training_patients_only(build):
    h = sparse(30)
    for row in h.rows["chartevents"]:
        row["valuenum"] = row["value"] = 60 + row["subject_id"]
    h.rows["chartevents"][0].update(
        itemid=SYS, value=120, valuenum=120
    )  # the heart rate of patient 1 is unknown
    rows = build(h, fill="median", train_share=0.5).rows.filter(pl.col("bloc") == 1)
    others = rows.filter(pl.col("subject_id") != 1)
    trained = others.filter("training")
    assert 0 < len(trained) < len(others)
    assert rows.filter(pl.col("subject_id") == 1)["HR"][0] == trained["HR"].median() != others["HR"].median()


def test_as_published_gaps_are_filled_from_other_patients(build):
    h = typical(2).lab(BILIRUBIN, 1, 9.0, 2)
    assert first(build(h), "Total_bili") == [0.7, 9.0]
    assert first(build(h, "nearest_row_imputation"), "Total_bili") == [9.0, 9.0]


def test_an_empty_cohort_is_a_result(build):
    cohort = build(Hospital().stay())
    assert len(cohort.rows) == 0
    assert removed(cohort) == {"no antibiotic": 1}
    assert cohort.summary()["decisions"] == 0


def test_every_published_mistake_is_used_somewhere():
    from dataclasses import fields
    from importlib.resources import files

    package = files("caliope.clinical")
    texts = [p.read_text() for folder in ("sql", "data") for p in package.joinpath(folder).iterdir()]
    texts += [package.joinpath(name).read_text() for name in ("_databases.py", "_pipeline.py")]
    for field in fields(AsPublished):
        assert any(field.name in text for text in texts), field.name
