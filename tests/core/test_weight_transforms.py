from dataclasses import replace

import numpy as np
import pytest

from caliope import Evidence, dr, ois, step_is, wdr, wis
from caliope.weights import clip_ratios, clip_weights, normalise_under_way, shrink_weights, smooth_weights
from caliope.weights._pareto import smooth_tail


def evidence(lengths, *, seed=0, spread=0.5, zeros=0, **changes):
    """Random evidence; ``zeros`` steps have an action that the target never takes."""
    rng = np.random.default_rng(seed)
    n_steps = int(np.sum(lengths))
    log_ratio = rng.normal(scale=spread, size=n_steps)
    log_ratio[rng.choice(n_steps, zeros, replace=False)] = -np.inf
    arguments = {
        "rewards": rng.normal(size=n_steps),
        "log_ratio": log_ratio,
        "offsets": np.concatenate([[0], np.cumsum(lengths)]),
    }
    return Evidence(**arguments | changes)


LONG = evidence([2000, 1, 700, 2000, 1500], zeros=3)
MANY = evidence(np.random.default_rng(5).integers(1, 7, 60), seed=1, spread=1.0, zeros=5)
EVERY = [
    pytest.param(lambda e: e, id="raw"),
    pytest.param(lambda e: clip_ratios(e, 1.5), id="clip_ratios"),
    pytest.param(lambda e: clip_weights(e, 2.0), id="clip_weights"),
    pytest.param(clip_weights, id="clip_weights, default"),
    pytest.param(lambda e: shrink_weights(e, 3.0), id="shrink_weights"),
    pytest.param(smooth_weights, id="smooth_weights"),
    pytest.param(normalise_under_way, id="normalise_under_way"),
    pytest.param(lambda e: clip_weights(shrink_weights(clip_ratios(e, 4.0), 9.0), 1.2), id="three in a row"),
]


def by_trajectory(e, x):
    return [x[a:b] for a, b in zip(e.offsets[:-1], e.offsets[1:], strict=True)]


def same_weights(e, log_expected):
    """Compare cumulative weights to 1e-12 relative, in logs: at T = 2000 they leave the range of a float."""
    zero = np.isneginf(log_expected)
    assert np.array_equal(np.isneginf(e.log_rho), zero)
    return np.allclose(e.log_rho[~zero], log_expected[~zero], rtol=0, atol=1e-12)


# -- the formulas -------------------------------------------------------------------------------------


@pytest.mark.parametrize("e", [LONG, MANY])
def test_clip_ratios_caps_each_ratio_and_multiplies_afterwards(e):
    expected = []
    for ratios in by_trajectory(e, np.exp(e.log_ratio)):
        with np.errstate(divide="ignore"):
            expected.append(np.cumsum(np.log([min(ratio, 1.5) for ratio in ratios])))
    # Sums of up to 2000 logs of at most 1: rounding below 2000 * 2000 * 1e-16 = 4e-10 at worst, 1e-12 in fact.
    assert same_weights(clip_ratios(e, 1.5), np.concatenate(expected))


@pytest.mark.parametrize("e", [LONG, MANY])
def test_clip_weights_caps_every_cumulative_weight(e):
    assert same_weights(clip_weights(e, 2.0), np.minimum(e.log_rho, np.log(2.0)))


@pytest.mark.parametrize("e", [LONG, MANY])
def test_by_default_the_cap_is_relative_to_the_mean_weight_of_the_step(e):
    rho = by_trajectory(e, np.exp(e.log_rho))
    multiple = max(np.sqrt(len(e)) / 3, 1.0)
    expected = [np.empty(len(x)) for x in rho]
    for t in range(max(len(x) for x in rho)):
        # Over all trajectories; one that has ended keeps its last weight.
        cap = multiple * np.mean([x[min(t, len(x) - 1)] for x in rho])
        for x, out in zip(rho, expected, strict=True):
            if t < len(x):
                out[t] = min(x[t], cap)
    with np.errstate(divide="ignore"):
        assert same_weights(clip_weights(e), np.log(np.concatenate(expected)))


def test_the_default_cap_by_hand():
    # n = 36: sqrt(36) / 3 = 2 times the mean. 35 weights of 1 and one of 37: mean 2, cap 4.
    e = Evidence(np.ones(36), np.log([1.0] * 35 + [37.0]), np.arange(37))
    assert clip_weights(e).rho == pytest.approx([1.0] * 35 + [4.0])


def test_fewer_than_nine_trajectories_are_capped_at_the_mean():
    # sqrt(4) / 3 is below 1. Weights 1 1 1 5: mean 2.
    e = Evidence(np.ones(4), np.log([1.0, 1.0, 1.0, 5.0]), np.arange(5))
    assert clip_weights(e).rho == pytest.approx([1, 1, 1, 2])


@pytest.mark.parametrize("e", [LONG, MANY])
def test_shrink_weights_shrinks_every_cumulative_weight(e):
    rho = np.exp(e.log_rho)
    assert same_weights(shrink_weights(e, 3.0), e.log_rho + np.log(3.0 / (rho**2 + 3.0)))


def test_shrinkage_neither_overflows_nor_underflows():
    # rho = exp(+-600): rho^2 leaves the range of a float. 3 rho / (rho^2 + 3) is 3 / rho, and rho.
    e = Evidence(np.ones(2), [600.0, -600.0], [0, 1, 2])
    assert shrink_weights(e, 3.0).log_rho == pytest.approx([np.log(3) - 600, -600], abs=1e-10)


def test_smooth_weights_smooths_the_tail_of_every_step():
    lengths = np.random.default_rng(0).integers(1, 5, 80)
    e = evidence(lengths, seed=2, spread=1.0)
    expected, shapes = [np.empty(n) for n in lengths], []
    last = np.empty(len(lengths))  # smoothed, once a trajectory has ended
    for t in range(max(lengths)):
        alive = lengths > t
        last[alive] = [x[t] for x in by_trajectory(e, e.rho) if len(x) > t]
        tail = smooth_tail(last)
        shapes.append(tail.k)
        last[alive] = tail.weights[alive]
        for i in np.flatnonzero(alive):
            expected[i][t] = last[i]
    smoothed = smooth_weights(e)
    assert smoothed.rho == pytest.approx(np.concatenate(expected), rel=1e-10)
    assert smoothed.notes[-1].numbers["k"] == pytest.approx(max(shapes))


def test_smoothing_never_raises_above_the_largest_weight_and_keeps_zeros():
    e = evidence([3] * 100, spread=1.0, zeros=20)
    before, after = e.rho.reshape(100, 3), smooth_weights(e).rho.reshape(100, 3)
    assert (after.max(axis=0) <= before.max(axis=0) * (1 + 1e-12)).all()
    assert np.array_equal(after == 0, before == 0)


def test_smoothing_leaves_weights_outside_the_tail_alone_however_small_they_are():
    # Trajectory 0 is exp(-800) after one step, below the smallest float beside the others, and 1 after two.
    e = evidence([3] * 200, spread=0.3)
    log_ratio = e.log_ratio.copy()
    log_ratio[:3] = [-800.0, 800.0, 0.0]
    e = replace(e, log_ratio=log_ratio)
    assert smooth_weights(e).log_rho[:3] == pytest.approx([-800.0, 0.0, 0.0], abs=1e-9)


def test_few_trajectories_are_not_smoothed():
    e = evidence([4] * 20)
    assert smooth_weights(e).log_rho == pytest.approx(e.log_rho, abs=1e-12)


# -- limits and composition ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "transform",
    [
        pytest.param(lambda e: clip_ratios(e, np.inf), id="clip_ratios"),
        pytest.param(lambda e: clip_weights(e, np.inf), id="clip_weights"),
        pytest.param(lambda e: shrink_weights(e, np.inf), id="shrink_weights, infinite"),
        pytest.param(lambda e: shrink_weights(e, 1e300), id="shrink_weights, large"),
    ],
)
def test_no_cap_and_no_shrinkage_change_nothing(transform):
    e = MANY
    other = transform(e)
    assert same_weights(other, e.log_rho)
    assert ois(other) == pytest.approx(ois(e), rel=1e-12)
    assert other.notes[-1].numbers["clipped" if other.notes[-1].code == "W101" else "changed"] == 0


def test_transforms_apply_in_the_order_in_which_they_are_called():
    # Ratios 4, 4 in one trajectory.
    e = Evidence(np.ones(2), np.log([4.0, 4.0]), [0, 2])
    # Ratios to 3: 3, 9; weights to 5: 3, 5.
    assert clip_weights(clip_ratios(e, 3.0), 5.0).rho == pytest.approx([3, 5])
    # Weights to 5: 4, 5, that is ratios 4, 5/4; ratios to 3: 3, 15/4.
    assert clip_ratios(clip_weights(e, 5.0), 3.0).rho == pytest.approx([3, 3.75])
    # Shrinking 4, 16 with strength 16: 4 * 16 / 32 = 2, 16 * 16 / 272 = 16/17; then to 1: 1, 16/17.
    assert clip_weights(shrink_weights(e, 16.0), 1.0).rho == pytest.approx([1, 16 / 17])


def test_a_cap_applied_twice_is_applied_once():
    once = clip_weights(MANY, 1.3)
    assert same_weights(clip_weights(once, 1.3), once.log_rho)


def test_a_common_factor_passes_through_the_default_cap():
    # All first ratios times 7: every weight times 7, before and after.
    first = np.zeros(len(MANY.log_ratio))
    first[MANY.layout.first] = np.log(7)
    scaled = replace(MANY, log_ratio=MANY.log_ratio + first)
    assert same_weights(clip_weights(scaled), clip_weights(MANY).log_rho + np.log(7))
    assert wis(clip_weights(scaled)) == pytest.approx(wis(clip_weights(MANY)), rel=1e-12)


@pytest.mark.parametrize("transform", EVERY)
def test_everything_but_the_ratios_stays(transform):
    rng = np.random.default_rng(0)
    q, v = rng.normal(size=(2, len(MANY.rewards)))
    e = replace(MANY, gamma=0.9, q=q, v=v, behaviour_known=True)
    other = transform(e)
    for name in ("rewards", "offsets", "q", "v"):
        assert np.array_equal(getattr(other, name), getattr(e, name))
    assert (other.gamma, other.behaviour_known, other.counts) == (0.9, True, None)


@pytest.mark.parametrize("transform", EVERY)
def test_a_weight_that_is_zero_stays_zero_to_the_end_of_its_own_trajectory(transform):
    assert np.array_equal(np.isneginf(transform(MANY).log_rho), np.isneginf(MANY.log_rho))


@pytest.mark.parametrize("transform", EVERY)
def test_weights_that_are_all_zero_stay_so(transform):
    e = Evidence(np.ones(4), [-np.inf, 0.0, -np.inf, 0.0], [0, 2, 4])
    other = transform(e)
    assert (other.rho == 0).all()
    assert np.isnan(wis(other))


# -- what is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0.0, -1.0, float("nan")])
def test_a_cap_or_strength_that_is_not_positive_is_refused(number):
    for transform, name in ((clip_ratios, "at"), (clip_weights, "at"), (shrink_weights, "strength")):
        with pytest.raises(ValueError, match=f"{name} must be positive, got {number}"):
            transform(MANY, number)


@pytest.mark.parametrize("transform", EVERY[1:])
def test_evidence_that_was_already_resampled_is_refused(transform):
    with pytest.raises(ValueError, match="already carries counts"):
        transform(MANY.with_counts(np.ones(len(MANY))))


def test_a_cap_read_off_the_log_is_held_fixed_when_trajectories_are_resampled():
    # The cap of the log is 4, as above; drawing the heavy trajectory twice does not move it.
    e = Evidence(np.array([0.0] * 35 + [1.0]), np.log([1.0] * 35 + [37.0]), np.arange(37))
    counts = np.array([1.0] * 34 + [0.0, 2.0])
    # 2 * 4 * 1 / (34 + 2 * 4)
    assert wis(clip_weights(e).with_counts(counts)) == pytest.approx(8 / 42)


# -- notes --------------------------------------------------------------------------------------------


def test_notes_add_up_in_the_order_of_the_transforms():
    e = clip_weights(shrink_weights(clip_ratios(MANY, 4.0), 9.0), 1.2)
    assert [(note.code, note.level) for note in e.notes] == [
        ("W101", "note"),
        ("W103", "note"),
        ("W102", "note"),
    ]


def test_the_note_on_ratios_counts_the_steps_that_were_capped():
    e = Evidence(np.ones(4), np.log([1.0, 3.0, 5.0, 2.0]), [0, 2, 4])
    (note,) = clip_ratios(e, 2.0).notes
    assert note.numbers == {"at": 2.0, "clipped": 2, "steps": 4}
    assert note.message == "The ratios of 2 of 4 steps were capped at 2."


def test_the_note_on_weights_tells_what_was_removed():
    # Final weights 1, 2, 5 capped at 2: one trajectory, and 3 of 8 of the weight.
    e = Evidence(np.ones(3), np.log([1.0, 2.0, 5.0]), np.arange(4))
    (note,) = clip_weights(e, 2.0).notes
    assert note.numbers["changed"] == 1
    assert note.numbers["removed"] == pytest.approx(3 / 8)
    assert "1 of 3 trajectories changed, and 37.5%" in note.message
    assert "The cap is 2." in note.message


def test_the_note_on_weights_sees_a_cap_in_the_middle_of_a_trajectory():
    # Weights 9, 1 and 1, 1, capped at 2: the first step of the first trajectory is changed, and with it every
    # stepwise estimate, although both final weights are as they were.
    e = Evidence([1.0, 0.0, 0.0, 0.0], np.log([9.0, 1 / 9, 1.0, 1.0]), [0, 2, 4])
    capped = clip_weights(e, 2.0)
    # (9 * 1 + 0) / 2, and (2 * 1 + 0) / 2
    assert (step_is(e), step_is(capped)) == (pytest.approx(4.5), pytest.approx(1.0))
    assert capped.notes[0].numbers["changed"] == 1


@pytest.mark.parametrize("at", [0.5, 1.0, 3.0])
def test_capping_moves_importance_sampling_by_no_more_than_the_weight_removed(at):
    e = evidence([4] * 50, spread=0.8)
    capped = clip_weights(e, at)
    removed = capped.notes[0].numbers["removed"] * e.rho[e.layout.last].mean()
    assert abs(ois(e) - ois(capped)) <= removed * np.abs(e.returns).max() * (1 + 1e-12)


# -- the same weights in every term -------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [1.0, 0.9, 0.0])
@pytest.mark.parametrize("transform", EVERY)
def test_exact_values_of_a_deterministic_world_make_wdr_the_mean_start_value_whatever_the_weights(
    transform, gamma
):
    # With Q_t = r_t + gamma V_{t+1} the sum telescopes to w_{-1} V_0 = V_0 / n, but only if the weight that
    # takes V_{t+1} away at t is the one that brings it back at t + 1.
    lengths = np.random.default_rng(7).integers(1, 7, 60)
    e = evidence(lengths, seed=3, spread=1.0, zeros=5)
    v = np.random.default_rng(4).normal(size=len(e.rewards))
    following = np.append(v[1:], 0.0)
    following[e.layout.last] = 0.0
    e = transform(replace(e, gamma=gamma, q=e.rewards + gamma * following, v=v))
    mean = v[e.layout.first].mean()
    assert wdr(e) == pytest.approx(mean, abs=1e-12)
    assert dr(e) == pytest.approx(mean, abs=1e-12)
