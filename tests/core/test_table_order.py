"""Arrays in the order of a table whose rows were put in order when it was read."""

import numpy as np
import polars as pl
import pytest

import caliope as cal
from caliope._table_order import refuse_table_order
from caliope.behaviour import TabularFrequencies
from caliope.domains import ward

COLUMNS = ["p0", "p1", "p2"]
ROLES = {"episode": "e", "time": "t", "action": "a", "reward": "r", "states": ["x"], "keep": COLUMNS}
SAID = "seems to be in the order of the table's rows"


def frame(n=80, seed=0):
    """A ward, one row per decision, with the probabilities of a policy."""
    log = ward.simulate(n, rng=seed)
    p = cal.TabularPolicy(ward.EARLIER).predict_proba(log.states)
    owner = log.layout.owner
    return pl.DataFrame(
        {"e": owner, "t": np.arange(log.n_steps) - log.offsets[owner], "a": log.actions, "r": log.rewards}
        | {"x": log.states[:, 0], **dict(zip(COLUMNS, p.T, strict=True))}
    )


def arrays(table):
    """Probabilities, and the likeliest actions."""
    p = table.select(COLUMNS).to_numpy()
    return p, p.argmax(axis=1)


@pytest.mark.parametrize("how", ["by time across patients", "shuffled"])
def test_an_array_in_the_order_of_the_table_is_refused_where_rows_were_sorted(how):
    table = frame().sort("t", "e") if how != "shuffled" else frame().sample(fraction=1, shuffle=True, seed=1)
    data = cal.read_table(table, **ROLES)
    for wrong in arrays(table):
        with pytest.raises(ValueError, match=SAID):
            refuse_table_order(wrong, data)
        with pytest.raises(ValueError, match=SAID):
            cal.audit(data, wrong, {"f": TabularFrequencies()}, rng=0, progress=False)
    own = np.column_stack([data[name] for name in COLUMNS])
    for right in (own, own.argmax(axis=1)):
        refuse_table_order(right, data)
    refuse_table_order(own, data.replace(unit="patient"))
    with pytest.raises(ValueError, match=SAID):
        refuse_table_order(arrays(table)[0], data.replace(unit="patient"))
    with pytest.raises(ValueError, match=SAID):
        cal.gather(data, np.full(data.n_steps, 0.4), arrays(table)[0])


def test_a_table_in_order_takes_any_array():
    table = frame()
    data = cal.read_table(table, **ROLES)
    assert data.row_places is None
    for right in arrays(table):
        refuse_table_order(right, data)
    backwards = table.reverse()
    assert cal.read_table(backwards, **ROLES).row_places is not None
    assert (
        cal.read_table(backwards, **ROLES)[:3].row_places is None
    )  # nobody has arrays of a part in another order


@pytest.mark.parametrize("seed", range(10))
def test_what_the_states_do_not_explain_is_not_refused(seed):
    table = frame(40, seed).sample(fraction=1, shuffle=True, seed=seed)
    data = cal.read_table(table, **ROLES)
    rng = np.random.default_rng(seed)
    refuse_table_order(rng.dirichlet([1, 1, 1], data.n_steps), data)
    refuse_table_order(np.full((data.n_steps, 3), 1 / 3), data)
    refuse_table_order(rng.integers(0, 3, data.n_steps), data)
