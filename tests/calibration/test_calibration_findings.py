"""What a comparison of behaviour models says: rows, the choice with its arithmetic, findings at their thresholds."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from caliope._results import Interval
from caliope.calibration._findings import judge, select_worse
from caliope.calibration._null import AgainstNull
from caliope.calibration._reliability import CalibrationError, RatioReliability
from caliope.calibration._result import CalibrationRow, Choice, Measured, choose
from caliope.checks import K101, K102, K103

NAN, INF = float("nan"), float("inf")
QUIET = AgainstNull(0.1, 0.1, 0.01, 0.5)
MEASURED = Measured(
    n=10,
    n_steps=200,
    n_states=50,
    nll=0.61234,
    nll_interval=Interval(0.5, 0.7, 0.9, ""),
    brier=0.4,
    brier_interval=Interval(0.3, 0.45, 0.9, ""),
    skill_marginal=0.126,
    skill_last_action=0.2,
    zero_share=0.0,
    paper_tv=AgainstNull(0.3, 0.2, 0.05, 0.04),
    paper_interval=Interval(0.25, 0.35, 0.9, ""),
    noise_floor=0.18,
    averaged_tv=AgainstNull(0.11, 0.1, 0.01, 0.3),
    averaged_interval=Interval(0.09, 0.13, 0.9, ""),
    averaged_floor=0.1,
    calibration_loss=0.01,
    recalibration="temperature",
    top_label=CalibrationError(AgainstNull(0.04, 0.03, 0.01, 0.2), 0.02),
    classwise=None,
    balance=QUIET,
    balance_signs_p=0.4,
    weights=None,
    kernel=QUIET,
    true_tv=None,
    true_tv_interval=None,
    true_kl=None,
    true_at_logged=None,
    inflation=None,
)


def details(**parts):
    """Curves and tables of a model against which nothing is to be said, but for what is given."""
    usual = {
        "table": np.array([[0.5, 0.5], [0.4, 0.6]]),
        "balance": balance(0.5, 0.0),
        "ratios": ratios([1.0], [1.0], [0.1], [100.0]),
    }
    return SimpleNamespace(**usual | parts)


def balance(p, effect):
    return SimpleNamespace(
        p_value=p, effect=np.array([[effect, -effect / 2]]), worst=(1, "overall"),
        largest=AgainstNull(4.5, 2.0, 0.5, p), z=np.zeros((2, 3)),
    )  # fmt: skip


def ratios(ratio, observed, se, events, *, with_target=True):
    ratio, observed, se, events = map(np.array, (ratio, observed, se, events))
    return RatioReliability(ratio, np.ones(len(ratio)), observed, se, events, 0.0, with_target)


def found(code, given=None, *, whole=True, **changed):
    measured = replace(MEASURED, **changed)
    every = judge(given or details(), measured, whole=whole)
    return next((finding for finding in every if finding.code == code), None)


def level(finding):
    return finding and finding.level


# -- findings --


def test_nothing_is_said_against_a_quiet_model():
    assert judge(details(), MEASURED) == ()


def test_one_logged_action_with_probability_zero_is_an_issue():
    finding = found("K101", zero_share=0.005)
    assert (finding.level, finding.numbers["share"]) == ("issue", 0.005)


@pytest.mark.parametrize(
    ("states", "trajectories", "expected"),
    [(50, 10, None), (49, 10, "caution"), (50, 9, "caution"), (49, 9, "caution")],
)
def test_a_stratum_is_small_below_fifty_states_or_ten_trajectories(states, trajectories, expected):
    finding = found("K102", n_states=states, n=trajectories, whole=False)
    assert level(finding) == expected
    if finding:
        assert finding.numbers == {"states": states, "trajectories": trajectories}


@pytest.mark.parametrize(
    ("excess", "sd", "expected"),
    [
        (0.049, 0.0165, None),  # z = 2.97
        (0.019, 0.005, "note"),
        (0.021, 0.005, "caution"),
        (0.049, 0.005, "caution"),
        (0.051, 0.005, "issue"),
        (0.051, 0.0165, "issue"),  # z = 3.09
    ],
)
def test_an_excess_over_the_null_is_judged_by_its_size_once_it_is_clear(excess, sd, expected):
    finding = found("K103", averaged_tv=AgainstNull(0.1 + excess, 0.1, sd))
    assert level(finding) == expected
    if finding:
        assert finding.numbers["excess"] == pytest.approx(excess)
        assert finding.numbers["z"] == pytest.approx(excess / sd)


@pytest.mark.parametrize(("z", "expected"), [(-2.9, None), (-3.1, "caution")])
def test_a_model_closer_to_the_log_than_chance_allows(z, expected):
    finding = found("K110", averaged_tv=AgainstNull(0.1 + 0.01 * z, 0.1, 0.01))
    assert level(finding) == expected
    if finding:
        assert finding.numbers["z"] == pytest.approx(z)
    assert found("K103", averaged_tv=AgainstNull(0.1 + 0.01 * z, 0.1, 0.01)) is None


def test_a_model_that_says_the_same_everywhere():
    constant = details(table=np.full((5, 2), 0.5))
    assert level(found("K104", constant)) == "caution"
    assert found("K104", constant, whole=False) is None
    assert found("K104", details(table=np.array([[0.5, 0.5], [0.5 + 2e-9, 0.5 - 2e-9]]))) is None
    # One column moves and the other does not: a third takes the difference.
    assert found("K104", details(table=np.array([[0.2, 0.3, 0.5], [0.2, 0.4, 0.4]]))) is None


@pytest.mark.parametrize(
    ("p", "effect", "expected"),
    [(0.011, 0.5, None), (0.01, 0.009, "note"), (0.01, 0.011, "caution"), (0.001, -0.011, "caution")],
)
def test_balance_is_a_caution_where_the_effect_is_worth_a_word(p, effect, expected):
    finding = found("K105", details(balance=balance(p, effect)))
    assert level(finding) == expected
    if finding:
        numbers = {key: finding.numbers[key] for key in ("z", "p", "effect", "tests", "action")}
        assert numbers == {"z": 4.5, "p": p, "effect": abs(effect), "tests": 6, "action": 1}
        assert finding.facts["where"] == "overall"


@pytest.mark.parametrize(("p", "expected"), [(0.01, "note"), (0.011, None), (NAN, None)])
def test_the_kernel_error(p, expected):
    finding = found("K106", kernel=AgainstNull(0.4, 0.1, 0.1, p))
    assert level(finding) == expected
    if finding:
        assert finding.numbers["z"] == pytest.approx(3)
    assert found("K106", kernel=None) is None


@pytest.mark.parametrize(("saved", "expected"), [(0.02, None), (0.021, "note"), (INF, None), (None, None)])
def test_what_recalibration_would_save(saved, expected):
    finding = found("K108", calibration_loss=saved)
    assert level(finding) == expected
    if finding:
        assert finding.numbers["saved"] == saved
        assert finding.facts["recalibration"] == "temperature"


@pytest.mark.parametrize(
    ("observed", "se", "events", "expected"),
    [
        (1.3, 0.074, 10.0, "caution"),  # z = 4.05
        (1.3, 0.076, 10.0, None),  # z = 3.95
        (1.3, 0.074, 9.0, None),  # too few events
        (1.049, 0.001, 10.0, None),  # clear, and too small
        (1.051, 0.001, 10.0, "caution"),
        (0.949, 0.001, 10.0, "caution"),
        (1.49, 0.01, 10.0, "caution"),
        (1.51, 0.01, 10.0, "issue"),
        (0.49, 0.01, 10.0, "issue"),
    ],
)
def test_ratios_that_occur_more_or_less_often_than_the_model_says(observed, se, events, expected):
    finding = found("K109", details(ratios=ratios([1.0, 3.0], [1.0, observed], [0.1, se], [100.0, events])))
    assert level(finding) == expected
    if finding:
        assert finding.numbers["observed"] == observed
        assert finding.numbers["z"] == pytest.approx((observed - 1) / se)
        assert (finding.numbers["ratio"], finding.numbers["size"]) == (3.0, 3.0)
        assert finding.variants == ("weights",)


def test_without_a_target_ratios_are_told_as_probabilities_times_the_number_of_actions():
    # The clearest of two bins that are off; a bin of few events does not count however far off it is.
    given = ratios([0.5, 0.25, 0.1], [1.2, 0.7, 9.0], [0.04, 0.05, 0.1], [50, 50, 5], with_target=False)
    finding = found("K109", details(ratios=given))
    assert finding.level == "caution"
    assert finding.numbers["z"] == pytest.approx(-6)
    assert (finding.numbers["ratio"], finding.numbers["size"]) == (0.25, 0.5)
    assert finding.variants == ("probabilities",)


def test_of_a_stratum_only_what_is_worse_than_in_the_whole_log_is_told():
    mild, grave = (K103.finding(level, z=4.0, excess=0.03) for level in ("caution", "issue"))
    zeros = K101.finding("issue", share=0.1)
    small = K102.finding("caution", states=5, trajectories=3)
    assert select_worse((mild,), (grave, zeros)) == (grave, zeros)
    assert select_worse((grave, zeros), (mild, zeros, small)) == (small,)
    note = K103.finding("note", z=4.0, excess=0.01)
    assert select_worse((), (note,)) == (note,)


# -- a row --


def test_the_cells_of_a_row():
    row = CalibrationRow("forest", "all", MEASURED)
    assert row.cells() == {
        "model": "forest",
        "stratum": "all",
        "steps": "200",
        "NLL": "0.612",
        "90% interval": "[0.500, 0.700]",
        "Brier": "0.400",
        "saved": "0.13",
        "paper TV": "0.300",
        "its null": "0.200",
        "paper z": "2.0",
        "averaged excess": "0.010",
        "averaged z": "1.0",
    }
    known = CalibrationRow(
        "forest", "late", replace(MEASURED, nll=INF, skill_marginal=-0.001, true_tv=0.0625)
    )
    assert (known.name, row.name) == ("forest / late", "forest")
    assert known.cells()["true TV"] == "0.062"
    assert known.cells()["NLL"] == "inf"
    assert known.cells()["saved"] == "0.00"  # not -0.00


def test_a_row_in_a_shell_counts_what_is_more_than_a_note():
    findings = (K101.finding("issue", share=0.1), K103.finding("note", z=4.0, excess=0.01))
    assert (
        repr(CalibrationRow("a", "all", MEASURED, findings)) == "CalibrationRow('a': NLL 0.612, 1 findings)"
    )


def test_a_frame_has_every_number_and_the_same_columns_where_a_part_is_missing():
    full = CalibrationRow(
        "a", "all", replace(MEASURED, true_tv=0.1, true_tv_interval=Interval(0.05, 0.2, 0.9))
    )
    bare = replace(MEASURED, top_label=None, balance=None, kernel=None, calibration_loss=None)
    part = CalibrationRow("a", "late", bare, (K101.finding("issue", share=0.1),))
    one, two = full.record(), part.record()
    assert list(one) == list(two)
    assert (one["nll_low"], one["nll_high"], one["true_tv_low"], one["true_tv_high"]) == (0.5, 0.7, 0.05, 0.2)
    assert (two["true_tv_low"], two["true_tv_high"], two["top_label"], two["balance_z"]) == (None,) * 4
    paper = [one[f"paper_tv{end}"] for end in ("", "_null", "_null_sd", "_z", "_p")]
    assert paper == pytest.approx([0.3, 0.2, 0.05, 2.0, 0.04])
    top = [one[f"top_label{end}"] for end in ("", "_null", "_z", "_p", "_debiased")]
    assert top == pytest.approx([0.04, 0.03, 1.0, 0.2, 0.02])
    assert (one["findings"], two["findings"]) == ("", "K101")


def test_what_is_not_finite_is_nothing_in_json():
    row = CalibrationRow("a", "all", replace(MEASURED, nll=INF, brier=NAN, skill_marginal=-INF))
    told = row.to_dict()
    assert (told["nll"], told["brier"], told["skill_marginal"], told["n"]) == (None, None, None, 10)
    assert told["noise_floor"] == 0.18
    assert math.isinf(row.record()["nll"])


# -- the choice --

LENGTHS = np.ones(4, dtype=int)
BEST = np.array([1.0, 1.0, 1.0, 1.0])


def test_a_simpler_model_within_one_standard_error_is_preferred():
    # Differences .1, .2, 0, .1: mean .1, standard error sqrt(.02 / 3) / 2 = .0408. And .01 of them: within.
    far = {"simple": BEST + np.array([0.1, 0.2, 0.0, 0.1]), "best": BEST}
    choice = choose(far, LENGTHS, {"simple": 0.1, "best": 0.2})
    assert choice.se["simple"] == pytest.approx(np.sqrt(0.02 / 3) / 2)
    assert (choice.behind["simple"], choice.behind["best"]) == (pytest.approx(0.1), 0)
    assert (choice.recommended, choice.by_paper, choice.ranking) == ("best", "simple", ("best", "simple"))
    assert choice.reason == "lowest held-out log loss, 1.0000"
    assert str(choice) == (
        "Recommended: best, lowest held-out log loss, 1.0000.\n"
        "The paper's metric would choose simple. It favours smooth models, right or wrong.\n"
        "  1. best: log loss best\n"
        "  2. simple: log loss +0.1000 (se 0.0408)"
    )
    near = {"simple": BEST + np.array([0.1, -0.1, 0.1, 0.0]), "best": BEST}  # mean .025, standard error .0479
    choice = choose(near, LENGTHS, {"simple": 0.1, "best": 0.2})
    assert choice.recommended == "simple"
    assert choice.reason == (
        "simpler than best, and its held-out log loss is higher by 0.0250 only, within one standard error (0.0479)"
    )
    assert "paper's metric" not in str(choice)


def test_losses_are_of_steps_not_of_trajectories():
    # Four trajectories of 1, 1, 1 and 7 steps with losses 1, 1, 1 and 7: one in each step.
    choice = choose({"a": np.array([1.0, 1, 1, 7])}, np.array([1, 1, 1, 7]), {"a": 0.1})
    assert choice.reason == "lowest held-out log loss, 1.0000"


def test_models_with_a_probability_of_zero_come_last_by_how_often():
    losses = {
        "twice": BEST + np.array([INF, INF, 0, 0]),
        "once": BEST + np.array([INF, 0, 0, 0]),
        "never": BEST,
    }
    paper = dict.fromkeys(losses, 0.1)
    choice = choose(losses, LENGTHS, paper)
    assert choice.ranking == ("never", "once", "twice")
    assert (choice.behind["once"], choice.se["once"], choice.recommended) == (INF, INF, "never")
    told = choice.to_dict()
    assert told["behind"] == {"twice": None, "once": None, "never": 0.0}
    assert told["se"] == {"twice": None, "once": None, "never": 0.0}
    del losses["never"]
    choice = choose(losses, LENGTHS, paper)
    assert (choice.recommended, choice.ranking) == ("", ("once", "twice"))
    assert choice.reason.startswith("every model gives probability 0 to some logged action")
    assert str(choice).startswith("Recommended: none, every model gives probability 0")


def test_a_barred_model_is_ranked_and_not_recommended():
    losses = {"barred": BEST - 0.5, "out": BEST - 0.2, "fair": BEST}
    choice = choose(losses, LENGTHS, dict.fromkeys(losses, 0.1), barred=("barred",), ruled_out=("out",))
    assert (choice.recommended, choice.ranking) == ("fair", ("barred", "out", "fair"))
    assert choice.behind == pytest.approx({"barred": -0.5, "out": -0.2, "fair": 0})
    lines = str(choice).splitlines()
    assert lines[-3] == "  1. barred: log loss -0.5000 (se 0.0000), but judged on what it was fitted on"
    assert lines[-2] == "  2. out: log loss -0.2000 (se 0.0000), but ruled out by the tests of practice"
    none = choose({"barred": BEST}, LENGTHS, {"barred": 0.1}, barred=("barred",))
    assert none.recommended == ""
    assert none.reason == "every model was fitted on the trajectories that judge it"


def test_a_loss_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="not a number"):
        choose({"a": BEST, "b": BEST * NAN}, LENGTHS, {"a": 0.1, "b": 0.1})


def test_a_finite_number_stays_in_json():
    told = Choice("a", "", ("a", "b"), {"a": 0.0, "b": 0.25}, {"a": 0.0, "b": 0.125}, "b").to_dict()
    assert (told["behind"]["b"], told["se"]["b"], told["by_paper"]) == (0.25, 0.125, "b")
