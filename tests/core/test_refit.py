"""Intervals with the behaviour policy fitted again: against a plain loop, and against intervals that hold it fixed."""

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import caliope as cal
from caliope.behaviour import TabularFrequencies
from caliope.domains import ward
from caliope.uncertainty import refit
from caliope.uncertainty._refit import _fit_again

DIFFERENCE = cal.difference(cal.wis)
EXACT = LogisticRegression(tol=1e-10, max_iter=1000)
NEAR = 0.9 * ward.PRACTICE + 0.1 * ward.EARLIER


def naive_wis(data, target, behaviour, times):
    """Weighted importance sampling as a loop over the copies of a resample."""
    top = bottom = 0.0
    for i in range(len(data)):
        rho = 1.0
        for row in range(data.offsets[i], data.offsets[i + 1]):
            action, severity = data.actions[row], int(data.states[row, 0])
            rho *= target[severity, action] / behaviour.predict_proba(data.states[row : row + 1])[0, action]
        for _ in range(int(times[i])):
            top += rho * data.rewards[data.offsets[i] : data.offsets[i + 1]].sum()
            bottom += rho
    return top / bottom


def test_the_interval_is_that_of_a_plain_loop():
    data = ward.simulate(40, rng=3)
    rng, squares = np.random.default_rng(5), 0.0
    whole = EXACT.fit(data.states, data.actions)
    value = naive_wis(data, ward.EARLIER, whole, np.ones(40))
    for _ in range(5):
        times = cal.uncertainty.with_replacement(40, 40, 1, rng)[0]
        x, y = [], []
        for i in range(40):
            for _ in range(int(times[i])):  # copies, one after the other
                x += data.states[data.offsets[i] : data.offsets[i + 1]].tolist()
                y += data.actions[data.offsets[i] : data.offsets[i + 1]].tolist()
        model = LogisticRegression(tol=1e-10, max_iter=1000).fit(x, y)
        squares += (naive_wis(data, ward.EARLIER, model, times) - value) ** 2
    arm = stats.t.ppf(0.975, 5) * np.sqrt(squares / 5)
    target = cal.TabularPolicy(ward.EARLIER)
    (found,) = refit(data, EXACT, cal.wis, target=target, n_refits=5, rng=5)
    assert (found.low, found.high) == pytest.approx((value - arm, value + arm), abs=1e-6)
    assert found.method == "cheap bootstrap, 5 refits of LogisticRegression"


@pytest.mark.parametrize("mode", ["same", "cross"])
def test_weights_and_repeated_rows_are_the_same_resample(mode):
    data = ward.simulate(200, rng=0)
    counts = cal.uncertainty.with_replacement(200, 200, 1, np.random.default_rng(1))[0]
    rows = np.flatnonzero(counts[data.layout.owner] > 0)
    tables = [
        _fit_again(model, data, counts, mode=mode, folds=5, rng=np.random.default_rng(2))[rows]
        for model in (EXACT, _without_weights(EXACT))
    ]
    assert tables[0] == pytest.approx(tables[1], abs=1e-5)


class _Plain(LogisticRegression):
    """A logistic model whose fit takes no weights."""

    def fit(self, X, y):
        return super().fit(X, y)


def _without_weights(model):
    return _Plain(**model.get_params())


def test_no_copy_of_a_trajectory_is_in_two_folds():
    data = ward.simulate(60, rng=0)
    counts = cal.uncertainty.with_replacement(60, 60, 1, np.random.default_rng(1))[0]

    class Remembers(_Plain):
        def fit(self, X, y, groups):
            self.seen = set(groups)
            seen.append(self.seen)
            return super().fit(X, y)

    seen = []
    _fit_again(Remembers(), data, counts, mode="cross", folds=5, rng=np.random.default_rng(0))
    whole, *parts = seen
    assert whole == set(np.flatnonzero(counts))
    # Each trajectory of the resample is left out of exactly one fold.
    assert all(sum(i not in part for part in parts) == 1 for i in whole)


def test_a_difference_near_practice_gets_the_interval_that_it_needs():
    data = ward.simulate(1000, rng=1)
    fitted = cal.fit_behaviour(LogisticRegression(), data, mode="same")
    e = cal.gather(data, cal.TabularPolicy(NEAR), fitted)
    fixed = [cal.uncertainty.delta_method(f, e) for f in (cal.wis, DIFFERENCE)]
    new = refit(data, LogisticRegression(), cal.wis, DIFFERENCE, target=cal.TabularPolicy(NEAR), rng=0)
    # Over 150 logs the standard deviation of this difference was twice the standard error with fixed weights; with 20
    # refits the length varies by 16%.
    assert new[1].width > 1.5 * fixed[1].width
    assert new[0].width == pytest.approx(fixed[0].width, rel=0.5)


def test_practice_minus_practice_is_exactly_zero_whatever_is_fitted():
    data = ward.simulate(100, rng=0)
    (found,) = refit(data, TabularFrequencies(), DIFFERENCE, target=cal.practice, n_refits=5, rng=0)
    assert (found.low, found.high) == pytest.approx((0.0, 0.0), abs=1e-12)


def test_pipelines_values_and_relative_targets_are_taken():
    data = ward.simulate(150, rng=0)
    model = make_pipeline(StandardScaler(), LogisticRegression())
    target = cal.tilt(cal.practice, [1, 2, 1.5])
    q = np.full((data.n_steps, 3), 0.5)
    found = refit(data, model, cal.wdr, cal.wis, target=target, mode="cross", q=q, n_refits=5, rng=0)
    assert len(found) == 2
    assert all(0 < interval.width < 1 for interval in found)
    assert found[0].method.endswith("of LogisticRegression")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_refits": 4}, "n_refits must be at least 5, got 4"),
        ({"level": 1.0}, "level must lie between 0 and 1"),
        ({"mode": "other"}, "mode must be 'same' or 'cross'"),
    ],
)
def test_bad_settings_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        refit(ward.simulate(20, rng=0), EXACT, cal.wis, target=cal.practice, rng=0, **change)


def test_without_estimators_there_is_nothing_to_do():
    with pytest.raises(TypeError, match="refit needs estimators"):
        refit(ward.simulate(20, rng=0), EXACT, target=cal.practice, rng=0)
