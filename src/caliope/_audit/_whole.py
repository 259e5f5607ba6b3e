"""From the sample of a log in partitions to all of it: parts are weighed, and their columns put together."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from pickle import PicklingError
from typing import TYPE_CHECKING, Any

import cloudpickle
import joblib
import numpy as np
from numpy.typing import NDArray

from caliope._audit._basis import Basis
from caliope._audit._compare import Names, random_stream
from caliope._audit._parts import PartColumns, PartJob, WeighPart, without_log
from caliope._audit._reach import SHARES, gather_shares
from caliope._audit._run import Whole, mixed_in
from caliope._audit._settings import Stages
from caliope._clusters import take_turns
from caliope._columns import empty_column, let_go
from caliope._evidence import Evidence
from caliope._gather import settle
from caliope._policies import MixWithPractice, Practice
from caliope._ragged import STRETCH, Bool, Float, Int, Ragged
from caliope._trajectories import Trajectories
from caliope.checks import B110, Finding
from caliope.checks._copies import check_copies, content_keys
from caliope.engines._jobs import Engine, run_job
from caliope.io._inventory import Inventory
from caliope.io._partitions import Partitions
from caliope.values._defaults import AveragedValues
from caliope.weights import clip_weights
from caliope.weights._marginalised import plain_and_marginalised, regress_weights
from caliope.weights._regressed import WeightRegression

if TYPE_CHECKING:
    from caliope._audit._prepare import PreparedAudit


@dataclass(frozen=True, eq=False)
class Extension:
    """From the basis of a sample to that of the whole log.

    Attributes
    ----------
    source : Partitions
        The log.
    inventory : Inventory
        Its trajectories.
    drawn : array of int
        Ranks of those of the sample in the fixed order.
    engine : Engine
        Where parts are worked on.
    logged : str or None
        The column with the recorded probabilities of the actions taken.
    """

    source: Partitions
    inventory: Inventory
    drawn: Int
    engine: Engine
    logged: str | None

    def __call__(self, prepared: PreparedAudit, basis: Basis, begin: Stages) -> Whole:
        """Weigh the trajectories outside the sample, and put all of them together."""
        with begin("weighing the other trajectories"):
            shares, fits = _fit_shares(prepared, basis)
            rows = _Rows.empty(self.layout, 1 + len(fits))
            rows.put(self.drawn, _of_sample(prepared.data, basis, fits))
            ruled_out = 0
            for ranks, part in self._weigh(prepared, basis, fits):
                rows.put(ranks, part)
                ruled_out += part.ruled_out
        with begin("gathering all evidence"):
            columns = rows.columns()
            del rows
            base = self._evidence(columns, basis.evidence)
            _check_worst(basis.asked.worst, base)
            plain, marginalised = plain_and_marginalised(base, basis.regression.for_all(columns.before[0]))
            capped = clip_weights(base)
            whole = replace(basis, evidence=base, capped=capped, normalised=plain, marginalised=marginalised)
        again = partial(_each_share, whole, shares, fits, columns.before[1:])
        names = Names(self.inventory.ids[self.inventory.order], self.inventory.order)
        copies = check_copies(prepared.data, columns.keys)
        ruled = _say_ruled_out(prepared, ruled_out, len(columns.rewards))
        return Whole(whole, names, again, (*([] if copies is None else [copies]), *ruled))

    @cached_property
    def layout(self) -> Ragged:
        """Where the steps of all trajectories lie, in the fixed order."""
        lengths = self.inventory.lengths[self.inventory.order]
        return Ragged(np.concatenate([[0], np.cumsum(lengths)]), self.inventory.clusters)

    def _weigh(
        self, prepared: PreparedAudit, basis: Basis, fits: list[WeightRegression]
    ) -> Iterator[tuple[Int, PartColumns]]:
        """Ranks of the trajectories of each part outside the sample, and their columns."""
        jobs, ranks = [], []
        rest = np.setdiff1d(np.arange(len(self.inventory.ids)), self.drawn)
        turns, weight_turns = self._take_turns(basis, rest)
        place = np.empty(len(self.inventory.ids), dtype=np.int64)  # of each number among the rest
        place[self.inventory.order[rest]] = np.arange(len(rest))
        for part in self.inventory.choose(self.inventory.order[rest]):
            own = place[part.numbers]
            jobs.append(PartJob(part, turns[own], weight_turns[own]))
            ranks.append(rest[own])
        reading = self.source.reading.meaning(prepared.data.encoder, prepared.data.n_actions)
        target = basis.asked.given
        fitted = [basis.regression, *fits]
        task = WeighPart(
            reading,
            prepared.data.n_actions,
            without_log(prepared.chosen),
            prepared.models.n_steps,
            self.logged,
            target,
            self._values(basis).without_table(),
            basis.asked.regressor is None,
            _share_models(fitted),
        )
        e = basis.evidence
        told = [e.log_ratio, e.q, e.v, *(each.predicted for each in fitted), prepared.inputs.seed]
        work = prepared.inputs.cache.keyed(self.source.digest, repr(reading), told, *_identity_of(target))
        for i, columns in run_job(self.engine, task, jobs, work=work):
            yield ranks[i], columns

    def _take_turns(self, basis: Basis, rest: Int) -> tuple[Int, Int]:
        unit, clustered = self.layout.unit, self.layout.cluster is not None
        known = unit[self.drawn] if clustered else None
        fitted, fold = basis.fitted_on, basis.regression.fold
        turns = self._values(basis).take_turns(
            len(rest), None if known is None else known[fitted], unit[rest]
        )
        return turns, take_turns(len(rest), int(fold.max()) + 1, fold, known, unit[rest])

    @staticmethod
    def _values(basis: Basis) -> AveragedValues:
        if basis.values is None:
            raise TypeError("the values of a learnt policy need the log in memory: read it with read_table.")
        return basis.values

    def _evidence(self, columns: _Columns, sample: Evidence) -> Evidence:
        layout = self.layout
        return Evidence(
            columns.rewards,
            columns.log_ratio,
            layout.offsets,
            sample.gamma,
            q=columns.q,
            v=settle(columns.log_ratio, columns.q, columns.v),
            behaviour_known=sample.behaviour_known,
            terminated=None if columns.terminated.all() else columns.terminated,
            notes=sample.notes,
            features=sample.features,
            relative=sample.relative,
            cluster=layout.cluster,
            place=self.inventory.order,
        )


def _say_ruled_out(prepared: PreparedAudit, zero: int, total: int) -> tuple[Finding, ...]:
    """B110: the model of the sample gave probability 0 to actions that were taken outside it."""
    if not zero:
        return ()
    facts = {"model": prepared.comparison.recommended, "n": prepared.models.n_steps}
    return (B110.finding("note", "outside", zero=zero, steps=total - prepared.data.n_steps, **facts),)


@dataclass(frozen=True, eq=False)
class _Columns:
    """Columns of all trajectories."""

    rewards: Float
    log_ratio: Float
    q: Float
    v: Float
    before: list[Float]  # predicted weights before each step, of each target
    terminated: Bool
    keys: NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class _Rows:
    """The same row by row, filled part by part: the steps of a trajectory are then in one place of a file."""

    layout: Ragged
    table: Float  # (N, 4 + k)
    terminated: Bool
    keys: NDArray[np.uint64]
    filled: Bool

    @classmethod
    def empty(cls, layout: Ragged, k: int) -> _Rows:
        table = empty_column(int(layout.offsets[-1]), 4 + k)
        ended, filled = (np.zeros(layout.n, dtype=bool) for _ in range(2))
        return cls(layout, table, ended, np.zeros(layout.n, dtype=np.uint64), filled)

    def put(self, ranks: Int, part: PartColumns) -> None:
        """Put what belongs to some trajectories in its place."""
        rows = self.layout.rows_of(ranks)
        if len(rows) != len(part.rewards):
            raise ValueError(
                "a trajectory has another number of steps than when it was looked at: a file was changed."
            )
        self.table[rows] = np.column_stack([part.rewards, part.log_ratio, part.q, part.v, part.before])
        let_go(self.table)
        self.terminated[ranks] = part.terminated
        self.keys[ranks] = part.keys
        self.filled[ranks] = True

    def columns(self) -> _Columns:
        """Each column by itself."""
        if not self.filled.all():
            raise ValueError(f"{int((~self.filled).sum())} trajectories were not weighed.")
        n, k = self.table.shape
        found = [empty_column(n) for _ in range(k)]
        for start in range(0, n, STRETCH):
            part = self.table[start : start + STRETCH]
            for column, values in zip(found, part.T, strict=True):
                column[start : start + STRETCH] = values
                let_go(column[start : start + STRETCH])
            let_go(part)
        rewards, log_ratio, q, v, *before = found
        return _Columns(rewards, log_ratio, q, v, before, self.terminated, self.keys)


def _of_sample(data: Trajectories, basis: Basis, fits: list[WeightRegression]) -> PartColumns:
    """The columns of the sample, which was weighed by models that have not seen each trajectory."""
    e = basis.evidence
    before = np.stack([each.predicted for each in (basis.regression, *fits)], axis=1)
    ended = np.ones(len(e), dtype=bool) if e.terminated is None else e.terminated
    q, v = np.asarray(e.q), np.asarray(e.v)
    return PartColumns(e.rewards, e.log_ratio, q, v, before, ended, content_keys(data))


def _fit_shares(prepared: PreparedAudit, basis: Basis) -> tuple[list[Evidence], list[WeightRegression]]:
    """Evidence of the sample with the policy in each share of the decisions but the last, and models of its weights."""
    if isinstance(basis.asked.target, Practice):
        return [], []
    options: dict[str, Any] = {"base": basis.evidence, "q": basis.q, "shares": SHARES[:-1]}
    found = gather_shares(prepared.data, *mixed_in(prepared, basis), **options)
    fits = regress_weights(
        found,
        prepared.data,
        regressors=basis.regressors,
        fitted_on=basis.weighed_on,
        rng=random_stream(prepared.inputs.seed, 7),
    )
    return found, fits


def _share_models(fits: list[WeightRegression]) -> tuple[WeightRegression, ...]:
    """The models without their log; what one fit serves stays one."""
    bare: dict[int, Any] = {}
    found = []
    for each in fits:
        slim = each.without_log()
        if each.fit is not None and slim.fit is not None:
            slim = replace(slim, fit=(bare.setdefault(id(each.fit[0]), slim.fit[0]), slim.fit[1]))
        found.append(slim)
    return tuple(found)


def _each_share(
    whole: Basis, shares: list[Evidence], fits: list[WeightRegression], before: list[Float]
) -> Iterator[tuple[Evidence, Evidence, Evidence]]:
    """Evidence of all trajectories with the policy in a share of the decisions: as it is, plain, and marginalised."""
    base = whole.evidence
    for share, sample, fit, predicted in zip(SHARES, shares, fits, before, strict=False):
        raw = base.changed(
            log_ratio=base.per_step(partial(_log_ratio_of_share, share=share)),
            v=base.per_step(partial(_v_of_share, share=share)),
            notes=sample.notes,
        )
        yield raw, *plain_and_marginalised(raw, fit.for_all(predicted))
    yield base, whole.normalised, whole.marginalised


def _log_ratio_of_share(e: Evidence, share: float) -> Float:
    """Log-ratios of the policy in a share of the decisions, (N,)."""
    with np.errstate(over="ignore", divide="ignore"):
        return np.asarray(np.log((1 - share) + share * np.exp(e.log_ratio)))


def _v_of_share(e: Evidence, share: float) -> Float:
    """Values of the policy in a share of the decisions, which follows practice in the others, (N,)."""
    return (1 - share) * np.asarray(e.q) + share * np.asarray(e.v)


def _check_worst(worst: float | None, e: Evidence) -> None:
    if worst is not None and worst > e.returns.min():
        raise ValueError(
            f"worst must not exceed the smallest return in the log, {e.returns.min():.6g}; got {worst:g}. Give a "
            "return at most that large, or leave worst out."
        )


def _identity_of(target: Any) -> tuple[str, Any]:
    """What a policy or function is: what is kept must not outlive a change of it that the sample does not show.

    The text of the file that it is defined in, and all that it holds.
    """
    own = target.policy if isinstance(target, MixWithPractice) else target
    named = own if hasattr(own, "__code__") else type(own)
    path = getattr(sys.modules.get(getattr(named, "__module__", "")), "__file__", None) or ""
    text = ""
    with suppress(OSError):
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    try:
        return text, joblib.hash(target)
    except (PicklingError, AttributeError, TypeError):
        pass
    try:
        return text, cloudpickle.dumps(target)  # a lambda, or a function inside another
    except (PicklingError, AttributeError, TypeError):
        return text, ""  # stays in this process
