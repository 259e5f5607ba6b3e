"""Made-up databases through the whole pipeline: who is found, what is counted, when a result is known."""

import polars as pl
import pytest

from caliope.clinical import MIMIC3, MIMIC4, build_cohort
from caliope.clinical._databases import features
from support.synthetic_mimic import generate_mimic3, generate_mimic4

pytestmark = pytest.mark.slow

pytest.importorskip("duckdb")
pytest.importorskip("icu_sepsis")

MAKERS = {"mimic3": (generate_mimic3, MIMIC3), "mimic4": (generate_mimic4, MIMIC4)}


@pytest.fixture(scope="module", params=list(MAKERS))
def made(request, tmp_path_factory):
    """80 made-up patients, with spoilt rows among them, and their cohort."""
    make, database = MAKERS[request.param]
    generated = make(tmp_path_factory.mktemp(request.param), 80, rng=0, corrupt=True)
    return generated, build_cohort(generated.folder, database=database)


def test_the_infected_adults_are_found(made):
    generated, cohort = made
    truth = pl.read_parquet(generated.truth)
    infected = truth.filter(pl.col("infected") & (pl.col("age") >= 18))["stay"].n_unique()
    found = dict(cohort.flow.select("stage", "stays_in").rows())
    # After those without presumed infection have left; one more is the spoilt stay without charts, infected too.
    assert found[6] == infected + 1
    names = {name for name, _ in features()}
    assert names <= set(cohort.rows.columns)
    assert cohort.rows.select(sorted(names)).null_count().sum_horizontal()[0] == 0


def test_spoilt_rows_are_counted(made):
    generated, cohort = made
    counted = {(table, problem): rows for table, problem, rows in cohort.quality.rows()}
    spoilt = generated.corrupted
    infusions = "inputevents_mv" if cohort.database == "mimic3" else "inputevents"
    assert counted["chartevents", "no time"] == spoilt["unreadable_time"]
    assert (
        counted["chartevents", "charted more than a day outside its ICU stay"] == spoilt["time_centuries_off"]
    )
    assert counted["labevents", "no time"] == spoilt["missing_time"]
    assert counted["chartevents", "no number"] + counted["labevents", "no number"] == spoilt["text_in_number"]
    assert counted["chartevents", "of no ICU stay"] == spoilt["unknown_stay"]
    assert counted[infusions, "ended before it began"] == spoilt["end_before_start"]
    negative = counted.get(("vasopressors", "negative"), 0) + counted.get(("fluids", "negative"), 0)
    assert negative == spoilt["negative_dose"]
    outside = sum(n for (_, problem), n in counted.items() if problem.endswith("outside the limits"))
    assert outside >= spoilt["impossible_value"]
    reasons = dict(cohort.flow.select("reason", "stays_removed").rows())
    assert reasons["nothing charted in the record"] >= spoilt["stay_without_charts"]


def test_results_of_mimic4_are_known_when_they_were_stored(tmp_path):
    import gzip

    generated = generate_mimic4(tmp_path / "raw", 10, rng=1)
    path = generated.folder / "hosp" / "labevents.csv.gz"
    labs = pl.read_csv(path, infer_schema=False)
    assert "storetime" in labs.columns
    never = labs.with_columns(storetime=pl.lit("2300-01-01 00:00:00"))
    before = build_cohort(generated.folder, database=MIMIC4)
    with gzip.open(path, "wb") as file:
        file.write(never.write_csv().encode())
    after = build_cohort(generated.folder, database=MIMIC4)
    # A result that is stored 150 years later is never known.
    assert before.missingness.filter(pl.col("variable") == "BUN")["missing"][0] < 0.5
    rows = after.missingness.filter(pl.col("variable") == "BUN")
    assert len(rows) == 0 or rows["missing"][0] == 1
