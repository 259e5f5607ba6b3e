"""Behaviour models: what no other test would show to be wrong."""

import faiss
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_info

import caliope as cal
from caliope.behaviour import (
    Exact,
    NeighbourPolicy,
    NetworkPolicy,
    PooledPolicy,
    TabularFrequencies,
    Temperature,
    _calibrated,
    _networks,
    fit_behaviour,
    paper_models,
)
from caliope.behaviour._extended import Extension
from caliope.behaviour._fit import _splits_by_groups, groups_name
from caliope.behaviour._models import fit_other_models
from caliope.behaviour._networks import _GAIN
from caliope.behaviour._search import _BLAS_THRESHOLD, _BlasThreshold, _Lists
from caliope.behaviour._threads import one_blas_thread
from caliope.domains import ward


@pytest.fixture(scope="module")
def points():
    rng = np.random.default_rng(0)
    return rng.normal(size=(60, 2)), rng.integers(2, size=60), np.arange(60) // 6


def test_the_calibrator_that_helps_most_is_kept(monkeypatch):
    gains = iter([(0.5, True), (0.1, True)])
    monkeypatch.setattr(_calibrated, "_gain", lambda *_: next(gains))
    codes, trajectory = np.arange(40) % 2, np.arange(40) // 4
    plain = np.column_stack([np.linspace(0.2, 0.8, 40), np.linspace(0.8, 0.2, 40)])
    _, kept = _calibrated._choose(plain, codes, trajectory, trajectory % 5)
    assert isinstance(kept, Temperature)


def test_a_pooled_model_refuses_states_of_another_width(points):
    x, y, groups = points
    model = PooledPolicy({"a": LogisticRegression(), "b": TabularFrequencies(shrinkage=1.0)}).fit(
        x, y, groups=groups
    )
    with pytest.raises(ValueError, match="features"):
        model.predict_proba(x[:, :1])
    assert model.n_features_in_ == 2


def test_an_extension_is_named_after_what_it_adds():
    log = ward.simulate(20, rng=0)
    named = {
        (past, order): Extension.of(log, past=past, order=order).name for past in (0, 1) for order in (0, 1)
    }
    assert named == {(0, 0): "", (1, 0): "history", (0, 1): "order", (1, 1): "history and order"}


def test_groups_reach_the_last_step_of_a_pipeline():
    assert groups_name(make_pipeline(StandardScaler(), NeighbourPolicy())) == "neighbourpolicy__groups"
    assert groups_name(make_pipeline(StandardScaler(), LogisticRegression())) is None


class BySplit:
    """A splitter of somebody's own."""

    def split(self, x, y, groups):
        yield from ()


def test_a_splitter_of_ones_own_is_given_groups_and_a_number_of_folds_is_not():
    assert _splits_by_groups(BySplit())
    assert not _splits_by_groups(5)


def test_two_trajectories_are_enough_to_cross_fit():
    data = cal.Trajectories(np.zeros((4, 1)), [0, 1, 1, 1], np.zeros(4), [0, 2, 4], n_actions=2)
    model = TabularFrequencies(shrinkage=None)
    found = fit_behaviour(model, data, mode="cross", folds=2, rng=0)
    # Each is predicted by the other: half and half, and always action 1.
    assert found.probabilities.tolist() == [[0, 1], [0, 1], [0.5, 0.5], [0.5, 0.5]]
    with pytest.raises(ValueError, match="at least 2 trajectories and 2 folds, got 1 and 2"):
        fit_behaviour(model, data[:1], mode="cross", folds=2, rng=0)


def test_other_models_keep_their_own_probabilities():
    data = ward.simulate(40, rng=0)
    models = {name: TabularFrequencies(shrinkage=s) for name, s in {"little": 1.0, "much": 50.0}.items()}
    fitted = {name: fit_behaviour(model, data, mode="cross", rng=0) for name, model in models.items()}
    one, other = fitted
    found = fit_other_models(fitted, one, fitted[one], rng=0)
    for name in (one, other):
        assert np.array_equal(found[name].probabilities, fitted[name].probabilities)


def test_the_papers_models_have_the_seed_that_is_documented():
    parts = [part for model in paper_models().values() for _, part in getattr(model, "steps", [("", model)])]
    assert {part.random_state for part in parts if getattr(part, "random_state", None) is not None} == {0}


def test_one_trajectory_leaves_nothing_to_choose_by(points):
    x, y, _ = points
    with pytest.raises(ValueError, match="'cv' needs at least 2 trajectories, got one"):
        NeighbourPolicy(5, shrinkage="cv").fit(x, y, groups=np.zeros(60, int))


def test_a_bandwidth_may_be_tiny_as_long_as_its_square_is_a_number(points):
    x, y, groups = points
    NeighbourPolicy(5, bandwidth=1e-120).fit(x, y, groups=groups)
    with pytest.raises(ValueError, match="bandwidth must be a positive number"):
        NeighbourPolicy(5, bandwidth=1e-170).fit(x, y, groups=groups)


def test_three_trajectories_are_enough_for_a_prior(points):
    x, y, groups = points
    model = NeighbourPolicy(5, prior=LogisticRegression()).fit(x[:18], y[:18], groups=groups[:18])
    assert model.predict_proba(x[:2]).sum(axis=1) == pytest.approx(1)


def test_a_network_stops_as_many_epochs_after_its_last_clear_gain_as_it_is_patient(points):
    x, y, groups = points
    model = NetworkPolicy(patience=3, max_epochs=200, random_state=0).fit(x, y, groups=groups)
    best = 0
    for epoch, loss in enumerate(model.losses_):
        best = epoch if loss < model.losses_[best] - _GAIN else best
    assert len(model.losses_) - 1 - best == 3


def test_the_threshold_of_faiss_is_lowered_for_the_time_of_a_search_and_restored():
    before, threshold = faiss.cvar.distance_compute_blas_threshold, _BlasThreshold()
    lowered = min(_BLAS_THRESHOLD, before)
    with threshold.lower():
        with threshold.lower():
            assert faiss.cvar.distance_compute_blas_threshold == lowered
        assert faiss.cvar.distance_compute_blas_threshold == lowered
    assert faiss.cvar.distance_compute_blas_threshold == before
    with threshold.lower():
        faiss.cvar.distance_compute_blas_threshold = before + 7
    assert faiss.cvar.distance_compute_blas_threshold == before


def test_more_neighbours_than_there_are_points_are_none():
    index = Exact().build(np.array([[0.0], [2.0]], dtype=np.float32))
    squared, ids = index.nearest(np.array([[0.5]], dtype=np.float32), k=4)
    assert ids.tolist() == [[0, 1, -1, -1]]
    assert squared.tolist() == [[0.25, 2.25, np.inf, np.inf]]


def test_small_matrices_are_multiplied_by_one_thread():
    with one_blas_thread():
        threads = {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}
    assert threads == {1}


@pytest.mark.parametrize(("gain", "epochs"), [(0.0005, 2), (0.0006, 3)])
def test_training_goes_on_while_an_epoch_gains_more_than_half_a_thousandth(gain, epochs, monkeypatch):
    """Held-out losses of 1, 1 - gain, and that again, with the patience of one epoch."""
    losses = iter([1.0, 1.0 - gain, 1.0 - gain])
    monkeypatch.setattr(_networks, "mean_nll", lambda proba, codes: next(losses))
    data = ward.simulate(30, rng=0)
    network = _networks.NetworkPolicy((2,), patience=1, max_epochs=3).fit(data.states, data.actions)
    assert len(network.losses_) == epochs


def test_lists_have_the_centres_that_they_are_given():
    """Both centres lie at one end, and one list holds nearly all points; others would cut in the middle."""
    rng = np.random.default_rng(0)
    x = rng.normal(scale=0.001, size=(400, 16)).astype(np.float32)
    x[:, 0] = np.linspace(-1, 1, 400)
    centres = np.zeros((2, 16), dtype=np.float32)
    centres[:, 0] = 0.9, 1.1
    query = np.zeros((1, 16), dtype=np.float32)
    _, ids = _Lists(x, centres, n_probe=1, refine=20).nearest(query, 20)
    assert set(ids[0].tolist()) == set(Exact().build(x).nearest(query, 20)[1][0].tolist())
