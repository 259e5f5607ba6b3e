"""Several policies on one log: joint intervals, paired differences, and the best corrected for having been picked."""

import html
import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import caliope as cal
from caliope._audit._inputs import check_question
from caliope._audit._run import audit_with_basis
from caliope._audit._settings import Stages
from caliope._audit._several import Candidate, combine
from caliope._audit._simultaneous import correlations, critical_value, picked_value
from caliope._results import Interval
from caliope.behaviour import TabularFrequencies
from caliope.checks import A109, D101, D116, L108
from caliope.checks._bias import bias_factor
from caliope.domains import ward
from caliope.uncertainty._dependence import few_clusters_factor
from caliope.values import TabularRegressor

MODELS = {"frequencies": TabularFrequencies()}
TARGETS = {
    "earlier": cal.TabularPolicy(ward.EARLIER),
    "fewer": cal.tilt(cal.practice, [1.5, 1, 1]),
    "aggressive": cal.TabularPolicy(ward.AGGRESSIVE),
}
ANSWERS = {"learnt_on": "no", "recorded_before": "all"}


@pytest.fixture(scope="module")
def data():
    return ward.simulate(300, rng=1).replace(unit="patient")


@pytest.fixture(scope="module")
def found(data):
    return cal.compare(data, TARGETS, MODELS, regressor=TabularRegressor(), n_draws=200, rng=0, **ANSWERS)


@pytest.fixture(scope="module")
def candidates(data):
    prepared = cal.prepare_audit(data, MODELS, recorded_before="all", rng=0)
    options = {"regressor": TabularRegressor(), "n_draws": 200, "about": None, "worst": None, "learn": None}
    made = {}
    for name in ("earlier", "fewer"):
        asked = check_question(prepared.inputs, TARGETS[name], learnt_on="no", **options)
        made[name] = Candidate.of(*audit_with_basis(prepared, asked, Stages()))
    return made


# -- formulas --


def test_the_critical_value_is_that_of_the_multiplier_bootstrap():
    rng = np.random.default_rng(0)
    u = rng.standard_normal((3, 80)) @ np.diag(rng.random(80))
    u[2] = u[0] - u[1]
    largest = []
    for _ in range(4000):
        xi = rng.standard_normal(80)
        sums = [sum(xi[i] * u[k, i] for i in range(80)) / np.sqrt((u[k] ** 2).sum()) for k in range(3)]
        largest.append(max(map(abs, sums)))
    c = critical_value(correlations(u), level=0.95, rng=rng)
    # Standard error of the quantile of 4,000 draws: sqrt(.95 x .05 / 4000) / density, about .034 / .1 at most.
    assert c == pytest.approx(np.quantile(largest, 0.95), abs=4 * 0.03)
    assert c > 1.96


def test_numbers_that_never_change_do_not_widen_the_others():
    u = np.array([[1.0, -1.0, 2.0], [0.0, 0.0, 0.0]])
    assert critical_value(correlations(u), level=0.9, rng=np.random.default_rng(0)) == stats.norm.ppf(0.95)


def naive_picked(values, cov, n_draws, rng):
    """The correction by one draw of the errors after the other; the mean error of the best itself is 0."""
    j = max(range(len(values)), key=lambda k: values[k])
    means = []
    for k in range(len(values)):
        of_pair = np.sqrt(max(cov[j, j] + cov[k, k] - 2 * cov[j, k], 0.0))
        means.append(-max(values[j] - values[k] - of_pair, 0.0))
    total = 0.0
    for error in rng.multivariate_normal(np.zeros(len(values)), cov, size=n_draws):
        picked = max(range(len(values)), key=lambda k: means[k] + error[k])
        total += error[picked] - error[j]
    return values[j] - total / n_draws


@pytest.mark.parametrize("seed", range(4))
def test_the_correction_is_the_mean_error_of_what_is_picked(seed):
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((3, 3))
    cov, values = root @ root.T, rng.standard_normal(3)
    fast = picked_value(values, cov, rng=rng)
    slow = naive_picked(values, cov, 4000, rng)
    # An error of a pair has at most twice the largest standard deviation, over the root of 4,000 draws.
    assert fast == pytest.approx(slow, abs=4 * 2 * np.sqrt(np.diag(cov).max()) / np.sqrt(4000))
    assert fast <= values.max()


def test_the_corrected_best_of_equal_policies_is_not_overstated():
    rng, cov = np.random.default_rng(0), 0.5 * np.eye(3) + 0.5
    errors = []
    for _ in range(200):
        values = rng.multivariate_normal(np.zeros(3), cov)
        errors.append((values.max(), picked_value(values, cov, rng=rng)))
    before, after = np.array(errors).T
    # The mean of the largest of three with correlation 1/2 is .846 / sqrt(2) = .598; standard error about .07.
    assert before.mean() == pytest.approx(0.598, abs=0.21)
    assert abs(after.mean()) < 3 * after.std() / np.sqrt(200)
    assert (after**2).mean() < (before**2).mean()


def test_a_clear_winner_and_a_single_policy_are_not_corrected():
    rng = np.random.default_rng(0)
    assert picked_value(np.array([9.0, 0.0]), np.eye(2), rng=rng) == pytest.approx(9.0, abs=1e-3)
    assert picked_value(np.array([0.3]), np.eye(1), rng=rng) == 0.3
    # Two that always err alike are never picked by chance.
    assert picked_value(np.array([0.3, 0.1]), np.ones((2, 2)), rng=rng) == pytest.approx(0.3)


# -- the comparison --


@pytest.mark.slow
def test_each_policy_has_the_audit_of_its_own(found, data):
    alone = cal.audit(
        data, TARGETS["earlier"], MODELS, regressor=TabularRegressor(), n_draws=200, rng=0, **ANSWERS
    )
    assert found.audits["earlier"].headline.value == alone.headline.value
    assert found.audits["earlier"].gain.interval == alone.gain.interval
    assert found.table["earlier"].value.value == alone.headline.value


def test_intervals_are_those_of_the_audits_stretched_to_hold_together(found):
    factor = found.critical / stats.norm.ppf(0.975)
    assert factor > 1
    for name in ("earlier", "fewer"):
        gain, row = found.audits[name].gain, found.table[name].difference
        assert row.value - row.interval.low == pytest.approx(factor * (gain.value - gain.interval.low))
        assert row.interval.high - row.value == pytest.approx(factor * (gain.interval.high - gain.value))


def test_a_policy_that_is_refused_is_shown_and_never_picked(found):
    row = found.table["aggressive"]
    assert row.refused
    assert row.difference.withheld
    assert "withheld" in row.cells().values()
    assert row.reach.largest is None  # every share rests on a few patients that had the aggressive dose
    assert 0 < row.reach.usable < 1
    assert row.carries == f"{row.reach.usable:.0%}, caution"
    assert found.best.name == "earlier"
    assert found.best.among == 2
    assert [pair.name for pair in found.pairs] == ["earlier - fewer"]
    assert "aggressive" not in " ".join(found.sentences())


def test_a_caution_takes_part_and_an_issue_does_not(candidates):
    caution, issue = (
        D101.finding("note", "few", effective_n=150.0, n=300, limit=200).at(level)
        for level in ("caution", "issue")
    )

    def worse(name, finding):
        rows = tuple(
            replace(row, findings=(*row.findings, finding)) for row in candidates[name].audit.table.rows
        )
        audit = candidates[name].audit
        audit = replace(audit, table=replace(audit.table, rows=rows))
        return {**candidates, name: replace(candidates[name], audit=audit)}

    assert combine(worse("earlier", caution), rng=np.random.default_rng(0)).best.name == "earlier"
    other = combine(worse("earlier", issue), rng=np.random.default_rng(0))
    assert other.best.name == "fewer"
    assert other.best.among == 1
    assert not len(other.pairs)
    assert other.best.corrected == other.best.difference
    assert other.verdict != "do not trust"
    # One alone has the interval of its audit.
    assert other.table["fewer"].difference.interval.low == pytest.approx(
        candidates["fewer"].audit.gain.interval.low
    )


def test_where_none_can_be_evaluated_none_is_picked(candidates):
    finding = D101.finding("issue", "too-few", effective_n=15.0, n=300, limit=100)
    bad = {}
    for name, each in candidates.items():
        rows = tuple(replace(row, findings=(finding,)) for row in each.audit.table.rows)
        bad[name] = replace(each, audit=replace(each.audit, table=replace(each.audit.table, rows=rows)))
    found = combine(bad, rng=np.random.default_rng(0))
    assert found.best is None
    assert found.verdict == "do not trust"
    assert not len(found.pairs)
    assert "evaluate none of these policies" in str(found)
    assert json.loads(found.to_json())["best"] is None


def test_a_pair_is_the_difference_on_the_same_trajectories(candidates):
    a, b = candidates.values()
    found = combine(candidates, rng=np.random.default_rng(0))
    (pair,) = found.pairs
    own = plain = 0.0
    for i in range(len(a.marginalised)):
        own += (a.marginalised[i] - b.marginalised[i]) ** 2
        plain += (a.plain[i] - b.plain[i]) ** 2
    se = max(np.sqrt(own), np.sqrt(plain)) / 300
    off = sum(
        abs(x - y) * max(p, q)
        for x, y, p, q in zip(a.bias.off, b.bias.off, a.bias.error, b.bias.error, strict=True)
    )
    arm = found.critical * se * bias_factor(max(abs(a.bias.moved - b.bias.moved), off), se, 0.95)
    assert pair.value == a.audit.gain.value - b.audit.gain.value
    assert pair.interval.high - pair.value == pytest.approx(arm)
    assert pair.value - pair.interval.low == pytest.approx(arm)
    assert pair.cells()["policies"] == "earlier minus fewer"


def test_the_best_is_corrected_by_the_scatter_of_the_headline(candidates):
    each = candidates["earlier"]
    assert each.marginalised.sum() == pytest.approx(0, abs=1e-8)
    rows = np.array([x.marginalised for x in candidates.values()]) / 300
    covariance = np.array([[sum(a * b) for b in rows] for a in rows])
    values = np.array([x.audit.gain.value for x in candidates.values()])
    found = combine(candidates, rng=np.random.default_rng(0)).best
    assert found.corrected == pytest.approx(
        picked_value(values, covariance, rng=np.random.default_rng(1)), abs=0.02 * np.sqrt(covariance.max())
    )


def width(candidates):
    (pair,) = combine(candidates, rng=np.random.default_rng(0)).pairs
    return pair.interval.high - pair.value, pair.value - pair.interval.low


def with_gain(each, **changes):
    """A candidate whose difference from practice has other fields."""
    rows = tuple(
        replace(row, **changes) if row.name == each.audit.gain.name else row for row in each.audit.table.rows
    )
    return replace(each, audit=replace(each.audit, table=replace(each.audit.table, rows=rows)))


def test_what_widens_one_policy_widens_its_pairs(candidates):
    # Without a shift by the weights the factors are plain ones.
    each = replace(candidates["fewer"], bias=candidates["earlier"].bias)
    plain = width({**candidates, "fewer": each})[0]
    told = L108.finding("caution", "trajectories", factor=1.5, z=5.0, units_tested=300)
    near = with_gain(each, findings=(*each.audit.gain.findings, told))
    assert width({**candidates, "fewer": near})[0] == pytest.approx(1.5 * plain)
    learnt = replace(each, widen=np.sqrt(2))
    assert width({**candidates, "fewer": learnt})[0] == pytest.approx(np.sqrt(2) * plain)
    clustered = with_gain(each, effective_clusters=8.0)
    factor = few_clusters_factor(8.0, 0.95)
    assert width({**candidates, "fewer": clustered})[0] == pytest.approx(factor * plain)


def test_a_large_shift_by_the_weights_is_a_caution_of_the_pair(candidates):
    (pair,) = combine(candidates, rng=np.random.default_rng(0)).pairs
    each = candidates["fewer"]
    far = replace(each.bias, moved=candidates["earlier"].bias.moved + 1.0)
    (other,) = combine({**candidates, "fewer": replace(each, bias=far)}, rng=np.random.default_rng(0)).pairs
    assert pair.verdict == "trust"
    assert other.verdict == "caution"
    assert A109.code in {f.code for f in other.findings}


def test_a_worst_return_that_was_given_reaches_into_pairs(candidates):
    plain = width(candidates)
    each = candidates["earlier"]
    told = D116.finding("note", "given", by=0.1, effective_n=10.0, share=0.1, worst=-5.0, fall=3.0)
    far = with_gain(each, findings=(*each.audit.gain.findings, told))
    high, low = width({**candidates, "earlier": far})
    assert low == 3.0
    assert high == plain[0]
    each = candidates["fewer"]
    far = with_gain(each, findings=(*each.audit.gain.findings, told))
    high, low = width({**candidates, "fewer": far})
    assert high == 3.0
    assert low == plain[1]


def test_the_best_is_above_what_its_pairs_exclude(candidates):
    each = candidates["fewer"]
    far = with_gain(
        each, value=each.audit.gain.value - 1, interval=Interval(-1.2, -0.9, 0.95, "bootstrap, percentile")
    )
    found = combine({**candidates, "fewer": far}, rng=np.random.default_rng(0))
    assert found.best.above == ("fewer",)
    assert found.best.open == ()
    found = combine(candidates, rng=np.random.default_rng(0))
    assert found.best.above + found.best.open == ("fewer",)


@pytest.mark.slow
def test_practice_may_be_among_the_policies():
    targets = {"practice": cal.practice, "more": cal.tilt(cal.practice, [1, 1.5, 1])}
    log = ward.simulate(150, rng=3).replace(cluster=np.arange(150) // 3)
    found = cal.compare(log, targets, MODELS, regressor=TabularRegressor(), n_draws=20, rng=0)
    row = found.table["practice"]
    assert row.difference.value == 0
    assert row.difference.interval.width == 0
    assert row.carries == "is practice"
    assert found.pairs[0].effective_clusters is not None
    assert found.pairs[0].value == -found.table["more"].difference.value


def test_it_prints_and_becomes_frames(found):
    text = str(found)
    assert text.startswith("Verdict: ")
    assert "Corrected for having been picked" in text
    assert "Findings about aggressive:" in text
    assert "Differences between policies:" in text
    assert repr(found) == "PolicyComparison(earlier, fewer, aggressive; best='earlier', verdict='trust')"
    shown = found._repr_html_()
    assert "<table" in shown
    assert len(shown) < 30_000
    pytest.importorskip("matplotlib")
    assert shown.count("<svg") == 1
    assert "earlier: trust, on a condition that no log can show" in shown
    assert html.unescape(shown).count(found.sentences()[0]) == 1  # with its condition
    assert found.to_frame()["policy"].to_list() == list(TARGETS)
    assert np.isnan(found.to_frame()["low"].to_list()[2])
    assert found.to_markdown().startswith("| policy |")
    assert r"\toprule" in found.to_latex()
    content = json.loads(found.to_json())
    assert content["best"]["corrected"] < content["best"]["difference"]
    assert content["policies"][2]["difference"]["interval"]["low"] is None
    assert set(content["audits"]) == set(TARGETS)


@pytest.mark.slow
def test_answers_may_differ_and_what_all_policies_share_is_told_once(data):
    found = cal.compare(
        data,
        {"a": TARGETS["earlier"], "b": TARGETS["fewer"]},
        MODELS,
        regressor=TabularRegressor(),
        n_draws=20,
        learnt_on={"a": "no"},
        rng=0,
    )
    told = {whose: {f.code for f in each} for whose, each in found.reasons().items()}
    assert "Q104" in told["all policies"]
    assert "Q102" in told["b"]
    assert not {"Q102", "Q104"} & told.get("a", set())


def test_a_forest_plot_has_a_row_per_policy(found):
    axis = found.plot().axes[0]
    assert [label.get_text() for label in axis.get_yticklabels()] == list(TARGETS)
    assert "withheld" in [text.get_text() for text in axis.texts]
    # Without an interval where it is withheld.
    assert len(axis.collections) == 2
    assert found.plot(pairs=True).axes[0].get_xlabel() == "difference between policies"


def test_the_page_and_its_json(found, tmp_path):
    page = found.write_html(tmp_path / "page.html")
    text = page.read_text()
    assert "All policies" in text
    assert "Corrected" in text
    assert "About aggressive" in text
    assert f"Aggressive: {found.table['aggressive'].reach}." in text
    again = cal.report.draw_again(tmp_path / "page.json", tmp_path / "again.html")
    assert again.read_text() == text
    assert cal.report.comparison_html(found) == text
    with pytest.raises(ValueError, match=r"must end in \.html"):
        found.write_html(tmp_path / "page.txt")


def test_the_first_screen_of_the_page_asks_and_answers(found):
    text = cal.report.comparison_html(found)
    first = text[: text.index('id="table"')]
    best = found.best.name
    assert "The question: Which of 3 policies would achieve most, and more than current practice?" in first
    assert found.table[best].difference.condition in first
    assert first.index("The question:") < first.index("Best of the 2") < first.index("<svg")
    assert f"mean of {len(found.audits[best].data)} patients" in first
    assert f"{best}: difference" in first
    assert "on the same patients, so that" in text


@pytest.mark.slow
def test_strata_of_all_policies_are_printed_and_on_the_page(data):
    """They were computed and stood in the JSON alone."""
    by = np.where(np.repeat(np.arange(300) < 280, data.lengths), "most", "few")
    targets = {name: TARGETS[name] for name in ("earlier", "fewer")}
    options = {"regressor": TabularRegressor(), "n_draws": 20, "rng": 0}
    found = cal.compare(data, targets, MODELS, by=by, **options, **ANSWERS)
    strata = {name: audit.subgroups for name, audit in found.audits.items()}
    assert [(row.policy, row.name) for row in found.strata] == [("earlier", "most"), ("fewer", "most")]
    assert [row.difference for row in found.strata] == [s.table[0].difference for s in strata.values()]
    said = f"fewer: {strata['fewer'].few_text}"
    assert "few (" in said
    for text in (str(found), cal.report.comparison_html(found)):
        assert (
            "the intervals of one policy hold together, those of several do not".casefold() in text.casefold()
        )
        assert said in text
        assert strata["earlier"].table[0].difference.interval_text in text
    assert found.strata.to_frame()["policy"].to_list() == ["earlier", "fewer"]


def test_a_comparison_without_strata_is_silent_about_them(found):
    assert len(found.strata) == 0
    assert found.strata.lines() == []
    assert "stratum" not in cal.report.comparison_html(found)


def test_names_are_escaped_on_the_page(found):
    name = "<script>alert(1)</script>"
    rows = tuple(
        replace(row, name=name, difference=replace(row.difference, label=name))
        if row.name == "fewer"
        else row
        for row in found.table
    )
    text = cal.report.comparison_html(replace(found, table=replace(found.table, rows=rows)))
    assert "<script>" not in text
    assert "&lt;script&gt;" in text


# -- bad input --


@pytest.mark.parametrize(
    ("targets", "options", "error", "match"),
    [
        ([1, 2], {}, TypeError, "targets must name its policies"),
        ({"a": cal.practice}, {}, ValueError, "two policies at the very least, got 1"),
        ({"a": cal.practice, 3: cal.practice}, {}, TypeError, "by words, got 3"),
        ({"a": cal.practice, " ": cal.practice}, {}, TypeError, "by words, got ' '"),
        ({"a": cal.practice, "b": np.ones((2, 3))}, {}, ValueError, "policy 'b': "),
        ({"a": cal.practice, "b": dict}, {}, TypeError, "policy 'b': "),
        ({"a": cal.practice}, {"learn": {"a": TabularFrequencies()}}, ValueError, "both name 'a'"),
        ({"a": cal.practice}, {"learn": TabularFrequencies()}, TypeError, "learn must name"),
    ],
)
def test_bad_input_is_refused_in_one_line_before_anything_is_fitted(data, targets, options, error, match):
    class Broken(TabularFrequencies):
        def fit(self, *given, **more):
            raise AssertionError("fitted")

    with pytest.raises(error, match=match) as raised:
        cal.compare(data, targets, {"x": Broken()}, rng=0, **options)
    assert "\n" not in str(raised.value)


@pytest.mark.slow
def test_a_learner_is_compared_with_a_policy():
    log = ward.simulate(120, rng=5)
    found = cal.compare(
        log,
        {"earlier": TARGETS["earlier"]},
        MODELS,
        learn={"imitation": TabularFrequencies()},
        learnt_on="no",
        regressor=TabularRegressor(),
        n_draws=20,
        rng=0,
    )
    assert found.audits["imitation"].settings.target.startswith("learnt across")
    assert {"Q106"} <= {f.code for f in found.table["imitation"].findings}


def test_pairs_print_what_was_found_by_the_name_of_the_policy(found, candidates):
    assert any(f.level == "note" for row in found.pairs for f in row.findings)
    assert (
        str(found.pairs) == f"Differences between policies\n{found.pairs.grid()}"
    )  # notes are in the audits
    doubted = D101.finding("caution", n=300, effective_n=60.0)
    audit = candidates["fewer"].audit
    rows = tuple(
        replace(row, findings=(*row.findings, doubted)) if row.name == audit.gain.name else row
        for row in audit.table
    )
    fewer = replace(candidates["fewer"], audit=replace(audit, table=replace(audit.table, rows=rows)))
    pairs = combine({**candidates, "fewer": fewer}, rng=np.random.default_rng(0)).pairs
    text = str(pairs)
    assert text.count(doubted.message) == 1
    assert f"Findings about fewer:\n  {doubted}" in text


def test_what_a_pair_alone_shows_is_told_of_the_pair(candidates):
    # Both moved the same way by themselves, and apart by twice that.
    one, other = candidates["earlier"], candidates["fewer"]
    far = 10 * float(np.sqrt((one.marginalised**2).sum())) / one.audit.gain.n
    moved = {
        name: replace(each, bias=replace(each.bias, moved=shift))
        for name, each, shift in (("earlier", one, far), ("fewer", other, -far))
    }
    pairs = combine(moved, rng=np.random.default_rng(0)).pairs
    assert [f.check for f in pairs.about["earlier minus fewer"]] == [A109]
    assert "Findings about earlier minus fewer:" in str(pairs)
