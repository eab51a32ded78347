# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Splits a GRUB script into commands; the grammar is that of grub-core/script (parser.y, yylex.l)."""

from __future__ import annotations

import re

MAXIMUM_DEPTH = 30  # of nested blocks

_WORD_END = " \t\r\n;{}|&"
_VARIABLE = re.compile(r"\{([A-Za-z0-9_?#@*]+)\}|([A-Za-z_]\w*|[0-9?#@*])")


class ScriptError(ValueError):
    """The text is no GRUB script, or too large a one."""


class Parser:
    """Splits a script into nodes: ``("command", words, block, line)``, ``("if", [(condition, body)], otherwise)``,
    ``("loop", body)``, ``("function", name, body)``. A word is a list of ``(kind, text)`` with kind ``text``,
    ``variable`` (in quotes) or ``split``."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.line = 1
        self.depth = 0

    def parse(self) -> list:
        return self._list(())[0]

    def _list(self, ends: tuple) -> tuple[list, str]:
        """Parse commands up to one of the words in ``ends``; returns them and that word."""
        self.depth += 1
        if self.depth > MAXIMUM_DEPTH:
            raise ScriptError(f"line {self.line}: nests too deeply")
        nodes: list = []
        while True:
            token = self._next_token()
            if token is None:
                if ends:
                    raise ScriptError(f"line {self.line}: {' or '.join(ends)} is missing")
                break
            if isinstance(token, str):
                if token in ends:
                    self.depth -= 1
                    return nodes, token
                if token in "{}":
                    raise ScriptError(f"line {self.line}: {token} in a place where it cannot be")
                continue
            word = plain(token)
            if word in ends:
                self.depth -= 1
                return nodes, word or ""
            nodes.append(self._statement(token, word))
        self.depth -= 1
        return nodes, ""

    def _statement(self, token: list, word: str | None) -> tuple:
        line = self.line
        if word == "if":
            arms = []
            end = "elif"
            otherwise: list = []
            while end == "elif":
                condition, _then = self._list(("then",))
                body, end = self._list(("elif", "else", "fi"))
                arms.append((condition, body))
            if end == "else":
                otherwise, _fi = self._list(("fi",))
            return ("if", arms, otherwise)
        if word in ("while", "until", "for"):
            self._list(("do",))
            return ("loop", self._list(("done",))[0])
        if word == "function":
            name = self._next_token()
            opening = self._next_token()
            while opening in ("\n", ";"):
                opening = self._next_token()
            if not isinstance(name, list) or opening != "{":
                raise ScriptError(f"line {line}: a function without a body")
            return ("function", plain(name), self._list(("}",))[0])
        words = [token]
        block = None
        while True:
            here, at = self.position, self.line
            following = self._next_token()
            if following == "{":
                block = self._list(("}",))[0]
                break
            if not isinstance(following, list):
                if following == "}":
                    self.position, self.line = here, at
                break
            words.append(following)
        return ("command", words, block, line)

    def _next_token(self) -> list | str | None:
        """Return a word, one of the characters newline ``;`` ``{`` ``}`` ``|`` ``&``, or None at the end."""
        text = self.text
        while self.position < len(text):
            character = text[self.position]
            if character in " \t\r":
                self.position += 1
            elif text.startswith("\\\n", self.position):
                self.position += 2
                self.line += 1
            elif character == "#":
                end = text.find("\n", self.position)
                self.position = len(text) if end < 0 else end
            elif character in _WORD_END:
                self.position += 1
                self.line += character == "\n"
                return character
            else:
                return self._word()
        return None

    def _word(self) -> list:
        text = self.text
        parts: list[tuple[str, str]] = []
        quote = ""
        while self.position < len(text):
            character = text[self.position]
            if not quote and character in _WORD_END:
                break
            self.position += 1
            self.line += character == "\n"
            if character == "\\" and quote != "'" and self.position < len(text):
                following = text[self.position]
                self.position += 1
                self.line += following == "\n"
                if following == "\n":
                    continue
                if quote and following not in '$"\\':
                    parts.append(("text", "\\"))
                parts.append(("text", following))
            elif character == quote:
                quote = ""
            elif character in "'\"" and not quote:
                quote = character
                parts.append(("text", ""))
            elif character == "$" and quote != "'":
                match = _VARIABLE.match(text, self.position)
                if match is None:
                    parts.append(("text", "$"))
                    continue
                self.position = match.end()
                parts.append(("variable" if quote else "split", match[1] or match[2]))
            else:
                parts.append(("text", character))
        if quote:
            raise ScriptError(f"line {self.line}: a quote is not closed")
        return _joined(parts)


def _joined(parts: list[tuple[str, str]]) -> list[tuple[str, str]]:
    joined: list[tuple[str, str]] = []
    texts: list[str] = []
    for kind, text in [*parts, ("end", "")]:
        if kind == "text":
            texts.append(text)
            continue
        if texts:
            joined.append(("text", "".join(texts)))
            texts = []
        joined.append((kind, text))
    return joined[:-1]


def plain(word: list) -> str | None:
    return word[0][1] if len(word) == 1 and word[0][0] == "text" else None
