"""Textbook processes from the literature on off-policy evaluation, with the policies that go with them."""

from __future__ import annotations

import numpy as np

from caliope.domains.tabular import TabularMDP
from caliope.trajectories import Trajectories

MODEL_WIN_LOGGED = np.tile([0.73, 0.27], (3, 1))
MODEL_WIN_TARGET = np.tile([0.27, 0.73], (3, 1))

MODEL_WIN = TabularMDP(
    initial=np.array([1.0, 0.0, 0.0]),
    # From state 0 an action leads to the good state 1 with chance 0.4 or 0.6, else to the bad state 2; both lead back.
    transitions=np.array([[[0, 0.4, 0.6], [0, 0.6, 0.4]], [[1, 0, 0], [1, 0, 0]], [[1, 0, 0], [1, 0, 0]]]),
    rewards=np.array([[0.0, 0.0], [1.0, 1.0], [-1.0, -1.0]]),
    absorbing=np.zeros(3, dtype=bool),
    horizon=20,
)
"""ModelWin of Thomas and Brunskill (2016): fully observed, so that a model of it wins. V = 0.92 for the target."""

MODEL_FAIL_LOGGED = np.tile([0.88, 0.12], (4, 1))
MODEL_FAIL_TARGET = np.tile([0.12, 0.88], (4, 1))

MODEL_FAIL = TabularMDP(
    initial=np.array([1.0, 0.0, 0.0, 0.0]),
    # The first action decides between an upper and a lower state; the second decides nothing.
    transitions=np.eye(4)[np.array([[1, 2], [3, 3], [3, 3], [3, 3]])],
    rewards=np.array([[0.0, 0.0], [1.0, 1.0], [-1.0, -1.0], [0.0, 0.0]]),
    absorbing=np.array([False, False, False, True]),
    horizon=2,
)
"""ModelFail of Thomas and Brunskill (2016): what is observed does not tell states apart. V = -0.76 for the target."""


def blinded(data: Trajectories) -> Trajectories:
    """The same log as its observer sees it: every state looks alike."""
    return Trajectories(
        np.zeros_like(data.states),
        data.actions,
        data.rewards,
        data.offsets,
        n_actions=data.n_actions,
        columns=data.columns,
    )
