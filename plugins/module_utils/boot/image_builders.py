# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The programs that build boot images: which one is here, how it is called, and what to write where none may be called.

An image is built beside the old one under another name where the builder can do that (*beside*): the old one stays as
it is until the new one was judged. ``update-initramfs`` and ``kernel-install`` cannot, their hooks know only the
final names (*in place*): of those images a copy is kept.
"""

from __future__ import annotations

import posixpath
import re

from ansible_collections.railyard.rdma.plugins.module_utils.netns import netns_mode
from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree

DRACUT_FILE = "/etc/dracut.conf.d/90-railyard-ib_core.conf"
_PROGRAM_DIRECTORIES = ("/usr/sbin", "/usr/bin", "/sbin", "/bin")
_PROGRAMS = {"initramfs-tools": "update-initramfs"}
_WORKSPACES = {"initramfs-tools": "/var/tmp", "dracut": "/var/tmp", "mkinitcpio": "/tmp"}


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


def find_system(tree: Tree) -> str:
    """Tell whether the system's boot images are made elsewhere: ``talos``, ``flatcar``, ``rpm-ostree``, ``bootc``, or
    ``mutable`` for one that builds its own.

    os-release(5) tells the first two; ``/run/ostree-booted`` is there on every system booted by ostree, and
    ``/sysroot/ostree`` in its tree when it is not running.
    """
    text = tree.read("/etc/os-release").value or tree.read("/usr/lib/os-release").value or ""
    release = dict(re.findall(r"^(ID|ID_LIKE|VARIANT_ID)=[\"']?([^\"'\n]*)", text, re.MULTILINE))
    if release.get("ID") == "talos":
        return "talos"
    if release.get("ID") in ("flatcar", "coreos") or "flatcar" in release.get("ID_LIKE", "").split():
        return "flatcar"
    booted = tree.exists("/run/ostree-booted") or (not tree.live and tree.exists("/sysroot/ostree"))
    if booted and find_program(tree, "rpm-ostree"):
        return "rpm-ostree"
    return "bootc" if booted else "mutable"


def is_beside(builder: str, image: dict) -> bool:
    """Tell whether the builder can write the new image under another name."""
    return builder in ("dracut", "mkinitcpio", "booster") and image["kind"] in ("plain", "fallback")


def build_command(tree: Tree, builder: str, image: dict, output: str) -> list[str]:
    """Return the command that builds one image.

    :param image: an entry of boot_images.list_images.
    :param output: where to write it; only for builders for which :func:`is_beside` is true.
    :raises ValueError: when this image cannot be built here; the text says why and what to do.
    """
    kernel, path = image["kernel"], image["path"]
    program = find_program(tree, _PROGRAMS.get(builder, builder))
    if program is None or image["kind"] in ("uki", "ostree"):
        what = {
            "uki": "it is a unified kernel image, which is built (and signed) by the system's own tool",
            "ostree": "it belongs to an ostree deployment",
        }.get(image["kind"], "no program that builds boot images was found")
        raise ValueError(
            f"{path} must be rebuilt, but {what}. Rebuild it with the system's own tool, then run this again."
        )
    if image["kind"] == "entry":
        installer = find_program(tree, "kernel-install")
        if installer is None:
            raise ValueError(f"{path} must be rebuilt by kernel-install, which was not found")
        return _kernel_install(tree, installer, builder, kernel)
    if builder == "initramfs-tools":
        if posixpath.basename(path) != f"initrd.img-{kernel}":
            raise ValueError(f"{path} must be rebuilt, but update-initramfs writes /boot/initrd.img-{kernel} only")
        return [program, "-u", "-k", kernel]
    if builder == "dracut":
        return [program, "--force", output, kernel]
    if builder == "mkinitcpio":
        return [program, "-k", kernel, *_preset_options(tree, image), "-g", output]
    return [program, "build", "--force", "--kernel-version", kernel, output]


def _kernel_install(tree: Tree, program: str, builder: str, kernel: str) -> list[str]:
    """kernel-install(8) builds the image with its own plugin, except for initramfs-tools, whose image it is given."""
    kernels = (f"/lib/modules/{kernel}/vmlinuz", f"/usr/lib/modules/{kernel}/vmlinuz", f"/boot/vmlinuz-{kernel}")
    found = next((path for path in kernels if tree.exists(path)), None)
    if found is None:
        raise ValueError(f"kernel-install needs the kernel {kernel}, which was not found in {', '.join(kernels)}")
    ready = f"/boot/initrd.img-{kernel}"
    more = [ready] if builder == "initramfs-tools" and tree.exists(ready) else []
    return [program, "add", kernel, found, *more]


def _preset_options(tree: Tree, image: dict) -> list[str]:
    """Return the options that mkinitcpio's preset gives for this image (``NAME_config``, ``NAME_options``): a fallback
    image is built with ``-S autodetect``, for example."""
    for name in tree.names("/etc/mkinitcpio.d"):
        text = tree.read(f"/etc/mkinitcpio.d/{name}").value or "" if name.endswith(".preset") else ""
        values = dict(re.findall(r"^\s*(\w+)=[\"']?([^\"'\n#]*)[\"']?", text, re.MULTILINE))
        preset = next((key[: -len("_image")] for key, value in values.items() if _is_image(key, value, image)), None)
        if preset is None:
            continue
        config = values.get(f"{preset}_config") or values.get("ALL_config")
        return (["-c", config] if config else []) + values.get(f"{preset}_options", "").split()
    return ["-S", "autodetect"] if image["kind"] == "fallback" else []


def _is_image(key: str, value: str, image: dict) -> bool:
    return key.endswith("_image") and value.strip() == image["path"]


def workspace(builder: str) -> str | None:
    """Return the directory in which a builder collects an image's files before it packs them, None when it has none.
    initramfs-tools and dracut take /var/tmp, mkinitcpio /tmp; a TMPDIR of ours is not passed on to them."""
    return _WORKSPACES.get(builder)


def dracut_cure(tree: Tree, file_setting: dict) -> dict | None:
    """Return the configuration that makes dracut put the option into its images, ``{path, before, after}``; None when
    it is there already or there is no option to put.

    dracut leaves /etc/modprobe.d out of most images, depending on its modules and on hostonly (seen with 059 in both
    settings); files named by ``install_items`` are always installed (dracut.conf(5)).

    :param file_setting: result of netns_mode.configured.
    """
    option_file = file_setting["by"]
    if option_file is None:
        return None
    after = (
        "# Written by railyard.rdma.boot_image: without this line dracut's images may lack the option of ib_core.\n"
        f'install_items+=" {option_file} "\n'
    )
    before = tree.read(DRACUT_FILE).value
    return None if before == after else {"path": DRACUT_FILE, "before": before or "", "after": after}


def advice(system: str, mode: str, images: list[dict]) -> str | None:
    """Return what to write into the configuration of a system whose images are not built by us; None for others.

    :param mode: the wanted mode.
    :param images: as boot_images.inspect_all tells them.
    """
    value = netns_mode.option_value(mode)
    option, argument = f"options ib_core netns_mode={value}", f"ib_core.netns_mode={value}"
    if system == "mutable":
        return _kernel_argument(argument, images)
    return {
        "talos": f"""Talos builds its images itself. Put this into the machine configuration, then reboot with talosctl:
machine:
  kernel:
    modules:
      - name: ib_core
        parameters:
          - netns_mode={value}
  install:
    extraKernelArgs:
      - {argument}
""",
        "flatcar": f"""Flatcar loads ib_core from its root file system, so the file alone is enough. For nodes to come put it into
the Butane configuration as well:
variant: flatcar
version: 1.0.0
storage:
  files:
    - path: {netns_mode.OUR_FILE}
      mode: 0644
      overwrite: true
      contents:
        inline: |
          {option}
""",
        "rpm-ostree": f"""rpm-ostree builds the images of its deployments. Run one of these, then reboot; the first needs the file:
rpm-ostree initramfs-etc --track={netns_mode.OUR_FILE}
rpm-ostree kargs --append-if-missing={argument}
""",
        "bootc": f"""The boot image is part of the container image. Add this to its Containerfile, then bootc upgrade and reboot:
RUN mkdir -p /usr/lib/bootc/kargs.d && \\
    echo 'kargs = ["{argument}"]' > /usr/lib/bootc/kargs.d/10-ib_core.toml
""",
    }[system]


def _kernel_argument(argument: str, images: list[dict]) -> str | None:
    reasons = []
    inside = [image["kernel"] for image in images if image["builtin"]]
    if inside:
        reasons.append(f"ib_core is part of the kernel {', '.join(sorted(set(inside)))}, which reads no modprobe.d")
    unified = [image["path"] for image in images if image["kind"] == "uki" and image["stale"] is not False]
    if unified:
        reasons.append(f"the unified kernel image {', '.join(unified)} is not built here")
    if any(image["builder"] == "none" and image["stale"] for image in images):
        reasons.append("no program that builds boot images is installed")
    if not reasons:
        return None
    return f"Set the kernel argument {argument} in the boot loader's configuration: {'; '.join(reasons)}."
