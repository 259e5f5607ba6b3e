"""Jobs on several engines: the same results, and an end in words where a part, a worker or a disk fails."""

import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from caliope._cache import Cache
from caliope.engines import Dask, Local, PartitionError, _dask, run_job

distributed = pytest.importorskip("distributed")


def square(x):
    return x * x


def die_once(folder, x):
    """Kill the own process with the first part that comes, once."""
    mark = Path(folder, "killed")
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return x * x


def die_of_three(x):
    if x == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return x * x


def refuse_three(x):
    if x == 3:
        raise ValueError("column 'age' has gaps")
    return x * x


def count(folder, x):
    Path(folder, f"{x}-{os.getpid()}-{os.urandom(4).hex()}").touch()
    return x * x


def run(engine, task, work=None):
    return dict(run_job(engine, task, [2, 3, 4, 5], work=work or Cache()))


SQUARES = {0: 4, 1: 9, 2: 16, 3: 25}
WITH_WORKERS = [
    pytest.param(Local(2), marks=pytest.mark.slow),
    pytest.param(Dask(workers=2), marks=pytest.mark.slow),
]


def test_every_part_gets_the_function():
    """In this process; with workers, where one of them is killed besides."""
    assert run(Local(1), square) == SQUARES


@pytest.mark.parametrize("engine", WITH_WORKERS, ids=str)
def test_a_worker_that_is_killed_changes_nothing(engine, tmp_path):
    assert run(engine, partial(die_once, tmp_path)) == SQUARES
    assert (tmp_path / "killed").exists()


@pytest.mark.slow
@pytest.mark.parametrize("engine", [Local(2), Dask(workers=2)], ids=str)
def test_a_part_that_kills_its_workers_is_named(engine):
    with pytest.raises(PartitionError, match=r"^3: its worker was killed \d times"):
        run(engine, die_of_three)


@pytest.mark.parametrize("engine", [Local(1), *WITH_WORKERS], ids=str)
def test_an_error_names_the_part(engine):
    with pytest.raises(PartitionError, match=r"^3: column 'age' has gaps$"):
        run(engine, refuse_three)


def test_what_is_finished_is_not_done_again(tmp_path):
    work, done = Cache.of(tmp_path / "work"), tmp_path / "done"
    done.mkdir()
    with pytest.raises(PartitionError):
        run(Local(1), refuse_three, work)  # finishes part 0
    assert run(Local(1), partial(count, done), work) == SQUARES
    assert sorted(path.name[0] for path in done.iterdir()) == ["3", "4", "5"]


FULL = """
import resource, sys
from caliope._cache import Cache
from caliope.engines import Local, run_job
if sys.argv[2] == "full":
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
parts = [10, 20_000, 30]
found = dict(run_job(Local(1), bytes, parts, work=Cache.of(sys.argv[1])))
print(sorted(map(len, found.values())))
"""


@pytest.mark.slow
def test_a_full_disk_is_named_and_the_next_start_goes_on(tmp_path):
    def start(how):
        return subprocess.run(
            [sys.executable, "-c", FULL.replace("20_000", "200_000"), str(tmp_path), how],
            capture_output=True,
            text=True,
            check=False,
        )

    full = start("full")
    assert "200000: its result could not be kept (File too large)" in full.stderr
    assert start("empty").stdout.strip() == "[10, 30, 200000]"


def linger(folder, x):
    """Take a while, and leave a mark at the beginning and at the end."""
    Path(folder, f"begun-{x}").touch()
    time.sleep(1.0)
    Path(folder, f"done-{x}").touch()
    return x * x


@pytest.fixture
def started(tmp_path):
    """Start programs of Dask; they are stopped in the end."""
    running = []

    def start(what, *arguments):
        command = [sys.executable, "-m", "distributed.cli." + what, *map(str, arguments)]
        # Functions of this file travel by its name.
        path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        with (tmp_path / f"{what}-{len(running)}.log").open("wb") as log:
            running.append(
                subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | {"PYTHONPATH": path})
            )
        return running[-1]

    yield start
    for each in running:
        each.kill()
        each.wait()


def wait_for(found, seconds=120):
    end = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.slow
def test_a_scheduler_that_is_started_anew_loses_nothing(started, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    scheduler = ("dask_scheduler", "--host", "127.0.0.1", "--port", port, "--no-dashboard")
    first = started(*scheduler)
    worker = ("dask_worker", address, "--nthreads", 1, "--no-dashboard", "--death-timeout", 30)
    started(*worker)

    def start_anew():
        wait_for((tmp_path / "done-2").exists)
        first.kill()
        first.wait()
        started(*scheduler)
        started(*worker)

    with ThreadPoolExecutor() as beside:
        anew = beside.submit(start_anew)
        assert run(Dask(address), partial(linger, tmp_path)) == SQUARES
        anew.result()
    assert first.poll() is not None


@pytest.mark.slow
def test_a_job_without_workers_ends(started, monkeypatch):
    """Where no worker takes the place of one that was killed, Dask itself waits for ever."""
    monkeypatch.setattr(_dask, "_LOOK", 0.2)
    monkeypatch.setattr(_dask, "_NO_WORKER", 3.0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    started("dask_scheduler", "--host", "127.0.0.1", "--port", port, "--no-dashboard")
    worker = started("dask_worker", address, "--nthreads", 1, "--no-dashboard", "--no-nanny")
    with distributed.Client(address, timeout="60s", set_as_default=False) as client:
        client.wait_for_workers(1, timeout=60)
    with pytest.raises(PartitionError, match=r"^no worker was left for [23]\. Start workers"):
        run(Dask(address), die_of_three)
    assert worker.wait() != 0


def test_a_cluster_that_runs_has_its_own_workers():
    with pytest.raises(ValueError, match="scheduler or workers, not both"):
        Dask("tcp://127.0.0.1:8786", workers=2)


@pytest.mark.parametrize("engine", [Local, Dask])
def test_there_is_at_least_one_worker(engine):
    with pytest.raises(ValueError, match="1 or more, got 0"):
        engine(workers=0)
