"""Our estimators beside plain NumPy on the same arrays.

Run: python -m benchmarks.estimators

Both sides run in turn on one BLAS thread. A time is that of the processor, the least of several, because the
machine is shared. The status is 1 if our values are not those of the reference; a missed budget is only printed.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from caliope._evidence import Evidence
from caliope._formulas import dr, ois, step_is, step_wis, wdr, wis
from caliope._ragged import Float, Int
from caliope.estimators import phwdr
from caliope.uncertainty import delta_method, influence, jackknife
from caliope.uncertainty._resampling import count_blocks, evaluate

SIX = (ois, step_is, wis, step_wis, dr, wdr)
N, HORIZON, LONGEST, DRAWS, GAMMA = 10_000, 15, 40, 500, 0.99
SIZES, MORE_DRAWS = (2_500, 10_000, 40_000, 160_000), (125, 250, 500, 1000, 2000)
LINEAR = 1.15  # slope up to which we say linear: small sizes fit into the cache and large ones do not


# -- data ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Log:
    """Columns as an ``Evidence`` takes them."""

    rewards: Float
    log_ratio: Float
    q: Float
    v: Float
    offsets: Int

    def evidence(self) -> Evidence:
        """Validate the columns: every run of ours starts here, with nothing cached."""
        return Evidence(self.rewards, self.log_ratio, self.offsets, GAMMA, q=self.q, v=self.v)


def make_log(lengths: Int) -> Log:
    rng, steps = np.random.default_rng(0), int(lengths.sum())
    return Log(
        rewards=rng.normal(1.0, 1.0, steps),
        log_ratio=rng.normal(-0.02, 0.2, steps),
        q=rng.normal(8.0, 1.0, steps),
        v=rng.normal(8.0, 1.0, steps),
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
    )


def equal_lengths(n: int) -> Int:
    return np.full(n, HORIZON)


def unequal_lengths(n: int) -> Int:
    """Many short and few long, with as many steps together as ``equal_lengths`` has."""
    rng = np.random.default_rng(1)
    lengths = np.minimum(rng.geometric(1 / 18, n), LONGEST)
    while missing := n * HORIZON - int(lengths.sum()):
        free = np.flatnonzero(lengths < LONGEST if missing > 0 else lengths > 1)
        lengths[rng.choice(free, min(abs(missing), len(free)), replace=False)] += np.sign(missing)
    return lengths


# -- the reference ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Padded:
    """The same as (n, T) arrays: zeros after the end, so that a trajectory keeps its last weight."""

    rewards: Float
    log_ratio: Float
    q: Float
    v: Float


def pad(log: Log) -> Padded:
    lengths = np.diff(log.offsets)
    alive = np.arange(lengths.max()) < lengths[:, None]

    def dense(column: Float) -> Float:
        out = np.zeros(alive.shape)
        out[alive] = column
        return out

    return Padded(dense(log.rewards), dense(log.log_ratio), dense(log.q), dense(log.v))


def numpy_columns(x: Padded) -> tuple[Float, ...]:
    discount = GAMMA ** np.arange(x.rewards.shape[1])
    rho = np.exp(np.cumsum(x.log_ratio, axis=1))
    before = np.hstack([np.ones((len(rho), 1)), rho[:, :-1]])
    return (
        discount,
        rho,
        rho[:, -1] * (x.rewards @ discount),
        rho * x.rewards,
        rho * (x.rewards - x.q),
        before * x.v,
    )


def numpy_point(x: Padded) -> list[float]:
    """Six estimates in the order of ``SIX``, everything that they share computed once."""
    discount, rho, weighted_return, gain, residual, baseline = numpy_columns(x)
    n, weight = len(rho), rho.sum(axis=0)
    before = np.concatenate([[n], weight[:-1]])
    return [
        weighted_return.mean(),
        (gain @ discount).mean(),
        weighted_return.sum() / rho[:, -1].sum(),
        (gain.sum(axis=0) / weight) @ discount,
        ((residual + baseline) @ discount).mean(),
        (residual.sum(axis=0) / weight + baseline.sum(axis=0) / before) @ discount,
    ]


def numpy_counts(n: int, draws: int) -> Float:
    rng = np.random.default_rng(2)
    return np.stack([np.bincount(rng.integers(n, size=n), minlength=n) for _ in range(draws)]).astype(
        np.float64
    )


def numpy_bootstrap(x: Padded, counts: Float) -> list[Float]:
    """Compute the same under each row of counts, every ratio normalised anew."""
    discount, rho, weighted_return, gain, residual, baseline = numpy_columns(x)
    n, weight = counts.sum(axis=1), counts @ rho
    before = np.column_stack([n, weight[:, :-1]])
    weighted_return, gain, residual, baseline = (
        counts @ y for y in (weighted_return, gain, residual, baseline)
    )
    return [
        weighted_return / n,
        gain @ discount / n,
        weighted_return / weight[:, -1],
        (gain / weight) @ discount,
        (residual + baseline) @ discount / n,
        (residual / weight + baseline / before) @ discount,
    ]


# -- ours ---------------------------------------------------------------------------------------------------


def our_point(log: Log) -> list[float]:
    e = log.evidence()
    return [estimator(e) for estimator in SIX]


def our_bootstrap(log: Log, draws: int = DRAWS) -> list[Float]:
    """Do what ``estimate`` does inside: one set of draws for all, a block of them at a time."""
    e = log.evidence()
    blocks = count_blocks(len(e), draws, rng=np.random.default_rng(2))
    parts = []
    for counts in blocks:
        resampled = e.with_counts(counts)
        parts.append([evaluate(estimator, resampled, counts) for estimator in SIX])
    return [np.concatenate(values) for values in zip(*parts, strict=True)]


# -- measurement --------------------------------------------------------------------------------------------


def race(*runs: Callable[[], object], repetitions: int = 7) -> list[float]:
    """Processor seconds of each run, the least of several repetitions taken in turn."""
    best = [np.inf] * len(runs)
    for _ in range(repetitions):
        for i, run in enumerate(runs):
            start = time.process_time()
            run()
            best[i] = min(best[i], time.process_time() - start)
    return best


def line(what: str, ratio: float, budget: float | None, note: str) -> None:
    said = f"{budget:>7.2f}   {'met' if ratio <= budget else 'MISSED':6}" if budget else f"{'-':>7}   {'':6}"
    print(f"{what:<58}{ratio:>7.2f}{said}   {note}")


def head(what: str, ratio: str, note: str) -> None:
    print(f"\n{what:<58}{ratio:>7}{'budget':>7}{'':12}{note}\n{'-' * 110}")


def agreement(log: Log) -> float:
    """Largest relative difference from the reference: point estimates, and draws under the same counts."""
    x, counts = pad(log), numpy_counts(len(log.offsets) - 1, DRAWS)
    e = log.evidence()
    drawn = [evaluate(estimator, e, counts) for estimator in SIX]
    pairs = [
        *zip(our_point(log), numpy_point(x), strict=True),
        *zip(drawn, numpy_bootstrap(x, counts), strict=True),
    ]
    return max(float(np.max(np.abs(ours / theirs - 1))) for ours, theirs in pairs)


def compare(equal: Log, unequal: Log) -> None:
    """Time the four that can be set against each other in one go."""
    x, padded = pad(equal), pad(unequal)

    def rows(what: str, budget: float, *runs: Callable[[], object], repetitions: int) -> None:
        ours, theirs, ragged, padded = race(*runs, repetitions=repetitions)
        for pair, a, b, most in (
            ("ours : NumPy", ours, theirs, budget),
            ("ours, unequal : equal lengths", ragged, ours, None),
            ("ours, unequal : NumPy, padded", ragged, padded, None),
        ):
            line(f"{what}, {pair}", a / b, most, f"{a * 1e3:.1f} : {b * 1e3:.1f}")

    head(f"six estimators, {N} trajectories of {HORIZON} steps", "ratio", "ms")
    rows(
        "point estimates",
        1.5,
        lambda: our_point(equal),
        lambda: numpy_point(x),
        lambda: our_point(unequal),
        lambda: numpy_point(padded),
        repetitions=40,
    )
    rows(
        f"{DRAWS} bootstrap draws",
        2.0,
        lambda: our_bootstrap(equal),
        lambda: numpy_bootstrap(x, numpy_counts(N, DRAWS)),
        lambda: our_bootstrap(unequal),
        lambda: numpy_bootstrap(padded, numpy_counts(N, DRAWS)),
        repetitions=10,
    )


def influences() -> None:
    """Influence of an average over lengths beside that of the plain estimator: both read each step once."""
    log = make_log(unequal_lengths(4 * N))
    by_length, plain = race(
        lambda: influence(phwdr, log.evidence()), lambda: influence(wdr, log.evidence()), repetitions=3
    )
    head(f"influences, {4 * N} trajectories of unequal length", "ratio", "ms")
    line("phwdr : wdr", by_length / plain, 1.5, f"{by_length * 1e3:.0f} : {plain * 1e3:.0f}")


def growth() -> None:
    head("growth of the time", "slope", "ms at each size")
    logs = [make_log(equal_lengths(n)) for n in SIZES]

    def row(what: str, sizes: tuple[int, ...], runs: list[Callable[[], object]]) -> None:
        seconds = race(*runs)
        slope = np.polyfit(np.log(sizes), np.log(seconds), 1)[0]
        line(what, float(slope), LINEAR, " ".join(f"{s * 1e3:.0f}" for s in seconds))

    few, fixed = 32, make_log(equal_lengths(N))
    over = f"{SIZES[0]} to {SIZES[-1]} trajectories"
    row(f"six, {few} draws, {over}", SIZES, [lambda x=x: our_bootstrap(x, few) for x in logs])
    row(
        f"six, {N} trajectories, {MORE_DRAWS[0]} to {MORE_DRAWS[-1]} draws",
        MORE_DRAWS,
        [lambda b=b: our_bootstrap(fixed, b) for b in MORE_DRAWS],
    )
    for interval in (jackknife, delta_method):
        for f in (wis, wdr):
            row(
                f"{interval.__name__} of {f.__name__}, {over}",
                SIZES,
                [lambda x=x, f=f, i=interval: i(f, x.evidence()) for x in logs],
            )


def memory() -> None:
    n, few, many = 200_000, 20, 1000
    log = make_log(equal_lengths(n))
    peaks = []
    for draws in (few, many):
        tracemalloc.start()
        our_bootstrap(log, draws)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    head(f"peak memory, six estimators, {n} trajectories", "ratio", "MB")
    note = f"{peaks[1] / 1e6:.0f} : {peaks[0] / 1e6:.0f} (counts at once: {8 * n * many / 1e6:.0f})"
    line(f"{many} draws : {few} draws", peaks[1] / peaks[0], 1.05, note)


def main() -> int:
    equal, unequal = make_log(equal_lengths(N)), make_log(unequal_lengths(N))
    failed = False
    for name, log in (("equal", equal), ("unequal", unequal)):
        difference = agreement(log)
        failed |= not difference <= 1e-9
        print(f"largest relative difference from NumPy, {name} lengths: {difference:.1e} (allowed: 1e-9)")
    compare(equal, unequal)
    influences()
    growth()
    memory()
    return int(failed)


if __name__ == "__main__":
    with threadpool_limits(1):
        sys.exit(main())
