# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nodes as a whole: ssh, reboot, the mode that follows the boot image, boots that fail, and what is left at the end."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess

import pytest
from machine_support import ansible, assert_gone, leftovers, rehearsal, wait_for

from rehearsal.machine import enter

pytestmark = [pytest.mark.fleet, pytest.mark.usefixtures("possible")]
MODE = "/sys/module/ib_core/parameters/netns_mode"


@pytest.fixture(scope="module")
def state(tmp_path_factory, possible):
    """Two nodes, started exclusive; taken down at the end, and then nothing may be left."""
    folder = tmp_path_factory.mktemp("fleet with space") / "state"
    rehearsal("up", "--no-cluster", "--nodes", "2", "--state", folder)
    yield folder
    sockets = list(folder.rglob("*.sock"))
    assert sockets
    rehearsal("down", "--state", folder)
    assert_gone(folder)


def boot(state, name):
    return json.loads((state / "nodes" / name / "boot.json").read_text())


def status(state, name):
    return json.loads((state / "nodes" / name / "status.json").read_text())


def on_node(state, name, *argv, **options):
    return asyncio.run(enter.run(state / "nodes" / name, list(argv), **options))


def shell(state, name, text):
    code, out, err = on_node(state, name, "sh", "-ec", text)
    assert code == 0, err.decode()
    return out.decode()


def reboot(state, name):
    before = boot(state, name)["boot_id"]
    shell(state, name, "shutdown -r now")
    wait_for(lambda: status(state, name)["state"] != "up", f"{name} goes down")
    wait_for(lambda: status(state, name)["state"] in ("up", "panic"), f"{name} comes back")
    if status(state, name)["state"] == "up":
        wait_for((state / "nodes" / name / "boot.json").exists, "boot.json")
        assert boot(state, name)["boot_id"] != before


def test_ssh_reaches_two_different_hosts(state):
    command = "hostname; cat /proc/sys/kernel/random/boot_id"
    text = ansible(state, "gpu_nodes", "-m", "ansible.builtin.shell", "-a", command)
    for name in ("gpu-1", "gpu-2"):
        assert f"\n{name}\n{boot(state, name)['boot_id']}" in text
    assert boot(state, "gpu-1")["boot_id"] != boot(state, "gpu-2")["boot_id"]


def test_a_node_is_no_view_of_this_machine(state):
    assert shell(state, "gpu-1", "ls /home /root /lib/modprobe.d").split() == ["/home:", "/lib/modprobe.d:", "/root:"]
    links = shell(state, "gpu-1", "ls /sys/class/net").split()
    assert "rdma15" in links
    assert "rdma15" not in os.listdir("/sys/class/net")


def test_reboot_by_the_real_module(state):
    before = boot(state, "gpu-2")
    text = ansible(state, "gpu-2", "-m", "ansible.builtin.reboot")
    assert "rebooted: true" in text
    after = boot(state, "gpu-2")
    assert after["boot_id"] != before["boot_id"]
    assert shell(state, "gpu-2", "cat /proc/sys/kernel/random/boot_id").strip() == after["boot_id"]


def test_disk_lasts_over_a_reboot_and_run_does_not(state):
    shell(state, "gpu-2", "echo kept >/etc/kept; echo lost >/run/lost")
    reboot(state, "gpu-2")
    assert shell(state, "gpu-2", "cat /etc/kept; ls /run").startswith("kept\n")
    assert "lost" not in shell(state, "gpu-2", "ls /run").split()


def test_mode_follows_the_image_and_not_the_file(state):
    assert shell(state, "gpu-1", f"cat {MODE}").strip() == "N"
    shell(state, "gpu-1", "echo 'options ib_core netns_mode=1' >/etc/modprobe.d/ib_core.conf")
    reboot(state, "gpu-1")
    assert shell(state, "gpu-1", f"cat {MODE}").strip() == "N"
    text = shell(state, "gpu-1", "update-initramfs -u -k all; lsinitramfs /boot/initrd.img-$(uname -r)")
    assert text.startswith("update-initramfs: Generating /boot/initrd.img-")
    assert "etc/modprobe.d/ib_core.conf" in text.splitlines()
    assert shell(state, "gpu-1", f"cat {MODE}").strip() == "N"
    reboot(state, "gpu-1")
    assert shell(state, "gpu-1", f"cat {MODE}").strip() == "Y"


def test_a_kernel_argument_needs_update_grub_and_a_reboot(state):
    def argument_is_there():
        return "ib_core.netns_mode=1" in shell(state, "gpu-2", "cat /proc/cmdline")

    line = 'GRUB_CMDLINE_LINUX="ib_core.netns_mode=1"'
    shell(state, "gpu-2", f"echo '{line}' >>/etc/default/grub")
    reboot(state, "gpu-2")
    assert not argument_is_there()
    shell(state, "gpu-2", "update-grub")
    assert not argument_is_there()
    reboot(state, "gpu-2")
    assert argument_is_there()
    assert shell(state, "gpu-2", f"cat {MODE}").strip() == "Y", "it wins over the image"
    shell(state, "gpu-2", "sed -i '$d' /etc/default/grub; update-grub")
    reboot(state, "gpu-2")
    assert shell(state, "gpu-2", f"cat {MODE}").strip() == "N"


def test_full_boot_keeps_the_old_image(state):
    text = shell(
        state,
        "gpu-1",
        "cd /boot; sum() { sha256sum initrd.img-$(uname -r); }; sum; dd if=/dev/zero of=fill bs=1M "
        "2>/dev/null || true; "
        "update-initramfs -u && echo built || echo code $?; sum; ls; rm fill; update-initramfs -u && echo built",
    )
    lines = text.splitlines()
    sums = [
        line for line in lines if line.endswith(f"initrd.img-{os.uname().release}") and len(line) > 64 and " " in line
    ]
    assert sums[0] == sums[1]
    assert "code 1" in lines
    assert f"initrd.img-{os.uname().release}.new" not in lines
    assert lines[-1] == "built"


def test_pod_namespaces_and_input(state):
    shell(state, "gpu-1", "ip netns add pod-1")
    code, out, _err = on_node(
        state, "gpu-1", "sh", "-c", "cat; ls /proc/sys/net/ipv4/conf; exit 7", netns="pod-1", stdin=b"in\n"
    )
    assert code == 7
    assert out.decode().split() == ["in", "all", "default", "lo"]
    shell(state, "gpu-1", "ip netns del pod-1")


def test_what_is_not_simulated_is_refused(state):
    code, _out, err = on_node(state, "gpu-1", "systemctl", "restart", "kubelet")
    assert code == 1
    assert b"not in this rehearsal" in err
    code, _out, err = on_node(state, "gpu-1", "shutdown", "-r", "+5")
    assert code == 1
    assert on_node(state, "gpu-1", "systemctl", "is-system-running")[1] == b"running\n"


def test_second_up_changes_nothing_and_another_fleet_is_refused(state):
    assert "up already" in rehearsal("up", "--no-cluster", "--nodes", "2", "--state", state)
    assert "another fleet is up" in rehearsal("up", "--no-cluster", "--nodes", "1", "--state", state, code=1)
    assert "gpu-1" in rehearsal("status", "--state", state)


def test_z_broken_image_keeps_the_node_down(state):
    """The last test on gpu-2: nothing brings it back."""
    shell(state, "gpu-2", "head -c 1000 /boot/initrd.img-$(uname -r) >/boot/x; mv /boot/x /boot/initrd.img-$(uname -r)")
    reboot(state, "gpu-2")
    assert status(state, "gpu-2")["state"] == "panic"
    text = rehearsal("status", "--state", state, code=1)
    assert "panic" in text
    assert f"/boot/initrd.img-{os.uname().release} is broken" in text
    with pytest.raises(enter.NodeDown):
        on_node(state, "gpu-2", "true")
    ansible(state, "gpu-2", "-m", "ansible.builtin.ping", code=4)
    ansible(state, "gpu-1", "-m", "ansible.builtin.ping")


@pytest.mark.parametrize("signal", [9, 15])
def test_supervisor_takes_everything_with_it(tmp_path, signal):
    folder = tmp_path / "state"
    rehearsal("up", "--no-cluster", "--nodes", "1", "--shape", "BM.HPC2.36", "--state", folder)
    (process,) = json.loads((folder / "fleet.json").read_text())["processes"]
    os.kill(process["pid"], signal)
    wait_for(lambda: leftovers(folder) == [], "the node's processes and mounts end")
    assert "ended" in rehearsal("status", "--state", folder, code=1)
    rehearsal("down", "--state", folder)
    assert_gone(folder)


def test_initial_mode_and_names_of_the_machine(tmp_path):
    folder = tmp_path / "state"
    before = subprocess.run(["ip", "-o", "link"], capture_output=True, check=True).stdout
    rehearsal(
        "up", "--no-cluster", "--nodes", "1", "--shape", "BM.HPC2.36", "--initial-mode", "shared", "--state", folder
    )
    assert subprocess.run(["ip", "-o", "link"], capture_output=True, check=True).stdout == before
    assert shell(folder, "gpu-1", f"cat {MODE}; ls /etc/modprobe.d").split() == ["Y", "blacklist.conf"]
    rehearsal("down", "--state", folder)
    assert_gone(folder)
