# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The boot images of a system: which there are, and whether they agree with modprobe.d."""

from __future__ import annotations

import os
import re

from ansible_collections.railyard.rdma.plugins.module_utils.boot import boot_loader
from ansible_collections.railyard.rdma.plugins.module_utils.boot.image_builders import find_builder
from ansible_collections.railyard.rdma.plugins.module_utils.boot.image_files import kernel_of, open_image
from ansible_collections.railyard.rdma.plugins.module_utils.boot.initramfs import UnreadableImage, read_image
from ansible_collections.railyard.rdma.plugins.module_utils.netns import netns_mode
from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree

# /boot, and where boot loaders have the EFI system partition (UAPI.1).
_PARTITIONS = ("/boot", "/efi", "/boot/efi")


def list_images(tree: Tree, builder: str = "none") -> list[dict]:
    """List installed kernels with their images, ``{kernel, path, kind, overlays}`` each.

    kind is ``plain``, ``fallback`` (mkinitcpio's second image), ``entry`` (the directory of a kernel that
    kernel-install fills, ``/boot/TOKEN/VERSION``), ``uki`` (unified kernel image) or ``ostree``. path is None for a
    kernel in /boot that has no image. overlays are further files that the boot loader loads behind the image.
    """
    boot = set(tree.names("/boot"))
    images = []
    unified = _unified(tree)
    for version in sorted({*tree.names("/lib/modules"), *tree.names("/usr/lib/modules")}):
        base = tree.text(f"/lib/modules/{version}/pkgbase")  # Arch names images after the package
        found = _plain(boot, version, base, builder) + _entries(tree, version) + _ostree(tree, version)
        found += [("uki", path) for path, kernel in unified if kernel == version]
        kernels = {f"{name}-{version}" for name in ("vmlinuz", "vmlinux", "Image", "kernel")}
        kernels |= {f"vmlinuz-{base}"} if base else set()
        if not found and boot & kernels:
            found = [("plain", None)]
        for kind, path in found:
            overlays = _overlays(tree, path) if kind == "ostree" else []
            images.append({"kernel": version, "path": path, "kind": kind, "overlays": overlays})
    return images


def _plain(boot: set, version: str, base: str | None, builder: str) -> list[tuple]:
    names = [f"initrd.img-{version}", f"initramfs-{version}.img", f"initrd-{version}", f"initrd-{version}.img"]
    booster = [f"booster-{version}.img"]
    fallback = [f"initramfs-{version}-fallback.img"]
    if base:
        names.append(f"initramfs-{base}.img")
        booster.append(f"booster-{base}.img")
        fallback.append(f"initramfs-{base}-fallback.img")
    names = booster + names if builder == "booster" else names + booster
    found = [("plain", f"/boot/{name}") for name in names if name in boot][:1]
    return found + [("fallback", f"/boot/{name}") for name in fallback if name in boot]


def _entries(tree: Tree, version: str) -> list[tuple]:
    found = []
    for partition in _PARTITIONS:
        for token in tree.names(partition):
            directory = f"{partition}/{token}/{version}"
            names = [name for name in tree.names(directory) if name.startswith("initrd")]
            found.extend([("entry", f"{directory}/{name}") for name in names][:1])
    return found


def _unified(tree: Tree) -> list[tuple]:
    found = []
    for partition in _PARTITIONS:
        directory = f"{partition}/EFI/Linux"
        for name in tree.names(directory):
            if name.lower().endswith(".efi") and not name.startswith("."):
                path = f"{directory}/{name}"
                found.append((path, kernel_of(tree.path(path))))
    return found


def _ostree(tree: Tree, version: str) -> list[tuple]:
    paths = (f"/boot/ostree/{name}/initramfs-{version}.img" for name in tree.names("/boot/ostree"))
    return [("ostree", path) for path in paths if tree.exists(path)]


def _overlays(tree: Tree, path: str) -> list[str]:
    """Return what the boot loader loads behind an image, by the entry (UAPI.1) that names it."""
    for name in tree.names("/boot/loader/entries"):
        text = tree.read(f"/boot/loader/entries/{name}").value or ""
        words = [word for line in re.findall(r"^initrd\s+(.*)$", text, re.MULTILINE) for word in line.split()]
        files = [word if word.startswith("/boot/") else f"/boot{word}" for word in words if word.startswith("/")]
        if path in files:
            return files[files.index(path) + 1 :]
    return []


def builtin(tree: Tree, version: str) -> bool:
    """Tell whether ib_core is part of a kernel and no module: then only the kernel line sets its parameters."""
    text = tree.read(f"/lib/modules/{version}/modules.builtin").value or ""
    return bool(re.search(r"(?:^|/)ib_core\.ko\s*$", text, re.MULTILINE))


def inspect_image(
    tree: Tree, image: dict, builder: str, file_setting: dict, details: dict | None = None, path: str | None = None
) -> dict:
    """Describe one image.

    :param image: an entry of :func:`list_images`.
    :param file_setting: setting of modprobe.d on the root (see netns_mode).
    :param details: is given what only a rebuild needs: ``modules`` (``{name: directory}``) and ``unpacked`` (bytes).
    :param path: read this file in place of the image's own (a copy, or the successor).
    :returns: ``{kernel, path, kind, builder, mode, holds_option, holds_ib_core, builtin, force_loaded, stale, size,
        modules, formats, whole, reason}``. mode is what the image's own modprobe.d sets, None when it sets nothing.
        stale means that ib_core would be loaded from the image with another mode than modprobe.d asks for
        (linux-rdma/rdma-core#1481). builtin: ib_core is part of the kernel, so neither image nor modprobe.d matters.
        force_loaded names the RDMA modules that the image loads without a device asking for them. whole is False for
        an image that is damaged. Values that are not known are None with a reason.
    """
    result: dict = {
        "kernel": image["kernel"],
        "path": image["path"],
        "kind": image["kind"],
        "builder": builder,
        "mode": None,
        "holds_option": None,
        "holds_ib_core": None,
        "builtin": builtin(tree, image["kernel"]),
        "force_loaded": None,
        "stale": None,
        "size": None,
        "modules": None,
        "formats": None,
        "whole": None,
        "reason": None,
    }
    path = path or image["path"]
    if path is None:
        result["reason"] = f"kernel {image['kernel']} has no image in /boot"
        return result
    try:
        places = [tree.path(name) for name in (path, *image.get("overlays", ()))]
        result["size"] = os.stat(places[0]).st_size
        with open_image(places) as file:
            contents = read_image(file)
    except UnreadableImage as error:
        result["whole"] = False if error.damaged else None
        result["reason"] = f"{path}: {error}"
        return result
    except (OSError, ValueError) as error:
        result["reason"] = f"{path}: {getattr(error, 'strerror', None) or error}"
        return result
    inside = netns_mode.configured(contents["config"])
    result.update(
        {
            "mode": inside["mode"],
            "holds_option": inside["by"] is not None,
            "holds_ib_core": contents["holds_ib_core"],
            "force_loaded": contents["force_loaded"],
            "modules": len(contents["modules"]),
            "formats": contents["formats"],
            "whole": True,
            "reason": inside["reason"],
        }
    )
    result["stale"] = is_stale(result, file_setting)
    if details is not None:
        details.update({"modules": contents["modules"], "unpacked": contents["unpacked"]})
    return result


def is_stale(image: dict, file_setting: dict) -> bool | None:
    """Tell whether an image disagrees with modprobe.d in a way that matters; None when one of them is not known."""
    if image["builtin"]:
        return False
    if image["holds_ib_core"] is None or file_setting["reason"]:
        return None
    if not image["holds_ib_core"]:
        return False
    if image["reason"]:
        return True  # it holds a value that ib_core would refuse
    default = netns_mode.KERNEL_DEFAULT
    return (image["mode"] or default) != (file_setting["mode"] or default)


def inspect_all(tree: Tree, file_setting: dict, loader: dict | None = None, details: dict | None = None) -> list[dict]:
    """Describe the images of all installed kernels.

    :param loader: what boot_loader.read returns; it tells which image is the ``default`` one.
    :param details: is given ``{path: details}``, see :func:`inspect_image`.
    :returns: as :func:`inspect_image`, with ``default`` (True, False, or None with ``reason_default``).
    """
    builder = find_builder(tree)
    images = []
    for image in list_images(tree, builder):
        more: dict = {}
        images.append(inspect_image(tree, image, builder, file_setting, more))
        if details is not None:
            details[image["path"]] = {**more, "overlays": image["overlays"]}
    mark_default(images, loader)
    return images


def mark_default(images: list[dict], loader: dict | None) -> None:
    """Set ``default`` and ``reason_default`` of all images: which one boots next by the boot loader's configuration.

    An only image needs no boot loader to tell. Of several images of the default kernel those count that the default
    entry names; without such an entry, all that are no fallback.
    """
    known = loader["default_kernel"] if loader else None
    if len(images) == 1 or known is None:
        reason = (loader or {}).get("reason") or "the boot loader's configuration does not tell which kernel boots next"
        for image in images:
            image["default"] = True if len(images) == 1 else None
            image["reason_default"] = None if len(images) == 1 else reason
        return
    entry = boot_loader.default_entry(loader) or {}
    named = entry.get("initrd") or []
    named = {os.path.basename(name) for name in ([named] if isinstance(named, str) else named)}
    of_kernel = [image for image in images if image["kernel"] == known]
    chosen = [image for image in of_kernel if image["path"] and os.path.basename(image["path"]) in named]
    chosen = chosen or [image for image in of_kernel if image["kind"] != "fallback"]
    for image in images:
        image["default"] = any(image is one for one in chosen) if chosen else None
        image["reason_default"] = None if chosen else f"kernel {known} boots next, and no image of it was found"


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

    Where the default image is known only that one counts. Without an image in /boot the answer follows from the file
    only where no builder is installed, too: elsewhere the image may lie in a place that is not looked at.
    """
    images = [image for image in images if image.get("default")] or images
    if not images:
        image = None
        if builder != "none":
            reason = f"{builder} is installed, but no boot image was found in /boot"
            image = {"holds_ib_core": None, "mode": None, "reason": reason}
        return netns_mode.next_boot(file_setting, line_setting, image)
    answers = [netns_mode.next_boot(file_setting, line_setting, _effective(image)) for image in images]
    unknown = next((answer for answer in answers if answer["mode"] is None), None)
    if unknown:
        return unknown
    if len({answer["mode"] for answer in answers}) > 1:
        told = ", ".join(f"{image['kernel']} {answer['mode']}" for image, answer in zip(images, answers))
        return {"mode": None, "reason": f"it depends on the kernel that is booted: {told}"}
    return answers[0]


def _effective(image: dict) -> dict:
    """An ib_core within the kernel is there before any modprobe.d, as if an image held it without an option."""
    return {**image, "holds_ib_core": True, "mode": None, "reason": None} if image.get("builtin") else image
