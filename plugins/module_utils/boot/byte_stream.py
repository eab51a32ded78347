# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bytes to come, with a look ahead, and the one error that reading a boot image may end in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Callable

CHUNK = 1 << 18


class UnreadableImage(Exception):
    """An image cannot be read; the text says why.

    ``damaged`` tells two cases apart: True when the image itself is at fault (cut short, wrong checksum, no archive),
    so that no kernel could boot from it; False when only this reader cannot unpack it (a program is missing).
    """

    damaged = False


class DamagedImage(UnreadableImage):
    """The image is cut short or holds something else than it must."""

    damaged = True


class Stream:
    """Bytes from ``pull``, which returns b"" at the end.

    :param budget: the number of bytes to read at most; it keeps an endless or hostile source from running for ever.
    """

    def __init__(self, pull: Callable[[], bytes], budget: int) -> None:
        self._pull = pull
        self._buffer = b""
        self._start = 0
        self._budget = budget
        self._limit = budget

    def _available(self) -> int:
        return len(self._buffer) - self._start

    def _fill(self, size: int) -> bool:
        while self._available() < size:
            data = self._pull()
            if not data:
                return False
            self._budget -= len(data)
            if self._budget < 0:
                raise UnreadableImage(f"too large: more than {self._limit >> 20} MiB, which is read no further")
            self._buffer = self._buffer[self._start :] + data
            self._start = 0
        return True

    def peek(self, size: int) -> bytes:
        """Return the next bytes without taking them, fewer at the end."""
        self._fill(size)
        return self._buffer[self._start : self._start + size]

    def take(self, size: int, what: str) -> bytes:
        """Take exactly ``size`` bytes; raises DamagedImage, naming ``what``, when there are fewer."""
        if not self._fill(size):
            raise DamagedImage(f"cut short: it ends within {what}")
        data = self._buffer[self._start : self._start + size]
        self._start += size
        return data

    def pieces(self, size: int, what: str) -> Iterator[bytes]:
        """Take exactly ``size`` bytes as they come, without holding them all."""
        while size > 0:
            if not self._fill(1):
                raise DamagedImage(f"cut short: it ends within {what}")
            data = self._buffer[self._start : self._start + size]
            self._start += len(data)
            size -= len(data)
            yield data

    def skip(self, size: int, what: str) -> None:
        """Pass over ``size`` bytes."""
        while size > 0:
            if not self._fill(1):
                raise DamagedImage(f"cut short: it ends within {what}")
            step = min(size, self._available())
            self._start += step
            size -= step

    def skip_zeros(self) -> None:
        """Pass over zero bytes, the padding between archives."""
        while self._fill(1):
            rest = self._buffer[self._start :].lstrip(b"\0")
            self._start = len(self._buffer) - len(rest)
            if rest:
                return

    def some(self) -> bytes:
        """Take whatever comes next, b"" at the end."""
        self._fill(1)
        data = self._buffer[self._start :]
        self._buffer, self._start = b"", 0
        return data

    def give_back(self, data: bytes) -> None:
        """Put bytes in front of those to come."""
        self._buffer = data + self._buffer[self._start :]
        self._start = 0
