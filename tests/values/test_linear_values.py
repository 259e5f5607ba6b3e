"""Closed-form values and marginalised weights, MRDR and MAGIC."""

import numpy as np
import pytest
from scipy import optimize, stats

import caliope as cal
from caliope.domains import ward
from caliope.domains.tabular import (
    MODEL_FAIL,
    MODEL_FAIL_LOGGED,
    MODEL_FAIL_TARGET,
    MODEL_WIN,
    MODEL_WIN_LOGGED,
    MODEL_WIN_TARGET,
    hide_states,
)
from caliope.estimators import _minimise_on_simplex, blend, magic, partial_estimates
from caliope.values import TabularRegressor, fitted_q, fitted_q_by_time
from caliope.values._linear import linear_value, more_robust_q
from caliope.values._marginal import marginalised_is


def one_hot(n):
    return lambda states: np.eye(n)[states[:, 0].astype(int)]


# -- LSTD-Q and the weights --


@pytest.mark.parametrize("seed", range(5))
def test_weights_and_values_give_the_same_estimate(seed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 6, size=80)
    steps = int(lengths.sum())
    data = cal.Trajectories(
        rng.normal(size=(steps, 3)),
        rng.integers(0, 2, size=steps),
        rng.normal(size=steps),
        np.concatenate([[0], np.cumsum(lengths)]),
        n_actions=2,
        terminated=rng.random(80) < 0.7,
    )
    target = rng.dirichlet(np.ones(2), size=steps)
    found = linear_value(data, target, gamma=0.9)
    assert found.value_by_weights == pytest.approx(found.value, abs=1e-10)


@pytest.mark.slow
def test_linear_values_of_one_hot_states_are_the_tabular_ones():
    data = ward.simulate(500, rng=0)
    target = cal.TabularPolicy(ward.EARLIER)
    found = linear_value(data, target, gamma=0.9, features=one_hot(5))
    fit = fitted_q(data, target, TabularRegressor(), gamma=0.9, n_iterations=300)
    assert found.value == pytest.approx(fit.trace[-1].value, abs=1e-8)
    assert found.values.on(data) == pytest.approx(fit.on(data), abs=1e-8)


def test_the_linear_solution_is_that_of_a_loop():
    data = ward.simulate(40, rng=1)
    proba = cal.TabularPolicy(ward.EARLIER).predict_proba(data.states)
    a, b, first = np.zeros((6, 6)), np.zeros(6), np.zeros(6)

    def phi(row, actions):
        x = np.array([1.0, data.states[row, 0]])
        return np.concatenate([p * x for p in actions])

    for i in range(len(data)):
        for row in range(data.offsets[i], data.offsets[i + 1]):
            here = phi(row, np.eye(3)[data.actions[row]])
            after = np.zeros(6) if row + 1 == data.offsets[i + 1] else phi(row + 1, proba[row + 1])
            a += np.outer(here, here - 0.8 * after)
            b += here * data.rewards[row]
        first += phi(data.offsets[i], proba[data.offsets[i]]) / len(data)
    assert linear_value(data, proba, gamma=0.8).value == pytest.approx(first @ np.linalg.solve(a, b))


@pytest.mark.slow
def test_the_linear_interval_covers():
    target, truth = cal.TabularPolicy(MODEL_WIN_TARGET), None
    # Stationary values of an endless ModelWin with gamma 0.9, by solving V = r + gamma P V.
    p = np.einsum("sa,sat->st", MODEL_WIN_TARGET, MODEL_WIN.transitions)
    r = np.einsum("sa,sat,sat->s", MODEL_WIN_TARGET, MODEL_WIN.transitions, MODEL_WIN.rewards)
    truth = np.linalg.solve(np.eye(3) - 0.9 * p, r)[0]
    covered, values, widths = 0, [], []
    for seed in np.random.SeedSequence(0).spawn(200):
        log = MODEL_WIN.simulate(MODEL_WIN_LOGGED, 60, rng=np.random.default_rng(seed))
        # The log stops after 20 steps, the process does not: cut off, not ended.
        data = cal.Trajectories(
            log.states, log.actions, log.rewards, log.offsets, terminated=np.zeros(60, dtype=bool)
        )
        found = linear_value(data, target, gamma=0.9, features=one_hot(3))
        covered += truth in found.interval
        values.append(found.value)
        widths.append(found.interval.width)
    assert covered / 200 >= 0.90  # 0.95 less three standard errors of 0.015
    # Nor too wide: of 60 trajectories 2 t = 4.00 standard deviations, which 200 logs tell to 5% (1 / sqrt(2 * 199)).
    assert np.mean(widths) == pytest.approx(2 * stats.t.ppf(0.975, 59) * np.std(values, ddof=1), rel=0.15)


def test_features_that_repeat_each_other_are_reported():
    data = ward.simulate(50, rng=0)
    doubled = linear_value(
        data,
        cal.TabularPolicy(ward.EARLIER),
        gamma=0.9,
        features=lambda s: np.concatenate([one_hot(5)(s), one_hot(5)(s)], axis=1),
    )
    assert [f.code for f in doubled.interval.findings] == ["V101", "V105"]  # and the ward has a cap
    single = linear_value(data, cal.TabularPolicy(ward.EARLIER), gamma=0.9, features=one_hot(5))
    assert doubled.value == pytest.approx(single.value)
    assert [f.code for f in single.interval.findings] == ["V105"]


@pytest.mark.parametrize("c", [1e-6, 1e7])
def test_linear_values_do_not_depend_on_the_units_of_the_features(c):
    data = ward.simulate(200, rng=0)
    target = cal.TabularPolicy(ward.EARLIER)
    plain = linear_value(data, target, gamma=0.9)
    other = linear_value(
        data, target, gamma=0.9, features=lambda s: np.column_stack([np.ones(len(s)), c * s])
    )
    assert other.value == pytest.approx(plain.value, rel=1e-6)
    assert other.values.on(data) == pytest.approx(plain.values.on(data), rel=1e-6)
    assert other.condition == pytest.approx(plain.condition, rel=1e-6)


def test_a_cap_on_the_length_is_suspected():
    # Lengths 1 and 2: of ten trajectories one ends at the longest (10%, not above), then two, then two cut off.
    for long, ended, codes in ((1, True, []), (2, True, ["V105"]), (2, False, [])):
        lengths = np.array([1] * (10 - long) + [2] * long)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        terminated = (lengths == 1) | ended
        data = cal.Trajectories(
            np.zeros(offsets[-1]),
            np.zeros(offsets[-1], int),
            np.ones(offsets[-1]),
            offsets,
            terminated=terminated,
        )
        found = linear_value(data, cal.UniformPolicy(1), gamma=0.5, features=lambda s: np.ones((len(s), 1)))
        assert [f.code for f in found.interval.findings] == codes


def test_linear_values_refuse_what_they_cannot_use():
    data, target = ward.simulate(20, rng=0), cal.TabularPolicy(ward.EARLIER)
    with pytest.raises(ValueError, match="level must lie between 0 and 1"):
        linear_value(data, target, gamma=0.9, level=95)
    with pytest.raises(ValueError, match="at least 2 trajectories, got 1"):
        linear_value(data[0], target, gamma=0.9)
    with pytest.raises(ValueError, match="one row for each of the"):
        linear_value(data, target, gamma=0.9, features=lambda s: s[:, 0])
    with pytest.raises(ValueError, match="NaN or infinite"):
        linear_value(data, target, gamma=0.9, features=lambda s: s * np.nan)
    values = linear_value(data, target, gamma=0.9).values
    with pytest.raises(ValueError, match=r"gamma = 0\.9"):
        cal.gather(data, target, data["behaviour"], gamma=1.0, q=values)


# -- marginalised importance sampling --


def test_marginalised_is_of_the_logged_policy_is_the_mean_return():
    data = ward.simulate(200, rng=0)
    practice = cal.TabularPolicy(ward.PRACTICE)
    assert marginalised_is(data, practice, practice, gamma=0.9) == pytest.approx(data.returns(0.9).mean())


def test_marginalised_is_is_its_recursion():
    data = ward.simulate(150, rng=2)
    ratio = (ward.EARLIER / ward.PRACTICE)[data.states[:, 0].astype(int), data.actions]
    d = np.bincount(data.states[data.layout.first, 0].astype(int), minlength=5) / 150
    value = 0.0
    for t in range(12):
        p, r = np.zeros((5, 5)), np.zeros(5)
        for s in range(5):
            rows = np.flatnonzero((data.layout.time == t) & (data.states[:, 0] == s))
            for row in rows:
                r[s] += ratio[row] * data.rewards[row] / len(rows)
                if (
                    data.layout.owner[row] == data.layout.owner[min(row + 1, data.n_steps - 1)]
                    and row + 1 < data.n_steps
                ):
                    p[s, int(data.states[row + 1, 0])] += ratio[row] / len(rows)
        value += 0.9**t * d @ r
        d = d @ p
    found = marginalised_is(data, cal.TabularPolicy(ward.EARLIER), data["behaviour"], gamma=0.9)
    assert found == pytest.approx(value)


def test_marginalised_is_leaves_out_what_was_cut_off():
    # One state, one action. Rewards 1, 3 (ended) and 1, 9 (cut off): step 0 gives 1, and step 1 is known once: 3.
    data = cal.Trajectories(np.zeros(4), np.zeros(4, int), [1, 3, 1, 9], [0, 2, 4], terminated=[True, False])
    one = cal.UniformPolicy(1)
    assert marginalised_is(data, one, one, gamma=0.5) == pytest.approx(1 + 0.5 * 3)


def test_states_may_be_numbered_by_hand():
    data, target = ward.simulate(50, rng=0), cal.TabularPolicy(ward.EARLIER)
    numbers = (7 * data.states[:, 0].astype(int) - 3).tolist()
    found = marginalised_is(data, target, data["behaviour"], gamma=0.9, state_of=numbers)
    assert found == pytest.approx(marginalised_is(data, target, data["behaviour"], gamma=0.9))
    for wrong in (numbers[1:], data.states[:, 0] + 0.5):
        with pytest.raises(ValueError, match="state_of must hold one whole number"):
            marginalised_is(data, target, data["behaviour"], gamma=0.9, state_of=wrong)


@pytest.mark.slow
def test_marginalised_is_beats_whole_trajectories_on_a_long_horizon():
    # Twenty steps of ModelWin: weights of whole trajectories are hopeless, states are only three.
    errors = {"marginal": [], "wis": []}
    for seed in np.random.SeedSequence(1).spawn(40):
        data = MODEL_WIN.simulate(MODEL_WIN_LOGGED, 200, rng=np.random.default_rng(seed))
        target = cal.TabularPolicy(MODEL_WIN_TARGET)
        errors["marginal"].append(marginalised_is(data, target, data["behaviour"], gamma=1.0) - 0.92)
        errors["wis"].append(cal.wis(cal.gather(data, target, data["behaviour"])) - 0.92)
    rmse = {name: np.sqrt(np.mean(np.square(x))) for name, x in errors.items()}
    assert rmse["marginal"] < 0.5 * rmse["wis"]


# -- MRDR --


@pytest.mark.slow
def test_mrdr_minimises_the_variance_of_the_doubly_robust_estimate():
    """One decision: no linear values of the same features give the estimate a smaller variance."""
    rng = np.random.default_rng(0)
    n = 20_000
    x = rng.normal(size=(n, 1))
    logged = np.stack([1 / (1 + np.exp(x[:, 0])), 1 / (1 + np.exp(-x[:, 0]))], axis=1)
    actions = (rng.random(n) < logged[:, 1]).astype(int)
    rewards = np.sin(2 * x[:, 0]) + actions * x[:, 0] ** 2 + rng.normal(size=n)  # not linear in x
    data = cal.Trajectories(x, actions, rewards, np.arange(n + 1))
    target = np.tile([0.3, 0.7], (n, 1))
    chosen = more_robust_q(data, target, logged, gamma=1.0)
    fitted = linear_value(data, target, gamma=1.0).values  # least squares with the same features

    def spread(coefficients):
        q = np.concatenate([np.ones((n, 1)), x], axis=1) @ coefficients.T
        e = cal.gather(data, target, logged, q=q)
        return cal.uncertainty.delta_method(cal.dr, e).width

    best = spread(chosen.coefficients)
    assert best < 0.6 * spread(fitted.coefficients)
    for _ in range(20):
        # What is minimised is an unbiased estimate of the variance, not this sample's: allow for its noise.
        assert best < 1.01 * spread(chosen.coefficients + rng.normal(scale=0.3, size=(2, 2)))


@pytest.mark.parametrize("domain", ["ModelWin", "ModelFail"])
def test_mrdr_values_leave_the_doubly_robust_estimate_where_it_should_be(domain):
    mdp, logged, target, features, truth = {
        "ModelWin": (MODEL_WIN, MODEL_WIN_LOGGED, MODEL_WIN_TARGET, one_hot(3), 0.92),
        "ModelFail": (
            MODEL_FAIL,
            MODEL_FAIL_LOGGED,
            MODEL_FAIL_TARGET,
            lambda s: np.ones((len(s), 1)),
            -0.76,
        ),
    }[domain]
    data = mdp.simulate(logged, 3000, rng=0)
    if domain == "ModelFail":
        data = hide_states(data)
    policy = np.tile(target[0], (data.n_steps, 1))
    behaviour = np.tile(logged[0], (data.n_steps, 1))
    q = more_robust_q(data, policy, behaviour, gamma=1.0, features=features)
    interval = cal.uncertainty.delta_method(cal.dr, cal.gather(data, policy, behaviour, q=q), level=0.999)
    assert truth in interval


def test_mrdr_moves_only_where_the_doubly_robust_estimate_feels_it():
    """Adding c(s) pi_b / pi_e to Q changes no DR term: along it the values stay those of LSTD-Q."""
    data = ward.simulate(300, rng=0)
    pi_e, pi_b = np.tile([0.2, 0.3, 0.5], (data.n_steps, 1)), np.tile([0.5, 0.25, 0.25], (data.n_steps, 1))
    found = more_robust_q(data, pi_e, pi_b, gamma=0.9, features=one_hot(5)).coefficients
    start = linear_value(data, pi_e, gamma=0.9, features=one_hot(5)).values.coefficients
    free = pi_b[0] / pi_e[0]
    moved = (found - start).T  # (5, 3): for each state, by action
    assert np.abs(moved).max() > 0.01
    assert moved @ free == pytest.approx(0, abs=1e-8)


def test_mrdr_survives_a_long_horizon():
    # One state, 800 steps: 0.9 / 0.2 = 4.5 to the 800th power is 1e522, and no float.
    n, steps = 3, 800
    rng = np.random.default_rng(0)
    actions = np.concatenate([np.zeros(steps, int), rng.integers(0, 2, size=(n - 1) * steps)])
    data = cal.Trajectories(np.zeros(n * steps), actions, np.ones(n * steps), steps * np.arange(n + 1))
    pi_e, pi_b = np.tile([0.9, 0.1], (n * steps, 1)), np.tile([0.2, 0.8], (n * steps, 1))
    found = more_robust_q(data, pi_e, pi_b, gamma=0.9, features=lambda s: np.ones((len(s), 1)))
    assert np.isfinite(found.coefficients).all()


def test_mrdr_asks_for_the_probabilities_of_all_actions():
    data = ward.simulate(20, rng=0)
    with pytest.raises(ValueError, match="behaviour must give the probabilities of all actions"):
        more_robust_q(data, cal.TabularPolicy(ward.EARLIER), data["behaviour"], gamma=0.9)


# -- MAGIC --


@pytest.fixture(scope="module")
def win():
    data = MODEL_WIN.simulate(MODEL_WIN_LOGGED, 300, rng=1)
    q = fitted_q_by_time(data, cal.TabularPolicy(MODEL_WIN_TARGET), TabularRegressor(), gamma=1.0)
    return cal.gather(data, cal.TabularPolicy(MODEL_WIN_TARGET), data["behaviour"], q=q)


def test_the_ends_of_magic_are_the_direct_method_and_wdr(win):
    assert blend(win, np.array([-1])) == pytest.approx(cal.dm(win), rel=1e-12)
    assert blend(win, np.array([win.layout.horizon - 1])) == pytest.approx(cal.wdr(win), rel=1e-12)
    g = partial_estimates(win)
    assert (g[0], g[-1]) == pytest.approx((cal.dm(win), cal.wdr(win)))


def test_a_partial_estimate_follows_the_log_and_then_the_values():
    # Two steps, ratios 2 and 1/2 in one trajectory, 1 and 1 in the other; gamma = 1/2.
    e = cal.Evidence([1, 3, 0, 2], np.log([2, 0.5, 1, 1]), [0, 2, 4], 0.5, q=[1, 2, 1, 1], v=[1, 4, 3, 2])
    # g(0): t = 0: [2 (1 - 1) + 1 (0 - 1)] / 3 + (1 + 3) / 2, then half of (2 * 4 + 1 * 2) / 3.
    assert partial_estimates(e)[1] == pytest.approx(-1 / 3 + 2 + 0.5 * 10 / 3)


def magic_by_hand(e, h=1e-6):
    """The blend by finite differences, and a search over all mixtures by another method."""
    g, base = partial_estimates(e), np.ones(len(e))
    u = []
    for i in range(len(e)):
        step = h * (np.arange(len(e)) == i)
        above, below = (partial_estimates(e.with_counts(base + s)) for s in (step, -step))
        u.append((above - below) / (2 * h))
    u = np.array(u)
    arm = stats.norm.ppf(0.75) * np.sqrt((u[:, -1] ** 2).sum())
    bias = np.array([np.sign(x) * max(abs(x) - arm, 0.0) for x in g - g[-1]])
    matrix = u.T @ u + np.outer(bias, bias)
    scale = np.trace(matrix)
    found = optimize.minimize(
        lambda x: x @ matrix @ x / scale, np.full(len(g), 1 / len(g)), method="SLSQP",
        bounds=[(0, 1)] * len(g), constraints={"type": "eq", "fun": lambda x: x.sum() - 1}, options={"ftol": 1e-14},
    )  # fmt: skip
    return float(found.x @ g), bias


@pytest.mark.parametrize(("off", "biased"), [(0.0, False), (1.0, True), (-1.0, True)])
def test_magic_is_the_mixture_with_the_least_error(off, biased):
    """Values that are off by 1 lie beyond the interval around wdr, and lose their weight in the mixture."""
    rng = np.random.default_rng(4)
    n = 60
    log_ratio, q = rng.normal(0, 0.4, 2 * n), rng.normal(size=2 * n) + off
    v, rewards = q + rng.normal(0, 0.2, 2 * n), q - off + rng.normal(0, 0.5, 2 * n)
    e = cal.Evidence(rewards, log_ratio, 2 * np.arange(n + 1), 0.9, q=q, v=v)
    expected, bias = magic_by_hand(e)
    assert bias.any() == biased
    assert magic(e) == pytest.approx(expected, abs=1e-5)


def test_magic_without_a_weight_is_undefined():
    e = cal.Evidence([1.0, 1.0], [-np.inf, -np.inf], [0, 1, 2], q=[0.5, 0.5], v=[0.5, 0.5])
    assert np.isnan(magic(e))


def test_magic_is_a_mixture_of_its_parts(win):
    g = partial_estimates(win)
    assert g.min() <= magic(win) <= g.max()


@pytest.mark.slow
def test_magic_leans_on_the_model_where_it_wins_and_on_the_weights_where_it_fails(win):
    # ModelWin: the values are right, and weights of 20 steps are noise.
    errors = {"magic": [], "wdr": [], "dm": []}
    for seed in np.random.SeedSequence(3).spawn(30):
        data = MODEL_WIN.simulate(MODEL_WIN_LOGGED, 100, rng=np.random.default_rng(seed))
        target = cal.TabularPolicy(MODEL_WIN_TARGET)
        q = fitted_q_by_time(data, target, TabularRegressor(), gamma=1.0)
        e = cal.gather(data, target, data["behaviour"], q=q)
        for name, f in (("magic", magic), ("wdr", cal.wdr), ("dm", cal.dm)):
            errors[name].append(f(e) - 0.92)
    rmse = {name: np.sqrt(np.mean(np.square(x))) for name, x in errors.items()}
    assert rmse["magic"] < rmse["wdr"]
    # ModelFail: the values are blind.
    data = hide_states(MODEL_FAIL.simulate(MODEL_FAIL_LOGGED, 2000, rng=0))
    target = np.tile([0.12, 0.88], (data.n_steps, 1))
    q = fitted_q_by_time(data, target, TabularRegressor(), gamma=1.0)
    e = cal.gather(data, target, data["behaviour"], q=q)
    assert abs(magic(e) + 0.76) < 0.2
    assert abs(cal.dm(e) + 0.76) > 1


def test_magic_can_be_resampled(win):
    counts = cal.uncertainty.with_replacement(len(win), len(win), 3, np.random.default_rng(0))
    drawn = cal.uncertainty.draws(magic, win, n_draws=3, rng=0)
    copies = [magic(win.take(np.repeat(np.arange(len(win)), row.astype(int)))) for row in counts]
    assert drawn == pytest.approx(copies, rel=1e-6)
    with pytest.raises(TypeError, match="use the bootstrap"):
        cal.uncertainty.influence(magic, win)


def test_the_minimum_over_the_simplex_is_found():
    # x' diag(1, 3) x with x1 + x2 = 1: x = (3/4, 1/4).
    assert _minimise_on_simplex(np.diag([1.0, 3.0])) == pytest.approx([0.75, 0.25], abs=1e-6)
    # A second coordinate that only adds is left out: [[1, 2], [2, 5]] -> (1, 0).
    assert _minimise_on_simplex(np.array([[1.0, 2.0], [2.0, 5.0]])) == pytest.approx([1.0, 0.0], abs=1e-6)


def test_the_minimum_over_the_simplex_does_not_mind_scales():
    # x' diag(d) x with sum 1: x is proportional to 1 / d, so that 1 / d over 12 decades is its own answer.
    d = 10.0 ** np.arange(-6, 6)
    assert _minimise_on_simplex(np.diag(d)) == pytest.approx((1 / d) / (1 / d).sum(), rel=1e-9)
    # Two estimates without any error share the weight.
    assert _minimise_on_simplex(np.diag([0.0, 2.0, 0.0])).tolist() == [0.5, 0.0, 0.5]
    # 200 estimates that are nearly one: no giving up, and no point of a fine sample does better.
    rng = np.random.default_rng(0)
    u = rng.normal(size=(50, 1)) * 10.0 ** rng.uniform(-3, 3, size=200) + 1e-6 * rng.normal(size=(50, 200))
    x = _minimise_on_simplex(u.T @ u)
    assert (x >= 0).all()
    assert x.sum() == pytest.approx(1)
    assert ((u @ x) ** 2).sum() <= (u**2).sum(axis=0).min() * (1 + 1e-9)
