"""For pipelines: exit codes, own conditions, and short ways to the help."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from caliope._audit._requirements import REQUIREMENTS, check_limits
from caliope.cli import main
from caliope.cli._evaluate import judge
from caliope.cli._study import read_study
from support.report_audits import far_audit, near_audit


@pytest.fixture(scope="module")
def near():
    return near_audit()


@pytest.fixture(scope="module")
def far():
    return far_audit()


def test_the_exit_code_is_that_of_the_verdict_and_of_what_fails(near, far):
    assert (near.verdict, far.verdict) == ("caution", "do not trust")
    assert [judge(near, fail_on=x) for x in ("issue", "caution", "never")] == [0, 3, 0]
    assert [judge(far, fail_on=x) for x in ("issue", "caution", "never")] == [3, 3, 0]


def test_a_condition_is_met_on_one_side_of_its_limit_alone(near):
    found = {
        "trajectories": near.settings.n_trajectories,
        "effective_n": near.headline.effective_n,
        "width": near.headline.interval.width,
        "difference_width": near.gain.interval.width,
        "value": near.headline.interval.low,
        "difference": near.gain.interval.low,
        "breakdown": near.breakdown.factor,
    }
    assert set(found) == set(REQUIREMENTS)
    for name, x in found.items():
        at_most = "width" in name
        met = [near.require(**{name: x + step}).requirements[0].met for step in (-1e-6, 0, 1e-6)]
        assert met == ([False, True, True] if at_most else [True, True, False]), name


def test_conditions_that_fail_end_in_4_unless_the_verdict_says_3(near, far, capsys):
    strict = near.require(effective_n=1e6, trajectories=10)
    assert judge(strict, tell=True) == 4
    assert judge(near.require(trajectories=10)) == 0
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("Required: effective sample size of the value ")
    assert lines[0].endswith("required at least 1e+06: not met.")
    assert judge(far.require(effective_n=1e6)) == 3
    assert judge(far.require(effective_n=1e6), fail_on="never") == 4


def test_conditions_are_printed_and_in_the_json(near):
    strict = near.require(width=0.001, trajectories=300)
    assert "Required: trajectories in the log 300, required at least 300: met." in str(strict)
    rows = json.loads(strict.to_json())["requirements"]
    assert [(row["name"], row["met"]) for row in rows] == [("trajectories", True), ("width", False)]
    assert rows[1]["required"] == {"at most": 0.001}


def test_an_interval_that_is_withheld_meets_no_condition(far):
    strict = far.require(width=1e9, difference=-1e9)
    assert [x.met for x in strict.requirements] == [False, False]
    assert "not known, as the estimate should not be believed" in strict.requirements[0].text
    assert strict.to_dict()["requirements"][0]["found"] is None


def test_a_study_file_and_an_option_state_the_same_conditions(tmp_path):
    lines = ["log = '/log.csv'", "recommended = 'advice'", "require = {effective-n = 200, width = 0.1}"]
    (tmp_path / "study.toml").write_text("\n".join(lines))
    study = read_study(str(tmp_path / "study.toml"), {}, needs_target=True)
    assert dict(study.require) == {"effective_n": 200, "width": 0.1}
    given = {"recommended": "advice", "require": "effective_n=200, width=0.1"}
    assert read_study("/log.csv", given, needs_target=True).require == study.require


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"require": "effective=200"}, "did you mean 'effective_n'"),
        ({"require": "width"}, "require must be given as"),
        ({"require": {"width": "small"}}, "must be a finite number"),
        ({"fail_on": "note"}, "fail_on must be issue, caution or never"),
    ],
)
def test_a_condition_that_cannot_be_checked_is_refused_before_the_log_is_read(given, message):
    with pytest.raises(ValueError, match=message):
        read_study("missing.csv", {"recommended": "advice"} | given, needs_target=True)


def test_limits_must_be_known_and_finite():
    with pytest.raises(ValueError, match="finite"):
        check_limits({"width": float("nan")})


def test_help_has_a_short_form_everywhere():
    for command in ([], *([name] for name in main.commands)):
        short, long = (CliRunner().invoke(main, [*command, x]) for x in ("-h", "--help"))
        assert short.exit_code == 0
        assert short.output == long.output


@pytest.mark.slow
def test_the_module_is_the_command():
    done = subprocess.run([sys.executable, "-m", "caliope", "-h"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: caliope ")
