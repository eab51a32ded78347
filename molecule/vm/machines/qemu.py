# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""QEMU: which one can do it, and its arguments for one machine."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from pathlib import Path

PROGRAM = "qemu-system-x86_64"
RAILS = 4
MEMORY = "1024"
# Without what nobody uses here: every device costs emulated time at boot.
CPU = "qemu64,-svm,+rdrand"  # without rdrand, both guests draw the same MAC addresses for their VFs
MACHINE = "q35,smm=off,hpet=off,sata=off,usb=off,vmport=off,i8042=off"
MONITOR = "monitor.sock"


def problem() -> str | None:
    """Return why machines cannot run here, None when they can. igb came with QEMU 8.0; PFs that work need 10."""
    program = shutil.which(PROGRAM)
    if program is None:
        return f"{PROGRAM} is not installed"
    listing = subprocess.run([program, "-device", "help"], capture_output=True, text=True, check=False)
    if 'name "igb"' not in listing.stdout:
        version = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
        return f"{version.partition(chr(10))[0] or PROGRAM} has no device igb"
    return None


def arguments(name: str, number: int, peer: str, port: int) -> list[str]:
    """Return the command line of a machine, to run in the folder that holds the folders of both, with their disks.

    :param number: of the machine, 0 or 1; it ends the MAC addresses.
    :param peer: name of the other machine. Rail N of both is one link, over sockets that need no order of starting.
    :param port: of 127.0.0.1 for ssh; 0 for a free one that the kernel chooses, :func:`ssh_port` tells which.

    The kernel given to QEMU is GRUB in the form of one (customize.sh). QEMU loads it again when the machine resets, and
    it reads the guest's own /boot.

    TCG by default: it runs everywhere, and on nested machines KVM may be the slower one. VM_ACCEL=kvm chooses.
    """
    accelerator = os.environ.get("VM_ACCEL", "tcg")
    words = [shutil.which(PROGRAM) or PROGRAM, "-name", name, "-machine", MACHINE, "-accel", accelerator]
    words += ["-cpu", CPU, "-smp", "1", "-m", MEMORY, "-nodefaults", "-display", "none", "-no-user-config"]
    words += ["-kernel", f"{name}/grub.img", "-serial", f"file:{name}/console.log"]
    words += ["-qmp", f"unix:{name}/{MONITOR},server=on,wait=off"]
    for disk in ("root", "boot"):
        words += ["-drive", f"if=virtio,format=raw,cache=unsafe,discard=unmap,file={name}/{disk}.img"]
    words += ["-object", "rng-random,id=random,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=random"]
    words += ["-netdev", f"user,id=ssh,restrict=on,ipv6=off,hostfwd=tcp:127.0.0.1:{port}-:22"]
    words += ["-device", f"virtio-net-pci,netdev=ssh,mac=52:54:00:00:00:{number:02x},romfile="]
    for rail in range(RAILS):
        local, remote = f"{name}/rail{rail}.sock", f"{peer}/rail{rail}.sock"
        # A function at 0X:00.0 behind a root port of its own: VFs need the port's ARI forwarding.
        words += ["-device", f"pcie-root-port,id=port{rail},chassis={rail + 1},slot={rail + 1},addr={16 + rail:#x}"]
        words += [
            "-netdev",
            f"dgram,id=rail{rail},local.type=unix,local.path={local},remote.type=unix,remote.path={remote}",
        ]
        words += [
            "-device",
            f"igb,romfile=,bus=port{rail},netdev=rail{rail},mac=52:54:00:00:{rail + 1:02x}:{number:02x}",
        ]
    return words


class Monitor:
    """QEMU's monitor (QMP) of a running machine; OSError while there is none."""

    def __init__(self, folder: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(20)
        descriptor = os.open(folder, os.O_PATH)  # a socket address holds only 107 bytes (unix(7))
        try:
            self._socket.connect(f"/proc/self/fd/{descriptor}/{MONITOR}")
        finally:
            os.close(descriptor)
        self._stream = self._socket.makefile("rw", encoding="utf-8")
        self._stream.readline()
        self.run("qmp_capabilities")

    def run(self, command: str, **arguments) -> object:
        """Run a command and return its answer; OSError when QEMU refuses it or ends."""
        self._stream.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        self._stream.flush()
        for line in self._stream:
            answer = json.loads(line)
            if "error" in answer:
                raise OSError(f"QEMU refuses {command}: {answer['error'].get('desc')}")
            if "return" in answer:
                return answer["return"]
        raise OSError("QEMU has ended")

    def close(self) -> None:
        self._stream.close()
        self._socket.close()


def ssh_port(folder: Path) -> int:
    """Return the port of 127.0.0.1 that leads to the machine's sshd. OSError while the machine does not run."""
    monitor = Monitor(folder)
    try:
        listing = str(monitor.run("human-monitor-command", **{"command-line": "info usernet"}))
    finally:
        monitor.close()
    for line in listing.splitlines():
        words = line.split()
        if words and words[0] == "TCP[HOST_FORWARD]":
            return int(words[3])
    raise OSError("QEMU forwards no port")
