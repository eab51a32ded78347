# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a node's boot loader starts: the entry that its own files on /boot choose, with its kernel, image and arguments.

Written from GRUB's manual (grub.cfg with load_env, ``default`` and submenus; the environment block) and from the Boot
Loader Specification (type 1 entries), apart from the product's own reader, so that one mistake cannot hide in both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

GRUB, GRUB_ENV = "boot/grub/grub.cfg", "boot/grub/grubenv"
BLS_GRUB, BLS_ENV, ENTRIES = "boot/grub2/grub.cfg", "boot/grub2/grubenv", "boot/loader/entries"
_ENV_SIZE = 1024


class NoEntry(Exception):
    """The boot loader finds nothing to boot; the text is what its console would say."""


@dataclass(frozen=True)
class Entry:
    """kernel: version, as in the kernel file's name; linux and initrd: paths as the entry has them, initrd None for an
    entry without one.
    """

    kernel: str
    linux: str
    initrd: str | None
    arguments: str

    @property
    def command_line(self) -> str:
        return f"BOOT_IMAGE={self.linux} {self.arguments}".rstrip()


@dataclass
class _Item:
    title: str
    id: str | None
    lines: list[str] = field(default_factory=list)
    items: list[_Item] | None = None


def choose(root: Path) -> Entry:
    """The entry that boots now; a one-time choice (``next_entry``) is used up by this. Raises NoEntry."""
    if (root / BLS_GRUB).exists():
        return _choose_bls(root)
    try:
        text = (root / GRUB).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NoEntry(f"grub: file '/{GRUB}' not found") from None
    default = _default(root, text, GRUB_ENV)
    return _entry_of(_find(_menu(text.splitlines()), default), f"/{GRUB}")


def file_of(root: Path, path: str) -> Path:
    """The file that an entry's path means: of the root file system, or of /boot where that is a partition."""
    given = root / path.lstrip("/")
    return given if path.startswith("/boot/") else root / "boot" / path.lstrip("/")


def read_environment(path: Path) -> dict[str, str]:
    """Variables of a GRUB environment block; empty without one."""
    try:
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    except FileNotFoundError:
        return {}
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def write_environment(path: Path, values: dict[str, str]) -> None:
    """Exactly 1024 bytes, the rest is ``#``: GRUB cannot make a file longer."""
    text = "# GRUB Environment Block\n" + "".join(f"{key}={value}\n" for key, value in values.items())
    path.write_text(text + "#" * (_ENV_SIZE - len(text)), encoding="ascii")


def _default(root: Path, text: str, environment: str) -> str:
    """Value of ``default`` after the header of grub.cfg has run."""
    values = read_environment(root / environment) if "load_env" in text else {}
    if values.get("next_entry") and "next_entry" in text:
        chosen = values.pop("next_entry")
        write_environment(root / environment, {**values, "next_entry": ""})
        return chosen
    settings = re.findall(r'^\s*set default=["\']?([^"\'\n]*)["\']?\s*$', text, re.MULTILINE)
    settings = [value for value in settings if value != "${next_entry}"]
    value = settings[-1] if settings else "0"
    return values.get("saved_entry", "") or "0" if value == "${saved_entry}" else value or "0"


def _menu(lines: list[str]) -> list[_Item]:
    """The menu entries and submenus at the first level, each with its own lines."""
    items: list[_Item] = []
    stack: list[_Item] = []
    for line in lines:
        word = line.strip()
        if match := re.match(r"(menuentry|submenu)\s+(['\"])(.*?)\2(.*)\{$", word):
            identity = re.search(r"(?:--id|\$menuentry_id_option)\s+['\"]?([^'\"\s]+)", match[4])
            item = _Item(match[3], identity[1] if identity else None)
            if match[1] == "submenu":
                item.items = []
            place = stack[-1].items if stack and stack[-1].items is not None else items
            place.append(item)
            stack.append(item)
        elif word == "}" and stack:
            stack.pop()
        elif stack and stack[-1].items is None:
            stack[-1].lines.append(word)
    return items


def _find(items: list[_Item], default: str) -> _Item | None:
    """``0``, a title, an id, or a path of them with ``>``; what is not found means the first entry."""
    place: list[_Item] | None = items
    found = None
    for part in default.split(">"):
        found = next(
            (item for number, item in enumerate(place or []) if part in (str(number), item.title, item.id)), None
        )
        place = found.items if found else None
    while found is not None and found.items:
        found = found.items[0]
    return found or (items[0] if items else None)


def _entry_of(item: _Item | None, where: str) -> Entry:
    for line in item.lines if item else []:
        if match := re.match(r"linux(?:16|efi)?\s+(\S+)\s*(.*)$", line):
            images = [found[1] for other in item.lines if (found := re.match(r"initrd(?:16|efi)?\s+(\S+)", other))]
            return Entry(_version(match[1]), match[1], images[0] if images else None, match[2].strip())
    raise NoEntry(f"grub: no menu entry with a kernel in {where}")


def _version(path: str) -> str:
    return re.sub(r"^(vmlinuz|vmlinux|Image)-", "", path.rpartition("/")[2])


def _choose_bls(root: Path) -> Entry:
    text = (root / BLS_GRUB).read_text(encoding="utf-8")
    if "blscfg" not in text:
        raise NoEntry(f"grub: no blscfg in /{BLS_GRUB}")
    default = _default(root, text, BLS_ENV)
    # The name of the file is the entry's id, and the menu has the newest first.
    paths = sorted((root / ENTRIES).glob("*.conf"), key=lambda path: _numbers(path.stem), reverse=True)
    if not paths:
        raise NoEntry(f"grub: no entry in /{ENTRIES}")
    numbered = {str(number): path for number, path in enumerate(paths)}
    path = {path.stem: path for path in paths}.get(default) or numbered.get(default) or paths[0]
    values: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        key, _, value = line.strip().partition(" ")
        if key and not key.startswith("#"):
            values.setdefault(key, value.strip())
    if "linux" not in values:
        raise NoEntry(f"grub: no kernel in /{ENTRIES}/{path.name}")
    environment = read_environment(root / BLS_ENV)
    arguments = values.get("options", "").replace("$kernelopts", environment.get("kernelopts", ""))
    initrd = values.get("initrd", "").split()
    return Entry(
        values.get("version") or _version(values["linux"]), values["linux"], initrd[0] if initrd else None, arguments
    )


def _numbers(name: str) -> list[tuple[int, int, str]]:
    """Sort key: numbers as numbers, and a number is newer than letters."""
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in re.findall(r"[0-9]+|[a-zA-Z]+", name)]
