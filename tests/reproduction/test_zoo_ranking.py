"""The zoo: rankings by hand, and a smoke run in which the truth comes first where it must."""

import numpy as np
import pytest

from reproduction import zoo
from reproduction._runs import run_units

pytestmark = pytest.mark.slow


def models(**numbers):
    """Name -> (a number, true total variation)."""
    return {name: {"NLL": x, "true TV": true} for name, (x, true) in numbers.items()}


def test_a_ranking_by_hand():
    found = zoo._rank(models(a=(1.0, 0.1), b=(3.0, 0.2), c=(2.0, 0.3), truth=(0.5, 0.0)), "NLL")
    # ranks 2 4 3 1 against 2 3 4 1: d^2 = 0 + 1 + 1 + 0, so 1 - 6 * 2 / (4 * 15)
    assert found.with_truth == pytest.approx(0.8)
    # without the truth 1 3 2 against 1 2 3: 1 - 6 * 2 / (3 * 8)
    assert found.without_truth == pytest.approx(0.5)
    assert not found.in_order
    assert found.finds_best
    assert found.place_of_truth == 1


def test_who_ties_with_the_truth_counts_as_before_it():
    found = zoo._rank(models(a=(0.5, 0.1), b=(0.6, 0.2), truth=(0.5, 0.0)), "NLL")
    assert found.place_of_truth == 2
    assert found.in_order


def test_infinite_numbers_have_a_rank():
    found = zoo._rank(models(a=(np.inf, 0.3), b=(2.0, 0.2), truth=(1.0, 0.0)), "NLL")
    assert found.with_truth == pytest.approx(1.0)


def test_a_number_that_is_the_same_for_all_orders_none():
    found = zoo._rank(models(a=(1.0, 0.3), b=(1.0, 0.2), truth=(1.0, 0.0)), "NLL")
    assert np.isnan(found.with_truth)
    assert found.place_of_truth == 3


def test_logs_of_one_policy_do_not_count_as_so_many():
    def ranked(x):
        return zoo._Ranking(x, x, True, True, 1)

    seeds = {"a": [ranked(0.1)] * 10, "b": [ranked(0.5)] * 10, zoo.HIDDEN: [ranked(0.9)] * 10}
    row = dict(zip(zoo._COLUMNS, zoo._summary("NLL", {"NLL": seeds}), strict=True))
    assert row["correlation"] == pytest.approx(0.3)
    # two policies: the standard deviation of 0.1 and 0.5 over sqrt 2, however many logs there are
    assert row["se"] == pytest.approx(0.2)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    config = zoo.SMOKE
    results = run_units(zoo.units(config), tmp_path_factory.mktemp("zoo"), progress=False)
    return zoo.report(config, results)


def test_likelihood_puts_the_truth_first_and_the_paper_does_not(report):
    rows = {row["number"]: row for row in report.table(zoo.SUMMARY).records()}
    assert list(rows) == list(zoo.METRICS)
    assert rows["NLL"]["truth first"] == 1
    assert rows["paper TV"]["truth first"] == 0


def test_hidden_sites_are_shown_and_not_counted(report):
    by_policy = report.table(zoo.WITH)
    assert by_policy.columns == ("number", "protocol", "sites")
    counted = {row["number"]: row["correlation"] for row in report.table(zoo.SUMMARY).records()}
    for row in by_policy.records():  # one policy is counted: its mean is the mean of all
        assert row["protocol"] == pytest.approx(counted[row["number"]])


def test_every_model_gives_every_action_a_chance(report):
    numbers = report.table("The numbers of every model").records()
    assert len(numbers) == 2 * 8
    assert all(np.isfinite(row["NLL"]) for row in numbers)
    assert all(row["true TV"] == 0 for row in numbers if row["model"] == "truth")


def test_the_figure_writes_every_correlation(report):
    drawing = zoo.figure(report)
    assert [len(axis.texts) for axis in drawing.axes] == [2 * len(zoo.METRICS)] * 2
