# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nodes with other boot loaders, builders, compressions and runtimes: real images, and boots that follow them."""

from __future__ import annotations

import json
import os

import pytest
from machine_support import assert_gone, rehearsal
from test_nodes import MODE, boot, on_node, reboot, shell

pytestmark = [pytest.mark.fleet, pytest.mark.usefixtures("possible")]
KERNEL, NEWER = os.uname().release, f"{os.uname().release}.1"
RAILS = [{"pci": "0000:0c:00.0", "gpu_pci": "0000:0f:00.0"}, {"pci": "0000:2a:00.0"}]
HOSTS = {
    "debian": {
        "rehearsal_compression": "zstd",
        "rehearsal_kernels": ["<kernel>.1"],
        "rehearsal_not_loaded": ["rdma_ucm"],
    },
    "redhat": {"rehearsal_boot_loader": "bls", "rehearsal_runtime": "crio", "rehearsal_kernels": ["<kernel>.1"]},
    "ubuntu": {"rehearsal_builder": "dracut-wrapped", "rehearsal_compression": "lz4"},
    "vendor": {"rehearsal_builder": "none", "rehearsal_driver": "inbox", "rehearsal_runtime": "none"},
}
OPTION = "/etc/modprobe.d/ib_core.conf"


@pytest.fixture(scope="module")
def state(tmp_path_factory, possible):
    folder = tmp_path_factory.mktemp("variants")
    data = {"gpu_nodes": {"vars": {"rails": RAILS, "rehearsal_initial_mode": "shared"}, "hosts": HOSTS}}
    (folder / "hosts.json").write_text(json.dumps(data))
    rehearsal("up", "--no-cluster", "-i", folder / "hosts.json", "--state", folder / "state")
    yield folder / "state"
    rehearsal("down", "--state", folder / "state")
    assert_gone(folder / "state")


def main_part(state, name, path):
    """The bytes behind the microcode archive of an image."""
    code, data, _err = on_node(state, name, "cat", path)
    assert (code, data[:6]) == (0, b"070701")
    early, _trailer, rest = data.partition(b"TRAILER!!!")
    assert b"kernel/x86/microcode/AuthenticAMD.bin" in early
    return rest.lstrip(b"\0")


def test_each_node_boots_what_its_boot_loader_chooses(state):
    assert [boot(state, name)["kernel"] for name in HOSTS] == [NEWER, NEWER, KERNEL, KERNEL]
    assert shell(state, "debian", "cat /proc/cmdline").startswith(f"BOOT_IMAGE=/boot/vmlinuz-{NEWER} root=")
    assert shell(state, "redhat", "cat /proc/cmdline").startswith(f"BOOT_IMAGE=/vmlinuz-{NEWER} root=")


def test_each_node_has_the_programs_of_its_builder_only(state):
    programs = "update-initramfs mkinitramfs dracut update-grub grubby"
    found = {name: shell(state, name, f"which {programs} || true").split() for name in HOSTS}
    assert {name: [path.rpartition("/")[2] for path in paths] for name, paths in found.items()} == {
        "debian": ["update-initramfs", "mkinitramfs", "update-grub"],
        "redhat": ["dracut", "grubby"],
        "ubuntu": ["update-initramfs", "dracut", "update-grub"],
        "vendor": ["update-grub"],
    }


def test_images_have_microcode_first_and_the_compression_of_the_configuration(state):
    assert main_part(state, "debian", f"/boot/initrd.img-{NEWER}").startswith(b"\x28\xb5\x2f\xfd")
    assert main_part(state, "redhat", f"/boot/initramfs-{NEWER}.img").startswith(b"\x1f\x8b")
    assert main_part(state, "ubuntu", f"/boot/initrd.img-{KERNEL}").startswith(b"\x02\x21\x4c\x18")


def test_dracut_leaves_modprobe_d_out_until_it_is_named(state):
    shell(state, "ubuntu", f"echo 'options ib_core netns_mode=0' >{OPTION}; update-initramfs -u -k {KERNEL}")
    reboot(state, "ubuntu")
    assert shell(state, "ubuntu", f"cat {MODE}").strip() == "Y"
    shell(state, "ubuntu", f"echo 'install_items+=\" {OPTION} \"' >/etc/dracut.conf.d/x.conf; update-initramfs -u")
    reboot(state, "ubuntu")
    assert shell(state, "ubuntu", f"cat {MODE}").strip() == "N"


def test_dracut_refuses_and_fails_as_the_original(state):
    path = f"/boot/initramfs-{KERNEL}.img"
    code, _out, err = on_node(state, "redhat", "dracut", path, KERNEL)
    assert (code, b"without --force" in err) == (1, True)
    code, _out, err = on_node(state, "redhat", "dracut", "--force", "/boot/new.img", "no-such-kernel")
    assert (code, b"Cannot find module directory" in err) == (1, True)
    shell(state, "redhat", "cp /boot/*.img /tmp; head -c 3M /dev/urandom >/tmp/big; "
          "dd if=/dev/zero of=/boot/fill bs=4k 2>/dev/null || true")  # fmt: skip
    code, _out, err = on_node(state, "redhat", "dracut", "--force", "-I", "/tmp/big", path, KERNEL)
    assert (code, b"No space left on device" in err) == (1, True)
    listing = shell(state, "redhat", "ls /boot; rm /boot/fill; cp /tmp/*.img /boot").split()
    assert path.rpartition("/")[2] not in listing, "cp writes in place, and what it could not finish goes"


def test_grubby_changes_the_next_boot(state):
    shell(state, "redhat", "grubby --update-kernel=ALL --args=ib_core.netns_mode=0")
    shell(state, "redhat", f"grubby --set-default=/boot/vmlinuz-{KERNEL}")
    reboot(state, "redhat")
    assert boot(state, "redhat")["kernel"] == KERNEL
    assert shell(state, "redhat", f"cat {MODE}").strip() == "N"
    shell(state, "redhat", "grubby --update-kernel=ALL --remove-args=ib_core.netns_mode")
    assert "netns_mode" not in shell(state, "redhat", "grubby --info=ALL")


def test_a_hook_of_initramfs_tools_can_fail_and_can_take_things_away(state):
    path, hook = f"/boot/initrd.img-{KERNEL}", "/etc/initramfs-tools/hooks/site"
    before = shell(state, "debian", f"sha256sum {path}; printf '#!/bin/sh\nexit 3\n' >{hook}; chmod +x {hook}")
    code, _out, err = on_node(state, "debian", "update-initramfs", "-u", "-k", KERNEL)
    assert (code, b"failed with return 3" in err) == (1, True)
    assert shell(state, "debian", f"sha256sum {path}") == before
    shell(
        state,
        "debian",
        f"printf '#!/bin/sh\nrm -r $DESTDIR/usr/lib/modules\n' >{hook}; update-initramfs -u -k {KERNEL}",
    )
    assert "ib_core" not in shell(state, "debian", f"lsinitramfs {path}")
    shell(state, "debian", f"rm {hook}; update-initramfs -u -k {KERNEL}; lsinitramfs {path} | grep ib_core.ko")


def test_runtimes_have_the_limits_of_their_units(state):
    def limits(name, service):
        pid = shell(state, name, f"cat /sys/fs/cgroup/system.slice/{service}.service/cgroup.procs").strip()
        assert shell(state, name, f"cat /proc/{pid}/comm").strip() == service
        return shell(state, name, f"grep locked /proc/{pid}/limits").split()[3:5]

    assert limits("debian", "containerd") == ["unlimited", "unlimited"]
    assert limits("redhat", "crio") == ["8388608", "8388608"], "CRI-O gives its containers a limit of their own"
    assert shell(state, "vendor", "ls /sys/fs/cgroup/system.slice") == ""


def test_what_belongs_to_doca_ofed_and_to_loaded_modules(state):
    assert "rdma_check_gid_user_access\t[ib_core]" in shell(state, "ubuntu", "cat /proc/kallsyms")
    assert "rdma_check_gid_user_access" not in shell(state, "vendor", "cat /proc/kallsyms")
    assert "PFC configuration" in shell(state, "ubuntu", "mlnx_qos -i rdma0")
    assert on_node(state, "vendor", "which", "mlnx_qos")[0] == 1
    assert shell(state, "debian", "ls /dev/infiniband").split() == ["umad0", "umad1", "uverbs0", "uverbs1"]
    assert "rdma_cm" in shell(state, "ubuntu", "ls /dev/infiniband").split()


def test_device_nodes_follow_the_vfs(state):
    file = "/sys/bus/pci/devices/0000:0c:00.0/sriov_numvfs"
    assert "uverbs3" in shell(state, "ubuntu", f"echo 2 >{file}; ls /dev/infiniband").split()
    assert "uverbs2" not in shell(state, "ubuntu", f"echo 0 >{file}; ls /dev/infiniband").split()


def test_services_of_the_boot(state):
    shell(state, "vendor", "echo 'net.ipv6.conf.rdma0.disable_ipv6 = 1' >/etc/sysctl.d/x.conf; "
          "printf '#!/bin/sh\nip netns add pod-1\n' >/etc/rc.local; chmod +x /etc/rc.local")  # fmt: skip
    reboot(state, "vendor")
    assert shell(state, "vendor", "cat /proc/sys/net/ipv6/conf/rdma0/disable_ipv6; ls /run/netns").split() == [
        "1",
        "pod-1",
    ]
