# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A root file system with the real builders of boot images, and a way to run them and our module inside it.

Everything runs in mount and PID namespaces of its own, so no mount and no process stays behind.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import ansible.module_utils

REPOSITORY = Path(__file__).parents[2]
CACHE = REPOSITORY / ".cache" / "builders"
SCRIPT = Path(__file__).with_name("make_root.sh")
UNAVAILABLE = 75
PYTHON_PATH = "/opt/railyard"
OPTION_FILE = "etc/modprobe.d/ib_core.conf"

# Mounts what a builder expects, changes into the root and runs a command there.
_ENTER = """
set -eu
root=$1; shift
mount --make-rprivate /
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
if [ -n "${BOOT_SIZE:-}" ]; then
  mount -t tmpfs -o "size=$BOOT_SIZE" tmpfs "$root/mnt"
  cp -a "$root/boot/." "$root/mnt/"
  mount --move "$root/mnt" "$root/boot"
fi
if [ -n "${BOOT_READ_ONLY:-}" ]; then
  mount --bind "$root/boot" "$root/boot"
  mount -o remount,ro,bind "$root/boot"
fi
exec chroot "$root" "$@"
"""

_RUN_MODULE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from ansible.module_utils.testing import patch_module_args
from ansible_collections.railyard.rdma.plugins.modules import boot_image
with patch_module_args(json.loads(sys.argv[2])):
    boot_image.main()
"""


def make_archive() -> tuple[Path | None, str]:
    """Return the archive of the root, made when the cache does not hold one by this script for this system; None with a
    reason where it cannot be had."""
    digest = hashlib.sha256()
    for path in (SCRIPT, Path("/etc/os-release"), *sorted(Path("/etc/apt").glob("sources.list*"))):
        if path.is_file():
            digest.update(path.read_bytes())
    archive = CACHE / f"root-{digest.hexdigest()[:16]}.tar"
    if not archive.exists():
        if os.geteuid() != 0:
            return None, "only root can make a root file system"
        done = subprocess.run([str(SCRIPT), str(archive)], capture_output=True, text=True, check=False)
        if done.returncode == UNAVAILABLE:
            return None, done.stderr.strip()
        if done.returncode != 0:
            raise RuntimeError(f"{SCRIPT.name} ended with code {done.returncode}: {done.stderr[-2000:]}")
    return archive, ""


class Root:
    """The unpacked root."""

    def __init__(self, archive: Path, place: Path) -> None:
        self.path = place
        subprocess.run(["tar", "--numeric-owner", "--exclude=./dev/*", "-xf", archive, "-C", place], check=True)
        (self.kernel,) = os.listdir(place / "usr/lib/modules")
        self.image = place / "boot" / f"initrd.img-{self.kernel}"
        self._install_module()

    def _install_module(self) -> None:
        library = self.path / PYTHON_PATH.lstrip("/")
        (library / "ansible").mkdir(parents=True)
        (library / "ansible/__init__.py").touch()
        source = Path(next(iter(ansible.module_utils.__path__)))
        shutil.copytree(
            source, library / "ansible/module_utils", ignore=shutil.ignore_patterns("__pycache__", "csharp")
        )
        shutil.copytree(source.parent / "_internal", library / "ansible/_internal", dirs_exist_ok=True)
        plugins = library / "ansible_collections/railyard/rdma/plugins"
        for name in ("modules", "module_utils"):
            shutil.copytree(
                REPOSITORY / "plugins" / name, plugins / name, ignore=shutil.ignore_patterns("__pycache__", "cluster")
            )

    def run(self, *command: str, check: bool = True, **environment: str) -> subprocess.CompletedProcess:
        done = subprocess.run(
            [
                "unshare",
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "sh",
                "-c",
                _ENTER,
                "sh",
                str(self.path),
                *command,
            ],
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", **environment},
        )
        if check and done.returncode != 0:
            raise AssertionError(f"{command[0]} ended with code {done.returncode}: {done.stdout}{done.stderr}")
        return done

    def module(self, environment: dict | None = None, **arguments) -> dict:
        """Run the module boot_image inside, with root=/."""
        done = self.run(
            "python3", "-c", _RUN_MODULE, PYTHON_PATH, json.dumps(arguments), check=False, **(environment or {})
        )
        try:
            return json.loads(done.stdout)
        except ValueError:
            raise AssertionError(f"no result: {done.stdout}{done.stderr}") from None

    def write(self, path: str, text: str) -> None:
        place = self.path / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def set_mode(self, mode: str | None) -> None:
        """Set or remove the option on the root file system, as ib_core_netns does."""
        if mode is None:
            (self.path / OPTION_FILE).unlink(missing_ok=True)
        else:
            self.write(OPTION_FILE, f"options ib_core netns_mode={0 if mode == 'exclusive' else 1}\n")

    def only_builder(self, builder: str) -> None:
        """Leave only this builder where it is looked for; the other one's program stands aside."""
        for name, owner in (
            ("mkinitramfs", "initramfs-tools"),
            ("update-initramfs", "initramfs-tools"),
            ("dracut", "dracut"),
        ):
            directory = self.path / ("usr/bin" if owner == "dracut" else "usr/sbin")
            here, aside = directory / name, self.path / "opt" / name
            if owner == builder and aside.exists():
                shutil.move(aside, here)
            elif owner != builder and here.exists():
                shutil.move(here, aside)

    def boot_files(self) -> list[str]:
        return sorted(name for name in os.listdir(self.path / "boot") if name.startswith((".", "init")))
