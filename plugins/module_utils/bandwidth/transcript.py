# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read what the script says, line by line or as a whole. Pure; see :mod:`script` for the records."""

from __future__ import annotations

MAX_LINE, MAX_LINES = 4096, 200_000


class TranscriptError(ValueError):
    """The output is not the script's; the text says what is wrong."""


class Transcript:
    """The records so far. ``feed`` takes bytes as they come; what is said of a rail is in ``rails``.

    ``rails`` is ``{rail: {ready, taken, code, ended, text, before, after}}``: ended tells whether a result came; code is
    None when the test had to be ended.
    """

    def __init__(self) -> None:
        self.role: str | None = None
        self.rails: dict[int, dict] = {}
        self.stopped: str | None = None
        self.trouble: str | None = None
        self.ended = False
        self._rest = b""
        self._into: tuple[dict, str] | None = None
        self._lines = 0

    def feed(self, data: bytes) -> None:
        """Take in more output. TranscriptError when it cannot be the script's."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE:
            raise TranscriptError(f"a line of more than {MAX_LINE} bytes without an end")
        for line in lines:
            self._take(line[:MAX_LINE].decode("utf-8", "replace"))

    def rail(self, number: int) -> dict:
        """What is known of a rail."""
        empty = {"ready": False, "taken": None, "code": None, "ended": False, "text": "", "before": {}, "after": {}}
        return self.rails.setdefault(number, empty)

    def settled(self, rails) -> bool:
        """Whether each of these rails is ready, or will never be."""
        known = [self.rails.get(rail) or {} for rail in rails]
        return self.ended or all(one.get("ready") or one.get("taken") is not None or one.get("ended") for one in known)

    def _take(self, line: str) -> None:
        self._lines += 1
        if self._lines > MAX_LINES:
            raise TranscriptError(f"more than {MAX_LINES} lines")
        if line.startswith("|"):
            if self._into is None:
                raise TranscriptError(f"content before any record: {line[:80]!r}")
            self._content(line[1:])
        elif line.startswith("@ "):
            words = line[2:].split(" ")
            self._into = None
            try:
                self._record(words[0], words[1:])
            except (ValueError, IndexError):
                raise TranscriptError(f"not a record: {line[:80]!r}") from None
        elif line.strip():
            raise TranscriptError(f"not a record: {line[:80]!r}")

    def _content(self, text: str) -> None:
        one, part = self._into
        if part == "text":
            one["text"] += text + "\n"
            return
        name, _space, value = text.rpartition(" ")
        if name and value.isascii() and value.isdigit() and len(value) <= 20:
            one[part][name] = int(value)

    def _record(self, kind: str, words: list[str]) -> None:
        if kind == "hello":
            self.role = words[0]
        elif kind in ("before", "after"):
            self._into = (self.rail(int(words[0])), kind)
        elif kind == "ready":
            self.rail(int(words[0]))["ready"] = True
        elif kind == "taken":
            self.rail(int(words[0]))["taken"] = int(words[1])
        elif kind == "result":
            one = self.rail(int(words[0]))
            one.update(code=None if words[1] == "-" else int(words[1]), ended=True, text="")
            self._into = (one, "text")
        elif kind == "stopped":
            self.stopped = words[0]
        elif kind == "trouble":
            self.trouble = " ".join(words)
        elif kind == "end":
            self.ended = True
        else:
            raise ValueError(kind)


def read(output: bytes) -> Transcript:
    """The records of a whole output. TranscriptError when it is not the script's."""
    transcript = Transcript()
    transcript.feed(output if output.endswith(b"\n") else output + b"\n")
    return transcript
