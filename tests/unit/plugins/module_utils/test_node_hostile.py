# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""gather() over trees that no kernel would show, and over files that fail at any moment: always facts, never an
exception, and no reader may need the net that is below all of them (``internal error``)."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils import node_facts
from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree, read_file
from ansible_collections.railyard.rdma.tests.unit.plugins.module_utils.node_tree import NodeTree, four_rows, image
from hypothesis import given, settings
from hypothesis import strategies as st

PF, VF = "0000:0c:00.0", "0000:0c:00.2"
RAILS = [{"rail": 0, "pci": PF}, {"rail": 1, "netdev": "rdma1"}, {"rail": 2, "pci": "0000:99:00.0"}]


def fill(root: Path) -> NodeTree:
    """A node with a PF, a VF, a software device, an InfiniBand port, VFs, sysctls, files of every reader."""
    node = NodeTree(root).add(
        """
        /sys/module/ib_core/parameters/netns_mode = Y
        /sys/module/mlx_compat/version = 24.10-1.1.4
        /proc/cmdline = root=/dev/sda1 ib_core.netns_mode=1
        /proc/kallsyms = 0000 t rdma_check_gid_user_access\t[ib_core]
        /etc/modprobe.d/ib_core.conf = options ib_core netns_mode=1
        /usr/sbin/update-initramfs = x
        /lib/modules/6.8.0-1/modules.dep =
        /boot/vmlinuz-6.8.0-1 = x
        /boot/grub/grub.cfg = menuentry 'x' { linux /vmlinuz-6.8.0-1 ro }
        /proc/sys/net/ipv4/conf/all/rp_filter = 1
        /proc/sys/net/ipv4/conf/rdma0/rp_filter = 0
        /proc/sys/net/ipv6/conf/rdma0/accept_ra = 2
        /sys/fs/cgroup/system.slice/crio.service/cgroup.procs = 77
        /proc/77/limits = Max locked memory         8388608              unlimited            bytes
        /sys/kernel/config/rdma_cm/mlx5_6/ports/1/default_roce_tos = 106
        """
    )
    (root / "boot/initrd.img-6.8.0-1").write_bytes(image("options ib_core netns_mode=1\n", microcode=False))
    home = node.function(PF, "rdma0")
    node.add(f"{home}/sriov_totalvfs = 8\n{home}/sriov_numvfs = 1\n{home}/net/rdma0/qos/trust = dscp")
    place = node.rdma(home, "mlx5_6", four_rows("rdma0"), rows=6)
    node.add(f"{place}/tc/1/traffic_class = Global tclass=41")
    node.rdma(node.function(VF, "rdma0v0", physfn=PF), "mlx5_18", four_rows("rdma0v0"), rows=6)
    node.rdma(node.function("0000:0d:00.0", "ib0"), "mlx5_7", {}, rows=2, link_layer="InfiniBand")
    soft = node.rdma(None, "rxe0", four_rows("rdma0"), rows=4)
    node.add(f"{soft}/parent = rdma0")
    return node


def judge(facts: dict) -> None:
    json.dumps(facts, ensure_ascii=False).encode()
    assert facts["schema"] == 1
    assert "internal error" not in json.dumps(facts)
    for device in (facts["devices"] or {}).values():
        for key in ("pci", "node_guid", "firmware"):
            assert device[key] is not None or device["reasons"][key], key
        for port in device["ports"].values():
            for key in ("link_layer", "state", "phys_state", "rate_gbps", "netdev", "active_mtu"):
                assert port[key] is not None or port["reasons"][key], key
            for row in port["gids"]:
                assert row["usable"] is True or row["reason"]
    for netdev in (facts["netdevs"] or {}).values():
        for key in ("pci", "ifindex", "kind", "mac", "mtu", "state", "addresses", "default_routes"):
            assert netdev[key] is not None or netdev["reasons"].get(key) or (key == "kind" and netdev["ifindex"]), key
    assert all(rail["reason"] or rail["gid_index"] is not None for rail in facts["rails"])


@pytest.fixture(scope="module")
def healthy():
    root = Path(tempfile.mkdtemp(prefix="hostile-"))
    yield fill(root)
    shutil.rmtree(root)


ERRORS = ("ENODEV", "ENOENT", "EINVAL", "EACCES", "EIO", "ENODATA", "ELOOP", "ENAMETOOLONG", "ETIMEDOUT", "ESTALE")


@settings(max_examples=80)
@given(
    st.lists(st.sampled_from([*ERRORS, "gone", "empty", "binary", "long", None, None, None, None]), min_size=1),
    st.booleans(),
)
def test_a_read_may_fail_at_any_moment(healthy, answers, zero_rows):
    """From the first ``gone`` on the device has vanished: every further read says so."""
    count = 0
    gone = False

    def read(place: str) -> bytes:
        nonlocal count, gone
        answer = answers[count % len(answers)]
        count += 1
        gone = gone or (answer == "gone" and count > len(answers))
        if gone:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        if answer in ERRORS:
            raise OSError(getattr(errno, answer), "injected")
        others = {"empty": b"", "binary": b"\xff\x00\n\xfe", "long": b"1" * 70000}
        return others.get(answer) or (b"" if answer == "empty" else read_file(place))

    judge(node_facts.gather(Tree(str(healthy.root), read), RAILS, zero_rows=zero_rows))


@pytest.mark.parametrize("code", ERRORS)
def test_a_node_of_which_nothing_can_be_read(healthy, code):
    def read(place):
        raise OSError(getattr(errno, code), "injected")

    facts = node_facts.gather(Tree(str(healthy.root), read), RAILS)
    judge(facts)
    assert facts["devices"]["mlx5_6"]["ports"]["1"]["gid_table"]["unreadable"] == 6
    assert facts["netns_mode"]["live"] is None and facts["netns_mode"]["reasons"]["live"]


NAMES = (
    st.binary(min_size=1, max_size=12)
    .filter(lambda name: b"/" not in name and b"\0" not in name)
    .filter(lambda name: name not in (b".", b".."))
)
TEXTS = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(
        [b"0000:0000:0000:0000:0000:ffff:0ae0:0c8f\n", b"RoCE v2\n", b"Ethernet", b"-1\n", b"9" * 40, b"1\n"]
    ),
)


@given(st.lists(st.tuples(NAMES, NAMES, TEXTS), max_size=6), st.data())
def test_names_and_texts_may_be_anything(entries, data):
    root = tempfile.mkdtemp(prefix="hostile-").encode()
    try:
        for device, name, text in entries:
            port = root + b"/sys/class/infiniband/" + device + b"/ports/1"
            for folder in (port + b"/gids", port + b"/gid_attrs/types", root + b"/sys/class/net/" + name):
                os.makedirs(folder, exist_ok=True)
            for place in (port + b"/gids/0", port + b"/gid_attrs/types/0", port + b"/gids/" + name, port + b"/rate"):
                if not os.path.isdir(place):
                    Path(os.fsdecode(place)).write_bytes(text)
            target = data.draw(st.sampled_from([b"..", b"../../..", b"/", b"device", b"/proc/self/fd", name]))
            for link in (root + b"/sys/class/net/" + name + b"/device", port + b"/../../device"):
                if not os.path.lexists(link):
                    os.symlink(target, link)
        judge(node_facts.gather(Tree(os.fsdecode(root)), RAILS))
    finally:
        shutil.rmtree(root)


def test_names_that_are_not_utf8_are_escaped(tmp_path):
    node = fill(tmp_path)
    os.makedirs(os.fsencode(tmp_path) + b"/sys/class/infiniband/\xffodd")
    node.add("/sys/class/infiniband/two\\nlines/fw_ver = 1")
    facts = node_facts.gather(node.tree())
    assert "\\xffodd" in facts["devices"] and "mlx5_6" in facts["devices"]


def test_fifos_folders_and_endless_files_do_not_block(tmp_path):
    fill(tmp_path)
    port = next((tmp_path / "sys/class/infiniband/mlx5_6").resolve().glob("ports/1"))
    for name in ("state", "gids/5", "gid_attrs/types/3"):
        (port / name).unlink()
        os.mkfifo(port / name)
    (port / "rate").unlink()
    (port / "rate").mkdir()
    (port / "link_layer").write_text("Ethernet\n" * 100000)
    facts = node_facts.gather(Tree(str(tmp_path)), RAILS)
    judge(facts)
    told = facts["devices"]["mlx5_6"]["ports"]["1"]
    assert told["state"] is None and "empty" in told["reasons"]["state"]
    assert told["rate_gbps"] is None and "EISDIR" in told["reasons"]["rate_gbps"]
    assert len(told["link_layer"]) <= 4096


def test_a_link_out_of_the_tree_is_not_followed(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("0000:0000:0000:0000:0000:ffff:0ae0:0c8f\n")
    (tmp_path / "root").mkdir()
    node = fill(tmp_path / "root")
    home = (node.root / "sys/class/infiniband/mlx5_6").resolve()
    for place in (home / "ports/1/gids/5", home / "fw_ver", home / "tc/1/traffic_class"):
        place.unlink()
        place.symlink_to(secret)
    shutil.rmtree(home / "ports/1/gid_attrs")
    (home / "ports/1/gid_attrs").symlink_to(tmp_path)
    facts = node_facts.gather(Tree(str(node.root)), RAILS)
    judge(facts)
    assert "0ae0:0c8f" not in json.dumps(facts["devices"]["mlx5_6"]["ports"]["1"]["gids"][4:])
    assert facts["devices"]["mlx5_6"]["firmware"] is None
    assert facts["devices"]["mlx5_6"]["ports"]["1"]["traffic_class"]["state"] == "absent"


def test_a_mistake_in_one_reader_costs_its_part_only(tmp_path, monkeypatch):
    def broken(*_arguments, **_more):
        raise RuntimeError("oops")

    for name in ("devices.read_devices", "netdevs.read_netdevs", "read_driver", "read_memlock", "read_netns_mode"):
        with monkeypatch.context() as patch:
            module, _dot, function = name.rpartition(".")
            patch.setattr(getattr(node_facts, module) if module else node_facts, function, broken)
            facts = node_facts.gather(fill(tmp_path / name).tree(), RAILS)
        (reason,) = [text for text in facts["reasons"].values() if "internal error" in text]
        assert "RuntimeError: oops" in reason and "test_node_hostile.py" in reason
        assert len(facts["rails"]) == 3 and set(facts["netns_mode"]) >= {"live", "reboot_required", "reasons"}
