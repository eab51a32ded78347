# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One executable Python file that prints the node facts, made of the modules that the module rdma_facts runs.

Ansible's setup runs executables in ``/etc/ansible/facts.d`` and takes their JSON as ``ansible_local``. The file is text,
so that whoever finds it on a node can read it, and the same input gives the same bytes on every controller.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path

PACKAGE = "ansible_collections.railyard.rdma.plugins.module_utils"
_ENTRY = "node_facts"
_HERE = Path(__file__).resolve().parents[1] / "module_utils"
# Of the child's answer to the one line that Ansible reads. Half a gigabyte of facts is an error of this program.
_LIMIT = 512 * 1024 * 1024

_HEAD = '''\
#!/usr/bin/python3
# Made by the role railyard.rdma.node_facts from the sources of the collection railyard.rdma; changes here get lost.
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Print the RDMA state of this node as JSON: rdma.fact [ROOT]"""

import importlib.abc
import importlib.util
import json
import os
import select
import signal
import sys
import time

PACKAGE = {package!r}
SETTINGS = json.loads({settings!r})
SOURCES = {{}}


class Embedded(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports the sources below; the packages above them are empty."""

    def find_spec(self, name, path=None, target=None):
        if name in SOURCES or self.is_package(name):
            return importlib.util.spec_from_loader(name, self, is_package=self.is_package(name))
        return None

    def is_package(self, name):
        return any(source.startswith(name + ".") for source in SOURCES)

    def get_source(self, name):
        return SOURCES.get(name, "")

    def get_code(self, name):
        return compile(self.get_source(name), name.rpartition(".")[2] + ".py", "exec", dont_inherit=True)


def facts(root):
    sys.meta_path.insert(0, Embedded())
    gather = importlib.import_module(PACKAGE + ".node_facts").gather
    tree = importlib.import_module(PACKAGE + ".sysfs").Tree(root)
    return gather(tree, rails=SETTINGS["rails"], read_images=SETTINGS["boot_images"])


def child(root, out):
    """Write the facts to ``out``; also what went wrong is JSON, since Ansible shows anything else as an error text."""
    try:
        answer = json.dumps(facts(root))
    except BaseException as error:
        answer = failure("%s: %s" % (type(error).__name__, error))
    with os.fdopen(out, "w") as stream:
        stream.write(answer)


def failure(reason):
    return json.dumps({{"schema": None, "reason": reason[:1000]}})


def main():
    """Read in a child, so that a file that never answers cannot hold up every play: the child is killed in time, and
    when the kernel does not even let it die, this process ends without it."""
    root = sys.argv[1] if len(sys.argv) > 1 else "/"
    source, out = os.pipe()
    number = os.fork()
    if not number:
        os.close(source)
        try:
            # Whoever reads the output waits for the last process that has it open.
            silent = os.open(os.devnull, os.O_RDWR)
            os.dup2(silent, 1)
            os.dup2(silent, 2)
            child(root, out)
        finally:
            os._exit(0)
    os.close(out)
    deadline = time.monotonic() + SETTINGS["timeout"]
    parts = []
    size = 0
    while size < {limit}:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([source], [], [], left)[0]:
            os.kill(number, signal.SIGKILL)
            print(failure("reading took more than %s seconds and was ended" % SETTINGS["timeout"]))
            return
        part = os.read(source, 1 << 16)
        if not part:
            break
        parts.append(part)
        size += len(part)
    text = b"".join(parts).decode("utf-8", "replace")
    try:
        json.loads(text)
    except ValueError:
        text = failure("the reading process ended early")
    print(text)


'''
_TAIL = """
if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        print(failure("%s: %s" % (type(error).__name__, error)))
"""


def build(rails=(), boot_images: bool = False, timeout: float = 30, folder: Path | None = None) -> str:
    """Return the text of the script.

    :param rails: the intended rails, dicts with ``rail`` and ``pci`` or ``netdev``, for the fact ``rails``.
    :param boot_images: read the boot images as well.
    :param timeout: seconds after which reading is ended and the script prints ``{"schema": null, "reason": …}``.
    :param folder: the module_utils of the collection, for tests.
    :raises ValueError: timeout is not a positive number, or a rail is not a dict of plain values.
    :raises OSError: a source cannot be read.
    """
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout <= 3600:
        raise ValueError(f"timeout: got {timeout!r}, allowed are numbers above 0 up to 3600 (seconds)")
    try:
        settings = {"boot_images": bool(boot_images), "rails": list(rails), "timeout": timeout}
        text = json.dumps(settings, sort_keys=True)
    except TypeError as error:
        raise ValueError(f"rails: got something that is no list of plain dicts: {error}") from error
    for rail in settings["rails"]:
        if not isinstance(rail, dict):
            raise ValueError(f"rails: got {rail!r:.60}, allowed are dicts with rail and pci or netdev")
    sources = _closure(folder or _HERE)
    parts = [_HEAD.format(package=PACKAGE, settings=text, limit=_LIMIT)]
    for name in sorted(sources):
        lines = "".join(f"    {ascii(line)}\n" for line in sources[name].splitlines(keepends=True))
        parts.append(f"SOURCES[PACKAGE + {'.' + name!r}] = (\n{lines})\n")
    return "".join(parts) + _TAIL


def _closure(folder: Path) -> dict[str, str]:
    """The sources of the entry and of all modules of the package that it imports: ``{name: text}``."""
    sources: dict[str, str] = {}
    todo = [_ENTRY]
    while todo:
        name = todo.pop()
        if name not in sources:
            sources[name] = _source(folder, name).read_text(encoding="utf-8")
            todo += _imports(sources[name], folder)
    return sources


def _source(folder: Path, name: str) -> Path:
    return folder.joinpath(*name.split(".")).with_suffix(".py")


def _imports(source: str, folder: Path) -> list[str]:
    """The modules below the package that a source imports, anywhere in it, as ``boot.initramfs``."""
    found = []
    for node in ast.walk(ast.parse(source)):
        module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        if not module.startswith(PACKAGE + "."):
            continue
        name = module[len(PACKAGE) + 1 : -1]
        if name and _source(folder, name).exists():
            found.append(name)
        else:  # a package: what is imported from it are modules
            found += [f"{name}.{alias.name}".lstrip(".") for alias in node.names]
    return found
