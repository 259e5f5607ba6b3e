"""Audits: what no other test would show to be wrong."""

import sys
import warnings
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

import caliope as cal
from caliope._audit import (
    BehaviourModels,
    _basis,
    _benchmark,
    _curve,
    _estimates,
    _inputs,
    _opened,
    _other_logs,
    _parts,
    _run,
    _settings,
    _several,
    _whole,
)
from caliope._audit._about import About
from caliope._audit._answers import _LISTED, _list
from caliope._audit._compare import Names, name_facts
from caliope._audit._comparison import PolicyComparison
from caliope._audit._given_order import in_given_order
from caliope._audit._learn import check_folds
from caliope._audit._placebo import Placebo
from caliope._audit._prepare import PreparedAudit
from caliope._audit._remedy import ALL, Trial
from caliope._audit._requirements import check_limits
from caliope._audit._result import Audit
from caliope._audit._settings import AuditSettings
from caliope._audit._subgroups import Subgroup
from caliope._cache import Cache
from caliope._policies import MixWithPractice
from caliope._results import Estimate, Interval, Table
from caliope.checks import D104, L101, L105, L108, W106
from caliope.domains import ward
from caliope.io._doses import RecommendedDoses


@pytest.mark.parametrize(("more", "end"), [(0, ""), (1, " and 1 more"), (2, " and 2 more")])
def test_names_beyond_those_that_are_listed_are_counted(more, end):
    names = [f"x{i}" for i in range(_LISTED + more)]
    assert _list(names) == "x0, x1, x2, x3, x4" + end


@pytest.mark.parametrize(("features", "fits"), [(50, ["trees", "kernel"]), (51, ["trees"])])
def test_a_kernel_is_tried_for_values_of_up_to_fifty_features(features, fits, monkeypatch):
    monkeypatch.setattr(_basis, "average_default_values", lambda *given, **options: "trees")
    monkeypatch.setattr(_basis, "average_kernel_values", lambda *given, **options: "kernel")
    prepared = SimpleNamespace(
        inputs=SimpleNamespace(cache=Cache.of(None), gamma=1.0, seed=0),
        models=SimpleNamespace(fitted_on=np.arange(3)),
        chosen=SimpleNamespace(added=()),
    )
    data = SimpleNamespace(states=np.zeros((3, features)))
    assert _basis._fit_values(prepared, SimpleNamespace(regressor=None), np.zeros((3, 2)), data) == fits
    assert _basis._fit_values(prepared, SimpleNamespace(regressor="own"), np.zeros((3, 2)), data) == ["trees"]


def test_a_yardstick_that_has_not_converged_warns_of_nothing(monkeypatch):
    """It is a rough measure; the warning would name a model that the user has never seen."""
    monkeypatch.setattr(_benchmark, "_ROUNDS", 1)
    data = ward.simulate(100, rng=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert _benchmark.benchmark_columns(data, np.full((data.n_steps, data.n_actions), 1 / 3))


def test_behaviour_models_are_printed_with_what_was_found():
    found = SimpleNamespace(comparison="the table", findings=("one", "two"))
    assert BehaviourModels.__str__(found) == "the table\none\ntwo"


@pytest.mark.parametrize(("place", "number"), [(None, 1), (np.array([7, 3]), 3)])
def test_a_finding_names_the_place_of_a_trajectory_in_the_file(place, number):
    data = ward.simulate(5, rng=0)
    whole = Names(np.array(["ann", "bob"]), place)
    found = name_facts(D104.finding("caution", share=0.3, trajectory=1), data, whole)
    assert (found.facts["trajectory"], found.facts["trajectory_name"]) == (number, "bob")


def said_of(best, **more):
    difference = SimpleNamespace(
        text="0.1 [0.0, 0.2]", verdict_text="trust", interval=SimpleNamespace(width=0.2)
    )
    best = SimpleNamespace(name="half", difference=0.1, corrected=0.08, **(best | more))
    return PolicyComparison.sentences(
        SimpleNamespace(best=best, table={"half": SimpleNamespace(difference=difference)})
    )


@pytest.mark.parametrize(
    ("above", "open_", "last"),
    [
        (["all"], [], "It is above all."),
        ([], ["none", "all"], "The log does not tell it apart from none, all."),
        (["all"], ["none"], "It is above all. The log does not tell it apart from none."),
    ],
)
def test_the_best_policy_is_told_apart_from_those_that_it_is_above(above, open_, last):
    lines = said_of({"above": above, "open": open_, "among": 3})
    assert lines[1].startswith(
        "Best of the 3 policies that this log can evaluate: half, with a difference from"
    )
    assert "Corrected for having been picked, it is +0.08" in lines[2]
    assert lines[3] == last


def test_of_a_single_policy_nothing_was_picked():
    lines = said_of({"above": [], "open": [], "among": 1})
    assert len(lines) == 2
    assert lines[1].startswith("The only policy that this log can evaluate: half, ")


def test_a_model_that_gives_no_logged_action_a_chance_has_no_learning_curve(monkeypatch):
    data = ward.simulate(400, rng=0)
    monkeypatch.setattr(_curve, "_predict", lambda model, wide, part, rows: np.zeros((len(rows), 3)))
    even = np.full((data.n_steps, 3), 1 / 3)
    chosen = SimpleNamespace(widen=lambda log: log, model=None, probabilities=even)
    given = {"fitted_on": np.arange(200), "rng": np.random.default_rng(0)}
    assert _curve.trace_curve(data, chosen, **given) is None
    monkeypatch.setattr(_curve, "_predict", lambda model, wide, part, rows: even[rows])
    assert _curve.trace_curve(data, chosen, **given).losses == pytest.approx((np.log(3), np.log(3)))


def test_an_audit_in_the_order_of_the_file_stays_as_it_is():
    data = ward.simulate(5, rng=0)
    audit = SimpleNamespace(data=data)
    assert in_given_order(audit, data) is audit


@pytest.mark.parametrize(("plain", "ends"), [(0.15, (0.35, 0.65)), (0.05, (0.4, 0.6))])
def test_an_interval_has_at_least_the_error_of_plain_weights(plain, ends, monkeypatch):
    """An error of 0.1 with marginalised weights: half as much again where plain weights have 0.15, never less."""
    e = cal.Evidence([0.0, 1.0, 1.0], np.zeros(3), np.arange(4), q=np.zeros(3), v=np.zeros(3))
    basis = SimpleNamespace(marginalised=e, normalised=replace(e, gamma=0.5))
    monkeypatch.setattr(_estimates, "standard_error", lambda f, given: 0.1 if given is e else plain)
    row = Estimate("wdr", "WDR", 0.5, Interval(0.4, 0.6, 0.95, "normal", ()), 3, 3.0)
    found = _estimates._with_plain_weights(
        row, cal.wdr, basis, W106.finding("note", "agree", d=0, se=1, z=0, share=0)
    )
    assert (found.interval.low, found.interval.high) == pytest.approx(ends)
    told = next(f for f in found.findings if f.check == W106)
    assert told.facts["factor"] == pytest.approx(max(plain / 0.1, 1.0))


def test_a_value_in_a_message_is_cut_beyond_sixty_characters():
    assert _inputs._short("x" * 58) == repr("x" * 58)  # and two quotation marks
    assert len(_inputs._short("x" * 59)) <= 60


def test_the_share_of_the_log_on_which_each_policy_is_learnt_is_said():
    found = check_folds(ward.simulate(5, rng=0), 1.2)
    assert found.facts == {
        "folds": 5,
        "share": pytest.approx(0.8),
        "factor": 1.2,
        "unit": found.facts["unit"],
    }


def test_some_certain_decisions_are_no_placeholder():
    data = ward.simulate(20, rng=0)
    known = np.full(data.n_steps, 0.4)
    known[0] = 1.0
    assert _inputs.as_logged(data, known)[0].tolist() == known.tolist()
    with pytest.raises(ValueError, match="every logged probability is 1"):
        _inputs.as_logged(data, np.ones(data.n_steps))


@pytest.mark.parametrize("seed", [None, True, 0.5, -1, 2**32])
def test_what_is_no_seed_is_refused(seed):
    with pytest.raises(TypeError, match="rng must be a seed, a whole number from 0 to 4294967295"):
        _inputs.check_seed(seed)


@pytest.mark.parametrize("seed", [0, np.int64(7), 2**32 - 1])
def test_the_smallest_and_the_largest_seed_are_taken(seed):
    assert _inputs.check_seed(seed) == seed


@pytest.mark.parametrize("wrong", [LinearRegression, "trees", object()])
def test_what_is_no_unfitted_regressor_is_refused(wrong):
    nothing = dict.fromkeys(("n_draws", "about", "learnt_on", "worst", "learn"))
    with pytest.raises(TypeError, match="regressor must be an unfitted one of the kind of scikit-learn"):
        _inputs.check_question(None, None, regressor=wrong, **nothing)


def test_about_five_thousand_unseen_decisions_are_held_out():
    data = ward.simulate(4000, rng=0)
    for seed in range(5):
        held_out = _curve._hold_out(data, np.arange(300), np.random.default_rng(seed))
        assert held_out.min() >= 300
        assert (np.diff(held_out) > 0).all()
        # They are enough, and one fewer would not be.
        total = data.lengths[held_out].sum()
        assert total >= 5000
        assert total - data.lengths[held_out].max() < 5000


@pytest.mark.parametrize(("fit_steps", "size"), [(None, 10), (5, 10), (20, 20), (100, 50)])
def test_the_sample_of_a_log_in_files_has_what_models_are_fitted_on(fit_steps, size):
    # 50 trajectories of two steps; a sample of 20 decisions unless models want more.
    source = SimpleNamespace(n_steps=100, sample=20)
    inventory = SimpleNamespace(ids=np.arange(50), clusters=None)
    steps = None if fit_steps is None else 2 * fit_steps
    assert len(_opened._draw(source, inventory, steps, 0)) == size


def test_in_files_values_are_asked_for_the_actions_that_matter():
    data = ward.simulate(20, rng=0)
    first = np.tile([1.0, 0.0, 0.0], (data.n_steps, 1))
    probs, needed = _parts._ask_target(first, data)
    assert (probs == first).all()
    assert needed is None  # with the logged actions, more than half of all
    many = data.replace(n_actions=25)
    wide = np.eye(25)[np.zeros(data.n_steps, dtype=int)]
    for target in (wide, cal.mix(cal.practice, wide, 0.5)):
        _, needed = _parts._ask_target(target, many)
        for step, action in enumerate(data.actions):
            assert set(np.flatnonzero(needed[step])) == {0, action}
    tilted = cal.tilt(cal.practice, [1, 2, 1])
    assert _parts._ask_target(tilted, data) == (tilted, None)


def test_beside_other_logs_an_audit_without_a_reach_stays_without():
    row = Estimate("difference", "d", 0.1, Interval(0.0, 0.2, 0.95), 100, 90.0)
    settings = SimpleNamespace(level=0.95, n_trajectories=100, n_steps=300)
    audit = AuditOfPractice(Table((row,), "all"), row, row, row, settings)
    changed = _other_logs.put_beside(audit, {"later": audit}, "now")
    assert set(changed) == {"table", "other_logs"}


@dataclass(frozen=True)
class AuditOfPractice:
    table: Table
    gain: Estimate
    practice: Estimate
    headline: Estimate
    settings: SimpleNamespace
    reach: None = None
    subgroups: None = None


def answer(verdict, *, withheld=False):
    return SimpleNamespace(verdict=verdict, verdict_text=verdict, withheld=withheld, text=f"[{verdict}]")


def summary(best, gain, strength=""):
    """The lines of an audit with these two answers."""
    audit = SimpleNamespace(
        headline=best,
        gain=gain,
        practice=SimpleNamespace(text="0.4"),
        settings=SimpleNamespace(level=0.95, about=About()),
        data=SimpleNamespace(unit="visit"),
        requirements=(),
        strength_text=lambda: strength,
        range_text=lambda: "the range",
        _reach_text=list,
    )
    return Audit._summary(audit)


def test_a_summary_says_the_verdict_of_the_difference_where_it_is_another():
    lines = summary(answer("trust"), answer("caution"))
    assert lines[-1] == "Difference: [caution] (caution). (In brackets: 95% confidence intervals)"
    alike = summary(answer("caution"), answer("caution"))
    assert alike[-1] == "Difference: [caution]. (In brackets: 95% confidence intervals)"
    # What is not shown has said so in its own words.
    withheld = summary(answer("trust"), answer("do not trust", withheld=True))
    assert withheld[-1] == "Difference: [do not trust]. (In brackets: 95% confidence intervals)"


def test_a_summary_says_what_a_confounder_would_do_only_beside_an_interval():
    shown, hidden = answer("caution"), answer("do not trust", withheld=True)
    assert summary(shown, shown, "A strong one reverses it.")[1] == "A strong one reverses it."
    assert len(summary(shown, shown)) == 3
    told = summary(hidden, hidden, "A strong one reverses it.")
    assert "A strong one reverses it." not in told
    assert told[-1] == "the range"


@pytest.mark.parametrize("limit", ["200", None, True, float("nan"), float("inf")])
def test_a_limit_is_a_finite_number(limit):
    with pytest.raises(ValueError, match="the limit of width must be a finite number"):
        check_limits({"width": limit})
    check_limits({"width": 0.2, "trajectories": 200})


def test_weights_are_made_of_all_recorded_probabilities_then_of_those_taken_then_of_the_model():
    def behaviour(logged, recorded):
        given = SimpleNamespace(recorded=recorded)
        return PreparedAudit.behaviour.fget(SimpleNamespace(logged=logged, inputs=given, chosen="model"))

    assert behaviour("taken", "all") == "all"
    assert behaviour("taken", None) == "taken"
    assert behaviour(None, None) == "model"


def test_what_was_found_of_models_stands_in_their_rows_of_the_whole_log():
    tests = {name: SimpleNamespace(findings=(name,)) for name in ("before", "after")}
    trial = SimpleNamespace(tests=tests["before"], results={"forest and past": tests["after"]})

    def attach(model, stratum=ALL):
        row = Row(model, stratum, ("own",))
        return Trial.attach(trial, row, "forest").findings

    assert attach("forest") == ("own", "before")
    assert attach("forest and past") == ("own", "after")
    assert attach("logistic") == attach("forest", "ill") == ("own",)


@dataclass(frozen=True)
class Row:
    model: str
    stratum: str
    findings: tuple


def settings(**more):
    return AuditSettings(
        1.0, 0.95, 200, 0, 10, 30, 10, 10, False, "forest", ("forest",), "trees", "a table", **more
    ).to_dict()


def test_settings_name_clusters_and_the_first_strata():
    assert settings()["clusters"] == "none named"
    assert settings(n_clusters=7)["clusters"] == 7
    assert settings()["strata"] == "none"
    names = [f"s{i}" for i in range(_settings._LISTED + 1)]
    assert settings(strata=tuple(names[:-1]))["strata"] == ", ".join(names[:-1])
    assert settings(strata=tuple(names))["strata"] == ", ".join(names[:-1]) + " and 1 more"


@pytest.mark.parametrize(("system", "gigabytes"), [("linux", 2.5), ("darwin", 0.0025)])
def test_the_largest_memory_is_told_in_gigabytes(system, gigabytes, monkeypatch):
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(resource, "getrusage", lambda who: SimpleNamespace(ru_maxrss=2.5e6))
    assert _settings._peak_gb() == pytest.approx(gigabytes)


@pytest.mark.parametrize(("cluster", "apart"), [(None, "visits"), ("ward", "clusters")])
def test_what_is_independent_is_what_was_named(cluster, apart):
    data = SimpleNamespace(units="visits", layout=SimpleNamespace(cluster=cluster))
    assert _run._independence(data) == f"{apart} are independent of each other"


def test_copies_are_told_once_of_the_whole_log():
    data = ward.simulate(5, rng=0)
    of_sample = (L101.finding("caution", copies=1, n=5), L105.finding("issue", n=5))
    of_all = (L101.finding("issue", copies=9, n=50),)
    prepared = SimpleNamespace(findings=of_sample, data=data)

    def numbers(found):
        return [(f.code, f.numbers["n"]) for f in _run._about_log(prepared, SimpleNamespace(findings=found))]

    assert numbers(of_all) == [("L105", 5), ("L101", 50)]
    assert numbers(()) == [("L101", 5), ("L105", 5)]


@pytest.mark.parametrize(("learnt", "widen"), [(None, 1.5), ("by folds", 1.5 * 2**0.5)])
def test_strata_are_as_uncertain_as_the_whole(learnt, widen, monkeypatch):
    data = ward.simulate(5, rng=0)
    inputs = SimpleNamespace(strata="strata", level=0.9, seed=0)
    basis = SimpleNamespace(learnt=learnt, asked=SimpleNamespace(worst=-3.0))
    row = Estimate("d", "d", 0.1, Interval(0.0, 0.2, 0.9), 5, 5.0, (DEPENDENT,), ("a",))
    monkeypatch.setattr(_run, "estimate_subgroups", lambda *given, **options: (given, options))
    given, options = _run._subgroups(
        SimpleNamespace(data=data, inputs=inputs), basis, row, (), SimpleNamespace(conditions=("b",))
    )
    assert given == (basis, data, "strata")
    assert options["widen"] == pytest.approx(widen)
    assert (options["level"], options["worst"]) == (0.9, -3.0)
    assert options["conditions"] == ("a", "b", "trajectories are independent of each other")
    assert [f.code for f in options["findings"]] == ["L108"]


DEPENDENT = L108.finding("caution", "trajectories", factor=1.5, z=4.0, units_tested=100)


def test_doses_beyond_those_of_the_log_are_said_also_of_a_policy_mixed_with_practice(monkeypatch):
    class Far(RecommendedDoses):
        def __init__(self):
            pass

        def beyond(self, data):
            return "beyond"

    monkeypatch.setattr(_run, "check_beyond", lambda found: (f"said of what is {found}",))
    asked = SimpleNamespace(text="")
    for target in (Far(), MixWithPractice(Far(), 0.5)):
        asked.target = target
        assert _run._check_question(asked, None) == ("said of what is beyond",)
    asked.target = cal.UniformPolicy(3)
    assert _run._check_question(asked, None) == ()


def test_the_stages_of_a_comparison_name_the_policy():
    told = []
    _several._named(told.append, "half")("estimating")
    assert told == ["half: estimating"]


@pytest.mark.parametrize(
    ("low", "end"), [(-0.1, "and none is beyond chance"), (0.05, "and it is beyond chance")]
)
def test_a_negative_control_says_whether_it_missed(low, end):
    found = Placebo(0.6, 0.5, Interval(low, 0.2, 0.95), "more of the first action", 2.1, 3, 100, ())
    assert found.describe().endswith(end)


def test_a_subgroup_has_the_verdict_of_its_difference():
    value, difference = (
        Estimate(name, name, 0.5, Interval(0.4, 0.6, 0.95), 100, 90.0, found)
        for name, found in (("a", ()), ("b", (L105.finding("caution", n=50),)))
    )
    part = Subgroup("ill", 100, 90.0, 0.4, value, difference)
    assert (part.value.verdict, part.verdict) == ("trust", "caution")
    assert part.cells()["stratum"] == "ill"
    assert replace(part, name="x" * 40).cells()["stratum"] == "x" * 40
    assert len(replace(part, name="x" * 41).cells()["stratum"]) == 40


def test_a_part_of_a_file_that_lost_a_trajectory_is_refused():
    data = ward.simulate(5, rng=0)
    options = SimpleNamespace(options={"calendar": None}, trajectories=lambda rows: data)
    job = SimpleNamespace(reading=options, n_actions=3)

    def part(n):
        return SimpleNamespace(rows=lambda reading: None, numbers=np.arange(n))

    assert len(_parts.WeighPart._read(job, part(5))) == 5
    with pytest.raises(ValueError, match="holds 5 trajectories now and not 6: the file was changed"):
        _parts.WeighPart._read(job, part(6))


def test_trajectories_of_a_part_are_ordered_by_their_numbers_unless_a_calendar_does():
    data = ward.simulate(3, rng=0)
    numbers = np.array([7, 2, 5])

    def read(calendar):
        reading = SimpleNamespace(options={"calendar": calendar}, trajectories=lambda rows: data)
        return _parts.read_part(reading, None, numbers)

    assert read(None).calendar.tolist() == [7.0, 2.0, 5.0]
    assert read("admitted") is data


def test_a_policy_without_a_file_is_told_apart_by_what_it_holds(monkeypatch):
    text, held = _whole._identity_of(np.eye(3))  # its class is of a compiled module
    assert isinstance(text, str)
    assert held != _whole._identity_of(2 * np.eye(3))[1]
    monkeypatch.setitem(sys.modules, "typed in", SimpleNamespace(__file__=None))
    typed = type("Typed", (), {"__module__": "typed in"})
    assert _whole._identity_of(typed())[0] == ""
    assert _whole._identity_of(Row("a", "b", ()))[0].startswith('"""Audits: what no other test')


def test_models_of_weights_that_were_fitted_together_stay_one():
    class Regression(SimpleNamespace):
        def without_log(self):
            return RegressionModel(None if self.fit is None else (object(), self.fit[1]))

    model = object()
    fits = [Regression(fit=(model, 0)), Regression(fit=(model, 1)), Regression(fit=None)]
    first, second, none = _whole._share_models(fits)
    assert first.fit[0] is second.fit[0]
    assert (first.fit[1], second.fit[1], none.fit) == (0, 1, None)


@dataclass(frozen=True)
class RegressionModel:
    fit: object


def test_practice_itself_is_weighed_in_no_share():
    basis = SimpleNamespace(asked=SimpleNamespace(target=cal.practice))
    assert _whole._fit_shares(None, basis) == ([], [])
