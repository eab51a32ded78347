# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Changing one option of a modprobe.d file; every other byte stays, line ends and undecodable bytes included."""

from __future__ import annotations

import re

from ansible_collections.railyard.rdma.plugins.module_utils.netns.modprobe import (
    Line,
    lines,
    parameters,
    same_name,
    words,
)


def set_option(text: str, module: str, parameter: str, value: str, comment: str = "") -> str:
    """Return a configuration file's text in which exactly one line sets the parameter.

    The value is changed where it was set first, further settings of it are removed; a file that did not set it gets a
    line (and the comment, when the file is new) at its end. A file that gives the value already stays as it is.
    """
    places = _places(text, module, parameter)
    if not places:
        while text and not _ends(text):
            text += "\n"  # twice behind a backslash at the very end, which would swallow our line
        if comment and not text:
            text = f"# {comment}\n"
        return f"{text}options {module} {parameter}={value}\n"
    text = _without(text, places[1:])
    line, found = places[0]
    if found.value == value:
        return text
    start, end = _span(line, found)
    return f"{text[:start]}{parameter}={value}{text[end:]}"


def remove_option(text: str, module: str, parameter: str) -> str:
    """Return a configuration file's text without the parameter. A line that set nothing else goes as a whole."""
    return _without(text, _places(text, module, parameter))


def remove_from_install(text: str, number: int, parameter: str) -> str:
    """Return a configuration file's text without ``parameter=…`` in the command of the install line at ``number``."""
    for line in lines(text):
        parts = words(line.text, 3)
        if line.number != number or len(parts) < 3 or parts[0][0] != "install":
            continue
        name = re.escape(parameter).replace("_", "[-_]")
        for match in reversed(list(re.finditer(rf"[ \t]+{name}(?:=[^\s;&|]*)?(?=[\s;&|]|$)", line.text))):
            text = text[: line.offsets[match.start()]] + text[line.offsets[match.end()] :]
    return text


def _ends(text: str) -> bool:
    """Tell whether what is appended would be a line of its own."""
    return text.endswith("\n") and lines(text + "#")[-1].start == len(text)


def _places(text: str, module: str, parameter: str) -> list[tuple]:
    """Return ``(line, parameter)`` for each setting; positions of the parameter count from the line's beginning."""
    places = []
    for line in lines(text):
        parts = words(line.text, 3)
        if len(parts) < 3 or parts[0][0] != "options" or not same_name(parts[1][0], module):
            continue
        rest, offset = parts[2]
        for found in parameters(rest):
            if same_name(found.name, parameter):
                places.append((line, found._replace(start=found.start + offset, end=found.end + offset)))
    return places


def _without(text: str, places: list[tuple]) -> str:
    """Cut parameters out, from the last to the first. A line of which nothing else is left goes as a whole."""
    remaining: dict[int, int] = {}
    for line, _found in places:
        parts = words(line.text, 3)
        remaining[line.number] = len(parameters(parts[2][0]))
    for line, _found in places:
        remaining[line.number] -= 1
    gone = set()
    for line, found in reversed(places):
        if remaining[line.number] == 0:
            if line.number not in gone:
                gone.add(line.number)
                text = text[: line.start] + text[line.end :]
            continue
        start, end = _span(line, found)
        before = found.start
        while before and line.text[before - 1] in " \t":
            before -= 1
        if line.text[before : found.start] and parameters(line.text[found.end :]):
            before += 1  # one separator stays between the neighbours
            end = line.offsets[found.end] if line.text[found.end] not in " \t" else _behind(line, found.end)
        text = text[: line.offsets[before]] + text[end:]
    return text


def _behind(line: Line, position: int) -> int:
    """Return where the file goes on behind the separators at a position."""
    while position < len(line.text) and line.text[position] in " \t":
        position += 1
    return line.offsets[position]


def _span(line: Line, found) -> tuple[int, int]:
    return line.offsets[found.start], line.offsets[found.end - 1] + 1
