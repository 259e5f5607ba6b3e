import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra `torch` is not installed")

from caliope import TabularPolicy  # noqa: E402
from caliope.behaviour import NetworkPolicy, TorchNetworkPolicy  # noqa: E402
from caliope.behaviour._networks import hold_out, mean_nll  # noqa: E402
from caliope.domains import ward  # noqa: E402
from caliope.values import TabularRegressor, TorchNetworkRegressor, fitted_q  # noqa: E402


@pytest.fixture(scope="module")
def log():
    return ward.simulate(400, rng=0)


def test_the_network_keeps_the_epoch_that_predicts_strangers_best(log):
    network = TorchNetworkPolicy((16,), max_epochs=30, learning_rate=0.02).fit(
        log.states, log.actions, groups=log.layout.owner
    )
    apart = hold_out(log.n_steps, log.layout.owner, 0.15, 0)
    held = mean_nll(network.predict_proba(log.states[apart]), log.actions[apart])
    assert held == pytest.approx(min(network.losses_), rel=1e-5)
    assert network.predict_proba(log.states).sum(axis=1) == pytest.approx(np.ones(log.n_steps))


def test_it_predicts_as_well_as_the_one_of_scikit_learn(log):
    test = ward.simulate(1000, rng=1)
    scores = [
        mean_nll(
            model((32,), learning_rate=0.01)
            .fit(log.states, log.actions, groups=log.layout.owner)
            .predict_proba(test.states),
            test.actions,
        )
        for model in (TorchNetworkPolicy, NetworkPolicy)
    ]
    truth = mean_nll(ward.PRACTICE[test.states[:, 0].astype(int)], test.actions)
    assert max(scores) < truth + 0.03


def test_the_same_seed_gives_the_same_network_and_leaves_the_callers_alone(log):
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    a, b = (TorchNetworkPolicy((8,), max_epochs=3).fit(log.states, log.actions) for _ in range(2))
    assert np.array_equal(a.predict_proba(log.states), b.predict_proba(log.states))
    assert torch.rand(1) == expected


def test_without_dropout_it_learns_what_a_network_of_plain_steps_learns(log):
    """The same first weights and batches, one step at a time: recording steps for a GPU must not change them."""
    x, y = log.states.astype(np.float32), log.actions
    policy = TorchNetworkPolicy((8,), dropout=0.0, max_epochs=2, batch_size=64, device="cpu").fit(x, y)
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=1e-3)
    inputs, fit = (
        torch.tensor((x - x.mean(axis=0)) / x.std(axis=0)),
        np.flatnonzero(~hold_out(len(x), None, 0.15, 0)),
    )
    for _ in range(2):
        order = torch.tensor(fit)[torch.randperm(len(fit))]
        for rows in order[: len(fit) // 64 * 64].split(64):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(network(inputs[rows]), torch.tensor(y)[rows]).backward()
            optimiser.step()
    expected = torch.softmax(network(inputs), dim=1).detach().numpy()
    assert policy.predict_proba(x) == pytest.approx(expected, abs=1e-5)


def test_a_stored_network_predicts_the_same(log):
    network = TorchNetworkPolicy((8,), max_epochs=2).fit(log.states, log.actions)
    again = pickle.loads(pickle.dumps(network))
    assert np.array_equal(again.predict_proba(log.states), network.predict_proba(log.states))


def test_training_that_cannot_work_is_refused(log):
    with pytest.raises(ValueError, match="max_epochs must be at least 1, got 0"):
        TorchNetworkPolicy(max_epochs=0).fit(log.states, log.actions)
    with pytest.raises(ValueError, match="device must be 'cpu'"):
        TorchNetworkPolicy(device="gpu").fit(log.states, log.actions)
    with pytest.raises(ValueError, match="the network has diverged"):
        TorchNetworkRegressor(learning_rate=1e30, max_epochs=2).fit(log.states, log.rewards)


def test_a_tenth_of_the_rows_is_held_out_unless_said_otherwise(log):
    default, tenth, fifth = (
        TorchNetworkRegressor((4,), max_epochs=2, batch_size=64, **more).fit(log.states, log.rewards).losses_
        for more in ({}, {"held_out": 0.1}, {"held_out": 0.2})
    )
    assert default == tenth != fifth


def test_all_actions_at_once_are_the_actions_one_by_one(log):
    x = np.concatenate([log.states, np.eye(3)[log.actions]], axis=1)
    network = TorchNetworkRegressor((16, 8), max_epochs=3).fit(x, log.rewards)
    table = network.predict_actions(log.states, 3)
    for a in range(3):
        with_action = np.concatenate([log.states, np.tile(np.eye(3)[a], (log.n_steps, 1))], axis=1)
        assert table[:, a] == pytest.approx(network.predict(with_action), abs=1e-5)


def test_fitted_q_with_a_network_comes_close_to_the_means_of_each_state():
    data, target = ward.simulate(2000, rng=0), TabularPolicy(ward.EARLIER)
    network = TorchNetworkRegressor((32,), learning_rate=0.01, max_epochs=20, batch_size=256)
    settings = {"gamma": 0.9, "n_iterations": 8}
    values = fitted_q(data, target, network, **settings)
    exact = fitted_q(data, target, TabularRegressor(), **settings)
    states = np.arange(5.0)[:, None]
    # Values lie between 0 and 1; in 2,000 trajectories each state and action occurs hundreds of times.
    assert values.v(states) == pytest.approx(exact.v(states), abs=0.04)
