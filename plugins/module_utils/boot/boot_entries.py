# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Boot entries that are files: the Boot Loader Specification, unified kernel images, extlinux. Pure parsers.

An *entry* is ``{id, title, version, image, initrd, arguments, sort_key, machine_id}``; image and initrd are paths as
the boot loader sees them, values that the file does not give are None.

Sources: the Boot Loader Specification and the Version Format Specification of uapi-group.org, systemd's boot.c for
what it does beyond them, u-boot's doc/README.pxe and syslinux's manual for extlinux.
"""

from __future__ import annotations

import functools
import re
import struct

_SECTION = struct.Struct("<8sIIII16x")
_MAXIMUM_SECTION = 1024 * 1024
_VERSION_NOISE = re.compile(r"^[^A-Za-z0-9~^.-]+")
_DIGITS = "0123456789"
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def parse_bls(identity: str, text: str) -> dict:
    """Read one file of ``loader/entries``; identity is its name without ``.conf``.

    ``tries_left`` is the number behind ``+`` in the name (boot counting), None without one.
    """
    fields: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, _space, value = line.strip().partition(" ") if "\t" not in line else _tabbed(line)
        if key and not key.startswith("#"):
            fields.setdefault(key, []).append(value.strip())
    last = {key: values[-1] for key, values in fields.items()}
    counted = re.fullmatch(r"(.*)\+(\d{1,9})(?:-\d{1,9})?", identity, re.S)
    return {
        "id": counted[1] if counted else identity,
        "tries_left": int(counted[2]) if counted else None,
        "title": last.get("title"),
        "version": last.get("version"),
        "image": last.get("linux") or last.get("uki") or last.get("efi"),
        "initrd": " ".join(fields["initrd"]) if "initrd" in fields else None,
        "arguments": " ".join(fields.get("options", [])),
        "sort_key": last.get("sort-key"),
        "machine_id": last.get("machine-id"),
    }


def expand(text: str, variables: dict[str, str | None]) -> tuple[str | None, str | None]:
    """Replace ``$name`` in the options of an entry as GRUB's blscfg does: ``(text, name that cannot be told)``."""
    missing = None

    def value(match: re.Match) -> str:
        nonlocal missing
        found = variables.get(match[1] or match[2], "")
        if found is None:
            missing = missing or match[1] or match[2]
        return found or ""

    expanded = re.sub(r"\$(?:\{(\w+)\}|(\w+))", value, text)
    return (None, missing) if missing else (" ".join(expanded.split()) if expanded != text else text, None)


def parse_extlinux(text: str) -> tuple[list[dict], int | None]:
    """Read ``extlinux.conf``: entries and the index of the default one (None when there are no entries)."""
    entries: list[dict] = []
    wanted = on_timeout = shared = None
    menu_default = None
    for line in text.splitlines():
        words = line.split(None, 1)
        if not words or words[0].startswith("#"):
            continue
        key, value = words[0].lower(), words[1].strip() if len(words) > 1 else ""
        if key == "menu":
            key, _space, value = value.partition(" ")
            key, value = "menu " + key.lower(), value.strip()
        if key == "label":
            entries.append(dict.fromkeys(("version", "sort_key", "machine_id", "image", "initrd", "arguments")))
            entries[-1].update({"id": value, "title": value})
        elif key == "default":
            wanted = value
        elif key == "ontimeout":
            on_timeout = value
        elif key == "menu default" and entries:
            menu_default = len(entries) - 1
        elif key == "append" and not entries:
            shared = value
        elif entries:
            _set_extlinux(entries[-1], key, value)
    for entry in entries:
        given = shared if entry["arguments"] is None else entry["arguments"]
        entry["arguments"] = "" if given in (None, "-") else given
        inside = re.search(r"(?:^|\s)initrd=(\S+)", entry["arguments"])
        entry["initrd"] = entry["initrd"] or (inside[1] if inside else None)
    if not entries:
        return [], None
    named = on_timeout or wanted
    places = [place for place, entry in enumerate(entries) if entry["id"] == named]
    if places:
        return entries, places[0]
    return entries, None if named else menu_default or 0


def _set_extlinux(entry: dict, key: str, value: str) -> None:
    names = {"linux": "image", "kernel": "image", "fit": "image", "initrd": "initrd", "append": "arguments"}
    if key in names:
        entry[names[key]] = value
    elif key == "menu label":
        entry["title"] = value.replace("^", "")


def parse_unified_image(file, name: str) -> dict | None:
    """Read a unified kernel image (``.efi``) as an entry, from the sections ``.uname``, ``.cmdline``, ``.osrel``.

    :param file: open binary file.
    :returns: None when it is no PE file with a ``.linux`` section.
    """
    try:
        sections = _pe_sections(file)
    except (OSError, struct.error, ValueError):
        return None
    if ".linux" not in sections:
        return None
    release = dict(line.partition("=")[::2] for line in (sections.get(".osrel") or "").splitlines() if "=" in line)
    counted = re.fullmatch(r"(.*)\+(\d{1,9})(?:-\d{1,9})?", name.removesuffix(".efi"), re.S)
    return {
        "id": (counted[1] if counted else name.removesuffix(".efi")) + ".efi",
        "tries_left": int(counted[2]) if counted else None,
        "title": release.get("PRETTY_NAME", "").strip("\"'") or None,
        "version": sections.get(".uname") or None,
        "image": f"/EFI/Linux/{name}",
        "initrd": f"/EFI/Linux/{name}" if ".initrd" in sections else None,
        "arguments": " ".join((sections.get(".cmdline") or "").split()),
        "sort_key": release.get("IMAGE_ID", release.get("ID", "")).strip("\"'") or None,
        "machine_id": None,
    }


def _pe_sections(file) -> dict[str, str]:
    """Return the text of the small sections by name; of the others that they are there."""
    head = file.read(64)
    if head[:2] != b"MZ":
        raise ValueError("no PE file")
    (start,) = struct.unpack_from("<I", head, 60)
    file.seek(start)
    signature, _machine, count, optional = struct.unpack("<4sHH12xH2x", file.read(24))
    if signature != b"PE\0\0":
        raise ValueError("no PE file")
    file.seek(start + 24 + optional)
    table = [_SECTION.unpack(file.read(_SECTION.size)) for _number in range(min(count, 96))]
    sections = {}
    for raw_name, size, _address, raw_size, offset in table:
        name = raw_name.rstrip(b"\0").decode("ascii", "replace")
        sections[name] = ""
        if name in (".uname", ".cmdline", ".osrel"):
            file.seek(offset)
            data = file.read(min(size or raw_size, raw_size, _MAXIMUM_SECTION))
            sections[name] = data.split(b"\0")[0].decode("utf-8", "replace").strip()
    return sections


def compare_versions(left: str, right: str) -> int:
    """Compare as the Version Format Specification says: -1, 0 or 1."""
    a, b = left, right
    while True:
        a, b = _VERSION_NOISE.sub("", a), _VERSION_NOISE.sub("", b)
        for mark in "~-^.":
            if mark != "~" and not (a and b):
                return bool(a) - bool(b)  # the longer one is newer
            ours, theirs = a[:1] == mark, b[:1] == mark
            if ours != theirs:
                return -1 if ours else 1
            if ours:
                a, b = a[1:], b[1:]
        if not (a and b):
            return bool(a) - bool(b)
        digits = a[0] in _DIGITS or b[0] in _DIGITS
        first, second = (_leading(text, _DIGITS if digits else _LETTERS) for text in (a, b))
        a, b = a[len(first) :], b[len(second) :]
        if digits:
            first, second = first.lstrip("0"), second.lstrip("0")
            if len(first) != len(second):
                return -1 if len(first) < len(second) else 1
        if first != second:
            return -1 if first < second else 1


def _leading(text: str, allowed: str) -> str:
    return text[: len(text) - len(text.lstrip(allowed))]


def by_systemd(entries: list[dict]) -> list[dict]:
    """Sort as systemd-boot shows them; the first one boots when nothing else is set."""
    return sorted(entries, key=functools.cmp_to_key(_systemd_order))


def by_grub(entries: list[dict]) -> list[dict]:
    """Sort as GRUB's blscfg does: by file name, the newest version first."""
    return sorted(entries, key=functools.cmp_to_key(lambda a, b: -compare_versions(a["id"], b["id"])))


def _systemd_order(a: dict, b: dict) -> int:
    spent_a, spent_b = a["tries_left"] == 0, b["tries_left"] == 0
    if spent_a != spent_b:
        return 1 if spent_a else -1
    if bool(a["sort_key"]) != bool(b["sort_key"]):
        return -1 if a["sort_key"] else 1
    if a["sort_key"]:
        for key in ("sort_key", "machine_id"):
            left, right = a[key] or "", b[key] or ""
            if left != right:
                return -1 if left < right else 1
        order = -compare_versions(a["version"] or "", b["version"] or "")
        if order:
            return order
    order = -compare_versions(a["id"], b["id"])
    if order or (a["tries_left"] is None and b["tries_left"] is None):
        return order
    return (b["tries_left"] or 0) - (a["tries_left"] or 0)


def _tabbed(line: str) -> tuple[str, str, str]:
    words = line.strip().split(None, 1)
    return (words[0] if words else "", " ", words[1] if len(words) > 1 else "")
