# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules about the RDMA network namespace mode."""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import Context, Problem, Unknown, rule


@rule("NETNS-001", "error", "The RDMA netns mode is another one than wanted", needs=("facts",))
def live_mode_differs(context: Context):
    """Symptom: pods see no RDMA devices, or the RDMA CNI refuses to start pods, or GIDs of IPvlan children are missing.

    Cause: ib_core runs in the other mode. The option file, the boot image or the kernel line bring another value, or
    the node has
    not been rebooted since they were changed.

    Evidence: the live mode, what the option files say and which one wins, what the boot image and the kernel line
    say, and what
    the next boot will bring.

    Remedy: run prepare_nodes with rdma_netns_reboot_allowed=true. When the next boot brings the wanted mode already,
    a reboot is all.

    Source: kernel drivers/infiniband/core/device.c (netns_mode); k8snetworkplumbingwg/rdma-cni#37.
    """
    wanted = context.layout.get("netns_mode")
    if wanted in (None, "keep"):
        return
    mode = context.facts["netns_mode"]
    evidence = {
        key: mode.get(key)
        for key in ("live", "configured", "configured_by", "kernel_line", "boot_image", "next_boot", "owners")
    }
    evidence["wanted"] = wanted
    if mode.get("live") is None:
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
