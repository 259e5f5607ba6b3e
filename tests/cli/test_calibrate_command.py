"""``caliope calibrate`` is the first half of ``caliope evaluate``: the same seed, the same fits, the same answer."""

import json

import pytest
from click.testing import CliRunner

from caliope._audit import _compare, compare_behaviour, prepare_audit
from caliope.behaviour import TabularFrequencies
from caliope.cli import main
from caliope.cli._simulate import DOMAINS
from caliope.domains import ward

pytestmark = pytest.mark.slow

ROLES = ["--episode", "patient", "--time", "hour", "--action", "dose", "--reward", "discharged"]


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("calibrate") / "log.parquet"
    DOMAINS["ward"](150, 0, 1.0).to_frame().write_parquet(path)
    return path


def run(*arguments):
    result = CliRunner().invoke(main, [str(x) for x in arguments])
    assert result.exit_code in (0, 3), result.output
    return result


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize("fit_steps", [100_000, 400])  # the whole log; a sample of its trajectories
def test_calibrate_and_evaluate_give_the_same_answer(log, seed, fit_steps):
    common = [log, *ROLES, "--states", "severity", "--models", "frequencies,forest"]
    common += ["--by", "severity", "--seed", seed, "--fit-steps", fit_steps, "--quiet", "--json"]
    calibrated = json.loads(run("calibrate", *common).stdout)
    target = ["--target-columns", "p_none,p_low,p_high", "--draws", 20]
    evaluated = json.loads(run("evaluate", *common, *target).stdout)["behaviour"]
    assert calibrated["choice"] == evaluated["choice"]
    assert calibrated["rows"] == evaluated["rows"]
    assert calibrated["rows"][0]["nll"] > 0


def test_the_seed_reaches_the_default_models(monkeypatch):
    seeds = []

    def candidates(data, *, random_state=0):
        seeds.append(random_state)
        return {"frequencies": TabularFrequencies()}

    monkeypatch.setattr(_compare, "candidate_models", candidates)
    data = ward.simulate(30, rng=0)
    compare_behaviour(data, rng=3)
    prepare_audit(data, rng=4)
    assert seeds == [3, 4]


@pytest.mark.parametrize("command", ["evaluate", "calibrate"])
def test_as_many_stages_are_announced_as_there_are(log, command):
    given = [log, *ROLES, "--states", "severity", "--models", "frequencies,logistic"]
    given += ["--target-columns", "p_none,p_low,p_high", "--draws", 20] if command == "evaluate" else []
    lines = [line.split() for line in run(command, *given).stderr.splitlines() if line.endswith(" ...")]
    assert lines[0][2] == "1"  # before the log is read nobody knows how many there will be
    last, total = lines[-1][2].split("/")
    assert last == total == str(len(lines))


@pytest.mark.slow
def test_evaluate_takes_over_the_fits_of_calibrate(log, tmp_path):
    common = [log, *ROLES, "--states", "severity", "--models", "logistic", "--seed", 1, "--quiet", "--json"]
    target = ["--target-columns", "p_none,p_low,p_high", "--draws", 20]
    plain = json.loads(run("evaluate", *common, *target).stdout)
    run("calibrate", *common, "--work", tmp_path)
    kept = {file.name: file.stat().st_mtime_ns for file in tmp_path.rglob("*") if file.is_file()}
    assert kept
    assert (
        json.loads(run("evaluate", *common, *target, "--work", tmp_path).stdout)["estimates"]
        == plain["estimates"]
    )
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in kept} == kept
