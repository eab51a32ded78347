"""The disk of a node: what differs from this machine's root, made once, kept over reboots, gone with the supervisor.

It is an overlay (upper layer on a tmpfs in the supervisor's mount namespace) and a separate small /boot. The machine's
own module options, boot files, home folders and ssh keys are hidden, so that a node starts as a clean Ubuntu-like
host.
"""

import contextlib
import os
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

from rehearsal.machine import linux

TOOLS = Path(__file__).parent / "tools"
RDMA_TOOL = Path(__file__).parent.parent / "kernel" / "tools" / "rdma"
DISK_SIZE, BOOT_SIZE = "1g", "64m"

# Folders of this machine that a node must not see; the mode is what the node's own, empty one gets.
HIDDEN = {
    "root": 0o700, "home": 0o755, "boot": 0o755, "tmp": 0o1777, "var/tmp": 0o1777, "run": 0o755, "etc/ssh": 0o755,
    "etc/modprobe.d": 0o755, "usr/lib/modprobe.d": 0o755, "usr/lib/modules": 0o755, "etc/initramfs-tools": 0o755,
    "var/lib/initramfs-tools": 0o755, "etc/ansible": 0o755, "etc/sysctl.d": 0o755, "var/log": 0o755,
}  # fmt: skip
# Folders that get files of the node's own: in a user namespace only folders made by us can be written to.
WRITABLE = (
    "etc",
    "usr",
    "usr/bin",
    "usr/sbin",
    "usr/lib",
    "usr/local",
    "usr/local/bin",
    "usr/local/sbin",
    "var",
    "var/lib",
    "opt",
    "mnt",
)

SSHD_CONFIG = """\
Port 22
ListenAddress 127.0.0.1
HostKey /etc/ssh/ssh_host_ed25519_key
AuthorizedKeysFile .ssh/authorized_keys
PermitRootLogin prohibit-password
PubkeyAuthentication yes
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
StrictModes yes
MaxSessions 512
MaxStartups 512
PrintMotd no
Subsystem sftp internal-sftp
"""
BLACKLIST = """\
# Drivers that must not be loaded by hot-plug.
blacklist evbug
install usbmouse /bin/true
"""


def mount_disk(node_dir: Path) -> Path:
    """Mount disk, /boot and overlay in this (private) mount namespace; the node's root folder. Called once per
    supervisor.
    """
    disk, root = node_dir / "disk", node_dir / "root"
    for folder in (disk, root):
        folder.mkdir(exist_ok=True)
    linux.mount("railyard-disk", str(disk), "tmpfs", linux.MS_NODEV, f"size={DISK_SIZE},mode=755")
    upper, work, boot = disk / "upper", disk / "work", disk / "boot"
    for folder in (upper, work, boot):
        folder.mkdir()
    # In a user namespace overlayfs keeps its marks in user.* attributes (kernel 5.11, tmpfs 6.6).
    private = Path("/proc/self/uid_map").read_text().split() != ["0", "0", "4294967295"]
    _upper_folders(upper, "user" if private else "trusted")
    # The folder names stay out of the options, where a comma or colon in a path would end them.
    here = os.getcwd()
    os.chdir(disk)
    try:
        options = "lowerdir=/,upperdir=upper,workdir=work" + (",userxattr" if private else "")
        linux.mount("railyard-root", str(root), "overlay", 0, options)
    finally:
        os.chdir(here)
    linux.mount("railyard-boot", str(boot), "tmpfs", linux.MS_NODEV, f"size={BOOT_SIZE},mode=755")
    linux.bind(str(boot), str(root / "boot"))
    return root


def _upper_folders(upper: Path, prefix: str) -> None:
    os.chmod(upper, 0o755)
    wanted = [*WRITABLE, *(str(path).lstrip("/") for path in _etc_folders())]
    for name in wanted:
        _folder(upper, name, 0o755)
    for name, mode in HIDDEN.items():
        folder = _folder(upper, name, mode)
        os.setxattr(folder, f"{prefix}.overlay.opaque", b"y")


def _etc_folders() -> list[Path]:
    found = []
    for place, folders, _files in os.walk("/etc"):
        found += [Path(place) / name for name in folders if not (Path(place) / name).is_symlink()]
    return found


def _folder(upper: Path, name: str, mode: int) -> Path:
    folder = upper
    for part in Path(name).parts:
        folder = folder / part
        if not folder.exists():
            below = Path("/") / folder.relative_to(upper)
            folder.mkdir()
            os.chmod(folder, below.stat().st_mode & 0o7777 if below.is_dir() else 0o755)
    os.chmod(folder, mode if name in HIDDEN else folder.stat().st_mode & 0o7777)
    return folder


def prepare(root: Path, spec: dict[str, Any], public_key: str, kernel: str) -> None:
    """The first boot's files: name, ssh, module options for ``spec["initial_mode"]``, kernel, boot image, tools."""
    name = spec["name"]
    _write(root / "etc/hostname", f"{name}\n")
    _write(
        root / "etc/hosts",
        f"127.0.0.1 localhost\n::1 localhost ip6-localhost\n{spec.get('address') or '127.0.1.1'} {name}\n",
    )
    _write(root / "etc/machine-id", f"{random.Random(name).getrandbits(128):032x}\n", 0o444)
    # No password opens the node, and "*" is not the "!" that sshd takes for a locked account.
    _write(root / "etc/shadow", "root:*:19700:0:99999:7:::\n", 0o600)
    _ssh(root, public_key)
    _kernel_files(root, kernel)
    _write(root / "etc/modprobe.d/blacklist.conf", BLACKLIST)
    if spec.get("initial_mode") == "exclusive":
        _write(root / "etc/modprobe.d/ib_core.conf", "options ib_core netns_mode=0\n")
    _write(root / "etc/initramfs-tools/initramfs.conf", "MODULES=most\nCOMPRESS=gzip\n")
    _install_tools(root)
    done = subprocess.run(
        ["chroot", str(root), "/usr/sbin/update-initramfs", "-c", "-k", kernel],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise OSError(f"the first boot image was not built: {done.stderr.strip() or done.stdout.strip()}")


def _write(path: Path, text: str | bytes, mode: int = 0o644) -> None:
    # A new file takes the place of the machine's: in a user namespace the machine's own cannot be opened for writing.
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(mode)


def _ssh(root: Path, public_key: str) -> None:
    key = root / "etc/ssh/ssh_host_ed25519_key"
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "rehearsal", "-f", str(key)],
        check=True,
        stdin=subprocess.DEVNULL,
    )
    _write(root / "etc/ssh/sshd_config", SSHD_CONFIG)
    (root / "root/.ssh").mkdir(mode=0o700)
    _write(root / "root/.ssh/authorized_keys", public_key, 0o600)


def _kernel_files(root: Path, kernel: str) -> None:
    modules = root / "usr/lib/modules" / kernel
    lines = []
    for name in ("core/ib_core.ko", "core/ib_uverbs.ko", "core/rdma_cm.ko", "hw/mlx5/mlx5_ib.ko"):
        # Module files without code: nothing loads them, but a boot image has their weight.
        content = b"\x7fELF" + random.Random(name).randbytes(96 * 1024)
        _write(modules / "kernel/drivers/infiniband" / name, content)
        needs = "" if name == "core/ib_core.ko" else " kernel/drivers/infiniband/core/ib_core.ko"
        lines.append(f"kernel/drivers/infiniband/{name}:{needs}\n")
    _write(modules / "modules.dep", "".join(lines))
    _write(root / "boot" / f"vmlinuz-{kernel}", random.Random(kernel).randbytes(64 * 1024), 0o600)
    command = f"/boot/vmlinuz-{kernel} root=LABEL=cloudimg-rootfs ro console=tty1 console=ttyS0"
    _write(
        root / "boot/grub/grub.cfg",
        f"menuentry 'Ubuntu' {{\n\tlinux {command}\n\tinitrd /boot/initrd.img-{kernel}\n}}\n",
        0o600,
    )


def _install_tools(root: Path) -> None:
    for tool in sorted(TOOLS.iterdir()):
        _install(root, tool, tool.name)
    _install(root, TOOLS / "shutdown", "reboot")
    if RDMA_TOOL.exists():
        _install(root, RDMA_TOOL, "rdma")


def _install(root: Path, source: Path, name: str) -> None:
    # systemctl and lsinitramfs live in /usr/bin; a machine with its own copy elsewhere must not show through.
    places = ["usr/bin", "bin"] if name in ("systemctl", "lsinitramfs") else ["usr/sbin", "sbin"]
    for place in places:
        if (root / place).is_dir():
            _write(root / place / name, source.read_bytes(), 0o755)
    found = shutil.which(name, path=os.pathsep.join(str(root / place) for place in places))
    if found is None:
        raise OSError(f"the stand-in {name} did not reach the node")
