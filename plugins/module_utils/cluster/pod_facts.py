# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Facts of one pod from the probe's output, in the shapes of the node facts (``devices`` and ``netdevs``)."""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.module_utils.cluster import addresses, pod_process, pod_routes, probe
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.probe_tree import ProbeTree
from ansible_collections.railyard.rdma.plugins.module_utils.host import pci
from ansible_collections.railyard.rdma.plugins.module_utils.netns import netns_mode
from ansible_collections.railyard.rdma.plugins.module_utils.network.netdevs import read_sysctls
from ansible_collections.railyard.rdma.plugins.module_utils.rdma.devices import read_devices
from ansible_collections.railyard.rdma.plugins.module_utils.rdma.gid import best_gid_index

NET, IB = "/sys/class/net", "/sys/class/infiniband"


def pod_facts(output):
    """Facts of a pod.

    :param output: what the probe printed.
    :returns: ``{netns_mode, devices, netdevs, routing, device_files, memlock, gpus, environment, addresses_unknown,
        reasons}``. Each port has ``gid_index``, the row that an application should use (None: there is none).
        ``reasons`` says why a value is None. ``addresses_unknown`` lists the IPv4 addresses of which the image cannot
        tell the interface.
    :raises ProbeError: the output is cut, or is not the probe's.
    """
    tree = ProbeTree(probe.parse_records(output))
    reasons = {}
    names = tree.names(NET) if tree.state(NET) == probe.DIR else None
    if names is None:
        reasons["netdevs"] = f"{NET} is not there: is /sys mounted in the pod?"
    if tree.state(IB) != probe.DIR:
        reasons["devices"] = f"{IB} is not there: ib_core is not loaded, or /sys is not mounted in the pod"
    found, homeless = pod_addresses(tree)
    if homeless:
        reasons["addresses"] = (
            "the image has no 'ip', and several interfaces share a subnet: no interface is known for "
            + ", ".join(homeless)
        )
    devices, everywhere = read_devices(tree, names, {}), {}
    for device in devices.values():
        for port in device["ports"].values():
            port["gid_index"] = best_gid_index(port["gids"])
    if tree.state("/dev/infiniband") != probe.DIR:
        reasons["device_files"] = "/dev/infiniband is not there: no device plugin gave the pod an RDMA device"
    memlock = pod_process.memory_lock(tree)
    if memlock["soft_kib"] is None:
        reasons["memlock"] = "the image's shell has no 'ulimit -l'"
    gpus, no_gpus = pod_process.gpus(tree)
    if no_gpus:
        reasons["gpus"] = no_gpus
    mode = tree.text(netns_mode.LIVE_FILE)
    shared = None if mode is None else netns_mode.parse_boolean(mode)
    return {
        "netns_mode": None if shared is None else "shared" if shared else "exclusive",
        "devices": devices,
        "netdevs": {name: netdev(tree, name, found.get(name, []), everywhere) for name in names or []},
        "routing": pod_routes.routing(tree),
        "device_files": None if "device_files" in reasons else pod_process.device_files(tree),
        "memlock": memlock,
        "gpus": gpus,
        "environment": pod_process.environment(tree),
        "addresses_unknown": homeless,
        "reasons": reasons,
    }


def pod_addresses(tree):
    """({netdev: [address]}, [IPv4 address whose interface is not known])."""
    by_ip = tree.lines("ip")
    if by_ip:
        return addresses.from_ip(by_ip), []
    found = addresses.from_if_inet6(tree.lines("/proc/net/if_inet6"))
    four, homeless = addresses.ipv4_from_proc(tree.lines("/proc/net/fib_trie"), tree.lines("/proc/net/route"))
    for name, entries in four.items():
        found[name] = entries + found.get(name, [])
    return found, homeless


def netdev(tree, name, entries, everywhere):
    """One interface of the pod, with the sysctls as they take effect in its network namespace."""
    base = f"{NET}/{name}"
    device = base + "/device"
    function = pci.describe_function(tree, tree.inside(device) if tree.state(device) == probe.LINK else "")
    return {
        "pci": function["pci"],
        "parent_pci": function["parent_pci"],
        "mac": tree.text(base + "/address"),
        "mtu": tree.integer(base + "/mtu"),
        "state": tree.text(base + "/operstate"),
        "ifindex": tree.integer(base + "/ifindex"),
        "iflink": tree.integer(base + "/iflink"),
        "addresses": entries,
        "sysctls": read_sysctls(tree, name, everywhere),
    }
