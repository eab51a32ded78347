# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Judge a rebuilt boot image before anybody boots it, and keep the old one within reach until then.

The modes are those of netns_mode; images are described as by boot_images.inspect_image.
"""

from __future__ import annotations

import os
import shutil

from ansible_collections.railyard.rdma.plugins.module_utils import netns_mode

_MARGIN = 8 << 20
_OLD = ".railyard-old"


def build_command(builder: str, image: dict, program: str) -> list[str]:
    """Return the command that rebuilds one image in place.

    :raises ValueError: for a builder that is not supported, with the remedy in the text.
    """
    if builder == "initramfs-tools":
        return [program, "-u", "-k", image["kernel"]]
    if builder == "dracut":
        return [program, "--force", image["path"], image["kernel"]]
    what = "no program that builds boot images was found" if builder == "none" else f"{builder} is not supported yet"
    raise ValueError(
        f"{image['path']} must be rebuilt, but {what}. Supported: initramfs-tools (update-initramfs), dracut. "
        "Rebuild it with the system's own tool, then run this again."
    )


def program_name(builder: str) -> str:
    """Return the name of the program that :func:`build_command` runs."""
    return {"initramfs-tools": "update-initramfs"}.get(builder, builder)


def space_needed(size: int) -> int:
    """Return the bytes that must be free: the builder writes the new image beside the old one, of which we keep a
    copy."""
    return 2 * size + _MARGIN


def space_problem(directory: str, size: int) -> str | None:
    """Return a sentence when the file system of a directory has too little room to rebuild an image of ``size``
    bytes."""
    status = os.statvfs(directory)
    free = status.f_bavail * status.f_frsize
    needed = space_needed(size)
    if free >= needed:
        return None
    return (
        f"{directory} has {free >> 20} MiB free, rebuilding an image of {size >> 20} MiB needs {needed >> 20} MiB "
        "(the new image and a copy of the old one). Remove old kernels or enlarge the file system."
    )


def judge(old: dict, new: dict, mode: str, minimum_percent: int) -> list[str]:
    """Return the reasons why a rebuilt image must not be booted; an empty list when it may.

    :param old: the image before the rebuild; its size and modules may be unknown (None) when it was damaged.
    :param mode: the mode that ib_core must get from it.
    :param minimum_percent: what the new image must have of the old one's size and number of modules.
    """
    if not new["whole"]:
        return [f"it cannot be read: {new['reason']}"]
    reasons = []
    if old["holds_ib_core"] and not new["holds_ib_core"]:
        reasons.append("ib_core is no longer in it")
    if new["holds_ib_core"]:
        got = None if new["reason"] else new["mode"] or netns_mode.KERNEL_DEFAULT
        if got != mode:
            told = new["reason"] or ("it sets no netns_mode" if new["mode"] is None else f"it sets {new['mode']}")
            reasons.append(f"ib_core would not get mode {mode} from it: {told}")
    for key, unit in (("size", "bytes"), ("modules", "modules")):
        if old[key] and new[key] is not None and new[key] * 100 < old[key] * minimum_percent:
            reasons.append(
                f"it has {new[key]} {unit}, the old one had {old[key]} (at least {minimum_percent} % expected)"
            )
    return reasons


def keep_copy(path: str) -> str:
    """Copy an image to a name beside it and make sure that the copy is on disk; returns that name.

    A copy, not a hard link: dracut writes into the existing file, which would change the linked one, too.
    """
    copy = path + _OLD
    shutil.copy2(path, copy)
    _flush(copy)
    return copy


def restore(path: str) -> None:
    """Put the kept copy back in one step (rename), so that at no time there is half an image."""
    os.replace(path + _OLD, path)
    _flush(os.path.dirname(path))


def forget_copy(path: str) -> None:
    """Make sure that the new image is on disk, then remove the copy of the old one."""
    _flush(path)
    _flush(os.path.dirname(path))
    os.unlink(path + _OLD)


def left_behind(path: str) -> bool:
    """Tell whether a copy is there, so an earlier run was interrupted before it judged the new image."""
    return os.path.exists(path + _OLD)


def _flush(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
