"""The gate: its scenarios, and the shares that its report prints."""

from dataclasses import replace

import numpy as np
import pytest

from caliope._audit._result import GAIN, HEADLINE
from reproduction import gate
from reproduction._gate_report import GOALS, OBSTACLES, VERDICTS
from reproduction._runs import run_units
from reproduction.gate import report

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return run_units(gate.units(gate.SMOKE), tmp_path_factory.mktemp("gate"))


def test_the_smoke_run_audits_every_scenario(results):
    found = report(gate.SMOKE, results)
    rows = {row["interval of"]: row for row in found.table(GOALS).records()}
    assert rows["value"]["scenarios"] == 8  # two models of practice, four policies
    assert rows["value"]["intervals"] == 16  # in two replicates
    assert rows["other estimators"]["scenarios"] == 8 * 8


def test_the_usual_size_has_the_scenarios_that_it_should():
    logs = {(x["domain"], x["overlap"], x["n"]) for _, x in gate._logs(gate.FULL)}
    counted = sum(
        len(gate.make_problem(domain, overlap).questions) * len(gate.FULL.models)
        for domain, overlap, _ in logs
        if domain != gate.HIDDEN
    )
    # Six processes with four policies and a map with two, 2 overlaps, 2 sizes; ICU-Sepsis with four; 4 models.
    assert counted == ((6 * 4 + 2) * 2 * 2 + 4) * 4 >= 200


@pytest.mark.parametrize("domain", ["bandit-5", "random-5", "clinic"])
def test_overlap_is_what_it_says(domain):
    smallest = {
        overlap: gate.make_problem(domain, overlap)
        .truth(gate.make_problem(domain, overlap).simulate(50, np.random.default_rng(0)))
        .min()
        for overlap in gate.OVERLAPS
    }
    data = gate.make_problem(domain, "wide").simulate(50, np.random.default_rng(0))
    assert smallest["wide"] >= 0.5 / data.n_actions  # half of the decisions at random
    assert smallest["narrow"] < smallest["wide"]


def made_up(intervals):
    """One scenario with these intervals (covers, verdict) of a value of 1; the same for the difference from 0."""

    def row(covers, verdict):
        low = 0.5 if covers else 2.0
        return {
            "value": 1.0,
            "low": low,
            "high": low + 1,
            "verdict": verdict,
            "codes": ["X1 caution"] * (verdict != "trust"),
        }

    return {
        f"d-wide-n60-seed{i}": {
            "name": "made up",
            "worth": 0.0,
            "scenarios": {"m | p": {"value": 1.0, "rows": {HEADLINE: row(*x), GAIN: row(*x)}}},
        }
        for i, x in enumerate(intervals)
    }


def goals_of(intervals):
    config = replace(gate.SMOKE, domains=("d",), replicates=len(intervals))
    return report(config, made_up(intervals))


def test_a_gate_that_trusts_what_does_not_cover_is_found_out():
    found = goals_of([(True, "trust"), (True, "trust"), (False, "trust"), (False, "caution")])
    row = found.table(GOALS).records()[0]
    assert row["marked trust"] == 3
    assert row["of these cover"] == pytest.approx(2 / 3)
    assert row["met"] == "no"
    assert row["scenarios under 80%"] == 1  # 2 of 4 cover
    assert row["of their intervals not trust"] == pytest.approx(1 / 4)
    assert row["never trust"] == 0.0
    assert row["met "] == "no"


def test_a_gate_that_refuses_everything_is_found_out():
    row = goals_of([(True, "caution")] * 4).table(GOALS).records()[0]
    assert row["of their intervals trust"] == 0.0
    assert row["scenarios at 90% or more"] == 1
    assert np.isnan(row["of these cover"])


def test_what_stands_alone_between_an_interval_and_trust():
    found = goals_of([(True, "trust"), (True, "caution"), (False, "caution")])
    (row,) = found.table(OBSTACLES).records()
    assert (row["finding"], row["intervals"], row["alone"], row["alone, cover"]) == ("X1 caution", 2, 2, 0.5)
    shares = {
        r["verdict"]: r["share"] for r in found.table(VERDICTS).records() if r["interval of"] == "value"
    }
    assert shares == {"trust": pytest.approx(1 / 3), "caution": pytest.approx(2 / 3), "do not trust": 0.0}
