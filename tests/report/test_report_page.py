# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The HTML file in a headless Chromium that has no network."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path

import axe_playwright_python
import pytest

EVERY = [(1280, "light"), (1280, "dark"), (400, "light"), (400, "dark")]
SAMPLES = [
    ("faulty", EVERY),
    ("hostile", [(400, "light"), (1280, "dark")]),
    ("huge", [(400, "dark")]),
    ("empty", [(400, "light")]),
]

# Text with less contrast than 4.5 to what is behind it, as WCAG 2.2 (1.4.3) computes it; text of charts and drawings too.
LOW_CONTRAST = """() => {
  const canvas = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
  const rgba = colour => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = rgb => {
    const part = rgb.slice(0, 3).map(v => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2];
  };
  const behind = element => {
    const box = element.closest('.paths g');
    if (box) return rgba(getComputedStyle(box.querySelector('rect')).fill);
    for (let one = element; one; one = one.parentElement) {
      const found = rgba(getComputedStyle(one).backgroundColor);
      if (found[3] === 255) return found;
      if (found[3] !== 0) return null;
    }
    return [255, 255, 255, 255];
  };
  const bad = []; let seen = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim(), element = walker.currentNode.parentElement;
    if (!text || element.closest('.hidden, style, title') || !element.checkVisibility()) continue;
    const style = getComputedStyle(element), back = behind(element);
    const front = rgba(element instanceof SVGElement ? style.fill : style.color);
    if (!back || front[3] !== 255) { bad.push([text.slice(0, 40), 'see-through']); continue; }
    const [high, low] = [light(front), light(back)].sort((a, b) => b - a);
    const ratio = (high + 0.05) / (low + 0.05);
    seen++;
    if (ratio < 4.5) bad.push([text.slice(0, 40), element.outerHTML.slice(0, 60), ratio.toFixed(2), front.join(), back.join()]);
  }
  return {seen, bad: bad.slice(0, 20)};
}"""

WIDER = """() => {
  const room = document.documentElement.clientWidth, bad = [];
  for (const one of document.body.querySelectorAll('*')) {
    if (one.closest('.scroll, pre, .hidden, .skip, .tip, .symbols, thead') || !one.checkVisibility()) continue;
    const box = one.getBoundingClientRect();
    if (box.width && (box.right > room + 1 || box.left < -1)) bad.push([one.outerHTML.slice(0, 60), box.left, box.right]);
  }
  return {page: document.documentElement.scrollWidth, room, bad: bad.slice(0, 10)};
}"""

FOCUSED = """() => {
  const one = document.activeElement, style = getComputedStyle(one);
  const all = [...document.querySelectorAll('*')];
  const tip = one.querySelector('.cell > .tip')?.getBoundingClientRect();
  return {
    place: all.indexOf(one), tag: one.tagName, outline: style.outlineStyle, width: parseFloat(style.outlineWidth),
    tip: tip && [tip.top, tip.bottom, tip.left, tip.right],
  };
}"""

SHAPES = """() => ['pass', 'warning', 'fail', 'unknown'].map(
  state => document.querySelector(document.querySelector('td.' + state + ' use').getAttribute('href')).innerHTML
)"""


@contextmanager
def opened(browser, path: Path, width: int, scheme: str):
    """A page of its own; what it asked for and what it complained about are kept on it."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
    shown = context.new_page()
    shown.asked, shown.said = [], []
    shown.on("request", lambda request: shown.asked.append(request.url))
    shown.on("console", lambda message: shown.said.append(message.text))
    shown.on("pageerror", lambda error: shown.said.append(str(error)))
    shown.on("dialog", lambda dialog: (shown.said.append(dialog.message), dialog.dismiss()))
    try:
        shown.goto(path.as_uri(), timeout=120_000)
        yield shown
    finally:
        context.close()


@pytest.mark.parametrize(("name", "views"), SAMPLES, ids=[name for name, _views in SAMPLES])
def test_readable_without_network(browser, pages, name, views):
    """No request but the file, no complaint (a style or script that the policy refuses is one), nothing wider than the
    page, contrast of all text, also with all details open."""
    with opened(browser, pages(name), *views[0]) as shown:
        shown.evaluate("() => { for (const one of document.querySelectorAll('details')) one.open = true }")
        for width, scheme in views:
            shown.set_viewport_size({"width": width, "height": 900})
            shown.emulate_media(color_scheme=scheme)
            wide = shown.evaluate(WIDER)
            assert (wide["page"], wide["bad"]) == (width, []), (width, scheme)
            contrast = shown.evaluate(LOW_CONTRAST)
            assert contrast["bad"] == [], (width, scheme)
            assert contrast["seen"] > 10
        assert shown.asked == [pages(name).as_uri()]
        assert shown.said == []
        assert shown.title().split(":")[0] in ("pass", "fail", "unknown")


def test_the_check_of_contrast_finds_too_little(browser, pages):
    """So that it cannot pass by not looking."""
    with opened(browser, pages("empty"), 400, "light") as shown:
        shown.add_style_tag(content=".muted { color: #9a9a9a !important }")
        assert shown.evaluate(LOW_CONTRAST)["bad"]


def test_a_request_would_be_seen_and_is_refused(browser, tmp_path, pages):
    """The policy stops what a hostile text could try, and our check sees it."""
    path = tmp_path / "x.html"
    text = pages("empty").read_text(encoding="utf-8")
    path.write_text(
        text.replace("</main>", "<img src='https://example.invalid/x.png'><script>alert(1)</script></main>"),
        encoding="utf-8",
    )
    with opened(browser, path, 400, "light") as shown:
        assert any("Content Security Policy" in line for line in shown.said)
        assert "1" not in shown.said


@pytest.mark.parametrize("width", [1280, 400])
def test_keyboard(browser, pages, width):
    """Focus goes through the page in its order, is always seen, and a cell tells its details within the window."""
    with opened(browser, pages("faulty"), width, "light") as shown:
        places, cells = [], 0
        shown.keyboard.press("Tab")
        assert shown.evaluate("document.activeElement.className") == "skip"
        assert shown.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
        for _step in range(25):
            shown.keyboard.press("Tab")
            found = shown.evaluate(FOCUSED)
            places.append(found["place"])
            assert found["outline"] != "none" and found["width"] >= 2, found
            if found["tip"]:
                cells += 1
                top, bottom, *sides = found["tip"]
                assert 450 <= top < bottom <= 900 and sides == [0, width], found
        assert places == sorted(set(places))
        assert cells > 5


def test_skipping_the_grid(browser, pages):
    with opened(browser, pages("faulty"), 1280, "light") as shown:
        shown.get_by_role("link", name="Skip the grid").press("Enter")
        shown.keyboard.press("Tab")
        assert not shown.evaluate("document.activeElement.className === 'cell'")


def test_pointing_at_a_cell_shows_its_details(browser, pages):
    with opened(browser, pages("faulty"), 1280, "dark") as shown:
        shown.locator("td.fail:not(.whole) .cell").first.hover()
        tip = shown.locator(".cell:hover .tip")
        assert tip.bounding_box()["height"] > 20
        assert "traffic" in tip.inner_text() or "GID" in tip.inner_text()


def test_findings_open_and_close_by_keyboard(browser, pages):
    with opened(browser, pages("faulty"), 400, "light") as shown:
        last = shown.locator("details.finding").last
        assert last.get_attribute("open") is None
        last.locator("> summary").press("Enter")
        assert last.get_attribute("open") is not None
        assert last.locator(".remedy").is_visible()


def test_states_differ_by_more_than_colour(browser, pages):
    with opened(browser, pages("faulty"), 1280, "light") as shown:
        assert len(set(shown.evaluate(SHAPES))) == 4


def test_print(browser, pages):
    """On paper there is no navigation, and nothing is cut at the side."""
    with opened(browser, pages("faulty"), 794, "dark") as shown:
        shown.emulate_media(media="print", color_scheme="light")
        assert not shown.locator("nav").is_visible()
        wide = shown.evaluate(WIDER)
        assert (wide["page"], wide["bad"]) == (wide["room"], [])


@pytest.mark.parametrize(("name", "width"), [("faulty", 1280), ("empty", 400)], ids=["faulty", "empty"])
def test_rules_of_accessibility(browser, pages, name, width):
    """axe-core: WCAG 2.2 A and AA, and its best practices. Contrast is checked above, in both schemes."""
    source = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    with opened(browser, pages(name), width, "light") as shown:
        shown.evaluate(source)
        # Rows further down are like the first ones.
        found = shown.evaluate(
            """() => axe.run({exclude: [['.grid tbody tr:nth-child(n+4)'], ['.data tbody tr:nth-child(n+4)']]},
                             {resultTypes: ['violations'], rules: {'color-contrast': {enabled: false}}})"""
        )
        told = [(one["id"], one["help"], [node["target"] for node in one["nodes"]][:3]) for one in found["violations"]]
        assert told == []
        assert len(found["passes"]) > 5
