"""``caliope explain`` and ``caliope simulate``."""

import csv
import re
import shlex

import polars as pl
import pytest
from click.testing import CliRunner

import caliope as cal
from caliope import checks
from caliope.cli import main
from caliope.cli._simulate import DOMAINS
from caliope.domains import ward


def run(*arguments):
    return CliRunner().invoke(main, [str(x) for x in arguments])


def test_explain_prints_what_a_code_means_and_without_one_lists_all():
    assert run("explain", "B104").output == f"{checks.explain('B104')}\n"
    listed = run("explain").output.splitlines()
    assert len(listed) == len(checks.explain().splitlines())
    assert any(line.startswith("B104") for line in listed)


def test_an_unknown_code_is_refused_in_one_line():
    result = run("explain", "B9999")
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: no finding is called 'B9999'")
    assert result.stderr.count("\n") == 1


def test_the_ward_is_that_of_the_package_with_the_new_policy_beside_it(tmp_path):
    result = run("simulate", "ward", "--out", tmp_path / "ward.csv")
    assert result.exit_code == 0, result.output
    with (tmp_path / "ward.csv").open() as written, ward.csv_path().open() as packaged:
        rows, known = list(csv.reader(written)), list(csv.reader(packaged))
    assert [row[:5] for row in rows] == known
    assert rows[0][5:] == ["p_none", "p_low", "p_high"]
    assert [float(x) for x in rows[1][5:]] == pytest.approx(ward.EARLIER[int(rows[1][2])], abs=1e-9)
    assert "current practice 0.4851, new policy 0.5355" in result.output


@pytest.mark.slow
@pytest.mark.parametrize("domain", DOMAINS)
def test_the_printed_command_reads_the_log_and_the_truth_is_near_the_mean(domain, tmp_path):
    if domain == "icu-sepsis":
        pytest.importorskip("icu_sepsis")
    out = tmp_path / "log.parquet"
    result = run("simulate", domain, "--trajectories", 300, "--gamma", 0.9, "--propensities", "--out", out)
    assert result.exit_code == 0, result.output
    *_, truth, command = result.output.splitlines()
    practice = float(re.search(r"current practice (-?[\d.]+)", truth)[1])
    caliope, evaluate, path, *options = shlex.split(command)
    assert (caliope, evaluate, path) == ("caliope", "evaluate", str(out))
    given = dict(zip(options[::2], options[1::2], strict=True))
    assert given["--gamma"] == "0.9"
    assert given["--propensity"] == "propensity"
    frame = pl.read_parquet(out)
    roles = {part: given.get(f"--{part}", part) for part in ("episode", "time", "action", "reward")}
    features = [name for name in frame.columns if name not in (*roles.values(), "propensity")]
    data = cal.read_table(frame, **roles, states=features)
    returns = data.returns(0.9)
    assert returns.mean() == pytest.approx(practice, abs=4 * returns.std() / 300**0.5)


def test_a_simulated_log_is_refused_another_kind_of_file(tmp_path):
    result = run("simulate", "ward", "--out", tmp_path / "log.xlsx")
    assert result.exit_code == 2
    assert "must end in .csv or .parquet" in result.stderr
