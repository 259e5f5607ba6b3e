"""The audit from the command line: what it prints, its exit codes, and that damaged tables never end in a "
"traceback."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from sklearn.linear_model import LogisticRegression

import caliope as cal
from caliope.cli import main
from caliope.cli._config import SETTINGS
from caliope.cli._kinds import split_names
from caliope.cli._study import read_study
from caliope.domains import ward

COLUMNS = ["--episode", "patient", "--time", "hour", "--action", "dose", "--reward", "alive"]
FAST = ["--models", "frequencies", "--draws", "20", "--quiet"]
TARGET = ["--target-columns", "p0..p2"]


def table(data):
    """A log as somebody would have written it down, with a new policy in several forms beside it."""
    wanted = ward.EARLIER[data.states[:, 0].astype(int)]
    return pl.DataFrame(
        {
            "patient": data.ids[data.layout.owner],
            "hour": 4 * data.layout.time,
            "severity": data.states[:, 0].astype(int),
            "dose": data.actions,
            "alive": data.rewards,
            "b": data["behaviour"],
            "advice": wanted.argmax(axis=1),
            "unit": np.where(data.layout.owner % 2, "north", "south"),
            **{f"p{a}": wanted[:, a] for a in range(3)},
        }
    )


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Three hundred patients: enough for an answer."""
    path = tmp_path_factory.mktemp("log") / "log.parquet"
    table(ward.simulate(300, rng=0)).write_parquet(path)
    return path


@pytest.fixture(scope="module")
def tiny():
    """Thirty patients and three decisions each at most: enough to break."""
    data = ward.simulate(30, rng=1)
    frame = table(data)
    return frame.filter(pl.col("hour") < 12)


def run(*arguments):
    return CliRunner().invoke(main, [str(x) for x in arguments], env={"COLUMNS": "200"})


def one_line(result):
    """What an error must be: exit code 2, nothing on the standard output, one line that begins so."""
    assert result.exit_code == 2, (result.exit_code, result.output, result.exception)
    assert result.stdout == ""
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("Error: ")
    assert "Traceback" not in lines[0]
    assert "This is unexpected" not in lines[0], lines[0]
    return lines[0]


# -- what it answers --


@pytest.mark.slow
def test_the_answer_is_that_of_the_audit_and_the_report_is_written(log, tmp_path):
    out = tmp_path / "report.html"
    result = run(
        "evaluate", log, *COLUMNS, "--states", "severity", *TARGET, *FAST, "--out", out, "--by", "severity"
    )
    assert result.exit_code in (0, 3), result.output
    found = json.loads((tmp_path / "report.json").read_text())
    assert result.exit_code == (3 if found["verdict"] == "do not trust" else 0)
    data = cal.read_table(
        log, episode="patient", time="hour", action="dose", reward="alive", states="severity"
    )
    assert found["practice"]["value"] == pytest.approx(data.returns().mean())
    assert ward.WARD.value(ward.EARLIER) == pytest.approx(found["headline"]["value"], abs=0.1)
    assert f"Verdict: {found['verdict']}" in result.stdout
    assert "following the probabilities in columns 'p0' to 'p2'" in result.stdout
    assert {row["stratum"] for row in found["behaviour"]["rows"]} == {"all", "0", "1", "2", "3", "4"}
    assert found["stages"][0]["name"] == "reading the log"
    assert "What would be achieved" in out.read_text()


@pytest.mark.slow
def test_what_was_chosen_is_said_and_progress_goes_to_the_other_stream(log):
    result = run("evaluate", log, *COLUMNS, "--recommended", "advice", *FAST[:-1], "--json")
    found = json.loads(result.stdout)  # nothing but JSON there
    assert "fitting behaviour models" in result.stderr
    # Not the recommendation, and not the probabilities of another policy.
    assert "states: all 3 columns not used otherwise: severity, b, unit" in result.stderr
    assert "left out of the states: p0, p1, p2: looks like a policy's probabilities" in result.stderr
    assert result.stderr.index("states: all") < result.stderr.index("fitting behaviour models")
    assert found["settings"]["states"].startswith("all 3 columns")
    assert "following the recommendations in 'advice'" in found["settings"]["question"]


@pytest.mark.slow
def test_a_recommendation_is_softened_only_if_asked_and_then_it_is_another_question(log):
    common = ("evaluate", log, *COLUMNS, "--states", "severity", "--recommended", "advice", *FAST, "--json")
    hard, soft = (json.loads(run(*common, *more).stdout) for more in ([], ["--soften", "0.8"]))
    assert hard["headline"]["effective_n"] < soft["headline"]["effective_n"]
    codes = [finding["code"] for finding in soft["headline"]["findings"]]
    assert "Q101" in codes
    assert "Q101" not in [finding["code"] for finding in hard["headline"]["findings"]]
    assert "in 0.2 of the decisions" in soft["settings"]["question"]
    assert "not the value of the policy itself" in soft["settings"]["question"]


@pytest.mark.slow
def test_a_saved_model_and_a_policy_of_a_module(log, tmp_path, monkeypatch):
    pytest.importorskip("skops")
    data = cal.read_table(
        log, episode="patient", time="hour", action="dose", reward="alive", states="severity"
    )
    model = LogisticRegression().fit(data.states, data.actions)
    cal.behaviour.save_model(model, tmp_path / "new.skops")
    (tmp_path / "wards.py").write_text(
        "from caliope.domains.ward import EARLIER\nimport caliope\nearlier = caliope.TabularPolicy(EARLIER)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    common = ("evaluate", log, *COLUMNS, "--states", "severity", *FAST, "--json")
    from_model = json.loads(run(*common, "--model", "new.skops").stdout)
    from_module = json.loads(run(*common, "--policy", "wards:earlier").stdout)
    from_columns = json.loads(run(*common, *TARGET).stdout)
    assert from_module["headline"]["value"] == pytest.approx(from_columns["headline"]["value"])
    # A model of practice is worth about what practice is.
    assert from_model["gain"]["value"] == pytest.approx(0, abs=0.03)


@pytest.mark.slow
def test_logged_probabilities_are_used(log):
    found = json.loads(
        run(
            "evaluate", log, *COLUMNS, "--states", "severity", *TARGET, "--propensity", "b", *FAST, "--json"
        ).stdout
    )
    assert found["settings"]["behaviour"] == "logged probabilities"
    assert "A110" in [finding["code"] for finding in found["headline"]["findings"]]


@pytest.mark.slow
def test_calibrate_compares_models_by_stratum(log):
    result = run(
        "calibrate",
        log,
        *COLUMNS,
        "--states",
        "severity",
        "--models",
        "frequencies,logistic",
        "--by",
        "unit",
        "--quiet",
        "--json",
    )
    found = json.loads(result.stdout)
    assert result.exit_code in (0, 3)
    assert {(row["model"], row["stratum"]) for row in found["rows"]} == {
        (model, stratum) for model in ("frequencies", "logistic") for stratum in ("all", "north", "south")
    }
    assert found["choice"]["recommended"] in ("frequencies", "logistic")
    text = run(
        "calibrate", log, *COLUMNS, "--states", "severity", "--models", "frequencies", "--by", "severity:2,4"
    )
    assert "Recommended: frequencies" in text.stdout
    assert "2-3" in text.stdout
    assert "fitting behaviour models: frequencies" in text.stderr


def test_calibrate_says_what_is_wrong_with_the_log_itself(tmp_path):
    frame = table(ward.simulate(60, rng=0)).with_columns(
        told=pl.col("dose") + 0.5
    )  # recorded after the decision
    frame.write_parquet(tmp_path / "log.parquet")
    given = [
        "calibrate",
        tmp_path / "log.parquet",
        *COLUMNS,
        "--states",
        "severity,told",
        "--models",
        "logistic",
    ]
    result = run(*given, "--quiet")
    assert result.exit_code == 3
    assert "About the log itself:" in result.stdout
    assert "'told' alone predicts" in result.stdout
    found = json.loads(run(*given, "--quiet", "--json").stdout)
    assert "L102" in [finding["code"] for finding in found["log"]]


@pytest.mark.slow
def test_finished_stages_are_kept_and_taken_up_again(log, tmp_path):
    given = ["evaluate", log, *COLUMNS, "--states", "severity", *TARGET, *FAST, "--json"]
    plain, first, again = (
        json.loads(run(*given, *extra).stdout)
        for extra in ([], ["--work", tmp_path / "work"], ["--work", tmp_path / "work"])
    )
    assert plain["estimates"] == first["estimates"] == again["estimates"]
    kept = sorted(file.name.partition(".")[0] for file in (tmp_path / "work").iterdir())
    assert kept == [
        "behaviour-frequencies",
        "challenger",
        "comparison",
        "kernel-values",
        "other-models",
        "values",
    ]


def test_where_the_report_goes_is_tried_before_the_log_is_read(log, tmp_path):
    (tmp_path / "page.html").mkdir()
    (tmp_path / "other.json").mkdir()
    for name in ("page.html", "other.html"):
        said = one_line(
            run("evaluate", "no such log.csv", "--recommended", "advice", "--out", tmp_path / name)
        )
        assert "is a folder" in said


@pytest.mark.slow
def test_the_result_is_told_even_if_the_report_cannot_be_written(log, tmp_path, monkeypatch):
    def full(found, path):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("caliope.report._page.write_report", full)
    out = tmp_path / "report.html"
    result = run("evaluate", log, *COLUMNS, "--states", "severity", *TARGET, *FAST, "--out", out)
    assert result.exit_code == 2
    assert "Verdict: " in result.stdout
    assert "Report: " not in result.stdout
    assert "No space left on device" in result.stderr


@pytest.mark.slow
def test_everything_that_was_read_is_in_the_settings(log):
    given = ["evaluate", log, *COLUMNS, "--states", "severity", *TARGET, "--propensity", "b", "--by", "unit"]
    settings = json.loads(run(*given, *FAST, "--json").stdout)["settings"]
    assert settings["episode"] == "column 'patient'"
    assert settings["action"] == "column 'dose'"
    assert settings["reward"] == "column 'alive'"
    assert settings["time"] == "column 'hour'"
    assert settings["states"] == "severity"
    assert settings["by"] == "unit"
    assert settings["strata"] == "north, south"
    assert settings["propensity"] == "column 'b'"
    assert settings["target_columns"] == "p0, p1, p2"
    assert settings["behaviour"] == "logged probabilities"
    unordered = [
        "evaluate",
        log,
        *COLUMNS[:2],
        *COLUMNS[4:],
        "--ignore",
        "b,hour,p0..p2",
        "--recommended",
        "advice",
    ]
    result = run(*unordered, *FAST[:-1], "--json")
    settings = json.loads(result.stdout)["settings"]
    assert settings["time"] == "rows as they stand in the file"
    assert settings["ignore"] == "b, hour, p0, p1, p2"
    assert settings["recommended"] == "column 'advice'"
    assert "time: rows as they stand in the file" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", ["calibrate", "evaluate"])
def test_columns_that_are_no_states_can_be_left_out(log, command):
    given = {
        "evaluate": [*TARGET, "--ignore", "b,advice,unit", "--draws", "20"],
        "calibrate": ["--ignore", "b,advice,unit,p0..p2"],
    }
    result = run(command, log, *COLUMNS, *given[command], "--models", "frequencies")
    assert result.exit_code in (0, 3), result.output
    assert "states: the only column not used otherwise: severity" in result.stderr


# -- study files --


@pytest.mark.slow
def test_a_study_file_is_the_same_as_options_and_options_win(log, tmp_path):
    study = tmp_path / "study.toml"
    study.write_text(
        f"""log = "{log}"
        episode = "patient"
        time = "hour"
        action = "dose"
        reward = "alive"
        states = ["severity"]
        target-columns = ["p0", "p1", "p2"]
        models = "frequencies"
        draws = 20
        seed = 3
        """
    )
    by_file = json.loads(run("evaluate", study, "--quiet", "--json").stdout)
    by_options = json.loads(
        run("evaluate", log, *COLUMNS, "--states", "severity", *TARGET, *FAST, "--seed", 3, "--json").stdout
    )
    assert by_file["settings"] == by_options["settings"]
    assert by_file["headline"]["value"] == pytest.approx(by_options["headline"]["value"], rel=1e-12)
    other = json.loads(run("evaluate", study, "--quiet", "--json", "--recommended", "advice").stdout)
    assert "'advice'" in other["settings"]["question"]


def test_all_mistakes_of_a_study_file_are_told_at_once(tmp_path):
    study = tmp_path / "study.toml"
    study.write_text(
        'sates = ["a"]\ngamma = "much"\nseed = -1\nrecommended = "x"\nmodel = "y"\nout = "report.pdf"\n'
    )
    said = one_line(run("evaluate", study))
    for part in (
        "6 mistakes",
        "'sates' is no setting (did you mean 'states'?)",
        "gamma must be a number, got 'much'",
        "seed must be a whole number from 0 to 4294967295, got -1",
        "log is missing",
        "both recommended and model are given",
        "out must end in .html",
    ):
        assert part in said
    for hidden in (r'log = ["a\u0000.csv"]', r'log = "a.csv"' + "\n" + r'targets = {"x\u0000" = "column:y"}'):
        study.write_text(hidden)
        assert "has a null character in" in one_line(run("evaluate", study))
    study.write_text("log = ")
    assert "is no TOML file" in one_line(run("evaluate", study))
    assert "No such file" in one_line(run("evaluate", tmp_path / "none.toml"))


def test_paths_in_a_study_file_start_from_its_folder(tmp_path):
    (tmp_path / "study.toml").write_text('log = "a.csv"\nmodel = "b.skops"\n')
    study = read_study(str(tmp_path / "study.toml"), {"gamma": 0.5}, needs_target=True)
    assert study.log == str(tmp_path / "a.csv")
    assert study.model == str(tmp_path / "b.skops")
    assert study.gamma == 0.5


def test_another_policy_is_not_softened_like_that_of_the_file(tmp_path):
    file = tmp_path / "study.toml"
    file.write_text('log = "a.csv"\nrecommended = "advice"\nsoften = 0.5\ntrust-trees = true\n')
    assert read_study(str(file), {}, needs_target=True).soften == 0.5
    other = read_study(str(file), {"model": "b.skops"}, needs_target=True)
    assert (other.soften, other.trust_trees, other.recommended) == (None, False, None)
    asked = read_study(str(file), {"model": "b.skops", "soften": 0.2}, needs_target=True)
    assert asked.soften == 0.2


def test_names_and_ranges_of_names():
    assert split_names("a, b ,,c") == ("a", "b", "c")
    assert split_names("p8..p11") == ("p8", "p9", "p10", "p11")
    assert split_names("0..2") == ("0", "1", "2")
    assert split_names("p0..q2, p..p") == ("p0..q2", "p..p")


# -- what it refuses --


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "the target policy is missing"),
        (["--recommended", "advice", "--policy", "a:b"], "both recommended and policy are given"),
        (["--recommended", "advise"], "'advise' (close: 'advice'"),
        (["--recommended", "unit"], "'unit' (recommended action) must hold numbers"),
        (["--recommended", "p0"], "rows hold no whole number from 0"),
        (
            ["--target-columns", "p0,p1"],
            "--target-columns names 2 columns, one per action, but the log has more",
        ),
        (["--target-columns", "p0,p1,b"], "must hold probabilities that sum to 1"),
        (["--policy", "nowhere"], "module:object"),
        (["--policy", "nowhere:policy"], "No module named 'nowhere'"),
        (["--policy", "caliope:__version__"], "is a str, and a policy must be a policy with predict_proba"),
        (["--policy", "os:system"], "is a builtin_function_or_method, and a policy must be"),
        (["--policy", "subprocess:run"], "is a function, and a policy must be"),
        (["--policy", "sklearn.linear_model:LogisticRegression"], "is a class (name an object of it"),
        (["--policy", "json:dumps"], "with the log it failed (TypeError: "),
        (["--policy", "pprint:pformat"], "returned"),
        (["--policy", "caliope:practice", "--soften", "0.5"], "relative to practice already"),
        ([*TARGET, "--propensity", "severity"], "must lie in (0, 1]"),
        ([*TARGET, "--models", "logistic,logistic"], "models names 'logistic' twice"),
        ([*TARGET, "--ignore", "severity"], "'severity' cannot be both a state and ignored"),
        ([*TARGET, "--ignore", "dose"], "'dose' is the action and cannot be ignored"),
        ([*TARGET, "--ignore", "advise"], "'advise' (close: 'advice')"),
        ([*TARGET, "--work", ""], "has no name"),
        ([*TARGET, "--work", "/dev/null"], "is a file"),
        ([*TARGET, "--work", "/dev/null/x"], "cannot be used for work"),
        ([*TARGET, "--out", "/dev/null/report.html"], "does not exist"),
        ([*TARGET, "--models", "oracle"], "no behaviour model is called 'oracle'"),
        ([*TARGET, "--gamma", "1.5"], "gamma must lie in [0, 1], got 1.5"),
        ([*TARGET, "--by", "patient:x"], "rising numbers"),
        ([*TARGET, "--by", "nothing"], "'nothing'"),
        ([*TARGET, "--out", "nowhere/report.html"], "does not exist"),
        (["--model", "nowhere.skops"], "No such file"),
        (["--recommended", "dose"], "recommended names the column of the actions taken"),
        ([*TARGET, "--cuts", "2,1"], "cuts must be rising numbers"),
        ([*TARGET, "--cuts", "1", "--levels", "2"], "levels and cuts both say"),
    ],
)
def test_bad_requests_are_refused_in_one_line(log, arguments, said):
    assert said in one_line(run("evaluate", log, *COLUMNS, "--states", "severity", *FAST, *arguments))


def test_a_tilt_of_practice_and_logged_probabilities_are_refused_together(log, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tilted_care.py").write_text(
        "import caliope as cal\nless = cal.tilt(cal.practice, [1.0, 0.5, 1.0])\n"
    )
    settings = ["--states", "severity", *FAST, "--policy", "tilted_care:less", "--propensity", "b"]
    assert "leave --propensity out" in one_line(run("evaluate", log, *COLUMNS, *settings))


def test_a_file_that_is_no_model_is_refused(log, tmp_path):
    pytest.importorskip("skops")
    (tmp_path / "model.skops").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    said = one_line(
        run("evaluate", log, *COLUMNS, "--states", "severity", *FAST, "--model", tmp_path / "model.skops")
    )
    assert "never load models from untrusted sources" in said


# -- damaged tables --

CORE = [
    "evaluate",
    "--time",
    "hour",
    "--states",
    "severity",
    *COLUMNS[:2],
    *COLUMNS[4:],
    *TARGET,
    *FAST,
    "--json",
]


def evaluated(path):
    """Either one line and exit code 2, or a number; the number if there is one."""
    result = run(*CORE[:1], path, *CORE[1:])
    if result.exit_code == 2:
        one_line(result)
        return None
    assert result.exit_code in (0, 3), (result.exception, result.output)
    found = json.loads(result.stdout)
    value = found["headline"]["value"]
    assert (value is not None and np.isfinite(value)) or found["verdict"] == "do not trust"
    return value


def cells(frame, name, value, rows=(0,)):
    """The frame with some cells of a column replaced, whatever type that makes of it."""
    values = frame[name].to_list()
    for row in rows:
        values[row] = value
    return frame.with_columns(pl.Series(name, values, strict=False))


HARMLESS = {
    "rows in another order": lambda f: f.sample(fraction=1, shuffle=True, seed=0).sort(
        "patient", maintain_order=True
    ),
    "columns in another order": lambda f: f.select(sorted(f.columns)),
    "floats for whole numbers": lambda f: f.with_columns(pl.col("dose", "severity", "hour").cast(pl.Float64)),
    "small types": lambda f: f.with_columns(
        pl.col("dose", "severity").cast(pl.Int8), pl.col("alive").cast(pl.Int8)
    ),
    "ids as text": lambda f: f.with_columns("id " + pl.col("patient").cast(pl.String)),
    "another text column": lambda f: f.with_columns(note=pl.lit("; , \" '")),
    "a column of nulls": lambda f: f.with_columns(empty=pl.lit(None)),
}


@pytest.fixture(scope="module")
def unchanged(tiny, tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "log.parquet"
    tiny.write_parquet(path)
    return evaluated(path)


@pytest.mark.slow
@pytest.mark.parametrize("how", HARMLESS)
def test_what_does_not_matter_changes_nothing(tiny, unchanged, tmp_path, how):
    HARMLESS[how](tiny).write_parquet(tmp_path / "log.parquet")
    assert unchanged is not None
    assert evaluated(tmp_path / "log.parquet") == pytest.approx(unchanged, rel=1e-9)


BAD = {
    "a missing action": lambda f: cells(f, "dose", None),
    "a missing reward": lambda f: cells(f, "alive", None),
    "a missing id": lambda f: cells(f, "patient", None),
    "a missing time": lambda f: cells(f, "hour", None),
    "a missing probability": lambda f: cells(f, "p1", None),
    "nan for a reward": lambda f: cells(f, "alive", float("nan")),
    "an infinite state": lambda f: cells(
        f.with_columns(pl.col("severity").cast(float)), "severity", float("inf")
    ),
    "an infinite probability": lambda f: cells(f, "p1", float("inf")),
    "a negative probability": lambda f: cells(f, "p1", -0.5),
    "a negative action": lambda f: cells(f, "dose", -1),
    "half an action": lambda f: cells(f.with_columns(pl.col("dose").cast(float)), "dose", 0.5),
    "an action too many": lambda f: cells(f, "dose", 3),
    "words for actions": lambda f: f.with_columns(pl.lit("low").alias("dose")),
    "words for rewards": lambda f: f.with_columns(pl.lit("yes").alias("alive")),
    "lists for states": lambda f: f.with_columns(pl.concat_list("severity").alias("severity")),
    "a decision twice": lambda f: pl.concat([f, f.head(1)]),
    "a gap in time": lambda f: cells(f, "hour", 400),
    "no action column": lambda f: f.drop("dose"),
    "no probability column": lambda f: f.drop("p2"),
    "no rows": lambda f: f.head(0),
    "one row": lambda f: f.head(1),
    "one episode": lambda f: f.filter(pl.col("patient") == f["patient"][0]),
}


@pytest.mark.parametrize("how", BAD)
def test_a_damaged_table_is_refused_in_one_line(tiny, tmp_path, how):
    BAD[how](tiny).write_parquet(tmp_path / "log.parquet")
    assert evaluated(tmp_path / "log.parquet") is None


ODD = {
    "one action": lambda f: f.with_columns(pl.lit(0).alias("dose")),
    "one state": lambda f: f.with_columns(pl.lit(1).alias("severity")),
    "no reward": lambda f: f.with_columns(pl.lit(0.0).alias("alive")),
    "two episodes": lambda f: f.filter(
        pl.col("patient").is_in(f["patient"].unique(maintain_order=True)[:2].to_list())
    ),
    "huge rewards": lambda f: f.with_columns(pl.lit(1e300).alias("alive")),
    "tiny rewards": lambda f: f.with_columns(pl.col("alive") * 1e-300),
    "huge states": lambda f: f.with_columns(pl.col("severity").cast(float) * 1e90),
    "every episode twice": lambda f: pl.concat([f, f.with_columns(pl.col("patient") + 1000)]),
    "a policy that is certain": lambda f: f.with_columns(p0=pl.lit(1.0), p1=pl.lit(0.0), p2=pl.lit(0.0)),
    "a state that is the action": lambda f: f.with_columns(pl.col("dose").alias("severity")),
    "one step each": lambda f: f.filter(pl.col("hour") == 0),
}


@pytest.mark.slow
@pytest.mark.parametrize("how", ODD)
def test_an_odd_table_gives_a_number_that_is_not_trusted_or_one_line(tiny, tmp_path, how):
    ODD[how](tiny).write_parquet(tmp_path / "log.parquet")
    result = run(*CORE[:1], tmp_path / "log.parquet", *CORE[1:], "--out", tmp_path / "report.html")
    if result.exit_code == 2:
        one_line(result)
        return
    assert result.exit_code == 3, (result.exception, result.output)
    assert json.loads(result.stdout)["verdict"] == "do not trust"
    assert "Do not trust this estimate" in (tmp_path / "report.html").read_text()


def test_advice_that_is_a_code_for_none_is_refused(tiny, tmp_path):
    coded = tiny.with_columns(advice=pl.when(pl.int_range(pl.len()) < 2).then(999).otherwise(pl.col("dose")))
    coded.write_parquet(tmp_path / "log.parquet")
    asked = (
        "evaluate",
        tmp_path / "log.parquet",
        *COLUMNS,
        "--states",
        "severity",
        "--recommended",
        "advice",
    )
    said = one_line(run(*asked, *FAST))
    assert "the largest, 999, stands in 2 of" in said
    assert "say n_actions=1000" in said


def test_damaged_files_are_refused_in_one_line(tiny, tmp_path):
    whole = tmp_path / "whole.parquet"
    tiny.write_parquet(whole)
    content = whole.read_bytes()
    rng = np.random.default_rng(0)
    for i, size in enumerate([0, 1, 4, 100, len(content) // 2, len(content) - 1]):
        (tmp_path / f"cut{i}.parquet").write_bytes(content[:size])
        assert evaluated(tmp_path / f"cut{i}.parquet") is None
    for _ in range(12):
        garbled = bytearray(content)
        for place in rng.integers(0, len(content), 20):
            garbled[place] = rng.integers(256)
        (tmp_path / "garbled.parquet").write_bytes(garbled)
        evaluated(tmp_path / "garbled.parquet")
    for name, text in (
        ("empty.csv", b""),
        ("header.csv", b"patient,hour\n"),
        ("binary.csv", content),
        ("a.txt", b"x"),
    ):
        (tmp_path / name).write_bytes(text)
        assert evaluated(tmp_path / name) is None
    assert evaluated(tmp_path / "none.parquet") is None


@pytest.mark.slow
def test_csv_files_with_a_byte_order_mark_and_with_damage(tiny, tmp_path):
    text = tiny.write_csv()
    (tmp_path / "plain.csv").write_text(text)
    (tmp_path / "marked.csv").write_text(text, encoding="utf-8-sig")
    plain, marked = (evaluated(tmp_path / f"{name}.csv") for name in ("plain", "marked"))
    assert plain == marked is not None
    damage = {
        "utf16": text.encode("utf-16"),
        "semicolons": text.replace(",", ";").encode(),
        "ragged": (text + "1,2,3\n").encode(),
        "wide": (text + ",".join(["1"] * 40) + "\n").encode(),
        "words": text.replace("\n", "\nNA", 3).encode(),
        "quotes": text.replace(",", ',"', 40).encode(),
        "latin": text.replace("north", "nörd").encode("latin-1"),
    }
    for name, content in damage.items():
        (tmp_path / f"{name}.csv").write_bytes(content)
        evaluated(tmp_path / f"{name}.csv")


@pytest.mark.slow
def test_a_hundred_tables_damaged_at_random(tiny, tmp_path):
    """Cells, rows and columns changed by chance; every table ends in a number or in one line."""
    rng = np.random.default_rng(0)
    values = [None, float("nan"), float("inf"), -1, 0, 1, 2, 3, 1e30, "x", "", True]
    numbers = 0
    for _ in range(100):
        frame = tiny
        for _ in range(rng.integers(1, 3)):
            frame = damaged(frame, values, rng)
        frame.write_parquet(tmp_path / "log.parquet")
        numbers += evaluated(tmp_path / "log.parquet") is not None
    assert 0 < numbers < 60  # some damage is harmless, such as a copied column


def damaged(frame, values, rng):
    name = frame.columns[rng.integers(len(frame.columns))]
    rows = rng.integers(0, frame.height, rng.integers(1, 4)) if frame.height else []
    kind = rng.integers(6)
    if kind == 0:
        return frame.drop(name) if frame.width > 1 else frame
    if kind == 1:
        return frame.rename({name: f"{name} "})
    if kind == 2:
        return pl.concat([frame, frame[rows.tolist() if len(rows) else []]])
    if kind == 3 and frame.schema[name].is_numeric():
        return frame.with_columns(pl.col(name).cast(pl.String if rng.random() < 0.5 else pl.Float32))
    value = values[rng.integers(len(values))]
    changed = [value if i in rows else x for i, x in enumerate(frame[name].to_list())]
    return frame.with_columns(pl.Series(name, changed, strict=False))


@pytest.mark.slow
def test_ten_thousand_columns(tiny, tmp_path):
    wide = tiny.head(40).with_columns(**{f"x{i}": pl.lit(float(i % 7)) for i in range(10_000)})
    wide.write_parquet(tmp_path / "log.parquet")
    evaluated(tmp_path / "log.parquet")


# -- the process --


@pytest.mark.slow
def test_as_a_process_with_its_exit_code_and_no_traceback(log, tmp_path):
    command = [
        sys.executable,
        "-m",
        "caliope",
        "evaluate",
        str(log),
        *COLUMNS,
        "--states",
        "severity",
        *TARGET,
        *FAST,
    ]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 3)
    assert json.loads(done.stdout)["headline"]["value"]
    assert done.stderr == ""
    bad = subprocess.run([*command[:-1], "--gamma", "7"], capture_output=True, text=True, check=False)
    assert bad.returncode == 2
    assert bad.stderr.count("\n") == 1


@pytest.mark.slow
def test_interrupted_it_says_so_and_exits_with_130(log, tmp_path):
    (tmp_path / "slow.py").write_text(
        "import time\n"
        "class Slow:\n"
        "    classes_ = [0, 1, 2]\n"
        "    def predict_proba(self, X):\n"
        "        print('asked', flush=True)\n"
        "        time.sleep(60)\n"
        "slow = Slow()\n"
    )
    command = [
        sys.executable,
        "-m",
        "caliope",
        "evaluate",
        str(log),
        *COLUMNS,
        "--states",
        "severity",
        *FAST,
    ]
    process = subprocess.Popen(
        [*command, "--policy", "slow:slow"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "asked\n"
    time.sleep(0.2)
    os.kill(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said == "Stopped; add --work FOLDER to resume.\n"


@pytest.mark.parametrize("command", ["evaluate", "calibrate"])
def test_help_is_there_without_heavy_imports(command):
    code = (
        "import sys; from click.testing import CliRunner; from caliope.cli import main\n"
        f"result = CliRunner().invoke(main, [{command!r}, '--help'])\n"
        "heavy = {'sklearn', 'polars', 'scipy', 'matplotlib', 'jinja2', 'rich', 'numpy'} & set(sys.modules)\n"
        "sys.exit(f'{heavy}' if heavy or result.exit_code or 'COLUMN' not in result.output else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_page_on_the_commands_names_options_that_exist():
    text = (Path(__file__).parents[2] / "docs" / "report.md").read_text()
    options = {
        name
        for command in ("evaluate", "calibrate", "compare")
        for p in main.commands[command].params
        for name in p.opts
    }
    named = set(re.findall(r"--[a-z][a-z-]+", text))
    assert len(named) > 12
    assert named - options == {"--rows"}  # of benchmarks.evaluate
    study = text.split("```toml\n")[1].split("```")[0]
    assert set(tomllib.loads(study)) <= set(SETTINGS)


@pytest.mark.slow
def test_a_policy_is_restricted_only_if_asked_and_then_it_is_another_question(tmp_path):
    rng = np.random.default_rng(0)
    severity = rng.integers(0, 10, 3000)
    dose = np.where(severity == 9, 0, rng.random(3000) < 0.4).astype(int)
    frame = pl.DataFrame({"patient": np.arange(3000) // 3, "severity": severity, "dose": dose})
    path = tmp_path / "log.csv"
    frame.with_columns(alive=pl.lit(1.0), p0=pl.lit(0.5), p1=pl.lit(0.5)).write_csv(path)
    columns = ["--episode", "patient", "--action", "dose", "--reward", "alive", "--states", "severity"]
    common = ["evaluate", path, *columns, "--target-columns", "p0,p1", *FAST, "--json"]
    plain, kept_out = (json.loads(run(*common, *x).stdout) for x in ([], ["--restrict"]))
    assert [region["rule"] for region in plain["support"]["regions"]] == ["severity = 9"]
    assert kept_out["support"]["regions"] == []
    assert "where severity = 9): it was restricted, as asked" in kept_out["settings"]["question"]
    assert "restricted" not in plain["settings"]["question"]


def test_restricting_needs_one_policy_and_fitted_probabilities():
    for more in ({"propensity": "b", "recommended": "advice"}, {"learn": "module:learner"}):
        with pytest.raises(
            ValueError, match="restrict needs a policy, and behaviour probabilities of all actions"
        ):
            read_study("log.csv", {"restrict": True, **more}, needs_target=True)


# -- recorded probabilities of all actions --


@pytest.fixture(scope="module")
def fully_recorded(tmp_path_factory):
    data = ward.simulate(300, rng=0)
    practice = ward.PRACTICE[data.states[:, 0].astype(int)]
    path = tmp_path_factory.mktemp("recorded") / "log.parquet"
    table(data).with_columns(**{f"q_{a}": practice[:, a] for a in range(3)}).write_parquet(path)
    return path


@pytest.mark.slow
def test_recorded_probabilities_of_all_actions_are_used_and_are_no_states(
    fully_recorded, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tilted_fully.py").write_text(
        "import caliope as cal\nless = cal.tilt(cal.practice, [1.0, 0.5, 1.0])\n"
    )
    common = ["evaluate", fully_recorded, *COLUMNS, *FAST[:-1], "--ignore", "b,unit,advice,p0..p2", "--json"]
    study = tmp_path / "study.toml"
    study.write_text(
        f"log = '{fully_recorded}'\nepisode = 'patient'\ntime = 'hour'\naction = 'dose'\nreward = 'alive'\n"
        "states = 'severity'\nmodels = 'frequencies'\ndraws = 20\npolicy = 'tilted_fully:less'\n"
        "propensity = ['q_0', 'q_1', 'q_2']\n"
    )
    result = run(*common, "--policy", "tilted_fully:less", "--propensity", "q_0..q_2")
    assert "states: the only column not used otherwise: severity" in result.stderr
    found, same = json.loads(result.stdout), json.loads(run("evaluate", study, "--json").stdout)
    assert found["settings"]["behaviour"] == "logged probabilities of all actions"
    assert found["settings"]["propensity"] == "q_0, q_1, q_2"
    assert found["headline"]["value"] == same["headline"]["value"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--propensity", "q_0,q_1"], "target_columns names 3 columns and propensity 2"),
        (["--propensity", "q_0,q_1,p2"], "every row must hold probabilities that sum to 1"),
        (["--propensity", "q_0,q_1,q_2,severity"], "target_columns names 3 columns and propensity 4"),
        (["--propensity", "q_0..q_2", "--n-actions", "4"], "propensity names 3 columns, one per action"),
        (["--propensity", "q_0,q_0,q_1"], "propensity names 'q_0' twice"),
        (["--propensity", "q_0,q_1,severity"], "'severity' cannot be both a state and a logged probability"),
    ],
)
def test_bad_tables_of_recorded_probabilities_are_refused_in_one_line(fully_recorded, given, said):
    assert said in one_line(
        run("evaluate", fully_recorded, *COLUMNS, "--states", "severity", *TARGET, *FAST, *given)
    )


def test_recorded_columns_of_actions_in_words_must_end_in_them(fully_recorded, tmp_path):
    path = tmp_path / "words.parquet"
    words = pl.col("dose").replace_strict({0: "none", 1: "low", 2: "high"})
    pl.read_parquet(fully_recorded).with_columns(dose=words).write_parquet(path)
    given = ["--states", "severity", "--policy", "caliope:practice", "--propensity", "q_0..q_2"]
    assert "--propensity must name one column per action, ending in its name" in one_line(
        run("evaluate", path, *COLUMNS, *FAST, *given)
    )


@pytest.mark.slow
def test_restricting_to_recorded_probabilities_removes_what_practice_never_does(tmp_path):
    n, rng = 400, np.random.default_rng(3)
    severity = rng.integers(0, 3, n)
    q1 = np.where(severity == 2, 0.0, 0.4)
    taken = (rng.random(n) < q1).astype(int)
    alive = (rng.random(n) < 0.5 + 0.2 * taken).astype(float)
    content = {"patient": np.arange(n), "severity": severity, "dose": taken, "alive": alive}
    path = tmp_path / "never.parquet"
    pl.DataFrame(
        content | {"q0": 1 - q1, "q1": q1, "p0": np.full(n, 0.2), "p1": np.full(n, 0.8)}
    ).write_parquet(path)
    columns = ["--episode", "patient", "--action", "dose", "--reward", "alive", "--states", "severity"]
    common = [
        "evaluate",
        path,
        *columns,
        "--target-columns",
        "p0,p1",
        "--propensity",
        "q0,q1",
        *FAST,
        "--json",
    ]
    plain, kept_out = (json.loads(run(*common, *x).stdout) for x in ([], ["--restrict"]))
    assert plain["support"]["mass"] == pytest.approx(0.8 * (severity == 2).mean())
    assert kept_out["support"]["mass"] == 0
    assert "no action whose recorded probability is 0" in kept_out["settings"]["question"]
