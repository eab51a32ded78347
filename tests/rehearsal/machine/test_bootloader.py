# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a node's boot loader starts, from files as GRUB and the Boot Loader Specification have them."""

from __future__ import annotations

import pytest

from rehearsal.machine import bootloader
from rehearsal.machine.bootloader import NoEntry, choose

GRUB = """\
if [ -s $prefix/grubenv ]; then
  load_env
fi
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
   set next_entry=
   save_env next_entry
else
   set default="DEFAULT"
fi
menuentry 'Ubuntu' --class ubuntu $menuentry_id_option 'simple-x' {
\tlinux\t/boot/vmlinuz-2.0 root=/dev/x ro  quiet
\tinitrd\t/boot/initrd.img-2.0
}
submenu 'Advanced options' $menuentry_id_option 'advanced-x' {
\tmenuentry 'Ubuntu, with Linux 2.0' $menuentry_id_option 'two-x' {
\t\tlinux\t/boot/vmlinuz-2.0 ro
\t\tinitrd\t/boot/initrd.img-2.0
\t}
\tmenuentry 'Ubuntu, with Linux 1.0' $menuentry_id_option 'one-x' {
\t\tlinux\t/boot/vmlinuz-1.0 ro a=1
\t}
}
"""


@pytest.fixture
def grub(tmp_path):
    """make(default, environment) -> root with a grub.cfg."""

    def make(default="0", environment=None):
        (tmp_path / "boot/grub").mkdir(parents=True)
        (tmp_path / bootloader.GRUB).write_text(GRUB.replace("DEFAULT", default))
        if environment is not None:
            bootloader.write_environment(tmp_path / bootloader.GRUB_ENV, environment)
        return tmp_path

    return make


def test_first_entry_by_default(grub):
    entry = choose(grub())
    assert (entry.kernel, entry.linux, entry.initrd) == ("2.0", "/boot/vmlinuz-2.0", "/boot/initrd.img-2.0")
    assert entry.command_line == "BOOT_IMAGE=/boot/vmlinuz-2.0 root=/dev/x ro  quiet"


@pytest.mark.parametrize(
    "default",
    ["1>1", "Advanced options>Ubuntu, with Linux 1.0", "advanced-x>one-x", "advanced-x>1"],
)
def test_default_names_an_entry_of_a_submenu(grub, default):
    entry = choose(grub(default))
    assert (entry.kernel, entry.initrd, entry.arguments) == ("1.0", None, "ro a=1")


@pytest.mark.parametrize("default", ["7", "nothing of that name", "", "${saved_entry}"])
def test_what_is_not_found_means_the_first(grub, default):
    assert choose(grub(default)).kernel == "2.0"


def test_saved_entry(grub):
    assert choose(grub("${saved_entry}", {"saved_entry": "advanced-x>one-x"})).kernel == "1.0"


def test_a_one_time_choice_is_used_up(grub):
    root = grub("0", {"next_entry": "1>1", "saved_entry": "y"})
    assert [choose(root).kernel, choose(root).kernel] == ["1.0", "2.0"]
    assert bootloader.read_environment(root / bootloader.GRUB_ENV) == {"next_entry": "", "saved_entry": "y"}
    assert (root / bootloader.GRUB_ENV).stat().st_size == 1024


def test_nothing_to_boot(tmp_path, grub):
    with pytest.raises(NoEntry, match=r"file '/boot/grub/grub.cfg' not found"):
        choose(tmp_path)
    (grub() / bootloader.GRUB).write_text("# empty\n")
    with pytest.raises(NoEntry, match="no menu entry"):
        choose(tmp_path)


@pytest.fixture
def bls(tmp_path):
    (tmp_path / bootloader.ENTRIES).mkdir(parents=True)
    (tmp_path / "boot/grub2").mkdir()
    (tmp_path / bootloader.BLS_GRUB).write_text('set default="${saved_entry}"\nload_env\nblscfg\n')
    for version in ("5.9.0", "5.14.0", "rescue"):
        text = (
            f"title x\nversion {version}\nlinux /vmlinuz-{version}\ninitrd /i-{version}.img\noptions ro $kernelopts\n"
        )
        (tmp_path / bootloader.ENTRIES / f"id-{version}.conf").write_text(text)
    return tmp_path


def test_newest_entry_without_a_saved_one(bls):
    entry = choose(bls)
    assert (entry.kernel, entry.linux, entry.initrd) == ("5.14.0", "/vmlinuz-5.14.0", "/i-5.14.0.img")
    assert bootloader.file_of(bls, entry.initrd) == bls / "boot/i-5.14.0.img"


@pytest.mark.parametrize("saved", ["id-5.9.0", "1"])
def test_saved_bls_entry_and_its_variables(bls, saved):
    bootloader.write_environment(bls / bootloader.BLS_ENV, {"saved_entry": saved, "kernelopts": "a=1"})
    entry = choose(bls)
    assert (entry.kernel, entry.command_line) == ("5.9.0", "BOOT_IMAGE=/vmlinuz-5.9.0 ro a=1")


def test_no_bls_entry(bls):
    for path in (bls / bootloader.ENTRIES).iterdir():
        path.unlink()
    with pytest.raises(NoEntry, match="no entry in /boot/loader/entries"):
        choose(bls)
