# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rail_model
short_description: Check the intent of all hosts and derive the rail model
version_added: 0.1.0
description:
  - Reads every variable whose name starts with C(rails_), and C(rails) itself, of the given hosts from the inventory,
    checks all of them, and returns what every later step needs to know about the rails.
  - All mistakes are reported in one message, each with the variable, what it got, what is allowed, and the hosts when
    they differ. A template that fails and an unknown variable, such as a typo, are mistakes too.
  - The variables are described in the role P(railyard.rdma.rails#role).
options:
  hosts:
    description:
      - The hosts whose intent is read. The hosts of the group V(gpu_nodes) when not set.
    type: list
    elements: str
requirements:
  - netaddr >= 1.0 on the controller
attributes:
  check_mode:
    description: Can run in check mode and return what it would return otherwise; it changes nothing.
    support: full
  diff_mode:
    description: Returns details on what has changed when run in diff mode.
    support: none
    details: Nothing is changed.
notes:
  - Runs on the controller alone. No host is contacted.
author:
  - Railyard contributors (@railyard)
seealso:
  - plugin: railyard.rdma.rails_layout
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Derive the rail model of all GPU nodes
  railyard.rdma.rail_model:
  register: result

- name: Show what each node of the first layout must offer
  ansible.builtin.debug:
    var: result.rail_model.layouts[0].resources

- name: Derive the rail model of one rack
  railyard.rdma.rail_model:
    hosts: "{{ groups['rack7'] }}"
"""

RETURN = r"""
rail_model:
  description: The rail model.
  returned: success
  type: dict
  contains:
    layouts:
      description: One entry for each distinct intent, usually one.
      type: list
      elements: dict
      contains:
        name:
          description: Name of the layout, unique in the model.
          type: str
          sample: bm-gpu-b4-8
        shape:
          description: Name of the shape in the catalogue, or nothing when the site lists its rails itself.
          type: str
          sample: BM.GPU.B4.8
        hosts:
          description: The hosts with this intent.
          type: list
          elements: str
          sample: [gpu-1, gpu-2]
        network:
          description: V(sriov), V(ipvlan), V(macvlan), V(host_device) or V(host_network).
          type: str
          sample: sriov
        netns_mode:
          description: The RDMA namespace mode that the nodes must have; V(keep) leaves them as they are.
          type: str
          sample: shared
        rdma_cni:
          description: Whether the RDMA CNI plugin stands in the chain of the networks.
          type: bool
          sample: false
        vfs_per_pf:
          description: VFs on each rail, 0 for networks without VFs.
          type: int
          sample: 1
        mtu:
          description: MTU of the rails in bytes, or nothing when it is not known.
          type: int
          sample: 4220
        traffic_class:
          description: Traffic class of RDMA packets, or nothing when it is not known.
          type: int
          sample: 41
        ip_family:
          description: V(ipv4) or V(ipv6_slaac), or nothing when it is not known.
          type: str
          sample: ipv4
        resource_scope:
          description: V(rail) for one resource a rail, V(node) for one in all.
          type: str
          sample: node
        externally_managed:
          description: Whether something else than the SR-IOV operator makes the VFs.
          type: bool
          sample: false
        max_unavailable:
          description: How many nodes may be drained at once, a number or a percentage.
          type: raw
          sample: 1
        node_selector:
          description: Labels of the nodes.
          type: dict
          sample: {node.kubernetes.io/instance-type: BM.GPU.B4.8}
        namespaces:
          description: Namespace of the operator and of the network attachments.
          type: dict
          sample: {operator: nvidia-network-operator, networks: default}
        vendor:
          description: PCI vendor id of the rails' NICs.
          type: str
          sample: "15b3"
        front_end_nics:
          description: PCI addresses of NICs that must never be a rail.
          type: list
          elements: str
          sample: ["0000:6b:00.0"]
        rails:
          description: The rails in rail order.
          type: list
          elements: dict
          sample:
            - rail: 0
              name: "0"
              pci: "0000:0c:00.0"
              netdev: enp12s0f0
              gpu_pci: "0000:0f:00.0"
              resource: nvidia.com/rdma-vf
              network: rdma-vf
        resources:
          description: What each node must offer as allocatable.
          type: list
          elements: dict
          sample: [{name: rdma-vf, full_name: nvidia.com/rdma-vf, count: 16, rails: [0, 1]}]
        pools:
          description: The address pools as in the intent, defaults filled in.
          type: list
          elements: dict
          sample:
            - name: sriov-pool
              kind: IPPool
              subnet: 192.168.0.0/16
              per_node_block_size: 100
              gateway: 192.168.0.1
        pod:
          description: What a pod must carry that wants an interface, or a PF, on every rail.
          type: dict
          sample:
            namespace: default
            annotations: {k8s.v1.cni.cncf.io/networks: "rdma-vf,rdma-vf"}
            resources: {nvidia.com/rdma-vf: "2"}
            host_network: false
    hosts:
      description: Host to the name of its layout.
      type: dict
      sample: {gpu-1: bm-gpu-b4-8, gpu-2: bm-gpu-b4-8}
    operator:
      description: Release and namespace of the NVIDIA Network Operator, and the domain of the resources.
      type: dict
      sample: {version: 26.7.1, namespace: nvidia-network-operator, resource_prefix: nvidia.com}
    documents:
      description: The data behind every object of the cluster, in order of application.
      type: list
      elements: dict
      contains:
        file:
          description: Name of the file in a rendered bundle.
          type: str
          sample: 20-ippool.yml
        phase:
          description: V(operator), V(pools), V(policies) or V(networks).
          type: str
          sample: pools
        kind:
          description: Kind of the objects.
          type: str
          sample: IPPool
        template:
          description: Template of the role P(railyard.rdma.rail_networks#role) that lays the data out.
          type: str
          sample: ippool.yml.j2
        objects:
          description: One entry an object, as the template wants it.
          type: list
          elements: dict
    findings_tolerated:
      description: Ids of findings that must not fail a play.
      type: list
      elements: str
"""
