# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Making one owner of the netns mode out of several: what has to be changed, computed before anything is.

Order of the steps: our file first, then the lines of the others, the kernel line last. Whenever it is cut short, every
file still sets the old or the new mode and the last one wins, so the next boot has one of the two. The other way round
there would be a moment in which nobody sets it, and the next boot would bring the kernel's default, which may be
neither.

A line in ``/etc/modprobe.d`` is edited. ``/usr/lib`` and ``/lib`` belong to packages, and ``/run`` is written anew at
every boot by whatever made the file; a file of the same name in ``/etc`` hides theirs, which is kmod's own way, and
holds the rest of their lines.
"""

from __future__ import annotations

import fnmatch
import os
import re

from ansible_collections.railyard.rdma.plugins.module_utils.netns import modprobe, modprobe_edit, netns_mode

COMMENT = "Managed by Ansible (railyard.rdma.ib_core_netns)."
_REGENERATED = {  # feeding file: what writes the kernel lines anew
    "/etc/default/grub": "grub",
    "/etc/default/grub.d": "grub",
    "/etc/kernel": "entries",
}


class Refused(Exception):
    """It cannot be done; the text says why and what to do."""


def conflicts(owners: list[dict], loader: dict) -> list[dict]:
    """Return the owners that would still be there beside our file.

    Files of its name in other directories it hides. The running kernel line does not count where the boot loader's
    configuration tells that the next one will not have the argument.
    """
    name = os.path.basename(netns_mode.OUR_FILE)
    settled = netns_mode.next_kernel_line(loader)["known"]
    return [
        entry
        for entry in netns_mode.foreign(owners)
        if not (os.path.basename(entry["path"]) == name and entry["path"].startswith(modprobe.DIRECTORIES))
        and not (entry["owner"] == "kernel_line" and settled)
    ]


def plan_files(files: dict[str, str], mode: str, others: list[dict]) -> dict:
    """Work out the new modprobe.d.

    :param others: owners in modprobe.d to be moved aside (see :func:`conflicts`).
    :returns: ``{changes, moved}``: changes as ``{path: new text}`` in the order in which they are to be made, moved as
        ``{path, line, hidden_by}`` for each of the others; hidden_by is the file that hides theirs, None when theirs is
        edited.

    Raises :class:`Refused`.
    """
    changes = {
        netns_mode.OUR_FILE: modprobe_edit.set_option(
            _start(files), netns_mode.MODULE, netns_mode.PARAMETER, netns_mode.option_value(mode), COMMENT
        )
    }
    moved = []
    aliases = {netns_mode.MODULE, *modprobe.aliases(files, netns_mode.MODULE), *netns_mode.KERNEL_ALIASES}
    for path in dict.fromkeys(entry["path"] for entry in others):
        lines = [entry for entry in others if entry["path"] == path]
        text = files[path]
        for number in sorted({entry["line"] for entry in lines if entry["statement"] == "install"}, reverse=True):
            text = modprobe_edit.remove_from_install(text, number, netns_mode.PARAMETER)
        for module in sorted(aliases):
            text = modprobe_edit.remove_option(text, module, netns_mode.PARAMETER)
        directory, name = path.rsplit("/", 1)
        target = path if directory == modprobe.DIRECTORIES[0] else f"{modprobe.DIRECTORIES[0]}/{name}"
        if target != path:
            text = f"# Hides {path}, without its netns_mode. {COMMENT}\n{text}"
        changes[target] = text
        moved += [
            {"path": path, "line": entry["line"], "hidden_by": None if target == path else target} for entry in lines
        ]
    after = {**files, **changes}
    told = netns_mode.configured(after)
    if told["mode"] != mode or told["by"] != netns_mode.OUR_FILE:
        raise Refused(f"{netns_mode.OUR_FILE} would not set mode {mode}: {_why_not(told, after)}")
    return {"changes": {path: text for path, text in changes.items() if files.get(path) != text}, "moved": moved}


def _start(files: dict[str, str]) -> str:
    """Return the text to start from: our file, or the one of its name that it is going to hide, so that nothing else
    is lost. Its install line does not set the option any more: there is one place for it."""
    name = os.path.basename(netns_mode.OUR_FILE)
    namesakes = [path for path, _hidden_by in modprobe.in_order(files) if os.path.basename(path) == name]
    text = files[namesakes[0]] if namesakes else ""
    for found in reversed(modprobe.directives({netns_mode.OUR_FILE: text}, "install")):
        if fnmatch.fnmatchcase(netns_mode.MODULE, found["name"]):
            text = modprobe_edit.remove_from_install(text, found["line"], netns_mode.PARAMETER)
    return text


def _why_not(told: dict, files: dict[str, str]) -> str:
    if told["reason"]:
        return told["reason"]
    if told["by"] not in (None, netns_mode.OUR_FILE):
        return f"{told['by']} line {told['line']} sets it, too"
    for found in modprobe.directives(files, "options"):
        if found["name"] == netns_mode.MODULE and found["hidden_by"] is None:
            if found["rest"].count('"') % 2:
                return f"{found['path']} line {found['line']} has a quote that is not closed, it swallows what follows"
            if "--" in found["rest"].split():
                return f'{found["path"]} line {found["line"]} has "--", the kernel ignores the options behind it'
    return "another setting of it stays in effect"


def plan_arguments(loader: dict, texts: dict[str, str], grubby: bool, ostree: bool) -> dict:
    """Work out how ``ib_core.netns_mode`` gets off the kernel lines of later boots.

    :param loader: result of boot_loader.read.
    :param texts: text by path of the files that feed kernel lines, and of the loader's entries.
    :param grubby: the program is there.
    :param ostree: the system is deployed by rpm-ostree, which owns the kernel lines.
    :returns: ``{changes, command}``: changes as in :func:`plan_files`; command is ``mkconfig``, ``grubby`` (with the
        arguments in ``remove``) or None.

    Raises :class:`Refused`.
    """
    entries = [entry for entry in loader["entries"] if netns_mode.ARGUMENT.search(entry["arguments"] or "")]
    feeds = [feed for feed in loader["feeds"] if netns_mode.ARGUMENT.search(feed["text"])]
    given = [match[0] for entry in entries for match in netns_mode.ARGUMENT.finditer(entry["arguments"])]
    given += [match[0] for feed in feeds for match in netns_mode.ARGUMENT.finditer(feed["text"])]
    arguments = list(dict.fromkeys(given))
    if ostree:
        options = " ".join(f"--delete-if-present={argument}" for argument in arguments)
        raise Refused(f"kernel lines belong to rpm-ostree here; run: rpm-ostree kargs {options}")
    changes: dict[str, str] = {}
    for feed in feeds:
        path = feed["path"]
        if _REGENERATED.get(path) is None and _REGENERATED.get(os.path.dirname(path)) is None:
            if path.endswith("/grubenv") and grubby:
                continue
            raise Refused(f"{path} line {feed['line']} holds the argument; take it out with the program that writes it")
        changes[path] = _without_argument(path, changes.get(path, texts[path]), feed["line"])
    command = None
    if loader["loader"] == "bls" and (entries or any(feed["path"].endswith("/grubenv") for feed in feeds)):
        command = "grubby" if grubby else None
    elif loader["loader"] == "grub":
        command = "mkconfig"
    if loader["loader"] in ("bls", "systemd-boot") and command is None:
        for entry in entries:
            path = entry["path"]
            if not path.endswith(".conf"):
                raise Refused(f"{path} carries its kernel line inside; build it anew without {' '.join(arguments)}")
            for number, line in enumerate(texts[path].split("\n"), start=1):
                if re.match(r"\s*options\s", line) and netns_mode.ARGUMENT.search(line):
                    changes[path] = _without_argument(path, changes.get(path, texts[path]), number)
    elif loader["loader"] not in ("grub", "bls", "systemd-boot"):
        raise Refused(
            f"{', '.join(sorted({entry['path'] for entry in entries}) or ['the kernel line'])} has to be changed by hand"
        )
    return {"changes": changes, "command": command, "remove": arguments}


def _without_argument(path: str, text: str, number: int) -> str:
    """Return a text without the argument in one of its lines."""
    lines = text.split("\n")
    line = lines[number - 1]
    for match in reversed(list(netns_mode.ARGUMENT.finditer(line))):
        before, behind = line[: match.start()], line[match.end() :]
        if behind and behind[0] not in " \t\r\"'":
            raise Refused(f"{path} line {number}: {match[0]}{behind[:10]} is written in a way that is not understood")
        if before.endswith((" ", "\t")):
            before = before.rstrip(" \t") + ("" if behind[:1] in ("", '"', "'", " ", "\t", "\r") else " ")
        else:
            behind = behind.lstrip(" \t")
        line = before + behind
    lines[number - 1] = line
    return "\n".join(lines)
