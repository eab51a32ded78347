# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules about the kind of network: netns mode, VFs, traffic class, MTU, address family, drains."""

from __future__ import annotations

import re

from ansible_collections.railyard.rdma.plugins.plugin_utils.rail_intent import ATTACHED, SHARED_ONLY, Intent
from ansible_collections.railyard.rdma.plugins.plugin_utils.rail_mistakes import NOT_SET, Mistake, mistake

# IPv6 needs links of at least 1280 bytes (RFC 8200, 5; Linux turns it off below); mlx5 ports take at most 9978.
MTU_RANGE = (1280, 9978)


def netns_mode(intent: Intent) -> list[Mistake]:
    """A mode in which the network can work at all."""
    if intent.netns_mode == "exclusive" and intent.network in SHARED_ONLY:
        return [
            mistake(
                "rails_netns_mode",
                "exclusive",
                f"shared or keep with rails_network {intent.network}: in exclusive mode its pods see no RDMA device; "
                "exclusive goes with sriov or host_device",
            )
        ]
    return []


def rdma_cni(intent: Intent) -> list[Mistake]:
    """The RDMA CNI where the mode is exclusive and only there."""
    if intent.network is None or not intent.usable("rails_netns_mode", "rails_rdma_cni"):
        return []
    if intent.network != "sriov":
        if intent.rdma_cni:
            return [mistake("rails_rdma_cni", True, f"false with rails_network {intent.network}: it moves VFs only")]
        return []
    if intent.rdma_cni is None:
        return [
            mistake(
                "rails_rdma_cni",
                NOT_SET,
                "true or false with rails_netns_mode keep: true when nodes are exclusive, false when they are shared",
            )
        ]
    if intent.rdma_cni and intent.netns_mode == "shared":
        return [mistake("rails_rdma_cni", True, "false in shared mode: there the plugin fails and pods never start")]
    if not intent.rdma_cni and intent.netns_mode == "exclusive":
        return [mistake("rails_rdma_cni", False, "true in the exclusive mode: else pods get no RDMA device")]
    return []


def vfs(intent: Intent) -> list[Mistake]:
    """VFs within the limit, and enough for the jobs that share a node."""
    found = []
    if not intent.usable("rails_vfs_per_pf", "rails_network"):
        return found
    wanted, jobs = intent.given["rails_vfs_per_pf"], intent.given["rails_jobs_per_node"]
    if intent.network == "sriov":
        if not 1 <= wanted <= intent.vf_limit:
            found.append(mistake("rails_vfs_per_pf", wanted, f"1 to {intent.vf_limit}, {intent.vf_limit_reason}"))
    elif wanted != 1:
        found.append(mistake("rails_vfs_per_pf", wanted, f"1 with rails_network {intent.network}: it makes no VFs"))
    if intent.network != "sriov" and intent.given["rails_externally_managed"] is True:
        allowed = f"false with rails_network {intent.network}: it makes no VFs"
        found.append(mistake("rails_externally_managed", True, allowed))
    if jobs is None:
        return found
    if jobs < 1:
        found.append(mistake("rails_jobs_per_node", jobs, "1 or more"))
    elif intent.network == "sriov" and jobs > wanted >= 1:
        allowed = f"at most rails_vfs_per_pf, here {wanted}: every job needs a VF on every rail"
        found.append(mistake("rails_jobs_per_node", jobs, allowed))
    elif intent.network != "sriov" and jobs > 1:
        allowed = f"1 with rails_network {intent.network}: the device plugin gives each PF to one pod at a time"
        found.append(mistake("rails_jobs_per_node", jobs, allowed))
    return found


def traffic_class(intent: Intent) -> list[Mistake]:
    """One byte; known where the RDMA CNI writes it, because the plugin writes 0 when it is left out."""
    if not intent.usable("rails_traffic_class"):
        return []
    if intent.traffic_class is None:
        if intent.rdma_cni and not intent.shape_fault:
            allowed = "0 to 255: the RDMA CNI would force class 0 on every VF, and the shape has no value"
            return [mistake("rails_traffic_class", NOT_SET, allowed)]
        return []
    if not 0 <= intent.traffic_class <= 255:
        return [mistake("rails_traffic_class", intent.traffic_class, "0 to 255 (DSCP x 4 + ECN)")]
    return []


def mtu(intent: Intent) -> list[Mistake]:
    """Within what IPv6 needs and the NICs take; known, because VFs and children must not differ from their rail."""
    if not intent.usable("rails_mtu", "rails_shape") or intent.shape_fault:
        return []
    low, high = MTU_RANGE
    if intent.mtu is None:
        if intent.network in ("sriov", "macvlan"):
            return [mistake("rails_mtu", NOT_SET, f"{low} to {high}: the catalogue has no value")]
        return []
    return [] if low <= intent.mtu <= high else [mistake("rails_mtu", intent.mtu, f"{low} to {high} bytes")]


def ip_family(intent: Intent) -> list[Mistake]:
    """Known where pods get addresses."""
    if intent.ip_family is None and intent.network_name and intent.usable("rails_ip_family", "rails_shape"):
        if intent.shape_fault:
            return []
        return [mistake("rails_ip_family", NOT_SET, "ipv4 or ipv6_slaac: the catalogue has no value")]
    return []


def ipv6_tuning(intent: Intent) -> list[Mistake]:
    """Settings of IPv6 only where rails have it and pods get interfaces of their own."""
    if intent.given["rails_ipv6_tuning"] is not True:
        return []
    if intent.ip_family == "ipv4":
        return [mistake("rails_ipv6_tuning", True, "false with rails_ip_family ipv4")]
    if intent.network is not None and intent.network not in ATTACHED:
        return [mistake("rails_ipv6_tuning", True, f"false with rails_network {intent.network}: it has no plugins")]
    return []


def max_unavailable(intent: Intent) -> list[Mistake]:
    """A number from 1 or a percentage from 1 to 100, as SriovNetworkPoolConfig takes it."""
    return (
        []
        if max_unavailable_value(intent) is not None
        else [
            mistake(
                "rails_max_unavailable", intent.given["rails_max_unavailable"], 'a number from 1, or "1%" to "100%"'
            )
        ]
    )


def max_unavailable_value(intent: Intent) -> int | str | None:
    """Return C(rails_max_unavailable) as the object takes it, or nothing when it is a mistake."""
    value = intent.given["rails_max_unavailable"]
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value if value >= 1 else None
    percent = re.fullmatch(r"([0-9]{1,3})%", value) if isinstance(value, str) else None
    return value if percent and 1 <= int(percent[1]) <= 100 else None


RULES = (netns_mode, rdma_cni, vfs, traffic_class, mtu, ip_family, ipv6_tuning, max_unavailable)
