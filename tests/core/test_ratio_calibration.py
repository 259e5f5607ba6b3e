"""Isotonic ratio calibration: what it solves exactly, and that it never looks like evidence."""

import numpy as np
import pytest

import caliope as cal
from caliope.domains import ward
from caliope.weights import calibrate_ratios
from caliope.weights._calibrated import fit_isotonic_ratio


def loss(g, levels, scores, wanted, logged):
    """The sum of the formula, step by step."""
    total = 0.0
    for t in range(len(logged)):
        total += 0.5 * g[np.searchsorted(levels, logged[t])] ** 2
        for a in range(scores.shape[1]):
            cell = max(np.searchsorted(levels, scores[t, a], side="right") - 1, 0)
            total -= wanted[t, a] * g[cell]
    return total


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    acted, wanted = rng.dirichlet(np.ones(3), size=40), rng.dirichlet(np.ones(3), size=40)
    actions = np.array([rng.choice(3, p=p) for p in acted])
    scores = wanted / acted
    return scores, wanted, scores[np.arange(40), actions]


def test_no_increasing_function_does_better(problem):
    levels, g = fit_isotonic_ratio(*problem)
    assert (np.diff(g) >= 0).all()
    best = loss(g, levels, *problem)
    rng = np.random.default_rng(1)
    for _ in range(200):
        other = np.sort(np.maximum(g + 0.1 * rng.normal(size=len(g)), 0))
        assert loss(other, levels, *problem) >= best - 1e-9


def test_weights_have_mean_one_where_they_were_fitted(problem):
    # Each block has the wanted mass that falls into it, and all blocks together all of it: one a step.
    levels, g = fit_isotonic_ratio(*problem)
    assert g[np.searchsorted(levels, problem[2])].mean() == pytest.approx(1.0)


def test_it_is_pulled_towards_practice_and_never_trusted():
    data = ward.simulate(400, rng=0)
    target = cal.TabularPolicy(ward.AGGRESSIVE)
    # A model that is off by chance: its ratios are scores that say too much.
    noise = np.exp(0.7 * np.random.default_rng(0).normal(size=(data.n_steps, 3)))
    behaviour = ward.PRACTICE[data.states[:, 0].astype(int)] * noise
    behaviour /= behaviour.sum(axis=1, keepdims=True)
    raw = cal.gather(data, target, behaviour)
    calibrated = calibrate_ratios(data, target, behaviour, rng=0)
    row = cal.estimate(calibrated, cal.wis, n_draws=50, rng=0)[0]
    assert row.verdict == "do not trust"
    assert "W105" in {finding.code for finding in row.findings}
    assert cal.weights.effective_n(calibrated) > cal.weights.effective_n(raw)


def naive_ratios(data, wanted, acted, folds):
    """Cells by the exact quotient of two tables: a loop over steps and actions, then pooling neighbours that fall."""
    out = np.empty(data.n_steps)
    s = data.states[:, 0].astype(int)
    for fit, held_out in folds:
        levels = sorted({wanted[s[t], data.actions[t]] / acted[s[t], data.actions[t]] for t in fit})
        cell = lambda x, levels=levels: max(sum(level <= x for level in levels) - 1, 0)  # noqa: E731
        taken, mass = np.zeros(len(levels)), np.zeros(len(levels))
        for t in fit:
            taken[cell(wanted[s[t], data.actions[t]] / acted[s[t], data.actions[t]])] += 1
            for a in range(data.n_actions):
                mass[cell(wanted[s[t], a] / acted[s[t], a])] += wanted[s[t], a]
        blocks = []
        for j in range(len(levels)):
            blocks.append([mass[j], taken[j], 1])
            while len(blocks) > 1 and blocks[-2][0] * blocks[-1][1] >= blocks[-1][0] * blocks[-2][1]:
                last = blocks.pop()
                blocks[-1] = [x + y for x, y in zip(blocks[-1], last, strict=True)]
        g = [m / n for m, n, width in blocks for _ in range(width)]
        for t in held_out:
            out[t] = g[cell(wanted[s[t], data.actions[t]] / acted[s[t], data.actions[t]])]
    return out


@pytest.mark.parametrize("seed", range(6))
def test_ratios_of_tables_are_those_of_the_loop(seed):
    rng = np.random.default_rng(seed)
    acted, wanted = rng.dirichlet(3 * np.ones(3), size=3), rng.dirichlet(3 * np.ones(3), size=3)
    states = rng.integers(3, size=200)
    actions = np.array([rng.choice(3, p=acted[s]) for s in states])
    data = cal.Trajectories(states[:, None], actions, np.zeros(200), np.arange(0, 201, 2), n_actions=3)
    found = calibrate_ratios(data, cal.TabularPolicy(wanted), cal.TabularPolicy(acted), rng=1)
    expected = naive_ratios(data, wanted, acted, data.folds(2, rng=1))
    assert np.exp(found.log_ratio) == pytest.approx(expected)


def test_a_ratio_lies_in_its_own_cell_to_the_last_bit():
    # exp(log .1 - log .5) is not .1 / .5. The actions are as frequent as practice says, so nothing needs correction:
    # .1 / .5, .2 / .3 and .7 / .2, up to the share of each action in a fold of 1,500 (.5, .3 and .2, each +- .013).
    actions = np.random.default_rng(0).permutation(np.repeat([0, 1, 2], [1500, 900, 600]))
    data = cal.Trajectories(np.zeros((3000, 1)), actions, np.zeros(3000), np.arange(3001))
    tables = cal.TabularPolicy([[0.1, 0.2, 0.7]]), cal.TabularPolicy([[0.5, 0.3, 0.2]])
    ratios = np.exp(calibrate_ratios(data, *tables, rng=0).log_ratio)
    means = [ratios[actions == a].mean() for a in range(3)]
    assert means == pytest.approx([0.2, 2 / 3, 3.5], rel=0.05)


def test_practice_against_itself_stays_near_one():
    data = ward.simulate(400, rng=0)
    behaviour = cal.TabularPolicy(ward.PRACTICE)
    e = calibrate_ratios(data, behaviour, behaviour, rng=0)
    assert np.exp(e.log_ratio) == pytest.approx(np.ones(data.n_steps))


def test_logged_probabilities_alone_do_not_suffice():
    data = ward.simulate(20, rng=0)
    with pytest.raises(TypeError, match="needs the behaviour probabilities of all actions"):
        calibrate_ratios(data, cal.TabularPolicy(ward.EARLIER), data["behaviour"], rng=0)
