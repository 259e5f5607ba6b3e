"""Names are somebody's data: whatever is written in them, no terminal, page or table obeys it."""

import json
import re
import unicodedata

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from sklearn.linear_model import LogisticRegression

import caliope as cal
from caliope._audit import audit
from caliope._tables import Table
from caliope.cli import main
from caliope.report import report_html

CLEAR, TITLE, TURNED = "\x1b[2J", "\x1b]0;owned\x07", "\u202e"
EVIL = f"{CLEAR}{TITLE}\x9b31m{TURNED}\r=cmd|' /C calc'!A0\b\x00"
HIDDEN = {"\\x1b[2J", "\\u202e", "\\x9b31m"}  # as they are shown


def obeyed(text):
    """Characters that a terminal would obey: all but line ends and tabs of the categories Cc and directions of Cf."""
    return {
        c for c in text if c not in "\n\t" and (unicodedata.category(c) == "Cc" or c in "\u202d\u202e\u2066")
    }


@pytest.fixture(scope="module")
def evil_audit():
    rng, n, length = np.random.default_rng(0), 60, 3
    states = rng.normal(size=(n * length, 2))
    data = cal.Trajectories(
        states,
        rng.integers(0, 3, n * length),
        rng.normal(size=n * length),
        np.arange(n + 1) * length,
        n_actions=3,
        feature_names=[f"{EVIL}{i}" for i in range(2)],
        ids=np.array([f"{EVIL}{i}" for i in range(n)]),
        action_names=[f"{EVIL}{i}" for i in range(3)],
        unit=EVIL,
    )
    about = cal.About(title=EVIL, policy=EVIL, outcome=EVIL, author=EVIL)
    by = np.where(states[:, 0] > 0, EVIL, "other")
    models = {EVIL: LogisticRegression()}
    target = np.tile([0.1, 0.8, 0.1], (n * length, 1))
    return audit(data, target, models, by=by, gamma=0.9, n_draws=50, rng=0, about=about)


@pytest.mark.slow
def test_no_text_of_an_audit_is_obeyed(evil_audit):
    texts = [str(evil_audit), repr(evil_audit), repr(evil_audit.data), str(evil_audit.subgroups)]
    texts += [str(evil_audit.comparison), evil_audit._repr_html_(), evil_audit.table.to_markdown()]
    assert set().union(*map(obeyed, texts)) == set()
    assert all(name in str(evil_audit.comparison) for name in HIDDEN)  # shown, and not dropped


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Glyph")  # the direction of a line has no picture
def test_the_page_shows_what_is_hidden_in_names(evil_audit):
    page = report_html(evil_audit)
    assert obeyed(page) == set()
    assert all(name in page for name in HIDDEN)


@pytest.mark.slow
def test_in_json_names_are_as_they_were(evil_audit):
    text = evil_audit.to_json()
    assert obeyed(text) == set()
    assert json.loads(text)["about"]["title"] == " ".join(EVIL.split())


class Row:
    """A row whose name is somebody's."""

    findings = ()

    def __init__(self, name):
        self.name = name

    def cells(self):
        return {"name": self.name, "value": "1.5"}


@pytest.mark.parametrize(
    ("name", "latex"),
    [
        (r"\input{/etc/passwd}", r"\textbackslash{}input\{/etc/passwd\}"),
        ("50% & $x_1$ #^~", r"50\% \& \$x\_1\$ \#\textasciicircum{}\textasciitilde{}"),
        ("a\x1b[2J", r"a\textbackslash{}x1b[2J"),
        ("[2em]", "{[}2em]"),
    ],
)
def test_latex_prints_a_name_and_runs_none(name, latex):
    assert f"\n{latex} & 1.5 \\\\\n" in Table((Row(name),)).to_latex()


@pytest.mark.parametrize(
    ("name", "markdown"),
    [
        ("<script>alert(1)</script>", r"\<script>alert(1)\</script>"),
        ("<img src=x onerror=alert(1)>", r"\<img src=x onerror=alert(1)>"),
        ("[here](javascript:alert(1))", r"[here]\(javascript:alert(1))"),
        ("![](https://example.org/x.png)", r"![]\(https://example.org/x.png)"),
        (r"a\|b", r"a\\\|b"),  # a backslash of the name does not undo ours
        ("`code` *bold*", r"\`code\` \*bold\*"),
        ("\x1b[2J", r"\x1b[2J"),
        ("age < 40 [0.1, 0.2] (north)", "age < 40 [0.1, 0.2] (north)"),  # no markup: as it is
    ],
)
def test_markdown_prints_a_name_and_runs_none(name, markdown):
    assert Table((Row(name),)).to_markdown().splitlines()[-1] == f"| {markdown} | 1.5 |"


def test_a_name_of_several_lines_stays_in_its_row():
    table = Table((Row("one\ntwo\r\nthree\n\nfour\u2028five"), Row("other")))
    lines = table.grid().splitlines()
    assert [line.split()[-1] for line in lines] == ["value", "1.5", "1.5"]
    assert obeyed("".join(lines)) == set()
    assert len(table.to_markdown().splitlines()) == 4
    assert len(table.to_latex().splitlines()) == len(
        Table((Row("one"), Row("other"))).to_latex().splitlines()
    )


@pytest.mark.parametrize("where", ["column", "category", "id"])
def test_the_console_obeys_no_table(where, tmp_path):
    """A name of a column, a word among the actions and an id, each in an error that quotes it."""
    names = {"episode": "stay", "action": "dose", "reward": "alive", "states": "age"}
    frame = pl.DataFrame(
        {"stay": ["a", "b", "b"], "dose": ["x", "y", "x"], "alive": [1.0, 0.0, None], "age": [1, 2, 3]}
    )
    if where == "column":
        frame, names["reward"] = frame.rename({"alive": EVIL}), EVIL
    if where == "category":
        frame, names["reward"] = frame.with_columns(dose=pl.lit(EVIL)), "dose"
    if where == "id":
        frame = frame.with_columns(stay=pl.Series(["a", EVIL, EVIL]))
    frame.write_parquet(tmp_path / "log.parquet")
    options = [part for option, column in names.items() for part in (f"--{option}", column)]
    result = CliRunner().invoke(main, ["calibrate", str(tmp_path / "log.parquet"), *options, "--quiet"])
    assert result.exit_code == 2
    assert obeyed(result.output + result.stderr) == set()
    assert where == "category" or re.search(r"\\x1b\[2J", result.stderr)
    assert result.stderr.count("\n") == 1
