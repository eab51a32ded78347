# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The traffic class (ToS byte) that an mlx5 device forces on its queue pairs.

``/sys/class/infiniband/DEV/tc/P/traffic_class`` exists with DOCA-OFED/MLNX_OFED only. Its three states differ in
effect and must not be mixed up: no file (the driver has no such switch), an empty file (applications choose), and
``Global tclass=N`` (every queue pair made through the kernel gets N). ``Global tclass=0`` is a forced class 0, not an
unset one: the RDMA CNI leaves it behind when it writes back the value that it took an empty file for.
"""

from __future__ import annotations

import re

_GLOBAL = re.compile(r"global\s+tclass\s*=\s*([0-9]{1,9}|0x[0-9a-f]{1,8})", re.IGNORECASE)
_RULE_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parse_traffic_class(text: str | None) -> dict:
    """Read the content of a ``traffic_class`` file.

    :param text: the content, or None when the file does not exist.
    :returns: ``{state, value, rules}``. state is ``absent``, ``unset`` or ``set``; value is the forced class 0-255 or
        None; rules are the lines that set a class for some destinations only, as dicts of their keys (``{src_ip,
        dst_ip, tclass}``, tclass an int). A file with rules but no global line is ``unset`` with rules. Text that is
        neither gives state None and an extra ``reason``: an unknown format is not an unset class.
    """
    if text is None:
        return {"state": "absent", "value": None, "rules": []}
    value: int | None = None
    rules: list[dict] = []
    strange: list[str] = []
    for line in (part.strip() for part in text.split("\n")):
        if not line:
            continue
        match = _GLOBAL.fullmatch(line)
        if match:
            number = int(match.group(1), 16 if match.group(1)[:2].lower() == "0x" else 10)
            if number > 255:
                strange.append(line)
            else:
                value = number
            continue
        rule = _parse_rule(line)
        if rule is None:
            strange.append(line)
        else:
            rules.append(rule)
    if strange:
        reason = f"line not understood: {strange[0]!r:.80}"
        return {"state": None, "value": None, "rules": rules, "reason": reason}
    return {"state": "unset" if value is None else "set", "value": value, "rules": rules}


def dscp(traffic_class: int) -> int:
    """Return the DSCP of a traffic class: 104, 105 and 106 differ in the ECN bits only and are one class."""
    return traffic_class >> 2


def _parse_rule(line: str) -> dict | None:
    """Parse ``src_ip=A,dst_ip=B/32,tclass=41``; None unless all is ``key=value`` and one is the class."""
    rule: dict = {}
    for part in line.split(","):
        key, equals, value = part.partition("=")
        key = key.strip()
        if not equals or not _RULE_KEY.fullmatch(key):
            return None
        rule[key] = value.strip()
    text = rule.get("tclass", "")
    if not re.fullmatch(r"[0-9]{1,3}", text) or int(text) > 255:
        return None
    rule["tclass"] = int(text)
    return rule
