"""A real PostgreSQL server, on a socket in a temporary folder: the same cohort, byte for byte."""

import gzip
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from caliope.clinical import MIMIC3, SourceError, _postgres as streaming, build_cohort
from support.clinical_tables import COLUMNS, typical

pytestmark = pytest.mark.slow

pytest.importorskip("duckdb")
psycopg = pytest.importorskip("psycopg")

DEMO = os.environ.get("CALIOPE_MIMIC3_DEMO", "")
TYPES = {
    "_id": "integer",
    "itemid": "integer",
    "time": "timestamp",
    "date": "timestamp",
    "dob": "timestamp",
    "dod": "timestamp",
}
NUMBERS = {"valuenum", "amount", "rate"}


def programs():
    """Newest server programs there are, or None."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    path = str(found[-1]) if found else shutil.which("initdb")
    return Path(path).parent if path else None


def as_server_user():
    """How to start a program that refuses to run as root: as the user postgres, where there is one."""
    if os.geteuid() != 0:
        return {}
    try:
        user = pwd.getpwnam("postgres")
    except KeyError:
        pytest.skip("PostgreSQL refuses to run as root, and there is no user postgres")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


@pytest.fixture(scope="module")
def server():
    """Address of a server that listens on a socket only; gone afterwards."""
    place = programs()
    if place is None:
        pytest.skip("no PostgreSQL server is installed")
    who = as_server_user()
    # Not below pytest's folder: its parents are closed to other users, and a socket's path must be short.
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    try:
        if who:
            os.chown(folder, who["user"], who["group"])
        run = {"check": True, "capture_output": True, "cwd": folder, **who}
        data = folder / "data"
        subprocess.run(
            [place / "initdb", "-D", data, "-U", "caliope", "-A", "trust", "-N", "-E", "UTF8", "--locale=C"],
            **run,
        )
        options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
        start = [place / "pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", options, "start"]
        # Its output goes to the log: a pipe would stay open for as long as the server runs.
        subprocess.run(
            start, check=True, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **who
        )
        try:
            yield f"postgresql://caliope@/postgres?host={folder}"
        finally:
            subprocess.run([place / "pg_ctl", "-D", data, "-m", "immediate", "stop"], **run)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def load(address, folder, *, schema):
    """Load csv.gz files as the scripts of MIMIC do, with their types; the rows in reverse order."""
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        connection.execute(f"CREATE SCHEMA {schema}")
        for table in COLUMNS:
            with gzip.open(Path(folder, f"{table}.csv.gz"), "rb") as file:
                header, body = file.readline(), file.read()
            names = header.decode().strip().split(",")
            typed = ", ".join(f"{name} {type_of(name, table)}" for name in names)
            connection.execute(f"CREATE TABLE {schema}.unsorted ({typed}, n serial)")
            copy = f"COPY {schema}.unsorted ({', '.join(names)}) FROM STDIN (FORMAT csv)"
            with connection.cursor().copy(copy) as stream:
                stream.write(body)
            connection.execute(
                f"CREATE TABLE {schema}.{table} AS SELECT {', '.join(names)} FROM {schema}.unsorted ORDER BY n DESC"
            )
            connection.execute(f"DROP TABLE {schema}.unsorted")


def type_of(name, table):
    if name in NUMBERS or (name == "value" and table == "outputevents"):
        return "double precision"
    return next((kind for ending, kind in TYPES.items() if name.endswith(ending)), "text")


def written(source, path, **options):
    build_cohort(source, **options).write(path)
    return path.read_bytes()


def test_the_same_cohort_as_from_files(server, tmp_path, monkeypatch):
    monkeypatch.setattr(streaming, "CHUNK_BYTES", 1000)  # many chunks
    folder = (
        typical(3).drip(0.2, 6, 9).urine(3, 80).infected(2, drug='Zosyn, "4.5 g"').write(tmp_path / "raw")
    )
    load(server, folder, schema="mimiciii")
    assert written(server, tmp_path / "a.parquet") == written(folder, tmp_path / "b.parquet")


@pytest.mark.skipif(
    not Path(DEMO, "chartevents.csv.gz").is_file(), reason="set CALIOPE_MIMIC3_DEMO to the MIMIC-III demo"
)
def test_the_demo_byte_for_byte(server, tmp_path):
    load(server, DEMO, schema="demo")
    from_server = build_cohort(server, schema="demo")
    from_files = build_cohort(DEMO)
    ours, theirs = (
        from_server.write(tmp_path / "server" / "c.parquet"),
        from_files.write(tmp_path / "files" / "c.parquet"),
    )
    for mine, yours in zip(ours, theirs, strict=True):
        assert mine.read_bytes() == yours.read_bytes(), mine.name


def test_a_missing_table_or_a_refused_one_is_named(server, tmp_path):
    folder = typical().write(tmp_path)
    load(server, folder, schema="partial")
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("DROP TABLE partial.icustays")
        connection.execute("DROP ROLE IF EXISTS nobody")
        connection.execute("CREATE ROLE nobody LOGIN")
    with pytest.raises(SourceError, match="the table icustays is missing"):
        build_cohort(server, schema="partial")
    with pytest.raises(SourceError, match="PostgreSQL"):
        build_cohort(server.replace("caliope@", "nobody@"), schema="partial")


def test_only_needed_columns_and_items_travel(server, tmp_path):
    folder = typical().chart(999999, 1, 5).write(tmp_path / "raw")
    load(server, folder, schema="narrow")
    import duckdb

    from caliope.clinical import Resources

    kept = tmp_path / "stages.duckdb"
    build_cohort(server, schema="narrow", database=MIMIC3, resources=Resources(keep_stages=kept))
    with duckdb.connect(str(kept), read_only=True) as connection:
        assert connection.execute(
            "SELECT count(*) FROM copied_chartevents WHERE itemid = '999999'"
        ).fetchone() == (0,)
        names = [row[0] for row in connection.execute("DESCRIBE copied_chartevents").fetchall()]
    assert "valueuom" not in names
    assert "charttime" in names
