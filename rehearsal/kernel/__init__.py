# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The simulated kernel of a rehearsal node: a sysfs of RDMA NICs over FUSE, with real interfaces behind it."""

from __future__ import annotations

from .serve import serve
from .spec import SpecError

__all__ = ["SpecError", "serve"]
