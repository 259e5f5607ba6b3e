import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra `torch` is not installed")

from caliope.behaviour._networks import NetworkPolicy, hold_out, mean_nll  # noqa: E402
from caliope.behaviour._torch_network import TorchNetworkPolicy  # noqa: E402
from caliope.domains import ward  # noqa: E402


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
