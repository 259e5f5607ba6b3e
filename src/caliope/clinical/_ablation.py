"""Effect of each published mistake: the cohort with it, compared with the corrected cohort."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from caliope._results import Table
from caliope.checks import Finding
from caliope.clinical._cohort import Cohort
from caliope.clinical._databases import MIMIC3, Database, features
from caliope.clinical._pipeline import Resources, build_cohort
from caliope.clinical._settings import AsPublished, CohortSettings


@dataclass(frozen=True)
class MistakeEffect:
    """The cohort with one published mistake, compared with the corrected cohort.

    Parameters
    ----------
    mistake : str
        Name of the mistake, ``none`` or ``all``.
    stays, decisions : int
        Size of the cohort.
    no_vasopressor, no_fluid : float
        Share of decisions without the drug.
    never_vasopressor : int
        Number of stays that were never given a vasopressor.
    died : float
        Share of stays that died.
    mean_sofa : float
        Mean SOFA score of the decisions.
    states_changed, actions_changed : float
        Share of the decisions of both cohorts, matched by stay and step, that differ.
    """

    mistake: str
    stays: int
    decisions: int
    no_vasopressor: float
    no_fluid: float
    never_vasopressor: int
    died: float
    mean_sofa: float
    states_changed: float
    actions_changed: float

    @property
    def name(self) -> str:
        """Name of the mistake, by which a table finds its row."""
        return self.mistake

    @property
    def findings(self) -> tuple[Finding, ...]:
        """No findings: the numbers are counts."""
        return ()

    def cells(self) -> dict[str, str]:
        """Cells of the printed table."""
        return {
            "mistake": self.mistake,
            "stays": f"{self.stays}",
            "decisions": f"{self.decisions}",
            "no vaso": f"{self.no_vasopressor:.1%}",
            "no fluid": f"{self.no_fluid:.1%}",
            "SOFA": f"{self.mean_sofa:.2f}",
            "states": f"{self.states_changed:.1%}",
            "actions": f"{self.actions_changed:.1%}",
        }

    def record(self) -> dict[str, Any]:
        """Values of the row of a data frame."""
        return asdict(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite becomes None."""
        plain = asdict(self)
        return {k: None if isinstance(x, float) and not math.isfinite(x) else x for k, x in plain.items()}


def measure_mistakes(
    source: str | Path,
    names: Iterable[str] | None = None,
    *,
    database: Database = MIMIC3,
    schema: str | None = None,
    resources: Resources | None = None,
    progress: Callable[[str], None] | None = None,
) -> Table[MistakeEffect]:
    """Build the cohort without any published mistake, then once with each, and compare.

    Parameters
    ----------
    source : str or path
        Raw tables, as in :func:`caliope.clinical.build_cohort`.
    names : iterable of str, optional
        Mistakes to measure, by the fields of :class:`AsPublished`. By default every one, then all of them together.
    database : Database
        ``MIMIC3`` or ``MIMIC4``.
    schema : str, optional
        Schema of the tables in PostgreSQL or DuckDB.
    resources : Resources, optional
        Memory, threads and disk that the work may use.
    progress : callable, optional
        Called with the name of each mistake before its cohort is built.

    Returns
    -------
    Table
        One row per mistake (``MistakeEffect``), the first without any mistake.

    Examples
    --------
    >>> table = measure_mistakes("mimic-iii/", ["urine_bilirubin"])  # doctest: +SKIP
    >>> table["urine_bilirubin"].states_changed  # doctest: +SKIP
    """
    chosen = [f.name for f in fields(AsPublished)] + ["all"] if names is None else list(names)
    # Refuse a wrong name before hours of work.
    AsPublished.from_names(chosen)

    def build(name: str) -> Cohort:
        if progress is not None:
            progress(name)
        repeated = AsPublished.from_names([] if name == "none" else [name])
        return build_cohort(
            source,
            settings=replace(CohortSettings(), as_published=repeated),
            database=database,
            schema=schema,
            resources=resources,
        )

    base = build("none")
    return Table((_compare("none", base, base), *(_compare(name, build(name), base) for name in chosen)))


def _compare(name: str, cohort: Cohort, base: Cohort) -> MistakeEffect:
    numbers = cohort.summary()
    return MistakeEffect(
        mistake=name,
        stays=int(numbers["stays"]),
        decisions=int(numbers["decisions"]),
        no_vasopressor=numbers["share of decisions without vasopressor"],
        no_fluid=numbers["share of decisions without fluid"],
        never_vasopressor=int(numbers["stays never given a vasopressor"]),
        died=numbers["share of stays that died"],
        mean_sofa=numbers["mean SOFA"],
        states_changed=_share_changed(cohort, base, [name for name, _ in features()]),
        actions_changed=_share_changed(cohort, base, ["action"]),
    )


def _share_changed(cohort: Cohort, base: Cohort, columns: list[str]) -> float:
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
