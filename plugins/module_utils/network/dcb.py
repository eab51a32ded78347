# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the NIC does with a packet's DSCP and which priorities have PFC, from the kernel by DCB netlink.

This is what ``dcb`` of iproute2 and ``mlnx_qos`` ask as well; here no command is run and nothing is installed. Layouts
and numbers are those of linux/dcbnl.h and net/dcb/dcbnl.c.

Which trust state follows from the answer: mlx5 has no switch for it. The first application entry with the DSCP selector
makes the driver trust the DSCP, the last one that goes makes it trust the PCP again, and a port that starts up with the
DSCP trusted gets all 64 entries (mlx5e_dcbnl_ieee_setapp, _delapp and mlx5e_dcbnl_dscp_app in
drivers/net/ethernet/mellanox/mlx5/core/en_dcbnl.c). Drivers with a trust table (kernel 6.2 and newer) say it outright.
"""

from __future__ import annotations

import os
import re
import socket
import struct

from ansible_collections.railyard.rdma.plugins.module_utils.network.netlink import parse_attributes, parse_messages

_RTM_GETDCB, _NLMSG_ERROR, _NLM_F_REQUEST = 78, 2, 1
IEEE_GET, GET_DCBX = 21, 22
_ATTR_IFNAME, _ATTR_IEEE, _ATTR_DCBX = 1, 13, 14
_IEEE_ETS, _IEEE_PFC, _IEEE_APP_TABLE, _DCB_APP_TRUST_TABLE = 1, 2, 3, 11
_SELECTOR_DSCP, _SELECTOR_PCP = 5, 255  # IEEE_8021QAZ_APP_SEL_DSCP, DCB_APP_SEL_PCP
_HEADER = struct.Struct("=IHHII")
_DCB = struct.Struct("=BBH")
_ATTRIBUTE = struct.Struct("=HH")
# struct ieee_pfc has a byte of padding before its u16 and two before its u64: every 64-bit system aligns it like this.
_PFC = struct.Struct("=BBBxH2x8Q8Q")
_ETS = struct.Struct("=3B8B8B8B8B")
_APP = struct.Struct("=BBH")
_TSA = {0: "strict", 1: "cbs", 2: "ets", 255: "vendor"}
_DCBX_FLAGS = {1: "host", 2: "lld_managed", 4: "cee", 8: "ieee", 16: "static"}
_TIMEOUT_SECONDS = 5.0
_ERRORS = {
    95: "the driver (or the kernel) has no DCB for it",
    19: "no such netdev in this network namespace",
}


def request(command: int, netdev: str, sequence: int = 1) -> bytes:
    """Return the message that asks for one netdev's settings; command is IEEE_GET or GET_DCBX."""
    name = netdev.encode("utf-8", "surrogateescape") + b"\0"
    attribute = _ATTRIBUTE.pack(_ATTRIBUTE.size + len(name), _ATTR_IFNAME) + name
    body = _DCB.pack(0, command, 0) + attribute + b"\0" * (-len(attribute) % 4)
    return _HEADER.pack(_HEADER.size + len(body), _RTM_GETDCB, _NLM_F_REQUEST, sequence, 0) + body


def parse_answer(data: bytes, command: int) -> tuple[dict[int, bytes] | None, str | None]:
    """Return the attributes of the answer to a command, or None with a reason (a refusal, a malformed answer)."""
    for kind, _flags, payload in parse_messages(data):
        if kind == _NLMSG_ERROR and len(payload) >= 4:
            code = -struct.unpack_from("=i", payload)[0]
            return None, _ERRORS.get(code) or f"{os.strerror(code) if 0 < code < 4096 else 'error'} ({code})"
        if kind == _RTM_GETDCB and len(payload) >= _DCB.size and payload[1] == command:
            return dict(parse_attributes(payload[_DCB.size :])), None
    return None, "malformed DCB answer"


def parse_pfc(data: bytes) -> dict | None:
    """Parse struct ieee_pfc: ``{enabled, capable, delay, requests, indications}``, None when it is too short.

    enabled lists priorities; capable is how many of them may have PFC at once. requests counts the PFC frames that this
    port sent for a priority (its own receive buffers were full), indications those that it received (the switch told it
    to pause); keys are priorities as strings.
    """
    if len(data) < _PFC.size:
        return None
    capable, enabled, _bypass, delay, *counts = _PFC.unpack_from(data)
    return {
        "enabled": [priority for priority in range(8) if enabled >> priority & 1],
        "capable": capable,
        "delay": delay,
        "requests": {str(priority): counts[priority] for priority in range(8)},
        "indications": {str(priority): counts[8 + priority] for priority in range(8)},
    }


def parse_ets(data: bytes) -> dict | None:
    """Parse struct ieee_ets: ``{traffic_classes, priority_to_tc, algorithm, bandwidth}``, None when it is too short.

    algorithm (``strict``, ``ets``, ``cbs``, ``vendor``) and bandwidth (percent, of ETS) are by traffic class of the
    NIC's scheduler, which has nothing to do with the traffic class of RDMA, a ToS byte.
    """
    if len(data) < _ETS.size:
        return None
    values = _ETS.unpack_from(data)
    bandwidth, _receive, algorithm, classes = (values[3 + 8 * part : 11 + 8 * part] for part in range(4))
    return {
        "traffic_classes": values[1],
        "priority_to_tc": {str(priority): number for priority, number in enumerate(classes)},
        "algorithm": {str(number): _TSA.get(word, str(word)) for number, word in enumerate(algorithm)},
        "bandwidth": {str(number): percent for number, percent in enumerate(bandwidth)},
    }


def parse_app_table(data: bytes) -> dict[str, int]:
    """Return the DSCP entries of an application table as ``{"10": 0}``, in order of the DSCP.

    Of several priorities for one DSCP the highest counts, as in the kernel (dcb_ieee_getapp_mask and its users take the
    last bit set). Entries by EtherType and port say nothing about the DSCP and are left out.
    """
    found: dict[int, int] = {}
    for _kind, value in parse_attributes(data):
        if len(value) < _APP.size:
            continue
        selector, priority, code = _APP.unpack_from(value)
        if selector == _SELECTOR_DSCP and code < 64 and priority < 8:
            found[code] = max(priority, found.get(code, 0))
    return {str(code): priority for code, priority in sorted(found.items())}


def parse_ieee(data: bytes) -> dict:
    """Parse the nested answer to IEEE_GET: ``{trust, dscp_to_priority, pfc, ets}``.

    trust is ``dscp`` or ``pcp``, None when the driver sent no application table. dscp_to_priority holds the kernel's
    own entries only, None without a table.
    """
    attributes = dict(parse_attributes(data))
    table = attributes.get(_IEEE_APP_TABLE)
    dscp = None if table is None else parse_app_table(table)
    trust = None if dscp is None else "dscp" if dscp else "pcp"
    order = [value[0] for _kind, value in parse_attributes(attributes.get(_DCB_APP_TRUST_TABLE, b"")) if value]
    stated = next((selector for selector in order if selector in (_SELECTOR_DSCP, _SELECTOR_PCP)), None)
    if stated is not None:
        trust = "dscp" if stated == _SELECTOR_DSCP else "pcp"
    return {
        "trust": trust,
        "dscp_to_priority": dscp,
        "pfc": parse_pfc(attributes.get(_IEEE_PFC, b"")),
        "ets": parse_ets(attributes.get(_IEEE_ETS, b"")),
    }


def parse_dcbx(flags: int) -> dict:
    """Return ``{dcbx, flags}`` of the DCBX mode: ``os`` when the host's settings count, ``firmware`` when the NIC
    negotiates by itself and may overrule them, None when there is no DCBX at all (no flag set)."""
    names = [name for bit, name in _DCBX_FLAGS.items() if flags & bit]
    return {"dcbx": "os" if flags & 1 else "firmware" if names else None, "flags": names}


def read_dcb(netdev: str) -> dict:
    """Ask the kernel for one netdev of this network namespace.

    :returns: ``{trust, dscp_to_priority, pfc, ets, dcbx, reason, dcbx_reason}``; with reason set the kernel did not
        answer and everything but dcbx is None. Never raises. Reading needs no privilege (dcb_doit asks for
        CAP_NET_ADMIN for changes only).
    """
    result: dict = dict.fromkeys(("trust", "dscp_to_priority", "pfc", "ets", "dcbx", "reason", "dcbx_reason"))
    if not 0 < len(netdev.encode("utf-8", "surrogateescape")) < 16:  # IFNAMSIZ
        result["reason"] = result["dcbx_reason"] = "no name of a netdev"
        return result
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
            netlink.settimeout(_TIMEOUT_SECONDS)
            netlink.bind((0, 0))
            netlink.send(request(IEEE_GET, netdev, 1))
            attributes, result["reason"] = parse_answer(netlink.recv(1 << 16), IEEE_GET)
            if attributes is not None:
                result.update(parse_ieee(attributes.get(_ATTR_IEEE, b"")))
            netlink.send(request(GET_DCBX, netdev, 2))
            attributes, result["dcbx_reason"] = parse_answer(netlink.recv(1 << 16), GET_DCBX)
            flags = (attributes or {}).get(_ATTR_DCBX)
            if flags:
                result["dcbx"] = parse_dcbx(flags[0])["dcbx"]
                result["dcbx_reason"] = None if result["dcbx"] else "the driver does no DCBX"
            elif attributes is not None:
                result["dcbx_reason"] = "malformed DCB answer"
    except OSError as error:
        reason = f"DCB netlink: {error}"
        result["reason"] = result["reason"] or (reason if result["trust"] is None else None)
        result["dcbx_reason"] = result["dcbx_reason"] or reason
    return result


_QOS_LINE = re.compile(r"(DCBX mode|Priority trust state):[ \t]*(\S.*)")
_QOS_MAP = re.compile(r"prio:([0-7])[ \t]+dscp:([0-9, \t]+)")
_QOS_ROW = re.compile(r"(priority|enabled):?((?:[ \t]+[0-9])+)")


def parse_mlnx_qos(text: str) -> dict:
    """Read what ``mlnx_qos -i NETDEV`` prints: ``{trust, dscp_to_priority, pfc, dcbx}``, each None when the text does
    not say it.

    The blocks are those of python/mlnx_qos in Mellanox/mlnx-tools (the versions from 2017 to 2026 print the same
    ones): ``DCBX mode: OS controlled``, ``Priority trust state: dscp``, rows ``prio:0 dscp:07,06,…`` that may go on in
    further rows, and under ``PFC configuration:`` the rows ``priority`` and ``enabled``. PFC counters are not printed.
    """
    result: dict = {"trust": None, "dscp_to_priority": None, "pfc": None, "dcbx": None}
    mapping: dict[int, int] = {}
    priorities: list[int] = []
    for line in map(str.strip, text.split("\n")):
        match = _QOS_LINE.fullmatch(line)
        if match and match.group(1) == "Priority trust state":
            result["trust"] = match.group(2) if match.group(2) in ("dscp", "pcp") else result["trust"]
        elif match:
            word = match.group(2).split()[0].lower()
            result["dcbx"] = {"os": "os", "firmware": "firmware"}.get(word)
        match = _QOS_MAP.fullmatch(line)
        if match:
            codes = [code.strip() for code in match.group(2).split(",") if code.strip().isdecimal()]
            mapping.update({int(code): int(match.group(1)) for code in codes if len(code) <= 2 and int(code) < 64})
        match = _QOS_ROW.fullmatch(line)
        if match and match.group(1) == "priority" and len(match.group(2).split()) > 1:
            priorities = [int(word) for word in match.group(2).split()]
        elif match and match.group(1) == "enabled" and len(match.group(2).split()) == len(priorities):
            switches = match.group(2).split()
            result["pfc"] = {
                "enabled": [priority for priority, on in zip(priorities, switches) if on != "0"],
                "capable": None,
                "delay": None,
                "requests": None,
                "indications": None,
            }
    if mapping:
        result["dscp_to_priority"] = {str(code): priority for code, priority in sorted(mapping.items())}
    return result
