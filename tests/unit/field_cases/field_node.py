# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A healthy node with two rails as files, and its findings by the real facts and rules.

Facts come from ``node_facts.gather`` over the files. What only a running kernel tells (links, addresses, routes, rules,
device files) is given to it in the place of netlink and /dev; what ``mlnx_qos`` prints goes through its parser.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from pathlib import Path
from unittest import mock

from ansible_collections.railyard.rdma.plugins.module_utils import node_facts
from ansible_collections.railyard.rdma.plugins.module_utils.network import dcb, netlink, routing
from ansible_collections.railyard.rdma.plugins.module_utils.rdma import driver
from ansible_collections.railyard.rdma.plugins.plugin_utils import rail_model
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.evaluate import evaluate
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import Context
from ansible_collections.railyard.rdma.tests.unit.plugins.module_utils.node_tree import (
    BRIDGE,
    NodeTree,
    four_rows,
    image,
)

PCI = ["0000:0c:00.0", "0000:0c:00.1"]
GPU = "0000:0f:00.0"
KERNEL = "6.8.0-1"
LIVE = "/sys/module/ib_core/parameters/netns_mode"
UNIT = "/usr/lib/systemd/system/{}.service"
OURS = "/etc/modprobe.d/ib_core.conf"
# Of the nodes of a test run, whose MAC addresses must differ.
SERIAL = itertools.count()
VALUE = {"shared": "1", "exclusive": "0"}
# RoCE v2 GIDs of 198.51.100.6 and 198.51.101.6.
ADDRESSES = ["198.51.100.6", "198.51.101.6"]
PRIORITY_0 = """DCBX mode: OS controlled
Priority trust state: dscp
dscp2prio mapping:
\tprio:0 dscp:10,
\tprio:1 dscp:00,01,02,03,04,05,06,07,
\tprio:5 dscp:26,
PFC configuration:
\tpriority    0   1   2   3   4   5   6   7
\tenabled     1   0   0   0   0   1   0   0
\tbuffer      1   0   0   0   0   1   0   0
"""


def mapped(address: str) -> str:
    """The GID of an IPv4 address in the long form of sysfs."""
    digits = "".join(f"{int(part):02x}" for part in address.split("."))
    return f"0000:0000:0000:0000:0000:ffff:{digits[:4]}:{digits[4:]}"


def address(text: str, **changes) -> dict:
    """An address as netlink.parse_address gives it."""
    plain, _slash, prefix = text.partition("/")
    scope = "link" if plain.startswith("fe80") else "global"
    row = {"address": plain, "prefix": int(prefix), "family": "ipv6" if ":" in plain else "ipv4", "scope": scope}
    flags = {"dynamic": False, "tentative": False, "temporary": False, "deprecated": False, "origin": None}
    return {**row, **flags, **changes}


def default_route(gateway: str, origin: str, table: int = 254, metric: int = 1024) -> dict:
    """A default route as routing.parse_default_route gives it."""
    family = "ipv6" if ":" in gateway else "ipv4"
    return {"family": family, "gateway": gateway, "metric": metric, "table": table, "origin": origin}


def source_rule(source: str, table: int) -> dict:
    """A policy rule as routing.parse_rule gives it."""
    family = "ipv6" if ":" in source else "ipv4"
    return {"family": family, "priority": 100, "from": source, "to": "all", "table": table, "action": "lookup"}


class FieldNode(NodeTree):
    """A node on which nothing is wrong, until a test changes it.

    ``links`` are the kernel's answers by netdev (``addresses``, ``default_routes``, and more keys of a link), ``rules``
    its policy rules, ``device_files`` the names in /dev/infiniband, ``mlnx_qos`` what the tool prints by netdev.
    """

    def __init__(self, root: Path, mode: str = "shared") -> None:
        super().__init__(root)
        self.serial = next(SERIAL)
        self.links: dict[str, dict] = {}
        self.rules: list[dict] = []
        self.device_files: list[str] | None = ["rdma_cm", "uverbs0", "uverbs1"]
        self.stale_cdi: list[dict] = []
        self.mlnx_qos: dict[str, str] = {}
        self.add(
            f"""
            {LIVE} = {"Y" if mode == "shared" else "N"}
            /sys/module/ib_core/initstate = live
            /sys/module/mlx_compat/version = 24.10-1.1.4
            /sys/module/mlx5_core/version = 24.10-1.1.4
            /sys/module/ib_uverbs/initstate = live
            /sys/module/rdma_ucm/initstate = live
            /sys/kernel/security/lockdown = [none] integrity confidentiality
            /proc/cmdline = root=/dev/sda1
            /proc/kallsyms = 0000 t rdma_check_gid_user_access\t[ib_core]
            /proc/sys/kernel/random/boot_id = 28d3acf0-6be4-495e-904c-e4e4110be598
            {OURS} = options ib_core netns_mode={VALUE[mode]}
            /usr/sbin/update-initramfs = x
            /lib/modules/{KERNEL}/modules.dep =
            /lib/modules/{KERNEL}/modules.builtin =
            /boot/vmlinuz-{KERNEL} = x
            {UNIT.format("containerd")} = [Service]\\nLimitMEMLOCK=infinity
            """
        )
        self.boot_image(mode)
        for scope in ("all", "default"):
            self.sysctls(scope)
        for number, pci in enumerate(PCI):
            self.rail(number, pci)
        gpu = self.function(GPU)
        self.add(f"{gpu}/class = 0x030200\n{gpu}/vendor = 0x10de\n{gpu}/device = 0x20b0")

    def boot_image(self, mode: str | None, kernel: str = KERNEL) -> None:
        """Build the image of a kernel with the option inside; None: it carries no option."""
        option = None if mode is None else f"options ib_core netns_mode={VALUE[mode]}\n"
        (self.root / f"boot/initrd.img-{kernel}").write_bytes(image(option, kernel))

    def sysctls(self, scope: str, **changes: int) -> None:
        """Write the sysctls of a scope or netdev that the facts look at."""
        four = {"arp_ignore": 1, "arp_announce": 2, "rp_filter": 0, "arp_filter": 0, "accept_local": 0}
        six = {"disable_ipv6": 0, "accept_ra": 1, "accept_ra_defrtr": 1, "forwarding": 0, "autoconf": 1}
        for family, values in (("ipv4", four), ("ipv6", six)):
            for key, value in values.items():
                self.write(f"/proc/sys/net/{family}/conf/{scope}/{key}", str(changes.get(key, value)))

    def rail(self, number: int, pci: str, netdev: str | None = None, device: str | None = None) -> None:
        """Add a rail's PF with its netdev and RDMA device."""
        name, device = netdev or f"rdma{number}", device or f"mlx5_{number}"
        home = self.function(pci, name)
        self.add(f"{home}/sriov_totalvfs = 8\n{home}/sriov_numvfs = 0")
        net = f"{home}/net/{name}"
        self.add(f"{net}/address = 0c:42:a1:{self.serial >> 8:02x}:{self.serial & 255:02x}:{number:02x}")
        self.add(f"{net}/qos/trust = dscp\n{net}/ecn/roce_np/cnp_dscp = 48\n{net}/ecn/roce_np/cnp_802p_prio = 6")
        for side in ("roce_np", "roce_rp"):
            for priority in range(8):
                self.add(f"{net}/ecn/{side}/enable/{priority} = 1")
        place = self.rdma(home, device, four_rows(name, mapped(ADDRESSES[number])))
        self.add(f"{place}/tc/1/traffic_class =")
        self.sysctls(name)
        self.links[name] = {"addresses": [address(f"{ADDRESSES[number]}/24"), address(f"fe80::{number + 1}/64")]}
        self.mlnx_qos[name] = PRIORITY_0

    def write(self, path: str, text: str) -> None:
        """Write a file anew."""
        self._place(path).write_text(f"{text}\n")

    def gids(self, number: int, rows: dict) -> None:
        """Replace the GID table of a rail's device: ``{index: (gid, type, netdev)}``; other rows are empty."""
        port = f"{BRIDGE}/{PCI[number]}/infiniband/mlx5_{number}/ports/1"
        for index in range(16):
            gid, kind, netdev = rows.get(index, ("0000:0000:0000:0000:0000:0000:0000:0000", None, None))
            self.write(f"{port}/gids/{index}", gid)
            for name, text in (("types", kind), ("ndevs", netdev)):
                place = f"{port}/gid_attrs/{name}/{index}"
                self.errors.pop(str(self.root) + place, None)
                if text is None:
                    self.add(f"{place} ! EINVAL")
                else:
                    self.write(place, text)

    def facts(self, rails: list[dict] | None = None) -> dict:
        """The facts, as the module returns them."""
        names = {name: place for place, name in enumerate(self.links, start=2)}
        links = {
            name: {
                "index": names[name],
                "mtu": int((self.root / f"sys/class/net/{name}/mtu").read_text()),
                "up": True,
                "master": None,
                "kind": None,
                "vrf_table": None,
                "altnames": [],
                **{key: value for key, value in link.items() if key not in ("addresses", "default_routes")},
            }
            for name, link in self.links.items()
        }

        def answers(key):
            return lambda wanted: {names[n]: self.links[n].get(key, []) for n in names if names[n] in wanted}

        with contextlib.ExitStack() as stack:
            for owner, name, value in (
                (node_facts, "read_links", lambda tree: (links, None)),
                (netlink, "read_addresses", answers("addresses")),
                (routing, "read_default_routes", answers("default_routes")),
                (node_facts, "read_routing", lambda tree: {"rules": self.rules, "reason": None}),
                (driver, "read_character_devices", lambda tree: (self.device_files, None)),
                (driver, "stale_cdi", lambda tree: self.stale_cdi),
            ):
                stack.enter_context(mock.patch.object(owner, name, value))
            facts = node_facts.gather(self.tree(), rails or layout()["rails"])
        for name, text in self.mlnx_qos.items():
            told, qos = dcb.parse_mlnx_qos(text), facts["netdevs"].get(name, {}).get("qos", {})
            qos.update({key: told[key] for key in ("pfc", "dscp_to_priority", "dcbx")})
        return json.loads(json.dumps(facts))


def layout(**variables) -> dict:
    """The layout that the intent gives a node with these rails; variables are those of a site, without ``rails_``."""
    rails = [{"pci": pci, "netdev": f"rdma{number}", "gpu_pci": GPU} for number, pci in enumerate(PCI)]
    intent = {
        "rails": rails,
        "rails_network": "sriov",
        "rails_netns_mode": "shared",
        "rails_mtu": 4220,
        "rails_ip_family": "ipv4",
        "rails_traffic_class": 41,
        "rails_node_selector": {"rack": "a"},
        **{"rails" if name == "rails" else f"rails_{name}": value for name, value in variables.items()},
    }
    model, mistakes = rail_model.build({"node-a": intent})
    assert model is not None, [str(mistake) for mistake in mistakes]
    return model["layouts"][0]


def context(node: FieldNode | dict, intent: dict | None = None, name: str = "node-a", **more) -> Context:
    """What the rules get of a node; ``node`` may be its facts."""
    facts = node if isinstance(node, dict) else node.facts()
    return Context(name, intent or layout(), facts, **more)


def findings(*contexts: Context) -> list[dict]:
    """Findings by the facts alone."""
    return evaluate(contexts, ["facts"])


def found(*contexts: Context) -> list[tuple]:
    """(id, severity, rail) of the findings."""
    return [(item["id"], item["severity"], item["rail"]) for item in findings(*contexts)]


def only(rule_id: str, *contexts: Context) -> dict:
    """The single finding that there is, which must have this id."""
    (item,) = findings(*contexts)
    assert item["id"] == rule_id, item
    return item
