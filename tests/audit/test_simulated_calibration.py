"""Simulation-based calibration (Talts et al. 2018, as Stan tests itself): logs are drawn, and the truth takes its rank.

Three small processes: a bandit, the ward, and a process whose policy decides how long trajectories last. Where draws
are right, the rank of the truth among them is uniform; where a model is right, a test at level p finds fault with it in
a share p of the logs. Seeds are fixed, and every limit is a quantile of what chance gives, so that a right package
fails once in a thousand choices of seeds.
"""

from collections import Counter

import numpy as np
import pytest
from scipy import special, stats

import caliope as cal
from caliope._audit import audit
from caliope._audit._placebo import run_placebo
from caliope.behaviour import TabularFrequencies
from caliope.checks._log import behaviour_findings
from caliope.domains import ward
from caliope.domains.tabular import TabularMDP
from caliope.uncertainty import draws
from caliope.values import TabularRegressor
from conftest import LENGTHY_B, LENGTHY_E

N, RARE = 200, 1e-3
BANDIT = TabularMDP(
    [0.5, 0.3, 0.2],
    np.full((3, 2, 3), 1 / 3),  # never used: there is one decision
    rewards=[[1.0, 0.3], [0.2, 0.6], [0.0, 1.0]],
    absorbing=[False, False, False],
    horizon=1,
)
BANDIT_B, BANDIT_E = ([[0.6, 0.4], [0.5, 0.5], [0.3, 0.7]], [[0.4, 0.6], [0.7, 0.3], [0.5, 0.5]])
NAMES = ["bandit", "ward", "lengths"]


@pytest.fixture(scope="module")
def processes(lengthy):
    """Process, current practice, the new policy."""
    near = 0.5 * LENGTHY_B + 0.5 * LENGTHY_E
    return {
        "bandit": (BANDIT, np.array(BANDIT_B), np.array(BANDIT_E)),
        "ward": (ward.WARD, ward.PRACTICE, ward.EARLIER),
        "lengths": (lengthy, LENGTHY_B, near),
    }


def logs(process, count, seed, n=N):
    mdp, practice, _ = process
    for child in np.random.SeedSequence(seed).spawn(count):
        rng = np.random.default_rng(child)
        yield mdp.simulate(practice, n, rng=rng), rng


def at_most(p, times):
    """How often something of chance p happens in so many logs; more often in one of a thousand."""
    return stats.binom.isf(RARE, times, p)


def p_of_uniform(ranks, n_draws, bins=10):
    """P-value of the chi-square test that ranks from 0 to n_draws are uniform."""
    return stats.chisquare(np.bincount(ranks * bins // (n_draws + 1), minlength=bins)).pvalue


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_truth_has_any_rank_among_resamples(name, processes):
    mdp, _, target = processes[name]
    truth, n_draws, ranks, narrow = mdp.value(target), 99, [], []
    for data, rng in logs(processes[name], 300, seed=1):
        e = cal.gather(data, cal.TabularPolicy(target), data["behaviour"])
        drawn = draws(cal.wis, e, n_draws=n_draws, rng=rng)
        ranks.append((drawn < truth).sum())
        narrow.append((cal.wis(e) + 0.7 * (drawn - cal.wis(e)) < truth).sum())
    assert p_of_uniform(np.array(ranks), n_draws) > RARE
    # The test has the power to see draws that spread by 0.7 of what they should.
    assert p_of_uniform(np.array(narrow), n_draws) < RARE


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_known_probabilities_are_called_wrong_as_often_as_chance_has_it(name, processes):
    """D102 from 2.5 standard errors of the mean weight on."""
    _, _, target = processes[name]
    level, times, codes = 2 * special.ndtr(-2.5), 400, Counter()
    for data, _ in logs(processes[name], times, seed=2):
        e = cal.gather(data, cal.TabularPolicy(target), data["behaviour"])
        codes.update(f.code for f in cal.estimate(e, cal.wis, n_draws=2, rng=0)["wis"].findings)
    assert codes["D102"] <= at_most(level, times)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_right_model_is_contradicted_as_often_as_chance_has_it(name, processes):
    """B104, B105, B107, B108 on the probabilities of which decisions were drawn, and on three times the odds of one."""
    _, practice, _ = processes[name]
    times, right, wrong = 200, Counter(), 0
    for data, _ in logs(processes[name], times, seed=3):
        proba = practice[data.states[:, 0].astype(int)]
        rows = np.arange(data.n_steps)
        right.update(f.code for f in behaviour_findings(data, rows, proba))
        odds = proba * np.eye(proba.shape[1])[0] * 2 + proba
        wrong += bool(behaviour_findings(data, rows, odds / odds.sum(axis=1, keepdims=True)))
    assert all(found <= at_most(RARE, times) for found in right.values())
    assert wrong > 0.9 * times


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_negative_control_misses_the_right_model_as_often_as_chance_has_it(name, processes):
    """Its interval is simultaneous: of a policy that it picked as the worst of several, at most one in a hundred."""
    _, practice, _ = processes[name]
    times, p, missed = 60, [], 0
    for data, _ in logs(processes[name], times, seed=4):
        control = run_placebo(data, cal.TabularPolicy(practice), gamma=1.0, rng=0)
        p.append(min(1.0, control.tests * 2 * special.ndtr(-abs(control.z))))
        missed += 0.0 not in control.error
    assert missed <= at_most(0.01, times)
    assert (np.array(p) < 0.2).sum() <= at_most(0.2, times)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_whole_audits_are_off_by_no_more_than_they_say(name, processes):
    """Errors in standard errors of the headline: their squares are at most chi-square, and their signs a coin."""
    mdp, practice, target = processes[name]
    truth, times, errors, blamed = mdp.value(0.5 * (practice + target)), 10, [], Counter()
    for data, _ in logs(processes[name], times, seed=5):
        found = audit(
            data,
            cal.TabularPolicy(0.5 * (practice + target)),
            {"table": TabularFrequencies(shrinkage="cv")},
            regressor=TabularRegressor(),
            n_draws=99,
            rng=0,
        )
        low, high = found.headline.interval.low, found.headline.interval.high
        errors.append((truth - found.headline.value) / ((high - low) / (2 * special.ndtri(0.975))))
        blamed.update(f.code for f in found.findings if f.level == "issue")
    assert (np.array(errors) ** 2).sum() <= stats.chi2.isf(RARE, times)
    assert 0 < sum(error > 0 for error in errors) < times
    assert all(blamed[code] <= at_most(0.01, times) for code in ("B104", "B105", "P101", "D102", "L101"))
