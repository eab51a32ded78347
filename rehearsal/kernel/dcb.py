# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The QoS settings of a port, as the cloud's agent leaves them. Pure.

trust and the DSCP map are files of DOCA-OFED; PFC is DCB (net/dcb/dcbnl.c), which a veth does not have, so the node's
``mlnx_qos`` asks for it over the control socket.
"""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass, field

from .errors import failure, kernel_integer

TRUST = ("pcp", "dscp")
PRIORITIES = 8
# Names in the shape catalogue: NAME_dscp is sent with priority NAME_prio.
_CLASSES = ("ip", "rdma", "gpu", "cnp")


@dataclass
class Dcb:
    """trust: pcp (the driver's default) or dscp; dscp_to_priority: 64 priorities, dscp / 8 until set
    (mlx5e_dcbnl_init_app); pfc: 8 switches; os_controlled: who owns the settings.
    """

    trust: str = "pcp"
    dscp_to_priority: list[int] = field(default_factory=lambda: [dscp >> 3 for dscp in range(64)])
    pfc: list[int] = field(default_factory=lambda: [0] * PRIORITIES)
    cable_length: int = 7
    os_controlled: bool = True

    @classmethod
    def of_shape(cls, qos: dict) -> Dcb:
        """From the ``qos`` of a shape; the driver's defaults where it is silent."""
        dcb = cls(trust=qos.get("trust") or "pcp", pfc=list(qos.get("pfc") or [0] * PRIORITIES))
        for name in _CLASSES:
            if qos.get(f"{name}_dscp") is not None and qos.get(f"{name}_prio") is not None:
                dcb.dscp_to_priority[qos[f"{name}_dscp"]] = qos[f"{name}_prio"]
        return dcb

    def set_trust(self, text: str) -> None:
        if text.strip() not in TRUST:
            raise failure(errno.EINVAL)
        self.trust = text.strip()

    def show_map(self) -> str:
        """qos/dscp2prio: a line of words, then a row for each DSCP."""
        return "dscp\tprio:\n" + "".join(f"{dscp}\t{prio}\n" for dscp, prio in enumerate(self.dscp_to_priority))

    def set_map(self, text: str) -> None:
        """``DSCP PRIORITY``."""
        match = re.fullmatch(r"\s*([0-9]+)\s+([0-9]+)\s*", text)
        if match is None or int(match[1]) > 63 or int(match[2]) >= PRIORITIES:
            raise failure(errno.EINVAL)
        self.dscp_to_priority[int(match[1])] = int(match[2])

    def state(self) -> dict:
        """What DCB netlink tells, as JSON data."""
        return {"pfc": list(self.pfc), "cable_length": self.cable_length, "os_controlled": self.os_controlled}

    def set_pfc(self, switches: object) -> None:
        if not isinstance(switches, list) or len(switches) != PRIORITIES:
            raise failure(errno.EINVAL)
        self.pfc = [kernel_integer(str(switch), 1) for switch in switches]
