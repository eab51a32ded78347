# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Looks at the prepared nodes without the collection's own facts: files, sysfs, kmod, cpio and the rdma command."""

from __future__ import annotations

import gzip
import json
import re
import subprocess

import pytest

UNPACK = {
    b"\x1f\x8b": gzip.decompress,
    b"\x28\xb5": lambda data: subprocess.run(["zstd", "-dc"], input=data, capture_output=True, check=True).stdout,
}
INSTALLED = "/etc/ansible/facts.d/rdma.fact"


@pytest.fixture
def wanted(host):
    """(mode, value of the option, content of sysfs); drivers/infiniband/core/device.c: ib_devices_shared_netns."""
    mode = host.ansible.get_variables()["rails_netns_mode"]
    return {"shared": (mode, "1", "Y"), "exclusive": (mode, "0", "N")}[mode]


def images(host):
    """Path of each boot image -> the root file system in it, unpacked."""
    found = {}
    for path in host.check_output("ls /boot/initrd.img-* /boot/initramfs-*.img 2>/dev/null || true").split():
        data = host.file(path).content
        # Microcode is a cpio archive of its own and ends with this name (newc, buffer-format.rst), then zeros.
        main = data[data.index(b"TRAILER!!!") + len(b"TRAILER!!!") :].lstrip(b"\0")
        found[path] = UNPACK[main[:2]](main)
    return found


def test_live_mode_is_the_wanted_one(host, wanted):
    assert host.file("/sys/module/ib_core/parameters/netns_mode").content_string.strip() == wanted[2]
    assert f"netns {wanted[0]}" in host.check_output("rdma system show")


def test_option_file_is_right_and_the_only_owner(host, wanted):
    options = [
        line for line in host.check_output("modprobe --showconfig").splitlines() if line.startswith("options ib_core ")
    ]
    assert options == [f"options ib_core netns_mode={wanted[1]}"]
    assert "ib_core.netns_mode" not in host.file("/proc/cmdline").content_string
    assert "netns_mode" not in host.check_output(
        "cat /etc/default/grub; cat /boot/loader/entries/* 2>/dev/null || true"
    )


def test_the_image_of_every_kernel_holds_the_option(host, wanted):
    found = images(host)
    assert len(found) == len(host.check_output("ls /boot").split("vmlinuz-")) - 1
    for path, data in found.items():
        # The name ends in NUL and is padded, the data follows.
        entry = re.search(rb"etc/modprobe\.d/ib_core\.conf\0+([^\0]*)", data)
        assert entry, f"{path} holds no etc/modprobe.d/ib_core.conf"
        assert f"options ib_core netns_mode={wanted[1]}".encode() in entry[1].splitlines()
        assert b"ib_core.ko\0" in data, f"{path} lost ib_core"


def test_dracut_was_told_to_take_the_option_file(host):
    named = host.check_output("grep -rs ib_core.conf /etc/dracut.conf.d || true")
    assert bool(named) is host.file("/usr/bin/dracut").exists
    assert not named or "install_items" in named


def test_node_was_rebooted_once(host):
    # The rehearsal counts boots where a real node would have its journal. Check mode ran before, too.
    boots = host.file("/var/lib/rehearsal/boots").content_string.split()
    assert len(boots) == 2, boots
    assert boots[-1] == host.file("/proc/sys/kernel/random/boot_id").content_string.strip()


def test_the_default_kernel_was_booted(host):
    line = host.file("/proc/cmdline").content_string
    newest = host.check_output("ls /boot | grep ^vmlinuz- | sort -V | tail -n 1")
    assert line.startswith(("BOOT_IMAGE=/boot/" + newest + " ", "BOOT_IMAGE=/" + newest + " "))


def test_rails_have_an_address_and_its_gid(host):
    # One round trip a node: each rail with its first address and the type of GID row 3.
    listing = host.check_output(
        "for rail in /sys/class/net/rdma*; do "
        "echo ${rail##*/} $(ip -4 -o addr show dev ${rail##*/} | tr -s ' ' | cut -d' ' -f4) "
        "$(cat $rail/device/infiniband/*/ports/1/gids/3) $(cat $rail/device/infiniband/*/ports/1/gid_attrs/types/3); done"
    )
    rails = [line.split(maxsplit=3) for line in listing.splitlines()]
    assert len(rails) == 16
    for rail, address, gid, kind in rails:
        octets = [int(part) for part in address.split("/")[0].split(".")]
        mapped = "0000:0000:0000:0000:0000:ffff:{:02x}{:02x}:{:02x}{:02x}".format(*octets)
        assert (gid, kind) == (mapped, "RoCE v2"), rail


def test_installed_facts_say_what_sysfs_says(host, wanted):
    assert host.file(INSTALLED).mode == 0o755
    facts = json.loads(host.check_output(INSTALLED))
    assert facts["netns_mode"]["live"] == facts["netns_mode"]["next_boot"] == wanted[0]
    assert sorted(facts["devices"]) == sorted(host.check_output("ls /sys/class/infiniband").split())


def test_no_backup_or_temporary_file_is_left(host):
    assert host.check_output("find /etc/modprobe.d -name '*~' -o -name '.*' -type f -o -name '*.tmp'") == ""
    assert host.check_output("find /boot -name '*.new' -o -name '.*' -type f -o -name '*railyard*'") == ""
