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

from ansible_collections.railyard.rdma.plugins.module_utils import modprobe
from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree

MODULE, PARAMETER = "ib_core", "netns_mode"
KERNEL_DEFAULT = "shared"
OUR_FILE = "/etc/modprobe.d/ib_core.conf"
SRIOV_OPERATOR_FILE = "sriov_network_operator_modules_config.conf"
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
    """Return the setting that modprobe.d gives, ``{mode, reason, by, line}``."""
    setting = modprobe.winner(modprobe.option_settings(files, MODULE, PARAMETER))
    return {
        **mode_of(setting),
        "by": setting["path"] if setting else None,
        "line": setting["line"] if setting else None,
    }


def kernel_line(text: str | None) -> dict:
    """Return the setting of a kernel line (text of /proc/cmdline), ``{mode, reason}``; it beats every file."""
    if text is None:
        return {"mode": None, "reason": "/proc/cmdline is not readable"}
    return mode_of(modprobe.winner(modprobe.kernel_line_settings(text, MODULE, PARAMETER)))


def owners(files: dict[str, str], command_line: str | None) -> list[dict]:
    """List everything that sets the mode: ``{owner, path, line, mode, wins, hidden_by}`` in order of application.

    owner is ``railyard`` for our file, ``sriov_network_operator`` for the file that its ``rdmaMode`` writes,
    ``kernel_line``, or ``other``. Entries with hidden_by have no effect.
    """
    settings = modprobe.option_settings(files, MODULE, PARAMETER)
    settings += modprobe.kernel_line_settings(command_line or "", MODULE, PARAMETER)
    last = modprobe.winner(settings)
    return [
        {
            "owner": _owner(setting["path"]),
            "path": setting["path"],
            "line": setting["line"],
            "mode": mode_of(setting)["mode"],
            "wins": setting is last,
            "hidden_by": setting["hidden_by"],
        }
        for setting in settings
    ]


def live(tree: Tree) -> dict:
    """Return the mode in effect, ``{mode, reason, loaded}``; loaded is False when ib_core is not (yet) loaded."""
    reading = tree.read(LIVE_FILE)
    if reading.value is None:
        loaded = tree.exists("/sys/module/ib_core")
        reason = reading.reason if loaded else "ib_core is not loaded"
        return {"mode": None, "reason": reason, "loaded": loaded}
    shared = parse_boolean(reading.value.strip() or "?")
    if shared is None:
        return {"mode": None, "reason": f"{LIVE_FILE} holds {reading.value!r:.40}", "loaded": True}
    return {"mode": "shared" if shared else "exclusive", "reason": None, "loaded": True}


def next_boot(file_setting: dict, line_setting: dict, image: dict | None) -> dict:
    """Work out the mode after the next boot.

    :param file_setting: setting of modprobe.d on the root file system.
    :param line_setting: setting of the kernel line, which kmod appends after all files, in the image and on the root
        alike.
    :param image: ``{holds_ib_core, mode, reason}`` of the image that boots next, mode being what its own modprobe.d
        sets; holds_ib_core None when the image cannot be read. None when this system boots without an image.
    :returns: a setting; mode None comes with a reason always.
    """
    if line_setting["reason"]:
        return {"mode": None, "reason": line_setting["reason"]}
    if line_setting["mode"]:
        return {"mode": line_setting["mode"], "reason": None}
    if image is None or image["holds_ib_core"] is False:
        chosen = file_setting
    elif image["holds_ib_core"] is None:
        return {"mode": None, "reason": image["reason"] or "the boot image could not be read"}
    else:
        chosen = image
    if chosen["reason"]:
        return {"mode": None, "reason": chosen["reason"]}
    return {"mode": chosen["mode"] or KERNEL_DEFAULT, "reason": None}


def reboot_required(after: dict, now: dict) -> tuple[bool | None, str | None]:
    """Tell whether a reboot would change the mode: ``(answer, reason when None)``.

    :param after: result of :func:`next_boot`.
    :param now: result of :func:`live`. While ib_core is not loaded nothing runs in a wrong mode, so no reboot is
        needed.
    """
    if not now["loaded"]:
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
