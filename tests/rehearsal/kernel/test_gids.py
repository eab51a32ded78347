# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rehearsal.kernel.gids import ROCE_V1, ROCE_V2, GidTable, Row, default_gid, gid_of_address

MAC = "8e:ca:d1:d4:64:7d"
HOME = (0, 4)


def gids(table):
    return [row.gid if row else None for row in table.rows]


def test_gid_texts_of_the_three_kinds_of_addresses():
    assert default_gid(MAC) == "fe80:0000:0000:0000:8cca:d1ff:fed4:647d"
    assert gid_of_address("192.168.0.34/16") == "0000:0000:0000:0000:0000:ffff:c0a8:0022"
    assert gid_of_address("2001:db8::7/64") == "2001:0db8:0000:0000:0000:0000:0000:0007"


def test_default_gid_takes_rows_0_and_1_and_an_ipv4_address_2_and_3():
    table = GidTable(128)
    table.update(HOME, MAC, ["192.168.0.34/16"])
    ipv4 = gid_of_address("192.168.0.34")
    assert table.rows[:5] == [
        Row(default_gid(MAC), ROCE_V1, HOME),
        Row(default_gid(MAC), ROCE_V2, HOME),
        Row(ipv4, ROCE_V1, HOME),
        Row(ipv4, ROCE_V2, HOME),
        None,
    ]


def test_link_local_address_made_from_the_mac_needs_no_second_pair():
    table = GidTable(8)
    table.update(HOME, MAC, ["fe80::8cca:d1ff:fed4:647d/64", "fe80::1/64"])
    assert gids(table)[2:] == [gid_of_address("fe80::1")] * 2 + [None] * 4


def test_freed_rows_are_used_again_so_an_index_is_no_identity():
    table = GidTable(16)
    table.update(HOME, MAC, ["192.0.2.1/24", "192.0.2.2/24"])
    table.update(HOME, MAC, ["192.0.2.2/24"])
    assert gids(table)[2:4] == [None, None]
    table.update(HOME, MAC, ["192.0.2.2/24", "192.0.2.3/24"])
    assert gids(table)[2] == gid_of_address("192.0.2.3")
    assert gids(table)[4] == gid_of_address("192.0.2.2"), "a row that stays must not move"


def test_a_moved_interface_is_a_new_owner_and_an_absent_one_leaves_nothing():
    table = GidTable(8)
    table.update(HOME, MAC, ["192.0.2.1/24"])
    table.update((3, 4), MAC, [])
    assert [row.owner for row in table.rows if row] == [(3, 4)] * 2
    table.update(None)
    assert table.rows == [None] * 8


def test_full_table_drops_what_does_not_fit():
    table = GidTable(6)
    table.update(HOME, MAC, [f"192.0.2.{n}/24" for n in range(1, 9)])
    assert gids(table)[2:] == [gid_of_address(f"192.0.2.{n}") for n in (1, 1, 2, 2)]


@given(st.lists(st.sets(st.ip_addresses(), max_size=6), max_size=6))
def test_after_any_history_the_table_holds_just_the_present_addresses(history):
    table = GidTable(64)
    for addresses in history:
        table.update(HOME, MAC, [str(address) for address in addresses])
        expected = {(gid_of_address(str(a)), kind) for a in addresses for kind in (ROCE_V1, ROCE_V2)}
        expected |= {(default_gid(MAC), ROCE_V1), (default_gid(MAC), ROCE_V2)}
        rows = [(row.gid, row.type) for row in table.rows if row]
        assert set(rows) == expected
        assert len(rows) == len(expected)
