"""An audit gives the same bytes however many threads there are. (The order of rows: test_row_order.py.)"""

import json

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import caliope as cal
from caliope.behaviour import candidate_models
from caliope.domains import ward
from support.killing import numbers_of


def blas_threads():
    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}


@pytest.fixture(scope="module")
def log():
    data = ward.simulate(200, rng=0)
    noise = np.random.default_rng(0).normal(size=(data.n_steps, 6))
    return data.replace(states=np.column_stack([data.states, noise]))


def audited(log, threads, monkeypatch):
    """All numbers of an audit whose libraries may use so many threads, as bytes."""
    models = {name: model for name, model in candidate_models(log).items() if name in ("logistic", "forest")}
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", str(threads))  # of the trees of a forest
    with threadpool_limits(threads):
        found = cal.audit(log, ward.EARLIER[log.states[:, 0].astype(int)], models, n_draws=50, rng=0)
        assert blas_threads() == {threads}  # as before the audit
    return json.dumps(numbers_of(found.to_json().encode())).encode()


@pytest.mark.slow
def test_the_same_bytes_on_one_two_and_four_threads(log, monkeypatch):
    one, two, four = (audited(log, threads, monkeypatch) for threads in (1, 2, 4))
    assert one == two
    assert one == four
