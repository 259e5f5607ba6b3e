"""The calendar of a table: when an episode began, by its first row."""

import datetime as dt

import polars as pl
import pytest

import caliope as cal

ROLES = {"episode": "user", "action": "offer", "reward": "gain", "states": ["age"]}


def log():
    days = [dt.date(2020, 1, 2), dt.date(2020, 1, 1), dt.date(2021, 1, 1)]
    return pl.DataFrame(
        {"user": [7, 7, 9], "age": [40, 41, 23], "offer": [0, 1, 0], "gain": [0, 1, 1], "t": [1, 0, 0]}
        | {"day": days, "month": [3, 2, 14]}
    )


def test_the_first_row_of_an_episode_counts():
    assert cal.read_table(log(), **ROLES, calendar="month").calendar.tolist() == [3, 14]
    assert cal.read_table(log(), **ROLES, calendar="month", time="t").calendar.tolist() == [2, 14]
    days = cal.read_table(log(), **ROLES, calendar="day", time="t").calendar
    assert days.tolist() == [18262, 18628]  # days since 1970
    assert cal.read_table(log(), **ROLES).calendar.tolist() == [0, 1]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_dates_in_files_are_understood(tmp_path, kind):
    path = tmp_path / f"log.{kind}"
    getattr(log(), f"write_{kind}")(path)
    assert cal.read_table(path, **ROLES, calendar="day").calendar.tolist() == [18263, 18628]


def test_the_time_of_the_first_row_may_be_the_calendar():
    data = cal.read_table(log(), **ROLES, calendar="day", time="day")
    assert data.calendar.tolist() == [18262, 18628]


def test_bad_calendars_are_refused_in_one_line():
    empty = log().with_columns(pl.Series("day", [None, dt.date(2020, 1, 1), None]))
    with pytest.raises(
        ValueError, match=r"'day': 2 of 3 rows have no moment .* .first: episode 7, step 1."
    ) as caught:
        cal.read_table(empty, **ROLES, calendar="day", time="t")
    assert "\n" not in str(caught.value)
    with pytest.raises(TypeError, match="the calendar must be a number"):
        cal.read_table(log().with_columns(day=pl.lit("soon")), **ROLES, calendar="day")
    with pytest.raises(ValueError, match="is given as reward and calendar"):
        cal.read_table(log(), **ROLES, calendar="gain")
    with pytest.raises(ValueError, match="not a column of the table"):
        cal.read_table(log(), **ROLES, calendar="days")
