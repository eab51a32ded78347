# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on a machine: makes a network namespace and attaches it to networks, as Multus and a container runtime do for a
pod (github.com/containernetworking/cni, SPEC.md, section 4). Prints ``{interface: result of the chain}`` as JSON.

Arguments: namespace, last byte of the addresses, then the ``spec.config`` of each NetworkAttachmentDefinition. There is
no nv-ipam here, which takes the address from the cluster, so its place in the chain has the plugin ``static``.
"""

import json
import os
import subprocess
import sys

PLUGINS = "/usr/lib/cni"


def call(plugin, configuration, namespace, interface):
    environment = {
        "CNI_COMMAND": "ADD",
        "CNI_CONTAINERID": namespace,
        "CNI_NETNS": "/run/netns/" + namespace,
        "CNI_IFNAME": interface,
        "CNI_PATH": PLUGINS,
        "PATH": os.environ["PATH"],
    }
    done = subprocess.run(
        [PLUGINS + "/" + plugin], input=json.dumps(configuration), env=environment, stdout=subprocess.PIPE, text=True
    )
    if done.returncode != 0:
        sys.exit(f"{plugin} of {configuration['name']}: {done.stdout}")
    return json.loads(done.stdout)


def attach(network, namespace, interface, address):
    result = None
    for step in network["plugins"]:
        configuration = dict(step, name=network["name"], cniVersion=network["cniVersion"])
        if "ipam" in configuration:
            configuration["ipam"] = {"type": "static", "addresses": [{"address": address}]}
        if result is not None:
            configuration["prevResult"] = result
        result = call(step["type"], configuration, namespace, interface)
    return result


namespace, number = sys.argv[1:3]
subprocess.run(["ip", "netns", "add", namespace], check=True)
found = {}
for rail, text in enumerate(sys.argv[3:]):
    interface = f"net{rail + 1}"
    found[interface] = attach(json.loads(text), namespace, interface, f"10.224.{rail}.{number}/24")
print(json.dumps(found))
