# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command lines of ib_write_bw. Pure.

An *endpoint* is a pod on a node, or whatever else has RDMA devices::

    {host, node, pod, namespace, container, traffic_class, rails: {0: {device, gid_index, address, port_gbps, …}, …}}

traffic_class is that of the node's layout; without the key it is that of the settings. ``rails`` has those that can be
tested; the others are in ``missing: {rail: reason}``.
"""

from __future__ import annotations

import ipaddress

# Settings with their defaults. seconds: of each test; size: bytes of a message; traffic_class: None leaves it to the
# device; together: all rails at once or one after the other; more: further words for both sides.
SETTINGS: dict = {
    "seconds": 5,
    "size": 65536,
    "queue_pairs": 1,
    "traffic_class": None,
    "bidirectional": False,
    "together": True,
    "port": 18515,
    "tool": "ib_write_bw",
    "more": [],
}
LIMITS = {
    "seconds": (2, 3600),
    "size": (2, 1 << 30),
    "queue_pairs": (1, 16384),
    "traffic_class": (0, 255),
    "port": (1024, 64000),
}
PORTS_A_STREAM = 256  # test pods of host networks share the node's ports, so each stream has its own


def check(settings: dict) -> dict:
    """Settings with the defaults filled in. ValueError names a setting, what it got, and what is allowed."""
    unknown = sorted(set(settings) - set(SETTINGS))
    if unknown:
        raise ValueError(f"settings: {', '.join(unknown)} is not known; known are {', '.join(sorted(SETTINGS))}")
    made = {**SETTINGS, **settings}
    for name, (low, high) in LIMITS.items():
        value = made[name]
        if value is None and SETTINGS[name] is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"{name}: got {value!r}, want a whole number from {low} to {high}")
    return made


def write_bw(settings: dict, rail: dict, port: int, server: str | None = None) -> list[str]:
    """One command of ib_write_bw.

    :param settings: as :func:`check` gives them.
    :param rail: ``{device, gid_index, address}`` of this side.
    :param port: TCP port at which the two sides meet.
    :param server: address of the server's rail; None makes it the server's command.

    The queue pair goes by the GIDs; the address is only where both sides exchange them. Over IPv6 both sides need
    ``--ipv6-addr`` for that (perftest before it had the option knows IPv4 only).
    """
    words = [settings["tool"], "-d", rail["device"]]
    if rail.get("gid_index") is not None:  # an InfiniBand port needs none
        words += ["-x", str(rail["gid_index"])]
    words += ["-F", "--report_gbits", "-D", str(settings["seconds"]), "-s", str(settings["size"])]
    words += ["-q", str(settings["queue_pairs"]), "-p", str(port)]
    if settings["traffic_class"] is not None:
        words.append(f"--tclass={settings['traffic_class']}")
    if settings["bidirectional"]:
        words.append("-b")
    meeting = server if server is not None else rail.get("address")
    if meeting is not None and ipaddress.ip_address(meeting).version == 6:
        words.append("--ipv6-addr")
    return [*words, *settings["more"], *([server] if server is not None else [])]


def leg(settings: dict, client: dict, server: dict, stream: int = 0) -> tuple[list[dict], list[dict], dict[int, str]]:
    """The tests of one pair of endpoints: those of the server, those of the client, and rails without one.

    :returns: ``([{rail, port, device, argv}], the same, {rail: reason})``.
    """
    servers, clients, left_out = [], [], {}
    if settings["traffic_class"] is None and "traffic_class" in client:
        settings = {**settings, "traffic_class": client["traffic_class"]}
    wanted = sorted(
        {int(rail) for side in (client, server) for part in ("rails", "missing") for rail in side.get(part) or {}}
    )
    for rail in wanted:
        near, far = of_rail(client, rail), of_rail(server, rail)
        if near is None or far is None:
            side = client if near is None else server
            reason = (side.get("missing") or {}).get(rail) or (side.get("missing") or {}).get(str(rail))
            left_out[rail] = f"{side['host']}: {reason or 'the pod has no such rail'}"
            continue
        port = settings["port"] + stream * PORTS_A_STREAM + rail
        servers.append({"rail": rail, "port": port, "device": far["device"], "argv": write_bw(settings, far, port)})
        argv = write_bw(settings, near, port, far["address"])
        clients.append({"rail": rail, "port": port, "device": near["device"], "argv": argv})
    return servers, clients, left_out


def of_rail(endpoint: dict, rail: int) -> dict | None:
    """What an endpoint has on a rail; keys may have become text on the way through JSON."""
    rails = endpoint.get("rails") or {}
    return rails.get(rail, rails.get(str(rail)))


def deadline(settings: dict, rails: int) -> int:
    """Seconds after which a side of a leg must have ended: the tests, and for each of them what connecting, giving up
    after retries (some 20 s with the kernel's defaults) and leaving may take."""
    rounds = 1 if settings["together"] else max(1, rails)
    return int(rounds * (settings["seconds"] + 25) + 60)
