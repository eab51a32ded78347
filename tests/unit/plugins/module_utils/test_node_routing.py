# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import struct
import subprocess
import sys

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.network import netdevs, netlink, routing
from ansible_collections.railyard.rdma.plugins.module_utils.rdma import rdma_netlink
from hypothesis import given
from hypothesis import strategies as st

RA, MAIN = 9, 254


def attribute(kind, value):
    value = struct.pack("=I", value) if isinstance(value, int) else value
    return struct.pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def route(*attributes, family=socket.AF_INET6, length=0, table=MAIN, protocol=RA, kind=1, flags=0):
    return struct.pack("=BBBBBBBBI", family, length, 0, 0, table, protocol, 0, kind, flags) + b"".join(attributes)


GATEWAY = socket.inet_pton(socket.AF_INET6, "fe80::5:1")


def test_fc18_a_default_route_from_a_router_advertisement_names_its_origin():
    told = routing.parse_default_route(route(attribute(4, 7), attribute(5, GATEWAY), attribute(6, 1024)))
    assert told == [(7, {"family": "ipv6", "gateway": "fe80::5:1", "metric": 1024, "table": 254, "origin": "ra"})]


def test_a_table_beyond_255_is_in_an_attribute():
    (told,) = routing.parse_default_route(route(attribute(4, 7), attribute(15, 1003), table=252))
    assert told[1]["table"] == 1003 and told[1]["gateway"] is None and told[1]["metric"] == 0


def test_every_hop_of_a_multipath_route_counts():
    hops = b"".join(
        struct.pack("=HBBi", 8 + 8, 0, 0, index) + attribute(5, socket.inet_aton(f"192.0.2.{index}"))
        for index in (7, 9)
    )
    told = routing.parse_default_route(route(attribute(9, hops), family=socket.AF_INET, protocol=4))
    assert [(index, each["gateway"], each["origin"]) for index, each in told] == [
        (7, "192.0.2.7", "static"),
        (9, "192.0.2.9", "static"),
    ]


def test_an_ipv4_route_may_have_an_ipv6_gateway():
    via = struct.pack("=H", socket.AF_INET6) + GATEWAY
    ((_index, told),) = routing.parse_default_route(route(attribute(4, 7), attribute(18, via), family=socket.AF_INET))
    assert told["gateway"] == "fe80::5:1"


@pytest.mark.parametrize("more", [{"length": 64}, {"kind": 7}, {"flags": 0x200}, {"family": 28}])
def test_other_routes_are_left_out(more):
    assert routing.parse_default_route(route(attribute(4, 7), **more)) is None


def test_a_default_route_without_a_netdev_belongs_to_none():
    assert routing.parse_default_route(route(attribute(5, GATEWAY))) is None


def rule(*attributes, family=socket.AF_INET, source=0, table=0, action=1, flags=0):
    return struct.pack("=BBBBBBBBI", family, 0, source, 0, table, 0, 0, action, flags) + b"".join(attributes)


def test_fc52_a_source_rule_of_a_rail():
    source = attribute(2, socket.inet_aton("198.51.100.5"))
    told = routing.parse_rule(rule(source, attribute(6, 32000), attribute(15, 1003), source=32))
    expected = {"family": "ipv4", "priority": 32000, "from": "198.51.100.5/32", "to": "all", "iif": None, "table": 1003}
    assert {key: told[key] for key in expected} == expected
    assert told["action"] == "lookup" and told["l3mdev"] is False


def test_a_rule_for_vrfs_has_no_table_of_its_own():
    told = routing.parse_rule(rule(attribute(19, b"\1"), attribute(6, 1000), attribute(3, b"eth0\0")))
    assert told["l3mdev"] is True and told["table"] is None and told["iif"] == "eth0"


def test_an_rdma_port_names_its_netdev():
    port = attribute(1, 0) + attribute(2, b"siw0\0") + attribute(3, 1)
    assert rdma_netlink.parse_port(port + attribute(51, b"eth1\0")) == ("siw0", "1", "eth1")
    assert rdma_netlink.parse_port(port) is None, "its netdev is in another namespace"


def test_a_vrf_tells_its_table():
    about = attribute(18, attribute(1, b"vrf\0") + attribute(2, attribute(1, 1003)))
    told = netlink.parse_link(struct.pack("=BxHiII", 0, 1, 7, 1, 0) + attribute(3, b"vrf_r0\0") + about)
    assert (told["kind"], told["vrf_table"], told["name"]) == ("vrf", 1003, "vrf_r0")


@given(st.binary())
def test_no_message_makes_the_parsers_fail(data):
    for family in (socket.AF_INET, socket.AF_INET6):
        routing.parse_default_route(route(family=family) + data)
        routing.parse_default_route(route(attribute(9, data), family=family))
        routing.parse_rule(rule(family=family) + data)
    routing.parse_default_route(data)
    routing.parse_rule(data)
    rdma_netlink.parse_port(data)


class Kernel:
    """Answers dump requests with prepared datagrams."""

    def __init__(self, *datagrams):
        self.datagrams = list(datagrams)
        self.sent = []

    def __call__(self, *_arguments):
        return self

    def send(self, data):
        self.sent.append(data)

    def recv(self, _size):
        answer = self.datagrams.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def settimeout(self, _seconds):
        pass

    def bind(self, *_arguments):
        pass

    setsockopt = bind

    def close(self):
        pass


def message(kind, payload=b"", flags=0):
    data = struct.pack("=IHHII", 16 + len(payload), kind, flags, 1, 0) + payload
    return data + b"\0" * (-len(data) % 4)


DONE = message(3, struct.pack("=i", 0))


@pytest.fixture
def kernel(monkeypatch):
    def prepare(*datagrams):
        answers = Kernel(*datagrams)
        monkeypatch.setattr(netlink.socket, "socket", answers)
        return answers

    return prepare


def bytes_of(payload):
    return payload


def test_a_dump_that_changed_meanwhile_is_repeated(kernel):
    answers = kernel(message(24, b"old!", flags=0x10) + DONE, message(24, b"new!") + DONE)
    assert netlink.Dump().run(26, b"", bytes_of) == [b"new!"]
    assert len(answers.sent) == 2


def test_tables_that_never_stand_still_give_their_last_state(kernel):
    kernel(*[message(24, b"last", flags=0x10) + DONE] * 5)
    assert netlink.Dump().run(26, b"", bytes_of) == [b"last"]


@pytest.mark.parametrize(
    ("datagram", "number"),
    [
        (message(2, struct.pack("=i", -errno.EPERM)), errno.EPERM),
        (message(3, struct.pack("=i", -errno.ENODEV)), errno.ENODEV),
        (message(2), 0),
        (b"", errno.EBADMSG),
        (b"\1\2\3", errno.EBADMSG),
        (socket.timeout("timed out"), None),
    ],
)
def test_a_refusal_is_an_oserror(kernel, datagram, number):
    kernel(datagram)
    with pytest.raises(OSError) as told:
        netlink.Dump().run(26, b"", bytes_of)
    assert told.value.errno == number


def test_more_answers_than_allowed_end_the_dump(kernel):
    kernel(message(24) * 3, message(24) * 3)
    with pytest.raises(OSError, match="more than 5") as told:
        netlink.Dump().run(26, b"", bytes_of, most=5)
    assert told.value.errno == errno.EOVERFLOW


def test_rules_that_cannot_be_read_are_unknown(kernel):
    kernel(message(2, struct.pack("=i", -errno.EOPNOTSUPP)))
    told = routing.read_rules()
    assert told["rules"] is None and "netlink" in told["reason"]


def test_only_default_routes_are_taken_apart(kernel):
    default = route(attribute(4, 9), family=socket.AF_INET)
    other = route(attribute(1, b"\n\0\0\0"), attribute(4, 9), family=socket.AF_INET, length=24)
    kernel(message(24, other) + message(24, default) + message(24, other), message(24, other) + DONE, DONE)
    told = routing.read_default_routes([7, 9])
    assert told[7] == [] and len(told[9]) == 1


SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[1])
from ansible_collections.railyard.rdma.plugins.module_utils.network import netlink, routing
links = netlink.read_links()
indexes = {link["index"]: name for name, link in links.items()}
told = {
    "links": links,
    "addresses": {indexes[key]: value for key, value in netlink.read_addresses(indexes).items()},
    "routes": {indexes[key]: value for key, value in routing.read_default_routes(indexes).items()},
    "rules": routing.read_rules()["rules"],
}
print(json.dumps(told))
"""
COMMANDS = """
ip link add rdma0 type veth peer name wire0
ip link set lo up
ip link set rdma0 up
ip link set wire0 up
ip addr add 198.51.100.5/24 dev rdma0
ip -6 addr add 2001:db8::5/64 dev rdma0 nodad
ip route add default via 198.51.100.1 dev rdma0 table 1003 proto static
ip route add default nexthop via 198.51.100.1 dev rdma0 nexthop dev wire0
ip -6 route add default via 2001:db8::1 dev rdma0 proto ra metric 512
ip rule add from 198.51.100.5 lookup 1003 priority 32000
ip -6 rule add to 2001:db8:1::/48 iif lo lookup 1004
"""


def in_new_namespace(commands, folder):
    """What the readers say in a network namespace of their own, after these commands; skips where none can be had."""
    if not (shutil.which("ip") and shutil.which("unshare")):
        pytest.skip("needs ip and unshare")
    root = __file__.partition("/ansible_collections/")[0]
    if not os.path.isdir(f"{root}/ansible_collections"):
        root = os.path.dirname(__file__) + "/../../../../collections"
    text = f"set -e\n{commands}\n'{sys.executable}' -c \"$CODE\" '{root}'\n"
    try:
        probe = subprocess.run(["unshare", "-rn", "ip", "link"], capture_output=True, timeout=30, check=False)
    except OSError as error:
        pytest.skip(str(error))
    if probe.returncode:
        pytest.skip("no network namespace can be made here")
    done = subprocess.run(
        ["unshare", "-rn", "sh", "-c", text],
        env={**os.environ, "CODE": SCRIPT},
        cwd=folder,
        capture_output=True,
        timeout=120,
        check=False,
    )
    if b"Unknown device type" in done.stderr or b"Operation not supported" in done.stderr:
        pytest.skip(done.stderr.decode().strip())
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def test_a_running_kernel_says_what_ip_was_told(tmp_path):
    told = in_new_namespace(COMMANDS, tmp_path)
    assert told["links"]["rdma0"]["kind"] == "veth" and told["links"]["rdma0"]["up"]
    assert {each["address"] for each in told["addresses"]["rdma0"]} >= {"198.51.100.5", "2001:db8::5"}
    routes = told["routes"]["rdma0"]
    assert {"family": "ipv4", "gateway": "198.51.100.1", "metric": 0, "table": 1003, "origin": "static"} in routes
    assert {"family": "ipv4", "gateway": "198.51.100.1", "metric": 0, "table": 254, "origin": "boot"} in routes
    assert {"family": "ipv6", "gateway": "2001:db8::1", "metric": 512, "table": 254, "origin": "ra"} in routes
    assert told["routes"]["wire0"] == [{"family": "ipv4", "gateway": None, "metric": 0, "table": 254, "origin": "boot"}]
    assert told["routes"]["lo"] == []
    rules = {(each["family"], each["priority"]): each for each in told["rules"]}
    assert rules["ipv4", 32000]["from"] == "198.51.100.5/32" and rules["ipv4", 32000]["table"] == 1003
    ours = next(each for each in told["rules"] if each["to"] == "2001:db8:1::/48")
    assert (ours["iif"], ours["table"], ours["family"]) == ("lo", 1004, "ipv6")


def test_a_full_routing_table_and_many_netdevs_do_not_hinder(tmp_path):
    many = """
    ip link add rdma0 type veth peer name wire0
    ip link set rdma0 up; ip link set wire0 up
    ip addr add 198.51.100.5/24 dev rdma0
    ip route add default via 198.51.100.1
    for number in $(seq 60); do echo "link add v$number type veth peer name w$number"; done | ip -batch -
    for one in $(seq 0 20); do for two in $(seq 0 249); do
      echo "route add 10.$one.$two.0/24 via 198.51.100.1"; done; done | ip -batch -
    """
    told = in_new_namespace(many, tmp_path)
    assert len(told["links"]) == 123
    assert [each["gateway"] for each in told["routes"]["rdma0"]] == ["198.51.100.1"]


@pytest.mark.parametrize(
    ("accept_ra", "forwarding", "disabled", "accepts"),
    [
        (1, 0, 0, True),
        (1, 1, 0, False),
        (2, 1, 0, True),
        (2, None, 0, True),
        (0, 0, 0, False),
        (0, None, None, False),
        (1, 0, 1, False),
        (None, 0, 0, None),
        (None, 1, 0, None),
        (1, None, 0, None),
        (1, 0, None, None),
        (1, 1, None, False),
    ],
)
def test_fc16_router_advertisements_with_forwarding_on(accept_ra, forwarding, disabled, accepts):
    assert netdevs.accepts_ra(accept_ra, forwarding, disabled) is accepts
