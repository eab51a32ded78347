# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The node's /dev/infiniband, as devtmpfs fills it: uverbs and umad of each RDMA device, VFs too, and rdma_cm.

Numbers of Documentation/admin-guide/devices.txt: 231 is InfiniBand, umad from minor 0, uverbs from 192; rdma_cm is a
misc device (10). Devices beyond the fixed minors get a dynamic major in the kernel; here they go on counting.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

INFINIBAND, UVERBS_BASE, UMAD_BASE = 231, 192, 0
RDMA_CM = (10, 58)


class DeviceNodes:
    """folder: the node's /dev/infiniband, None where nobody wants to see it."""

    def __init__(self, folder: Path | None, rdma_cm: bool) -> None:
        self.folder = folder
        if folder is not None and rdma_cm:
            self._make("rdma_cm", RDMA_CM)

    def add(self, index: int) -> None:
        """The nodes of the RDMA device with this index."""
        if self.folder is not None:
            self._make(f"uverbs{index}", (INFINIBAND, UVERBS_BASE + index))
            self._make(f"umad{index}", (INFINIBAND, UMAD_BASE + index), 0o600)

    def remove(self, index: int) -> None:
        for name in (f"uverbs{index}", f"umad{index}") if self.folder is not None else ():
            (self.folder / name).unlink(missing_ok=True)

    def _make(self, name: str, number: tuple[int, int], mode: int = 0o666) -> None:
        path = self.folder / name
        try:
            os.mknod(path, stat.S_IFCHR | mode, os.makedev(*number))
        except PermissionError:
            path.touch()  # a user namespace may not make devices; the name is what programs look for
        path.chmod(mode)
