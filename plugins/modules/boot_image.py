#!/usr/bin/python
# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: boot_image
short_description: Rebuild boot images that would load ib_core with another network namespace mode
version_added: 0.1.0
description:
  - On most systems ib_core is loaded from the boot image (initramfs), which has its own copy of modprobe.d. The module
    looks inside the image of every installed kernel and rebuilds those whose mode is not O(mode), and only those.
  - An image is rebuilt by the program that the system has for it, initramfs-tools, dracut, mkinitcpio or booster, or by
    kernel-install where that fills C(/boot). Images that cannot be read make the module fail with the reason.
  - The old image stays until the new one was read back. The new one must be whole, give O(mode), hold the modules of
    disks and file systems in use, and not be much smaller than the old one; otherwise the old image stays (or is put
    back) and the module fails with the reason. C(/boot) and the builder's workspace must have room.
  - dracut often leaves modprobe.d out of its images. Where that is so the module writes
    C(/etc/dracut.conf.d/90-railyard-ib_core.conf), which makes it part of them.
  - Where images are made elsewhere (Talos, Flatcar, rpm-ostree, bootc, unified kernel images) or do not matter (ib_core
    is part of the kernel), RV(advice) tells what to configure there.
  - After an interrupted run the next one finishes its work. While a builder of an earlier run still works, the module
    waits for it two minutes, then fails.
author:
  - Railyard contributors (@railyard)
extends_documentation_fragment:
  - railyard.rdma.attributes
  - railyard.rdma.root
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
options:
  mode:
    description:
      - The mode that ib_core must get from every image.
      - The mode that modprobe.d sets when not given.
    type: str
    choices: [shared, exclusive]
  kernels:
    description:
      - Which kernels' images are looked after, those of V(all) installed kernels or those that boot V(next) by the boot
        loader's configuration. With V(next) the module fails when that configuration does not tell.
    type: str
    choices: [all, next]
    default: all
    version_added: 0.2.0
  minimum_percent:
    description:
      - What a new image must have of the old one's size and of its number of kernel modules, in percent.
      - Lower it for one run when the image is meant to shrink.
    type: int
    default: 80
notes:
  - With O(root) other than V(/) images are inspected but not rebuilt.
seealso:
  - module: railyard.rdma.ib_core_netns
  - module: railyard.rdma.rdma_facts
"""

EXAMPLES = r"""
- name: Rebuild boot images that disagree with modprobe.d
  railyard.rdma.boot_image:

- name: Rebuild only the image that boots next
  railyard.rdma.boot_image:
    mode: exclusive
    kernels: next
"""

RETURN = r"""
images:
  description: The image of each installed kernel as it is now; with check mode as it is before.
  returned: success
  type: list
  elements: dict
  sample:
    - kernel: 6.8.0-100-generic
      path: /boot/initrd.img-6.8.0-100-generic
      kind: plain
      builder: initramfs-tools
      mode: shared
      holds_option: true
      holds_ib_core: true
      builtin: false
      force_loaded: []
      stale: false
      default: true
      reason_default: null
      size: 73400320
      modules: 912
      formats: [cpio, zstd]
      whole: true
      reason: null
rebuilt:
  description: Paths of the images that were (with check mode, would be) rebuilt.
  returned: always
  type: list
  elements: str
  sample: [/boot/initrd.img-6.8.0-100-generic]
restored:
  description:
    - Paths of images that were put back, because the new ones must not be booted or because an earlier run was
      interrupted before it judged them.
  returned: always
  type: list
  elements: str
  sample: []
completed:
  description: Paths of images that an interrupted run built and this one found good.
  returned: always
  type: list
  elements: str
  sample: []
  version_added: 0.2.0
configured:
  description: Paths of the builder's configuration files that were (with check mode, would be) written.
  returned: always
  type: list
  elements: str
  sample: [/etc/dracut.conf.d/90-railyard-ib_core.conf]
  version_added: 0.2.0
advice:
  description: What to write into the configuration of a system whose images are not built here; null elsewhere.
  returned: always
  type: str
  sample: null
  version_added: 0.2.0
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.railyard.rdma.plugins.module_utils.boot import boot_images, boot_loader, image_rebuilder
from ansible_collections.railyard.rdma.plugins.module_utils.netns import modprobe, netns_mode
from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "mode": {"type": "str", "choices": ["shared", "exclusive"]},
            "kernels": {"type": "str", "choices": ["all", "next"], "default": "all"},
            "minimum_percent": {"type": "int", "default": 80},
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    if not 1 <= module.params["minimum_percent"] <= 100:
        module.fail_json(msg=f"minimum_percent is {module.params['minimum_percent']}, allowed is 1 to 100")
    tree = Tree(module.params["root"])
    files, problems = modprobe.read_config(tree)
    in_files = netns_mode.configured(files)
    mode = module.params["mode"] or in_files["mode"] or netns_mode.KERNEL_DEFAULT
    rebuilder = image_rebuilder.Rebuilder(module, tree, mode, in_files)
    if problems or in_files["reason"]:
        rebuilder.fail(f"modprobe.d cannot be told: {in_files['reason'] or '; '.join(problems)}")
    writes = image_rebuilder.can_build(tree) and not module.check_mode
    if (in_files["mode"] or netns_mode.KERNEL_DEFAULT) != mode and not module.check_mode:
        rebuilder.fail(
            f"modprobe.d sets {in_files['mode'] or 'no mode'} ({in_files['by'] or 'no file'}), a rebuilt image cannot "
            f"give mode {mode}. Set it with railyard.rdma.ib_core_netns first."
        )
    try:
        if writes:
            rebuilder.take_lock()
        if image_rebuilder.can_build(tree):
            rebuilder.finish_interrupted()
        details: dict = {}
        images = boot_images.inspect_all(tree, rebuilder.wanted, boot_loader.read(tree), details)
        image_rebuilder.work(rebuilder, images, details)
    finally:
        rebuilder.release_lock()


if __name__ == "__main__":
    main()
