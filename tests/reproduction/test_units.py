"""Units of work: written as they finish, done once, and the same whatever happens in between."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info

import caliope
from caliope._cache import source_digest
from reproduction._runs import (
    Unit,
    code_digest,
    one_thread,
    run_units,
    seed_of,
    total_work,
    write_atomically,
)


def draw(name, size):
    x = seed_of(name, size).normal(size=(size, size))
    return {"mean": x.mean(), "product": (x @ x).sum(), "pair": (1, 2)}


def count(folder, name):
    """Leaves a trace each time that it is really done."""
    with (Path(folder) / f"{name}.trace").open("a") as file:
        file.write("x")
    return {"name": name}


def fail():
    raise RuntimeError("the cable came off")


def threads():
    return {"threads": sorted({library["num_threads"] for library in threadpool_info()})}


def sleep(folder, name):
    (Path(folder) / f"{name}.pid").write_text(str(os.getpid()))
    time.sleep(60)


def draws(n=4):
    return [Unit(f"draw{i}", draw, {"name": f"draw{i}", "size": 20 + i}) for i in range(n)]


@pytest.mark.slow
def test_neither_order_nor_processes_nor_interruptions_change_a_result(tmp_path):
    units = draws()
    expected = run_units(units, tmp_path / "a", progress=False)
    # draw() by hand: nothing but the arguments goes into it
    x = seed_of("draw1", 21).normal(size=(21, 21))
    assert expected["draw1"]["mean"] == x.mean()
    run_units(units[2:3], tmp_path / "b", progress=False)  # as if killed after one
    beside = run_units(units[::-1], tmp_path / "b", jobs=2, progress=False)
    assert list(beside) == ["draw3", "draw2", "draw1", "draw0"]
    assert beside == expected


def test_a_unit_that_is_done_is_not_done_again(tmp_path):
    units = [Unit(name, count, {"folder": str(tmp_path), "name": name}) for name in ("one", "two")]
    first = run_units(units, tmp_path, progress=False)
    assert run_units(units, tmp_path, progress=False) == first
    assert (tmp_path / "one.trace").read_text() == "x"
    found = total_work(units, tmp_path)
    assert found.other_code == 0
    assert found.seconds == sum(
        json.loads((tmp_path / "units" / f"{name}.json").read_text())["seconds"] for name in ("one", "two")
    )


def test_other_arguments_are_other_work(tmp_path):
    for size in (5, 6):
        found = run_units([Unit("same", draw, {"name": "a", "size": size})], tmp_path, progress=False)
        assert found["same"]["mean"] == seed_of("a", size).normal(size=(size, size)).mean()


@pytest.mark.parametrize("change", [{"code": "of yesterday"}, {"code": None}])
def test_results_of_other_code_are_taken_up_and_said(tmp_path, capsys, change):
    units = draws(2)
    first = run_units(units, tmp_path, progress=False)
    assert capsys.readouterr().err == ""
    path = tmp_path / "units" / "draw1.json"
    record = json.loads(path.read_text())
    assert record["code"] == code_digest()
    path.write_text(json.dumps({k: v for k, v in (record | change).items() if v is not None}))
    assert run_units(units, tmp_path, progress=False) == first
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"1 of 2 units were made by other code; delete {tmp_path / 'units'} to make them again."
    assert total_work(units, tmp_path).other_code == 1


@pytest.mark.parametrize("text", ['{"result": {"mea', "[]", "{}", '{"fingerprint": 3}', "\udcff"])
def test_what_is_no_record_is_done_again_and_named(tmp_path, capsys, text):
    expected = run_units(draws(2), tmp_path, progress=False)
    path = tmp_path / "units" / "draw1.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    assert run_units(draws(2), tmp_path, progress=False) == expected
    assert capsys.readouterr().err == f"{path} is not a record of a finished unit: the unit runs again.\n"
    assert json.loads(path.read_text())["result"] == expected["draw1"]


def test_a_record_without_a_result_is_done_again(tmp_path, capsys):
    expected = run_units(draws(1), tmp_path, progress=False)
    path = tmp_path / "units" / "draw0.json"
    record = json.loads(path.read_text())
    del record["result"]
    path.write_text(json.dumps(record))
    assert run_units(draws(1), tmp_path, progress=False) == expected
    assert "draw0.json is not a record" in capsys.readouterr().err


def test_a_failure_keeps_what_was_done_before(tmp_path):
    units = [*draws(2), Unit("broken", fail), *draws(3)[2:]]
    with pytest.raises(RuntimeError, match="cable"):
        run_units(units, tmp_path, progress=False)
    assert sorted(path.stem for path in (tmp_path / "units").glob("*.json")) == ["draw0", "draw1"]


def test_a_fresh_result_is_as_if_read_from_its_file(tmp_path):
    fresh = run_units(draws(1), tmp_path, progress=False)
    kept = run_units(draws(1), tmp_path, progress=False)
    assert fresh == kept
    assert fresh["draw0"]["pair"] == [1, 2]  # JSON knows no tuples


def test_a_file_is_complete_or_not_there(tmp_path):
    path = tmp_path / "folder" / "x.json"
    write_atomically(path, "{}")
    assert path.read_bytes() == b"{}\n"
    assert [each.name for each in path.parent.iterdir()] == ["x.json"]
    # What a kill leaves behind while writing has another name, and is not taken for a result.
    (tmp_path / "units").mkdir()
    (tmp_path / "units" / ".draw0.json.1.part").write_text('{"result": {"mea')
    assert run_units(draws(1), tmp_path, progress=False)["draw0"]["pair"] == [1, 2]


def test_units_run_on_one_thread(tmp_path):
    before = os.environ.get("OMP_NUM_THREADS")
    found = run_units([Unit("threads", threads)], tmp_path, progress=False)
    assert found["threads"]["threads"] == [1]
    with one_thread():
        assert os.environ["OMP_NUM_THREADS"] == "1"
    assert os.environ.get("OMP_NUM_THREADS") == before


def alive(pid):
    """Whether a process runs; one that has ended and waits to be asked for its exit status does not."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="asks the kernel of Linux who is alive")
def test_the_processes_of_a_killed_run_end_with_it(tmp_path):
    code = (
        "import test_units as t\n"
        "if __name__ == '__main__':\n"
        f"    units = [t.Unit(n, t.sleep, {{'folder': {str(tmp_path)!r}, 'name': n}}) for n in 'ab']\n"
        f"    t.run_units(units, {str(tmp_path)!r}, jobs=2, progress=False)\n"
    )
    script = tmp_path / "script.py"
    script.write_text(code)
    # The code under test, whether installed or on the path of this process.
    path = [Path(__file__).parent, Path(__file__).parents[2], Path(caliope.__file__).parents[1]]
    here = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))}
    process = subprocess.Popen([sys.executable, str(script)], env=here)
    try:
        while len(found := [path.read_text() for path in tmp_path.glob("*.pid")]) < 2 or not all(found):
            assert process.poll() is None
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    for _ in range(600):  # half a minute; left alone they would sleep for a whole one
        if not any(alive(pid) for pid in found):
            break
        time.sleep(0.05)
    assert not any(alive(pid) for pid in found)
    assert not list((tmp_path / "units").glob("*.json"))


@pytest.mark.parametrize("key", ["", "a/b", "../up", "with space", ".hidden"])
def test_a_key_names_a_file(key):
    with pytest.raises(ValueError, match="names a file"):
        Unit(key, fail)


def test_keys_are_not_shared_and_results_are_plain(tmp_path):
    with pytest.raises(ValueError, match="1 occur twice, first 'draw0'"):
        run_units([*draws(1), *draws(1)], tmp_path)
    with pytest.raises(TypeError, match="got Generator"):
        Unit("odd", draw, {"name": np.random.default_rng(0)})
    with pytest.raises(ValueError, match="jobs must be at least 1, got 0"):
        run_units(draws(1), tmp_path, jobs=0)


def test_a_log_file_gets_one_line_per_unit_with_the_time_left(tmp_path, capsys):
    run_units(draws(2)[:1], tmp_path, progress=False)
    run_units(draws(3), tmp_path)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "1 of 3 units were done before"
    assert lines[1].startswith("2 of 3  draw1  ")
    assert lines[2].startswith("3 of 3  draw2  ")
    assert lines[2].endswith("0:00:00 left")


def test_the_digest_covers_the_package_and_the_experiments():
    assert len(code_digest()) == 16
    assert code_digest() != source_digest()
