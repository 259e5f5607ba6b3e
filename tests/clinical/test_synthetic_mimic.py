"""Synthetic MIMIC tables: the columns of the real ones, and rows that give back the truth behind them."""

import gzip
import os
from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from caliope.domains import icu_sepsis
from support.synthetic_mimic import generate_mimic3, generate_mimic4
from support.synthetic_mimic.doses import draw_doses
from support.synthetic_mimic.stays import Hospital

pytestmark = pytest.mark.slow

HOURS = timedelta(hours=4)
# Norepinephrine equivalents and tonicity of Komorowski 2018, by item, written again by hand.
EQUIVALENT = {221906: 1, 221289: 1, 221749: 0.45, 221662: 0.01, 222315: 5 / 60}
EQUIVALENT |= {30120: 1, 30119: 1, 30128: 0.45, 30043: 0.01, 30051: 5}
TONICITY = {225158: 1, 225828: 1, 225159: 0.5, 220862: 5, 30018: 1, 30021: 1, 30020: 0.5, 30009: 5}


@pytest.fixture(scope="module", autouse=True)
def sepsis():
    try:
        return icu_sepsis.load()
    except ModuleNotFoundError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return generate_mimic3(tmp_path_factory.mktemp("mimic3"), 120, rng=0)


def table(made, name):
    path = made.folder / f"{name}.csv.gz"
    frame = pl.read_csv(
        path, infer_schema_length=None, schema_overrides={"value": pl.String, "gsn": pl.String}
    )
    moments = [
        c for c in frame.columns if c.endswith("time") or c in ("dob", "dod", "startdate", "chartdate")
    ]
    return frame.with_columns(
        pl.col(c).cast(pl.String).str.strptime(pl.Datetime, "%Y-%m-%d %H:%M:%S") for c in moments
    )


def header(path):
    with gzip.open(path, "rt") as file:
        return file.readline().strip().split(",")


def test_the_tables_have_the_columns_of_the_demo(made):
    demo = Path(os.environ.get("CALIOPE_MIMIC3_DEMO", "absent"))
    if not demo.is_dir():
        pytest.skip("CALIOPE_MIMIC3_DEMO does not name the folder of the MIMIC-III demo")
    for name in made.rows:
        assert header(made.folder / f"{name}.csv.gz") == header(demo / f"{name}.csv.gz"), name


def test_the_columns_are_those_of_the_published_schema(made):
    # The order of the table definitions of MIMIC-III.
    charts = (
        "row_id subject_id hadm_id icustay_id itemid charttime storetime cgid value valuenum valueuom warning"
    )
    assert header(made.folder / "chartevents.csv.gz") == f"{charts} error resultstatus stopped".split()
    stays = (
        "row_id subject_id hadm_id icustay_id dbsource first_careunit last_careunit first_wardid last_wardid"
    )
    assert header(made.folder / "icustays.csv.gz") == f"{stays} intime outtime los".split()
    assert len(made.rows) == 14
    assert len(header(made.folder / "inputevents_mv.csv.gz")) == 31
    assert len(header(made.folder / "inputevents_cv.csv.gz")) == 22


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes(made, tmp_path):
    again = generate_mimic3(tmp_path / "again", 120, rng=0)
    other = generate_mimic3(tmp_path / "other", 120, rng=1)
    names = [*(f"{name}.csv.gz" for name in made.rows), "truth.parquet"]
    assert [(made.folder / n).read_bytes() for n in names] == [(again.folder / n).read_bytes() for n in names]
    charts = "chartevents.csv.gz"
    assert (made.folder / charts).read_bytes() != (other.folder / charts).read_bytes()


@pytest.mark.slow
def test_parquet_holds_the_same_rows(made, tmp_path):
    parquet = generate_mimic3(tmp_path, 120, rng=0, file_type="parquet")
    before = (tmp_path / "chartevents.parquet").read_bytes()
    generate_mimic3(tmp_path, 120, rng=0, file_type="parquet")
    assert (tmp_path / "chartevents.parquet").read_bytes() == before
    assert parquet.rows == made.rows
    for name in ("icustays", "inputevents_mv", "chartevents"):
        typed = pl.read_parquet(tmp_path / f"{name}.parquet")
        text = pl.read_csv(
            made.folder / f"{name}.csv.gz", schema_overrides=dict.fromkeys(typed.columns, pl.String)
        )
        moments = [c for c, dtype in typed.schema.items() if dtype == pl.Datetime("us")]
        written = typed.with_columns(pl.col(c).dt.strftime("%Y-%m-%d %H:%M:%S") for c in moments)
        assert written.cast(pl.String).equals(text)
    assert not list(tmp_path.glob(".parts*"))


def level(dose, cuts):
    return 0 if dose == 0 else 1 + sum(dose >= cut for cut in cuts)


def naive_doses(modern, older, stay, begin):
    """Largest vasopressor rate and volume of fluid in the four hours from ``begin``, row by row."""
    rate, volume = 0.0, 0.0
    for row in modern.filter(icustay_id=stay).iter_rows(named=True):
        if row["statusdescription"] == "Rewritten" or not begin <= row["starttime"] < begin + HOURS:
            continue
        assert begin < row["endtime"] < begin + HOURS
        if row["itemid"] in EQUIVALENT:
            rate = max(rate, row["rate"] * EQUIVALENT[row["itemid"]])
        if row["itemid"] in TONICITY:
            hours = (row["endtime"] - row["starttime"]) / timedelta(hours=1)
            raw = row["amount"] if row["rate"] is None else row["rate"] * hours
            volume += raw * TONICITY[row["itemid"]]
    for row in older.filter(icustay_id=stay).iter_rows(named=True):
        if begin <= row["charttime"] < begin + HOURS:
            rate = max(rate, (row["rate"] or 0) * EQUIVALENT.get(row["itemid"], 0))
            volume += (row["amount"] or 0) * TONICITY.get(row["itemid"], 0)
    return rate, volume


def test_the_raw_doses_give_back_every_action(made):
    truth = pl.read_parquet(made.truth)
    stays = truth["stay"].unique(maintain_order=True).to_list()
    some = truth.filter(pl.col("stay").is_in(stays))
    assert some["carevue"].unique().len() == 2
    modern, older = table(made, "inputevents_mv"), table(made, "inputevents_cv")
    for row in some.iter_rows(named=True):
        rate, volume = naive_doses(modern, older, row["stay"], row["dosed_from"])
        # Rates have eight decimals, and the largest factor is 5 (vasopressin): 5 * 0.5e-8 at most.
        assert rate == pytest.approx(row["vasopressor"], abs=3e-8)
        assert volume == pytest.approx(row["fluid"], rel=1e-9)
        levels = level(volume, (50, 180.435, 529.757)), level(rate, (0.08, 0.225, 0.45))
        assert 5 * levels[0] + levels[1] == row["action"]


def test_doses_lie_inside_their_level():
    actions = np.repeat(np.arange(25), 200)
    doses = draw_doses(actions, np.random.default_rng(0))
    assert [level(x, (0.08, 0.225, 0.45)) for x in doses.vasopressor] == (actions % 5).tolist()
    assert [level(x, (50, 180.435, 529.757)) for x in doses.fluid] == (actions // 5).tolist()


def test_the_truth_is_a_path_of_the_process(made, sepsis):
    truth = pl.read_parquet(made.truth)
    chance = sepsis.expert[truth["state"].to_numpy(), truth["action"].to_numpy()]
    assert truth["behaviour"].to_numpy() == pytest.approx(chance)
    for _, path in truth.group_by("stay"):
        assert path["step"].to_list() == list(range(path.height))
        moves = sepsis.process.transitions[path["state"][:-1], path["action"][:-1], path["state"][1:]]
        assert (moves > 0).all()
    assert (truth["dosed_from"] - truth["charted_from"]).unique().to_list() == [HOURS]


def test_the_record_begins_on_arrival_and_ends_before_departure(made):
    stays = table(made, "icustays").select("icustay_id", "intime", "outtime", "los")
    charts = (
        table(made, "chartevents")
        .group_by("icustay_id")
        .agg(first=pl.col("charttime").min(), last=pl.col("charttime").max())
    )
    joined = stays.join(charts, on="icustay_id")
    assert joined.height == 120
    assert (joined["first"] == joined["intime"]).all()
    assert (joined["last"] < joined["outtime"]).all()
    begins = pl.read_parquet(made.truth).filter(step=0).join(stays, left_on="stay", right_on="icustay_id")
    assert (begins["charted_from"] == begins["intime"]).all()
    lengths = pl.read_parquet(made.truth).group_by("stay").len()
    spent = stays.join(lengths, left_on="icustay_id", right_on="stay")
    # Four hours of charts for each step, and four more in which the last doses run.
    assert spent["los"].to_numpy() == pytest.approx((spent["len"].to_numpy() + 1) / 6, abs=5e-5)


def test_values_are_those_of_the_hidden_state_in_clinical_units(made, sepsis):
    truth = pl.read_parquet(made.truth).filter(~pl.col("carevue"))
    pulse = table(made, "chartevents").filter(itemid=220045)
    found = pulse.join(truth, left_on="icustay_id", right_on="stay").filter(
        (pl.col("charttime") >= pl.col("charted_from"))
        & (pl.col("charttime") < pl.col("charted_from") + HOURS)
    )
    assert found.height == pulse.height
    centre = sepsis.centres[found["state"].to_numpy(), icu_sepsis.FEATURES.index("HR")]
    spread = sepsis.centres[:713, icu_sepsis.FEATURES.index("HR")].std()
    # 88 + 18 z; the error of a state (0.3 of the spread over states) is shared by the four hours.
    error = (found["valuenum"].to_numpy() - 88 - 18 * centre) / 18
    assert abs(error.mean()) < 0.05
    assert error.std() == pytest.approx(np.hypot(0.3 * spread, 3 / 18), rel=0.15)


def test_the_components_of_the_coma_scale_sum_to_it(made):
    charts = table(made, "chartevents").filter(pl.col("itemid").is_in([220739, 223900, 223901]))
    whole = charts.with_columns(pl.col("valuenum").cast(pl.Int64))
    limits = whole.group_by("itemid").agg(low=pl.col("valuenum").min(), high=pl.col("valuenum").max())
    for item, low, high in limits.iter_rows():
        assert low >= 1
        assert high <= {220739: 4, 223900: 5, 223901: 6}[item]
    from support.synthetic_mimic.stays import _derived

    scores = np.arange(3.0, 16.0)
    fixed = dict.fromkeys(
        ("mechvent", "Weight_kg", "Temp_C", "FiO2_1", "RR", "MeanBP", "DiaBP", "SysBP"), np.ones(13)
    )
    parts = _derived({"GCS": scores, **fixed}, np.zeros(13))
    assert (parts["GCS_eye"] + parts["GCS_verbal"] + parts["GCS_motor"]).tolist() == scores.tolist()
    # A RASS of -5 stands for 3 to 5 points, -4 for 6, -3 for 11, -2 for 12 and 13, -1 for 14, 0 for 15.
    assert parts["RASS"].tolist() == [-5, -5, -5, -4, -4, -4, -4, -4, -3, -2, -2, -1, 0]


def suspected(made):
    """Komorowski's rule, row by row: antibiotic, then culture within a day; or culture, then antibiotic within 3."""
    drugs = table(made, "prescriptions").filter(pl.col("gsn").is_in(["024095", "021187", "029927"]))
    cultures = table(made, "microbiologyevents").with_columns(when=pl.coalesce("charttime", "chartdate"))
    pairs = drugs.join(cultures, on="hadm_id").with_columns(gap=pl.col("when") - pl.col("startdate"))
    close = pairs.filter(
        pl.col("gap").is_between(timedelta(0), timedelta(days=1))
        | pl.col("gap").is_between(-timedelta(days=3), timedelta(0))
    )
    return set(close["hadm_id"])


def test_infections_are_found_by_the_rule_and_the_others_are_not(made):
    truth = pl.read_parquet(made.truth).group_by("stay").agg(pl.col("infected").first())
    admission = dict(table(made, "icustays").select("icustay_id", "hadm_id").iter_rows())
    infected = {admission[stay] for stay, yes in truth.iter_rows() if yes}
    assert suspected(made) == infected
    assert 60 < len(infected) < 110


def test_deaths_ages_and_systems_are_those_of_the_truth(made):
    truth = pl.read_parquet(made.truth).unique("stay", keep="first").sort("stay")
    stays = table(made, "icustays").sort("icustay_id")
    people = stays.select("subject_id").join(
        table(made, "patients"), on="subject_id", how="left", maintain_order="left"
    )
    admissions = (
        table(made, "admissions").filter(pl.col("hadm_id").is_in(stays["hadm_id"].to_list())).sort("hadm_id")
    )
    assert ((stays["dbsource"] == "carevue") == truth["carevue"]).all()
    within = (people["dod"] - stays["intime"]) <= timedelta(days=90)
    assert (within.fill_null(False) == ~truth["survived"]).all()
    assert (admissions["deathtime"].is_not_null() == ~truth["survived"]).all()
    gone = admissions["dischtime"] - stays["outtime"]
    assert ((gone == timedelta(0)) == truth["died_in_unit"]).all()
    years = (admissions["admittime"] - people["dob"]).dt.total_days() / 365.242
    # Whoever is older than 89 at the first stay was born 300 years before it.
    first = truth.select(pl.col("age").first().over("subject"))["age"].to_numpy()
    shown = np.where(first > 89, 300 + truth["age"].to_numpy() - first, truth["age"].to_numpy())
    assert years.to_numpy() == pytest.approx(shown, abs=0.01)


def test_some_come_again_months_later(made):
    stays = table(made, "icustays").sort("icustay_id")
    visits = stays.group_by("subject_id", maintain_order=True).agg(
        "icustay_id", "intime", "outtime", "hadm_id"
    )
    twice = visits.filter(pl.col("icustay_id").list.len() == 2)
    assert 1 <= twice.height <= 15
    assert visits.height == made.rows["patients"]
    survived = dict(pl.read_parquet(made.truth).select("stay", "survived").iter_rows())
    for _, numbers, arrivals, departures, admissions in twice.iter_rows():
        assert survived[numbers[0]]
        assert arrivals[1] - departures[0] > timedelta(days=90)
        assert admissions[0] != admissions[1]


@pytest.mark.slow
def test_copies_multiply_the_charts_and_nothing_else(made, tmp_path):
    more = generate_mimic3(tmp_path, 120, rng=0, chart_copies=3)
    assert more.rows["chartevents"] == pytest.approx(3 * made.rows["chartevents"], rel=0.05)
    assert {k: v for k, v in more.rows.items() if k in ("patients", "icustays", "microbiologyevents")} == {
        k: v for k, v in made.rows.items() if k in ("patients", "icustays", "microbiologyevents")
    }


def test_batches_do_not_repeat_patients(tmp_path):
    made = generate_mimic3(tmp_path, 450, rng=0)  # three batches
    assert table(made, "icustays")["icustay_id"].n_unique() == 450
    people = table(made, "patients")
    assert people["subject_id"].n_unique() == people.height
    assert people["dob"].n_unique() > 0.98 * people.height
    rows = table(made, "chartevents")["row_id"]
    assert (rows == pl.Series(np.arange(1, made.rows["chartevents"] + 1))).all()


def test_spoilt_rows_are_counted(tmp_path):
    clean = generate_mimic3(tmp_path / "clean", 60, rng=0)
    spoilt = generate_mimic3(tmp_path / "spoilt", 60, rng=0, corrupt=True)
    text = {
        name: pl.read_csv(spoilt.folder / f"{name}.csv.gz", infer_schema=False)
        for name in ("chartevents", "labevents", "inputevents_mv", "icustays")
    }
    charts, labs, doses = text["chartevents"], text["labevents"], text["inputevents_mv"]
    when = charts["charttime"].str.strptime(pl.Datetime, "%Y-%m-%d %H:%M:%S", strict=False)
    first, last = (doses[c].str.strptime(pl.Datetime, "%Y-%m-%d %H:%M:%S") for c in ("starttime", "endtime"))
    known = set(text["icustays"]["icustay_id"])
    letters = sum(frame["valuenum"].drop_nulls().str.contains("[A-Z]").sum() for frame in (charts, labs))
    events = charts.drop("row_id")
    assert dict(spoilt.corrupted) == {
        "unreadable_time": when.null_count(),
        "time_centuries_off": (when.dt.year() > 2300).sum(),
        "missing_time": labs["charttime"].null_count() + (labs["charttime"] == "").sum(),
        "text_in_number": letters,
        "impossible_value": (charts["valuenum"] == "99999.0").sum(),
        "repeated_row": events.height - events.unique().height,
        "unknown_stay": sum(stay not in known for stay in charts["icustay_id"]),
        "negative_dose": doses["rate"].str.starts_with("-").sum(),
        "end_before_start": (last < first).sum(),
        "stay_without_charts": len(known - set(charts["icustay_id"])),
    }
    extra = {name: spoilt.rows[name] - clean.rows[name] for name in spoilt.rows}
    events = ("chartevents", "labevents", "inputevents_mv")
    assert sum(extra[name] for name in events) == sum(spoilt.corrupted.values()) - 1
    # The stay without charts has all else: a patient, an admission, drugs, a culture.
    assert [extra[name] for name in ("patients", "admissions", "icustays", "microbiologyevents")] == [1] * 4
    assert extra["prescriptions"] >= 2
    assert (pl.read_parquet(clean.truth)).equals(pl.read_parquet(spoilt.truth))


def test_mimic4_has_its_own_layout(tmp_path):
    made = generate_mimic4(tmp_path, 60, rng=0)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["hosp", "icu", "truth.parquet"]
    patients = ["subject_id", "gender", "anchor_age", "anchor_year", "anchor_year_group", "dod"]
    assert header(tmp_path / "hosp/patients.csv.gz") == patients
    charts = (
        "subject_id hadm_id stay_id caregiver_id charttime storetime itemid value valuenum valueuom warning"
    )
    assert header(tmp_path / "icu/chartevents.csv.gz") == charts.split()
    truth = pl.read_parquet(made.truth)
    assert not truth["carevue"].any()
    people = pl.read_csv(tmp_path / "hosp/patients.csv.gz")
    age = truth.unique("subject", keep="first", maintain_order=True)["age"].floor()
    assert people["anchor_age"].to_list() == [91 if x > 89 else int(x) for x in age]
    drugs = pl.read_csv(tmp_path / "hosp/prescriptions.csv.gz")
    assert {"starttime", "stoptime", "gsn", "route"} <= set(drugs.columns)
    assert made.rows["inputevents"] > 0
    assert pl.read_csv(tmp_path / "hosp/diagnoses_icd.csv.gz")["icd_version"].unique().to_list() == [9]


def test_a_hospital_has_the_shares_it_is_given(tmp_path):
    hospital = Hospital(carevue=1.0, uninfected=1.0, children=1.0, dying_in_unit=0.0, delay_hours=0)
    made = generate_mimic3(tmp_path, 30, rng=0, hospital=hospital)
    truth = pl.read_parquet(made.truth)
    assert truth["carevue"].all()
    assert not truth["infected"].any()
    assert (truth["age"] < 18).all()
    assert not truth["died_in_unit"].any()
    assert (truth["dosed_from"] == truth["charted_from"]).all()
    assert made.rows["inputevents_mv"] == 0
    assert header(tmp_path / "inputevents_mv.csv.gz")[0] == "row_id"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_patients": 0}, "n_patients must be a whole number of 1 or more, got 0"),
        ({"n_patients": 2.5}, "n_patients must be a whole number of 1 or more, got 2.5"),
        ({"chart_copies": 0}, "chart_copies must be a whole number of 1 or more, got 0"),
        ({"corrupt": True, "file_type": "parquet"}, "write csv.gz"),
        ({"file_type": "xlsx"}, "file_type must be 'csv.gz' or 'parquet'"),
    ],
)
def test_bad_settings_are_refused(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        generate_mimic3(tmp_path, **{"n_patients": 2, "rng": 0} | change)


def test_shares_outside_the_unit_interval_are_refused():
    with pytest.raises(ValueError, match="carevue is a share"):
        Hospital(carevue=1.5)
