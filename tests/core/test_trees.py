"""Trees grown one after the other are those of scikit-learn, to the last digit."""

import pickle
import warnings

import numpy as np
import pytest
import sklearn.ensemble
from sklearn import config_context
from sklearn.base import clone

from caliope._trees import ExtraTreesClassifier, ExtraTreesRegressor

PAIRS = {
    "regressor": (ExtraTreesRegressor, sklearn.ensemble.ExtraTreesRegressor),
    "classifier": (ExtraTreesClassifier, sklearn.ensemble.ExtraTreesClassifier),
}
OPTIONS = [
    {"min_samples_leaf": 5},
    {"max_features": 0.5, "max_depth": 4},
    {"max_features": "sqrt", "min_impurity_decrease": 0.01, "ccp_alpha": 0.02},
    {"max_leaf_nodes": 6, "min_samples_split": 0.1},
    # What is left to scikit-learn.
    {"bootstrap": True, "oob_score": True},
]


def rows(kind, seed=0, n=150):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4))
    x[:, 0] = x[:, 0].round()
    y = x[:, 0] + rng.normal(size=n)
    return x, y if kind == "regressor" else np.array(["b", "a", "d"])[np.digitize(y, [-1, 1])]


def predictions(model, x):
    return model.predict(x), *([model.predict_proba(x)] if hasattr(model, "predict_proba") else [])


def fitted(kind, options, x, y, **more):
    ours, theirs = (cls(12, random_state=3, **options) for cls in PAIRS[kind])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Some inputs do not have OOB scores")
        return ours.fit(x, y, **more), theirs.fit(x, y, **more)


def same(ours, theirs, x):
    assert len(ours.estimators_) == len(theirs.estimators_)
    for one, two in zip(ours.estimators_, theirs.estimators_, strict=True):
        assert type(one) is type(two)
        assert one.get_params() == two.get_params()
        states = one.tree_.__getstate__(), two.tree_.__getstate__()
        assert states[0].keys() == states[1].keys()
        for name, value in states[1].items():
            if isinstance(value, np.ndarray):
                assert value.tobytes() == states[0][name].tobytes(), name
            else:
                assert value == states[0][name], name
    for one, two in zip(predictions(ours, x), predictions(theirs, x), strict=True):
        assert one.dtype == two.dtype
        assert np.array_equal(one, two)
    assert ours.feature_importances_.tolist() == theirs.feature_importances_.tolist()
    assert vars(ours).keys() >= vars(theirs).keys()  # some of them are of newer versions alone


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_trees_and_what_they_predict_are_those_of_scikit_learn(kind, options):
    x, y = rows(kind)
    new = rows(kind, 1, 40)[0]
    for table in (x, x.astype(np.float32), np.asfortranarray(x), x[:9]):
        ours, theirs = fitted(kind, options, table, y[: len(table)])
        same(ours, theirs, new)
    assert pickle.loads(pickle.dumps(ours)).predict(new).tolist() == ours.predict(new).tolist()
    assert repr(clone(ours)) == repr(clone(theirs))


def test_several_columns_of_targets():
    x, y = rows("regressor")
    same(*fitted("regressor", {}, x, np.stack([y, y**2, x[:, 1]], axis=1)), x)


@pytest.mark.parametrize("kind", PAIRS)
def test_what_is_unusual_is_left_to_scikit_learn(kind):
    x, y = rows(kind)
    same(*fitted(kind, {}, x, y, sample_weight=np.arange(len(x)) % 3.0), x)
    gaps = np.where(np.arange(len(x))[:, None] % 5 == 0, np.nan, x)
    same(*fitted(kind, {}, gaps, y), gaps)
    same(*fitted(kind, {}, x.tolist(), y.tolist()), x)
    generators = [cls(4, random_state=np.random.RandomState(0)).fit(x, y) for cls in PAIRS[kind]]
    assert np.array_equal(*(model.predict(x) for model in generators))


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize(
    ("options", "damage"),
    [
        ({"n_estimators": 0}, None),
        ({"min_samples_leaf": -1}, None),
        ({}, np.inf),
        ({}, "few"),
        ({}, "target"),
    ],
)
def test_mistakes_are_refused_in_the_words_of_scikit_learn(kind, options, damage):
    x, y = rows(kind)
    if damage == np.inf:
        x[3, 1] = np.inf
    y = y[:-1] if damage == "few" else y
    if damage == "target":
        y = np.where(np.arange(len(y)) == 3, np.nan, np.arange(len(y)) + 0.5)
    said = []
    for cls in PAIRS[kind]:
        with pytest.raises(ValueError) as error:
            cls(**options, random_state=0).fit(x, y)
        said.append(str(error.value))
    assert said[0] == said[1]
    with pytest.raises(sklearn.exceptions.NotFittedError):
        PAIRS[kind][0]().predict(x)


def test_the_settings_of_scikit_learn_stay_as_they_were():
    x, y = rows("regressor")
    with config_context(skip_parameter_validation=False, working_memory=64):
        ExtraTreesRegressor(3, random_state=0).fit(x, y)
        assert sklearn.get_config()["skip_parameter_validation"] is False
        assert sklearn.get_config()["working_memory"] == 64
