"""A log as it was given, in memory or in files: what an audit is prepared on, and what leads to all of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from caliope._audit._about import About
from caliope._audit._compare import BehaviourModels, compare_candidates, random_stream
from caliope._audit._inputs import AuditInputs, check_data, check_inputs, check_seed
from caliope._audit._parts import ReadRows, read_part
from caliope._audit._progress import show_stages
from caliope._audit._run import Extend
from caliope._audit._settings import Progress, Stages
from caliope._audit._whole import Extension
from caliope._cache import Cache
from caliope._clusters import sample_clusters
from caliope._ragged import Int, read_only
from caliope._trajectories import Trajectories
from caliope.checks import A113, Finding
from caliope.engines._jobs import Engine, run_job
from caliope.engines._local import Local
from caliope.io._inventory import Inventory, LookAt, take_inventory
from caliope.io._partitions import Partitions
from caliope.io._survey import count_actions, widen_encoder

Models = Mapping[str, Any] | Callable[[Trajectories], Mapping[str, Any]] | None


@dataclass(frozen=True, eq=False)
class OpenedLog:
    """A log that is ready to be audited.

    Attributes
    ----------
    inputs : AuditInputs
        The log in memory, or a sample of one in files, validated with the settings.
    extend : callable or None
        What makes the evidence of the whole log; None where it is in memory.
    findings : tuple of Finding
        That models come from a sample.
    """

    inputs: AuditInputs
    extend: Extend | None = None
    findings: tuple[Finding, ...] = ()


def open_log(
    data: Any,
    models: Models,
    *,
    engine: Engine | None,
    about: About,
    prepare: dict[str, Any],
    work: str | Path | Cache | None,
    begin: Stages,
) -> OpenedLog:
    """Validate a log and the settings of its preparation; of one in files, read a sample.

    The sample is drawn, and every other trajectory is weighed, by its id: so neither engine nor parts change a number.

    Parameters
    ----------
    data : Trajectories or Partitions
        The log.
    models : mapping, function of the log, or None
        Candidates for the behaviour policy.
    engine : Engine or None
        Where parts of a log in files are worked on.
    about : About
        Names for the log.
    prepare : dict
        Further arguments of :func:`~caliope.prepare_audit`.
    work : path, Cache or None
        Where finished work is kept.
    begin : Stages
        Times the stages.

    Returns
    -------
    OpenedLog
        What :func:`~caliope._audit._prepare.prepare_opened` takes.
    """
    if isinstance(data, Partitions):
        return _open_partitions(
            data,
            models,
            engine=Local() if engine is None else engine,
            about=about,
            prepare=prepare,
            cache=Cache.of(work),
            begin=begin,
        )
    if engine is not None:
        raise TypeError(
            "engine is for a log in files (open_partitions), and this one is in memory: leave it out."
        )
    check_data(data)
    data = about.name_log(data)
    return OpenedLog(check_inputs(data, models(data) if callable(models) else models, **prepare, work=work))


def compare_behaviour(
    data: Trajectories | Partitions,
    models: Models = None,
    *,
    by: ArrayLike | None = None,
    level: float = 0.95,
    fit_steps: int | None = None,
    rng: int,
    progress: Progress | bool | None = None,
    work: str | Path | Cache | None = None,
    engine: Engine | None = None,
) -> BehaviourModels:
    """Check a log, and fit and compare models of its behaviour policy: the first stages of an audit.

    Parameters
    ----------
    data : Trajectories or Partitions
        The log; of one in files, the sample that an audit would prepare itself on.
    models, by, level, fit_steps, rng, progress, work, engine
        As for :func:`~caliope.audit`. The same seed gives the same models as there.

    Returns
    -------
    BehaviourModels
        The fitted candidates, their comparison, and what was found about the log.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from caliope.domains import ward
    >>> found = compare_behaviour(ward.simulate(100, rng=0), {"logistic": LogisticRegression()}, rng=0)
    >>> found.comparison.recommended
    'logistic'
    """
    prepare: dict[str, Any] = {"gamma": 1.0, "logged": None, "by": by, "cluster": None, "level": level}
    prepare |= {"fit_steps": fit_steps, "ended": None, "recorded_before": None, "rng": rng}
    with show_stages(progress) as tell:
        begin = Stages(tell)
        opened = open_log(data, models, engine=engine, about=About(), prepare=prepare, work=work, begin=begin)
        found = compare_candidates(opened.inputs, begin)
    return replace(found, findings=(*found.findings, *opened.findings))


def _open_partitions(
    source: Partitions,
    models: Models,
    *,
    engine: Engine,
    about: About,
    prepare: dict[str, Any],
    cache: Cache,
    begin: Stages,
) -> OpenedLog:
    _refuse(prepare)
    column = prepare["logged"]
    with begin("looking at the files"):
        inventory = _look(source, engine, cache)
    with begin("reading the sample"):
        drawn = _draw(source, inventory, prepare["fit_steps"], check_seed(prepare["rng"]))
        data = about.name_log(_read_sample(source, inventory, drawn, engine))
    candidates = models(data) if callable(models) else models
    logged = {"logged": None if column is None else data[column]}
    inputs = check_inputs(data, candidates, **(prepare | logged), work=cache, whole_steps=source.n_steps)
    if len(drawn) == len(inventory.ids):
        return OpenedLog(inputs)
    said = A113.finding("note", n=len(data), steps=data.n_steps, total=source.n_steps, unit=data.unit)
    return OpenedLog(inputs, Extension(source, inventory, drawn, engine, column), (said,))


def _refuse(prepare: Mapping[str, Any]) -> None:
    """Raise for what needs the whole log in memory."""
    if prepare["by"] is not None:
        raise TypeError("strata (by) need the log in memory: read it with read_table, or leave them out.")
    if prepare["cluster"] is not None:
        raise TypeError("name the clusters where the log is opened: open_partitions(..., cluster=).")
    for name, known in (
        ("logged", "the name of a column of keep="),
        ("ended", "'all' or nothing; a column belongs into open_partitions(..., terminated=)"),
    ):
        if not isinstance(prepare[name], str | None):
            raise TypeError(
                f"for a log in partitions {name} must be {known}, got {type(prepare[name]).__name__}."
            )


# -- the trajectories, and a sample of them --


def _look(source: Partitions, engine: Engine, cache: Cache) -> Inventory:
    work = cache.keyed(source.digest, repr(source.reading), "looked at")
    found = dict(run_job(engine, LookAt(source.reading), source.stretches, work=work))
    return take_inventory(source, [found[i] for i in range(len(source.stretches))])


def _draw(source: Partitions, inventory: Inventory, fit_steps: int | None, seed: int) -> Int:
    """Ranks of the trajectories of the sample, sorted: about so many decisions, or all of them."""
    n, most = len(inventory.ids), max(source.sample, fit_steps or 0)
    if source.n_steps <= most:
        return np.arange(n)
    size, rng = min(n, max(2, int(n * most / source.n_steps))), random_stream(seed, 12)
    cluster = inventory.clusters
    if cluster is not None:
        return sample_clusters(cluster, size, rng)
    return np.sort(rng.choice(n, size, replace=False))


def _read_sample(source: Partitions, inventory: Inventory, drawn: Int, engine: Engine) -> Trajectories:
    """The trajectories of the sample, in the fixed order."""
    numbers = np.sort(inventory.order[drawn])
    parts = list(inventory.choose(numbers))
    frames = dict(run_job(engine, ReadRows(source.reading), parts, work=Cache()))
    rows = pl.concat([frames[i] for i in range(len(parts))])
    given = source.reading
    first = given.counting(count_actions(inventory.contents, given.options))
    data = read_part(first, rows, numbers)
    encoder = widen_encoder(data.encoder, inventory.contents)
    if encoder != data.encoder or (encoder.action_names and given.options.get("n_actions") is not None):
        # Read again with room for what lies outside the sample.
        data = read_part(given.meaning(encoder, first.options["n_actions"]), rows, numbers)
        data = data.replace(encoder=encoder)
    object.__setattr__(data, "place", read_only(numbers))
    return data.in_fixed_order()
