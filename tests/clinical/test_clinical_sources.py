"""One cohort from any kind of source, and one line of news where a source is unusable."""

import polars as pl
import pytest

from caliope.clinical import STAGES, CohortSettings, Resources, SourceError, build_cohort
from support.clinical_tables import COLUMNS, HR, PEEP, Hospital, at, typical

pytestmark = pytest.mark.slow

duckdb = pytest.importorskip("duckdb")


def ward():
    return (
        typical(2).drip(0.2, 6, 9).urine(3, 80).infected(2, antibiotic=2, culture=None, drug="Zosyn, 4.5 g")
    )


def as_frames(folder):
    for name in COLUMNS:
        yield name, pl.read_csv(folder / f"{name}.csv.gz", infer_schema_length=None, try_parse_dates=True)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return ward().write(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def expected(small, tmp_path_factory):
    out = tmp_path_factory.mktemp("out") / "cohort.parquet"
    build_cohort(small).write(out)
    return out.read_bytes()


def written(source, tmp_path, **options):
    out = tmp_path / "cohort.parquet"
    build_cohort(source, **options).write(out)
    return out.read_bytes()


def test_capitals_as_physionet_ships_them(tmp_path, expected):
    assert written(ward().write(tmp_path / "raw", upper=True, ending=".csv"), tmp_path) == expected


def test_parquet_files_and_a_folder_of_parts(small, tmp_path, expected):
    (tmp_path / "raw" / "chartevents").mkdir(parents=True)
    for name, frame in as_frames(small):
        if name == "chartevents":
            frame[:100].write_parquet(tmp_path / "raw" / name / "part-0.parquet")
            frame[100:].write_parquet(tmp_path / "raw" / name / "part-1.parquet")
        else:
            frame.write_parquet(tmp_path / "raw" / f"{name}.parquet")
    assert written(tmp_path / "raw", tmp_path) == expected


def test_a_duckdb_file_with_a_schema(small, tmp_path, expected):
    path = tmp_path / "hospital.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE SCHEMA mimiciii")
        for name in COLUMNS:
            file = small / f"{name}.csv.gz"
            text = "header = true, all_varchar = true, delim = ',', quote = '\"'"
            connection.execute(
                f"CREATE TABLE mimiciii.{name.upper()} AS SELECT * FROM read_csv('{file}', {text})"
            )
    assert written(path, tmp_path) == expected
    assert written(path, tmp_path, schema="mimiciii") == expected
    with pytest.raises(SourceError, match="the table patients is missing"):
        build_cohort(path, schema="main")


def test_the_order_of_rows_does_not_matter(tmp_path, expected):
    h = ward()
    for rows in h.rows.values():
        rows.reverse()
    assert written(h.write(tmp_path / "raw"), tmp_path) == expected


def test_what_is_written_beside_the_cohort_can_be_read(small, tmp_path):
    import json

    import caliope as cal

    paths = build_cohort(small).write(tmp_path / "deep" / "cohort.parquet")
    assert [p.name for p in paths] == [
        "cohort.parquet", "cohort.flow.csv", "cohort.missingness.csv", "cohort.quality.csv", "cohort.json",
    ]  # fmt: skip
    data = cal.read_table(
        paths[0], episode="icustay_id", time="bloc", action="action", reward="reward", states=["HR", "SOFA"],
        terminated="terminated", keep=["SOFA", "never_vasopressor"], n_actions=25,
    )  # fmt: skip
    assert len(data) == 2
    assert data.terminated.all()
    assert data["never_vasopressor"].tolist() == [False] * 11 + [True] * 11
    assert pl.read_csv(paths[1])["stays_out"][-1] == 2
    assert json.loads(paths[-1].read_text())["settings"]["hours_before"] == 24


@pytest.mark.parametrize("name", ["patients", "chartevents", "outputevents"])
def test_a_missing_table_is_named(tmp_path, name):
    with pytest.raises(SourceError, match=f"the table {name} is missing") as error:
        build_cohort(ward().write(tmp_path, skip=[name]))
    assert "\n" not in str(error.value)


def test_a_missing_column_is_named(tmp_path):
    folder = ward().write(tmp_path)
    pl.read_csv(folder / "icustays.csv.gz").drop("outtime").write_csv(folder / "icustays.csv")
    (folder / "icustays.csv.gz").unlink()
    with pytest.raises(SourceError, match="the table icustays has no column outtime"):
        build_cohort(folder)


def test_missing_optional_tables_are_reported(tmp_path):
    skipped = ["inputevents_cv", "diagnoses_icd", "procedureevents_mv"]
    quality = build_cohort(ward().write(tmp_path / "some", skip=skipped)).quality
    missing = quality.filter(pl.col("problem").str.starts_with("table missing"))
    assert set(missing["source_table"]) == set(skipped)
    untreated = ward().write(tmp_path / "untreated", skip=["inputevents_cv", "inputevents_mv"])
    with pytest.raises(SourceError, match="without treatment there are no actions"):
        build_cohort(untreated)


@pytest.mark.parametrize(
    "source", ["nowhere", "postgresql://nobody:secret@localhost:1/nothing?connect_timeout=2"]
)
def test_a_source_that_is_not_there(source):
    if source.startswith("postgresql"):
        pytest.importorskip("psycopg")
    with pytest.raises(SourceError) as error:
        build_cohort(source)
    assert "\n" not in str(error.value)
    assert "secret" not in str(error.value)


def test_files_that_are_not_what_they_say(tmp_path):
    (tmp_path / "x.duckdb").write_text("not a database")
    with pytest.raises(SourceError, match="not a DuckDB file"):
        build_cohort(tmp_path / "x.duckdb")
    folder = ward().write(tmp_path / "raw")
    (folder / "labevents.csv.gz").write_bytes(b"\x1f\x8b broken")
    with pytest.raises(SourceError) as error:
        build_cohort(folder)
    assert "\n" not in str(error.value)


def test_corrupt_rows_are_counted_and_change_nothing_else(tmp_path):
    good = build_cohort(ward().write(tmp_path / "good"))
    h = ward()
    h.chart(HR, 1, 99999).chart(HR, 1, "ERROR").chart(HR, 1, 300, error=1).chart(HR, 1, 80, stay=999)
    h.add(
        "chartevents",
        subject_id=1,
        icustay_id=101,
        itemid=HR,
        charttime="2150-13-45 77:00:00",
        value=9,
        valuenum=9,
    )
    h.add(
        "chartevents",
        subject_id=1,
        icustay_id=101,
        itemid=HR,
        charttime=at(1),
        value="x",
        valuenum="12 or so",
    )
    h.add("chartevents", subject_id=1, icustay_id=101, itemid=HR, charttime=at(1))
    h.chart(HR, 24 * 365 * 300, 80)  # 300 years later
    h.lab(50971, 1, "HEMOLYZED").urine(1, -50).urine(1, "lots").infusion(225158, 9, 5, amount=500)
    h.infusion(225158, 5, 6, amount=-500).infusion(225158, 5, 6, amount=5, unit="bags").drip(-1, 5, 6)
    h.drip(1, 5, 6, per="drops").infusion(225158, 5, 6)
    h.add("prescriptions", subject_id=1, hadm_id=10, startdate="soon", drug="Vancomycin")
    h.add("microbiologyevents", subject_id=1, hadm_id=10)
    h.rows["chartevents"].append(h.rows["chartevents"][3])  # a row twice
    h.stay(7, hours=-5).stay(8).infected(8)  # left before arrival; and a stay without any chart
    h.add("icustays", subject_id=9, hadm_id=90, icustay_id=109, intime="never", outtime=at(9))
    folder = h.write(tmp_path / "bad", ending=".csv")
    with (folder / "labevents.csv").open("ab") as file:
        file.write(b"1,10,50971\r\n1,10,50971,2150-01-02 09:00:00,4,4,too,many,columns\r\n")
    bad = build_cohort(folder)
    counted = {(table, problem): rows for table, problem, rows in bad.quality.rows()}
    assert counted == {
        ("chartevents", "HR outside the limits"): 1,
        ("chartevents", "charted more than a day outside its ICU stay"): 1,
        ("chartevents", "marked as an error"): 1,
        ("chartevents", "no number"): 1,
        ("chartevents", "no time"): 1,
        ("chartevents", "nothing written"): 1,
        ("chartevents", "of no ICU stay"): 1,
        ("chartevents", "the same row again, in the records"): 1,
        ("chartevents", "words where a number belongs"): 1,
        ("fluids", "negative"): 1,
        ("fluids", "unknown unit"): 1,
        ("icustays", "left before arrival"): 1,
        ("icustays", "no time of arrival or departure"): 1,
        ("inputevents_mv", "ended before it began"): 1,
        ("inputevents_mv", "nothing written"): 1,
        ("labevents", "line that is no row: missing columns"): 1,
        ("labevents", "line that is no row: too many columns"): 1,
        ("labevents", "words where a number belongs"): 1,
        ("microbiologyevents", "no time"): 1,
        ("outputevents", "negative"): 1,
        ("outputevents", "no number"): 1,
        ("prescriptions", "no time"): 1,
        ("vasopressors", "negative"): 1,
        ("vasopressors", "unknown unit"): 1,
    }
    reasons = dict(bad.flow.select("reason", "stays_removed").rows())
    assert reasons["impossible or missing dates, age, sex or outcome"] == 2
    assert reasons["nothing charted in the record"] == 1
    assert bad.rows.equals(good.rows)


def test_nothing_at_all_is_a_result_too(tmp_path):
    cohort = build_cohort(Hospital().write(tmp_path))
    assert len(cohort.rows) == 0
    assert cohort.flow["stays_in"].sum() == 0


def test_a_run_that_was_killed_goes_on_where_it_stopped(tmp_path, expected):
    folder, kept = ward().write(tmp_path / "raw"), tmp_path / "stages.duckdb"
    seen = []

    def stop_after_the_measurements(stage, seconds):
        seen.append(stage.name)
        if stage.name == "measurements":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_cohort(folder, resources=Resources(keep_stages=kept), progress=stop_after_the_measurements)
    again = []
    cohort = build_cohort(
        folder, resources=Resources(keep_stages=kept), progress=lambda stage, _: again.append(stage.name)
    )
    assert [*seen, *again] == [stage.name for stage in STAGES]
    cohort.write(tmp_path / "cohort.parquet")
    assert (tmp_path / "cohort.parquet").read_bytes() == expected
    other = CohortSettings(fill="median")
    with pytest.raises(FileExistsError, match="does not hold the stages of this job"):
        build_cohort(folder, settings=other, resources=Resources(keep_stages=kept))


def counted(cohort):
    return {(table, problem): rows for table, problem, rows in cohort.quality.rows()}


@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_every_line_that_a_stray_quote_swallows_is_counted(tmp_path, ending):
    import gzip

    folder = typical().write(tmp_path / "raw", ending=ending)
    path = folder / f"labevents{ending}"
    opener = gzip.open if ending.endswith("gz") else open
    with opener(path, "rb") as file:
        lines = file.read().splitlines(keepends=True)
    assert len(lines) == 1 + 20
    # A quote before the value of the sixth row is closed in the twelfth: the six lines after the sixth are its text.
    lines[6] = lines[6].replace(b",90,", b',"90,')
    lines[12] = lines[12].replace(b",140,", b',140",')
    assert sum(line.count(b'"') for line in lines) == 2
    with opener(path, "wb") as file:
        file.write(b"".join([*lines, b"\r\n"]))  # and a blank line at the end is nobody's loss
    cohort = build_cohort(folder)
    lost = {problem: rows for (table, problem), rows in counted(cohort).items() if table == "labevents"}
    assert lost["line that is no row: within the quotes of another"] == 6
    # A quote that is never closed takes the rest of the file.
    lines[12] = lines[12].replace(b'"', b"")
    with opener(path, "wb") as file:
        file.write(b"".join(lines))
    lost = counted(build_cohort(folder))
    assert lost["labevents", "line that is no row: within the quotes of another"] == 20 - 6


def test_text_in_quotes_is_no_lost_line(tmp_path):
    quality = build_cohort(ward().write(tmp_path, ending=".csv")).quality
    assert '"Zosyn, 4.5 g"' in (tmp_path / "prescriptions.csv").read_text()
    assert len(quality) == 0


def test_two_copies_of_a_table_are_refused(tmp_path):
    folder = ward().write(tmp_path / "raw")
    (folder / "older").mkdir()
    (folder / "older" / "LABEVENTS.csv").write_text("x")
    with pytest.raises(
        SourceError, match=r"labevents exists twice, as .*labevents.csv.gz and as .*LABEVENTS"
    ):
        build_cohort(folder)
    (folder / "older" / "LABEVENTS.csv").unlink()
    (folder / "labevents").mkdir()
    (folder / "labevents" / "part-0.csv").write_text("x")
    with pytest.raises(SourceError, match=r"labevents exists twice, .* and as .*labevents: keep one"):
        build_cohort(folder)


def test_mixed_line_endings_and_bad_bytes_name_the_file(tmp_path):
    folder = ward().write(tmp_path / "raw", ending=".csv")
    path = folder / "labevents.csv"
    good = path.read_bytes()
    path.write_bytes(good.replace(b"\r\n", b"\n", 9))
    with pytest.raises(SourceError, match=r"labevents\.csv: .* give all lines one ending \(dos2unix does\)"):
        build_cohort(folder)
    path.write_bytes(good.replace(b"value,", b"valu\xe9,"))
    with pytest.raises(SourceError, match=r"labevents\.csv is not UTF-8 text: .* iconv"):
        build_cohort(folder)
    path.write_bytes(good + b"1,10,50983,2150-01-02 09:00:00,caf\xe9,140\r\n")
    assert counted(build_cohort(folder)) == {("labevents", "line that is no row: invalid encoding"): 1}


def test_nothing_is_written_as_empty_text_or_as_nan_too(small, tmp_path):
    h = ward().chart(PEEP, 1, 5)
    folder = tmp_path / "raw"
    folder.mkdir()
    for name, frame in as_frames(h.write(tmp_path / "csv")):
        if name == "chartevents":
            empty = pl.col("itemid") == PEEP
            frame = frame.with_columns(
                value=pl.when(empty).then(pl.lit("")).otherwise("value"),
                valuenum=pl.when(empty).then(float("nan")).otherwise("valuenum"),
            )
        frame.write_parquet(folder / f"{name}.parquet")
    cohort = build_cohort(folder)
    assert cohort.rows["mechvent"].sum() == 0
    assert counted(cohort) == {("chartevents", "nothing written"): 1}


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://u:secret@[bad",
        "postgresql://u:secret",
        "postgresql://u:half@secret@localhost:1/x",
        "postgresql://u:half/secret@localhost:1/x",
        "postgres:/u:secret@localhost/x",
        "POSTGRESQL://u:secret@localhost/x",
        "postgresql//u:secret@localhost/x",
    ],
)
def test_no_misspelt_address_shows_its_password(address):
    pytest.importorskip("psycopg")
    with pytest.raises(SourceError) as error:
        build_cohort(address)
    assert "secret" not in str(error.value)
    assert "\n" not in str(error.value)
    assert error.value.__cause__ is None
