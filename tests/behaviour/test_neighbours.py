"""Neighbours: exact ones against brute force, approximate ones against exact ones, and the policy made of them."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.estimator_checks import parametrize_with_checks

import caliope as cal
from caliope.behaviour import (
    Exact,
    InvertedLists,
    NeighbourPolicy,
    PooledPolicy,
    RandomProjections,
    TabularFrequencies,
    load_index,
    save_index,
)
from caliope.behaviour._fit import assign_folds

# The default of `search` is a frozen object; scikit-learn wants plain values there, the public signature has it.
EXPECTED = {"check_parameters_default_constructible": "search=Exact() is a frozen object, not a plain value"}


@parametrize_with_checks([NeighbourPolicy(k=5)], expected_failed_checks=lambda _: EXPECTED)
def test_the_policy_keeps_the_rules_of_scikit_learn(estimator, check):
    check(estimator)


def points(kind, seed=0, n=600, d=20):
    rng = np.random.default_rng(seed)
    if kind == "random":
        return rng.normal(size=(n, d)).astype(np.float32)
    if kind == "clustered":
        centres = 10 * rng.normal(size=(6, d))
        return (centres[rng.integers(6, size=n)] + 0.1 * rng.normal(size=(n, d))).astype(np.float32)
    few = rng.normal(size=(40, d)).astype(np.float32)  # duplicated: each point about fifteen times
    return few[rng.integers(40, size=n)]


@pytest.mark.parametrize("kind", ["random", "clustered", "duplicated"])
@pytest.mark.parametrize("k", [1, 20])
def test_exact_search_is_brute_force(kind, k):
    x = points(kind)
    squared, ids = Exact().build(x).nearest(x[:50], k)
    true = ((x[:50, None, :].astype(float) - x) ** 2).sum(axis=2)
    expected = np.sort(true, axis=1)[:, :k]
    # Ids may differ between ties, their distances may not.
    found = np.take_along_axis(true, ids, axis=1)
    scale = np.median(true)
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-4 * scale)
    assert squared == pytest.approx(expected, rel=1e-4, abs=1e-4 * scale)
    assert all(len(set(row)) == k for row in ids)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("search", "recall", "tv"),
    [(InvertedLists(n_lists=40, n_probe=20), 0.9, 0.05), (RandomProjections(), 0.9, 0.05)],
)
def test_approximate_search_comes_close_to_exact(search, recall, tv):
    x, rng = points("random", n=4000), np.random.default_rng(1)
    y = rng.integers(5, size=4000)
    exact, approximate = (NeighbourPolicy(50, search=s).fit(x, y) for s in (Exact(), search))
    (_, a), (_, b) = exact.kneighbors(x[:300]), approximate.kneighbors(x[:300])
    assert np.mean([len(set(p) & set(q)) / 50 for p, q in zip(a, b, strict=True)]) > recall
    # What matters here: the distance between the two distributions of actions.
    apart = 0.5 * np.abs(exact.predict_proba(x[:300]) - approximate.predict_proba(x[:300])).sum(axis=1)
    assert apart.mean() < tv


@pytest.mark.parametrize(
    "search", [Exact(), InvertedLists(n_lists=8, n_probe=4), RandomProjections(n_bits=64)]
)
def test_an_index_comes_back_from_flat_arrays(search, tmp_path):
    x = points("random")
    index = search.build(x)
    save_index(index, tmp_path / "index")
    again = load_index(search, tmp_path / "index")
    assert isinstance(again.points, np.memmap)
    assert np.array_equal(again.nearest(x[:20], 10)[1], index.nearest(x[:20], 10)[1])
    with pytest.raises(FileNotFoundError, match="holds no index"):
        load_index(search, tmp_path / "nothing")


def test_an_index_takes_the_place_of_another_and_foreign_arrays_are_refused(tmp_path):
    x = points("random")
    save_index(InvertedLists(n_lists=8).build(x), tmp_path)
    save_index(Exact().build(x[:, :3]), tmp_path)  # without centres: those of the other must be gone
    assert np.array_equal(load_index(InvertedLists(), tmp_path).nearest(x[:5, :3], 1)[1][:, 0], np.arange(5))
    np.save(tmp_path / "centres.npy", x[:8])
    with pytest.raises(ValueError, match=r"points float32 \(600, 3\)"):
        load_index(InvertedLists(), tmp_path)
    (tmp_path / "centres.npy").unlink()
    np.save(tmp_path / "points.npy", np.arange(5))
    with pytest.raises(ValueError, match=r"points int64 \(5,\)"):
        load_index(Exact(), tmp_path)


@pytest.mark.parametrize("search", [Exact(), InvertedLists(n_lists=8), RandomProjections(n_bits=64)])
def test_queries_that_do_not_fit_are_refused(search):
    index = search.build(points("random"))
    for queries in (np.zeros((1, 3), dtype=np.float32), np.full((1, 20), np.nan, dtype=np.float32)):
        with pytest.raises(ValueError, match="finite numbers in the 20 columns"):
            index.nearest(queries, 2)


# -- exactness far from the centre --


def true_neighbours(x, weights, k):
    squared = (weights * (x[:, None] - x) ** 2).sum(axis=2)
    return np.argsort(squared, axis=1, kind="stable")[:, :k]


def far_from_the_centre(kind):
    rng = np.random.default_rng(0)
    x, weights = rng.normal(size=(700, 10)), np.ones(10)
    if kind == "a heavy weight":
        x[:, 0], weights[0] = rng.integers(5, size=700), 1e8
    if kind == "a raw column":
        x[:, 0] = 1e4 * rng.integers(5, size=700)
    if kind == "clusters":
        x = 1000 * np.eye(10)[rng.integers(4, size=700)] + 0.1 * x
    return x, weights


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["standardised", "a heavy weight", "a raw column", "clusters"])
def test_exact_search_loses_no_digits_far_from_the_centre(kind):
    x, weights = far_from_the_centre(kind)
    policy = NeighbourPolicy(10, feature_weights=weights).fit(x, np.arange(700) % 3)
    _, ids = policy.kneighbors(x)  # 7,000 numbers: FAISS multiplies matrices
    shared = [len(set(a) & set(b)) / 10 for a, b in zip(ids, true_neighbours(x, weights, 10), strict=True)]
    # float32 keeps 1000.1 to 6e-5: of neighbours 0.3 away that is 1 in 5,000, so a swap at the tenth is rare.
    assert np.mean(shared) > 0.999
    alone = np.concatenate([policy.predict_proba(x[i : i + 1]) for i in range(50)])
    assert np.array_equal(policy.predict_proba(x)[:50], alone)


@pytest.mark.parametrize("search", [InvertedLists(), RandomProjections()])
@pytest.mark.parametrize("d", [1, 3, 15])
def test_in_few_columns_every_search_is_exact(search, d):
    x = points("random", n=2000, d=d)
    assert np.array_equal(search.build(x).nearest(x[:100], 30)[1], Exact().build(x).nearest(x[:100], 30)[1])


@pytest.mark.parametrize(
    "make",
    [
        lambda: RandomProjections(n_bits=0),
        lambda: RandomProjections(refine=0),
        lambda: InvertedLists(n_lists=0),
        lambda: InvertedLists(n_probe=-1),
        lambda: InvertedLists(refine=1.5),
    ],
)
def test_searches_are_checked_when_they_are_made(make):
    with pytest.raises(ValueError, match="must be a whole number, 1 or more"):
        make()


@pytest.mark.slow
@pytest.mark.parametrize("search", [Exact(), InvertedLists(), RandomProjections()])
def test_the_global_threshold_of_faiss_is_lowered_during_a_search_alone(search, monkeypatch):
    import faiss

    seen, knn = [], faiss.knn

    def watched(*args):
        seen.append(faiss.cvar.distance_compute_blas_threshold)
        return knn(*args)

    monkeypatch.setattr(faiss, "knn", watched)
    monkeypatch.setattr(faiss.cvar, "distance_compute_blas_threshold", 5000)  # releases have had 20 and more
    x = points("random", n=1200)
    search.build(x).nearest(x, 5)  # several batches, in threads
    with pytest.raises(ValueError, match="finite numbers"):
        search.build(x).nearest(np.full((1, 20), np.nan), 5)
    assert faiss.cvar.distance_compute_blas_threshold == 5000
    assert set(seen) <= {2000}
    assert isinstance(search, Exact) == bool(seen)


def test_ties_are_not_broken_by_the_order_of_the_file():
    # Two states; action 0 in the first half of the file, action 1 in the second: half and half in either state.
    states, actions = np.tile([[0.0], [1.0]], (1000, 1)), np.repeat([0, 1], 1000)
    policy = NeighbourPolicy(150).fit(states, actions)
    found = policy.predict_proba([[0.0], [1.0]])[:, 0]
    # 150 of 1,000 without replacement: standard deviation sqrt(.25 / 150 * 850 / 999) = .038; four of them.
    assert found == pytest.approx([0.5, 0.5], abs=0.15)
    again = NeighbourPolicy(150).fit(states, actions).predict_proba([[0.0], [1.0]])[:, 0]
    assert np.array_equal(found, again)
    ids = policy.neighbours_of(np.arange(2000), "point")[1]
    assert (states[ids] == states[:, None]).all()  # row numbers of the file, not of the index
    assert (ids != np.arange(2000)[:, None]).all()


def test_beyond_float32_the_column_is_named():
    x = np.random.default_rng(0).normal(size=(50, 3))
    x[7, 1] = 1e25
    with pytest.raises(ValueError, match=r"column 1 reaches 1e\+25"):
        NeighbourPolicy(5).fit(x, np.arange(50) % 2)
    policy = NeighbourPolicy(5).fit(x[:7], np.arange(7) % 2)
    with pytest.raises(ValueError, match=r"column 1 reaches 1e\+25"):
        policy.predict_proba(x)


def test_a_weighted_kernel_is_a_scaling_of_columns():
    x, weights = points("random").astype(float), np.array([2.0] * 3 + [1.0] * 17)
    y = np.arange(600) % 3
    ours = NeighbourPolicy(10, feature_weights=weights).fit(x, y).kneighbors(x[:30])
    theirs = NearestNeighbors(n_neighbors=10, metric="minkowski", p=2, metric_params={"w": weights}).fit(x)
    distances, ids = theirs.kneighbors(x[:30])
    assert np.array_equal(ours[1], ids)
    assert ours[0] == pytest.approx(distances, rel=1e-3, abs=1e-2)


def test_probabilities_are_the_frequencies_among_the_neighbours():
    x = np.array([[0.0], [1.0], [2.0], [10.0]])
    policy = NeighbourPolicy(3).fit(x, [0, 2, 2, 0])
    assert policy.classes_.tolist() == [0, 2]
    assert policy.predict_proba([[0.5]])[0] == pytest.approx([1 / 3, 2 / 3])
    assert cal.action_probabilities(policy, [[0.5]], 3)[0] == pytest.approx([1 / 3, 0, 2 / 3])


def test_shrinkage_pulls_towards_the_marginal():
    x = np.array([[0.0], [1.0], [2.0], [10.0]])
    # Two neighbours, both action 0; marginal (3/4, 1/4); strength 2: (2 + 1.5) / 4 and 0.5 / 4.
    policy = NeighbourPolicy(2, shrinkage=2.0).fit(x, [0, 0, 0, 1])
    assert policy.predict_proba([[0.0]])[0] == pytest.approx([3.5 / 4, 0.5 / 4])


def test_shrinkage_is_chosen_by_the_likelihood_without_the_own_trajectory():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 2))
    noise = NeighbourPolicy(5, shrinkage="cv").fit(x, rng.integers(4, size=400))
    clear = NeighbourPolicy(5, shrinkage="cv").fit(x, (x[:, 0] > 0).astype(int) + 2 * (x[:, 1] > 0))
    assert noise.shrinkage_ >= 50  # nothing to learn from five neighbours
    assert clear.shrinkage_ <= 2
    assert (noise.predict_proba(x) > 0).all()


def naive_own(x, actions, groups, k, own, n_actions):
    out = np.zeros((len(x), n_actions))
    for i in range(len(x)):
        order = np.argsort(((x - x[i]) ** 2).sum(axis=1), kind="stable")
        if own == "point":
            order = order[order != i]
        if own == "trajectory":
            order = order[groups[order] != groups[i]]
        for j in order[:k]:
            out[i, actions[j]] += 1 / k
    return out


@pytest.mark.parametrize("longest", [12, 200])
@pytest.mark.parametrize("own", ["include", "point", "trajectory"])
def test_own_neighbours_are_left_out_exactly(own, longest):
    rng = np.random.default_rng(0)
    # 200 own steps are far more than are expected: who has too few others looks further, again and again.
    groups = np.repeat(np.arange(30), [longest, *rng.integers(1, 12, size=29)])
    # Steps of a trajectory lie close together, so that most of the nearest are one's own.
    x = rng.normal(size=(30, 3))[groups] + 0.05 * rng.normal(size=(len(groups), 3))
    actions = rng.integers(3, size=len(groups))
    policy = NeighbourPolicy(15, own=own).fit(x, actions, groups=groups)
    assert policy.predict_own() == pytest.approx(naive_own(x, actions, groups, 15, own, 3))


def test_including_the_own_trajectory_hides_missing_support():
    from caliope.domains import ward

    data = ward.simulate(300, rng=0)
    # States with a trace of the patient in them: steps of one are nearest to each other.
    rng = np.random.default_rng(1)
    x = np.concatenate([data.states, rng.normal(size=(300, 4))[data.layout.owner]], axis=1)
    # 13 neighbours: among the at most 12 steps of a patient that tie, a point is sure to find itself.
    policy = NeighbourPolicy(13).fit(x, data.actions, groups=data.layout.owner)
    logged = np.arange(data.n_steps), data.actions
    shares = {own: float((policy.predict_own(own)[logged] == 0).mean()) for own in ("include", "trajectory")}
    assert shares["include"] == 0.0
    assert shares["trajectory"] > 0.005


def test_a_bandwidth_weighs_near_neighbours_more():
    x = np.array([[0.0], [1.0], [3.0]])
    policy = NeighbourPolicy(2, bandwidth=1.5).fit(x, [0, 1, 1])
    # Distances to the nearest other: 1, 1, 2, with median 1. Of -0.6 the neighbours lie 0.6 away, which counts in
    # full, and 1.6, which counts exp(-(1.6^2 - 1) / (2 * 1.5^2)).
    assert policy.typical_nearest_ == pytest.approx(1.0)
    far = np.exp(-(1.6**2 - 1) / (2 * 1.5**2))
    assert policy.predict_proba([[-0.6]])[0] == pytest.approx([1 / (1 + far), far / (1 + far)], rel=1e-4)


def naive_local(x, actions, groups, k, prior, m, usual, h):
    """The formula for each point of the log, its own trajectory left out."""
    out = np.zeros_like(prior)
    for i in range(len(x)):
        squared = ((x - x[i]) ** 2).sum(axis=1)
        order = np.argsort(squared, kind="stable")
        order = order[groups[order] != groups[i]][:k]
        kernel = np.exp(-np.maximum(squared[order] - usual, 0) / (2 * h**2))
        for j, weight in zip(order, kernel, strict=True):
            out[i, actions[j]] += weight
        out[i] = (out[i] + m * prior[i]) / (kernel.sum() + m)
    return out


def test_neighbours_correct_a_prior_that_has_not_seen_the_trajectory():
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(30), 6)
    x = rng.normal(size=(180, 3))
    actions = (x[:, 0] + 0.5 * rng.normal(size=180) > 0).astype(int)
    pool = PooledPolicy({"one": LogisticRegression(C=0.01)}, folds=3)
    policy = NeighbourPolicy(8, columns=[0, 2], prior=pool, shrinkage=2.0, bandwidth=0.4)
    policy.fit(x, actions, groups=groups)
    prior = pool.fit(x, actions, groups=groups).oof_proba_
    expected = naive_local(x[:, [0, 2]], actions, groups, 8, prior, 2.0, policy.typical_nearest_, 0.4)
    assert policy.oof_proba_ == pytest.approx(expected, rel=1e-3, abs=1e-4)
    # Any other prior is cross-fitted here: whoever sees the trajectory would know its actions.
    plain = NeighbourPolicy(8, prior=LogisticRegression(), shrinkage=1e6).fit(x, actions, groups=groups)
    fold = assign_folds(groups, 5, 0)
    held = fold == 1
    there = LogisticRegression().fit(x[~held], actions[~held]).predict_proba(x[held])
    assert plain.oof_proba_[held] == pytest.approx(there, abs=1e-4)


def test_shrinkage_towards_a_stratum():
    # Severity 0 is given action 0 three times in four, severity 1 action 1 always; nobody is near the new state.
    x = np.array([[0.0, 1], [0, 2], [0, 3], [0, 4], [1, 5], [1, 6]])
    y = [0, 0, 0, 1, 1, 1]
    prior = TabularFrequencies(columns=[0], shrinkage=None)
    policy = NeighbourPolicy(1, columns=[1], prior=prior, shrinkage=1.0).fit(x, y)
    # One neighbour, action 1 (x = 4), and as much of the stratum (3/4, 1/4): (3/8, 5/8).
    assert policy.predict_proba([[0.0, 4.1]])[0] == pytest.approx([3 / 8, 5 / 8])


@pytest.mark.slow
def test_bandwidth_and_shrinkage_are_chosen_together():
    rng = np.random.default_rng(0)
    centres = 10 * rng.normal(size=(60, 4))
    state = rng.integers(60, size=1500)
    x = centres[state] + rng.normal(size=(1500, 4))
    best = rng.integers(5, size=60)
    y = np.where(rng.random(1500) < 0.7, best[state], rng.integers(5, size=1500))
    tuned = NeighbourPolicy(100, shrinkage="cv", bandwidth="cv").fit(x, y)
    flat = NeighbourPolicy(100, shrinkage="cv").fit(x, y)
    score = [np.log(p.oof_proba_[np.arange(1500), y]).mean() for p in (tuned, flat)]
    # About 25 points share a centre: of 100 neighbours most are strangers, and the kernel tells them.
    assert tuned.bandwidth_ is not None
    assert score[0] > score[1] + 0.1


def test_more_neighbours_than_points_are_all_points():
    policy = NeighbourPolicy(150).fit([[0.0], [1.0], [2.0]], [0, 1, 1])
    assert policy.k_ == 3
    assert policy.predict_proba([[9.0]])[0] == pytest.approx([1 / 3, 2 / 3])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 0}, "k must be a whole number"),
        ({"k": 2.7}, "k must be a whole number"),
        ({"k": "5"}, "k must be a whole number"),
        ({"shrinkage": np.inf}, "shrinkage must be a finite number, 0 or more"),
        ({"bandwidth": np.inf}, "bandwidth must be a positive number"),
        ({"bandwidth": 1e-200}, "bandwidth must be a positive number"),
        ({"own": "self"}, "own must be 'include', 'point' or 'trajectory'"),
        ({"feature_weights": [1.0]}, "feature_weights must be 2 finite numbers"),
        ({"feature_weights": [1.0, -1.0]}, "feature_weights must be 2 finite numbers"),
        ({"shrinkage": -1.0}, "shrinkage must be a finite number, 0 or more"),
        ({"shrinkage": "CV"}, "shrinkage must be a finite number, 0 or more"),
        ({"bandwidth": 0.0}, "bandwidth must be a positive number"),
        ({"columns": [2]}, "columns must be whole numbers from 0 to 1"),
        ({"columns": [-1]}, "columns must be whole numbers from 0 to 1"),
        ({"feature_weights": [0.0, 0.0]}, "states cannot be compared"),
    ],
)
def test_bad_settings_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        NeighbourPolicy(**change).fit([[0.0, 1.0], [1.0, 0.0]], [0, 1])


@pytest.mark.parametrize("search", ["exact", Exact, None])
def test_a_search_is_an_object(search):
    with pytest.raises(TypeError, match=r"search must be Exact\(\)"):
        NeighbourPolicy(2, search=search).fit([[0.0], [1.0]], [0, 1])


def test_a_tiny_bandwidth_still_gives_probabilities():
    x = np.array([[0.0], [0.0], [1.0], [1.0]])
    policy = NeighbourPolicy(3, bandwidth=1e-30).fit(x, [0, 0, 1, 1])
    # Nearest of another row: 0 away, so that only those in the same state count.
    assert policy.predict_proba([[0.0], [1.0]]).tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_asking_the_log_in_an_unknown_way_is_refused():
    policy = NeighbourPolicy(1).fit([[0.0], [1.0]], [0, 1])
    for ask in (lambda: policy.predict_own("x"), lambda: policy.neighbours_of(np.arange(2), "self")):
        with pytest.raises(ValueError, match="own must be 'include', 'point' or 'trajectory'"):
            ask()


def test_settings_are_chosen_on_rows_that_do_not_follow_the_trajectories(monkeypatch):
    # 200 trajectories of 3 steps, of which 300 rows are asked. Every third row, counted from the first, is a first
    # step, and those are certain: no pull at all. Two in three are a toss, and without a pull some have 0.
    monkeypatch.setattr("caliope.behaviour._neighbours._TUNED", 300)
    rng = np.random.default_rng(0)
    first = np.arange(600) % 3 == 0
    x = np.where(first, rng.choice([-1.0, 1.0], size=600), 20.0) + 0.1 * rng.normal(size=600)
    actions = np.where(first, (x > 0).astype(int), rng.integers(2, size=600))
    policy = NeighbourPolicy(3, shrinkage="cv").fit(x[:, None], actions, groups=np.arange(600) // 3)
    assert policy.shrinkage_ > 0


def test_a_bandwidth_is_chosen_where_every_likelihood_is_zero():
    # Action 2 was taken once, so that nothing gives it any probability without its own row; the others say which
    # bandwidth is good: near neighbours are treated alike.
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 20, size=(600, 1))
    actions = np.floor(x[:, 0]).astype(int) % 2
    actions[0] = 2
    policy = NeighbourPolicy(100, bandwidth="cv").fit(x, actions)
    assert policy.bandwidth_ is not None


def test_constant_columns_and_one_action_are_no_trouble():
    policy = NeighbourPolicy(2).fit(np.ones((5, 3)), np.zeros(5, dtype=int))
    assert policy.predict_proba(np.ones((2, 3))).tolist() == [[1.0], [1.0]]


def test_a_hundred_actions_keep_their_columns():
    rng = np.random.default_rng(0)
    y = rng.permutation(np.repeat(np.arange(100), 5))
    x = y[:, None] + 0.01 * rng.normal(size=(500, 1))
    proba = cal.action_probabilities(NeighbourPolicy(5).fit(x, y), np.arange(100.0)[:, None], 100)
    assert np.allclose(proba, np.eye(100))
