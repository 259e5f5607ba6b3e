"""All settings of an evaluation, each described once: options, study files and printed settings come from here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

import click

from caliope.cli._kinds import (
    ADDRESS,
    COLUMN,
    COLUMNS,
    CUTS,
    ENDED,
    ENGINE,
    EPISODE,
    FAIL_ON,
    FILE,
    FILES,
    FLAG,
    GAMMA,
    GRID,
    LEARNT_ON,
    LEVEL,
    NAMES,
    NUMBER,
    OBJECT,
    PAGE,
    PROPENSITY,
    RECORDED,
    REQUIRE,
    SHARE,
    STRATA,
    TEXT,
    WORD,
    Kind,
    whole,
)
from caliope.cli._targets import check_targets

MODELS = ("frequencies", "logistic", "neighbours", "forest", "boosting", "network", "pool")
MOST_ACTIONS = 10_000  # every decision has a probability of each


# -- the settings --

LOG, TARGET, ABOUT, OUTPUT, FIT, PARTS = (
    "log",
    "target",
    "about",
    "output",
    "fit",
    "parts",
)  # groups, for commands that take some of them


@dataclass(frozen=True)
class Setting:
    """One setting: what it holds, its group, its help, and whether an audit prints it with what was read."""

    kind: Kind
    group: str | None
    help: str
    printed: bool = False


def _setting(
    default: Any,
    kind: Kind,
    group: str | None,
    text: str,
    *,
    otherwise: str | None = None,
    printed: bool = False,
) -> Any:
    """A field with its description; ``otherwise`` says what stands for a value that is not given."""
    known = not any(default is none for none in (MISSING, None, False, ())) and default != {}
    standard = str(default) if otherwise is None and known else otherwise
    shown = text if standard is None else f"{text}  [default: {standard}]"
    how: Any = {"default_factory": dict} if default == {} else {"default": default}
    return field(**how, metadata={"setting": Setting(kind, group, shown, printed)})


@dataclass(frozen=True)
class Study:
    """What is to be evaluated and how. What is None or empty is chosen from the log, and printed."""

    log: str | tuple[str, ...] = _setting(
        MISSING, FILES, None, "Table with one row per decision.", printed=True
    )
    episode: str = _setting(
        "episode", EPISODE, LOG, "Trajectory that a row belongs to; row: each row is one.", printed=True
    )
    unit: str = _setting(
        "trajectory", WORD, LOG, "What one trajectory is called in the report: visit, stay, customer."
    )
    action: str = _setting(
        "action",
        COLUMN,
        LOG,
        "Action taken: words, codes 0, 1, 2, ..., or doses; several columns with commas.",
        printed=True,
    )
    levels: int | None = _setting(
        None, whole(1, 100), LOG, "Cut doses at quantiles into so many levels, 0 apart.", printed=True
    )
    cuts: str | None = _setting(
        None, CUTS, LOG, "Cut doses there, e.g. 0,50,200 or fluid:0,50;dose:0.", printed=True
    )
    reward: str = _setting("reward", COLUMN, LOG, "Reward after the action.", printed=True)
    states: tuple[str, ...] = _setting(
        (),
        COLUMNS,
        LOG,
        "What was known before the decision, separated by commas; x0..x9 is a range.",
        otherwise="all columns not used otherwise, printed",
        printed=True,
    )
    ignore: tuple[str, ...] = _setting(
        (),
        COLUMNS,
        LOG,
        "Columns that are not states, such as values recorded after the decision.",
        printed=True,
    )
    time: str | None = _setting(
        None,
        COLUMN,
        LOG,
        "Order of the rows of a trajectory.",
        otherwise="time, if there is one",
        printed=True,
    )
    terminated: str | None = _setting(
        None, COLUMN, LOG, "True where a trajectory ended, False where it was cut off.", printed=True
    )
    cluster: str | None = _setting(
        None, COLUMN, LOG, "Cluster of the trajectory, such as a site; kept together.", printed=True
    )
    ended: str | None = _setting(
        None, ENDED, LOG, "Whether trajectories ended: all, or a column as for --terminated.", printed=True
    )
    recorded_before: tuple[str, ...] = _setting(
        (), RECORDED, LOG, "States recorded before the decision of their row: all, or these.", printed=True
    )
    calendar: str | None = _setting(
        None,
        COLUMN,
        LOG,
        "When a trajectory began, a number or a date: practice may have changed since.",
        otherwise="order of the file",
        printed=True,
    )
    n_actions: int | None = _setting(
        None, whole(1, MOST_ACTIONS), LOG, "Number of actions.", otherwise="largest code + 1"
    )
    by: str | None = _setting(
        None, STRATA, LOG, "Strata of calibration, values and differences, e.g. age:40,65.", printed=True
    )
    target_columns: tuple[str, ...] = _setting(
        (), COLUMNS, TARGET, "Target policy: its probabilities, one column per action.", printed=True
    )
    recommended: str | None = _setting(
        None, COLUMN, TARGET, "Target policy: the action that it recommends.", printed=True
    )
    model: str | None = _setting(
        None, FILE, TARGET, "Target policy: a fitted model, as written by save_model.", printed=True
    )
    policy: str | None = _setting(
        None, OBJECT, TARGET, "Target policy: an object of a Python module, whose code is run.", printed=True
    )
    learn: str | None = _setting(
        None,
        OBJECT,
        TARGET,
        "Target policy: its learner, an object of a Python module, fitted across folds.",
        printed=True,
    )
    targets: Mapping[str, str] = _setting(
        {},
        Kind(
            "NAME=POLICY", check_targets, lambda x: ", ".join(f"{name}: {text}" for name, text in x.items())
        ),
        None,
        "Several target policies, by name, to be compared.",
        printed=True,
    )
    soften: float | None = _setting(
        None, SHARE, TARGET, "Leave this share of the decisions to current practice.", printed=True
    )
    restrict: bool = _setting(
        False, FLAG, TARGET, "Keep the policy out of regions in which current practice leaves no choice."
    )
    learnt_on: str | None = _setting(
        None,
        LEARNT_ON,
        TARGET,
        "What the target policy was learnt on: no trajectory of this log, or those marked in a true/false column.",
        printed=True,
    )
    trust_trees: bool = _setting(
        False, FLAG, TARGET, "Allow loading tree models (unsafe for files of others)."
    )
    propensity: tuple[str, ...] = _setting(
        (),
        PROPENSITY,
        TARGET,
        "Logged probability of the action taken, or those of all actions, one column each.",
        printed=True,
    )
    gamma: float = _setting(1.0, GAMMA, TARGET, "Discount per step.", otherwise="1")
    other_logs: tuple[str, ...] = _setting(
        (),
        FILES,
        TARGET,
        "Other logs of the same decisions, such as cohorts of other windows, asked the same; with commas.",
        printed=True,
    )
    worst: float | None = _setting(
        None, NUMBER, TARGET, "Worst plausible return of a trajectory.", otherwise="the worst in the log"
    )
    title: str | None = _setting(None, TEXT, ABOUT, "Title of the report.")
    question: str | None = _setting(
        None, TEXT, ABOUT, "What is asked, in words.", otherwise="made of the other settings"
    )
    policy_name: str | None = _setting(None, TEXT, ABOUT, "Name of the new policy.")
    outcome: str | None = _setting(None, TEXT, ABOUT, "What the sum of the rewards measures, e.g. spending.")
    outcome_unit: str | None = _setting(None, TEXT, ABOUT, "Unit of the outcome, e.g. euros.")
    action_names: tuple[str, ...] = _setting(
        (), NAMES, ABOUT, "Names of the actions, in the order of their codes."
    )
    action_grid: Mapping[str, Any] | None = _setting(
        None, GRID, ABOUT, "Two factors that make up the actions, with their levels, e.g. price:3,colour:2."
    )
    author: str | None = _setting(None, TEXT, ABOUT, "Who made the audit.")
    date: str | None = _setting(None, TEXT, ABOUT, "When it was made, in words.")
    out: str | None = _setting(
        None, PAGE, OUTPUT, "Report to write; its numbers go to a JSON file beside it."
    )
    fail_on: str = _setting(
        "issue",
        FAIL_ON,
        OUTPUT,
        "Exit code 3 when the verdict is do not trust (issue), when it is caution or worse, or never.",
    )
    require: tuple[tuple[str, float], ...] = _setting(
        (), REQUIRE, OUTPUT, "Exit code 4 unless met, e.g. effective_n=200,width=0.1,difference=0."
    )
    draws: int = _setting(1000, whole(20, 1_000_000), OUTPUT, "Number of bootstrap draws.")
    models: tuple[str, ...] = _setting(
        (), NAMES, FIT, f"Behaviour models to compare: {', '.join(MODELS)}.", otherwise="those of the audit"
    )
    fit_steps: int | None = _setting(
        None,
        whole(100, 10**12),
        FIT,
        "Maximum number of decisions used for fitting.",
        otherwise="chosen from the log",
    )
    level: float = _setting(0.95, LEVEL, FIT, "Confidence level.")
    # The largest seed is that of scikit-learn.
    seed: int = _setting(0, whole(0, 2**32 - 1), FIT, "Random seed.")
    engine: str | None = _setting(
        None,
        ENGINE,
        PARTS,
        "Read Parquet files a part at a time: on this machine, or on a cluster of Dask.",
        otherwise="the log is read into memory",
    )
    scheduler: str | None = _setting(
        None,
        ADDRESS,
        PARTS,
        "A scheduler of Dask that runs, e.g. tcp://10.0.0.1:8786.",
        otherwise="a cluster is started here",
    )
    workers: int | None = _setting(
        None, whole(1, 10_000), PARTS, "Processes that are started here.", otherwise="one per core"
    )
    sample: int | None = _setting(
        None,
        whole(1000, 10**12),
        PARTS,
        "Decisions, in whole trajectories, that models are fitted on and the log is checked on.",
        otherwise="200000",
    )


SETTINGS: Mapping[str, Setting] = {each.name: each.metadata["setting"] for each in fields(Study)}
TARGETS = ("target_columns", "recommended", "model", "policy", "learn")
LISTS = tuple(
    name for name, setting in SETTINGS.items() if setting.kind in (COLUMNS, NAMES, RECORDED, PROPENSITY)
)
IN_PARTS = tuple(name for name, setting in SETTINGS.items() if setting.group == PARTS)
ALONE = (
    *TARGETS,
    "require",
    "policy_name",
    "other_logs",
)  # settings of one policy, which a comparison has not
PATHS = tuple(name for name, setting in SETTINGS.items() if setting.kind in (FILE, FILES, PAGE))


def add_options(*groups: str, without: Sequence[str] = ()) -> Callable[[Any], Any]:
    """Give a command the options of these groups of settings, in the order of the settings, without some."""

    def add(command: Any) -> Any:
        for name, setting in reversed([*SETTINGS.items()]):
            if setting.group in groups and name not in without:
                command = _option(name, setting)(command)
        return command

    return add


def _option(name: str, setting: Setting) -> Callable[[Any], Any]:
    kind, flag = setting.kind, f"--{name.replace('_', '-')}"
    if kind.flag:
        return click.option(flag, is_flag=True, default=None, help=setting.help)
    return click.option(flag, type=kind.type, metavar=kind.metavar, help=setting.help)


def show_settings(study: Study) -> dict[str, str]:
    """The settings that say what was read, in words; without those that were not given."""
    values = {name: getattr(study, name) for name, setting in SETTINGS.items() if setting.printed}
    return {name: SETTINGS[name].kind.show(x) for name, x in values.items() if x not in (None, (), {})}
