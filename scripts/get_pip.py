# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stands in for the get-pip.py that ansible-test downloads: installs pip from the wheel that Python's ensurepip bundles.

ansible-test looks for it in its cache before it asks its own server, which closed networks do not reach.
"""

import ensurepip
import runpy
import sys
import tempfile
from pathlib import Path

# Run from its wheel, pip unpacks its certificates and leaves them; ansible-test hands on HOME but not TMPDIR.
scratch = Path.home() / ".ansible" / "tmp"
scratch.mkdir(parents=True, exist_ok=True)
tempfile.tempdir = str(scratch)

wheel = next((Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl"))
sys.path.insert(0, str(wheel))
sys.argv = ["pip", "install", *[word for word in sys.argv[1:] if word not in ("--no-setuptools", "--no-wheel")]]
runpy.run_module("pip", run_name="__main__", alter_sys=True)
