"""The commands ``simulate`` and ``demo``: simulated data whose truth is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from caliope.cli._console import check_writable, one_line_errors, open_report, show_progress
from caliope.cli._evaluate import FAIL_ON, QUIET, judge

if TYPE_CHECKING:
    import polars as pl

    from caliope._audit._result import Audit
    from caliope._ragged import Float
    from caliope._trajectories import Trajectories


_DECIMALS = 9  # of numbers in CSV files


@dataclass(frozen=True, eq=False)
class SimulatedLog:
    """A log, the target policy at every step, the true values, and the names of the columns."""

    data: Trajectories
    target_probs: Float  # (N, A)
    practice: float  # true value of the behaviour policy
    target: float  # and of the target policy
    features: tuple[str, ...] = ()  # by default those of the log
    actions: tuple[str, ...] = ()  # names after "p"; by default numbers
    columns: tuple[str, str, str, str] = ("episode", "time", "action", "reward")
    first: int = 0  # number of the first trajectory
    interval: int = 1  # time between two decisions

    @property
    def target_columns(self) -> list[str]:
        """Columns of the target policy's probabilities."""
        if self.actions:
            return [f"p_{name}" for name in self.actions]
        return [f"p{a}" for a in range(self.data.n_actions)]

    def to_frame(self, *, propensities: bool = False) -> pl.DataFrame:
        """Return the log as a table with one row per decision."""
        import polars as pl

        data, layout = self.data, self.data.layout
        episode, time, action, reward = self.columns
        content: dict[str, Any] = {
            episode: layout.owner + self.first,
            time: layout.time * self.interval,
            **dict(zip(self.features or data.feature_names, data.states.T, strict=True)),
            action: data.actions,
            reward: data.rewards,
            **dict(zip(self.target_columns, self.target_probs.T, strict=True)),
        }
        if propensities:
            content["propensity"] = data["behaviour"]
        # Whole numbers are written as such: 1, not 1.000000000.
        return pl.DataFrame({name: _as_integers(x) for name, x in content.items()})

    def command(self, out: Path, *, gamma: float, propensities: bool) -> str:
        """Return the command that evaluates the target policy on the written table."""
        names = [self.target_columns[0], self.target_columns[-1]]
        columns = ",".join(self.target_columns) if self.actions else "..".join(names)
        standard = ("episode", "time", "action", "reward")
        parts = [f"caliope evaluate {out}"]
        parts += [
            f"--{part} {name}" for part, name in zip(standard, self.columns, strict=True) if part != name
        ]
        parts += [f"--target-columns {columns}"]
        # What no log tells, and a simulation does.
        parts += ["--learnt-on no", "--ended all", "--recorded-before all"]
        parts += ["--propensity propensity"] * propensities + [f"--gamma {gamma:g}"] * (gamma != 1)
        return " ".join(parts)


def _as_integers(x: Any) -> Any:
    import numpy as np

    return x.astype(np.int64) if (x == np.floor(x)).all() else np.ascontiguousarray(x)


# -- domains: number of trajectories, seed, gamma -> log --


def _simulate_ward(n: int, seed: int, gamma: float) -> SimulatedLog:
    from caliope.domains import ward

    data = ward.simulate(n, rng=seed)
    return SimulatedLog(
        data,
        ward.EARLIER[data.states[:, 0].astype(int)],
        ward.WARD.value(ward.PRACTICE, gamma),
        ward.WARD.value(ward.EARLIER, gamma),
        features=("severity",),
        actions=ward.DOSES,
        columns=("patient", "hour", "dose", "discharged"),
        first=1,
        interval=4,
    )


def _simulate_icu_sepsis(n: int, seed: int, gamma: float) -> SimulatedLog:
    from caliope.domains import icu_sepsis

    data = icu_sepsis.simulate(n, rng=seed)
    target = icu_sepsis.evaluation_policies()["a fifth optimal"]
    probs = icu_sepsis.true_probabilities(data, target)
    return SimulatedLog(data, probs, icu_sepsis.value(gamma=gamma), icu_sepsis.value(target, gamma=gamma))


def _simulate_toy_map(n: int, seed: int, gamma: float) -> SimulatedLog:
    from caliope.domains.toy_map import HEADING, ROAMING, simulate, value

    data = simulate(n, policy=ROAMING, rng=seed)
    practice, target = (value(policy, gamma=gamma) for policy in (ROAMING, HEADING))
    return SimulatedLog(data, HEADING.predict_proba(data.states), practice, target)


def _simulate_random(n: int, seed: int, gamma: float, *, horizon: int = 10) -> SimulatedLog:
    from caliope.domains.random_mdp import random_mdp

    problem = random_mdp(horizon=horizon, rng=seed)
    data, target = problem.simulate(n, rng=seed), problem.targets()["mild mix"]
    practice, value = (problem.value(policy, gamma=gamma) for policy in (problem.behaviour, target))
    return SimulatedLog(data, problem.true_probabilities(data, target), practice, value)


def _simulate_bandit(n: int, seed: int, gamma: float) -> SimulatedLog:
    return _simulate_random(n, seed, gamma, horizon=1)


DOMAINS: Mapping[str, Callable[[int, int, float], SimulatedLog]] = {
    "ward": _simulate_ward,
    "icu-sepsis": _simulate_icu_sepsis,
    "toy-map": _simulate_toy_map,
    "random": _simulate_random,
    "bandit": _simulate_bandit,
}


@click.command()
@click.argument("domain", type=click.Choice([*DOMAINS]))
@click.option(
    "--trajectories", type=click.IntRange(1), default=1000, show_default=True, help="Number of trajectories."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Random seed.")
@click.option(
    "--gamma",
    type=click.FloatRange(0, 1),
    default=1.0,
    show_default=True,
    help="Discount of the true values.",
)
@click.option("--propensities", is_flag=True, help="Add the true probabilities of the actions taken.")
@click.option("--out", metavar="FILE", help="CSV or Parquet file to write.  [default: DOMAIN.csv]")
def simulate(
    domain: str, *, trajectories: int, seed: int, gamma: float, propensities: bool, out: str | None
) -> None:
    """Write a simulated log whose truth is known.

    The log has one row per decision, with a new policy's probabilities of all actions. Prints the true values of
    current practice and of the new policy, and the command that evaluates it on the log.
    """
    path = Path(out or f"{domain}.csv")
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise ValueError(f"--out must end in .csv or .parquet, got {out!r}.")
    check_writable(path)
    log = DOMAINS[domain](trajectories, seed, gamma)
    frame = log.to_frame(propensities=propensities)
    if path.suffix.lower() == ".csv":
        frame.write_csv(path, float_precision=_DECIMALS)
    else:
        frame.write_parquet(path)
    click.echo(f"Written: {path}, {trajectories} trajectories with {frame.height} decisions.")
    click.echo(
        f"True values at a discount of {gamma:g}: current practice {log.practice:.4g}, new policy {log.target:.4g}."
    )
    click.echo(log.command(path, gamma=gamma, propensities=propensities))


# Share of the decisions that the new policy of the demo takes.
_DEMO_SHARE = 0.2


@click.command()
@click.option("--patients", default=2000, show_default=True, help="Number of patients in the log.")
@click.option("--seed", default=0, show_default=True, help="Random seed of the log and of the audit.")
@click.option("--out", default="caliope-demo.html", show_default=True, help="Report to write.")
@FAIL_ON
@QUIET
def demo(patients: int, seed: int, out: str, fail_on: str, quiet: bool) -> None:
    """Evaluate a new policy on simulated sepsis data.

    The truth is known and printed at the end. Needs the extras sepsis and report. The exit code is that of evaluate.
    """
    with one_line_errors():
        write = open_report(out)
        found = _run_demo(patients, seed, quiet=quiet, write=write)
        click.echo(f"Report: {out}")
    exit_code = judge(found, fail_on=fail_on)
    if exit_code:
        raise click.exceptions.Exit(exit_code)


def _run_demo(patients: int, seed: int, *, quiet: bool, write: Any) -> Audit:
    import caliope as cal
    from caliope.domains import icu_sepsis

    data, best = icu_sepsis.simulate(patients, rng=seed), icu_sepsis.optimal()
    click.echo(f"The log: sepsis patients, fluids and vasopressors every four hours. {data!r}")
    click.echo("The probabilities with which the clinicians chose are not in the log.")
    click.echo(f"The question: what if a computed policy took {_DEMO_SHARE:.0%} of the decisions?\n")
    mixed = (1 - _DEMO_SHARE) * icu_sepsis.load().expert + _DEMO_SHARE * best
    truth, now = (icu_sepsis.value(policy, gamma=0.99) for policy in (mixed, None))
    with show_progress(quiet=quiet) as display:
        found = cal.audit(
            data,
            cal.mix(cal.practice, icu_sepsis.Bedside(best), _DEMO_SHARE),
            gamma=0.99,
            by=cal.calibration.severity_strata(data["sofa"]),
            fit_steps=5000,
            learnt_on="no",
            recorded_before="all",
            about=_demo_names(cal, truth, now),
            rng=seed,
            progress=display,
        )
    click.echo(str(found))
    click.echo(f"\nThe cohort is simulated, so the truth is known: {truth:.3f}; current practice {now:.3f}.")
    write(found)
    return found


def _demo_names(cal: Any, truth: float, now: float) -> Any:
    """The names of the demo's report, which also says that the log is simulated."""
    return cal.About(
        title="Demonstration: sepsis patients, simulated",
        question=f"What if a computed policy took {_DEMO_SHARE:.0%} of the decisions? The log "
        f"is simulated, so the truth is known: {truth:.3f}; current practice {now:.3f}.",
        policy=f"computed, in {_DEMO_SHARE:.0%} of the decisions",
        outcome="discounted return",
    )
