# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.boot import boot_images, image_builders
from ansible_collections.railyard.rdma.tests.unit.plugins.module_utils.node_tree import NodeTree

IMAGE = {"kernel": "6.8.0-1", "path": "/boot/initrd.img-6.8.0-1", "kind": "plain", "overlays": []}


@pytest.mark.parametrize(
    ("programs", "builder"),
    [
        (["usr/sbin/update-initramfs", "usr/sbin/mkinitramfs"], "initramfs-tools"),
        (["usr/sbin/update-initramfs"], "initramfs-tools"),
        (["usr/bin/dracut"], "dracut"),
        (["usr/sbin/update-initramfs", "usr/bin/dracut"], "dracut"),
        (["usr/bin/mkinitcpio"], "mkinitcpio"),
        (["usr/bin/booster"], "booster"),
        ([], "none"),
    ],
)
def test_fc27_the_builder_is_what_is_installed(tmp_path, programs, builder):
    node = NodeTree(tmp_path)
    for program in programs:
        node.add(f"/{program} = x")
    assert image_builders.find_builder(node.tree()) == builder


@pytest.mark.parametrize(
    ("description", "system"),
    [
        ("/etc/os-release = ID=ubuntu\\nVERSION_ID=26.04", "mutable"),
        ("/etc/os-release = NAME=Talos\\nID=talos", "talos"),
        ("/usr/lib/os-release = ID=flatcar\\nID_LIKE=coreos", "flatcar"),
        ('/etc/os-release = ID="rhcos"\\n\n/run/ostree-booted =\n/usr/bin/rpm-ostree = x', "rpm-ostree"),
        ("/etc/os-release = ID=fedora\\n\n/sysroot/ostree/\n/usr/bin/rpm-ostree = x", "rpm-ostree"),
        ("/etc/os-release = ID=fedora\\n\n/run/ostree-booted =\n/usr/bin/bootc = x", "bootc"),
        ("/etc/os-release = ID=fedora\\n\n/usr/bin/rpm-ostree = x", "mutable"),
        ("/etc/hostname = x", "mutable"),
    ],
)
def test_systems_whose_images_are_made_elsewhere_are_known(tmp_path, description, system):
    assert image_builders.find_system(NodeTree(tmp_path).add(description).tree()) == system


@pytest.mark.parametrize(
    ("system", "words"),
    [
        ("talos", ["- name: ib_core\n        parameters:\n          - netns_mode=0\n", "- ib_core.netns_mode=0\n"]),
        ("flatcar", ["variant: flatcar", "path: /etc/modprobe.d/ib_core.conf", "options ib_core netns_mode=0\n"]),
        (
            "rpm-ostree",
            ["initramfs-etc --track=/etc/modprobe.d/ib_core.conf\n", "--append-if-missing=ib_core.netns_mode=0"],
        ),
        ("bootc", ['kargs = ["ib_core.netns_mode=0"]']),
    ],
)
def test_the_advice_is_text_to_put_in(system, words):
    advice = image_builders.advice(system, "exclusive", [])
    assert all(word in advice for word in words)
    assert "netns_mode=1" in image_builders.advice(system, "shared", [])


def test_where_we_build_there_is_no_advice_unless_the_image_does_not_decide():
    image = {**IMAGE, "builtin": False, "stale": True, "builder": "dracut"}
    assert image_builders.advice("mutable", "shared", [image]) is None
    for more in ({"builtin": True}, {"kind": "uki"}, {"builder": "none"}):
        assert "kernel argument ib_core.netns_mode=1" in image_builders.advice("mutable", "shared", [{**image, **more}])


@pytest.fixture
def node(tmp_path):
    node = NodeTree(tmp_path)
    for name in ("update-initramfs", "dracut", "mkinitcpio", "booster"):
        node.add(f"/usr/bin/{name} = x")
    return node


NEW = "/boot/.railyard-new.initrd.img-6.8.0-1"


@pytest.mark.parametrize(
    ("builder", "beside", "command"),
    [
        ("initramfs-tools", False, ["/usr/bin/update-initramfs", "-u", "-k", "6.8.0-1"]),
        ("dracut", True, ["/usr/bin/dracut", "--force", NEW, "6.8.0-1"]),
        ("mkinitcpio", True, ["/usr/bin/mkinitcpio", "-k", "6.8.0-1", "-g", NEW]),
        ("booster", True, ["/usr/bin/booster", "build", "--force", "--kernel-version", "6.8.0-1", NEW]),
    ],
)
def test_every_builder_has_its_command(node, builder, beside, command):
    assert image_builders.is_beside(builder, IMAGE) is beside
    assert image_builders.build_command(node.tree(), builder, IMAGE, NEW) == command


PRESET = """ALL_kver="/boot/vmlinuz-linux"\\nPRESETS=('default' 'fallback')\\n#default_config="/x"\\n\
default_image="/boot/initramfs-linux.img"\\nfallback_image="/boot/initramfs-linux-fallback.img"\\n\
fallback_config='/etc/fallback.conf'\\nfallback_options="-S autodetect"  # all modules"""


def test_mkinitcpio_is_called_as_its_preset_says(node):
    node.add(f"/etc/mkinitcpio.d/linux.preset = {PRESET}")
    image = {**IMAGE, "path": "/boot/initramfs-linux.img"}
    command = image_builders.build_command(node.tree(), "mkinitcpio", image, "OUT")
    assert command == ["/usr/bin/mkinitcpio", "-k", "6.8.0-1", "-g", "OUT"]
    image = {**IMAGE, "path": "/boot/initramfs-linux-fallback.img", "kind": "fallback"}
    command = image_builders.build_command(node.tree(), "mkinitcpio", image, "OUT")
    assert command[3:] == ["-c", "/etc/fallback.conf", "-S", "autodetect", "-g", "OUT"]
    node.add("/etc/mkinitcpio.d/linux.preset = PRESETS=()")
    command = image_builders.build_command(node.tree(), "mkinitcpio", image, "OUT")
    assert command[3:] == ["-S", "autodetect", "-g", "OUT"]


def test_kernel_install_fills_the_directory_of_an_entry(node):
    image = {**IMAGE, "kind": "entry", "path": "/boot/0123/6.8.0-1/initrd"}
    assert image_builders.is_beside("dracut", image) is False
    with pytest.raises(ValueError, match="kernel-install, which was not found"):
        image_builders.build_command(node.tree(), "dracut", image, "OUT")
    node.add("/usr/bin/kernel-install = x")
    with pytest.raises(ValueError, match="needs the kernel 6.8.0-1"):
        image_builders.build_command(node.tree(), "dracut", image, "OUT")
    node.add("/boot/vmlinuz-6.8.0-1 = x\n/boot/initrd.img-6.8.0-1 = x")
    command = ["/usr/bin/kernel-install", "add", "6.8.0-1", "/boot/vmlinuz-6.8.0-1"]
    assert image_builders.build_command(node.tree(), "dracut", image, "OUT") == command
    command.append("/boot/initrd.img-6.8.0-1")
    assert image_builders.build_command(node.tree(), "initramfs-tools", image, "OUT") == command


@pytest.mark.parametrize(
    ("builder", "more", "words"),
    [
        ("none", {}, "no program that builds boot images was found. Rebuild it with"),
        ("dracut", {"kind": "uki"}, "unified kernel image"),
        ("dracut", {"kind": "ostree"}, "ostree deployment"),
        ("initramfs-tools", {"path": "/boot/initramfs-6.8.0-1.img"}, "writes /boot/initrd.img-6.8.0-1 only"),
    ],
)
def test_what_cannot_be_built_here_says_why(node, builder, more, words):
    with pytest.raises(ValueError, match=words):
        image_builders.build_command(node.tree(), builder, {**IMAGE, **more}, "OUT")


def test_the_cure_of_dracut_names_the_file_that_counts(node):
    tree = node.tree()
    setting = {"mode": "exclusive", "reason": None, "by": "/etc/modprobe.d/ib_core.conf", "line": 1}
    cure = image_builders.dracut_cure(tree, setting)
    assert cure["path"] == "/etc/dracut.conf.d/90-railyard-ib_core.conf" and cure["before"] == ""
    assert cure["after"].endswith('\ninstall_items+=" /etc/modprobe.d/ib_core.conf "\n')
    place = node.root / cure["path"][1:]
    place.parent.mkdir(parents=True)
    place.write_text(cure["after"])
    assert image_builders.dracut_cure(tree, setting) is None
    assert image_builders.dracut_cure(tree, {**setting, "by": None}) is None
    other = image_builders.dracut_cure(tree, {**setting, "by": "/etc/modprobe.d/z.conf"})
    assert other["before"] == cure["after"] and " /etc/modprobe.d/z.conf " in other["after"]


def test_images_of_the_list_fit_the_commands(node):
    node.add("/lib/modules/6.8.0-1/modules.dep =\n/boot/initrd.img-6.8.0-1 = x")
    assert boot_images.list_images(node.tree(), "initramfs-tools") == [IMAGE]
