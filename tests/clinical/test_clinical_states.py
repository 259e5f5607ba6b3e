"""Cohort rows -> trajectories: scales fitted on training patients, history, padding; and the published imputation."""

import numpy as np
import polars as pl
import pytest

from caliope.clinical import AsPublished, CohortSettings, to_trajectories
from caliope.clinical._databases import features
from caliope.clinical._states import fill_from_nearest_row, interpolate_down

NAMES = [name for name, _ in features()]


def rows(n_stays=6, length=5, seed=0):
    """A cohort table with random states; the last two stays are not for training."""
    rng = np.random.default_rng(seed)
    n = n_stays * length
    stay = np.repeat(np.arange(n_stays), length)
    table = {name: rng.gamma(2.0, 3.0, size=n) for name in NAMES}
    for name, kind in features():
        if kind == "binary":
            table[name] = rng.integers(0, 2, size=n).astype(float)
    iv, vaso = rng.integers(0, 5, size=n), rng.integers(0, 5, size=n)
    table |= {
        "icustay_id": 200_000 + stay, "bloc": np.tile(np.arange(1, length + 1), n_stays), "iv_level": iv,
        "vaso_level": vaso, "action": 5 * iv + vaso, "reward": rng.normal(size=n), "max_dose_vaso": vaso * 0.1,
        "input_4hourly": iv * 100.0, "never_vasopressor": np.zeros(n, bool), "training": stay < n_stays - 2,
        "died": stay % 2 == 0,
    }  # fmt: skip
    return pl.DataFrame(table)


def test_forty_eight_features_in_raghus_order():
    assert len(NAMES) == 48
    assert NAMES[:3] == ["Albumin", "Arterial_BE", "Arterial_lactate"]
    assert NAMES[-1] == "bloc"
    # No dose among them: the action must not be in the state.
    assert not {"max_dose_vaso", "median_dose_vaso", "input_4hourly", "input_total"} & set(NAMES)


def test_scales_are_fitted_on_training_patients_only():
    table = rows()
    data = to_trajectories(table)
    trained = table["training"].to_numpy()
    for j, (name, kind) in enumerate(features()):
        x = table[name].to_numpy()
        if kind == "binary":
            expected = x - 0.5
        else:
            y = np.log(0.1 + x) if kind == "log" else x
            expected = (y - y[trained].mean()) / y[trained].std()
        # Sums of 20 terms of order one, divided by a spread of order one: rounding stays below 1e-12.
        assert np.allclose(data.states[:, j], expected, rtol=0, atol=1e-12), name
    # The patients outside change, the states of the others do not.
    other = table.with_columns(HR=pl.when("training").then("HR").otherwise(pl.col("HR") * 100))
    assert np.array_equal(to_trajectories(other).states[trained], data.states[trained])


def test_a_constant_feature_is_centred_and_left_alone():
    data = to_trajectories(rows().with_columns(elixhauser=pl.lit(3.0)))
    assert (data.states[:, NAMES.index("elixhauser")] == 0).all()


def test_history_of_three_makes_198_columns():
    table = rows()
    data = to_trajectories(table, history=3)
    assert data.states.shape == (30, 48 + 3 * (48 + 2))
    plain = to_trajectories(table)
    # Step 4 of the first stay: itself, then steps 3, 2 and 1, each with the levels of its own action.
    pieces = [plain.states[4]]
    for lag in (1, 2, 3):
        action = table["action"][4 - lag]
        pieces += [plain.states[4 - lag], [action // 5, action % 5]]
    assert np.array_equal(data.states[4], np.concatenate(pieces))
    assert to_trajectories(table, history=3, past_actions=False).states.shape[1] == 4 * 48


def test_the_log_says_what_its_stays_and_actions_are_called():
    for data in (to_trajectories(rows()), to_trajectories(rows(), history=2, padding="zeros")):
        assert data.units == "stays"
        assert data.action_names[5 * 3 + 1] == "fluid 3, vasopressor 1"


def test_padding_repeats_the_first_state_or_is_zero():
    table = rows()
    repeated, zeros = (to_trajectories(table, history=2, padding=padding) for padding in ("repeat", "zeros"))
    first = to_trajectories(table).states[5]  # the first step of the second stay
    assert np.array_equal(repeated.states[5, 48:96], first)
    assert (repeated.states[5, 96:98] == 0).all()
    assert (zeros.states[5, 48:] == 0).all()
    assert np.array_equal(repeated.states[7], zeros.states[7])  # two steps later both know everything


def test_what_is_kept_beside_the_states():
    table = rows()
    data = to_trajectories(table)
    assert np.array_equal(data["SOFA"], table["SOFA"].to_numpy())  # in points, not on the common scale
    assert data.ids.tolist() == [200_000 + k for k in range(6)]
    assert data.n_actions == 25
    assert np.array_equal(to_trajectories(table, normalise=False).states[:, 14], table["HR"].to_numpy())


@pytest.mark.parametrize(
    ("options", "message"), [({"padding": "mirror"}, "padding"), ({"history": -1}, "history")]
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        to_trajectories(rows(), **options)


def test_without_training_patients_there_is_no_scale():
    with pytest.raises(ValueError, match="no row belongs to a training patient"):
        to_trajectories(rows().with_columns(training=pl.lit(False)))


def test_the_nearest_row_fills_a_gap_as_a_loop_would():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(40, 5)) * [1, 10, 100, 1, 1]
    values[rng.random(values.shape) < 0.2] = np.nan
    filled = fill_from_nearest_row(values)
    spread = np.nanstd(values, axis=0)
    for i, j in np.argwhere(np.isnan(values)):
        best, gap = np.inf, np.nan
        for k in np.flatnonzero(np.isfinite(values[:, j])):
            both = np.isfinite(values[i]) & np.isfinite(values[k])
            if not both.any():
                continue
            # Distance over the columns that both have, scaled up to all five.
            distance = np.sqrt(5 / both.sum() * (((values[i] - values[k]) / spread)[both] ** 2).sum())
            if distance < best:
                best, gap = distance, values[k, j]
        assert filled[i, j] == pytest.approx(gap, rel=1e-9)
    seen = np.isfinite(values)
    assert np.array_equal(filled[seen], values[seen])


def test_interpolation_runs_across_patients():
    assert interpolate_down(np.array([1.0, np.nan, np.nan, 4.0])).tolist() == [1, 2, 3, 4]
    assert np.isnan(interpolate_down(np.array([np.nan, np.nan]))).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"outcome": "alive"}, "outcome must be one of hospital, 90 days, got 'alive'"),
        ({"train_share": 0.0}, "train_share"),
        ({"hours_before": -1.0}, "hours_before"),
        ({"hours_before": 2.0, "hours_after": 2.0}, "8 hours"),
        ({"lab_delay_hours": -1.0}, "lab_delay_hours"),
        ({"hours_before": float("nan")}, "hours_before"),
        ({"terminal_reward": float("nan")}, "terminal_reward must be a number above 0"),
        ({"terminal_reward": -15.0}, "terminal_reward must be a number above 0"),
        ({"minimal_age": -5.0}, "minimal_age must lie between 0 and 150"),
        ({"minimal_age": float("nan")}, "minimal_age must lie between 0 and 150"),
        ({"seed": 1.5}, "seed must be a whole number"),
    ],
)
def test_settings_say_what_they_require(options, message):
    with pytest.raises(ValueError, match=message):
        CohortSettings(**options)


def test_published_mistakes_go_by_name():
    assert AsPublished.from_names(["sofa_gaps"]).repeated == ("sofa_gaps",)
    assert len(AsPublished.from_names(["all"]).repeated) > 20
    with pytest.raises(ValueError, match="no published mistake is called 'nonsense'"):
        AsPublished.from_names(["nonsense"])


def test_the_page_names_every_published_mistake():
    from dataclasses import fields
    from pathlib import Path

    page = (Path(__file__).parents[2] / "docs" / "clinical.md").read_text()
    for field in fields(AsPublished):
        assert f"| `{field.name}` |" in page, field.name
