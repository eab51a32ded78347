# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules about what a node must have so that the cluster can offer its rails."""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.node_rails import Hit, node_rails, spread
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import Context, Problem, Unknown, rule


@rule("RESOURCE-004", "error", "What user programs need of the RDMA subsystem is missing", needs=("facts",))
def user_side_missing(context: Context):
    """Symptom: the node offers 0 devices; the device plugin's log asks whether RDMA modules are loaded.

    Cause: ib_uverbs or rdma_ucm is not loaded, so /dev/infiniband lacks uverbs devices or rdma_cm. The device plugin
    looks once, when it starts.

    Evidence: the files of /dev/infiniband and the state of the modules.

    Remedy: modprobe ib_uverbs and rdma_ucm, name them in a file of /etc/modules-load.d, then restart the device plugin
    pod of the node.

    Source: k8snetworkplumbingwg/sriov-network-device-plugin#424.
    """
    driver = context.facts["driver"]
    files, modules = driver["character_devices"], driver["modules"]
    evidence = {"character_devices": files, "modules": modules}
    if files is None:
        yield Unknown("The files of /dev/infiniband cannot be listed", {**evidence, "reasons": driver.get("reasons")})
        return
    missing = []
    if context.facts["devices"] and not any(name.startswith("uverbs") for name in files):
        missing.append(("uverbs*", "ib_uverbs"))
    if "rdma_cm" not in files:
        missing.append(("rdma_cm", "rdma_ucm"))
    if missing:
        names = " and ".join(name for name, _module in missing)
        yield Problem(
            f"/dev/infiniband has no {names}",
            f"Load {' and '.join(module for _name, module in missing)} (and name them in /etc/modules-load.d), then "
            "restart the node's device plugin pod.",
            evidence,
        )


@rule("RESOURCE-005", "info", "Kernel lockdown keeps tools from changing NIC firmware", needs=("facts",))
def kernel_lockdown(context: Context):
    """Symptom: with secure boot the SR-IOV operator's daemon logs that mstconfig failed, and the node never syncs.

    Cause: lockdown blocks the configuration access that mstconfig and mlxreg need. Only the operator's mellanox plugin
    needs it; this collection keeps that plugin off.

    Evidence: the lockdown level, and whether the firmware has the wanted VFs already.

    Remedy: keep mellanox in disablePlugins of the SriovOperatorConfig; set firmware values before secure boot is on.

    Source: k8snetworkplumbingwg/sriov-network-operator#670, k8snetworkplumbingwg/sriov-network-operator#103.
    """
    level = context.facts["driver"]["lockdown"]
    # Without the file the kernel has no lockdown, and nothing follows from not knowing it.
    if level in (None, "none"):
        return
    totals = {str(rail.number): (rail.interface.get("sriov") or {}).get("total") for rail in node_rails(context)}
    yield Problem(
        f"The kernel is locked down ({level}): firmware values of NICs cannot be changed from this node",
        "Keep the mellanox plugin of the SR-IOV operator off, and set firmware values by other means.",
        {"lockdown": level, "vfs_possible": totals, "vfs_wanted": context.layout.get("vfs_per_pf")},
    )


@rule("RESOURCE-006", "error", "The firmware of a rail offers fewer VFs than wanted", needs=("facts",))
def firmware_vfs(context: Context):
    """Symptom: the node state of the SR-IOV operator stays InProgress, or its daemon reports that numVfs is too large.

    Cause: NUM_OF_VFS or SRIOV_EN in the NIC's firmware is lower than the policy. The kernel makes at most
    sriov_totalvfs.

    Evidence: sriov_totalvfs of each rail and the wanted number; the lockdown level, which may keep tools from the
    firmware.

    Remedy: mstconfig -d PCI set SRIOV_EN=1 NUM_OF_VFS=N and a cold reboot, or a smaller rails_vfs_per_pf. Do not let the
    operator do it: its mellanox plugin reboots without end when two ports of a card want different values.

    Source: openshift/sriov-network-operator#218, k8snetworkplumbingwg/sriov-network-operator#449.
    """
    if context.layout["network"] != "sriov":
        return
    wanted = context.layout["vfs_per_pf"]
    hits = []
    for rail in node_rails(context):
        if rail.interface:
            sriov = rail.interface["sriov"]
            total = sriov["total"] if sriov else 0  # no file sriov_totalvfs: the function has no SR-IOV capability
            if total < wanted:
                lockdown = context.facts["driver"].get("lockdown")
                hits.append(Hit(rail, {"vfs_possible": total, "wanted": wanted, "lockdown": lockdown}))
    yield from spread(
        context,
        hits,
        lambda where: f"The firmware allows fewer than {wanted} VFs on {where}",
        "Set SRIOV_EN and NUM_OF_VFS in the firmware (mstconfig) and cold boot, or lower rails_vfs_per_pf.",
    )


@rule("RESOURCE-007", "error", "Externally managed VFs are missing", needs=("facts",))
def external_vfs_missing(context: Context):
    """Symptom: the policy with externallyManaged is refused, or never reaches its number of VFs.

    Cause: with externallyManaged the SR-IOV operator only uses VFs, something else on the node must have made them.

    Evidence: sriov_numvfs of each rail and the wanted number.

    Remedy: let the service that owns the VFs make them before the policies are applied, or set
    rails_externally_managed=false. Never both: one program may write sriov_numvfs.

    Source: k8snetworkplumbingwg/sriov-network-operator#436, k8snetworkplumbingwg/sriov-network-operator#476.
    """
    if context.layout["network"] != "sriov" or not context.layout.get("externally_managed"):
        return
    wanted = context.layout["vfs_per_pf"]
    hits = []
    for rail in node_rails(context):
        number = (rail.interface.get("sriov") or {}).get("num")
        if rail.interface and (number or 0) < wanted:
            hits.append(Hit(rail, {"vfs": number, "wanted": wanted}))
    yield from spread(
        context,
        hits,
        lambda where: f"There are fewer than {wanted} VFs on {where}, and the operator is told not to make any",
        "Make the VFs with what manages them, or set rails_externally_managed=false.",
    )


@rule("RESOURCE-008", "warning", "CDI files name RDMA devices that are not there", needs=("facts",))
def stale_cdi_files(context: Context):
    """Symptom: after a reboot pods fail with "failed to stat CDI host device /dev/infiniband/uverbs10".

    Cause: device plugins and DRA drivers write CDI files with the numbers that the uverbs devices have; the numbers
    changed with the reboot and the files stayed.

    Evidence: the files and the devices that they name and the node does not have.

    Remedy: restart the DaemonSet that wrote the files; remove those whose writer is gone.

    Source: CNCF container-device-interface specification, 1.0.
    """
    driver = context.facts["driver"]
    if driver["stale_cdi"] is None:
        yield Unknown(f"CDI files cannot be compared: {(driver.get('reasons') or {}).get('stale_cdi')}")
    elif driver["stale_cdi"]:
        yield Problem(
            f"{', '.join(row['path'] for row in driver['stale_cdi'])} names devices that the node does not have",
            "Restart the DaemonSet that writes these files; remove those whose writer is gone.",
            {"stale_cdi": driver["stale_cdi"], "character_devices": driver["character_devices"]},
        )
