"""Table 3: problems whose statements agree, ratios of errors by hand, and a choice reported on other replicates."""

from dataclasses import replace

import numpy as np
import pytest

from caliope._formulas import wdr
from caliope._gather import gather, target_probabilities
from caliope.domains import icu_sepsis
from caliope.weights import clip_weights, marginalise_weights, normalise_under_way
from reproduction import _table3_previous as previous, _table3_report as table3_report, table3
from reproduction._problems import PROBLEMS, problem
from reproduction._runs import run_units, seed_of
from reproduction._table3_cells import Cell, jackknife, relative_error
from reproduction.table3 import (
    ADVISED,
    MEAN,
    OURS,
    PAPER,
    PREVIOUS,
    PREVIOUS_ADVISED,
    PREVIOUS_RELATIVE,
    RELATIVE,
    TRUE,
    Pipeline,
)

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_policy_stated_relative_to_the_true_practice_is_the_policy(name):
    where = problem(name)
    log = where.simulate(5, np.random.default_rng(0))
    truth = where.truth(log)
    assert truth[np.arange(log.n_steps), log.actions] == pytest.approx(log["behaviour"])
    for question in where.questions:
        absolute = question.table(log)
        assert absolute.sum(axis=1) == pytest.approx(1)
        if question.relative is not None:
            assert question.relative(log, truth) == pytest.approx(absolute, abs=1e-12)
            stated = target_probabilities(log, question.change, truth)
            assert stated == pytest.approx(absolute, abs=1e-12)


def test_who_always_gives_vasopressors_goes_on():
    # In state 470 the clinicians always give some: there is nothing to scale up.
    patients = problem("sepsis")
    always = icu_sepsis.load().expert[:, np.arange(25) % 5 == 0].sum(axis=1) == 0
    assert np.flatnonzero(always).tolist() == [470]
    log = patients.simulate(2, np.random.default_rng(0))
    states = np.where(np.arange(log.n_steps) % 2, 470, log["state"])
    there = replace(log, columns={**log.columns, "state": states})
    (question,) = [q for q in patients.questions if q.name == "half without vasopressors"]
    assert question.relative(there, patients.truth(there)) == pytest.approx(question.table(there), abs=1e-12)


def test_values_of_the_questions_are_the_published_ones():
    # toy_map's docstring: 5.325 for HEADING, 2.588 for ROAMING; ICU-Sepsis: 7.873 to 9.66.
    walk = problem("map-roaming")
    assert [walk.worth, walk.questions[1].value] == pytest.approx([2.588, 5.325], abs=5e-4)
    patients = problem("sepsis")
    assert patients.worth == pytest.approx(7.873, abs=5e-4)
    assert [q.value for q in patients.questions] == pytest.approx([7.929, 8.261, 8.851, 9.664], abs=5e-3)


def test_only_the_clinic_with_a_hidden_variable_is_confounded():
    assert [name for name in PROBLEMS if name not in ("sepsis",) and problem(name).confounded] == [
        "clinic-hidden"
    ]


def test_a_pipeline_is_written_and_read_back():
    assert Pipeline.of(str(OURS)) == OURS
    assert str(PAPER) == "neighbours | shrunk | held out | raw | PHWIS"


def cell(name, question, errors, **about):
    about = {"value": 2.0, "worth": 1.0, "spread": 2.0, "relative": False, "confounded": False} | about
    return Cell(name, question, 100, errors={p: np.array(e) for p, e in errors.items()}, **about)


def test_ratios_are_averaged_over_the_policies_of_a_process_and_then_over_processes():
    these = [
        cell("a", "x", {OURS: [1.0, -1.0], PAPER: [2.0, 2.0]}),  # 1/2
        cell("a", "y", {OURS: [3.0, 4.0], PAPER: [-5.0, 5.0]}),  # sqrt(25/2) / 5 = 1/sqrt 2
        cell("b", "z", {OURS: [4.0, 4.0], PAPER: [1.0, 1.0]}),  # 4
    ]
    # exp(((log 1/2 + log 2^-1/2) / 2 + log 4) / 2) = 2^((-3/4 + 2) / 2)
    assert relative_error(these, OURS, PAPER) == pytest.approx(2 ** (5 / 8))
    assert relative_error(these[1:2], OURS, PAPER, np.array([True, False])) == pytest.approx(3 / 5)


def test_a_pipeline_without_an_estimate_has_no_ratio():
    assert np.isnan(relative_error([cell("a", "x", {PAPER: [1.0]})], OURS, PAPER))


def test_the_jackknife_of_a_mean_of_logarithms_is_its_standard_error():
    # For exp(mean x) the values left out are exp((sum - x_i) / (n - 1)), and the jackknife is sd / sqrt n exactly.
    x = np.array([0.1, 0.5, -0.2, 0.4])
    found = jackknife(lambda which: float(np.exp(x[which].mean())), 4)
    assert found == pytest.approx(x.std(ddof=1) / 2)
    assert np.isnan(jackknife(lambda which: 1.0, 1))


def results_of(errors, *, confounded=False, name="made up"):
    """Two replicates of one question on one process, with these errors of each pipeline."""
    return {
        f"bandit-5-n100-seed{seed}": {
            "name": name,
            "worth": 0.0,
            "confounded": confounded,
            "spread": 2.0,
            "questions": {
                "question": {
                    "value": 1.0,
                    "relative": False,
                    "estimates": {str(p): 1.0 + e[seed] for p, e in errors.items()},
                }
            },
        }
        for seed in (0, 1)
    }


MADE = table3.Config(("bandit-5",), ((100, 2),))
LUCKY = Pipeline("neighbours", "shrunk", "cross", "raw", "WIS")
ERRORS = {
    PAPER: (1.0, 1.0),
    OURS: (0.3, 0.2),
    TRUE: (0.4, 0.4),
    Pipeline("truth", "-", "known", "raw", "WIS"): (0.1, 0.1),
    MEAN: (-1.0, -1.0),
    LUCKY: (0.2, 3.0),
}


def test_who_wins_where_it_is_chosen_is_reported_elsewhere():
    report = table3.report(MADE, results_of(ERRORS))
    rows = report.table(table3_report.RANKING).records()
    row = next(row for row in rows if row["model"] == "neighbours" and row["estimator"] == "WIS")
    assert row["to the paper's, choosing"] == pytest.approx(0.2)
    assert row["to the paper's, reporting"] == pytest.approx(3.0)
    assert row["to the true policy's, reporting"] == pytest.approx(30.0)
    said = report.findings[-1]
    assert "prefer neighbours, shrunk, cross, raw, WIS: 0.20 of the paper's error, and 3.00 on" in said
    assert (
        "number 2 of 4, default, own, cross, raw, marginalised WDR, default values: 0.30" in said
    )  # the true policy cannot be chosen


def test_advised_is_the_relative_form_where_there_is_one():
    (found,) = table3_report.make_cells(MADE, results_of(ERRORS))
    assert found.errors[ADVISED] == pytest.approx(found.errors[OURS])
    (found,) = table3_report.make_cells(MADE, results_of(ERRORS | {RELATIVE: (0.05, -0.07)}))
    assert found.errors[ADVISED] == pytest.approx([0.05, -0.07])
    before = {PREVIOUS: (0.4, 0.4), PREVIOUS_RELATIVE: (0.1, 0.1)}
    (found,) = table3_report.make_cells(MADE, results_of(ERRORS | before))
    assert found.errors[PREVIOUS_ADVISED] == pytest.approx([0.1, 0.1])
    assert found.errors[ADVISED] == pytest.approx(found.errors[OURS])


@pytest.mark.parametrize(("factor", "met"), [(1.09, "yes"), (1.11, "no")])
def test_the_default_may_be_a_tenth_worse_than_the_previous_one(factor, met):
    before = {PREVIOUS: (0.3 / factor, 0.2 / factor)}
    report = table3.report(MADE, results_of(ERRORS | before, confounded=True))
    (row,) = report.table(previous.BEFORE).records()
    assert row["absolute"] == row["as advised"] == pytest.approx(factor)
    assert row["se, absolute"] == pytest.approx(0, abs=1e-12)  # the same ratio in both replicates
    assert row["met"] == met
    said = table3.report(MADE, results_of(ERRORS | before)).findings[0]
    assert ("In none of 1 processes has the default over 1.10" in said) == (met == "yes")
    assert ("as advised): made up (1.11, 1.11); 1 processes." in said) == (met == "no")


def test_targets_are_met_or_not():
    report = table3.report(MADE, results_of(ERRORS))
    rows = {row["relative to"]: row for row in report.table(table3_report.GOALS).records()}
    error = np.sqrt((0.3**2 + 0.2**2) / 2)
    assert rows["the paper's pipeline"]["ratio"] == pytest.approx(error)
    assert rows["the paper's pipeline"]["met"] == "yes"  # 0.255 <= 0.45
    assert rows["the true policy, clipped WDR"]["ratio"] == pytest.approx(error / 0.4)
    assert rows["the plain mean, contrast over 1/4 sd"]["met"] == "no"  # 0.255 > 0.25, contrast 1 / 2
    words = "loses to the paper's pipeline in 0 of 1 cells and to the plain mean in 0 of 1 cells."
    assert words in report.findings[0]


@pytest.mark.parametrize(
    ("mean", "advised", "absolute"), [(0.26, "yes", "yes"), (0.2, "no", "yes"), (0.19, "no", "no")]
)
def test_patients_have_targets_of_their_own(mean, advised, absolute):
    found = results_of(ERRORS | {MEAN: (mean, mean)}, name="ICU-Sepsis")
    rows = table3.report(MADE, found).table(table3_report.GOALS).records()
    met = {
        row["policy stated"]: row["met"] for row in rows if row["relative to"] == "the plain mean, ICU-Sepsis"
    }
    # 0.255 / 0.26 < 1; 1 < 0.255 / 0.2 < 1.3; 0.255 / 0.19 > 1.3
    assert met == {"absolute": absolute, "as advised": advised}


def test_a_confounded_process_is_shown_and_not_averaged():
    report = table3.report(MADE, results_of(ERRORS, confounded=True))
    assert report.table(table3_report.GOALS).rows == ()
    assert len(report.table(table3_report.CELLS).rows) == 1
    (said,) = report.findings
    assert said.startswith("Not counted, because the log lacks a confounder: made up.")


def test_where_the_default_loses_to_the_mean_is_said():
    report = table3.report(MADE, results_of(ERRORS | {MEAN: (0.1, 0.1)}))
    ratio = np.sqrt((0.3**2 + 0.2**2) / 2) / 0.1
    where = f"(most in made up, question: {ratio:.2f} times the error, contrast 0.50 sd)"
    assert f"to the plain mean in 1 of 1 cells {where}" in report.findings[0]


def test_where_the_default_loses_to_the_paper_is_said_for_each_size():
    made = results_of(ERRORS | {PAPER: (0.1, 0.1)})
    made |= {key.replace("n100", "n200"): found for key, found in results_of(ERRORS).items()}
    report = table3.report(table3.Config(("bandit-5",), ((100, 2), (200, 2))), made)
    small, large = report.findings
    assert small.startswith("With 100 trajectories")
    where = "(most in made up, question: 2.55 times the error"
    assert f"loses to the paper's pipeline in 1 of 1 cells {where}" in small
    assert large.startswith("With 200 trajectories")
    assert "loses to the paper's pipeline in 0 of 1 cells" in large


def test_fitted_values_alone_are_listed_once(results):
    # Whatever the behaviour model and the ratios, the estimate is the same to the last digit.
    for found in results.values():
        for question in found["questions"].values():
            under = {
                k: v for k, v in question["estimates"].items() if k.endswith(" DM") and "relative" not in k
            }
            assert len(under) > 1
            assert len(set(under.values())) == 1
    rows = table3.report(table3.SMOKE, results).table(table3_report.EVERYTHING).records()
    (row,) = [row for row in rows if row["estimator"] == "DM"]
    assert [row[name] for name in ("model", "recalibration", "fit", "ratios")] == ["-"] * 4
    assert row["to the true policy's, reporting"] == 1  # it would be the same with the true policy


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("table3")
    return run_units(table3.units(table3.SMOKE), folder, progress=False)


def test_estimates_with_the_true_policy_are_as_by_hand(results):
    where = problem("bandit-5")
    log = where.simulate(40, seed_of("table3", "bandit-5", 40, 0))
    question = where.questions[-1]
    ratio = question.table(log)[np.arange(40), log.actions] / log["behaviour"]  # one step each
    found = results["bandit-5-n40-seed0"]["questions"][question.name]["estimates"]
    by_hand = (ratio * log.rewards).sum() / ratio.sum()
    assert found["truth | - | known | raw | WIS"] == pytest.approx(by_hand, rel=1e-9)
    assert found[str(MEAN)] == pytest.approx(log.rewards.mean())
    # The cap is mean * sqrt(n) / 3.
    capped = np.minimum(ratio, ratio.mean() * np.sqrt(40) / 3)
    by_hand = (capped * log.rewards).sum() / capped.sum()
    assert found["truth | - | known | raw | clipped WIS"] == pytest.approx(by_hand, rel=1e-9)


def test_the_default_and_the_previous_one_are_as_by_hand(results):
    where = problem("clinic-hidden")
    log = where.simulate(40, seed_of("table3", "clinic-hidden", 40, 1))
    truth = where.truth(log)
    for question in where.questions[-2:]:
        found = results["clinic-hidden-n40-seed1"]["questions"][question.name]["estimates"]
        q = where.values(log, question.table(log), 2, 1)
        e = gather(log, question.table(log), truth, q=q, behaviour_known=True)
        about = "truth | - | known | raw |"
        assert found[f"{about} clipped WDR"] == pytest.approx(float(wdr(clip_weights(e))))
        by_hand = float(wdr(clip_weights(normalise_under_way(e))))
        assert found[f"{about} normalised WDR"] == pytest.approx(by_hand)
        by_hand = float(wdr(marginalise_weights(e, log, rng=1)))
        assert found[f"{about} marginalised WDR"] == pytest.approx(by_hand)


def test_logs_of_one_size_are_among_those_of_all():
    keys = [unit.key for unit in table3.units(table3.DEFAULT.fewer().longer(2))]
    large = [unit.key for unit in table3.units(table3.DEFAULT.fewer().longer(2).only(2000))]
    assert large == [key for key in keys if "-n2000-" in key]
    assert len(large) == 4 * len(table3.DEFAULT.problems)


def test_fewer_pipelines_have_the_same_estimates_and_fits_are_kept(results, tmp_path, monkeypatch):
    few = replace(table3.SMOKE, problems=("bandit-5",), sizes=((40, 1),)).fewer()
    found = run_units(table3.units(few), tmp_path, progress=False)["bandit-5-n40-seed0-few"]["questions"]
    for name, question in results["bandit-5-n40-seed0"]["questions"].items():
        some = found[name]["estimates"]
        assert {str(p) for p in (PAPER, OURS, PREVIOUS, TRUE, MEAN)} <= set(some)
        assert len(some) < len(question["estimates"]) / 2
        assert some == {key: question["estimates"][key] for key in some}

    def refuse(*given, **more):
        raise AssertionError("fitted again")

    for name in ("fit_behaviour", "fit_default_values", "fit_kernel_values"):
        monkeypatch.setattr(table3, name, refuse)
    again = table3.one_log("bandit-5", 40, 0, few.folds, every=False, last=2, kept=str(tmp_path / "kept"))
    assert again["questions"] == found


def test_every_pipeline_answers_and_the_relative_form_where_there_is_one(results):
    for key, found in results.items():
        for question in found["questions"].values():
            assert {str(p) for p in (PAPER, OURS, TRUE, MEAN)} <= set(question["estimates"]), key
            assert (str(RELATIVE) in question["estimates"]) == question["relative"]
            assert np.isfinite(list(question["estimates"].values())).all()


def test_the_report_of_a_smoke_run_leaves_the_hidden_variable_out(results):
    report = table3.report(table3.SMOKE, results)
    assert {row["process"] for row in report.table(table3_report.CELLS).records()} == {
        "bandit, 5 actions",
        "clinic, frailty hidden",
    }
    assert all(row["processes"] == 1 for row in report.table(table3_report.GOALS).records())
    assert table3.figure(report).axes[0].get_title() == "40 trajectories"


def test_by_process_the_ratios_are_those_of_its_cells(results):
    report = table3.report(table3.SMOKE, results)
    cells = report.table(table3_report.CELLS).records()
    for row in report.table(table3_report.PROCESSES).records():
        these = [
            c for c in cells if (c["process"], c["trajectories"]) == (row["process"], row["trajectories"])
        ]
        ratios = [c["default"] / c["true, clipped WDR"] for c in these]
        assert row["to the true policy's"] == pytest.approx(float(np.exp(np.mean(np.log(ratios)))))
