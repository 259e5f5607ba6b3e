"""Cohorts that others have made: small files in each of their forms, with made-up numbers checked by hand."""

from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest

from caliope.clinical import read_cohort
from caliope.clinical._databases import features
from caliope.clinical._foreign_values import DoseCuts, dose_levels

# Two stays, of three rows and of two; the first one dies.
STAYS = [11, 11, 11, 7, 7]
BLOCS = [1, 2, 3, 1, 2]
DIED = [1, 1, 1, 0, 0]
FLUID = [0.0, 50.0, 600.0, 49.9, 180.435]  # levels 0, 2, 4, 1, 3
VASO = [0.0, 0.0, 0.1, 0.45, 0.3]  # levels 0, 0, 2, 4, 3
ACTIONS = [0, 10, 22, 9, 18]  # 5 * fluid + vasopressor
SOFA = [4.0, 4.0, 7.0, 3.0, 0.0]
LACTATE = [2.0, 2.0, 3.0, 1.0, 1.0]


def table(**changes):
    """MIMICtable.csv of the AI Clinician, with few of its features."""
    return pl.DataFrame(
        {
            "bloc": BLOCS,
            "icustayid": STAYS,
            "charttime": [7_245_052_800 + 14_400 * bloc for bloc in BLOCS],
            "gender": [0, 0, 0, 1, 1],
            "age": [17_639.8] * 3 + [30_000.0] * 2,
            "died_in_hosp": DIED,
            "mortality_90d": [1] * 5,
            "HR": [80.0, 90.0, 100.0, 70.0, 75.0],
            "SOFA": SOFA,
            "Arterial_lactate": LACTATE,
            "max_dose_vaso": VASO,
            "input_4hourly": FLUID,
            "output_4hourly": [10.0, 20.0, 30.0, 40.0, 50.0],
        }
        | changes
    )


@pytest.fixture
def written(tmp_path):
    def write(frame, name="cohort.csv"):
        path = tmp_path / name
        frame.write_parquet(path) if name.endswith("parquet") else frame.write_csv(path)
        return path

    return write


def note(cohort, code):
    (found,) = (n for n in cohort.notes if n.code == code)
    return found


def test_the_table_of_the_ai_clinician(written):
    cohort = read_cohort(written(table()))
    assert cohort.format == "AI Clinician"
    data = cohort.data
    assert data.ids.tolist() == [11, 7]
    assert data.lengths.tolist() == [3, 2]
    assert data.actions.tolist() == ACTIONS
    assert data.n_actions == 25
    assert data.rewards.tolist() == [0, 0, -15, 0, 15]
    # Those of Raghu's 48 that the file has, in his order.
    assert data.feature_names == tuple(name for name, _ in features() if name in table().columns)
    assert "max_dose_vaso" not in data.feature_names
    # 17639.8 days are 17639.8 / 365.25 = 48.295 years.
    assert data.states[0, data.feature_names.index("age")] == pytest.approx(48.295, abs=5e-4)
    assert data["sofa"].tolist() == SOFA
    assert data["vasopressor_level"].tolist() == [0, 0, 2, 4, 3]
    assert data["fluid_level"].tolist() == [0, 2, 4, 1, 3]
    assert data["died"].tolist() == DIED
    assert "days" in note(cohort, "C102").message
    assert note(cohort, "C106").level == "note"
    assert "max_dose_vaso, input_4hourly" in note(cohort, "C114").message
    assert note(cohort, "C109").numbers["died"] == 0.5
    assert note(cohort, "C110").level == "caution"  # the same four hours
    assert str(cohort).startswith("AI Clinician: Trajectories(2 trajectories of 2 to 3 steps")


def test_older_names_and_another_order_of_rows_and_columns_change_nothing(written):
    older = table().rename({"input_4hourly": "input_4hourly_tev"})
    shuffled = older.select(sorted(older.columns))[[2, 0, 1, 4, 3]].with_row_index("")
    shuffled = shuffled.with_columns(pl.col("icustayid").cast(pl.Float64))
    first, second = read_cohort(written(table())).data, read_cohort(written(shuffled)).data
    assert second.ids.tolist() == [11, 7]
    assert np.array_equal(first.states, second.states)
    assert first.actions.tolist() == second.actions.tolist()


def test_shaped_rewards_are_those_of_the_formula(written):
    data = read_cohort(written(table()), rewards="shaped", terminal=(-1.0, 1.0)).data
    # Stay 11: SOFA 4 -> 4 (stagnant, above 0), lactate 2 -> 2: -0.025.
    #          SOFA 4 -> 7, lactate 2 -> 3: -0.125 * 3 - 2 tanh(1) = -0.375 - 1.523188 = -1.898188. Then death.
    # Stay 7:  SOFA 3 -> 0, lactate 1 -> 1: +0.375. Then survival.
    assert data.rewards == pytest.approx([-0.025, -1.898188, -1, 0.375, 1], abs=1e-6)


def test_a_stagnant_score_of_zero_costs_nothing(written):
    healthy = table(SOFA=[0.0] * 5, Arterial_lactate=[1.0] * 5)
    assert read_cohort(written(healthy), rewards="shaped").data.rewards.tolist() == [0, 0, -15, 0, 15]


def test_another_outcome_may_be_asked_for(written):
    cohort = read_cohort(written(table()), outcome="mortality_90d")
    assert cohort.data.rewards.tolist() == [0, 0, -15, 0, -15]
    with pytest.raises(ValueError, match="no column holds death: expected died_at_home"):
        read_cohort(written(table()), outcome="died_at_home")


def test_the_next_window_knows_the_state_before_the_decision(written):
    cohort = read_cohort(written(table()), rewards="shaped", next_window=True)
    data = cohort.data
    # The state of a row with the action of the next; the outcome moves to the last decision that is left.
    assert data.lengths.tolist() == [2, 1]
    assert data.actions.tolist() == [10, 22, 18]
    assert data.states[:, data.feature_names.index("HR")].tolist() == [80, 90, 70]
    assert data.rewards == pytest.approx([-0.025, -1.898188 - 15, 0.375 + 15], abs=1e-6)
    alone = pl.concat([table(), table()[:1].with_columns(icustayid=pl.lit(99, dtype=pl.Int64))])
    assert note(read_cohort(written(alone), next_window=True), "C115").numbers["lost_stays"] == 1


def test_gaps_between_blocs_are_reported(written):
    cohort = read_cohort(written(table(bloc=[1, 2, 5, 1, 3])))
    assert note(cohort, "C106").level == "caution"
    assert note(cohort, "C106").numbers["gaps"] == 2
    assert "stay 11" in note(cohort, "C106").message


def test_doses_in_the_state_are_warned_about(written):
    path = written(table())
    kept = read_cohort(path, keep_doses=True)
    assert kept.data.feature_names[-2:] == ("max_dose_vaso", "input_4hourly")
    assert note(kept, "C107").level == "caution"
    chosen = read_cohort(path, states=["HR", "input_4hourly"])
    assert chosen.data.states[:, 1].tolist() == FLUID
    assert "input_4hourly" in note(chosen, "C107").message
    clean = read_cohort(path, states=["HR"])
    assert note(clean, "C114").level == "note"
    with pytest.raises(ValueError, match="no column is called 'pulse'"):
        read_cohort(path, states=["pulse"])


@pytest.mark.parametrize(
    ("ages", "expected", "said"),
    [
        ([64.0] * 5, [64.0] * 5, "years"),
        ([20_000.0] * 4 + [110_000.0], [20_000 / 365.25] * 4 + [91.4], "days"),  # 110000 days are 301 years
    ],
)
def test_ages_become_years(written, ages, expected, said):
    cohort = read_cohort(written(table(age=ages)), states=["age"])
    assert cohort.data.states[:, 0] == pytest.approx(expected)
    assert said in note(cohort, "C102").message
    assert note(cohort, "C102").numbers.get("hidden_age") == (91.4 if max(expected) == 91.4 else None)


@pytest.mark.parametrize(
    ("gender", "expected"),
    [
        ([0, 0, 0, 1, 1], [0, 0, 0, 1, 1]),
        ([1, 1, 1, 2, 2], [0, 0, 0, 1, 1]),
        (["M"] * 3 + ["F"] * 2, [0, 0, 0, 1, 1]),
    ],
)
def test_genders_become_zero_and_one(written, gender, expected):
    cohort = read_cohort(written(table(gender=gender)), states=["gender"])
    assert cohort.data.states[:, 0].tolist() == expected
    assert note(cohort, "C103")


def test_cut_points_may_be_given_or_fitted_anew(written):
    path = written(table())
    own = read_cohort(path, cuts=DoseCuts((10, 20, 30), (0.2, 0.3, 0.4)))
    assert own.data["fluid_level"].tolist() == [0, 4, 4, 4, 4]
    assert own.data["vasopressor_level"].tolist() == [0, 0, 1, 4, 3]
    refit = read_cohort(path, refit_cuts=True)
    # Fluids above zero: 49.9, 50, 180.435, 600; quartiles at positions 0.75, 1.5, 2.25 of them:
    # 49.9 + 0.75 * 0.1 = 49.975; (50 + 180.435) / 2 = 115.2175; 180.435 + 0.25 * 419.565 = 285.32625.
    numbers = note(refit, "C104").numbers
    assert [numbers[f"fluid_{i}"] for i in (1, 2, 3)] == pytest.approx([49.975, 115.2175, 285.32625])
    assert refit.data["fluid_level"].tolist() == [0, 2, 4, 1, 3]


def test_levels_begin_at_their_cut_points():
    dose = np.array([0.0, 1e-9, 49.9, 50.0, 180.4, 180.435, 529.7, 529.757, 9000.0])
    assert dose_levels(dose, (50.0, 180.435, 529.757)).tolist() == [0, 1, 1, 2, 2, 3, 3, 4, 4]


def microsoft(actions=ACTIONS, **changes):
    """sepsis_final_data_RAW_withTimes.csv, with few of its features."""
    return pl.DataFrame(
        {
            "traj": [0, 0, 0, 1, 1],
            "step": [0, 1, 2, 0, 1],
            "m:presumed_onset": [7_245_000_000] * 5,
            "m:charttime": [7_245_052_800 + 14_400 * bloc for bloc in BLOCS],
            "m:icustayid": STAYS,
            "o:gender": [0, 0, 0, 1, 1],
            "o:age": [17_639.8] * 5,
            "o:HR": [80.0, 90.0, 100.0, 70.0, 75.0],
            "o:SOFA": SOFA,
            "o:max_dose_vaso": VASO,
            "o:input_4hourly": FLUID,
            "a:action": actions,
            "r:reward": [0, 0, -1, 0, 1],
        }
        | changes
    )


def test_the_files_of_microsoft(written):
    cohort = read_cohort(written(microsoft()))
    assert cohort.format == "microsoft/mimic_sepsis"
    assert cohort.data.actions.tolist() == ACTIONS
    assert cohort.data.rewards.tolist() == [0, 0, -1, 0, 1]
    assert cohort.data.feature_names == ("HR", "SOFA", "age", "gender", "bloc")
    assert note(cohort, "C104").numbers["first_action"] == 0
    assert note(cohort, "C105").message == "Rewards are those of the file."
    # No column says who died: the sign of the last reward does.
    assert cohort.data["died"].tolist() == DIED
    assert "a last reward below 0: 50.0% of 2 stays" in note(cohort, "C109").message
    rescaled = read_cohort(written(microsoft()), rewards="terminal")
    assert rescaled.data.rewards.tolist() == [0, 0, -15, 0, 15]


def test_standardised_files_say_so(written):
    scaled = microsoft(
        **{
            "o:HR": [-0.3, 0.1, 0.6, -1.0, -0.7],
            "o:age": [-0.4] * 5,
            "o:gender": [-0.5] * 3 + [0.5] * 2,
            "o:max_dose_vaso": [-0.5] * 5,
        }
    )
    cohort = read_cohort(written(scaled))
    assert note(cohort, "C111").level == "caution"
    assert cohort.data.states[:, cohort.data.feature_names.index("gender")].tolist() == [
        -0.5,
        -0.5,
        -0.5,
        0.5,
        0.5,
    ]
    assert note(cohort, "C106").numbers["gaps"] == 0  # by charttime
    assert note(read_cohort(written(scaled.drop("m:charttime"))), "C113").level == "caution"
    with pytest.raises(ValueError, match=r"actions cannot be read from .*: the file is standardised"):
        read_cohort(written(scaled), refit_cuts=True)
    with pytest.raises(ValueError, match="the file is standardised"):
        read_cohort(written(scaled), rewards="shaped")


def test_actions_from_one_become_actions_from_zero(written):
    cohort = read_cohort(written(microsoft([1, 11, 25, 10, 19])))
    assert cohort.data.actions.tolist() == [0, 10, 24, 9, 18]
    assert "now from 0" in note(cohort, "C104").message


def test_where_it_cannot_be_told_the_reader_asks(written):
    path = written(microsoft([1, 11, 23, 10, 19]))
    assert note(read_cohort(path), "C112").level == "caution"
    assert read_cohort(path, first_action=1).data.actions.tolist() == [0, 10, 22, 9, 18]
    with pytest.raises(ValueError, match="whole numbers from 0 to 24"):
        read_cohort(written(microsoft([0, 11, 31, 10, 19])))


def raghu(**changes):
    """discretised_input_data.csv: the table with its older names, and two levels."""
    frame = table().rename({"input_4hourly": "input_4hourly_tev"})
    return frame.with_columns(
        vaso_input=pl.Series([0.0, 0.0, 2.0, 4.0, 3.0]), iv_input=pl.Series([0.0, 2.0, 4.0, 1.0, 3.0])
    ).with_columns(pl.Series(name, values) for name, values in changes.items())


def test_the_files_of_raghu(written):
    raw = read_cohort(written(raghu()))
    assert raw.format == "Raghu 2017"
    assert raw.data.actions.tolist() == ACTIONS
    assert raw.data.rewards.tolist() == [0, 0, -15, 0, 15]
    # rl_train_data_final_cont.csv: between 0 and 1, the bloc too, with rewards.
    final = read_cohort(
        written(
            raghu(
                bloc=[0.0, 0.22, 0.36, 0.0, 0.22],
                HR=[0.3, 0.4, 0.5, 0.2, 0.3],
                age=[0.41] * 5,
                max_dose_vaso=[0.0, 0.0, 0.4, 0.9, 0.8],
                input_4hourly_tev=[0.0, 0.5, 0.9, 0.4, 0.7],
                reward=[0.1, -0.2, -15.0, 0.0, 15.0],
            ),
            "rl_train_data_final_cont.csv",
        )
    )
    assert final.data.actions.tolist() == ACTIONS
    assert final.data.rewards.tolist() == [0.1, -0.2, -15, 0, 15]
    assert note(final, "C106").level == "note"
    assert note(final, "C111").level == "caution"
    sparse = read_cohort(written(raghu(reward=[0, 0, -100, 0, 100])), rewards="terminal")
    assert sparse.data.rewards.tolist() == [0, 0, -15, 0, 15]


def cmudig():
    frame = table(age=[48.0] * 3 + [82.0] * 2).rename(
        {"input_4hourly": "input_step", "output_4hourly": "output_step", "mortality_90d": "morta_90"}
    )
    return frame.with_columns(mechvent=pl.Series([0, 0, 1, 0, 0]))


def test_the_whole_data_set_of_cmudig_is_cut_to_its_cohort(written):
    others = cmudig().with_columns(icustayid=pl.col("icustayid") + 1000)
    path = written(pl.concat([cmudig(), others]), "mimic_dataset.csv")
    everyone = read_cohort(path)
    assert everyone.format == "cmudig/AI-Clinician-MIMICIV"
    assert len(everyone.data) == 4
    written(pl.DataFrame({"icustayid": [7, 11], "morta_90": [1, 1]}), "sepsis_cohort.csv")
    cohort = read_cohort(path, outcome="mortality_90d")
    assert cohort.data.ids.tolist() == [11, 7]
    assert "2 of its 4 stays" in note(cohort, "C101").message
    assert note(everyone, "C101").message.endswith("is beside it, so all of its stays are read.")
    assert "years" in note(cohort, "C102").message
    assert cohort.data.rewards.tolist() == [0, 0, -15, 0, -15]
    assert "output_4hourly" in cohort.data.feature_names


def test_the_split_of_cmudig_needs_its_neighbours(written):
    raw = cmudig().drop("bloc", "icustayid", "charttime", "died_in_hosp", "morta_90")
    scaled = raw.with_columns((pl.col("HR") - 83) / 12, pl.col("max_dose_vaso") - 0.5, pl.col("age") / 100)
    path = written(scaled, "MIMICzs.csv")
    with pytest.raises(FileNotFoundError, match=r"metadata\.csv must be in the same folder"):
        read_cohort(path)
    written(pl.DataFrame({"bloc": BLOCS, "icustayid": STAYS, "outcome": DIED}), "metadata.csv")
    with pytest.raises(FileNotFoundError, match=r"MIMICraw\.csv must be in the same folder"):
        read_cohort(path)
    other = written(raw, "MIMICraw.csv")
    for cohort in (read_cohort(path), read_cohort(other)):
        assert cohort.format == "cmudig/AI-Clinician-MIMICIV split"
        assert cohort.data.actions.tolist() == ACTIONS
        assert cohort.data.rewards.tolist() == [0, 0, -15, 0, 15]
    assert read_cohort(path).data.states[
        0, read_cohort(path).data.feature_names.index("HR")
    ] == pytest.approx(-0.25)
    written(raw[:3], "MIMICraw.csv")
    with pytest.raises(ValueError, match=r"has 5 rows and .* has 3"):
        read_cohort(path)


def test_our_own_cohort_comes_back(written):
    begin = datetime(2150, 1, 1)
    own = (
        table()
        .rename({"icustayid": "icustay_id"})
        .drop("died_in_hosp", "mortality_90d")
        .with_columns(
            charttime=pl.Series([begin + timedelta(hours=4 * b) for b in BLOCS]),
            decided_at=pl.Series([begin + timedelta(hours=4 * b + 4) for b in BLOCS]),
            action=pl.Series(ACTIONS),
            reward=pl.Series([0.5, 0.25, -15.0, 0.0, 15.0]),
            died=pl.Series(DIED).cast(pl.Boolean),
            iv_level=pl.Series([0, 2, 4, 1, 3]),
            vaso_level=pl.Series([0, 0, 2, 4, 3]),
        )
    )
    cohort = read_cohort(written(own, "cohort.parquet"))
    assert cohort.format == "caliope cohort"
    assert cohort.data.actions.tolist() == ACTIONS
    assert cohort.data.rewards.tolist() == [0.5, 0.25, -15, 0, 15]
    assert note(cohort, "C115").level == "note"
    assert "iv_level" not in cohort.data.feature_names
    with pytest.raises(ValueError, match="from before their actions already"):
        read_cohort(written(own, "cohort.parquet"), next_window=True)


def test_an_unknown_file_is_told_what_was_looked_for(written):
    path = written(pl.DataFrame({"stay": [1], "HR": [80], "dose": [0]}))
    with pytest.raises(ValueError, match="begin with stay, HR, dose") as error:
        read_cohort(path)
    assert "AI Clinician: lacks icustayid, bloc, max_dose_vaso, input_4hourly or input_4hourly_tev" in str(
        error.value
    )
    assert "microsoft/mimic_sepsis: lacks traj" in str(error.value)
    with pytest.raises(FileNotFoundError, match=r"nowhere\.csv is not a file"):
        read_cohort(path.parent / "nowhere.csv")


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"bloc": [1, 1, 2, 1, 2]}, {}, r"2 rows share .* \(first: stay 11, bloc 1\)"),
        (
            {"max_dose_vaso": [0.0, -0.1, 0.0, 0.0, 0.0]},
            {},
            r"max_dose_vaso .* 1 of 5 rows .* -0.1 in stay 11",
        ),
        ({"died_in_hosp": [1, 0, 1, 0, 0]}, {}, r"died_in_hosp changes within 1 stays \(first: 11\)"),
        ({"died_in_hosp": [2, 2, 2, 0, 0]}, {}, "died_in_hosp must be 1 for those who died"),
        ({"gender": [3, 3, 3, 4, 4]}, {}, "gender must be coded 0 and 1"),
        ({"HR": [80.0, None, 90.0, 90.0, 90.0]}, {}, "HR"),
        ({}, {"rewards": "file"}, "the file has no rewards"),
        ({}, {"rewards": "sparse"}, "rewards must be 'terminal', 'shaped' or 'file'"),
        ({"input_4hourly": [0.0] * 5}, {"refit_cuts": True}, "input_4hourly is zero in every row"),
        ({"input_step": [0.0] * 5}, {}, "'input_4hourly' under two names"),
        ({"bloc": [1, None, 2, 1, 2]}, {}, "are required in every row"),
        (
            {"SOFA": ["4", "4", "high", "3", "0"]},
            {},
            r"SOFA must hold numbers, but 1 rows .* 'high' in row 3",
        ),
        ({"action": [0, 1, None, 2, 3]}, {}, "1 of 5 rows have no action"),
        ({"action": [1.0, 2.0, 3.7, 2.0, 3.0]}, {}, r"whole numbers, got 3.7 \(first of 1 rows\)"),
        ({"age": [64.0] * 4 + [20_000.0]}, {}, r"in years by their median cannot be 20000 \(first in stay 7"),
        ({"age": [20_000.0] * 4 + [64.0]}, {}, r"in days by their median cannot be 64 \(first in stay 7"),
        ({"age": [20_000.0] * 4 + [200_000.0]}, {}, "in days by their median cannot be 200000"),  # 548 years
        ({"age": [64.0, -3.0, 64.0, 64.0, 64.0]}, {}, "in years by their median cannot be -3"),
        ({}, {"states": ["HR", "mortality_90d"]}, "'mortality_90d' is known only after the decision"),
        (
            {"input_4hourly": [0.0, float("inf"), 0.0, 0.0, 0.0]},
            {},
            "input_4hourly must hold doses of 0 or more.* inf",
        ),
        # Between 0 and 1, doses too: 0.4 would be level 3 of a vasopressor, and 0.9 mL level 1 of a fluid.
        (
            {
                "HR": [0.3, 0.4, 0.5, 0.2, 0.3],
                "max_dose_vaso": [0.0, 0.0, 0.4, 0.9, 0.8],
                "input_4hourly": [0.0, 0.5, 0.9, 0.4, 0.7],
            },
            {},
            "actions cannot be read from input_4hourly and max_dose_vaso: the file is standardised",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(written, changes, options, message):
    with pytest.raises(ValueError, match=message):
        read_cohort(written(table(**changes)), **options)


@pytest.mark.parametrize("name", ["cohort.csv", "cohort.parquet"])
@pytest.mark.parametrize("content", [b"", b"\x00\xff\xfe garbage", b"a,b\n"])
def test_empty_and_garbled_files_are_one_line_of_news(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=name) as error:
        read_cohort(path)
    assert "\n" not in str(error.value) or "is no sepsis cohort" in str(error.value)


@pytest.mark.parametrize("cuts", [(50.0, 10.0, 90.0), (-1.0, 10.0, 90.0), (1.0, 2.0, float("nan"))])
def test_cut_points_rise(cuts):
    with pytest.raises(ValueError, match="the fluid cut points must be three rising numbers from 0"):
        DoseCuts(cuts)
