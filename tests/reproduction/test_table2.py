"""Table 2: the splits and their exact selection bias, errors from a smoke run, verdicts from made-up numbers."""

import copy
from dataclasses import replace

import numpy as np
import pytest

from caliope import Trajectories
from caliope.domains import icu_sepsis
from reproduction import _table2_report as table2_report, table2
from reproduction._cohorts import intervention_split, never_given, random_split, read_cohort, selection_bias
from reproduction._report import clustered_se
from reproduction._runs import run_units, seed_of
from reproduction._table2_results import NUMBERS, Found, correlate
from reproduction.table2 import NEUTRAL, behaviour_tables
from support.cohort_files import write_cohort

pytestmark = pytest.mark.slow


def ward(actions):
    """Patients with these actions, one list each."""
    flat = np.concatenate(actions)
    offsets = np.concatenate([[0], np.cumsum([len(each) for each in actions])])
    return Trajectories(np.zeros((len(flat), 1)), flat, np.zeros(len(flat)), offsets, n_actions=25)


# Levels of vasopressors are actions modulo 5: 0, 5 and 20 are without.
PATIENTS = ward([[0, 5], [1], [20], [5, 5, 9], [0], [10, 15]])


def test_who_was_never_given_vasopressors():
    assert never_given(PATIENTS).tolist() == [True, False, True, False, True, True]


def test_the_intervention_split_takes_half_of_those_never_given():
    first, second = intervention_split(PATIENTS, rng=0)
    assert len(first) == 2  # half of four
    assert never_given(first).all()
    assert sorted([*first.ids, *second.ids]) == list(range(6))


def test_the_intervention_split_needs_patients_without_vasopressors():
    with pytest.raises(ValueError, match="two patients without vasopressors, got 1 of 2"):
        intervention_split(ward([[1], [0]]), rng=0)


def test_the_random_split_halves():
    first, second = random_split(PATIENTS, rng=0)
    assert (len(first), len(second)) == (3, 3)
    assert sorted([*first.ids, *second.ids]) == list(range(6))


@pytest.fixture(scope="module")
def survival():
    """Nobody goes on for 200 steps, so this is without a cap."""
    return selection_bias(gamma=1.0, cap=table2.LONG, outcome=(0.0, 1.0))


def test_the_selection_bias_agrees_with_a_linear_solution(survival):
    # Without a cap the chance h to stay untreated solves h = M h + (ends), M the untreated transitions, and the policy
    # shown is expert(a|s) 1{untreated} E h(s'), scaled.
    sepsis = icu_sepsis.load()
    living, transitions = ~sepsis.process.absorbing, sepsis.process.transitions
    untreated = np.where(np.arange(25) % 5 == 0, sepsis.expert, 0.0)
    step = np.einsum("sa,sau->su", untreated, transitions)
    inside = np.eye(living.sum()) - step[np.ix_(living, living)]
    h = np.ones(len(living))
    h[living] = np.linalg.solve(inside, step[np.ix_(living, ~living)].sum(axis=1))
    survivors = np.linalg.solve(inside, step[living, icu_sepsis.SURVIVAL])
    weighted = untreated * (transitions @ h)
    total = weighted.sum(axis=1, keepdims=True)
    shown = np.where(total > 0, weighted / np.where(total > 0, total, 1), sepsis.expert)
    initial = sepsis.process.initial
    assert survival.share == pytest.approx(initial @ h, abs=1e-9)
    assert survival.mean_return == pytest.approx(initial[living] @ survivors / (initial @ h), abs=1e-9)
    worth = icu_sepsis.value(shown, gamma=1.0, cap=None, outcome=(0.0, 1.0))
    assert survival.policy_value == pytest.approx(worth, abs=1e-9)


def test_the_selection_bias_is_the_published_one(survival):
    # From an independent computation, to the digits that were noted.
    assert survival.share == pytest.approx(0.5186, abs=5e-5)
    assert survival.mean_return == pytest.approx(0.7947, abs=5e-5)
    assert survival.policy_value == pytest.approx(0.7855, abs=5e-5)
    assert survival.practice_value == pytest.approx(0.781845, abs=5e-7)
    assert survival.tv_second == pytest.approx(0.162, abs=5e-4)
    assert survival.tv_first == pytest.approx(0.080, abs=5e-4)
    assert survival.bias == pytest.approx(0.0092, abs=5e-5)


def test_the_selection_bias_under_a_cap_agrees_with_simulation():
    exact = selection_bias(gamma=0.99)
    log = icu_sepsis.simulate(4000, rng=5, lags=0)
    untreated = never_given(log)
    returns = log.returns(0.99)[untreated]
    # Four standard errors: about 1 of 16,000 correct seeds would fail.
    assert untreated.mean() == pytest.approx(exact.share, abs=4 * 0.5 / np.sqrt(4000))
    assert returns.mean() == pytest.approx(exact.mean_return, abs=4 * returns.std() / np.sqrt(len(returns)))
    assert exact.practice_value == pytest.approx(icu_sepsis.value(gamma=0.99))


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("table2")
    return run_units(table2.units(table2.SMOKE), folder, progress=False)


def test_errors_are_bias_and_variance(results):
    for key, found in results.items():
        for row in found.get("errors", ()):
            assert row["mse"] == pytest.approx(row["bias"] ** 2 + row["variance"], rel=1e-9), key


def test_the_same_policy_in_both_logs_has_weights_of_one(results):
    # In the random split the true target is the true behaviour policy: every estimator by weights is the plain mean.
    rows = [r for r in results["random-pair0"]["errors"] if (r["target"], r["model"]) == ("truth", "truth")]
    found = {row["estimator"]: row["mse"] for row in rows}
    for name in ("PHWIS", "WIS"):
        assert found[name] == pytest.approx(found["mean"], rel=1e-9)


def test_the_ground_truth_of_a_split_is_the_mean_return_of_its_first_part(results):
    rng = seed_of("table2", "random", 0)
    first, _ = random_split(icu_sepsis.simulate(60, rng=rng), rng=rng)
    assert results["random-pair0"]["truth"] == pytest.approx(first.returns(0.99).mean())


def test_a_deployed_policy_has_an_exact_value(results):
    found = results["deployed-pair0"]
    assert found["worth"] == pytest.approx(icu_sepsis.value(icu_sepsis.without_vasopressors(), gamma=0.99))
    assert found["exact_tv"] > 0
    assert results["intervention-pair0"]["exact_tv"] is None


def test_values_are_fitted_for_the_first_pairs_only(results):
    first, second = ({row["estimator"] for row in results[f"random-pair{i}"]["errors"]} for i in (0, 1))
    assert first - second == {"AM", "PHWDR"}


def test_tables_of_a_behaviour_model_are_distributions_with_a_chance_for_what_was_done():
    log = icu_sepsis.simulate(40, rng=0)
    for table in behaviour_tables("neighbours", log, folds=2, seed=0).values():
        assert table.sum(axis=1) == pytest.approx(1)
        assert (table[np.arange(log.n_steps), log.actions] > 0).all()


@pytest.fixture(scope="module")
def report(results):
    return table2.report(table2.SMOKE, results)


def test_the_report_holds_means_over_pairs(report, results):
    row = next(
        row
        for row in report.table(table2_report.ERRORS).records()
        if (row["design"], row["estimator"], row["fit"]) == ("random", "WIS", "cross")
    )
    wanted = {"target": "own", "model": "logistic", "fit": "cross", "estimator": "WIS"}
    errors = [
        r["mse"]
        for i in (0, 1)
        for r in results[f"random-pair{i}"]["errors"]
        if all(r[name] == value for name, value in wanted.items())
    ]
    assert len(errors) == 2
    assert row["logistic"] == pytest.approx(np.mean(errors))
    assert row["logistic se"] == pytest.approx(abs(errors[0] - errors[1]) / 2)


def test_the_error_against_the_exact_value_shifts_the_bias(report, results):
    row = next(
        row
        for row in report.table(table2_report.EVERYTHING).records()
        if [row[name] for name in ("design", "target", "model", "estimator")]
        == ["deployed", "truth", "truth", "WIS"]
    )
    exact = []
    for i in (0, 1):
        found = results[f"deployed-pair{i}"]
        (r,) = [
            x
            for x in found["errors"]
            if (x["target"], x["model"], x["estimator"]) == ("truth", "truth", "WIS")
        ]
        # V-hat - V = (V-hat - mean of the first log) + (mean of the first log - V)
        exact.append((r["bias"] + found["truth"] - found["worth"]) ** 2 + r["variance"])
    assert row["MSE against exact V"] == pytest.approx(np.mean(exact))


def test_where_the_policy_was_deployed_the_truth_is_exact(report, results):
    wanted = {"target": "own", "model": "logistic", "fit": "cross", "estimator": "WIS"}
    exact = []
    for i in (0, 1):
        found = results[f"deployed-pair{i}"]
        (r,) = [r for r in found["errors"] if all(r[name] == value for name, value in wanted.items())]
        exact.append((r["bias"] + found["truth"] - found["worth"]) ** 2 + r["variance"])
    row = next(
        row
        for row in report.table(table2_report.ERRORS).records()
        if (row["design"], row["estimator"], row["fit"]) == ("deployed", "WIS", "cross")
    )
    assert row["logistic"] == pytest.approx(np.mean(exact))


def test_the_parts_of_an_error_add_up_to_it(report):
    for title in (table2_report.PARTS, table2_report.EVERYTHING):
        for row in report.table(title).records():
            parts = row["bias"] ** 2 + row["variance between pairs"] + row["variance"]
            assert row["MSE"] == pytest.approx(parts, rel=1e-9)
    row = next(r for r in report.table(table2_report.PARTS).records() if r["design"] == "random")
    assert row["variance between pairs"] > 0  # two cohorts are not the same


def test_the_paper_has_one_number_for_values_alone(report):
    rows = [row for row in report.table(table2_report.ERRORS).records() if row["estimator"] == "AM"]
    assert [row["paper, no model"] for row in rows] == [0.177, 3.87, None]
    assert all(row["paper neighbours"] is None and row["paper network"] is None for row in rows)
    assert rows[0]["neighbours - paper"] == pytest.approx(rows[0]["neighbours"] - 0.177)


def test_the_report_says_the_selection_bias(report):
    said = "\n".join(report.findings)
    assert "probability 0.7947" in said
    assert "worth 0.7855" in said


def test_a_calibration_number_that_orders_models_as_their_errors_has_rank_correlation_one(results):
    made = copy.deepcopy(results)
    for found in made.values():
        for rank, score in enumerate(found.get("scores", ())):
            score["NLL"] = 10.0 - rank
            for row in found["errors"]:
                if (row["model"], row["fit"]) == (score["model"], score["fit"]):
                    row["bias"], row["variance"] = (
                        0.0,
                        100.0 - rank,
                    )  # falls with the number: rank correlation 1
    rows = table2.report(table2.SMOKE, made).table(table2_report.RANKS).records()
    splits = [row for row in rows if row["design"] == "random"]
    assert splits
    assert all(row["NLL"] == pytest.approx(1) for row in splits)


def made_up_ranks(results):
    """Every number orders the models as their errors do, but the trees spoil it."""
    made = copy.deepcopy(results)
    for found in made.values():
        for rank, score in enumerate(found.get("scores", ())):
            known = [name for name in NUMBERS if score[name] is not None]
            score |= dict.fromkeys(known, 100.0 if score["model"] == NEUTRAL else float(rank))
            for row in found["errors"]:
                if (row["model"], row["fit"]) == (score["model"], score["fit"]):
                    row["bias"] = found["worth"] - found["truth"] if found.get("worth") else 0.0
                    row["variance"] = 0.0 if score["model"] == NEUTRAL else float(rank)
    return made


def test_models_of_the_family_that_made_the_target_are_not_ranked(results):
    found = Found(table2.SMOKE, made_up_ranks(results))
    of_trees = correlate(found, NEUTRAL, ["WIS"], ["deployed"])
    assert of_trees.correlation == pytest.approx(dict.fromkeys(NUMBERS, 1.0))
    of_truth = correlate(found, "truth", ["WIS"], ["deployed"])
    assert all(x < 0.9 for x in of_truth.correlation.values())


def test_all_numbers_are_averaged_over_the_same_cells(results):
    found = Found(table2.SMOKE, results)
    each = correlate(found, NEUTRAL, ["PHWIS", "WIS"], found.pairs)
    # In the intervention split the true distance is not known: random and deployed, two pairs and estimators each.
    assert (each.cells, each.pairs) == (8, 4)
    alone = correlate(found, NEUTRAL, ["PHWIS", "WIS"], ["intervention"])
    assert alone.cells == 4
    assert set(alone.correlation) == {"NLL", "paper TV", "NA-TV excess"}
    said = table2.report(table2.SMOKE, results).findings[-1]
    assert "target extremely randomised trees" in said
    assert "target the true policy" in said


def test_the_standard_error_of_numbers_in_groups():
    # mean 2; the groups are off by -1 - 1 and 0 + 2, so sqrt(2 / 1 * (4 + 4)) / 4
    assert clustered_se([1.0, 1.0, 2.0, 4.0], ["a", "a", "b", "b"]) == pytest.approx(1.0)
    x = [0.3, 0.1, 0.9, np.nan]
    assert clustered_se(x, "abcd") == pytest.approx(np.std(x[:3], ddof=1) / np.sqrt(3))  # groups of one
    assert clustered_se([1.0, 2.0], "aa") is None


def test_whether_neighbours_do_better_is_said_with_its_error():
    def pair(near, network):
        rows = [
            {"target": "own", "model": m, "fit": fit, "estimator": "PHWIS", "bias": 0.0, "variance": x}
            for fit, both in (("same", near), ("cross", network))
            for m, x in zip(("neighbours", "network"), both, strict=True)
        ]
        return {"errors": rows}

    config = replace(table2.SMOKE, families=("neighbours", "network"), designs=("random",))
    # seen: differences -1 and -1.2, mean -1.1 and standard error 0.1; not seen: -3 and 1, mean -1 and 2
    made = {"random-pair0": pair((1.0, 2.0), (1.0, 4.0)), "random-pair1": pair((1.0, 2.2), (2.0, 1.0))}
    said = table2_report._compare_neighbours(Found(config, made))
    assert "random, same 1.00 and 2.10 (-1.10 +- 0.20)" in said
    assert "random, cross 1.50 and 2.50 (-1.00 +- 4.00)" in said


def test_on_a_readers_own_data_only_the_splits_are_made():
    keys = [unit.key for unit in table2.units(replace(table2.SMOKE, data="cohort.parquet", digest="0"))]
    assert keys == ["random-pair0", "intervention-pair0", "random-pair1", "intervention-pair1"]


def test_more_pairs_leave_those_that_are_done():
    few, many = (
        {unit.key: unit.fingerprint for unit in table2.units(replace(table2.SMOKE, pairs=pairs))}
        for pairs in (2, 5)
    )
    assert few.items() < many.items()
    with_values = table2.units(replace(table2.SMOKE, value_pairs=2))
    changed = [unit.key for unit in with_values if few[unit.key] != unit.fingerprint]
    assert changed == ["random-pair1", "intervention-pair1", "deployed-pair1"]  # these have more to do


def test_the_figure_has_a_panel_for_each_estimator(report):
    assert [axis.get_title() for axis in table2.figure(report).axes] == ["PHWIS", "WIS"]


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A configuration on a cohort file of forty stays, half of them without vasopressors."""
    path = write_cohort(tmp_path_factory.mktemp("cohort") / "cohort.parquet")
    return replace(table2.SMOKE, families=("neighbours",), value_pairs=0, data=str(path), digest="0")


def test_a_readers_own_cohort_is_split_and_has_no_truth(own):
    found = table2.one_pair("intervention", 0, own, values=False)
    assert found["worth"] is None
    assert found["scores"][0]["true TV"] is None
    assert {row["target"] for row in found["errors"]} == {"own", "trees"}
    # the first part is half of the twenty stays without vasopressors
    first, second = intervention_split(read_cohort(own.data), rng=seed_of("table2", "intervention", 0))
    assert (len(first), len(second)) == (10, 30)
    assert found["truth"] == pytest.approx(first.returns(0.99).mean())


def test_the_report_of_a_readers_own_cohort_claims_nothing_exact(own, tmp_path):
    report = table2.report(own, run_units(table2.units(own), tmp_path, progress=False))
    text = report.to_markdown()
    for words in ("exact", "true TV", "-15 or 15", "a cohort of its own", "simulated", "deployed"):
        assert words not in text, words
    assert table2_report.SELECTION not in [table.title for table in report.tables]
    assert "each another split of the cohort cohort.parquet" in report.table(table2_report.ERRORS).note
    assert len(table2.figure(report).axes) == 2
