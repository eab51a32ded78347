# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Looks at the prepared nodes without the collection's own facts: files, sysfs, kmod, cpio and the rdma command."""

from __future__ import annotations

import gzip
import re

SHARED = "Y"  # drivers/infiniband/core/device.c: ib_devices_shared_netns


def test_live_mode_is_shared(host):
    assert host.file("/sys/module/ib_core/parameters/netns_mode").content_string.strip() == SHARED
    assert "netns shared" in host.check_output("rdma system show")


def test_option_file_says_shared_and_is_the_only_owner(host):
    options = [
        line for line in host.check_output("modprobe --showconfig").splitlines() if line.startswith("options ib_core ")
    ]
    assert options == ["options ib_core netns_mode=1"]
    assert "ib_core.netns_mode" not in host.file("/proc/cmdline").content_string


def test_boot_image_holds_the_option(host):
    kernel = host.check_output("uname -r")
    image = gzip.decompress(host.file(f"/boot/initrd.img-{kernel}").content)
    # newc cpio (Documentation/driver-api/early-userspace/buffer-format.rst): the name ends in NUL and is padded, the data follows.
    entry = re.search(rb"etc/modprobe\.d/ib_core\.conf\0+([^\0]*)", image)
    assert entry, "the image holds no etc/modprobe.d/ib_core.conf"
    assert b"options ib_core netns_mode=1" in entry[1].splitlines()


def test_node_was_rebooted_once(host):
    # The rehearsal counts boots where a real node would have its journal.
    boots = host.file("/var/lib/rehearsal/boots").content_string.split()
    assert len(boots) == 2, boots
    assert boots[-1] == host.file("/proc/sys/kernel/random/boot_id").content_string.strip()


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


def test_no_backup_or_temporary_file_is_left(host):
    assert host.check_output("find /etc/modprobe.d -name '*~' -o -name '.*' -type f -o -name '*.tmp'") == ""
    assert host.check_output("find /boot -name '*.new' -o -name '.*' -type f") == ""
