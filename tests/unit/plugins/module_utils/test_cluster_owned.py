# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.owned import already_holds
from hypothesis import given
from hypothesis import strategies as st

WANTED = {
    "apiVersion": "x.io/v1",
    "kind": "Policy",
    "metadata": {"name": "a", "namespace": "ns", "labels": {"app": "rail"}},
    "spec": {"numVfs": 2, "nicSelector": {"rootDevices": ["0000:0c:00.0"]}, "tags": [{"name": "x", "value": "1"}]},
}
FIELDS = {
    "f:metadata": {"f:labels": {"f:app": {}}},
    "f:spec": {
        "f:numVfs": {},
        "f:nicSelector": {"f:rootDevices": {}},
        "f:tags": {'k:{"name":"x"}': {".": {}, "f:name": {}, "f:value": {}}},
    },
}


def live_object(**changes):
    live = copy.deepcopy(WANTED)
    live["metadata"].update(
        uid="1",
        resourceVersion="7",
        managedFields=[
            {"manager": "railyard", "operation": "Apply", "apiVersion": "x.io/v1", "fieldsV1": copy.deepcopy(FIELDS)}
        ],
    )
    live["status"] = {"state": "ready"}
    live["spec"]["priority"] = 99  # A default of the server, or a field of somebody else.
    live["spec"].update(changes)
    return live


def test_same_fields_and_same_values_need_no_apply():
    assert already_holds(live_object(), WANTED, "railyard")


@pytest.mark.parametrize(
    "change",
    [
        lambda w: w["spec"].update(numVfs=3),
        lambda w: w["spec"].update(numVfs="2"),
        lambda w: w["spec"].update(mtu=4220),
        lambda w: w["spec"].pop("numVfs"),
        lambda w: w["spec"]["nicSelector"]["rootDevices"].append("0000:0c:00.1"),
        lambda w: w["spec"]["tags"][0].update(value="2"),
        lambda w: w["spec"]["tags"].append({"name": "y", "value": "1"}),
        lambda w: w["spec"].update(tags=[]),
        lambda w: w["metadata"]["labels"].update(app="other"),
        lambda w: w["metadata"].pop("labels"),
        lambda w: w.update(apiVersion="x.io/v2"),
        lambda w: w.pop("spec"),
    ],
)
def test_any_difference_asks_the_server(change):
    wanted = copy.deepcopy(WANTED)
    change(wanted)
    assert not already_holds(live_object(), wanted, "railyard")


def test_value_that_somebody_changed_asks_the_server():
    assert not already_holds(live_object(numVfs=4), WANTED, "railyard")


@pytest.mark.parametrize(
    "change", [{"manager": "kubectl"}, {"operation": "Update"}, {"subresource": "status"}, {"fieldsV1": None}]
)
def test_without_our_own_record_the_server_is_asked(change):
    live = live_object()
    live["metadata"]["managedFields"][0].update(change)
    assert not already_holds(live, WANTED, "railyard")


def test_two_records_of_ours_ask_the_server():
    live = live_object()
    live["metadata"]["managedFields"] *= 2
    assert not already_holds(live, WANTED, "railyard")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


@given(json_values, json_values)
def test_odd_records_never_raise(fields, spec):
    live = live_object()
    live["metadata"]["managedFields"][0]["fieldsV1"] = fields
    assert already_holds(live, {**WANTED, "spec": spec}, "railyard") in (True, False)
