# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A rail model of two hosts, its NCCL job, and logs as launchers write them."""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.plugin_utils import catalogue, rail_model
from ansible_collections.railyard.rdma.plugins.plugin_utils.nccl import jobs, result

HOSTS = ("gpu-1", "gpu-2")
RAILS = [
    {"pci": "0000:0c:00.0", "netdev": "rdma0", "gpu_pci": "0000:0f:00.0"},
    {"pci": "0000:0c:00.1", "netdev": "rdma1", "gpu_pci": "0000:0f:00.0"},
]
INTENT = {"rails_shape": "BM.GPU.B4.8"}
OPTIONS = {"image": "registry.example/nccl-tests:1"}
TABLE = """\
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
  8589934592    2147483648     float     sum      -1  84524.1  101.63  {busbw}  {wrong:>6}  84890.4  101.19  {busbw}       0
# Out of bounds values : 0 OK
"""


def model(**intent):
    found, mistakes = rail_model.build({host: {**INTENT, **intent} for host in HOSTS})
    assert mistakes == [], [str(item) for item in mistakes]
    return found


def node(host, gpus="8"):
    return {"metadata": {"name": host}, "status": {"allocatable": {"nvidia.com/gpu": gpus} if gpus else {}}}


def plan(rails=None, hosts=HOSTS, gpus="8", **options):
    """(model, jobs) of a model with its options."""
    found = model(**(rails or {}))
    nodes = [node(host, gpus) for host in hosts]
    return found, jobs.plan(found, nodes, {}, catalogue.load(), {**OPTIONS, **options})


def log(job, network="IB", gdrdma=True, index=3, busbw="190.55", wrong=0, hca=None, tclass="unset", far=False, more=""):
    """A launcher's log: two rails merged into a NIC in each pod, one channel around."""
    lines = []
    for number, name in enumerate(jobs.worker_names(job)):
        for rail in (0, 1):
            row = index if number == 0 else 3
            gid = f"0000:0000:0000:0000:0000:ffff:c0a8:0{number}0{rail}"
            lines.append(
                f"railyard-rail host={name} interface=net{rail + 1} device=mlx5_{18 + rail} pci=0000:0c:00.{rail + 2} "
                f"pf=0000:0c:00.{rail} gid_index={row} gid={gid} class={tclass}"
            )
        said = f"{name}:1:2 [0] NCCL INFO "
        gpu = "da000" if far else "f000"
        lines += [
            said + "NET/IB : Using [0]mlx5_18:1/RoCE [1]mlx5_19:1/RoCE [RO]; OOB eth0:10.244.0.1<0>",
            said + f"NCCL_IB_HCA set to {hca or '=mlx5_18,mlx5_19'}",
            said + f"NCCL_IB_GID_INDEX set by environment to {index if number == 0 else 3}.",
            said + f"Using network {network}",
            said + f"ncclCommInitRankConfig comm 0x1 rank {number} nranks 2 cudaDev 0 nvmlDev 0 busId {gpu} commId 0x1",
            said + "NET/IB : Made virtual device [2] name=mlx5_18+mlx5_19 speed=200000 ndevs=2 rail=-1 plane=16385",
        ]
        how = "Socket/0" if network == "Socket" else "IB/2" + ("/GDRDMA/flush=Always" if gdrdma or number else "")
        lines.append(said + f"Channel 00/0 : {number}[0] -> {1 - number}[0] [send] via NET/{how}")
    return "\n".join([*lines, more, TABLE.format(busbw=busbw, wrong=wrong)])


def run(job, text, state="succeeded", reason=None):
    """What nccl_wait returns of a job."""
    pods = [{"name": name, "node": host, "role": "worker"} for name, host in zip(jobs.worker_names(job), job["hosts"])]
    return {"state": state, "reason": reason, "log": text, "key": None, "pods": pods}


def facts(rate=100, distance="PIX"):
    """Facts of a node, as far as the NCCL test reads them."""
    gpus = [{"pci": "0000:0f:00.0", "distance": distance}, {"pci": "0000:da:00.0", "distance": "SYS"}]
    return {"rails": [{"rail": number, "rate_gbps": rate, "gpus": gpus} for number in range(16)], "devices": {}}


def judged(text, state="succeeded", reason=None, rails=None, rate=100, expected=None, environment=None, **options):
    """(model, result) of one job with that log."""
    found, planned = plan(rails, environment=environment or {}, **options)
    runs = {job["name"]: run(job, text(job) if callable(text) else text, state, reason) for job in planned}
    options = {"expected_gbs": expected, "ratio": 0.85, "environment": environment or {}}
    told = dict.fromkeys(HOSTS, facts(rate) if rate else None)
    return found, result.build(planned, runs, found, told, catalogue.load(), options)
