# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a port does with the class of a packet: trust state, DSCP to priority, PFC, ECN.

Each value is asked of the driver's files first (DOCA-OFED has them), then of the kernel by DCB netlink, at last of
``mlnx_qos``, and ``source`` names the one that answered. These are settings of the port, so a PF on the host has them
and a VF has none: a VF's ``qos_of`` names the netdev that holds them.
"""

from __future__ import annotations

import re
import shutil
import subprocess

from ansible_collections.railyard.rdma.plugins.module_utils.network import dcb
from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree

_TOOL = "mlnx_qos"
_TOOL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TOOL_SECONDS = 20.0
_TOOL_DRIVER = "mlx5_core"
_DSCP_PAIR = re.compile(r"([0-9]{1,2})\s*[:=]\s*([0-7])")
_DSCP_ROW = re.compile(r"([0-9]{1,2})[ \t]+([0-7])")
_PRIORITIES = tuple(str(priority) for priority in range(8))
_VALUES = ("trust", "dscp_to_priority", "dcbx", "pfc", "ets", "ecn")
_NO_FILE = "the driver has no such file"


class MlnxQos:
    """The tool ``mlnx_qos`` of this machine; after it hung once it is not asked again."""

    def __init__(self, path: str | None = None) -> None:
        self.path = path or shutil.which(_TOOL, path=_TOOL_PATH)
        self.reason = None if self.path else f"{_TOOL} is not installed"

    def ask(self, netdev: str) -> tuple[dict | None, str | None]:
        """Return what the tool prints about a netdev (shape of :func:`dcb.parse_mlnx_qos`), or None with a reason."""
        if self.path is None or self.reason:
            return None, self.reason
        try:
            # Not the module's run_command: there is no module where facts.d runs this.
            done = subprocess.run(  # pylint: disable=ansible-bad-function
                [self.path, "-i", netdev],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TOOL_SECONDS,
                env={"PATH": _TOOL_PATH, "LC_ALL": "C"},
                check=False,
            )
        except subprocess.TimeoutExpired:
            self.reason = f"{_TOOL} did not end within {_TOOL_SECONDS:.0f} seconds"
            return None, self.reason
        except (OSError, ValueError) as error:
            return None, f"{_TOOL}: {error}"
        if done.returncode:
            last = (done.stderr or done.stdout).decode("utf-8", "replace").strip().split("\n")[-1]
            return None, f"{_TOOL} ended with {done.returncode}: {last:.120}"
        return dcb.parse_mlnx_qos(done.stdout.decode("utf-8", "replace")), None


def read_qos(tree: Tree, netdev: str, directory: str, function: dict, tool: MlnxQos) -> dict:
    """Return the QoS of one netdev.

    :param directory: its directory below ``/sys/class/net``.
    :param function: what pci.describe_function says of the device behind it.
    :returns: ``{trust, dscp_to_priority, dcbx, pfc, ets, ecn, qos_of, source, reasons}``. trust is ``dscp`` or ``pcp``;
        dscp_to_priority ``{"10": 0}``; dcbx ``os`` or ``firmware`` (who owns the settings); pfc and ets as dcb has them;
        ecn ``{notification, reaction, cnp_dscp, cnp_priority}``, the first two by priority. source tells for trust,
        dscp_to_priority, dcbx, pfc, ets and ecn who answered: ``sysfs``, ``netlink``, ``mlnx_qos``, and ``default`` for
        a map that nobody set and nobody shows, which is then a DSCP's upper three bits (mlx5 resets to dscp >> 3).
        What is None has a reason.
    """
    qos: dict = {**dict.fromkeys(_VALUES), "qos_of": None, "source": {}, "reasons": {}}
    if function.get("function") == "vf":
        qos["reasons"] = dict.fromkeys(_VALUES, "a VF has no such setting: its PF's counts (qos_of)")
        return qos
    _from_files(tree, directory, qos)
    if tree.live:
        _from_netlink(netdev, qos)
        if function.get("driver") == _TOOL_DRIVER and _lacks(qos):
            _from_tool(netdev, qos, tool)
    else:
        for key in ("dcbx", "pfc", "ets"):
            qos["reasons"][key] = "it is asked of the running kernel, and this is another root"
    if qos["dscp_to_priority"] is None and qos["trust"] == "dscp":
        _take(qos, "dscp_to_priority", {str(code): code >> 3 for code in range(64)}, "default")
    elif qos["dscp_to_priority"] is None and qos["trust"] == "pcp":
        qos["reasons"]["dscp_to_priority"] = "the port trusts the PCP and does not look at the DSCP"
    qos["reasons"] = {key: reason for key, reason in qos["reasons"].items() if reason}
    return qos


def attach_pfs(netdevs: dict[str, dict], parents: dict[str, str | None]) -> None:
    """Set ``qos_of`` of VFs to the netdev of their PF.

    :param netdevs: the fact netdevs.
    :param parents: PCI address of the PF by netdev, None for netdevs that are no VFs.
    """
    owners: dict[str, list[str]] = {}
    for name, netdev in netdevs.items():
        if netdev.get("pci") and not parents.get(name):
            owners.setdefault(netdev["pci"], []).append(name)
    for name, parent in parents.items():
        if not parent or name not in netdevs:
            continue
        # In switchdev mode the PF's function carries the representors of its VFs too.
        here = [owner for owner in owners.get(parent, []) if not netdevs[owner].get("representor")]
        netdevs[name]["qos"]["qos_of"] = here[0] if len(here) == 1 else None
        if len(here) != 1:
            netdevs[name]["qos"]["reasons"]["qos_of"] = (
                f"several netdevs belong to PF {parent}: {', '.join(here)}"
                if here
                else f"the netdev of PF {parent} is not in this network namespace"
            )


def parse_dscp_map(text: str) -> dict[str, int] | None:
    """Read a DSCP to priority map into ``{"10": 0}``; keys are strings, as JSON has it. None for any other text.

    Understood are rows ``10 0`` under a line of words, as DOCA-OFED's ``qos/dscp2prio`` has them (mlnx_qos of
    Mellanox/mlnx-tools reads it so), and pairs ``10:0 26:5``.
    """
    pairs = _DSCP_PAIR.findall(text)
    if not pairs or _DSCP_PAIR.sub("", text).strip(" \t\n,"):
        rows = [line.strip() for line in text.split("\n") if line.strip()]
        if rows and not rows[0][0].isdigit():
            rows = rows[1:]
        matches = [_DSCP_ROW.fullmatch(row) for row in rows]
        pairs = [match.groups() for match in matches if match]
        if len(pairs) != len(rows):
            return None
    if not pairs or any(int(code) > 63 for code, _priority in pairs):
        return None
    return {str(int(code)): int(priority) for code, priority in pairs}


def read_ecn(tree: Tree, directory: str) -> tuple[dict | None, str | None]:
    """Read RoCE's congestion control of a port from DOCA-OFED's files, or None with a reason.

    :returns: ``{notification, reaction, cnp_dscp, cnp_priority, reasons}``: whether the receiver answers marked packets
        with CNPs and the sender slows down for them, each ``{"0": true, …}`` by priority.
    """
    home = directory + "/ecn"
    if not tree.exists(home):
        return None, "the driver has no such files (they come with DOCA-OFED)"
    ecn: dict = {"reasons": {}}
    for key, part in (("notification", "roce_np"), ("reaction", "roce_rp")):
        switches = dict(tree.read_each(tree.path(f"{home}/{part}/enable"), _PRIORITIES))
        words = {name: data.strip() for name, data in switches.items() if isinstance(data, bytes)}
        good = len(words) == len(_PRIORITIES) and all(word in (b"0", b"1") for word in words.values())
        ecn[key] = {name: word == b"1" for name, word in words.items()} if good else None
        if not good:
            ecn["reasons"][key] = f"{part}/enable cannot be read for all priorities"
    for key, name in (("cnp_dscp", "cnp_dscp"), ("cnp_priority", "cnp_802p_prio")):
        ecn[key] = tree.integer(f"{home}/roce_np/{name}")
        if ecn[key] is None:
            ecn["reasons"][key] = tree.read(f"{home}/roce_np/{name}").reason or "not a number"
    return ecn, None


def _take(qos: dict, key: str, value, source: str) -> None:
    if value is not None and qos[key] is None:
        qos[key] = value
        qos["source"][key] = source
        qos["reasons"].pop(key, None)


def _lacks(qos: dict) -> bool:
    """True when the tool could tell something that neither files nor the kernel did."""
    map_missing = qos["dscp_to_priority"] is None and qos["trust"] != "pcp"
    return map_missing or any(qos[key] is None for key in ("trust", "pfc", "dcbx"))


def _from_files(tree: Tree, directory: str, qos: dict) -> None:
    trust = tree.read(directory + "/qos/trust")
    word = (trust.value or "").strip()
    if word in ("dscp", "pcp"):
        _take(qos, "trust", word, "sysfs")
    elif trust.value is None:
        qos["reasons"]["trust"] = _NO_FILE if trust.absent else trust.reason
    else:
        qos["reasons"]["trust"] = f"format not understood: {word!r:.60}"
    table = tree.read(directory + "/qos/dscp2prio")
    if table.value is None:
        qos["reasons"]["dscp_to_priority"] = _NO_FILE if table.absent else table.reason
    else:
        qos["reasons"]["dscp_to_priority"] = f"format not understood: {table.value!r:.60}"
        _take(qos, "dscp_to_priority", parse_dscp_map(table.value), "sysfs")
    ecn, reason = read_ecn(tree, directory)
    qos["reasons"]["ecn"] = reason
    _take(qos, "ecn", ecn, "sysfs")


def _from_netlink(netdev: str, qos: dict) -> None:
    answer = dcb.read_dcb(netdev)
    for key in ("pfc", "ets"):
        qos["reasons"][key] = answer["reason"] or "the driver does not tell it"
    qos["reasons"]["dcbx"] = answer["dcbx_reason"]
    for key in ("pfc", "ets", "dcbx", "trust"):
        _take(qos, key, answer[key], "netlink")
    # An empty table is no map: either the port trusts the PCP, or the driver keeps the map elsewhere.
    _take(qos, "dscp_to_priority", answer["dscp_to_priority"] or None, "netlink")
    for key in ("trust", "dscp_to_priority"):
        if qos[key] is None and answer["reason"]:
            qos["reasons"][key] = f"{qos['reasons'][key]}; {answer['reason']}"


def _from_tool(netdev: str, qos: dict, tool: MlnxQos) -> None:
    answer, reason = tool.ask(netdev)
    for key in ("trust", "dscp_to_priority", "pfc", "dcbx"):
        _take(qos, key, (answer or {}).get(key), _TOOL)
        if qos[key] is None:
            qos["reasons"][key] = f"{qos['reasons'].get(key)}; {reason or _TOOL + ' does not print it'}"
