# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""modprobe.d as kmod reads it, over plain data: ``{path: text}`` of the files in the five directories.

The same rules serve the running root and the copy inside a boot image. They follow libkmod-config.c and shared/util.c
of kmod: files ``*.conf`` sorted by file name over all directories, a file hides those of the same name in later
directories, a backslash before a line end joins lines, dashes and underscores of module names are alike, options of
the same module are appended, and the kernel line comes after all files. The kernel then takes the last value of a
parameter, whose name's dashes and underscores are alike, too (``parameq`` in kernel/params.c).
"""

from __future__ import annotations

import re

from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree

DIRECTORIES = (
    "/etc/modprobe.d",
    "/run/modprobe.d",
    "/usr/local/lib/modprobe.d",
    "/usr/lib/modprobe.d",
    "/lib/modprobe.d",
)


def read_config(tree: Tree) -> tuple[dict[str, str], list[str]]:
    """Read all configuration files.

    :returns: ``(files, problems)``: text by path, and a sentence for each file that is there but cannot be read. Where
        ``/lib`` is a link to ``/usr/lib`` its files are listed once.
    """
    files: dict[str, str] = {}
    problems: list[str] = []
    seen = set()
    for directory in DIRECTORIES:
        place = tree.inside(directory)
        if place in seen:
            continue
        seen.add(place)
        for name in tree.names(directory):
            if not name.endswith(".conf"):
                continue
            reading = tree.read(f"{directory}/{name}")
            if reading.value is not None:
                files[f"{directory}/{name}"] = reading.value
            elif reading.code == "ENOENT":
                files[f"{directory}/{name}"] = ""  # a dangling link hides its namesakes like an empty file
            else:
                problems.append(f"{directory}/{name}: {reading.reason}")
    return files, problems


def in_order(paths) -> list[tuple[str, str | None]]:
    """Sort configuration files as kmod applies them.

    :returns: ``(path, hidden by)`` for each path; the second is None for files that count. Hidden ones come right
        after the file that hides them.
    """
    known = [path for path in paths if _rank(path) is not None]
    known.sort(key=lambda path: (_name(path).encode("utf-8", "surrogateescape"), _rank(path)))
    result: list[tuple[str, str | None]] = []
    first: dict[str, str] = {}
    for path in known:
        winner = first.setdefault(_name(path), path)
        result.append((path, None if winner == path else winner))
    return result


def logical_lines(text: str) -> list[tuple[int, str]]:
    """Return ``(number of its first line, text)`` with continuation lines joined.

    A backslash before any other character is dropped, as kmod does.
    """
    lines = []
    current: list[str] = []
    start = number = 1
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character == "\\" and position < len(text):
            character = text[position]
            position += 1
            if character == "\n":
                number += 1
                continue
        elif character == "\n":
            number += 1
            lines.append((start, "".join(current)))
            current = []
            start = number
            continue
        current.append(character)
    if current:
        lines.append((start, "".join(current)))
    return lines


def split_parameters(text: str) -> list[tuple[str, str | None]]:
    """Split ``a=1 b="x y" c`` into names and values as the kernel does (``next_arg`` in lib/cmdline.c): double quotes
    may surround a value or the whole parameter. A parameter without ``=`` has the value None."""
    parameters = []
    word: list[str] = []
    quoted = False
    for character in [*text, " "]:
        if character == '"':
            quoted = not quoted
            word.append(character)
        elif character.isspace() and not quoted:
            if word:
                parameters.append(_split_word("".join(word)))
            word = []
        else:
            word.append(character)
    if word:  # an open quote: the kernel takes the rest of the line
        parameters.append(_split_word("".join(word).rstrip()))
    return parameters


def same_name(left: str, right: str) -> bool:
    """Compare names of modules or parameters; dashes and underscores are alike."""
    return left.replace("-", "_") == right.replace("-", "_")


def option_settings(files: dict[str, str], module: str, parameter: str) -> list[dict]:
    """List every place that sets a module's parameter, in the order in which they apply.

    :returns: ``{path, line, value, hidden_by}`` each; the last one that is not hidden wins. value is None for a bare
        name.
    """
    settings = []
    for path, hidden_by in in_order(files):
        for number, line in logical_lines(files[path]):
            settings.extend(
                {"path": path, "line": number, "value": value, "hidden_by": hidden_by}
                for name, value in _options_of(line, module)
                if same_name(name, parameter)
            )
    return settings


def kernel_line_settings(text: str, module: str, parameter: str) -> list[dict]:
    """List the values that a kernel line (``ib_core.netns_mode=0``) gives a parameter; shape as
    :func:`option_settings`."""
    settings = []
    for key, value in split_parameters(text):
        prefix, dot, name = key.partition(".")
        if dot and same_name(prefix, module) and same_name(name, parameter):
            settings.append({"path": "/proc/cmdline", "line": 1, "value": value, "hidden_by": None})
    return settings


def winner(settings: list[dict]) -> dict | None:
    """Return the setting that takes effect, or None."""
    return next((setting for setting in reversed(settings) if setting["hidden_by"] is None), None)


def set_option(text: str, module: str, parameter: str, value: str, comment: str = "") -> str:
    """Return a configuration file's text in which exactly one line sets the parameter.

    Everything else stays: comments, other modules, other parameters on the same line. The value is changed where it
    was set first, further settings of it are dropped; a file that did not set it gets a line (and the comment, when
    new) at its end.
    """
    wanted = f"{parameter}={value}"
    lines = _physical_groups(text)
    done = False
    result: list[str] = []
    for group in lines:
        joined = "".join(part for _number, part in logical_lines(group))
        options = _options_of(joined, module)
        if not any(same_name(name, parameter) for name, _value in options):
            result.append(group)
            continue
        kept: list[str] = []
        for name, old in options:
            if not same_name(name, parameter):
                kept.append(_join(name, old))
            elif not done:
                kept.append(wanted)
                done = True
        if kept == [_join(name, old) for name, old in options]:
            result.append(group)  # already as wanted: not even its spacing changes
        elif kept:
            result.append(f"options {joined.split()[1]} {' '.join(kept)}\n")
    new = "".join(result)
    if done:
        return new
    if new and not new.endswith("\n"):
        new += "\n"
    if new and _continues(new[:-1]):
        new += "\n"  # a backslash at the very end would swallow our line
    if comment and not new:
        new = f"# {comment}\n"
    return f"{new}options {module} {wanted}\n"


def _physical_groups(text: str) -> list[str]:
    """Split text into pieces of one logical line each, every character kept."""
    groups: list[str] = []
    joining = False
    for line in re.findall(r"[^\n]*\n|[^\n]+", text):
        if joining:
            groups[-1] += line
        else:
            groups.append(line)
        joining = line.endswith("\n") and _continues(line[:-1])
    return groups


def _continues(line: str) -> bool:
    """Tell whether the next line belongs to this one: an even number of backslashes at the end is escaped
    backslashes."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _options_of(line: str, module: str) -> list[tuple[str, str | None]]:
    words = line.split(None, 2)
    if len(words) < 3 or words[0] != "options" or not same_name(words[1], module):
        return []
    return split_parameters(words[2])


def _split_word(word: str) -> tuple[str, str | None]:
    if word.startswith('"'):
        word = word[1:-1] if word.endswith('"') and len(word) > 1 else word[1:]
    name, equals, value = word.partition("=")
    if equals and value.startswith('"'):
        value = value[1:-1] if value.endswith('"') and len(value) > 1 else value[1:]
    return name, value if equals else None


def _join(name: str, value: str | None) -> str:
    if value is None:
        return name
    return f'{name}="{value}"' if any(character.isspace() for character in value) else f"{name}={value}"


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _rank(path: str) -> int | None:
    directory = path.rsplit("/", 1)[0]
    return DIRECTORIES.index(directory) if directory in DIRECTORIES else None
