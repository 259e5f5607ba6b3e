"""An audit does not depend on the order in which the trajectories stand in the file."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

import caliope as cal
from caliope._estimate import estimate
from caliope._identity import order_by_hash
from caliope.behaviour import NeighbourPolicy
from caliope.cli import main
from caliope.domains import ward
from caliope.values import TabularRegressor

POLICY = cal.TabularPolicy(ward.EARLIER)
MODELS = {
    "logistic": LogisticRegression(),
    "forest": RandomForestClassifier(10, min_samples_leaf=10, random_state=0),
    "neighbours": NeighbourPolicy(20, shrinkage="cv"),
}
# Where values are not what is looked at: those by default take half the time of an audit.
QUICK = {
    "models": {"logistic": LogisticRegression()},
    "regressor": TabularRegressor(),
    "n_draws": 20,
    "rng": 0,
}
N = 150
COMMAND = (
    "--episode visit --time hour --action done --reward outcome --states severity,ward --recommended advice "
    "--soften 0.7 --models logistic --draws 20 --json --quiet"
)
# A101 compares intervals, which L108 widens.
ABOUT_ORDER = {"L108", "B108", "B109", "A101"}


@pytest.fixture(scope="module")
def log():
    return ward.simulate(N, rng=0).replace(ids=[f"visit {i}" for i in range(N)])


def orders(count, n=N):
    """The order of the file, the opposite one, and random ones."""
    yield np.arange(n)
    yield np.arange(n)[::-1]
    for seed in range(count - 2):
        yield np.random.default_rng(seed).permutation(n)


def told(audit, *, named=True):
    """All that an audit says, but for what is about the order of the file: intervals that it widened are left out."""
    codes = [{f.code for f in row.findings} for row in audit.table]
    ends = [
        () if "L108" in {f.code for f in row.findings} else (row.interval.low, row.interval.high)
        for row in audit.table
    ]
    return {
        "rows": [(row.name, row.value, row.effective_n) for row in audit.table],
        "ends": ends,
        "codes": [sorted(x - ABOUT_ORDER) for x in codes],
        "model": audit.comparison.recommended,
        "control": audit.placebo.z,
        "reach": [row.value for row in audit.reach.table],
        "others": [(row.model, row.value) for row in audit.others],
        "influential": [(each.id if named else "", each.effect) for each in audit.summary.influential],
    }


def agree(one, two, *, rel=None):
    """Whether two audits say the same, to the last digit or nearly."""
    near = (lambda x: x) if rel is None else (lambda x: pytest.approx(x, rel=rel))
    for part in ("codes", "model"):
        assert one[part] == two[part]
    for part in ("rows", "others", "influential"):
        for x, y in zip(one[part], two[part], strict=True):
            assert x[0] == y[0]
            assert x[1:] == near(y[1:])
    assert one["reach"] == near(two["reach"])
    assert one["control"] == near(two["control"])
    for x, y in zip(one["ends"], two["ends"], strict=True):
        assert not x or not y or x == near(y)


def test_trajectories_are_ordered_by_a_hash_of_their_names():
    names = ["a", "b", "a", "c", 7, "7", "a"]
    details = [3, 0, 1, 0, 0, 1, 2]
    expected = [(str(names[i]), details[i]) for i in order_by_hash(names, details.__getitem__)]
    assert sorted(expected) == sorted((str(x), d) for x, d in zip(names, details, strict=True))
    for seed in range(20):
        p = np.random.default_rng(seed).permutation(len(names)).tolist()
        found = order_by_hash([names[i] for i in p], lambda k, p=p: details[p[k]])
        assert [(str(names[p[i]]), details[p[i]]) for i in found] == expected
    # Where nothing tells them apart they keep the order in which they stand.
    assert order_by_hash(["a"] * 50, lambda i: 0).tolist() == list(range(50))
    alike = order_by_hash(["a"] * 50, lambda i: i // 2).tolist()
    assert alike != sorted(alike) == list(range(50))
    assert all(alike.index(i) < alike.index(i + 1) for i in range(0, 50, 2))


@pytest.mark.parametrize("named", [True, False])
def test_the_fixed_order_is_that_of_the_trajectories_and_not_of_the_file(log, named):
    data = log if named else ward.simulate(N, rng=0)
    assert data.ids_given == named
    first = data.in_fixed_order()
    assert first.in_fixed_order() is first
    assert (first.place == data.fixed_order).all()
    for order in orders(5):
        moved = data[order].in_fixed_order()
        assert moved.digests == first.digests
        # Where trajectories are alike in all, the numbers that they have by default may be swapped.
        assert not named or moved.ids.tolist() == first.ids.tolist()
    # Rewards on another scale, or a part of the log, keep the order.
    scaled = data.replace(rewards=2 * data.rewards)
    assert scaled.ids_given == named
    assert (scaled.fixed_order == data.fixed_order).all()
    part = first[::2]
    assert not named or part.in_fixed_order() is part
    assert part.place.tolist() == first.place[::2].tolist()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ids", "no ids", "clusters"])
def test_the_same_log_in_ten_orders_gives_the_same_answer(log, kind):
    data = {
        "ids": log,
        "no ids": ward.simulate(N, rng=0),
        "clusters": log.replace(cluster=np.arange(N) // 3),
    }[kind]
    models = {"logistic": MODELS["logistic"]} if kind == "clusters" else MODELS
    # Values by default are fitted in three orders of each of the other kinds.
    options = {"regressor": TabularRegressor()} if kind == "ids" else {}
    found = [
        told(cal.audit(data[order], POLICY, models, n_draws=50, rng=0, **options), named=kind != "no ids")
        for order in orders(10 if kind == "ids" else 3)
    ]
    assert sum(map(bool, (x for each in found for x in each["ends"]))) > 0.7 * len(found) * len(
        found[0]["ends"]
    )
    for each in found[1:]:
        agree(each, found[0])


@pytest.mark.slow
def test_what_is_given_and_returned_by_step_keeps_the_order_of_the_file(log):
    probs = POLICY.predict_proba(log.states) * 0.9 + 0.1 / 3
    strata = np.where(log.layout.time > 2, "late", "early")
    known = ward.PRACTICE[log.states[:, 0].astype(int), log.actions]
    order = np.random.default_rng(3).permutation(N)
    rows, data = log.layout.rows_of(order), log[order]
    learnt = np.arange(N) < 20
    one = cal.audit(log, probs, logged=known, by=strata, learnt_on=learnt, **QUICK)
    two = cal.audit(data, probs[rows], logged=known[rows], by=strata[rows], learnt_on=learnt[order], **QUICK)
    agree(told(one), told(two))
    assert one.data is log
    assert two.data is data
    for audit, table, source in ((one, probs, log), (two, probs[rows], data)):
        assert (audit.target_probs == table).all()
        assert audit.evidence.place is None
        expected = cal.gather(source, table, (known if source is log else known[rows]))
        capped = audit.evidence.log_ratio
        assert np.isclose(capped, expected.log_ratio).mean() > 0.9  # all but what the cap moved
        assert (audit.evidence.rewards == source.rewards).all()
    assert (one.behaviour_probs[rows] == two.behaviour_probs).all()
    assert (one.evidence.log_ratio[rows] == two.evidence.log_ratio).all()
    assert one.data.ids[one.influence.top].tolist() == two.data.ids[two.influence.top].tolist()
    mixed = [
        cal.audit(source, cal.mix(cal.practice, table, 0.3), **QUICK)
        for source, table in ((log, probs), (data, probs[rows]))
    ]
    agree(told(mixed[0]), told(mixed[1]))


@pytest.mark.slow
def test_recorded_probabilities_of_all_actions_keep_the_order_of_the_file(log):
    table = ward.PRACTICE[log.states[:, 0].astype(int)]
    advice = POLICY.predict_proba(log.states).argmax(axis=1)
    order = np.random.default_rng(5).permutation(N)
    rows = log.layout.rows_of(order)
    one = cal.audit(log, cal.mix(cal.practice, advice, 0.3), logged=table, **QUICK)
    two = cal.audit(log[order], cal.mix(cal.practice, advice[rows], 0.3), logged=table[rows], **QUICK)
    agree(told(one), told(two))
    assert one.behaviour_probs == pytest.approx(table)
    assert two.behaviour_probs == pytest.approx(table[rows])
    uniform = np.full(table.shape, 1 / 3)
    assert (one.support.restrict(uniform)[rows] == two.support.restrict(uniform)).all()
    assert two.support.practice.table == pytest.approx(table[rows])


@pytest.mark.slow
def test_a_policy_is_learnt_alike_in_any_order(log):
    order = np.random.default_rng(4).permutation(N)
    learner = RandomForestClassifier(5, min_samples_leaf=20, random_state=0)
    one, two = (cal.audit(data, learn=learner, **QUICK) for data in (log, log[order]))
    agree(told(one), told(two))
    rows = log.layout.rows_of(order)
    assert (one.target_probs[rows] == two.target_probs).all()


def test_neighbours_in_the_file_are_looked_for_in_the_order_of_the_file(log):
    site = np.repeat(np.random.default_rng(0).normal(size=N // 5), 5)
    for cluster in (None, np.arange(N) // 2):
        data = log.replace(rewards=log.rewards + site[log.layout.owner], cluster=cluster)
        rows = [
            estimate(
                cal.gather(x, cal.practice, np.full((x.n_steps, 3), 1 / 3)),
                cal.monte_carlo,
                n_draws=20,
                rng=0,
            )
            for x in (data, data.in_fixed_order())
        ]
        factors = [next(f for f in table[0].findings if f.code == "L108").numbers["factor"] for table in rows]
        assert factors[0] == pytest.approx(factors[1], rel=1e-9)
    shuffled = data[np.random.default_rng(0).permutation(N)].replace(cluster=None)
    e = cal.gather(shuffled, cal.practice, np.full((shuffled.n_steps, 3), 1 / 3))
    assert "L108" not in {f.code for f in estimate(e, cal.monte_carlo, n_draws=20, rng=0)[0].findings}


@pytest.mark.slow
def test_the_command_line_does_not_depend_on_the_order_of_the_rows(log, tmp_path):
    words = np.array(["wait", "treat", "operate"])
    table = pl.DataFrame(
        {
            "visit": log.ids[log.layout.owner],
            "hour": log.layout.time,
            "severity": log.states[:, 0],
            "ward": np.where(log.states[:, 0] > 3, "north", "south"),
            "done": words[log.actions],
            "outcome": log.rewards,
            "advice": words[POLICY.predict_proba(log.states).argmax(axis=1)],
        }
    )
    whole = np.concatenate(
        [np.flatnonzero(log.layout.owner == i) for i in np.random.default_rng(1).permutation(N)]
    )
    rows = np.random.default_rng(2).permutation(log.n_steps)
    found = []
    for name, which in (("file", slice(None)), ("whole", whole), ("rows", rows)):
        path = tmp_path / f"{name}.csv"
        table[which].write_csv(path)
        result = CliRunner().invoke(main, ["evaluate", str(path), *COMMAND.split()])
        assert result.exit_code in (0, 3), result.output
        said = json.loads(result.stdout)
        found.append([(row["name"], row["value"]) for row in said["estimates"]["rows"]])
    assert found[1] == found[0]
    assert found[2] == found[0]


@pytest.mark.slow
def test_the_default_models_do_not_depend_on_the_order_of_the_file(log):
    one, two = (told(cal.audit(data, POLICY, n_draws=50, rng=0)) for data in (log, log[::-1]))
    agree(one, two, rel=1e-9)


@pytest.mark.slow
def test_an_audit_in_the_fixed_order_is_returned_as_it_is(log):
    data = log.in_fixed_order()
    found = cal.audit(data, POLICY, **QUICK)
    assert found.data is data
    agree(told(found), told(cal.audit(log, POLICY, **QUICK)))
    assert replace(found.evidence).place is data.place
