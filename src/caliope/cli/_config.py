"""All settings of an evaluation, each described once: options, study files and printed settings come from here."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from caliope.cli._kinds import (
    COLUMN,
    COLUMNS,
    CUTS,
    ENDED,
    EPISODE,
    FILE,
    FILES,
    FLAG,
    GAMMA,
    LEARNT_ON,
    LEVEL,
    NAMES,
    NUMBER,
    OBJECT,
    PAGE,
    RECORDED,
    SHARE,
    STRATA,
    WORD,
    Kind,
    is_text,
    split_names,
    whole,
)

MOST_ACTIONS = 10_000  # every decision has a probability of each


# -- the settings --

LOG, TARGET, OUTPUT, FIT = "log", "target", "output", "fit"  # groups, for commands that take some of them


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
    known = not any(default is none for none in (MISSING, None, False, ()))
    standard = str(default) if otherwise is None and known else otherwise
    shown = text if standard is None else f"{text}  [default: {standard}]"
    return field(default=default, metadata={"setting": Setting(kind, group, shown, printed)})


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
        None, STRATA, LOG, "Strata of the calibration table, e.g. age:40,65.", printed=True
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
    propensity: str | None = _setting(
        None, COLUMN, TARGET, "Logged probability of the action taken.", printed=True
    )
    gamma: float = _setting(1.0, GAMMA, TARGET, "Discount per step.", otherwise="1")
    worst: float | None = _setting(
        None, NUMBER, TARGET, "Worst plausible return of a trajectory.", otherwise="the worst in the log"
    )
    out: str | None = _setting(
        None, PAGE, OUTPUT, "Report to write; its numbers go to a JSON file beside it."
    )
    draws: int = _setting(1000, whole(20, 1_000_000), OUTPUT, "Number of bootstrap draws.")
    models: tuple[str, ...] = _setting(
        (), NAMES, FIT, "Behaviour models to compare, e.g. logistic,forest.", otherwise="those of the audit"
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


SETTINGS: Mapping[str, Setting] = {each.name: each.metadata["setting"] for each in fields(Study)}
TARGETS = ("target_columns", "recommended", "model", "policy", "learn")
_LISTS = tuple(name for name, setting in SETTINGS.items() if setting.kind in (COLUMNS, NAMES, RECORDED))
_PATHS = tuple(name for name, setting in SETTINGS.items() if setting.kind in (FILE, FILES, PAGE))


def add_options(*groups: str) -> Callable[[Any], Any]:
    """Give a command the options of these groups of settings, in the order of the settings."""

    def add(command: Any) -> Any:
        for name, setting in reversed([*SETTINGS.items()]):
            if setting.group in groups:
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
    return {name: SETTINGS[name].kind.show(x) for name, x in values.items() if x not in (None, ())}


# -- from options and files --


def read_study(source: str | Sequence[str], given: Mapping[str, Any], *, needs_target: bool) -> Study:
    """A study from the arguments, the files of a log or a study file, and the options that were given.

    Options take precedence over the file. All mistakes are reported at once.
    """
    options = {name: x for name, x in given.items() if x is not None}
    files = (source,) if isinstance(source, str) else tuple(source)
    studies = [file for file in files if file.lower().endswith(".toml")]
    if not studies:
        log = files[0] if len(files) == 1 else files
        return _make_study({"log": log} | options, "the options have", needs_target)
    if len(files) > 1:
        raise ValueError(f"{studies[0]} is a study file and names its log itself: give it alone.")
    source = studies[0]
    values = _read_file(Path(source))
    if needs_target and any(name in options for name in TARGETS):
        # Another policy: neither softened or restricted like that of the file, nor learnt or trusted like it.
        own = (*TARGETS, "soften", "restrict", "learnt_on", "trust_trees")
        values = {name: x for name, x in values.items() if name not in own}
    return _make_study(values | options, f"{source} has", needs_target)


def _read_file(path: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{path} is no TOML file: {error}. Write lines such as log = 'log.parquet'."
        ) from None
    values = {name.replace("-", "_"): x for name, x in found.items()}
    for name in _PATHS:
        x = values.get(name)  # paths start from the folder of the file
        if isinstance(x, str):
            values[name] = str(path.parent / x)
        elif isinstance(x, list) and all(isinstance(each, str) for each in x):
            values[name] = tuple(str(path.parent / each) for each in x)
    return values


def _make_study(values: dict[str, Any], whose: str, needs_target: bool) -> Study:
    mistakes = [*_unknown_settings(values), *_unfit_values(values), *_contradictions(values, needs_target)]
    if mistakes:
        several = f"{len(mistakes)} mistakes" if len(mistakes) > 1 else "a mistake"
        raise ValueError(f"{whose} {several}: {'; '.join(mistakes)}.")
    lists = {name: split_names(x) for name, x in values.items() if name in _LISTS}
    return Study(**(values | lists))


# -- mistakes --


def _unknown_settings(values: Mapping[str, Any]) -> list[str]:
    found = []
    for name in values:
        if name not in SETTINGS:
            close = get_close_matches(name, SETTINGS, n=1)
            found.append(f"{name!r} is no setting" + (f" (did you mean {close[0]!r}?)" if close else ""))
    return found


def _unfit_values(values: Mapping[str, Any]) -> list[str]:
    found = []
    for name, x in values.items():
        if name in SETTINGS:
            try:
                SETTINGS[name].kind.check(name, x)
            except (TypeError, ValueError) as error:
                found.append(str(error).rstrip("."))
    return found


def _lists_in(values: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The lists of names that can be read; of the others the mistake is reported elsewhere."""
    texts = {name: values[name] for name in _LISTS if name in values}
    parts = {name: (x if isinstance(x, list | tuple) else [x]) for name, x in texts.items()}
    return {name: split_names(texts[name]) for name, each in parts.items() if all(map(is_text, each))}


def _repeated_names(lists: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Names that stand twice in a list, or both among the states and among what is to be ignored."""
    found = []
    for name, names in lists.items():
        twice = [x for x, times in Counter(names).items() if times > 1]
        if twice:
            found.append(f"{name} names {', '.join(map(repr, twice[:5]))} twice")
    both = [x for x in lists.get("states", ()) if x in lists.get("ignore", ())]
    if both:
        found.append(f"{', '.join(map(repr, both[:5]))} cannot be both a state and ignored")
    return found


def _contradictions(values: Mapping[str, Any], needs_target: bool) -> list[str]:
    lists = _lists_in(values)
    found = _target_mistakes(values) if needs_target else []
    if "log" not in values:
        found.append("log is missing: name the table, e.g. log = 'log.parquet'")
    found += _repeated_names(lists)
    if "ended" in values and "terminated" in values and values["ended"] != values["terminated"]:
        found.append("ended and terminated both say which trajectories ended: give one of the two")
    if "levels" in values and "cuts" in values:
        found.append("levels and cuts both say how doses are cut: give one of the two")
    given, columns = values.get("n_actions"), lists.get("target_columns")
    if given is not None and columns and given != len(columns):
        found.append(f"n_actions is {given}, but target_columns names {len(columns)} columns, one per action")
    if str(values.get("out", ".html")).lower().rsplit(".", 1)[-1] not in ("html", "htm"):
        found.append(f"out must end in .html, got {values['out']!r}")
    return found


def _target_mistakes(values: Mapping[str, Any]) -> list[str]:
    targets, found = [name for name in TARGETS if name in values], []
    if len(targets) != 1:
        problem = f"both {' and '.join(targets)} are given" if targets else "the target policy is missing"
        found.append(f"{problem}: give one of --target-columns, --recommended, --model, --policy or --learn")
    if values.get("recommended") is not None and values.get("recommended") == values.get("action", "action"):
        found.append(
            "recommended names the column of the actions taken: name the column of the policy's own actions"
        )
    if values.get("restrict") and ("learn" in values or "propensity" in values):
        found.append(
            "restrict needs a policy and fitted behaviour probabilities: leave out restrict, or learn and propensity"
        )
    if "learn" in values and "learnt_on" in values:
        found.append(
            "learn answers learnt_on, since it never sees what it is evaluated on: leave learnt_on out"
        )
    return found
