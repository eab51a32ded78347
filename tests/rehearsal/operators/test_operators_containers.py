# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the simulated kubelet gives to a container: devices, GPUs near and far, and what stays behind."""

from __future__ import annotations

import pytest

from rehearsal.operators.containers import GPU_RESOURCE, gpus_of, has_ipc_lock, inside
from rehearsal.operators.kubelet import AdmissionError, allocate_gpus, is_kept

RAILS = [
    {"pci": "0000:0c:00.0", "gpu_pci": "0000:0f:00.0"},
    {"pci": "0000:2a:00.0", "gpu_pci": "0000:2d:00.0"},
    {"pci": "0000:89:00.0", "gpu_pci": "0000:8c:00.0"},
]
VFS = ["0000:0c:00.1", "0000:2a:00.1", "0000:89:00.1"]


def node(**changes) -> dict:
    return {"rails": RAILS, **changes}


@pytest.mark.parametrize("number", range(3))
def test_gpus_near_the_rails_and_far_from_them(number):
    near = allocate_gpus(1, node(), set(), [VFS[number]], "uid")
    assert near == [RAILS[number]["gpu_pci"]]
    far = allocate_gpus(1, node(gpus_far=1), set(), [VFS[number]], "uid")
    assert far != near


def test_gpus_of_another_pod_are_not_given_again():
    taken = {RAILS[0]["gpu_pci"]}
    assert RAILS[0]["gpu_pci"] not in allocate_gpus(2, node(), taken, VFS[:1], "uid")
    with pytest.raises(AdmissionError, match="Requested: 3, Available: 2"):
        allocate_gpus(3, node(), taken, VFS[:1], "uid")


@pytest.mark.parametrize(("device", "kept"), [(VFS[0], False), (VFS[1], True), (None, False), ("0000:ff:00.1", False)])
def test_the_vf_that_stays_in_a_pods_namespace(device, kept):
    assert is_kept(node(kept_vf=1), device) is kept
    assert is_kept(node(), device) is False


def pod(**security) -> dict:
    return {"spec": {"containers": [{"name": "probe", "securityContext": security}]}}


@pytest.mark.parametrize(
    ("security", "has"),
    [({}, False), ({"capabilities": {"add": ["IPC_LOCK"]}}, True), ({"privileged": True}, True),
     ({"capabilities": {"drop": ["ALL"]}}, False)],
    ids=str,
)  # fmt: skip
def test_who_has_ipc_lock(security, has):
    assert has_ipc_lock(pod(**security), "probe") is has


def test_the_command_line_of_a_container():
    sandbox = {"devices": {"nvidia.com/vf-0": VFS[:1], "nvidia.com/vf-1": VFS[1:2], GPU_RESOURCE: ["0000:2d:00.0"]}}
    words = inside(["sh", "-c", "x"], pod(), "probe", sandbox, node(refused_device=1))
    assert words[:4] == ["unshare", "--mount", "--propagation", "private"]
    assert words[-7:] == [f"{VFS[0]} {VFS[1]}", "1=0000:2d:00.0", "no", VFS[1], "sh", "-c", "x"]
    assert gpus_of(node()) == ["0000:0f:00.0", "0000:2d:00.0", "0000:8c:00.0"]
    words = inside(["true"], pod(), "probe", {}, node())
    assert words[-5:] == ["", "", "no", "", "true"]
