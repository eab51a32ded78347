# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an ``install`` line of modprobe.d does to a module's options.

kmod runs its command through the shell in place of loading the module (``module_do_install_commands`` in
libkmod-module.c), after it replaced ``$CMDLINE_OPTS`` by the configured options. Understood are commands that load
nothing (``/bin/true``) and those that call ``modprobe --ignore-install MODULE name=value …``; that modprobe applies the
configured options first and its arguments after them. Of every other command it is unknown what it does.
"""

from __future__ import annotations

import re

from ansible_collections.railyard.rdma.plugins.module_utils.netns.modprobe import same_name, split_parameters

CONFIGURED = "$CMDLINE_OPTS"  # stands for all configured options in the result of :func:`understand`

_NEUTRAL = frozenset({"-q", "--quiet", "-v", "--verbose", "-s", "--syslog", "-b", "--use-blacklist"})
_HARMLESS = frozenset({"echo", "logger", "true", ":"})
_SHELL = re.compile(r"[`\\'\"(){}<>*?\[\]!~#\n|]|\$(?!CMDLINE_OPTS\b)|&(?!&)")


def understand(command: str, module: str, parameter: str) -> dict:
    """Tell what a command gives a parameter.

    :returns: ``{kind, values}``. kind is ``loads``, ``blocks`` (the module is never loaded) or ``unknown``; values are
        those that the command gives, in order, with :data:`CONFIGURED` where the configured options come once more.
    """
    unknown = {"kind": "unknown", "values": []}
    text = command.strip(" \t\r").replace("&&", "\0")
    if _SHELL.search(text):
        return unknown
    parts = re.split(r"([;\0])", text)
    found = None
    for place, part in enumerate(parts):
        words = part.split()
        if place % 2 or not words:
            continue
        program = words[0].rsplit("/", 1)[-1]
        if program == "modprobe" and _loads(words, module):
            if found is not None or "\0" in parts[:place]:
                return unknown  # whether it is reached depends on another command
            found = words
        elif found is None and len(parts) == 1 and program in ("true", "false", ":"):
            return {"kind": "blocks", "values": []}
        elif mentions(part, module) or (found is None and program not in _HARMLESS | {"modprobe"}):
            return unknown
    if found is None:
        return unknown
    options, arguments = _split(found, module)
    if not options & {"-i", "--ignore-install"} or options - _NEUTRAL - {"-i", "--ignore-install"}:
        return unknown
    values: list[str | None] = []
    for name, value in split_parameters(" ".join(arguments)):
        if name == CONFIGURED:
            values.append(CONFIGURED)
        elif same_name(name, parameter):
            values.append(value)
    return {"kind": "loads", "values": values}


def mentions(command: str, name: str) -> bool:
    """Tell whether a command names a module or parameter."""
    return re.search(rf"(?<![A-Za-z0-9_]){re.escape(name)}(?![A-Za-z0-9_])", command.replace("-", "_")) is not None


def _loads(words: list[str], module: str) -> bool:
    """Tell whether the first argument of a modprobe that is no option is the module."""
    return same_name(next((word for word in words[1:] if not word.startswith("-")), ""), module)


def _split(words: list[str], module: str) -> tuple[set, list[str]]:
    place = next(place for place, word in enumerate(words) if place and same_name(word, module))
    return set(words[1:place]), words[place + 1 :]
