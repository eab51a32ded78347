# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The operators on real rehearsal nodes: VFs in the node's sysfs, pods with namespaces, exec, deletion and reboot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from operators_support import Cluster

from rehearsal.operators import kinds
from rehearsal.operators.client import Api, read_kubeconfig
from rehearsal.operators.kinds import annotations_of
from rehearsal.operators.machines import Fleet

pytestmark = [
    pytest.mark.fleet,
    pytest.mark.skipif(os.geteuid() != 0, reason="makes network namespaces and FUSE mounts"),
]

ROOT = Path(__file__).parents[3]
SHAPE = {"node.kubernetes.io/instance-type": "BM.GPU.B4.8"}
RAILS = ["0000:0c:00.0", "0000:89:00.1"]
TUNING = '{"type": "tuning", "sysctl": {"net.ipv4.conf.IFNAME.arp_announce": "2", "net.ipv4.conf.all.rp_filter": "0"}}'
RDMA = '{"type": "rdma", "rdmaQoS": {"tc": 41}}'
PROBE = r"""
for i in net1 net2; do
  dev=$(ls /sys/class/net/$i/device/infiniband)
  pf=$(readlink -f /sys/class/net/$i/device/physfn)
  port=/sys/class/infiniband/$dev/ports/1
  echo "$i ${pf##*/} $(cat $port/gids/3) $(cat $port/gid_attrs/types/3)"
  cat /sys/class/infiniband/$dev/tc/1/traffic_class /proc/sys/net/ipv4/conf/$i/arp_announce
done
ls /sys/class/infiniband | wc -l
cat; exit 7
"""


def rehearsal(*words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rehearsal", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
async def cluster(tmp_path):
    rehearsal("up", "--state", str(tmp_path), "--nodes", "2", "--shape", "BM.GPU.B4.8", "--initial-mode", "exclusive")
    try:
        async with Api(tmp_path / "kubeconfig") as api:
            yield Cluster(api, Fleet(tmp_path), patience=120.0)
    finally:
        rehearsal("down", "--state", str(tmp_path))


async def execute(cluster: Cluster, pod: str, command: list[str], stdin: bytes) -> tuple[bytes, dict]:
    """Standard output and the final Status of a command in a pod, over the API's exec subresource."""
    server, headers, tls = read_kubeconfig(cluster.fleet.state / "kubeconfig")
    query = [("command", word) for word in command] + [
        ("stdin", "true"),
        ("stdout", "true"),
        ("stderr", "true"),
        ("container", "c"),
    ]
    url = server + kinds.POD.path("default", pod, "exec")
    out, status = b"", {}
    protocols = ("v5.channel.k8s.io",)
    async with cluster.api._session.ws_connect(
        url, params=query, protocols=protocols, headers=headers, ssl=tls or True
    ) as socket:
        await socket.send_bytes(b"\x00" + stdin)
        await socket.send_bytes(b"\xff\x00")
        async for message in socket:
            channel, data = message.data[0], message.data[1:]
            if channel == 1:
                out += data
            elif channel == 3:
                status = json.loads(data)
    return out, status


def gid_of(address: str) -> str:
    a, b, c, d = (int(part) for part in address.split("."))
    return f"0000:0000:0000:0000:0000:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}"


async def test_an_exclusive_pod_owns_its_rails_until_it_goes(cluster):
    await cluster.install()
    await cluster.ready_policy()
    await cluster.create(
        kinds.IP_POOL, "sriov-pool", {"subnet": "192.168.0.0/16", "perNodeBlockSize": 100, "gateway": "192.168.0.1"}
    )
    await cluster.network(f'{TUNING}, {RDMA}, {{"type": "sbr", "addSourceHints": true}}')
    await cluster.rails(nodeSelector=SHAPE, nicSelector={"vendor": "15b3", "rootDevices": RAILS})
    await cluster.offered("2", ("gpu-1", "gpu-2"))
    state = await cluster.get(kinds.SRIOV_STATE, "gpu-1")
    assert len(state["status"]["interfaces"]) == 18 and state["status"]["system"]["rdmaMode"] == "exclusive"

    await cluster.pod("one", "gpu-1", 2)
    rows = json.loads(annotations_of(await cluster.phase("one", "Running"))["k8s.v1.cni.cncf.io/network-status"])
    out, status = await execute(cluster, "one", ["sh", "-c", PROBE], b"from outside\n")
    lines = out.decode().splitlines()
    assert {line.split()[1] for line in (lines[0], lines[3])} == set(RAILS)
    for row, line in zip(rows[1:], (lines[0], lines[3])):
        assert line.split(maxsplit=3)[2:] == [gid_of(row["ips"][0]), "RoCE v2"]
    assert lines[1:3] == lines[4:6] == ["Global tclass=41", "2"]
    assert lines[6:] == ["2", "from outside"]  # in exclusive mode only its own devices
    assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "7"}]

    await cluster.api.delete(kinds.POD, await cluster.get(kinds.POD, "one", "default"))

    async def gone() -> bool:
        return await cluster.get(kinds.POD, "one", "default") == {}

    await cluster.until("pod gone", gone)
    machine = cluster.fleet.get("gpu-1")
    left = await machine.shell("ls /run/netns; ls /sys/class/net; cat /sys/class/infiniband/*/tc/1/traffic_class")
    assert "pod-" not in left and "rdma0v0" in left.split() and "rdma9v0" in left.split()
    assert left.count("Global tclass=0") == 2  # FC-57: what the plugin leaves behind

    before = machine.boot_id()
    await machine.run(["/sbin/reboot"])

    async def back() -> bool:
        status = (await cluster.get(kinds.NODE, "gpu-1"))["status"]
        boot_id = machine.boot_id()
        if boot_id in (None, before) or status["nodeInfo"]["bootID"] != boot_id:
            return False
        return await machine.shell(f"cat /sys/bus/pci/devices/{RAILS[0]}/sriov_numvfs") == "1\n"

    await cluster.until("VFs after the reboot", back)


async def test_more_vfs_on_a_real_node_drain_it(cluster):
    await cluster.install()
    await cluster.rails(nodeSelector=SHAPE, nicSelector={"vendor": "15b3", "rootDevices": RAILS})
    await cluster.offered("2", ("gpu-1", "gpu-2"))
    policy = await cluster.get(kinds.SRIOV_POLICY, "p")
    await cluster.api.patch(kinds.SRIOV_POLICY, policy, {"spec": {"numVfs": 2}})
    await cluster.offered("4", ("gpu-1", "gpu-2"))

    async def settled() -> bool:
        nodes = [await cluster.get(kinds.NODE, name) for name in ("gpu-1", "gpu-2")]
        return not any(node["spec"].get("unschedulable") for node in nodes)

    await cluster.until("both nodes uncordoned", settled)
