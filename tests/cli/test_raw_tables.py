"""Raw tables through the commands: one command each, names kept, and no column taken without a word."""

import json

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from sklearn.linear_model import LogisticRegression

import caliope as cal
from caliope.cli import main
from support.raw_tables import HOSPITAL_POLICY, hospital, shop

FAST = ["--models", "logistic", "--draws", "20"]
HOSPITAL = [
    "--episode",
    "stay",
    "--time",
    "charted",
    "--action",
    "fluid_ml,norepinephrine",
    "--reward",
    "alive_at_discharge",
]
SHOP = ["--episode", "row", "--action", "offer", "--reward", "bought"]
OFFERS = ["--target-columns", "p_none,p_free shipping,p_10% off"]


def run(*arguments, **more):
    return CliRunner().invoke(main, [str(x) for x in arguments], **more)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("raw")
    hospital(120, seed=1).raw.write_csv(folder / "hospital.csv")
    shop(400, seed=1).raw.write_csv(folder / "shop.csv", separator=";")
    return folder


@pytest.mark.slow
def test_the_hospital_table_in_one_command(folder):
    given = [
        *HOSPITAL,
        "--cuts",
        "fluid_ml:0,500;norepinephrine:0",
        "--target-columns",
        ",".join(HOSPITAL_POLICY),
    ]
    out = folder / "report.html"
    result = run("evaluate", folder / "hospital.csv", *given, *FAST, "--recorded-before", "all", "--out", out)
    assert result.exit_code in (0, 3), result.output
    said = result.stderr.partition("fitting behaviour models")[0]
    assert "states: all 6 columns not used otherwise: age, sex, ward, ventilated, lactate, sodium" in said
    assert "left out of the states: admitted: dates" in said
    assert "action 'fluid_ml': cut where asked: 0, 500" in said
    assert "action 'norepinephrine': cut where asked: 0" in said
    assert "gaps filled" in said
    page, numbers = out.read_text(), json.loads(out.with_suffix(".json").read_text())
    assert "fluid_ml above 0 to 500, norepinephrine above 0" in page
    assert "figure-map-policy" in page  # the six pairs of doses are a grid of the two drugs
    assert [each["name"] for each in numbers["contents"]["actions"]][:2] == [
        "fluid_ml 0, norepinephrine 0",
        "fluid_ml 0, norepinephrine above 0",
    ]
    assert "gaps filled" in page
    assert "rare levels pooled" in numbers["settings"]["state 'ward'"]
    assert "two neighbouring levels are merged" in page
    merged = {
        row["model"] for row in numbers["other_choices"]["rows"] if row["model"].endswith("(levels merged)")
    }
    assert merged == {
        "logistic, fluid_ml cut at 0 (levels merged)"
    }  # of the other drug there are but two levels


@pytest.mark.slow
def test_the_shop_table_in_one_command_and_from_the_standard_input(folder):
    common = ["--json", *SHOP, *OFFERS, *FAST]
    result = run("evaluate", folder / "shop.csv", *common)
    found = json.loads(result.stdout)
    assert "L101" not in [finding["code"] for finding in found["headline"]["findings"]]
    assert found["settings"]["episode"] == "each row"
    assert found["settings"]["file"] == "columns separated by semicolons"
    # The order of the options is not that of the actions: the names decide.
    piped = run("evaluate", "-", *common, input=(folder / "shop.csv").read_bytes())
    assert json.loads(piped.stdout)["headline"]["value"] == found["headline"]["value"]
    other = [*SHOP, "--target-columns", "p_10% off,p_none,p_free shipping", *FAST]
    again = json.loads(run("evaluate", folder / "shop.csv", "--json", *other).stdout)
    assert again["headline"]["value"] == found["headline"]["value"]


@pytest.mark.slow
def test_words_and_doses_are_recommended_as_they_are_logged(folder):
    raw = pl.read_csv(folder / "shop.csv", separator=";").with_columns(advice=pl.lit("free shipping"))
    raw.write_csv(folder / "advised.csv")
    common = [*SHOP, *FAST, "--states", "device,basket", "--quiet", "--json"]
    by_word = json.loads(run("evaluate", folder / "advised.csv", *common, "--recommended", "advice").stdout)
    certain = raw.with_columns(**{"q_none": pl.lit(0), "q_free shipping": pl.lit(1), "q_10% off": pl.lit(0)})
    certain.write_csv(folder / "certain.csv")
    columns = ["--target-columns", "q_none,q_free shipping,q_10% off"]
    by_column = json.loads(run("evaluate", folder / "certain.csv", *common, *columns).stdout)
    assert by_word["headline"]["value"] == by_column["headline"]["value"]
    doses = pl.read_csv(folder / "hospital.csv").with_columns(advised=pl.lit(200.5))
    doses.write_csv(folder / "doses.csv")
    given = [
        *["fluid_ml" if x == "fluid_ml,norepinephrine" else x for x in HOSPITAL],
        "--cuts",
        "0,500",
        "--states",
        "age,lactate",
        "--recommended",
        "advised",
        "--soften",
        "0.9",
    ]
    result = run("evaluate", folder / "doses.csv", *given, *FAST, "--quiet", "--json")
    found = json.loads(result.stdout)
    assert found["headline"]["value"] is not None
    models = {row["model"] for row in found["other_choices"]["rows"]}
    cut = [model.partition(" cut at ")[2].split(", ") for model in models if " cut at " in model]
    assert sorted(map(len, cut)) == [1, 3]  # cut points: one level above 0 instead of two, and three


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([*SHOP, *OFFERS, "--quiet"], "the states are not named, and with --quiet nobody would see"),
        (
            [*SHOP, "--states", "device", "--target-columns", "p_none,p_free shipping,returning"],
            "1 of p_none, p_free",
        ),
        (
            [*SHOP, "--states", "device", "--target-columns", "p_none,p_free shipping"],
            "names 2 columns, one per action",
        ),
        ([*SHOP, "--states", "device", "--recommended", "country"], "holds the action"),
        ([*SHOP, "--states", "visited", *OFFERS], "column 'visited' holds dates"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(folder, given, said):
    result = run("evaluate", folder / "shop.csv", *given, *FAST)
    assert result.exit_code == 2, result.output
    lines = [line for line in result.stderr.splitlines() if line.startswith("Error")]
    assert len(lines) == 1
    assert said in lines[0] or "0 of p_none" in lines[0]


def test_several_files_and_a_folder_of_csv_are_one_log(folder, tmp_path):
    raw = pl.read_csv(folder / "shop.csv", separator=";")
    for number in (1, 2):
        raw[200 * (number - 1) : 200 * number].write_csv(tmp_path / f"part{number}.csv")
    common = [*SHOP, "--states", "device,basket", "--models", "logistic", "--quiet", "--json"]
    whole = run("calibrate", folder / "shop.csv", *common)
    several = run("calibrate", tmp_path / "part1.csv", tmp_path / "part2.csv", *common)
    inside = run("calibrate", tmp_path, *common)
    rows = [json.loads(result.stdout)["rows"] for result in (whole, several, inside)]
    assert rows[0] == rows[1] == rows[2]


def test_columns_that_look_like_something_else_are_left_out_and_named(folder, tmp_path):
    raw = pl.read_csv(folder / "shop.csv", separator=";")
    n = raw.height
    odd = raw.with_columns(
        visit_id=pl.int_range(n) * 7,
        number=pl.int_range(n),
        comment=pl.Series([f"text {i}" for i in range(n)]),
        sold=pl.col("bought") * 12.5,
        given=pl.col("offer").str.to_uppercase(),
        empty=pl.lit(None),
    ).select(pl.int_range(n).alias(""), pl.all())
    odd.write_csv(tmp_path / "log.csv")
    result = run("calibrate", tmp_path / "log.csv", *SHOP, "--models", "logistic")
    assert result.exit_code in (0, 3), result.output
    said = result.stderr
    assert (
        "states: all 5 columns not used otherwise: device, country, basket, returning, newsletter\n" in said
    )
    for reason in (
        "the one without a name: an index without a name",
        "visited: dates",
        "p_none, p_free shipping, p_10% off: looks like a policy's probabilities",
        "visit_id: an id, by its name",
        "number: an id: a different number for every trajectory or row",
        "comment: an id or free text",
        "sold: repeats the outcome",
        "given: repeats the action",
        "empty: empty",
    ):
        assert reason in said
    assert said.index("left out of the states") < said.index("fitting behaviour models")


def test_a_column_that_rises_in_every_trajectory_may_be_the_time(folder, tmp_path):
    raw = pl.read_csv(folder / "hospital.csv").with_columns(hour=4 * pl.int_range(pl.len()).over("stay"))
    raw.drop("charted").write_csv(tmp_path / "log.csv")
    given = [
        *HOSPITAL[:2],
        *HOSPITAL[4:],
        "--levels",
        "2",
        "--models",
        "logistic",
    ]
    said = run("calibrate", tmp_path / "log.csv", *given).stderr
    assert (
        "time: rows as they stand in the file; 'hour' rises in every trajectory and may be meant (--time)"
        in said
    )


@pytest.mark.slow
def test_probabilities_rounded_to_two_digits_are_rescaled_and_it_is_said(folder, tmp_path):
    raw = pl.read_csv(folder / "shop.csv", separator=";")
    rounded = raw.with_columns(pl.col("^p_.*$").round(2))
    sums = rounded.select(pl.sum_horizontal("^p_.*$")).to_series().to_numpy()
    assert np.abs(sums - 1).max() > 0.005
    rounded.write_csv(tmp_path / "log.csv")
    common = [*SHOP, "--states", "device,basket", *OFFERS, *FAST, "--json"]
    found = json.loads(run("evaluate", tmp_path / "log.csv", *common).stdout)
    assert found["settings"]["target probabilities"].startswith("rounded to 2 digits, rescaled")
    raw.with_columns(pl.col("p_none") * 1.015).write_csv(tmp_path / "odd.csv")
    result = run("evaluate", tmp_path / "odd.csv", *common, "--quiet")
    assert result.exit_code == 2
    assert "sum to 1" in result.stderr


@pytest.mark.slow
def test_a_saved_policy_brings_its_encoder(folder, tmp_path):
    pytest.importorskip("skops")
    data = cal.read_table(
        folder / "shop.csv",
        episode=None,
        action="offer",
        reward="bought",
        states=["device", "country", "basket"],
    )
    model = LogisticRegression(max_iter=500).fit(data.states, data.actions)
    cal.behaviour.save_model(model, tmp_path / "policy.skops", encoder=data.encoder)
    fewer = pl.read_csv(folder / "shop.csv", separator=";").filter(pl.col("country") != "CH")
    fewer.write_csv(tmp_path / "later.csv")
    given = [*SHOP, "--model", tmp_path / "policy.skops", *FAST, "--quiet", "--json"]
    found = json.loads(run("evaluate", tmp_path / "later.csv", *given).stdout)
    assert found["settings"]["states"] == "device, country, basket"
    assert found["gain"]["value"] == pytest.approx(0, abs=0.05)
