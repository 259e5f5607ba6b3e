"""Everyday tables that once gave a wrong number, or a bare no: names of columns, gaps in strata, numbers in text."""

import json

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

import caliope as cal
from caliope.cli import main
from caliope.cli._by_name import in_order_of_actions, pairing
from caliope.cli._columns import strata_of
from caliope.cli._config import MODELS, Study
from caliope.cli._policies import behaviour_models

FAST = ["--models", "logistic", "--draws", "20", "--json"]
N = 300


def run(*arguments):
    return CliRunner().invoke(main, [str(x) for x in arguments])


def table(**more):
    rng = np.random.default_rng(0)
    columns = {
        "id": np.arange(N),
        "x": rng.normal(size=N).round(3),
        "drug": rng.choice(["yes", "no"], N),
        "route": rng.choice(["oral", "iv"], N),
        "strength": rng.choice(["low", "very low", "high"], N),
        "dose": np.where(rng.random(N) < 0.3, 0.0, rng.uniform(1, 100, N).round(1)),
        "y": rng.integers(0, 2, N),
    }
    return pl.DataFrame(columns | more)


def read(action, **more):
    return cal.read_table(table(), episode="id", action=action, reward="y", states="x", **more)


# -- columns with a probability each --

PAIRS = ["p_no_iv", "p_no_oral", "p_yes_iv", "p_yes_oral"]


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]])
def test_columns_of_two_words_are_matched_by_both_whatever_their_order(order):
    data = read(["drug", "route"])
    assert in_order_of_actions([PAIRS[i] for i in order], data, "--target-columns") == PAIRS
    assert pairing(PAIRS, data) == {}


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (["p2", "p0", "p1"], ["p0", "p1", "p2"]),
        (["p_1", "p_0", "p_2"], ["p_0", "p_1", "p_2"]),
        (["q3", "q1", "q2"], ["q3", "q1", "q2"]),  # these are no codes
        (["high", "low", "p0"], ["high", "low", "p0"]),
    ],
)
def test_columns_of_codes_are_matched_by_their_numbers_or_said(columns, expected):
    log = table(drug=np.resize([0, 1, 2], N))
    data = cal.read_table(log, episode="id", action="drug", reward="y", states="x")
    assert list(in_order_of_actions(columns, data, "--target-columns")) == expected
    said = pairing(expected, data)
    pairs = "; ".join(f"{name}: {code}" for code, name in enumerate(expected))
    told = {} if expected[0].endswith("0") else {"probabilities, in the order of the actions": pairs}
    assert said == told


def test_columns_that_do_not_end_in_both_words_are_refused():
    data = read(["drug", "route"])
    with pytest.raises(
        ValueError, match=r"such as p_no_iv: 0 of p0, p1, p2, p3 do so for 'no_iv'\. Rename them"
    ):
        in_order_of_actions(["p0", "p1", "p2", "p3"], data, "--target-columns")
    with pytest.raises(ValueError, match=r"0 of .* do so for 'no_iv'"):
        in_order_of_actions(["p_iv_no", *PAIRS[1:]], data, "--target-columns")  # the other way round


def test_a_column_belongs_to_the_longest_name_that_it_ends_in():
    data = read("strength")
    assert data.action_names == ("high", "low", "very low")
    columns = ["p_low", "p_very low", "p_high"]
    assert in_order_of_actions(columns, data, "--target-columns") == ["p_high", "p_low", "p_very low"]
    with pytest.raises(ValueError, match=r"0 of .* do so for 'low'"):
        in_order_of_actions(["p_very low", "q_very low", "p_high"], data, "--target-columns")


@pytest.mark.parametrize(
    ("action", "cuts", "said"),
    [
        ("dose", {"dose": [0, 50]}, "a: 0; b: above 0 to 50; c: above 50"),
        (
            ["drug", "dose"],
            {"dose": [50]},
            "a: drug no, dose up to 50; b: drug no, dose above 50; c: drug yes,",
        ),
    ],
)
def test_columns_of_levels_keep_their_order_and_which_is_which_is_said(action, cuts, said):
    data, columns = read(action, cuts=cuts), ["a", "b", "c", "d"]
    assert in_order_of_actions(columns, data, "--target-columns") == columns
    (text,) = pairing(columns, data).values()
    assert text.startswith(said)


@pytest.mark.slow
def test_the_order_of_such_columns_does_not_move_the_value(tmp_path):
    table(p_no_iv=0.1, p_no_oral=0.1, p_yes_iv=0.1, p_yes_oral=0.7).write_csv(tmp_path / "log.csv")
    given = ["--episode", "id", "--action", "drug,route", "--reward", "y", "--states", "x", *FAST]
    values = [
        json.loads(run("evaluate", tmp_path / "log.csv", *given, "--target-columns", ",".join(x)).stdout)
        for x in (PAIRS, PAIRS[::-1])
    ]
    assert values[0]["headline"]["value"] == values[1]["headline"]["value"]
    cuts = ["--cuts", "0,50", "--target-columns", "p_no_iv,p_no_oral,p_yes_oral"]
    given[3] = "dose"
    table(p_no_iv=0.1, p_no_oral=0.2, p_yes_oral=0.7).write_csv(tmp_path / "doses.csv")
    said = run("evaluate", tmp_path / "doses.csv", *given, *cuts).stderr
    pairs = "p_no_iv: 0; p_no_oral: above 0 to 50; p_yes_oral: above 50"
    assert f"probabilities, in the order of the actions: {pairs}" in said.partition("fitting behaviour")[0]


# -- strata --


@pytest.mark.parametrize(
    ("values", "limits", "expected"),
    [
        ([29.5, None, 30.0, 40.0, -3.0], "30,40", ["below 30", "missing", "30 to 40", "40+", "below 30"]),
        ([29, None, 30, 40, 3], "30,40", ["0-29", "missing", "30-39", "40+", "0-29"]),
        ([-1, 2, 30, 30, 30], "2", ["below 2", "2+", "2+", "2+", "2+"]),
    ],
)
def test_what_has_no_value_is_a_stratum_of_its_own_and_limits_are_named_as_they_are(values, limits, expected):
    log = pl.DataFrame({"id": range(5), "x": range(5), "a": [0, 1, 0, 1, 0], "y": 0.0, "age": values})
    data = cal.read_table(log, episode="id", action="a", reward="y", states="x", keep="age")
    assert strata_of(Study(log="log.csv", by=f"age:{limits}"), data).tolist() == expected
    odd = data.replace(columns={"age": np.array([1.0, np.inf, 2.0, 3.0, 4.0])})
    with pytest.raises(ValueError, match="1 of 5 rows hold no finite number"):
        strata_of(Study(log="log.csv", by=f"age:{limits}"), odd)


# -- numbers in text --


def test_a_column_of_numbers_with_another_mark_for_gaps_says_how_it_can_be_used(tmp_path):
    marks = [f"{x:.2f}" if i % 7 else "?" for i, x in enumerate(np.random.default_rng(1).normal(size=N))]
    counts = [f"{x:,}" for x in np.random.default_rng(2).integers(1000, 9000, N)]
    table(lab=marks, cells=counts).write_csv(tmp_path / "log.csv")
    given = ["--episode", "id", "--action", "drug", "--reward", "y", "--ignore", "route,strength,dose"]
    said = run("calibrate", tmp_path / "log.csv", *given, "--models", "logistic").stderr
    assert "states: the only column not used otherwise: x\n" in said
    assert "lab: text that holds numbers, but also '?': leave gaps empty to use it" in said
    assert f"cells: numbers written as text, such as {counts[0]!r}: write them as 1234.5" in said


def test_a_column_of_which_half_the_files_hold_other_marks_is_no_category():
    values = [f"{x:.2f}" for x in np.random.default_rng(1).normal(size=140)] + ["n.a."] * (N - 140)
    with pytest.raises(ValueError, match=r"holds numbers for the most part, but also 'n\.a\.'"):
        cal.read_table(table(lab=values), episode="id", action="drug", reward="y", states=["x", "lab"])
    grades = np.resize(["1", "2", "3", "none", "none", "none", "none"], N)
    data = cal.read_table(table(lab=grades), episode="id", action="drug", reward="y", states=["x", "lab"])
    assert data.feature_names[1:] == ("lab=1", "lab=2", "lab=3", "lab=none")


def test_ids_that_differ_in_spaces_alone_are_not_two_trajectories():
    ids = [f"S{i // 3}{' ' * (i % 3 == 1)}" for i in range(N)]
    log = table(id=ids, hour=np.arange(N) % 3)
    with pytest.raises(ValueError, match="'S0' and 'S0 ' differ in spaces alone, and would be two episodes"):
        cal.read_table(log, episode="id", time="hour", action="drug", reward="y", states="x")
    whole = log.with_columns(pl.col("id").str.strip_chars())
    assert len(cal.read_table(whole, episode="id", time="hour", action="drug", reward="y", states="x")) == 100


def test_ids_that_differ_in_leading_zeros_alone_are_not_two_trajectories():
    ids = [f"{'00' * (i % 3 == 1)}{i // 3}" for i in range(N)]
    log = table(id=ids, hour=np.arange(N) % 3)
    with pytest.raises(
        ValueError, match="'0' and '000' differ in leading zeros alone, and would be two episodes"
    ):
        cal.read_table(log, episode="id", time="hour", action="drug", reward="y", states="x")
    letters = log.with_columns(pl.format("a{}", "id").alias("id"))
    assert (
        len(cal.read_table(letters, episode="id", time="hour", action="drug", reward="y", states="x")) == 200
    )


# -- probabilities and actions as people write them --

ROLES = ["--episode", "id", "--action", "drug", "--reward", "y", "--states", "x"]


def value_of(path, *given):
    result = run("evaluate", path, *ROLES, *given, *FAST, "--quiet")
    assert result.exit_code in (0, 3), result.stderr
    return json.loads(result.stdout)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "separator"),
    [
        (lambda p: 100 * p, ","),
        (lambda p: f"{100 * p:.0f}%", ","),
        (lambda p: f"{p:.2f}".replace(".", ","), ","),
        (lambda p: f"{100 * p:.1f} %".replace(".", ","), ";"),
    ],
)
def test_probabilities_in_percent_and_with_decimal_commas_are_those_probabilities(tmp_path, form, separator):
    p = np.linspace(0.3, 0.6, N).round(2)
    table(p_no=p, p_yes=1 - p).write_csv(tmp_path / "plain.csv")
    table(p_no=[form(x) for x in p], p_yes=[form(x) for x in 1 - p]).write_csv(
        tmp_path / "written.csv", separator=separator
    )
    plain, written = (
        value_of(tmp_path / f"{name}.csv", "--target-columns", "p_no,p_yes") for name in ("plain", "written")
    )
    assert written["headline"]["value"] == pytest.approx(plain["headline"]["value"], abs=1e-9)


@pytest.mark.slow
def test_codes_that_do_not_begin_at_0_are_read_as_levels(tmp_path):
    drug = np.resize([1, 2, 5, 2], N)
    p = {"p_a": [0.3] * N, "p_b": [0.3] * N, "p_c": [0.4] * N}
    table(drug=drug, **p).write_csv(tmp_path / "gap.csv")
    table(drug=np.searchsorted([1, 2, 5], drug), **p).write_csv(tmp_path / "plain.csv")
    target = ["--target-columns", "p_a,p_b,p_c"]
    refused = run("evaluate", tmp_path / "gap.csv", *ROLES, *target, *FAST, "--quiet")
    assert refused.exit_code == 2
    assert "--cuts=1,2): a level for each" in refused.stderr
    found, plain = (
        value_of(tmp_path / "gap.csv", *target, "--cuts", "1,2"),
        value_of(tmp_path / "plain.csv", *target),
    )
    assert found["headline"]["value"] == plain["headline"]["value"]


def test_probabilities_in_percent_are_no_states(tmp_path):
    p = np.linspace(30, 60, N).round(1)
    table(p_no=p, p_yes=100 - p).write_csv(tmp_path / "log.csv")
    said = run("calibrate", tmp_path / "log.csv", *ROLES[:-2], "--models", "logistic").stderr
    assert "p_no, p_yes: looks like a policy's probabilities" in said


def test_every_model_that_is_named_is_offered_and_others_are_refused_before_the_log_is_read(tmp_path):
    data = read("drug")
    study = Study(log="log.csv", models=MODELS)
    assert list(behaviour_models(study, data)) == list(MODELS)
    said = run("evaluate", tmp_path / "no.csv", *ROLES, "--recommended", "z", "--models", "oracle").stderr
    assert said.endswith(f"no behaviour model is called 'oracle': there are {', '.join(MODELS)}.\n")


def test_columns_that_nobody_named_are_told_with_their_options(tmp_path):
    table().write_csv(tmp_path / "log.csv")
    said = run("calibrate", tmp_path / "log.csv", "--episode", "id", "--states", "x").stderr
    assert said.endswith("Name them with --action, --reward.\n")
    said = run("calibrate", tmp_path / "log.csv", *ROLES[:2], "--action", "drugs", *ROLES[4:]).stderr
    assert "Name them" not in said


def test_a_recommendation_that_is_no_action_is_told_by_its_own_column(tmp_path):
    table(advice=["Yes"] * N).write_csv(tmp_path / "log.csv")
    said = run("evaluate", tmp_path / "log.csv", *ROLES, "--recommended", "advice", *FAST, "--quiet").stderr
    assert "column 'advice' holds the action 'Yes' (close: 'yes')" in said
