# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The probe's records as a file tree, so that the readers of the node facts read a pod as they read a node."""

from __future__ import annotations

import errno
import os

from ansible_collections.railyard.rdma.plugins.module_utils.cluster import probe
from ansible_collections.railyard.rdma.plugins.module_utils.rdma.gid import ZERO_GID
from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Reading, Tree


class ProbeTree(Tree):
    """A tree of what the probe gathered; everything else is absent.

    :param records: of probe.parse_records.

    Paths are those that the probe used: it walks the class folders and follows ``device``, ``physfn``, ``driver`` and
    ``virtfnN`` only.
    """

    def __init__(self, records):
        super().__init__("/", self._bytes)
        self._records = records
        self._children: dict = {}
        for path, (state, _lines) in records.items():
            while state != probe.ABSENT and path.count("/") > 0:
                parent, _slash, name = path.rpartition("/")
                if name in self._children.setdefault(parent, set()):
                    break
                self._children[parent].add(name)
                path = parent

    def _bytes(self, place):
        state, lines = self._records.get(place, (None, []))
        if state == probe.OK:
            return ("\n".join(lines) + "\n").encode("utf-8", "replace")
        if state == probe.EMPTY:
            return b""
        if state == probe.UNREADABLE:
            raise PermissionError(errno.EACCES, "exists and cannot be read", place)
        folder, _slash, name = place.rpartition("/")
        listed = self._records.get(folder, (None, []))
        if state is None and folder.endswith("/gids") and listed[0] == probe.DIR and name in listed[1]:
            return (ZERO_GID + "\n").encode()
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), place)

    def state(self, path):
        """How the probe found the path; None when it did not look."""
        return self._records.get(path, (None, []))[0]

    def path(self, path):
        return path

    def inside(self, path):
        state, lines = self._records.get(path, (None, []))
        return lines[0] if state == probe.LINK and lines else path

    def link_name(self, path):
        state, lines = self._records.get(path, (None, []))
        return lines[0].rstrip("/").rpartition("/")[2] or None if state == probe.LINK and lines else None

    def names(self, path):
        state, lines = self._records.get(path, (None, []))
        return sorted(lines) if state == probe.DIR else sorted(self._children.get(path, ()))

    def paths(self, prefix):
        """All record names that start with ``prefix``, sorted."""
        return sorted(path for path in self._records if path.startswith(prefix))

    def rows(self, path):
        return sorted((name for name in self.names(path) if name.isascii() and name.isdigit()), key=int)

    def exists(self, path):
        return self.state(path) not in (None, probe.ABSENT) or path in self._children

    def lines(self, path):
        """Lines of a record that is no file (the output of a command, a file of /proc); none when it is absent."""
        state, lines = self._records.get(path, (None, []))
        return list(lines) if state == probe.OK else []

    def read_at(self, place):
        reading = super().read_at(place)
        if reading.code == "EACCES":
            return Reading(None, f"{place} exists and cannot be read", "EACCES")
        return reading
