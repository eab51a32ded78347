# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the image builders of a rehearsal node have in common: cpio archives (newc), compression, kernel modules.

A real image of real files of this node, in the order of a real one: microcode as an uncompressed archive first, then
the root file system (kernel: Documentation/driver-api/early-userspace/buffer-format.rst).
"""

from __future__ import annotations

import gzip
import lzma
import os
import shlex
import shutil
import stat
import subprocess

INIT = b"#!/bin/sh\nmodprobe ib_core\nmount -o ro ${ROOT} /root\nexec run-init /root /sbin/init\n"
# Program and arguments that make what the builders make; gzip and xz are Python's own.
PROGRAMS = {
    "zstd": ["zstd", "-q", "-c", "-3"],
    "lz4": ["lz4", "-q", "-l", "-c", "-9"],  # the legacy frame: the only one that the kernel unpacks
}
COMPRESSIONS = ("gzip", "xz", *PROGRAMS)


class BuildError(Exception):
    """The image cannot be built; the text says why."""


def entry(number: int, name: str, mode: int, content: bytes = b"") -> bytes:
    """One cpio member, padded to four bytes."""
    raw = name.encode() + b"\0"
    fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(raw), 0)
    data = b"070701" + b"".join(b"%08X" % field for field in fields) + raw
    data += b"\0" * (-len(data) % 4) + content
    return data + b"\0" * (-len(data) % 4)


def archive(files: dict[str, bytes]) -> bytes:
    """The cpio archive of ``{path: content}`` with every folder before its files."""
    names = set(files)
    for name in files:
        while name := os.path.dirname(name):
            names.add(name)
    parts = []
    for number, name in enumerate(sorted(names), start=721):
        if name in files:
            mode = stat.S_IFREG | (0o755 if name == "init" else 0o644)
            parts.append(entry(number, name, mode, files[name]))
        else:
            parts.append(entry(number, name, stat.S_IFDIR | 0o755))
    parts.append(entry(720, "lib", stat.S_IFLNK | 0o777, b"usr/lib"))
    return b"".join(parts) + entry(0, "TRAILER!!!", 0)


def microcode() -> bytes:
    """The early archive, padded to 512 bytes as cpio does."""
    data = archive({"kernel/x86/microcode/AuthenticAMD.bin": b"DMA\0" + bytes(508)})
    return data + bytes(-len(data) % 512)


def image(files: dict[str, bytes], compression: str) -> bytes:
    """The whole image. BuildError when the compression cannot be had."""
    return microcode() + compress(archive(files), compression)


def compress(data: bytes, kind: str) -> bytes:
    """``data`` as gzip, xz (with the CRC32 that the kernel's unpacker needs), zstd, lz4 or cat (not at all)."""
    if kind == "gzip":
        return gzip.compress(data, 6, mtime=0)
    if kind == "xz":
        return lzma.compress(data, check=lzma.CHECK_CRC32, preset=1)
    if kind == "cat":
        return data
    if kind not in PROGRAMS:
        raise BuildError(f"compression {kind!r} is not known; there are {', '.join(COMPRESSIONS)}")
    if not shutil.which(PROGRAMS[kind][0]):
        raise BuildError(f"{kind} is not installed")
    done = subprocess.run(PROGRAMS[kind], input=data, capture_output=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"{kind} ended with {done.returncode}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def tree(folder: str, start: str = "/") -> dict[str, bytes]:
    """The files below a folder by their path from ``start``, without a leading slash. Empty where there is none."""
    files = {}
    for place, _folders, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            if os.path.isfile(path):
                with open(path, "rb") as stream:
                    files[os.path.relpath(path, start)] = stream.read()
    return files


def modules(version: str, wanted: set[str] | None, omitted: set[str] = frozenset()) -> dict[str, bytes]:
    """Module files of a kernel and its index: all (``wanted`` None), or the named ones with what they need."""
    base = f"/usr/lib/modules/{version}"
    try:
        with open(f"{base}/modules.dep", encoding="ascii") as stream:
            rows = dict(line.rstrip("\n").split(":", 1) for line in stream if ":" in line)
    except FileNotFoundError:
        raise BuildError(f"{base}/modules.dep is missing") from None
    needs = {path: rest.split() for path, rest in rows.items()}
    chosen: set[str] = set()
    queue = [path for path in needs if wanted is None or module_name(path) in wanted]
    while queue:
        path = queue.pop()
        if path not in chosen and module_name(path) not in omitted:
            chosen.add(path)
            queue += needs.get(path, [])
    files = {}
    for path in sorted(chosen):
        with open(f"{base}/{path}", "rb") as stream:
            files[f"usr/lib/modules/{version}/{path}"] = stream.read()
    index = "".join(f"{path}:{rows[path]}\n" for path in rows if path in chosen)
    files[f"usr/lib/modules/{version}/modules.dep"] = index.encode()
    return files


def module_name(path: str) -> str:
    """ib_core of kernel/drivers/infiniband/core/ib-core.ko.zst."""
    return os.path.basename(path).partition(".ko")[0].replace("-", "_")


def shell_variables(files: list[str], names: list[str]) -> dict[str, list[str]]:
    """The words of variables after a shell has read the files, as the builders read their configuration.

    BuildError when the shell cannot read one.
    """
    script = 'set -f\nfor f in "$@"; do . "$f" || exit 1; done\n'
    script += "".join(f'printf "%s\\0" "${{{name}}}"\n' for name in names)
    done = subprocess.run(["bash", "-c", script, "bash", *files], capture_output=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"{' '.join(files)}: {done.stderr.decode(errors='replace').strip()}")
    values = done.stdout.decode().split("\0")[: len(names)]
    return {name: value.split() for name, value in zip(names, values)}


def unpack_to(files: dict[str, bytes], folder: str) -> None:
    """Write the files below a folder, for a script that wants to change them."""
    for name, content in files.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as stream:
            stream.write(content)


def configuration_files(main: str, folders: list[str], suffix: str = "") -> list[str]:
    """A configuration file and those of its folders in order of their names; a name in a later folder wins."""
    found: dict[str, str] = {}
    for folder in folders:
        if os.path.isdir(folder):
            found.update({name: os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(suffix)})
    paths = [found[name] for name in sorted(found)]
    return ([main] if os.path.exists(main) else []) + paths


def quoted(command: list[str]) -> str:
    """A command as one would type it."""
    return " ".join(map(shlex.quote, command))
