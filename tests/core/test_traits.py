"""Estimators are judged by the traits they declare."""

import functools
from dataclasses import replace

import numpy as np
import pytest

import caliope as cal
from caliope._traits import Traits, estimator, label, name_of, traits_of
from caliope.checks import find, verdict
from caliope.checks._estimates import examine
from caliope.weights._effective import weigh_trajectories
from conftest import ESTIMATORS, random_evidence

ALL = ESTIMATORS | {"magic": cal.estimators.magic}
NOTES = tuple(
    replace(find(code), texts={"": f"a note about {code}"}).finding(
        "caution", **({"removed": 0.5} if code[0] == "W" else {})
    )
    for code in ("B104", "W102", "V103", "S101")
)
CUT = np.arange(400) % 3 > 0
EVIDENCES = {
    "ragged": random_evidence(n=400, spread=0.1),
    "equal": random_evidence(n=400, spread=0.1, equal=True),
    "few": random_evidence(n=40, spread=1.0),
    "cut off": random_evidence(n=400, spread=0.1, terminated=CUT),
    "noted": random_evidence(n=400, spread=0.1, notes=NOTES, behaviour_known=True),
}
WITHOUT_VALUES = random_evidence(n=400, spread=0.1, q=None, v=None)


def own_dr(e):
    """Doubly robust, written anew."""
    return e.total(e.sum_steps(e.rho * e.residual + e.rho_before * e.v)) / e.n


def scaled(e, k=1.0):
    """Scaled weighted importance sampling."""
    return k * cal.wis(e)


def codes(f, e):
    return {finding.code: finding.level for finding in examine(f, e)}


@pytest.mark.parametrize(
    ("name", "uses", "normalised", "by_step", "lengths"),
    [
        ("monte_carlo", "", False, False, None),
        ("ois", "weights", False, False, None),
        ("step_is", "weights", False, True, None),
        ("wis", "weights", True, False, None),
        ("step_wis", "weights", True, True, None),
        ("phis", "weights", False, False, None),
        ("phwis", "weights", True, False, "behaviour"),
        ("step_phwis", "weights", True, True, "behaviour"),
        ("dm", "values", False, False, None),
        ("dr", "values weights", False, True, None),
        ("wdr", "values weights", True, True, None),
        ("phwdr", "values weights", True, True, "behaviour"),
        ("magic", "values weights", True, True, None),
    ],
)
def test_every_estimator_declares_what_its_formula_reads(name, uses, normalised, by_step, lengths):
    traits = traits_of(ALL[name])
    assert " ".join(sorted(traits.uses)) == uses
    assert (traits.normalised, traits.by_step, traits.lengths) == (normalised, by_step, lengths)
    assert traits.declared


@pytest.mark.parametrize("name", ALL)
def test_what_is_declared_is_what_is_read(name):
    e, traits = random_evidence(n=20, equal=True), traits_of(ALL[name])
    value = ALL[name](e)
    other = np.random.default_rng(1).normal(size=len(e.rewards))
    assert (ALL[name](replace(e, log_ratio=other)) != value) == traits.weighted
    assert (ALL[name](replace(e, q=other, v=other + 1)) != value) == traits.valued
    # A common factor in the weights of a step cancels where they are normalised, and only there.
    doubled = ALL[name](replace(e, log_ratio=e.log_ratio + np.log(2)))
    assert (doubled == pytest.approx(value)) == (traits.normalised or not traits.weighted)


def test_labels_are_those_of_the_tables():
    assert label(cal.wis) == "Weighted importance sampling"
    assert label(cal.phwis) == "Per-horizon weighted importance sampling"
    assert label(cal.per_horizon(cal.estimators.magic)).startswith("Per-horizon MAGIC: ")
    assert label(cal.difference(cal.wdr)) == "Weighted doubly robust, minus current practice"
    by_target = cal.per_horizon(cal.wis, length_weights="evaluation")
    assert label(by_target) == "Per-horizon weighted importance sampling, lengths of the target"


@pytest.mark.parametrize("of", EVIDENCES)
@pytest.mark.parametrize(
    "name", ["dr", "wdr", "wis", "step_wis", "phwis", "phwdr", "dm", "monte_carlo", "ois"]
)
def test_an_estimator_with_the_traits_of_ours_gets_the_findings_of_ours(name, of):
    e, ours = EVIDENCES[of], ALL[name]

    @estimator(traits_of(ours))
    def mine(e):
        """My own."""
        return ours(e)

    found, expected = examine(mine, e), examine(ours, e)
    assert [str(finding) for finding in found] == [str(finding) for finding in expected]
    assert label(mine) == "My own"


@pytest.mark.parametrize("of", EVIDENCES)
def test_an_own_doubly_robust_estimator_that_declares_itself_is_judged_like_ours(of):
    @estimator(label="Doubly robust, written anew", uses={"weights", "values"}, by_step=True)
    def mine(e):
        return own_dr(e)

    for lift in (lambda f: f, cal.difference, cal.per_horizon):
        found, expected = examine(lift(mine), EVIDENCES[of]), examine(lift(cal.dr), EVIDENCES[of])
        assert [str(finding) for finding in found] == [str(finding) for finding in expected]


@pytest.mark.parametrize("of", EVIDENCES)
@pytest.mark.parametrize("name", ["monte_carlo", "ois", "step_is", "wis", "dm", "dr", "wdr", "magic"])
def test_hiding_an_estimator_does_not_improve_its_verdict(name, of):
    e, order = EVIDENCES[of], ["trust", "caution", "do not trust"]
    hidden, shown = (verdict(examine(f, e)) for f in (lambda e: ALL[name](e), ALL[name]))
    assert order.index(hidden) >= order.index(shown)


def test_an_undeclared_estimator_is_judged_cautiously():
    traits = traits_of(own_dr)
    assert traits.uses == {"weights", "values"}
    assert not traits.normalised
    assert not traits.declared
    # Cut-off trajectories may count as ended, or be continued by values; the values may be all that is read.
    assert codes(own_dr, EVIDENCES["cut off"]).keys() >= {"D110", "D112", "D109", "B101"}
    assert codes(own_dr, EVIDENCES["noted"])["W102"] == "issue"
    assert {"B104", "V103", "S101"} <= codes(own_dr, EVIDENCES["noted"]).keys()
    # Nothing about values where there are none.
    bare = replace(WITHOUT_VALUES, terminated=CUT)
    assert codes(scaled, bare).keys() & {"D109", "D110", "D112"} == {"D110"}
    # It needs the effective trajectories of a weighted mean, not those of an unweighted one.
    few = random_evidence(n=60, spread=0.0, equal=True, q=None, v=None)
    assert codes(lambda e: cal.monte_carlo(e), few)["D101"] == "issue"
    assert "D101" not in codes(cal.monte_carlo, few)


def test_an_undeclared_estimator_is_not_taken_for_an_average_over_lengths():
    assert not codes(scaled, EVIDENCES["ragged"]).keys() & {"D105", "D106", "D107", "D108"}
    assert "D107" in codes(cal.per_horizon(scaled), EVIDENCES["ragged"])


@pytest.mark.parametrize("k", [2.0, 3])
def test_a_partial_is_estimated_and_goes_by_its_settings(k):
    e = EVIDENCES["noted"]
    row = cal.estimate(e, functools.partial(scaled, k=k), n_draws=20, rng=0)[f"scaled(k={k:g})"]
    assert row.value == pytest.approx(k * cal.wis(e))
    assert row.label == f"Scaled weighted importance sampling (k={k:g})"
    both = cal.estimate(e, functools.partial(scaled, k=2), functools.partial(scaled, k=5), n_draws=9, rng=0)
    assert [row.name for row in both] == ["scaled(k=2)", "scaled(k=5)"]


def test_a_partial_has_the_traits_of_its_function():
    declared = estimator(uses={"weights"}, normalised=True)(lambda e, k: k * cal.wis(e))
    traits = traits_of(functools.partial(declared, k=2.0))
    assert (traits.uses, traits.normalised, traits.declared) == ({"weights"}, True, True)
    assert traits.label == "lambda (k=2)"
    assert traits_of(functools.partial(cal.wis)) == traits_of(cal.wis)


def test_names_of_functions_without_one():
    class Objective:
        """An estimator with a state."""

        def __call__(self, e):
            return cal.wis(e)

    assert (name_of(Objective()), label(Objective())) == ("Objective", "An estimator with a state")
    assert name_of(cal.difference(lambda e: cal.wis(e))) == "difference_lambda"
    assert name_of(functools.partial(scaled, k=np.arange(1000))).startswith("scaled(k=array([")
    assert name_of(functools.partial(scaled, k=cal.wis)) == "scaled(k=wis)"
    table = cal.estimate(EVIDENCES["ragged"], lambda e: cal.wis(e), Objective(), n_draws=9, rng=0)
    assert [row.name for row in table] == ["lambda", "Objective"]


def test_what_wraps_an_estimator_has_its_traits():
    @functools.wraps(cal.wis)
    def capped(e):
        return cal.wis(cal.weights.clip_weights(e, at=2.0))

    assert traits_of(capped) == traits_of(cal.wis)


def test_an_average_over_lengths_derives_its_traits():
    for name in ("wis", "step_wis", "wdr", "dm"):
        for lengths in ("behaviour", "evaluation"):
            lifted, inner = cal.per_horizon(ALL[name], length_weights=lengths), traits_of(ALL[name])
            expected = replace(inner, label=label(lifted), lengths=lengths, core=ALL[name])
            assert traits_of(lifted) == expected
    assert traits_of(cal.phis).lengths is None  # the mean of the means by length is the mean


def test_a_difference_carries_the_traits_of_both_sides():
    traits = traits_of(cal.difference(cal.monte_carlo, cal.phwis))
    assert not traits.weighted
    assert [side.lengths for side in traits.sides] == [None, "behaviour"]
    e = EVIDENCES["few"]
    assert np.array_equal(weigh_trajectories(traits, e), weigh_trajectories(traits_of(cal.phwis), e))
    # Of a difference of differences nothing is forgotten, nor below an average over lengths.
    nested = cal.difference(cal.difference(cal.monte_carlo, cal.dr), cal.difference(cal.dm, cal.wis))
    assert [side.core for side in traits_of(nested).against] == [cal.dr, cal.dm, cal.wis]
    inside = traits_of(cal.per_horizon(cal.difference(cal.wis, cal.wdr)))
    assert [side.lengths for side in inside.sides] == ["behaviour", "behaviour"]


def test_an_own_average_over_lengths_is_tested_with_the_lengths_of_the_target(lengthy):
    from conftest import LENGTHY_B, LENGTHY_E

    data = lengthy.simulate(LENGTHY_B, 2000, rng=0)
    e = cal.gather(data, cal.TabularPolicy(LENGTHY_E), data["behaviour"], gamma=0.9)

    @estimator(uses={"weights"}, normalised=True, lengths="behaviour")
    def mine(e):
        return cal.phwis(e)

    assert codes(mine, e)["D107"] == codes(cal.phwis, e)["D107"] == "issue"


def test_leaving_one_out_of_a_declared_average_over_lengths_keeps_its_digits():
    # One trajectory outweighs its length by 1e18: subtracting it leaves nothing of the others.
    ratios = np.array([1e18, 1.0, 2.0, 1.0, 1.0, 1.0])
    e = cal.Evidence([9.0, 1.0, 4.0, 0.5, 0.5, 0.5], np.log(ratios), [0, 1, 2, 3, 4, 6])
    exact = cal.uncertainty.leave_one_out(cal.phwis, e)
    assert exact[0] == pytest.approx((3 * (1 + 8 + 0.5) / 4 + 1) / 4)
    declared = estimator(traits_of(cal.phwis))(lambda e: cal.phwis(e))
    for f in (declared, lambda e: cal.phwis(e)):
        assert np.array_equal(cal.uncertainty.leave_one_out(f, e), exact)


@pytest.mark.parametrize("uses", ["weights", {"rewards"}, ["weights"], None])
def test_traits_that_nobody_knows_are_refused(uses):
    with pytest.raises(ValueError, match="uses must be a set of 'weights' and 'values'"):
        Traits("mine", uses=uses)
    with pytest.raises(ValueError, match="lengths must be None"):
        Traits("mine", uses=set(), lengths="target")


@pytest.mark.parametrize("name", ["phwis", "step_wis", "wis", "monte_carlo"])
def test_nobody_gains_trust_by_hiding_an_estimator(name):
    e = random_evidence(n=600, spread=0.05, behaviour_known=True)
    hidden = examine(lambda e: ALL[name](e), e)
    assert ("D114", "caution") in [(finding.code, finding.level) for finding in hidden]
    assert verdict(hidden) != "trust"
    assert "D114" not in [finding.code for finding in examine(ALL[name], e)]


def test_the_decorator_wants_traits_and_not_the_function():
    with pytest.raises(TypeError, match="takes traits, not the function itself"):
        estimator(ALL["wis"])
    with pytest.raises(TypeError, match="no trait 'use'; the traits are label, uses"):
        estimator(use={"weights"})
