# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Field cases as test pods show them: kinds V, L, M, Q and T, each with its healthy twin.

The pod has a network of its own with rails 0 and 1; a test changes what it says of itself.
"""

from __future__ import annotations

import copy

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.rdma.gid import gid_row
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.collect import contexts
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.evaluate import evaluate
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.placement import root_of
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import Context
from ansible_collections.railyard.rdma.plugins.plugin_utils.report_table import row as table_row
from ansible_collections.railyard.rdma.tests.unit.field_cases import field_pod
from ansible_collections.railyard.rdma.tests.unit.field_cases.field_node import PCI, address, layout, mapped

PLACEHOLDERS = ["fd01:0:0:100::7", "fd01:0:0:100::8"]
ROUTED = ["2001:db8:0:a0:2aa:ff:fe00:107", "2001:db8:0:a1:2aa:ff:fe00:107"]
FOUR = ["192.168.0.5", "192.168.0.6"]


def gid_of(text: str) -> str:
    return mapped(text) if ":" not in text else text


def pod(*rows: list[dict], rules: list[dict] | None = None, **changes) -> dict:
    """A pod with a VF for each of the rails; ``rows`` are the addresses of each."""
    devices, netdevs = {}, {"eth0": {"pci": None, "parent_pci": None, "addresses": []}}
    for number, own in enumerate(rows):
        vf, name = f"{PCI[number][:-1]}{number + 2}", f"net{number + 1}"
        gids = [gid_row(3 + n, gid_of(row["address"]), "RoCE v2", name, {name}) for n, row in enumerate(own)]
        port = {"gids": gids, "gid_table": {"length": 128, "zero": 120}, "active_mtu": 4096}
        port["traffic_class"] = {"state": "unset", "value": None, "rules": []}
        devices[f"mlx5_{20 + number}"] = {"pci": vf, "netdev": name, "ports": {"1": port}}
        netdevs[name] = {
            "pci": vf, "parent_pci": PCI[number], "mtu": 4220, "addresses": list(own), "sysctls": dict(field_pod.SYSCTLS),
        }  # fmt: skip
    return {
        "name": "railyard-verify-node-a", "running": True, "reachable": True, "reason": None, "netns_mode": "shared",
        "networks": [], "devices": devices, "netdevs": netdevs, "addresses_unknown": [],
        **field_pod.process(*devices, rules=rules), **changes,
    }  # fmt: skip


def flat(**changes) -> dict:
    """Both rails in one IPv4 subnet, as the articles have them."""
    rows = [[address(f"{text}/16")] for text in FOUR]
    return pod(*rows, **{"rules": field_pod.source_rules(*FOUR), **changes})


def advertised(**changes) -> dict:
    """IPv6 rails of a routed fabric: a placeholder and an advertised address each, and one /64 a rail."""
    rows = [
        [address(f"{held}/112"), address(f"{routed}/64", dynamic=True)]
        for held, routed in zip(PLACEHOLDERS, ROUTED, strict=True)
    ]
    return pod(*rows, **changes)


def intent(**changes) -> dict:
    return {**layout(**changes), "pod": {"host_network": False}}


def routed_intent() -> dict:
    return intent(network="ipvlan", ip_family="ipv6_slaac")


def judged(given: dict, wanted: dict | None = None, facts: dict | None = None) -> list[dict]:
    inputs = ["pod"] if facts is None else ["pod", "facts"]
    found = evaluate([Context("node-a", wanted or intent(), facts=facts, pod=given)], inputs)
    return [row for row in found if "pod" in inputs and row["pod"]]


def told(given: dict, wanted: dict | None = None, facts: dict | None = None) -> list[tuple]:
    return [(row["id"], row["severity"], row["rail"]) for row in judged(given, wanted, facts)]


def only(rule_id: str, given: dict, wanted: dict | None = None) -> dict:
    (row,) = [row for row in judged(given, wanted) if row["id"] == rule_id]
    return row


def sysctls(given: dict, rail: int | None = None, **values) -> dict:
    """Change sysctls of a rail's interface, or of all of them."""
    for number in range(2) if rail is None else [rail]:
        given["netdevs"][f"net{number + 1}"]["sysctls"].update(values)
    return given


def test_healthy_pods_have_no_finding():
    assert told(flat()) == []
    # The placeholder beside the routed address is a hint, not a fault.
    assert {row[:2] for row in told(advertised(), routed_intent())} == {("GID-008", "info")}


def test_a_pod_that_could_not_be_read_is_one_finding():
    given = {"name": "p", "running": False, "reachable": False, "reason": "Pending: no room"}
    assert told(given) == [("RESOURCE-003", "error", None)]


@pytest.mark.parametrize(
    "key", ["routing", "memlock", "device_files", "environment"],
)  # fmt: skip
def test_what_an_older_probe_did_not_read_is_unknown(key):
    given = flat()
    del given[key]
    assert {row[1] for row in told(given)} == {"unknown"}


# V: IPv6 in pods ------------------------------------------------------------------------------------------------------


def test_fc13_a_second_routed_address():
    given = advertised()
    given["netdevs"]["net1"]["addresses"].append(address("2001:db8:0:a0::4f/64"))
    item = only("ADDRESS-008", given, routed_intent())
    assert (item["severity"], item["rail"]) == ("warning", 0)
    assert [row["address"] for row in item["evidence"]["addresses"]] == [ROUTED[0], "2001:db8:0:a0::4f"]


def test_fc14_ipv6_disabled_in_the_pod():
    given = sysctls(advertised(), disable_ipv6=1, accepts_ra=False)
    for netdev in ("net1", "net2"):
        given["netdevs"][netdev]["addresses"] = []
    item = only("ADDRESS-005", given, routed_intent())
    assert (item["severity"], item["rail"]) == ("error", None) and "disable_ipv6=0" in item["remedy"]
    assert "ADDRESS-006" not in {row[0] for row in told(given, routed_intent())}
    assert told(sysctls(flat(), disable_ipv6=1)) == [], "IPv4 rails need no IPv6"


@pytest.mark.parametrize(
    "values", [{"accept_ra": 0, "accepts_ra": False}, {"forwarding": 1, "accept_ra": 1, "accepts_ra": False}, {"autoconf": 0}],
    ids=["accept_ra", "forwarding", "autoconf"],
)  # fmt: skip
def test_fc16_advertisements_ignored_in_the_pod(values):
    given = sysctls(advertised(), 1, **values)
    assert "ADDRESS-006" not in {row[0] for row in told(given, routed_intent())}, "it has its address all the same"
    given["netdevs"]["net2"]["addresses"] = [address(f"{PLACEHOLDERS[1]}/112")]
    item = only("ADDRESS-006", given, routed_intent())
    assert (item["severity"], item["rail"]) == ("error", 1)


@pytest.mark.parametrize(("key", "rule_id"), [("disable_ipv6", "ADDRESS-005"), ("autoconf", "ADDRESS-006")])
def test_fc14_sysctls_that_cannot_be_read_are_unknown(key, rule_id):
    given = sysctls(advertised(), **{key: None})
    for number in range(2):
        given["netdevs"][f"net{number + 1}"]["addresses"].pop()
    assert only(rule_id, given, routed_intent())["severity"] == "unknown"


def test_fc15_the_rails_default_route_beside_that_of_the_pod():
    own, ours = field_pod.default_route("eth0", 1024, None), field_pod.default_route("net1", 1024)
    given = advertised(routing={"rules": [], "routes": [own, ours], "reasons": {}})
    item = only("ADDRESS-009", given, routed_intent())
    assert (item["severity"], item["rail"]) == ("warning", 0) and "ra_defrtr_metric" in item["remedy"]


@pytest.mark.parametrize(
    "routes",
    [
        [field_pod.default_route("net1", 1024)],
        [field_pod.default_route("eth0", 256, None), field_pod.default_route("net1", 1024)],
        [field_pod.default_route("eth0", 1024, None), field_pod.default_route("net1", 1024, table=101)],
        [field_pod.default_route("eth0", 1024, None), field_pod.default_route("net1", 512, "static")],
    ],
    ids=["alone", "larger metric", "own table", "set by hand"],
)
def test_fc15_routes_that_do_no_harm(routes):
    given = advertised(routing={"rules": [], "routes": routes, "reasons": {}})
    assert "ADDRESS-009" not in {row[0] for row in told(given, routed_intent())}


def test_fc15_routes_that_nobody_told_are_unknown_where_advertisements_came():
    given = advertised(routing={"rules": None, "routes": None, "reasons": {"routes": "the image has no 'ip'"}})
    item = only("ADDRESS-009", given, routed_intent())
    assert item["severity"] == "unknown" and "no 'ip'" in item["summary"]
    given = flat(routing={"rules": field_pod.source_rules(*FOUR), "routes": None, "reasons": {}})
    assert told(given) == []


def test_fc17_tentative_and_failed_addresses():
    given = advertised()
    given["netdevs"]["net1"]["addresses"][1]["tentative"] = True
    given["netdevs"]["net2"]["addresses"][1].update(tentative=True, dadfailed=True)
    rows = [row for row in told(given, routed_intent()) if row[0] == "ADDRESS-007"]
    assert rows == [("ADDRESS-007", "error", 1), ("ADDRESS-007", "warning", 0)]


# L: rails of a pod in one subnet --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "value"), [("arp_ignore", 0), ("arp_announce", 1)])
def test_fc48_arp_in_the_pod(key, value):
    item = only("ARP-004", sysctls(flat(), **{key: value}))
    assert (item["severity"], item["rail"]) == ("warning", None) and item["evidence"]["rails"] == [0, 1]
    assert only("ARP-004", sysctls(flat(), 1, **{key: value}))["rail"] == 1
    assert only("ARP-004", sysctls(flat(), **{key: None}))["severity"] == "unknown"


def test_fc48_rails_of_different_subnets_do_not_answer_for_each_other():
    apart = pod([address("192.168.0.5/24")], [address("192.168.1.5/24")])
    assert told(sysctls(apart, arp_ignore=0, rp_filter=1)) == []


def test_fc48_on_the_hosts_network_the_node_is_judged():
    given = sysctls(flat(rules=[]), arp_ignore=0, rp_filter=1)
    host = {**layout(network="host_network"), "pod": {"host_network": True}}
    given["netdevs"]["net1"].update(pci=PCI[0], parent_pci=None)
    assert not {row[0] for row in told(given, host)} & {"ARP-004", "ARP-005", "ARP-006"}


def test_fc49_reverse_path_filtering_in_the_pod():
    assert only("ARP-005", sysctls(flat(), rp_filter=1))["severity"] == "warning"
    assert told(sysctls(flat(), rp_filter=2)) == []
    assert only("ARP-005", sysctls(flat(), rp_filter=None))["severity"] == "unknown"


def test_fc51_mtu_of_the_pod():
    given = flat()
    given["netdevs"]["net1"]["mtu"] = 1500
    item = only("LINK-004", given)
    assert (item["severity"], item["rail"]) == ("warning", 0)
    assert (item["evidence"]["mtu"], item["evidence"]["wanted"]) == (1500, 4220)
    given["netdevs"]["net1"]["mtu"] = None
    assert only("LINK-004", given)["severity"] == "unknown"


def test_fc51_mtu_above_that_of_the_pf():
    given = flat()
    facts = {"netdevs": {"rdma0": {"pci": PCI[0], "mtu": 1500}}}
    context = Context("node-a", intent(), facts=facts, pod=given)
    (item,) = [row for row in evaluate([context], ["pod"]) if row["id"] == "LINK-004"]
    assert (item["severity"], item["rail"], item["evidence"]["pf_mtu"]) == ("error", 0, 1500)


def test_fc52_rails_of_one_prefix_need_a_source_rule():
    item = only("ARP-006", flat(rules=field_pod.source_rules(FOUR[0])))
    assert (item["severity"], item["rail"]) == ("warning", 1)
    assert item["evidence"]["addresses"] == [FOUR[1]]
    item = only("ARP-006", flat(routing={"rules": None, "routes": None, "reasons": {"rules": "the image has no 'ip'"}}))
    assert item["severity"] == "unknown" and "no 'ip'" in item["summary"]


def test_fc52_also_with_ipv6_and_not_for_placeholders():
    both = pod([address("2001:db8:0:a::11/64")], [address("2001:db8:0:a::12/64")])
    assert only("ARP-006", both, intent(network="ipvlan", ip_family="ipv6_slaac"))["rail"] is None
    assert "ARP-006" not in {row[0] for row in told(advertised(), routed_intent())}


# M, R: what the process may do ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("memlock", "expected"),
    [
        ({"soft_kib": 8192, "ipc_lock": False}, "error"),
        ({"soft_kib": 64, "ipc_lock": False}, "error"),
        ({"soft_kib": 1 << 30, "ipc_lock": False}, "warning"),
        ({"soft_kib": 64, "ipc_lock": True}, None),
        ({"soft_kib": "unlimited", "ipc_lock": None}, None),
        ({"soft_kib": None, "ipc_lock": False}, "unknown"),
        ({"soft_kib": 64, "ipc_lock": None}, "unknown"),
    ],
    ids=str,
)
def test_fc63_fc65_locked_memory_as_the_process_sees_it(memlock, expected):
    rows = told(flat(memlock={"hard_kib": None, **memlock}))
    assert rows == ([] if expected is None else [("MEMLOCK-002", expected, None)])


def test_fc01_devices_that_are_visible_and_not_in_the_pod():
    """In shared mode sysfs shows every device; the file tells which the pod may use."""
    given = flat()
    given["device_files"].pop("uverbs1")
    item = only("RESOURCE-014", given)
    assert (item["severity"], item["rail"]) == ("error", 1) and "no device file" in item["summary"]


def test_a_device_file_that_does_not_open():
    given = flat()
    for name in ("uverbs0", "uverbs1"):
        given["device_files"][name].update(opens=False, reason="Operation not permitted")
    item = only("RESOURCE-014", given)
    assert item["rail"] is None and "Operation not permitted" in item["summary"]


def test_device_files_that_nothing_names_are_unknown():
    given = flat()
    given["device_files"]["uverbs1"]["device"] = None
    assert told(given) == [("RESOURCE-014", "unknown", 1)]


def test_a_pod_without_device_files_and_without_rdma_cm():
    assert only("RESOURCE-014", flat(device_files=None))["severity"] == "error"
    given = flat()
    given["device_files"].pop("rdma_cm")
    item = only("RESOURCE-014", given)
    assert item["severity"] == "warning" and "rdma_ucm" in item["remedy"]


# Q: the class of the application -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("forced", "environment", "expected"),
    [
        (41, {"NCCL_IB_TC": "105"}, [("QOS-010", "warning", 0)]),
        (41, {"UCX_IB_TRAFFIC_CLASS": "105"}, [("QOS-010", "warning", 0)]),
        (41, {"NCCL_IB_TC": "41"}, []),
        (41, {"NCCL_IB_TC": "40"}, []),  # other ECN bits, same class
        (41, {"NCCL_IB_TC": "auto"}, []),
        (None, {"NCCL_IB_TC": "105"}, []),
    ],
    ids=str,
)
def test_fc56_a_forced_class_and_the_variables_of_the_pod(forced, environment, expected):
    given = flat(environment=environment)
    if forced is not None:
        port = given["devices"]["mlx5_20"]["ports"]["1"]
        port["traffic_class"] = {"state": "set", "value": forced, "rules": []}
    assert told(given, intent(traffic_class=41)) == expected


# X: one index for the whole job -------------------------------------------------------------------------------------------


def test_fc06_the_pods_that_differ_are_named():
    given = []
    for name, index in (("node-a", 3), ("node-b", 3), ("node-c", 5)):
        one = flat()
        for device in one["devices"].values():
            for row in device["ports"]["1"]["gids"]:
                row["index"] = index
        given.append(Context(name, intent(), pod={**one, "name": f"pod-of-{name}"}))
    (item,) = [row for row in evaluate(given, ["pod"]) if row["id"] == "GID-007"]
    assert item["evidence"]["usual"] == 3
    assert item["evidence"]["others"] == {"node-c/pod-of-node-c": {"0": 5, "1": 5}}
    assert "pod-of-node-c" in item["summary"]
    assert [row["id"] for row in evaluate(given[:2], ["pod"])] == []


# T: rails and GPUs by PCIe root ---------------------------------------------------------------------------------------------

# The node of the articles: 4 roots with 2 GPUs and 2 NICs of 2 rails each, and what the kubelet gave to two jobs.
ROOTS = {"00": ["0c", "0f", "15", "16"], "40": ["47", "4b", "50", "53"], "80": ["89", "8c", "91", "93"],
         "c0": ["c3", "d1", "d6", "da"]}  # fmt: skip
NICS = ["0c", "16", "47", "4b", "89", "93", "c3", "d1"]
FIRST = (["50", "53", "8c", "91"], ["0c.1", "16.0", "16.1", "47.1", "4b.0", "89.0", "c3.0", "d1.0"])
SECOND = (["0f", "15", "d6", "da"], ["0c.0", "47.0", "4b.1", "89.1", "93.0", "93.1", "c3.1", "d1.1"])


def root(bus: str) -> str:
    return next(name for name, buses in ROOTS.items() if bus in buses)


def pci(text: str) -> str:
    bus, _dot, function = text.partition(".")
    return f"0000:{bus}:00.{function or 0}"


def b4() -> tuple[dict, dict]:
    """(layout, facts) of the node."""
    rails = [
        {"rail": n, "pci": pci(f"{bus}.{f}"), "network": "rdma-vf", "gpu_pci": None}
        for n, (bus, f) in enumerate((bus, f) for bus in NICS for f in (0, 1))
    ]

    def path(bus: str) -> str:
        return f"0000:{root(bus)}:01.0/0000:{bus}:00.0"

    devices = {
        f"mlx5_{rail['rail']}": {"pci": rail["pci"], "function": "pf", "netdev": None, "ports": {},
                                 "pci_path": path(rail["pci"][5:7]), "numa_node": 0}
        for rail in rails
    }  # fmt: skip
    gpus = [{"pci": pci(bus), "pci_path": path(bus), "numa_node": 0}
            for buses in ROOTS.values() for bus in buses if bus not in NICS]  # fmt: skip
    facts = {"devices": devices, "netdevs": {}, "gpus": gpus}
    return {**intent(), "rails": rails, "name": "b4", "hosts": ["node-a"]}, facts


def job(gpus: list[str] | None, pfs: list[str]) -> dict:
    netdevs = {
        f"net{n}": {"pci": f"0001{pci(pf)[4:-1]}{n % 8}", "parent_pci": pci(pf), "addresses": []}
        for n, pf in enumerate(pfs, 1)
    }
    reasons = {} if gpus is not None else {"gpus": "nothing tells the PCI address of nvidia0"}
    found = [pci(bus) for bus in gpus] if gpus is not None else None
    return {"running": True, "reachable": True, "reason": None, "devices": {}, "netdevs": netdevs, "gpus": found,
            "networks": None, "reasons": reasons}  # fmt: skip


def topology(*jobs: dict, asked: list | None = None) -> list[dict]:
    wanted, facts = b4()
    model = {"layouts": [wanted], "hosts": {"node-a": "b4"}}
    names = [f"job-{n}" for n in range(len(jobs))]
    entries = [{"name": name, "rails": asked, "count": 8 if len(jobs) > 1 else 16} for name in names]
    known = contexts(model, {"node-a": facts}, pods=dict(zip(names, jobs, strict=True)), pod_hosts={"node-a": entries})
    found = evaluate(known, ["facts", "pod"], only=["TOPOLOGY-002", "TOPOLOGY-003"])
    return sorted(found, key=lambda row: (row["id"], row["pod"]))


def test_fc70_the_kubelet_mixed_the_roots_of_two_jobs():
    """The placement that gave 17.95 and 8.99 GB/s instead of 96, PFs and GPUs as they were printed."""
    first, second = topology(job(*FIRST), job(*SECOND))
    assert [(row["id"], row["severity"], row["pod"]) for row in (first, second)] == [
        ("TOPOLOGY-002", "warning", "job-0"),
        ("TOPOLOGY-002", "warning", "job-1"),
    ]
    assert "rails_resource_scope rail" in first["remedy"]
    rows = {row["root"]: row for row in second["evidence"]["roots"]}
    assert rows["0000:40"]["pod_gpus"] == [] and rows["0000:40"]["pod_rails"] == [4, 7]
    assert "0000:8c:00.0, 0000:91:00.0 (root 0000:80: 1 of 4 rails)" in first["summary"]
    assert "rails 1, 2, 3, 12, 14 are at roots without a GPU" in first["summary"]


def test_fc70_a_vf_of_every_rail_for_both_jobs():
    """2 VFs a PF and a resource a rail: 96.28 and 96.35 GB/s at the same time."""
    every = [f"{bus}.{f}" for bus in NICS for f in (0, 1)]
    wanted = list(range(16))
    assert topology(job(FIRST[0], every), job(SECOND[0], every), asked=wanted) == []


def test_fc70_jobs_whose_rails_are_at_their_gpus():
    halves = [(["0f", "15", "50", "53"], NICS[:4]), (["8c", "91", "d6", "da"], NICS[4:])]
    jobs = [job(gpus, [f"{bus}.{f}" for bus in nics for f in (0, 1)]) for gpus, nics in halves]
    assert topology(*jobs) == []


def test_fc70_a_pod_with_every_rail_cannot_have_it():
    every = [f"{bus}.{f}" for bus in NICS for f in (0, 1)]
    assert topology(job([], every)) == []


def test_fc70_without_gpus_nobody_can_say():
    half = [f"{bus}.{f}" for bus in NICS[:4] for f in (0, 1)]
    rest = [f"{bus}.{f}" for bus in NICS[4:] for f in (0, 1)]
    rows = topology(job([], half), job(None, rest))
    assert [row["severity"] for row in rows] == ["unknown", "unknown"]
    assert "rdma_verify_gpu_resource" in rows[0]["summary"] and "nvidia0" in rows[1]["summary"]


def test_fc70_gpus_that_the_node_does_not_have_are_unknown():
    half = [f"{bus}.{f}" for bus in NICS[:4] for f in (0, 1)]
    (row,) = topology(job(["ee"], half), job(["8c"], [f"{bus}.{f}" for bus in NICS[4:] for f in (0, 1)]))
    assert row["severity"] == "unknown" and "0000:ee:00.0" in row["summary"]


def test_the_table_counts_the_rails_of_both_pods():
    wanted, facts = b4()
    model = {"layouts": [wanted], "hosts": {"node-a": "b4"}}
    pods, entries = {"a": job(*FIRST), "b": job(*SECOND)}, [{"name": n, "rails": None, "count": 8} for n in "ab"]
    (context,) = contexts(model, {"node-a": facts}, pods=pods, pod_hosts={"node-a": entries})
    told_row = table_row(context, [])
    assert (told_row["rails"], told_row["gids_ok"]) == (16, 0)
    (context,) = contexts(model, {"node-a": facts}, pods={"a": pods["a"]}, pod_hosts={"node-a": entries})
    assert table_row(context, [])["verdict"] == "unknown"


def test_two_vfs_of_one_rail_and_none_of_another():
    """One resource of 32 VFs: both VFs of 4 PFs, and none of 4 others."""
    twice = ["0c.0", "16.0", "16.1", "4b.0"]
    others = [f"{bus}.{f}" for bus in NICS for f in (0, 1)]
    lacking = ["c3.0", "c3.1", "d1.0", "d1.1"]
    given = job([], [*twice, *[pf for pf in others if pf not in lacking]])
    (row,) = topology(given)
    assert (row["id"], row["severity"]) == ("TOPOLOGY-003", "error")
    assert row["evidence"] == {"twice": [0, 2, 3, 6], "lacking": [12, 13, 14, 15]}
    assert "rails_resource_scope rail" in row["remedy"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [("0000:00:01.1/0000:0c:00.0", "0000:00"), ("0001:c0:01.0", "0001:c0"), (None, None), ("", None), ("x", None)],
)
def test_the_root_of_a_path(path, expected):
    assert root_of(path) == expected


# After the pods ------------------------------------------------------------------------------------------------------------


def after(vfs: dict[str, str], devices: list[str], rules=(), addresses=()) -> dict:
    """Facts of a node: interfaces of VFs by address, and PCI addresses of RDMA devices."""
    netdevs = {name: {"pci": pci_, "addresses": []} for pci_, name in vfs.items()}
    for number in range(2):
        netdevs[f"rdma{number}"] = {"pci": PCI[number], "addresses": list(addresses)}
    found = {
        f"mlx5_{n}": {"pci": one, "function": "pf", "ports": {}, "netdev": None}
        for n, one in enumerate([*PCI, *devices])
    }
    return {"netdevs": netdevs, "devices": found, "routing": {"rules": list(rules), "reason": None}}


VFS = {f"{PCI[0][:-1]}2": "rdma0v0", f"{PCI[1][:-1]}3": "rdma1v0"}


def returned(before: dict, now: dict | None, holders=None) -> list[dict]:
    given = Context("node-a", intent(), facts=before, kubernetes={"holders": holders}, pod=flat(), returned=now)
    return evaluate([given], ["facts", "pod", "returned"], only=["RESOURCE-015", "RESOURCE-016"])


def test_devices_that_came_back():
    healthy = after(VFS, list(VFS))
    assert returned(healthy, copy.deepcopy(healthy)) == []


def test_a_node_that_was_not_read_again_is_unknown():
    rows = returned(after(VFS, list(VFS)), None)
    assert {row["severity"] for row in rows} == {"unknown"} and len(rows) == 2
    blind = {**after(VFS, list(VFS)), "devices": None, "reasons": {"devices": "no /sys"}}
    rows = [row for row in returned(after(VFS, list(VFS)), blind) if row["id"] == "RESOURCE-015"]
    assert [row["severity"] for row in rows] == ["unknown"] and "no /sys" in rows[0]["summary"]


def test_a_vf_that_did_not_come_back():
    one = dict(list(VFS.items())[:1])
    (row,) = returned(after(VFS, list(VFS)), after(one, list(one)))
    assert (row["id"], row["severity"], row["rail"]) == ("RESOURCE-015", "error", 1)
    assert row["evidence"]["missing"] == ["interface", "RDMA device"]
    (row,) = returned(after(VFS, list(VFS)), after(VFS, []))
    assert (row["rail"], row["evidence"]["each"][0]["missing"]) == (None, ["RDMA device"])


def test_a_vf_that_another_pod_may_have_is_unknown():
    (row,) = returned(after(VFS, list(VFS)), after({}, []), ["jobs/trainer-0"])
    assert row["severity"] == "unknown" and "jobs/trainer-0" in row["summary"]
    (row,) = returned(after(VFS, list(VFS)), after({}, []), [])
    assert row["severity"] == "error"


def test_fc46_a_vf_that_came_back_with_the_name_of_the_pod():
    names = dict(zip(VFS, ["net1", "rdma1v0"], strict=True))
    (row,) = returned(after(VFS, list(VFS)), after(names, list(VFS)))
    assert (row["severity"], row["rail"], row["evidence"]["after"]) == ("warning", 0, "net1")


def test_fc71_rules_and_addresses_that_are_gone():
    rule = {"family": "ipv4", "from": "198.51.100.5/32", "to": "all", "table": 100}
    held = address("198.51.100.5/24")
    before = after(VFS, list(VFS), [rule], [held])
    (row,) = returned(before, after(VFS, list(VFS)))
    assert (row["id"], row["severity"]) == ("RESOURCE-016", "warning")
    assert row["evidence"]["rules"] == [rule] and row["evidence"]["addresses"]["0"] == ["198.51.100.5"]
    assert returned(before, copy.deepcopy(before)) == []
    before["routing"] = {"rules": None, "reason": "x"}
    assert [row["severity"] for row in returned(before, after(VFS, list(VFS)))] == ["unknown"]
