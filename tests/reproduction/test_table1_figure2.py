"""Table 1 and Figure 2: smoke runs on simulated patients and on a made-up cohort file, and the rules by hand."""

import dataclasses

import numpy as np
import polars as pl
import pytest

from caliope.calibration import neighbourhoods, severity_strata
from reproduction import _cohorts as cohorts, figure2, table1
from reproduction._runs import run_units, seed_of
from support.cohort_files import write_cohort

pytestmark = pytest.mark.slow


def run(module, config, folder):
    return run_units(module.units(config), folder, progress=False)


@pytest.fixture(scope="module")
def cohort_file(tmp_path_factory):
    """Forty stays of four steps; thirty are for training."""
    return write_cohort(tmp_path_factory.mktemp("cohort") / "cohort.parquet")


def test_the_kernel_counts_informative_features_twice():
    names = ["HR", "SOFA", "age_lag1", "HR_lag2", "agenda"]
    assert cohorts.kernel_weights(names, lags=False).tolist() == [1, 2, 1, 1, 1]
    assert cohorts.kernel_weights(names, lags=True).tolist() == [1, 2, 2, 1, 1]


def test_simulated_logs_share_no_patient_and_know_the_truth():
    logs = cohorts.simulate_cohorts(30, 40, np.random.default_rng(0))
    assert (len(logs.train), len(logs.test)) == (30, 40)
    assert not set(logs.train.digests) & set(logs.test.digests)
    at_logged = logs.truth[np.arange(logs.test.n_steps), logs.test.actions]
    assert at_logged == pytest.approx(logs.test["behaviour"])
    # every informative feature is measured: now, and in three steps before
    weights = cohorts.kernel_weights(logs.test.feature_names, lags=True)
    assert (weights == 2).sum() == 4 * len(set(cohorts.INFORMATIVE))


def test_a_cohort_file_is_parted_as_it_says(cohort_file):
    logs = cohorts.read_cohorts(cohort_file)
    assert (len(logs.train), len(logs.test)) == (30, 10)
    assert logs.train.states.shape == (120, 48 + 3 * 50)  # the paper's 198 columns
    assert logs.truth is None
    assert logs.sofa.max() > 14
    assert cohorts.digest_of(cohort_file) == cohorts.digest_of(cohort_file)


def test_a_cohort_without_training_patients_is_refused(cohort_file, tmp_path):
    path = tmp_path / "all.parquet"
    pl.read_parquet(cohort_file).with_columns(training=pl.lit(True)).write_parquet(path)
    with pytest.raises(ValueError, match="needs training patients and others"):
        cohorts.read_cohorts(path)


@pytest.fixture(scope="module")
def table1_results(tmp_path_factory):
    return run(table1, table1.SMOKE, tmp_path_factory.mktemp("table1"))


def test_the_paper_metric_is_as_by_hand(table1_results):
    config = table1.SMOKE
    logs = cohorts.simulate_cohorts(config.train, config.test, seed_of("table1", 0, "patients"))
    strata = severity_strata(logs.sofa)
    rng = seed_of("table1", 0, "states")
    rows = []
    for stratum in table1.STRATA:
        there = np.flatnonzero(strata == stratum)
        rows.append(rng.choice(there, min(40, len(there)), replace=False))
    weights = cohorts.kernel_weights(logs.test.feature_names, lags=True)
    expected = []
    for row in rows[1]:  # SOFA 5 to 9
        ids = neighbourhoods(logs.test, [row], k=30, feature_weights=weights).ids[0]
        h = np.array([(logs.test.actions[ids] == a).mean() for a in range(25)])
        expected.append(0.5 * sum(abs(h[a] - logs.truth[row, a]) for a in range(25)))
    found = table1_results["truth-seed0"]["raw"]["5-9"]
    assert found["paper"] == pytest.approx(np.mean(expected))
    assert found["states"] == len(rows[1])
    assert found["true_tv"] == 0
    # Over the whole log a stratum counts by its steps, not by the states that were drawn from it.
    by_stratum = table1_results["truth-seed0"]["raw"]
    share = {stratum: (strata == stratum).mean() for stratum in table1.STRATA}
    assert by_stratum["all"]["paper"] == pytest.approx(sum(share[s] * by_stratum[s]["paper"] for s in share))


def test_the_table_stands_beside_the_paper(table1_results):
    report = table1.report(table1.SMOKE, table1_results)
    rows = {(row["severity"], row["model"]): row for row in report.table(table1.RAW).records()}
    row = rows["10-13", "neighbours"]
    assert row["paper"] == 0.210
    ours = [table1_results[f"neighbours-seed{seed}"]["raw"]["10-13"]["paper"] for seed in (0, 1)]
    assert row["ours"] == pytest.approx(np.mean(ours))
    assert row["difference"] == pytest.approx(np.mean(ours) - 0.210)
    assert rows["all", "truth"]["paper"] is None
    assert any("The true policy itself scores" in said for said in report.findings)


def made_up_severities(ours, nulls):
    """The paper's number and its null of some models in two strata."""
    return {
        model: {
            s: {"paper": x, "null": y}
            for s, x, y in zip(("0-4", "14+"), ours[model], nulls[model], strict=True)
        }
        for model in ours
    }


def test_the_trend_with_severity_is_told_from_the_numbers():
    ours = {"forest": (0.2, 0.3), "network": (0.5, 0.4), "truth": (0.4, 0.35)}
    nulls = {"forest": (0.1, 0.2), "network": (0.3, 0.3), "truth": (0.4, 0.36)}
    assert table1._trend(made_up_severities(ours, nulls), "0-4", "14+") == (
        "From 0-4 to 14+ the paper's number goes: forest 0.200 to 0.300, network 0.500 to 0.400. Its null over the "
        "same strata: forest 0.100 to 0.200, network 0.300 to 0.300, truth 0.400 to 0.360."
    )


def test_table_1_says_how_it_was_measured(table1_results):
    config = table1.SMOKE
    note = table1.report(config, table1_results).table(table1.RAW).note
    states = {
        s: [table1_results[f"logistic-seed{i}"]["raw"][s]["states"] for i in (0, 1)] for s in table1.STRATA
    }
    few = {s: np.mean(n) for s, n in states.items() if np.mean(n) < config.n_states}
    assert few  # in 80 patients hardly any is that ill
    assert f"(all of them, on average: {', '.join(f'{s}: {n:.0f}' for s, n in few.items())})" in note
    for words in ("standardised", "own trajectory left out", "mean SOFA score of the hidden state"):
        assert words in note


def test_recalibration_makes_the_overconfident_regression_better(table1_results):
    # 60 patients and 178 columns: the regression is far too sure, and a temperature sees it.
    for seed in (0, 1):
        found = table1_results[f"logistic-seed{seed}"]
        assert found["recalibrated"]["all"]["true_tv"] < found["raw"]["all"]["true_tv"]
        assert found["recalibrated"]["all"]["brier"] < found["raw"]["all"]["brier"]


def test_the_best_model_is_one_with_a_number():
    fitted = {"a": None, "b": 2.0, "c": float("inf")}
    assert table1._best(fitted) == "b"
    assert table1._best({"a": float("inf")}) is None


def test_a_reader_gets_table_1_without_the_truth(cohort_file, tmp_path):
    config = dataclasses.replace(
        table1.SMOKE, models=("neighbours", "truth"), seeds=1, k=10, data=str(cohort_file), digest="x"
    )
    results = run(table1, config, tmp_path)
    assert list(results) == ["neighbours-seed0"]
    report = table1.report(config, results)
    rows = report.table(table1.RAW).records()
    assert {row["severity"] for row in rows} == {"0-4", "5-9", "10-13", "14+", "all"}
    assert all(row["true TV"] is None for row in rows)
    assert str(cohort_file.parent) not in report.table(table1.RAW).note
    assert len(table1.figure(report).axes) == 2


def test_the_rules_of_figure_2_by_hand():
    reference = np.array([[0.5, 0.3, 0.2], [0.6, 0.4, 0.0], [0.1, 0.8, 0.1], [0.3, 0.6, 0.1]])
    table = np.array([[0.9, 0.1, 0.0], [0.7, 0.3, 0.0], [0.2, 0.2, 0.6], [0.5, 0.4, 0.1]])
    # Rows 0 and 1 agree on the likeliest action, too sure of it by 0.4 and 0.1; rows 2 and 3 do not, and are off by
    # (0.1 + 0.6 + 0.5) / 2 = 0.6 and 0.2.
    assert figure2.overconfidence(table, reference) == pytest.approx([0.4, 0.1, 0.5, 0.2])
    assert figure2.worst(table, reference) == (0, 2)
    assert figure2.worst(table[:2], reference[:2]) == (0, 0)  # all agree: the largest distance of all
    assert figure2.worst(table[2:], reference[2:]) == (0, 0)


@pytest.fixture(scope="module")
def figure2_results(tmp_path_factory):
    return run(figure2, figure2.SMOKE, tmp_path_factory.mktemp("figure2"))


def test_figure_2_finds_the_network_too_sure(figure2_results):
    report = figure2.report(figure2.SMOKE, figure2_results)
    network, near = report.table(figure2.STATES).records()
    assert (network["model"], near["model"]) == ("network", "neighbours")
    assert network["mean overconfidence"] > near["mean overconfidence"]
    shown = report.table(figure2.DISTRIBUTIONS).records()
    assert len(shown) == 4 * 4
    for row in shown:
        assert sum(row[str(a)] for a in range(25)) == pytest.approx(1.0)
    assert len(figure2.figure(report).axes) == 16


def test_figure_2_tells_of_the_states_that_its_rules_choose(figure2_results):
    report = figure2.report(figure2.SMOKE, figure2_results)
    worst = report.findings[1]
    assert "agree on the likeliest action" in worst  # the rule stands on the page
    rows = {row["chosen for"]: row for row in report.table(figure2.EXAMPLES).records()}
    for model in figure2.MODELS:
        sure, off = [], []
        for seed in (0, 1):
            examples = figure2_results[f"seed{seed}"]["examples"]
            x = examples[f"{model}, most overconfident"]
            best = int(np.argmax(x[model]))
            assert best == int(np.argmax(x["truth"]))  # as the rule says
            sure.append(x[model][best] - x["truth"][best])
            y = examples[f"{model}, most wrong"]
            off.append(0.5 * sum(abs(a - b) for a, b in zip(y[model], y["truth"], strict=True)))
        assert rows[f"{model}, most overconfident"]["too sure by"] == pytest.approx(sure[0])
        assert f"{sure[0]:.2f} ({model}; {min(sure):.2f} to {max(sure):.2f} over 2 seeds)" in worst
        assert f"{off[0]:.2f} ({model}; {min(off):.2f} to {max(off):.2f} over 2 seeds)" in worst


def test_the_labels_of_figure_2_fit_beside_their_panels(figure2_results):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    drawing = figure2.figure(figure2.report(figure2.SMOKE, figure2_results))
    FigureCanvasAgg(drawing).draw()
    for axis in drawing.axes[:: len(drawing.axes) // 4]:
        assert axis.yaxis.label.get_window_extent().height <= axis.get_window_extent().height


def test_figure_2_on_a_cohort_has_no_truth(cohort_file, tmp_path):
    config = dataclasses.replace(figure2.SMOKE, seeds=1, k=10, data=str(cohort_file), digest="x")
    report = figure2.report(config, run(figure2, config, tmp_path))
    assert {row["source"] for row in report.table(figure2.DISTRIBUTIONS).records()} == {
        "network",
        "neighbours",
        "target",
    }
    assert all(row["truth"] is None for row in report.table(figure2.EXAMPLES).records())
    assert "true policy" not in report.to_markdown()
    assert report.config["data"] == "cohort.parquet"  # where it lies is nobody's business
