"""The zoo: policies with known probabilities are what they say, and near the prototype they were made after."""

import pickle

import numpy as np
import pytest

from caliope._policies import Policy, action_probabilities
from caliope.domains import zoo

ALL = (*zoo.MEMBERS, zoo.sites)
NAMES = ["linear 50", "linear 10", "protocol", "local", "overconfident", "sites"]


@pytest.fixture(params=ALL, ids=NAMES)
def member(request):
    return request.param(rng=7)


def test_a_member_is_a_policy(member):
    data = zoo.simulate(member, 30, rng=0)
    assert isinstance(member, Policy)
    assert data.states.shape == (300, member.n_features)
    table = action_probabilities(member, data.states, data.n_actions)
    assert table.shape == (300, 25)
    assert (table > 0).all()


def test_logged_probabilities_are_those_of_the_policy_that_acted(member):
    data = zoo.simulate(member, 30, rng=0)
    truth = zoo.true_probabilities(data, member)
    assert np.array_equal(truth[np.arange(data.n_steps), data.actions], data["behaviour"])
    if len(member.rules) == 1:
        assert truth == pytest.approx(member.predict_proba(data.states), abs=1e-15)


def test_actions_follow_the_probabilities(member):
    data = zoo.simulate(member, 1000, rng=1)
    truth = zoo.true_probabilities(data, member)
    surplus = np.eye(25)[data.actions] - truth
    z = surplus.sum(axis=0) / np.sqrt((truth * (1 - truth)).sum(axis=0))
    # 25 standard normals; one beyond 4 has a chance of 25 * 6.3e-5 = 0.002.
    assert abs(z).max() < 4


def test_the_same_seed_makes_the_same_log_and_another_does_not(member):
    first, again, other = (zoo.simulate(member, 5, rng=seed) for seed in (3, 3, 4))
    assert np.array_equal(first.states, again.states)
    assert np.array_equal(first.actions, again.actions)
    assert not np.array_equal(first.states, other.states)


def test_a_member_survives_a_journey_to_another_process(member):
    x = zoo.simulate(member, 3, rng=0).states
    assert np.array_equal(pickle.loads(pickle.dumps(member)).predict_proba(x), member.predict_proba(x))


@pytest.mark.parametrize("correlation", [0.0, 0.8])
def test_states_are_standard_normal_with_the_correlation_asked_for(correlation):
    data = zoo.simulate(zoo.linear(10, rng=0), 4000, rng=2, length=5, correlation=correlation)
    x = data.states.reshape(4000, 5, 10)
    # Within a step all are independent, m = 40,000: errors 1 / sqrt(m) = 0.005 and sqrt(2 / m) = 0.0071. Ten looks.
    assert abs(x.mean(axis=(0, 2))).max() < 4 * 0.005
    assert abs(x.var(axis=(0, 2)) - 1).max() < 4 * 0.0071
    for lag in (1, 2):
        product = (x[:, 0] * x[:, lag]).mean()
        assert abs(product - correlation**lag) < 4 * np.sqrt((1 + correlation ** (2 * lag)) / 40_000)


def test_rewards_are_those_of_a_plain_loop():
    data = zoo.simulate(zoo.sites(4, rng=0), 20, rng=3, length=3)
    for row in range(data.n_steps):
        # Actions 0, ..., 24 are worth -1, ..., 1 in steps of 1/12; features over sqrt(4) = 2; sites 0, 1, 2 centred.
        expected = data.states[row].sum() / 2 + (data.actions[row] - 12) / 12 + data["site"][row] - 1
        assert data.rewards[row] == pytest.approx(expected, abs=1e-12)


def test_a_protocol_is_a_table_of_sixteen_cells():
    policy = zoo.protocol(rng=5)
    x = zoo.simulate(policy, 50, rng=6).states
    table, proba = policy.rules[0].table, policy.predict_proba(x)
    for row in range(len(x)):
        cell = sum(2**j for j in range(4) if x[row, j] > 0)
        assert np.array_equal(proba[row], table[cell])


def test_followed_to_the_letter_in_six_of_ten_decisions():
    policy = zoo.overconfident(rng=5)
    proba = policy.predict_proba(zoo.simulate(policy, 50, rng=6).states)
    best = proba.argmax(axis=1)
    noise = proba[0] - 0.6 * np.eye(25)[best[0]]  # 0.4 of one distribution, the same for every state
    assert noise.sum() == pytest.approx(0.4)
    assert proba - 0.6 * np.eye(25)[best] == pytest.approx(np.tile(noise, (len(proba), 1)), abs=1e-12)


def test_the_local_policy_is_its_formula():
    policy = zoo.local(rng=5)
    x = zoo.simulate(policy, 2, rng=6).states
    bumps = policy.rules[0]
    for row, found in zip(x, policy.predict_proba(x), strict=True):
        u = [row @ bumps.plane[:, 0], row @ bumps.plane[:, 1]]
        kernel = [np.exp(-((u[0] - c[0]) ** 2 + (u[1] - c[1]) ** 2) / 0.02) for c in bumps.centres]
        logit = sum(k * h for k, h in zip(kernel, bumps.heights, strict=True)) / sum(kernel)
        assert found == pytest.approx(np.exp(logit) / np.exp(logit).sum(), rel=1e-9)


def test_states_of_the_local_policy_lie_near_a_curved_surface():
    policy = zoo.local(rng=5)
    x = zoo.simulate(policy, 1000, rng=6).states
    surface = policy.embed
    turned = x @ surface.basis
    expected = np.sin(turned[:, :2] @ surface.frequencies + surface.phases)
    off = turned[:, 2:] - expected
    # 18 independent coordinates in 1,000 independent trajectories bound the error of their spread, 0.1.
    assert off.std() == pytest.approx(0.1, abs=4 * 0.1 / np.sqrt(2 * 18_000))


@pytest.mark.slow
def test_sites_differ_and_what_is_known_from_the_state_is_their_mean():
    policy = zoo.sites(rng=5)
    data = zoo.simulate(policy, 300, rng=6)
    site = data["site"].reshape(300, 10)
    assert (site == site[:, :1]).all()
    assert set(np.unique(site)) == {0, 1, 2}
    each = [policy.at_site(data.states, np.full(data.n_steps, k)) for k in range(3)]
    assert policy.predict_proba(data.states) == pytest.approx(sum(each) / 3, abs=1e-15)
    assert 0.5 * np.abs(each[0] - each[1]).sum(axis=1).mean() > 0.2


# Negative log-likelihood of the truth, and distance of the truth from the marginal: columns TRUTH and marginal of
# the prototype's table. Policies are drawn at random: over 8 draws their standard deviations are at most 0.13 and
# 0.025, so a mean of 4 draws is within 3 * 0.13 / 2 = 0.2 and 3 * 0.025 / 2 = 0.04 of a mean that is the same.
@pytest.mark.parametrize(
    ("make", "entropy", "distance"),
    [
        (zoo.MEMBERS[0], 1.83, 0.594),
        (zoo.MEMBERS[1], 1.86, 0.568),
        (zoo.protocol, 2.26, 0.520),
        (zoo.local, 1.97, 0.607),
    ],
    ids=NAMES[:4],
)
def test_members_are_about_as_sharp_as_in_the_prototype(make, entropy, distance):
    found = np.array([sharpness(make(rng=seed), seed) for seed in range(4)]).mean(axis=0)
    assert found[0] == pytest.approx(entropy, abs=0.2)
    assert found[1] == pytest.approx(distance, abs=0.04)


def sharpness(policy, seed):
    truth = policy.predict_proba(zoo.simulate(policy, 3000, rng=seed, length=1).states)
    away = 0.5 * np.abs(truth - truth.mean(axis=0)).sum(axis=1).mean()
    return -(truth * np.log(truth)).sum(axis=1).mean(), away


@pytest.mark.parametrize(
    "options",
    [{"n": 0}, {"length": 0}, {"correlation": 1.0}, {"correlation": -0.1}, {"correlation": float("nan")}],
)
def test_what_cannot_be_simulated_is_refused(options):
    with pytest.raises(ValueError, match="need n >= 1"):
        zoo.simulate(zoo.linear(10, rng=0), **{"n": 5, "rng": 0} | options)


@pytest.mark.parametrize("states", [np.zeros((3, 9)), np.zeros(10), np.full((3, 10), np.nan)])
def test_states_of_another_shape_or_not_finite_are_refused(states):
    with pytest.raises(ValueError, match="10 features"):
        zoo.linear(10, rng=0).predict_proba(states)


@pytest.mark.parametrize(
    ("make", "d"), [(zoo.linear, 0), (zoo.protocol, 3), (zoo.local, 2), (zoo.overconfident, 3)]
)
def test_too_few_features_for_a_policy_are_refused(make, d):
    with pytest.raises(ValueError, match=f"at least {d + 1} feature.*got d={d}"):
        make(d, rng=0)
