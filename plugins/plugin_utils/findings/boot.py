# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules about boot images."""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import Context, Problem, Unknown, rule


@rule("BOOT-001", "error", "The boot image is older than the RDMA option", needs=("facts",))
def image_is_stale(context: Context):
    """Symptom: the option file holds the wanted mode, the node was rebooted, and the mode did not change.

    Cause: ib_core is loaded from the boot image, and the image has another copy of the option than /etc/modprobe.d,
    or none.

    Evidence: each image that the machine may boot, the mode that it holds, and what the option files say.

    Remedy: rebuild the image (update-initramfs -u, or dracut -f) and reboot; prepare_nodes does both.

    Source: linux-rdma/rdma-core#1481; initramfs-tools(7), dracut.conf(5).
    """
    if context.layout.get("netns_mode") in (None, "keep"):
        return
    images = context.facts.get("boot_images")
    if images is None:
        yield Unknown("The boot images cannot be read", {"reasons": context.facts.get("reasons")})
        return
    for image in images:
        # Only what the machine boots next counts: images of kernels that are kept for a fall-back are rebuilt with
        # them.
        if image.get("default") is False:
            continue
        evidence = {"image": image, "configured": context.facts["netns_mode"].get("configured")}
        if image.get("stale") is None:
            yield Unknown(f"It is not known whether {image.get('path')} carries the RDMA option", evidence)
        elif image["stale"]:
            yield Problem(
                f"{image.get('path')} carries another RDMA option than /etc/modprobe.d",
                "Run prepare_nodes, which rebuilds the image and checks its content before any reboot.",
                evidence,
            )
