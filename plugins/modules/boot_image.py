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
  - An image is rebuilt by the program that the system has for it, initramfs-tools or dracut. Other builders and images
    that cannot be read (a compression that this Python does not know) make the module fail with the reason.
  - Before a rebuild the old image is copied, for which C(/boot) must have room. The new image must be whole, give
    O(mode), and not be much smaller than the old one; otherwise the old image is put back and the module fails with
    the reason.
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
      builder: initramfs-tools
      mode: shared
      holds_option: true
      holds_ib_core: true
      stale: false
      size: 73400320
      modules: 912
      formats: [cpio, gzip]
      whole: true
      reason: null
rebuilt:
  description: Paths of the images that were (with check mode, would be) rebuilt.
  returned: always
  type: list
  elements: str
  sample: [/boot/initrd.img-6.8.0-100-generic]
restored:
  description: Paths of images that were put back, because the new ones must not be booted.
  returned: always
  type: list
  elements: str
  sample: []
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.railyard.rdma.plugins.module_utils import boot_images, image_rebuild, modprobe, netns_mode
from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree


def can_build(tree: Tree) -> bool:
    """Tell whether the builder would write to the tree that we look at."""
    return tree.live


class Rebuilder:
    """Rebuilds the images of one system, one after the other, and stops at the first that must not be booted."""

    def __init__(self, module: AnsibleModule, tree: Tree, mode: str) -> None:
        self.module = module
        self.tree = tree
        self.mode = mode
        self.wanted = {"mode": mode, "reason": None}
        self.result: dict = {"rebuilt": [], "restored": []}

    def fail(self, message: str, **more) -> None:
        self.module.fail_json(msg=message, **self.result, **more)

    def inspect(self, image: dict) -> dict:
        return boot_images.inspect_image(self.tree, image, image.get("builder") or "none", self.wanted)

    def finish_interrupted(self, images: list) -> None:
        """Put back the kept copy of every image whose rebuild was interrupted: nobody judged the new one."""
        for image in images:
            place = self.tree.path(image["path"] or "/")
            if image["path"] and image_rebuild.left_behind(place):
                if not self.module.check_mode:
                    image_rebuild.restore(place)
                    image.update(self.inspect(image))
                self.result["restored"].append(image["path"])

    def rebuild(self, image: dict) -> dict:
        """Rebuild one image; returns its new description. Fails the module with the old image in place."""
        program = boot_images.find_program(self.tree, image_rebuild.program_name(image["builder"])) or ""
        path = image["path"]
        place = self.tree.path(path)
        try:
            command = image_rebuild.build_command(image["builder"], image, program)
        except ValueError as error:
            self.fail(str(error))
        problem = image_rebuild.space_problem(os.path.dirname(place), image["size"] or 0)
        if problem:
            self.fail(f"{path} was not rebuilt: {problem}")
        try:
            image_rebuild.keep_copy(place)
        except OSError as error:
            self.fail(f"{path} was not rebuilt: no copy of it can be made: {error.strerror}")
        try:
            code, out, err = self.module.run_command(command, handle_exceptions=False)
        except OSError as error:
            code, out, err = 127, "", str(error)
        new = self.inspect(image)
        reasons = image_rebuild.judge(image, new, self.mode, self.module.params["minimum_percent"])
        if code != 0:
            reasons.insert(0, f"{command[0]} ended with code {code}")
        if reasons:
            image_rebuild.restore(place)
            self.result["restored"].append(path)
            self.fail(
                f"The new {path} must not be booted, the old one was put back: {'; '.join(reasons)}.",
                command=command,
                rc=code,
                stdout=out,
                stderr=err,
            )
        image_rebuild.forget_copy(place)
        self.result["rebuilt"].append(path)
        return new


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "mode": {"type": "str", "choices": ["shared", "exclusive"]},
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
    rebuilder = Rebuilder(module, tree, mode)
    if problems or in_files["reason"]:
        rebuilder.fail(f"modprobe.d cannot be told: {in_files['reason'] or '; '.join(problems)}")
    if (in_files["mode"] or netns_mode.KERNEL_DEFAULT) != mode and not module.check_mode:
        rebuilder.fail(
            f"modprobe.d sets {in_files['mode'] or 'no mode'} ({in_files['by'] or 'no file'}), a rebuilt image cannot "
            f"give mode {mode}. Set it with railyard.rdma.ib_core_netns first."
        )
    images = boot_images.inspect_all(tree, rebuilder.wanted)
    rebuilder.finish_interrupted(images)
    for image in images:
        if image["path"] is None:
            module.warn(f"{image['reason']}; it is left alone")
    present = [image for image in images if image["path"]]
    unknown = [image["reason"] for image in present if image["stale"] is None and image["whole"] is not False]
    if unknown:
        rebuilder.fail(f"It cannot be told whether these boot images hold the mode: {'; '.join(unknown)}")
    stale = [image for image in present if image["stale"] or image["whole"] is False]
    if stale and not can_build(tree) and not module.check_mode:
        rebuilder.fail(f"root is {tree.root}: images are rebuilt on the running system only")
    before = {image["path"]: image["mode"] for image in present}
    if module.check_mode:
        rebuilder.result["rebuilt"] = [image["path"] for image in stale]
        after = {**before, **{image["path"]: mode for image in stale}}
    else:
        for image in stale:
            image.update(rebuilder.rebuild(image))
        after = {image["path"]: image["mode"] for image in present}
    module.exit_json(
        changed=bool(rebuilder.result["rebuilt"] or rebuilder.result["restored"]),
        images=images,
        diff={"before": before, "after": after},
        **rebuilder.result,
    )


if __name__ == "__main__":
    main()
