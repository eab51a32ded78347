# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reading TOML, the configuration of containerd and CRI-O.

Python has tomllib from 3.11 on only, and it takes minutes for tables nested a hundred thousand deep. What is read here
is a part of TOML 1.0: all that those files use. Everything else is refused, so that a value is either right or unknown,
on every Python.
"""

from __future__ import annotations

import re

_DEPTH = 20
_SPACE = re.compile(r"[ \t]*")
_BLANK = re.compile(r"[ \t\r\n]*")
_COMMENT = re.compile(r"#[^\n]*")
_LINE_END = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\r?\n|\Z)")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_LITERAL = re.compile(r"'([^'\n\x00-\x08\x0a-\x1f\x7f]*)'")
# A string is read in pieces: one pattern for the whole of it would need memory, or time, for every letter.
_PIECE = re.compile(r'[^"\\\x00-\x08\x0a-\x1f\x7f]*')
_WORD = re.compile(r"[A-Za-z0-9+.:_-]+")
_INTEGER = re.compile(r"[+-]?(?:0|[1-9](?:_?[0-9])*)")
_ESCAPE = re.compile(r"\\(?:([btnfr\"\\])|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8}))")
_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "\\": "\\"}


class NotUnderstood(ValueError):
    """The text is no TOML, or is TOML that this reader does not know; the message names the line."""


class Unread(str):
    """A value that is there but of a kind that is not read (a date, a floating-point number): its text."""


def parse(text: str) -> dict:
    """Return the content of a TOML text: tables, arrays of tables, strings on one line, whole numbers, booleans, arrays
    and inline tables; dates and floating-point numbers as :class:`Unread`. Raises NotUnderstood for the rest, for
    example strings over several lines."""
    return _Reader(text).document()


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0

    def document(self) -> dict:
        root: dict = {}
        table = root
        headers: set[tuple[str, ...]] = set()
        while True:
            self.skip()
            if self.place >= len(self.text):
                return root
            if self.take("[["):
                table = self.append(root, self.key("]]"))
            elif self.take("["):
                path = self.key("]")
                table = self.table(root, path)
                # Below an array of tables the same header comes again, once for each element.
                if path in headers and not self.in_array(root, path):
                    raise self.error(f"table {'.'.join(path)} a second time")
                headers.add(path)
            else:
                path = self.key("=")
                self.store(table, path, self.value(0))
            if not self.match(_LINE_END):
                raise self.error("more on the line than was understood")

    def key(self, end: str) -> tuple[str, ...]:
        """Read ``a.b."c.d"`` and what must follow it."""
        parts = []
        while True:
            self.match(_SPACE)
            quoted = self.string()
            if quoted is not None:
                parts.append(quoted)
            else:
                bare = self.match(_BARE)
                if not bare:
                    raise self.error("a key was expected")
                parts.append(bare.group())
            self.match(_SPACE)
            if self.take(end):
                self.match(_SPACE)
                return tuple(parts)
            if not self.take("."):
                raise self.error(f"{end} was expected")
            if len(parts) > _DEPTH:
                raise self.error("nested too deeply")

    def value(self, depth: int):
        if depth > _DEPTH:
            raise self.error("nested too deeply")
        if self.text.startswith(("'''", '"""'), self.place):
            raise self.error("a string over several lines")
        quoted = self.string()
        if quoted is not None:
            return quoted
        if self.take("["):
            return self.array(depth)
        if self.take("{"):
            return self.inline_table(depth)
        word = self.match(_WORD)
        if not word:
            raise self.error("a value was expected")
        if word.group() in ("true", "false"):
            return word.group() == "true"
        if _INTEGER.fullmatch(word.group()) and len(word.group()) < 40:
            return int(word.group().replace("_", ""))
        return Unread(word.group())

    def array(self, depth: int) -> list:
        values = []
        while True:
            self.skip()
            if self.take("]"):
                return values
            values.append(self.value(depth + 1))
            self.skip()
            if not self.take(","):
                if self.take("]"):
                    return values
                raise self.error("an array has no end")

    def inline_table(self, depth: int) -> dict:
        table: dict = {}
        self.match(_SPACE)
        if self.take("}"):
            return table
        while True:
            path = self.key("=")
            self.store(table, path, self.value(depth + 1))
            self.match(_SPACE)
            if self.take("}"):
                return table
            if not self.take(","):
                raise self.error("an inline table has no end")

    def table(self, root: dict, path: tuple[str, ...]) -> dict:
        for part in path:
            inner = root.setdefault(part, {})
            inner = inner[-1] if isinstance(inner, list) and inner else inner
            if not isinstance(inner, dict):
                raise self.error(f"{part} is no table")
            root = inner
        return root

    def append(self, root: dict, path: tuple[str, ...]) -> dict:
        tables = self.table(root, path[:-1]).setdefault(path[-1], [])
        if not isinstance(tables, list) or any(not isinstance(table, dict) for table in tables):
            raise self.error(f"{path[-1]} is no array of tables")
        tables.append({})
        return tables[-1]

    @staticmethod
    def in_array(root, path: tuple[str, ...]) -> bool:
        for part in path[:-1]:
            root = root[part]
            if isinstance(root, list):
                return True
        return False

    def store(self, table: dict, path: tuple[str, ...], value) -> None:
        table = self.table(table, path[:-1])
        if path[-1] in table:
            raise self.error(f"{'.'.join(path)} a second time")
        table[path[-1]] = value

    def string(self) -> str | None:
        """Read a string on one line, with its escapes resolved; None when none begins here."""
        literal = self.match(_LITERAL)
        if literal:
            return literal.group(1)
        if not self.take('"'):
            return None
        pieces = []
        while True:
            pieces.append(self.match(_PIECE).group())
            if self.take('"'):
                return "".join(pieces)
            escape = self.match(_ESCAPE)
            if not escape:
                raise self.error("a string has no end, or an escape that is not known")
            letter, short, long = escape.groups()
            code = int(short or long or "0", 16)
            if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
                raise self.error(f"escape {escape.group()}")
            pieces.append(_ESCAPES[letter] if letter else chr(code))

    def skip(self) -> None:
        """Go on to the next thing that is neither space nor comment."""
        self.match(_BLANK)
        while self.match(_COMMENT):
            self.match(_BLANK)

    def match(self, pattern: re.Pattern):
        match = pattern.match(self.text, self.place)
        if match:
            self.place = match.end()
        return match

    def take(self, word: str) -> bool:
        found = self.text.startswith(word, self.place)
        self.place += len(word) if found else 0
        return found

    def error(self, what: str) -> NotUnderstood:
        line = self.text.count("\n", 0, self.place) + 1
        return NotUnderstood(f"line {line}: {what}")
