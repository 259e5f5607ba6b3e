import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression

import caliope._gather
from caliope import (
    SupportError,
    TabularPolicy,
    Trajectories,
    UniformPolicy,
    action_probabilities,
    dm,
    gather,
    mix,
    monte_carlo,
    ois,
    practice,
    step_is,
    tilt,
    wdr,
    wis,
)
from caliope._action_values import ActionValues
from caliope._ragged import at_actions
from caliope.domains import ward
from caliope.uncertainty import bootstrap, difference
from caliope.weights import clip_weights, effective_n

EARLIER, PRACTICE = TabularPolicy(ward.EARLIER), TabularPolicy(ward.PRACTICE)


@pytest.fixture(scope="module")
def log():
    return ward.simulate(60, rng=0)


def random_tables(n_steps, n_actions, seed=0):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(n_actions), n_steps), rng.dirichlet(np.ones(n_actions), n_steps)


def three_steps(**changes):
    arguments = {"states": [[0.0], [1.0], [0.0]], "actions": [0, 1, 1], "rewards": [1.0, 2.0, 4.0]}
    return Trajectories(**arguments, offsets=[0, 2, 3], **changes)


# -- ratios -------------------------------------------------------------------------------------------


def test_weights_are_products_of_ratios_up_to_the_step_itself():
    target = [[0.8, 0.2], [0.5, 0.5], [0.1, 0.9]]
    behaviour = [[0.4, 0.6], [0.75, 0.25], [0.7, 0.3]]
    e = gather(three_steps(), target, behaviour)
    # 0.8 / 0.4 = 2; 2 * 0.5 / 0.25 = 4; a new trajectory: 0.9 / 0.3 = 3
    assert e.rho == pytest.approx([2, 4, 3])
    assert e.rewards.tolist() == [1, 2, 4]
    assert e.offsets.tolist() == [0, 2, 3]


def test_ratios_agree_with_a_loop_over_steps(log):
    e = gather(log, EARLIER, PRACTICE, gamma=0.9)
    expected = []
    for i in range(len(log)):
        weight = 1.0
        for row in range(log.offsets[i], log.offsets[i + 1]):
            s, a = int(log.states[row, 0]), log.actions[row]
            weight *= ward.EARLIER[s, a] / ward.PRACTICE[s, a]
            expected.append(weight)
    assert e.rho == pytest.approx(expected, rel=1e-12)
    assert e.gamma == 0.9


def test_policies_arrays_and_logged_probabilities_give_the_same_ratios(log):
    target = action_probabilities(EARLIER, log.states, 3)
    behaviour = action_probabilities(PRACTICE, log.states, 3)
    expected = gather(log, EARLIER, PRACTICE).log_ratio
    for one in (EARLIER, target, target.tolist()):
        for other in (PRACTICE, behaviour, log["behaviour"], log["behaviour"].tolist()):
            assert gather(log, one, other).log_ratio == pytest.approx(expected, abs=1e-14)


def test_a_target_that_never_acts_so_has_ratio_0():
    e = gather(three_steps(), [[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]], UniformPolicy(2))
    assert e.log_ratio.tolist() == [-np.inf, -np.inf, np.log(2)]
    assert e.rho == pytest.approx([0, 0, 2])


def test_a_behaviour_policy_that_never_saw_an_action_does_not_shift_the_others():
    # Fitted where action 1 is missing: P(0) = 1/4, P(2) = 3/4. Both logged actions are known to it.
    behaviour = DummyClassifier().fit(np.zeros((4, 1)), [0, 2, 2, 2])
    data = Trajectories(np.zeros(2), [0, 2], np.zeros(2), [0, 1, 2])
    # Target uniform over three: 1/3 / (1/4) = 4/3, and 1/3 / (3/4) = 4/9.
    assert gather(data, UniformPolicy(3), behaviour).rho == pytest.approx([4 / 3, 4 / 9])


def test_chunks_do_not_change_the_evidence(log, monkeypatch):
    q = np.random.default_rng(0).normal(size=(log.n_steps, 3))
    cases = [
        (EARLIER, PRACTICE),
        (EARLIER, log["behaviour"]),
        (mix(practice, UniformPolicy(3), 0.2), PRACTICE),
        (tilt(practice, lambda states: 1 + states[:, [0, 0, 0]] * [0, 1, 2]), PRACTICE),
        (random_tables(log.n_steps, 3)[0], PRACTICE),
    ]
    whole = [gather(log, target, behaviour, q=q) for target, behaviour in cases]
    monkeypatch.setattr(caliope._gather, "_ROWS", 7)
    for (target, behaviour), e in zip(cases, whole, strict=True):
        chunked = gather(log, target, behaviour, q=q)
        assert np.array_equal(chunked.log_ratio, e.log_ratio)
        assert np.array_equal(chunked.q, e.q)
        assert np.array_equal(chunked.v, e.v)
        assert chunked.notes == e.notes


def test_the_log_is_not_copied_into_the_evidence(log):
    assert np.shares_memory(gather(log, EARLIER, PRACTICE).rewards, log.rewards)


# -- input that cannot be used ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "behaviour", "error", "message"),
    [
        (
            [[0.5, 0.5]] * 2,
            UniformPolicy(2),
            ValueError,
            r"target as an array must have shape \(3, 2\), .* got \(2, 2\)",
        ),
        ([0.5] * 3, UniformPolicy(2), ValueError, r"target as an array must have shape \(3, 2\)"),
        (UniformPolicy(2), [[0.5] * 3] * 3, ValueError, r"behaviour as an array must have shape \(3, 2\)"),
        (UniformPolicy(2), [0.5] * 4, ValueError, r"logged probabilities must have shape \(3,\)"),
        ([[0.5, 0.6]] * 3, UniformPolicy(2), ValueError, "target: every row .* sum to 1; 3 of 3 do not"),
        (UniformPolicy(2), [[1.5, -0.5]] * 3, ValueError, "behaviour: every row .* sum to 1"),
        (np.full((3, 2), np.nan), UniformPolicy(2), ValueError, "target: every row"),
        (UniformPolicy(2), [0.5, 1.5, 0.5], ValueError, r"lie in \[0, 1\]; 1 do not .first: 1.5 at step 1"),
        (UniformPolicy(2), [0.5, 0.5, np.nan], ValueError, "1 do not .first: nan at step 2"),
        (UniformPolicy(2), np.log([0.5, 0.5, 0.5]), ValueError, "3 do not .first: -0.69"),
        (UniformPolicy(3), UniformPolicy(2), ValueError, "knows action 2, but the data have the 2 actions"),
        (LogisticRegression(), UniformPolicy(2), TypeError, "Has it been fitted"),
        (object(), UniformPolicy(2), TypeError, "target must be a policy .* got object"),
        (None, UniformPolicy(2), TypeError, "target must be a policy .* got NoneType"),
        (UniformPolicy(2), "uniform", TypeError, "behaviour must be a policy .* got str"),
        (UniformPolicy(2), practice, TypeError, "behaviour must be a policy .* got Practice"),
    ],
)
def test_what_is_neither_policy_nor_probabilities_is_refused(target, behaviour, error, message):
    with pytest.raises(error, match=message):
        gather(three_steps(), target, behaviour)


@pytest.mark.parametrize("gamma", [-0.1, 1.5, float("nan")])
def test_a_discount_outside_0_and_1_is_refused(gamma):
    with pytest.raises(ValueError, match="gamma"):
        gather(three_steps(), UniformPolicy(2), UniformPolicy(2), gamma=gamma)


def test_logged_probabilities_that_are_all_1_are_a_placeholder():
    with pytest.raises(
        SupportError, match="every logged probability is 1 although different actions were taken"
    ):
        gather(three_steps(), UniformPolicy(2), [1.0, 1.0, 1.0])


def test_probability_1_is_believed_where_only_one_action_was_ever_taken():
    data = Trajectories(np.zeros(2), [0, 0], [1.0, 1.0], [0, 2], n_actions=2)
    e = gather(data, UniformPolicy(2), [1.0, 1.0])
    assert e.rho == pytest.approx([0.5, 0.25])


@pytest.mark.parametrize("rows", [1, 2, 100])
def test_behaviour_probability_0_at_logged_actions_is_counted_and_located(rows, monkeypatch):
    monkeypatch.setattr(caliope._gather, "_ROWS", rows)
    data = three_steps(ids=["a", "b"])
    # Logged actions are 0, 1, 1: rows 1 and 2 have probability 0; row 1 is step 1 of trajectory a.
    for behaviour in ([[0.5, 0.5], [1.0, 0.0], [1.0, 0.0]], [0.5, 0.0, 0.0]):
        with pytest.raises(
            SupportError, match=r"0 to 2 of 3 logged actions .first: action 1 in trajectory a, step 1"
        ):
            gather(data, UniformPolicy(2), behaviour)


def test_behaviour_probability_0_is_refused_even_where_the_target_has_0_too():
    # 0 / 0 is no ratio, and the model is wrong about what was done.
    with pytest.raises(SupportError, match="1 of 3"):
        gather(three_steps(), [[0.0, 1.0], [0.5, 0.5], [0.5, 0.5]], [[0.0, 1.0], [0.5, 0.5], [0.5, 0.5]])


class WrongAt:
    """Rows sum to 1, except in one state."""

    classes_ = np.array([0, 1])

    def __init__(self, state):
        self.state = state

    def predict_proba(self, X):
        table = np.full((len(X), 2), 0.5)
        table[X[:, 0] == self.state, 0] = 0.9
        return table


@pytest.mark.parametrize("rows", [4, 100])
def test_a_bad_row_is_named_by_its_place_in_the_log(rows, monkeypatch):
    monkeypatch.setattr(caliope._gather, "_ROWS", rows)
    data = Trajectories(np.arange(10.0), [0, 1] * 5, np.zeros(10), [0, 10])
    with pytest.raises(ValueError, match="first: row 6,"):
        gather(data, UniformPolicy(2), WrongAt(6.0))


# -- relative to practice -----------------------------------------------------------------------------


def every_action_once(n_actions, n_states=5):
    """Each action in each state, a trajectory each: the ratios of a whole row of the policy."""
    states = np.repeat(np.arange(n_states, dtype=float), n_actions)
    actions = np.tile(np.arange(n_actions), n_states)
    return Trajectories(states, actions, np.ones(len(states)), np.arange(len(states) + 1))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "target",
    [
        mix(practice, TabularPolicy(np.eye(4)[[0, 1, 2, 3, 0]]), 0.3),
        mix(practice, UniformPolicy(2), 1.0),
        tilt(practice, [1.0, 0.1, 30.0, 2.0]),
        tilt(practice, lambda states: np.exp(states * [[0, 1, -1, 0.5]])),
    ],
)
def test_ratios_relative_to_practice_average_to_1_under_any_behaviour_policy(target, seed):
    pihat = np.random.default_rng(seed).dirichlet(np.ones(4), 5)
    data = every_action_once(4)
    ratio = gather(data, target, TabularPolicy(pihat)).rho.reshape(5, 4)
    # sum_a pihat(a|s) lambda(a|s) = sum_a pi_e(a|s) = 1, however wrong pihat is.
    assert (pihat * ratio).sum(axis=1) == pytest.approx(np.ones(5), abs=1e-12)


def test_a_mixture_with_practice_has_ratios_of_the_relative_form():
    pihat = np.array([[0.5, 0.3, 0.2]])
    data = every_action_once(3, n_states=1)
    new = TabularPolicy([[0.0, 0.1, 0.9]])
    ratio = gather(data, mix(practice, new, 0.2), TabularPolicy(pihat)).rho
    # 0.8 + 0.2 * (0, 0.1 / 0.3, 0.9 / 0.2)
    assert ratio == pytest.approx([0.8, 0.8 + 0.2 / 3, 1.7])


def test_logged_probabilities_suffice_for_a_mixture_with_practice(log):
    target = mix(practice, EARLIER, 0.25)
    expected = gather(log, target, PRACTICE).log_ratio
    assert gather(log, target, log["behaviour"]).log_ratio == pytest.approx(expected, abs=1e-14)


def untouched_targets():
    return [
        pytest.param(practice, id="practice"),
        pytest.param(mix(practice, UniformPolicy(3), 0.0), id="share 0"),
        pytest.param(tilt(practice, [3.0, 3.0, 3.0]), id="constant tilt"),
        pytest.param(
            tilt(practice, lambda states: np.full((len(states), 3), 0.7)), id="constant tilt by state"
        ),
    ]


@pytest.mark.parametrize("target", untouched_targets())
@pytest.mark.parametrize("rounding", [np.float64, np.float32])
def test_a_target_that_changes_nothing_has_ratio_exactly_1(log, target, rounding):
    # A network in float32 has rows that sum to 1 only to 1e-7; practice is still practice.
    rng = np.random.default_rng(0)
    pihat = rng.dirichlet(np.ones(3), log.n_steps).astype(rounding)
    e = gather(log, target, pihat)
    assert np.array_equal(e.log_ratio, np.zeros(log.n_steps))
    assert effective_n(e) == len(log)
    mean = log.returns().mean()
    for estimator in (monte_carlo, ois, wis, step_is):
        assert estimator(e) == pytest.approx(mean, abs=1e-15)
    assert ois(e) == monte_carlo(e)


def test_a_tilt_of_practice_needs_the_probabilities_of_all_actions(log):
    with pytest.raises(TypeError, match="needs the behaviour probabilities of all actions"):
        gather(log, tilt(practice, [1.0, 2.0, 1.0]), log["behaviour"])


# -- support ------------------------------------------------------------------------------------------


def two_states(n_actions=3):
    return Trajectories([0.0, 0.0, 1.0, 1.0], [0, 1, 0, 1], np.zeros(4), [0, 2, 4], n_actions=n_actions)


def test_probability_of_the_target_without_support_is_noted_with_its_mass():
    # Action 2 has behaviour probability 0 in state 1 only; the target gives it 0.02 there.
    behaviour = TabularPolicy([[0.5, 0.4, 0.1], [0.5, 0.5, 0.0]])
    target = TabularPolicy([[0.5, 0.4, 0.1], [0.5, 0.48, 0.02]])
    e = gather(two_states(), target, behaviour)
    (note,) = e.notes
    assert (note.code, note.level) == ("S101", "caution")
    # 0.02 in 2 of 4 steps: a mean of 0.01
    assert note.numbers == {"mass": pytest.approx(0.01), "steps": 2, "total": 4}
    assert "1.00% of its probability, in 2 of 4 steps" in note.message


def test_more_than_a_hundredth_without_support_is_an_issue():
    behaviour = TabularPolicy([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]])
    e = gather(two_states(), UniformPolicy(3), behaviour)
    assert [(n.code, n.level) for n in e.notes] == [("S101", "issue")]
    assert e.notes[0].numbers["mass"] == pytest.approx(1 / 3)


def test_full_support_leaves_no_note(log):
    assert gather(log, EARLIER, PRACTICE).notes == ()


def test_with_logged_probabilities_an_action_that_was_never_taken_has_no_support():
    e = gather(two_states(), UniformPolicy(3), [0.5, 0.5, 0.5, 0.5])
    assert e.notes[0].numbers == {"mass": pytest.approx(1 / 3), "steps": 4, "total": 4}


def test_a_mixture_with_practice_reports_the_part_that_has_no_support():
    # A fifth of the decisions go to action 2, which nobody ever takes.
    target = mix(practice, TabularPolicy([[0.0, 0.0, 1.0]] * 2), 0.2)
    for behaviour in (TabularPolicy([[0.5, 0.5, 0.0]] * 2), np.full(4, 0.5)):
        (note,) = gather(two_states(), target, behaviour).notes
        assert note.code == "S101"
        assert note.numbers["mass"] == pytest.approx(0.2)


# -- action values ------------------------------------------------------------------------------------


def test_v_is_the_mean_of_q_under_the_target_and_not_its_maximum():
    q = [[1.0, 5.0], [2.0, 0.0], [4.0, 8.0]]
    e = gather(three_steps(), [[0.75, 0.25], [0.5, 0.5], [1.0, 0.0]], UniformPolicy(2), q=q)
    # Logged actions 0, 1, 1; 0.75 * 1 + 0.25 * 5 = 2; (2 + 0) / 2 = 1; 4
    assert e.q.tolist() == [1, 0, 8]
    assert e.v.tolist() == [2, 1, 4]


def test_the_part_of_practice_in_v_is_that_of_the_logged_actions():
    q = np.array([[0.0, 10.0], [1.0, 11.0], [2.0, 12.0]])
    mixture = mix(practice, TabularPolicy([[0.0, 1.0]] * 2), 0.2)
    # Actions 0, 1, 1: 0.8 q(a) + 0.2 q(1), whatever the behaviour policy says of the actions not taken.
    for behaviour in (UniformPolicy(2), np.tile([0.3, 0.7], (3, 1)), [0.3, 0.7, 0.7]):
        e = gather(three_steps(), mixture, behaviour, q=q)
        assert e.q.tolist() == [0, 11, 12]
        assert e.v == pytest.approx([0.8 * 0 + 0.2 * 10, 11, 12])
    b = np.tile([0.3, 0.7], (3, 1))
    e = gather(three_steps(), tilt(practice, [1.0, 2.0]), b, q=q)
    for i, a in enumerate((0, 1, 1)):
        target = b[i] * [1, 2] / (b[i] * [1, 2]).sum()
        v = (target * q[i]).sum()
        assert e.v[i] == pytest.approx(v + target[a] / b[i][a] * (q[i][a] - v))
    assert e.q.tolist() == [0, 11, 12]


def test_the_mean_of_v_over_practice_is_the_value_of_a_relative_target():
    q, b = np.array([[3.0, -1.0, 7.0]] * 3), np.array([[0.2, 0.5, 0.3]] * 3)
    for target in (
        mix(practice, TabularPolicy([[0.1, 0.1, 0.8]] * 2), 0.4),
        tilt(practice, [1.0, 3.0, 0.5]),
        practice,
    ):
        data = Trajectories([[0.0]] * 3, [0, 1, 2], np.zeros(3), [0, 1, 2, 3])
        v = gather(data, target, b, q=q).v
        wanted = (caliope._gather.target_probabilities(data, target, b)[0] * q[0]).sum()
        assert (b[0] * v).sum() == pytest.approx(wanted)


@pytest.mark.parametrize("known", [True, False])
def test_practice_minus_practice_is_exactly_zero_whatever_the_values(known):
    data, rng = ward.simulate(80, rng=0), np.random.default_rng(0)
    q = 100 * rng.normal(size=(data.n_steps, 3)) + 30
    b = np.clip(rng.dirichlet([1, 1, 1], size=data.n_steps), 0.01, None)
    b /= b.sum(axis=1, keepdims=True)
    behaviour = at_actions(b, data.actions) if known else b
    same = [practice, mix(practice, EARLIER, 0.0), b]
    for target in same if known else [*same, tilt(practice, [3.0, 3.0, 3.0])]:
        e = gather(data, target, behaviour, gamma=0.95, q=q)
        assert not e.log_ratio.any()
        assert wdr(e) == pytest.approx(data.returns(0.95).mean())
        interval = bootstrap(difference(wdr), e, n_draws=50, rng=0)
        assert (float(difference(wdr)(e)), interval.low, interval.high) == (0.0, 0.0, 0.0)


class Linear:
    """Values of two-action states, as a fitted model would give them."""

    def q(self, states, actions):
        return states[:, 0] + 10 * actions

    def v(self, states):
        return states[:, 0] + 5


def test_values_may_come_from_an_object_with_q_and_v(monkeypatch):
    assert isinstance(Linear(), ActionValues)
    for rows in (1, 100):
        monkeypatch.setattr(caliope._gather, "_ROWS", rows)
        e = gather(three_steps(), np.tile([0.4, 0.6], (3, 1)), UniformPolicy(2), q=Linear())
        # States 0, 1, 0; actions 0, 1, 1
        assert e.q.tolist() == [0, 11, 10]
        assert e.v.tolist() == [5, 6, 5]


def test_the_direct_method_with_exact_values_is_the_exact_value():
    # Start states enter in proportion to the initial law: every start state 1 / P times.
    start = np.repeat([0.0, 1, 2, 3, 4], [2, 5, 6, 5, 2])  # 0.1 0.25 0.3 0.25 0.1 of 20
    data = Trajectories(start, [0] * 20, np.zeros(20), np.arange(21), n_actions=3)
    q = ward.WARD.action_values(ward.EARLIER, 1.0)[0][start.astype(int)]
    e = gather(data, EARLIER, PRACTICE, q=q)
    assert dm(e) == pytest.approx(ward.WARD.value(ward.EARLIER), abs=1e-12)


@pytest.mark.parametrize(
    ("q", "message"),
    [
        (np.zeros(3), r"q as an array must have shape \(3, 2\), .* got \(3,\)"),
        (np.zeros((3, 3)), r"got \(3, 3\)"),
        (np.full((3, 2), np.nan), "q must be finite"),
    ],
)
def test_values_that_do_not_fit_are_refused(q, message):
    with pytest.raises(ValueError, match=message):
        gather(three_steps(), UniformPolicy(2), UniformPolicy(2), q=q)


def test_an_infinite_value_of_an_action_not_taken_is_refused_too():
    # It would enter v.
    with pytest.raises(ValueError, match="v must be finite"):
        gather(three_steps(), UniformPolicy(2), UniformPolicy(2), q=[[0, np.inf], [0, 0], [0, 0]])


# -- what is known ------------------------------------------------------------------------------------


def test_only_logged_probabilities_are_taken_as_known():
    data, target = three_steps(), UniformPolicy(2)
    assert gather(data, target, [0.5, 0.5, 0.5]).behaviour_known
    assert not gather(data, target, UniformPolicy(2)).behaviour_known
    assert not gather(data, target, [[0.5, 0.5]] * 3).behaviour_known


def test_the_caller_may_say_otherwise():
    data, target = three_steps(), UniformPolicy(2)
    assert gather(data, target, UniformPolicy(2), behaviour_known=True).behaviour_known
    assert not gather(data, target, [0.5, 0.5, 0.5], behaviour_known=False).behaviour_known


# -- the truth ----------------------------------------------------------------------------------------


def test_weighted_estimates_with_the_true_probabilities_find_the_value_of_the_target():
    data = ward.simulate(15_000, rng=3)
    truth = ward.WARD.value(ward.EARLIER)
    q = ward.WARD.action_values(ward.EARLIER, 1.0)[data["time"], data.states[:, 0].astype(int)]
    e = gather(data, EARLIER, data["behaviour"], q=q)
    rho = e.rho[e.layout.last]
    # Returns are 0 or 1, so no standard error is above sqrt(sum rho^2) / sum rho (0.0105 here); four of them.
    tolerance = 4 * np.sqrt((rho**2).sum()) / rho.sum()
    for estimator in (ois, wis, wdr):
        assert estimator(e) == pytest.approx(truth, abs=tolerance)
    # Which tells the target from current practice, 0.485 against 0.536.
    assert tolerance < truth - ward.WARD.value(ward.PRACTICE)


def test_evidence_knows_whether_its_target_was_stated_relative_to_practice():
    data = ward.simulate(30, rng=0)
    model = LogisticRegression().fit(data.states, data.actions)
    stated = {True: [practice, tilt(practice, [1, 2, 1.5])], False: [EARLIER]}
    for relative, targets in stated.items():
        for target in targets:
            e = gather(data, target, model)
            made = [e, clip_weights(e), e.take(np.arange(5)), e.with_counts(np.ones(30))]
            assert all(x.relative == relative for x in made)


# -- tables are read in parts -------------------------------------------------------------------------


def test_the_parts_in_which_tables_are_read_change_nothing(log, monkeypatch):
    target, behaviour = random_tables(log.n_steps, 3)
    q = np.random.default_rng(1).normal(size=(log.n_steps, 3))
    given = [
        (target, behaviour),
        (mix(practice, EARLIER, 0.3), behaviour),
        (target, at_actions(behaviour, log.actions)),
    ]
    for one, other in given:
        whole = gather(log, one, other, q=q)
        with monkeypatch.context() as patch:
            patch.setattr(caliope._gather, "_CACHED", 3 * 7)  # seven steps of three actions
            parts = gather(log, one, other, q=q)
        assert np.array_equal(whole.log_ratio, parts.log_ratio)
        assert np.array_equal(whole.q, parts.q)
        assert np.array_equal(whole.v, parts.v)
        assert [note.code for note in whole.notes] == [note.code for note in parts.notes]


def test_a_row_that_is_no_distribution_is_named_among_all_rows(log, monkeypatch):
    monkeypatch.setattr(caliope._gather, "_CACHED", 3 * 7)
    target, behaviour = random_tables(log.n_steps, 3)
    target[[30, 31]] *= 2
    with pytest.raises(
        ValueError, match=rf"target: every row .* 2 of {log.n_steps} do not \(first: row 30, sum 2"
    ):
        gather(log, target, behaviour)


@pytest.mark.parametrize("order", ["C", "F"])
def test_the_entry_at_the_action_of_each_row(order):
    table = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], order=order)
    assert at_actions(table, np.array([2, 0])).tolist() == [3.0, 4.0]
    assert at_actions(table[:, ::2], np.array([1, 0])).tolist() == [3.0, 4.0]
    with pytest.raises(IndexError):
        at_actions(table, np.array([3, 0]))  # not the first entry of the next row
