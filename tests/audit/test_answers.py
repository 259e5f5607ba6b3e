"""What no log tells: each question is asked, answered, contradicted and printed."""

import copy
import json
import pickle

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from sklearn.linear_model import LogisticRegression

import caliope as cal
from caliope._audit._answers import (
    NOT_ANSWERED,
    Answers,
    answer_ended,
    answer_learnt_on,
    answer_recorded_before,
)
from caliope._conditions import TAKEN_TOO
from caliope.cli import main
from caliope.domains import ward
from caliope.report._page import report_html
from caliope.values import TabularRegressor

MODEL = {"logistic": LogisticRegression()}
POLICY = cal.TabularPolicy(ward.EARLIER)


def unstated(n=1000):
    """A log that does not say how its trajectories ended."""
    data = ward.simulate(n, rng=0)
    return cal.Trajectories(
        data.states,
        data.actions,
        data.rewards,
        data.offsets,
        n_actions=3,
        feature_names=["severity"],
        ids=np.arange(n) + 100,
    )


def levels(findings):
    return {finding.code: finding.level for finding in findings}


# -- whether ends were stated --


def test_a_log_remembers_whether_its_ends_were_stated():
    told, silent = ward.simulate(20, rng=0), unstated(20)
    for data, stated in ((told, True), (silent, False)):
        copies = [data, data[3:9], data[[1, 5, 2]], data.replace(unit="visit"), data.split(0.5, rng=0)[0]]
        copies += [
            pickle.loads(pickle.dumps(data)),
            copy.deepcopy(data),
            data.replace(rewards=data.rewards + 1),
        ]
        assert [each.ends_stated for each in copies] == [stated] * len(copies)
    assert silent.replace(terminated=np.ones(20, dtype=bool)).ends_stated
    assert not told.replace(terminated=None).ends_stated
    with pytest.raises(TypeError, match="has no field 'ends_stated'"):
        told.replace(ends_stated=False)


def test_a_table_with_a_column_of_ends_states_them():
    frame = pl.DataFrame(
        {"id": [1, 1, 2], "x": [0.0, 1.0, 2.0], "a": [0, 1, 0], "r": [0, 1, 0], "end": [0, 1, 0]}
    )
    read = {"episode": "id", "action": "a", "reward": "r", "states": ["x"]}
    assert not cal.read_table(frame, **read).ends_stated
    assert cal.read_table(frame, **read, terminated="end").ends_stated


# -- each question --


def test_what_a_policy_was_learnt_on():
    data = unstated(40)
    open_ = answer_learnt_on(data, None, POLICY)
    assert (open_.text, levels(open_.findings)) == (NOT_ANSWERED, {"Q102": "caution"})
    assert open_.findings[0].message.startswith("Was the new policy learnt on any of these 40 trajectories?")
    assert answer_learnt_on(data, "no", POLICY).findings == ()
    assert answer_learnt_on(data, np.arange(100), POLICY).findings == ()  # the ids begin at 100
    assert answer_learnt_on(data, np.zeros(40, dtype=bool), POLICY).findings == ()
    for given, overlap in ((range(110), 10), ({100, 139, 7}, 2), (np.arange(40) < 4, 4)):
        found = answer_learnt_on(data, list(given) if isinstance(given, range) else given, POLICY).findings[0]
        assert (found.code, found.level) == ("Q105", "issue")
        assert found.numbers["overlap"] == overlap
        assert found.numbers["share"] == pytest.approx(overlap / 40)
    assert answer_learnt_on(data, None, cal.practice).findings == ()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("yes", r"learnt_on must be 'no', the ids of the trajectories.*mask of shape \(40,\), got 'yes'"),
        ([True, False], r"got a mask of shape \(2,\)"),
        ([], r"got an array of shape \(0,\)"),
        (["100", "101"], r"learnt_on holds text \(first: .*'100'.*\), and the ids of the log are numbers"),
    ],
)
def test_an_answer_about_learning_that_cannot_be_compared_is_refused(given, message):
    with pytest.raises((ValueError, TypeError), match=message):
        answer_learnt_on(unstated(40), given, POLICY)


def test_whether_trajectories_ended():
    silent, told = unstated(40), ward.simulate(40, rng=0)
    data, open_ = answer_ended(silent, None)
    assert data is silent
    assert (open_.text, levels(open_.findings)) == (NOT_ANSWERED, {"Q103": "caution"})
    assert answer_ended(told, None)[1].text == "all 40"
    data, answer = answer_ended(silent, "all")
    assert data.ends_stated
    assert (data.terminated.all(), answer.findings) == (True, ())
    cut = np.arange(40) >= 10
    data, answer = answer_ended(silent, cut)
    assert (data.terminated == cut).all()
    assert answer.text == "30 of 40; the others were cut off"
    single = cal.Trajectories(np.zeros((9, 1)), [0, 1, 0] * 3, np.ones(9), np.arange(10))
    assert answer_ended(single, None)[1].findings == ()


def test_ends_that_contradict_each_other_are_refused():
    cut = ward.simulate(40, rng=0).replace(terminated=np.arange(40) > 2)
    with pytest.raises(ValueError, match=r"ended contradicts terminated of the log for 3 of 40 .*first: 0"):
        answer_ended(cut, "all")
    assert answer_ended(cut, np.arange(40) > 2)[0] is cut
    with pytest.raises(ValueError, match=r"ended must be 'all', or True or False.*'none'"):
        answer_ended(cut, "none")
    with pytest.raises(ValueError, match=r"ended must have shape \(40,\)"):
        answer_ended(cut, [True])


def test_when_states_were_recorded():
    data = cal.Trajectories(
        np.zeros((4, 3)), [0, 1, 0, 1], np.ones(4), [0, 2, 4], feature_names=["age", "lactate", "heart"]
    )
    assert levels(answer_recorded_before(data, None).findings) == {"Q104": "caution"}
    assert answer_recorded_before(data, "all").findings == ()
    assert answer_recorded_before(data, ["heart", "age", "lactate"]).findings == ()
    found = answer_recorded_before(data, ["age", "heart"]).findings[0]
    assert (found.code, found.level, found.numbers["count"]) == ("Q104", "issue", 1)
    assert "'lactate'" in found.message
    with pytest.raises(
        ValueError, match=r"must name state columns \(age, lactate, heart\): 'sex' is none of them"
    ):
        answer_recorded_before(data, ["age", "sex"])
    with pytest.raises(ValueError, match="'all' or a list of state columns, got 'age'"):
        answer_recorded_before(data, "age")


def test_what_was_asserted_is_the_condition():
    data = ward.simulate(40, rng=0)
    ended, before = answer_ended(data, None)[1], answer_recorded_before(data, "all")
    assert Answers(answer_learnt_on(data, "no", POLICY), ended, before).conditions == (
        "it is true, as stated, that the policy was not learnt on this log, every trajectory ended as logged, and the "
        "states were recorded before the decision",
    )
    nothing = answer_recorded_before(data, None)
    assert Answers(answer_learnt_on(data, None, POLICY), ended, nothing).conditions == (
        "it is true, as stated, that every trajectory ended as logged",
    )
    assert Answers(nothing, nothing, nothing).conditions == ()


# -- the audit --


@pytest.fixture(scope="module")
def prepared():
    return cal.prepare_audit(unstated(), MODEL, ended="all", recorded_before="all", rng=0)


def evaluate(prepared, **answers):
    return prepared.audit(POLICY, regressor=TabularRegressor(), n_draws=400, **answers)


@pytest.mark.slow
def test_an_audit_with_answers_is_trusted_and_without_one_is_not(prepared):
    answered, silent = evaluate(prepared, learnt_on="no"), evaluate(prepared)
    assert (answered.verdict, silent.verdict) == ("trust", "caution")
    assert levels(silent.findings)["Q102"] == "caution"
    assert silent.headline.value == answered.headline.value
    assert silent.practice.verdict == "trust"  # learning has nothing to do with the mean of the log
    settings = json.loads(answered.to_json())["settings"]
    assert settings["policy learnt on these trajectories"] == "no"
    assert settings["trajectories ended"] == "all 1000"
    assert settings["states recorded before the decision"] == "all"
    learnt = evaluate(prepared, learnt_on=[100, 101])
    assert (learnt.verdict, learnt.findings[0].code) == ("do not trust", "Q105")


@pytest.mark.slow
def test_each_question_alone_holds_the_verdict_back():
    data, whole = unstated(), {"learnt_on": "no", "ended": "all", "recorded_before": "all"}
    for left_out, code in (("ended", "Q103"), ("recorded_before", "Q104")):
        given = {name: x for name, x in whole.items() if name != left_out}
        found = cal.audit(data, POLICY, MODEL, regressor=TabularRegressor(), n_draws=400, rng=0, **given)
        assert found.verdict == "caution"
        assert [f.code for f in found.findings if f.level == "caution"] == [code]
        # A cut-off changes the mean of the log too.
        assert found.practice.verdict == ("caution" if code == "Q103" else "trust")


def test_practice_itself_needs_no_answer_about_learning(prepared):
    found = prepared.audit(cal.practice, regressor=TabularRegressor(), n_draws=400)
    assert "Q102" not in levels(found.findings)


# -- the command line --


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    data = ward.simulate(300, rng=0)
    probs = ward.EARLIER[data.states[:, 0].astype(int)]
    last = np.isin(np.arange(data.n_steps), data.layout.last)
    path = tmp_path_factory.mktemp("answers") / "log.parquet"
    pl.DataFrame(
        {
            "episode": data.ids[data.layout.owner],
            "severity": data.states[:, 0],
            "action": data.actions,
            "reward": data.rewards,
            "over": last,
            "training": data.layout.owner < 30,
            "odd": data.layout.owner % 3,
            **{f"p{a}": probs[:, a] for a in range(3)},
        }
    ).write_parquet(path)
    return path


def run(table, *arguments, quiet=("--quiet",)):
    fixed = ["--models", "logistic", "--draws", "20", *quiet, "--target-columns", "p0..p2"]
    return CliRunner().invoke(main, ["evaluate", str(table), *fixed, *arguments])


@pytest.mark.slow
def test_answers_on_the_command_line(table):
    states = ["--states", "severity"]
    said = json.loads(
        run(
            table, *states, "--json", "--learnt-on", "no", "--ended", "over", "--recorded-before", "all"
        ).stdout
    )
    assert said["settings"]["ended"] == "over"
    assert said["settings"]["trajectories ended"] == "all 300"
    assert not {"Q102", "Q103", "Q104"} & {f["code"] for f in said["headline"]["findings"]}
    # The columns of the answers are no states.
    answers = ["--learnt-on", "training", "--ended", "over"]
    result = run(table, "--ignore", "odd", "--json", *answers, quiet=())
    assert result.exit_code == 3
    found = json.loads(result.stdout)
    assert found["settings"]["states"] == "the only column not used otherwise: severity"
    about = {f["code"]: f for f in found["headline"]["findings"]}
    assert about["Q105"]["numbers"]["overlap"] == 30
    assert about["Q104"]["level"] == "caution"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--learnt-on", "odd"], r"column 'odd' (--learnt-on): 100 of"),
        (["--learnt-on", "nowhere"], "nowhere"),
        (
            ["--ended", "over", "--terminated", "training"],
            "ended and terminated both say which trajectories ended",
        ),
        (["--recorded-before", "age"], "must name state columns"),
    ],
)
def test_answers_that_cannot_be_are_one_line(table, arguments, message):
    result = run(table, "--states", "severity", *arguments)
    assert result.exit_code == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert message.split("100")[0] in result.stderr


# -- the condition of trust --

MISSING = "nothing that drives both decisions and outcomes is missing from: severity"
OPEN = f"{MISSING}, and if {TAKEN_TOO}"


def test_trust_is_printed_with_what_was_asserted(prepared):
    found = evaluate(prepared, learnt_on="no")
    stated = "it is true, as stated, that the policy was not learnt on this log, every trajectory ended as logged, and"
    assert str(found).startswith(f"Verdict: trust, if {OPEN}, and if {stated}")
    assert found.headline.conditions[:2] == (MISSING, TAKEN_TOO)
    # The mean of the log needs its ends and independence, and no more.
    apart = "trajectories are independent of each other"
    assert found.practice.conditions == ("every trajectory ended as logged", apart)
    assert found.headline.conditions[-1] == apart
    read = json.loads(found.to_json())
    assert (read["verdict"], read["condition"]) == ("trust", found.headline.condition)
    # No cell of any table says trust alone.
    assert [line for line in str(found).splitlines() if line.endswith(" trust")] == []
    assert f"* if {MISSING}" in str(found)


@pytest.mark.slow
def test_the_report_says_trust_with_its_condition(prepared):
    page = report_html(evaluate(prepared, learnt_on="no"))
    banner = page.split('<div class="banner trust">')[1].split("</div>")[0]
    assert f"Trust, if {OPEN}, and if it is true, as stated, that" in banner
    table = page.split('id="value"')[1].split("</section>")[0]
    assert "trust, if*</td>" in table
    assert f"* if {MISSING}" in table
    assert "policy learnt on these trajectories" in page
