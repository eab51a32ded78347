# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.rdma.gid import (
    ZERO_GID,
    best_gid_index,
    gid_row,
    parse_gid,
    parse_gid_type,
)
from ansible_collections.railyard.rdma.plugins.module_utils.rdma.traffic_class import dscp, parse_traffic_class
from hypothesis import given
from hypothesis import strategies as st

HERE = frozenset({"rdma0", "net1"})
V1, V2 = "IB/RoCE v1\n", "RoCE v2\n"


@pytest.mark.parametrize(
    ("text", "address", "scope"),
    [
        (ZERO_GID, None, "zero"),
        ("::", None, "zero"),
        ("fe80:0000:0000:0000:8cca:d1ff:fed4:647d\n", "fe80::8cca:d1ff:fed4:647d", "link_local"),
        ("febf::1", "febf::1", "link_local"),
        ("fec0::1", "fec0::1", "global"),
        ("0000:0000:0000:0000:0000:ffff:c0a8:0022", "192.168.0.34", "ipv4"),
        ("::ffff:169.254.1.2", "169.254.1.2", "link_local"),
        ("2001:0db8:0000:00a1:02aa:00ff:fe00:0107", "2001:db8:0:a1:2aa:ff:fe00:107", "global"),
        ("fd01:0000:0000:0100:0000:0000:0000:0007", "fd01:0:0:100::7", "unique_local"),
        ("fc00::1", "fc00::1", "unique_local"),
    ],
)
def test_scopes_and_addresses(text, address, scope):
    parsed = parse_gid(text)
    assert (parsed["address"], parsed["scope"]) == (address, scope)
    assert len(parsed["gid"]) == 39


@pytest.mark.parametrize("text", ["", "x", "fe80", "0000:0000", "10.0.0.1", "1\0", None, ":" * 39])
def test_what_is_no_gid_is_null(text):
    assert parse_gid(text) == {"gid": None, "address": None, "scope": None}


def test_one_kernel_text_means_two_types():
    assert parse_gid_type(V1, "Ethernet") == "RoCE v1"
    assert parse_gid_type(V1, "InfiniBand") == "IB"
    assert parse_gid_type(V2) == "RoCE v2"
    assert parse_gid_type("RoCE v3") is None
    assert parse_gid_type(None) is None


def row(index, gid, kind=V2, netdev="rdma0", here=HERE, **more):
    return gid_row(index, gid, kind, netdev, here, **more)


def test_a_row_is_usable_when_all_is_right_and_says_what_is_not():
    assert row(3, "::ffff:10.224.12.143")["usable"] is True
    assert row(3, "::ffff:10.224.12.143")["reason"] is None
    faults = {
        "zero": row(3, ZERO_GID, None, None),
        "type not readable": row(3, "::ffff:10.224.12.143", None),
        "unknown GID type": row(3, "::ffff:10.224.12.143", "RoCE v9"),
        "netdev not readable": row(3, "::ffff:10.224.12.143", netdev=None),
        "netdev rdma7 is not in this": row(3, "::ffff:10.224.12.143", netdev="rdma7"),
        "not a GID": row(3, "nonsense"),
    }
    for words, fault in faults.items():
        assert fault["usable"] is False and words in fault["reason"]


def test_usable_is_unknown_when_the_netdevs_are_unknown():
    fact = row(3, "::ffff:10.224.12.143", here=None)
    assert fact["usable"] is None and "not known" in fact["reason"]
    assert best_gid_index([fact]) is None


def test_infiniband_rows_need_no_netdev():
    fact = row(0, "fe80::1", V1, None, link_layer="InfiniBand")
    assert fact["usable"] is True and fact["type"] == "IB"
    assert best_gid_index([fact]) == 0
    assert row(0, "fe80::1", V1, None)["usable"] is False


def table(*entries):
    return [row(*entry) for entry in entries]


def test_fc08_the_link_local_v2_row_is_not_chosen():
    rows = table((0, "fe80::1", V1), (1, "fe80::1"), (2, "::ffff:198.51.100.6", V1), (3, "::ffff:198.51.100.6"))
    assert best_gid_index(rows) == 3
    assert best_gid_index(rows[:3]) is None


def test_fc06_fc09_the_index_comes_from_the_table_whatever_its_order():
    rows = table((8, "::ffff:198.51.100.6"), (3, "fe80::1"), (7, "::ffff:198.51.100.6", V1))
    assert best_gid_index(rows) == 8


def test_fc11_the_advertised_global_address_is_chosen_before_a_placeholder():
    rows = table((5, "fd01:0:0:100::7", V2, "net1"), (9, "2001:db8:0:a1:2aa:ff:fe00:107", V2, "net1"))
    assert best_gid_index(rows) == 9
    assert best_gid_index(rows[:1]) == 5


def test_an_address_can_be_asked_for_in_any_spelling():
    rows = table((3, "::ffff:198.51.100.6"), (5, "2001:db8::a"), (7, "fe80::1"))
    assert best_gid_index(rows, "198.51.100.6/24") == 3
    assert best_gid_index(rows, "2001:0db8:0:0::000a") == 5
    assert best_gid_index(rows, "198.51.100.7") is None
    assert best_gid_index(rows, "not an address") is None


def test_fc57_three_states_of_the_traffic_class():
    assert parse_traffic_class(None) == {"state": "absent", "value": None, "rules": []}
    assert parse_traffic_class("\n") == {"state": "unset", "value": None, "rules": []}
    assert parse_traffic_class("Global tclass=0\n") == {"state": "set", "value": 0, "rules": []}
    assert parse_traffic_class("Global tclass=41\n")["value"] == 41


def test_traffic_class_rules_are_kept_apart_from_the_global_class():
    rule = "src_ip=192.0.2.1,dst_ip=192.0.2.9/32,tclass=41\n"
    assert parse_traffic_class(rule)["state"] == "unset"
    both = parse_traffic_class("Global tclass=106\n" + rule)
    assert both["value"] == 106
    assert both["rules"] == [{"src_ip": "192.0.2.1", "dst_ip": "192.0.2.9/32", "tclass": 41}]


@pytest.mark.parametrize("text", ["Global tclass=256", "Global tclass=", "tclass 41", "dst_ip=x,tclass=999", "=,=,"])
def test_text_that_is_not_understood_is_no_state(text):
    parsed = parse_traffic_class(text)
    assert parsed["state"] is None and "not understood" in parsed["reason"]


def test_dscp_ignores_the_ecn_bits():
    assert {dscp(value) for value in (104, 105, 106)} == {26}
    assert dscp(41) == 10


@given(st.text(), st.none() | st.text(), st.none() | st.text())
def test_no_text_makes_a_row_fail(gid_text, type_text, netdev):
    fact = gid_row(0, gid_text, type_text, netdev, HERE)
    assert fact["usable"] in (True, False)
    assert (fact["reason"] is None) == fact["usable"]
    best_gid_index([fact], gid_text)


@given(st.integers(0, 2**128 - 1))
def test_every_gid_has_one_scope_and_keeps_its_text(number):
    digits = f"{number:032x}"
    text = ":".join(digits[start : start + 4] for start in range(0, 32, 4))
    parsed = parse_gid(text)
    assert parsed["gid"] == text
    assert parsed["scope"] in ("zero", "link_local", "ipv4", "global", "unique_local")
    assert (parsed["address"] is None) == (parsed["scope"] == "zero")


@given(st.text())
def test_no_text_makes_the_traffic_class_fail(text):
    assert parse_traffic_class(text)["state"] in ("unset", "set", None)
