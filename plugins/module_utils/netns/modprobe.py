# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""modprobe.d as kmod reads it, over plain data: ``{path: text}`` of the files in the five directories.

The same rules serve the running root and the copy inside a boot image. They follow libkmod-config.c and shared/util.c
of kmod: files ``*.conf`` sorted by file name over all directories, a file hides those of the same name in later
directories, a backslash before a line end joins lines, words end at spaces and tabs only, a NUL ends its line, dashes
and underscores of module names are alike, options of the same module are appended, and the kernel line comes after all
files. The kernel splits what comes out (``next_arg`` in lib/cmdline.c, ``parse_args`` in kernel/params.c): a quote
that is not closed swallows the options of the lines behind it, ``--`` ends them, and the last value of a parameter
wins, whose name's dashes and underscores are alike, too.

``softdep`` and ``blacklist`` change when a module is loaded, not with which options: ib_core comes in as a dependency
of the drivers, and a blacklist applies only to the module that was asked for. ``install`` and ``alias`` lines do matter
(see :func:`install_command` and :func:`aliases`).

Text holds bytes that are no UTF-8 as surrogates (``surrogateescape``), so that it can be written back byte for byte.
"""

from __future__ import annotations

import bisect
import fnmatch
import os
import re
import stat
from typing import NamedTuple

from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree

DIRECTORIES = (
    "/etc/modprobe.d",
    "/run/modprobe.d",
    "/usr/local/lib/modprobe.d",
    "/usr/lib/modprobe.d",
    "/lib/modprobe.d",
)
MAXIMUM_FILE = 1024 * 1024  # bytes
_KERNEL_LINE = 4095  # what kmod reads of /proc/cmdline
_SPACE = " \t\n\v\f\r\udca0"  # isspace() of the kernel, which is Latin-1's


class Line(NamedTuple):
    """One logical line of a file. ``offsets`` tells for each character of ``text`` where it stands in the file."""

    number: int
    text: str
    offsets: list[int]
    start: int
    end: int


class Parameter(NamedTuple):
    """One module parameter; ``value`` is None for a bare name. It covers ``start`` to ``end`` of its text."""

    name: str
    value: str | None
    start: int
    end: int


def read_config(tree: Tree) -> tuple[dict[str, str], list[str]]:
    """Read all configuration files.

    :returns: ``(files, problems)``: text by path, and a sentence for each file that is there but cannot be read. Where
        ``/lib`` is a link to ``/usr/lib`` its files are listed once.
    """
    files: dict[str, str] = {}
    problems: list[str] = []
    dangling: list[str] = []
    seen = set()
    for directory in DIRECTORIES:
        place = tree.inside(directory)
        if place in seen:
            continue
        seen.add(place)
        try:
            names = sorted(os.listdir(tree.path(directory)))
        except FileNotFoundError:
            continue
        except OSError as error:
            problems.append(f"{directory}: {error.strerror}")
            continue
        for name in names:
            path = f"{directory}/{name}"
            if not name.endswith(".conf") or name.startswith("."):
                continue
            try:
                text = read_config_file(tree, path)
            except FileNotFoundError:
                dangling.append(path)
            except (OSError, ValueError) as error:
                problems.append(f"{path}: {getattr(error, 'strerror', None) or error}")
            else:
                if text is not None:
                    files[path] = text
    for path in dangling:
        # kmod up to 33 takes such a link for an empty file that hides its namesakes, later ones pass over it.
        hidden = next((other for other in files if _name(other) == _name(path)), None)
        if hidden:
            problems.append(f"{path} is a link to nothing; whether it hides {hidden} depends on kmod's version")
    return files, problems


def read_config_file(tree: Tree, path: str, maximum: int = MAXIMUM_FILE) -> str | None:
    """Read one file, byte for byte; None for a directory or a device (an empty file to kmod). Raises OSError, and
    ValueError when it is too large."""
    directory, name = path.rsplit("/", 1)
    link = f"{tree.path(directory)}/{name}"
    if os.path.islink(link) and os.readlink(link) == "/dev/null":
        return ""  # how a file is hidden; another root need not have that device
    place = tree.path(path)
    status = os.stat(place)
    if stat.S_ISDIR(status.st_mode):
        return None
    if not stat.S_ISREG(status.st_mode):
        if stat.S_ISCHR(status.st_mode):
            return ""
        raise ValueError("is neither a file nor a directory")
    if status.st_size > maximum:
        raise ValueError(f"has {status.st_size} bytes, allowed are {maximum}")
    return tree.read_bytes(place).decode("utf-8", "surrogateescape")


def in_order(paths) -> list[tuple[str, str | None]]:
    """Sort configuration files as kmod applies them.

    :returns: ``(path, hidden by)`` for each path; the second is None for files that count. Hidden ones come right
        after the file that hides them.
    """
    known = [path for path in paths if _rank(path) is not None]
    known.sort(key=lambda path: (_name(path).encode("utf-8", "surrogatepass"), _rank(path)))
    result: list[tuple[str, str | None]] = []
    first: dict[str, str] = {}
    for path in known:
        winner = first.setdefault(_name(path), path)
        result.append((path, None if winner == path else winner))
    return result


def lines(text: str) -> list[Line]:
    """Split text into logical lines: continuation lines are joined; a backslash before any other character is
    dropped."""
    found = []
    characters: list[str] = []
    offsets: list[int] = []
    start = position = 0
    number = first = 1
    while position < len(text):
        here, character = position, text[position]
        position += 1
        if character == "\\":
            if position == len(text):
                break
            here, character = position, text[position]
            position += 1
            if character == "\n":
                number += 1
                continue
        elif character == "\n":
            number += 1
            found.append(Line(first, "".join(characters), [*offsets, here], start, position))
            characters, offsets, start, first = [], [], position, number
            continue
        characters.append(character)
        offsets.append(here)
    if start < len(text):
        found.append(Line(first, "".join(characters), [*offsets, len(text)], start, len(text)))
    return found


def logical_lines(text: str) -> list[tuple[int, str]]:
    """Return ``(number of its first line, text)`` with continuation lines joined."""
    return [(line.number, line.text) for line in lines(text)]


def words(text: str, count: int) -> list[tuple[str, int]]:
    """Split off the first words of a line as kmod's parser does: ``(word, where it begins)``; the last of ``count`` is
    the whole rest, which begins right behind one separator and may have more of them."""
    text = text.split("\0", 1)[0]
    if text.startswith("#"):
        return []
    found: list[tuple[str, int]] = []
    position = 0
    while len(found) < count - 1:
        match = re.compile(r"[\t ]*([^\t ]+)[\t ]?").match(text, position)
        if match is None:
            return found
        found.append((match[1], match.start(1)))
        position = match.end()
    return [*found, (text[position:], position)] if position < len(text) else found


def parameters(text: str) -> list[Parameter]:
    """Split ``a=1 b="x y" c`` as the kernel does (``next_arg``): double quotes may surround a value or the whole
    parameter; one that is not closed reaches to the end."""
    found = []
    position = 0
    while True:
        while position < len(text) and text[position] in _SPACE:
            position += 1
        if position == len(text):
            return found
        start = position
        quoted = text[start] == '"'
        inside = quoted
        position += quoted
        begin = position
        equals = 0
        while position < len(text) and (inside or text[position] not in _SPACE):
            if not equals and text[position] == "=" and position > begin:
                equals = position
            if text[position] == '"':
                inside = not inside
            position += 1
        end = position - (quoted and position > begin and text[position - 1] == '"')
        if not equals:
            found.append(Parameter(text[begin:end], None, start, position))
            continue
        value = text[equals + 1 : end]
        if value.startswith('"'):
            value = value[1:-1] if value.endswith('"') and len(value) > 1 else value[1:]
        found.append(Parameter(text[begin:equals], value, start, position))


def split_parameters(text: str) -> list[tuple[str, str | None]]:
    """Return names and values of :func:`parameters`."""
    return [(parameter.name, parameter.value) for parameter in parameters(text)]


def same_name(left: str, right: str) -> bool:
    """Compare names of modules or parameters; dashes and underscores are alike."""
    return left.replace("-", "_") == right.replace("-", "_")


def directives(files: dict[str, str], command: str) -> list[dict]:
    """List the lines of one command that has two arguments (``options``, ``install``, ``alias``) in order of
    application: ``{path, line, name, rest, hidden_by}``."""
    found = []
    for path, hidden_by in in_order(files):
        for line in lines(files[path]):
            parts = words(line.text, 3)
            if len(parts) == 3 and parts[0][0] == command and _valid(parts[1][0]):
                name, rest = parts[1][0].replace("-", "_"), parts[2][0]
                rest = rest.replace("\t", " ") if command == "options" else rest  # also within quotes, as kmod does
                found.append({"path": path, "line": line.number, "name": name, "rest": rest, "hidden_by": hidden_by})
    return found


def option_settings(files: dict[str, str], module: str, parameter: str, command_line: str = "") -> list[dict]:
    """List every place that sets a module's parameter, in the order in which they apply.

    :param command_line: text of the kernel line, whose options kmod appends.
    :returns: ``{path, line, value, hidden_by}`` each; the last one that is not hidden wins. value is None for a bare
        name. hidden_by is the path of the file that keeps it from applying (its namesake, or one with ``--``).
    """
    wanted = module.replace("-", "_")
    sources = [found for found in directives(files, "options") if found["name"] == wanted]
    sources += [
        {"path": "/proc/cmdline", "line": 1, "rest": text, "hidden_by": None}
        for name, text in kmod_line_options(command_line)
        if name == wanted
    ]
    settings = []
    ended_by = None
    starts: list[int] = []
    counting = [place for place, source in enumerate(sources) if source["hidden_by"] is None]
    joined = ""
    for place in counting:
        starts.append(len(joined))
        joined += sources[place]["rest"] + " "
    for found in parameters(joined):
        place = counting[bisect.bisect_right(starts, found.start) - 1]
        if same_name(found.name, parameter):
            settings.append((place, found.value, ended_by))
        elif found.name == "--" and found.value is None:
            ended_by = ended_by or sources[place]["path"]
    for place, source in enumerate(sources):
        if source["hidden_by"] is not None:
            settings.extend(
                (place, value, source["hidden_by"])
                for name, value in split_parameters(source["rest"])
                if same_name(name, parameter)
            )
    settings.sort(key=lambda setting: setting[0])
    return [
        {"path": sources[place]["path"], "line": sources[place]["line"], "value": value, "hidden_by": hidden_by}
        for place, value, hidden_by in settings
    ]


def install_command(files: dict[str, str], module: str) -> dict | None:
    """Return the ``install`` line that runs instead of loading a module, ``{path, line, rest}``: the first one in
    effect whose name, which may have wildcards, fits."""
    name = module.replace("-", "_")
    return next(
        (
            found
            for found in directives(files, "install")
            if found["hidden_by"] is None and fnmatch.fnmatchcase(name, found["name"])
        ),
        None,
    )


def aliases(files: dict[str, str], module: str) -> set[str]:
    """Return the other names that configuration files give a module. Options for such a name apply only when the
    module is loaded by it."""
    name = module.replace("-", "_")
    return {
        found["name"]
        for found in directives(files, "alias")
        if found["hidden_by"] is None and found["rest"].strip(" \t").replace("-", "_").split(" ")[0] == name
    } - {name}


def kmod_line_options(text: str) -> list[tuple[str, str]]:
    """Return ``(module, "parameter=value")`` for each module parameter that kmod takes from a kernel line
    (``kmod_config_parse_kcmdline``). A quote may stand before the module's name or in the value."""
    found = []
    text = text.split("\0", 1)[0].encode("utf-8", "surrogateescape")[:_KERNEL_LINE].decode("utf-8", "surrogateescape")
    state = "module"
    start = dot = equals = 0
    quoted = requote = False
    for position, character in enumerate([*text, "\0"]):
        if character == '"':
            quoted = not quoted
            if quoted and state == "module" and position == start:
                requote = True
                start = position + 1
            elif state != "value":
                state = "ignore"
        elif character in "\0 \n\t\v\f\r":
            if quoted:
                state = "value" if state == "value" and character != "\0" else "ignore"
                continue
            if state in ("value", "parameter"):
                module, option = text[start:dot], text[dot + 1 : position]
                if requote and state == "value":
                    option = f'{text[dot + 1 : equals]}="{text[equals + 1 : position]}'
                if _valid(module):
                    found.append((module.replace("-", "_"), option.replace("\t", " ")))
            state, start, requote = "module", position + 1, False
        elif character == "." and state in ("module", "parameter"):
            state = "parameter" if state == "module" else "ignore"
            dot = position
        elif character == "=" and state in ("module", "parameter"):
            state = "value" if state == "parameter" else "ignore"
            equals = position
    return found


def kernel_line_settings(text: str, module: str, parameter: str, builtin: bool = False) -> list[dict]:
    """List the values that a kernel line (``ib_core.netns_mode=0``) gives a parameter; shape as
    :func:`option_settings`.

    :param builtin: the module is built into the kernel, which then reads the line itself, and only up to ``--``.
    """
    if not builtin:
        return option_settings({}, module, parameter, text)
    settings = []
    for found in parameters(text):
        if found.name == "--" and found.value is None:
            break
        prefix, dot, name = found.name.partition(".")
        if dot and same_name(prefix, module) and same_name(name, parameter):
            settings.append({"path": "/proc/cmdline", "line": 1, "value": found.value, "hidden_by": None})
    return settings


def winner(settings: list[dict]) -> dict | None:
    """Return the setting that takes effect, or None."""
    return next((setting for setting in reversed(settings) if setting["hidden_by"] is None), None)


def _valid(name: str) -> bool:
    """kmod refuses names with square brackets that do not pair (``underscores`` in shared/util.c)."""
    return re.fullmatch(r"(?:[^\[\]]|\[[^\]]*\])*", name) is not None


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _rank(path: str) -> int | None:
    directory = path.rsplit("/", 1)[0]
    return DIRECTORIES.index(directory) if directory in DIRECTORIES else None
