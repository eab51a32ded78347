# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Keeps the bytecode of modules that come in a zip archive, as Python does for files.

Ansible sends each of its modules with the sources of all that it imports, and compiling them is about half of what a
module costs. Machines that are here for tests run the same ones over and over: their Python loads this when it starts,
by a .pth file with ``import kept_zip_code``. Nothing is kept where the folder is not there.
"""

import contextlib
import importlib.util
import marshal
import os
import sys
import zipimport
from _imp import source_hash

FOLDER = f"{sys.pycache_prefix or '/var/cache'}/kept_zip_code"
# Bytecode is that of one version of Python.
VERSION = int.from_bytes(importlib.util.MAGIC_NUMBER, "little")
_compile = zipimport._compile_source


def _kept(path, source):
    place = f"{FOLDER}/{source_hash(VERSION, source).hex()}"
    with contextlib.suppress(OSError, EOFError, ValueError, TypeError), open(place, "rb") as stream:
        return marshal.loads(stream.read())
    code = _compile(path, source)
    with contextlib.suppress(OSError):  # such as a full disk
        with open(f"{place}.{os.getpid()}", "wb") as stream:
            stream.write(marshal.dumps(code))
        os.rename(stream.name, place)  # complete or not there
    return code


if os.path.isdir(FOLDER):
    zipimport._compile_source = _kept
