"""The states of a table whose columns nobody named: what is taken, and what looks like something else."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from caliope._ragged import Bool, Float
from caliope.io._encoder import GAPS
from caliope.io._learn import is_date, is_number, mostly_numbers, rare_below

_SAMPLE = 20_000  # rows that are looked at
_FEW = 10  # different values, up to which they are compared one by one
_ENOUGH = 20  # trajectories, below which nothing is concluded from what they share
_TELLS = 0.99  # share of the variance of the outcome that a column explains if it repeats it
_SUM = 0.02  # probabilities sum to 1 up to this


@dataclass(frozen=True)
class Guess:
    """Columns taken for states, the others with the reason, and a column that rises in every trajectory."""

    states: tuple[str, ...]
    left_out: Mapping[str, str]
    rising: str | None = None


@dataclass(frozen=True)
class Known:
    """Columns with a role: those of the trajectory, the action and the reward, and all that are used otherwise."""

    episode: str | None
    actions: tuple[str, ...]
    reward: str
    used: frozenset[str]


def guess_states(sample: pl.DataFrame, names: Sequence[str], known: Known) -> Guess:
    """Judge every column without a role by its name, its type and its values in the first rows."""
    view = _View(sample, known)
    left_out: dict[str, str] = {}
    candidates = [name for name in names if name not in known.used and name in sample.columns]
    for name in candidates:
        reason = view.objection(name)
        if reason:
            left_out[name] = reason
    rest = [name for name in candidates if name not in left_out]
    for group in view.probability_groups(rest):
        left_out |= dict.fromkeys(group, "looks like a policy's probabilities, which sum to 1")
    states = tuple(name for name in rest if name not in left_out)
    return Guess(states, left_out, next((name for name in states if view.rises(name)), None))


def sample_size() -> int:
    """How many rows are looked at."""
    return _SAMPLE


class _View:
    """The first rows of a table, with trajectories, actions and outcomes as numbers."""

    def __init__(self, sample: pl.DataFrame, known: Known) -> None:
        self.sample = sample
        n = sample.height
        episode = known.episode
        owner = sample[episode].rank("dense") if episode in sample.columns else pl.Series(np.arange(n))
        self.owner = owner.fill_null(0).to_numpy().astype(np.int64)
        self.n = len(np.unique(self.owner))
        self.action = _codes(sample, known.actions)
        self.action_names = _words(sample, known.actions)
        reward = _numbers(sample, known.reward)
        totals = np.bincount(self.owner, weights=np.nan_to_num(reward))
        self.outcomes = [x for x in (reward, totals[self.owner]) if len(x) and np.nanvar(x) > 0]

    def objection(self, name: str) -> str:
        """Why a column is no state; empty where nothing speaks against it."""
        column = self.sample[name]
        if not name.strip() or re.match(r"^(Unnamed: \d+|__index_level_\d+__|column_\d+)$", name):
            return "an index without a name"
        kind = column.dtype
        if kind in (pl.Date, pl.Datetime, pl.Time, pl.Duration) or (
            kind == pl.String and is_date(column.head(100).to_list())
        ):
            return "dates: give them as --time or --calendar, or as a number"
        if not (kind.is_numeric() or kind in (pl.Boolean, pl.String, pl.Categorical, pl.Enum)):
            return f"neither numbers nor words ({kind})"
        if column.null_count() == len(column):
            return "empty"
        if kind.is_float() or kind.is_decimal():
            return self._outcome(name)
        return self._id(name) or self._outcome(name)

    def _id(self, name: str) -> str:
        column = self.sample[name]
        if re.search(r"(^|[_\s.])id$|[a-z]I[Dd]$|^ID", name) and column.n_unique() > _FEW:
            return "an id, by its name"
        if not column.dtype.is_numeric() and column.dtype != pl.Boolean:
            text = column.cast(pl.String)
            if column.dtype == pl.String and (reason := _numbers_in_text(text)):
                return reason
            pairs = pl.DataFrame({"who": self.owner, "what": text}).unique().drop_nulls()
            pairs = pairs.filter(~pl.col("what").is_in(GAPS))
            most = pairs["what"].value_counts()["count"].max() if pairs.height else 0
            return (
                "an id or free text"
                if int(str(most or 0)) < rare_below(self.n) or (most == 1 < self.n)
                else ""
            )
        if column.dtype.is_integer() and self.n >= _ENOUGH:
            per = pl.DataFrame({"who": self.owner, "what": column})
            if per.unique().height == self.n == column.n_unique() or (
                column.n_unique() == len(column) and np.abs(np.diff(column.to_numpy())).max(initial=0) == 1
            ):
                return "an id: a different number for every trajectory or row"
        return ""

    def _outcome(self, name: str) -> str:
        if self.n < _ENOUGH:
            return ""
        codes = _codes(self.sample, (name,))
        same = len(np.unique(codes * (self.action.max() + 1) + self.action))
        kinds = len(np.unique(codes))
        if kinds == same == len(np.unique(self.action)) > 1:
            return "repeats the action"
        for outcome in self.outcomes:
            if (
                _explained(_numbers(self.sample, name) if kinds > _FEW else codes, outcome, few=kinds <= _FEW)
                > _TELLS
            ):
                return "repeats the outcome"
        return ""

    def probability_groups(self, names: Sequence[str]) -> list[list[str]]:
        """Groups of columns that share the beginning of their names and sum to 1, or to 100, in every row."""
        groups: dict[str, list[str]] = {}
        for name in names:
            if self.sample[name].dtype.is_numeric():
                for stem in self._stems(name):
                    groups.setdefault(stem, []).append(name)
        found = []
        for stem, group in groups.items():
            table = np.column_stack([_numbers(self.sample, name) for name in group])
            table = table / 100 if (table > 1).any() else table  # in percent
            chances = (
                (table >= 0).all() and (table <= 1).all() and (np.abs(table.sum(axis=1) - 1) <= _SUM).all()
            )
            # Features of one category are 0 or 1 and sum to 1 too: they are a policy's if they are named after actions.
            certain = bool(np.isin(table, (0, 1)).all())
            named = {name[len(stem) :] for name in group} == set(self.action_names)
            if len(group) > 1 and chances and (named or not certain):
                found.append(group)
        return found

    def _stems(self, name: str) -> set[str]:
        """What a name may share with others: all but its number, its last or later words, or the name of an action."""
        stems = {
            re.sub(r"\d+$", "", name),
            re.sub(r"[^_.\-: ]+$", "", name),
            re.sub(r"^([^_.\-: ]+.).*$", r"\1", name),
        }
        stems |= {name.removesuffix(action) for action in self.action_names}
        return stems - {name}

    def rises(self, name: str) -> bool:
        """Whether a column of numbers rises with every row of every trajectory."""
        if not self.sample[name].dtype.is_numeric():
            return False
        values, inside = _numbers(self.sample, name), np.diff(self.owner) == 0
        steps: Bool = np.diff(values)[inside] > 0
        return bool(len(steps) and steps.all())


def _numbers_in_text(text: pl.Series) -> str:
    """Why a column of text that holds numbers is no state; empty where it holds words."""
    known = text.str.strip_chars().drop_nulls()
    known = known.filter(~known.is_in(GAPS))
    words = known.unique(maintain_order=True).to_list()
    share = known.is_in([word for word in words if is_number(word)]).mean() if words else 0.0
    if not (isinstance(share, float) and share >= 0.5) and not mostly_numbers(words):
        return ""
    odd = next((word for word in words if not is_number(word)), None)
    if odd is None:
        return f"numbers written as text, such as {words[0]!r}: write them as 1234.5"
    return f"text that holds numbers, but also {odd!r}: leave gaps empty to use it"


def _numbers(sample: pl.DataFrame, name: str) -> Float:
    if name not in sample.columns:
        return np.zeros(sample.height)
    return sample[name].cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()


def _codes(sample: pl.DataFrame, names: Sequence[str]) -> Any:
    there = [name for name in names if name in sample.columns]
    if not there:
        return np.zeros(sample.height, dtype=np.int64)
    words = pl.concat_str(
        [sample[name].cast(pl.String, strict=False).fill_null("") for name in there], separator="\0"
    )
    return sample.select(words.rank("dense").alias("code"))["code"].to_numpy().astype(np.int64) - 1


def _words(sample: pl.DataFrame, names: Sequence[str]) -> list[str]:
    if len(names) != 1 or names[0] not in sample.columns:
        return []
    return [str(x) for x in sample[names[0]].drop_nulls().unique().to_list()]


def _explained(column: Any, outcome: Float, *, few: bool) -> float:
    """The share of the variance of the outcome that a column explains: by its values if few, else as a line."""
    known = np.isfinite(outcome) & np.isfinite(column.astype(np.float64))
    x, y = column[known], outcome[known]
    if len(y) < _ENOUGH or np.var(y) == 0 or np.ptp(x) == 0:
        return 0.0
    if not few:
        return float(np.corrcoef(x, y)[0, 1] ** 2)
    sizes = np.bincount(x)
    means = np.bincount(x, weights=y) / np.maximum(sizes, 1)
    return float(1 - np.mean((y - means[x]) ** 2) / np.var(y))
