"""An audit with clusters: from labels, from a column, from the command line."""

import json

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from sklearn.linear_model import LogisticRegression

import caliope as cal
from caliope._audit._inputs import with_cluster
from caliope.cli import main
from caliope.domains import ward

MODELS = {"logistic": LogisticRegression()}
POLICY = cal.TabularPolicy(ward.EARLIER)


@pytest.fixture(scope="module")
def log():
    data = ward.simulate(240, rng=0)
    site = np.repeat(np.arange(24), 10)[data.layout.owner]
    return data.replace(columns={**data.columns, "site": site, "hour": data.layout.time})


def audit(data, **options):
    q = cal.values.TabularRegressor()
    return cal.audit(data, POLICY, MODELS, regressor=q, n_draws=40, rng=0, **options)


@pytest.mark.slow
def test_labels_and_a_column_give_the_same_audit_and_it_says_so(log):
    by_name, by_label = audit(log, cluster="site"), audit(log, cluster=np.repeat(np.arange(24), 10))
    assert by_name.table.to_dict() == by_label.table.to_dict()
    assert 15 < by_name.headline.effective_clusters <= 24
    assert by_name.settings.to_dict()["clusters"] == 24
    assert {"L109", "D115"} & {f.code for f in by_name.findings} >= {"L109"}
    assert "effective clusters" in str(by_name)
    assert by_name.to_dict()["headline"]["effective_clusters"] == by_name.headline.effective_clusters
    plain = audit(log)
    assert plain.settings.to_dict()["clusters"] == "none named"
    assert plain.headline.interval != by_name.headline.interval
    alone = audit(log, cluster=np.arange(240))
    assert alone.table.to_dict() == plain.table.to_dict()


def test_bad_clusters_of_an_audit_are_refused_before_anything_is_fitted(log):
    with pytest.raises(ValueError, match="cluster names the column 'sight', which the log does not keep"):
        audit(log, cluster="sight")
    with pytest.raises(ValueError, match="column 'hour' must be constant within a trajectory"):
        audit(log, cluster="hour")
    with pytest.raises(ValueError, match="one label for each of the 240 trajectories"):
        audit(log, cluster=[1, 2, 3])
    with pytest.raises(ValueError, match=r"an audit needs 5 clusters at the very least.*got 3"):
        audit(log, cluster=np.arange(240) % 3)
    with pytest.raises(ValueError, match="an audit needs 5 clusters"):
        cal.prepare_audit(log, MODELS, cluster=np.arange(240) % 3, rng=0)
    assert with_cluster(log, None) is log


def run(*arguments):
    return CliRunner().invoke(main, [str(x) for x in arguments], env={"COLUMNS": "200"})


@pytest.mark.slow
def test_a_cluster_column_on_the_command_line_and_in_a_study_file(log, tmp_path):
    wanted = ward.EARLIER[log.states[:, 0].astype(int)]
    frame = pl.DataFrame(
        {
            "episode": log.layout.owner,
            "severity": log.states[:, 0],
            "action": log.actions,
            "reward": log.rewards,
            "site": log["site"],
            "hour": log["hour"],
            **{f"p{a}": wanted[:, a] for a in range(3)},
        }
    )
    frame.write_parquet(tmp_path / "log.parquet")
    common = ["--target-columns", "p0..p2", "--models", "frequencies", "--draws", "40", "--json"]
    given = run("evaluate", tmp_path / "log.parquet", "--cluster", "site", "--ignore", "hour", *common)
    found = json.loads(given.stdout)
    assert 10 < found["headline"]["effective_clusters"] <= 24
    assert found["settings"]["cluster"] == "column 'site'"
    assert found["settings"]["clusters"] == 24
    assert "site" not in found["settings"]["states"].split(": ")[-1].split(", ")
    study = tmp_path / "study.toml"
    study.write_text('log = "log.parquet"\ncluster = "site"\nignore = ["hour"]\n')
    assert json.loads(run("evaluate", study, *common).stdout)["headline"] == found["headline"]
    for column, said in (
        ("hour", "must be constant within a trajectory"),
        ("sight", "not a column of the table"),
    ):
        refused = run(
            "evaluate",
            tmp_path / "log.parquet",
            "--cluster",
            column,
            *common,
            "--states",
            "severity",
            "--quiet",
        )
        assert refused.exit_code == 2
        assert said in refused.stderr
        assert len(refused.stderr.strip().splitlines()) == 1
    both = run("evaluate", tmp_path / "log.parquet", "--cluster", "site", "--ignore", "site", *common)
    assert "is the cluster and cannot be ignored" in both.stderr
    page = tmp_path / "report.html"
    assert run("evaluate", study, *common, "--out", page).exit_code in (0, 3)
    assert "effective clusters" in page.read_text()
