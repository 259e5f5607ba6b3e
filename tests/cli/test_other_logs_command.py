"""``--other-logs``: the same question in other files, with the same doses, states and discount per hour."""

import json

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

from caliope.cli import main

FAST = ["--models", "logistic", "--draws", "20", "--json"]
ROLES = ["--episode", "stay", "--action", "dose", "--reward", "gain", "--states", "x"]


def table(window, n=150, seed=0):
    """Stays of eight hours, with one decision per window; doses are larger in longer windows."""
    rng = np.random.default_rng([seed, window])
    steps = 8 // window
    x = rng.normal(size=n * steps).round(3)
    dose = np.where(rng.random(n * steps) < 0.4, 0.0, np.round(rng.uniform(1, 50 * window, n * steps), 1))
    gain = np.where(np.arange(n * steps) % steps == steps - 1, 1.0 + 0.1 * x + 0.1 * (dose > 0), 0.0)
    stays = np.repeat(np.arange(n), steps)
    return pl.DataFrame({"stay": stays, "x": x, "dose": dose, "advice": 40.0, "gain": gain.round(3)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("windows")
    for window in (2, 4, 8):
        table(window).write_csv(folder / f"w{window}.csv")
        (folder / f"w{window}.json").write_text(json.dumps({"settings": {"window_hours": window}}))
    table(8, seed=1).write_csv(folder / "unknown.csv")
    return folder


def run(*arguments):
    return CliRunner().invoke(main, [str(x) for x in arguments])


@pytest.mark.slow
def test_the_other_logs_are_asked_with_the_same_cuts_and_the_same_discount_per_hour(folder):
    common = [*ROLES, "--recommended", "advice", *FAST]
    others = f"{folder}/w2.csv, {folder}/w8.csv"
    found = run(
        "evaluate", folder / "w4.csv", *common, "--levels", 2, "--gamma", 0.81, "--other-logs", others
    )
    assert found.exit_code in (0, 3), found.output
    assert "the same question in windows of 2 h:" in found.stderr
    rows = json.loads(found.stdout)["other_logs"]["rows"]
    assert [row["log"] for row in rows] == ["windows of 4 h", "windows of 2 h", "windows of 8 h"]
    assert [row["decisions"] for row in rows] == [2, 4, 1]
    positive = table(4).filter(pl.col("dose") > 0)["dose"].to_numpy()
    cut = float(f"{np.quantile(positive, 0.5):.6g}")
    for row, window, gamma in zip(rows[1:], (2, 8), (0.9, 0.6561), strict=True):
        alone = run("evaluate", folder / f"w{window}.csv", *common, "--cuts", f"0,{cut}", "--gamma", gamma)
        numbers = json.loads(alone.stdout)
        assert row["difference"]["value"] == pytest.approx(numbers["gain"]["value"], rel=1e-9, abs=1e-12)
        assert row["practice"]["value"] == pytest.approx(numbers["practice"]["value"])


@pytest.mark.slow
def test_logs_whose_windows_are_not_known_are_called_by_their_files(folder):
    common = [*ROLES, "--recommended", "advice", *FAST, "--levels", 2]
    found = run("evaluate", folder / "w4.csv", *common, "--other-logs", folder / "unknown.csv")
    assert [row["log"] for row in json.loads(found.stdout)["other_logs"]["rows"]] == [
        "this log",
        "unknown.csv",
    ]


@pytest.mark.parametrize(
    ("others", "more", "said"),
    [
        ("unknown.csv", ["--gamma", "0.9"], "how many hours apart the decisions in {folder}/unknown.csv are"),
        ("w2.csv,nowhere.csv", [], "no file matches '{folder}/nowhere.csv' of --other-logs"),
        ("w4.csv", [], "names the log itself"),
    ],
)
def test_what_cannot_be_asked_alike_is_said_before_anything_is_read(folder, others, more, said):
    files = ",".join(f"{folder}/{name}" for name in others.split(","))
    given = [*ROLES, "--recommended", "advice", "--levels", "2", *more, "--other-logs", files]
    found = run("evaluate", folder / "w4.csv", *given)
    assert found.exit_code == 2
    assert found.stderr.count("\n") == 1
    assert said.format(folder=folder) in found.stderr


def test_a_mistake_in_another_log_names_its_file(folder):
    table(2).drop("advice").write_csv(folder / "short.csv")
    given = [*ROLES, "--recommended", "advice", "--levels", "2", "--other-logs", f"{folder}/short.csv", *FAST]
    found = run("evaluate", folder / "w4.csv", *given)
    assert found.exit_code == 2
    assert found.stderr.startswith(f"Error: the other log {folder}/short.csv: not a column of the table")


@pytest.mark.slow
def test_a_study_file_lists_them_from_its_own_folder_and_a_comparison_has_none(folder):
    study = folder / "study.toml"
    lines = ["log = 'w4.csv'", "episode = 'stay'", "action = 'dose'", "reward = 'gain'", "states = ['x']"]
    lines += ["levels = 2", "recommended = 'advice'", "models = ['logistic']", "draws = 20"]
    study.write_text("\n".join([*lines, "other_logs = ['w2.csv']"]))
    found = run("evaluate", study, "--json")
    assert [row["log"] for row in json.loads(found.stdout)["other_logs"]["rows"]][1] == "windows of 2 h"
    lines = [line for line in lines if not line.startswith("recommended")]
    targets = "targets = {a = 'recommended:advice', b = 'recommended:advice'}"
    study.write_text("\n".join([*lines, targets, "other_logs = 'w2.csv'"]))
    found = run("compare", study)
    assert found.exit_code == 2
    assert "other_logs is a setting of evaluate" in found.stderr
