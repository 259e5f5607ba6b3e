"""What each published mistake changes: the cohort with and without it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from caliope.clinical.cohort import Cohort
from caliope.clinical.dictionaries import features
from caliope.clinical.pipeline import Resources, build_cohort
from caliope.clinical.settings import AsPublished, CohortSettings
from caliope.clinical.tables import MIMIC3, Database

if TYPE_CHECKING:
    import polars as pl


def effects_of_mistakes(
    source: str | Path,
    names: Iterable[str] | None = None,
    *,
    database: Database = MIMIC3,
    schema: str | None = None,
    resources: Resources | None = None,
    progress: Callable[[str], None] | None = None,
) -> pl.DataFrame:
    """Build the cohort once without any published mistake, then once with each: a row a mistake.

    ``states_changed`` and ``actions_changed`` are shares of the decisions that both cohorts have, by stay and number
    of the step. Without names every mistake is tried, and at the end all of them together.
    """
    import polars as pl

    wanted = [f.name for f in fields(AsPublished)] + ["all"] if names is None else list(names)
    AsPublished.named(wanted)  # refuse a wrong name before hours of work
    plain = CohortSettings()

    def build(name: str | None) -> Cohort:
        if progress is not None:
            progress(name or "none")
        chosen = AsPublished.named([name]) if name else AsPublished()
        return build_cohort(
            source,
            settings=replace(plain, as_published=chosen),
            database=database,
            schema=schema,
            resources=resources,
        )

    base = build(None)
    return pl.DataFrame([_row("none", base, base), *(_row(name, build(name), base) for name in wanted)])


def _row(name: str, cohort: Cohort, base: Cohort) -> dict[str, float | str]:
    numbers = cohort.summary()
    return {
        "mistake": name,
        "stays": numbers["stays"],
        "decisions": numbers["decisions"],
        "no_vasopressor": numbers["share of decisions without vasopressor"],
        "no_fluid": numbers["share of decisions without fluid"],
        "never_vasopressor": numbers["stays never given a vasopressor"],
        "died": numbers["share of stays that died"],
        "mean_sofa": numbers["mean SOFA"],
        "states_changed": _changed(cohort, base, [name for name, _ in features()]),
        "actions_changed": _changed(cohort, base, ["action"]),
    }


def _changed(cohort: Cohort, base: Cohort, columns: list[str]) -> float:
    import polars as pl

    keys = ["icustay_id", "bloc"]
    compared = [name for name in columns if name not in keys]
    both = base.rows.select(*keys, *compared).join(
        cohort.rows.select(*keys, *compared), on=keys, suffix="_then"
    )
    if len(both) == 0:
        return float("nan")
    differs = pl.any_horizontal(pl.col(name) != pl.col(f"{name}_then") for name in compared)
    return float(both.select(differs.mean()).item())
