"""Audits: what no other test would show to be wrong."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from caliope._audit import BehaviourModels, _basis, _benchmark
from caliope._audit._answers import _LISTED, _list
from caliope._audit._compare import Names, name_facts
from caliope._audit._comparison import PolicyComparison
from caliope._cache import Cache
from caliope.checks import D104
from caliope.domains import ward


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
