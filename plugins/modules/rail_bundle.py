#!/usr/bin/python
# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rail_bundle
short_description: Write rendered objects as a bundle of files
version_added: 0.1.0
author:
  - Railyard contributors (@railyard)
description:
  - Writes all files of a bundle in one call, each atomically and only when its content differs.
  - Removes files that an earlier bundle left in the folder and that this one does not have. Only files whose first line
    is O(mark) are taken for files of a bundle; others are never touched.
extends_documentation_fragment:
  - railyard.rdma.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
options:
  path:
    description:
      - Folder of the bundle. It is created when it does not exist.
    type: path
    required: true
  files:
    description:
      - The files of the bundle. Keys are file names without folders, values their text without the mark.
    type: dict
    required: true
  mark:
    description:
      - First line of every file of a bundle.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Write the bundle
  railyard.rdma.rail_bundle:
    path: bundle
    mark: "# Rendered by railyard.rdma."
    files:
      20-ippool.yml: "{{ lookup('ansible.builtin.template', 'ippool.yml.j2') }}"
"""

RETURN = r"""
files:
  description: What happened to each file.
  returned: success
  type: list
  elements: dict
  contains:
    path:
      description: Path of the file.
      type: str
    action:
      description: V(created), V(changed), V(unchanged) or V(removed).
      type: str
  sample:
    - path: bundle/20-ippool.yml
      action: created
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.railyard.rdma.plugins.module_utils import whole_file


def bad_names(names: list[str]) -> list[str]:
    """Return the names that are no plain file names."""
    return [name for name in names if name in ("", ".", "..") or "/" in name or "\0" in name]


def compare(existing: dict[str, str], wanted: dict[str, str], mark: str) -> list[tuple[str, str]]:
    """Return (file name, action) for each file that is wanted or that an earlier bundle left.

    :param existing: text of the files in the folder by name.
    :param wanted: text of the files of this bundle by name, mark included.
    """
    actions = []
    for name, text in wanted.items():
        if name not in existing:
            actions.append((name, "created"))
        else:
            actions.append((name, "unchanged" if existing[name] == text else "changed"))
    stale = (name for name, text in existing.items() if name not in wanted and text.split("\n", 1)[0] == mark)
    return actions + [(name, "removed") for name in sorted(stale)]


def read_texts(folder: str) -> dict[str, str]:
    """Return the text of the regular files in a folder by name; undecodable bytes stay what they are."""
    if not os.path.isdir(folder):
        return {}
    texts = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file():
                with open(entry.path, encoding="utf-8", errors="surrogateescape", newline="") as source:
                    texts[entry.name] = source.read()
    return texts


def argument_spec() -> dict:
    return {
        "path": {"type": "path", "required": True},
        "files": {"type": "dict", "required": True},
        "mark": {"type": "str", "required": True},
    }


def perform(module: AnsibleModule) -> None:
    folder, mark = module.params["path"], module.params["mark"]
    texts = {str(name): text for name, text in module.params["files"].items()}
    wrong = bad_names(list(texts))
    if wrong:
        module.fail_json(msg=f"files: keys must be plain file names; got {', '.join(map(repr, wrong))}")
    not_text = [name for name, text in texts.items() if not isinstance(text, str)]
    if not_text:
        module.fail_json(msg=f"files: values must be text; got something else for {', '.join(not_text)}")
    if "\n" in mark:
        module.fail_json(msg="mark: must be one line")
    wanted = {name: f"{mark}\n{text}" for name, text in texts.items()}
    try:
        existing = read_texts(folder)
        actions = compare(existing, wanted, mark)
        if not module.check_mode:
            os.makedirs(folder, exist_ok=True)
            for name, action in actions:
                path = os.path.join(folder, name)
                if action == "removed":
                    os.unlink(path)
                elif action != "unchanged":
                    data = wanted[name].encode("utf-8", "surrogateescape")
                    whole_file.replace(path, data, ".railyard-bundle-", keep_owner=True)
    except OSError as error:
        module.fail_json(msg=f"cannot write the bundle to {folder}: {error.filename or folder}: {error.strerror}")
    diff = [
        {
            "before_header": os.path.join(folder, name),
            "after_header": os.path.join(folder, name),
            "before": existing.get(name, ""),
            "after": "" if action == "removed" else wanted[name],
        }
        for name, action in actions
        if action != "unchanged"
    ]
    results = [{"path": os.path.join(folder, name), "action": action} for name, action in actions]
    module.exit_json(changed=bool(diff), files=results, diff=diff)


def main() -> None:
    perform(AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True))


if __name__ == "__main__":
    main()
