# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What went wrong, from the lines in which NCCL, the test, mpirun and ssh say it, nearest to the cause first."""

from __future__ import annotations

import re

from ansible_collections.railyard.rdma.plugins.plugin_utils.nccl.lines import Line

# Kinds in the order of how near they are to a cause: one cause gives many lines, and the first kind names the job's reason.
_KINDS: tuple[tuple[str, re.Pattern], ...] = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("launcher", r"^railyard-error: "),
        ("no_program", r"\b(?:command not found|could not find (?:the )?executable|No such file or directory)\b"),
        ("slots", r"not enough slots available|All nodes which are allocated for this job are already filled"),
        ("ssh", r"Permission denied \(|Host key verification failed|Could not resolve hostname|ssh: connect to host"),
        ("address", r"No route to host|Network is unreachable"),
        ("gid", r"ibv_modify_qp failed with (?:error )?(?:19\b|61\b|22\b|No such device|No data available|Invalid argument)"),
        ("unreachable", r"ibv_modify_qp failed with (?:error )?(?:110\b|113\b|101\b|Connection timed out)"),
        ("queue_pair", r"ibv_(?:modify|create)_qp failed"),
        ("memlock", r"(?:ibv_(?:reg_mr|create_cq|reg_dmabuf_mr)\w*|ibv_alloc_pd) failed|Cannot allocate memory|locked memory"),
        ("completion", r"Got completion (?:from peer|with error)"),
        ("gpu_memory", r"CUDA failure.*out of memory|Test CUDA failure .*out of memory"),
        ("gpu", r"Test CUDA failure|CUDA failure|CUDA driver version is insufficient|Invalid number of GPUs"),
        ("killed", r"exited on signal|out-of-memory|OOM|signal 9 \(Killed\)"),
        ("timeout", r"Test timeout \("),
        ("bootstrap", r"socketStartConnect|Connection refused|connection closed by remote peer|Call to connect"),
        ("nccl", r"Test NCCL failure|nccl(?:System|UnhandledCuda|Internal|Remote|InvalidUsage|InvalidArgument)Error"),
        ("test", r": Test failure |^\s*\.\. \S+ pid"),
        ("mpi", r"ORTE was unable|PRTE|mpirun (?:detected|noticed|was unable)|prterun"),
    )
)  # fmt: skip
_ERRNO = re.compile(r"failed with (?:error )?([0-9]{1,4})\b")
_DEVICE = re.compile(r"on dev ([^\s:,]{1,128}):([0-9]{1,3})")
_GIDS = re.compile(r"local GID index (-?[0-9]{1,4}), local GID (\S{1,64}), remote GID (\S{1,64})")
MOST = 50  # different errors that are kept: a broken job repeats them for each rank and queue pair


def find_errors(lines: list[Line]) -> list[dict]:
    """``[{kind, text, host, rank, errno, device, gid_index, local_gid, remote_gid, count}]``, nearest cause first.

    Lines that say the same of the same device are one entry with their number. Information and retries are no errors.
    """
    found: dict[tuple, dict] = {}
    for line in lines:
        if line.level in ("INFO", "TRACE", "CALL") or line.text.lstrip().startswith("#"):
            continue
        kind = next((kind for kind, pattern in _KINDS if pattern.search(line.text)), None)
        if kind is None and line.level in ("WARN", "ABORT"):
            kind = "warning"
        if kind is None:
            continue
        entry = _entry(kind, line)
        key = (kind, entry["host"], entry["device"], entry["errno"], "" if entry["device"] else entry["text"])
        if key in found:
            found[key]["count"] += 1
        elif len(found) < MOST:
            found[key] = entry
    order = [kind for kind, _pattern in _KINDS] + ["warning"]
    return sorted(found.values(), key=lambda e: order.index(e["kind"]))


def _entry(kind: str, line: Line) -> dict:
    errno, device, gids = _ERRNO.search(line.text), _DEVICE.search(line.text), _GIDS.search(line.text)
    return {
        "kind": kind,
        "text": line.text.strip()[:400],
        "host": line.host,
        "rank": line.rank,
        "errno": int(errno[1]) if errno else None,
        "device": device[1] if device else None,
        "gid_index": int(gids[1]) if gids else None,
        "local_gid": gids[2].rstrip(",") if gids else None,
        "remote_gid": gids[3] if gids else None,
        "count": 1,
    }
