#!/usr/bin/python
# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ib_core_netns
short_description: Set the RDMA network namespace mode in modprobe.d
version_added: 0.1.0
description:
  - Sets the parameter C(netns_mode) of the kernel module C(ib_core) in C(/etc/modprobe.d/ib_core.conf), so that the
    mode survives a reboot. Other options and comments in that file stay.
  - The mode has one owner. When something else sets it, too (another file in one of modprobe's five directories, such
    as the one that the SR-IOV operator writes for C(rdmaMode), an C(install) line, the kernel line of the entry that
    boots next, or the file that feeds it), the module fails and names it; with O(take_over) it moves it aside.
  - A boot image may carry an old copy of the file. See M(railyard.rdma.boot_image).
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
      - V(shared) makes every RDMA device visible in every network namespace; IPvlan, macvlan and host network need it.
      - V(exclusive) gives an RDMA device to one network namespace; the RDMA CNI plugin needs it.
    type: str
    choices: [shared, exclusive]
    required: true
  take_over:
    description:
      - Takes the option out of the other places that set it. Only the option goes, the rest of the line and of the file
        stays byte for byte. A file in C(/etc) is edited, with a backup beside it; one in C(/usr/lib), C(/usr/local/lib)
        or C(/run) is hidden by a file of the same name in C(/etc). A link is replaced by a file, its target stays.
      - For the kernel line the files that feed it are edited and the boot loader's configuration is generated anew
        (C(update-grub), C(grub2-mkconfig), C(grubby)). When the argument is still there after that, everything is put
        back and the module fails. Kernel lines that belong to rpm-ostree or are inside a unified kernel image are
        left alone; the module fails with what to do.
      - Whenever it is interrupted, the next boot has either the old or the new mode, and the next run finishes.
    type: bool
    default: false
    version_added: 0.2.0
  other_owners:
    description:
      - Owners that are known from elsewhere, such as a C(SriovNetworkPoolConfig) with C(rdmaMode). They make the module
        fail, also with O(take_over), since they would set the mode again.
    type: list
    elements: dict
    default: []
    version_added: 0.2.0
    suboptions:
      owner:
        description: Who sets the mode, like V(sriov_network_operator).
        type: str
        required: true
      path:
        description: Where it is set.
        type: str
        required: true
      mode:
        description: The mode that it sets, if known.
        type: str
      remedy:
        description: How to make it stop.
        type: str
  runtime:
    description:
      - Also switches the running kernel (C(rdma system set netns)), which works only while no other network namespace
        exists; containers and some systemd units each have one. See RV(runtime) for what came of it. When it cannot be
        switched that is no failure, the mode comes with the next reboot.
      - RDMA devices stay in the network namespace in which they are, and programs that use them go on. In mode
        V(shared) the kernel makes them visible in namespaces that are created later, in mode V(exclusive) it does not.
      - With check mode nothing is switched; RV(runtime.tried) tells whether it would be tried now.
    type: bool
    default: false
    version_added: 0.2.0
  runtime_timeout:
    description: Seconds for which O(runtime) waits for short-lived network namespaces to end.
    type: int
    default: 30
    version_added: 0.2.0
notes:
  - C(softdep) and C(blacklist) lines for ib_core change when it is loaded, not with which options, so they are no owners.
seealso:
  - module: railyard.rdma.boot_image
  - module: railyard.rdma.rdma_facts
"""

EXAMPLES = r"""
- name: Make every RDMA device visible in every network namespace
  railyard.rdma.ib_core_netns:
    mode: shared

- name: Become the only owner of the mode, and switch at once where that is possible
  railyard.rdma.ib_core_netns:
    mode: exclusive
    take_over: true
    runtime: true
"""

RETURN = r"""
file:
  description: The file that holds the option.
  returned: always
  type: str
  sample: /etc/modprobe.d/ib_core.conf
configured_before:
  description: The mode that modprobe.d set before, V(null) when it set none.
  returned: success
  type: str
  sample: exclusive
owners:
  description:
    - Everything that sets the mode, as it was before, in order of application. RV(owners[].owner) is one of
      V(railyard), V(sriov_network_operator), V(kernel_line), V(boot_loader), V(other).
  returned: always
  type: list
  elements: dict
  contains:
    owner:
      description: Who it is.
      type: str
      sample: railyard
  sample:
    - owner: railyard
      path: /etc/modprobe.d/ib_core.conf
      line: 1
      mode: exclusive
      wins: true
      hidden_by: null
      statement: options
taken_over:
  description:
    - The places from which the option was (with check mode, would be) taken. RV(taken_over[].backup) is the copy of the
      file as it was, V(null) where the file itself was left as it is and RV(taken_over[].hidden_by) hides it.
  returned: always
  type: list
  elements: dict
  version_added: 0.2.0
  contains:
    backup:
      description: Path of the copy.
      type: str
      sample: /etc/modprobe.d/zz.conf.railyard-backup
    hidden_by:
      description: Path of the file that hides it.
      type: str
      sample: null
  sample:
    - path: /etc/modprobe.d/zz.conf
      line: 3
      backup: /etc/modprobe.d/zz.conf.railyard-backup
      hidden_by: null
runtime:
  description: What came of O(runtime).
  returned: success
  type: dict
  version_added: 0.2.0
  contains:
    tried:
      description: Whether the switch was (with check mode, would be) tried.
      type: bool
      sample: true
    switched:
      description: Whether the running kernel was switched.
      type: bool
      sample: false
    reason:
      description: Why it was not switched.
      type: str
      sample: other network namespaces exist
    namespaces:
      description: The network namespaces in the way, V(null) when they are not known.
      type: list
      elements: str
      sample: [/run/netns/cni-1]
live:
  description: The mode of the running kernel at the end, V(null) when it is not known or ib_core is not loaded.
  returned: success
  type: str
  version_added: 0.2.0
  sample: shared
"""

import os
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.railyard.rdma.plugins.module_utils.boot import boot_loader
from ansible_collections.railyard.rdma.plugins.module_utils.netns import (
    modprobe,
    netns_mode,
    netns_takeover,
    network_namespaces,
)
from ansible_collections.railyard.rdma.plugins.module_utils.netns.netns_takeover import Refused
from ansible_collections.railyard.rdma.plugins.module_utils.netns.replaced_files import Changes
from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree

POLL_INTERVAL = 0.5  # seconds between two looks at the network namespaces
REMEDIES = {
    "kernel_line": "remove ib_core.netns_mode from the boot loader's configuration and reboot",
    "boot_loader": "remove ib_core.netns_mode there, or use take_over",
    "sriov_network_operator": "remove spec.rdmaMode from the SriovNetworkPoolConfig, then this file, or use take_over",
}


def runs_here(tree: Tree) -> bool:
    """Tell whether programs of this system change the tree that we look at."""
    return tree.live


def explain(others: list, mode: str) -> str:
    """Say who else sets the mode and how to make it stop."""
    told = []
    for entry in others:
        line = f" line {entry['line']}" if entry.get("line") else ""
        sets = f"sets {entry['mode']}" if entry.get("mode") else "sets it in a way that is not understood"
        remedy = entry.get("remedy") or REMEDIES.get(entry["owner"], "remove that option, or use take_over")
        told.append(f"{entry['path']}{line} {sets} ({remedy})")
    where = netns_mode.OUR_FILE
    return f"Mode {mode} is to be set in {where}, but it has other owners: {'; '.join(told)}. Nothing was changed."


def shown(value):
    """Make text that holds bytes which are no UTF-8 fit for the module's result."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if isinstance(value, list):
        return [shown(item) for item in value]
    if isinstance(value, dict):
        return {key: shown(item) for key, item in value.items()}
    return value


class Setter:
    """Sets the mode on one system."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.mode = module.params["mode"]
        self.tree = Tree(module.params["root"])
        self.loader = boot_loader.read(self.tree)
        self.files, self.problems = modprobe.read_config(self.tree)
        owners = netns_mode.owners(self.files, self.tree.read("/proc/cmdline").value, self.loader)
        # Not "path": Ansible would add that file's permissions, and those of the running system for another root.
        self.result: dict = {"file": netns_mode.OUR_FILE, "owners": owners, "taken_over": []}
        self.others = netns_takeover.conflicts(owners, self.loader)
        self.changes = Changes(lambda place: module.set_default_selinux_context(place, False))
        self.arguments: dict = {"changes": {}, "command": None}

    def fail(self, message: str, **more) -> None:
        self.module.fail_json(msg=shown(message), **shown({**self.result, **more}))

    def check(self) -> None:
        """Fail unless we are the only owner, or may become it."""
        if self.problems:
            self.fail(f"It cannot be told who sets the mode: {'; '.join(self.problems)}. Nothing was changed.")
        if self.module.params["other_owners"]:
            self.fail(explain(self.module.params["other_owners"] + self.others, self.mode))
        if self.others and not self.module.params["take_over"]:
            self.fail(explain(self.others, self.mode))
        lines = [entry for entry in self.others if entry["owner"] == "kernel_line"]
        if lines:
            reason = self.loader["reason"] or "its default entry is not known"
            self.fail(
                f"{explain(lines, self.mode)} It cannot be taken over, since what makes it is not known: {reason}."
            )

    def plan(self) -> dict:
        """Return ``{path: new text}`` in the order in which it is to be written."""
        in_files = [entry for entry in self.others if entry["owner"] != "boot_loader"]
        try:
            files = netns_takeover.plan_files(self.files, self.mode, in_files)
            if len(in_files) < len(self.others):
                if not runs_here(self.tree):
                    raise Refused(f"root is {self.tree.root}: kernel lines are changed on the running system only")
                self.arguments = netns_takeover.plan_arguments(
                    self.loader,
                    self._texts(),
                    grubby=self.module.get_bin_path("grubby") is not None,
                    ostree=self.tree.exists("/run/ostree-booted"),
                )
        except (Refused, OSError, ValueError) as error:
            self.fail(f"{error}. Nothing was changed.")
        self.result["taken_over"] = [
            {"path": entry["path"], "line": entry["line"], "backup": None, "hidden_by": entry["hidden_by"]}
            for entry in files["moved"]
        ] + [
            {"path": entry["path"], "line": entry["line"], "backup": None, "hidden_by": None}
            for entry in self.others
            if entry["owner"] == "boot_loader"
        ]
        return files["changes"]

    def _texts(self) -> dict:
        paths = {part["path"] for part in (*self.loader["feeds"], *self.loader["entries"])}
        texts = {}
        for path in sorted(paths):
            if not path.lower().endswith(".efi"):
                text = modprobe.read_config_file(self.tree, path, boot_loader.MAXIMUM_FILE)
                texts[path] = text or ""
        return texts

    def diff(self, changes: dict) -> list:
        """Return one difference a file, and one for the kernel lines that a program writes."""
        told = []
        for path, after in {**changes, **self.arguments["changes"]}.items():
            told.append({"before": self._before(path), "after": after, "before_header": path, "after_header": path})
        if self.arguments["command"]:
            lines = [f"{entry['id']}: {entry['arguments']}\n" for entry in self.loader["entries"] if entry["arguments"]]
            header = f"kernel lines ({self.arguments['command']})"
            after = [" ".join(netns_mode.ARGUMENT.sub("", line).split()) + "\n" for line in lines]
            lines = [" ".join(line.split()) + "\n" for line in lines]
            told.append(
                {"before": "".join(lines), "after": "".join(after), "before_header": header, "after_header": header}
            )
        return shown(told)

    def _before(self, path: str) -> str:
        try:
            return modprobe.read_config_file(self.tree, path, boot_loader.MAXIMUM_FILE) or ""
        except (OSError, ValueError):
            return ""

    def place(self, path: str) -> str:
        """Return where a file is, with links resolved in its directory but not the file itself, if it is a link."""
        directory, name = os.path.split(path)
        return f"{self.tree.path(directory)}/{name}"

    def apply(self, changes: dict) -> None:
        """Write everything, or leave everything as it was and fail."""
        moved = {entry["path"] for entry in self.result["taken_over"]}
        try:
            for path, text in {**changes, **self.arguments["changes"]}.items():
                place = self.place(path)
                if path in moved and os.path.lexists(place):
                    copy = self.changes.back_up(place)
                    self._note_backup(path, f"{os.path.dirname(path)}/{os.path.basename(copy)}")
                self.changes.write(place, text.encode("utf-8", "surrogateescape"))
            if self.arguments["command"]:
                self._regenerate()
            if self.arguments["changes"] or self.arguments["command"]:
                self._look_again()
        except (OSError, Refused) as error:
            what = str(error)
            if isinstance(error, OSError):
                what = f"{error.filename2 or error.filename or 'a file'} cannot be written: {error.strerror}"
            left = self.changes.undo()
            self.result["taken_over"] = []
            end = f"Not everything could be put back: {'; '.join(left)}" if left else "Everything is as it was"
            self.fail(f"{what}. {end}.")

    def _note_backup(self, path: str, copy: str) -> None:
        for entry in self.result["taken_over"]:
            if entry["path"] == path:
                entry["backup"] = copy

    def _regenerate(self) -> None:
        """Let the boot loader's own program write the kernel lines."""
        written = {entry["path"] for entry in self.loader["entries"]}
        written |= {path for path in ("/boot/grub2/grubenv", "/boot/grub/grubenv") if self.tree.exists(path)}
        for path in sorted(written):
            self.changes.remember(self.place(path))
        if self.arguments["command"] == "grubby":
            remove = " ".join(self.arguments["remove"])
            command = [self.module.get_bin_path("grubby"), "--update-kernel=ALL", f"--remove-args={remove}"]
        else:
            config = next(entry["path"] for entry in self.loader["entries"])
            command = [self.module.get_bin_path("update-grub")]
            for name in ("grub2-mkconfig", "grub-mkconfig"):
                if command[0] is None:
                    command = [self.module.get_bin_path(name), "-o", config]
            if command[0] is None:
                raise Refused("Neither update-grub, grub2-mkconfig nor grub-mkconfig is there to write the kernel line")
        code, _out, err = self.module.run_command(command)
        if code != 0:
            raise Refused(f"{' '.join(command)} ended with code {code}: {err.strip()[-500:]}")

    def _look_again(self) -> None:
        """Raise Refused unless the argument is gone and the same kernel boots next."""
        after = boot_loader.read(self.tree)
        left = [entry for entry in netns_mode.owners({}, "", after) if entry["owner"] == "boot_loader"]
        if left:
            raise Refused(f"The argument is still in {', '.join(entry['path'] for entry in left)}")
        if after["default_kernel"] != self.loader["default_kernel"] or len(after["entries"]) < len(
            self.loader["entries"]
        ):
            raise Refused(
                f"The boot loader would start kernel {after['default_kernel']} out of {len(after['entries'])} entries, "
                f"before it was {self.loader['default_kernel']} out of {len(self.loader['entries'])}"
            )

    def switch(self) -> dict:
        """Switch the running kernel where that is wanted and possible."""
        told: dict = {"tried": False, "switched": False, "reason": None, "namespaces": None}
        live = netns_mode.live(self.tree)
        if not self.module.params["runtime"]:
            return {**told, "reason": "not asked for"}
        if live["mode"] == self.mode:
            return {**told, "reason": "the kernel is in that mode already"}
        if live["mode"] is None:
            return {**told, "reason": live["reason"]}
        program = self.module.get_bin_path("rdma")
        if not runs_here(self.tree) or program is None:
            return {**told, "reason": "the program rdma (iproute2) is not there" if program is None else "another root"}
        deadline = time.monotonic() + self.module.params["runtime_timeout"]
        while True:
            found, reason = network_namespaces.read(self.tree)
            if found is None:
                return {**told, "reason": f"it is not known which network namespaces exist: {reason}"}
            told["namespaces"] = [namespace["name"] for namespace in found]
            if not found and self.module.check_mode:
                return {**told, "tried": True, "reason": "check mode"}
            if not found:
                told["tried"] = True
                problem = self._set_netns(program)
                if problem is None:
                    return {**told, "switched": True}
                told["reason"] = problem
                if "busy" not in problem.lower():
                    return told
                told["reason"] += "; something that leaves no trace, like a socket, holds a network namespace"
            else:
                told["reason"] = f"other network namespaces exist: {', '.join(told['namespaces'][:20])}"
            if self.module.check_mode or time.monotonic() >= deadline:
                return told
            time.sleep(POLL_INTERVAL)

    def _set_netns(self, program: str) -> str | None:
        """Run the switch; returns what it said when it was refused. Fails when it claims to have worked and did not."""
        code, out, err = self.module.run_command([program, "system", "set", "netns", self.mode])
        if code != 0:
            return (err or out).strip()[-500:] or f"rdma ended with code {code}"
        after = netns_mode.live(self.tree)
        if after["mode"] != self.mode:
            self.fail(
                f"rdma system set netns {self.mode} succeeded, but the kernel is in mode {after['mode']} "
                f"({netns_mode.LIVE_FILE}). {netns_mode.OUR_FILE} sets mode {self.mode} for the next boot."
            )
        return None


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "mode": {"type": "str", "choices": ["shared", "exclusive"], "required": True},
            "root": {"type": "path", "default": "/"},
            "take_over": {"type": "bool", "default": False},
            "other_owners": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "owner": {"type": "str", "required": True},
                    "path": {"type": "str", "required": True},
                    "mode": {"type": "str"},
                    "remedy": {"type": "str"},
                },
            },
            "runtime": {"type": "bool", "default": False},
            "runtime_timeout": {"type": "int", "default": 30},
        },
        supports_check_mode=True,
    )
    if not 0 <= module.params["runtime_timeout"] <= 3600:
        module.fail_json(msg=f"runtime_timeout is {module.params['runtime_timeout']}, allowed is 0 to 3600 seconds")
    module.run_command_environ_update = {"LANG": "C", "LC_ALL": "C"}
    setter = Setter(module)
    setter.check()
    changes = setter.plan()
    difference = setter.diff(changes)
    if not module.check_mode:
        setter.apply(changes)
    runtime = setter.switch()
    written = bool(changes or setter.arguments["changes"] or setter.arguments["command"])
    module.exit_json(
        changed=written or runtime["switched"] or (module.check_mode and runtime["tried"]),
        configured_before=netns_mode.configured(setter.files)["mode"],
        runtime=runtime,
        live=netns_mode.live(setter.tree)["mode"],
        diff=difference,
        **shown(setter.result),
    )


if __name__ == "__main__":
    main()
