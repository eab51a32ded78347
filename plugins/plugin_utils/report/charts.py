# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Charts as static SVG, drawn by Matplotlib; their colours are the page's, so they follow its light and dark scheme."""

from __future__ import annotations

import io
import re
import statistics
import warnings
from xml.etree import ElementTree

from ansible_collections.railyard.rdma.plugins.plugin_utils.report.values import (
    ReportError,
    counted,
    number,
    rows,
    visible,
)

IMPORT_ERROR = None
try:
    import matplotlib
    import matplotlib.style
    from matplotlib.figure import Figure
except ImportError as error:
    matplotlib, Figure, IMPORT_ERROR = None, None, error

# Colours that nothing else uses stand for the page's custom properties.
_COLOURS = {
    "#0100a1": "text",
    "#0100a2": "muted",
    "#0100a3": "line",
    "#0100a4": "pass-bar",
    "#0100a5": "warning-bar",
    "#0100a6": "fail-bar",
    "#0100a7": "unknown-bar",
    "#0100a8": "series-1",
    "#0100a9": "series-2",
    "#0100aa": "series-3",
    "#0100ab": "series-4",
    "#0100ac": "surface",
}
_OF = {name: code for code, name in _COLOURS.items()}
# Verdict: colour, hatch and word, so that it never hangs on the colour alone.
_BARS = {
    "full": ("pass-bar", None, ""),
    "low": ("warning-bar", "///", "low"),
    "failed": ("fail-bar", "xxx", "failed"),
    "unknown": ("unknown-bar", "...", "unknown"),
}
_SVG = "{http://www.w3.org/2000/svg}"
_LINK = "{http://www.w3.org/1999/xlink}href"
# Widths in CSS pixels (Matplotlib: 72 to the inch): one for wide and one for narrow pages, since scaled text is small text.
WIDTHS = {"wide": 550, "narrow": 330}
MOST_BARS = 24
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "railyard",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.size": 12,
    "text.color": _OF["text"],
    "axes.edgecolor": _OF["line"],
    "axes.labelcolor": _OF["muted"],
    "xtick.color": _OF["muted"],
    "ytick.color": _OF["text"],
    "hatch.color": _OF["surface"],
    "hatch.linewidth": 1.4,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "figure.dpi": 72,
    "savefig.transparent": True,
    "axes.unicode_minus": False,
}


def need_library() -> None:
    """:raises ReportError: Matplotlib is not there."""
    if matplotlib is None:
        raise ReportError(
            "report_html: the charts need the Python library matplotlib (3.8 or newer) on the controller, which cannot be imported "
            f"({IMPORT_ERROR}). Install it with pip, or leave report_html empty: report_file and report_junit work without it."
        )


def pairs_chart(pairs: list[dict], width: int, key: str) -> str:
    """Bars of the slowest pairs as share of the port's rate.

    :param pairs: of :func:`..bandwidth.pairs`.
    :param key: a word that no other chart of the page has.
    """
    known = sorted((pair for pair in pairs if pair["ratio"] is not None), key=lambda pair: pair["ratio"])[:MOST_BARS]
    known.reverse()
    most = 30 if width > 400 else 17
    labels = [_label(pair, most) for pair in known]
    with _drawing(width, 34 + 25 * len(known), _room(labels), 106) as (figure, axes):
        for place, pair in enumerate(known):
            colour, hatch, word = _BARS.get(pair["verdict"], _BARS["unknown"])
            axes.barh(place, pair["ratio"] * 100, height=0.62, color=_OF[colour], hatch=hatch, linewidth=0)
            told = f"{pair['gbps']:.1f} of {pair['of_gbps']:g}" + (f" {word}" if word else "")
            # Beside a short bar, inside none: the text must stand on the page's own ground.
            axes.text(104, place, told, va="center", ha="left", fontsize=11, clip_on=False)
        axes.set_yticks(range(len(known)), labels)
        axes.set_ylim(-0.6, len(known) - 0.4)
        _share_axis(axes)
        return _svg(figure, key)


def rails_chart(pairs: list[dict], width: int, key: str) -> str:
    """For each rail the span of all its pairs, with the middle one marked, as share of the port's rate."""
    spans: dict[int, list[float]] = {}
    for pair in pairs:
        if pair["ratio"] is not None:
            spans.setdefault(pair["rail"], []).append(pair["ratio"] * 100)
    rails = sorted(spans, reverse=True)
    labels = [f"rail {rail}" for rail in rails]
    with _drawing(width, 34 + 25 * len(rails), _room(labels), 92) as (figure, axes):
        for place, rail in enumerate(rails):
            low, middle, high = min(spans[rail]), statistics.median(spans[rail]), max(spans[rail])
            axes.barh(place, max(high - low, 0.4), left=low, height=0.4, color=_OF["series-1"], linewidth=0)
            axes.plot([middle], [place], marker="D", markersize=7, color=_OF["text"], linestyle="none")
            axes.text(104, place, f"{low:.0f} / {middle:.0f} / {high:.0f}", va="center", ha="left", fontsize=11)
        axes.set_yticks(range(len(rails)), labels)
        axes.set_ylim(-0.6, len(rails) - 0.4)
        _share_axis(axes)
        return _svg(figure, key)


def sizes_chart(jobs: list[dict], width: int, key: str) -> str | None:
    """Bus bandwidth of NCCL jobs over the message size; None when no job has two sizes."""
    lines = []
    for job in jobs[:4]:
        points = [
            (size, rate)
            for row in rows(job.get("sizes"))
            if (size := number(row.get("bytes"))) and size > 0
            if (rate := number((row.get("out_of_place") or {}).get("busbw"))) is not None
        ]
        if len(points) > 1:
            lines.append((visible(job.get("name")), sorted(points)))
    if not lines:
        return None
    with _drawing(width, 270, 52, 12, 46) as (figure, axes):
        for place, (name, points) in enumerate(lines):
            axes.plot(
                *zip(*points, strict=True),
                color=_OF[f"series-{place + 1}"],
                marker="osD^"[place],
                linestyle=("-", "--", ":", "-.")[place],
                linewidth=2,
                markersize=5,
                label=_cut(name, 40),
            )
        axes.set_xscale("log", base=2)
        axes.set_ylim(bottom=0)
        ticks = [2**power for power in range(0, 51, 5) if lines[0][1][0][0] <= 2**power <= lines[0][1][-1][0]]
        axes.set_xticks(
            ticks or [lines[0][1][0][0]], [size_text(tick) for tick in ticks] or [size_text(lines[0][1][0][0])]
        )
        axes.minorticks_off()
        axes.grid(axis="y", color=_OF["line"], linewidth=0.8)
        axes.set_ylabel("bus bandwidth, GB/s")
        axes.set_xlabel("message size")
        axes.legend(frameon=False, loc="upper left", fontsize=11)
        return _svg(figure, key)


def size_text(size: float) -> str:
    """Return bytes as "8 MiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:g} {unit}" if size == int(size) else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:g} TiB"


def alternative(pairs: list[dict]) -> str:
    """What the bars show, in a sentence."""
    known = [pair["ratio"] * 100 for pair in pairs if pair["ratio"] is not None]
    if not known:
        return "No rate is known."
    return (
        f"{counted(len(known), 'pair')}: the slowest reaches {min(known):.1f} % of its port's rate, the middle one "
        f"{statistics.median(known):.1f} %, the fastest {max(known):.1f} %."
    )


def _label(pair: dict, most: int) -> str:
    tail = f" rail {pair['rail']}" if most > 20 else f" r{pair['rail']}"
    room = (most - len(tail)) // 2 - 1
    return f"{_cut(visible(pair['client']), room)} → {_cut(visible(pair['server']), room)}{tail}"


def _room(labels: list[str]) -> int:
    """Pixels that labels take in front of bars, in a wide font of 12 pixels."""
    return 14 + int(7.2 * max(map(len, labels), default=0))


def _cut(name: str, most: int) -> str:
    """The end of a name tells more than its start: gpu-rack07-node12."""
    return name if len(name) <= most else "…" + name[1 - most :]


def _share_axis(axes) -> None:
    axes.set_xlim(0, 101)
    axes.set_xticks([0, 25, 50, 75, 100], ["0", "25", "50", "75", "100 %"])
    axes.axvline(100, color=_OF["text"], linewidth=1.2)
    axes.grid(axis="x", color=_OF["line"], linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)


class _drawing:
    """A figure of some pixels in our style, whatever the user's own matplotlibrc says."""

    def __init__(self, width: int, height: int, left: int, right: int, below: int = 26) -> None:
        """In CSS pixels; left, right and below are the margins. Letting Matplotlib find them doubles the time."""
        self.size = width / 72, height / 72
        self.place = {"left": left / width, "right": 1 - right / width, "bottom": below / height, "top": 1 - 8 / height}
        self.context = None

    def __enter__(self):
        need_library()
        self.warnings = warnings.catch_warnings()
        self.warnings.__enter__()
        # The browser chooses the fonts; that Matplotlib's own one lacks a sign of a name does not matter.
        warnings.simplefilter("ignore")
        self.context = matplotlib.style.context(["default", _STYLE])
        self.context.__enter__()
        figure = Figure(figsize=self.size)
        figure.subplots_adjust(**self.place)
        return figure, figure.add_subplot()

    def __exit__(self, *details):
        self.context.__exit__(*details)
        self.warnings.__exit__(*details)


def _svg(figure, key: str) -> str:
    """The figure as an SVG element that can stand in a page beside others."""
    stream = io.BytesIO()
    figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    top = ElementTree.fromstring(stream.getvalue())
    for parent in top.iter():
        for child in list(parent):
            if child.tag.endswith("}metadata") or child.tag == f"{_SVG}style":
                parent.remove(child)
    used = set(re.findall(r"#([\w-]+)\b", " ".join(v for e in top.iter() for v in e.attrib.values() if "#" in v)))
    for element in top.iter():
        element.tag = element.tag.replace(_SVG, "")
        if element.get("id") in used:
            element.set("id", f"{key}-{element.get('id')}")
        else:
            element.attrib.pop("id", None)
        link = element.attrib.pop(_LINK, None)
        if link:
            element.set("href", f"#{key}-{link[1:]}")
        for name, value in list(element.attrib.items()):
            if "url(#" in value:
                element.set(name, value.replace("url(#", f"url(#{key}-"))
        # A hatched bar has its colours as attributes, which cannot hold a custom property everywhere.
        loose = [f"{name}: {element.attrib.pop(name)}" for name in ("fill", "stroke") if element.get(name) in _COLOURS]
        if loose or "style" in element.attrib:
            element.set("style", _page_colours("; ".join([element.get("style", ""), *loose]).strip("; ")))
    top.attrib.pop("version", None)
    # Beside it stands a sentence that says the same (alternative).
    top.set("aria-hidden", "true")
    top.set("focusable", "false")
    top.attrib.update(width=f"{figure.get_figwidth() * 72:.0f}", height=f"{figure.get_figheight() * 72:.0f}")
    return ElementTree.tostring(top, encoding="unicode")


def _page_colours(style: str) -> str:
    for code, name in _COLOURS.items():
        style = style.replace(code, f"var(--{name})")
    return re.sub(r"font: ([\d.]+px) [^;]*", r"font-size: \1; font-family: inherit", style)
