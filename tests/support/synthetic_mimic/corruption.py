"""Corrupt rows added to synthetic tables; each kind is counted."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from support.synthetic_mimic.stays import ADMISSIONS, STAYS, SUBJECTS
from support.synthetic_mimic.writing import Writer, schemas

_UNKNOWN = 10**6  # added to the number of the last patient: names nobody in the tables


def _as_text(writer: Writer, table: str, frame: pl.DataFrame) -> pl.DataFrame:
    schema = schemas(writer.layout)[table]
    full = schema.conform(frame, first=writer.rows.get(table, 0) + 1)
    moments = [name for name, dtype in schema.columns.items() if dtype == pl.Datetime("us")]
    return full.with_columns(pl.col(name).dt.strftime("%Y-%m-%d %H:%M:%S") for name in moments).cast(
        pl.String
    )


def corrupt(writer: Writer, samples: dict[str, pl.DataFrame]) -> dict[str, int]:
    """Append corrupt copies of some rows, and a stay without charts; return how many of each kind.

    ``samples`` holds good rows of the tables, by the names of the layout.
    """
    infusions = "inputevents_mv" if writer.layout == "mimic3" else "inputevents"
    charts, labs, doses = (samples[name] for name in ("chartevents", "labevents", infusions))
    when = pl.col("charttime")

    def add(table: str, rows: pl.DataFrame, change: Callable[[pl.DataFrame], pl.DataFrame]) -> int:
        text = change(_as_text(writer, table, rows))
        writer.add_text(table, text)
        return text.height

    return {
        "unreadable_time": add(
            "chartevents", charts[:5], lambda t: t.with_columns(charttime=pl.lit("2150-13-45 77:00:00"))
        ),
        "time_centuries_off": add("chartevents", charts.with_columns(when.dt.offset_by("300y"))[:5], _same),
        "missing_time": add("labevents", labs[:5], lambda t: t.with_columns(charttime=pl.lit(""))),
        "text_in_number": add("chartevents", charts[5:10], lambda t: t.with_columns(valuenum=pl.lit("ERROR")))
        + add("labevents", labs[5:10], lambda t: t.with_columns(valuenum=pl.lit("HEMOLYZED"))),
        "impossible_value": add(
            "chartevents", charts[10:15].with_columns(value=pl.lit("99999"), valuenum=pl.lit(99999.0)), _same
        ),
        "repeated_row": add("chartevents", charts[15:20], _same),
        "unknown_stay": add("chartevents", _with_unknown_ids(charts[20:25]), _same),
        "negative_dose": add(infusions, doses[:5].with_columns(-pl.col("rate"), -pl.col("amount")), _same),
        "end_before_start": add(
            infusions, doses[5:10].with_columns(endtime=pl.col("starttime") - pl.duration(hours=7)), _same
        ),
        "stay_without_charts": _empty_stay(writer, samples),
    }


def _same(text: pl.DataFrame) -> pl.DataFrame:
    return text


def _with_unknown_ids(rows: pl.DataFrame) -> pl.DataFrame:
    keys = [name for name in ("subject_id", "hadm_id", "icustay_id", "stay_id") if name in rows.columns]
    return rows.with_columns(pl.col(name) + _UNKNOWN for name in keys)


def _empty_stay(writer: Writer, samples: dict[str, pl.DataFrame]) -> int:
    """A copy of a patient with all that the hospital knows, antibiotics and cultures too, and nothing charted."""
    numbers = {
        "subject_id": SUBJECTS + 2 * _UNKNOWN,
        "hadm_id": ADMISSIONS + 2 * _UNKNOWN,
        "icustay_id": STAYS + 2 * _UNKNOWN,
        "stay_id": STAYS + 2 * _UNKNOWN,
    }
    # By admission: prescriptions do not always say to which stay they belong.
    stay = samples["icustays"][:1]
    for table in ("patients", "admissions", "icustays", "prescriptions", "microbiologyevents"):
        key = "subject_id" if table == "patients" else "hadm_id"
        rows = samples[table].join(stay.select(key), on=key, how="semi")
        writer.add(
            table, rows.with_columns(pl.lit(k).alias(j) for j, k in numbers.items() if j in rows.columns)
        )
    return 1
