"""Policies that were fitted on named columns or on words: they see a frame, and their words are the log's actions."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import caliope as cal
from caliope._gather import target_probabilities
from caliope.behaviour import EncodedPolicy, load_model, save_model
from support.raw_tables import SHOP, shop


@pytest.fixture(scope="module")
def raw():
    return shop(300, seed=5, gaps=0.0).raw


@pytest.fixture(scope="module")
def data(raw):
    return cal.read_table(raw, **SHOP, keep=["device", "country"])


def test_a_policy_of_the_features_gets_them_by_name_and_in_its_own_order(data):
    names = list(reversed(data.feature_names))
    frame = pd.DataFrame(data.states, columns=data.feature_names)[names]
    policy = LogisticRegression(max_iter=500).fit(frame, np.array(data.action_names)[data.actions])
    expected = np.zeros((data.n_steps, 3))
    for row, proba in enumerate(policy.predict_proba(frame)):  # by words, one at a time
        for word, chance in zip(policy.classes_, proba, strict=True):
            expected[row, data.action_names.index(word)] = chance
    np.testing.assert_allclose(target_probabilities(data, policy), expected)


def test_a_policy_of_the_raw_columns_gets_those_that_were_kept(data, raw):
    encode = make_column_transformer((OneHotEncoder(), ["device", "country"]), ("passthrough", ["basket"]))
    policy = make_pipeline(encode, LogisticRegression(max_iter=500))
    frame = raw.select("device", "country", "basket").to_pandas()
    policy.fit(frame, raw["offer"].to_list())
    order = [list(policy.classes_).index(name) for name in data.action_names]
    np.testing.assert_allclose(target_probabilities(data, policy), policy.predict_proba(frame)[:, order])
    with pytest.raises(
        ValueError, match=r"was fitted on the features .*'device' is not there. Keep it with keep="
    ):
        target_probabilities(cal.read_table(raw, **SHOP), policy)


def test_words_that_are_no_actions_of_the_log_are_refused(data):
    policy = LogisticRegression().fit(data.states[:4], ["none", "gift", "none", "gift"])
    with pytest.raises(ValueError, match=r"knows the action 'gift', and the actions of the log are 10% off"):
        target_probabilities(data, policy)


@pytest.mark.slow
def test_an_audit_takes_a_policy_of_words(data):
    frame = pd.DataFrame(data.states, columns=data.feature_names)
    words = np.array(data.action_names)[data.actions]
    policy = LogisticRegression(C=0.01, max_iter=500).fit(frame, words)
    models = {"logistic": LogisticRegression(max_iter=500)}
    found = cal.audit(data, policy, models, n_draws=20, rng=0)
    mixed = cal.audit(data, cal.mix(cal.practice, policy, 0.5), models, n_draws=20, rng=0)
    assert abs(found.gain.value) < 0.1
    assert abs(mixed.gain.value) < 0.1


def test_a_saved_policy_predicts_on_new_rows_of_the_table(tmp_path):
    pytest.importorskip("skops")
    data = cal.read_table(shop(400, seed=5).raw, **SHOP)
    model = LogisticRegression(max_iter=500).fit(data.states, data.actions)
    save_model(model, tmp_path / "policy.skops", encoder=data.encoder)
    policy = load_model(tmp_path / "policy.skops")
    assert policy.encoder == data.encoder
    new = shop(50, seed=6).raw
    expected = model.predict_proba(data.encoder.transform(new))
    for frame in (new, new.to_pandas()):
        np.testing.assert_array_equal(policy.predict_proba(frame), expected)
    assert set(policy.predict(new)) <= set(data.action_names)


def test_another_log_is_read_with_the_encoder_of_the_policy(tmp_path):
    data = cal.read_table(shop(400, seed=5).raw, **SHOP)
    policy = EncodedPolicy(LogisticRegression(max_iter=500).fit(data.states, data.actions), data.encoder)
    later = shop(60, seed=7).raw.filter(pl.col("country").is_in(["DE", "FR"]))  # other levels: other features
    with pytest.raises(ValueError, match=r"encoder of another log.*encoder=policy\.encoder"):
        target_probabilities(cal.read_table(later, **SHOP), policy)
    read = cal.read_table(later, **SHOP, encoder=policy.encoder)
    assert read.feature_names == data.feature_names
    np.testing.assert_array_equal(read.states, data.encoder.transform(later))
    np.testing.assert_array_equal(target_probabilities(read, policy), policy.predict_proba(later))
    assert "as given" in read.encoder.describe()["encoder"]
    with pytest.raises(ValueError, match="'country' holds 'XX', which the log never had"):
        cal.read_table(later.with_columns(country=pl.lit("XX")), **SHOP, encoder=policy.encoder)
    with pytest.raises(ValueError, match=r"holds the action 'gift'.*never taken"):
        cal.read_table(later.with_columns(offer=pl.lit("gift")), **SHOP, encoder=policy.encoder)
    with pytest.raises(ValueError, match="states must be the columns of the encoder"):
        cal.read_table(later, **(SHOP | {"states": ["device"]}), encoder=policy.encoder)
