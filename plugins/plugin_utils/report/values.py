# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Values from outside as plain data and safe text: facts, results of a benchmark and earlier reports may hold anything."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Mapping


class ReportError(ValueError):
    """A report cannot be read or written. The message says what, where, what was found and what helps."""


def plain(value):
    """Return a value as data that JSON can hold: numbers that are not finite become None, keys become text, and what is
    no data at all becomes its text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Mapping):
        return {text(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return text(value)


def text(value) -> str:
    """Return a value as text that UTF-8 can hold; half a surrogate pair becomes its escape."""
    return str(str(value).encode("utf-8", "backslashreplace").decode("utf-8"))


def number(value) -> float | None:
    """Return a finite number, else None. A truth value is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    # An integer may be too large for a float.
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def whole(value) -> int | None:
    """Return an integer, else None. A truth value is none."""
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None


def words(value) -> str | None:
    """Return text that is not empty, else None."""
    return text(value) if isinstance(value, str) and value else None


def mapping(value) -> dict:
    return value if isinstance(value, dict) else {}


def rows(value) -> list[dict]:
    """Return the mappings of a list; what is no list has none."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def visible(value) -> str:
    """Return a text as a person must see it: characters that control a terminal, a parser or the direction of writing
    become escapes, so that a name cannot pass for another one. Line breaks stay."""
    return "".join(c if c == "\n" or not _hidden(c) else _escape(c) for c in text(value))


def _hidden(character: str) -> bool:
    # Cc: control, Cf: format (marks of direction, zero width), Co and Cn: nothing to show, Zl and Zp: other line breaks.
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"


def in_short(names: Iterable[str], most: int = 8) -> str:
    """Return names as "a, b and 3 more"."""
    listed = list(names)
    more = f" and {len(listed) - most:,} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more


def counted(amount: int, one: str, many: str | None = None) -> str:
    """Return "1 node" or "2,000 nodes"."""
    return f"{amount:,} {one if amount == 1 else many or one + 's'}"
