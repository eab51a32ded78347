# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A tree of directories, files and links whose content depends on who asks. Pure data and callables, no FUSE here.

Every node says how long the caller's kernel may trust what it was told about the node (``lifetime``, seconds). It is 0
for everything that one network namespace sees and another does not, and for what can disappear: the page cache of names
is shared by all namespaces of a machine.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

FIXED = 60.0


@dataclass
class Caller:
    """Who asks: process id as the server sees it, user id, and the id of the network namespace (looked up late)."""

    pid: int
    uid: int
    find_netns: Callable[[int], int]
    _netns: int | None = None

    @property
    def netns(self) -> int:
        if self._netns is None:
            self._netns = self.find_netns(self.pid)
        return self._netns


class Node:
    """What a name stands for. ``visible`` decides per caller; None means always."""

    kind = 0
    permissions = 0o444

    def __init__(self, *, visible: Callable[[Caller], bool] | None = None, lifetime: float | None = None) -> None:
        self.visible = visible
        self.lifetime = lifetime if lifetime is not None else (FIXED if visible is None else 0.0)
        self.number = 0

    @property
    def mode(self) -> int:
        return self.kind | self.permissions

    def seen_by(self, caller: Caller) -> bool:
        return self.visible is None or self.visible(caller)


class File(Node):
    """A file as in sysfs: content made when it is read, an error code as OSError, writes handled as one text."""

    kind = stat.S_IFREG

    def __init__(
        self,
        read: Callable[[Caller], str] | str | None,
        write: Callable[[Caller, str], None] | None = None,
        **node,
    ) -> None:
        super().__init__(**node)
        self.content = (lambda _caller: read) if isinstance(read, str) else read
        self.store = write
        self.permissions = (0o444 if read is not None else 0) | (0o200 if write else 0)

    def read(self, caller: Caller) -> bytes:
        if self.content is None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        text = self.content(caller)
        return (text if text == "" or text.endswith("\n") else text + "\n").encode()

    def write(self, caller: Caller, data: bytes) -> None:
        if self.store is None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.store(caller, data.decode(errors="replace"))


class Link(Node):
    kind = stat.S_IFLNK
    permissions = 0o777

    def __init__(self, target: Callable[[Caller], str] | str, **node) -> None:
        super().__init__(**node)
        self.target = target

    def read(self, caller: Caller) -> str:
        return self.target if isinstance(self.target, str) else self.target(caller)


class Dir(Node):
    kind = stat.S_IFDIR
    permissions = 0o755

    def __init__(self, children: dict[str, Node] | None = None, **node) -> None:
        super().__init__(**node)
        self.children: dict[str, Node] = children if children is not None else {}

    def child(self, name: str, caller: Caller) -> Node | None:
        node = self.children.get(name)
        return node if node is not None and node.seen_by(caller) else None

    def entries(self, caller: Caller) -> Iterator[tuple[str, Node]]:
        for name, node in list(self.children.items()):
            if node.seen_by(caller):
                yield name, node

    def make_dir(self, name: str, caller: Caller) -> Node:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    def remove_dir(self, name: str, caller: Caller) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))


class Table(Dir):
    """Numbered files 0..size-1 that are made when somebody asks for them (GID rows)."""

    def __init__(self, size: int, row: Callable[[int], File], **node) -> None:
        super().__init__(**node)
        self.size, self.row = size, row

    def child(self, name: str, caller: Caller) -> Node | None:
        node = self.children.get(name)
        if node is None and name.isdecimal() and str(int(name)) == name and int(name) < self.size:
            node = self.children[name] = self.row(int(name))
        return node

    def entries(self, caller: Caller) -> Iterator[tuple[str, Node]]:
        for index in range(self.size):
            name = str(index)
            yield name, self.child(name, caller)


class Live(Dir):
    """A directory whose names are computed for every caller (interfaces of a network namespace)."""

    def __init__(self, names: Callable[[Caller], Iterable[tuple[str, Node]]], **node) -> None:
        super().__init__(**node)
        self.names = names

    def child(self, name: str, caller: Caller) -> Node | None:
        return dict(self.names(caller)).get(name)

    def entries(self, caller: Caller) -> Iterator[tuple[str, Node]]:
        yield from self.names(caller)


class Tree:
    """The whole file system; paths are relative to its root, without a leading slash."""

    def __init__(self) -> None:
        self.root = Dir()

    def dir(self, path: str) -> Dir:
        """The directory at ``path``; it and its parents are made when they are missing."""
        node = self.root
        for part in path.split("/") if path else ():
            node = node.children.setdefault(part, Dir())
        return node

    def put(self, path: str, node: Node) -> Node:
        parent, _, name = path.rpartition("/")
        self.dir(parent).children[name] = node
        return node

    def link(self, path: str, target: str, **node) -> None:
        """A relative link, both given from the root: sysfs has relative links only."""
        self.put(path, Link(posixpath.relpath(target, posixpath.dirname(path)), **node))

    def files(self, path: str, contents: dict[str, str | Callable[[Caller], str]]) -> None:
        for name, content in contents.items():
            self.put(f"{path}/{name}", File(content))

    def drop(self, path: str) -> None:
        parent, _, name = path.rpartition("/")
        self.dir(parent).children.pop(name, None)
