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


def normalised_under_way(xs, few):
    """Weights of every trajectory and step whose ratios are scaled so that those under way keep their weight."""
    horizon = max(x.length for x in xs)
    means, sizes = [], []
    for t in range(horizon):
        alive = [x for x in xs if x.length > t]
        means.append(divide(sum(x.rho(t) for x in alive), sum(x.rho(t - 1) for x in alive)))
        sizes.append(len(alive))
    late = [t for t in range(horizon) if sizes[t] < few and means[t] == means[t]]
    pooled = divide(sum(sizes[t] * means[t] for t in late), sum(sizes[t] for t in late))
    means = [pooled if sizes[t] < few and late else means[t] for t in range(horizon)]
    weights = []
    for x in xs:
        w, mine = 1.0, []
        for t in range(x.length):
            w *= x.ratio[t] / (means[t] if means[t] > 0 else 1.0)
            mine.append(w)
        weights.append(mine)
    return weights


def capped(xs, weights):
    """Weights of at most max(sqrt(n) / 3, 1) times the mean at their step, ended ones with their last."""
    n = len(xs)
    out = [list(mine) for mine in weights]
    for t in range(max(x.length for x in xs)):
        cap = sum(mine[min(t, len(mine) - 1)] for mine in weights) / n * max(n**0.5 / 3, 1.0)
        for mine in out:
            if t < len(mine):
                mine[t] = min(mine[t], cap)
    return out


def marginalised(xs, states, fold, few=50):
    """mu_t = m(s_t, t) lambda_t, with m the mean of w_{t-1} over the same state and t in the other folds."""
    n, horizon = len(xs), max(x.length for x in xs)
    w = capped(xs, normalised_under_way(xs, few))
    before = [[1.0, *mine[:-1]] for mine in w]
    y = [list(mine) for mine in before]
    for t in range(horizon):
        alive = [i for i in range(n) if xs[i].length > t]
        mean = sum(before[i][t] for i in alive) / len(alive)
        for i in alive:
            y[i][t] = before[i][t] / (mean if mean > 0 else 1.0)
    m, mu = [[1.0] * x.length for x in xs], [[0.0] * x.length for x in xs]
    for i in range(n):
        others = [(j, t) for j in range(n) if fold[j] != fold[i] for t in range(1, xs[j].length)]
        for t in range(1, xs[i].length):
            same = [y[j][t] for j, s in others if s == t and states[j][t] == states[i][t]]
            same = same or [y[j][s] for j, s in others]  # a state that was not seen: the mean of all
            m[i][t] = sum(same) / len(same) if same else 1.0
    wanted, has = [0.0] * horizon, [0.0] * horizon
    for t in range(horizon):
        alive = [i for i in range(n) if xs[i].length > t]
        scale = divide(sum(before[i][t] for i in alive), sum(m[i][t] for i in alive))
        for i in alive:
            m[i][t] *= scale
            mu[i][t] = m[i][t] * xs[i].ratio[t]
        wanted[t], has[t] = sum(m[i][t] for i in alive), sum(mu[i][t] for i in alive)
    late = [t for t in range(horizon) if sum(x.length > t for x in xs) < few]
    for i in range(n):
        for t in range(xs[i].length):
            pool = late if t in late else [t]
            mu[i][t] *= sum(wanted[s] for s in pool) / sum(has[s] for s in pool)
            mu[i][t] = min(mu[i][t], max(n**0.5 / 3, 1.0))
    return mu


def imbalance(e):
    """The bias of ratios that do not average to 1: at each step, missing weight times the error of the values."""
    total = 0.0
    for t in range(max(e.layout.lengths)):
        after, before, errors = [], [], []
        for i in range(len(e)):
            first, end = e.offsets[i], e.offsets[i + 1]
            j = first + t
            if j >= end:
                continue
            following = e.v[j + 1] if j + 1 < end else 0.0
            errors.append(e.rewards[j] + e.gamma * following - e.q[j])
            after.append(np.exp(e.log_weight[j]))
            if e.log_ratio[j] > -np.inf:
                before.append(after[-1] / np.exp(e.log_ratio[j]))
        if not sum(before) > 0:
            continue
        missing = (sum(after) - len(after) * sum(before) / len(before)) / len(e)
        total += e.gamma**t * abs(missing) * np.sqrt(sum(x**2 for x in errors) / len(errors))
    return total
