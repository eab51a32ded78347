# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Network devices of this namespace that have to do with RDMA: addresses, VFs, QoS, and the sysctls that rails depend
on."""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.module_utils.host import pci
from ansible_collections.railyard.rdma.plugins.module_utils.network import qos
from ansible_collections.railyard.rdma.plugins.module_utils.rdma import counters
from ansible_collections.railyard.rdma.plugins.module_utils.rdma.devices import is_representor
from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree, number

_CLASS = "/sys/class/net"
_IPV4_CONF, _IPV6_CONF = "/proc/sys/net/ipv4/conf/", "/proc/sys/net/ipv6/conf/"
_MAXIMUM_OF_ALL = ("arp_ignore", "arp_announce", "rp_filter")
_ANY_OF_ALL = ("arp_filter", "accept_local")
_IPV6 = ("disable_ipv6", "accept_ra", "accept_ra_defrtr", "forwarding", "autoconf")


def choose(tree: Tree, links: dict | None, wanted) -> list[str]:
    """Return the names of the netdevs to describe, sorted: those with a device on a bus, those in ``wanted`` and the
    masters of both (bonds, VRFs, bridges). The virtual netdevs of pods are left out.

    :param links: links of this namespace (netlink.read_links), None when they could not be asked for.
    """
    # sysfs shows the namespace that it was mounted in, netlink ours.
    names = [name for name in tree.names(_CLASS) if links is None or name in links]
    chosen = {name for name in names if name in wanted or pci.device_of(tree, f"{_CLASS}/{name}")}
    todo = list(chosen)
    known = set(names)
    while todo:
        name = todo.pop()
        master = links[name]["master"] if links is not None else tree.link_name(f"{_CLASS}/{name}/master")
        if master in known and master not in chosen:
            chosen.add(master)
            todo.append(master)
    return sorted(chosen)


def read_netdevs(
    tree: Tree, names, links: dict | None, reason: str | None, with_counters: bool = False
) -> dict[str, dict]:
    """Describe netdevs by name.

    :param names: names of :func:`choose`.
    :param links: links of this namespace by name (netlink.read_links), with ``addresses`` and ``default_routes`` where
        they are known; None when they could not be asked for.
    :param reason: why links is None.
    :param with_counters: adds ``counters``, the statistics by priority (counters.read_netdev_counters).
    :returns: for each ``{pci, ifindex, kind, mac, mtu, state, master, vrf_table, altnames, representor, vf_of, plane,
        addresses, default_routes, sysctls, sriov, qos, reasons}``; addresses and default_routes are None when unknown. ``reasons``
        says why a value is None.
    """
    result: dict[str, dict] = {}
    everywhere: dict = {}
    tool = qos.MlnxQos()
    for name in names:
        directory = f"{_CLASS}/{name}"
        device = pci.device_of(tree, directory)
        function = pci.describe_function(tree, device)
        netdev = _read_netdev(tree, name, device, function, (links or {}).get(name), reason, everywhere)
        netdev["qos"] = qos.read_qos(tree, name, directory, function, tool)
        if with_counters:
            netdev["counters"], why = counters.read_netdev_counters(tree, name)
            netdev["reasons"].update({"counters": why} if why else {})
        result[name] = netdev
    qos.attach_pfs(result, {name: netdev["vf_of"] for name, netdev in result.items()})
    return result


def _read_netdev(
    tree: Tree, name: str, device: str, function: dict, link: dict | None, reason: str | None, everywhere: dict
) -> dict:
    directory = f"{_CLASS}/{name}"
    told, why = tree.attributes(directory, ("address", "mtu", "operstate", "ifindex", "phys_port_name"))
    why.pop("phys_port_name", None)
    netdev: dict = {
        "pci": function["pci"],
        "ifindex": link["index"] if link else number(told["ifindex"]),
        "kind": link["kind"] if link else None,
        "mac": told["address"],
        "mtu": link["mtu"] if link else number(told["mtu"]),
        "state": told["operstate"],
        "master": link["master"] if link else tree.link_name(directory + "/master"),
        "vrf_table": link["vrf_table"] if link else None,
        "altnames": link.get("altnames", []) if link else None,
        "representor": is_representor(told["phys_port_name"]),
        "vf_of": function["parent_pci"] if function["function"] == "vf" else None,
        "plane": function["plane"],
        "addresses": link.get("addresses") if link else None,
        "default_routes": link.get("default_routes") if link else None,
        "sysctls": read_sysctls(tree, name, everywhere),
        "sriov": read_sriov(tree, device) if device else None,
        "reasons": {},
    }
    missing = netdev["reasons"]
    for key, file in (("mac", "address"), ("mtu", "mtu"), ("state", "operstate"), ("ifindex", "ifindex")):
        if netdev[key] is None:
            missing[key] = why.get(file) or f"not understood: {told[file]!r:.60}"
    unasked = reason or "the kernel lists no such link in this namespace"
    if link is None:
        missing.update(dict.fromkeys(("kind", "vrf_table", "altnames", "addresses", "default_routes"), unasked))
    else:
        for key in ("addresses", "default_routes"):
            if netdev[key] is None:
                missing[key] = link.get("reason") or "not asked for"
    if netdev["pci"] is None:
        missing["pci"] = "virtual device"
    if netdev["sysctls"]["accepts_ra"] is None:
        missing["sysctls"] = f"/proc/sys/net/ipv6/conf/{name} is not readable (no IPv6, or an MTU below 1280)"
    return netdev


def read_sysctls(tree: Tree, name: str, everywhere: dict | None = None) -> dict:
    """Return the effective values of a netdev's sysctls; None for one that cannot be told.

    Its own value alone proves nothing. include/linux/inetdevice.h: arp_ignore, arp_announce and rp_filter are the
    larger of "all" and the interface (IN_DEV_MAXCONF); arp_filter and accept_local are on when either is
    (IN_DEV_ORCONF). For IPv6 the interface's value counts, and writing to "all" writes to every interface
    (net/ipv6/addrconf.c). accepts_ra follows from them as in ipv6_accept_ra() of include/net/ipv6.h: with forwarding on
    only accept_ra 2 accepts router advertisements.

    :param everywhere: keeps the values of "all" between calls.
    """
    everywhere = {} if everywhere is None else everywhere
    if not everywhere:
        everywhere.update(tree.attributes(_IPV4_CONF + "all", _MAXIMUM_OF_ALL + _ANY_OF_ALL)[0])
    four, _why = tree.attributes(_IPV4_CONF + name, _MAXIMUM_OF_ALL + _ANY_OF_ALL)
    six, _why = tree.attributes(_IPV6_CONF + name, _IPV6)
    values: dict = {}
    for key in _MAXIMUM_OF_ALL:
        both = (number(everywhere[key]), number(four[key]))
        values[key] = None if None in both else max(both)
    for key in _ANY_OF_ALL:
        both = (number(everywhere[key]), number(four[key]))
        values[key] = 1 if any(both) else None if None in both else 0
    values.update({key: number(six[key]) for key in _IPV6})
    values["accepts_ra"] = accepts_ra(values["accept_ra"], values["forwarding"], values["disable_ipv6"])
    return values


def accepts_ra(accept_ra: int | None, forwarding: int | None, disable_ipv6: int | None) -> bool | None:
    """Tell whether router advertisements are accepted, and with them SLAAC addresses and default routes; None when the
    known values do not decide it. See siderolabs/talos#3841 for what happens when forwarding is switched on later."""
    if accept_ra == 0 or disable_ipv6 or (forwarding and accept_ra not in (None, 2)):
        return False
    if accept_ra is None or disable_ipv6 is None or (forwarding is None and accept_ra != 2):
        return None
    return True


def read_sriov(tree: Tree, device: str) -> dict | None:
    """Return ``{total, num, vfs: [{index, pci, netdev, device}]}`` of a PF, None for a function that cannot have VFs.

    netdev and device (RDMA) of a VF are None while they are in another network namespace.
    """
    total = tree.integer(device + "/sriov_totalvfs")
    if total is None:
        return None
    vfs = []
    directory = tree.inside(device)
    for index, address in pci.virtual_functions(tree, directory):
        home = f"{directory}/virtfn{index}"
        netdevs, rdma = tree.names(home + "/net"), tree.names(home + "/infiniband")
        vfs.append(
            {
                "index": index,
                "pci": address,
                "netdev": netdevs[0] if len(netdevs) == 1 else None,
                "device": rdma[0] if len(rdma) == 1 else None,
            }
        )
    return {"total": total, "num": tree.integer(device + "/sriov_numvfs"), "vfs": vfs}
