# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is installed on a node's disk: kernels, the boot loader's configuration, the image builder, a container runtime.

The spec says which, each optional: ``boot_loader`` (grub, as Debian has it: grub.cfg generated from /etc/default/grub;
or bls, as Red Hat has it: an entry file for each kernel), ``builder`` (initramfs-tools, dracut, dracut-wrapped: dracut
with an update-initramfs in front of it, as Ubuntu 25.10 has it; or none), ``compression`` of the images, ``kernels``
(versions besides this machine's own), ``runtime`` (containerd, crio, none).
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rehearsal.machine import bootloader

TOOLS = Path(__file__).parent / "tools"
KERNEL_TOOLS = Path(__file__).parent.parent / "kernel" / "tools"
LIBRARY = "usr/lib/rehearsal"
Write = Callable[..., None]

BOOT_LOADERS = ("grub", "bls")
BUILDERS = ("initramfs-tools", "dracut", "dracut-wrapped", "none")
COMPRESSIONS = ("gzip", "xz", "zstd", "lz4")
RUNTIMES = ("containerd", "crio", "none")
# Every name that a builder or boot loader may have: a machine's own must not show through.
_CHOICES = (
    *("update-initramfs", "mkinitramfs", "lsinitramfs", "dracut", "lsinitrd", "mkinitcpio", "booster"),
    *("update-grub", "grub-mkconfig", "grub2-mkconfig", "grubby"),
)
_OF_BUILDER = {
    "initramfs-tools": {
        "update-initramfs": "update-initramfs",
        "mkinitramfs": "update-initramfs",
        "lsinitramfs": "lsinitramfs",
    },
    "dracut": {"dracut": "dracut"},
    "dracut-wrapped": {"dracut": "dracut", "update-initramfs": "update-initramfs.dracut"},
    "none": {},
}
_OF_LOADER = {"grub": {"update-grub": "update-grub", "grub-mkconfig": "update-grub"}, "bls": {"grubby": "grubby"}}
_IN_BIN = ("systemctl", "lsinitramfs", "dracut")

# Module files without code: nothing loads them, but a boot image has their weight. Name, folder, what it needs.
MODULES = (
    ("mlx5_core", "kernel/drivers/net/ethernet/mellanox/mlx5/core", ()),
    ("ib_core", "kernel/drivers/infiniband/core", ()),
    ("ib_cm", "kernel/drivers/infiniband/core", ("ib_core",)),
    ("iw_cm", "kernel/drivers/infiniband/core", ("ib_core",)),
    ("ib_umad", "kernel/drivers/infiniband/core", ("ib_core",)),
    ("ib_uverbs", "kernel/drivers/infiniband/core", ("ib_core",)),
    ("rdma_cm", "kernel/drivers/infiniband/core", ("ib_cm", "iw_cm", "ib_core")),
    ("rdma_ucm", "kernel/drivers/infiniband/core", ("rdma_cm", "ib_uverbs", "ib_cm", "iw_cm", "ib_core")),
    ("mlx5_ib", "kernel/drivers/infiniband/hw/mlx5", ("ib_uverbs", "ib_core", "mlx5_core")),
)
_DOCA_FOLDER = "updates/dkms"  # where DOCA-OFED's packages put their modules on Debian and Ubuntu
_MODULE_SIZE = 48 * 1024
_BUILTIN = ("drivers/tty/serial/8250/8250", "drivers/pci/hotplug/pciehp", "fs/ext4/ext4", "net/ipv6/ipv6")
ROOT_ARGUMENTS = "root=LABEL=cloudimg-rootfs ro"
CONSOLE = "console=tty1 console=ttyS0"


def install(root: Path, spec: dict[str, Any], kernel: str, write: Write) -> None:
    """Everything but the images and what is generated from files (see :func:`finish`)."""
    for name in _CHOICES:
        for place in ("usr/bin", "usr/sbin", "usr/local/bin", "usr/local/sbin"):
            (root / place / name).unlink(missing_ok=True)
    for version in kernels(spec, kernel):
        _kernel(root, version, spec.get("driver", "doca_ofed"), write)
    _tools(root, spec, write)
    loader, compression = spec.get("boot_loader") or "grub", spec.get("compression") or "gzip"
    if builder(spec) == "initramfs-tools":
        write(root / "etc/initramfs-tools/initramfs.conf", f"MODULES=most\nBUSYBOX=auto\nCOMPRESS={compression}\n")
        write(root / "etc/initramfs-tools/modules", "# List of modules that you want to include in your initramfs.\n")
        (root / "etc/initramfs-tools/hooks").mkdir()
    elif builder(spec) != "none":
        write(root / "etc/dracut.conf", "# Put your settings into files in /etc/dracut.conf.d/\n")
        # dracut leaves /etc/modprobe.d out; a node that starts with a mode in its image has had this.
        items = 'install_items+=" /etc/modprobe.d/ib_core.conf "\n' if spec.get("initial_mode") == "exclusive" else ""
        write(root / "etc/dracut.conf.d/10-site.conf", f'hostonly="no"\ncompress="{compression}"\n{items}')
    if loader == "grub":
        write(
            root / "etc/default/grub",
            'GRUB_DEFAULT=0\nGRUB_TIMEOUT=0\nGRUB_DISTRIBUTOR=Ubuntu\nGRUB_CMDLINE_LINUX_DEFAULT="quiet splash"\n'
            'GRUB_CMDLINE_LINUX=""\n',
        )
        # The cloud image's own file, which replaces what /etc/default/grub says.
        write(root / "etc/default/grub.d/50-cloudimg-settings.cfg", f'GRUB_CMDLINE_LINUX_DEFAULT="{CONSOLE}"\n')
        (root / "boot/grub").mkdir(exist_ok=True)
        bootloader.write_environment(root / bootloader.GRUB_ENV, {})
    else:
        _entries(root, kernels(spec, kernel), write)
    _runtime(root, spec.get("runtime") or "containerd", write)


def finish(root: Path, spec: dict[str, Any], kernel: str) -> None:
    """Build the image of each kernel and generate the boot loader's configuration, with the node's own programs."""
    commands = []
    for version in kernels(spec, kernel):
        image = image_path(spec, version)
        commands.append({
            "initramfs-tools": ["/usr/sbin/update-initramfs", "-c", "-k", version],
            "none": [f"/{LIBRARY}/mkinitramfs", "-o", image, version],
        }.get(builder(spec), ["/usr/bin/dracut", "--force", image, version]))  # fmt: skip
    if (spec.get("boot_loader") or "grub") == "grub":
        commands.append(["/usr/sbin/update-grub"])
    for command in commands:
        run(root, command)


def run(root: Path, command: list[str]) -> None:
    """Run a program of the node on its disk, before it boots. OSError with what it said when it fails."""
    done = subprocess.run(["chroot", str(root), *command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")


def builder(spec: dict[str, Any]) -> str:
    """The builder of the spec, with the default that the boot loader's distribution has."""
    return spec.get("builder") or ("dracut" if spec.get("boot_loader") == "bls" else "initramfs-tools")


def kernels(spec: dict[str, Any], kernel: str) -> list[str]:
    """This machine's kernel, which ``uname`` shows whatever was booted, and the spec's."""
    return [kernel, *(spec.get("kernels") or [])]


def image_path(spec: dict[str, Any], version: str) -> str:
    """Where the distribution has the image of a kernel."""
    bls = spec.get("boot_loader") == "bls"
    return f"/boot/initramfs-{version}.img" if bls else f"/boot/initrd.img-{version}"


def add_to_kernel_line(root: Path, spec: dict[str, Any], words: list[str], write: Write) -> None:
    """Put words where the distribution keeps them: /etc/default/grub, or the options of every entry."""
    text = " ".join(words)
    if spec.get("boot_loader") == "bls":
        for path in sorted((root / bootloader.ENTRIES).glob("*.conf")):
            lines = path.read_text(encoding="utf-8").splitlines()
            lines = [f"{line} {text}" if line.startswith("options ") else line for line in lines]
            write(path, "\n".join(lines) + "\n")
        return
    path = root / "etc/default/grub"
    write(path, path.read_text(encoding="utf-8") + f'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {text}"\n')


def _kernel(root: Path, version: str, driver: str, write: Write) -> None:
    modules = root / "usr/lib/modules" / version
    places = {
        name: f"{_DOCA_FOLDER if driver == 'doca_ofed' else folder}/{name}.ko" for name, folder, _needs in MODULES
    }
    lines = []
    for name, _folder, needs in MODULES:
        write(modules / places[name], b"\x7fELF" + random.Random(name).randbytes(_MODULE_SIZE))
        lines.append(f"{places[name]}:{''.join(' ' + places[other] for other in needs)}\n")
    write(modules / "modules.dep", "".join(lines))
    write(modules / "modules.order", "".join(f"{place}\n" for place in places.values()))
    write(modules / "modules.builtin", "".join(f"kernel/{name}.ko\n" for name in _BUILTIN))
    write(root / "boot" / f"vmlinuz-{version}", random.Random(version).randbytes(64 * 1024), 0o600)
    write(root / "boot" / f"config-{version}", "CONFIG_MODULES=y\nCONFIG_INFINIBAND=m\nCONFIG_RD_ZSTD=y\n")


def _tools(root: Path, spec: dict[str, Any], write: Write) -> None:
    for path in sorted((TOOLS / "lib").glob("*.py")):
        write(root / LIBRARY / path.name, path.read_bytes())
    write(root / LIBRARY / "mkinitramfs", (TOOLS / "update-initramfs").read_bytes(), 0o755)
    chosen = {"systemctl": "systemctl", "shutdown": "shutdown", "reboot": "shutdown"}
    chosen |= _OF_BUILDER[builder(spec)] | _OF_LOADER[spec.get("boot_loader") or "grub"]
    sources = {name: TOOLS / source for name, source in chosen.items()}
    sources |= {name: KERNEL_TOOLS / name for name in ("rdma", "link-child", "ib_write_bw", "all_reduce_perf")}
    if spec.get("driver", "doca_ofed") == "doca_ofed":
        sources["mlnx_qos"] = KERNEL_TOOLS / "mlnx_qos"
    for name, source in sources.items():
        _tool(root, source, name, write)
    # In a launcher's container these come before the real ones (operators/launchers.py).
    for name in ("ssh", "mpirun"):
        write(root / LIBRARY / "launcher" / name, (KERNEL_TOOLS / "launcher-call").read_bytes(), 0o755)
    for path in sorted((root / "etc").glob("python3*/sitecustomize.py")):
        write(path, path.read_bytes() + b"\n" + (KERNEL_TOOLS / "ethtool_ioctl.py").read_bytes())


def _tool(root: Path, source: Path, name: str, write: Write) -> None:
    # What a machine has elsewhere must not show through.
    places = (
        ["usr/bin", "bin"] if name in (*_IN_BIN, "mlnx_qos", "ib_write_bw", "all_reduce_perf") else ["usr/sbin", "sbin"]
    )
    for place in places:
        if (root / place).is_dir():
            write(root / place / name, source.read_bytes(), 0o755)
    if shutil.which(name, path=os.pathsep.join(str(root / place) for place in places)) is None:
        raise OSError(f"the stand-in {name} did not reach the node")


def _entries(root: Path, versions: list[str], write: Write) -> None:
    """Boot loader entries of Red Hat's layout, with /boot as a partition of its own: paths are from there."""
    machine = (root / "etc/machine-id").read_text(encoding="ascii").strip()
    write(root / "etc/default/grub", 'GRUB_DEFAULT=saved\nGRUB_CMDLINE_LINUX=""\nGRUB_ENABLE_BLSCFG=true\n')
    write(root / "etc/kernel/cmdline", f"{ROOT_ARGUMENTS} {CONSOLE}\n")
    header = 'set default="${saved_entry}"\nload_env\ninsmod blscfg\nblscfg\n'
    write(root / bootloader.BLS_GRUB, header, 0o600)
    for version in versions:
        write(
            root / bootloader.ENTRIES / f"{machine}-{version}.conf",
            f"title Oracle Linux Server ({version})\nversion {version}\nlinux /vmlinuz-{version}\n"
            f"initrd /initramfs-{version}.img\noptions {ROOT_ARGUMENTS} {CONSOLE}\ngrub_users $grub_users\n"
            "grub_arg --unrestricted\ngrub_class ol\n",
        )
    bootloader.write_environment(root / bootloader.BLS_ENV, {"saved_entry": f"{machine}-{versions[-1]}"})


def _runtime(root: Path, name: str, write: Write) -> None:
    """A container runtime's files, set so that containers may lock all memory, each in the runtime's own way."""
    if name == "none":
        return
    unit = root / f"usr/lib/systemd/system/{name}.service"
    limits = "LimitNPROC=infinity\nLimitCORE=infinity\nTasksMax=infinity\nOOMScoreAdjust=-999\n"
    write(unit, f"[Unit]\nDescription=container runtime\n\n[Service]\nExecStart=/usr/bin/{name}\n{limits}")
    if name == "containerd":
        write(root / "etc/containerd/config.toml", 'version = 2\n\n[plugins."io.containerd.grpc.v1.cri"]\n')
        write(root / "etc/systemd/system/containerd.service.d/10-memlock.conf", "[Service]\nLimitMEMLOCK=infinity\n")
    else:
        write(root / "etc/crio/crio.conf", '[crio]\nroot = "/var/lib/containers/storage"\n')
        write(root / "etc/crio/crio.conf.d/10-crio.conf", '[crio.runtime]\ndefault_runtime = "crun"\n')
        write(root / "etc/crio/crio.conf.d/11-default.conf", '[crio.runtime]\ndefault_ulimits = ["memlock=-1:-1"]\n')
