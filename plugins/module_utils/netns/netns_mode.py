# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The RDMA subsystem's network namespace mode: what is live, who sets it, and what the next boot will bring.

``ib_core``'s parameter ``netns_mode`` is a boolean, true for shared (the kernel's default) and false for exclusive
(drivers/infiniband/core/device.c, ``ib_devices_shared_netns``). It is read once, when ib_core is loaded; on most
systems that happens from the boot image, which carries its own copy of modprobe.d. So the file alone proves nothing.

A *setting* here is ``{mode, reason}``: mode ``shared`` or ``exclusive``; None without a reason when nobody sets it;
None with a reason when that is not known.
"""

from __future__ import annotations

import re

from ansible_collections.railyard.rdma.plugins.module_utils.boot import boot_loader
from ansible_collections.railyard.rdma.plugins.module_utils.netns import install_lines, modprobe
from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree

MODULE, PARAMETER = "ib_core", "netns_mode"
KERNEL_DEFAULT = "shared"
OUR_FILE = "/etc/modprobe.d/ib_core.conf"
SRIOV_OPERATOR_FILE = "sriov_network_operator_modules_config.conf"
# The argument in any text that holds kernel arguments, quoted or not; its value in the first group.
ARGUMENT = re.compile(r"(?<![\w.-])ib[_-]core\.netns[_-]mode(?:=([^\s\"'\\;]*))?(?![\w.-])")
KERNEL_ALIASES = {"rdma_netlink_subsys_4"}  # MODULE_ALIAS_RDMA_NETLINK in drivers/infiniband/core/device.c
LIVE_FILE = "/sys/module/ib_core/parameters/netns_mode"


def option_value(mode: str) -> str:
    """Return the value of ``netns_mode`` for a mode."""
    return {"shared": "1", "exclusive": "0"}[mode]


def parse_boolean(value: str | None) -> bool | None:
    """Read a boolean module parameter as the kernel does (``kstrtobool`` in lib/kstrtox.c); a bare name means true.
    None: the kernel refuses it and ib_core does not load."""
    if value is None:
        return True
    if value[:1] in ("y", "Y", "t", "T", "1"):
        return True
    if value[:1] in ("n", "N", "f", "F", "0"):
        return False
    return {"on": True, "of": False}.get(value[:2].lower())


def mode_of(setting: dict | None) -> dict:
    """Turn a modprobe or kernel line setting into a mode setting."""
    if setting is None:
        return {"mode": None, "reason": None}
    shared = parse_boolean(setting["value"])
    if shared is None:
        return {"mode": None, "reason": f"{setting['path']}: netns_mode={setting['value']!r:.40} is not a boolean"}
    return {"mode": "shared" if shared else "exclusive", "reason": None}


def configured(files: dict[str, str]) -> dict:
    """Return the setting that modprobe.d gives, ``{mode, reason, by, line, beats_kernel_line}``.

    beats_kernel_line: an ``install`` line gives the value behind all configured options, the kernel line's among them.
    """
    told = _in_order(files, "")
    setting = modprobe.winner(told["settings"])
    by_install = setting is not None and setting.get("statement") == "install"
    return {
        **(mode_of(setting) if told["reason"] is None else {"mode": None, "reason": told["reason"]}),
        "by": setting["path"] if setting else None,
        "line": setting["line"] if setting else None,
        "beats_kernel_line": by_install and not setting["configured_again"],
    }


def kernel_line(text: str | None, builtin: bool = False) -> dict:
    """Return the setting of a kernel line (text of /proc/cmdline), ``{mode, reason}``; it beats every options line.

    :param builtin: ib_core is built into the kernel, which reads the line itself.
    """
    if text is None:
        return {"mode": None, "reason": "/proc/cmdline is not readable"}
    if _refused(text):
        return {"mode": None, "reason": "module_blacklist on the kernel line keeps ib_core from loading"}
    settings = modprobe.kernel_line_settings(text, MODULE, PARAMETER, builtin)
    refused = [setting for setting in settings if parse_boolean(setting["value"]) is None]
    if builtin:  # the kernel complains about a value that it refuses, and goes on
        settings = [setting for setting in settings if setting not in refused]
    elif refused and refused[0]["hidden_by"] is None:
        return mode_of(refused[0])
    return mode_of(modprobe.winner(settings))


def next_kernel_line(loader: dict, builtin: bool = False) -> dict:
    """Return the setting of the entry that boots next.

    :param loader: result of boot_loader.read.
    :returns: ``{mode, reason}`` and ``known``: False when it cannot be told what the line will be.
    """
    entry = boot_loader.default_entry(loader)
    if entry is None or entry["arguments"] is None:
        reason = (entry or {}).get("reason") or loader["reason"] or "the boot loader's default is not known"
        return {"mode": None, "reason": reason, "known": False}
    return {**kernel_line(entry["arguments"], builtin), "known": True}


def owners(files: dict[str, str], command_line: str | None, loader: dict | None = None) -> list[dict]:
    """List everything that sets the mode: ``{owner, path, line, mode, wins, hidden_by, statement}`` in order of
    application.

    owner is ``railyard`` for our file, ``sriov_network_operator`` for the file that its ``rdmaMode`` writes,
    ``kernel_line`` (the running one), ``boot_loader`` (files that make kernel lines of later boots) or ``other``.
    Entries with hidden_by have no effect; ``wins`` marks the one that decides, after the next boot when the boot
    loader's configuration is known and now otherwise. statement is ``options``, ``install`` or ``argument``. A mode of
    None is a value that the kernel refuses, or one of which it is not known whether and when it applies.

    :param loader: result of boot_loader.read; without it no boot_loader entries are listed.
    """
    told = _in_order(files, command_line or "")
    after = next_kernel_line(loader) if loader else {"known": False, "mode": None, "reason": None}
    settings = told["settings"]
    if after["known"] and any(setting["path"] == "/proc/cmdline" for setting in settings):
        deciding = modprobe.winner(_in_order(files, "")["settings"])
    else:
        deciding = modprobe.winner(settings)
    listed = [
        {
            "owner": _owner(setting["path"]),
            "path": setting["path"],
            "line": setting["line"],
            "mode": mode_of(setting)["mode"],
            "wins": setting is deciding or (deciding is not None and _same_place(setting, deciding)),
            "hidden_by": setting["hidden_by"],
            "statement": setting.get("statement", "options" if setting["line"] else "argument"),
        }
        for setting in settings
    ]
    for place in told["doubts"]:
        listed.append({"owner": _owner(place["path"]), "mode": None, "wins": False, "hidden_by": None, **place})
    arguments = _boot_loader_owners(loader) if loader else []
    if after["known"] and (after["mode"] or after["reason"]) and not configured(files)["beats_kernel_line"]:
        for entry in listed:
            entry["wins"] = False
        for entry in arguments[-1:]:
            entry["wins"] = True
    return listed + arguments


def _in_order(files: dict[str, str], command_line: str) -> dict:
    """Return all settings in order of application, with those of install lines: ``{settings, reason, doubts}``.

    reason says why the result is not what the last setting says; doubts lists lines of which it is not known whether
    they apply, ``{path, line, statement}``.
    """
    settings = modprobe.option_settings(files, MODULE, PARAMETER, command_line)
    for setting in settings:
        setting["statement"] = "argument" if setting["path"] == "/proc/cmdline" else "options"
    reasons, doubts = [], []
    for setting in settings:
        if setting["hidden_by"] is None and parse_boolean(setting["value"]) is None:
            reasons.append(mode_of(setting)["reason"])  # one refused value is enough to keep the module from loading
    installed = modprobe.install_command(files, MODULE)
    if installed:
        place = {"path": installed["path"], "line": installed["line"], "statement": "install"}
        effect = install_lines.understand(installed["rest"], MODULE, PARAMETER)
        where = f"{place['path']} line {place['line']}"
        if effect["kind"] == "blocks":
            reasons.append(f"{where} keeps ib_core from loading (install {installed['rest']:.60})")
        elif effect["kind"] == "unknown":
            reasons.append(f"{where}: it is not known what its command does (install {installed['rest']:.60})")
            doubts.append(place)
        base, again = modprobe.winner(settings), False
        own: list[dict] = []
        for value in effect["values"]:
            again = value == install_lines.CONFIGURED
            if not again:
                own.append({**place, "value": value, "hidden_by": None})
                if parse_boolean(value) is None:
                    reasons.append(mode_of(own[-1])["reason"])
        for setting in own:
            # Where the configured options come once more behind the command's own value, that has no effect.
            setting.update({"configured_again": again, "hidden_by": base["path"] if again and base else None})
        settings = settings + own
    for found in modprobe.directives(files, "install"):
        others = found["hidden_by"] is None and (
            installed is None or found["line"] != installed["line"] or found["path"] != installed["path"]
        )
        if (
            others
            and install_lines.mentions(found["rest"], MODULE)
            and (install_lines.mentions(found["rest"], PARAMETER) or install_lines.mentions(found["rest"], "insmod"))
        ):
            reasons.append(f"{found['path']} line {found['line']}: loading {found['name']} sets options of ib_core")
            doubts.append({"path": found["path"], "line": found["line"], "statement": "install"})
    for alias in sorted(modprobe.aliases(files, MODULE) | KERNEL_ALIASES):
        for setting in modprobe.option_settings(files, alias, PARAMETER):
            if setting["hidden_by"] is None:
                reasons.append(f"{setting['path']} line {setting['line']}: applies only when loaded as {alias}")
                doubts.append({"path": setting["path"], "line": setting["line"], "statement": "options"})
    return {"settings": settings, "reason": reasons[0] if reasons else None, "doubts": doubts}


def _boot_loader_owners(loader: dict) -> list[dict]:
    """Return what makes kernel lines of later boots: the lines that feed them, or the entries where no line does."""
    found = [
        {"path": feed["path"], "line": feed["line"], "mode": _mode_in(feed["text"])}
        for feed in loader["feeds"]
        if ARGUMENT.search(feed["text"])
    ]
    if not found:
        modes: dict[str, str | None] = {}
        for entry in loader["entries"]:
            if ARGUMENT.search(entry["arguments"] or ""):
                modes[entry["path"]] = kernel_line(entry["arguments"])["mode"]
        found = [{"path": path, "line": None, "mode": mode} for path, mode in modes.items()]
    return [
        {"owner": "boot_loader", **place, "wins": False, "hidden_by": None, "statement": "argument"} for place in found
    ]


def _mode_in(text: str) -> str | None:
    """Return the mode of the last argument in a line of a file that feeds kernel lines."""
    match = list(ARGUMENT.finditer(text))[-1]
    return mode_of({"path": "", "value": match[1]})["mode"]


def _same_place(setting: dict, other: dict) -> bool:
    keys = ("path", "line", "value", "statement")
    return all(setting.get(key) == other.get(key) for key in keys)


def _refused(text: str) -> bool:
    """Tell whether the kernel refuses to load ib_core (``module_blacklist=``, kernel/module/main.c)."""
    return any(
        name == "module_blacklist" and any(modprobe.same_name(part, MODULE) for part in (value or "").split(","))
        for name, value in modprobe.split_parameters(text)
    )


def live(tree: Tree) -> dict:
    """Return the mode in effect, ``{mode, reason, loaded}``; loaded is False when ib_core is not (yet) loaded, and None
    when that cannot be told (no sysfs: a disk that is not running)."""
    reading = tree.read(LIVE_FILE)
    if reading.value is None:
        if not tree.exists("/sys/module"):
            return {"mode": None, "reason": "/sys/module is not there: no running kernel to ask", "loaded": None}
        loaded = tree.exists("/sys/module/ib_core")
        reason = reading.reason if loaded else "ib_core is not loaded"
        return {"mode": None, "reason": reason, "loaded": loaded}
    shared = parse_boolean(reading.value.strip() or "?")
    if shared is None:
        return {"mode": None, "reason": f"{LIVE_FILE} holds {reading.value!r:.40}", "loaded": True}
    return {"mode": "shared" if shared else "exclusive", "reason": None, "loaded": True}


def next_boot(file_setting: dict, line_setting: dict, image: dict | None, builtin: bool | None = False) -> dict:
    """Work out the mode after the next boot.

    :param file_setting: setting of modprobe.d on the root file system.
    :param line_setting: setting of the kernel line, which kmod appends after all files, in the image and on the root
        alike.
    :param image: ``{holds_ib_core, mode, reason}`` of the image that boots next, mode being what its own modprobe.d
        sets; holds_ib_core None when the image cannot be read. None when this system boots without an image.
    :param builtin: ib_core is part of that kernel; then only the kernel line counts.
    :returns: a setting; mode None comes with a reason always.
    """
    if line_setting["reason"]:
        return {"mode": None, "reason": line_setting["reason"]}
    if builtin:
        return {"mode": line_setting["mode"] or KERNEL_DEFAULT, "reason": None}
    if image is None or image["holds_ib_core"] is False:
        chosen = file_setting
    elif image["holds_ib_core"] is None:
        if line_setting["mode"]:
            return {"mode": line_setting["mode"], "reason": None}
        return {"mode": None, "reason": image["reason"] or "the boot image could not be read"}
    else:
        chosen = image
    # A value that the kernel refuses keeps the module from loading, whatever comes behind it.
    if chosen["reason"] and not (line_setting["mode"] and chosen.get("unread")):
        return {"mode": None, "reason": chosen["reason"]}
    if line_setting["mode"] and not chosen.get("beats_kernel_line"):
        return {"mode": line_setting["mode"], "reason": None}
    return {"mode": chosen["mode"] or KERNEL_DEFAULT, "reason": None}


def reboot_required(after: dict, now: dict) -> tuple[bool | None, str | None]:
    """Tell whether a reboot would change the mode: ``(answer, reason when None)``.

    :param after: result of :func:`next_boot`.
    :param now: result of :func:`live`. While ib_core is not loaded nothing runs in a wrong mode, so no reboot is
        needed.
    """
    if now["loaded"] is False:
        return False, None
    if now["mode"] is None or after["mode"] is None:
        return None, now["reason"] or after["reason"]
    return now["mode"] != after["mode"], None


def foreign(entries: list[dict]) -> list[dict]:
    """Return the owners in effect that are not ours."""
    return [entry for entry in entries if entry["hidden_by"] is None and entry["owner"] != "railyard"]


def _owner(path: str) -> str:
    if path == OUR_FILE:
        return "railyard"
    if path == "/proc/cmdline":
        return "kernel_line"
    return "sriov_network_operator" if path.endswith("/" + SRIOV_OPERATOR_FILE) else "other"
