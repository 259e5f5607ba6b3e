"""Figure 1: its numbers from a smoke run, and its verdict from numbers made by hand."""

import numpy as np
import pytest

from caliope.domains.toy_map import HEADING, ROAMING, simulate
from reproduction import figure1
from reproduction._runs import run_units, seed_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("figure1")
    return run_units(figure1.units(figure1.SMOKE), folder, progress=False)


def test_weights_from_the_true_policy_are_as_by_hand(results):
    log = simulate(60, policy=ROAMING, rng=seed_of("figure1", "roaming", 0, "log"))
    ratio = HEADING.predict_proba(log.states)[np.arange(log.n_steps), log.actions] / log["behaviour"]
    rho = ratio.reshape(60, 15).prod(axis=1)
    expected = (rho * log.returns()).sum() / rho.sum()
    assert results["roaming-seed0"]["truth"]["wis"] == pytest.approx(expected, rel=1e-12)


def test_a_model_without_a_probability_has_no_estimate(results):
    for key, found in results.items():
        for model in found.get("models", ()):
            assert (model["wis"] is None) == (model["zero_share"] > 0), key
            assert model["shrinkage"] == 0.0 or model["zero_share"] == 0


def test_the_report_holds_means_over_seeds(results):
    report = figure1.report(figure1.SMOKE, results)
    row = next(
        row for row in report.table(figure1.MODELS).records()
        if (row["behaviour policy"], row["training points"], row["k"], row["shrinkage"]) == ("astray", 900, 150, "1.0")
    )  # fmt: skip
    found = [results[f"astray-seed{seed}"] for seed in (0, 1)]
    model = [
        next(m for m in each["models"] if (m["walks"], m["k"], m["shrinkage"]) == (60, 150, 1.0))
        for each in found
    ]
    error = [m["wis"] / each["truth"]["wis"] - 1 for m, each in zip(model, found, strict=True)]
    assert row["mean |pi - pihat|"] == pytest.approx(np.mean([m["error"] for m in model]))
    assert row["WIS error"] == pytest.approx(np.mean(error))
    assert row["WIS sd"] == pytest.approx(abs(error[0] - error[1]) / np.sqrt(2))  # sd of two
    to_value = [m["wis"] / results["value"]["value"] - 1 for m in model]
    assert row["error to V"] == pytest.approx(np.mean(to_value))


def test_the_exact_value_is_that_of_the_domain(results):
    assert results["value"]["value"] == pytest.approx(5.325, abs=5e-4)  # the table of the domain
    assert results["value"]["error"] < 0.01


def made_up(costs, error):
    """Two seeds in which one model is off by so much of the true-weight estimate."""
    model = {"walks": 20, "k": 15, "shrinkage": 1.0, "error": error, "tv": 0.1, "zero_share": 0.0}
    logs = {
        f"{name}-seed{seed}": {
            "truth": {"wis": 4.0, "step_wis": 4.0, "effective_n": 30.0},
            "models": [model | {"wis": 4.0 * (1 + cost), "step_wis": 4.0}],
        }
        for name in figure1.BEHAVIOURS
        for seed, cost in enumerate(costs)
    }
    return logs | {"value": {"value": 5.0, "error": 0.0}}


@pytest.mark.parametrize(
    ("costs", "error", "words"),
    [
        # Two behaviours have one model each, with an estimate in each of two logs.
        ((-0.6, -0.5), 0.06, "(1 of 1 have estimates): mean absolute error of WIS 55% (signed -55%), over 50% in"),
        ((-0.6, 0.2), 0.06, "mean absolute error of WIS 40% (signed -20%), over 50% in 50% of 2 estimates"),
        ((-0.6, -0.6), 0.08, "0.065 (0 of 0 have estimates): no estimates."),
        ((-0.2, -0.1), 0.03, "below 0.04: mean absolute error of WIS 15% (signed -15%), over 50% in 0% of 2"),
    ],
)  # fmt: skip
def test_the_finding_follows_the_numbers(costs, error, words):
    report = figure1.report(figure1.SMOKE, made_up(costs, error))
    assert words in report.findings[1]
    row = report.table(figure1.ERRORS).records()[0]
    assert row["WIS error"] == pytest.approx(np.mean(costs))
    assert row["error to V"] == pytest.approx(4.0 * (1 + np.mean(costs)) / 5.0 - 1)
    assert row["over 50%"] == np.mean([abs(cost) > 0.5 + 1e-9 for cost in costs])


@pytest.mark.parametrize(
    ("costs", "words"),
    [
        # mean 0.7, standard error 0.1 / 2: 0.6 > 0.5
        ((-0.6, -0.8, -0.6, -0.8), "the smallest error that costs more than 50% by two standard errors is 0.060 (cost "
         "70%, standard error 6%)"),
        # mean 0.55, standard error 0.35 sqrt(4 / 3) / 2 = 0.2: a lucky draw
        ((-0.9, -0.2, -0.9, -0.2), "none costs more than 50% by two standard errors; the costliest model has an error "
         "of 0.060 (cost 55%, standard error 20%)"),
    ],
)  # fmt: skip
def test_a_threshold_is_more_than_a_lucky_draw(costs, words):
    config = figure1.Config(seeds=4)
    assert words in figure1.report(config, made_up(costs, 0.06)).findings[1]


def test_a_model_without_estimates_in_most_logs_makes_no_threshold():
    made = made_up((-0.8, -0.9, -0.8, -0.9), 0.06)
    for seed in (0, 1, 2):
        made[f"roaming-seed{seed}"]["models"][0]["wis"] = None
    _, roaming, astray = figure1.report(figure1.Config(seeds=4), made).findings
    assert "two standard errors" not in roaming
    assert roaming.endswith("3 of 4 estimates do not exist.")
    assert "by two standard errors is 0.060" in astray


def test_the_finding_and_the_table_count_the_same_models(results):
    made = made_up((-0.6, -0.7), 0.06)
    for name in figure1.BEHAVIOURS:
        for seed in (0, 1):
            models = made[f"{name}-seed{seed}"]["models"]
            models.append(models[0] | {"wis": None, "step_wis": None, "zero_share": 0.1})
    report = figure1.report(figure1.SMOKE, made)
    assert "(1 of 2 have estimates)" in report.findings[1]
    row = report.table(figure1.ERRORS).records()[0]
    assert (row["models"], row["with estimates"], row["estimates"]) == (2, 1, 2)


def test_the_figure_shows_both_references(results):
    drawing = figure1.figure(figure1.report(figure1.SMOKE, results))
    assert [axis.get_title() for axis in drawing.axes] == [
        "against WIS with the true policy",
        "against the exact value",
    ]
