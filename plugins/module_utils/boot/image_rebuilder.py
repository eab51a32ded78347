# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The work of the module boot_image: what to rebuild, in which order, and what must hold at each step.

Commands and configuration are those of image_builders, the judgement and the files beside an image those of
image_rebuild. ``module`` is the running AnsibleModule: it starts the builder, and it ends the run on a failure.
"""

from __future__ import annotations

import fcntl
import os
import time

from ansible_collections.railyard.rdma.plugins.module_utils.boot import boot_images, image_builders, image_rebuild
from ansible_collections.railyard.rdma.plugins.module_utils.netns import netns_mode
from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree

LOCK = "/run/railyard-boot_image.lock"
LOCK_SECONDS = 120
_TAIL = 400


def can_build(tree: Tree) -> bool:
    """Tell whether the builder would write to the tree that we look at."""
    return tree.live


class Rebuilder:
    """Rebuilds the images of one system, one after the other, and stops at the first that must not be booted."""

    def __init__(self, module, tree: Tree, mode: str, in_files: dict) -> None:
        self.module = module
        self.tree = tree
        self.mode = mode
        self.in_files = in_files
        self.wanted = {"mode": mode, "reason": None}
        self.builder = image_builders.find_builder(tree)
        self.loaded = frozenset(name.replace("-", "_") for name in tree.names("/sys/module"))
        self.lock: int | None = None
        self.result: dict = {"rebuilt": [], "restored": [], "completed": [], "configured": [], "advice": None}
        self.diff: list = []

    def fail(self, message: str, **more) -> None:
        self.module.fail_json(msg=message, **self.result, **more)

    def inspect(self, image: dict, path: str | None = None) -> dict:
        """Describe an image, or the file at ``path`` in its place, with the names of its modules."""
        details: dict = {}
        told = boot_images.inspect_image(self.tree, image, self.builder, self.wanted, details, path)
        return {**told, "names": details.get("modules"), "unpacked": details.get("unpacked")}

    def judge(self, old: dict, new: dict) -> list:
        return image_rebuild.judge(old, new, self.mode, self.module.params["minimum_percent"], self.loaded)

    def take_lock(self) -> None:
        """Keep two runs apart. The builder inherits the lock: when this process is killed, the next run waits for what
        it left running."""
        place = self.tree.path(LOCK)
        try:
            self.lock = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            self.fail(f"{LOCK}: {error.strerror}. Run with become.")
        until = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError:
                if time.monotonic() > until:
                    self.fail(f"Another run of this module, or the builder that it started, still works ({LOCK}).")
                time.sleep(0.5)

    def release_lock(self) -> None:
        if self.lock is not None:
            os.close(self.lock)

    def finish_interrupted(self) -> None:
        """Deal with what an interrupted run left: judge the image that it built, put the kept copy back when it is not
        good, remove what is worth nothing."""
        images = boot_images.list_images(self.tree, self.builder)
        directories = {"/boot", *(os.path.dirname(image["path"]) for image in images if image["path"])}
        for directory in sorted(directories):
            left = image_rebuild.left_behind(self.tree.path(directory))
            for name in left["kept"]:
                path = f"{directory}/{name}"
                image = next((image for image in images if image["path"] == path), None)
                good = image is not None and not self.judge(
                    self.inspect(image, image_rebuild.kept_name(path)), self.inspect(image)
                )
                self.result["completed" if good else "restored"].append(path)
                if not self.module.check_mode:
                    place = self.tree.path(directory) + "/" + name
                    (image_rebuild.forget_copy if good else image_rebuild.restore)(place)
            for name in left["worthless"]:
                if not self.module.check_mode:
                    image_rebuild.remove(f"{self.tree.path(directory)}/{name}")

    def configure(self, stale: list) -> None:
        """Make dracut put the option into its images, where they lack it."""
        if self.builder != "dracut" or not any(image["holds_option"] is not True for image in stale):
            return
        setting = self.in_files
        if setting["by"] is None and self.module.check_mode:
            setting = {**setting, "by": netns_mode.OUR_FILE}  # which ib_core_netns would have written before
        cure = image_builders.dracut_cure(self.tree, setting)
        if cure is None:
            return
        path = cure["path"]
        self.result["configured"].append(path)
        self.diff.append(
            {"before_header": path, "after_header": path, "before": cure["before"], "after": cure["after"]}
        )
        if not self.module.check_mode:
            try:
                image_rebuild.write_file(self.tree.path(path), cure["after"])
            except OSError as error:
                self.result["configured"].remove(path)
                self.fail(f"{path} was not written: {error.strerror}")

    def check_room(self, old: dict, beside: bool, usual_size: int) -> None:
        """Fail before anything is touched when there is no room for a rebuild."""
        size = old["size"] if old["whole"] else max(old["size"] or 0, usual_size)
        directory = os.path.dirname(old["path"])
        kept = "the new image" if beside else "the new image and a copy of the old one"
        needed = [(directory, image_rebuild.space_needed(size, beside), kept)]
        workspace = image_builders.workspace(self.builder)
        if workspace:
            needed.append((workspace, image_rebuild.workspace_needed(size, old["unpacked"]), "the builder's workspace"))
        for place, number, what in needed:
            problem = image_rebuild.space_problem(self.tree.path(place), number, what)
            if problem:
                self.fail(f"{old['path']} was not rebuilt: {problem}")

    def rebuild(self, image: dict, old: dict, usual_size: int) -> dict:
        """Rebuild one image; returns its new description. Fails the module with the old image in place."""
        path = image["path"]
        place = self.tree.path(path)
        beside = image_builders.is_beside(self.builder, image)
        output = image_rebuild.new_name(path) if beside else path
        try:
            command = image_builders.build_command(self.tree, self.builder, image, output)
        except ValueError as error:
            self.fail(str(error))
        self.check_room(old, beside, usual_size)
        try:
            if not beside:
                image_rebuild.keep_copy(place)
            code, out, err = self.run(command)
            new = self.inspect(image, output)
            reasons = self.judge(old, new)
            if code != 0:
                reasons.insert(0, f"{os.path.basename(command[0])} ended with code {code}")
            if reasons:
                self.give_up(place, beside)
            elif beside:
                image_rebuild.take_over(place)
            else:
                image_rebuild.forget_copy(place)
        except OSError as error:
            self.fail(f"{path} was not rebuilt: {error.filename or ''}: {error.strerror}. The next run cleans up.")
        if reasons:
            tail = (err.strip() or out.strip())[-_TAIL:]
            kept = "The old image is untouched" if beside else "The old one was put back"
            self.result["restored"] += [] if beside else [path]
            self.fail(
                f"The new {path} must not be booted: {'; '.join(reasons)}. {kept}."
                + (f" The builder's last words: {tail}" if tail else ""),
                command=command,
                rc=code,
                stdout=out,
                stderr=err,
            )
        self.result["rebuilt"].append(path)
        return self.inspect(image)

    def run(self, command: list) -> tuple:
        try:
            return self.module.run_command(
                command,
                handle_exceptions=False,
                environ_update={"LC_ALL": "C", "LANG": "C"},
                pass_fds=None if self.lock is None else (self.lock,),
            )
        except OSError as error:
            return 127, "", str(error)

    def give_up(self, place: str, beside: bool) -> None:
        if beside:
            image_rebuild.remove(image_rebuild.new_name(place))
        else:
            image_rebuild.restore(place)


def choose(images: list, kernels: str) -> list:
    """Return the images that are looked after.

    :raises ValueError: when it cannot be told which one boots next.
    """
    if kernels == "all":
        return images
    unknown = next((image for image in images if image["default"] is None), None)
    if unknown:
        raise ValueError(f"It cannot be told which kernel boots next: {unknown['reason_default']}")
    return [image for image in images if image["default"]]


def work(rebuilder: Rebuilder, images: list, details: dict) -> None:
    """Look after the images and end the module.

    :param images: all images, as boot_images.inspect_all describes them.
    :param details: what it noted beside, by path.
    """
    module, tree, mode = rebuilder.module, rebuilder.tree, rebuilder.mode
    for image in images:
        if image["path"] is None:
            module.warn(f"{image['reason']}; it is left alone")
    system = image_builders.find_system(tree)
    rebuilder.result["advice"] = image_builders.advice(system, mode, images)
    try:
        chosen = choose([image for image in images if image["path"]], module.params["kernels"])
    except ValueError as error:
        rebuilder.fail(str(error))
    unknown = [image["reason"] for image in chosen if image["stale"] is None and image["whole"] is not False]
    if unknown:
        rebuilder.fail(f"It cannot be told whether these boot images hold the mode: {'; '.join(unknown)}")
    stale = [image for image in chosen if image["stale"] or image["whole"] is False]
    told = ", ".join(image["path"] for image in stale)
    if stale and system != "mutable":
        rebuilder.fail(
            f"{told} would not bring mode {mode} and is not built on this system. {rebuilder.result['advice']}"
        )
    if stale and not can_build(tree) and not module.check_mode:
        rebuilder.fail(f"root is {tree.root}: images are rebuilt on the running system only")
    before = {image["path"]: image["mode"] for image in images if image["path"]}
    rebuilder.configure(stale)
    usual_size = max([image["size"] or 0 for image in images if image["whole"]], default=0)
    for image in stale:
        if module.check_mode:
            rebuilder.result["rebuilt"].append(image["path"])
            continue
        more = details[image["path"]]
        entry = {**image, "overlays": more["overlays"]}
        old = {**image, "names": more.get("modules"), "unpacked": more.get("unpacked")}
        if image is not stale[0]:
            old = rebuilder.inspect(entry)  # the builder's hooks may have rebuilt this one with the one before
            if old["stale"] is False:
                image.update({key: old[key] for key in image if key in old})
                rebuilder.result["rebuilt"].append(image["path"])
                continue
        new = rebuilder.rebuild(entry, old, usual_size)
        image.update({key: new[key] for key in image if key in new})
    after = {image["path"]: image["mode"] for image in images if image["path"]}
    if module.check_mode:
        after.update(dict.fromkeys(rebuilder.result["rebuilt"], mode))
    done = rebuilder.result
    module.exit_json(
        changed=any(done[key] for key in ("rebuilt", "restored", "completed", "configured")),
        images=images,
        diff=[{"before": before, "after": after}, *rebuilder.diff],
        **done,
    )
