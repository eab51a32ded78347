# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The limit for locked memory that container runtimes are configured to give to containers.

A runtime that is told nothing gives its own limits to its containers: that is no answer of this module, but of
:mod:`memlock`. Not seen here: NRI plugins, which may change the limits of single containers.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re

from ansible_collections.railyard.rdma.plugins.module_utils.host import toml_reader
from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree

_UNLIMITED = "unlimited"
_MOST = 2**64 - 1
_ULIMIT = re.compile(r"memlock=(-1|[0-9]{1,20})(?::(-1|[0-9]{1,20}))?")
_CRI_PLUGINS = ("cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime")  # of versions 1, 2, 3 and newer
_CONF_D = "/etc/containerd/conf.d"
_MOST_FILES = 100
_DEPTH = 20  # of tables that are merged; what counts here lies five deep


def _nothing(**more) -> dict:
    return {"soft": None, "source": None, "files": [], "reason": None, **more}


def option(arguments: list[str], *names: str) -> str | None:
    """Return the value of the last of some options in a command line (``--config X``, ``--config=X``)."""
    value = None
    for place, word in enumerate(arguments):
        name, equals, rest = word.partition("=")
        if name in names:
            value = rest if equals else arguments[place + 1] if place + 1 < len(arguments) else value
    return value


def parse_ulimit(text: str) -> int | str | None:
    """Return the soft limit of ``memlock=-1:-1`` (bytes or ``unlimited``), None for other limits and for what is not
    valid (github.com/docker/go-units, which CRI-O and Docker use)."""
    match = _ULIMIT.fullmatch(text.strip())
    if not match:
        return None
    soft = _limit(int(match.group(1)))
    hard = soft if match.group(2) is None else _limit(int(match.group(2)))
    if hard != _UNLIMITED and (soft == _UNLIMITED or soft > hard):
        return None
    return soft


def _limit(number: int) -> int | str:
    return _UNLIMITED if number < 0 or number >= _MOST else number


# --- CRI-O -----------------------------------------------------------------------------------------------------------


def read_crio(tree: Tree, arguments: list[str]) -> dict:
    """Return ``{soft, source, files, reason}`` of CRI-O's ``default_ulimits``; soft is None with a reason when they are
    not known, and without one when there are none.

    crio.conf first, then every file below crio.conf.d by name; a file that sets the list replaces it (crio.conf.d(5);
    UpdateFromPath in pkg/config/config.go of cri-o). The command line goes before the files.

    :param arguments: the command line of the running crio, empty when it is not running.
    """
    result = _nothing()
    given = option(arguments, "--default-ulimits")
    if given is not None:
        return _pick(result, given.split(","), "option --default-ulimits")
    main = option(arguments, "--config", "-c") or "/etc/crio/crio.conf"
    folder = option(arguments, "--config-dir", "-d")
    folder = "/etc/crio/crio.conf.d" if folder is None else folder
    limits, source = None, None
    for path in [main, *(_below(tree, folder) if folder else [])]:
        reading = tree.read(path)
        if reading.absent:
            continue
        result["files"].append(path)
        if reading.value is None:
            return {**result, "reason": f"{path}: {reading.reason}"}
        try:
            runtime = _dig(toml_reader.parse(reading.value), "crio", "runtime")
        except toml_reader.NotUnderstood as error:
            # What this file does not mention cannot be in it, read or not.
            if "default_ulimits" in reading.value:
                return {**result, "reason": f"{path}: {error}"}
            continue
        if "default_ulimits" in runtime:
            limits, source = runtime["default_ulimits"], path
    if limits is None:
        return result
    if not isinstance(limits, list) or not all(isinstance(limit, str) for limit in limits):
        return {**result, "reason": f"{source}: default_ulimits is no list of strings"}
    return _pick(result, limits, source)


def _pick(result: dict, limits: list[str], source: str | None) -> dict:
    ours = [limit for limit in limits if limit.strip().startswith("memlock=")]
    if not ours:
        return result
    soft = parse_ulimit(ours[-1])  # a later one replaces an earlier one of the same name
    if soft is None:
        return {**result, "reason": f"{source}: not a limit: {ours[-1]!r:.60}"}
    return {**result, "soft": soft, "source": source}


def _below(tree: Tree, folder: str, depth: int = 0) -> list[str]:
    """Return all files below a folder, depth first and by name, as filepath.Walk of Go does."""
    paths: list[str] = []
    for name in tree.names(folder):
        path = f"{folder}/{name}"
        inner = tree.names(path) if depth < 5 else []
        paths += _below(tree, path, depth + 1) if inner else [path]
    return paths[:_MOST_FILES]


# --- containerd ------------------------------------------------------------------------------------------------------


def read_containerd(tree: Tree, arguments: list[str]) -> dict:
    """Return ``{soft, source, files, reason, handlers}`` of containerd's ``base_runtime_spec`` for its default runtime.

    soft is None with a reason when it is not known, and without one when the configuration gives no such limit.
    handlers holds the limits of the other runtime handlers (``nvidia``) that have one.

    How files that are imported are put together has changed: a plugin's section replaces an earlier one, or is merged
    into it (mergeConfig in cmd/containerd/server/config/config.go), and 2.2 has ``conf.d`` among its defaults. Every way
    is tried, and an answer is given when all agree.
    """
    result = _nothing(handlers={})
    main = option(arguments, "--config", "-c") or "/etc/containerd/config.toml"
    try:
        documents = _load(tree, main, result["files"])
        extra = [f"{_CONF_D}/{name}" for name in tree.names(_CONF_D) if name.endswith(".toml")]
        extra = [path for path in extra if path not in result["files"]]
        more = [document for path in extra for document in _load(tree, path, result["files"])]
    except toml_reader.NotUnderstood as error:
        return {**result, "reason": str(error)}
    answers = []
    for chosen in (documents, documents + more) if more else (documents,):
        for merge in (_merged, _replaced):
            answer = _limits(tree, merge(chosen), result["files"])
            if answer not in answers:
                answers.append(answer)
    if len(answers) > 1:
        names = ", ".join(path for path in result["files"] if path.endswith(".toml"))
        return {**result, "reason": f"what counts depends on containerd's version: {names}"}
    return {**result, **answers[0]}


def _load(tree: Tree, main: str, files: list[str]) -> list[dict]:
    """Return the CRI plugin's sections of a file and of all that it imports, in the order of containerd."""
    documents = []
    pending, seen = [main], set(files)
    while pending:
        path = pending.pop(0)
        if path in seen:
            continue
        seen.add(path)
        reading = tree.read(path)
        if reading.absent:
            continue  # a default configuration; containerd would not have started with a missing import
        files.append(path)
        if reading.value is None:
            raise toml_reader.NotUnderstood(f"{path}: {reading.reason}")
        try:
            document = toml_reader.parse(reading.value)
        except toml_reader.NotUnderstood as error:
            raise toml_reader.NotUnderstood(f"{path}: {error}") from error
        plugins = _dig(document, "plugins")
        documents.append({"cri": next((plugins[name] for name in _CRI_PLUGINS if name in plugins), {})})
        imports = document.get("imports", [])
        if not isinstance(imports, list) or len(seen) > _MOST_FILES:
            raise toml_reader.NotUnderstood(f"{path}: imports cannot be followed")
        for pattern in imports:
            pending += _imported(tree, path, str(pattern))
    return documents


def _imported(tree: Tree, parent: str, pattern: str) -> list[str]:
    """Return what an import names; relative to its file, with wildcards in the last part."""
    path = os.path.normpath(pattern if pattern.startswith("/") else f"{os.path.dirname(parent)}/{pattern}")
    folder, _slash, name = path.rpartition("/")
    if any(letter in folder for letter in "*?["):
        raise toml_reader.NotUnderstood(f"{parent}: import {pattern!r:.80} cannot be followed")
    if "*" not in name:
        return [path]
    return [f"{folder}/{found}" for found in tree.names(folder) if fnmatch.fnmatchcase(found, name)]


def _replaced(documents: list[dict]) -> dict:
    sections = [document["cri"] for document in documents if document["cri"]]
    return sections[-1] if sections else {}


def _merged(documents: list[dict]) -> dict:
    result: dict = {}
    for document in documents:
        result = _merge(result, document["cri"])
    return result


def _merge(below, above, depth: int = 0):
    if not isinstance(below, dict) or not isinstance(above, dict) or depth > _DEPTH:
        return above
    return {**below, **{key: _merge(below.get(key), value, depth + 1) for key, value in above.items()}}


def _limits(tree: Tree, section: dict, files: list[str]) -> dict:
    containerd = _dig(section, "containerd")
    default = containerd.get("default_runtime_name", "runc")
    answer: dict = {"soft": None, "source": None, "reason": None, "handlers": {}}
    for name, runtime in _dig(containerd, "runtimes").items():
        path = runtime.get("base_runtime_spec") if isinstance(runtime, dict) else None
        if not path:
            continue
        if not isinstance(path, str):
            answer["reason"] = f"base_runtime_spec of {name} is no path"
            continue
        limit, reason = read_runtime_spec(tree, path)
        if path not in files:
            files.append(path)
        if name == default:
            answer.update({"soft": limit, "source": path if limit is not None else None, "reason": reason})
        elif limit is not None:
            answer["handlers"][name] = limit
    return answer


def read_runtime_spec(tree: Tree, path: str) -> tuple[int | str | None, str | None]:
    """Return the soft limit in an OCI runtime specification (``process.rlimits``), None when it has none or, with a
    reason, cannot be read."""
    reading = tree.read(path)
    if reading.value is None:
        return None, f"{path}: {reading.reason}"
    try:
        limits = _dig(json.loads(reading.value), "process").get("rlimits") or []
        ours = [limit for limit in limits if limit["type"] == "RLIMIT_MEMLOCK"]
        return (_limit(int(ours[-1]["soft"])) if ours else None), None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        return None, f"{path}: {type(error).__name__}: {error!s:.80}"


# --- Docker ----------------------------------------------------------------------------------------------------------


def read_docker(tree: Tree, arguments: list[str]) -> dict:
    """Return ``{soft, source, files, reason}`` of Docker's ``default-ulimits``, for clusters that run containers by
    cri-dockerd."""
    result = _nothing()
    given = [word for word in arguments if word.startswith("--default-ulimit")]
    if given:
        return {**result, "reason": f"option {given[0]!r:.60} is not read"}
    path = option(arguments, "--config-file") or "/etc/docker/daemon.json"
    reading = tree.read(path)
    if reading.absent:
        return result
    result["files"].append(path)
    if reading.value is None:
        return {**result, "reason": f"{path}: {reading.reason}"}
    try:
        document = json.loads(reading.value) if reading.value.strip() else {}
        limits = _dig(document, "default-ulimits", "memlock")
        soft = _limit(int(limits["Soft"])) if limits else None
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
        return {**result, "reason": f"{path}: {type(error).__name__}: {error!s:.80}"}
    return {**result, "soft": soft, "source": path if soft is not None else None}


def _dig(document, *keys: str) -> dict:
    """Return an inner table, an empty one when it or one on the way is not there."""
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document if isinstance(document, dict) else {}
