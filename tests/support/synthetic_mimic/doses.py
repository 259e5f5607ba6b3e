"""Infusions and boluses of synthetic stays, inside the vasopressor and fluid levels of the hidden action."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from caliope._ragged import Float, Int
from caliope.clinical._settings import RAGHU_IV_CUTS, RAGHU_VASO_CUTS
from caliope.domains._sepsis_process import LEVELS
from support.synthetic_mimic.stays import STEP, Batch, clock
from support.synthetic_mimic.writing import read_data

# Raghu et al. (2017): where the levels of a dose begin, and a largest dose of our own.
# Vasopressors in mcg/kg/min of norepinephrine or its equivalent (largest rate); fluids in mL in four hours, adjusted
# for tonicity.
VASOPRESSOR_CUTS = (0.0, *RAGHU_VASO_CUTS, 1.2)
FLUID_CUTS = (0.0, *RAGHU_IV_CUTS, 2000.0)
_MARGIN = 0.05  # of a level's width, kept from its ends: rounding must not change the level


@dataclass(frozen=True, eq=False)
class Doses:
    """True doses of every step, (N,) each."""

    vasopressor: Float  # largest rate, mcg/kg/min of norepinephrine equivalents
    fluid: Float  # mL, adjusted for tonicity


def draw_doses(actions: Int, rng: np.random.Generator) -> Doses:
    """A dose inside the level of each action, evenly; none in level 0."""
    return Doses(
        _inside(actions % LEVELS, VASOPRESSOR_CUTS, rng), _inside(actions // LEVELS, FLUID_CUTS, rng)
    )


def _inside(level: Int, cuts: tuple[float, ...], rng: np.random.Generator) -> Float:
    low, width = np.array((0.0, *cuts[:-1]))[level], np.diff(cuts, prepend=0.0)[level]
    place = _MARGIN + (1 - 2 * _MARGIN) * rng.random(len(level))
    return np.where(level > 0, low + place * width, 0.0).round(6)


def given(batch: Batch, doses: Doses, rng: np.random.Generator) -> dict[str, pl.DataFrame]:
    """Rows of inputevents_mv and inputevents_cv for some stays."""
    carevue = batch.carevue[batch.owner]
    pressed, wet = doses.vasopressor > 0, doses.fluid > 0
    by_mouth = rng.random(len(carevue)) < 0.15
    modern = [
        _infusions(batch, np.flatnonzero(pressed & ~carevue), doses, rng),
        _fluids(batch, np.flatnonzero(wet & ~carevue), doses, rng),
        _drinks(batch, np.flatnonzero(by_mouth & ~carevue), rng).rename({"charttime": "starttime"}),
    ]
    older = [
        _charted_rates(batch, np.flatnonzero(pressed & carevue), doses, rng),
        _charted_amounts(batch, np.flatnonzero(wet & carevue), doses, rng),
        _drinks(batch, np.flatnonzero(by_mouth & carevue), rng),
    ]
    return {
        "inputevents_mv": _finish_modern(pl.concat(modern, how="diagonal_relaxed"), batch),
        "inputevents_cv": _finish_older(pl.concat(older, how="diagonal_relaxed")),
    }


def _vasopressors(dose: Float, system: str, rng: np.random.Generator) -> pl.DataFrame:
    """Which drug gives a dose: item, unit and rate. Mostly norepinephrine; dopamine and vasopressin where usual."""
    items = read_data("items.csv").filter(category="vasopressor", dbsource=system)
    rank = rng.choice(5, size=len(dose), p=(0.7, 0.05, 0.13, 0.05, 0.07))
    # 20 mcg/kg/min of dopamine equal 0.2; vasopressin below 0.05 would be taken for units per minute, and above
    # 0.9 for units per hour, by those who tell the two apart by size.
    rank = np.where((rank == 3) & (dose > 0.2), 0, rank)
    rank = np.where((rank == 4) & ((dose < 0.05) | (dose > 0.9)), 0, rank)
    chosen = items[rank.tolist()].select("itemid", rateuom="unit", factor="factor")
    return chosen.with_columns(rate=(pl.Series(dose) / pl.col("factor")).round(8))


def _infusions(batch: Batch, step: Int, doses: Doses, rng: np.random.Generator) -> pl.DataFrame:
    """MetaVision: a rate from one minute to another; half of them began lower; some rows were written anew."""
    n = len(step)
    start, end = rng.integers(2, 40, size=n), rng.integers(150, 238, size=n)
    drug = _vasopressors(doses.vasopressor[step], "metavision", rng)
    middle = np.where(rng.random(n) < 0.5, (start + end) // 2, start)
    main = (
        _modern_rows(batch, step, middle, end).hstack(drug).with_columns(statusdescription=pl.lit("Stopped"))
    )
    lower = _modern_rows(batch, step, start, middle).hstack(drug)
    lower = lower.with_columns(pl.col("rate") * 0.6, statusdescription=pl.lit("Changed"))
    wrong = main.with_columns(pl.col("rate") * 2, statusdescription=pl.lit("Rewritten"))
    rows = pl.concat(
        [main, lower.filter(pl.Series(middle > start)), wrong.filter(pl.Series(rng.random(n) < 0.05))]
    )
    minutes = (pl.col("endtime") - pl.col("starttime")).dt.total_minutes()
    by_weight = pl.col("rate") * pl.col("patientweight") * minutes / 1000
    by_hour = pl.col("rate") * minutes / 60
    units = pl.col("rateuom") == "units/hour"
    return rows.with_columns(
        amount=pl.when(units).then(by_hour).otherwise(by_weight),
        amountuom=pl.when(units).then(pl.lit("units")).otherwise(pl.lit("mg")),
        ordercategoryname=pl.lit("01-Drips"),
        ordercategorydescription=pl.lit("Continuous Med"),
    ).drop("factor")


def _modern_rows(batch: Batch, step: Int, start: Int, end: Int) -> pl.DataFrame:
    return pl.DataFrame(
        {
            **batch.keys(batch.owner[step]),
            "starttime": clock(batch.moment(step, start + batch.delay)),
            "endtime": clock(batch.moment(step, end + batch.delay)),
            "patientweight": batch.values["Weight_kg"][step].round(1),
        }
    )


def _fluid_amounts(volume: Float, system: str, rng: np.random.Generator) -> pl.DataFrame:
    items = read_data("items.csv").filter(category="fluid", dbsource=system)
    rank = rng.choice(4, size=len(volume), p=(0.55, 0.3, 0.1, 0.05))
    chosen = items[rank.tolist()].select("itemid", amountuom="unit", factor="factor")
    return chosen.with_columns(amount=pl.Series(volume) / pl.col("factor"))


def _fluids(batch: Batch, step: Int, doses: Doses, rng: np.random.Generator) -> pl.DataFrame:
    """MetaVision: a bolus without a rate, an infusion with one, or both."""
    volume = doses.fluid[step]
    share = np.clip(rng.uniform(-1, 1.6, size=len(step)), 0, 1)  # as a bolus
    part = _fluid_amounts(volume * share, "metavision", rng)
    start = rng.integers(2, 200, size=len(step))
    bolus = (
        _modern_rows(batch, step, start, start + 1)
        .hstack(part)
        .with_columns(ordercategoryname=pl.lit("03-IV Fluid Bolus"), ordercategorydescription=pl.lit("Bolus"))
    )
    start, end = rng.integers(2, 100, size=len(step)), rng.integers(130, 238, size=len(step))
    rest = _fluid_amounts(volume * (1 - share), "metavision", rng)
    hours = pl.Series((end - start) / 60)
    infusion = (
        _modern_rows(batch, step, start, end)
        .hstack(rest)
        .with_columns(
            rate=pl.col("amount") / hours,
            rateuom=pl.lit("mL/hour"),
            ordercategoryname=pl.lit("02-Fluids (Crystalloids)"),
            ordercategorydescription=pl.lit("Continuous IV"),
        )
    )
    rows = pl.concat([bolus, infusion], how="diagonal").filter(pl.col("amount") > 0)
    return rows.with_columns(statusdescription=pl.lit("FinishedRunning")).drop("factor")


def _drinks(batch: Batch, step: Int, rng: np.random.Generator) -> pl.DataFrame:
    """Fluid by mouth, which is in the same tables and no intravenous fluid."""
    minute = rng.integers(2, STEP - 2, size=len(step))
    rows = batch.events(step, minute, amount=rng.integers(30, 240, size=len(step)).astype(np.float64))
    item = np.where(batch.carevue[batch.owner[step]], 30056, 226452)
    return rows.with_columns(
        pl.Series("itemid", item), amountuom=pl.lit("ml"), statusdescription=pl.lit("FinishedRunning")
    )


def _charted_rates(batch: Batch, step: Int, doses: Doses, rng: np.random.Generator) -> pl.DataFrame:
    """CareVue: the rate now and then, the highest one somewhere among them, and a row when it is stopped."""
    n, times = len(step), 4
    drug = _vasopressors(doses.vasopressor[step], "carevue", rng)
    minute = np.arange(times) * 55 + rng.integers(3, 50, size=(n, times))
    share = np.where(
        np.arange(times) == rng.integers(times, size=n)[:, None], 1.0, rng.uniform(0.6, 1, (n, times))
    )
    which = np.repeat(np.arange(n), times)
    running = batch.events(step[which], minute.ravel() + batch.delay).hstack(drug[which.tolist()])
    running = running.with_columns(rate=(pl.col("rate") * pl.Series(share.ravel())).round(8))
    stop = batch.events(step, STEP - 2 + batch.delay).hstack(drug)
    stop = stop.with_columns(rate=pl.lit(0.0), stopped=pl.lit("Stopped"))
    return pl.concat([running, stop], how="diagonal").drop("factor")


def _charted_amounts(batch: Batch, step: Int, doses: Doses, rng: np.random.Generator) -> pl.DataFrame:
    """CareVue: what has run in, once an hour or less often."""
    parts = rng.integers(1, 5, size=len(step))
    which = np.repeat(np.arange(len(step)), parts)
    fluid = _fluid_amounts((doses.fluid[step] / parts), "carevue", rng)[which.tolist()]
    rank = np.arange(len(which)) - np.repeat(np.cumsum(parts) - parts, parts)
    minute = 2 + 58 * rank + rng.integers(0, 58, size=len(which))
    rows = batch.events(step[which], minute + batch.delay).hstack(fluid)
    return rows.with_columns(originalroute=pl.lit("Intravenous")).drop("factor")


def _finish_modern(rows: pl.DataFrame, batch: Batch) -> pl.DataFrame:
    order = pl.int_range(1, pl.len() + 1) + 1_000_000 * int(batch.number[0] + 1)
    return rows.with_columns(
        endtime=pl.col("endtime").fill_null(pl.col("starttime") + pl.duration(minutes=1)),
        storetime=pl.col("starttime") + pl.duration(minutes=9),
        cgid=pl.lit(15_000),
        orderid=order,
        linkorderid=order,
        ordercomponenttypedescription=pl.lit("Main order parameter"),
        totalamount=pl.col("amount"),
        totalamountuom=pl.col("amountuom"),
        isopenbag=pl.lit(0),
        continueinnextdept=pl.lit(0),
        cancelreason=pl.lit(0),
        originalamount=pl.col("amount"),
        originalrate=pl.col("rate"),
    )


def _finish_older(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(
        storetime=pl.col("charttime") + pl.duration(minutes=9),
        cgid=pl.lit(15_000),
        orderid=pl.int_range(1, pl.len() + 1),
        linkorderid=pl.int_range(1, pl.len() + 1),
    )
