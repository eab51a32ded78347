# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the boot loader will start next, from its own configuration: which kernel, image and kernel line.

The running kernel line tells the last boot only. Known are GRUB (its ``grub.cfg`` run as far as a file can tell, see
grub_script), the Boot Loader Specification under GRUB (Fedora, RHEL) and under systemd-boot with unified kernel images,
and extlinux. Everything that cannot be told is None with a reason: a node that boots over the network or was started
by another loader than the one whose files lie around is not guessed at.
"""

from __future__ import annotations

import fnmatch
import re

from ansible_collections.railyard.rdma.plugins.module_utils.boot import boot_entries, grub_script
from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree

MAXIMUM_FILE = grub_script.MAXIMUM_TEXT  # bytes of a configuration file
GRUB_CONFIGS = ("/boot/grub2/grub.cfg", "/boot/grub/grub.cfg")
BLS_PLACES = ("/boot", "/efi", "/boot/efi")  # where the EFI system partition or the extended boot partition is mounted
EXTLINUX_CONFIGS = ("/boot/extlinux/extlinux.conf", "/boot/extlinux.conf", "/extlinux/extlinux.conf")
EFI_VARIABLES = "/sys/firmware/efi/efivars"
_LOADER_GUID = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
_GLOBAL_GUID = "8be4df61-93ca-11d2-aa0d-00e098032b8c"

# Lines that make the kernel line when the configuration is generated again: path or directory, and the line's pattern.
_FEEDS = (
    ("/etc/default/grub", r"\s*(export\s+)?GRUB_CMDLINE_LINUX(_\w+)?\+?="),
    ("/etc/default/grub.d/*.cfg", r"\s*(export\s+)?GRUB_CMDLINE_LINUX(_\w+)?\+?="),
    ("/etc/kernel/cmdline", r"\s*[^#\s]"),
    ("/etc/kernel/cmdline.d/*.conf", r"\s*[^#\s]"),
    ("/usr/lib/kernel/cmdline", r"\s*[^#\s]"),
    ("/etc/tuned/bootcmdline", r"\s*TUNED_BOOT_CMDLINE="),
    ("/boot/grub2/grubenv", r"(kernelopts|tuned_params)="),
    ("/boot/grub/grubenv", r"(kernelopts|tuned_params)="),
    ("/etc/default/extlinux", r"\s*EXTLINUX_PARAMETERS="),
    ("/etc/default/u-boot", r"\s*U_BOOT_PARAMETERS="),
    ("/oem/grub.cfg", r"\s*set\s+linux_\w+="),
    ("/usr/share/oem/grub.cfg", r"\s*set\s+linux_\w+="),
)


def read(tree: Tree) -> dict:
    """Read the boot loader's configuration.

    :returns: ``{loader, default_kernel, reason, entries, feeds}``. loader is ``grub``, ``bls`` (Boot Loader
        Specification under GRUB), ``systemd-boot``, ``extlinux``, ``none`` (no configuration found) or ``unknown``.
        default_kernel is the version (as in /lib/modules) of the kernel that boots next; None with a reason when it
        cannot be told. Each entry is ``{id, title, kernel, image, initrd, arguments, path, default, reason}``: image is
        the kernel's file and initrd the list of its boot images, both as the loader sees their paths; arguments is the
        kernel line without what the loader adds itself; path is the file that defines the entry; default is True or
        False, None when it is not known which entry is the default. feeds lists ``{path, line, text}`` of the files
        from which kernel lines are generated.
    """
    found = _find(tree)
    result = {"loader": found["loader"], "default_kernel": None, "reason": found["reason"], "entries": []}
    result["feeds"] = read_feeds(tree)
    reader = {"grub": _read_grub, "systemd-boot": _read_systemd, "extlinux": _read_extlinux}.get(found["loader"])
    if reader is None:
        return result
    loader, entries, default, reason = reader(tree, found["path"])
    reason = reason or _not_this_loader(tree, loader)
    if default is not None and not reason:
        for place, entry in enumerate(entries):
            entry["default"] = place == default
        chosen = entries[default]
        result["default_kernel"] = chosen["kernel"]
        if chosen["kernel"] is None:
            reason = chosen["reason"] or f"the version of the kernel {chosen['image']} cannot be told"
    result.update({"loader": loader, "entries": entries, "reason": reason})
    return result


def default_entry(told: dict) -> dict | None:
    """Return the entry that boots next out of a result of :func:`read`, or None."""
    return next((entry for entry in told["entries"] if entry["default"]), None)


def read_feeds(tree: Tree) -> list[dict]:
    """List the lines from which kernel lines are generated: ``{path, line, text}``."""
    feeds = []
    for pattern, wanted in _FEEDS:
        for path in _matching(tree, pattern):
            text = tree.read(path).value or ""
            for number, line in enumerate(text.split("\n"), start=1):
                if re.match(wanted, line):
                    feeds.append({"path": path, "line": number, "text": line.rstrip("\r")})
    return feeds


def efi_variable(tree: Tree, name: str, guid: str = _LOADER_GUID) -> bytes | None:
    """Return the content of an EFI variable, or None. Its file begins with four bytes of attributes."""
    try:
        return tree.read_bytes(tree.path(f"{EFI_VARIABLES}/{name}-{guid}"))[4:]
    except (OSError, ValueError):
        return None


def kernel_version(tree: Tree, image: str | None, hint: str | None = None) -> str | None:
    """Tell the version of a kernel from the path of its image as a boot loader names it.

    :param hint: the version that the entry itself gives.
    """
    installed = tree.names("/lib/modules")
    name = (image or "").rsplit("/", 1)[-1]
    if hint and (hint in installed or not installed):
        return hint
    match = re.fullmatch(r"(?:vmlinu[xz]|Image|kernel|bzImage|linux)-(.+?)(?:\.efi)?", name)
    candidates = [match[1]] if match else []
    candidates += [part for part in (image or "").split("/") if part in installed]
    for candidate in candidates:
        if candidate in installed:
            return candidate
        named = [version for version in installed if tree.text(f"/lib/modules/{version}/pkgbase") == candidate]
        if len(named) == 1:  # mkinitcpio's packages call their kernel after themselves
            return named[0]
    if not match and name:
        for place in (f"/boot/{name}", f"/{name}"):
            target = tree.link_name(place) or ""
            if re.match(r"(?:vmlinu[xz]|Image)-", target):
                return kernel_version(tree, target)
    return hint or (match[1] if match and match[1][:1].isdigit() else None)


def _matching(tree: Tree, pattern: str) -> list[str]:
    if "*" not in pattern:
        return [pattern]
    directory, name = pattern.rsplit("/", 1)
    return [f"{directory}/{found}" for found in tree.names(directory) if fnmatch.fnmatchcase(found, name)]


def _find(tree: Tree) -> dict:
    """Decide which loader's configuration counts: ``{loader, path, reason}``."""
    candidates: dict[str, str] = {}
    for name, paths in (("grub", _grub_configs(tree)), ("extlinux", EXTLINUX_CONFIGS)):
        for path in paths:
            reading = tree.read(path)
            if reading.value is not None:
                candidates.setdefault(name, path)
            elif not reading.absent and name not in candidates:
                return {"loader": "unknown", "path": None, "reason": f"{path}: {reading.reason}"}
    place = next((place for place in BLS_PLACES if tree.exists(f"{place}/loader/loader.conf")), None)
    place = place or next((place for place in BLS_PLACES if tree.names(f"{place}/EFI/Linux")), None)
    if place:
        candidates["systemd-boot"] = place
    used = (efi_variable(tree, "LoaderInfo") or b"").decode("utf-16-le", "replace").rstrip("\0")
    by_name = "systemd-boot" if used.startswith("systemd-boot") else "grub" if used.startswith("GRUB") else None
    if by_name in candidates:
        return {"loader": by_name, "path": candidates[by_name], "reason": None}
    if by_name:
        return {"loader": "unknown", "path": None, "reason": f"{used} booted, but its configuration was not found"}
    if len(candidates) > 1 and tree.names(EFI_VARIABLES):
        candidates.pop("systemd-boot", None)  # it always leaves its name in LoaderInfo
    if len(candidates) == 1:
        loader = next(iter(candidates))
        return {"loader": loader, "path": candidates[loader], "reason": None}
    if candidates:
        return {"loader": "unknown", "path": None, "reason": f"several are there: {', '.join(sorted(candidates))}"}
    image = re.search(r"(?:^|\s)BOOT_IMAGE=(\S+)", tree.read("/proc/cmdline").value or "")
    told = f"; the last boot took {image[1]}" if image else ""
    return {"loader": "none", "path": None, "reason": f"no boot loader's configuration was found{told}"}


def _grub_configs(tree: Tree) -> list[str]:
    own = [f"/boot/efi/EFI/{name}/grub.cfg" for name in tree.names("/boot/efi/EFI")]
    return [*GRUB_CONFIGS, *own]


def _not_this_loader(tree: Tree, loader: str) -> str | None:
    """Return a reason to doubt that the next boot goes through this loader."""
    line = tree.read("/proc/cmdline").value
    if loader in ("grub", "bls") and line is not None and "BOOT_IMAGE=" not in line:
        return "the running system was not started by GRUB (its kernel line has no BOOT_IMAGE)"
    following, current = (efi_variable(tree, name, _GLOBAL_GUID) for name in ("BootNext", "BootCurrent"))
    if following and following != current:
        return "the firmware was told to boot something else once (EFI variable BootNext)"
    return None


def _entry(tree: Tree, path: str, entry: dict, reason: str | None = None) -> dict:
    return {
        "id": entry["id"],
        "title": entry["title"],
        "kernel": kernel_version(tree, entry["image"], entry.get("version")),
        "image": entry["image"],
        "initrd": [name for name in (entry["initrd"] or "").split() if not name.startswith("$")],
        "arguments": entry["arguments"],
        "path": path,
        "default": None,
        "reason": reason,
    }


def _read_grub(tree: Tree, path: str) -> tuple[str, list[dict], int | None, str | None]:
    directory = path.rsplit("/", 1)[0]
    saved = tree.read(f"{directory}/grubenv")
    custom = tree.read(f"{directory}/custom.cfg").value
    environment = grub_script.parse_environment(saved.value) if saved.value else None
    try:
        script = grub_script.Script(
            tree.read(path).value or "", environment, {} if custom is None else {"custom.cfg": custom}
        )
        if not saved.value and not saved.absent and saved.code:
            return "grub", [], None, f"{directory}/grubenv: {saved.reason}"
        loader = "bls" if script.bls is not None else "grub"
        entries, places = _grub_entries(tree, path, script)
        chosen, reason = script.default()
    except grub_script.ScriptError as error:
        return "grub", [], None, f"{path}: {error}"
    if chosen is None:
        return loader, entries, None, reason
    if "bls" not in chosen:
        return loader, entries, places.index(id(chosen)), None
    index, reason = _among_bls(chosen, entries, places)
    return loader, entries, index, reason


def _grub_entries(tree: Tree, path: str, script: grub_script.Script) -> tuple[list[dict], list]:
    """Return all entries in the order of the menu, and for each the ``id()`` of its node, or None for a BLS entry."""
    entries: list[dict] = []
    places: list = []

    def walk(menu: list[dict], depth: int = 0) -> None:
        for node in menu:
            if "bls" in node:
                for entry in _grub_bls(tree, script.bls or {}):
                    entries.append(entry)
                    places.append(None)
            elif node["is_submenu"]:
                if depth < 5:
                    walk(script.open_submenu(node), depth + 1)
            else:
                booted = {**script.boot(node), "id": node["id"], "title": node["title"]}
                reason = None
                if booted["image"] is None:
                    reason = "starts no Linux kernel, or one that only GRUB knows"
                elif booted["arguments"] is None:
                    reason = "its kernel line has parts that only GRUB knows"
                entries.append(_entry(tree, path, booted, reason))
                places.append(id(node))

    walk(script.menu)
    return entries, places


def _grub_bls(tree: Tree, variables: dict) -> list[dict]:
    entries = []
    for name in tree.names("/boot/loader/entries"):
        text = tree.read(f"/boot/loader/entries/{name}").value
        if name.endswith(".conf") and text is not None:
            entry = boot_entries.parse_bls(name[: -len(".conf")], text)
            entry["id"] = name[: -len(".conf")]
            entries.append({**entry, "path": f"/boot/loader/entries/{name}"})
    result = []
    for entry in boot_entries.by_grub(entries):
        arguments, missing = boot_entries.expand(entry["arguments"], variables)
        reason = f"only GRUB knows ${missing}" if missing else None
        result.append(_entry(tree, entry["path"], {**entry, "arguments": arguments}, reason))
    return result


def _among_bls(chosen: dict, entries: list[dict], places: list) -> tuple[int | None, str | None]:
    """Find the default entry in a menu that holds BLS entries: by number, id or title."""
    wanted = chosen["wanted"]
    if not entries:
        return None, "there are no boot entries"
    if any(not node["certain"] for node in chosen["menu"]):
        return None, "grub.cfg has entries that only GRUB knows to be there"
    index = grub_script.entry_number(wanted)
    if index is not None and any(node.get("is_submenu") for node in chosen["menu"]):
        return None, "the default is a number in a menu with submenus and entries of the Boot Loader Specification"
    if index is None:
        names = (wanted, wanted[: -len(".conf")] if wanted.endswith(".conf") else wanted)
        index = next((place for place, entry in enumerate(entries) if wanted and entry["id"] in names), None)
        if index is None:
            index = next((place for place, entry in enumerate(entries) if wanted and entry["title"] == wanted), 0)
    return (index if index < len(entries) else 0), None


def _read_systemd(tree: Tree, path: str) -> tuple[str, list[dict], int | None, str | None]:
    entries, problem = _systemd_entries(tree)
    ids = [entry["id"] for entry in entries]
    told = [_entry(tree, entry["path"], entry, entry["reason"]) for entry in entries]
    if problem:
        return "systemd-boot", told, None, problem
    if not entries:
        return "systemd-boot", [], None, "systemd-boot has no entries"
    pattern = ""
    for line in (tree.read(f"{path}/loader/loader.conf").value or "").splitlines():
        words = line.split(None, 1)
        if len(words) == 2 and words[0] == "default":
            pattern = words[1].strip()
    for wanted, exact in (
        (_efi_text(tree, "LoaderEntryOneShot"), True),
        (_efi_text(tree, "LoaderEntryDefault"), True),
        (pattern, False),
    ):
        if wanted == "@saved":
            wanted, exact = _efi_text(tree, "LoaderEntryLastBooted"), True
        for place, identity in enumerate(ids):
            if wanted and (identity == wanted if exact else fnmatch.fnmatchcase(identity.lower(), wanted.lower())):
                return "systemd-boot", told, place, None
    if not tree.names(EFI_VARIABLES) and tree.exists("/proc/cmdline"):
        return "systemd-boot", told, None, "systemd-boot's EFI variables cannot be read"
    return "systemd-boot", told, 0, None


def _systemd_entries(tree: Tree) -> tuple[list[dict], str | None]:
    entries: list[dict] = []
    seen = set()
    for place in BLS_PLACES:
        inside = tree.inside(place)
        if inside in seen:
            continue
        seen.add(inside)
        for name in tree.names(f"{place}/loader/entries"):
            path = f"{place}/loader/entries/{name}"
            reading = tree.read(path)
            if name.endswith(".conf"):
                if reading.value is None:
                    return entries, f"{path}: {reading.reason}"
                entry = boot_entries.parse_bls(name[: -len(".conf")], reading.value)
                entries.append({**entry, "id": f"{entry['id']}.conf", "path": path, "reason": None})
        for name in tree.names(f"{place}/EFI/Linux"):
            path = f"{place}/EFI/Linux/{name}"
            if not name.lower().endswith(".efi"):
                continue
            try:
                with open(tree.path(path), "rb") as file:
                    unified = boot_entries.parse_unified_image(file, name)
            except OSError as error:
                return entries, f"{path}: {error.strerror}"
            if unified is None:
                continue
            more = tree.names(f"{path}.extra.d") + tree.names(f"{place}/loader/addons")
            reason = None
            if any(addon.endswith(".addon.efi") for addon in more):
                unified["arguments"], reason = None, "addons change its kernel line"
            entries.append({**unified, "path": path, "reason": reason})
    return boot_entries.by_systemd(entries), None


def _efi_text(tree: Tree, name: str) -> str:
    return (efi_variable(tree, name) or b"").decode("utf-16-le", "replace").rstrip("\0")


def _read_extlinux(tree: Tree, path: str) -> tuple[str, list[dict], int | None, str | None]:
    entries, default = boot_entries.parse_extlinux(tree.read(path).value or "")
    reason = None
    if default is None:
        reason = f"{path} names a default that it does not have" if entries else f"{path} has no entries"
    return "extlinux", [_entry(tree, path, entry) for entry in entries], default, reason
