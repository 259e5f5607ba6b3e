"""Made-up raw tables -> cohort -> estimate, compared with the truth that only the generator knows."""

import numpy as np
import polars as pl
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import caliope as cal
from caliope.domains import icu_sepsis

pytest.importorskip("duckdb", reason="the pipeline needs DuckDB: extra clinical")
from caliope.clinical import MIMIC3, MIMIC4, build_cohort, read_cohort
from support.synthetic_mimic import generate_mimic3, generate_mimic4

pytestmark = pytest.mark.slow

N = 60


@pytest.fixture(scope="module", autouse=True)
def sepsis():
    try:
        return icu_sepsis.load()
    except ModuleNotFoundError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module", params=["mimic3", "mimic4"])
def made(request, tmp_path_factory):
    write = {"mimic3": generate_mimic3, "mimic4": generate_mimic4}[request.param]
    return write(tmp_path_factory.mktemp(request.param), N, rng=0, corrupt=True)


@pytest.fixture(scope="module")
def cohort(made):
    return build_cohort(made.folder, database=MIMIC4 if (made.folder / "icu").is_dir() else MIMIC3)


@pytest.fixture(scope="module")
def joined(made, cohort):
    """Every decision of the cohort beside what was true at that hour."""
    truth = pl.read_parquet(made.truth)
    return cohort.rows.join(
        truth,
        left_on=["icustay_id", "decided_at"],
        right_on=["stay", "dosed_from"],
        suffix="_true",
        how="left",
    ).sort("icustay_id", "bloc")


def test_the_cohort_gives_back_the_hidden_decisions(joined):
    # The windows of the pipeline begin on arrival, as those of the truth do: no decision falls between two.
    assert joined["action_true"].null_count() == 0
    assert (joined["action"] == joined["action_true"]).mean() > 0.99
    assert joined["max_dose_vaso"].to_numpy() == pytest.approx(joined["vasopressor"].to_numpy(), abs=1e-6)
    assert joined["input_4hourly"].to_numpy() == pytest.approx(joined["fluid"].to_numpy(), abs=1e-3)


def test_the_state_is_that_of_the_hours_before_the_decision(joined, sepsis):
    # Charted four hours before the doses: the features of the hidden state that decided, 88 + 18 z for the pulse.
    for name, mean, sd in (("HR", 88, 18), ("MeanBP", 79, 15), ("RR", 20, 5)):
        centre = mean + sd * sepsis.centres[joined["state"].to_numpy(), icu_sepsis.FEATURES.index(name)]
        assert np.corrcoef(joined[name].to_numpy(), centre)[0, 1] > 0.9


def test_the_right_patients_are_in_it(made, cohort):
    truth = pl.read_parquet(made.truth).unique("stay", keep="first")
    suspects = truth.filter("infected", pl.col("age") >= 18)
    inside = set(cohort.rows["icustay_id"])
    assert inside <= set(suspects["stay"])
    assert len(inside) > 0.7 * suspects.height  # the others: mild, or died while being recorded
    dead = cohort.rows.unique("icustay_id", keep="first").join(truth, left_on="icustay_id", right_on="stay")
    assert (dead["died"] == ~dead["survived"]).all()


def test_from_the_cohort_to_an_estimate(cohort, joined, sepsis, tmp_path):
    cohort.write(tmp_path / "cohort.parquet")
    data = read_cohort(tmp_path / "cohort.parquet").data
    assert data.actions.tolist() == joined["action"].to_list()
    assert np.array_equal(data.ids, joined["icustay_id"].unique(maintain_order=True).to_numpy())
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01))
    behaviour = cal.fit_behaviour(model, data, mode="same")
    logged = np.arange(data.n_steps), data.actions
    marginal = np.bincount(data.actions, minlength=25) / data.n_steps
    assert np.log(behaviour.probabilities[logged]).mean() > np.log(marginal[data.actions]).mean()
    # Vasopressors a fifth less often: by the fitted policy, and by the true one in the hidden states.
    weights = np.where(np.arange(25) % 5 > 0, 0.8, 1.0)
    fitted = cal.gather(data, cal.tilt(cal.practice, weights), behaviour, gamma=0.99)
    tilted = sepsis.expert[joined["state"].to_numpy()] * weights
    tilted /= tilted.sum(axis=1, keepdims=True)
    known = cal.gather(data, tilted, joined["behaviour"].to_numpy(), gamma=0.99)
    table = cal.estimate(fitted, cal.monte_carlo, cal.wis, n_draws=200, rng=0)
    truth = cal.estimate(known, cal.wis, n_draws=200, rng=0)
    assert table["monte_carlo"].value == pytest.approx(data.returns(0.99).mean())
    # Both weigh the same stays, nearly alike: they lie closer to each other than sampling error lets either lie.
    assert abs(table["wis"].value - truth["wis"].value) < truth["wis"].interval.width / 4
