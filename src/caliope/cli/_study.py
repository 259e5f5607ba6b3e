"""A study from options or from a study file; all mistakes are reported at once."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from caliope.cli._config import ALONE, IN_PARTS, LISTS, PATHS, SETTINGS, TARGETS, Study
from caliope.cli._kinds import is_text, parse_grid, parse_require, split_files, split_names
from caliope.cli._targets import parse_target

_RESTRICT = (
    "restrict needs a policy, and behaviour probabilities of all actions, fitted or recorded: leave out restrict, or "
    "learn and propensity"
)

# -- from options and files --


def read_study(
    source: str | Sequence[str], given: Mapping[str, Any], *, needs_target: bool, several: bool = False
) -> Study:
    """A study from the arguments, the files of a log or a study file, and the options that were given.

    Options take precedence over the file. All mistakes are reported at once. ``several`` policies are compared.
    """
    options = {name: x for name, x in given.items() if x is not None}
    files = (source,) if isinstance(source, str) else tuple(source)
    studies = [file for file in files if file.lower().endswith(".toml")]
    if not studies:
        log = files[0] if len(files) == 1 else files
        return _make_study({"log": log} | options, "the options have", needs_target, several)
    if len(files) > 1:
        raise ValueError(f"{studies[0]} is a study file and names its log itself: give it alone.")
    source = studies[0]
    values = _read_file(Path(source))
    if needs_target and any(name in options for name in (*TARGETS, "targets")):
        # Another policy: neither softened or restricted like that of the file, nor learnt or trusted like it.
        own = (*TARGETS, "targets", "soften", "restrict", "learnt_on", "trust_trees")
        values = {name: x for name, x in values.items() if name not in own}
    return _make_study(values | options, f"{source} has", needs_target, several)


def _read_file(path: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{path} is no TOML file: {error}. Write lines such as log = 'log.parquet'."
        ) from None
    values = {name.replace("-", "_"): x for name, x in found.items()}
    for name, x in values.items():
        if any("\0" in text for text in _texts(x)):
            raise ValueError(f"{path} has a null character in {name}: write it again without.")
    for name in PATHS:
        x = values.get(name)  # paths start from the folder of the file
        if isinstance(x, str):
            values[name] = str(path.parent / x)
        elif isinstance(x, list) and all(isinstance(each, str) for each in x):
            values[name] = tuple(str(path.parent / each) for each in x)
    if isinstance(values.get("other_logs"), str):
        values["other_logs"] = (values["other_logs"],)  # one file: only an option is text with commas
    if isinstance(targets := values.get("targets"), dict):
        values["targets"] = {name: _from_folder(x, path.parent) for name, x in targets.items()}
    return values


def _texts(x: Any) -> Iterator[str]:
    """All text in a value of a TOML file."""
    if isinstance(x, str):
        yield x
    elif isinstance(x, dict):
        yield from _texts([*x, *x.values()])
    elif isinstance(x, list):
        for each in x:
            yield from _texts(each)


def _from_folder(text: Any, folder: Path) -> Any:
    """A policy of a comparison; the file of a model starts from the folder of the study."""
    if not is_text(text) or not text.strip().startswith("model:"):
        return text
    return f"model:{folder / parse_target(text)[1]}"


def _make_study(values: dict[str, Any], whose: str, needs_target: bool, several: bool) -> Study:
    about = _several_mistakes(values) if several else _target_mistakes(values) if needs_target else []
    mistakes = [*_unknown_settings(values), *_unfit_values(values), *about, *_contradictions(values)]
    if mistakes:
        mistakes = [*_missing_files(values), *mistakes]  # by itself it is found on reading
        how_many = f"{len(mistakes)} mistakes" if len(mistakes) > 1 else "a mistake"
        raise ValueError(f"{whose} {how_many}: {'; '.join(mistakes)}.")
    lists: dict[str, Any] = {name: split_names(x) for name, x in values.items() if name in LISTS}
    if "action_grid" in values:
        lists["action_grid"] = parse_grid(values["action_grid"])
    if "other_logs" in values:
        lists["other_logs"] = split_files(values["other_logs"])
    if "require" in values:
        lists["require"] = tuple(sorted(parse_require(values["require"]).items()))
    return Study(**(values | lists))


# -- mistakes --


def _missing_files(values: Mapping[str, Any]) -> list[str]:
    """Files of the log that are not there; patterns and the standard input are read later."""
    log = values.get("log", ())
    files = (log,) if isinstance(log, str) else log if isinstance(log, tuple | list) else ()
    plain = [x for x in files if is_text(x) and x.strip("-") and not set(x) & set("*?[")]
    return [
        f"no file matches {x!r} (looked from {Path.cwd()})"
        for x in plain
        if not Path(x).expanduser().exists()
    ]


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
    texts = {name: values[name] for name in LISTS if name in values}
    parts = {name: (x if isinstance(x, list | tuple) else [x]) for name, x in texts.items()}
    return {name: split_names(texts[name]) for name, each in parts.items() if all(map(is_text, each))}


def _repeated_names(lists: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Names that stand twice in a list, or both among the states and among what is to be ignored."""
    found = []
    for name, names in lists.items():
        twice = [x for x, times in Counter(names).items() if times > 1]
        if twice:
            found.append(f"{name} names {', '.join(map(repr, twice[:5]))} twice")
    recorded = lists.get("propensity", ())
    others = {"ignored": lists.get("ignore", ()), "a logged probability": recorded if recorded[1:] else ()}
    for what, names in others.items():
        both = [x for x in lists.get("states", ()) if x in names]
        if both:
            found.append(f"{', '.join(map(repr, both[:5]))} cannot be both a state and {what}")
    return found


def _contradictions(values: Mapping[str, Any]) -> list[str]:
    lists, found = _lists_in(values), []
    if "log" not in values:
        found.append("log is missing: name the table, e.g. log = 'log.parquet'")
    found += _repeated_names(lists)
    if "ended" in values and "terminated" in values and values["ended"] != values["terminated"]:
        found.append("ended and terminated both say which trajectories ended: give one of the two")
    if "action_names" in values and "action_grid" in values:
        found.append("action_names and action_grid both name the actions: give one of the two")
    if "levels" in values and "cuts" in values:
        found.append("levels and cuts both say how doses are cut: give one of the two")
    found += _engines(values)
    found += _different_numbers(values.get("n_actions"), lists)
    if str(values.get("out", ".html")).lower().rsplit(".", 1)[-1] not in ("html", "htm"):
        found.append(f"out must end in .html, got {values['out']!r}")
    return found


def _engines(values: Mapping[str, Any]) -> list[str]:
    """Settings of a log that is read in parts, without saying that it is, or one that it cannot have."""
    found, engine = [], values.get("engine")
    given = [name for name in IN_PARTS if name in values and name != "engine"]
    if engine is None and given:
        found.append(f"{given[0]} is for a log that is read in parts: add engine, local or dask")
    if engine == "local" and "scheduler" in values:
        found.append("scheduler is for the engine dask")
    if "scheduler" in values and "workers" in values:
        found.append("workers are started here, and a scheduler has its own: give one of the two")
    memory = [name for name in ("by", "restrict", "learn") if engine is not None and values.get(name)]
    if memory:
        found.append(f"{memory[0]} needs the log in memory: leave out engine, or {memory[0]}")
    if engine is not None and len(_lists_in(values).get("propensity", ())) > 1:
        found.append("propensity of a log in parts is one column, of the actions taken")
    if engine is not None and values.get("learnt_on", "no") != "no":
        found.append("learnt_on of a log in parts is no, or is left out")
    return found


def _different_numbers(given: Any, lists: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Numbers of actions that do not agree: as given, and as columns with a probability of each."""
    named = {name: len(lists.get(name, ())) for name in ("target_columns", "propensity")}
    if named["propensity"] == 1:  # that of the action taken
        del named["propensity"]
    found = [
        f"n_actions is {given}, but {name} names {n} columns, one per action"
        for name, n in named.items()
        if given is not None and n and given != n
    ]
    if given is None and len({n for n in named.values() if n}) > 1:
        found.append(
            f"target_columns names {named['target_columns']} columns and propensity {named['propensity']}, one per "
            "action: give both for the same actions"
        )
    return found


def _several_mistakes(values: Mapping[str, Any]) -> list[str]:
    """What is wrong with the policies of a comparison."""
    given = values.get("targets", {})
    found = [
        f"{name} is a setting of evaluate, which has one policy: leave it out"
        for name in ALONE
        if name in values
    ]
    learnt = isinstance(given, Mapping) and any(
        is_text(x) and x.strip().startswith("learn:") for x in given.values()
    )
    if values.get("restrict") and (learnt or _only_taken(values)):
        found.append(_RESTRICT)
    if learnt and "engine" in values:
        found.append("a policy that is learnt needs the log in memory: leave out engine, or learn:")
    if isinstance(given, Mapping) and len(given) < 2:
        found.append(f"a comparison needs two policies or more, as --target NAME=POLICY; got {len(given)}")
    return found


def _only_taken(values: Mapping[str, Any]) -> bool:
    """Whether the logged probabilities are those of the actions taken alone."""
    return len(_lists_in(values).get("propensity", ())) == 1


def _target_mistakes(values: Mapping[str, Any]) -> list[str]:
    targets, found = [name for name in TARGETS if name in values], []
    if "targets" in values and not targets:
        return ["the targets of a comparison are several policies: use caliope compare, or give one"]
    if len(targets) != 1:
        problem = f"both {' and '.join(targets)} are given" if targets else "the target policy is missing"
        found.append(f"{problem}: give one of --target-columns, --recommended, --model, --policy or --learn")
    if values.get("recommended") is not None and values.get("recommended") == values.get("action", "action"):
        found.append(
            "recommended names the column of the actions taken: name the column of the policy's own actions"
        )
    if values.get("restrict") and ("learn" in values or _only_taken(values)):
        found.append(_RESTRICT)
    if "learn" in values and "learnt_on" in values:
        found.append(
            "learn answers learnt_on, since it never sees what it is evaluated on: leave learnt_on out"
        )
    return found
