"""The trial of honesty: its families, their values, and the shares that its report prints."""

from math import comb

import numpy as np
import pytest

from caliope._audit._result import GAIN, HEADLINE
from reproduction import _families as families, honesty
from reproduction._families import FAMILIES, HIDDEN, RIGHT, SHOWN, UNSEEN
from reproduction.honesty import CODES, CONDITIONS, FAULTS, GOALS, POWER, Config, limits, report


def test_every_kind_of_log_is_there_and_some_stay_unseen():
    kinds = {family.kind for family in FAMILIES.values()}
    assert kinds == {RIGHT, SHOWN, HIDDEN}
    assert not FAMILIES.keys() & UNSEEN.keys()
    assert {family.kind for family in UNSEEN.values()} == {RIGHT, SHOWN}
    assert len(UNSEEN) >= 3
    assert set(honesty.DEFAULT.families) == set(FAMILIES)
    assert set(honesty.FULL.families) == set(FAMILIES) | set(UNSEEN)


@pytest.mark.parametrize(
    "name", ["linear practice", "single decisions", "lost, not marked", "cut off, stated"]
)
def test_a_log_holds_what_the_family_says(name):
    family = FAMILIES[name]
    data = family.log(0)
    assert len(data) == family.n
    assert data.layout.horizon == (family.limit or family.horizon)
    target = family.target(data)
    np.testing.assert_allclose(target.sum(axis=1), 1)
    # A log that is lost in part is shorter than its courses; the others are as long as their horizon.
    assert (data.lengths == data.layout.horizon).all() == (family.loses is None)
    again = family.log(0)
    assert again.digests == data.digests
    assert family.log(1).digests != data.digests


def test_the_value_of_a_new_policy_is_that_of_reweighted_practice():
    """On 400,000 single decisions importance sampling with the true probabilities agrees with the stated value."""
    family = FAMILIES["single decisions"]
    n = 200_000
    past = family.play(n, np.random.default_rng(5))
    x, action, reward = past.states[0], past.actions[0], past.rewards[0]
    practice = np.exp(families.usual_logits(families.Past(x, x, x[:, 0], x[:, 0])))
    practice /= practice.sum(axis=1, keepdims=True)
    ratio = (family._new_policy(x) / practice)[np.arange(n), action]
    error = np.sqrt((ratio * reward).var() / n + reward.var() / families.N_TRUTH)
    assert abs((ratio * reward).mean() - family.value(new=True)) < 4 * error
    assert abs(reward.mean() - family.value(new=False)) < 4 * error
    assert family.value(new=True) - family.value(new=False) > 8 * error  # the question has an answer


def test_nothing_changes_anything_where_a_policy_is_learnt():
    family = FAMILIES["learnt here, stated"]
    assert family.value(new=True) == family.value(new=False)
    data = family.log(3)
    assert list(family.settings(data)["learnt_on"]) == list(data.ids)
    assert "learnt_on" not in FAMILIES["learnt here, across folds"].settings(data)


def test_limits_of_a_share_are_those_of_the_binomial_law():
    low, high = limits(3, 40)

    def tail(p, most):
        return sum(comb(40, k) * p**k * (1 - p) ** (40 - k) for k in range(most + 1))

    assert 1 - tail(low, 2) == pytest.approx(0.025)
    assert tail(high, 3) == pytest.approx(0.025)
    assert limits(0, 40) == (0.0, pytest.approx(1 - 0.025 ** (1 / 40)))
    assert limits(40, 40)[1] == 1.0


def made_up(config, verdicts):
    """Results of families with (covers, verdict, condition, codes) per log; the difference is like the value."""
    results = {}
    for name, rows in verdicts.items():
        for seed, (covers, verdict, condition, codes) in enumerate(rows):
            low = 0.0 if covers else 2.0
            row = {"truth": 0.5, "value": low + 0.4, "low": low, "high": low + 1, "verdict": verdict}
            row |= {"condition": condition, "codes": codes}
            results[honesty._key(name, seed)] = {"rows": {HEADLINE: row, GAIN: row}, "behaviour": ""}
    return results


def test_honesty_and_power_are_counted_apart():
    config = Config(("linear practice", "habits", "unmeasured confounder"), 4)
    trusted, doubted = (
        (True, "trust", "if nothing is missing", []),
        (False, "do not trust", "", ["B107 issue"]),
    )
    found = report(
        config,
        made_up(
            config,
            {
                "linear practice": [
                    trusted,
                    trusted,
                    (True, "caution", "", ["D101 caution"]),
                    (False, "trust", "", []),
                ],
                "habits": [doubted, doubted, trusted, (False, "trust", "", [])],
                "unmeasured confounder": [trusted, (False, "trust", "", []), doubted, doubted],
            },
        ),
    )
    fault = found.table(FAULTS).records()[0]
    assert (fault["trust"], fault["do not trust"], fault["trusted and wrong"], fault["cover"]) == (
        0.5,
        0.5,
        0.25,
        0.25,
    )
    power = found.table(POWER).records()[0]
    assert (power["trust"], power["cover"]) == (0.75, 0.75)
    assert power["trusted that cover"] == pytest.approx(2 / 3)
    hidden = found.table(CONDITIONS).records()[0]
    assert (hidden["of these with a condition"], hidden["that names the fault"]) == (0.5, 0.5)
    assert found.table(CODES).rows == (("D101 caution", 2, 1.0),)
    goals = found.table(GOALS).records()
    assert [goal["met by each family"] for goal in goals] == ["no", "no", "no"]
    assert [goal["share"] for goal in goals] == pytest.approx([0.25, 0.75, 2 / 3])
    assert honesty.figure(found) is not None


@pytest.mark.slow
def test_the_smoke_run_audits_as_a_user_would(tmp_path):
    from reproduction._runs import run_units

    results = run_units(honesty.units(honesty.SMOKE), tmp_path)
    found = report(honesty.SMOKE, results)
    assert {row["family"] for row in found.table(FAULTS).records()} == {"habits"}
    assert {row["logs"] for row in found.table(POWER).records()} == {2}
    assert all(row["trusted and wrong"] == 0 for row in found.table(FAULTS).records())
