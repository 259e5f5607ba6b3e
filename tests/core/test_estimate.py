import json

import numpy as np
import pytest

import caliope as cal
from conftest import random_evidence


@pytest.fixture(scope="module")
def e():
    return random_evidence(seed=1, n=60)


def test_a_row_is_the_estimator_its_bootstrap_and_its_checks(e):
    row = cal.estimate(e, cal.wis, cal.dr, n_draws=300, rng=0)["wis"]
    interval = cal.bootstrap(cal.wis, e, n_draws=300, rng=0)
    assert row.value == cal.wis(e)
    assert (row.interval.low, row.interval.high) == pytest.approx((interval.low, interval.high), rel=1e-12)
    assert row.n == 60
    assert row.effective_n == pytest.approx(cal.weights.effective_n(e))
    assert row.verdict == "do not trust"  # below 100 effective trajectories


def test_all_rows_share_one_set_of_draws(e):
    alone = cal.estimate(e, cal.wis, n_draws=100, rng=7)[0].interval
    among = cal.estimate(e, cal.monte_carlo, cal.phwdr, cal.wis, n_draws=100, rng=7)["wis"].interval
    assert (alone.low, alone.high) == (among.low, among.high)


def test_estimators_of_one_name_are_told_apart_by_a_number(e):
    one, two = (lambda e: cal.wis(e)), (lambda e: 2 * cal.wis(e))
    table = cal.estimate(e, one, cal.wis, two, n_draws=10, rng=0)
    assert [row.name for row in table] == ["lambda", "wis", "lambda (2)"]
    assert table["lambda (2)"].value == 2 * cal.wis(e)
    assert table["lambda"].value == cal.wis(e)


def test_without_names_practice_stands_beside_the_estimates(e):
    assert [row.name for row in cal.estimate(e, n_draws=10, rng=0)] == [
        "monte_carlo",
        "wis",
        "phwis",
        "dm",
        "wdr",
        "phwdr",
    ]
    plain = cal.Evidence(e.rewards, e.log_ratio, e.offsets)
    assert [row.name for row in cal.estimate(plain, n_draws=10, rng=0)] == ["monte_carlo", "wis", "phwis"]


def test_the_table_travels_as_json_and_as_a_frame(e):
    table = cal.estimate(e, cal.wis, cal.difference(cal.wis), n_draws=50, rng=0)
    found = json.loads(table.to_json())
    assert [row["name"] for row in found["rows"]] == ["wis", "difference_wis"]
    assert found["rows"][0]["value"] == table[0].value
    assert found["rows"][0]["interval"]["method"] == "bootstrap, percentile"
    assert table.to_frame()["value"].to_list() == [row.value for row in table]


def test_a_level_and_a_scheme_reach_the_interval(e):
    narrow, wide = (cal.estimate(e, cal.wis, n_draws=200, level=x, rng=0)[0].interval for x in (0.5, 0.99))
    assert wide.low < narrow.low < narrow.high < wide.high
    assert (
        cal.estimate(e, cal.wis, n_draws=20, scheme=cal.uncertainty.bayesian, rng=0)[0].interval.method
        == "Bayesian bootstrap"
    )


def test_resampling_needs_a_seed(e):
    with pytest.raises(TypeError, match="rng"):
        cal.estimate(e, cal.wis)


def test_evidence_with_counts_is_refused(e):
    with pytest.raises(ValueError, match="already carries counts"):
        cal.estimate(e.with_counts(np.ones(60)), cal.wis, n_draws=5, rng=0)
