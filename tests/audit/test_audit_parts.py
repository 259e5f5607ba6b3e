"""Parts of an audit: the preparation that policies share, what is kept on disk, other choices, effective samples."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import LinearSVC

import caliope as cal
from caliope._audit import audit, compare_behaviour, prepare_audit
from caliope._cache import Cache
from caliope._gather import target_probabilities
from caliope.behaviour import NeighbourPolicy, TabularFrequencies
from caliope.checks import D109
from caliope.checks._audit import check_agreement, check_late_steps, check_strata, effective_by_step
from caliope.checks._log import check_log
from caliope.domains import ward

pytestmark = pytest.mark.slow

MODELS = {"frequencies": TabularFrequencies(), "neighbours": NeighbourPolicy(20, shrinkage="cv")}
EARLIER = cal.TabularPolicy(ward.EARLIER)


@pytest.fixture(scope="module")
def log():
    return ward.simulate(300, rng=0)


@pytest.fixture(scope="module")
def prepared(log):
    return prepare_audit(log, MODELS, rng=0)


@pytest.fixture(scope="module")
def found(prepared):
    return prepared.audit(EARLIER, n_draws=100)


def test_policies_audited_on_one_preparation_get_what_each_would_get_alone(log, prepared, found):
    alone = audit(log, EARLIER, MODELS, n_draws=100, rng=0)
    assert without_times(found.to_json()) == without_times(alone.to_json())
    other = prepared.audit(cal.mix(cal.practice, EARLIER, 0.2), n_draws=100)
    assert other.placebo is found.placebo
    assert other.headline.value != found.headline.value


# -- other choices --


def test_other_choices_hold_k_recalibration_and_the_way_of_fitting(found):
    models = {row.model for row in found.others}
    chosen = found.comparison.recommended
    assert models == {
        "frequencies",
        "neighbours",
        "neighbours, k = 10",
        "neighbours, k = 40",
        f"{chosen}, temperature",
        f"{chosen}, same data",
    }
    assert {row.fit for row in found.others if row.model.endswith("same data")} == {"same"}
    assert {row.fit for row in found.others if not row.model.endswith("same data")} == {"cross"}


def test_same_data_is_what_the_model_says_of_its_own_log(log, prepared):
    expected = cal.wis(cal.gather(log, EARLIER, prepared.models.recommended.model))
    found = prepared.audit(EARLIER, n_draws=50).others
    row = next(
        r
        for r in found
        if r.fit == "same" and r.weights == "as they are" and r.estimator == cal.estimators.label(cal.wis)
    )
    assert row.value == pytest.approx(expected)


def test_a_long_log_tries_other_choices_on_a_sample(log, monkeypatch):
    monkeypatch.setattr("caliope._audit._prepare.LOOKED_AT", 500)
    found = audit(log, EARLIER, MODELS, n_draws=50, rng=0)
    some = found.settings.n_looked_at
    assert some == found.placebo.n < 150
    assert found.headline.n == 300


def test_a_long_log_and_a_change_to_practice_given_as_a_table(log, monkeypatch):
    monkeypatch.setattr("caliope._audit._prepare.LOOKED_AT", 500)
    table = ward.EARLIER[log.states[:, 0].astype(int)]
    by_table, by_policy = (
        audit(log, cal.mix(cal.practice, new, 0.5), MODELS, n_draws=50, rng=0) for new in (table, EARLIER)
    )
    np.testing.assert_allclose([x.value for x in by_table.others], [x.value for x in by_policy.others])


# -- effective samples --


def evidence(ratios, offsets):
    steps = len(ratios)
    return cal.Evidence(np.ones(steps), np.log(ratios), offsets)


def test_the_effective_sample_of_each_step():
    # Three episodes of 2, 2 and 1 steps; weights at step 0: 1, 1, 2; at step 1, of those who reach it: 3 and 1.
    reached, worth = effective_by_step(evidence([1.0, 3.0, 1.0, 1.0, 2.0], [0, 2, 4, 5]))
    assert reached.tolist() == [3, 2]
    np.testing.assert_allclose(worth, [16 / 6, 16 / 10])  # 4^2 / (1 + 1 + 4); 4^2 / (9 + 1)


def test_a_late_step_on_which_hardly_anything_weighs_is_found():
    n = 1000  # all take two steps, and 10 of them carry the weight of the second
    ratios = np.ones((n, 2))
    ratios[10:, 1] = 1e-3
    offsets = 2 * np.arange(n + 1)
    (finding,) = check_late_steps(evidence(ratios.ravel(), offsets))
    assert (finding.code, finding.level, finding.numbers["step"]) == ("A106", "caution", 1)
    assert check_late_steps(evidence(np.ones(2 * n), offsets)) == ()


def test_a_stratum_without_weight_is_found():
    ratios = np.ones(400)
    ratios[200:] = 1e-6
    ratios[200] = 1.0  # one episode has all the weight of the second half
    strata = np.repeat(["mild", "severe"], 200)
    (finding,) = check_strata(evidence(ratios, np.arange(401)), strata)
    assert finding.code == "A107"
    assert "severe" in finding.message
    assert check_strata(evidence(ratios, np.arange(401)), None) == ()


# -- verdicts --


def test_values_that_the_log_refutes_do_not_speak_against_the_weights(found):
    rows = {row.name: row for row in found.table}
    far = replace(rows["dm"], value=rows["wdr_capped"].value + 100)
    plain = replace(far, findings=tuple(x for x in far.findings if x.code != "D109"))
    refuted = replace(
        plain,
        findings=(
            *plain.findings,
            D109.finding("issue", "refuted", z=9.0, correction=1.0, what="temporal difference"),
        ),
    )
    for direct, level in ((plain, "caution"), (refuted, "note")):
        (finding,) = check_agreement(rows["wdr_capped"], direct)
        assert (finding.code, finding.level) == ("A101", level)


def test_who_is_still_there_at_the_end_has_no_missing_outcome():
    # Ten steps at most; 30 of 100 episodes last so long and have no outcome, the others end in +1 or -1.
    lengths = np.where(np.arange(100) < 30, 10, 5)
    rewards = np.zeros(lengths.sum())
    ends = np.cumsum(lengths) - 1
    rewards[ends[30:]] = np.resize([1.0, -1.0], 70)
    states = np.random.default_rng(0).normal(size=(len(rewards), 2))
    data = cal.Trajectories(states, np.resize([0, 1], len(rewards)), rewards, np.append(0, ends + 1))
    assert "L103" not in {x.code for x in check_log(data)}
    rewards = rewards.copy()
    rewards[ends[30:40]] = 0.0  # ten of those that ended early
    assert "L103" in {x.code for x in check_log(replace_rewards(data, rewards))}


def replace_rewards(data, rewards):
    return cal.Trajectories(data.states, data.actions, rewards, data.offsets)


def test_a_placebo_of_wrong_models_is_a_note_where_probabilities_were_logged(log):
    blind = {"logistic": LogisticRegression(C=1e-6)}
    fitted = prepare_audit(log, blind, rng=0)
    given = prepare_audit(log, blind, logged=log["behaviour"], rng=0)
    assert fitted.placebo.findings == given.placebo.findings
    assert {x.level for x in given.findings if x.code[0] == "P"} <= {"note"}


def test_an_episode_is_called_by_its_id_and_not_by_its_place():
    # One of 200 episodes has nearly all the weight: number 41, which the log calls 'stay 41x'.
    n, rng = 200, np.random.default_rng(0)
    actions = np.zeros(n, dtype=int)
    actions[[41, 100]] = 1
    ids = np.array([f"stay {i}x" for i in range(n)])
    data = cal.Trajectories(rng.normal(size=(n, 1)), actions, rng.random(n), np.arange(n + 1), ids=ids)
    target = np.where(np.arange(n)[:, None] == 41, [0.0, 1.0], [0.999, 0.001])
    found = audit(data, target, {"prior": DummyClassifier(strategy="prior")}, n_draws=50, rng=0)
    (said,) = {f.message for f in found.findings if f.code == "D104"}
    assert said.startswith("Trajectory stay 41x alone holds")


def test_logged_probabilities_are_the_first_of_the_other_choices(log):
    few = {"frequencies": TabularFrequencies()}
    found = audit(log, EARLIER, few, logged=log["behaviour"], n_draws=50, rng=0)
    row = found.others[0]
    assert (row.model, row.weights) == ("logged probabilities", "as they are")
    assert row.value == pytest.approx(cal.wis(cal.gather(log, EARLIER, log["behaviour"])))
    assert "logged probabilities" not in {r.model for r in audit(log, EARLIER, few, n_draws=50, rng=0).others}


WRONG = {
    "models as a list": ({"models": [LogisticRegression()]}, "models must name its classifiers"),
    "no models": ({"models": {}}, "models must name its classifiers"),
    "a class for a model": ({"models": {"l": LogisticRegression}}, "must be an unfitted classifier"),
    "nothing for a model": ({"models": {"l": None}}, "must be an unfitted classifier"),
    "no seed": ({"rng": None}, "rng must be a seed"),
    "a generator": ({"rng": np.random.default_rng(0)}, "rng must be a seed"),
    "a negative seed": ({"rng": -1}, "rng must be a seed"),
    "a level in per cent": ({"level": 95}, "level must lie between 0 and 1"),
    "no draws": ({"n_draws": 0}, "n_draws must be a whole number from 20"),
    "half a draw": ({"n_draws": 0.5}, "n_draws must be a whole number from 20"),
    "nothing to fit on": ({"fit_steps": 0}, "fit_steps must be a whole number from 100"),
    "few strata": ({"by": [1, 2]}, "by must hold a stratum for each of the"),
    "a short target": (
        {"target": np.ones((5, 3)) / 3},
        r"target as an array must have shape \(\d+, 3\), .*got",
    ),
    "a word for a target": ({"target": "policy"}, "target must be a policy"),
    "an unfitted target": ({"target": LogisticRegression()}, "not fitted|classes_"),
    "a short target mixed in": (
        {"target": cal.mix(cal.practice, np.ones((5, 3)) / 3, 0.2)},
        "target as an array must have",
    ),
    "logged above one": ({"logged": 2.0}, r"must lie in \(0, 1\].*first: 2 in trajectory"),
    "logged zeros": ({"logged": 0.0}, r"must lie in \(0, 1\]"),
    "a name for what was logged": ({"logged": "pscore"}, "logged must hold a probability for each step"),
    "a tilt of too few": ({"target": cal.tilt(cal.practice, [1.0, 2.0])}, "weights of a tilt"),
    "a class for a target": ({"target": cal.UniformPolicy}, "UniformPolicy is a class"),
    "a number for a name": ({"models": {1: LogisticRegression()}}, "models must be named by words"),
    "no probabilities": ({"models": {"svm": LinearSVC()}}, "with predict_proba"),
    "a gamma in words": ({"gamma": "0.9"}, "gamma must lie"),
    "no level": ({"level": None}, "level must lie"),
    "a class for a regressor": ({"regressor": LinearRegression}, "regressor must be an unfitted one"),
    "nothing logged": ({"logged": np.nan}, r"must lie in \(0, 1\]"),
    "a discount of two": ({"gamma": 2}, "gamma must"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_question_is_refused_before_anything_is_fitted(log, what):
    given, said = WRONG[what]
    told = []
    asked = {"target": EARLIER, "models": MODELS, "rng": 0, "progress": told.append} | given
    if "logged" in given and not isinstance(given["logged"], str):
        given = {"logged": np.full(log.n_steps, given["logged"])}
        asked |= given
    with pytest.raises((ValueError, TypeError), match=said) as error:
        audit(log, asked.pop("target"), asked.pop("models"), **asked)
    assert "\n" not in str(error.value)
    assert told == []
    of_the_policy = {"target", "n_draws", "regressor"} & set(given)
    if not of_the_policy:
        with pytest.raises((ValueError, TypeError), match=said):
            prepare_audit(log, **{"models": MODELS, "rng": 0} | given, progress=told.append)
        assert told == []


def test_what_was_logged_is_copied_and_has_no_mask(log):
    given = log["behaviour"].copy()
    ready = prepare_audit(log, MODELS, logged=given, rng=0)
    given[:] = 0.5
    assert ready.logged == pytest.approx(ready.data["behaviour"])
    with pytest.raises(ValueError, match="logged has masked entries"):
        prepare_audit(log, MODELS, logged=np.ma.masked_less(log["behaviour"], 0.3), rng=0)


def test_too_small_a_log_is_refused(log):
    with pytest.raises(ValueError, match=r"needs 5 trajectories at the very least.*got 4"):
        prepare_audit(log[:4], MODELS, rng=0)


def test_too_few_draws_are_refused_for_one_policy_too(prepared):
    with pytest.raises(ValueError, match="n_draws must be a whole number from 20"):
        prepared.audit(EARLIER, n_draws=0)


# -- kept on disk --


def test_what_was_kept_is_not_done_again(tmp_path):
    times = []
    kept = Cache.of(tmp_path).keyed("this log")
    assert kept("a stage", lambda: times.append(1) or 7) == 7
    assert Cache.of(tmp_path).keyed("this log")("a stage", lambda: times.append(1) or 8) == 7
    assert Cache.of(tmp_path).keyed("another log")("a stage", lambda: 9) == 9
    assert kept("nothing", lambda: times.append(1)) is kept("nothing", lambda: 3) is None
    assert len(times) == 2


def test_without_a_folder_nothing_is_kept():
    assert [Cache()("a stage", lambda x=x: x) for x in (1, 2)] == [1, 2]
    Cache().put("a stage", 1)
    assert Cache().get("a stage", 2) == 2
    assert Cache().keyed(lambda x: x) == Cache()  # not even hashed


@pytest.mark.parametrize("damage", ["torn", "empty", "garbled", "longer"])
def test_a_damaged_file_is_made_again(tmp_path, damage):
    kept = Cache.of(tmp_path)
    kept("a stage", lambda: np.arange(1000))
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    middle = len(whole) // 2
    contents = {
        "torn": whole[:50],
        "empty": b"",
        "garbled": whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
        "longer": whole + b"x",
    }
    file.write_bytes(contents[damage])
    assert kept("a stage", lambda: 8) == 8
    assert kept("a stage", lambda: 9) == 8


class Broken:
    """What cannot be read again although its file is whole: a bug, and no damage."""

    def __setstate__(self, state):
        raise RuntimeError("a bug in reading")

    def __getstate__(self):
        return {"x": 1}


def test_a_bug_in_reading_is_not_taken_for_damage(tmp_path):
    Cache.of(tmp_path).put("a stage", Broken())
    with pytest.raises(RuntimeError, match="a bug in reading"):
        Cache.of(tmp_path)("a stage", lambda: 8)


def test_names_that_look_alike_in_a_file_name_are_kept_apart(tmp_path):
    kept = Cache.of(tmp_path)
    names = ["behaviour k=5", "behaviour k 5", "behaviour 模型一", "behaviour 模型二", "x" * 400, "x" * 401]
    for name in names:
        kept(name, lambda name=name: name)
    assert [kept(name, lambda: "made again") for name in names] == names
    assert len(list(tmp_path.iterdir())) == len(names)


def same_log(data, **changed):
    """The log once more, with parts of it changed."""
    parts = ("states", "actions", "rewards", "offsets", "n_actions", "terminated", "feature_names", "ids")
    return cal.Trajectories(**({name: getattr(data, name) for name in parts} | changed))


CHANGES = {
    "states beyond single precision": lambda d: {"states": d.states + 1e-12},
    "which episodes ended": lambda d: {"terminated": np.arange(len(d)) % 3 > 0},
    "how many actions there are": lambda d: {"n_actions": 4},
    "what features are called": lambda d: {"feature_names": ("score",)},
    "what episodes are called": lambda d: {"ids": d.ids + 1},
    "rewards": lambda d: {"rewards": d.rewards * 2},
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_was_kept_of_one_log_is_not_taken_for_another(log, what):
    kept = Cache({}).keyed(log)
    assert Cache({}).keyed(same_log(log)).key == kept.key
    assert Cache({}).keyed(same_log(log, **CHANGES[what](log))).key != kept.key


def test_what_was_kept_depends_on_models_settings_and_code(log, tmp_path, monkeypatch):
    kept = Cache.of(tmp_path).keyed(MODELS, 1.0)
    assert Cache.of(tmp_path).keyed(dict(MODELS), 1.0).key == kept.key
    assert Cache.of(tmp_path).keyed(MODELS, 0.9).key != kept.key
    assert Cache.of(tmp_path).keyed({"frequencies": TabularFrequencies()}, 1.0).key != kept.key
    assert Cache.of(tmp_path).keyed(dict(reversed(MODELS.items())), 1.0).key != kept.key
    monkeypatch.setattr("caliope._cache.source_digest", lambda: "other code")
    assert Cache.of(tmp_path).keyed(MODELS, 1.0).key != kept.key


def test_the_number_of_jobs_is_no_other_model():
    one, two = (Cache({}).keyed(ExtraTreesRegressor(3, n_jobs=jobs)).key for jobs in (1, 2))
    assert one == two
    assert Cache({}).keyed(ExtraTreesRegressor(4, n_jobs=1)).key != one
    edges = np.linspace(0, 1, 2000)  # printed, the middle is left out
    other = np.where(np.arange(2000) == 1000, 0.0, edges)
    first, again, third = (
        Cache({}).keyed(FunctionTransformer(kw_args={"edges": x})).key for x in (edges, edges.copy(), other)
    )
    assert first == again != third


def test_a_log_whose_episodes_were_cut_off_gets_its_own_values(log, tmp_path):
    cut = same_log(log, terminated=np.arange(len(log)) % 3 > 0)
    few = {"frequencies": TabularFrequencies()}
    audit(log, EARLIER, few, n_draws=50, rng=0, work=tmp_path)
    kept, fresh = (audit(cut, EARLIER, few, n_draws=50, rng=0, work=work) for work in (tmp_path, None))
    assert kept.to_dict()["estimates"] == fresh.to_dict()["estimates"]
    assert kept.settings.values == fresh.settings.values


def test_what_cannot_be_kept_is_told_in_one_line_before_anything_is_fitted(log, tmp_path):
    class Odd(LogisticRegression):
        def __init__(self, chosen=lambda x: x):
            self.chosen = chosen
            super().__init__()

    told = []
    with pytest.raises(ValueError, match=r"'odd'.* cannot be written to disk.*leave work out") as error:
        audit(log, EARLIER, {"odd": Odd()}, n_draws=50, rng=0, work=tmp_path, progress=told.append)
    assert "\n" not in str(error.value)
    assert "while hashing" not in str(error.value)
    assert told == []
    with pytest.raises(ValueError, match="cannot be written to disk"):
        Cache.of(tmp_path)("a stage", lambda: lambda x: x)
    assert [file for file in tmp_path.iterdir() if file.suffix == ".part"] == []


def test_a_folder_that_cannot_be_used_is_refused(log, tmp_path):
    (tmp_path / "file").write_text("mine")
    for work, said in (("", "no name"), (tmp_path / "file", "is a file"), ("/dev/null/x", "cannot be")):
        with pytest.raises(ValueError, match=said):
            audit(log, EARLIER, MODELS, n_draws=50, rng=0, work=work)
    assert (tmp_path / "file").read_text() == "mine"


def with_this_folder():
    """The environment of a process that imports this very module; a path set from outside stays."""
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    return os.environ | {"PYTHONPATH": path}


SCRIPT = """
import sys
import caliope as cal
from caliope.domains import ward
from test_audit_parts import EARLIER, MODELS
print(cal.audit(ward.simulate(300, rng=0), EARLIER, MODELS, n_draws=50, rng=0, work=sys.argv[1],
    progress=lambda name: print(name, file=sys.stderr, flush=True)).to_json())
"""


def test_a_killed_audit_goes_on_and_ends_alike(tmp_path):
    def started(folder):
        return subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=with_this_folder(),
        )

    killed = started(tmp_path / "killed")
    assert any(line.strip() == "comparing them" for line in killed.stderr)  # stops there
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    kept = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "killed").glob("behaviour*.joblib")}
    assert len(kept) == 2
    time.sleep(0.05)
    again, whole = (started(tmp_path / name).communicate()[0] for name in ("killed", "whole"))
    assert {name: (tmp_path / "killed" / name).stat().st_mtime_ns for name in kept} == kept
    assert without_times(again) == without_times(whole)


def without_times(text):
    found = json.loads(text)
    found.pop("stages")
    found["behaviour"].pop("seconds")
    return found


# -- one question, one seed, any system --


def test_the_question_is_kept_and_a_mixture_is_said_to_be_one(prepared):
    asked = "What if nurses came earlier?"
    plain = prepared.audit(EARLIER, n_draws=50, about=cal.About(question=asked))
    assert plain.settings.question == asked == plain.to_dict()["settings"]["question"]
    assert f"Question: {asked}" in str(plain)
    assert "Q101" not in {finding.code for finding in plain.findings}
    mixed = prepared.audit(cal.mix(cal.practice, EARLIER, 0.2), n_draws=50, about=cal.About(question=asked))
    (finding,) = [x for x in mixed.findings if x.code == "Q101"]
    assert finding.numbers == {"share": 0.2, "soften": 0.8}
    assert "Q101" not in {x.code for x in mixed.practice.findings}
    with pytest.raises(TypeError, match="question must be text, got 3"):
        prepared.audit(EARLIER, about=cal.About(question=3))


def test_behaviour_is_compared_alike_with_and_without_a_target(log, prepared):
    alone = compare_behaviour(log, MODELS, rng=0)
    assert (alone.fitted_on == prepared.models.fitted_on).all()
    assert without_seconds(alone.comparison) == without_seconds(prepared.comparison)
    assert alone.findings == check_log(log)


def without_seconds(comparison):
    return {key: x for key, x in comparison.to_dict().items() if key != "seconds"}


def test_the_seed_reaches_the_default_candidates(log, monkeypatch):
    seeds = []

    def few(data, *, random_state):
        seeds.append(random_state)
        return {"frequencies": TabularFrequencies()}

    monkeypatch.setattr("caliope._audit._compare.candidate_models", few)
    prepare_audit(log, rng=3)
    assert seeds == [3]


def test_an_array_is_validated_once(log, prepared, monkeypatch):
    checked = []
    check = target_probabilities

    def counted(data, target, *more):
        checked.append(data is log and not more)
        return check(data, target, *more)

    monkeypatch.setattr("caliope._audit._inputs.target_probabilities", counted)
    table = ward.EARLIER[log.states[:, 0].astype(int)]
    audit(log, table, {"frequencies": TabularFrequencies()}, n_draws=50, rng=0)
    assert checked == [True]


WITHOUT_RESOURCE = """
import sys
sys.modules["resource"] = None  # as on Windows: importing it raises ImportError
import math
import caliope as cal
from caliope.domains import ward
from test_audit_parts import EARLIER, MODELS
found = cal.audit(ward.simulate(100, rng=0), EARLIER, MODELS, n_draws=50, rng=0)
assert all(math.isnan(stage.peak_gb) for stage in found.stages)
assert all(stage["peak_gb"] is None for stage in found.to_dict()["stages"])
print(found.verdict)
"""


def test_an_audit_needs_no_resource_module():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_RESOURCE],
        capture_output=True,
        text=True,
        check=False,
        env=with_this_folder(),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in ("trust", "caution", "do not trust")
