# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import io
import shutil
import struct
import subprocess

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.boot import boot_entries, boot_loader, grub_script
from ansible_collections.railyard.rdma.plugins.module_utils.boot.grub_parser import Parser, ScriptError
from ansible_collections.railyard.rdma.tests.unit.plugins.module_utils.node_tree import NodeTree
from hypothesis import given, settings
from hypothesis import strategies as st

# As update-grub of Debian 12 and Ubuntu 22.04 writes it, shortened to what decides something.
DEBIAN = """
if [ -s $prefix/grubenv ]; then
  set have_grubenv=true
  load_env
fi
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
   set next_entry=
   save_env next_entry
   set boot_once=true
else
   set default="%s"
fi
if [ x"${feature_menuentry_id}" = xy ]; then
  menuentry_id_option="--id"
else
  menuentry_id_option=""
fi
export menuentry_id_option
function gfxmode {
\tset gfxpayload="${1}"
\tif [ "${1}" = "keep" ]; then
\t\tset vt_handoff=vt.handoff=7
\telse
\t\tset vt_handoff=
\tfi
}
function load_video {
  if [ x$feature_all_video_module = xy ]; then
    insmod all_video
  else
    insmod efi_gop
  fi
}
if [ x$feature_default_font_path = xy ] ; then
   font=unicode
else
insmod part_gpt
set root='hd0,gpt2'
if [ x$feature_platform_search_hint = xy ]; then
  search --no-floppy --fs-uuid --set=root --hint-bios=hd0,gpt2  abc
else
  search --no-floppy --fs-uuid --set=root abc
fi
    font="/usr/share/grub/unicode.pf2"
fi
if loadfont $font ; then
  set gfxmode=auto
  set locale_dir=$prefix/locale
  set lang=en_US
fi
menuentry 'Debian GNU/Linux' --class debian --class os $menuentry_id_option 'gnulinux-simple-u1' {
\tload_video
\tif [ x$grub_platform = xxen ]; then insmod xzio; insmod lzopio; fi
\tsearch --no-floppy --fs-uuid --set=root abc
\techo\t'Loading Linux 6.1.0-18-amd64 ...'
\tlinux\t/boot/vmlinuz-6.1.0-18-amd64 root=UUID=u1 ro  quiet ib_core.netns_mode=0
\techo\t'Loading initial ramdisk ...'
\tinitrd\t/boot/initrd.img-6.1.0-18-amd64
}
submenu 'Advanced options for Debian GNU/Linux' $menuentry_id_option 'gnulinux-advanced-u1' {
\tmenuentry 'Debian GNU/Linux, with Linux 6.1.0-18-amd64' --class debian $menuentry_id_option 'gnulinux-6.1.0-18-advanced-u1' {
\t\tlinux\t/boot/vmlinuz-6.1.0-18-amd64 root=UUID=u1 ro  quiet ib_core.netns_mode=0
\t\tinitrd\t/boot/initrd.img-6.1.0-18-amd64
\t}
\tmenuentry 'Debian GNU/Linux, with Linux 6.1.0-17-amd64' --class debian $menuentry_id_option 'gnulinux-6.1.0-17-advanced-u1' {
\t\tlinux\t/boot/vmlinuz-6.1.0-17-amd64 root=UUID=u1 ro  quiet ib_core.netns_mode=1
\t\tinitrd\t/boot/initrd.img-6.1.0-17-amd64
\t}
}
fwsetup --is-supported
if [ "$?" = 0 ]; then
\tmenuentry 'UEFI Firmware Settings' $menuentry_id_option 'uefi-firmware' {
\t\tfwsetup
\t}
fi
if [ -f  ${config_directory}/custom.cfg ]; then
  source ${config_directory}/custom.cfg
elif [ -z "${config_directory}" -a -f  $prefix/custom.cfg ]; then
  source $prefix/custom.cfg
fi
"""

# As grub2-mkconfig of RHEL 9 writes it.
RHEL = """
set pager=1
if [ -f ${config_directory}/grubenv ]; then
  load_env -f ${config_directory}/grubenv
elif [ -s $prefix/grubenv ]; then
  load_env
fi
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
   set next_entry=
   save_env next_entry
   set boot_once=true
else
   set default="${saved_entry}"
fi
set tuned_params="isolcpus=2"
set tuned_initrd=""
if [ -z "${kernelopts}" ]; then
  set kernelopts="root=UUID=u2 ro "
fi
insmod blscfg
blscfg
menuentry 'UEFI Firmware Settings' $menuentry_id_option 'uefi-firmware' {
  fwsetup
}
"""


@pytest.fixture
def node(tmp_path):
    return NodeTree(tmp_path).add(
        """
        /proc/cmdline = BOOT_IMAGE=/boot/vmlinuz-6.1.0-18-amd64 root=UUID=u1 ro
        /lib/modules/6.1.0-17-amd64/
        /lib/modules/6.1.0-18-amd64/
        """
    )


def write(node, path, text):
    place = node.root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


def debian(node, default="0", environment=None):
    write(node, "/boot/grub/grub.cfg", DEBIAN % default)
    if environment is not None:
        write(node, "/boot/grub/grubenv", f"# GRUB Environment Block\n{environment}\n####")
    return boot_loader.read(node.tree())


OLD = "gnulinux-advanced-u1>gnulinux-6.1.0-17-advanced-u1"


@pytest.mark.parametrize(
    ("default", "environment", "kernel"),
    [
        ("0", None, "6.1.0-18-amd64"),
        ("0", "", "6.1.0-18-amd64"),
        ("7", "", "6.1.0-18-amd64"),  # GRUB takes the first when there is no such entry
        ("nonsense", "", "6.1.0-18-amd64"),
        ("1>1", "", "6.1.0-17-amd64"),
        ("1", "", "6.1.0-18-amd64"),  # a submenu: its first entry
        ("Advanced options for Debian GNU/Linux>Debian GNU/Linux, with Linux 6.1.0-17-amd64", "", "6.1.0-17-amd64"),
        (OLD, "", "6.1.0-17-amd64"),
        ("${saved_entry}", "", "6.1.0-18-amd64"),
        ("${saved_entry}", f"saved_entry={OLD}", "6.1.0-17-amd64"),
        ("0", f"next_entry={OLD}", "6.1.0-17-amd64"),
        ("${saved_entry}", f"saved_entry={OLD}\nnext_entry=0", "6.1.0-18-amd64"),
    ],
)
def test_the_entry_that_grub_starts_next(node, default, environment, kernel):
    told = debian(node, default, environment)
    assert (told["loader"], told["default_kernel"], told["reason"]) == ("grub", kernel, None)
    entry = boot_loader.default_entry(told)
    assert entry["initrd"] == [f"/boot/initrd.img-{kernel}"]
    mode = "0" if kernel == "6.1.0-18-amd64" else "1"
    assert entry["arguments"] == f"root=UUID=u1 ro quiet ib_core.netns_mode={mode}"
    assert entry["path"] == "/boot/grub/grub.cfg"


def test_an_entry_that_starts_no_linux_is_the_default(node):
    told = debian(node, "uefi-firmware")
    assert told["default_kernel"] is None and told["reason"]


def test_a_part_of_the_line_that_only_grub_knows_makes_the_line_unknown(node):
    write(node, "/boot/grub/grub.cfg", (DEBIAN % "0").replace("quiet", "quiet $lang"))
    entry = boot_loader.default_entry(boot_loader.read(node.tree()))
    assert entry["arguments"] is None and "only GRUB knows" in entry["reason"]
    assert entry["kernel"] == "6.1.0-18-amd64"


def test_a_default_that_only_grub_knows_is_unknown(node):
    text = "if keystatus --shift; then set default=1; else set default=0; fi\nmenuentry a { linux /vmlinuz-1 x; }\n"
    write(node, "/boot/grub/grub.cfg", text)
    told = boot_loader.read(node.tree())
    assert told["default_kernel"] is None and "only GRUB knows" in told["reason"]
    assert [entry["default"] for entry in told["entries"]] == [None]


def test_custom_entries_are_read_when_they_are_there(node):
    write(node, "/boot/grub/custom.cfg", "menuentry mine --id mine { linux /vmlinuz-6.1.0-17-amd64 mine; }")
    told = debian(node, "mine")
    assert told["default_kernel"] == "6.1.0-17-amd64"
    assert boot_loader.default_entry(told)["arguments"] == "mine"


@pytest.mark.parametrize("text", ["menuentry 'a {", "if true; then", "}", "fi", "{" * 2000, "function", "if " * 3000])
def test_a_broken_grub_cfg_is_unknown_with_its_line(node, text):
    write(node, "/boot/grub/grub.cfg", text)
    told = boot_loader.read(node.tree())
    assert told["loader"] == "grub" and told["default_kernel"] is None
    assert "grub.cfg" in told["reason"]


def test_scripts_that_would_not_end_or_grow_without_end_are_stopped():
    with pytest.raises(ScriptError, match="nests too deeply|does not end"):
        grub_script.Script("function f { f; f; }\nf\n")
    assert grub_script.Script("set a=xxxxxxxx\n" + "set a=$a$a\n" * 60).variables["a"] is None
    with pytest.raises(ScriptError, match="characters"):
        grub_script.Script("#" * (grub_script.MAXIMUM_TEXT + 1))


def test_a_grub_that_did_not_start_the_running_system_is_not_believed(node):
    (node.root / "proc/cmdline").write_text("initrd=initrd ip=dhcp root=live:http://10.0.0.1/root.img\n")
    told = debian(node)
    assert told["default_kernel"] is None and "not started by GRUB" in told["reason"]
    assert len(told["entries"]) == 4


def test_a_configuration_that_may_not_be_read_is_unknown(node):
    node.add("/boot/grub2/grub.cfg ! EACCES")
    told = boot_loader.read(node.tree())
    assert told["loader"] == "unknown" and "EACCES" in told["reason"]


ENTRY = """title Red Hat Enterprise Linux ({version}) 9.4 (Plow)
version {version}
linux /vmlinuz-{version}
initrd /initramfs-{version}.img $tuned_initrd
options {options}
grub_class rhel
"""


def rhel(node, environment="", old="$kernelopts $tuned_params", new="root=UUID=u2 ro"):
    for version, options in (("5.14.0-70.el9", old), ("5.14.0-427.el9", new)):
        node.add(f"/lib/modules/{version}/")
        write(node, f"/boot/loader/entries/m1-{version}.conf", ENTRY.format(version=version, options=options))
    write(node, "/boot/grub2/grub.cfg", RHEL)
    write(node, "/boot/grub2/grubenv", f"# GRUB Environment Block\n{environment}\n###")
    return boot_loader.read(node.tree())


@pytest.mark.parametrize(
    ("environment", "kernel", "arguments"),
    [
        ("", "5.14.0-427.el9", "root=UUID=u2 ro"),
        ("saved_entry=m1-5.14.0-70.el9", "5.14.0-70.el9", "root=UUID=u2 ro isolcpus=2"),
        (
            "saved_entry=m1-5.14.0-70.el9\nkernelopts=root=UUID=u2 ib_core.netns_mode=0",
            "5.14.0-70.el9",
            "root=UUID=u2 ib_core.netns_mode=0 isolcpus=2",
        ),
        ("saved_entry=m1-5.14.0-427.el9\nnext_entry=1", "5.14.0-70.el9", "root=UUID=u2 ro isolcpus=2"),
    ],
)
def test_the_boot_loader_specification_under_grub(node, environment, kernel, arguments):
    told = rhel(node, environment)
    assert (told["loader"], told["default_kernel"], told["reason"]) == ("bls", kernel, None)
    entry = boot_loader.default_entry(told)
    assert entry["arguments"] == arguments
    assert entry["path"] == f"/boot/loader/entries/m1-{kernel}.conf"
    assert entry["initrd"] == [f"/initramfs-{kernel}.img"]


def efi(node, name, text, guid="4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"):
    place = node.root / f"sys/firmware/efi/efivars/{name}-{guid}"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(b"\x07\0\0\0" + (text if isinstance(text, bytes) else f"{text}\0".encode("utf-16-le")))


def pe(sections: dict) -> bytes:
    head = b"MZ".ljust(60, b"\0") + struct.pack("<I", 64)
    head += struct.pack("<4sHH12xHH", b"PE\0\0", 0x8664, len(sections), 0, 0)
    offset = len(head) + 40 * len(sections)
    table = data = b""
    for name, content in sections.items():
        raw = content + b"\0" * (-len(content) % 512)
        place = offset + len(data)
        table += struct.pack("<8sIIII16x", name.encode(), len(content), 0, len(raw), place)
        data += raw
    return head + table + data


def systemd_boot(node, more=""):
    efi(node, "LoaderInfo", "systemd-boot 255")
    node.add("/lib/modules/6.9.1-arch1-1/\n/lib/modules/6.6.30-1-lts/")
    node.add("/lib/modules/6.9.1-arch1-1/pkgbase = linux\n/lib/modules/6.6.30-1-lts/pkgbase = linux-lts")
    write(node, "/boot/loader/loader.conf", f"timeout 3\n{more}\n")
    write(
        node,
        "/boot/loader/entries/arch.conf",
        "title Arch\nlinux\t/vmlinuz-linux\noptions root=/dev/sda1\noptions rw\n",
    )
    write(node, "/boot/loader/entries/lts+0-3.conf", "linux /vmlinuz-linux-lts\noptions ib_core.netns_mode=0\n")
    place = node.root / "boot/EFI/Linux/big-6.6.30+2.efi"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(
        pe(
            {
                ".osrel": b'ID=arch\nPRETTY_NAME="Arch Linux"\n',
                ".uname": b"6.6.30-1-lts",
                ".cmdline": b"root=/dev/sda1 ib_core.netns_mode=1\n\0",
                ".linux": b"x",
            }
        )
    )


@pytest.mark.parametrize(
    ("configuration", "variables", "kernel", "arguments"),
    [
        ("", {}, "6.6.30-1-lts", "root=/dev/sda1 ib_core.netns_mode=1"),  # with a sort key: before those without
        ("default arch.conf", {}, "6.9.1-arch1-1", "root=/dev/sda1 rw"),
        ("default arch*", {"LoaderEntryDefault": "lts.conf"}, "6.6.30-1-lts", "ib_core.netns_mode=0"),
        (
            "default arch*",
            {"LoaderEntryOneShot": "big-6.6.30.efi"},
            "6.6.30-1-lts",
            "root=/dev/sda1 ib_core.netns_mode=1",
        ),
        ("default @saved", {"LoaderEntryLastBooted": "arch.conf"}, "6.9.1-arch1-1", "root=/dev/sda1 rw"),
    ],
)
def test_systemd_boot_takes_the_variables_then_its_file_then_the_order(
    node, configuration, variables, kernel, arguments
):
    systemd_boot(node, configuration)
    for name, text in variables.items():
        efi(node, name, text)
    told = boot_loader.read(node.tree())
    assert (told["loader"], told["default_kernel"], told["reason"]) == ("systemd-boot", kernel, None)
    assert boot_loader.default_entry(told)["arguments"] == arguments


def test_addons_make_the_line_of_a_unified_image_unknown(node):
    systemd_boot(node)
    node.add("/boot/EFI/Linux/big-6.6.30+2.efi.extra.d/x.addon.efi = x")
    entry = boot_loader.default_entry(boot_loader.read(node.tree()))
    assert entry["arguments"] is None and "addons" in entry["reason"]


def test_the_firmware_boots_something_else_once(node):
    systemd_boot(node)
    efi(node, "BootCurrent", b"\1\0", "8be4df61-93ca-11d2-aa0d-00e098032b8c")
    efi(node, "BootNext", b"\2\0", "8be4df61-93ca-11d2-aa0d-00e098032b8c")
    assert "BootNext" in boot_loader.read(node.tree())["reason"]


def test_two_loaders_and_no_hint_which_one_runs(node):
    write(node, "/boot/grub/grub.cfg", DEBIAN % "0")
    write(node, "/boot/extlinux/extlinux.conf", "label a\nlinux /vmlinuz\n")
    told = boot_loader.read(node.tree())
    assert told["loader"] == "unknown" and "extlinux, grub" in told["reason"]
    efi(node, "LoaderInfo", "GRUB 2.12-1")
    assert boot_loader.read(node.tree())["loader"] == "grub"


EXTLINUX = """## /boot/extlinux/extlinux.conf
default l1
menu title U-Boot menu
timeout 50
label l0
\tmenu label Debian 6.1.0-18
\tlinux /vmlinuz-6.1.0-18-amd64
\tinitrd /initrd.img-6.1.0-18-amd64
\tappend root=/dev/mmcblk0p2 ro
LABEL l1
\tLINUX ../vmlinuz-6.1.0-17-amd64
\tAPPEND root=/dev/mmcblk0p2 ib_core.netns_mode=0
"""


def test_extlinux(node):
    write(node, "/boot/extlinux/extlinux.conf", EXTLINUX)
    told = boot_loader.read(node.tree())
    assert (told["loader"], told["default_kernel"]) == ("extlinux", "6.1.0-17-amd64")
    assert boot_loader.default_entry(told)["arguments"] == "root=/dev/mmcblk0p2 ib_core.netns_mode=0"
    write(node, "/boot/extlinux/extlinux.conf", EXTLINUX.replace("default l1", "default gone"))
    assert "default" in boot_loader.read(node.tree())["reason"]


def test_without_a_configuration_the_last_boot_proves_nothing(node):
    told = boot_loader.read(node.tree())
    assert (told["loader"], told["default_kernel"], told["entries"]) == ("none", None, [])
    assert "the last boot took /boot/vmlinuz-6.1.0-18-amd64" in told["reason"]


def test_the_files_that_feed_the_kernel_line(node):
    node.add(
        """
        /etc/default/grub = GRUB_DEFAULT=0\\n# GRUB_CMDLINE_LINUX=x\\nGRUB_CMDLINE_LINUX="ib_core.netns_mode=0"
        /etc/default/grub.d/50-cloudimg-settings.cfg = GRUB_CMDLINE_LINUX_DEFAULT="console=tty1"
        /etc/default/grub.d/note.txt = GRUB_CMDLINE_LINUX_DEFAULT=x
        /etc/kernel/cmdline = root=/dev/sda1 quiet
        """
    )
    assert [(feed["path"], feed["line"]) for feed in boot_loader.read(node.tree())["feeds"]] == [
        ("/etc/default/grub", 3),
        ("/etc/default/grub.d/50-cloudimg-settings.cfg", 1),
        ("/etc/kernel/cmdline", 1),
    ]


@pytest.mark.parametrize(
    ("image", "hint", "version"),
    [
        ("/boot/vmlinuz-6.1.0-18-amd64", None, "6.1.0-18-amd64"),
        ("/@/boot/vmlinuz-6.1.0-18-amd64", None, "6.1.0-18-amd64"),
        ("(hd0,gpt2)/m1/6.1.0-17-amd64/linux", None, "6.1.0-17-amd64"),
        ("/vmlinuz", None, "6.1.0-17-amd64"),
        ("/vmlinuz-9.9.9", None, "9.9.9"),
        ("/vmlinuz-linux", None, None),
        ("/Image", None, None),
        (None, None, None),
        ("/vmlinuz-linux", "6.1.0-18-amd64", "6.1.0-18-amd64"),
    ],
)
def test_the_version_of_a_kernel(node, image, hint, version):
    node.add("/boot/vmlinuz -> vmlinuz-6.1.0-17-amd64")
    assert boot_loader.kernel_version(node.tree(), image, hint) == version


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("1", "2"),
        ("6.8.0-71", "6.8.0-100"),
        ("1.2", "1.10"),
        ("1~rc1", "1"),
        ("1", "1^"),
        ("5.14.0-70.el9", "5.14.0-70.1.el9"),
        ("a", "1"),
        ("1-1", "1.1"),
        ("", "0"),
    ],
)
def test_versions_are_ordered_as_the_specification_says(older, newer):
    assert boot_entries.compare_versions(older, newer) == -1
    assert boot_entries.compare_versions(newer, older) == 1
    assert boot_entries.compare_versions(newer, newer) == 0


PIECES = """if elif else fi then [ ] set default= menuentry submenu { } ; ' " $ ${ ${a} $a \\ # function while do done linux
blscfg load_env -s -a -o ! = source custom.cfg /vmlinuz-1 a=b search --set=root > for in | & < f 1 --id"""
WORDS = st.sampled_from([*PIECES.split(), "\n"])
SCRIPTS = st.lists(WORDS | st.text(max_size=3), max_size=60).map(" ".join) | st.text(max_size=200)


@given(SCRIPTS, st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3) | st.none())
def test_no_script_makes_the_reader_fail(text, environment):
    try:
        script = grub_script.Script(text, environment, {"custom.cfg": text})
        chosen, reason = script.default()
        assert chosen is not None or reason
        for entry in script.menu:
            if "bls" not in entry:
                assert set(script.boot(entry)) == {"image", "arguments", "initrd"}
    except ScriptError:
        pass


@pytest.mark.skipif(shutil.which("grub-script-check") is None, reason="grub-common is not installed")
@settings(max_examples=60, deadline=None)
@given(SCRIPTS.filter(lambda text: "\0" not in text))
def test_what_grub_itself_takes_for_a_script_is_understood(text):
    text = text.encode("ascii", "ignore").decode() + "\n"
    checked = subprocess.run(["grub-script-check"], input=text.encode(), capture_output=True, check=False)
    if checked.returncode == 0:
        Parser(text).parse()


@given(st.text(max_size=200), st.binary(max_size=200), st.text(max_size=20), st.text(max_size=20))
def test_no_entry_makes_the_readers_fail(text, data, left, right):
    entry = boot_entries.parse_bls(left, text)
    boot_entries.expand(entry["arguments"], {left: None, right: "x"})
    entries, default = boot_entries.parse_extlinux(text)
    assert default is None or default < len(entries)
    assert boot_entries.parse_unified_image(io.BytesIO(data), left) is None
    boot_entries.parse_unified_image(io.BytesIO(pe({".linux": b"", ".cmdline": data, ".osrel": data})), left)
    back = boot_entries.compare_versions(right, left)  # pylint: disable=arguments-out-of-order
    assert boot_entries.compare_versions(left, right) == -back
    assert boot_entries.compare_versions(left, left) == 0
    boot_entries.by_systemd([entry, {**entry, "id": right}])
    grub_script.parse_environment(text)


@given(SCRIPTS)
def test_no_kernel_line_option_comes_from_nowhere(text):
    entries, _default = boot_entries.parse_extlinux("label a\nappend " + text)
    joined = " ".join(entry["arguments"] for entry in entries)
    assert all(word in text for word in joined.split())
