"""How many decisions models are fitted on: chosen from the log, and a caution where they are few for it."""

import inspect

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import caliope as cal
from caliope._audit import compare_behaviour
from caliope._audit._curve import extrapolate, trace_curve
from caliope._audit._inputs import check_inputs, choose_fit_steps
from caliope.behaviour import fit_behaviour
from caliope.checks._audit import check_fitted_share
from caliope.domains import ward
from caliope.values import TabularRegressor

LOGISTIC = {"logistic": LogisticRegression()}


@pytest.mark.parametrize(
    ("steps", "fitted"),
    [
        (50, 100),
        (9_999, 9_999),
        (10_001, 10_000),
        (20_000, 10_000),
        (20_002, 10_001),
        (190_000, 95_000),
        (10**7, 100_000),
    ],
)
def test_a_small_log_is_fitted_on_whole_and_a_larger_one_by_half(steps, fitted):
    assert choose_fit_steps(steps) == fitted


def test_the_default_is_chosen_from_the_log():
    data = ward.simulate(300, rng=0)
    inputs = check_inputs(
        data, None, gamma=1.0, logged=None, by=None, level=0.95, fit_steps=None, rng=0, work=None
    )
    assert inputs.fit_steps == data.n_steps  # a few thousand
    for function in (cal.audit, cal.prepare_audit, compare_behaviour):
        assert inspect.signature(function).parameters["fit_steps"].default is None


@pytest.mark.parametrize(("fitted", "level"), [(2499, "caution"), (2500, None)])
def test_a_model_fitted_on_less_than_a_quarter_of_the_decisions_is_a_caution(fitted, level):
    found = check_fitted_share(fitted, 10_000)
    assert [finding.level for finding in found] == ([level] if level else [])
    if found:
        assert found[0].numbers == {"share": 0.2499, "fitted": 2499, "steps": 10_000}
        assert "fitted on 25.0% of the 10000 decisions" in found[0].message


@pytest.mark.slow
def test_the_share_is_reported_by_the_preparation_unless_probabilities_were_logged():
    data = ward.simulate(200, rng=0)
    for logged, said in ((None, True), (data["behaviour"], False)):
        prepared = cal.prepare_audit(data, LOGISTIC, logged=logged, fit_steps=200, rng=0)
        assert any(finding.code == "A112" for finding in prepared.findings) == said
    whole = cal.prepare_audit(data, LOGISTIC, rng=0)
    assert not any(finding.code == "A112" for finding in whole.findings)


# -- the learning curve --


def test_the_gain_is_extrapolated_from_a_loss_that_falls_with_the_root():
    steps = (100, 200, 800)
    losses = tuple(0.9 + 2 / n**0.5 for n in steps)
    assert extrapolate(steps, losses, 5000) == pytest.approx(2 * (800**-0.5 - 5000**-0.5))
    assert extrapolate(steps, losses[::-1], 5000) == 0


def test_the_curve_is_that_of_models_fitted_on_parts_and_judged_on_the_rest():
    data = ward.simulate(800, rng=1)
    which = np.arange(400)
    fitted = fit_behaviour(LOGISTIC["logistic"], data.part(which), mode="cross", rng=0)
    found = trace_curve(data, fitted.with_predictions_for(data), which, rng=np.random.default_rng(5))
    rng = np.random.default_rng(5)
    held_out, order = rng.permutation(np.arange(400, 800)), rng.permutation(which)
    total = 0
    kept = []
    for i in held_out:  # whole trajectories until 5,000 decisions are reached
        if total >= 5_000:
            break
        kept.append(i)
        total += data.lengths[i]
    rows = data.layout.rows_of(np.sort(kept))
    for share, n, loss in zip((1 / 8, 1), found.steps, found.losses, strict=True):
        part = data.layout.rows_of(np.sort(order[: int(share * 400)]))
        model = LogisticRegression().fit(data.states[part], data.actions[part])
        p = [x[a] for x, a in zip(model.predict_proba(data.states[rows]), data.actions[rows], strict=True)]
        assert (n, loss) == (len(part), pytest.approx(-np.mean(np.log(p)), abs=1e-9))
    assert found.total == data.n_steps


@pytest.mark.slow
def test_the_curve_and_its_advice_are_in_the_result_where_a_sample_was_fitted_on():
    data = ward.simulate(900, rng=0)
    found = cal.audit(
        data,
        cal.TabularPolicy(ward.EARLIER),
        LOGISTIC,
        regressor=TabularRegressor(),
        fit_steps=1500,
        n_draws=20,
        rng=0,
    )
    text = found.settings.to_dict()["learning curve"]
    assert text.startswith("held-out log loss by decisions fitted on: ")
    assert f"on all {data.n_steps} about" in text
    assert f"Learning curve: {text}." in str(found)
    few = next(finding for finding in found.findings if finding.code == "A112")
    assert few.facts["gain"] >= 0
    assert f"pass fit_steps={data.n_steps}" in few.message
    assert any(stage.name == "learning curve" for stage in found.stages)


@pytest.mark.slow
def test_there_is_no_curve_where_all_were_fitted_on_or_probabilities_were_logged():
    data = ward.simulate(200, rng=0)
    assert cal.prepare_audit(data, LOGISTIC, rng=0).curve is None
    assert cal.prepare_audit(data, LOGISTIC, logged=data["behaviour"], fit_steps=200, rng=0).curve is None


@pytest.mark.slow
def test_weights_are_fitted_on_a_sample_of_a_very_large_log_alone_and_the_audit_says_so(monkeypatch):
    data, options = ward.simulate(120, rng=0), {"regressor": TabularRegressor(), "n_draws": 20, "rng": 0}
    target = cal.TabularPolicy(ward.EARLIER)

    def said(found):
        rows = (found.headline, found.gain, *found.reach.table)
        return [f.message for row in rows for f in row.findings if f.code == "W108"]

    plain = cal.audit(data, target, LOGISTIC, fit_steps=200, **options)
    assert not any("The regression was fitted on" in text for text in said(plain))
    # As if 100,000 decisions were 300: the log has more.
    monkeypatch.setattr("caliope._audit._inputs._FIT_MOST", 300)
    large = cal.audit(data, target, LOGISTIC, fit_steps=200, **options)
    size = data.enough(300)
    assert 0 < size < len(data)
    assert all(f"The regression was fitted on {size} of the " in text for text in said(large))
    assert len(said(large)) == len(said(plain)) > 2
    assert large.headline.value != plain.headline.value
    assert large.headline.value == pytest.approx(plain.headline.value, abs=plain.headline.interval.width)
