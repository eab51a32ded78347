# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read a Helm chart from a folder or an archive, without Helm and without unpacking it: its name and versions, the
default values of it and its sub-charts, the paths that its templates read, and its CustomResourceDefinitions.

Sources: the chart file structure of helm.sh/docs/topics/charts. Standard library and PyYAML only.
"""

from __future__ import annotations

import io
import os
import posixpath
import re
import tarfile

try:
    import yaml
except ImportError:  # The modules say so themselves.
    yaml = None

# Helm itself refuses files above 5 MiB inside of a chart (pkg/chart/loader/archive), and so do we.
LARGEST_FILE = 5 << 20
LARGEST_CHART = 100 << 20
# .Values.a.b and $.Values.a.b in a template.
REFERENCE = re.compile(r"\.Values((?:\.[A-Za-z_][A-Za-z0-9_]*)+)")
MOST_DEEP = 4


class ChartError(ValueError):
    """There is no usable chart at this place; the text says what and why."""


def kind_of(reference):
    """How a chart is named: ``oci``, ``url``, ``folder``, ``archive`` or ``name`` (to be looked up in a repository).

    A text that looks like a path is one, whether it exists or not; a plain name that exists as a file or folder is one,
    too, as Helm does it.
    """
    if reference.startswith("oci://"):
        return "oci"
    if reference.startswith(("http://", "https://")):
        return "url"
    path = local_path(reference)
    if os.path.isdir(path):
        return "folder"
    looks_like_path = path.startswith(("/", "./", "../")) or path.endswith((".tgz", ".tar.gz"))
    return "archive" if looks_like_path or os.path.isfile(path) else "name"


def local_path(reference):
    """The path that a reference of kind "folder" or "archive" means."""
    return os.path.expanduser(reference)


def files_of_folder(path):
    """{relative path: bytes} of the files of a chart folder that matter. Raises ChartError."""
    path = local_path(path)
    if not os.path.isdir(path):
        raise ChartError(f"{path} does not exist")
    if not os.path.isfile(os.path.join(path, "Chart.yaml")):
        raise ChartError(f"{path} is a folder without Chart.yaml, so it is no chart")
    found, total = {}, 0
    for folder, _folders, names in os.walk(path):
        for name in names:
            full = os.path.join(folder, name)
            relative = os.path.relpath(full, path).replace(os.sep, "/")
            if not matters(relative):
                continue
            try:
                size = os.path.getsize(full)
                total += size
                if size > LARGEST_FILE or total > LARGEST_CHART:
                    raise ChartError(f"{full}: {size} bytes are too many for a file of a chart")
                with open(full, "rb") as source:
                    found[relative] = source.read()
            except OSError as error:
                raise ChartError(f"{full} cannot be read: {error.strerror}") from error
    return found


def files_of_archive(path):
    """The same of a chart archive (``.tgz``); its one top folder is left out of the paths. Raises ChartError."""
    path = local_path(path)
    if not os.path.exists(path):
        raise ChartError(f"{path} does not exist")
    if os.path.isdir(path):
        raise ChartError(f"{path} is a folder, not an archive")
    try:
        with open(path, "rb") as source:
            return _members(source, path)
    except OSError as error:
        raise ChartError(f"{path} cannot be read: {error.strerror}") from error


def _members(source, path):
    found, total = {}, 0
    try:
        with tarfile.open(fileobj=source, mode="r:gz") as archive:
            for member in archive:
                name = posixpath.normpath(member.name).partition("/")[2]
                if not member.isfile() or not matters(name):
                    continue
                total += member.size
                if member.size > LARGEST_FILE or total > LARGEST_CHART:
                    raise ChartError(f"{path}: {member.name} has {member.size} bytes, too many for a file of a chart")
                found[name] = archive.extractfile(member).read()
    except (tarfile.TarError, EOFError, OSError) as error:
        raise ChartError(f"{path} is no readable chart archive: {error}") from error
    except Exception as error:
        if type(error).__name__ != "error" or type(error).__module__ != "zlib":
            raise
        raise ChartError(f"{path} is damaged: {error}") from error
    if "Chart.yaml" not in found:
        raise ChartError(f"{path} is an archive without Chart.yaml in its top folder, so it is no chart")
    return found


def matters(name):
    """Whether a file of a chart is worth reading: descriptions, values, templates, CRDs and packed sub-charts."""
    base = posixpath.basename(name)
    folders = name.split("/")[:-1]
    if folders and folders[-1] == "charts" and base.endswith((".tgz", ".tar.gz")):
        return True
    if base in ("Chart.yaml", "values.yaml"):
        return True
    return bool({"crds", "templates"} & set(folders)) and base.endswith((".yaml", ".yml", ".tpl", ".txt"))


def read(path, kind):
    """The chart at a path; kind as of kind_of. Raises ChartError.

    :returns: ``{name, version, app_version, kube_version, values, references, crds, sub_charts}``: values are the
        defaults with those of the sub-charts merged in as Helm does, references the paths (tuples) that templates read,
        crds ``[{name, sub_chart, spec, document}]``, sub_charts ``{name: condition or None}``.
    """
    if yaml is None:
        raise ChartError("the Python library PyYAML is missing")
    files = files_of_folder(path) if kind == "folder" else files_of_archive(path)
    return assemble(files, path)


def assemble(files, where, depth=0):
    """The chart of files ``{relative path: bytes}``."""
    if depth > MOST_DEEP:
        raise ChartError(f"{where}: sub-charts inside of sub-charts, {depth} deep")
    about = _mapping(files, "Chart.yaml", where)
    for key in ("name", "version"):
        if not isinstance(about.get(key), str) or not about[key]:
            raise ChartError(f"{where}: Chart.yaml has no {key} (a text)")
    values = _mapping(files, "values.yaml", where) if "values.yaml" in files else {}
    references = set()
    for name, data in files.items():
        if name.startswith("templates/"):
            for match in REFERENCE.finditer(data.decode("utf-8", "replace")):
                references.add(tuple(match.group(1).lstrip(".").split(".")))
    crds = [row for name in sorted(files) if name.startswith("crds/") for row in _crds(files[name], f"{where}/{name}")]
    wanted = {
        (row.get("alias") or row.get("name")): row for row in about.get("dependencies") or [] if isinstance(row, dict)
    }
    by_chart = {row.get("name"): alias for alias, row in wanted.items()}
    present = {}
    for folder, sub_files in _sub_charts(files, where).items():
        sub = assemble(sub_files, f"{where}/charts/{folder}", depth + 1)
        alias = by_chart.get(sub["name"], sub["name"])
        present[alias] = (wanted.get(alias) or {}).get("condition")
        own = values.get(alias)
        values[alias] = merged(sub["values"], own if isinstance(own, dict) else {})
        references |= {(alias, *reference) for reference in sub["references"]}
        crds += [{**row, "sub_chart": alias} for row in sub["crds"]]
    lacking = sorted(str(name) for name in set(wanted) - set(present))
    if lacking:
        raise ChartError(
            f"{where} lacks its sub-charts {', '.join(lacking)} in charts/; put them there (helm dependency build), or "
            "take the packed chart of the vendor's repository, which holds them"
        )
    return {
        "name": about["name"],
        "version": about["version"],
        "app_version": about.get("appVersion"),
        "kube_version": about.get("kubeVersion"),
        "values": values,
        "references": references,
        "crds": crds,
        "sub_charts": present,
    }


def enabled(condition, values):
    """Whether a sub-chart is on: the value at its condition (the first path that exists), true without one."""
    for path in (condition or "").split(","):
        found = values
        for key in path.strip().split("."):
            found = found.get(key) if isinstance(found, dict) else None
        if isinstance(found, bool):
            return found
    return True


def merged(base, over):
    """``over`` put over ``base`` key by key, as Helm coalesces values: maps are joined, all else is replaced; None
    takes the key away."""
    result = dict(base)
    for key, value in over.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merged(result[key], value)
        else:
            result[key] = value
    return result


def _mapping(files, name, where):
    try:
        found = yaml.load(files[name], Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError) as error:
        raise ChartError(f"{where}: {name} is no YAML: {' '.join(str(error).split())[:200]}") from error
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ChartError(f"{where}: {name} holds {type(found).__name__}, expected a mapping")
    return found


def _crds(data, where):
    try:
        documents = list(yaml.load_all(data, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except (yaml.YAMLError, ValueError) as error:
        raise ChartError(f"{where} is no YAML: {' '.join(str(error).split())[:200]}") from error
    rows = []
    for document in documents:
        if isinstance(document, dict) and document.get("kind") == "CustomResourceDefinition":
            name = (document.get("metadata") or {}).get("name")
            if isinstance(name, str) and isinstance(document.get("spec"), dict):
                rows.append({"name": name, "sub_chart": None, "document": document})
    return rows


def _sub_charts(files, where):
    """{folder or archive name: its files}."""
    found = {}
    for name, data in files.items():
        parts = name.split("/")
        if len(parts) == 2 and parts[0] == "charts" and parts[1].endswith((".tgz", ".tar.gz")):
            found[parts[1]] = _members(io.BytesIO(data), f"{where}/{name}")
        elif len(parts) > 2 and parts[0] == "charts":
            found.setdefault(parts[1], {})["/".join(parts[2:])] = data
    return {folder: inside for folder, inside in found.items() if "Chart.yaml" in inside}
