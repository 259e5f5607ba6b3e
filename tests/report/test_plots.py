"""Pictures: what is drawn is what the result holds, and the same picture has the same bytes."""

import ast
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import caliope as cal
from caliope import plots
from caliope.calibration import compare_policies, weight_moments
from caliope.checks import D101
from caliope.domains import ward

SRC = Path(cal.__file__).parent


@pytest.fixture(scope="module")
def comparison():
    train, test = (ward.simulate(120, rng=seed) for seed in (0, 1))
    models = {
        "logistic": LogisticRegression().fit(train.states, train.actions),
        "uniform": cal.UniformPolicy(3),
    }
    by = np.where(test.states[:, 0] > 1, "ill", "well")
    return compare_policies(models, test, by=by, k=20, n_states=30, n_draws=20, rng=0)


def drawn(figure):
    return [(line.get_xdata(), line.get_ydata()) for line in figure.axes[0].lines]


def test_a_reliability_diagram_shows_the_curve(comparison):
    figure, axes = plots.panels()
    curve = comparison.details["logistic"].reliability
    assert plots.reliability(curve, axes[0, 0], label="logistic") is axes[0, 0]
    _, (x, y) = drawn(figure)
    assert (x == curve.predicted).all()
    assert (y == curve.observed).all()


def test_ratios_come_with_two_standard_errors(comparison):
    figure, axes = plots.panels()
    found = comparison.details["logistic"].ratios
    plots.ratio_reliability(found, axes[0, 0])
    bars = np.array([segment[:, 1] for segment in axes[0, 0].collections[0].get_segments()])
    assert bars == pytest.approx(
        np.stack([found.observed - 2 * found.se, found.observed + 2 * found.se], axis=1)
    )
    assert axes[0, 0].get_xscale() == "log"
    assert figure.axes == [axes[0, 0]]


def test_the_balance_map_shows_the_worst_functions_first(comparison):
    figure, axes = plots.panels()
    table = comparison.details["uniform"].balance
    plots.balance(table, axes[0, 0], most=2)
    shown = np.asarray(axes[0, 0].images[0].get_array())
    assert shown.shape == (3, 2)
    assert np.abs(shown[:, 0]).max() == np.abs(table.z).max()
    assert axes[0, 0].get_xticklabels()[0].get_text() == table.worst[1]
    assert len(figure.axes) == 2  # with the scale of the colours


def test_bars_are_the_paper_metric_and_lines_its_null(comparison):
    _, axes = plots.panels()
    plots.paper_distances(comparison, axes[0, 0])
    heights = sorted(bar.get_height() for bar in axes[0, 0].patches)
    rows = [row for row in comparison if row.stratum != "all"]
    assert heights == sorted(row.measured.paper_tv.value for row in rows)
    nulls = sorted(line[0, 1] for each in axes[0, 0].collections for line in each.get_segments())
    assert nulls == sorted(row.measured.paper_tv.null_mean for row in rows)


def test_without_strata_the_whole_log_is_drawn():
    data = ward.simulate(60, rng=0)
    found = compare_policies({"uniform": cal.UniformPolicy(3)}, data, k=10, n_states=20, n_draws=20, rng=0)
    _, axes = plots.panels()
    plots.paper_distances(found, axes[0, 0])
    assert [label.get_text() for label in axes[0, 0].get_xticklabels()] == ["all"]


def test_likelihoods_have_their_intervals(comparison):
    _, axes = plots.panels()
    plots.likelihoods(comparison.overall(), axes[0, 0])
    rows = list(comparison.overall())
    assert [label.get_text() for label in axes[0, 0].get_yticklabels()] == [row.model for row in rows]
    ends = [tuple(each.get_segments()[0][:, 0]) for each in axes[0, 0].collections]
    assert ends == [(row.measured.nll_interval.low, row.measured.nll_interval.high) for row in rows]


def test_estimates_have_their_intervals_and_the_truth_a_line():
    data = ward.simulate(200, rng=0)
    evidence = cal.gather(data, cal.TabularPolicy(ward.EARLIER), data["behaviour"])
    table = cal.estimate(evidence, cal.monte_carlo, cal.wis, n_draws=50, rng=0)
    figure, axes = plots.panels()
    plots.estimates(table, axes[0, 0], truth=0.5)
    assert [x for x, _ in drawn(figure)][:2] == [[row.value] for row in table]
    assert drawn(figure)[2][0] == [0.5, 0.5]


def test_weights_over_time():
    data = ward.simulate(100, rng=0)
    evidence = cal.gather(data, cal.TabularPolicy(ward.EARLIER), data["behaviour"])
    moments = weight_moments(evidence, n_draws=20, rng=0)
    figure, axes = plots.panels(1, 2)
    steps = np.arange(len(moments.mean)) + 1
    plots.weight_means(steps, moments.mean, moments.se, axes[0, 0])
    assert any(np.array_equal(x, steps) and np.array_equal(y, moments.mean) for x, y in drawn(figure))
    quantiles = np.array([[-0.5, -np.inf], [0.0, -0.8], [0.5, 3.0]])
    plots.weight_fan([1, 2], (0.1, 0.5, 0.9), quantiles, axes[0, 1])
    median = axes[0, 1].lines[0]
    assert (median.get_ydata() == quantiles[1]).all()
    band = axes[0, 1].collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == -1.3  # half a power of ten below the smallest that is not 0
    assert band[:, 1].max() == 3.0


def test_actions_of_two_factors_lie_where_they_belong():
    _, axes = plots.panels()
    shares = np.zeros((5, 5))
    shares[3, 1] = 1.0
    plots.action_map(shares, axes[0, 0], smallest=0.005)
    (text,) = axes[0, 0].texts
    assert text.get_position() == (1, 3)  # the second factor to the right
    assert text.get_text() == "1.00"


def test_a_list_of_bars_has_one_row_per_entry():
    _, axes = plots.panels()
    plots.bar_list({"new": [1.0, 2.0], "old": [3.0, 4.0]}, axes[0, 0])
    bars = [(bar.get_width(), round(bar.get_y() + bar.get_height() / 2, 9)) for bar in axes[0, 0].patches]
    assert bars == [(1.0, 0.0), (2.0, 1.0), (3.0, 0.25), (4.0, 1.25)]


def test_an_estimate_has_the_colour_of_its_name_unless_it_is_refused():
    data = ward.simulate(200, rng=0)
    evidence = cal.gather(data, cal.TabularPolicy(ward.EARLIER), data["behaviour"])
    table = cal.estimate(evidence, cal.monte_carlo, cal.wis, n_draws=50, rng=0)
    refused = replace(
        table["wis"], findings=(D101.finding("issue", "too-few", effective_n=3.0, n=200, limit=10),)
    )
    _, axes = plots.panels()
    plots.estimates(
        [table["monte_carlo"], refused], axes[0, 0], colours={"monte_carlo": "#112233", "wis": "#445566"}
    )
    assert [line.get_color() for line in axes[0, 0].lines] == ["#112233", plots.GREY]
    assert len(axes[0, 0].collections) == 1  # the interval of the other


def test_missing_cells_stay_blank():
    _, axes = plots.panels()
    plots.cells(["a"], ["x", "y"], [[0.5, np.nan]], axes[0, 0])
    assert [text.get_text() for text in axes[0, 0].texts] == ["0.50"]


def test_points_have_their_spread():
    figure, axes = plots.panels()
    plots.points([1.0, 2.0], [3.0, 4.0], axes[0, 0], spread=[0.5, np.nan])
    assert np.array_equal(drawn(figure)[0][1], [3.0, 4.0])


def test_the_same_picture_has_the_same_bytes(comparison):
    def picture():
        figure, axes = plots.panels()
        plots.paper_distances(comparison, axes[0, 0])
        return plots.svg(figure)

    first = picture()
    assert first == picture()
    assert "<dc:date>" not in first


@pytest.mark.slow
def test_nothing_else_imports_matplotlib_and_no_global_state_is_made():
    for path in SRC.rglob("*.py"):
        names = [
            alias.name if isinstance(node, ast.Import) else node.module or ""
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        ]
        if any(name.startswith("matplotlib") for name in names):
            assert path.parent.name == "plots"
    code = "import sys; from caliope.plots import panels, svg; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
