# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The boot images of a system: which there are, what builds them, and whether they agree with modprobe.d."""

from __future__ import annotations

import os

from ansible_collections.railyard.rdma.plugins.module_utils import netns_mode
from ansible_collections.railyard.rdma.plugins.module_utils.initramfs import UnreadableImage, read_image
from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree

_PROGRAM_DIRECTORIES = ("/usr/sbin", "/usr/bin", "/sbin", "/bin")


def find_program(tree: Tree, name: str) -> str | None:
    """Return the path of a program in the usual system directories, or None."""
    return next((f"{place}/{name}" for place in _PROGRAM_DIRECTORIES if tree.exists(f"{place}/{name}")), None)


def find_builder(tree: Tree) -> str:
    """Tell what builds images here: ``initramfs-tools``, ``dracut``, ``mkinitcpio``, ``booster`` or ``none``.

    By what is installed, not by the distribution's name: newer Ubuntu builds with dracut and may keep
    ``update-initramfs`` as a wrapper, or not have it at all (dracut-ng/dracut#2571). mkinitramfs is the part of
    initramfs-tools that a wrapper lacks.
    """
    dracut = find_program(tree, "dracut")
    if find_program(tree, "update-initramfs") and (find_program(tree, "mkinitramfs") or not dracut):
        return "initramfs-tools"
    if dracut:
        return "dracut"
    return next((name for name in ("mkinitcpio", "booster") if find_program(tree, name)), "none")


def list_images(tree: Tree) -> list[dict]:
    """List installed kernels with their image: ``{kernel, path}``, path None for a kernel in /boot that has none."""
    boot = set(tree.names("/boot"))
    images = []
    for version in tree.names("/lib/modules"):
        base = tree.text(f"/lib/modules/{version}/pkgbase")  # mkinitcpio names images after the package
        names = [f"initrd.img-{version}", f"initramfs-{version}.img", f"initrd-{version}"]
        names += [f"initramfs-{base}.img"] if base else []
        name = next((name for name in names if name in boot), None)
        kernel_here = boot & {f"vmlinuz-{version}", f"vmlinux-{version}", f"Image-{version}", f"vmlinuz-{base}"}
        if name or kernel_here:
            images.append({"kernel": version, "path": f"/boot/{name}" if name else None})
    return images


def inspect_image(tree: Tree, image: dict, builder: str, file_setting: dict) -> dict:
    """Describe one image.

    :param image: an entry of :func:`list_images`.
    :param file_setting: setting of modprobe.d on the root (see netns_mode).
    :returns: ``{kernel, path, builder, mode, holds_option, holds_ib_core, stale, size, modules, formats, whole,
        reason}``. mode is what the image's own modprobe.d sets, None when it sets nothing. stale means that ib_core
        would be loaded from the image with another mode than modprobe.d asks for (linux-rdma/rdma-core#1481). Values
        that are not known are None with a reason.
    """
    result: dict = {
        "kernel": image["kernel"],
        "path": image["path"],
        "builder": builder,
        "mode": None,
        "holds_option": None,
        "holds_ib_core": None,
        "stale": None,
        "size": None,
        "modules": None,
        "formats": None,
        "whole": None,
        "reason": None,
    }
    if image["path"] is None:
        result["reason"] = f"kernel {image['kernel']} has no image in /boot"
        return result
    try:
        place = tree.path(image["path"])
        result["size"] = os.stat(place).st_size
        with open(place, "rb") as file:
            contents = read_image(file)
    except UnreadableImage as error:
        result["whole"] = False if str(error).startswith(("cut short", "damaged", "no files")) else None
        result["reason"] = f"{image['path']}: {error}"
        return result
    except OSError as error:
        result["reason"] = f"{image['path']}: {error.strerror}"
        return result
    inside = netns_mode.configured(contents["config"])
    result.update(
        {
            "mode": inside["mode"],
            "holds_option": inside["by"] is not None,
            "holds_ib_core": contents["holds_ib_core"],
            "modules": contents["modules"],
            "formats": contents["formats"],
            "whole": True,
            "reason": inside["reason"],
        }
    )
    result["stale"] = is_stale(result, file_setting)
    return result


def is_stale(image: dict, file_setting: dict) -> bool | None:
    """Tell whether an image disagrees with modprobe.d in a way that matters; None when one of them is not known."""
    if image["holds_ib_core"] is None or file_setting["reason"]:
        return None
    if not image["holds_ib_core"]:
        return False
    if image["reason"]:
        return True  # it holds a value that ib_core would refuse
    default = netns_mode.KERNEL_DEFAULT
    return (image["mode"] or default) != (file_setting["mode"] or default)


def inspect_all(tree: Tree, file_setting: dict) -> list[dict]:
    """Describe the images of all installed kernels; ``default`` tells which boots next.

    default is True for an only kernel; with several it is None, since the boot loader decides.
    """
    builder = find_builder(tree)
    images = [inspect_image(tree, image, builder, file_setting) for image in list_images(tree)]
    for image in images:
        image["default"] = True if len(images) == 1 else None
    return images


def summary(images: list[dict]) -> dict:
    """Return the setting that the images agree on, ``{mode, reason}``; mode None with a reason when they do not agree
    or cannot be read, and without one when no image sets the mode."""
    for image in images:
        if image["reason"]:
            return {"mode": None, "reason": image["reason"]}
    modes = {image["mode"] for image in images}
    if len(modes) > 1:
        told = ", ".join(f"{image['kernel']} {image['mode'] or 'not set'}" for image in images)
        return {"mode": None, "reason": f"the images differ: {told}"}
    return {"mode": modes.pop() if modes else None, "reason": None}


def next_boot(file_setting: dict, line_setting: dict, images: list[dict], builder: str) -> dict:
    """Work out the mode after the next boot over all images that may be booted, as a setting (see
    netns_mode.next_boot).

    Without an image in /boot the answer follows from the file only where no builder is installed, too: elsewhere the
    image may lie in a place that is not looked at.
    """
    if not images:
        image = None
        if builder != "none":
            reason = f"{builder} is installed, but no boot image was found in /boot"
            image = {"holds_ib_core": None, "mode": None, "reason": reason}
        return netns_mode.next_boot(file_setting, line_setting, image)
    answers = [netns_mode.next_boot(file_setting, line_setting, image) for image in images]
    unknown = next((answer for answer in answers if answer["mode"] is None), None)
    if unknown:
        return unknown
    if len({answer["mode"] for answer in answers}) > 1:
        told = ", ".join(f"{image['kernel']} {answer['mode']}" for image, answer in zip(images, answers))
        return {"mode": None, "reason": f"it depends on the kernel that is booted: {told}"}
    return answers[0]
