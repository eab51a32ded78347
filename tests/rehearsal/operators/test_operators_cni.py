# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plugin chains against a node in memory."""

from __future__ import annotations

import pytest
from operators_fakes import FakeMachine

from rehearsal.operators import cni, cni_main, cni_meta
from rehearsal.operators.ipam import Ipam
from rehearsal.operators.pools import allocate_ippool

INSTALLED = {"sriov", "tuning", "rdma", "sbr", "nv-ipam", "ipvlan", "host-device"}
POOL_SPEC = {"subnet": "192.168.0.0/16", "perNodeBlockSize": 100, "gateway": "192.168.0.1"}
POOL = {"spec": POOL_SPEC, "status": {"allocations": allocate_ippool(POOL_SPEC, ["n"], [])}}
SRIOV = {"type": "sriov", "ipam": {"type": "nv-ipam", "poolName": "sriov-pool"}}
TUNING = {"type": "tuning", "sysctl": {"net.ipv4.conf.IFNAME.arp_ignore": "1", "net.ipv4.conf.all.rp_filter": "0"}}
SBR = {"type": "sbr", "addSourceHints": True}


@pytest.fixture
def machine(tmp_path):
    return FakeMachine("n", tmp_path)


def call(machine, device="0000:0c:00.2"):
    ipam = Ipam("n", {}, lambda kind, name: POOL if name == "sriov-pool" else None)
    return cni.Call(machine, "pod-u", "net1", "u/net1", device, ipam)


async def test_a_chain_moves_names_tunes_and_routes(machine):
    notes: list[dict] = []
    result = await cni.add_chain(call(machine), [SRIOV, TUNING, SBR], INSTALLED, notes)
    assert result["ips"] == [{"address": "192.168.0.2/16", "gateway": "192.168.0.1"}]
    assert machine.scripts(cni_main.MOVE_IN) == [["rdma0v0", "pod-u"]]
    assert machine.scripts(cni_main.CONFIGURE) == [["rdma0v0", "net1", "", "-", "192.168.0.2/16", "--"]]
    assert machine.scripts(cni_meta.SBR) == [["100", "net1", "yes", "192.168.0.2", "192.168.0.0/16", "192.168.0.1"]]
    written = next(words for script, words, netns in machine.calls if "printf %s" in script and netns == "pod-u")
    assert written[:2] == ["/proc/sys/net/ipv4/conf/net1/arp_ignore", "1"]
    one = call(machine)
    await cni.delete_chain(one, [SRIOV, TUNING, SBR], notes)
    assert (
        machine.scripts(cni_main.MOVE_OUT) == [["net1", "rdma0v0"]]
        and one.ipam.store.get("ippool/sriov-pool", {"used": {}})["used"] == {}
    )


async def test_the_rdma_plugin_refuses_shared_mode(machine):  # FC-45
    with pytest.raises(
        cni.CniError,
        match=r'plugin type="rdma" failed \(add\): RDMA subsystem namespace awareness mode is set to shared',
    ):
        await cni.add_chain(call(machine), [SRIOV, TUNING, {"type": "rdma"}, SBR], INSTALLED, [])


@pytest.mark.parametrize(
    ("conf", "value"),
    [
        ({"type": "rdma"}, "0"),  # FC-60: no rdmaQoS writes class 0
        ({"type": "rdma", "rdmaQoS": {"tc": 41}}, "41"),
        ({"type": "rdma", "args": {"cni": {"rdmaQoS": {"tc": 41}}}}, "0"),  # FC-44: only the top level is read
    ],
)
async def test_the_traffic_class_that_is_written(machine, conf, value):
    machine.exclusive = True
    notes: list[dict] = []
    await cni.add_chain(call(machine), [SRIOV, conf], INSTALLED, notes)
    assert machine.traffic_class == f"Global tclass={value}"
    await cni.delete_chain(call(machine), [SRIOV, conf], notes)
    assert machine.traffic_class == "Global tclass=0"  # FC-57: an empty file was read as 0
    assert any("rdma dev set" in script and netns == "pod-u" for script, _, netns in machine.calls)


async def test_a_device_without_tc_folder_is_left_alone(machine):
    machine.exclusive = True
    machine._answer = lambda script, words: {
        cni_meta.RDMA_HOST: "mode N\ndevices 1 mlx5_18\ntos 0\nmoved yes\n",
        cni_main.LOOK_AT_DEVICE: "physfn\nnet v\n",
    }.get(script, "")
    notes: list[dict] = []
    await cni.add_chain(call(machine), [SRIOV, {"type": "rdma", "rdmaQoS": {"tc": 41}}], INSTALLED, notes)
    await cni.delete_chain(call(machine), [SRIOV, {"type": "rdma"}], notes)
    assert machine.scripts(cni_meta.RDMA_RESTORE) == [["mlx5_18", "0", ""]]


@pytest.mark.parametrize(
    ("chain", "device", "message"),
    [
        ([SRIOV], None, "VF pci addr is required"),  # FC-40
        ([TUNING], "x", "Required prevResult missing"),
        ([SBR], "x", "must be called as chained plugin"),
        ([SRIOV, {"type": "tuning", "sysctl": {"kernel.shmmax": "1"}}], "x", "invalid net sysctl key"),
        ([SRIOV, {"type": "tuning", "sysctl": {"net.ipv4.conf.all.rp_filter": 0}}], "x", "cannot unmarshal"),  # FC-73
        ([{**SRIOV, "ipam": {"type": "nv-ipam", "poolName": "other"}}], "x", 'configuration for pool "other"'),
        ([{"type": "bandwidth"}], "x", 'failed to find plugin "bandwidth" in path'),
        ([{"type": "sriov"}, SBR], "x", "No IP addresses supplied on interface: net1"),
    ],
)
async def test_what_plugins_refuse(machine, chain, device, message):
    with pytest.raises(cni.CniError, match=message.replace("(", r"\(")):
        await cni.add_chain(call(machine, device), chain, INSTALLED, [])


async def test_a_plugin_that_no_daemon_set_brought(machine):  # FC-43
    with pytest.raises(cni.CniError, match='failed to find plugin "tuning" in path'):
        await cni.add_chain(call(machine), [SRIOV, TUNING], {"sriov", "nv-ipam"}, [])


async def test_a_pf_in_a_vf_pool_is_refused(machine):  # FC-47
    machine._answer = lambda script, words: "net rdma0\n"
    with pytest.raises(cni.CniError, match="physfn: no such file"):
        await cni.add_chain(call(machine), [SRIOV], INSTALLED, [])


async def test_a_failed_chain_is_undone_from_its_notes(machine):
    machine.failures[cni_meta.SBR] = "RTNETLINK answers: File exists"
    notes: list[dict] = []
    one = call(machine)
    with pytest.raises(cni.CniError, match=r'plugin type="sbr" failed \(add\): RTNETLINK answers: File exists'):
        await cni.add_chain(one, [SRIOV, TUNING, SBR], INSTALLED, notes)
    await cni.delete_chain(one, [SRIOV, TUNING, SBR], notes)
    assert machine.scripts(cni_main.MOVE_OUT) == [["net1", "rdma0v0"]]
    assert one.ipam.store["ippool/sriov-pool"]["used"] == {}
