"""Values and differences by stratum: the headline's formula on its trajectories, and what is too small to show."""

import json
from dataclasses import replace

import numpy as np
import pytest

import caliope as cal
from caliope._audit._basis import gather_basis
from caliope._audit._inputs import check_question
from caliope._audit._settings import Stages
from caliope._audit._simultaneous import correlations, critical_value
from caliope._audit._subgroups import Subgroups, TooFew, estimate_subgroups
from caliope.behaviour import TabularFrequencies
from caliope.checks import D103, D104, D116, D118
from caliope.checks._bias import bias_factor
from caliope.domains import ward
from caliope.uncertainty._dependence import few_clusters_factor
from caliope.uncertainty._intervals import influence
from caliope.values import TabularRegressor
from support.naive import imbalance as naive_imbalance

MODELS = {"frequencies": TabularFrequencies()}
TARGET = cal.TabularPolicy(ward.EARLIER)
OPTIONS = {"regressor": TabularRegressor(), "n_draws": 20, "learnt_on": "no"}


def severities(data):
    return np.where(data.states[:, 0] < 2, "mild", np.where(data.states[:, 0] < 4, "ill", "worst"))


@pytest.fixture(scope="module")
def data():
    return ward.simulate(700, rng=2)


@pytest.fixture(scope="module")
def prepared(data):
    return cal.prepare_audit(data, MODELS, by=severities(data), recorded_before="all", rng=0)


@pytest.fixture(scope="module")
def audit(prepared):
    return prepared.audit(TARGET, **OPTIONS)


def basis_of(prepared, target):
    asked = check_question(prepared.inputs, target, about=None, worst=None, learn=None, **OPTIONS)
    return gather_basis(prepared, asked, Stages())


@pytest.fixture(scope="module")
def basis(prepared):
    return basis_of(prepared, TARGET)


def estimated(basis, prepared, strata=None, **options):
    options = {"level": 0.95, "rng": np.random.default_rng(0)} | options
    strata = prepared.inputs.strata if strata is None else strata
    return estimate_subgroups(basis, prepared.data, strata, **options)


def naive_wdr(e):
    """The weighted doubly robust sum by loops: an ended trajectory keeps its last weight."""
    n, horizon, total = len(e), e.layout.horizon, 0.0
    for t in range(horizon):
        below = sum(e.rho[e.layout.first[i] + min(t, e.layout.lengths[i] - 1)] for i in range(n))
        before = (
            sum(e.rho[e.layout.first[i] + min(t - 1, e.layout.lengths[i] - 1)] for i in range(n)) if t else n
        )
        for i in range(n):
            if t < e.layout.lengths[i]:
                at = e.layout.first[i] + t
                total += e.gamma**t * e.rho[at] / below * (e.rewards[at] - e.q[at])
                total += e.gamma**t * (e.rho[at - 1] if t else 1.0) / before * e.v[at]
    return total


def test_a_stratum_has_the_formula_of_the_headline_on_its_trajectories(basis, prepared):
    found = estimated(basis, prepared)
    first = prepared.inputs.strata[prepared.data.layout.first]
    assert [row.name for row in found.table] == ["ill", "mild"]
    for row in found.table:
        members = np.flatnonzero(first == row.name)
        value = naive_wdr(basis.marginalised.take(members))
        practice = np.mean([basis.evidence.returns[i] for i in members])
        assert row.value.value == pytest.approx(value)
        assert row.practice == pytest.approx(practice)
        assert row.difference.value == pytest.approx(value - practice)
        assert row.n == len(members)
        weights = basis.marginalised.take(members).final_weight
        assert row.effective_n == pytest.approx(weights.sum() ** 2 / (weights**2).sum(), abs=1e-5)


def test_intervals_hold_together_and_have_at_least_the_error_of_plain_weights(basis, prepared):
    found = estimated(basis, prepared)
    first = prepared.inputs.strata[prepared.data.layout.first]
    gain, every, arms = cal.difference(cal.wdr), [], []
    for row in found.table:
        members = np.flatnonzero(first == row.name)
        parts = [x.take(members) for x in (basis.marginalised, basis.normalised, basis.evidence)]
        for estimator in (cal.wdr, gain):
            se = 0.0
            for e in parts[:2]:
                total = sum(u**2 for u in influence(estimator, e))
                se = max(se, np.sqrt(total) / len(members))
            spread = np.zeros(700)
            spread[members] = influence(estimator, parts[0])
            every.append(spread)
            moved = float(estimator(parts[0])) - float(estimator(parts[2]))
            bias = max(abs(moved), naive_imbalance(parts[0]))
            arms.append(se * few_clusters_factor(row.effective_n, 0.95) * bias_factor(bias, se, 0.95))
    c = critical_value(correlations(np.array(every)), level=0.95, rng=np.random.default_rng(1))
    assert found.critical == pytest.approx(c, abs=0.05)
    rows = [x for row in found.table for x in (row.value, row.difference)]
    for row, arm in zip(rows, arms, strict=True):
        assert row.interval.high - row.value == pytest.approx(found.critical * arm)
        assert row.value - row.interval.low == pytest.approx(found.critical * arm)


def test_too_few_is_said_and_not_shown_and_the_limit_is_that_of_d101(prepared):
    # Practice has equal weights: the effective sample size is the number of trajectories.
    basis = basis_of(prepared, cal.practice)
    owner = prepared.data.layout.owner
    strata = np.where(owner < 100, "enough", np.where(owner < 199, "short", "rest"))
    found = estimated(basis, prepared, strata)
    assert [row.name for row in found.table] == ["enough", "rest"]
    assert found.few == (TooFew("short", 99, 99.0),)
    assert found.few_text == "Not shown, with fewer than 100 effective trajectories: short (99 of 99)."
    assert [row.difference.value for row in found.table] == [0.0, 0.0]


def test_nothing_is_shown_where_all_are_too_small(basis, prepared):
    found = estimated(basis, prepared, prepared.data.layout.owner)
    assert not len(found.table)
    assert len(found.few) == 700
    assert found.few_text.endswith("and 688 more.")
    assert str(found) == found.few_text
    assert estimate_subgroups(basis, prepared.data, None, level=0.9, rng=np.random.default_rng(0)) is None


def test_a_stratum_is_judged_by_the_rule_of_the_headline(basis, prepared):
    found = estimated(basis, prepared)
    first = prepared.inputs.strata[prepared.data.layout.first]
    gain = cal.difference(cal.wdr)
    for row in found.table:
        members = np.flatnonzero(first == row.name)
        for estimator, each in ((cal.wdr, row.value), (gain, row.difference)):
            # The share of the squared standard error that one trajectory makes up, by its influences in the stratum.
            u = influence(estimator, basis.marginalised.take(members))
            (seen,) = (f for f in each.findings if f.check == D118)
            assert seen.facts["share"] == pytest.approx((u**2).max() / (u**2).sum())
            assert seen.level == ("caution" if seen.facts["share"] >= 0.1 else "note")
            name = str(prepared.data.ids[members[np.abs(u).argmax()]])
            assert seen.facts["trajectory_name"] == name
            # What is settled by that is no caution of its own.
            assert all(f.level == "note" for f in each.findings if f.check in (D103, D104))


def test_only_the_first_decision_counts(basis, prepared):
    strata = prepared.inputs.strata.copy()
    later = np.ones(len(strata), dtype=bool)
    later[prepared.data.layout.first] = False
    strata[later] = "something else"
    assert str(estimated(basis, prepared, strata)) == str(estimated(basis, prepared))


def test_findings_name_trajectories_of_the_stratum(basis, prepared):
    strata, data = prepared.inputs.strata, prepared.data
    found = estimated(basis, prepared)
    named = [(row.name, f) for row in found.table for f in row.findings if "trajectory_name" in f.facts]
    assert named
    for name, finding in named:
        i = [str(x) for x in data.ids].index(finding.facts["trajectory_name"])
        assert strata[data.layout.first[i]] == name


def test_what_widens_the_whole_widens_its_strata(basis, prepared):
    plain, wide = estimated(basis, prepared), estimated(basis, prepared, widen=1.5)
    for a, b in zip(plain.table, wide.table, strict=True):
        assert b.difference.interval.width == pytest.approx(1.5 * a.difference.interval.width)
    worst = estimated(basis, prepared, worst=-200.0)
    for a, b in zip(plain.table, worst.table, strict=True):
        assert b.value.interval.low < a.value.interval.low
        assert "given" in next(f for f in b.findings if f.check == D116).variants


@pytest.mark.slow
def test_clusters_across_strata_are_kept_together(data, audit):
    clustered = data.replace(cluster=np.arange(700) // 4)
    by = np.array(["even", "odd"])[clustered.layout.owner % 2]
    found = cal.audit(clustered, TARGET, MODELS, by=by, recorded_before="all", rng=0, **OPTIONS).subgroups
    # Of 175 clusters each stratum has two trajectories.
    assert all(30 < row.difference.effective_clusters < 175 for row in found.table)
    assert all(row.difference.effective_clusters is None for row in audit.subgroups.table)


@pytest.mark.slow
def test_it_does_not_matter_in_which_order_the_log_stands(data, audit):
    order = np.random.default_rng(0).permutation(700)
    other = data.part(order)
    found = cal.audit(other, TARGET, MODELS, by=severities(other), recorded_before="all", rng=0, **OPTIONS)
    assert str(found.subgroups) == str(audit.subgroups)


@pytest.mark.slow
def test_an_audit_shows_its_subgroups(audit, tmp_path):
    text = str(audit)
    assert "By stratum of the first decision; all intervals hold together:" in text
    assert "Not shown, with fewer than 100 effective trajectories: worst" in text
    content = json.loads(audit.to_json())["subgroups"]
    assert [row["stratum"] for row in content["rows"]] == ["ill", "mild"]
    assert content["too_few"][0]["stratum"] == "worst"
    assert audit.subgroups.table.to_frame()["stratum"].to_list() == ["ill", "mild"]
    assert repr(audit.subgroups) == "Subgroups(ill, mild; 1 with too few)"
    page = audit.write_html(tmp_path / "page.html").read_text()
    assert 'id="subgroups"' in page
    assert "worst (" in page
    axis = audit.plot("subgroups").axes[0]
    assert len(axis.collections) == 2
    # The line at 0, and that of the whole log.
    assert (
        len([line for line in axis.lines if len(set(line.get_xdata())) == 1 and len(line.get_xdata()) == 2])
        == 2
    )


@pytest.mark.slow
def test_without_strata_there_are_none(data):
    found = cal.audit(data[:150], TARGET, MODELS, recorded_before="all", rng=0, **OPTIONS)
    assert found.subgroups is None
    assert "By stratum" not in str(found)
    assert 'id="subgroups"' not in cal.report.report_html(found)
    assert json.loads(found.to_json())["subgroups"] is None


@pytest.mark.slow
def test_names_are_escaped(audit):
    odd = Subgroups(audit.subgroups.table, (TooFew("<i>x", 5, 2.0),), 2.0)
    assert "<i>x" not in odd._repr_html_()
    assert "&lt;i&gt;x" in odd._repr_html_()
    page = cal.report.report_html(replace(audit, subgroups=odd))
    assert "<i>x (2 of 5)" not in page
    assert "&lt;i&gt;x (2 of 5)" in page
