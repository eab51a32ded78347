# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules about boot images and what the next boot brings."""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.netns import mode_evidence, mode_facts, wanted_mode
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import Context, Problem, Unknown, rule


def next_images(context: Context) -> list[dict]:
    """Images that the machine may boot next: all but those of which it is known that they are for a fall-back."""
    return [image for image in context.facts["boot_images"] or [] if image.get("default") is not False]


@rule(
    "BOOT-001", "error", "The boot image is older than the RDMA option", needs=("facts",), cured_by="prepare_nodes"
)  # fmt: skip
def image_is_stale(context: Context):
    """Symptom: the option file holds the wanted mode, the node was rebooted, and the mode did not change.

    Cause: ib_core is loaded from the boot image, and the image has another copy of the option than /etc/modprobe.d,
    or none.

    Evidence: each image that the machine may boot, the mode that it holds, and what the option files say.

    Remedy: rebuild the image (update-initramfs -u, or dracut -f) and reboot; prepare_nodes does both.

    Source: linux-rdma/rdma-core#1481; initramfs-tools(7), dracut.conf(5).
    """
    if wanted_mode(context) is None:
        return
    if context.facts["boot_images"] is None:
        yield Unknown("The boot images cannot be read", {"reasons": context.facts.get("reasons")})
        return
    for image in next_images(context):
        evidence = {"image": image, "configured": mode_facts(context).get("configured")}
        if image["stale"] is None:
            yield Unknown(f"It is not known whether {image['path']} carries the RDMA option", evidence)
        elif image["stale"]:
            yield Problem(
                f"{image['path']} carries another RDMA option than /etc/modprobe.d",
                "Run prepare_nodes, which rebuilds the image and checks its content before any reboot.",
                evidence,
            )


@rule(
    "BOOT-002", "error", "The next boot would bring another RDMA netns mode", needs=("facts",), cured_by="prepare_nodes"
)  # fmt: skip
def next_boot_changes_mode(context: Context):
    """Symptom: the node works, and after its next reboot, whatever the reason, its pods have no RDMA.

    Cause: the live mode is the wanted one, but an old boot image, an option file or the kernel line brings the other
    one back. The mode was switched at run time, or its file was changed or lost since the boot.

    Evidence: the live mode, and the value that each of option files, boot image and kernel line brings.

    Remedy: run prepare_nodes; it writes the option and rebuilds the image. No reboot is needed for it.

    Source: kernel drivers/infiniband/core/device.c (the parameter is read when ib_core is loaded);
    linux-rdma/rdma-core#1481.
    """
    wanted = wanted_mode(context)
    if wanted is None:
        return
    mode = mode_facts(context)
    if mode["next_boot"] is None:
        images = context.facts["boot_images"]
        # BOOT-001 speaks about images that cannot be read.
        if images is not None and all(image["stale"] is not None for image in next_images(context)):
            reason = (mode.get("reasons") or {}).get("next_boot") or "no reason given"
            yield Unknown(f"The RDMA netns mode after the next boot is not known: {reason}", mode_evidence(context))
    elif mode["live"] == wanted != mode["next_boot"]:
        yield Problem(
            f"The RDMA netns mode is {wanted}, and the next boot would bring {mode['next_boot']}",
            "Run prepare_nodes, which writes the option and rebuilds the boot image, before anything reboots the node.",
            mode_evidence(context),
        )


@rule("BOOT-003", "error", "A boot image must be rebuilt and its builder is not known", needs=("facts",))
def builder_unknown(context: Context):
    """Symptom: prepare_nodes cannot change the mode for good; or it calls update-initramfs, which is not there.

    Cause: none of dracut, initramfs-tools, mkinitcpio and booster is installed. The image comes with the system
    (Talos, Flatcar, rpm-ostree), or the builder is one that this collection does not know. The name of the
    distribution does not tell: newer Ubuntu builds with dracut.

    Evidence: the image, and that it does not hold the wanted mode.

    Remedy: give the option to the system's own configuration: kernel argument ib_core.netns_mode=0 or 1 (machine
    configuration of Talos, Butane of Flatcar, rpm-ostree kargs), or install the distribution's builder.

    Source: dracut-ng/dracut#2571.
    """
    wanted = wanted_mode(context)
    if wanted is None:
        return
    if mode_facts(context)["next_boot"] == wanted:
        return
    for image in next_images(context):
        if image["builder"] in (None, "none") and (image["stale"] or image["mode"] != wanted):
            value = {"shared": 1, "exclusive": 0}[wanted]
            yield Problem(
                f"{image['path'] or image['kernel']} does not bring the mode {wanted}, and no program that builds it is installed",
                f"Set the kernel argument ib_core.netns_mode={value} in the system's own configuration.",
                {"image": image, **mode_evidence(context)},
            )


@rule("BOOT-004", "error", "A boot image is damaged", needs=("facts",))
def image_is_damaged(context: Context):
    """Symptom: none yet. The next reboot leaves the node down.

    Cause: the image was cut short: /boot was full while it was written, or its builder was killed.

    Evidence: the image with its size and what is wrong with it.

    Remedy: free space in /boot and rebuild the image. Do not reboot before that.

    Source: kernel Documentation/driver-api/early-userspace/buffer-format.rst.
    """
    for image in next_images(context):
        if image["whole"] is False:
            yield Problem(
                f"{image['path']} is damaged: {image['reason']}",
                "Free space in /boot and rebuild the image; do not reboot the node before that.",
                {"image": image},
            )
