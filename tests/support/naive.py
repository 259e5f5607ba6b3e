"""The formulas of the paper's appendix, copied as loops: slow, plain, and only ever used beside the real thing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass
class Logged:
    r: list[float]
    ratio: list[float]
    q: list[float]
    v: list[float]

    @property
    def length(self):
        return len(self.r)

    def rho(self, t):
        """Product of ratios from 0 to t inclusive; an ended trajectory keeps its last; before the first, 1."""
        product = 1.0
        for j in range(min(t, self.length - 1) + 1):
            product *= self.ratio[j]
        return product

    def ret(self, gamma):
        return sum(gamma**t * self.r[t] for t in range(self.length))


def trajectories(e, counts=None):
    """Unpack evidence into a list; a trajectory that occurs twice stands there twice."""
    found = []
    for i in range(len(e)):
        rows = slice(e.offsets[i], e.offsets[i + 1])
        q = e.q[rows].tolist() if e.q is not None else []
        v = e.v[rows].tolist() if e.v is not None else []
        one = Logged(e.rewards[rows].tolist(), np.exp(e.log_ratio[rows]).tolist(), q, v)
        found += [one] * (1 if counts is None else int(counts[i]))
    return found


def divide(a, b):
    return a / b if b != 0 else float("nan")


def monte_carlo(xs, gamma):
    return sum(x.ret(gamma) for x in xs) / len(xs)


def ois(xs, gamma):
    return sum(x.rho(x.length - 1) * x.ret(gamma) for x in xs) / len(xs)


def step_is(xs, gamma):
    total = 0.0
    for x in xs:
        for t in range(x.length):
            total += gamma**t * x.rho(t) * x.r[t]
    return total / len(xs)


def wis(xs, gamma):
    return divide(
        sum(x.rho(x.length - 1) * x.ret(gamma) for x in xs),
        sum(x.rho(x.length - 1) for x in xs),
    )


def step_wis(xs, gamma):
    total = 0.0
    for x in xs:
        for t in range(x.length):
            total += gamma**t * divide(x.rho(t), sum(y.rho(t) for y in xs)) * x.r[t]
    return total


def dm(xs, gamma):
    return sum(x.v[0] for x in xs) / len(xs)


def dr(xs, gamma):
    """Jiang & Li's backward recursion."""
    total = 0.0
    for x in xs:
        value = 0.0
        for t in reversed(range(x.length)):
            value = x.v[t] + x.ratio[t] * (x.r[t] + gamma * value - x.q[t])
        total += value
    return total / len(xs)


def wdr(xs, gamma):
    n, total = len(xs), 0.0
    for x in xs:
        for t in range(x.length):
            w = divide(x.rho(t), sum(y.rho(t) for y in xs))
            before = 1 / n if t == 0 else divide(x.rho(t - 1), sum(y.rho(t - 1) for y in xs))
            total += gamma**t * w * x.r[t] - gamma**t * (w * x.q[t] - before * x.v[t])
    return total


def per_horizon(estimator, length_weights="behaviour"):
    def lifted(xs, gamma):
        total, kept = 0.0, 0.0
        for length in sorted({x.length for x in xs}):
            group = [x for x in xs if x.length == length]
            share = len(group) / len(xs)
            if length_weights == "evaluation":
                share = sum(x.rho(length - 1) for x in group) / sum(x.rho(x.length - 1) for x in xs)
            value = estimator(group, gamma)
            if value == value:  # a length without weight says nothing, and is left out
                total += share * value
                kept += share
        return divide(total, kept)

    return lifted


phis = per_horizon(ois)
phwis = per_horizon(wis)
step_phwis = per_horizon(step_wis)
phwdr = per_horizon(wdr)
