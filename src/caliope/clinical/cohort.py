"""The sepsis cohort: its rows, who was left out, what was missing, what was corrupt."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from caliope.clinical.settings import CohortSettings
from caliope.clinical.targets import check_ending

if TYPE_CHECKING:
    import polars as pl
    from duckdb import DuckDBPyConnection

    from caliope.trajectories import Trajectories


@dataclass(frozen=True, eq=False)
class Cohort:
    """One row a decision, with everything needed to judge how it came about.

    ``rows`` has Raghu's 48 features in their own units (``age`` in days), the doses, the levels 0 to 4 of both drugs,
    ``action = 5 * iv_level + vaso_level``, the reward and the outcome. ``flow`` counts the stays that left and why,
    ``missingness`` the share of each value that was measured, held, carried or filled in, ``quality`` the corrupt rows.
    """

    rows: pl.DataFrame
    flow: pl.DataFrame
    missingness: pl.DataFrame
    quality: pl.DataFrame
    cuts: Mapping[str, tuple[float, ...]]
    settings: CohortSettings
    database: str

    def __repr__(self) -> str:
        stays = self.rows["icustay_id"].n_unique()
        return f"Cohort({stays} stays, {len(self.rows)} decisions, {self.database})"

    def summary(self) -> dict[str, float]:
        """The numbers one looks at first."""
        rows = self.rows
        stays = rows.group_by("icustay_id").first()
        n = len(stays)
        return {
            "stays": n,
            "patients": rows["subject_id"].n_unique(),
            "decisions": len(rows),
            "share of decisions without vasopressor": _share(rows["max_dose_vaso"] == 0),
            "share of decisions without fluid": _share(rows["input_4hourly"] == 0),
            "stays never given a vasopressor": int(stays["never_vasopressor"].sum()),
            "share of stays never given a vasopressor": _share(stays["never_vasopressor"]),
            "share of stays that died": _share(stays["died"]),
            "mean SOFA": float(rows["SOFA"].mean() or 0.0) if n else float("nan"),  # type: ignore[arg-type]
        }

    def to_trajectories(
        self,
        *,
        history: int = 0,
        past_actions: bool = True,
        normalise: bool = True,
        padding: Literal["repeat", "zeros"] = "repeat",
    ) -> Trajectories:
        """Decisions as trajectories; see :func:`caliope.clinical.states.to_trajectories`."""
        from caliope.clinical.states import to_trajectories

        return to_trajectories(
            self.rows, history=history, past_actions=past_actions, normalise=normalise, padding=padding
        )

    def write(self, path: str | Path) -> list[Path]:
        """Write ``cohort.parquet`` and beside it ``.flow.csv``, ``.missingness.csv``, ``.quality.csv``, ``.json``."""
        check_ending(path, ".parquet")
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        written = [target]
        self.rows.write_parquet(target, compression="zstd")
        for name in ("flow", "missingness", "quality"):
            beside = target.with_suffix(f".{name}.csv")
            getattr(self, name).write_csv(beside)
            written.append(beside)
        beside = target.with_suffix(".json")
        beside.write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")
        return [*written, beside]

    def to_dict(self) -> dict[str, Any]:
        """Settings, cut points and first numbers as plain values."""
        return {
            "database": self.database,
            "settings": self.settings.to_dict(),
            "cuts": {drug: list(cut) for drug, cut in self.cuts.items()},
            "summary": self.summary(),
        }


def _share(mask: pl.Series) -> float:
    return float(mask.sum()) / len(mask) if len(mask) else float("nan")


def read_cohort_tables(connection: DuckDBPyConnection, settings: CohortSettings, database: str) -> Cohort:
    """Collect the results of the last stages."""
    cuts = dict(connection.execute("SELECT drug, cut FROM cuts ORDER BY drug").fetchall())
    rows = connection.sql("SELECT * FROM cohort ORDER BY icustay_id, bloc").pl()
    if rows["action"].null_count():
        lacking = " and ".join(drug for drug, cut in cuts.items() if not cut)
        raise ValueError(
            f"cuts='refit' needs doses of training patients, but none of them was given {lacking}, and others were: "
            "raise train_share, change the seed, or use cuts='raghu'."
        )
    return Cohort(
        rows=rows,
        flow=connection.sql("SELECT * FROM flow ORDER BY stage").pl(),
        missingness=connection.sql("SELECT * FROM missingness ORDER BY variable").pl(),
        quality=connection.sql("SELECT * FROM quality ORDER BY ALL").pl(),
        cuts={drug: tuple(cut or ()) for drug, cut in cuts.items()},
        settings=settings,
        database=database,
    )
