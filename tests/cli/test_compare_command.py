"""Several policies from the command line: what is printed, exit codes, study files, and mistakes in one line."""

import json

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from test_evaluate_command import COLUMNS, FAST, table

import caliope as cal
from caliope.cli import main
from caliope.cli._study import read_study
from caliope.cli._targets import each_target, parse_options, parse_target
from caliope.domains import ward

STATED = ["--states", "severity", "--learnt-on", "no", "--ended", "all", "--recorded-before", "all"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("compare")
    table(ward.simulate(250, rng=0)).write_parquet(place / "log.parquet")
    (place / "own_policies.py").write_text(
        "import caliope as cal\n"
        "fewer = cal.tilt(cal.practice, [1.5, 1, 1])\n"
        "imitate = cal.behaviour.TabularFrequencies()\n"
        "broken = 3\n"
    )
    return place


def run(folder, *options):
    return CliRunner().invoke(main, ["compare", str(folder / "log.parquet"), *COLUMNS, *FAST, *options])


@pytest.mark.slow
def test_three_policies_end_to_end(folder, monkeypatch):
    monkeypatch.chdir(folder)
    out = folder / "page.html"
    targets = ["--target", "earlier=p0..p2", "--target", "advice=recommended:advice"]
    targets += ["--target", "fewer=policy:own_policies:fewer"]
    result = run(folder, *STATED, *targets, "--out", str(out), "--title", "Three")
    assert result.exit_code == 0, result.output
    assert "Best of the 2 policies that this log can evaluate: earlier" in result.output
    assert "earlier minus fewer" in result.output
    assert "Findings about advice:" in result.output
    content = json.loads(out.with_suffix(".json").read_text())
    assert [row["policy"] for row in content["policies"]] == ["earlier", "advice", "fewer"]
    assert content["audits"]["fewer"]["settings"]["targets"].startswith("earlier: p0..p2")
    assert "<h1>Three</h1>" in out.read_text()
    again = CliRunner().invoke(
        main, ["report", str(out.with_suffix(".json")), "--out", str(folder / "a.html")]
    )
    assert again.exit_code == 0
    assert (folder / "a.html").read_text() == out.read_text()


@pytest.mark.slow
def test_exit_codes_are_those_of_the_best(folder, monkeypatch):
    monkeypatch.chdir(folder)
    refused = ["--target", "a=advice", "--target", "b=recommended:advice"]
    result = run(folder, *STATED, *refused, "--json")
    assert result.exit_code == 3
    assert json.loads(result.output)["best"] is None
    assert run(folder, *STATED, *refused, "--fail-on", "never").exit_code == 0
    # Without answers to what no log tells the verdict is caution.
    fair = ["--target", "a=p0..p2", "--target", "b=own_policies:fewer", "--states", "severity"]
    result = run(folder, *fair, "--fail-on", "caution")
    assert result.exit_code == 3
    assert "The verdict is caution" in result.output


@pytest.mark.slow
def test_a_study_file_names_its_policies(folder, monkeypatch):
    monkeypatch.chdir(folder)
    study = folder / "study.toml"
    lines = [
        'log = "log.parquet"',
        'episode = "patient"',
        'action = "dose"',
        'reward = "alive"',
        'states = "severity"',
    ]
    lines += [
        'time = "hour"',
        "draws = 20",
        'models = "frequencies"',
        "[targets]",
        'a = "p0..p2"',
        'b = "model:m.skops"',
    ]
    study.write_text("\n".join(lines))
    read = read_study(str(study), {}, needs_target=True, several=True)
    assert read.targets == {"a": "p0..p2", "b": f"model:{folder / 'm.skops'}"}
    alone = CliRunner().invoke(main, ["evaluate", str(study), "--quiet"])
    assert alone.exit_code == 2
    assert "use caliope compare" in alone.output
    given = ["--target", "x=learn:own_policies:imitate", "--target", "y=p0..p2"]
    result = CliRunner().invoke(main, ["compare", str(study), "--quiet", *given, "--json"])
    assert result.exit_code == 0, result.output
    content = json.loads(result.output)
    assert [row["policy"] for row in content["policies"]] == ["y", "x"]
    assert content["audits"]["x"]["settings"]["target"].startswith("learnt across")


@pytest.mark.slow
def test_every_log_has_room_for_the_actions_of_all_policies(folder, monkeypatch):
    monkeypatch.chdir(folder)
    frame = pl.read_parquet(folder / "log.parquet").with_columns(more=pl.col("advice") + 1)
    frame.write_parquet(folder / "wide.parquet")
    options = [
        *COLUMNS,
        *FAST,
        "--states",
        "severity",
        "--target",
        "a=more",
        "--target",
        "b=advice",
        "--json",
    ]
    result = CliRunner().invoke(main, ["compare", str(folder / "wide.parquet"), *options])
    assert result.exit_code == 3, result.output
    assert set(json.loads(result.output)["audits"]) == {"a", "b"}


def test_forms_of_a_policy():
    assert parse_target("target-columns: p0,p1") == ("target_columns", "p0,p1")
    assert parse_target("target_columns:p0") == ("target_columns", "p0")
    assert parse_target("model:C:\\m.skops") == ("model", "C:\\m.skops")
    assert parse_target("advice") == ("recommended", "advice")
    assert parse_options(["a=policy:m:x=y"]) == {"a": "policy:m:x=y"}
    study = read_study("log.csv", {"targets": {"a": "p0..p1", "b": "m:x"}}, needs_target=True, several=True)
    studies = each_target(study)
    assert studies["a"].target_columns == ("p0", "p1")
    assert studies["b"].policy == "m:x"
    assert each_target(studies["a"]) == {"": studies["a"]}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "a comparison needs two policies or more, as --target NAME=POLICY; got 0"),
        (["--target", "a=p0..p2"], "a comparison needs two policies or more, as --target NAME=POLICY; got 1"),
        (["--target", "p0..p2", "--target", "b=advice"], "--target must be NAME=POLICY"),
        (["--target", "a=p0..p2", "--target", "a=advice"], "names 'a' twice"),
        (["--target", "a=model:", "--target", "b=advice"], "a policy is stated as"),
        (
            ["--target", "a=p0..p2", "--target", "b=own_policies:none"],
            "policy 'b': own_policies:none cannot be",
        ),
        (
            ["--target", "a=p0..p2", "--target", "b=own_policies:broken"],
            "policy 'b': own_policies:broken is a int",
        ),
        (["--target", "a=p0..p1", "--target", "b=advice"], "--target-columns names 2 columns"),
        (["--target", "a=p0..p2", "--target", "b=nothing"], "nothing"),
        (["--target", "a=p0..p2", "--target", "b=advice", "--policy", "x:y"], "No such option"),
        (["--target", "a=p0..p2", "--target", "b=advice", "--require", "width=1"], "No such option"),
    ],
)
def test_mistakes_are_reported_in_one_line(folder, monkeypatch, options, says):
    monkeypatch.chdir(folder)
    result = run(folder, "--states", "severity", *options)
    assert result.exit_code == 2
    assert says in result.output
    assert len(result.output.strip().splitlines()) == 1


def test_what_is_of_one_policy_is_refused_in_a_study_file(folder):
    study = folder / "one.toml"
    study.write_text(
        'log = "log.parquet"\npolicy-name = "c"\nrequire = {width = 1}\n[targets]\na = "x"\nb = "y"\n'
    )
    with pytest.raises(
        ValueError, match=r"require is a setting of evaluate.*policy_name is a setting of evaluate"
    ):
        read_study(str(study), {}, needs_target=True, several=True)
    study.write_text('log = "log.parquet"\ntargets = ["a", "b"]\n')
    with pytest.raises(ValueError, match="targets must be a table of names and policies"):
        read_study(str(study), {}, needs_target=True, several=True)


@pytest.mark.slow
def test_policies_are_restricted_where_that_is_asked_for(tmp_path):
    rng = np.random.default_rng(0)
    severity = rng.integers(0, 10, 1500)
    dose = np.where(severity == 9, 0, rng.random(1500) < 0.4).astype(int)
    frame = pl.DataFrame({"id": np.arange(1500) // 3, "severity": severity, "dose": dose})
    frame.with_columns(alive=pl.lit(1.0), p0=pl.lit(0.5), p1=pl.lit(0.5)).write_csv(tmp_path / "log.csv")
    columns = ["--episode", "id", "--action", "dose", "--reward", "alive", "--states", "severity"]
    targets = ["--target", "half=p0,p1", "--target", "same=recommended:dose"]
    given = ["compare", str(tmp_path / "log.csv"), *columns, *targets, *FAST, "--restrict"]
    result = CliRunner().invoke(main, given)
    assert result.exit_code in (0, 3), result.output
    assert "half: It takes no action where practice never did (where severity = 9)" in " ".join(
        result.output.split()
    )
    refused = CliRunner().invoke(main, [*given, "--target", "own=learn:a:b"])
    assert refused.exit_code == 2
    assert "restrict needs a policy" in refused.output


@pytest.mark.slow
def test_the_command_is_the_function(folder, monkeypatch):
    monkeypatch.chdir(folder)
    result = run(folder, *STATED, "--target", "a=p0..p2", "--target", "b=own_policies:fewer", "--json")
    data = cal.read_table(
        folder / "log.parquet",
        episode="patient",
        time="hour",
        action="dose",
        reward="alive",
        states=["severity"],
        keep=["p0", "p1", "p2"],
    )
    import numpy as np

    targets = {
        "a": np.column_stack([data[f"p{a}"] for a in range(3)]),
        "b": cal.tilt(cal.practice, [1.5, 1, 1]),
    }
    models = {"frequencies": cal.behaviour.TabularFrequencies()}
    answers = {"learnt_on": "no", "ended": "all", "recorded_before": "all"}
    found = cal.compare(data, targets, models, n_draws=20, rng=0, **answers)
    content = json.loads(result.output)
    assert content["best"]["corrected"] == pytest.approx(found.best.corrected)
    assert content["pairs"][0]["interval"]["low"] == pytest.approx(found.pairs[0].interval.low)


@pytest.mark.slow
def test_strata_are_printed_and_in_the_json(folder):
    frame = table(ward.simulate(500, rng=4))
    frame.write_parquet(folder / "strata.parquet")
    options = [*COLUMNS, *FAST, *STATED, "--target-columns", "p0..p2", "--by", "unit"]
    result = CliRunner().invoke(main, ["evaluate", str(folder / "strata.parquet"), *options])
    assert "By stratum of the first decision; all intervals hold together:" in result.output
    result = CliRunner().invoke(main, ["evaluate", str(folder / "strata.parquet"), *options, "--json"])
    rows = json.loads(result.output)["subgroups"]["rows"]
    assert [row["stratum"] for row in rows] == ["north", "south"]
