# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The proof document as the HTML page shows it: sentences, groups and orders; the template decides nothing."""

from __future__ import annotations

from collections import Counter

from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import RULES, SEVERITIES
from ansible_collections.railyard.rdma.plugins.plugin_utils.report import charts, heatmap
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.bandwidth import pairs
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.drawing import drawings
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.jobs import environment, jobs, state
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.sentence import sentence
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.values import (
    counted,
    in_short,
    mapping,
    number,
    rows,
    words,
)

# What a page can show and a person can read; the JSON file has all.
MOST_PLACES, MOST_GROUPS, MOST_ROWS, MOST_SIZES, MOST_EVIDENCE = 300, 200, 200, 40, 3


def view(document: dict) -> dict:
    """Data of the page; see ``roles/report/templates/report.html.j2``."""
    findings = findings_of(document)
    taken = pairs(document["bandwidth"])
    return {
        "verdict": document["verdict"],
        "sentence": sentence(document),
        "scope": scope(document, taken),
        "causes": [group for group in findings if group["severity"] == "error" and not group["tolerated"]][:3],
        "made_at": document["made_at"],
        "version": document["version"],
        "figures": figures(document),
        "grid": heatmap.grid(document["cells"], document["rows"]),
        "bandwidth": bandwidth_of(document["bandwidth"], taken),
        "paths": drawings(document["topology"]),
        "findings": findings[:MOST_GROUPS],
        "more_findings": max(0, len(findings) - MOST_GROUPS),
        "jobs": jobs_of(document["nccl"]),
        "jobs_charts": _both(lambda width, key: charts.sizes_chart(jobs(document["nccl"]), width, key), "nccl"),
        "environment": environment(document["nccl"]),
        "not_measured": [
            {**gap, "places": len(gap["where"]), "where": gap["where"][:MOST_PLACES]}
            for gap in document["not_measured"]
        ],
        "moved": moved_of(document["moved"]),
    }


def scope(document: dict, taken: list[dict]) -> list[dict]:
    """What was looked at: [{name, done, told}]."""
    nodes = {row["node"] for row in document["rows"]}
    seen = {
        place: {cell["node"] for cell in document["cells"] if cell["seen_in"] == place} for place in ("pod", "node")
    }
    without = {node for gap in document["not_measured"] if gap["what"] == "facts of the node" for node in gap["where"]}
    ran = jobs(document["nccl"])
    told = [
        ("nodes", len(nodes - without), f"{len(nodes - without):,} of {len(nodes):,}"),
        ("pods", len(seen["pod"]), f"{len(seen['pod']):,} of {len(nodes):,}"),
        ("bandwidth", len(taken), counted(len(taken), "pair")),
        ("NCCL", len(ran), counted(len(ran), "job")),
    ]
    return [
        {"name": name, "done": bool(amount), "told": text if amount else "not measured"} for name, amount, text in told
    ]


def figures(document: dict) -> list[dict]:
    """Key figures: [{name, value, note}]."""
    verdicts = Counter(row.get("verdict") for row in document["rows"])
    states = Counter(cell["state"] for cell in document["cells"])
    errors = {item["id"] for item in document["findings"] if item["severity"] == "error" and not item["tolerated"]}
    rates = [cell for cell in document["cells"] if cell["ratio"] is not None]
    bad = [f"{verdicts[word]:,} {word}" for word in ("fail", "unknown") if verdicts[word]]
    rails = [f"{states[word]:,} {word}" for word in ("fail", "unknown", "warning") if states[word]]
    made = [
        {
            "name": "nodes that pass",
            "value": f"{verdicts['pass']:,} of {len(document['rows']):,}",
            "note": ", ".join(bad),
        },
        {
            "name": "rails that pass",
            "value": f"{states['pass']:,} of {len(document['cells']):,}",
            "note": ", ".join(rails),
        },
        {"name": "kinds of errors", "value": str(len(errors)), "note": in_short(sorted(errors), 4)},
    ]
    if rates:
        slow = min(rates, key=lambda cell: cell["ratio"])
        where = f"{slow['node']} rail {slow['rail']}"
        made.append({"name": "lowest rate", "value": f"{slow['ratio'] * 100:.1f} %", "note": where})
    best = [rate for job in jobs(document["nccl"]) if (rate := number(job.get("busbw_gbs"))) is not None]
    if best:
        made.append(
            {"name": "NCCL bus bandwidth", "value": f"{max(best):.1f} GB/s", "note": "largest size, out of place"}
        )
    return made


def findings_of(document: dict) -> list[dict]:
    """Findings of one rule and remedy as one group, errors first: [{id, title, severity, tolerated, summary, remedy, nodes,
    places, more_places, evidence: [{place, items: [(name, text)]}]}]."""
    groups: dict[tuple, list[dict]] = {}
    for item in document["findings"]:
        if item["severity"] == "unknown":
            continue  # they are told under "not measured"
        key = (SEVERITIES.index(item["severity"]) if item["severity"] in SEVERITIES else 9, bool(item["tolerated"]))
        groups.setdefault((*key, item["id"], item["remedy"]), []).append(item)
    ordered = sorted(groups.items(), key=lambda pair: (pair[0][1], pair[0][0], -len(pair[1]), pair[0][2]))
    return [_group(items) for _key, items in ordered]


def _group(items: list[dict]) -> dict:
    first = items[0]
    places = list(dict.fromkeys(_place(item) for item in items))
    title = RULES[first["id"]].title if first["id"] in RULES else first["summary"]
    return {
        "id": first["id"],
        "title": title,
        "severity": first["severity"],
        "tolerated": first["tolerated"],
        # The texts of several places differ by their names.
        "summary": title if len(places) > 1 else first["summary"],
        "remedy": first["remedy"],
        "nodes": len({item["node"] for item in items}),
        "places": places[:MOST_PLACES],
        "more_places": max(0, len(places) - MOST_PLACES),
        "evidence": [
            {"place": _place(item), "summary": item["summary"], "items": _evidence(item["evidence"])}
            for item in items[:MOST_EVIDENCE]
        ],
        "more_evidence": max(0, len(items) - MOST_EVIDENCE),
    }


def _place(item: dict) -> str:
    return item["node"] + (f" rail {item['rail']}" if item["rail"] is not None else "")


def _evidence(evidence) -> list[tuple[str, str]]:
    return [(name.replace("_", " "), _brief(value)) for name, value in mapping(evidence).items()]


def _brief(value, most: int = 1200) -> str:
    """Data as text, without the quotes and braces where they say nothing."""
    if isinstance(value, list):
        told = ", ".join(_brief(item) for item in value) or "none"
    elif isinstance(value, dict):
        told = "; ".join(f"{key}: {_brief(item)}" for key, item in value.items()) or "none"
    else:
        told = "not known" if value is None else "yes" if value is True else "no" if value is False else str(value)
    return told if len(told) <= most else told[:most] + " …"


def bandwidth_of(bandwidth, taken: list[dict]) -> dict | None:
    """Charts and tables of a benchmark and its pairs; None without one."""
    if bandwidth is None:
        return None
    order = {"failed": 0, "low": 1, "unknown": 2, "full": 3}
    listed = sorted(taken, key=lambda pair: (order[pair["verdict"]], 2 if pair["ratio"] is None else pair["ratio"]))
    rated = [pair for pair in taken if pair["ratio"] is not None]
    return {
        "settings": _evidence(bandwidth.get("settings")),
        "counts": list(Counter(pair["verdict"] for pair in taken).items()),
        "alternative": charts.alternative(taken),
        "slowest": _both(lambda width, key: charts.pairs_chart(rated, width, key), "pairs") if rated else None,
        "all_shown": len(rated) <= charts.MOST_BARS,
        "most_bars": charts.MOST_BARS,
        "rails": _both(lambda width, key: charts.rails_chart(rated, width, key), "rails") if rated else None,
        "pairs": listed[:MOST_ROWS],
        "more_pairs": max(0, len(listed) - MOST_ROWS),
        "priorities": _priorities(rows(bandwidth.get("priorities"))),
    }


_PRIORITY = {"right": "pass", "wrong": "fail"}


def _priorities(given: list[dict]) -> list[dict]:
    """Where the traffic went, alike ones as one row: [{state, wanted, reason, share, places, more_places}]."""
    groups: dict[tuple, list[dict]] = {}
    for row in given:
        key = (
            _PRIORITY.get(row.get("verdict"), "unknown"),
            str(row.get("wanted_priority")),
            words(row.get("reason")) or "",
        )
        groups.setdefault(key, []).append(row)
    made = []
    for (word, wanted, reason), items in sorted(groups.items()):
        shares = [share for row in items if (share := number(row.get("share_on_wanted"))) is not None]
        places = [f"{row.get('host')} rail {row.get('rail')}" for row in items]
        made.append(
            {
                "state": word,
                "wanted": wanted if wanted != "None" else "not known",
                "reason": reason,
                "share": min(shares) if shares else None,
                "places": places[:MOST_PLACES],
                "more_places": max(0, len(places) - MOST_PLACES),
            }
        )
    return made[:MOST_ROWS]


def _both(draw, key: str) -> dict[str, str] | None:
    """A chart for wide and one for narrow pages."""
    made = {name: draw(width, f"{key}-{name}") for name, width in charts.WIDTHS.items()}
    return made if all(made.values()) else None


def jobs_of(nccl) -> list[dict]:
    made = []
    for job in jobs(nccl):
        gdr = mapping(job.get("gdrdma"))
        hosts = job.get("hosts") if isinstance(job.get("hosts"), list) else []
        sizes = [
            {
                "size": charts.size_text(size),
                **{side: {key: number(mapping(row.get(side)).get(key)) for key in _SIZE} for side in _SIDES},
            }
            for row in rows(job.get("sizes"))
            if (size := number(row.get("bytes"))) is not None
        ]
        made.append(
            {
                "name": job.get("name"),
                "state": state(job),
                "verdict": words(job.get("verdict")) or "unknown",
                "reason": words(job.get("reason")),
                "hosts": [str(host) for host in hosts[:MOST_PLACES]],
                "more_hosts": max(0, len(hosts) - MOST_PLACES),
                "gpus": number(job.get("gpus_per_node")),
                "busbw": number(job.get("busbw_gbs")),
                "version": words(job.get("version")),
                "gdrdma": (number(gdr.get("with_gdrdma")), number(gdr.get("channels"))),
                "nics": rows(job.get("nics"))[:MOST_ROWS],
                "sizes": sizes[-MOST_SIZES:],
            }
        )
    return made


_SIDES = ("out_of_place", "in_place")
_SIZE = ("time_us", "algbw", "busbw", "wrong")


def moved_of(moved: dict | None) -> dict | None:
    """Equal moves as one row, the worse ones first."""
    if moved is None:
        return None
    groups: dict[tuple, list[dict]] = {}
    for item in moved["moved"]:
        # Rates and addresses are all different, and findings name devices: a row for each would hide everything else.
        own = item["what"] in ("rate", "address") or item["what"].startswith("finding ")
        key = (item["what"], item["better"], *((None, None) if own else map(str, (item["before"], item["after"]))))
        groups.setdefault(key, []).append(item)
    order = {False: 0, None: 1, True: 2}
    made = []
    for (what, better, _before, _after), items in sorted(
        groups.items(), key=lambda pair: (order[pair[0][1]], pair[0][0])
    ):
        places = [_move_place(item) for item in items]
        made.append(
            {
                "what": what,
                "better": better,
                "before": _span(item["before"] for item in items),
                "after": _span(item["after"] for item in items),
                "places": places[:MOST_PLACES],
                "more_places": max(0, len(places) - MOST_PLACES),
            }
        )
    return {**moved, "rows": made[:MOST_ROWS], "more_rows": max(0, len(made) - MOST_ROWS), "total": len(moved["moved"])}


def _move_place(item: dict) -> str:
    return " ".join(
        filter(None, [item["node"] or "whole run", None if item["rail"] is None else f"rail {item['rail']}"])
    )


def _span(values) -> str:
    found = list(values)
    numbers = [value for value in found if isinstance(value, float)]
    if len(numbers) == len(found) > 1:
        return f"{min(numbers):.1f} to {max(numbers):.1f}"
    first = found[0]
    told = "none" if first is None else f"{first:.1f}" if isinstance(first, float) else str(first)
    return told if all(value == first for value in found) else f"{told} …"
