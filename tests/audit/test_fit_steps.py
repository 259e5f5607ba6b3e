"""How many decisions models are fitted on: chosen from the log, and a caution where they are few for it."""

import inspect

import pytest
from sklearn.linear_model import LogisticRegression

import caliope as cal
from caliope._audit import compare_behaviour
from caliope._audit._inputs import check_inputs, choose_fit_steps
from caliope.checks._audit import check_fitted_share
from caliope.domains import ward

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


def test_the_share_is_reported_by_the_preparation_unless_probabilities_were_logged():
    data = ward.simulate(200, rng=0)
    for logged, said in ((None, True), (data["behaviour"], False)):
        prepared = cal.prepare_audit(data, LOGISTIC, logged=logged, fit_steps=200, rng=0)
        assert any(finding.code == "A112" for finding in prepared.findings) == said
    whole = cal.prepare_audit(data, LOGISTIC, rng=0)
    assert not any(finding.code == "A112" for finding in whole.findings)
