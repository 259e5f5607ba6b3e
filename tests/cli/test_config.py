"""One description of the settings: options, study files and printed settings agree, also with the audit itself."""

import json
import re

import click
import polars as pl
import pytest
from click.testing import CliRunner

import caliope as cal
from caliope.behaviour import TabularFrequencies
from caliope.cli import main
from caliope.cli._config import ALONE, SETTINGS, Study, show_settings
from caliope.cli._study import read_study
from caliope.domains import ward

NOT_SETTINGS = {"work", "as_json", "quiet"}


def options_of(command):
    return {p.name for p in main.commands[command].params if isinstance(p, click.Option)}


def test_every_setting_is_an_option_of_evaluate_and_every_option_a_setting():
    assert options_of("evaluate") - NOT_SETTINGS == set(SETTINGS) - {"log", "targets"}
    assert options_of("calibrate") - NOT_SETTINGS <= set(SETTINGS)
    assert options_of("compare") - NOT_SETTINGS == set(SETTINGS) - {"log", *ALONE}


def test_every_setting_has_a_help_text_of_one_sentence_and_its_default():
    for name, setting in SETTINGS.items():
        text, _, default = setting.help.partition("  [default: ")
        assert re.fullmatch(r"[A-Z].*\.", text), name
        value = getattr(Study("log.csv"), name)
        chosen = name == "log" or value is None or value is False or value in ((), {})
        assert chosen or default.startswith(str(value).removesuffix(".0")), name


def test_options_are_a_study_file_without_a_file(tmp_path):
    given = {
        "episode": "visit",
        "states": "a, x0..x2",
        "recommended": "advice",
        "soften": 0.25,
        "n_actions": 4,
        "models": "logistic",
        "seed": 7,
    }
    lines = [f"{name.replace('_', '-')} = {json.dumps(x)}" for name, x in given.items()]
    (tmp_path / "study.toml").write_text("\n".join(['log = "/log.csv"', *lines]))
    from_file = read_study(str(tmp_path / "study.toml"), {}, needs_target=True)
    assert from_file == read_study("/log.csv", given, needs_target=True)
    assert from_file.states == ("a", "x0", "x1", "x2")


def test_printed_settings_are_those_that_were_given():
    study = Study("log.csv", states=tuple("abcdefghijklmn"), soften=0.25, recommended="advice", seed=9)
    assert show_settings(study) == {
        "log": "log.csv",
        "episode": "column 'episode'",
        "action": "column 'action'",
        "reward": "column 'reward'",
        "states": "a, b, c, d, e, f, g, h, i, j, k, l and 2 more",
        "recommended": "column 'advice'",
        "soften": "0.25",
    }


@pytest.mark.parametrize(
    ("name", "argument", "good", "bad"),
    [
        ("gamma", "gamma", 0.0, -0.01),
        ("gamma", "gamma", 1.0, 1.01),
        ("level", "level", 0.01, 0.0),
        ("level", "level", 0.99, 1.0),
        ("draws", "n_draws", 20, 19),
        ("worst", "worst", -5.0, "low"),
        ("fit_steps", "fit_steps", 100, 99),
        ("seed", "rng", 0, -1),
        ("seed", "rng", 2**32 - 1, 2**32),
    ],
)
def test_the_command_line_refuses_what_the_audit_refuses(name, argument, good, bad):
    given = {"recommended": "advice"}
    assert getattr(read_study("log.csv", given | {name: good}, needs_target=True), name) == good
    with pytest.raises(ValueError, match=name):
        read_study("log.csv", given | {name: bad}, needs_target=True)
    # The audit checks all its arguments before the target, so that nothing is fitted here.
    data, models = ward.simulate(6, rng=0), {"frequencies": TabularFrequencies()}
    with pytest.raises((TypeError, ValueError), match=argument):
        cal.audit(data, "no policy", models, **({"rng": 0} | {argument: bad}))
    with pytest.raises((TypeError, ValueError), match="target"):
        cal.audit(data, "no policy", models, **({"rng": 0} | {argument: good}))


def test_names_in_brackets_are_no_markup(tmp_path):
    frame = pl.DataFrame(
        {"episode": [1, 2], "time": [0, 0], "action": [0, 1], "reward": [0, 1], "[bold]x": [1.5, 2.5]}
    )
    frame.write_parquet(tmp_path / "log.parquet")
    result = CliRunner().invoke(main, ["calibrate", str(tmp_path / "log.parquet"), "--ignore", "y"])
    assert "--ignore names a column 'y'" in result.stderr
