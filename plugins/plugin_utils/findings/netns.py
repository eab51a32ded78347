# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules about the RDMA network namespace mode."""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.module_utils.cluster.selection import label_selector_matches
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import (
    Context,
    Problem,
    Unknown,
    Unreadable,
    rule,
)

_SHOWN = ("live", "configured", "configured_by", "kernel_line", "boot_image", "next_boot", "owners", "namespaces")
_OPERATOR = "sriov_network_operator"


def wanted_mode(context: Context) -> str | None:
    """The mode that the intent asks for; None when it leaves nodes as they are."""
    wanted = context.layout.get("netns_mode")
    return None if wanted == "keep" else wanted


def mode_facts(context: Context) -> dict:
    """The fact ``netns_mode``. :raises Unreadable: it could not be read."""
    mode = context.facts["netns_mode"]
    if mode is None:
        raise Unreadable("netns_mode", (context.facts.get("reasons") or {}).get("netns_mode") or "no reason given")
    return mode


def mode_evidence(context: Context) -> dict:
    """Wanted, live, option files, boot image, kernel line, next boot, and everybody who sets the mode."""
    mode = mode_facts(context)
    return {"wanted": wanted_mode(context), **{key: mode.get(key) for key in _SHOWN}}


@rule(
    "NETNS-001", "error", "The RDMA netns mode is another one than wanted", needs=("facts",), cured_by="prepare_nodes"
)
def live_mode_differs(context: Context):
    """Symptom: pods see no RDMA devices, or the RDMA CNI refuses to start pods, or GIDs of IPvlan children are missing.

    Cause: ib_core runs in the other mode. The option file, the boot image or the kernel line bring another value, the
    node has not been rebooted since they were changed, or a driver container loaded ib_core again with options of its
    own after the boot.

    Evidence: the live mode, what the option files say and which one wins, what the boot image and the kernel line
    say, what the next boot will bring, the driver, and the network namespaces that keep the kernel from switching now.

    Remedy: run prepare_nodes with rdma_netns_reboot_allowed=true. When the next boot brings the wanted mode already,
    a reboot is all.

    Source: kernel drivers/infiniband/core/device.c (netns_mode); k8snetworkplumbingwg/rdma-cni#37.
    """
    wanted = wanted_mode(context)
    if wanted is None:
        return
    mode = mode_facts(context)
    evidence = {**mode_evidence(context), "driver": context.facts.get("driver")}
    if mode["live"] is None:
        yield Unknown("The live RDMA netns mode cannot be read", {**evidence, "reasons": mode.get("reasons")})
    elif mode["live"] != wanted:
        ready = mode.get("next_boot") == wanted
        remedy = "Reboot the node: the next boot brings the wanted mode." if ready else ""
        yield Problem(
            f"The RDMA netns mode is {mode['live']}, wanted is {wanted}",
            remedy
            or "Run prepare_nodes with rdma_netns_reboot_allowed=true; the boot image must carry the option too.",
            evidence,
        )


@rule(
    "NETNS-002", "error", "Somebody else's file sets the RDMA netns mode", needs=("facts",), cured_by="prepare_nodes"
)  # fmt: skip
def foreign_option_file(context: Context):
    """Symptom: /etc/modprobe.d/ib_core.conf is right, the boot image is fresh, and the mode does not change.

    Cause: another file sets the option of the same module. kmod appends the options of all files in the order of
    their names and the last value wins; a file of the same name in /etc hides the one in /usr/lib. A warning when the
    other files agree with the intent or come before ours: two owners of one setting will differ one day.

    Evidence: every place that sets the option, in order of application, and the one that wins.

    Remedy: remove the other lines with whoever brings them. prepare_nodes refuses to go on while they are there; with
    rdma_netns_take_over=true it moves them aside and keeps a copy.

    Source: modprobe.d(5); k8snetworkplumbingwg/rdma-cni#39.
    """
    wanted = wanted_mode(context)
    if wanted is None:
        return
    files = [
        owner
        for owner in mode_facts(context)["owners"]
        if owner["hidden_by"] is None and owner["owner"] not in ("kernel_line", "boot_loader")
    ]
    foreign = [owner for owner in files if owner["owner"] != "railyard"]
    if not foreign:
        return
    # Only the last one decides; an unreadable value there keeps ib_core from loading at all.
    decides = files[-1] in foreign and files[-1]["mode"] != wanted
    told = ", ".join(f"{owner['path']} ({owner['mode'] or 'no valid value'})" for owner in foreign)
    remedy = "Remove these lines, or run prepare_nodes with rdma_netns_take_over=true, which keeps copies."
    if any(owner["owner"] == _OPERATOR for owner in foreign):
        remedy = "Remove spec.rdmaMode from the SriovNetworkPoolConfig, then the file that the SR-IOV operator wrote."
    yield Problem(
        f"The option is set by {told}" + (f", which wins over the wanted mode {wanted}" if decides else ""),
        remedy,
        mode_evidence(context),
        severity="error" if decides else "warning",
    )


@rule("NETNS-003", "error", "The kernel line sets the RDMA netns mode", needs=("facts",), cured_by="prepare_nodes")
def kernel_line_decides(context: Context):
    """Symptom: no file of modprobe.d and no new boot image changes the mode.

    Cause: ib_core.netns_mode stands on the kernel line, which comes after all files. A warning when its value is the
    wanted one: the option file then has no effect.

    Evidence: the value on the running kernel's line, on the line of the entry that boots next, and the files that
    feed it.

    Remedy: take the argument out of the boot loader's configuration (grub: GRUB_CMDLINE_LINUX in /etc/default/grub and
    update-grub; systemd-boot and BLS: the options of the entry; grubby --remove-args) and reboot.

    Source: kernel Documentation/admin-guide/kernel-parameters.rst; dracutdevs/dracut#1095.
    """
    wanted = wanted_mode(context)
    if wanted is None:
        return
    mode = mode_facts(context)
    # The entry that boots next counts; where the boot loader's configuration does not tell, the running kernel's line.
    value = mode.get("next_kernel_line") or mode["kernel_line"]
    if value is None:
        return
    feeds = [owner["path"] for owner in mode["owners"] if owner["owner"] == "boot_loader"]
    harmless = wanted in (value, mode["next_boot"])
    yield Problem(
        f"ib_core.netns_mode on the kernel line asks for {value}"
        + ("" if value == wanted else f", wanted is {wanted}"),
        f"Take ib_core.netns_mode out of {', '.join(feeds) or 'the configuration of the boot loader'} and reboot.",
        {**mode_evidence(context), "next_kernel_line": mode.get("next_kernel_line"), "feeds": feeds},
        severity="warning" if harmless else "error",
    )


@rule(
    "NETNS-004", "error", "A pool of the SR-IOV operator sets the RDMA netns mode, too", needs=("kubernetes",),
    unrehearsed="the operator of the rehearsal reboots such nodes for ever, as the real one does",
)  # fmt: skip
def pool_sets_mode(context: Context):
    """Symptom: nodes reboot for ever, though they are in the mode that the pool asks for.

    Cause: spec.rdmaMode of a SriovNetworkPoolConfig makes the operator's daemon an owner of the mode. It compares its
    own file and the kernel line, not the live mode; on Ubuntu its script for kernel arguments does nothing and the
    reboot is requested all the same. The intent makes this collection the owner.

    Evidence: the pool, its rdmaMode, and the wanted mode.

    Remedy: remove spec.rdmaMode from the pool, or set rails_netns_mode=keep and leave the mode to the operator.

    Source: k8snetworkplumbingwg/sriov-network-operator#959.
    """
    wanted = wanted_mode(context)
    if wanted is None:
        return
    pools = context.kubernetes["pools"]
    if pools is None:
        yield Unknown("The cluster was not asked for its SriovNetworkPoolConfigs")
    for pool in pools or []:
        asked = (pool.get("spec") or {}).get("rdmaMode")
        if asked and label_selector_matches(pool["spec"].get("nodeSelector") or {}, context.kubernetes["labels"]):
            name = pool["metadata"]["name"]
            yield Problem(
                f"SriovNetworkPoolConfig {name} sets rdmaMode {asked}; the intent sets {wanted}",
                f"Remove spec.rdmaMode from SriovNetworkPoolConfig {name}, or set rails_netns_mode=keep.",
                {"pool": name, "rdmaMode": asked, "wanted": wanted},
            )


@rule(
    "NETNS-005", "error", "The RDMA netns mode changed without a reboot", needs=("facts",),
    unrehearsed="no driver container reloads modules on a rehearsal node",
)  # fmt: skip
def mode_changed_while_up(context: Context):
    """Symptom: the mode was right after the boot and is another one after the operator became ready.

    Cause: a driver container unloads ib_core and loads it again with a modprobe.d of its own, or somebody ran
    "rdma system set netns". A warning when the new mode is the wanted one.

    Evidence: the mode of the earlier run and now, the boot id that both have, and the version of the driver then and
    now. Without facts of an earlier run (a fact cache) this is not judged.

    Remedy: mount the host's /etc/modprobe.d/ib_core.conf into the driver container (Network Operator: a release that
    does so), then restart it.

    Source: Mellanox/network-operator#942, Mellanox/network-operator#943.
    """
    mode, before = mode_facts(context), context.before
    if before is None or context.facts["boot_id"] is None or before.get("boot_id") != context.facts["boot_id"]:
        return
    was = (before.get("netns_mode") or {}).get("live")
    if was is None or mode["live"] is None or was == mode["live"]:
        return
    versions = [((facts.get("driver") or {}).get("version")) for facts in (before, context.facts)]
    yield Problem(
        f"The RDMA netns mode was {was} and is {mode['live']} since the same boot; driver {versions[0]}, now {versions[1]}",
        "Find what loaded ib_core again; a driver container must use the host's option file.",
        {
            "before": was,
            "live": mode["live"],
            "boot_id": context.facts["boot_id"],
            "driver_before": before.get("driver"),
            "driver": context.facts.get("driver"),
            "gathered_before": before.get("gathered_at"),
        },
        severity="warning" if mode["live"] == wanted_mode(context) else None,
    )
