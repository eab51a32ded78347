# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Facts of one pod from the probe's records, in the shapes of the node facts (``devices`` and ``netdevs``)."""

from __future__ import annotations

import re

from ansible_collections.railyard.rdma.plugins.module_utils.cluster import addresses
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.probe import UNREADABLE, Records, parse_records
from ansible_collections.railyard.rdma.plugins.module_utils.gid import best_gid_index, gid_row
from ansible_collections.railyard.rdma.plugins.module_utils.traffic_class import parse_traffic_class

PCI = re.compile(r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")
SYSCTLS = ("arp_ignore", "arp_announce", "rp_filter")
NET, IB, CONF4, CONF6 = "/sys/class/net", "/sys/class/infiniband", "/proc/sys/net/ipv4/conf", "/proc/sys/net/ipv6/conf"
MODES = {"Y": "shared", "1": "shared", "N": "exclusive", "0": "exclusive"}


def pod_facts(output):
    """Facts of a pod from the probe's output.

    Returns ``{netns_mode, devices, netdevs, sysctls, device_files, memlock_kib, addresses_unknown, reasons}``; values
    that could not be read are None
    and ``reasons`` is ``{path: why}``. Raises ProbeError for output that is cut or is not the probe's.
    """
    records = Records(parse_records(output))
    mode = records.text("/sys/module/ib_core/parameters/netns_mode")
    found, homeless = pod_addresses(records)
    names = records.names(NET)
    netdevs = {name: netdev(records, name, found.get(name, [])) for name in names or []}
    device_names = records.names(IB)
    if device_names is None:
        records.reasons[IB] = f"{IB} is not there: no RDMA subsystem in this kernel, or /sys is not mounted"
    if homeless:
        records.reasons["/proc/net/fib_trie"] = (
            f"the image has no 'ip' and several interfaces share a subnet: "
            f"the interface of {', '.join(homeless)} is not known"
        )
    return {
        "netns_mode": None if mode is None else MODES.get(mode.strip()),
        "devices": {name: device(records, name, netdevs, names) for name in device_names or []},
        "netdevs": netdevs,
        "sysctls": {scope: sysctls(records, scope) for scope in ("all", "default")},
        "device_files": records.names("/dev/infiniband"),
        "memlock_kib": memlock(records),
        "addresses_unknown": homeless,
        "reasons": records.reasons,
    }


def pod_addresses(records):
    """({netdev: [address]}, [IPv4 address whose interface is not known])."""
    by_ip = records.text("ip")
    if by_ip:
        return addresses.from_ip(by_ip.split("\n")), []
    found = addresses.from_if_inet6((records.text("/proc/net/if_inet6") or "").split("\n"))
    four, homeless = addresses.ipv4_from_proc(
        (records.text("/proc/net/fib_trie") or "").split("\n"), (records.text("/proc/net/route") or "").split("\n")
    )
    for name, entries in four.items():
        found[name] = entries + found.get(name, [])
    return found, homeless


def memlock(records):
    """Limit of locked memory of a process in the pod in KiB, "unlimited", or None (the shell has no ``ulimit -l``)."""
    text = (records.text("memlock") or "").strip()
    if text == "unlimited":
        return text
    return int(text) if text.isdigit() else None


def sysctls(records, scope):
    values = {key: records.number(f"{CONF4}/{scope}/{key}") for key in SYSCTLS}
    values["disable_ipv6"] = records.number(f"{CONF6}/{scope}/disable_ipv6")
    return values


def pci_of(records, path):
    """PCI address and the folder it stands in, of a ``device`` link; (None, None) for a device that is not on PCI."""
    place = records.text(path)
    name = (place or "").rpartition("/")[2]
    return (name, place) if PCI.match(name) else (None, None)


def netdev(records, name, entries):
    base = f"{NET}/{name}"
    return {
        "pci": pci_of(records, base + "/device")[0],
        "mac": (records.text(base + "/address") or "").strip() or None,
        "mtu": records.number(base + "/mtu"),
        "operstate": (records.text(base + "/operstate") or "").strip() or None,
        "ifindex": records.number(base + "/ifindex"),
        "iflink": records.number(base + "/iflink"),
        "addresses": entries,
        "sysctls": sysctls(records, name),
    }


def device(records, name, netdevs, names):
    """One RDMA device. In a pod the netdev is the one on the same PCI function, else the one that its usable GIDs
    name (IPvlan)."""
    base = f"{IB}/{name}"
    pci, place = pci_of(records, base + "/device")
    numbers = sorted(
        {
            int(match.group(1))
            for match in (re.match(re.escape(base) + r"/ports/(\d+)/gids$", path) for path in records.paths())
            if match
        }
    )
    ports = {number: port(records, name, number, names) for number in numbers}
    owned = [n for n, entry in netdevs.items() if pci is not None and entry["pci"] == pci]
    usable = [r["netdev"] for p in ports.values() for r in p["gids"] if r["usable"] and r["netdev"]]
    return {
        "pci": pci,
        "pci_path": place,
        "netdev": next(iter(owned or usable), None),
        "numa_node": records.number(base + "/device/numa_node"),
        "firmware": (records.text(base + "/fw_ver") or "").strip() or None,
        "node_guid": (records.text(base + "/node_guid") or "").strip() or None,
        "ports": ports,
    }


def after_colon(text):
    """``4: ACTIVE`` as sysfs writes states: the word after the number."""
    return None if text is None else text.partition(":")[2].strip() or text.strip() or None


def rate(text):
    """Gb/s of ``100 Gb/sec (2X HDR)``; None when it is something else."""
    match = re.match(r"\s*(\d+(?:\.\d+)?)\s*Gb/sec", text or "")
    return float(match.group(1)) if match else None


def port(records, name, number, names):
    base = f"{IB}/{name}/ports/{int(number)}"
    layer = (records.text(base + "/link_layer") or "").strip() or None
    rows, zero = gid_table(records, base, names, layer)
    path = f"{IB}/{name}/tc/{int(number)}/traffic_class"
    if records.state(path) == UNREADABLE:
        records.text(path)
        forced = {"state": None, "value": None, "rules": [], "reason": f"{path} exists and cannot be read"}
    else:
        forced = parse_traffic_class(records.text(path))
    return {
        "link_layer": layer,
        "state": after_colon(records.text(base + "/state")),
        "phys_state": after_colon(records.text(base + "/phys_state")),
        "rate_gbps": rate(records.text(base + "/rate")),
        "gids": rows,
        "gid_table": {"rows": len(rows) + zero, "zero": zero},
        "gid_index": best_gid_index(rows),
        "traffic_class": forced,
        "rdma_cm_tos": records.number(f"/sys/kernel/config/rdma_cm/{name}/ports/{int(number)}/default_roce_tos"),
    }


def gid_table(records, base, names, layer):
    """([row of each GID that is not zero], number of zero rows). The probe leaves zero rows out: they have no
    attributes."""
    rows, zero = [], 0
    for entry in sorted(records.names(base + "/gids") or [], key=lambda n: (not n.isdigit(), n.zfill(8))):
        if not entry.isdigit():
            continue
        path = f"{base}/gids/{entry}"
        if path not in records.paths():
            zero += 1
            continue
        gid = records.text(path)
        row = gid_row(
            int(entry),
            gid or "",
            records.text(f"{base}/gid_attrs/types/{entry}"),
            records.text(f"{base}/gid_attrs/ndevs/{entry}"),
            names,
            layer,
        )
        if gid is None:
            row.update(usable=None, reason="the GID cannot be read")
        rows.append(row)
    return rows, zero
