# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from rehearsal.kernel.devices import Devices
from rehearsal.kernel.pci import Address, roots, vf_offset
from rehearsal.kernel.spec import SpecError, node_guid, parse, pf_mac, rail_addresses


class NoInterfaces:
    def attach(self, netdev):
        pass

    def detach(self, netdev):
        pass


def test_address_round_trip_and_refusal():
    assert str(Address.parse("0000:c3:00.1")) == "0000:c3:00.1"
    for wrong in ("0000:C3:00.1", "c3:00.1", "0000:c3:00.8", 2820.0, None):
        with pytest.raises(ValueError, match="domain:bus:device"):
            Address.parse(wrong)


def test_vfs_of_both_ports_of_a_card_follow_its_pfs_without_collision():
    first, second = Address.parse("0000:0c:00.0"), Address.parse("0000:0c:00.1")
    offsets = [vf_offset(port, [first, second], 127) for port in (first, second)]
    assert str(first.at(offsets[0])) == "0000:0c:00.2"
    assert str(first.at(offsets[0] + 126)) == "0000:0c:10.0"
    assert str(second.at(offsets[1])) == "0000:0c:10.1"
    assert vf_offset(Address.parse("0000:5e:00.0"), [Address.parse("0000:5e:00.0")], 8) == 1


def test_a100_node_has_four_roots_with_two_gpus_each(make_spec):
    node = parse(make_spec("BM.GPU.B4.8"))
    groups = roots([port.address for port in node.ports if port.rail is not None], list(node.pairs))
    assert [[bus for _domain, bus in group] for group in groups] == [
        [0x0C, 0x0F, 0x15, 0x16],
        [0x47, 0x4B, 0x50, 0x53],
        [0x89, 0x8C, 0x91, 0x93],
        [0xC3, 0xD1, 0xD6, 0xDA],
    ]


def common_bridges(one: str, other: str) -> int:
    """How many steps below the host bridge two functions share."""
    pairs = zip(one.split("/")[2:-1], other.split("/")[2:-1])
    return sum(1 for a, b in pairs if a == b) if one.split("/")[1] == other.split("/")[1] else -1


def test_a_rail_is_nearest_to_its_own_gpu(make_spec):
    devices = Devices(parse(make_spec("BM.GPU.B4.8")), "shared", NoInterfaces(), 0)
    gpus = {gpu.pci: gpu.path for gpu in devices.gpus}
    assert len(gpus) == 8
    for pf in devices.pfs[:16]:
        own = next(str(gpu) for nic, gpu in devices.spec.pairs if nic == pf.spec.address)
        shared = {pci: common_bridges(pf.function.path, path) for pci, path in gpus.items()}
        # Own GPU: behind the same switch, four bridges down. The other one of the root: behind the switch above. Else: none.
        assert shared.pop(own) == 4
        assert sorted(shared.values()) == [-1] * 6 + [2]
    buses = [path.rpartition("/")[2] for path, _numa in devices.topology.bridges]
    assert len(buses) == len(set(buses))


def test_every_shape_of_the_catalogue_gives_distinct_names_paths_and_addresses(catalogue, make_spec):
    seen = 0
    for shape, entry in catalogue.items():
        if entry["nic"] is None or entry["nic"]["vendor"] != "15b3" or not entry["root_devices"]:
            continue
        seen += 1
        family = {"ipv4": "ipv4", "ipv6": "ipv6", "none": "none"}.get(entry["ip_family"], "ipv4")
        devices = Devices(parse(make_spec(shape, ip_family=family)), "shared", NoInterfaces(), 0)
        for pf in devices.pfs:
            if pf.spec.rail is not None:
                devices.write_num_vfs(pf, "2\n")
        ports = devices.ports()
        for key in (lambda p: p.rdma.name, lambda p: p.rdma.index, lambda p: p.function.pci, lambda p: p.netdev.name):
            values = [key(port) for port in ports]
            assert len(values) == len(set(values)), shape
        for port in ports:
            assert port.function.path.endswith(port.function.pci)
    assert seen > 15


def test_front_end_of_the_a100_node_gets_the_two_numbers_that_no_rail_has(make_spec):
    node = parse(make_spec("BM.GPU.B4.8"))
    front = {str(port.address): (port.rdma, port.netdev) for port in node.ports if port.rail is None}
    assert front == {"0000:6b:00.0": ("mlx5_0", "eth0"), "0000:6b:00.1": ("mlx5_13", "eth1")}
    assert [port.rdma for port in node.ports][:4] == ["mlx5_5", "mlx5_6", "mlx5_7", "mlx5_8"]


def test_front_end_may_be_given_with_its_names(make_spec):
    entry = {"pci": "0000:6b:00.0", "netdev": "ens300", "rdma": "mlx5_0"}
    second = {"pci": "0000:6b:00.1", "rdma": "mlx5_13"}
    node = parse(make_spec(front_end=[entry, second]))
    assert [(p.rdma, p.netdev) for p in node.ports[16:]] == [("mlx5_0", "ens300"), ("mlx5_13", "eth0")]
    assert node.ports[16].addresses == ("10.140.0.7/24",)


def test_addresses_differ_by_node_and_rail():
    mac = pf_mac(7, 0)
    assert rail_addresses("ipv4", 7, 0, mac) == ("10.224.0.225/12",)
    assert rail_addresses("ipv4", 8, 15, mac) == ("10.224.1.16/12",)
    assert rail_addresses("ipv6", 7, 0, mac) == ("2001:db8:7:1:e42:a1ff:fe00:700/64",)
    prefixes = {rail_addresses("ipv6", n, r, mac)[0].rsplit(":", 4)[0] for n in range(4) for r in range(4)}
    assert len(prefixes) == 16
    assert node_guid("0c:42:a1:65:1f:2c") == "0c42:a103:0065:1f2c"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"driver": "mofed"}, "driver: got 'mofed'"),
        ({"ip_family": "ipx"}, "ip_family: got 'ipx'"),
        ({"address": "somewhere"}, "address: got 'somewhere'"),
        ({"front_end": ["0000:0c:00.0"]}, "listed twice: 0000:0c:00.0"),
        ({"front_end": ["6b:00.0"]}, "PCI address '6b:00.0'"),
        ({"front_end": [{"pci": "0000:6b:00.0", "netdev": "rdma0"}]}, "netdev: got 'rdma0'"),
        ({"front_end": [{"pci": "0000:6b:00.0", "netdev": "a" * 16}]}, "netdev: got 'aaaa"),
    ],
)
def test_wrong_spec_says_what_is_wrong(make_spec, change, message):
    with pytest.raises(SpecError, match=message):
        parse(make_spec(**change))
