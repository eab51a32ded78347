# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fetch the chart with Helm into a folder of its own, and remove such folders that a killed run has left."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
import time

from ansible.module_utils.common.process import get_bin_path
from ansible_collections.railyard.rdma.plugins.module_utils.operator import sources
from ansible_collections.railyard.rdma.plugins.module_utils.operator.chart import ChartError

PREFIX = "railyard-chart-"
# Seconds after which nobody reads a fetched chart any more: Helm reads it when it starts, right after the fetch.
ABANDONED = 900


def remove_abandoned(folder=None, now=time.time):
    """Remove folders of fetched charts that are ours and that no run uses any more. Returns their paths.

    What cannot be removed stays: this cleans up, and nothing depends on it.
    """
    folder = folder or tempfile.gettempdir()
    removed = []
    try:
        with os.scandir(folder) as entries:
            names = [entry.path for entry in entries if entry.name.startswith(PREFIX)]
    except OSError:
        return removed
    for path in names:
        try:
            found = os.lstat(path)
        except OSError:
            continue
        ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
        if ours and now() - found.st_mtime > ABANDONED:
            shutil.rmtree(path, ignore_errors=True)
            removed.append(path)
    return removed


def fetch(module, kind):
    """(path of the packed chart, folder to remove). Raises ChartError."""
    params = module.params
    remove_abandoned()
    folder = tempfile.mkdtemp(prefix=PREFIX)
    binary = params["helm_binary"]
    try:
        try:
            helm = binary if "/" in binary else get_bin_path(binary)
        except ValueError:
            raise ChartError(
                f"{binary} is not on the PATH; install Helm, or set network_operator_helm_binary"
            ) from None
        command = sources.pull_command(
            helm, params["chart"], kind, params["chart_repository"], params["version"], folder
        )
        try:
            # Not run_command: the module may run in the process of its task, without AnsibleModule.
            done = subprocess.run(  # pylint: disable=ansible-bad-function
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
            )
        except OSError as error:
            raise ChartError(f"{helm} cannot be run: {error.strerror}") from error
        found = [name for name in os.listdir(folder) if name.endswith((".tgz", ".tar.gz"))]
        if done.returncode or len(found) != 1:
            text = done.stderr or done.stdout or f"{len(found)} files instead of one"
            raise ChartError(
                sources.explain_pull(params["chart"], kind, params["chart_repository"], params["version"], text)
            )
        return os.path.join(folder, found[0]), folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
