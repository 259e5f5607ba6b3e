"""The report: one page that holds everything, says what the audit says, and escapes what is not its own."""

import json
import re
from dataclasses import replace
from decimal import Decimal
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import caliope as cal
import caliope.report
from caliope._audit._summary import QUANTILES, overlap, summarise, weight_shares, weights_over_time
from caliope._evidence import Evidence
from caliope._trajectories import Trajectories
from caliope.behaviour import TabularFrequencies
from caliope.checks import find
from caliope.domains import ward
from caliope.plots._figures import label_text, label_texts
from caliope.report import report_html, write_report
from caliope.report._behaviour import placebo_section
from caliope.report._blocks import Codes, Text, as_sentence, grid, name_values, panel
from caliope.report._checklist import checklist_section
from caliope.report._contents import contents_section
from caliope.report._page import _sections
from caliope.report._sensitivity import codes_section, confounding_section, limits_section
from caliope.report._verdict import value_texts
from caliope.report._weights import actions_section, factor_names, overlap_section, weights_section
from caliope.sensitivity import Breakdown
from support.report_audits import HOSTILE, far_audit, near_audit, shop_audit, strange_audit

pytestmark = pytest.mark.slow

VOID = {"meta", "br", "path", "use"}


class Parsed(HTMLParser):
    """Tags, attributes and text of a page, and whether what was opened was closed."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.words = [], [], []
        self.feed(text)
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def near():
    return near_audit()


@pytest.fixture(scope="module")
def far():
    return far_audit()


@pytest.fixture(scope="module")
def strange():
    return strange_audit()


@pytest.fixture(scope="module")
def shop():
    return shop_audit()


@pytest.fixture(scope="module")
def html(near):
    return report_html(near)


@pytest.fixture(scope="module")
def page(html):
    return Parsed(html)


def test_the_page_needs_no_other_file_and_no_network(html, page):
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in page.tags}
    assert not [attrs for _, attrs in page.tags if any(name.startswith("on") for name in attrs)]
    links = [attrs.get("href") or attrs.get("xlink:href") for tag, attrs in page.tags if tag in ("a", "use")]
    assert all(link.startswith("#") for link in links)
    assert "@import" not in html
    assert all(found.startswith("#") for found in re.findall(r"url\(([^)]*)\)", html))


def test_ids_are_there_once_and_everything_that_points_finds_its_own(page):
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    pointers = [attrs[name] for _, attrs in page.tags for name in ("aria-labelledby",) if name in attrs]
    pointers += [attrs["href"][1:] for attrs in page.all("a")]
    pointers += [attrs["xlink:href"][1:] for attrs in page.all("use")]
    assert set(pointers) <= set(ids)


def test_headings_follow_each_other_and_landmarks_are_there(page):
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert {"header", "nav", "main", "footer"} <= {tag for tag, _ in page.tags}
    assert page.all("html") == [{"lang": "en"}]


def test_every_figure_is_named_and_has_its_numbers(page):
    figures, drawings = page.all("figure"), page.all("svg")
    assert len(figures) == len(drawings) >= 10
    assert all(attrs["role"] == "img" and attrs["aria-labelledby"] for attrs in drawings)
    assert len(page.all("caption")) == len(page.all("table")) > len(figures)
    # A table that scrolls can be reached by keyboard.
    regions = [attrs for attrs in page.all("div") if attrs.get("class") == "scroll"]
    assert len(regions) == len(page.all("table"))
    assert all(attrs["tabindex"] == "0" and attrs["aria-label"] for attrs in regions)


TITLES = {"trust": "Trust:", "caution": "Caution:", "do not trust": "Do not trust"}


def test_the_verdict_comes_first_with_every_reason(near, far, page):
    refused = Parsed(report_html(far))
    for audit, text in ((near, page.text), (far, refused.text)):
        first, rest = text.split("Value against current practice", 1)
        assert TITLES[audit.verdict] in first
        assert all(text in first for text in value_texts(audit))
        for finding in audit.findings:
            assert finding.code in first
            assert finding.message[1:] in first
        assert all(row.label in rest for row in audit.table)
    assert far.verdict == "do not trust" != near.verdict
    assert "cannot be evaluated on this log" in refused.text
    assert "cannot be evaluated on this log" not in page.text


def test_the_three_numbers_at_the_top_add_up(near):
    # By themselves they would be 0.50, 0.51 and -0.003.
    practice, policy = (
        replace(row, value=value, interval=replace(row.interval, low=value - 0.05, high=value + 0.05))
        for row, value in ((near.practice, 0.50637), (near.headline, 0.50351))
    )
    gain = replace(near.gain, value=-0.00286, interval=replace(near.gain.interval, low=-0.006, high=0.0))
    rows = {row.name: row for row in (practice, policy, gain)}
    table = replace(near.table, rows=tuple(rows.get(row.name, row) for row in near.table))
    texts = value_texts(replace(near, table=table))
    assert texts == ("0.5035", "0.5064", "-0.0029")
    shown = [Decimal(text) for text in value_texts(near)]  # and as they are
    assert shown[0] - shown[1] == shown[2]


def made(code, text):
    """An issue of a known code in words of its own."""
    return replace(find(code), texts={"": text}).finding("issue")


def with_issue(audit, *codes):
    """The audit as if its only issues were these."""
    issues = tuple(made(code, f"as {code} says") for code in codes)
    row = replace(audit.headline, findings=issues, interval=replace(audit.headline.interval, findings=()))
    rows = tuple(row if each is audit.headline else each for each in audit.table)
    return replace(audit, table=replace(audit.table, rows=rows))


@pytest.mark.parametrize("code", ["D101", "S101", "B103", "P101", "L102", "A105"])
def test_what_might_help_depends_on_what_was_found(near, code):
    items = limits_section(with_issue(near, code)).blocks[1].items
    assert "The new policy cannot be evaluated on this log as it stands." in items
    assert items[-1] == find(code).remedy
    assert len(items) == 3


def test_the_same_advice_is_given_once(near):
    items = limits_section(with_issue(near, "D101", "D101", "B103")).blocks[1].items
    assert len(items) == len(set(items)) == 4


def placebo_text(audit):
    return " ".join(block.text for block in placebo_section(audit).blocks if isinstance(block, Text))


def test_a_page_that_refuses_shows_no_interval(near, tmp_path):
    refused = with_issue(near, "D101")
    ends = refused.headline.interval
    page, numbers = write_report(refused, tmp_path / "refused.html")
    shown = page.read_text()
    assert "no interval: not to be believed" in shown
    assert "The returns in the log run from 0 to 1." in shown
    assert f"interval {' to '.join(ends.ends)}" not in shown
    assert f"interval {' to '.join(ends.ends)}" in write_report(near, tmp_path / "near.html")[0].read_text()
    values = json.loads(numbers.read_text())
    assert values["headline"]["interval"]["low"] is None
    assert str(ends.low) not in numbers.read_text()


def with_placebo(audit, *codes):
    """The audit as if its negative control had found these, and its headline too."""
    findings = tuple(made(code, f"as {code} says") for code in codes)
    return replace(with_issue(audit, *codes), placebo=replace(audit.placebo, findings=findings))


def test_the_negative_control_says_what_the_audit_says_of_it(near):
    missed = replace(near.placebo, findings=(made("P101", "missed"),))
    # The issue of the control itself is none of the audit: there logged probabilities weigh.
    aside = replace(near, placebo=missed, settings=replace(near.settings, propensities_logged=True))
    aside = replace(aside, table=with_issue(near).table)
    assert "failed" not in placebo_text(aside)
    assert "It uses the weights of a fitted model" in placebo_text(aside)
    assert "The negative control failed." in placebo_text(with_placebo(near, "P101"))
    other = replace(with_issue(near, "D101"), placebo=replace(near.placebo, findings=()))
    assert "The negative control passed." in placebo_text(other)
    assert "logged" not in placebo_text(near)


def test_the_negative_control_names_its_policy_and_how_many_were_tried(near):
    other = replace(near, placebo=replace(near.placebo, policy="action 7 at twice its odds", tests=9))
    assert "to 9 policies near current practice" in placebo_text(other)
    assert "action 7 at twice its odds" in placebo_text(other)
    assert "Passing proves nothing about a policy that differs from practice." in placebo_text(other)


def test_where_probabilities_were_logged_the_page_says_what_weighs(near):
    logged = replace(near, settings=replace(near.settings, propensities_logged=True))
    text = Parsed(report_html(logged)).text
    assert "Both diagrams show the fitted model" in text
    assert "uses the logged probabilities, the first of the rows" in text


def test_a_sign_that_the_two_estimates_do_not_share_is_told(near):
    # The headline lies above practice; weighted importance sampling below it.
    sign = 1 if near.gain.value > 0 else -1
    other = Breakdown(1.05, near.practice.value - 0.01 * sign, near.practice.value)
    text = confounding_section(replace(near, breakdown=other)).blocks[0].text
    assert as_sentence(str(other)) in text
    said = "the doubly robust estimate at the top lies on the other side of current practice"
    assert said in text
    assert said in str(replace(near, breakdown=other))
    same = replace(near, breakdown=replace(other, estimate=near.practice.value + 0.01 * sign))
    assert said not in confounding_section(same).blocks[0].text
    assert said not in str(same)


def test_a_log_of_single_steps_has_no_pictures_over_time():
    log = ward.simulate(300, rng=0)
    rows = np.arange(0, log.n_steps, 3)
    log = Trajectories(
        log.states[rows], log.actions[rows], log.rewards[rows], np.arange(len(rows) + 1), n_actions=3
    )
    found = cal.audit(
        log, cal.TabularPolicy(ward.EARLIER), {"frequencies": TabularFrequencies()}, n_draws=100, rng=0
    )
    weights = weights_section(found)
    assert weights.title == "Weights"
    assert weights.pictures == []
    row = dict(zip(weights.blocks[1].columns, weights.blocks[1].rows[0], strict=True))
    assert row["mean weight"] == pytest.approx(np.mean(np.exp(found.evidence.log_ratio)), abs=0.01)
    drawn = [figure.name for section in _sections(found) for figure in section.pictures]
    assert not {"fan", "mean-weight", "effective"} & {*drawn}
    assert "All trajectories have a single decision." in contents_section(found).blocks[0].text


@pytest.mark.parametrize(
    ("unit", "lines"), [("euros", 1), ("days without a ventilator in the first four weeks", 2)]
)
def test_a_long_unit_stands_on_a_line_of_its_own(unit, lines):
    _, axis = panel()
    name_values(axis, "difference from practice", unit)
    said = axis.get_xlabel().split("\n")
    assert len(said) == lines
    assert said[0].startswith("difference from practice")


def test_words_that_the_page_uses_are_explained(page):
    words = page.text.split("Words used here", 1)[1]
    assert all(word in words for word in ("Pareto shape", "Total variation", "Null", "z How far"))


def test_policy_and_practice_keep_their_colours(near, strange):
    def bars(audit, make, name):
        (found,) = [picture for picture in make(audit).pictures if picture.name == name]
        return re.findall(r"fill: (var\(--c\d\))", found.svg)

    # Both draw the new policy first, in the first colour, and practice in the second.
    for make, name in ((overlap_section, "overlap-bars"), (actions_section, "action-bars")):
        colours = list(dict.fromkeys(bars(near, make, name)))
        assert colours == ["var(--c0)", "var(--c1)"]
        (drawn,) = [picture for picture in make(near).pictures if picture.name == name]
        labels = [
            text for text in re.findall(r">([^<>]+)</text>", drawn.svg) if "polic" in text or "prac" in text
        ]
        assert labels[-2:] == ["new policy", "current practice"]


def test_every_part_is_there(page, near):
    for words in (
        "What can and cannot be said",
        "Calibration of the behaviour models",
        "is lowest for"
        if near.comparison.choice.by_paper != near.comparison.recommended
        else "the same model",
        "Reliability diagram",
        "Reliability of importance ratios",
        "Spread of the weights over time",
        "Mean weight over time",
        "Overlap of the new policy and current practice",
        "Actions of current practice and new policy",
        "The most influential trajectories",
        "Values under other choices",
        "Negative control: a question whose answer is known",
        "Bounds under unmeasured confounding",
        "What the codes mean",
        "scikit-learn",
        "fitting behaviour models",
    ):
        assert words in page.text, words


def test_the_same_audit_gives_the_same_bytes_and_the_numbers_stand_beside(near, html, tmp_path):
    written, numbers = write_report(near, tmp_path / "a.html")
    assert written.read_bytes() == html.encode()
    assert numbers == tmp_path / "a.json"
    read = json.loads(numbers.read_text())
    assert read["verdict"] == near.verdict
    assert read["headline"]["value"] == near.headline.value
    assert read["figures"]["values"]["rows"][0][1] == near.headline.value
    assert read["versions"]["caliope"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "a.json"]


def test_only_html_files_are_written(near, tmp_path):
    with pytest.raises(ValueError, match=r"must end in \.html"):
        write_report(near, tmp_path / "report.pdf")


def test_names_from_the_data_cannot_break_out(strange):
    assert any(HOSTILE in name for name in strange.data.feature_names)
    text = report_html(strange)
    parsed = Parsed(text)  # every tag closed: nothing was opened by a name
    assert "<script" not in text.lower()
    assert "onerror" not in {name for _, attrs in parsed.tags for name in attrs}
    assert "&lt;script&gt;" in text
    known = {
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "a",
        "header",
        "h1",
        "p",
        "nav",
        "ul",
        "li",
        "main",
    }
    known |= {
        "section",
        "h2",
        "h3",
        "div",
        "dl",
        "dt",
        "dd",
        "span",
        "figure",
        "figcaption",
        "strong",
        "details",
    }
    known |= {"summary", "table", "caption", "thead", "tbody", "tr", "th", "td", "footer"}
    known |= {"svg", "g", "path", "defs", "use", "text", "clippath", "rect", "tspan"}
    assert {tag for tag, _ in parsed.tags} <= known


def test_the_first_screen_answers_in_rates_and_shows_practice_against_the_policy(near, far):
    verdict, *_ = _sections(near)
    kinds = [type(block).__name__ for block in verdict.blocks]
    assert kinds[:5] == ["Banner", "Text", "Picture", "Facts", "Text"]
    assert verdict.pictures[0].name == "answer"
    # The returns of the ward are 0 or 1: of 100 trajectories as many have a 1 as 100 times the mean.
    said = re.match(r"Of 100 trajectories in this log, ([0-9.]+) had a return of 1", verdict.blocks[1].text)
    assert near.contents.rate == np.mean(near.data.returns(1.0))
    last = Decimal(said[1]).as_tuple().exponent
    assert abs(float(said[1]) - 100 * near.contents.rate) <= 0.5 * 10**last
    low, high = (float(Decimal(end) * 100) for end in near.headline.interval.ends)
    assert f"of 100 ({low:g} to {high:g}), a difference of" in verdict.blocks[1].text
    refused = _sections(far)[0].blocks[1].text
    assert "(" not in refused  # an interval that is withheld is not given as a rate either


def test_outcomes_with_a_unit_are_not_rates(near):
    about = replace(near.settings.about, outcome="spending", outcome_unit="euros")
    named = replace(near, settings=replace(near.settings, about=about))
    text = _sections(named)[0].blocks[1].text
    assert text.startswith(
        f"In this log the spending per trajectory was {value_texts(near)[1]} euros on average."
    )


def test_the_page_shows_what_the_log_holds(near):
    section = contents_section(near)
    lengths, actions, columns = section.blocks[1:]
    assert lengths.rows[0][:2] == ("decisions per trajectory", near.data.lengths.mean())
    assert [row[1] for row in actions.rows] == np.bincount(near.data.actions).tolist()
    assert [row[0] for row in columns.rows] == list(near.data.feature_names)
    assert "All trajectories ended, as stated. 6.8% of the decisions have a reward" in section.blocks[0].text
    unsaid = replace(near, contents=replace(near.contents, cut_off=None))
    assert "Nobody said whether trajectories ended" in contents_section(unsaid).blocks[0].text


def test_the_checklist_says_what_the_audit_knows_and_what_is_left(near):
    (_, table) = checklist_section(near).blocks
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["Question"][1] == "not stated"
    assert rows["Estimates"][1] == f"difference {near.gain.text}; value {near.headline.text}"
    assert rows["Missing data"] == (
        "TARGET; TRIPOD+AI 11",
        "0 of 1 state columns have gaps",
        "why values are missing",
    )
    assert all(answer for _, answer, _ in rows.values())


CLINICAL = ("patient", "drug", "vasopressor", "fluid", "dose", "sofa", "clinic", "doctor", "sepsis")


@pytest.mark.parametrize("name", ["shop", "strange"])
def test_25_actions_of_a_shop_are_no_drugs(name, request):
    audit = request.getfixturevalue(name)
    assert audit.data.n_actions == 25
    html = report_html(audit)
    text = (re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL)).lower()
    assert [word for word in CLINICAL if word in text] == []
    assert "Heat map" not in html


def test_the_page_speaks_of_the_unit_and_the_actions_of_the_log(shop):
    parsed = Parsed(report_html(shop))
    assert f"{len(shop.data)} visits" in parsed.text
    assert "The most influential visits" in parsed.text
    assert "The visits in this log returned" in parsed.text
    (bars,) = actions_section(shop).pictures
    assert ">banner 3<" in bars.svg
    assert bars.data.rows[24][0] == "banner 24"
    words = parsed.text.split("Words used here")[1].split("What the codes mean")[0]
    assert "Visit One course of states" in words
    before_codes = parsed.text.split("What the codes mean")[0]
    for said in shop.table.findings:
        before_codes = before_codes.replace(as_sentence(said.message), "").replace(said.message, "")
    assert "episode" not in before_codes
    assert not any("trajector" in f.message for f in shop.table.findings)


def test_actions_that_combine_two_factors_are_a_map(shop):
    names = [f"price {i} / colour {j}" for i in range(5) for j in range(5)]
    data = shop.data
    named = Trajectories(data.states, data.actions, data.rewards, data.offsets, action_names=names)
    drawn = actions_section(replace(shop, data=named)).pictures
    assert [picture.name for picture in drawn] == ["map-practice", "map-policy", "map-difference"]
    assert ">price<" in drawn[0].svg
    assert ">colour<" in drawn[0].svg
    assert f">{100 * shop.summary.behaviour_shares.max():.1f}<" in drawn[0].svg


@pytest.mark.parametrize(
    "names",
    [
        [f"banner {i}" for i in range(4)],  # one factor
        ["a, b", "a, c", "d, b"],  # one pair is missing
        ["a, b, c", "a, b, d", "a, e, c", "a, e, d"],  # three factors
        ["a / x", "a / y"],  # a factor of one level
        [f"a{i}, b{j}" for i in range(2) for j in range(9)],  # too wide to be read
    ],
)
def test_names_that_are_no_two_factors_make_no_map(names):
    assert factor_names(names) is None


def test_factors_keep_their_levels_in_the_order_of_the_actions():
    found = factor_names(["high, left", "low, left", "high, right", "low, right"])
    assert (found.rows, found.columns, found.names) == (("high", "low"), ("left", "right"), ("", ""))
    assert found.action.tolist() == [[0, 2], [1, 3]]


def test_every_code_links_to_its_explanation(page, near):
    ids = {attrs.get("id") for _, attrs in page.tags}
    codes = {attrs["href"][1:] for attrs in page.all("a") if attrs.get("class") == "code"}
    assert {finding.code for finding in near.table.findings} <= codes <= ids
    explained = page.text.split("What the codes mean")[1]
    for code in codes:
        check = find(code)
        assert all(" ".join(part.split()) in explained for part in (check.title, check.meaning, check.remedy))


def test_an_audit_without_findings_has_no_codes_to_explain():
    assert codes_section(()).blocks == ()


def test_codes_in_a_cell_are_there_once():
    findings = tuple(made(code, "x") for code in ("D102", "B104", "D102"))
    found = grid("Rows", [{"name": "a", "reasons": Codes(findings)}])
    assert found.shown == [["a", "B104 D102"]]
    assert found.linked == [[("a", []), ("B104 D102", ["B104", "D102"])]]


def test_the_page_computes_nothing(near, html, monkeypatch):
    # Neither the evidence nor the probabilities are asked for anything.
    class Closed:
        def __getattr__(self, name):
            raise AssertionError(f"the report asked for {name}")

    assert (
        report_html(replace(near, evidence=Closed(), target_probs=Closed(), behaviour_probs=Closed())) == html
    )


def test_an_audit_without_a_single_weight_is_told_too(near):
    e = near.evidence
    nothing = Evidence(e.rewards, np.full(len(e.rewards), -np.inf), e.offsets, q=e.q, v=e.v)
    bounds = replace(near.breakdown, factor=float("nan"), estimate=float("nan"))
    changed = replace(near, evidence=nothing, breakdown=bounds)
    text = Parsed(report_html(replace(changed, summary=summary_of(changed)))).text
    assert "100% of the trajectories have weight 0" in text


def summary_of(audit):
    return summarise(
        audit.data,
        audit.evidence,
        target_probs=audit.target_probs,
        behaviour_probs=audit.behaviour_probs,
        influence=audit.influence,
        breakdown=audit.breakdown,
    )


def large(near):
    """An audit with the tables of a far larger one: 3,000 episodes of 60 steps, 25 actions, thousands of rows."""
    rng, n, length = np.random.default_rng(0), 3000, 60
    offsets = np.arange(n + 1) * length
    names = [f"feature {i} " + "x" * 300 for i in range(400)]
    data = Trajectories(
        np.zeros((n * length, 400), dtype=np.float32),
        rng.integers(0, 90, n * length),
        np.ones(n * length),
        offsets,
        feature_names=names,
        ids=np.array([f"{'episode ' * 40}{i}" for i in range(n)]),
    )
    evidence = Evidence(np.ones(n * length), rng.normal(0, 0.3, n * length), offsets)
    changed = replace(
        near,
        data=data,
        evidence=evidence,
        target_probs=np.full((n * length, 90), 1 / 90),
        behaviour_probs=np.full((n * length, 90), 1 / 90),
        others=replace(near.others, rows=near.others.rows * 500),
        settings=replace(near.settings, source={f"setting {i}": "y" * 5000 for i in range(200)}),
    )
    return replace(changed, summary=summary_of(changed))


def test_the_page_stays_small_whatever_the_data(near, tmp_path):
    page, _ = write_report(large(near), tmp_path / "large.html")
    assert page.stat().st_size < 2_000_000
    text = page.read_text()
    assert "The first 40 of 400 rows." in text
    assert "Of 90 actions, the 20 in which" in text


def test_both_colour_schemes_have_enough_contrast():
    css = (Path(caliope.report.__file__).parent / "templates" / "style.css").read_text()
    schemes = [
        dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", part)) for part in re.findall(r":root \{[^}]*\}", css)
    ]
    assert len(schemes) == 3  # light, dark, paper
    for colours in schemes:
        for ink in ("ink", "muted", "link"):
            for ground in ("page", "soft"):
                assert contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)
        for word in ("good", "care", "bad"):
            assert contrast(colours[word], colours["page"]) >= 4.5
            assert contrast(colours[word], colours[f"{word}-soft"]) >= 4.5
            assert contrast(colours["ink"], colours[f"{word}-soft"]) >= 4.5
        for line in ("c0", "c1", "c2", "c3", "c4", "c5", "c7"):
            assert contrast(colours[line], colours["page"]) >= 3


def contrast(a, b):
    """WCAG 2: lighter over darker, each plus 0.05."""
    bright = sorted((luminance(a), luminance(b)), reverse=True)
    return (bright[0] + 0.05) / (bright[1] + 0.05)


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_contrast_of_black_on_white():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)  # (1 + 0.05) / (0 + 0.05)


# -- the numbers behind the figures --


def test_weights_over_time_against_a_loop():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 9, 50)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ratio = rng.normal(0, 1, offsets[-1])
    ratio[rng.random(len(ratio)) < 0.1] = -np.inf
    found = weights_over_time(Evidence(np.zeros(len(ratio)), ratio, offsets))
    assert found.step.tolist() == list(range(1, lengths.max() + 1))
    for t in range(lengths.max()):
        # An ended trajectory keeps its last weight.
        logs = np.array([ratio[a:b][: t + 1].sum() for a, b in pairwise(offsets)])
        rho = np.exp(logs)
        assert found.under_way[t] == (lengths > t).sum()
        assert found.mean[t] == pytest.approx(rho.mean())
        assert found.se[t] == pytest.approx(rho.std() / np.sqrt(50))
        assert found.effective[t] == pytest.approx(rho.sum() ** 2 / (rho**2).sum())
        there = rho[lengths > t]
        expected = there.sum() ** 2 / (there**2).sum() if there.any() else 0.0
        assert found.reaching[t] == pytest.approx(expected)
        assert found.without[t] == np.mean(rho == 0)
        for i, level in enumerate(QUANTILES):
            # The smallest weight that at least this share of the trajectories does not exceed.
            expected = np.sort(logs)[int(np.ceil(level * 50)) - 1] / np.log(10)
            assert found.log10[i, t] == pytest.approx(expected)


def test_weights_of_a_long_log_are_shown_at_forty_steps():
    e = Evidence(np.zeros(500), np.full(500, 0.01), [0, 250, 500])
    found = weights_over_time(e)
    assert len(found.step) == 40
    assert found.step[[0, -1]].tolist() == [1, 250]
    assert found.mean[-1] == pytest.approx(np.exp(2.5))


def test_overlap_against_a_loop():
    rng = np.random.default_rng(0)
    behaviour_probs = rng.dirichlet([0.05, 0.3, 1, 2], 40)
    target_probs = rng.dirichlet([1, 1, 1, 1], 40)
    found = overlap(target_probs, behaviour_probs)
    policy, practice, rare = np.zeros(6), np.zeros(6), 0.0
    for e, b in zip(target_probs.ravel(), behaviour_probs.ravel(), strict=True):
        place = next(i for i in range(6) if b < found.edges[i + 1] or i == 5)
        policy[place] += e / 40
        practice[place] += b / 40
        rare += e / 40 if b < 0.01 else 0.0
    np.testing.assert_allclose(found.policy, policy)
    np.testing.assert_allclose(found.practice, practice)
    assert found.rare == pytest.approx(rare)
    assert found.policy.sum() == pytest.approx(1)


def test_how_much_the_heaviest_trajectories_hold():
    # Weights 8, 4 and nine times 1: 21 in all.
    e = Evidence(np.zeros(11), np.log([1.0] * 9 + [8.0, 4.0]), np.arange(12))
    assert weight_shares(e) == pytest.approx({1: 8 / 21, 10: 20 / 21})


def test_a_long_table_is_cut_and_says_so():
    found = grid("Many", [{"i": i, "x": float(i)} for i in range(50)], most=10)
    assert len(found.rows) == 10
    assert found.note == "The first 10 of 50 rows."
    assert found.classes == ["n", "n"]
    assert grid("Few", [{"name": "a", "x": float("nan")}]).shown == [["a", "none"]]


def test_labels_are_no_mathematics():
    assert label_text(r"$\frac{1}{0}$") == r"\$/frac{1}{0}\$"
    assert len(label_text("x" * 500)) == 44
    assert label_texts(["a" * 99, "a" * 98, "b"])[0].endswith("(1)")
