# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Values of inventory hosts that cluster-wide work needs."""

from __future__ import annotations


def host_values(model: dict, hostvars) -> tuple[dict, dict]:
    """({host: ansible_facts.rdma or None}, {host: ansible_host or None}) of every host of the rail model.

    hostvars: Ansible's mapping; a host that it does not have, or whose facts were not gathered, gives None.
    """
    facts, addresses = {}, {}
    for host in model["hosts"]:
        values = hostvars.get(host, {})
        gathered = values.get("ansible_facts", None)
        facts[host] = (gathered or {}).get("rdma")
        addresses[host] = values.get("ansible_host", None)
    return facts, addresses
