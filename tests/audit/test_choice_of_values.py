"""Which fitted values an audit uses: those of a kernel, unless trees have the clearly smaller standard error."""

import numpy as np
import pytest

import caliope as cal
from caliope._audit import _basis
from caliope._audit._basis import choose_values, standard_error
from caliope.behaviour import TabularFrequencies
from caliope.domains import ward
from caliope.values import TabularRegressor


def evidence_of(scale, clusters=None, n=200):
    """One step each, ratios 1, values 0: the standard error of WDR is that of the mean reward."""
    rewards = scale * np.random.default_rng(0).normal(size=n)
    nothing = np.zeros(n)
    return cal.Evidence(rewards, nothing, offsets=np.arange(n + 1), q=nothing, v=nothing, cluster=clusters)


def choose(trees, kernel):
    made = {0.0: trees, 1.0: kernel}
    tables = np.zeros((2, 3)), np.ones((2, 3))
    q, how, evidence, capped = choose_values(
        (tables[0], "trees, somehow"),
        (tables[1], "a kernel, somehow"),
        lambda q: (made[q[0, 0]], made[q[0, 0]]),
    )
    assert evidence is capped is made[q[0, 0]]
    return q, how


@pytest.mark.parametrize(("share", "kernel"), [(0.94, False), (0.96, True), (1.0, True), (2.0, True)])
def test_trees_are_chosen_below_95_percent_of_the_standard_error(share, kernel):
    q, how = choose(evidence_of(share), evidence_of(1.0))
    assert (q == 1).all() if kernel else (q == 0).all()
    se = standard_error(cal.wdr, evidence_of(1.0))
    numbers = f"trees {share * se:.4g}, kernel {se:.4g})"
    assert how.startswith("a kernel, somehow (kernel chosen" if kernel else "trees, somehow (trees chosen")
    assert how.endswith(numbers)


def test_the_standard_error_is_that_of_the_mean_by_cluster():
    rewards = evidence_of(1.0).rewards
    assert standard_error(cal.wdr, evidence_of(1.0)) == pytest.approx(rewards.std() / np.sqrt(200))
    clusters = np.arange(200) // 4
    sums = [(rewards[clusters == c] - rewards.mean()).sum() for c in range(50)]
    assert standard_error(cal.wdr, evidence_of(1.0, clusters)) == pytest.approx(
        np.sqrt(np.square(sums).sum()) / 200
    )


def test_equal_standard_errors_of_zero_choose_the_kernel():
    assert choose(evidence_of(0.0), evidence_of(0.0))[1].startswith("a kernel")


def run(data, **options):
    models = {"frequencies": TabularFrequencies()}
    return cal.audit(data, cal.TabularPolicy(ward.EARLIER), models, n_draws=20, rng=0, **options)


@pytest.mark.slow
def test_an_audit_says_which_values_were_chosen_and_is_the_same_again():
    data = ward.simulate(150, rng=0)
    first, again = run(data), run(data)
    assert first.headline.value == again.headline.value
    said = first.settings.values
    assert said == again.settings.values
    assert "chosen by standard error: trees" in said
    own = run(data, regressor=TabularRegressor()).settings.values
    assert own == "TabularRegressor, by step, cross-fitted 3 times"


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "name"), [(0.5, "ExtraTreesRegressor"), (2.0, "KernelRegressor")])
def test_the_chosen_values_are_those_of_the_estimates(monkeypatch, factor, name):
    found = []
    errors = iter([factor, 1.0])
    monkeypatch.setattr(_basis, "standard_error", lambda *_: next(errors))
    plain = _basis.choose_values
    monkeypatch.setattr(
        _basis, "choose_values", lambda *given: found.append((given, plain(*given))) or found[-1][1]
    )
    result = run(ward.simulate(100, rng=1))
    (trees, kernel, with_values), (q, how, *_) = found[0]
    assert how.startswith(name)
    assert q is (trees if factor < 1 else kernel)[0]
    row = next(each for each in result.table if each.name == "wdr_capped")
    assert row.value == pytest.approx(cal.wdr(with_values(q)[1]))
    assert result.settings.values == how


def test_decisions_without_a_sequel_have_both():
    data = ward.simulate(200, rng=0)
    first = data.layout.first
    single = cal.Trajectories(
        data.states[first], data.actions[first], data.returns(1.0), np.arange(201), n_actions=3
    )
    assert "1 rounds, cross-fitted 3 times (" in run(single).settings.values
