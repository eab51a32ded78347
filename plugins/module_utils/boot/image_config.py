# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The part of a boot image's files that decides on module options, kept while the image passes by.

Kept are the files of the five modprobe.d directories, booster's ``/etc/booster.init.yaml``, and the lists of modules
that an image loads by name: ``conf/modules`` of initramfs-tools, ``modules-load.d``, dracut's
``etc/cmdline.d/20-force_drivers.conf``, mkinitcpio's ``config``.
"""

from __future__ import annotations

import posixpath
import re

from ansible_collections.railyard.rdma.plugins.module_utils.boot.byte_stream import UnreadableImage
from ansible_collections.railyard.rdma.plugins.module_utils.netns.modprobe import DIRECTORIES

BOOSTER = "etc/booster.init.yaml"
_DIRECTORIES = tuple(directory[1:] for directory in DIRECTORIES)
_LISTS = re.compile(
    r"conf/modules|config|(?:etc|run|usr/lib|lib)/modules-load\.d/[^/]+\.conf|etc/cmdline\.d/[^/]+\.conf"
)
_MAXIMUM_FILE = 1 << 20
_MAXIMUM_KEPT = 16 << 20
_MAXIMUM_LINK = 4096
_MAXIMUM_LINKS = 40
_RDMA_MODULE = re.compile(r"(?:ib|rdma|iw|siw)(?:_.*)?|.*_ib|.*_rdma")


class Kept:
    """Files and links of one image.

    :param wanted: paths (without the first slash) of further files and directories to keep: where links lead to.
    """

    def __init__(self, wanted: frozenset = frozenset()) -> None:
        self._wanted = wanted
        self._second_pass = bool(wanted)
        self._files: dict[str, str] = {}
        self._links: dict[str, str] = {}
        self._hard: dict[tuple, dict] = {}
        self._room = _MAXIMUM_KEPT

    def wants(self, name: str, size: int, regular: bool, link: bool) -> bool:
        """Tell whether a member's data is to be kept; called for every member, since it may replace an earlier one."""
        self._links.pop(name, None)
        self._files.pop(name, None)
        if link:
            return 0 < size <= _MAXIMUM_LINK
        if not regular or size > _MAXIMUM_FILE:
            return False
        return (
            (name.endswith(".conf") and posixpath.dirname(name) in _DIRECTORIES)
            or name == BOOSTER
            or bool(_LISTS.fullmatch(name))
            or name in self._wanted
            or posixpath.dirname(name) in self._wanted
        )

    def put(self, name: str, text: str, link: bool) -> None:
        """Keep a member's data; of a link that is its target."""
        self._room -= len(name) + len(text)
        if self._room < 0:
            raise UnreadableImage(f"too large: more than {_MAXIMUM_KEPT >> 20} MiB of configuration and links in it")
        (self._links if link else self._files)[name] = text

    def hard_link(self, name: str, key: tuple, size: int) -> None:
        """Note one of several names of a file; only one of them comes with the data."""
        self._room -= len(name)
        group = self._hard.setdefault(key, {"names": [], "data": None})
        group["names"].append(name)
        if size:
            group["data"] = name

    def end_of_archive(self) -> None:
        """Give names without data the place where their data is, as if they were symbolic links to it. Inodes are
        only meant within one archive."""
        for group in self._hard.values():
            for name in group["names"]:
                if group["data"] not in (None, name):
                    self._files.pop(name, None)
                    self._links[name] = "/" + group["data"]
        self._hard = {}

    def missing(self) -> frozenset:
        """Return the paths of files and directories that links lead to and that were not kept."""
        wanted = set()
        for directory in _DIRECTORIES:
            place = self._resolve(directory)
            if place is not None and place not in _DIRECTORIES:
                wanted.add(place)
        for name in [BOOSTER, *self._config_links()]:
            place = self._resolve(name)
            if place is not None and place != name and place not in self._files:
                wanted.add(place)
        return frozenset(wanted)

    def _config_links(self) -> list[str]:
        return [
            name for name in self._links if name.endswith(".conf") and posixpath.dirname(name) in self._config_places()
        ]

    def _config_places(self) -> set:
        return {self._resolve(directory) for directory in _DIRECTORIES} | set(_DIRECTORIES)

    def _resolve(self, name: str) -> str | None:
        """Follow all links of a path; None when they go round in circles."""
        todo = [part for part in name.split("/") if part][::-1]
        done: list[str] = []
        followed = 0
        while todo:
            part = todo.pop()
            if part == ".":
                continue
            if part == "..":
                del done[-1:]
                continue
            done.append(part)
            target = self._links.get("/".join(done))
            if target is None:
                continue
            followed += 1
            if followed > _MAXIMUM_LINKS:
                return None
            done = [] if target.startswith("/") else done[:-1]
            todo.extend([piece for piece in target.split("/") if piece][::-1])
        return "/".join(done)

    def told(self) -> dict:
        """Return ``{config, force_loaded, booster, booster_kernels}``, see initramfs.read_image."""
        booster = self._text(BOOSTER)
        if booster is not None:
            parsed = parse_booster(booster)
            return {
                "config": parsed["config"],
                "force_loaded": [name for name in parsed["force_load"] if _RDMA_MODULE.fullmatch(name)],
                "booster": True,
                "booster_kernels": parsed["kernels"],
            }
        config: dict[str, str] = {}
        seen = set()
        for directory in _DIRECTORIES:
            place = self._resolve(directory)
            if place is None or place in seen:
                continue
            seen.add(place)
            for name in sorted({*self._files, *self._links}):
                if posixpath.dirname(name) == place and name.endswith(".conf"):
                    # A dangling link (also one to /dev/null) hides its namesakes like an empty file.
                    config[f"/{directory}/{posixpath.basename(name)}"] = self._text(name) or ""
        return {"config": config, "force_loaded": self._force_loaded(), "booster": False}

    def _text(self, name: str) -> str | None:
        place = self._resolve(name)
        return None if place is None else self._files.get(place)

    def _force_loaded(self) -> list[str]:
        names: set[str] = set()
        for path, text in self._files.items():
            if not _LISTS.fullmatch(path):
                continue
            if path == "config":
                for value in re.findall(r"^(?:MODULES|_optaddmodules)=[\"']?([^\"'\n]*)", text, re.MULTILINE):
                    names.update(value.split())
            elif path.startswith("etc/cmdline.d/"):
                for value in re.findall(r"(?:^|\s)rd\.driver\.(?:pre|post)=(\S+)", text):
                    names.update(value.split(","))
            else:
                lines = (line.split("#")[0].split() for line in text.splitlines())
                names.update(words[0] for words in lines if words and not words[0].startswith(";"))
        names = {name.replace("-", "_") for name in names}
        return sorted(name for name in names if _RDMA_MODULE.fullmatch(name))


def parse_booster(text: str) -> dict:
    """Read what booster's own init reads: options by module, joined from modprobe.d at build time.

    booster (init/config.go, generator/kmod.go) writes YAML with the keys ``modprobeoptions`` (a map of module to
    options), ``modulesforceload`` (a list) and ``kernel``; its init adds the kernel line's options after them.

    :returns: ``{config, force_load, kernels}``; config as one modprobe.d file, which says the same.
    """
    options: list[str] = []
    force_load: list[str] = []
    kernels: list[str] = []
    key = ""
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        indented = line[0] in " \t"
        if not indented and not line.startswith("-"):
            key, _colon, value = line.partition(":")
            key = key.strip().lower()
            if key == "kernel" and value.strip():
                kernels.append(_scalar(value))
            continue
        if key == "modprobeoptions":
            module, colon, value = line.strip().partition(":")
            if colon and _scalar(value):
                options.append(f"options {_scalar(module)} {_scalar(value)}")
        elif key == "modulesforceload" and line.strip().startswith("-"):
            force_load.append(_scalar(line.strip()[1:]).replace("-", "_"))
    text = "".join(f"{line}\n" for line in options)
    return {"config": {"/etc/modprobe.d/booster.conf": text}, "force_load": force_load, "kernels": kernels}


def _scalar(text: str) -> str:
    """Read a YAML scalar of one line, as the generator writes them."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    if len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    return text
