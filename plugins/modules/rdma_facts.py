#!/usr/bin/python
# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rdma_facts
short_description: Read the RDMA state of a node
version_added: 0.1.0
description:
  - Reads RDMA devices, GID tables, network devices with their VFs, the RDMA network namespace mode and everything that
    decides it, boot images, and the driver, in one pass over sysfs, procfs, modprobe.d, C(/boot) and netlink. No
    command is run, with one exception - where neither the driver's files nor the kernel tell the QoS settings of an
    mlx5 port, C(mlnx_qos) is asked, if it is installed.
  - Needs root for the boot images; as another user they are unknown, and so is the mode after the next boot.
  - What cannot be read is V(null) with a reason beside it, under C(reason) or, by the name of the value, under
    C(reasons).
  - GID tables and netdevs are those of the network namespace in which the module runs.
author:
  - Railyard contributors (@railyard)
extends_documentation_fragment:
  - railyard.rdma.attributes.facts
  - railyard.rdma.root
options:
  rails:
    description:
      - The intended rails. For each of them the fact C(rails) tells what was found on the node.
      - A rail is looked up by its PCI address; by its netdev only when it has no PCI address, since names depend on
        the operating system.
    type: list
    elements: dict
    default: []
    suboptions:
      rail:
        description: Number of the rail.
        type: int
        required: true
      name:
        description: Name of the rail.
        type: str
      pci:
        description: PCI address of the physical function, in full and in lower case (V(0000:0c:00.0)).
        type: str
      netdev:
        description: Name of the network device.
        type: str
  zero_rows:
    description:
      - Also lists the rows of GID tables that hold no GID. Tables have 128 or 256 rows and most of them are empty;
        they are counted in C(gid_table) in any case.
    type: bool
    default: false
  boot_images:
    description:
      - Reads the boot images to tell whether they agree with modprobe.d. This takes most of the module's time.
      - With V(false), C(boot_images), C(next_boot) and C(reboot_required) are unknown.
    type: bool
    default: true
  fact:
    description:
      - Name of the fact. With another name than V(rdma) the facts of an earlier look stay what they are.
    type: str
    default: rdma
    version_added: 0.2.0
  counters:
    description:
      - Adds C(counters) to ports (verbs and driver counters) and to netdevs (statistics by priority). Take two readings
        to see what happened in between.
    type: bool
    default: false
    version_added: 0.2.0
seealso:
  - module: railyard.rdma.ib_core_netns
  - module: railyard.rdma.boot_image
  - module: railyard.rdma.pod_rdma_facts
"""

EXAMPLES = r"""
- name: Read the RDMA state of the node
  railyard.rdma.rdma_facts:

- name: Show the GID index of rail 0
  railyard.rdma.rdma_facts:
    rails:
      - rail: 0
        pci: "0000:0c:00.0"
    boot_images: false

- name: Look at the disk of a node that does not boot
  railyard.rdma.rdma_facts:
    root: /mnt
"""

RETURN = r"""
ansible_facts:
  description: The facts, under C(rdma).
  returned: always
  type: dict
  contains:
    rdma:
      description: RDMA state of the node.
      returned: always
      type: dict
      contains:
        schema:
          description: Version of this structure.
          returned: always
          type: int
          sample: 1
        gathered_at:
          description: When the facts were read, UTC.
          returned: always
          type: str
          sample: "2026-11-29T18:00:00Z"
        reasons:
          description:
            - Why a part is V(null) or empty, by its name. C(devices) also says that in exclusive mode the devices of other
              network namespaces are not listed.
          returned: always
          type: dict
          sample: {devices: ib_core is not loaded}
        kernel:
          description: Release of the running kernel, V(null) for another root.
          returned: always
          type: str
          sample: 6.8.0-100-generic
        boot_id:
          description: Identity of this boot, V(null) for another root.
          returned: always
          type: str
          sample: 28d3acf0-6be4-495e-904c-e4e4110be598
        netns_mode:
          description:
            - The RDMA network namespace mode, V(shared), V(exclusive) or V(null) each; C(live) in effect,
              C(configured) by modprobe.d (file C(configured_by)), C(kernel_line), C(boot_image) by the images' copies
              of modprobe.d, C(next_boot) after a reboot. C(next_kernel_line) is what the kernel line of the entry that
              boots next (kernel C(default_kernel)) sets by the configuration of C(boot_loader); C(next_boot_line) tells
              whether C(next_boot) follows from it (V(boot_loader)) or from the running line (V(proc_cmdline)).
            - C(owners) lists every place that sets it in order of application, C(reboot_required) tells whether a
              reboot would change C(live), C(reasons) why a value is V(null). C(namespaces) are the other network
              namespaces there are now; while one exists the kernel refuses to switch the mode.
          returned: always
          type: dict
          sample:
            live: exclusive
            loaded: true
            configured: shared
            configured_by: /etc/modprobe.d/ib_core.conf
            kernel_line: null
            next_kernel_line: null
            next_boot_line: boot_loader
            boot_loader: grub
            default_kernel: 6.8.0-100-generic
            boot_image: shared
            next_boot: shared
            reboot_required: true
            owners:
              - owner: railyard
                path: /etc/modprobe.d/ib_core.conf
                line: 1
                mode: shared
                wins: true
                hidden_by: null
                statement: options
            namespaces: {count: 1, names: [/run/netns/cni-1]}
            reasons:
              kernel_line: the kernel line does not set it
              next_kernel_line: the kernel line of the entry that boots next does not set it
        reboot_note:
          description:
            - The note of a reboot for a mode (M(railyard.rdma.reboot_note)), V(null) without one. C(boot_id) is that of the
              boot that was ended, C(reason) says why a note cannot be understood.
          returned: always
          type: dict
          sample: {mode: shared, boot_id: 28d3acf0-6be4-495e-904c-e4e4110be598, at: "2026-11-29T18:00:00Z", reason: null}
          version_added: 0.2.0
        boot_images:
          description: One entry for each installed kernel.
          returned: always
          type: list
          elements: dict
          sample:
            - kernel: 6.8.0-100-generic
              path: /boot/initrd.img-6.8.0-100-generic
              builder: initramfs-tools
              mode: shared
              holds_option: true
              holds_ib_core: true
              stale: false
              default: true
              size: 73400320
              modules: 912
              formats: [cpio, gzip]
              whole: true
              reason: null
        driver:
          description:
            - C(flavour) of the driver stack is V(doca_ofed), V(inbox), V(none) or V(unknown); C(gid_netns_check) tells
              whether it hides GIDs of other namespaces; C(out_of_tree) which of its core modules were built outside the
              kernel.
            - C(modules) are V(loaded), V(builtin), V(available), V(absent) or V(null). C(character_devices) are those in
              C(/dev/infiniband). C(stale_cdi) lists CDI files that name devices which are not there.
          returned: always
          type: dict
          sample:
            flavour: doca_ofed
            version: 24.10-1.1.4
            srcversion: 533BB7E5866E52F63B9ACCB
            out_of_tree: {mlx5_core: true, ib_core: true}
            gid_netns_check: true
            lockdown: none
            modules: {ib_core: loaded, ib_uverbs: loaded, rdma_cm: loaded, rdma_ucm: loaded, rdma_rxe: available}
            character_devices: [rdma_cm, uverbs0]
            stale_cdi: []
            reasons: {}
        devices:
          description:
            - RDMA devices by name, ports by number; V(null) when sysfs cannot be read. C(kind) is V(hardware) or
              V(software) (rxe, siw); a software device has no C(pci), but its netdev has, in C(netdev_pci). C(plane) is
              the number of a multi-plane card's physical function, else V(null); C(bond) whether the netdev is a bond or
              a member of one.
            - C(gids) are the rows that hold a GID; look rows up by their C(index), not by their position. C(gid_table)
              counts all rows; its C(hash) changes when an index comes to mean another GID, type or netdev.
              C(active_mtu) is what the kernel derives from the netdev's MTU. With O(counters) ports have C(counters).
          returned: always
          type: dict
          sample:
            mlx5_6:
              kind: hardware
              pci: "0000:0c:00.0"
              netdev: rdma0
              netdev_pci: "0000:0c:00.0"
              bond: false
              function: pf
              parent_pci: null
              vf_index: null
              plane: null
              numa_node: 0
              pci_path: 0000:00:01.1/0000:0c:00.0
              driver: mlx5_core
              firmware: 16.35.2000
              node_guid: "b83f:d203:0012:3456"
              reasons: {}
              ports:
                "1":
                  link_layer: Ethernet
                  state: ACTIVE
                  phys_state: LinkUp
                  rate_gbps: 100.0
                  netdev: rdma0
                  active_mtu: 4096
                  rdma_cm_tos: 0
                  rdma_cm_mode: RoCE v2
                  traffic_class: {state: set, value: 41, rules: []}
                  gid_table: {length: 256, zero: 252, unreadable: 0, hash: 9b74c9897bac770f, reason: null}
                  reasons: {}
                  gids:
                    - index: 3
                      gid: "0000:0000:0000:0000:0000:ffff:0ae0:0c8f"
                      address: 10.224.12.143
                      type: RoCE v2
                      netdev: rdma0
                      scope: ipv4
                      usable: true
                      reason: null
        netdevs:
          description:
            - Network devices on a bus, those that RDMA devices, rails or rows of GID tables name, and the masters of all
              these (bonds, VRFs, bridges). Virtual netdevs of pods are left out.
            - C(kind) is the kernel's word (V(vlan), V(bond), V(vrf), V(veth)), V(null) for a physical netdev; C(vf_of) the
              PCI address of a VF's PF; C(vrf_table) the routing table of a VRF; C(altnames) are other names of it;
              C(representor) whether it stands for a VF,
              SF or host PF in the switch of its PF.
            - C(addresses[].origin) is V(kernel_ra) for an address from a router advertisement (kernel 5.18 and newer).
              C(default_routes) are those of all tables, C(table) a number (254 is main), C(origin) as ip(8) names it
              (V(ra), V(dhcp), V(static), V(boot)).
            - C(sysctls) are effective values, as the kernel combines "all" with the interface. C(accepts_ra) follows from
              C(accept_ra), C(forwarding) and C(disable_ipv6). With O(counters) there are C(counters).
          returned: always
          type: dict
          sample:
            rdma0:
              pci: "0000:0c:00.0"
              ifindex: 12
              kind: null
              mac: "b8:3f:d2:12:34:56"
              mtu: 4220
              state: up
              master: null
              vrf_table: null
              altnames: []
              representor: false
              vf_of: null
              plane: null
              addresses:
                - address: 10.224.12.143
                  prefix: 12
                  family: ipv4
                  scope: global
                  dynamic: false
                  mngtmpaddr: false
                  noprefixroute: false
                  tentative: false
                  dad_failed: false
                  temporary: false
                  deprecated: false
                  origin: null
              default_routes: [{family: ipv6, gateway: "fe80::5:1", metric: 1024, table: 254, origin: ra}]
              sysctls:
                arp_ignore: 1
                arp_announce: 2
                rp_filter: 0
                arp_filter: 0
                accept_local: 0
                disable_ipv6: 0
                accept_ra: 1
                accept_ra_defrtr: 1
                forwarding: 0
                autoconf: 1
                accepts_ra: true
              sriov: {total: 8, num: 1, vfs: [{index: 0, pci: "0000:0c:00.2", netdev: rdma0v0, device: mlx5_18}]}
              qos:
                trust: dscp
                dscp_to_priority: {"10": 0, "26": 5}
                dcbx: os
                pfc: {enabled: [0, 5], capable: 8, delay: 7, requests: {"0": 12}, indications: {"0": 3}}
                ets: null
                ecn: {notification: {"0": true}, reaction: {"0": true}, cnp_dscp: 48, cnp_priority: 6, reasons: {}}
                qos_of: null
                source: {trust: sysfs, dscp_to_priority: netlink, dcbx: netlink, pfc: netlink, ecn: sysfs}
                reasons: {ets: the driver does not tell it}
              reasons: {}
        routing:
          description:
            - C(rules) are the policy rules of this network namespace in the order of the kernel, IPv4 first; V(null) with
              C(reason) when they cannot be read. C(from) and C(to) are V(all) or a prefix, C(table) is a number (255 local,
              254 main, 253 default), V(null) for other actions than V(lookup) and for C(l3mdev) (VRFs).
          returned: always
          type: dict
          sample:
            rules:
              - family: ipv4
                priority: 32000
                from: 198.51.100.5/32
                to: all
                iif: null
                oif: null
                fwmark: null
                fwmask: null
                invert: false
                l3mdev: false
                suppress_prefixlength: null
                table: 1003
                action: lookup
                origin: static
            reason: null
        rails:
          description: What became of each rail of O(rails); C(gid_index) is the index to use, chosen from the table.
          returned: always
          type: list
          elements: dict
          sample:
            - rail: 0
              name: rail0
              pci: "0000:0c:00.0"
              netdev: rdma0
              device: mlx5_6
              port: 1
              gid_index: 3
              gid: "0000:0000:0000:0000:0000:ffff:0ae0:0c8f"
              address: 10.224.12.143
              state: ACTIVE
              rate_gbps: 100.0
              mtu: 4220
              active_mtu: 4096
              numa_node: 0
              traffic_class: {state: set, value: 41, rules: []}
              vfs: 1
              vfs_possible: 8
              gpus: [{pci: "0000:0f:00.0", distance: PIX, numa_distance: 10, reason: null}]
              reason_gpus: null
              reason: null
        memlock:
          description:
            - Limits for locked memory, in bytes or V(unlimited). C(containers.soft) is what a container really gets.
            - For each container runtime C(soft) and C(hard) of its process, C(configured) by systemd's files for its next
              start, and C(container_default) that its own configuration gives to containers.
          returned: always
          type: dict
          sample:
            runtimes:
              crio:
                pid: 1234
                unit: crio.service
                soft: 8388608
                hard: 8388608
                configured: null
                configured_by: null
                container_default: unlimited
                source: /etc/crio/crio.conf.d/99-rdma.conf
                restart_needed: false
                reason: null
            containers: {soft: unlimited, runtime: crio, reason: null}
            reason: null
        gpus:
          description: GPUs by PCI address; C(vendor) and C(device) are PCI ids.
          returned: always
          type: list
          elements: dict
          sample:
            - pci: "0000:0f:00.0"
              vendor: 10de
              device: 20b2
              driver: nvidia
              numa_node: 0
              pci_path: 0000:00:01.1/0000:08:00.0/0000:09:04.0/0000:0f:00.0
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.railyard.rdma.plugins.module_utils.node_facts import gather
from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree


def main() -> None:
    rail = {
        "rail": {"type": "int", "required": True},
        "name": {"type": "str"},
        "pci": {"type": "str"},
        "netdev": {"type": "str"},
    }
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "default": "/"},
            "rails": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": rail,
                "required_one_of": [("pci", "netdev")],
            },
            "zero_rows": {"type": "bool", "default": False},
            "boot_images": {"type": "bool", "default": True},
            "counters": {"type": "bool", "default": False},
            "fact": {"type": "str", "default": "rdma"},
        },
        supports_check_mode=True,
    )
    facts = gather(
        Tree(module.params["root"]),
        rails=module.params["rails"],
        zero_rows=module.params["zero_rows"],
        read_images=module.params["boot_images"],
        with_counters=module.params["counters"],
    )
    module.exit_json(changed=False, ansible_facts={module.params["fact"]: facts})


if __name__ == "__main__":
    main()
