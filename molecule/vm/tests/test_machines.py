# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares the facts of the collection with what rdma, ip and sysfs say on a real kernel, and looks at what the plays did.

One round trip a source: emulated CPUs are slow.
"""

from __future__ import annotations

import ipaddress
import json
import os
from pathlib import Path

import pytest

PFS = {f"rdma{rail}": f"0000:0{rail + 1}:00.0" for rail in range(4)}
ZERO = ":".join(["0000"] * 8)


def tool(host, command):
    return json.loads(host.check_output(command) or "[]")


def kept(host, where):
    """What side_effect.yml has read on the machine, on both at the same time."""
    folder = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
    return json.loads((folder / f"{host.ansible.get_variables()['inventory_hostname']}.facts.json").read_text())[where]


@pytest.fixture
def facts(host):
    return kept(host, "host")


@pytest.fixture
def pod_facts(host):
    """The facts as a process in the pod's network namespace reads them."""
    return kept(host, "pod")


@pytest.fixture
def wanted(host):
    return host.ansible.get_variables()["rails_netns_mode"]


def table_of(host, namespace=""):
    """{device: {row: (gid, type, netdev)}} of all rows that hold a GID, read by a shell."""
    enter = f"ip netns exec {namespace} " if namespace else ""
    # A row that may not be read ends in EINVAL: grep -s says nothing then.
    places = "/sys/class/infiniband/*/ports/1/gids/* /sys/class/infiniband/*/ports/1/gid_attrs/*/*"
    text = host.run(f"{enter}sh -c 'grep -s . {places}'").stdout
    found = {}
    for line in text.splitlines():
        path, _, value = line.partition(":")
        words = path.split("/")
        row = found.setdefault(words[4], {}).setdefault(int(words[-1]), {})
        row[words[-2]] = value
    return {
        device: {
            index: (row["gids"], row.get("types"), row.get("ndevs"))
            for index, row in rows.items()
            if row.get("gids", ZERO) != ZERO
        }
        for device, rows in found.items()
    }


def table_in(facts):
    return {
        name: {
            row["index"]: (row["gid"], {"RoCE v1": "IB/RoCE v1"}.get(row["type"], row["type"]), row["netdev"])
            for row in device["ports"]["1"]["gids"]
        }
        for name, device in facts["devices"].items()
    }


def gid_of(address):
    high, low = divmod(int(ipaddress.IPv4Address(address)), 1 << 16)
    return f"0000:0000:0000:0000:0000:ffff:{high:04x}:{low:04x}"


def children(host):
    """Addresses of the pod's interfaces by PF: one on each rail."""
    number = 100 + host.ansible.get_variables()["vm_number"]
    return {name: f"10.224.{rail}.{number}" for rail, name in enumerate(PFS)}


def test_devices_and_netdevs_are_those_of_rdma_link(host, facts):
    said = {row["ifname"]: row["netdev"] for row in tool(host, "rdma -j link show")}
    assert {f"rxe_{name}" for name in PFS} <= said.keys()
    assert {name: device["netdev"] for name, device in facts["devices"].items()} == said
    states = {row["ifname"]: row["state"] for row in tool(host, "rdma -j link show")}
    assert {name: device["ports"]["1"]["state"] for name, device in facts["devices"].items()} == states
    guids = {row["ifname"]: row["node_guid"] for row in tool(host, "rdma -j dev show")}
    assert {name: device["node_guid"] for name, device in facts["devices"].items()} == guids


def test_netns_mode_is_that_of_rdma_system_and_the_wanted_one(host, facts, wanted):
    # Without -j: rdma of iproute2 6.1 prints no JSON here.
    assert host.check_output("rdma system show").startswith(f"netns {wanted} ")
    mode = facts["netns_mode"]
    assert (mode["live"], mode["configured"], mode["next_boot"], mode["reboot_required"]) == (
        wanted,
        wanted,
        wanted,
        False,
    )


def test_boot_loader_of_the_machine_is_understood(host, facts):
    kernel = host.check_output("uname -r")
    (image,) = facts["boot_images"]
    assert (image["kernel"], image["default"], image["whole"], image["stale"]) == (kernel, True, True, False)
    assert (
        image["builder"]
        == {"vm-initramfs": "initramfs-tools", "vm-dracut": "dracut"}[host.check_output("cat /etc/hostname")]
    )
    assert facts["netns_mode"]["next_kernel_line"] is None
    # The line that GRUB gave to this kernel does not set the mode.
    assert "netns_mode" not in host.check_output("cat /proc/cmdline")


def test_gid_tables_are_those_of_sysfs(host, facts):
    said = table_of(host)
    assert all(said[f"rxe_{name}"] for name in PFS)
    assert table_in(facts) == said


def test_netdevs_are_those_of_ip(host, facts):
    said = {row["ifname"]: row for row in tool(host, "ip -j address show")}
    assert PFS.keys() <= facts["netdevs"].keys()
    for name, netdev in facts["netdevs"].items():
        row = said[name]
        assert (netdev["mtu"], netdev["mac"], netdev["ifindex"]) == (row["mtu"], row["address"], row["ifindex"]), name
        have = {f"{address['local']}/{address['prefixlen']}" for address in row["addr_info"]}
        assert set(addresses_of(netdev)) == have, name


def addresses_of(netdev):
    return [
        entry if isinstance(entry, str) else f"{entry['address']}/{entry['prefix']}" for entry in netdev["addresses"]
    ]


def test_pfs_and_vfs_are_those_of_sysfs(host, facts):
    for name, address in PFS.items():
        place = f"/sys/bus/pci/devices/{address}"
        listing = host.check_output(
            f"cat {place}/sriov_totalvfs {place}/sriov_numvfs; for link in {place}/virtfn*; do "
            "[ -e $link ] && basename $(readlink -f $link) && ls $link/net && basename $(readlink -f $link/physfn); done; true"
        ).split()
        total, number, links = int(listing[0]), int(listing[1]), listing[2:]
        assert number == (2 if name == "rdma1" else 0)
        netdev = facts["netdevs"][name]
        assert netdev["pci"] == address
        assert (netdev["sriov"]["total"], netdev["sriov"]["num"]) == (total, number)
        vfs = [(vf["pci"], vf["netdev"], address) for vf in netdev["sriov"]["vfs"]]
        assert vfs == [tuple(links[start : start + 3]) for start in range(0, len(links), 3)]
        for index, (pci, vf, _) in enumerate(vfs):
            device = facts["devices"][f"rxe_{vf}"]
            assert device["netdev"] == vf
            assert device["netdev_pci"] == pci, index
            assert facts["netdevs"][vf]["vf_of"] == address


def test_interfaces_of_the_pod_are_those_of_the_rendered_networks(host, pod_facts, wanted):
    said = {row["ifname"]: row for row in tool(host, "ip -netns pod -d -j address show")}
    addresses = list(children(host).values())
    assert [row["addr_info"][0]["local"] for name, row in sorted(said.items()) if name != "lo"] == addresses
    for number, address in enumerate(addresses, 1):
        name = f"net{number}"
        assert said[name]["linkinfo"]["info_kind"] == "ipvlan"
        if wanted == "exclusive":
            continue  # no device of the pod's, so the facts, which follow devices, do not hold its interfaces
        netdev = pod_facts["netdevs"][name]
        assert f"{address}/24" in addresses_of(netdev)
        # Of the tuning plugin in the chain; the last one, sbr, gives each interface a table of its own.
        assert (netdev["sysctls"]["arp_ignore"], netdev["sysctls"]["arp_announce"]) == (1, 2)
    rules = host.check_output("ip -netns pod rule show")
    assert all(f"from {address} lookup" in rules for address in addresses)


def test_children_of_another_namespace_have_their_rows(host, facts):
    tables = table_of(host)
    for name, address in children(host).items():
        device, gid = f"rxe_{name}", gid_of(address)
        said = {index: row for index, row in tables[device].items() if row[0] == gid}
        rows = [row for row in facts["devices"][device]["ports"]["1"]["gids"] if row["gid"] == gid]
        assert {row["index"] for row in rows} == set(said)
        assert said, "the kernel made no row for the child"
        for row in rows:
            # Its netdev is in the pod's namespace, so nobody here can use the row.
            assert row["usable"] is False, row
            assert row["reason"]


def test_pod_sees_what_the_mode_allows(host, pod_facts, wanted):
    said = host.check_output("ip netns exec pod ls /sys/class/infiniband").split()
    assert sorted(pod_facts["devices"]) == sorted(said)
    # Exclusive: devices of the host's namespace are hidden. Shared: all are there, the rows of the pod's interfaces usable.
    if wanted == "exclusive":
        assert said == []
        return
    assert table_in(pod_facts) == table_of(host, "pod")
    usable = {
        (name, row["gid"])
        for name, device in pod_facts["devices"].items()
        for row in device["ports"]["1"]["gids"]
        if row["usable"] and row["type"] == "RoCE v2" and row["scope"] == "ipv4"
    }
    assert usable == {(f"rxe_{name}", gid_of(address)) for name, address in children(host).items()}


def test_one_boot_with_the_fault_and_one_for_the_cure(host):
    boots = host.check_output("cat /var/log/boots").split()
    assert len(boots) == len(set(boots)) == 2, boots
    assert boots[-1] == host.check_output("cat /proc/sys/kernel/random/boot_id")


def test_image_holds_the_option_as_its_own_tool_sees_it(host, wanted):
    value = {"shared": "1", "exclusive": "0"}[wanted]
    machine = host.check_output("cat /etc/hostname")
    if machine == "vm-dracut":
        text = host.check_output("lsinitrd -f etc/modprobe.d/ib_core.conf /boot/initrd.img-$(uname -r)")
    else:
        script = "d=$(mktemp -d) && unmkinitramfs /boot/initrd.img-$(uname -r) $d && cat $d/etc/modprobe.d/ib_core.conf && rm -r $d"
        text = host.check_output(script)
    assert f"options ib_core netns_mode={value}" in text.splitlines()


def test_nothing_is_left_behind(host):
    assert (
        host.check_output(
            "find /boot /etc/modprobe.d -name '*railyard*' -o -name '*.new' -o -name '*~' -o -name '*.tmp'"
        )
        == ""
    )


def test_machines_reach_each_other_on_the_rails(host):
    peer = 3 - host.ansible.get_variables()["vm_number"]
    # Not rail 1: a PF of QEMU's igb may not hear broadcasts while it has VFs.
    for rail in (0, 2, 3):
        host.check_output(f"ping -c 1 -w 30 10.224.{rail}.{peer}")  # until the first answer
