"""Practice that depends on the past or the order of the log: the audit tries models that see it, and says whether."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import caliope as cal
from caliope._audit._opened import compare_behaviour
from caliope._audit._remedy import _by_cost
from caliope.behaviour import NeighbourPolicy, TabularFrequencies, candidate_models, fit_other_models
from caliope.behaviour._extended import ExtendedBehaviour, Extension
from caliope.domains import ward

STEPS = 4
LOGISTIC = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
MODELS = {"logistic": LOGISTIC}


def target(x):
    p = 1 / (1 + np.exp(-0.5 * x[:, 0]))
    return np.stack([1 - p, p], axis=1)


class Target:
    classes_ = np.arange(2)

    def predict_proba(self, x):
        return target(np.asarray(x))


def simulate(n, rng, *, habit=0.0, drift=0.0, twist=0.0, policy=None):
    """One feature, two actions; repeating the last action has a habit's odds, and pays; practice and gains drift."""
    rng = np.random.default_rng(rng)
    x, last, when, rows = rng.normal(size=n), np.full(n, -1), (np.arange(n) + 0.5) / n, []
    for _ in range(STEPS):
        repeat = np.where(last < 0, 0.0, 2.0 * last - 1)
        logit = x + habit * repeat + drift * (when - 0.5) + twist * repeat * x
        p = 1 / (1 + np.exp(-logit)) if policy is None else policy(x[:, None])[:, 1]
        a = (rng.random(n) < p).astype(int)
        reward = a * (0.5 + 0.3 * x) + 0.5 * (a == last) + drift * (when - 0.5) + 0.5 * rng.normal(size=n)
        rows.append((x, a, reward))
        x, last = 0.5 * x + 0.3 * a + 0.8 * rng.normal(size=n), a
    states, actions, rewards = (np.stack(part, axis=1).ravel() for part in zip(*rows, strict=True))
    return cal.Trajectories(states[:, None], actions, rewards, np.arange(n + 1) * STEPS, n_actions=2)


@pytest.fixture(scope="module")
def habit():
    return simulate(600, 1, habit=0.8)


@pytest.fixture(scope="module")
def found(habit):
    return cal.audit(habit, Target(), MODELS, n_draws=200, rng=0)


def codes(findings):
    return {finding.code: finding for finding in findings}


def test_history_is_added_and_the_value_covers(found):
    assert found.comparison.recommended == "logistic, with history"
    assert found.settings.behaviour == "logistic, with history, cross-fitted"
    assert found.settings.candidates == ("logistic", "logistic, with history")
    seen = codes(found.findings)
    assert "B107" not in seen
    assert seen["B109"].level == "caution"
    assert "With the past as further columns" in seen["B109"].message
    assert abs(seen["B109"].numbers["before"]) > 5 > seen["B109"].numbers["z"]
    truth = simulate(100_000, 7, habit=0.8, policy=target).returns().mean()
    practice = simulate(100_000, 8, habit=0.8).returns().mean()
    assert errors(found.headline, truth) < 3
    assert errors(found.gain, truth - practice) < 3


def errors(estimate, truth):
    """Distance from the truth in standard errors: the half width of a 95% interval is 1.96 of them."""
    low, high = estimate.interval.low, estimate.interval.high
    return abs(estimate.value - truth) / (high - low) * 2 * 1.96


def test_without_the_remedy_the_same_question_misses(habit, found):
    plain = cal.fit_behaviour(LOGISTIC, habit, mode="cross", rng=0)
    evidence = cal.gather(habit, Target(), plain)
    assert "B107" in codes(evidence.notes)
    truth = simulate(100_000, 7, habit=0.8, policy=target).returns().mean()
    assert errors(cal.estimate(evidence, cal.wis, n_draws=200, rng=0)["wis"], truth) > 3


def test_only_models_that_see_as_much_are_other_choices(found):
    assert {row.model.split(", ")[0] + ", with history" for row in found.others} == {"logistic, with history"}
    assert all(", with history" in row.model for row in found.others)


@pytest.mark.slow
def test_the_order_is_added_and_the_value_covers():
    data = simulate(600, 2, drift=2.5)
    found = cal.audit(data, Target(), MODELS, n_draws=200, rng=0)
    assert found.comparison.recommended == "logistic, with order"
    assert {"B107", "B108"}.isdisjoint(codes(found.findings))
    assert "the order of the log" in codes(found.findings)["B109"].message
    truth = simulate(100_000, 7, drift=2.5, policy=target).returns().mean()
    assert errors(found.headline, truth) < 3


@pytest.mark.slow
def test_a_habit_that_depends_on_the_state_is_learnt_too():
    # Repeats where the feature is positive, changes where it is negative.
    models = compare_behaviour(simulate(600, 3, twist=1.5), MODELS, rng=0)
    assert "is high after action" in codes(models.comparison["logistic"].findings)["B107"].message
    assert models.comparison.recommended == "logistic, with history"


@pytest.mark.slow
def test_what_the_models_cannot_learn_stays_an_issue(habit):
    stiff = {"logistic": LogisticRegression(C=1e-4)}
    found = cal.audit(habit, Target(), stiff, n_draws=20, rng=0)
    seen = codes(found.findings)
    assert seen["B107"].level == "issue"
    assert found.verdict == "do not trust"
    assert "do not pass the same tests either" in seen["B109"].message
    assert "logistic, with history and order" in found.comparison.details


def test_a_right_model_is_left_alone():
    data = simulate(600, 4)
    stages = []
    models = compare_behaviour(data, MODELS, rng=0, progress=stages.append)
    assert list(models.fitted) == ["logistic"]
    assert stages == ["checking the log", "fitting behaviour models: logistic", "comparing them"]
    assert "B109" not in codes(models.findings)


@pytest.mark.slow
def test_calibrate_says_the_same(habit, found, tmp_path):
    for _ in range(2):  # the second time from what was kept
        models = compare_behaviour(habit, MODELS, rng=0, work=tmp_path)
        assert models.comparison.recommended == "logistic, with history"
        assert "B107" in codes(models.comparison["logistic"].findings)
        assert "B107" not in codes(models.comparison["logistic, with history"].findings)
        assert codes(models.findings)["B109"].numbers == codes(found.findings)["B109"].numbers
        assert "logistic: log loss" in str(models.comparison)
        assert "ruled out by the tests of practice" in str(models.comparison)
    again = cal.audit(habit, Target(), MODELS, n_draws=200, rng=0, work=tmp_path)
    assert again.headline.value == found.headline.value


def test_logged_probabilities_are_not_tested(habit):
    prepared = cal.prepare_audit(habit, MODELS, logged=np.full(habit.n_steps, 0.5), rng=0)
    assert list(prepared.models.fitted) == ["logistic"]


@pytest.mark.slow
def test_a_long_log_is_fitted_on_a_part():
    prepared = cal.prepare_audit(simulate(1500, 1, habit=0.8, drift=2.5), MODELS, fit_steps=3000, rng=0)
    data, chosen = prepared.data, prepared.chosen
    assert chosen.added == "history and order"
    assert len(prepared.models.fitted_on) == 750
    assert chosen.data is data
    part = data[np.arange(0, 1500, 7)]
    assert np.array_equal(chosen.on(part), chosen.probabilities[data.layout.rows_of(np.arange(0, 1500, 7))])
    small = prepared.models.recommended
    assert np.array_equal(small.on(data), chosen.probabilities)
    quick = {"regressor": Ridge(), "n_draws": 20}  # which values, does not matter here
    assert prepared.audit(Target(), **quick).headline.value == pytest.approx(
        cal.audit(data, Target(), MODELS, fit_steps=3000, rng=0, **quick).headline.value
    )


def extended(data, model=LOGISTIC, **added):
    extension = Extension.of(data, **({"past": False, "order": False} | added))
    return ExtendedBehaviour.fit(
        lambda log: cal.fit_behaviour(model, log, mode="cross", rng=0), data, extension
    )


def test_states_alone_have_no_past(habit):
    fitted = extended(habit, past=True)
    with pytest.raises(TypeError, match=r"depends on more than the state .added: history.*model.on.data."):
        fitted.predict_proba(habit.states)
    new = simulate(50, 9, habit=0.8)
    wide = fitted.extension.extend(new)
    assert fitted.on(new) == pytest.approx(fitted.model.predict_proba(wide.states))
    assert fitted.with_predictions_for(new).probabilities == pytest.approx(fitted.on(new))


def test_the_order_of_a_file_is_no_calendar(habit):
    new = simulate(50, 9)
    fitted = extended(habit, order=True)
    with pytest.raises(ValueError, match=r"50 of 50 trajectories are not in that log .first: 0.*calendar="):
        fitted.on(new)
    dated = extended(habit.replace(calendar=np.arange(600) + 0.5), order=True)
    late = dated.on(new.replace(calendar=np.full(50, 599.5)))
    assert late.shape == (200, 2)
    assert not np.allclose(late, dated.on(new.replace(calendar=np.full(50, 0.5))))


def test_the_columns_are_those_of_the_past_and_the_whole_order(habit):
    extension = Extension.of(habit, past=True, order=True)
    wide = extension.extend(habit)
    assert len(set(wide.feature_names)) == wide.states.shape[1]
    half = habit[300:]
    assert np.allclose(extension.extend(half).states, wide[300:].states, atol=1e-9)
    row = habit.offsets[5] + 2
    by_name = dict(zip(wide.feature_names, wide.states[row], strict=True))
    assert by_name["previous x0"] == habit.states[row - 1, 0]
    assert by_name["mean x0"] == pytest.approx(habit.states[row - 2 : row].mean())
    assert by_name[f"previous action {habit.actions[row - 1]}"] == 1
    assert by_name["rank in the log"] == pytest.approx(5.5 / 600)
    first = dict(zip(wide.feature_names, wide.states[habit.offsets[5]], strict=True))
    assert first["previous x0"] == first["previous action 0"] == first["previous action 1"] == 0


def test_variants_of_extended_models_are_fitted_on_the_same_columns(habit):
    fitted = extended(habit, make_pipeline(StandardScaler(), NeighbourPolicy(50)), past=True)
    others = fit_other_models({"near": fitted}, "near", fitted, rng=0)
    assert list(others) == ["near", "near, k = 25", "near, k = 100", "near, temperature", "near, same data"]
    assert all(each.added == "history" for each in others.values())


def test_models_for_few_columns_are_tried_only_if_there_are_no_others():
    candidates = candidate_models(ward.simulate(50, rng=0))
    assert _by_cost(candidates) == [["logistic", "forest"], ["pool and neighbours"]]
    assert _by_cost({"frequencies": TabularFrequencies()}) == [["frequencies"]]
