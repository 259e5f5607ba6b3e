"""The commands ``simulate`` and ``demo``: simulated data whose truth is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from caliope._files import written_whole
from caliope.cli._console import check_writable, echo, one_line_errors, open_report, show_progress
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
    with written_whole(path) as beside:
        if path.suffix.lower() == ".csv":
            frame.write_csv(beside, float_precision=_DECIMALS)
        else:
            frame.write_parquet(beside)
    echo(f"Written: {path}, {trajectories} trajectories with {frame.height} decisions.")
    echo(
        f"True values at a discount of {gamma:g}: current practice {log.practice:.4g}, new policy {log.target:.4g}."
    )
    echo(log.command(path, gamma=gamma, propensities=propensities))


# -- the demo: two policies on one log --


@dataclass(frozen=True, eq=False)
class DemoPolicy:
    """A new policy of the demo, in words and as the target of an audit, with its true value."""

    name: str
    target: Any
    truth: float


@dataclass(frozen=True, eq=False)
class DemoLog:
    """A simulated log, its policies, and what an audit of it is told."""

    text: str
    data: Trajectories
    policies: tuple[DemoPolicy, ...]
    now: float  # true value of current practice
    outcome: str
    settings: Mapping[str, Any]  # of the preparation


def _demo_ward(patients: int, seed: int) -> DemoLog:
    import caliope as cal
    from caliope.domains import ward

    def policy(name: str, table: Float) -> DemoPolicy:
        return DemoPolicy(name, cal.TabularPolicy(table), ward.WARD.value(table))

    data = ward.simulate(patients, rng=seed)
    return DemoLog(
        "patients of a ward, who get no, a low or a high dose every four hours",
        data.replace(unit="patient", action_names=ward.DOSES),
        (
            policy("treat earlier, with low doses", ward.EARLIER),
            policy("the high dose for everybody, at every step", ward.HIGH),
        ),
        ward.WARD.value(ward.PRACTICE),
        "discharged",
        {"ended": "all", "recorded_before": "all"},
    )


def _demo_sepsis(patients: int, seed: int) -> DemoLog:
    import caliope as cal
    from caliope.domains import icu_sepsis

    data, best = icu_sepsis.simulate(patients, rng=seed), icu_sepsis.optimal()

    def policy(name: str, share: float) -> DemoPolicy:
        mixed = (1 - share) * icu_sepsis.load().expert + share * best
        target = cal.mix(cal.practice, icu_sepsis.Bedside(best), share)
        return DemoPolicy(name, target, icu_sepsis.value(mixed, gamma=0.99))

    strata = cal.calibration.severity_strata(data["sofa"])
    return DemoLog(
        "sepsis patients, who get fluids and vasopressors every four hours",
        data,
        (
            policy("a computed policy in 5% of the decisions", 0.05),
            policy("the computed policy in all decisions", 1.0),
        ),
        icu_sepsis.value(None, gamma=0.99),
        "discounted return",
        {"gamma": 0.99, "by": strata, "fit_steps": 5000, "recorded_before": "all"},
    )


DEMOS: Mapping[str, tuple[Callable[[int, int], DemoLog], int]] = {
    "ward": (_demo_ward, 1000),
    "icu-sepsis": (_demo_sepsis, 2000),
}
SMALL = 300  # patients of demo --small


def _with_one_model(log: DemoLog) -> DemoLog:
    from caliope.behaviour import default_models

    models = {"logistic": default_models()["logistic, weak"]}
    return replace(log, settings={**log.settings, "models": models})


@click.command()
@click.option(
    "--domain",
    type=click.Choice([*DEMOS]),
    default="ward",
    show_default=True,
    help="The log: a ward takes seconds, ICU-Sepsis minutes and the extra sepsis.",
)
@click.option("--patients", type=click.IntRange(1), help="Patients in the log.  [default: 1000, sepsis 2000]")
@click.option(
    "--small", is_flag=True, help="300 patients and one behaviour model: to see that all is installed."
)
@click.option("--seed", default=0, show_default=True, help="Random seed of the log and of the audit.")
@click.option(
    "--out",
    default="caliope-demo.html",
    show_default=True,
    help="Report of the first policy; that of the second is beside it.",
)
@FAIL_ON
@QUIET
def demo(
    domain: str, *, patients: int | None, small: bool, seed: int, out: str, fail_on: str, quiet: bool
) -> None:
    """Evaluate two new policies on a simulated log: one that it can answer for, and one that it cannot.

    The truth is known and printed. Needs the extra report. The exit code is that of evaluate, for the first policy.
    """
    with one_line_errors():
        make, usual = DEMOS[domain]
        path = Path(out)
        outs = (path, path.with_stem(f"{path.stem}-second"))
        writes = [open_report(str(x)) for x in outs]
        log = make(patients or (SMALL if small else usual), seed)
        found = _run_demo(_with_one_model(log) if small else log, seed, quiet=quiet, writes=writes)
        echo(f"Reports: {outs[0]}, {outs[1]}")
    exit_code = judge(found, fail_on=fail_on)
    if exit_code:
        raise click.exceptions.Exit(exit_code)


def _run_demo(log: DemoLog, seed: int, *, quiet: bool, writes: Sequence[Any]) -> Audit:
    import caliope as cal

    echo(f"The log: {log.text}. {log.data!r}")
    echo("The probabilities with which the treatments were chosen are not in it.")
    audits = []
    with show_progress(quiet=quiet) as display:
        prepared = cal.prepare_audit(log.data, rng=seed, progress=display, **log.settings)
        for policy in log.policies:
            about = _demo_names(cal, log, policy)
            audits.append(prepared.audit(policy.target, learnt_on="no", about=about, progress=display))
    for audit, policy, write in zip(audits, log.policies, writes, strict=True):
        echo(f"\nWhat if: {policy.name}?\n")
        echo(str(audit))
        echo(
            f"\nThe log is simulated, so the truth is known: {policy.truth:.3f}; current practice {log.now:.3f}."
        )
        write(audit)
    return audits[0]


def _demo_names(cal: Any, log: DemoLog, policy: DemoPolicy) -> Any:
    """The names of the demo's report, which also says that the log is simulated."""
    return cal.About(
        title="Demonstration: a simulated log",
        question=f"What if: {policy.name}? The log is simulated, so the truth is known: {policy.truth:.3f}; "
        f"current practice {log.now:.3f}.",
        policy=policy.name,
        outcome=log.outcome,
    )
