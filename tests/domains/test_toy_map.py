"""The map of section 3: walks that follow their rules, and values that agree with them."""

import numpy as np
import pytest
from scipy import stats

from caliope._policies import Policy, action_probabilities
from caliope._simple_policies import GreedyPolicy, TabularPolicy, UniformPolicy
from caliope.domains import toy_map
from caliope.domains.toy_map import ASTRAY, HEADING, MAP, ROAMING, Compass, Map

pytestmark = pytest.mark.slow

POLICIES = [ROAMING, ASTRAY, HEADING]
NAMES = ["roaming", "astray", "heading"]


@pytest.fixture(scope="module", params=POLICIES, ids=NAMES)
def walks(request):
    return request.param, toy_map.simulate(20_000, policy=request.param, rng=1)


def test_compasses_are_policies_and_differ_from_place_to_place():
    assert isinstance(ROAMING, Policy)
    # At (6, 0) the corner (6, 6) lies straight up: pull = 6 / sqrt(37), the others 0 and down the opposite.
    up = np.exp(1.25 * 6 / np.sqrt(37))
    expected = np.array([1, 1, 1 / up, up, 1]) / (3 + up + 1 / up)
    assert HEADING.predict_proba([[6.0, 0.0], [0.0, 6.0]])[0] == pytest.approx(expected)
    assert HEADING.predict_proba([[6.0, 0.0], [0.0, 6.0]])[1].argmax() == toy_map.ACTIONS.index("right")


def test_walks_obey_the_rules_of_a_plain_loop():
    data = toy_map.simulate(200, policy=ROAMING, rng=2)
    assert set(data.lengths) == {15}
    for i in range(len(data)):
        x = data.states[data.offsets[i] : data.offsets[i + 1]]
        assert (x[0] == [0, 6]).all()
        for t in range(14):
            row = data.offsets[i] + t
            near_goal = np.hypot(6 - x[t + 1][0], 6 - x[t + 1][1]) <= 2
            near_trap = np.hypot(x[t + 1][0], x[t + 1][1]) <= 2
            assert data.rewards[row] == float(near_goal) - float(near_trap)


def test_noise_is_gaussian_away_from_the_walls(walks):
    _, data = walks
    x = data.states.reshape(-1, 15, 2)
    moved = toy_map.MOVES[data.actions.reshape(-1, 15)[:, :-1]] + x[:, :-1]
    inside = ((moved > 1.5) & (moved < 4.5)).all(axis=2)  # five standard deviations from any wall
    error = ((x[:, 1:] - moved)[inside] / 0.3).ravel()
    assert abs(error.mean()) < 4 / np.sqrt(error.size)
    assert abs(error.var() - 1) < 4 * np.sqrt(2 / error.size)


def test_nobody_leaves_the_map(walks):
    _, data = walks
    assert data.states.min() == 0
    assert data.states.max() == 6


def test_logged_probabilities_are_those_of_the_policy_that_acted(walks):
    policy, data = walks
    truth = action_probabilities(policy, data.states, 5)
    assert np.allclose(truth[np.arange(data.n_steps), data.actions], data["behaviour"], rtol=1e-12, atol=0)
    z = (np.eye(5)[data.actions] - truth).sum(axis=0) / np.sqrt((truth * (1 - truth)).sum(axis=0))
    assert abs(z).max() < 4


@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_simulated_returns_agree_with_the_value(walks, gamma):
    policy, data = walks
    returns = data.returns(gamma)
    # Three standard errors: 0.02 each way at gamma 1, of standard deviations near 3.
    away = abs(returns.mean() - toy_map.value(policy, gamma=gamma, points=16))
    assert away < 3 * returns.std() / np.sqrt(len(data)) + toy_map.value_error(policy, gamma=gamma, points=16)


@pytest.mark.parametrize(
    ("policy", "published"), list(zip(POLICIES, [2.588, 1.575, 5.325], strict=True)), ids=NAMES
)
def test_values_are_those_published_and_their_error_is_small(policy, published):
    assert toy_map.value(policy) == pytest.approx(published, abs=0.0006)  # a unit of rounding and the error
    assert toy_map.value_error(policy) < 0.001


def test_the_error_falls_with_the_square_of_the_spacing():
    coarse, middle, fine = (toy_map.value(HEADING, points=points) for points in (8, 16, 32))
    assert (middle - coarse) / (fine - middle) == pytest.approx(4, abs=0.2)
    # Hence the error left is a third of the last change, and value_error, the change itself, is beyond it.
    assert toy_map.value_error(HEADING, points=16) == pytest.approx(abs(middle - coarse))
    assert abs(fine - middle) < toy_map.value_error(HEADING, points=16)


def test_a_policy_that_jumps_has_a_value_too():
    policy, points = GreedyPolicy(Compass((6.0, 4.0), 1.0)), 16
    returns = toy_map.simulate(4000, policy=policy, rng=3).returns()
    away = abs(returns.mean() - toy_map.value(policy, points=points))
    assert away < 3 * returns.std() / np.sqrt(4000) + toy_map.value_error(policy, points=points)


def test_reward_and_penalty_cancel_for_whoever_prefers_neither():
    # Reflected at the diagonal from the start to (6, 0), the map exchanges the two discs and keeps this policy.
    assert toy_map.value(Compass((6.0, 0.0), 1.0), points=4) == pytest.approx(0, abs=1e-12)
    assert toy_map.value(UniformPolicy(5), points=4) == pytest.approx(0, abs=1e-12)


def test_one_step_is_worth_the_chance_to_arrive():
    # One step to the right from (0, 2): x ~ N(1, 0.5^2), y ~ N(2, 0.5^2), both clipped to [0, 2]; radius 1.5.
    world = Map(size=2.0, radius=1.5, noise=0.5, penalty=0.0, horizon=1)
    right = Always(1)
    x, y = stats.norm(1, 0.5), stats.norm(2, 0.5)
    # P(y' = 2) = 1/2, where x' >= 0.5 suffices; below the wall a midpoint sum over y.
    edges = np.linspace(0.5, 2, 20_001)
    middle = (edges[1:] + edges[:-1]) / 2
    reach = 2 - np.sqrt(1.5**2 - (2 - middle) ** 2)
    expected = 0.5 * x.sf(0.5) + (x.sf(reach) * y.pdf(middle)).sum() * (edges[1] - edges[0])
    assert toy_map.value(right, world=world, points=2) == pytest.approx(expected, abs=1e-6)


class Always:
    """One action everywhere."""

    classes_ = np.arange(5)

    def __init__(self, action):
        self.action = action

    def predict_proba(self, states):
        return np.tile(np.eye(5)[self.action], (len(states), 1))


def test_whoever_runs_to_the_right_earns_from_the_fifth_step_on():
    # With hardly any noise the walk is at x = 1, 2, ..., 6, 6: within 1.5 of the corner (6, 6) from x = 5 on, which
    # is the end of step 4. So V = 0.5^4 + ... + 0.5^14 = 2 (0.5^4 - 0.5^15), by simulation and by the grid alike.
    world, expected = Map(radius=1.5, noise=0.02), 2 * (0.5**4 - 0.5**15)
    # The interpolation lets a few in a million of the walks be half a unit early or late.
    assert toy_map.value(Always(1), gamma=0.5, world=world, points=8) == pytest.approx(expected, abs=1e-5)
    walks = toy_map.simulate(3, policy=Always(1), rng=4, world=world)
    assert walks.returns(0.5) == pytest.approx(expected)


def test_expectations_after_a_step_are_those_of_quadrature():
    x = np.arange(13) / 4
    u, f = np.array([-0.7, 0.0, 1.3, 2.9, 3.6]), np.cos(2 * x)
    kernel = toy_map._clipped_gaussian(u, x, 0.4)
    noise = stats.norm.ppf((np.arange(100_000) + 0.5) / 100_000)
    for row, centre in zip(kernel, u, strict=True):
        assert row.sum() == pytest.approx(1)
        expected = np.interp(np.clip(centre + 0.4 * noise, 0, 3), x, f).mean()
        assert row @ f == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("options", [{"radius": 0.0}, {"radius": 6.0}, {"noise": 0.0}, {"horizon": 0}])
def test_maps_that_cannot_be_are_refused(options):
    with pytest.raises(ValueError, match="a map needs"):
        Map(**options)


def test_what_cannot_be_computed_is_refused():
    with pytest.raises(ValueError, match="n >= 1"):
        toy_map.simulate(0, policy=ROAMING, rng=0)
    with pytest.raises(ValueError, match="does not end at a wall"):
        toy_map.value(ROAMING, world=Map(size=2.3), points=4)
    with pytest.raises(ValueError, match="at least a hundredth of the radius"):
        toy_map.value(ROAMING, world=Map(noise=0.01))
    with pytest.raises(ValueError, match="must be even"):
        toy_map.value_error(ROAMING, points=5)
    with pytest.raises(ValueError, match="two finite numbers"):
        ROAMING.predict_proba([[0.0, 1.0, 2.0]])
    with pytest.raises(ValueError, match="whole numbers"):  # a table of five places knows none between them
        toy_map.simulate(3, policy=TabularPolicy(np.full((7, 5), 0.2)), rng=0)


def test_the_same_seed_makes_the_same_walks():
    first, again = (toy_map.simulate(5, policy=ROAMING, rng=5, world=MAP) for _ in range(2))
    assert np.array_equal(first.states, again.states)
    assert np.array_equal(first.actions, again.actions)
