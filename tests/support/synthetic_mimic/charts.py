"""Charts, laboratory results, urine and ventilation of synthetic stays, at irregular minutes and with gaps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from caliope._ragged import Float, Int
from support.synthetic_mimic.stays import STEP, Batch
from support.synthetic_mimic.writing import read_data

_CAREGIVERS = (14_000, 22_000)
_WORDS = {
    "GCS_eye": ("None", "To Pain", "To Speech", "Spontaneously"),
    "GCS_verbal": (
        *("No Response", "Incomprehensible sounds", "Inappropriate Words", "Confused", "Oriented"),
    ),
    "GCS_motor": (
        *("No response", "Abnormal extension", "Abnormal Flexion", "Flex-withdraws", "Localizes Pain"),
        "Obeys Commands",
    ),
}


def charted(batch: Batch, rng: np.random.Generator, *, copies: int = 1) -> dict[str, pl.DataFrame]:
    """Rows of chartevents, labevents, outputevents and procedureevents_mv for some stays.

    ``copies`` repeats every charting of a vital sign at other minutes of its step, as a monitor would.
    """
    charts, labs = [], []
    panels: dict[str, tuple[Int, Int]] = {}  # what is measured together is charted at the same minutes
    for feature in read_data("features.csv").iter_rows(named=True):
        name = feature["panel"]
        if feature["table"] == "chartevents":
            panels[name] = (
                panels[name] if name in panels else _chart_times(batch, feature, rng, copies=copies)
            )
            charts.append(_chart(batch, feature, panels[name], rng))
        if feature["table"] == "labevents":
            panels[name] = panels[name] if name in panels else _lab_times(batch, feature, rng)
            labs.append(_lab(batch, feature, panels[name]))
    return {
        "chartevents": pl.concat([*charts, _ventilation(batch, rng)], how="diagonal_relaxed"),
        "labevents": pl.concat(labs),
        "outputevents": _urine(batch, rng),
        "procedureevents_mv": _ventilation_runs(batch),
    }


def _slots(n: int, per_step: int, rng: np.random.Generator) -> tuple[Int, Int]:
    """Some irregular minutes in each of n steps: the step and the minute, from 0 to 239, of each."""
    step, slot = np.repeat(np.arange(n), per_step), np.tile(np.arange(per_step), n)
    return step, (STEP * (slot + rng.random(len(slot))) / per_step).astype(np.int64)


def _text(feature: Mapping[str, Any], values: Float) -> pl.Series:
    if feature["name"] in _WORDS:
        return pl.Series(np.array(_WORDS[feature["name"]])[values.astype(np.int64) - 1])
    numbers = pl.Series(values, dtype=pl.Float64)
    return (numbers.cast(pl.Int64) if feature["decimals"] == 0 else numbers).cast(pl.String)


def _chances(batch: Batch, feature: Mapping[str, Any]) -> Float:
    """Chance to be charted in each step, (N,): on arrival nearly everything is looked at once."""
    return np.where(batch.log.layout.time == 0, max(0.9, feature["charted"]), feature["charted"])


def _chart_times(
    batch: Batch, feature: Mapping[str, Any], rng: np.random.Generator, *, copies: int
) -> tuple[Int, Int]:
    step, minute = _slots(batch.log.n_steps, feature["per_step"] * copies, rng)
    keep = rng.random(len(step)) < _chances(batch, feature)[step]
    if feature["name"] == "HR":  # the record begins on arrival, with the pulse
        begin = np.flatnonzero(np.diff(step, prepend=-1) * (batch.log.layout.time[step] == 0))
        keep[begin], minute[begin] = True, 0
    return step[keep], minute[keep]


def _chart(
    batch: Batch, feature: Mapping[str, Any], times: tuple[Int, Int], rng: np.random.Generator
) -> pl.DataFrame:
    step, minute = times
    value, carevue = batch.values[feature["name"]][step], batch.carevue[batch.owner[step]]
    known = np.where(carevue, feature["carevue"] is not None, feature["metavision"] is not None)
    keep = known & np.isfinite(value)
    step, minute, value, carevue = step[keep], minute[keep], value[keep], carevue[keep]
    value = value + feature["jitter"] * rng.standard_normal(len(step))
    value = np.clip(value, feature["low"], feature["high"]).round(feature["decimals"])
    return _chart_rows(batch, step, minute, rng).with_columns(
        pl.Series("itemid", np.where(carevue, feature["carevue"] or 0, feature["metavision"] or 0)),
        pl.Series("value", _text(feature, value)),
        pl.Series("valuenum", value),
        valueuom=pl.lit(feature["unit"], dtype=pl.String),
    )


def _chart_rows(batch: Batch, step: Int, minute: Int, rng: np.random.Generator) -> pl.DataFrame:
    """Whose row it is, when it was charted and stored, by whom, and the marks of either system."""
    n = len(step)
    carevue = pl.Series(batch.carevue[batch.owner[step]])
    delay = rng.integers(1, 40, size=n).astype("timedelta64[m]").astype("timedelta64[us]")
    return batch.events(step, minute, cgid=rng.integers(*_CAREGIVERS, size=n)).with_columns(
        storetime=pl.col("charttime") + pl.Series(delay),
        warning=pl.when(~carevue).then(pl.lit(0)),
        error=pl.when(~carevue).then(pl.lit(0)),
        stopped=pl.when(carevue).then(pl.lit("NotStopd")),
    )


def _lab_times(batch: Batch, feature: Mapping[str, Any], rng: np.random.Generator) -> tuple[Int, Int]:
    step = np.flatnonzero(rng.random(batch.log.n_steps) < _chances(batch, feature))
    # An hour later, when the result is known, it is still the same step.
    return step, rng.integers(1, STEP - 65, size=len(step))


def _lab(batch: Batch, feature: Mapping[str, Any], times: tuple[Int, Int]) -> pl.DataFrame:
    step, minute = times
    value = batch.values[feature["name"]][step].round(feature["decimals"])
    item = np.full(len(step), feature["metavision"])
    rows = batch.events(step, minute, itemid=item, value=_text(feature, value), valuenum=value)
    return rows.with_columns(valueuom=pl.lit(feature["unit"], dtype=pl.String))


def _urine(batch: Batch, rng: np.random.Generator) -> pl.DataFrame:
    """Urine of a step, emptied up to four times: the rows of a step sum to its value, in whole millilitres."""
    feature = read_data("features.csv").row(by_predicate=pl.col("name") == "output_4hourly", named=True)
    step, minute = _slots(batch.log.n_steps, feature["per_step"], rng)
    kept = rng.random(len(step)) < feature["charted"]
    step, minute = step[kept], minute[kept]
    parts = np.bincount(step, minlength=batch.log.n_steps)[step]
    total = batch.values["output_4hourly"].round()[step]
    first = np.diff(step, prepend=-1) > 0
    amount = np.where(first, total - (parts - 1) * np.floor(total / parts), np.floor(total / parts))
    carevue = batch.carevue[batch.owner[step]]
    rows = _chart_rows(batch, step, minute, rng).drop("warning", "error", "stopped")
    return rows.with_columns(
        pl.Series("itemid", np.where(carevue, feature["carevue"], feature["metavision"])),
        pl.Series("value", amount),
        valueuom=pl.lit("mL"),
    )


def _ventilation(batch: Batch, rng: np.random.Generator) -> pl.DataFrame:
    """Mode of the ventilator, or the device that gives oxygen, once per step, in words."""
    step, minute = _slots(batch.log.n_steps, 1, rng)
    on, carevue = batch.values["mechvent"] > 0, batch.carevue[batch.owner]
    item = np.where(carevue, np.where(on, 720, 467), np.where(on, 223849, 226732))
    words = np.where(
        carevue, np.where(on, "Assist Control", "Nasal Cannula"), np.where(on, "CMV/ASSIST", "Nasal cannula")
    )
    return _chart_rows(batch, step, minute, rng).with_columns(
        pl.Series("itemid", item), pl.Series("value", words)
    )


def _ventilation_runs(batch: Batch) -> pl.DataFrame:
    """Stretches of mechanical ventilation, from the first step to the last of each."""
    on = (batch.values["mechvent"] > 0) & ~batch.carevue[batch.owner]
    begins, ends = on.copy(), on.copy()
    inside = batch.log.layout.time[1:] > 0
    begins[1:] &= ~(on[:-1] & inside)
    ends[:-1] &= ~(on[1:] & inside)
    first, last = np.flatnonzero(begins), np.flatnonzero(ends)
    start, end = batch.moment(first, 0), batch.moment(last, STEP)
    return pl.DataFrame(
        {
            **batch.keys(batch.owner[first]),
            "starttime": start.astype("datetime64[us]"),
            "endtime": end.astype("datetime64[us]"),
            "storetime": end.astype("datetime64[us]"),
            "itemid": np.full(len(first), 225792),
            "value": (end - start).astype(np.float64),
            "orderid": batch.number[batch.owner[first]] + 1,
        }
    ).with_columns(
        valueuom=pl.lit("min"),
        linkorderid=pl.col("orderid"),
        ordercategoryname=pl.lit("Ventilation"),
        ordercategorydescription=pl.lit("Task"),
        isopenbag=pl.lit(1),
        continueinnextdept=pl.lit(0),
        cancelreason=pl.lit(0),
        statusdescription=pl.lit("FinishedRunning"),
    )
