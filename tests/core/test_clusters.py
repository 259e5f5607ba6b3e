"""Clusters stay together: in selections, folds, samples, resamples and standard errors; loops beside the formulas."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import caliope as cal
from caliope._clusters import number_clusters
from caliope._formulas import monte_carlo
from caliope.behaviour import NeighbourPolicy, TabularFrequencies
from caliope.calibration import neighbourhoods
from caliope.checks._audit import check_scale, mean_of_steps
from caliope.checks._log import behaviour_findings
from caliope.uncertainty._dependence import few_clusters_factor, leave_clusters_out
from caliope.uncertainty._resampling import count_blocks
from caliope.values import TabularRegressor, cross_fitted_q_by_time
from caliope.values._defaults import fit_default_values
from conftest import ESTIMATORS, random_evidence

every = pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=ESTIMATORS)
LABELS = np.array(["b", "a", "c", "a", "b", "b", "c", "d", "a", "d", "e", "e"])  # of 12 trajectories


def log(n=12, cluster=LABELS, seed=0, actions=2):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 5, size=n)
    steps = int(lengths.sum())
    return cal.Trajectories(
        rng.normal(size=(steps, 2)),
        rng.integers(actions, size=steps),
        rng.normal(size=steps),
        np.concatenate([[0], np.cumsum(lengths)]),
        n_actions=actions,
        cluster=cluster,
        ids=np.arange(100, 100 + n),
    )


@pytest.fixture(scope="module")
def e():
    return random_evidence(seed=3, n=12, spread=0.3, cluster=LABELS)


# -- labels --


def test_labels_are_kept_as_given_and_numbered_by_their_first_trajectory():
    data = log()
    assert data.cluster.tolist() == LABELS.tolist()
    assert data.layout.cluster.tolist() == [0, 1, 2, 1, 0, 0, 2, 3, 1, 3, 4, 4]
    assert data.layout.n_units == 5
    assert data.layout.unit_of_step.tolist() == data.layout.cluster[data.layout.owner].tolist()


@pytest.mark.parametrize(
    "labels",
    [[("x", 1), ("y", 2), ("x", 1)], [1, "1", 1], [1.5, 2.5, 1.5], [True, False, True], ["u", "v", "u"]],
)
def test_any_labels_that_can_be_compared_will_do(labels):
    data = cal.Trajectories(np.zeros((3, 1)), [0, 1, 0], [0, 0, 1], [0, 1, 2, 3], cluster=labels)
    assert data.layout.cluster.tolist() == [0, 1, 0]


def test_selections_copies_and_pickles_keep_them():
    data = log()
    assert data[[2, 0, 6]].cluster.tolist() == ["c", "b", "c"]
    assert data[[2, 0, 6]].layout.cluster.tolist() == [0, 1, 0]
    assert data[3:5].cluster.tolist() == ["a", "b"]
    assert data.replace(rewards=data.rewards + 1).cluster.tolist() == LABELS.tolist()
    assert pickle.loads(pickle.dumps(data)).cluster.tolist() == LABELS.tolist()
    assert data.replace(cluster=None).cluster is None


def test_clusters_of_one_trajectory_each_are_none():
    data = log(cluster=np.arange(12)[::-1])
    assert data.layout.cluster is None
    assert data.layout.n_units == 12
    assert number_clusters(np.array(["z", "y"])) is None


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (["a", "b"], r"one label for each of the 12 trajectories, got shape \(2,\)"),
        ([*LABELS[:-1].tolist(), None], r"1 of 12 have none \(first: trajectory 111\)"),
        ([1.0] * 10 + [np.nan] * 2, r"2 of 12 have none \(first: trajectory 110\)"),
    ],
)
def test_bad_labels_are_refused(labels, said):
    with pytest.raises(ValueError, match=said):
        log(cluster=labels)
    with pytest.raises(TypeError, match="can be compared"):
        log(cluster=[{"a": 1}] * 12).layout.cluster  # noqa: B018


# -- folds and samples --


@pytest.mark.parametrize("k", [2, 3, 5])
def test_folds_never_part_a_cluster(k):
    data = log()
    fold = data.fold_of(k, rng=1)
    assert sorted(set(fold.tolist())) == list(range(k))
    for name in set(LABELS.tolist()):
        assert len(set(fold[name == LABELS].tolist())) == 1
    for fit, held_out in data.folds(k, rng=1):
        unit = data.layout.unit_of_step
        assert not set(unit[fit]) & set(unit[held_out])
        assert len(fit) + len(held_out) == data.n_steps
    with pytest.raises(ValueError, match="between 2 and the 5 clusters, got 6"):
        data.fold_of(6, rng=0)


def test_folds_of_unequal_clusters_are_of_about_equal_size():
    cluster = np.repeat(np.arange(20), np.r_[30, 25, np.full(18, 5)])
    fold = log(n=len(cluster), cluster=cluster).fold_of(5, rng=0)
    assert np.bincount(fold).tolist() == [30, 30, 30, 30, 25] or np.ptp(np.bincount(fold)) <= 10


def test_a_split_never_parts_a_cluster():
    one, other = log().split(0.5, rng=0)
    assert not set(one.cluster) & set(other.cluster)
    assert len(one) + len(other) == 12
    with pytest.raises(ValueError, match="5 clusters leaves one part empty"):
        log().split(0.05, rng=0)


def test_a_sample_of_a_long_log_takes_whole_clusters_or_a_share_of_each():
    many = log(n=400, cluster=np.repeat(np.arange(100), 4))
    which = many.subsample(many.n_steps // 2, rng=np.random.default_rng(0))
    sizes = np.bincount(many.layout.cluster[which])
    assert set(sizes.tolist()) == {0, 4}
    assert 190 <= len(which) <= 200
    few = log(n=400, cluster=np.arange(400) % 8)
    which = few.subsample(few.n_steps // 2, rng=np.random.default_rng(0))
    assert (np.diff(which) > 0).all()
    assert 190 <= len(which) <= 200
    assert np.bincount(few.layout.cluster[which]).min() >= 20


def test_without_clusters_and_with_one_trajectory_each_the_numbers_are_the_same():
    alone, plain = log(n=40, cluster=[f"c{i}" for i in range(40)]), log(n=40, cluster=None)
    assert alone.fold_of(5, rng=3).tolist() == plain.fold_of(5, rng=3).tolist()
    assert alone.split(0.3, rng=3)[0].ids.tolist() == plain.split(0.3, rng=3)[0].ids.tolist()
    one, other = (x.subsample(30, rng=np.random.default_rng(1)).tolist() for x in (alone, plain))
    assert one == other
    half = np.full((plain.n_steps, 2), 0.5)
    tables = [
        cal.estimate(cal.gather(x, half, half), cal.wis, cal.monte_carlo, n_draws=50, rng=0)
        for x in (alone, plain)
    ]
    assert tables[0].to_dict() == tables[1].to_dict()


# -- models and values --


def test_models_get_clusters_as_groups_and_values_keep_them_apart():
    seen = []

    class Spy(LogisticRegression):
        def fit(self, X, y, groups=None):
            seen.append(np.asarray(groups))
            return super().fit(X, y)

    data = log(n=60, cluster=np.arange(60) % 12)
    cal.fit_behaviour(Spy(), data, mode="cross", folds=4, rng=0)
    unit = data.layout.unit_of_step
    assert seen[0].tolist() == unit.tolist()
    for (fit, _), groups in zip(data.folds(4, rng=0), seen[1:], strict=True):
        assert groups.tolist() == unit[fit].tolist()
    q = cross_fitted_q_by_time(data, np.full((data.n_steps, 2), 0.5), TabularRegressor(), gamma=1.0, rng=0)
    assert all(len(set(q.fold[data.layout.cluster == c].tolist())) == 1 for c in range(12))


def test_values_of_what_was_not_fitted_on_come_from_a_model_without_its_cluster():
    data = log(n=60, cluster=np.arange(60) % 6)
    target = np.full((data.n_steps, 2), 0.5)
    which = np.arange(30)
    whole, _ = fit_default_values(data, target, TabularRegressor(), gamma=1.0, rng=0, fitted_on=which)
    part = data[which]
    dealt = [np.random.default_rng(seed) for seed in (0, [0, 1], [0, 2])]
    fits = [
        cross_fitted_q_by_time(part, target[: part.n_steps], TabularRegressor(), gamma=1.0, folds=2, rng=rng)
        for rng in dealt
    ]
    for i in range(30, 60):
        values = [q.models[int(q.fold[i % 6])].on(data[[i]]) for q in fits]
        rows = data.layout.rows_of(np.array([i]))
        assert whole[rows] == pytest.approx(np.mean(values, axis=0))


def test_neighbours_are_never_of_the_own_cluster():
    data = log(n=60, cluster=np.arange(60) % 12)
    unit = data.layout.unit_of_step
    near = neighbourhoods(data, [0, 10, 50], k=20)
    for row, ids in zip((0, 10, 50), near.ids, strict=True):
        assert unit[row] not in unit[ids]
    fitted = cal.fit_behaviour(NeighbourPolicy(5), data, mode="same")
    assert fitted.model.groups_.tolist() == np.unique(unit, return_inverse=True)[1].tolist()


# -- resampling --


@pytest.mark.parametrize("scheme", [cal.uncertainty.with_replacement, cal.uncertainty.bayesian])
def test_counts_of_a_resample_are_those_of_whole_clusters(e, scheme):
    counts = np.concatenate(
        [*count_blocks(12, 20, scheme=scheme, cluster=e.cluster, rng=np.random.default_rng(5))]
    )
    drawn = scheme(5, 5, 20, np.random.default_rng(5))
    for b in range(20):
        for i in range(12):
            assert counts[b, i] == drawn[b, e.cluster[i]]


@every
def test_draws_are_estimates_on_copies_of_whole_clusters(e, estimator):
    drawn = cal.uncertainty.with_replacement(5, 5, 6, np.random.default_rng(2))
    values = cal.uncertainty.draws(estimator, e, n_draws=6, rng=2)
    for b in range(6):
        which = [i for c in range(5) for i in np.flatnonzero(e.cluster == c) for _ in range(int(drawn[b, c]))]
        assert values[b] == pytest.approx(float(estimator(e.take(np.array(which)))), rel=1e-9)


def test_a_sample_of_some_trajectories_draws_clusters_of_about_so_many(e):
    blocks = count_blocks(12, 300, size=5, cluster=e.cluster, rng=np.random.default_rng(0))
    total = np.concatenate([*blocks]).sum(axis=1)
    assert total.mean() == pytest.approx(
        2 * 12 / 5, abs=0.3
    )  # 2 clusters of 2.4; error 1.2 / sqrt(300) = 0.07


@every
def test_the_delta_method_and_the_jackknife_by_cluster(e, estimator):
    u, n = cal.uncertainty.influence(estimator, e), len(e)
    square = 0.0
    for c in range(5):
        total = 0.0
        for i in range(n):
            if e.cluster[i] == c:
                total += u[i]
        square += total**2
    arm = 2.7764451051977987 * np.sqrt(square * 5 / 4) / n  # t with 4 degrees of freedom
    found = cal.uncertainty.delta_method(estimator, e)
    assert [found.low, found.high] == pytest.approx([estimator(e) - arm, estimator(e) + arm])
    without = [float(estimator(e.take(np.flatnonzero(e.cluster != c)))) for c in range(5)]
    assert leave_clusters_out(estimator, e) == pytest.approx(without)
    se = np.sqrt(4 / 5 * sum((x - np.mean(without)) ** 2 for x in without))
    found = cal.uncertainty.jackknife(estimator, e)
    assert found.width == pytest.approx(2 * 2.7764451051977987 * se)


def test_the_bootstrap_is_stretched_where_clusters_are_few(e):
    plain = cal.uncertainty.draws(monte_carlo, e, n_draws=400, rng=0)
    low, high = np.quantile(plain, [0.025, 0.975])
    sizes = np.bincount(e.cluster)
    effective = sizes.sum() ** 2 / (sizes**2).sum()
    factor = few_clusters_factor(effective, 0.95)
    found = cal.bootstrap(monte_carlo, e, n_draws=400, rng=0)
    value = float(monte_carlo(e))
    assert found.low == pytest.approx(value - factor * (value - low))
    assert found.high == pytest.approx(value + factor * (high - value))
    assert found.method == "bootstrap, percentile, whole clusters"
    assert cal.estimate(e, monte_carlo, n_draws=400, rng=0)[0].interval.width == pytest.approx(found.width)
    assert cal.uncertainty.bca(monte_carlo, e, n_draws=400, rng=0).width > high - low
    # t with 11 and 29 degrees of freedom over 1.96, and the lost degree of freedom.
    assert few_clusters_factor(12, 0.95) == pytest.approx(2.200985 / 1.959964 * np.sqrt(12 / 11), rel=1e-6)
    assert few_clusters_factor(30, 0.95) == pytest.approx(2.045230 / 1.959964 * np.sqrt(30 / 29), rel=1e-6)
    assert few_clusters_factor(1.0, 0.95) == few_clusters_factor(2.0, 0.95)


def test_refits_resample_whole_clusters():
    cluster = np.arange(80) % 8
    data = log(n=80, cluster=cluster)
    target = np.full((data.n_steps, 2), 0.5)
    options = {"target": target, "n_refits": 40, "rng": 0}
    (found,) = cal.uncertainty.refit(data, LogisticRegression(), monte_carlo, **options)
    drawn, generator = [], np.random.default_rng(0)
    for _ in range(40):
        counts = cal.uncertainty.with_replacement(8, 8, 1, generator)[0][cluster]
        drawn.append(counts @ data.returns() / counts.sum())
    value = data.returns().mean()
    arm = 2.0210753903062737 * np.sqrt(
        np.mean((np.array(drawn) - value) ** 2)
    )  # t with 40 degrees of freedom
    assert found.width == pytest.approx(2 * arm * few_clusters_factor(8, 0.95))


def test_effective_clusters_are_in_the_estimate():
    weights = [1, 1, 2, 4]
    e = cal.Evidence(np.arange(4), np.log(weights), np.arange(5), cluster=["a", "a", "b", "b"])
    row = cal.estimate(e, cal.wis, n_draws=20, rng=0)[0]
    assert row.effective_clusters == pytest.approx(8**2 / (2**2 + 6**2))
    assert row.cells()["effective clusters"] == "1.6"
    assert row.to_dict()["effective_clusters"] == pytest.approx(1.6)
    assert row.record()["effective_clusters"] == pytest.approx(1.6)
    alone = cal.estimate(replace(e, cluster=None), cal.wis, n_draws=20, rng=0)[0]
    assert alone.to_dict()["effective_clusters"] is None
    assert "effective clusters" not in alone.cells()


def test_bounds_with_a_guarantee_need_independent_trajectories():
    e = cal.Evidence(np.ones(6), np.zeros(6), np.arange(7), cluster=[0, 0, 1, 1, 2, 2], behaviour_known=True)
    with pytest.raises(ValueError, match="belong to 3 clusters: use bootstrap"):
        cal.bounds.hcope(e, returns_in=(0, 1), rng=0)


# -- standard errors --


def test_the_standard_error_of_a_mean_by_cluster():
    data = log()
    x = np.random.default_rng(1).normal(size=12)
    square = sum(sum(x[i] - x.mean() for i in range(12) if c == LABELS[i]) ** 2 for c in set(LABELS.tolist()))
    assert data.layout.se_of_mean(x) == pytest.approx(np.sqrt(square) / 12)
    assert data.replace(cluster=None).layout.se_of_mean(x) == pytest.approx(x.std() / np.sqrt(12))


def test_the_mean_of_steps_and_its_error_by_cluster():
    data = log()
    values = np.random.default_rng(1).normal(size=data.n_steps)
    mean, se = mean_of_steps(data, values)
    square = 0.0
    for c in range(5):
        square += (
            sum(values[t] - values.mean() for t in range(data.n_steps) if data.layout.unit_of_step[t] == c)
            ** 2
        )
    assert mean == pytest.approx(values.mean())
    assert se == pytest.approx(np.sqrt(square) / data.n_steps)
    assert check_scale(data, np.ones(data.n_steps)) is None


def test_the_balance_of_a_behaviour_model_is_tested_by_cluster():
    """One cluster that takes the action always: clear where its trajectories count as independent, not as one."""
    rng = np.random.default_rng(0)
    n = 600
    cluster = np.repeat(np.arange(20), 30)
    actions = np.where(cluster == 0, 1, np.where(cluster == 1, 0, rng.integers(2, size=n)))
    x = (cluster == 0) * 1.0 + (cluster == 1) * -1.0
    data = cal.Trajectories(x[:, None], actions, np.zeros(n), np.arange(n + 1), cluster=cluster)
    proba = np.full((n, 2), 0.5)
    found = behaviour_findings(data.replace(cluster=None), np.arange(n), proba)
    assert [f.code for f in found] == ["B104"]
    assert not behaviour_findings(data, np.arange(n), proba)


def test_the_comparison_of_models_is_by_cluster():
    data = log(n=120, cluster=np.arange(120) % 10)
    models = {"counts": cal.fit_behaviour(TabularFrequencies(), data, mode="cross", rng=0)}
    row = cal.compare_policies(models, data, n_draws=50, rng=0)[0]
    assert row.measured.nll_interval.method == "bootstrap by cluster"


# -- findings --


@pytest.mark.parametrize(("clusters", "level"), [(9, "issue"), (10, "caution"), (29, "caution"), (30, None)])
def test_few_effective_clusters_are_reported(clusters, level):
    n = 20 * clusters
    e = cal.Evidence(
        np.random.default_rng(0).normal(size=n),
        np.zeros(n),
        np.arange(n + 1),
        cluster=np.arange(n) % clusters,
    )
    found = {f.code: f for f in cal.estimate(e, cal.wis, n_draws=40, rng=0)[0].findings}
    assert (found["D115"].level if "D115" in found else None) == level
    if level:
        assert found["D115"].facts["effective_clusters"] == pytest.approx(clusters)
    assert found["L109"].level == "note"
    paired = cal.estimate(e, cal.difference(cal.wis), n_draws=40, rng=0)[0].findings
    assert [f.code for f in paired].count("D115") == (level is not None)
    assert found["L109"].facts["clusters"] == clusters
