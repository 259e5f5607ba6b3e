"""The sepsis cohort: its rows, exclusions, missing values and corrupt rows, and how it is written to files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from caliope._files import written_whole
from caliope.clinical._settings import CohortSettings

if TYPE_CHECKING:
    import polars as pl
    from duckdb import DuckDBPyConnection

    from caliope._trajectories import Trajectories


@dataclass(frozen=True, eq=False)
class Cohort:
    """The sepsis cohort with one row per decision, and tables that show how it was made.

    Parameters
    ----------
    rows : polars.DataFrame
        The 48 features of Raghu et al. (2017) in their own units (``age`` in days), the doses, the levels 0 to 4 of
        both drugs, ``action = 5 * iv_level + vaso_level``, the reward and the outcome.
    flow : polars.DataFrame
        Number of stays excluded, for each reason.
    missingness : polars.DataFrame
        Share of each variable that was measured, held, carried or filled in.
    quality : polars.DataFrame
        Number of corrupt rows by table and fault.
    cuts : mapping from drug to tuple of float
        Doses at which the levels 2, 3 and 4 begin.
    settings : CohortSettings
        Settings with which the cohort was built.
    database : str
        ``mimic3`` or ``mimic4``.

    Examples
    --------
    >>> from caliope.clinical import build_cohort
    >>> cohort = build_cohort("mimic-iii/")  # doctest: +SKIP
    >>> cohort.summary()["stays"]  # doctest: +SKIP
    >>> data = cohort.to_trajectories(history=3)  # doctest: +SKIP
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
        """Return the numbers of stays, patients and decisions, and the main shares."""
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
        """Make trajectories of the rows; see :func:`caliope.clinical.to_trajectories`."""
        from caliope.clinical._states import to_trajectories

        return to_trajectories(
            self.rows, history=history, past_actions=past_actions, normalise=normalise, padding=padding
        )

    def write(self, path: str | Path) -> list[Path]:
        """Write ``cohort.parquet`` and beside it ``.flow.csv``, ``.missingness.csv``, ``.quality.csv``, ``.json``."""
        check_suffix(path, ".parquet")
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        written = [target]
        with written_whole(target) as part:
            self.rows.write_parquet(part, compression="zstd")
        for name in ("flow", "missingness", "quality"):
            beside = target.with_suffix(f".{name}.csv")
            with written_whole(beside) as part:
                getattr(self, name).write_csv(part)
            written.append(beside)
        beside = target.with_suffix(".json")
        with written_whole(beside) as part:
            part.write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")
        return [*written, beside]

    def to_dict(self) -> dict[str, Any]:
        """Return settings, cut points and :meth:`summary` as plain values."""
        return {
            "database": self.database,
            "settings": self.settings.to_dict(),
            "cuts": {drug: list(cut) for drug, cut in self.cuts.items()},
            "summary": self.summary(),
        }


def _share(mask: pl.Series) -> float:
    return float(mask.sum()) / len(mask) if len(mask) else float("nan")


def read_cohort_tables(connection: DuckDBPyConnection, settings: CohortSettings, database: str) -> Cohort:
    """Collect the tables of the last stages."""
    cuts = dict(connection.execute("SELECT drug, cut FROM cuts ORDER BY drug").fetchall())
    rows = connection.sql("SELECT * FROM cohort ORDER BY icustay_id, bloc").pl()
    if rows["action"].null_count():
        lacking = " and ".join(drug for drug, cut in cuts.items() if not cut)
        raise ValueError(
            f"cuts='refit' needs doses of training patients, but only other patients were given {lacking}: raise "
            "train_share, change the seed, or use cuts='raghu'."
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


def check_suffix(path: str | Path, suffix: str) -> None:
    """Refuse another suffix: files of the same name with the suffixes csv and json are written beside it."""
    if Path(path).suffix.lower() != suffix:
        raise ValueError(f"the file to write must end in {suffix}, got {str(path)!r}.")


def check_output_path(
    path: str | Path, suffix: str, *, source: str | Path, keep_stages: str | Path | None = None
) -> None:
    """Refuse an output file that cannot be written, or that would replace the source or the stages.

    Called before the work, which may take hours.
    """
    check_suffix(path, suffix)
    target, raw = Path(path).resolve(), Path(source).resolve()
    if target == raw:
        raise ValueError(f"{path} is the source and would be replaced: choose another name for the output.")
    if keep_stages is not None and target == Path(keep_stages).resolve():
        raise ValueError(f"{path} is the file of the stages too: choose two names.")
    if raw in target.parents and target.exists():
        raise ValueError(f"{path} exists already in the folder of the source: write somewhere else.")
    new = not target.exists()
    target.parent.mkdir(parents=True, exist_ok=True)
    target.open("ab").close()
    if new:
        target.unlink()
