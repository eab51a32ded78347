# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Judge a rebuilt boot image before anybody boots it, and keep the old one within reach until then.

Three names may stand beside an image ``/boot/X`` for a while:

- ``.railyard-part.X``: a copy of X that is being made; worth nothing,
- ``.railyard-old.X``: the complete copy of X, while a builder works in place and until the result was judged,
- ``.railyard-new.X``: the new image, when a builder works beside the old one; not judged yet, worth nothing.

All begin with a dot, so nothing takes them for an image or a kernel: GRUB's scripts and u-boot-menu look for
``vmlinuz-*`` and ask for images by exact names, update-initramfs by ``initrd.img-VERSION`` of installed kernels,
mkinitcpio by the names of its presets, systemd-boot and kernel-install only know EFI/Linux/*.efi and the directory
of their entry; shell patterns do not match a leading dot. A copy at the *end* of the name (``initrd.img-V.old``) would
match ``initrd.img-*``.

The modes are those of netns_mode; images are described as by boot_images.inspect_image.
"""

from __future__ import annotations

import contextlib
import os
import shutil

from ansible_collections.railyard.rdma.plugins.module_utils.netns import netns_mode

_MARGIN = 8 << 20
_PART, _OLD, _NEW = ".railyard-part.", ".railyard-old.", ".railyard-new."
# Without these a machine may not reach its root file system.
_ESSENTIAL = (
    "kernel/fs/",
    "kernel/drivers/ata",
    "kernel/drivers/block",
    "kernel/drivers/hv",
    "kernel/drivers/md",
    "kernel/drivers/mmc",
    "kernel/drivers/nvme",
    "kernel/drivers/scsi",
    "kernel/drivers/usb/storage",
    "kernel/drivers/virtio",
)
_NAMED = 8


def space_needed(size: int, beside: bool) -> int:
    """Return the bytes that must be free beside an image of ``size`` bytes: the builder writes the new one, a quarter
    larger at most, and in place a copy of the old one is kept, too."""
    return size + size // 4 + (0 if beside else size) + _MARGIN


def workspace_needed(size: int, unpacked: int | None) -> int:
    """Return the bytes that a builder needs where it collects files: the tree, its archive and the packed archive. Of
    an image that could not be read it is not known how large it unpacks: five times is usual."""
    return 2 * (unpacked or 5 * size) + size + _MARGIN


def space_problem(directory: str, needed: int, what: str) -> str | None:
    """Return a sentence when a directory cannot be written or its file system has less than ``needed`` bytes free."""
    try:
        status = os.statvfs(directory)
    except OSError as error:
        return f"{directory}: {error.strerror}"
    if status.f_flag & os.ST_RDONLY:
        return f"{directory} is mounted read-only. Mount it writable first."
    if not os.access(directory, os.W_OK):
        return f"{directory} must not be written by this user. Run with become."
    free = status.f_bavail * status.f_frsize
    if free >= needed:
        return None
    return (
        f"{directory} has {free >> 20} MiB free, {needed >> 20} MiB are needed ({what}). "
        "Remove old kernels or enlarge the file system."
    )


def judge(old: dict, new: dict, mode: str, minimum_percent: int, loaded: frozenset = frozenset()) -> list[str]:
    """Return the reasons why a rebuilt image must not be booted; an empty list when it may.

    :param old: the image before the rebuild; its size and modules may be unknown (None) when it was damaged. With
        ``names`` ({module: directory}, see boot_images.inspect_image, details) lost modules are named.
    :param new: the image after the rebuild, in the same form.
    :param mode: the mode that ib_core must get from it.
    :param minimum_percent: what the new image must have of the old one's size and number of modules.
    :param loaded: modules that run now. One that the root file system is reached through must not get lost, however
        small the loss.
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
    if not old["whole"]:
        return reasons
    before, after = old.get("names") or {}, new.get("names") or {}
    lost = sorted(name for name in before if name not in after)
    essential = [name for name in lost if before[name].startswith(_ESSENTIAL)]
    missing = [name for name in essential if name in loaded]
    if missing:
        reasons.append(f"it lacks modules for disks or file systems that are in use: {_named(missing)}")
    for key, unit in (("size", "bytes"), ("modules", "modules")):
        if old[key] and new[key] is not None and new[key] * 100 < old[key] * minimum_percent:
            told = f"it has {new[key]} {unit}, the old one had {old[key]} (at least {minimum_percent} % expected)"
            if key == "modules" and lost:
                told += f"; lost are {_named(essential + [name for name in lost if name not in essential])}"
            reasons.append(told)
    return reasons


def _named(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def kept_name(path: str) -> str:
    """Return where the copy of an image is kept."""
    return _beside(path, _OLD)


def new_name(path: str) -> str:
    """Return where a builder that works beside the old image writes the new one."""
    return _beside(path, _NEW)


def keep_copy(place: str) -> None:
    """Copy an image and make sure that the copy is on disk before it gets the name that counts: a copy cut short by a
    crash must never be put back.

    A copy, not a hard link: a builder that writes into the existing file would change the linked one, too, and the
    EFI system partition has no links.
    """
    part = _beside(place, _PART)
    try:
        shutil.copy2(place, part)
        _flush(part)
        os.replace(part, kept_name(place))
    except OSError:
        remove(part)
        raise
    _flush(os.path.dirname(place))


def restore(place: str) -> None:
    """Put the kept copy back in one step (rename), so that at no time there is half an image."""
    os.replace(kept_name(place), place)
    _flush(os.path.dirname(place))


def forget_copy(place: str) -> None:
    """Make sure that the new image is on disk, then remove the copy of the old one."""
    _flush(place)
    _flush(os.path.dirname(place))
    remove(kept_name(place))


def take_over(place: str) -> None:
    """Give a judged new image the name and the permissions of the old one."""
    new = new_name(place)
    status = os.stat(place)
    os.chmod(new, status.st_mode & 0o7777)
    if os.geteuid() == 0:
        os.chown(new, status.st_uid, status.st_gid)
    _flush(new)
    os.replace(new, place)
    _flush(os.path.dirname(place))


def left_behind(directory: str) -> dict:
    """Tell what an interrupted run left in a directory: ``{kept: [image names], worthless: [file names]}``."""
    found: dict = {"kept": [], "worthless": []}
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(directory)):
            if name.startswith(_OLD):
                found["kept"].append(name[len(_OLD) :])
            elif name.startswith((_PART, _NEW)):
                found["worthless"].append(name)
    return found


def write_file(place: str, text: str) -> None:
    """Write a small configuration file in one step, readable by all, its directory included. Raises OSError."""
    os.makedirs(os.path.dirname(place), mode=0o755, exist_ok=True)
    part = _beside(place, _PART)
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            os.fchmod(file.fileno(), 0o644)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, place)
    except OSError:
        remove(part)
        raise
    _flush(os.path.dirname(place))


def remove(place: str) -> None:
    """Remove a file that need not be there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(place)


def _beside(path: str, prefix: str) -> str:
    directory, _slash, name = path.rpartition("/")
    return f"{directory}/{prefix}{name}"


def _flush(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
