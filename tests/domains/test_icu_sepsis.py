import numpy as np
import pytest

from caliope.domains import _sepsis_process, icu_sepsis
from caliope.domains.tabular import TabularMDP

WIDTH = 43  # features of the 47 that are not doses


@pytest.fixture(scope="module", autouse=True)
def sepsis():
    try:
        return icu_sepsis.load()
    except ModuleNotFoundError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def log():
    return icu_sepsis.simulate(2000, rng=0)


@pytest.fixture(scope="module")
def centres(sepsis):
    return sepsis.centres[:, [icu_sepsis.FEATURES.index(name) for name in icu_sepsis.OBSERVED]]


def without_vasopressors(expert):
    kept = expert * (np.arange(25) % 5 == 0)
    never = kept.sum(axis=1, keepdims=True) == 0  # one state, where the clinicians always give some
    return np.where(never, expert, kept / np.where(never, 1, kept.sum(axis=1, keepdims=True)))


def test_the_value_of_the_clinicians_is_that_of_the_prototype(sepsis):
    # Found by dynamic programming in independent code: +-15, discount .99, 20 steps.
    assert icu_sepsis.value(gamma=0.99) == pytest.approx(7.873, abs=5e-4)
    half = (sepsis.expert + without_vasopressors(sepsis.expert)) / 2
    assert icu_sepsis.value(half, gamma=0.99) == pytest.approx(7.929, abs=5e-4)


# Found by dynamic programming in independent code, rounded to three digits: +-15, discount .99, 20 steps.
EXACT = {
    "clinicians": 7.873,
    "half without vasopressors": 7.929,
    "a fifth optimal": 8.261,
    "half optimal": 8.851,
    "nine tenths optimal": 9.664,
}


@pytest.mark.slow
def test_the_values_of_the_evaluation_policies_are_those_of_the_prototype():
    policies = icu_sepsis.evaluation_policies()
    assert list(policies) == list(EXACT)
    for name, policy in policies.items():
        assert icu_sepsis.value(policy, gamma=0.99) == pytest.approx(EXACT[name], abs=5e-4)


def test_the_evaluation_policies_are_mixtures_in_the_shares_they_are_called_by(sepsis):
    tables = list(icu_sepsis.evaluation_policies().values())
    far = [0.5 * np.abs(table - sepsis.expert).sum(axis=1) for table in tables]
    assert not far[0].any()
    # The distance from the clinicians is linear in the share of the other policy.
    other = [icu_sepsis.without_vasopressors(), *[icu_sepsis.optimal()] * 3]
    for share, target, found in zip([0.5, 0.2, 0.5, 0.9], other, far[1:], strict=True):
        assert found == pytest.approx(share * 0.5 * np.abs(target - sepsis.expert).sum(axis=1), abs=1e-12)


def test_the_mean_squared_weight_of_the_evaluation_policies(sepsis):
    # E[rho^2] to a cap of 20 by dynamic programming: one over it is the share of the effective sample in the limit.
    limit = []
    for table in icu_sepsis.evaluation_policies().values():
        squared = np.divide(table**2, sepsis.expert, out=np.zeros_like(table), where=sepsis.expert > 0)
        step, m = np.einsum("sa,sau->su", squared, sepsis.process.transitions), np.ones(716)
        for _ in range(20):
            m = step @ np.where(sepsis.process.absorbing, 1.0, m)
        limit.append(1 / (sepsis.process.initial @ m))
    assert limit == pytest.approx([1, 9.5e-9, 0.0677, 2.8e-10, 3.8e-19], rel=0.02)


def test_without_vasopressors_is_the_clinicians_given_that(sepsis):
    assert np.allclose(icu_sepsis.without_vasopressors(), without_vasopressors(sepsis.expert), atol=1e-15)


@pytest.mark.slow
@pytest.mark.parametrize("least", [0.0, 0.05])
def test_no_single_change_improves_the_optimal_policy(sepsis, least):
    best = icu_sepsis.optimal(least=least)
    allowed = sepsis.expert >= least
    assert allowed[:713][best[:713] == 1].all()
    # Bellman's equation in plain value iteration: rewards +-15 on arrival, discount .99.
    ends, v = np.zeros(716), np.zeros(716)
    ends[[icu_sepsis.DEATH, icu_sepsis.SURVIVAL]] = -15, 15
    p = np.einsum("sa,sau->su", best, sepsis.process.transitions)
    for _ in range(1500):
        v = p @ np.where(sepsis.process.absorbing, ends, 0.99 * v)
    q = sepsis.process.transitions @ np.where(sepsis.process.absorbing, ends, 0.99 * v)
    assert np.where(allowed, q, -np.inf)[:713].max(axis=1) == pytest.approx(v[:713], abs=1e-7)


@pytest.mark.slow
def test_the_best_of_all_policies_is_the_published_one(sepsis):
    # Published 0.88 and 10.99 steps; exact by dynamic programming.
    best = icu_sepsis.optimal(gamma=1.0, least=0.0)
    assert sepsis.process.value(best) == pytest.approx(0.875142, abs=5e-7)
    w = sepsis.process
    clock = TabularMDP(w.initial, w.transitions, np.ones((716, 25)), w.absorbing, w.horizon)
    assert clock.value(best) == pytest.approx(10.9917, abs=5e-5)


def test_an_optimum_among_no_actions_is_refused():
    with pytest.raises(ValueError, match="an action in every state"):
        icu_sepsis.optimal(least=0.9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gamma", "clinicians", "uniform"), [(1.0, 0.781845, 0.780071), (0.99, 0.722158, 0.719095)]
)
def test_without_a_cap_values_are_those_of_the_process(gamma, clinicians, uniform):
    options = {"gamma": gamma, "cap": None, "outcome": (0.0, 1.0)}
    assert icu_sepsis.value(**options) == pytest.approx(clinicians, abs=5e-7)
    assert icu_sepsis.value(np.full((716, 25), 1 / 25), **options) == pytest.approx(uniform, abs=5e-7)


@pytest.mark.parametrize("cap", [1, 7, 20, None])
def test_undiscounted_the_cap_does_not_change_what_the_clinicians_reach(cap):
    # They go on after the cap, so that survival is the same: 15 * (2 * 0.781845 - 1) = 8.4553.
    assert icu_sepsis.value(gamma=1.0, cap=cap) == pytest.approx(8.4553, abs=5e-5)


@pytest.mark.slow
@pytest.mark.parametrize("cap", [4, 20, None])
def test_simulated_returns_agree_with_the_exact_value(sepsis, cap):
    policy = without_vasopressors(sepsis.expert)
    data = icu_sepsis.simulate(3000, policy=policy, rng=2, lags=0, cap=cap)
    returns = data.returns(0.95)
    exact = icu_sepsis.value(policy, gamma=0.95, cap=cap)
    assert abs(returns.mean() - exact) < 3 * returns.std() / np.sqrt(len(data))


@pytest.mark.slow
def test_patients_stay_about_eight_steps(sepsis, log):
    w = sepsis.process
    clock = TabularMDP(w.initial, w.transitions, np.ones((716, 25)), w.absorbing, horizon=20)
    assert clock.value(sepsis.expert) == pytest.approx(8.1, abs=0.05)
    assert abs(log.lengths.mean() - clock.value(sepsis.expert)) < 3 * log.lengths.std() / np.sqrt(len(log))
    assert log.lengths.max() == 20


def test_every_patient_has_an_outcome_at_the_last_step_and_nothing_before(log):
    last = np.zeros(log.n_steps, dtype=bool)
    last[log.layout.last] = True
    assert set(np.unique(log.rewards[last])) == {-15.0, 15.0}
    assert not log.rewards[~last].any()
    assert log.terminated.all()


def test_three_lags_make_178_features_and_none_is_a_dose(log):
    # 43 now, and three times 43 with two levels: 43 + 3 * 45 = 178.
    assert log.states.shape[1] == 178
    assert log.states.dtype == np.float32
    assert log.feature_names[:WIDTH] == icu_sepsis.OBSERVED
    assert log.feature_names[WIDTH + WIDTH : WIDTH + WIDTH + 3] == (
        "iv_level_lag1",
        "vaso_level_lag1",
        "gender_lag2",
    )
    for dose in ("max_dose_vaso", "cumulated_balance", "input_total", "input_4hourly"):
        assert not any(name.startswith(dose) for name in log.feature_names)


def test_histories_are_those_of_a_plain_loop():
    data = icu_sepsis.simulate(40, rng=3, lags=2)
    now = icu_sepsis.simulate(40, rng=3, lags=0).states
    for i in range(len(data)):
        first = data.offsets[i]
        for row in range(first, data.offsets[i + 1]):
            expected = [now[row]]
            for lag in (1, 2):
                inside = row - lag >= first
                past = row - lag if inside else first
                action = data.actions[past]
                expected += [now[past], [action // 5, action % 5] if inside else [0, 0]]
            assert np.array_equal(data.states[row], np.concatenate(expected))


def test_the_past_of_a_first_step_is_itself_without_treatment(log):
    start = log.states[log.layout.first]
    for lag in (1, 2, 3):
        past = start[:, WIDTH + (lag - 1) * 45 : WIDTH + lag * 45]
        assert np.array_equal(past[:, :WIDTH], start[:, :WIDTH])
        assert not past[:, WIDTH:].any()


def test_measurements_scatter_around_the_centre_of_the_state(log, centres):
    spread = centres[:713].std(axis=0)
    error = (log.states[:, :WIDTH] - centres[log["state"]]) / (0.3 * spread)
    # Standard normal, m = 43 N of them: the mean has standard error 1 / sqrt(m), the variance sqrt(2 / m).
    assert abs(error.mean()) < 3 / np.sqrt(error.size)
    assert abs(error.var() - 1) < 3 * np.sqrt(2 / error.size)


def test_measurements_tell_the_hidden_state(log, centres):
    spread = centres[:713].std(axis=0)
    x, known = log.states[:1000, :WIDTH] / spread, centres[:713] / spread
    squared = (known**2).sum(axis=1) - 2 * x @ known.T
    assert (squared.argmin(axis=1) == log["state"][:1000]).mean() > 0.999


def test_given_the_state_no_measurement_tells_the_action(sepsis, log, centres):
    error = log.states[:, :WIDTH] - centres[log["state"]]
    error = (error - error.mean(axis=0)) / error.std(axis=0)
    for level in (np.arange(25) // 5, np.arange(25) % 5):
        surplus = level[log.actions] - sepsis.expert[log["state"]] @ level
        z = error.T @ surplus / np.sqrt((surplus**2).sum())
        # 43 standard normals where there is no leak: one beyond 4 has a chance of 43 * 6.3e-5 = 0.003.
        assert abs(z).max() < 4


def test_without_noise_the_centre_itself_is_seen(centres):
    data = icu_sepsis.simulate(20, rng=4, noise=0.0, lags=0)
    assert np.array_equal(data.states, centres[data["state"]].astype(np.float32))


def test_noise_and_history_change_nothing_but_what_is_seen(log):
    plain = icu_sepsis.simulate(2000, rng=0, noise=1.0, lags=0)
    assert np.array_equal(plain.actions, log.actions)
    assert np.array_equal(plain.rewards, log.rewards)


def test_logged_probabilities_are_those_of_the_policy_that_acted(sepsis):
    policy = without_vasopressors(sepsis.expert)
    data = icu_sepsis.simulate(50, policy=policy, rng=5, lags=0)
    proba = icu_sepsis.true_probabilities(data, policy)
    assert proba.shape == (data.n_steps, 25)
    assert np.array_equal(proba[np.arange(data.n_steps), data.actions], data["behaviour"])
    assert np.array_equal(icu_sepsis.true_probabilities(data), sepsis.expert[data["state"]])
    assert np.array_equal(data["sofa"], sepsis.sofa[data["state"]])


def test_shaped_rewards_are_those_of_a_plain_loop(sepsis):
    plain = icu_sepsis.simulate(30, rng=6, lags=0)
    data = icu_sepsis.simulate(30, rng=6, lags=0, shaped=True)
    lactate, sofa = sepsis.centres[:, 30], sepsis.sofa
    added = np.zeros(data.n_steps)
    for start, stop in zip(data.offsets[:-1], data.offsets[1:], strict=True):
        for row in range(start, stop - 1):  # the last row has the outcome alone
            s, u = data["state"][row], data["state"][row + 1]
            added[row] = -0.125 * (sofa[u] - sofa[s]) - 2 * np.tanh(lactate[u] - lactate[s])
            added[row] -= 0.025 if sofa[u] == sofa[s] > 0 else 0.0
    assert data.rewards == pytest.approx(plain.rewards + added, abs=1e-12)
    assert added.any()


@pytest.mark.slow
@pytest.mark.parametrize("cap", [20, 3, None])
def test_the_value_under_shaped_rewards_agrees_with_simulation(cap):
    policy = icu_sepsis.without_vasopressors()
    options = {"cap": cap, "shaped": True, "outcome": (0.0, 0.0)}  # the outcome alone is tested above
    returns = icu_sepsis.simulate(4000, policy=policy, rng=8, lags=0, **options).returns(0.95)
    exact = icu_sepsis.value(policy, gamma=0.95, **options)
    error = returns.std() / np.sqrt(4000)
    assert returns.mean() == pytest.approx(exact, abs=4 * error)  # about 1 of 16,000 correct seeds would fail
    assert abs(exact) > 4 * error  # 0 would not do
    both = icu_sepsis.value(policy, gamma=0.95, cap=cap, shaped=True)
    assert both == pytest.approx(exact + icu_sepsis.value(policy, gamma=0.95, cap=cap), abs=1e-9)


@pytest.mark.slow
def test_the_value_of_two_steps_under_shaped_rewards_is_that_of_a_plain_loop(sepsis):
    process, survival = sepsis.process, _sepsis_process.survival_chance()
    lactate, sofa = sepsis.centres[:, 30], sepsis.sofa
    step = np.einsum("sa,sau->su", sepsis.expert, process.transitions)
    expected = -15 + 30 * survival
    total = 0.0
    for s in np.flatnonzero(process.initial):
        for u in np.flatnonzero(step[s]):
            if process.absorbing[u]:
                total += process.initial[s] * step[s, u] * expected[u]
                continue
            change = -0.125 * (sofa[u] - sofa[s]) - 2 * np.tanh(lactate[u] - lactate[s])
            change -= 0.025 if sofa[u] == sofa[s] > 0 else 0.0
            total += process.initial[s] * step[s, u] * (change + 0.9 * (step[u] @ expected))
    assert icu_sepsis.value(gamma=0.9, cap=2, shaped=True) == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 0}, "n >= 1"),
        ({"lags": -1}, "lags >= 0"),
        ({"noise": float("nan")}, "noise >= 0"),
        ({"cap": 0}, "at least 1 step"),
        ({"policy": np.ones((713, 25)) / 25}, r"shape \(716, 25\)"),
        ({"policy": np.ones((716, 25))}, "sum of 1"),
    ],
)
def test_what_cannot_be_simulated_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        icu_sepsis.simulate(**{"n": 5, "rng": 0} | options)


def test_at_the_bedside_a_policy_is_that_of_the_hidden_state():
    data = icu_sepsis.simulate(200, rng=3)
    table = icu_sepsis.evaluation_policies()["half optimal"]
    seen = icu_sepsis.Bedside(table).predict_proba(data.states)
    same = np.isclose(seen, icu_sepsis.true_probabilities(data, table)).all(axis=1)
    # At noise 0.3 the nearest centre of 43 features is the right one in all but a few of 2,000 rows.
    assert same.mean() > 0.998
    assert seen.sum(axis=1) == pytest.approx(np.ones(len(seen)))
