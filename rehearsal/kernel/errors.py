# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors and numbers as the kernel has them."""

from __future__ import annotations

import errno
import os
import re


def failure(code: int, text: str = "") -> OSError:
    return OSError(code, text or os.strerror(code))


def kernel_integer(text: str, limit: int) -> int:
    """kstrtouint with base 0 (lib/kstrtox.c): decimal, 0x hexadecimal or 0 octal, one newline; else EINVAL, ERANGE."""
    match = re.fullmatch(r"\+?(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)\n?", text)
    if match is None:
        raise failure(errno.EINVAL)
    digits = match.group(1)
    base = 16 if digits[:2] in ("0x", "0X") else 8 if digits[0] == "0" and len(digits) > 1 else 10
    number = int(digits, base)
    if number > limit:
        raise failure(errno.ERANGE)
    return number
