"""Saved models come back the same; everything that is not on the list is refused before it is made."""

import io
import json
import pickle
import sys
from contextlib import nullcontext
from fractions import Fraction
from importlib import import_module
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier, StackingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import caliope as cal
from caliope.behaviour import (
    Chain,
    Isotonic,
    NeighbourPolicy,
    Shrinkage,
    Temperature,
    VectorScaling,
    _saving,
    boosting,
    recalibrate,
)
from caliope.behaviour._ensembles import OrderedExtraTrees, OrderedForest
from caliope.behaviour._saving import TREES, TRUSTED, UntrustedModelError, load_model, save_model
from caliope.behaviour._search import Exact, InvertedLists, RandomProjections
from caliope.domains import ward

pytest.importorskip("skops", reason="models are saved with skops, the extra 'persist'")

DATA = ward.simulate(60, rng=0)
X, Y = DATA.states.astype(float), DATA.actions


def returned(model, path, **options):
    """The model, after a journey to disk and back."""
    save_model(model, path / "model.skops")
    return load_model(path / "model.skops", **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(),
        make_pipeline(StandardScaler(), LogisticRegression()),
        MLPClassifier((4,), max_iter=3, random_state=0),
        StackingClassifier([("bayes", GaussianNB()), ("logistic", LogisticRegression())]),
    ],
    ids=["logistic", "pipeline", "network", "stack"],
)
@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
def test_a_classifier_comes_back_the_same(model, tmp_path):
    model = model.fit(X, Y)
    assert np.array_equal(returned(model, tmp_path).predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize(
    "calibrator",
    [Temperature(), VectorScaling(), Isotonic(), Chain((Shrinkage(), Temperature()))],
    ids=["temperature", "vector", "isotonic", "chain"],
)
def test_a_recalibrated_model_comes_back_the_same(calibrator, tmp_path):
    model = recalibrate(GaussianNB(), DATA, calibrator, rng=0).model
    again = returned(model, tmp_path)
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.classes_.tolist() == [0, 1, 2]


@pytest.mark.parametrize("search", [Exact(), InvertedLists(n_lists=8, n_probe=2), RandomProjections(64)])
def test_neighbours_are_searched_as_before(search, tmp_path):
    wide = np.random.default_rng(0).normal(size=(len(Y), 20))  # below 16 columns every search is exact
    model = make_pipeline(StandardScaler(), NeighbourPolicy(5, search=search, shrinkage="cv")).fit(wide, Y)
    again = returned(model, tmp_path)
    assert np.array_equal(again.predict_proba(wide), model.predict_proba(wide))
    assert np.array_equal(again[-1].predict_own(), model[-1].predict_own())
    assert again[-1].search == search


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        RandomForestClassifier(3, random_state=0),
        OrderedForest(3, random_state=0),
        OrderedExtraTrees(3, random_state=0),
        HistGradientBoostingClassifier(max_iter=2),
        boosting().set_params(max_iter=2),
    ],
    ids=["forest", "our forest", "our extra trees", "boosting", "our boosting"],
)
def test_trees_are_loaded_only_on_request(model, tmp_path):
    model = model.fit(X, Y)
    with pytest.raises(UntrustedModelError, match=r"forged tree.*wrote the file yourself.*trees=True"):
        returned(model, tmp_path)
    assert np.array_equal(returned(model, tmp_path, trees=True).predict_proba(X), model.predict_proba(X))


class Bomb:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return (io.open, (self.mark, "w"))


def test_a_pickle_is_refused_without_being_opened(tmp_path):
    mark, file = tmp_path / "mark", tmp_path / "model.skops"
    file.write_bytes(pickle.dumps(Bomb(str(mark))))
    with pytest.raises(UntrustedModelError, match=r"has not been opened.*pickle.*untrusted sources"):
        load_model(file)
    assert not mark.exists()
    with pickle.loads(file.read_bytes()):  # the trap itself works
        assert mark.exists()


def test_a_pickle_inside_a_zip_file_is_refused_without_being_opened(tmp_path):
    mark, file = tmp_path / "mark", tmp_path / "model.pt"  # as torch writes them
    with ZipFile(file, "w") as archive:
        archive.writestr("data.pkl", pickle.dumps(Bomb(str(mark))))
    with pytest.raises(UntrustedModelError, match="has not been opened"):
        load_model(file)
    assert not mark.exists()


def test_a_file_with_a_strange_type_is_refused_by_name(tmp_path):
    save_model(GaussianNB().fit(X, Y), tmp_path / "model.skops")
    forged = tmp_path / "forged.skops"
    with ZipFile(tmp_path / "model.skops") as old, ZipFile(forged, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "schema.json":
                schema = json.loads(content)
                schema |= {"__class__": "Popen", "__module__": "subprocess"}
                content = json.dumps(schema).encode()
            new.writestr(name, content)
    with pytest.raises(UntrustedModelError, match=r"does not trust: subprocess\.Popen\. Nothing was loaded"):
        load_model(forged, trees=True)


def rewritten(path, change, *, more=()):
    """The file again, each part of it changed (left out where that gives None), and others beside them."""
    with ZipFile(path) as old:
        parts = [(name, change(name, old.read(name))) for name in old.namelist()]
    with ZipFile(path, "w") as new:
        for name, content in [*parts, *more]:
            if content is not None:
                new.writestr(name, content)


def as_array(content):
    buffer = io.BytesIO()
    np.save(buffer, np.array([content], dtype=object), allow_pickle=True)
    return buffer.getvalue()


SCHEMAS = {"no JSON": b"{", "a list": b"[]", "empty": b"{}"}


@pytest.mark.parametrize(
    "change",
    [
        *(lambda n, c, s=s: s if n == "schema.json" else c for s in SCHEMAS.values()),
        lambda n, c: None if n.endswith(".npy") else c,
        lambda n, c: c.replace(b'"file": "', b'"file": "../../') if n == "schema.json" else c,
    ],
    ids=[*SCHEMAS, "without arrays", "arrays outside"],
)
def test_a_model_that_was_tampered_with_is_one_clear_line(change, tmp_path):
    path = tmp_path / "model.skops"
    save_model(GaussianNB().fit(X, Y), path)
    rewritten(path, change)
    with pytest.raises(
        ValueError, match=r"model\.skops cannot be read \(.*\): it is damaged, or was written with"
    ):
        load_model(path)


@pytest.mark.parametrize("as_part", [pickle.dumps, as_array], ids=["pickle", "array of objects"])
def test_a_pickle_inside_a_model_is_not_opened(as_part, tmp_path):
    mark, path = tmp_path / "mark", tmp_path / "model.skops"
    save_model(GaussianNB().fit(X, Y), path)
    rewritten(path, lambda n, c: as_part(Bomb(str(mark))) if n.endswith(".npy") else c)
    with pytest.raises(ValueError, match=r"cannot be read .*pickle"):
        load_model(path)
    assert not mark.exists()


@pytest.mark.parametrize(("size", "refused"), [(100_000, False), (40_000_000, True)])
def test_a_small_file_that_would_fill_the_memory_is_not_unpacked(size, refused, tmp_path):
    path = tmp_path / "model.skops"
    save_model(GaussianNB().fit(X, Y), path)
    with ZipFile(path, "a", ZIP_DEFLATED) as archive:
        archive.writestr("more.npy", bytes(size))
    if refused:
        with pytest.raises(
            UntrustedModelError, match=r"bytes and would unpack to 40,\d{3},\d{3}\. Nothing was"
        ):
            load_model(path)
    else:
        assert isinstance(load_model(path), GaussianNB)


@pytest.mark.parametrize(("less", "refused"), [(0, False), (Fraction(1, 10**6), True)])
def test_a_file_may_unpack_to_as_many_times_its_size_as_is_said(less, refused, tmp_path, monkeypatch):
    path = tmp_path / "model.skops"
    save_model(GaussianNB().fit(X, Y), path)
    with ZipFile(path) as archive:
        unpacked = sum(part.file_size for part in archive.infolist())
    monkeypatch.setattr(_saving, "_MOST_PACKED", Fraction(unpacked, path.stat().st_size) - less)
    with pytest.raises(UntrustedModelError, match="would unpack") if refused else nullcontext():
        load_model(path)


def nested(depth):
    return b"[" * depth


def claimed(rows):
    """The beginning of an array that says it has so many rows."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": (rows,)})
    return buffer.getvalue()


@pytest.mark.parametrize(
    "change",
    [
        lambda n, c: nested(100_000) if n == "schema.json" else c,
        lambda n, c: claimed(10**13) if n.endswith(".npy") else c,
    ],
    ids=["nested without end", "an array of 73 TiB"],
)
def test_a_model_that_asks_for_too_much_is_one_clear_line(change, tmp_path):
    path = tmp_path / "model.skops"
    save_model(GaussianNB().fit(X, Y), path)
    rewritten(path, change)
    with pytest.raises(
        ValueError, match=r"model\.skops cannot be read \((Recursion|Memory|Value)Error: .+ damaged"
    ):
        load_model(path)


def probabilities_or_error(path):
    try:
        return load_model(path).predict_proba(X)
    except ValueError as error:
        return str(error)


def test_no_bit_of_a_model_changes_unnoticed(tmp_path):
    """Every part of the file has its checksum; what is read none the less, such as dates, changes no number."""
    path, model = tmp_path / "model.skops", GaussianNB().fit(X, Y)
    save_model(model, path)
    whole, refused = path.read_bytes(), 0
    for at in np.random.default_rng(0).integers(len(whole), size=60):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
        came = probabilities_or_error(path)
        refused += isinstance(came, str)
        assert (
            "model.skops" in came if isinstance(came, str) else np.array_equal(came, model.predict_proba(X))
        )
    assert refused > 40


def test_nothing_is_written_where_names_inside_a_model_point(tmp_path):
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    save_model(GaussianNB().fit(X, Y), folder / "model.skops")
    rewritten(
        folder / "model.skops", lambda n, c: c, more=[("../../evil", b"x"), (str(tmp_path / "evil"), b"x")]
    )
    load_model(folder / "model.skops")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "b", "model.skops"]


def square(x):
    return x**2


class Own(GaussianNB):
    pass


@pytest.mark.parametrize(
    ("model", "culprit"),
    [
        (make_pipeline(FunctionTransformer(square), GaussianNB()), "square"),
        (make_pipeline(FunctionTransformer(lambda x: x + 1), GaussianNB()), "lambda"),
        (Own(), "Own"),
    ],
    ids=["function", "lambda", "class"],
)
def test_what_could_not_be_loaded_is_not_saved(model, culprit, tmp_path):
    with pytest.raises(UntrustedModelError, match=rf"would refuse: .*{culprit}.*Nothing was written"):
        save_model(model.fit(X, Y), tmp_path / "model.skops")
    assert not (tmp_path / "model.skops").exists()


def test_the_log_is_not_saved_by_accident(tmp_path):
    fitted = cal.fit_behaviour(GaussianNB(), DATA, mode="same")
    with pytest.raises(UntrustedModelError, match="Save the fitted model itself"):
        save_model(fitted, tmp_path / "model.skops")
    assert np.array_equal(returned(fitted.model, tmp_path).predict_proba(X), fitted.predict_proba(X))


def test_an_object_that_cannot_be_written_says_so(tmp_path):
    model = GaussianNB().fit(X, Y)
    model.log_ = (row for row in X)
    with pytest.raises(UntrustedModelError, match="this GaussianNB cannot be saved"):
        save_model(model, tmp_path / "model.skops")


def test_a_missing_file_is_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_model(tmp_path / "nothing.skops")


@pytest.mark.parametrize("name", [*TRUSTED, *TREES])
def test_every_trusted_type_exists(name):
    module, _, kind = name.rpartition(".")
    assert isinstance(getattr(import_module(module), kind), type)


def test_without_skops_the_message_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "skops.io", None)
    for use in (lambda: save_model(GaussianNB(), tmp_path / "x"), lambda: load_model(tmp_path / "x")):
        with pytest.raises(ModuleNotFoundError, match=r"pip install 'caliope\[persist\]'"):
            use()
