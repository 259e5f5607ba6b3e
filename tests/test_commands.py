"""The commands at the head of a page do what the page says, on tables with the columns that they name."""

import re
import shlex
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from sklearn.linear_model import LogisticRegression

import caliope as cal
from caliope import cli

ROOT = Path(__file__).parent.parent
REPORT = (ROOT / "docs" / "report.md").read_text()
# Fewer models and draws than by default: the commands are judged here, not the numbers.
QUICK = {name: ["--models", "logistic", "--draws", "50"] for name in ("evaluate", "compare")}
QUICK["calibrate"] = ["--models", "logistic"]


def commands_of(text):
    """The commands of the indented blocks of a page, each in one line."""
    return re.findall(r"^    (caliope [a-z].*)$", text.replace("\\\n", " "), flags=re.MULTILINE)


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A folder with the table, the study file, the module and the model that the page names."""
    folder, rng = tmp_path_factory.mktemp("shop"), np.random.default_rng(0)
    n = 300
    loyal, returning, basket = rng.integers(0, 2, n), rng.integers(0, 2, n), rng.gamma(4.0, 10.0, n).round(1)
    offer = (rng.random(n) < 0.3 + 0.3 * loyal).astype(int)
    advice = np.where(rng.random(n) < 0.8, offer, 1 - offer)
    bought = (rng.random(n) < 0.3 + 0.2 * offer).astype(float)
    columns = {"offer": offer, "bought": bought, "advice": advice, "basket": basket}
    visit = {"visit": np.arange(n) // 2, "page": np.arange(n) % 2}
    table = pl.DataFrame({**visit, **columns, "loyal": loyal, "returning": returning})
    table.write_parquet(folder / "visits.parquet")
    (folder / "study.toml").write_text(REPORT.split("```toml\n")[1].split("```")[0])
    (folder / "my_policies.py").write_text(
        "import caliope\n\nlate = caliope.tilt(caliope.practice, [1, 2])\n"
    )
    model = LogisticRegression().fit(table.select("basket", "loyal").to_pandas(), offer)
    cal.behaviour.save_model(model, folder / "policy.skops")
    return folder


def test_the_page_names_the_commands_that_are_run():
    assert [line.split()[1] for line in commands_of(REPORT)] == [
        "evaluate",
        "evaluate",
        "calibrate",
        "compare",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("line", commands_of(REPORT), ids=lambda line: " ".join(line.split()[1:3]))
def test_a_command_of_the_page_about_reports_runs(line, shop, monkeypatch):
    monkeypatch.chdir(shop)
    _, *arguments = shlex.split(line)
    done = CliRunner().invoke(cli.main, [*arguments, *QUICK[arguments[0]]])
    assert done.exit_code in (0, 3), done.output
    assert "--out" not in arguments or Path(arguments[arguments.index("--out") + 1]).stat().st_size > 10_000


@pytest.mark.slow
def test_a_page_is_drawn_again_and_a_finding_of_it_explained(shop, monkeypatch):
    """`caliope report report.json` and `caliope explain CODE`, as the page says."""
    monkeypatch.chdir(shop)
    assert "`caliope report report.json` draws the page again" in REPORT
    made = ["--recommended", "advice", "--soften", "0.5", *QUICK["evaluate"], "--out", "report.html"]
    roles = ["--episode", "visit", "--time", "page", "--action", "offer", "--reward", "bought"]
    CliRunner().invoke(cli.main, ["evaluate", "visits.parquet", *roles, *made])
    page = Path("report.html").read_text()
    Path("report.html").unlink()
    assert CliRunner().invoke(cli.main, ["report", "report.json"]).exit_code == 0
    assert Path("report.html").read_text() == page
    code = re.search(r"\b[A-Z]1\d\d\b", page).group()
    told = CliRunner().invoke(cli.main, ["explain", code])
    assert told.exit_code == 0
    assert told.output.startswith(code)
