"""Exact neighbours in PyTorch, here on the CPU, against those of FAISS and against brute force."""

import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra `torch` is not installed")

from caliope.behaviour import Exact, NeighbourPolicy  # noqa: E402
from caliope.behaviour._torch_search import TorchIndex, sums_in_float32  # noqa: E402

SAME = 1e-6  # relative, as the docstring of Exact says


def make_points(kind, n=3000, d=30):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, d))
    if kind == "clustered":
        x = 5 * rng.normal(size=(40, d))[rng.integers(40, size=n)] + 0.3 * x
    if kind == "discrete":
        x = rng.integers(3, size=(n, d)).astype(float)
    if kind == "duplicated":
        x = x[rng.integers(60, size=n)]
    if kind == "a raw column":
        x[:, 0] = 1e4 * rng.integers(5, size=n)
    if kind == "a far point":
        x[7] = 1e6
    if kind == "a far point and many near 0":
        x = np.float32(2.0**-14) * rng.integers(3, size=(n, d))
        x[7] = 64
    if kind == "tiny":
        x *= 1e-12
    if kind == "huge":
        x *= 1e12
    if kind == "heavy tails":
        x = rng.standard_t(2.0, size=(n, d))
    return x.astype(np.float32)


KINDS = (
    *("normal", "clustered", "discrete", "duplicated", "a raw column", "a far point", "tiny", "huge"),
    *("heavy tails", "a far point and many near 0"),
)


@pytest.mark.parametrize("k", [1, 20])
@pytest.mark.parametrize("kind", KINDS)
def test_it_finds_what_exact_search_finds(kind, k):
    x = make_points(kind)
    queries = np.concatenate([x[:60], x[60:90] + np.float32(0.1) * x[90:120]])
    squared, ids = TorchIndex(x, "cpu").nearest(queries, k)
    expected, expected_ids = Exact(device="cpu").build(x).nearest(queries, k)
    assert squared == pytest.approx(expected, rel=SAME)
    # A point in another place, or another point, is as far as that of exact search.
    true = ((queries[:, None].astype(float) - x[ids]) ** 2).sum(axis=2)
    assert np.allclose(true, expected, rtol=SAME)
    # Points moved off their grid have neighbours whose distances differ in the last digit alone.
    assert (ids == expected_ids)[:60].mean() > 0.98


def test_of_points_equally_far_the_first_wins():
    # 60 different points, each about 50 times: every distance is a tie of about 50.
    x = make_points("duplicated")
    _, ids = TorchIndex(x, "cpu").nearest(x[:100], 20)
    assert np.array_equal(ids, Exact(device="cpu").build(x).nearest(x[:100], 20)[1])
    assert all((np.diff(row) > 0).all() for row in ids)


def test_queries_beyond_half_precision_are_compared_point_by_point():
    x = make_points("normal")
    queries = np.float32([1e5, 1e9, 1e17])[:, None] * np.sign(x[:3])
    squared, ids = TorchIndex(x, "cpu").nearest(queries, 5)
    expected, _ = Exact(device="cpu").build(x).nearest(queries, 5)
    assert squared == pytest.approx(expected, rel=SAME)
    assert all(len(set(row)) == 5 for row in ids)


@pytest.mark.parametrize(
    ("different", "expected"),
    [
        (3000, ["search"]),
        (60, ["search", "search"]),  # each fifty times: as many again lie as far as the tenth
        (3, ["search", "search", "compare_all"]),  # each a thousand times
    ],
)
def test_only_ties_are_looked_at_again(different, expected, monkeypatch):
    x, asked = make_points("normal"), []
    x = x[np.arange(3000) % different]
    index = TorchIndex(x, "cpu")
    table = type(index.table)
    for name in ("search", "compare_all"):
        plain = getattr(table, name)

        def watched(self, queries, k, fetched, plain=plain, name=name):
            asked.append((name, len(queries)))
            return plain(self, queries, k, fetched)

        monkeypatch.setattr(table, name, watched)
    index.nearest(x[:200], 10)
    assert asked == [(name, 200) for name in expected]


def test_what_the_first_look_calls_certain_is_right():
    """Few candidates: what cannot be told from products is said to be uncertain."""
    x = make_points("clustered")
    index = TorchIndex(x, "cpu")
    queries = torch.tensor(x[:300])
    squared, _, certain = index.table.search(queries, 10, 10)
    expected = torch.tensor(np.sort(((x[:300, None] - x) ** 2).sum(axis=2), axis=1)[:, :10])
    wrong = (squared - expected).abs().amax(dim=1) > 1e-5 * expected[:, -1]
    assert not (wrong & certain).any()
    assert not certain.all()


@pytest.mark.parametrize("n", [1, 2, 7, 45])
def test_fewer_points_than_candidates(n):
    x = make_points("normal")[:n]
    squared, ids = TorchIndex(x, "cpu").nearest(x, 10)
    expected, expected_ids = Exact(device="cpu").build(x).nearest(x, 10)
    assert np.array_equal(ids, expected_ids)
    assert squared == pytest.approx(expected, rel=SAME)


def test_the_same_policy_wherever_it_is_computed(monkeypatch):
    x, rng = make_points("normal", n=800, d=6).astype(float), np.random.default_rng(1)
    actions, groups = rng.integers(3, size=800), np.repeat(np.arange(80), 10)
    here = NeighbourPolicy(15, shrinkage="cv").fit(x, actions, groups=groups)
    monkeypatch.setattr("caliope.behaviour._search.choose_device", lambda device: "cpu:0")
    there = NeighbourPolicy(15, shrinkage="cv", search=Exact(device="cuda")).fit(x, actions, groups=groups)
    assert isinstance(there.index_.index, TorchIndex)
    assert np.allclose(there.predict_own(), here.predict_own())
    again = pickle.loads(pickle.dumps(there))
    assert np.allclose(again.predict_proba(x[:20]), here.predict_proba(x[:20]))


def test_a_gpu_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr("caliope.behaviour._devices.cuda_is_there", lambda: False)
    x = make_points("normal")
    with pytest.raises(ValueError, match="PyTorch finds no GPU here"):
        Exact(device="cuda").build(x)
    with pytest.raises(ValueError, match=r"device must be 'cpu', 'cuda', 'cuda:1' and the like"):
        Exact(device="gpu").build(x)


def test_only_large_sets_of_points_go_to_a_gpu_unasked(monkeypatch):
    monkeypatch.setattr("caliope.behaviour._devices.cuda_is_there", lambda: True)
    few, many = np.zeros((9_999, 4), dtype=np.float32), np.zeros((10_000, 4), dtype=np.float32)
    on_device = [hasattr(Exact().build(points), "index") for points in (few, many, many[:, :3])]
    assert on_device == [False, True, False]
    assert not hasattr(Exact(device="cpu").build(many), "index")


def test_a_full_gpu_is_an_error_only_where_it_was_asked_for(monkeypatch):
    x = make_points("normal", n=10_000, d=4)
    monkeypatch.setattr("caliope.behaviour._search.choose_device", lambda device: "cuda")

    def full(self, queries, k):
        raise torch.cuda.OutOfMemoryError("full")

    monkeypatch.setattr(TorchIndex, "nearest", full)
    assert Exact().build(x).nearest(x[:5], 1)[1].ravel().tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(torch.cuda.OutOfMemoryError):
        Exact(device="cuda").build(x).nearest(x[:5], 3)


def test_products_are_summed_in_float32_whatever_the_caller_allows():
    matmul = torch.backends.cuda.matmul
    names = ("allow_fp16_reduced_precision_reduction", "allow_fp16_accumulation")
    names = [name for name in names if hasattr(matmul, name)]
    assert names
    before = {name: getattr(matmul, name) for name in names}
    try:
        for name in names:
            setattr(matmul, name, True)
        with sums_in_float32():
            assert not any(getattr(matmul, name) for name in names)
        assert all(getattr(matmul, name) for name in names)
    finally:
        for name, value in before.items():
            setattr(matmul, name, value)
