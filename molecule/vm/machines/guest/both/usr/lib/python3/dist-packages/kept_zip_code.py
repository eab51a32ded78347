# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Keeps the bytecode of modules that come in a zip archive, as Python does for files.

Ansible sends each of its modules with the sources of all that it imports, and compiling them is half of what a module
costs on an emulated CPU. kept_zip_code.pth loads this when Python starts.
"""

import marshal
import os
import zipimport
from _imp import source_hash

FOLDER = "/var/cache/kept_zip_code"
_compile = zipimport._compile_source


def _kept(path, source):
    place = f"{FOLDER}/{source_hash(0, source).hex()}"
    try:
        with open(place, "rb") as stream:
            return marshal.loads(stream.read())
    except FileNotFoundError:
        pass
    code = _compile(path, source)
    os.makedirs(FOLDER, exist_ok=True)
    with open(f"{place}.{os.getpid()}", "wb") as stream:
        stream.write(marshal.dumps(code))
    os.rename(stream.name, place)  # complete or not there
    return code


zipimport._compile_source = _kept
