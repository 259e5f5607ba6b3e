"""A small hospital ward, made up: the data that comes with the package, and its truth.

Patients have a severity from 0 to 4 and receive every four hours no treatment, a low dose or a high dose, for
at most two days. They are discharged when they improve from severity 0, and die when they worsen from 4. The
return is 1 for a patient discharged alive within two days. ``ward.csv`` beside this file is
``simulate(1000, rng=0)``, written without the probabilities: as in life. ``python -m caliope.domains.ward`` prints it
with those of a new policy, as an example for ``caliope evaluate``.
"""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path

import numpy as np

from caliope.domains.tabular import TabularMDP
from caliope.ragged import Float
from caliope.trajectories import Trajectories

SEVERITIES = 5
DISCHARGED, DEAD = 5, 6
DOSES = ("none", "low", "high")

# Chance to improve and to worsen within four hours: a row a severity, a column a dose.
_BETTER = np.array(
    [[0.34, 0.44, 0.32], [0.24, 0.44, 0.34], [0.15, 0.40, 0.36], [0.09, 0.30, 0.34], [0.05, 0.18, 0.30]]
)
_WORSE = np.array(
    [[0.14, 0.09, 0.18], [0.24, 0.12, 0.18], [0.30, 0.15, 0.18], [0.36, 0.22, 0.20], [0.32, 0.24, 0.20]]
)


def _transitions() -> Float:
    table = np.zeros((SEVERITIES + 2, len(DOSES), SEVERITIES + 2))
    for s in range(SEVERITIES):
        better = s - 1 if s > 0 else DISCHARGED
        worse = s + 1 if s < SEVERITIES - 1 else DEAD
        table[s, :, better] = _BETTER[s]
        table[s, :, worse] = _WORSE[s]
        table[s, :, s] = 1 - _BETTER[s] - _WORSE[s]
    return table


def _policy(preference: Float) -> Float:
    """Softmax of preferences (severity, dose); the rows of absorbing states are never used."""
    table = np.exp(np.concatenate([preference, np.zeros((2, len(DOSES)))]))
    return table / table.sum(axis=1, keepdims=True)


_LEVEL = np.arange(SEVERITIES)[:, None]

PRACTICE = _policy(_LEVEL * np.array([0.0, 0.5, 0.9]) + np.array([0.0, -0.7, -1.8]))
"""What the ward does now, (7, 3): more treatment for the sicker."""

EARLIER = _policy(_LEVEL * np.array([0.0, 0.5, 0.9]) + np.array([0.0, 0.0, -1.4]))
"""A policy not far from it: the same, but somewhat sooner."""

AGGRESSIVE = _policy(_LEVEL * np.array([0.0, 0.5, 1.6]) + np.array([0.0, 0.5, 2.5]))
"""A policy far from it: the high dose for nearly everyone."""

WARD = TabularMDP(
    initial=np.array([0.1, 0.25, 0.3, 0.25, 0.1, 0.0, 0.0]),
    transitions=_transitions(),
    rewards=np.broadcast_to(
        np.arange(SEVERITIES + 2) == DISCHARGED, (SEVERITIES + 2, 3, SEVERITIES + 2)
    ).astype(float),
    absorbing=np.arange(SEVERITIES + 2) >= SEVERITIES,
    horizon=12,
)


def simulate(n: int, *, rng: int | np.random.Generator) -> Trajectories:
    """Log n patients under current practice; column ``behaviour`` holds the true probabilities."""
    return WARD.simulate(PRACTICE, n, rng=rng)


def csv_path() -> Path:
    """Where the log that comes with the package lies."""
    return Path(str(files("caliope.domains").joinpath("ward.csv")))


def example() -> str:
    """The same log as CSV, with the probabilities of the new policy ``EARLIER`` beside each decision."""
    header, *rows = csv_path().read_text(encoding="utf-8").splitlines()
    severity = header.split(",").index("severity")
    lines = [",".join([header, *(f"p_{dose}" for dose in DOSES)])]
    for row in rows:
        wanted = EARLIER[int(row.split(",")[severity])]
        lines.append(",".join([row, *(f"{p:.9f}" for p in wanted)]))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(example())
