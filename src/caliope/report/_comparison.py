"""The page of several policies on one log: the best, a forest plot, the table, pairs, and the findings of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from caliope import plots
from caliope._audit._about import About
from caliope._audit._comparison import PolicyComparison
from caliope._audit._result import Audit
from caliope._results import Estimate, percent
from caliope.checks._registry import Verdict
from caliope.report._blocks import (
    Banner,
    Bullets,
    Codes,
    Fact,
    Facts,
    Reasons,
    Section,
    Text,
    as_sentence,
    grid,
    name_rows,
    name_values,
    picture,
    row_panel,
)
from caliope.report._numbers import numbers_json, versions
from caliope.report._page import render, write_whole
from caliope.report._sensitivity import codes_section
from caliope.report._stored import Page
from caliope.report._verdict import TITLES

_TITLES: Mapping[Verdict, str] = {
    "trust": "{best}: trust, on a condition that no log can show",
    "caution": "{best}: caution, with the reservations below",
    "do not trust": "None of these policies can be evaluated on this log",
}


def comparison_html(found: PolicyComparison) -> str:
    """Render the page of a comparison.

    Parameters
    ----------
    found : PolicyComparison
        The result to show.

    Returns
    -------
    str
        One HTML text that needs no other file and no network.

    Examples
    --------
    >>> page = comparison_html(found)  # doctest: +SKIP
    """
    return render(_page_of(found))


def write_comparison(found: PolicyComparison, path: str | Path) -> tuple[Path, Path]:
    """Write the page of a comparison, and all its numbers as JSON beside it.

    Parameters
    ----------
    found : PolicyComparison
        The result to show.
    path : str or Path
        Where to write the page; its name must end in .html.

    Returns
    -------
    page, numbers : Path
        Both files.

    Examples
    --------
    >>> page, numbers = write_comparison(found, "comparison.html")  # doctest: +SKIP
    """
    page = Path(path)
    if page.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"a report is an HTML file: its name must end in .html, got {page.name!r}.")
    content, numbers = _page_of(found), page.with_suffix(".json")
    figures = {drawn.name: drawn.data.to_dict() for part in content.sections for drawn in part.pictures}
    write_whole(page, render(content))
    write_whole(numbers, numbers_json(found, figures, page=content.to_dict()))
    return page, numbers


def _page_of(found: PolicyComparison) -> Page:
    audit = _audit(found)
    data, names = audit.data, audit.settings.about
    about = f"{len(data)} {data.units}, {data.n_steps} decisions, {data.n_actions} actions"
    author = f"Audit by {names.author}" if names.author else ""
    made = ", ".join(filter(None, [author, str(names.date)]))
    sections = (
        _verdict_section(found),
        _table_section(found),
        *([_pairs_section(found)] if len(found.pairs) else []),
        *([_strata_section(found)] if audit.subgroups is not None else []),
        _findings_section(found),
        _settings_section(found),
    )
    codes = codes_section(finding for section in sections for finding in section.findings)
    title = names.title or f"Comparison of {len(found.table)} policies"
    return Page(title, about, made, (*sections, codes) if codes.blocks else sections)


def title_of(found: PolicyComparison) -> str:
    """The verdict in a line."""
    return _TITLES[found.verdict].format(best="" if found.best is None else found.best.name)


def _verdict_section(found: PolicyComparison) -> Section:
    """The question, whether to believe the best policy, the answer in words, one picture and three numbers."""
    verdict, text = found.sentences()[0], " ".join(found.sentences()[1:])
    best = "" if found.best is None else found.best.name
    said = as_sentence(verdict.removeprefix("Verdict: "))
    banner = Banner(
        found.verdict,
        title_of(found),
        TITLES["caution"][1] if found.verdict == "caution" else said,
    )
    told = (Bullets(tuple(found.restrictions())),) if found.restricted else ()
    blocks = (
        Text(f"The question: {_question(found)}"),
        banner,
        *([Text(text)] if best else []),
        forest_picture(found),
        *([_facts(found)] if best else []),
        *told,
    )
    return Section("verdict", "Verdict", "The verdict", blocks)


def _question(found: PolicyComparison) -> str:
    """As it was asked, or what a comparison asks of itself."""
    asked = _about(found).question
    return (
        asked or f"Which of {len(found.table)} policies would achieve most, and more than current practice?"
    )


def _about(found: PolicyComparison) -> About:
    return _audit(found).settings.about


def _audit(found: PolicyComparison) -> Audit:
    return next(iter(found.audits.values()))


def _facts(found: PolicyComparison) -> Facts:
    """The best policy, its difference as estimated and corrected, and current practice."""
    if found.best is None:
        return Facts(())
    row, level, about = found.table[found.best.name], percent(found.level), _about(found)
    ends = "{} to {}".format(*row.difference.interval.ends)
    practice, gain = map(about.with_unit, (found.practice.value_text, row.difference.value_text))
    facts = [
        Fact("Current practice", practice, f"mean of {found.practice.n} {_audit(found).data.units}"),
        Fact(f"{found.best.name}: difference", gain, f"{level} interval {ends}, all together"),
    ]
    if found.best.among > 1:
        corrected = about.with_unit(replace(row.difference, value=found.best.corrected).value_text)
        facts.append(
            Fact("Corrected", corrected, f"for having been picked as the best of {found.best.among}")
        )
    return Facts(tuple(facts))


def forest_picture(found: PolicyComparison) -> Any:
    """The difference of each policy from practice."""
    rows = [row for row in found.differences if row.value == row.value]
    figure, axis = row_panel(len(rows))
    plots.forest(rows, axis, numbers=False)
    name_rows(axis, [row.label for row in rows])
    about, unit = _about(found), _audit(found).data.unit
    measured = about.value_label(unit) if about.outcome or about.outcome_unit else ""
    name_values(axis, "difference from practice", measured)
    axis.set_title("", loc="left")  # the caption says it
    caption = (
        f"All {percent(found.level)} intervals hold together. Grey: this log cannot evaluate the policy."
    )
    data = grid("Differences from current practice", [_record(row) for row in rows])
    return picture(
        "policies", figure, label="Difference of each policy from practice", caption=caption, data=data
    )


def _record(row: Estimate) -> dict[str, Any]:
    return {
        "policy": row.label,
        "difference": row.value,
        "low": row.shown.low,
        "high": row.shown.high,
        "effective n": row.effective_n,
    }


def _table_section(found: PolicyComparison) -> Section:
    cells = found.table.marked_cells()
    rows = [
        {**shown, "reasons": Codes(tuple(f for f in row.findings if f.level != "note"))}
        for row, shown in zip(found.table, cells, strict=True)
    ]
    text = (
        "Values and differences of all policies, estimated on the same log. The intervals of all differences hold "
        "together. The last share of decisions is how far the log carries: up to there the policy can be followed "
        "and evaluated, with current practice in the other decisions."
    )
    carried = [
        as_sentence(f"{row.name}: {row.reach}")
        for row in found.table
        if row.refused and row.reach is not None
    ]
    blocks = (
        Text(text),
        replace(grid("Policies on one log", rows), note=" ".join(found.table.conditions)),
        *([Bullets(tuple(carried))] if carried else []),
    )
    return Section("table", "Policies", "All policies", blocks)


def _pairs_section(found: PolicyComparison) -> Section:
    rows = list(found.pairs)
    figure, axis = row_panel(len(rows))
    plots.forest(rows, axis, numbers=False)
    name_rows(axis, [row.label for row in rows])
    axis.set_xlabel("difference between policies")
    axis.set_title("", loc="left")  # the page says it
    data = grid("Differences between policies", [_record(row) for row in rows])
    drawing = picture(
        "pairs",
        figure,
        label="Differences between policies",
        caption=f"The first policy minus the second, with {percent(found.level)} intervals that hold together. An "
        "interval that contains 0 does not tell the two apart.",
        data=data,
    )
    shown = grid("Differences between policies", found.pairs.marked_cells())
    units = _audit(found).data.units
    text = (
        f"All policies were estimated on the same {units}, so that what they share cancels in a difference."
    )
    blocks = (Text(text), drawing, replace(shown, note=" ".join(found.pairs.conditions)))
    return Section("pairs", "Pairs", "Differences between policies", blocks)


def _strata_section(found: PolicyComparison) -> Section:
    """Differences by stratum, a row per policy and stratum."""
    unit = _audit(found).data.unit
    text = (
        f"The value of each policy in each stratum, and its difference from what current practice achieved there. A "
        f"{unit} belongs to the stratum of its first decision. The intervals of one policy hold together, those of "
        "several do not: do not pick the best policy by stratum from them."
    )
    cells = [
        {**shown, "reasons": Codes(tuple(f for f in row.findings if f.level != "note"))}
        for row, shown in zip(found.strata, found.strata.marked_cells(), strict=True)
    ]
    shown = grid("Values and differences by policy and stratum", cells)
    note = " ".join([*filter(None, [shown.note]), *found.strata.conditions])
    blocks = (
        Text(text),
        *([replace(shown, note=note)] if len(found.strata) else []),
        *([Bullets(found.strata.few)] if found.strata.few else []),
    )
    return Section("subgroups", "Strata", "By stratum of the first decision", blocks)


def _findings_section(found: PolicyComparison) -> Section:
    blocks = [Reasons(f"About {whose}", told) for whose, told in found.reasons().items()]
    if not blocks:
        return Section("findings", "Findings", "Findings", (Text("Nothing speaks against any policy."),))
    return Section("findings", "Findings", "Findings of each policy", tuple(blocks))


def _settings_section(found: PolicyComparison) -> Section:
    audit = _audit(found)
    settings = {name: x for name, x in audit.settings.to_dict().items() if name not in ("target", "policy")}
    targets = [{"policy": name, "given as": each.settings.target} for name, each in found.audits.items()]
    blocks = (
        grid("Policies", targets),
        grid("Settings", [{"setting": name, "value": str(x)} for name, x in settings.items()]),
        grid("Versions", [{"package": name, "version": text} for name, text in versions().items()]),
    )
    return Section("settings", "Settings", "Settings and versions", blocks)
