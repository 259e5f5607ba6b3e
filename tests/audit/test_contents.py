"""What a log holds, counted by hand: lengths, outcome, actions, and columns with their gaps."""

import numpy as np
import polars as pl
import pytest

import caliope as cal
from caliope._audit._contents import Spread, describe_log


def small_log(**more):
    # Lengths 1, 2, 3; returns 1, 0, 1; actions 0 | 1 0 | 1 1 1.
    return cal.Trajectories(
        [[5.0, 0.0], [6.0, 1.0], [9.0, 0.0], [7.0, 1.0], [8.0, 1.0], [9.0, 1.0]],
        [0, 1, 0, 1, 1, 1],
        [1.0, 0.0, 0.0, 0.0, 0.0, 1.0],
        [0, 1, 3, 6],
        feature_names=["age", "male"],
        n_actions=3,
        **more,
    )


def test_sizes_outcome_and_actions_are_counted():
    found = describe_log(small_log(), gamma=1.0)
    assert (found.trajectories, found.decisions, found.clusters, found.cut_off) == (3, 6, None, None)
    assert found.lengths == Spread(2.0, pytest.approx((2 / 3) ** 0.5), 1.0, 1.5, 2.0, 2.5, 3.0)
    assert found.rate == pytest.approx(2 / 3)
    assert found.rewarded == pytest.approx(2 / 6)
    # Action 1 was taken once in the second and three times in the third trajectory.
    assert [(x.name, x.decisions, x.trajectories) for x in found.actions] == [
        ("0", 2, 2),
        ("1", 4, 2),
        ("2", 0, 0),
    ]


def test_columns_are_told_at_the_first_decision():
    age, male = describe_log(small_log(), gamma=1.0).columns
    assert (
        age.text == "median 6 (5.5 to 6.5), range 5 to 7"
    )  # 5, 6, 7, and not the 8 and 9 of later decisions
    assert male.levels == (("1", pytest.approx(2 / 3)), ("0", pytest.approx(1 / 3)))
    assert (age.gaps, age.filled) == (0, "")


def test_ends_clusters_and_discount():
    log = small_log(terminated=[True, False, True], cluster=["a", "a", "b"])
    found = describe_log(log, gamma=0.5)
    assert (found.clusters, found.cut_off) == (2, 1)
    assert found.rate is None  # the third return is 0.25
    assert found.outcome.mean == pytest.approx((1 + 0 + 0.25) / 3)


def test_gaps_are_counted_with_how_they_were_filled():
    table = pl.DataFrame(
        {
            "id": [1, 1, 2, 2, 3, 3],
            "lactate": [2.0, None, None, 4.0, None, None],
            "ward": ["ICU", None, "eye", "ICU", "ICU", "eye"],
            "action": [0, 1, 0, 1, 0, 1],
            "reward": [0, 1, 0, 1, 0, 1],
        }
    )
    data = cal.read_table(table, episode="id", action="action", reward="reward", states=["lactate", "ward"])
    lactate, ward = describe_log(data, gamma=1.0).columns
    # Of 4 gaps only that of the first trajectory has a value before it; 2 of the 3 first decisions have none.
    assert (lactate.gaps, lactate.carried, lactate.unknown) == (4, 1, 2)
    assert lactate.filled == "1 by the last value before, 3 by 0, with an indicator"
    assert lactate.text == "median 2 (2 to 2), range 2 to 2"
    assert (ward.gaps, ward.carried, ward.unknown) == (1, 1, 0)
    assert dict(ward.levels) == {"ICU": pytest.approx(2 / 3), "eye": pytest.approx(1 / 3)}


def test_gaps_of_a_part_of_a_log_are_those_of_the_part():
    table = pl.DataFrame({"id": [1, 2], "x": [None, 1.0], "action": [0, 1], "reward": [0, 1]})
    data = cal.read_table(table, episode="id", action="action", reward="reward", states=["x"])
    assert [describe_log(part, gamma=1.0).columns[0].gaps for part in (data, data[[0]], data[[1]])] == [
        1,
        1,
        0,
    ]
    assert describe_log(data[[0]], gamma=1.0).columns[0].text == "none known"


def test_the_json_is_finite_and_complete():
    found = describe_log(small_log(), gamma=1.0).to_dict()
    assert found["columns"][0]["spread"]["median"] == 6.0
    assert found["columns"][1]["levels"].keys() == {"0", "1"}
    assert np.isfinite(list(found["outcome"].values())).all()
