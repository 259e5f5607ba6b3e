"""Numbers and dates as people write them: thousands, decimal commas, signs, the day first."""

import csv
import random
from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest

from caliope.io import read_table
from caliope.io._source import column_types
from caliope.io._written import date_form, number_form

ROLES = {"episode": "id", "action": "a", "reward": "r", "states": ["x"]}
RNG = random.Random(3)
NUMBERS = [round(RNG.uniform(-200, 30_000), 2) for _ in range(60)]


def grouped(x, thousands, decimal):
    return f"{x:,.2f}".replace(",", "_").replace(".", decimal).replace("_", thousands)


FORMS = {
    "1,234.50": lambda x: grouped(x, ",", "."),
    "1.234,50": lambda x: grouped(x, ".", ","),
    "1234,50": lambda x: grouped(x, "", ","),
    "1'234.50": lambda x: grouped(x, "'", "."),
    "1 234,50": lambda x: grouped(x, "\u202f", ","),
    "$1,234.50": lambda x: f"{'-' * (x < 0)}${grouped(abs(x), ',', '.')}",
    "1.234,50 €": lambda x: f"{grouped(x, '.', ',')} €",
    "\u22121,234.50": lambda x: grouped(x, ",", ".").replace("-", "\u2212"),
    "12.50%": lambda x: f"{grouped(x, '', '.')}%",
}


def write(path, x, *, r=None, t=None, separator=","):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=separator)
        writer.writerow(["id", "a", "r", "x", *(["t"] if t else [])])
        for i in range(len(x)):
            moment = [t[i]] if t else []
            writer.writerow([f"e{i // 2}", i % 2, i % 3 if r is None else r[i], x[i], *moment])
    return path


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("separator", [",", ";"])
def test_states_and_rewards_are_the_numbers_that_were_written(tmp_path, form, separator):
    cells = [FORMS[form](x) for x in NUMBERS]
    path = write(tmp_path / "log.csv", cells, r=cells, separator=separator)
    data = read_table(path, **ROLES)
    assert data.states[:, 0].tolist() == NUMBERS
    assert data.rewards.tolist() == NUMBERS
    if form != "1234,50" or separator == ",":
        assert "is read as" in data.encoder.describe()["file"]
    assert column_types(path)["x"][0].is_numeric()  # the command line guesses from them


def test_gaps_stay_gaps_and_a_few_signed_numbers_stay_names(tmp_path):
    cells = ["1,500.0", "", *(f"{i},000.5" for i in range(2, 14)), "NA", "2,000"]
    data = read_table(write(tmp_path / "log.csv", cells), **ROLES)
    assert data.feature_names[:2] == ("x", "x missing")
    assert data.states[0, 0] == 1500
    assert data.states[:, 1].sum() == 2
    off = read_table(write(tmp_path / "off.csv", ["10%", "20%", "30%", "10%"] * 10), **ROLES)
    assert off.feature_names == ("x=10%", "x=20%", "x=30%")


@pytest.mark.parametrize(
    "cells", [["1,234", "5,678"], ["1,234.5", "1.234,5"], ["$5", "€6"], ["5", "6.5"], ["a", "1,5"]]
)
def test_what_is_no_number_or_may_be_two_is_left_alone(cells):
    assert number_form(cells) is None


@pytest.mark.parametrize(("hundreds", "thousands"), [("950", "1.250"), ("950", "1,250")])
def test_marks_that_may_stand_between_thousands_are_not_read_as_decimals(tmp_path, hundreds, thousands):
    path = write(
        tmp_path / "log.csv", ["1", "2", "3", "4"], r=[hundreds, thousands, "12", "700"], separator=";"
    )
    with pytest.raises(
        ValueError, match=rf"'r' holds '{thousands}'.*may stand between thousands. Write 1250 if"
    ):
        read_table(path, **ROLES)
    path = write(
        tmp_path / "log.csv", ["1", "2", "3", "4"], r=[hundreds, thousands[:-1], "12", "700"], separator=";"
    )
    assert read_table(path, **ROLES).rewards.tolist() == [950, 1.25, 12, 700]


def test_a_frame_with_such_text_is_no_category():
    cells = [FORMS["1,234.50"](x) for x in NUMBERS]
    n = len(cells)
    frame = pl.DataFrame(
        {"id": [i // 2 for i in range(n)], "a": [i % 2 for i in range(n)], "r": [0.0] * n, "x": cells}
    )
    with pytest.raises(TypeError, match=r"'x' \(state\) is text that holds numbers, such as"):
        read_table(frame, **ROLES)


DATES = [datetime(2023, 1, 25, 9, 5) + timedelta(days=i, hours=7 * i) for i in range(40)]


@pytest.mark.parametrize(
    "form",
    [
        "%d/%m/%Y %H:%M",
        "%m/%d/%Y %H:%M:%S",
        "%d.%m.%Y %H:%M",
        "%d-%m-%Y %H:%M",
        "%m/%d/%Y %I:%M %p",
        "%d/%m/%Y",
    ],
)
def test_dates_with_the_day_or_the_month_first_order_rows(tmp_path, form):
    order = np.random.default_rng(0).permutation(len(DATES))
    x = [float(i) for i in order]
    path = tmp_path / "log.csv"
    frame = pl.DataFrame(
        {
            "id": ["p"] * len(x),
            "a": [int(i) % 2 for i in order],
            "r": x,
            "x": x,
            "t": [DATES[i].strftime(form) for i in order],
        }
    )
    frame.write_csv(path)
    data = read_table(path, **ROLES, time="t")
    assert data.states[:, 0].tolist() == [float(i) for i in range(len(x))]
    assert "is read as 2023-" in data.encoder.describe()["file"]


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (["9:30", "10:15"], "across midnight: add the date"),
        (["day 1", "day 2"], "the order is not known"),
        (["01/02/2023", "02/02/2023"], "unless a day above 12"),
    ],
)
def test_times_that_order_nothing_say_why(tmp_path, cells, said):
    with pytest.raises(ValueError, match=said):
        read_table(write(tmp_path / "log.csv", [1.0, 2.0], t=cells), **ROLES, time="t")


def test_the_calendar_reads_such_dates_too(tmp_path):
    path = write(
        tmp_path / "log.csv", [1.0, 2.0, 3.0, 4.0], t=["31/12/2022", "31/12/2022", "01/01/2023", "02/01/2023"]
    )
    data = read_table(path, **ROLES, calendar="t")
    assert np.diff(data.calendar).tolist() == [1.0]
    assert date_form(["31/12/2022", "12/31/2022"]) is None
