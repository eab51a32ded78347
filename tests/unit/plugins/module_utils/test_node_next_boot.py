# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the next boot brings and whether a reboot is required, through every combination of what decides it."""

from __future__ import annotations

import itertools

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils import node_facts
from ansible_collections.railyard.rdma.tests.unit.plugins.module_utils.node_tree import NodeTree, image

KERNEL = "6.8.0-1"
OPTION = {"shared": "netns_mode=1", "exclusive": "netns_mode=0", "bad": "netns_mode=maybe"}
LINE = {
    None: "",
    "shared": " ib_core.netns_mode=1",
    "exclusive": " ib-core.netns-mode=N",
    "bad": " ib_core.netns_mode=?",
}
GRUB = "menuentry a --id a {{ linux /boot/vmlinuz-{kernel} ro{line}; initrd /boot/initrd.img-{kernel}; }}\n"


def build(root, line, file, inside, live, module, running_line=None):
    """A node: ``line`` is that of the entry that boots next, ``running_line`` the running kernel's (the same when not
    given)."""
    node = NodeTree(root)
    running = LINE[line] if running_line is None else running_line
    node.add(f"/proc/cmdline = BOOT_IMAGE=/boot/vmlinuz-{KERNEL} ro{running}\n/boot/vmlinuz-{KERNEL} = x")
    builtin = "kernel/drivers/infiniband/core/ib_core.ko" if module == "builtin" else "kernel/fs/ext4/ext4.ko"
    node.add(f"/lib/modules/{KERNEL}/modules.builtin = {builtin}\n/sys/module/loop/refcnt = 0")
    node.add("/usr/sbin/update-initramfs = x\n/usr/sbin/mkinitramfs = x\n/boot/grub/grub.cfg = x")
    (root / "boot/grub/grub.cfg").write_text(GRUB.format(kernel=KERNEL, line=LINE[line]))
    if file:
        node.add(f"/etc/modprobe.d/ib_core.conf = options ib_core {OPTION[file]}")
    if inside != "no image":
        data = image(
            f"options ib_core {OPTION[inside]}\n" if inside in OPTION else "# nothing\n",
            kernel=KERNEL,
            ib_core=inside != "no ib_core",
        )
        (root / f"boot/initrd.img-{KERNEL}").write_bytes(data if inside != "cut short" else data[:-200])
    if module != "absent":
        node.add(f"/sys/module/ib_core/parameters/netns_mode = {'Y' if live == 'shared' else 'N'}")
    return node


def expected(line, file, inside, module):
    """The order of precedence, written down once more: the kernel line beats the files; of the files the image's count
    when ib_core is in it; a value that the kernel refuses keeps the module from loading."""
    if module == "builtin":
        return "shared" if line in (None, "bad") else line  # the kernel reads its line itself and ignores a bad value
    if line == "bad":
        return None
    if inside in ("no image", "cut short"):
        # initramfs-tools is there, so an image that is not found lies elsewhere; the kernel line decides alone.
        return line
    chosen = file if inside == "no ib_core" else inside
    if chosen == "bad":
        return None
    return line or chosen or "shared"


LINES = [None, "shared", "exclusive", "bad"]
FILES = [None, "shared", "exclusive", "bad"]
IMAGES = [None, "shared", "exclusive", "bad", "no ib_core", "no image", "cut short"]
STATES = [
    ("shared", "loaded"),
    ("exclusive", "loaded"),
    ("shared", "builtin"),
    ("exclusive", "builtin"),
    (None, "absent"),
]


@pytest.mark.parametrize("line", LINES, ids=str)
@pytest.mark.parametrize("inside", IMAGES, ids=str)
def test_fc20_to_fc28_every_combination(tmp_path, line, inside):
    for number, (file, (live, module)) in enumerate(itertools.product(FILES, STATES)):
        case = f"line={line} file={file} image={inside} live={live} module={module}"
        root = tmp_path / str(number)
        root.mkdir()
        mode, _images = node_facts.read_netns_mode(build(root, line, file, inside, live, module).tree())
        after = expected(line, file, inside, module)
        assert mode["next_boot"] == after, case
        assert (mode["reasons"].get("next_boot") is None) == (after is not None), case
        assert mode["live"] == live and mode["loaded"] is (module != "absent"), case
        if module == "absent":
            required = False  # FC-28: not loaded is a legal state, and what will apply at load is told
        else:
            required = None if after is None else after != live
        assert mode["reboot_required"] is required, case
        assert mode["next_boot_line"] == "boot_loader", case
        assert mode["next_kernel_line"] == (line if line != "bad" else None), case


def read(root, **more):
    arguments = {"line": None, "file": None, "inside": None, "live": "shared", "module": "loaded", **more}
    return node_facts.read_netns_mode(build(root, **arguments).tree())[0]


def test_fc22_a_later_file_decides_what_the_next_boot_brings(tmp_path):
    node = build(tmp_path, None, "exclusive", "no ib_core", "exclusive", "loaded")
    node.add("/etc/modprobe.d/sriov_network_operator_modules_config.conf = options ib_core netns_mode=1")
    mode = node_facts.read_netns_mode(node.tree())[0]
    assert (mode["configured"], mode["next_boot"], mode["reboot_required"]) == ("shared", "shared", True)
    assert mode["configured_by"].endswith("sriov_network_operator_modules_config.conf")


def test_fc25_the_columns_are_there_for_every_node(tmp_path):
    mode = read(tmp_path, live="exclusive")
    assert (mode["live"], mode["configured"], mode["boot_image"], mode["next_boot"]) == (
        "exclusive",
        None,
        None,
        "shared",
    )
    assert mode["reboot_required"] is True
    assert {"configured", "boot_image", "kernel_line", "next_kernel_line"} <= set(mode["reasons"])


def test_fc26_a_stale_image_decides_though_file_and_live_agree(tmp_path):
    mode = read(tmp_path, file="exclusive", inside="shared", live="exclusive")
    assert (mode["next_boot"], mode["reboot_required"]) == ("shared", True)


def test_an_argument_that_was_taken_out_is_gone_with_the_next_boot(tmp_path):
    mode = read(tmp_path, file="shared", inside="shared", live="exclusive", running_line=LINE["exclusive"])
    assert (mode["kernel_line"], mode["next_kernel_line"], mode["next_boot"]) == ("exclusive", None, "shared")
    assert mode["reboot_required"] is True
    assert [(owner["owner"], owner["wins"]) for owner in mode["owners"]] == [("railyard", True), ("kernel_line", False)]


def test_fc21_an_argument_that_was_added_comes_with_the_next_boot(tmp_path):
    node = build(tmp_path, "exclusive", "shared", "shared", "shared", "loaded", running_line="")
    node.add('/etc/default/grub = GRUB_CMDLINE_LINUX="ib_core.netns_mode=0"')
    mode = node_facts.read_netns_mode(node.tree())[0]
    assert (mode["kernel_line"], mode["next_kernel_line"], mode["next_boot"]) == (None, "exclusive", "exclusive")
    owner = mode["owners"][-1]
    assert (owner["owner"], owner["path"], owner["line"], owner["mode"], owner["wins"]) == (
        "boot_loader",
        "/etc/default/grub",
        1,
        "exclusive",
        True,
    )


def test_without_the_boot_loaders_word_the_running_line_counts(tmp_path):
    node = build(tmp_path, None, None, None, "shared", "loaded", running_line=LINE["exclusive"])
    (tmp_path / "boot/grub/grub.cfg").unlink()
    mode = node_facts.read_netns_mode(node.tree())[0]
    assert (mode["next_boot_line"], mode["next_kernel_line"], mode["next_boot"]) == ("proc_cmdline", None, "exclusive")
    assert "no boot loader" in mode["reasons"]["next_kernel_line"] and mode["boot_loader"] == "none"


def test_the_image_of_the_kernel_that_boots_next_counts(tmp_path):
    node = build(tmp_path, None, "exclusive", "exclusive", "shared", "loaded")
    node.add("/lib/modules/6.8.0-2/\n/boot/vmlinuz-6.8.0-2 = x")
    (tmp_path / "boot/initrd.img-6.8.0-2").write_bytes(image("options ib_core netns_mode=1\n", kernel="6.8.0-2"))
    mode, images = node_facts.read_netns_mode(node.tree())
    assert mode["default_kernel"] == KERNEL and mode["next_boot"] == "exclusive"
    assert {found["kernel"]: found["default"] for found in images} == {KERNEL: True, "6.8.0-2": False}


def test_fc20_other_namespaces_are_part_of_the_facts(tmp_path):
    mode = read(tmp_path)
    assert mode["namespaces"] is None and "No such file" in mode["reasons"]["namespaces"]
