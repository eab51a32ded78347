# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of a report against their schemas, also with any text in any name."""

from __future__ import annotations

import copy
import io
import json
from html.parser import HTMLParser
from pathlib import Path

import jsonschema
import pytest
import xmlschema
from ansible_collections.railyard.rdma.plugins.plugin_utils.report import compare
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.document import proof
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.junit import junit
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.page import page
from ansible_collections.railyard.rdma.tests.unit.plugins.plugin_utils import report_fleet
from conftest import HOSTILE, NAMES
from hypothesis import given, settings
from hypothesis import strategies as st

SCHEMA = Path(__file__).resolve().parents[2] / "roles/report/files/proof.schema.json"
SMALL = [name for name in NAMES if name != "huge"]
# All that Unicode has, half pairs and control characters too.
TEXTS = st.text(st.characters(codec=None), min_size=1, max_size=30) | st.sampled_from(
    [HOSTILE, "\x00", "\ud800", "]]>", "\x1b[31m", "\u2028"]
)


@pytest.fixture(scope="module")
def validator():
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.fixture(scope="module")
def junit_schema():
    return xmlschema.XMLSchema(str(Path(__file__).with_name("junit.xsd")))


@pytest.mark.parametrize("name", [name for name in SMALL if name != "hostile"])
def test_json_fits_its_schema(documents, validator, name):
    again = json.loads(json.dumps(documents(name), allow_nan=False))
    assert [error.message for error in validator.iter_errors(again)] == []


def test_the_schema_refuses_what_is_no_proof(documents, validator):
    for damage in (
        lambda doc: doc.pop("cells"),
        lambda doc: doc.update(verdict="good"),
        lambda doc: doc["cells"][0].update(state="ok"),
        lambda doc: doc["cells"][0].pop("gid_index"),
        lambda doc: doc["not_measured"][0].update(where="x"),
    ):
        broken = copy.deepcopy(documents("healthy"))
        damage(broken)
        assert not validator.is_valid(broken)


@pytest.mark.parametrize("name", SMALL)
def test_junit_fits_its_schema(documents, junit_schema, name):
    assert [str(error) for error in junit_schema.iter_errors(io.BytesIO(junit(documents(name))))] == []


def test_a_thousand_nodes_stay_small(pages):
    assert pages("huge").stat().st_size < 5_000_000


class Structure(HTMLParser):
    """Tags, attributes and ids of a page; text apart."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.ids, self.attributes, self.text = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_data(self, data):
        self.text.append(data)


@pytest.mark.parametrize("name", SMALL)
def test_a_page_needs_nothing_and_links_to_what_is_there(pages, name):
    found = Structure(pages(name).read_text(encoding="utf-8"))
    assert not set(found.tags) & {"script", "iframe", "object", "embed", "img", "base", "form", "audio", "video"}
    assert sorted(found.ids) == sorted(set(found.ids))
    for tag, attribute, value in found.attributes:
        assert not attribute.startswith("on"), (tag, attribute, value)
        if attribute in ("href", "src", "xlink:href"):
            assert value == "data:," or value[1:] in found.ids, (tag, attribute, value)
    (policy,) = [
        value for tag, name, value in found.attributes if tag == "meta" and name == "content" and "default-src" in value
    ]
    assert "default-src 'none'" in policy and "script" not in policy


def test_hostile_names_make_no_tag_and_are_all_there(pages):
    poisoned, plain = (Structure(pages(name).read_text(encoding="utf-8")) for name in ("hostile", "faulty"))
    assert set(poisoned.tags) == set(plain.tags)
    text = "".join(poisoned.text)
    assert HOSTILE.replace("\u202e", "\\u202e") in text
    assert "\u202e" not in text
    assert "{{ 7*7 }}" in text


@settings(max_examples=5)
@given(texts=st.lists(TEXTS, min_size=6, max_size=6), reason=TEXTS)
def test_any_text_in_any_name_stays_text(validator, junit_schema, texts, reason):
    """Two nodes of two rails, since charts take their time."""
    host, netdev, device, summary, remedy, job = texts
    peer = host + "2"
    cells = [{"host": name} for name in (host, peer)]
    layout = {"name": "x", "shape": summary, "hosts": [host, peer], "network": "sriov", "vfs_per_pf": 1}
    layout |= {"rails": [{"rail": 0, "pci": "0000:0c:00.0", "name": device}], "namespaces": {"networks": "d"}}
    model = {"layouts": [layout], "hosts": {host: "x", peer: "x"}}
    facts = {
        host: {"rails": [{"rail": 0, "pci": netdev, "netdev": netdev, "device": device, "address": remedy}]},
        peer: None,
    }
    item = {
        "id": "GID-002",
        "severity": "error",
        "node": host,
        "pod": None,
        "rail": 0,
        "summary": summary,
        "remedy": remedy,
    }
    result = {"findings": [{**item, "evidence": {summary: [remedy, {device: netdev}]}, "tolerated": False}]}
    result["rows"] = [
        {"node": host, "verdict": "fail", "shape": summary},
        {"node": peer, "verdict": "pass", "shape": None},
    ]
    row = {"round": 0, "rail": 0, "stream": 0, "client": cells[0], "server": cells[1], "gbps": 9.0, "port_gbps": 10.0}
    bandwidth = {
        "settings": {summary: device},
        "results": [{**row, "verdict": "low", "reason": reason}],
        "priorities": [],
    }
    nccl = {
        "jobs": [{"name": job, "verdict": "unknown", "reason": reason, "sizes": []}],
        "environment": {"A": job, "reasons": {"A": reason}},
    }
    document = proof(model, facts, None, result, bandwidth, nccl, made_at=report_fleet.TIME)
    document["moved"] = compare.compare(document, {**document, "rows": [{"node": device, "verdict": "pass"}]})
    content = json.dumps(document, allow_nan=False).encode()
    assert [error.message for error in validator.iter_errors(json.loads(content))] == []
    assert compare.read(content, "x")["verdict"] == "fail"
    assert [str(error) for error in junit_schema.iter_errors(io.BytesIO(junit(document)))] == []
    found = Structure(page(document).encode("utf-8").decode("utf-8"))
    assert not set(found.tags) & {"script", "img", "iframe"}
    assert sorted(found.ids) == sorted(set(found.ids))


def test_without_the_library_only_html_fails(documents, monkeypatch):
    from ansible_collections.railyard.rdma.plugins.plugin_utils.report import charts
    from ansible_collections.railyard.rdma.plugins.plugin_utils.report.values import ReportError

    monkeypatch.setattr(charts, "matplotlib", None)
    monkeypatch.setattr(charts, "IMPORT_ERROR", ImportError("No module named 'matplotlib'"), raising=False)
    with pytest.raises(ReportError, match="^report_html: the charts need the Python library matplotlib .*pip"):
        page(documents("empty"))
    junit(documents("empty"))
