"""The same data through SCOPE-RL and through us, side by side.

Run: python -m benchmarks.peers

The first run makes an environment of its own, .venv-peers, and every run continues inside it. There both
sides have one thread. The status is 1 if the point estimates disagree.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from caliope import Evidence

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv-peers"
# One pip call each, in this order: asked for by itself, this torch is a build for the CPU where the index has
# one, and scope-rl is then content with it. Left to scope-rl, it would bring gigabytes of CUDA.
INSTALL = (["torch==2.13.0"], ["scope-rl", "-e", "."])
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
N, HORIZON, ACTIONS, DRAWS, GAMMA = 10_000, 15, 25, 500, 0.99
BOOTSTRAP = {"ci": "bootstrap", "n_bootstrap_samples": DRAWS, "random_state": 0}
TARGET = 8.0  # times faster
INCLUDED = """
SCOPE-RL   validates and reads the tables anew for each estimator; its bootstrap resamples trajectory values
           that were normalised once
ours       from the ratios: validates log-ratios, rewards, q and v as columns; nothing is cached between runs
           from the tables: the inputs of SCOPE-RL, validated, and the ratios, q and v taken from them
           bootstrap: one set of draws for all six, every ratio normalised anew in each
"""
CLOSE = 1e-8  # relative; they add 1e-10 to each mean weight that they divide by


def main() -> int:
    if Path(sys.prefix).resolve() == VENV.resolve():
        return measure()
    done, python = VENV / ".installed", VENV / "bin" / "python"
    if not done.exists():
        print(f"installing SCOPE-RL into {VENV.name}: minutes, the first time", flush=True)
        venv.create(VENV, with_pip=True)
        for packages in INSTALL:
            subprocess.run([python, "-m", "pip", "install", "-qq", *packages], cwd=ROOT, check=True)
        done.touch()
    return subprocess.run(
        [python, "-W", "ignore", "-m", "benchmarks.peers"], cwd=ROOT, env=os.environ | ONE_THREAD
    ).returncode


# -- inside the environment ---------------------------------------------------------------------------------


def make_data() -> dict[str, Any]:
    """Make what SCOPE-RL takes: columns of N steps, and tables of N steps by 25 actions."""
    import numpy as np

    rng, steps = np.random.default_rng(0), N * HORIZON
    behaviour = rng.dirichlet(np.ones(ACTIONS), steps)
    target = 0.8 * behaviour + 0.2 * rng.dirichlet(np.ones(ACTIONS), steps)
    action = np.minimum((behaviour.cumsum(axis=1) < rng.random((steps, 1))).sum(axis=1), ACTIONS - 1)
    return {
        "step_per_trajectory": HORIZON,
        "action": action,
        "reward": rng.normal(1.0, 1.0, steps) + action / ACTIONS,
        "pscore": behaviour[np.arange(steps), action],
        "evaluation_policy_action_dist": target,
        "state_action_value_prediction": rng.normal(15.0, 2.0, (steps, ACTIONS)),
        "gamma": GAMMA,
    }


def scope_estimators() -> list[Any]:
    """Return theirs, in the order of ours."""
    with contextlib.redirect_stderr(io.StringIO()):  # gym, which it imports, says that it is unmaintained
        from scope_rl.ope import discrete as scope

    return [
        scope.TrajectoryWiseImportanceSampling(),
        scope.PerDecisionImportanceSampling(),
        scope.SelfNormalizedTIS(),
        scope.SelfNormalizedPDIS(),
        scope.DoublyRobust(),
        scope.SelfNormalizedDR(),
    ]


def gathered(data: dict[str, Any]) -> Evidence:
    """Start where they start: from the log and the tables, validated."""
    import numpy as np

    from caliope import Trajectories, gather

    offsets = np.arange(0, N * HORIZON + 1, HORIZON)
    no_states = np.zeros((N * HORIZON, 1))
    log = Trajectories(no_states, data["action"], data["reward"], offsets, n_actions=ACTIONS)
    target, q = data["evaluation_policy_action_dist"], data["state_action_value_prediction"]
    return gather(log, target, data["pscore"], gamma=GAMMA, q=q)


def fresh(e: Evidence) -> Evidence:
    """Start where the ratios are at hand: validated again, with nothing cached."""
    from caliope import Evidence

    return Evidence(e.rewards, e.log_ratio, e.offsets, GAMMA, q=e.q, v=e.v)


def our_intervals(e: Evidence) -> list[Any]:
    """Percentile intervals of all six from one set of draws, every ratio normalised anew in each."""
    import numpy as np

    from benchmarks.estimators import SIX
    from caliope.uncertainty._intervals import percentile_interval
    from caliope.uncertainty._resampling import count_blocks, evaluate

    parts = []
    for counts in count_blocks(len(e), DRAWS, rng=np.random.default_rng(0)):
        resampled = e.with_counts(counts)
        parts.append([evaluate(estimator, resampled, counts) for estimator in SIX])
    method = "bootstrap, percentile"
    return [
        percentile_interval(np.concatenate(x), level=0.95, method=method) for x in zip(*parts, strict=True)
    ]


def versions() -> None:
    from importlib.metadata import version

    import torch

    torch.set_num_threads(1)
    names = ("caliope", "scope-rl", "torch", "d3rlpy", "numpy", "scipy")
    print(f"Python {sys.version.split()[0]}, " + ", ".join(f"{name} {version(name)}" for name in names))
    print(
        f"{N} trajectories of {HORIZON} steps, {ACTIONS} actions; one thread; milliseconds of processor time"
    )
    print(INCLUDED)


def compare_points(data: dict[str, Any], e: Evidence) -> bool:
    """Print each estimator alone, and whether the values agree."""
    from benchmarks.estimators import SIX, race

    print(f"{'one estimator':<12}{'SCOPE-RL':>12}{'ours':>12}{'relative':>11}{'times':>8}   ms")
    agree = True
    for theirs, ours in zip(scope_estimators(), SIX, strict=True):
        a, b = float(theirs.estimate_policy_value(**data)), float(ours(e))
        slow, fast = race(
            lambda f=theirs: f.estimate_policy_value(**data), lambda f=ours: f(fresh(e)), repetitions=10
        )
        agree &= abs(a / b - 1) < CLOSE
        print(f"{ours.__name__:<12}{a:>12.6f}{b:>12.6f}{a / b - 1:>11.1e}{slow / fast:>7.1f}x", end="")
        print(f"   {slow * 1e3:.1f} : {fast * 1e3:.1f}")
    print(f"point estimates agree to {CLOSE:.0e}: {'yes' if agree else 'NO'}\n")
    return agree


def compare_all(
    what: str, repetitions: int, theirs: Callable[[], object], **ours: Callable[[], object]
) -> None:
    """Print how many times faster each way of ours is."""
    from benchmarks.estimators import race

    slow, *fast = race(theirs, *ours.values(), repetitions=repetitions)
    for name, seconds in zip(ours, fast, strict=True):
        times = slow / seconds
        said = "met" if times >= TARGET else "MISSED"
        label = f"{what}, ours {name.replace('_', ' ')}"
        print(f"{label:<62}{times:>6.1f}x{TARGET:>6.0f}x   {said:6}   {slow * 1e3:.0f} : {seconds * 1e3:.1f}")


def show_parts(data: dict[str, Any], e: Evidence) -> None:
    """Print what takes the time of ours: how long each part alone would take."""
    import numpy as np

    from benchmarks.estimators import race
    from caliope.uncertainty._resampling import count_blocks

    def draw() -> list[Any]:
        rng = np.random.default_rng(0)
        return [rng.integers(len(e), size=len(e), dtype=np.uint32) for _ in range(DRAWS)]

    drawn = draw()
    parts = {
        "gathering from the tables, with every check": lambda: gathered(data),
        f"{DRAWS} draws of {len(e)} trajectories: random numbers alone": draw,
        "counting the drawn trajectories alone": lambda: [np.bincount(x, minlength=len(e)) for x in drawn],
        "counts of all draws, as columns of floats": lambda: [
            *count_blocks(len(e), DRAWS, rng=np.random.default_rng(0))
        ],
        "counts and the sums of all six": lambda: our_intervals(fresh(e)),
    }
    print(f"\n{'parts of ours':<62}{'ms':>7}")
    for name, seconds in zip(parts, race(*parts.values(), repetitions=5), strict=True):
        print(f"{name:<62}{seconds * 1e3:>7.1f}")


def compare_widths(data: dict[str, Any], e: Evidence) -> None:
    """Print the widths of the intervals: theirs does not normalise anew."""
    from benchmarks.estimators import SIX

    print(f"\n{'95% interval':<12}{'SCOPE-RL':>24}{'ours':>24}{'width':>8}")
    for theirs, ours, mine in zip(scope_estimators(), SIX, our_intervals(e), strict=True):
        _, low, high = theirs.estimate_interval(**data, **BOOTSTRAP).values()
        width = (high - low) / (mine.high - mine.low)
        print(
            f"{ours.__name__:<12}{low:>12.3f}{high:>12.3f}{mine.low:>12.3f}{mine.high:>12.3f}{width:>7.2f}x"
        )


def measure() -> int:
    from benchmarks.estimators import SIX
    from caliope import estimate

    versions()
    data, theirs = make_data(), scope_estimators()
    e = gathered(data)
    agree = compare_points(data, e)
    print(f"{'all six':<62}{'times':>7}{'target':>7}{'':12}ms")
    compare_all(
        "point estimates",
        7,
        lambda: [f.estimate_policy_value(**data) for f in theirs],
        from_the_ratios=lambda: [f(x) for x in [fresh(e)] for f in SIX],
        from_the_tables=lambda: [f(x) for x in [gathered(data)] for f in SIX],
    )
    compare_all(
        f"{DRAWS} draws",
        7,
        lambda: [f.estimate_interval(**data, **BOOTSTRAP) for f in theirs],
        from_the_ratios=lambda: our_intervals(fresh(e)),
        from_the_tables=lambda: our_intervals(gathered(data)),
        from_the_tables_with_diagnostics=lambda: estimate(gathered(data), *SIX, n_draws=DRAWS, rng=0),
    )
    show_parts(data, e)
    compare_widths(data, e)
    return int(not agree)


if __name__ == "__main__":
    sys.exit(main())
