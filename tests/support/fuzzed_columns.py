"""What can happen to the rows, the columns and the cells of a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl

from support.fuzzing import Damage, Table

Rng = np.random.Generator
PATTERNS = ("^p.*$", "^.*$", "*", "^alive$")  # what polars takes for several columns
ODD_NAMES = (
    "", " ", "patient ", "größe", "日本", "a b", 'quo"te', "it's", "semi;colon", "-x", "--reward",
    "tab\there", "1", "nan", "None", "p0..p9", "é" * 50, "{}", "%s", "\\", "__index_level_0__", "row", "value", "len",
)  # fmt: skip
ODD_VALUES = (
    None, float("nan"), float("inf"), -float("inf"), -1, 0, 1, 2, 3, 7, 0.5, 1.5, -0.0, 1e-320, 1e-30, 1e30, 1e99,
    1e300, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), "x", "", " ", "1", "1.5", " 1", "1e3", "NA", "nan", "inf", "-", "ü",
    "0x1", "1,5", "TRUE", True, False, date(2020, 2, 29), datetime(2020, 2, 29, 1), timedelta(1),
    Decimal("0.5"), b"x", [1],
)  # fmt: skip


def _pick(rng: Rng, options: Any) -> Any:
    return options[int(rng.integers(len(options)))]


def _on_frame(change: Callable[[pl.DataFrame, Rng], pl.DataFrame]) -> Callable[[Table, Rng], Table]:
    return lambda table, rng: table.having(change(table.frame, rng))


def with_values(frame: pl.DataFrame, name: str, values: list[Any]) -> pl.DataFrame:
    """The frame with other values in a column, whatever type that makes of it."""
    try:
        column = pl.Series(values, strict=False)  # with its name later: polars takes ^.*$ for a pattern
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        column = pl.Series(dtype=pl.Object)
    if column.dtype == pl.Object:  # no file holds such a mixture but as text
        column = pl.Series([None if x is None else str(x) for x in values])
    return frame.with_columns(column.alias(name))


# -- rows --


def shuffled_inside(frame: pl.DataFrame, rng: Rng) -> pl.DataFrame:
    """Rows in any order in which the episodes first appear as before."""
    first = frame["patient"].is_first_distinct()
    rest = frame.filter(~first)
    heads, others = frame.filter(first), rest[rng.permutation(rest.height).tolist()]
    return pl.concat([heads, others])


def _shuffled(frame: pl.DataFrame, rng: Rng) -> pl.DataFrame:
    return frame[rng.permutation(frame.height).tolist()]


def _rows_dropped(frame: pl.DataFrame, rng: Rng) -> pl.DataFrame:
    return frame.filter(pl.Series(rng.random(frame.height) > _pick(rng, (0.02, 0.2, 0.9))))


def _rows_copied(frame: pl.DataFrame, rng: Rng) -> pl.DataFrame:
    if not frame.height:
        return frame
    return pl.concat([frame, frame[rng.integers(0, frame.height, 3).tolist()]])


def _episode_copied(frame: pl.DataFrame, rng: Rng) -> pl.DataFrame:
    """Half of the patients again, under other ids."""
    if frame["patient"].dtype in (pl.String, pl.Categorical):
        frame, other = frame.cast({"patient": pl.String}), pl.lit("again ") + pl.col("patient")
    elif frame["patient"].dtype.is_numeric():
        other = pl.col("patient") + 1_000_000
    elif frame["patient"].dtype.is_temporal():
        other = pl.col("patient") + pl.duration(days=1_000_000)
    else:
        return frame
    patients = frame["patient"].unique(maintain_order=True)
    again = frame.filter(pl.col("patient").is_in(patients.head(len(patients) // 2 + 1).implode()))
    return pl.concat([frame, again.with_columns(other.alias("patient"))], how="vertical_relaxed")


def _first_episodes(count: int) -> Callable[[pl.DataFrame, Rng], pl.DataFrame]:
    return lambda f, rng: f.filter(
        pl.col("patient").is_in(f["patient"].unique(maintain_order=True).head(count).implode())
    )


def _first_steps(frame: pl.DataFrame, rng: Rng) -> pl.DataFrame:
    return frame.filter(pl.int_range(pl.len()).over("patient") == 0)


# -- types --

SIZES = (-1, 1e-300, 1e-320, 1e6, 1e10, 1e60, 1e90, 1e110, 1e200, 1e308)
NUMBERS = ("dose", "severity", "alive", "advice", "hour", "age", "b", "p0", "p1", "p2", "patient")
WHOLE = ("dose", "severity", "alive", "advice")


def _cast(names: tuple[str, ...], types: tuple[Any, ...]) -> Callable[[Table, Rng], Table]:
    def change(table: Table, rng: Rng) -> Table:
        name, frame = _pick(rng, names), table.frame
        if name not in frame.columns or not frame.schema[name].is_numeric():
            return table
        return table.having(frame.with_columns(pl.col(name).cast(_pick(rng, types), strict=False)))

    return change


def _as_text(frame: pl.DataFrame, rng: Rng) -> pl.DataFrame:
    name = _pick(rng, frame.columns)
    return frame.with_columns(pl.col(name).cast(pl.String, strict=False)) if _plain(frame, name) else frame


def _plain(frame: pl.DataFrame, name: str) -> bool:
    return frame.schema[name].is_numeric() or frame.schema[name] in (pl.String, pl.Boolean)


_START = datetime(2020, 2, 28, 22)
IDS: dict[str, Callable[[int], Any]] = {
    "text": lambda i: f"stay {i}",
    "unicode": lambda i: f"Größe {i} – 日本",
    "quotes": lambda i: f'"{i}", it\'s; \\',
    "whitespace": lambda i: f" {i}\t",
    "lines": lambda i: f"a\n{i}",
    "leading zeros": lambda i: f"{i:08d}",
    "fractions": lambda i: i + 0.5,
    "huge": lambda i: 2**62 + i,
    "negative": lambda i: -i,
    "days": lambda i: date(2020, 1, 1) + timedelta(i),
    "moments": lambda i: _START + timedelta(seconds=i),
    "words": lambda i: f"nan{i}",
    "dates as text": lambda i: str(date(2020, 1, 1) + timedelta(i)),
    "long": lambda i: "x" * 3000 + str(i),
}
TIMES: dict[str, Callable[[int], Any]] = {
    "floats": lambda h: h / 3,
    "days": lambda h: date(2020, 2, 28) + timedelta(h),
    "moments": lambda h: _START + timedelta(hours=h),
    "microseconds": lambda h: _START + timedelta(microseconds=h),
    "text of moments": lambda h: (_START + timedelta(hours=h)).isoformat(),
    "negative": lambda h: h - 1000,
    "huge": lambda h: h + 2**60,
    "tiny floats": lambda h: h * 1e-300,
    "uneven floats": lambda h: float(h) ** 3,
}


def _ids(table: Table, rng: Rng) -> Table:
    of = IDS[_pick(rng, list(IDS))]
    frame = table.frame
    if not frame["patient"].dtype.is_integer() or frame["patient"].null_count():
        return table
    found = frame.with_columns(pl.Series("patient", [of(int(i)) for i in frame["patient"]]))
    if found.schema["patient"] == pl.String and rng.random() < 0.3:
        found = found.with_columns(pl.col("patient").cast(pl.Categorical))
    return table.having(found)


def _times(table: Table, rng: Rng) -> Table:
    name = _pick(rng, [name for name in TIMES if name != "text of moments"])
    if not table.frame["hour"].dtype.is_integer() or table.frame["hour"].null_count():
        return table
    hours = [TIMES[name](int(h)) for h in table.frame["hour"]]
    found = table.frame.with_columns(pl.Series("hour", hours))
    if name == "moments" and rng.random() < 0.7:
        kind = _pick(
            rng,
            (
                pl.Datetime("ns"),
                pl.Datetime("ms"),
                pl.Datetime("us", "UTC"),
                pl.Datetime("us", "Europe/Berlin"),
            ),
        )
        found = found.with_columns(
            pl.col("hour").dt.replace_time_zone(kind.time_zone).dt.cast_time_unit(kind.time_unit)
        )
    return table.having(found)


def _durations(frame: pl.DataFrame, rng: Rng) -> pl.DataFrame:
    if not frame["hour"].dtype.is_integer():
        return frame
    return frame.with_columns(pl.duration(hours="hour").alias("hour"))


# -- columns --


def _extra(name: str, values: Any) -> Callable[[pl.DataFrame, Rng], pl.DataFrame]:
    return lambda f, rng: f.with_columns(pl.Series(name, [values] * f.height))


def _any_extra(frame: pl.DataFrame, rng: Rng) -> pl.DataFrame:
    name, value = _pick(rng, (*ODD_NAMES, *PATTERNS)), _pick(rng, ODD_VALUES)
    if name in frame.columns or not frame.height:
        return frame
    return with_values(frame, name, [value if rng.random() < 0.7 else None for _ in range(frame.height)])


def _many_extra(frame: pl.DataFrame, rng: Rng) -> pl.DataFrame:
    return frame.with_columns(**{f"x{i}": pl.lit(float(i % 7)) for i in range(_pick(rng, (50, 300)))})


def _renamed_with_its_option(table: Table, rng: Rng) -> Table:
    option = _pick(
        rng, ("--episode", "--time", "--action", "--reward", "--propensity", "--recommended", "--by")
    )
    old, new = table.named(option), _pick(rng, ODD_NAMES)
    if old not in table.frame.columns or new in table.frame.columns or not new.strip():
        return table
    return table.having(table.frame.rename({old: new}), **{option[2:]: new})


def _renamed(frame: pl.DataFrame, rng: Rng) -> pl.DataFrame:
    name, new = _pick(rng, frame.columns), _pick(rng, (*ODD_NAMES, *PATTERNS, "Patient", "hours", "reward"))
    return frame.rename({name: new}) if new not in frame.columns else frame


def _dropped(frame: pl.DataFrame, rng: Rng) -> pl.DataFrame:
    return frame.drop(_pick(rng, frame.columns)) if frame.width > 1 else frame


def _swapped(frame: pl.DataFrame, rng: Rng) -> pl.DataFrame:
    one, two = rng.choice(frame.width, 2, replace=False) if frame.width > 1 else (0, 0)
    a, b = frame.columns[one], frame.columns[two]
    return frame.rename({a: b, b: a}) if a != b else frame


def _constant(table: Table, rng: Rng) -> Table:
    frame, value = table.frame, _pick(rng, ODD_VALUES)
    return table.having(with_values(frame, _pick(rng, table.used or frame.columns), [value] * frame.height))


def _nested(table: Table, rng: Rng) -> Table:
    name, how = _pick(rng, table.used or table.frame.columns), int(rng.integers(4))
    wrapped = (
        pl.concat_list(name),
        pl.struct(name),
        pl.col(name).reshape((-1, 1)),
        pl.col(name).cast(pl.String, strict=False).cast(pl.Categorical),
    )[how]
    try:
        return table.having(table.frame.with_columns(wrapped.alias(name)))
    except pl.exceptions.PolarsError:
        return table


# -- cells --


def _cells(table: Table, rng: Rng) -> Table:
    frame = table.frame
    if not frame.height:
        return table
    name = _pick(rng, table.used or frame.columns)
    rows, value = set(rng.integers(0, frame.height, _pick(rng, (1, 1, 3))).tolist()), _pick(rng, ODD_VALUES)
    values = [value if i in rows else x for i, x in enumerate(frame[name].to_list())]
    return table.having(with_values(frame, name, values))


def _scaled(
    names: tuple[str, ...], factors: tuple[float, ...]
) -> Callable[[pl.DataFrame, Rng], pl.DataFrame]:
    def change(frame: pl.DataFrame, rng: Rng) -> pl.DataFrame:
        name, factor = _pick(rng, names), _pick(rng, factors)
        if name not in frame.columns or not frame.schema[name].is_numeric():
            return frame
        return frame.with_columns(pl.col(name).cast(float) * factor)

    return change


def _set(**values: Any) -> Callable[[pl.DataFrame, Rng], pl.DataFrame]:
    def change(frame: pl.DataFrame, rng: Rng) -> pl.DataFrame:
        for name, value in values.items():
            frame = frame.with_columns(
                value.alias(name) if isinstance(value, pl.Expr) else pl.lit(value).alias(name)
            )
        return frame

    return change


def _propensities(frame: pl.DataFrame, rng: Rng) -> pl.DataFrame:
    value = _pick(rng, (0.0, 1.0, 1.5, -0.1, None, float("nan"), 1e-300, 1e-30, 100.0, 5e-324, "0.5"))
    rows = rng.random(frame.height) < _pick(rng, (0.05, 1.0))
    values = frame["b"].to_list() if "b" in frame.columns else [0.5] * frame.height
    return with_values(frame, "b", [value if hit else x for x, hit in zip(values, rows, strict=True)])


def _advice(table: Table, rng: Rng) -> Table:
    if "advice" not in table.frame.columns:
        return table
    value = _pick(rng, (3, 4, 50, 10_000, 10_001, 2**40, -1, 0.5, None, float("nan"), "low", True))
    rows = rng.random(table.frame.height) < _pick(rng, (0.05, 1.0))
    values = [value if hit else x for x, hit in zip(table.frame["advice"].to_list(), rows, strict=True)]
    options = {k: x for k, x in table.options.items() if k != "--target-columns"}
    if table.command == "evaluate":
        options["--recommended"] = "advice"
    return replace(table.having(with_values(table.frame, "advice", values)), options=options)


def _same_time(table: Table, rng: Rng) -> Table:
    """The column that orders the rows is found by its name."""
    frame = table.frame
    if "time" in frame.columns or table.named("--time") not in frame.columns:
        return table
    kept = {name: x for name, x in table.options.items() if name != "--time"}
    found = replace(table.having(frame.rename({table.named("--time"): "time"})), options=kept)
    return replace(found, readable=False)


DAMAGES = (
    Damage("rows shuffled, episodes as they appeared", _on_frame(shuffled_inside), "same"),
    Damage("rows shuffled", _on_frame(_shuffled), "reordered"),
    Damage("columns shuffled", _on_frame(lambda f, rng: f.select(rng.permutation(f.columns).tolist())), "same"),
    Damage("smaller whole numbers", _cast(WHOLE, (pl.Int8, pl.Int16, pl.UInt8, pl.UInt64, pl.Int32)), "same"),
    Damage("smaller floats", _cast((*WHOLE, "b", "p0", "p1", "p2", "age", "hour"), (pl.Float32, pl.Float64)), "same"),
    Damage("decimals", _cast(("dose", "alive", "severity", "b", "p0", "advice"), (pl.Decimal(20, 6),)), "same"),
    Damage("rewards as booleans", _cast(("alive",), (pl.Boolean,)), "same"),
    Damage("wide numbers", _cast((*WHOLE, "patient", "hour"), (pl.Int128, pl.UInt64)), "any"),
    Damage("lossy types", _cast(NUMBERS, (pl.Int8, pl.UInt8, pl.Float32, pl.Boolean, pl.Date, pl.String)), "right"),
    Damage("other ids", _ids, "reordered"),
    Damage("ids of 32 bits", _cast(("patient",), (pl.Int32, pl.UInt16, pl.UInt32, pl.Float64, pl.Float32)), "same"),
    Damage("other times", _times, "same"),
    Damage("times as durations", _on_frame(_durations), "same"),
    Damage("times found by name", _same_time, "same"),
    Damage("a column of text beside", _on_frame(_extra("note", "; , \" '\n")), "same"),
    Damage("a column of nulls beside", _on_frame(_extra("empty", None)), "same"),
    Damage("a column of dates beside", _on_frame(_extra("born", date(1950, 1, 1))), "same"),
    Damage("any column beside", _on_frame(_any_extra), "same"),
    Damage("hundreds of columns beside", _on_frame(_many_extra), "same"),
    Damage("an odd name, and its option", _renamed_with_its_option, "same"),
    Damage("a column renamed", _on_frame(_renamed), "right"),
    Damage("a column dropped", _on_frame(_dropped), "right"),
    Damage("two columns swapped", _on_frame(_swapped), "right"),
    Damage("a column as text", _on_frame(_as_text), "right"),
    Damage("a column constant", _constant, "right"),
    Damage("a column nested or categorical", _nested, "right"),
    Damage("odd cells", _cells, "right"),
    Damage("odd cells, again", _cells, "right"),
    Damage("rows dropped", _on_frame(_rows_dropped), "right"),
    Damage("rows copied", _on_frame(_rows_copied), "right"),
    Damage("episodes copied", _on_frame(_episode_copied), "visible"),
    Damage("no rows", _on_frame(lambda f, rng: f.head(0)), "refused"),
    Damage("one row", _on_frame(lambda f, rng: f.head(1)), "right"),
    Damage("one episode", _on_frame(_first_episodes(1)), "right"),
    Damage("two episodes", _on_frame(_first_episodes(2)), "right"),
    Damage("six episodes", _on_frame(_first_episodes(6)), "right"),
    Damage("one step an episode", _on_frame(_first_steps), "right"),
    Damage("one action", _on_frame(_set(dose=0)), "visible"),
    Damage("every episode the same", _on_frame(_set(patient=1)), "right"),
    Damage("every row an episode", _on_frame(lambda f, rng: f.with_columns(patient=pl.int_range(pl.len()))), "right"),
    Damage("rewards all 0", _on_frame(_set(alive=0.0)), "visible"),
    Damage("rewards all alike", _on_frame(_set(alive=2.5)), "right"),
    Damage("rewards of another size", _on_frame(_scaled(("alive",), SIZES)), "right"),
    Damage("states of another size", _on_frame(_scaled(("severity", "age"), SIZES)), "right"),
    Damage("the action as a state", _on_frame(_set(severity=pl.col("dose"))), "visible"),
    Damage("states all alike", _on_frame(_set(severity=1, age=50.0)), "right"),
    Damage("probabilities not summing to 1", _on_frame(_scaled(("p0", "p1", "p2"), (0.5, 1.01, -1, 9, 0))), "right"),
    Damage("probabilities nearly right", _on_frame(_scaled(("p0",), (1 + 1e-12, 1 - 1e-13))), "right"),
    Damage("probabilities in percent", _on_frame(_set(**{f"p{a}": pl.col(f"p{a}") * 100 for a in range(3)})), "right"),
    Damage("a certain policy", _on_frame(_set(p0=1.0, p1=0.0, p2=0.0)), "right"),
    Damage("odd propensities", _on_frame(_propensities), "right"),
    Damage("odd advice", _advice, "right"),
)  # fmt: skip
