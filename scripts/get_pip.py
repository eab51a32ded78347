# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stands in for the get-pip.py that ansible-test downloads: installs pip with the wheel that Python's ensurepip bundles.

ansible-test looks for it in its cache before it asks its own server, which closed networks do not reach. It makes an environment
for each test that needs packages, and removes pip from it afterwards. Installing pip takes far longer than using it, so it is
installed once for each version of Python, and the environments point to it.
"""

import ensurepip
import os
import runpy
import sys
import sysconfig
import tempfile
from pathlib import Path

# Run from its wheel, pip unpacks its certificates and leaves them; ansible-test hands on HOME but not TMPDIR.
scratch = Path.home() / ".ansible" / "tmp"
scratch.mkdir(parents=True, exist_ok=True)
tempfile.tempdir = str(scratch)

wanted = [word for word in sys.argv[1:] if not word.startswith("-")]
shared = Path.home() / ".ansible" / "test" / "pip" / "-".join([sysconfig.get_python_version(), *wanted])
if not shared.exists():
    fresh = tempfile.mkdtemp()
    wheel = next((Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl"))
    sys.path.insert(0, str(wheel))
    sys.argv = ["pip", "install", "--disable-pip-version-check", "--target", fresh, *wanted]
    try:
        runpy.run_module("pip", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code:
            raise
    shared.parent.mkdir(parents=True, exist_ok=True)
    os.rename(fresh, shared)
Path(sysconfig.get_path("purelib"), "shared-pip.pth").write_text(f"{shared}\n")
