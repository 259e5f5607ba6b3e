"""Gaps that are filled inside a model: by the rows of its fit, never by held-out ones."""

import numpy as np
import polars as pl
import pytest
from sklearn.pipeline import Pipeline

import caliope as cal
from caliope.behaviour import candidate_models, fit_behaviour
from caliope.behaviour._gaps import FillUnseen, fill_unseen
from support.raw_tables import HOSPITAL, hospital


def test_means_come_from_the_rows_of_the_fit():
    fit = np.array([[4.0, 0, 0], [6.0, 1, 0], [0.0, 1, 1]])
    step = FillUnseen([(0, 2)]).fit(fit)
    assert step.transform([[0.0, 1, 1], [100.0, 0, 0]])[:, 0].tolist() == [5, 100]
    assert fit[2, 0] == 0  # what was given stays as it is
    assert FillUnseen([(0, 2)]).fit(fit[2:]).transform(fit)[2, 0] == 0


def test_models_that_standardise_are_behind_it_where_the_log_has_such_gaps():
    data = cal.read_table(hospital(40).raw, **HOSPITAL)
    pairs = data.encoder.unseen_pairs
    assert [(data.feature_names[a], data.feature_names[b]) for a, b in pairs] == [
        ("lactate", "lactate not yet recorded"),
        ("sodium", "sodium not yet recorded"),
    ]
    models = {name: getattr(m, "model", m) for name, m in candidate_models(data).items()}
    behind = [name for name, m in models.items() if isinstance(m, Pipeline) and isinstance(m[0], FillUnseen)]
    assert behind == ["logistic", "neighbours", "pool and neighbours"]
    whole = data.replace(encoder=None)
    assert not any(
        isinstance(m, Pipeline) and isinstance(m[0], FillUnseen)
        for m in (getattr(each, "model", each) for each in candidate_models(whole).values())
    )
    assert fill_unseen("a model", whole) == "a model"


@pytest.mark.slow
def test_held_out_values_do_not_move_what_others_are_filled_with():
    """A trajectory is predicted by a model that has not seen its fold: what is measured there fills no gap in it."""
    raw = hospital(60, seed=2).raw
    roles = HOSPITAL | {"states": ["lactate"]}
    before = cal.read_table(raw, **roles)
    model = candidate_models(before)["logistic"].model  # whether it is recalibrated is chosen on all folds
    fold = before.fold_of(5, rng=0)
    ours = pl.col("stay").is_in([x for x, k in zip(before.ids, fold, strict=True) if k == 0])
    after = cal.read_table(
        raw.with_columns(pl.when(ours).then(pl.col("lactate") + 50).otherwise("lactate")), **roles
    )
    fits = [fit_behaviour(model, data, mode="cross", rng=0) for data in (before, after)]
    held_out = fold[before.layout.owner]
    gaps = (before.states[:, -1] == 1) & (held_out == 0)
    assert gaps.any()
    # In the changed fold itself only gaps are alike in both logs, and their fill came from the others.
    np.testing.assert_array_equal(fits[0].probabilities[gaps], fits[1].probabilities[gaps])
