# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from builders_support import Root, make_archive


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory):
    if os.geteuid() != 0:
        pytest.skip("only root can run builders in another root")
    archive, reason = make_archive()
    if archive is None:
        pytest.skip(reason)
    return Root(archive, tmp_path_factory.mktemp("root"))


@pytest.fixture
def root(unpacked):
    """The root without images and without configuration of ours."""
    for path in (unpacked.path / "boot").iterdir():
        if path.name.startswith((".", "init")):
            path.unlink()
    for directory in ("etc/dracut.conf.d", "etc/modprobe.d"):
        for path in (unpacked.path / directory).glob("*.conf"):
            path.unlink()
    return unpacked
