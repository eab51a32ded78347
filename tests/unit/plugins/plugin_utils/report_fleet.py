# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Inputs of a report from invented facts: healthy, faulty, inspected, huge and empty. The real rules judge them."""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.plugin_utils import rail_model
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.collect import contexts
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.evaluate import evaluate
from ansible_collections.railyard.rdma.plugins.plugin_utils.node_table import node_row
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.compare import compare
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.document import proof
from ansible_collections.railyard.rdma.plugins.plugin_utils.report_table import row

SHAPE = "BM.GPU.B4.8"
# Rules that the invented facts are complete enough for.
RULES = ("GID-002", "LINK-001", "LINK-002", "NETNS-001", "QOS-001", "QOS-005", "RESOURCE-003")
TIME = "2026-11-29T18:00:00Z"


def model(names: list[str], **variables) -> dict:
    """The rail model of nodes of one shape."""
    made, mistakes = rail_model.build({name: {"rails_shape": SHAPE, **variables} for name in names})
    if mistakes:
        raise ValueError(str(mistakes))
    return made


def gid(index: int, address: str, netdev: str, scope: str = "ipv4") -> dict:
    found = {"index": index, "gid": address, "address": address, "type": "RoCE v2", "netdev": netdev}
    return {**found, "scope": scope, "usable": True, "reason": None}


def port(netdev: str, address: str, index: int, value: int | None) -> dict:
    state = {"state": "unset", "value": None, "rules": []}
    if value is not None:
        state = {"state": "set", "value": value, "rules": []}
    rows = [gid(index - 2, "fe80::1", netdev, "link_local"), gid(index, address, netdev)]
    table = {"length": 256, "zero": 254, "unreadable": 0, "hash": "0", "reason": None}
    known = {
        "link_layer": "Ethernet",
        "state": "ACTIVE",
        "phys_state": "LinkUp",
        "rate_gbps": 100.0,
        "active_mtu": 4096,
    }
    return {
        **known,
        "netdev": netdev,
        "gids": rows,
        "gid_table": table,
        "rdma_cm_tos": 0,
        "traffic_class": state,
        "reasons": {},
    }


def address_of(number: int, rail: int) -> str:
    return f"10.{100 + rail}.{number // 250}.{number % 250 + 1}"


def facts(layout: dict, number: int) -> dict:
    """Facts of a node on which nothing is wrong."""
    devices, netdevs, rails, gpus = {}, {}, [], []
    for rail in layout["rails"]:
        index, pci = rail["rail"], rail["pci"]
        name, device = f"rdma{index}", f"mlx5_{index}"
        # Each root holds two GPUs and the four ports beside them.
        root = f"0000:{index // 4:02x}:01.1"
        numa = index // 8
        gpu = rail["gpu_pci"]
        if index % 2 == 0:
            gpus.append({"pci": gpu, "vendor": "10de", "device": "20b2", "driver": "nvidia", "numa_node": numa})
            gpus[-1]["pci_path"] = f"{root}/0000:{0x60 + index // 2:02x}:00.0/{gpu}"
        address = address_of(number, index)
        one = port(name, address, 3, None)
        path = f"{root}/0000:{0x60 + index // 2:02x}:00.0/{pci}"
        place = {"pci": pci, "netdev": name, "function": "pf", "parent_pci": None, "numa_node": numa, "pci_path": path}
        devices[device] = {
            **place,
            "driver": "mlx5_core",
            "kind": "hardware",
            "bond": False,
            "ports": {"1": one},
            "reasons": {},
        }
        entry = {
            "address": address,
            "prefix": 16,
            "family": "ipv4",
            "scope": "global",
            "tentative": False,
            "dynamic": False,
        }
        sysctls = {
            "arp_ignore": 1,
            "arp_announce": 2,
            "rp_filter": 0,
            "disable_ipv6": 0,
            "accept_ra": 1,
            "forwarding": 0,
        }
        netdevs[name] = {
            "pci": pci,
            "mtu": 4220,
            "state": "up",
            "master": None,
            "kind": None,
            "default_routes": [],
            "addresses": [entry],
            "sysctls": {**sysctls, "arp_filter": 0, "accept_local": 0, "autoconf": 1, "accepts_ra": True},
            "sriov": {"total": 8, "num": 1, "vfs": []},
            "qos": {"trust": "dscp", "dscp_to_priority": {"10": 0}, "pfc": {"enabled": [0, 5]}, "ecn": None},
        }
        rails.append(
            {
                "rail": index,
                "pci": pci,
                "netdev": name,
                "device": device,
                "port": 1,
                "gid_index": 3,
                "address": address,
                "state": "ACTIVE",
                "rate_gbps": 100.0,
                "mtu": 4220,
                "active_mtu": 4096,
                "numa_node": numa,
                "traffic_class": one["traffic_class"],
                "gpus": [{"pci": gpu, "distance": "PIX", "numa_distance": 10, "reason": None}],
                "reason": None,
            }
        )
    mode = {"live": "shared", "configured": "shared", "next_boot": "shared", "boot_image": "shared", "reasons": {}}
    image = {"kernel": "6", "path": "/boot/initrd.img-6", "stale": False, "default": True, "builder": "dracut"}
    return {
        "schema": 1,
        "gathered_at": TIME,
        "boot_id": str(number),
        "reasons": {},
        "netns_mode": {**mode, "kernel_line": None, "next_kernel_line": None, "owners": []},
        "boot_images": [{**image, "mode": "shared", "whole": True, "reason": None}],
        "driver": {
            "flavour": "doca_ofed",
            "version": "26.07",
            "lockdown": "none",
            "character_devices": ["rdma_cm", *(f"uverbs{index}" for index in range(len(rails)))],
            "modules": {"ib_uverbs": "loaded", "rdma_ucm": "loaded"},
            "stale_cdi": [],
        },
        "devices": devices,
        "netdevs": netdevs,
        "rails": rails,
        "gpus": gpus,
        "routing": {"rules": [], "reason": None},
        "memlock": {"runtimes": {}, "containers": {"soft": "unlimited", "reason": None}},
    }


def pod(layout: dict, number: int, node: str) -> dict:
    """What a test pod sees of healthy rails. Its interfaces are not in the order of the rails."""
    devices, netdevs = {}, {"eth0": {"pci": None, "parent_pci": None, "addresses": [], "mtu": 1500, "sysctls": {}}}
    for rail in layout["rails"]:
        index = rail["rail"]
        name, vf = f"net{(index + 3) % len(layout['rails']) + 1}", rail["pci"][:-1] + str(int(rail["pci"][-1]) + 2)
        address = address_of(number, index + 50)
        entry = {"address": address, "prefix": 16, "scope": "global", "tentative": False, "family": "ipv4"}
        sysctls = {
            "arp_ignore": 1,
            "arp_announce": 2,
            "rp_filter": 0,
            "disable_ipv6": 0,
            "accept_ra": 0,
            "forwarding": 0,
        }
        netdevs[name] = {
            "pci": vf,
            "parent_pci": rail["pci"],
            "mtu": 4220,
            "state": "up",
            "addresses": [entry],
            "sysctls": sysctls,
        }
        devices[f"mlx5_{20 + index}"] = {"pci": vf, "netdev": name, "ports": {"1": port(name, address, 3, 41)}}
    return {
        "node": node,
        "running": True,
        "reachable": True,
        "reason": None,
        "netns_mode": "shared",
        "networks": None,
        "devices": devices,
        "netdevs": netdevs,
        "addresses_unknown": [],
        "device_files": [],
        "reasons": {},
    }


def bandwidth(names: list[str], rails: int, slow: dict[tuple[str, int], float]) -> dict:
    """Results of ring pairs; slow: {(client, rail): rate in Gb/s}."""
    results, priorities = [], []
    for place, name in enumerate(names):
        peer = names[(place + 1) % len(names)]
        for rail in range(rails):
            rate = slow.get((name, rail), 96.9 - (place * 7 + rail * 3) % 10 / 10)
            ends = [
                {"host": host, "node": host, "pod": f"railyard-{host}", "device": f"mlx5_{20 + rail}"}
                for host in (name, peer)
            ]
            low = rate < 90
            results.append(
                {
                    "round": place % 2,
                    "rail": rail,
                    "stream": 0,
                    "client": {**ends[0], "gid_index": 3, "address": None},
                    "server": {**ends[1], "gid_index": 3, "address": None},
                    "gbps": rate,
                    "peak_gbps": rate,
                    "mpps": 0.18,
                    "port_gbps": 100.0,
                    "ratio": rate / 100,
                    "verdict": "low" if low else "full",
                    "reason": "out_of_sequence grew by 11649 at the server" if low else None,
                    "counters": {"client": {}, "server": {"out_of_sequence": 11649 if low else 0}},
                }
            )
            wrong = {
                "verdict": "wrong",
                "share_on_wanted": 0.002,
                "reason": "the VF forces class 0: traffic went on priority 1",
            }
            priorities.append(
                {
                    "host": name,
                    "rail": rail,
                    "netdev": f"rdma{rail}",
                    "wanted_priority": 0,
                    "bytes": {"0": {"tx": 60_000_000_000, "rx": 60_000_000_000}},
                    "share_on_wanted": 0.9998,
                    "pause": 0,
                    "cnp": 0,
                    "verdict": "right",
                    "reason": None,
                    **(wrong if low else {}),
                }
            )
    settings = {
        "seconds": 5,
        "size": 65536,
        "queue_pairs": 4,
        "traffic_class": 41,
        "bidirectional": False,
        "rails": "together",
        "share": False,
    }
    rounds = [{"round": 0, "pairs": [[names[0], names[1 % len(names)]]]}]
    return {
        "schema": 1,
        "settings": settings,
        "rounds": rounds,
        "results": results,
        "priorities": priorities[: 40 * rails],
    }


def nccl(names: list[str]) -> dict:
    """One job over all nodes."""
    sizes = []
    for power in range(3, 34, 2):
        rate = 186.0 * 2**power / (2**power + 2**25)
        side = {"time_us": 30 + 2**power / 186e3, "algbw": rate * 16 / 31, "busbw": rate, "wrong": 0}
        sizes.append({"bytes": 2**power, "out_of_place": side, "in_place": {**side, "busbw": rate * 0.998}})
    job = {
        "name": "all-rails",
        "hosts": names,
        "gpus_per_node": 8,
        "verdict": "pass",
        "reason": None,
        "sizes": sizes,
        "busbw_gbs": sizes[-1]["out_of_place"]["busbw"],
        "gdrdma": {"channels": 64, "with_gdrdma": 64},
        "nics": [
            {"name": f"mlx5_{20 + rail}", "devices": [f"mlx5_{20 + rail}"], "speed_mbps": 100000} for rail in range(16)
        ],
        "channels": [],
        "version": "2.29.2",
        "environment": {},
    }
    devices = ",".join(f"mlx5_{20 + rail}" for rail in range(16))
    environment = {
        "NCCL_IB_HCA": f"={devices}",
        "NCCL_IB_GID_INDEX": "3",
        "NCCL_IB_TC": "41",
        "UCX_NET_DEVICES": devices,
        "reasons": {
            "NCCL_IB_GID_INDEX": "index 3 fits every rail of every node",
            "NCCL_IB_HCA": "= asks for exact names",
        },
    }
    return {"schema": 1, "jobs": [job], "environment": environment}


def fleet(size: int, prefix: str = "gpu-") -> dict:
    """Healthy inputs of a proof: {model, facts, pods}."""
    names = [f"{prefix}{number:0{len(str(size))}d}" for number in range(1, size + 1)]
    # The pool of a thousand nodes must be planned; no report depends on it.
    made = model(names[:2])
    layout = made["layouts"][0]
    layout["hosts"] = names
    made["hosts"] = dict.fromkeys(names, layout["name"])
    nodes = {name: facts(layout, number) for number, name in enumerate(names)}
    pods = {f"railyard-verify-{name}": pod(layout, number, name) for number, name in enumerate(names)}
    return {"model": made, "facts": nodes, "pods": pods}


def judge(given: dict, with_pods: bool = True) -> dict:
    """Findings and rows of the real rules about facts and pods."""
    names = {entry["node"]: name for name, entry in given["pods"].items()} if with_pods else {}
    known = contexts(given["model"], given["facts"], pods=given["pods"] if with_pods else None, pod_hosts=names)
    found = evaluate(known, ["facts", "pod"] if with_pods else ["facts"], only=RULES)
    return {"findings": found, "rows": [(row if with_pods else node_row)(context, found) for context in known]}


def break_some(given: dict) -> dict:
    """Faults of several kinds on several nodes; returns rates for bandwidth()."""
    names = given["model"]["layouts"][0]["hosts"]
    slow: dict[tuple[str, int], float] = {}

    def devices(name):
        return given["pods"][f"railyard-verify-{name}"]["devices"]

    for name in names[:1]:
        for rail in (2, 3, 9):
            devices(name)[f"mlx5_{20 + rail}"]["ports"]["1"]["gids"] = []
    for name in names[1:3]:
        for rail in range(16):
            devices(name)[f"mlx5_{20 + rail}"]["ports"]["1"]["traffic_class"] = {
                "state": "set",
                "value": 0,
                "rules": [],
            }
            slow[(name, rail)] = 43.0 + rail
    given["facts"][names[3]]["netns_mode"].update(live="exclusive", configured_by="/etc/modprobe.d/vendor.conf")
    given["facts"][names[4]] = None
    broken = given["pods"][f"railyard-verify-{names[5]}"]
    broken.update(running=False, reachable=False, reason="0/8 nodes are available: 8 Insufficient nvidia.com/rdma-vf")
    for row_of_rail in given["facts"][names[6]]["netdevs"].values():
        row_of_rail["qos"]["trust"] = "pcp"
    # No rule says anything about these two.
    slow.update({(names[7], 5): 71.3, (names[7], 6): 88.0})
    return slow


def documents() -> dict:
    """{name: function that returns the arguments of proof()}."""

    def healthy():
        given = fleet(4)
        names = given["model"]["layouts"][0]["hosts"]
        return {**given, "result": judge(given), "bandwidth": bandwidth(names, 16, {}), "nccl": nccl(names)}

    def faulty():
        given = fleet(8)
        slow = break_some(given)
        names = given["model"]["layouts"][0]["hosts"]
        return {**given, "result": judge(given), "bandwidth": bandwidth(names, 16, slow), "nccl": nccl(names)}

    def inspected():
        given = fleet(4)
        return {"model": given["model"], "facts": given["facts"], "result": judge(given, with_pods=False)}

    def empty():
        return {"model": {"layouts": [], "hosts": {}}}

    return {"healthy": healthy, "faulty": faulty, "inspected": inspected, "empty": empty}


NAMES = ("healthy", "faulty", "inspected", "huge", "empty")


def huge() -> dict:
    """A thousand nodes: the faulty fleet five times and the healthy one 240 times, under other names."""
    parts = [(document("faulty"), range(5)), (document("healthy"), range(5, 245))]
    made = {**parts[0][0], "moved": None}
    whole = {"rows": [], "findings": [], "cells": [], "topology": [], "results": [], "priorities": []}
    for part, numbers in parts:
        for number in numbers:

            def other(entry, keys=("node",), number=number):
                return {**entry, **{key: f"rack{number:03d}-{entry[key]}" for key in keys}}

            for key in ("rows", "findings", "cells", "topology"):
                whole[key] += [other(one) for one in part[key]]
            for one in part["bandwidth"]["results"]:
                whole["results"].append({**one, **{end: other(one[end], ("host",)) for end in ("client", "server")}})
            whole["priorities"] += [other(one, ("host",)) for one in part["bandwidth"]["priorities"]]
    made["bandwidth"] = {**made["bandwidth"], "results": whole.pop("results"), "priorities": whole.pop("priorities")}
    return {**made, **whole}


def document(name: str) -> dict:
    """A sample as proof document; "faulty" is compared with "healthy"."""
    if name == "huge":
        return huge()
    made = proof(**documents()[name](), made_at=TIME, version="0.2.0")
    if name == "faulty":
        earlier = proof(**documents()["healthy"](), made_at="2026-11-22T18:00:00Z", version="0.1.0")
        made["moved"] = compare(earlier, made)
    return made
