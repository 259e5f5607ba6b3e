"""The report in a real browser: wide and narrow, light and dark, from a file, without a network."""

import os
import shutil
from pathlib import Path

import pytest

from caliope.report import write_report
from support.browser import Page, chromium, find_browser
from support.report_audits import far_audit, near_audit, shop_audit, strange_audit

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_browser() is None, reason="no Chromium was found: apt-get install chromium"),
]
VIEWS = [(width, dark) for width in (1280, 360) for dark in (False, True)]
AUDITS = {"near": near_audit, "far": far_audit, "strange": strange_audit, "shop": shop_audit}

# Boxes that reach out of the window; what scrolls inside its own box is cut off by it.
OUTSIDE = """
[...document.querySelectorAll('body *')].filter(x => {
  const box = x.getBoundingClientRect();
  if (!box.width || x.closest('.scroll') || x.closest('.unseen') || x.closest('.skip')) return false;
  if (x.closest('defs')) return false;
  return box.right > innerWidth + 1 || box.left < -1;
}).map(x => x.tagName + ' ' + x.id + ' ' + (x.textContent || '').slice(0, 60))
"""
FIGURES = """
[...document.querySelectorAll('figure')].map(x => {
  const box = x.querySelector('svg').getBoundingClientRect();
  const marks = [...x.querySelectorAll('svg path, svg use')].filter(m => m.getBoundingClientRect().width > 0);
  const words = [...x.querySelectorAll('svg text')];
  return {id: x.id, width: box.width, height: box.height, marks: marks.length, words: words.length,
          smallest: Math.min(...words.map(w => w.getBoundingClientRect().height))};
})
"""
# Contrast of every piece of text with what lies behind it, by WCAG 2.
PALE = """
(() => {
  const parts = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = c => c.slice(0, 3).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = x => { for (; x; x = x.parentElement) { const c = parts(getComputedStyle(x).backgroundColor);
    if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
  return [...document.querySelectorAll('p, li, a, th, td, dt, dd, span, h1, h2, h3, summary, figcaption, caption')]
    .filter(x => x.textContent.trim() && x.getBoundingClientRect().width)
    .map(x => { const l = [light(parts(getComputedStyle(x).color)), light(ground(x))].sort((a, b) => b - a);
      return [(l[0] + 0.05) / (l[1] + 0.05), x.tagName + ' ' + x.textContent.slice(0, 40)]; })
    .filter(x => x[0] < 4.5);
})()
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    return {name: write_report(make(), folder / f"{name}.html")[0] for name, make in AUDITS.items()}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.mark.parametrize(("width", "dark"), VIEWS, ids=[f"{w}{'-dark' if d else ''}" for w, d in VIEWS])
@pytest.mark.parametrize("name", AUDITS)
def test_the_page_is_whole_at_every_width_and_in_both_schemes(browser, pages, name, width, dark):
    page = Page(browser, pages[name], width=width, dark=dark)
    asked = [event["request"]["url"] for event in page.events("Network.requestWillBeSent")]
    assert asked == [pages[name].resolve().as_uri()]
    assert page.events("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled") == []
    assert page.evaluate("innerWidth") == width
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(OUTSIDE) == []
    figures = page.evaluate(FIGURES)
    assert len(figures) >= 10
    for figure in figures:
        assert figure["width"] >= 250, figure
        assert figure["height"] >= 50, figure
        assert figure["marks"] >= 3, figure
        assert figure["words"] >= 2, figure
        assert figure["smallest"] >= 8, figure  # pixels: small, and readable on a phone
    assert page.evaluate(PALE) == []
    assert (page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)") != dark
    keep(page, f"{name}-{width}{'-dark' if dark else ''}.png")


def test_the_verdict_is_on_the_first_screen_of_a_phone(browser, pages):
    page = Page(browser, pages["far"], width=360, dark=False)
    assert page.evaluate("document.querySelector('.banner').getBoundingClientRect().top") < 500


@pytest.mark.parametrize(("width", "end"), [(1280, 900), (390, 844)])
def test_the_first_screen_holds_the_verdict_and_its_picture(browser, pages, width, end):
    for name in AUDITS:
        page = Page(browser, pages[name], width=width, dark=False)
        place = "document.querySelector('#figure-answer svg').getBoundingClientRect()"
        assert page.evaluate(f"{place}.bottom") <= end, name


def test_a_phone_shows_the_verdict_of_every_estimator_and_whole_captions(browser, pages):
    page = Page(browser, pages["near"], width=360, dark=False)
    # The table of estimators: its verdicts stand beside the values, inside the window.
    right = page.evaluate(
        "[...document.querySelectorAll('#value > .scroll td.trust, #value > .scroll td.caution, "
        "#value > .scroll td.do-not-trust')].map(x => x.getBoundingClientRect().right)"
    )
    assert len(right) >= 9
    assert max(right) <= 360
    wide = page.evaluate(
        "[...document.querySelectorAll('caption span')].filter(x => x.getBoundingClientRect().width > "
        "Math.max(0, x.closest('.scroll').getBoundingClientRect().width) + 1).map(x => x.textContent)"
    )
    assert wide == []
    # And it says that there is more to the right: a shadow that stays while the table moves.
    assert "local" in page.evaluate(
        "getComputedStyle(document.querySelector('.scroll')).backgroundAttachment"
    )


def test_a_keyboard_reaches_the_verdict_at_once_and_shows_where_it_is(browser, pages):
    page = Page(browser, pages["near"], width=1280, dark=False)
    for kind in ("keyDown", "keyUp"):
        page.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
    assert page.evaluate("document.activeElement.getAttribute('href')") == "#content"
    assert page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_a_screen_reader_is_told_what_a_figure_shows(browser, pages):
    page = Page(browser, pages["near"], width=1280, dark=False)
    page.call("Accessibility.enable")
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    named = {(n["role"]["value"], n.get("name", {}).get("value", "")) for n in nodes if not n.get("ignored")}
    assert ("image", "Reliability diagram.") in named
    assert {role for role, _ in named} >= {"main", "navigation", "banner", "contentinfo", "table", "heading"}
    assert not [role for role, name in named if role == "image" and not name]


def test_it_prints(browser, pages, tmp_path):
    page = Page(browser, pages["near"], width=1280, dark=True)
    page.pdf(tmp_path / "near.pdf")
    content = (tmp_path / "near.pdf").read_bytes()
    assert content.startswith(b"%PDF")
    assert 3 <= content.count(b"/Type /Page\n") + content.count(b"/Type /Page ") <= 25
    page.call("Emulation.setEmulatedMedia", media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    for hidden in ("nav", "footer"):  # a foot of one line would make a page of its own
        assert page.evaluate(f"getComputedStyle(document.querySelector('{hidden}')).display") == "none"
    if os.environ.get("CALIOPE_SCREENSHOTS"):
        shutil.copy(tmp_path / "near.pdf", os.environ["CALIOPE_SCREENSHOTS"])


def keep(page, name):
    """For somebody to look at, where a folder is named."""
    folder = os.environ.get("CALIOPE_SCREENSHOTS")
    if folder:
        page.screenshot(Path(folder) / name)
