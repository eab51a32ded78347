# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The catalogue: its data is sound, and slips in it are found."""

from __future__ import annotations

import copy

import pytest
import yaml
from ansible_collections.railyard.rdma.plugins.plugin_utils import catalogue
from hypothesis import given
from hypothesis import strategies as st


def test_the_data_loads_and_holds_usable_and_refused_shapes():
    shapes = catalogue.load()
    assert len(shapes) == 38
    assert len(catalogue.usable_names()) == 28
    b4 = shapes["BM.GPU.B4.8"]
    assert (b4["rails"], b4["mtu"], b4["qos"]["default_tclass"], b4["num_vfs_max_cloud"]) == (16, 4220, 41, 2)
    assert b4["pfs"][4]["pci"] == "0000:47:00.0"
    assert b4["cloud_instance_type"] is True
    assert shapes["Dell-PowerEdge-XE9680-H200"]["cloud_instance_type"] is False


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("BM.GPU.GB200.4", "InfiniBand"),
        ("Azure-ND-MI300X-v5", "InfiniBand"),
        ("DGX-H100", "InfiniBand"),
        ("AWS-p4d", "EFA"),
        ("BM.GPU.MI355X.8", "Pollara"),
        ("BM.GPU.RTXPRO.8", "no PCI map"),
        ("GCP-A4", "no PCI map"),
    ],
)
def test_shapes_that_cannot_be_prepared_are_listed_with_the_reason(name, reason):
    assert reason in catalogue.get(name)["refused"]
    assert name not in catalogue.usable_names()


def test_platforms_without_rail_map_take_their_devices_in_rail_order():
    assert [pf["rdma"] for pf in catalogue.get("GB200-NVL72-tray")["pfs"]] == ["mlx5_0", "mlx5_1", "mlx5_4", "mlx5_5"]


def test_an_unknown_name_gets_a_proposal_whatever_its_case():
    with pytest.raises(catalogue.CatalogueError, match=r"did you mean 'BM\.GPU\.B4\.8'"):
        catalogue.get("bm.gpu.b4.8")
    with pytest.raises(catalogue.CatalogueError) as error:
        catalogue.get("zzz")
    assert "did you mean" not in str(error.value)


SOUND = {
    "rails": 2,
    "nic": {"vendor": "15b3", "ports_per_card": 2},
    "root_devices": ["0000:0c:00.0", "0000:0c:00.1"],
    "rail_map": [{"rail": 0, "pci": "0000:0c:00.0"}, {"rail": 1, "pci": "0000:0c:00.1"}],
    "front_end_nics": ["0000:6b:00.0"],
    "sources": ["here"],
}


def changed(**parts) -> dict:
    return {**copy.deepcopy(SOUND), **parts}


def test_a_sound_entry_has_no_faults():
    assert catalogue.faults_of(SOUND, {"here": "a source"}) == []


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        (changed(root_devices=["0000:0c:00.0", 2820.0]), "2820.0 is not a string: quote it"),
        (changed(root_devices=["0000:0c:00.0", "0000:0C:00.1"]), "not a lower-case"),
        (changed(root_devices=["0000:0c:00.0", "0000:0c:00.0"]), "lists an address twice"),
        (changed(front_end_nics=["0000:0c:00.1"]), "both a rail and a front-end NIC"),
        (changed(rails=3), "root_devices has 2 entries, rails says 3"),
        (changed(nic={"vendor": "15b3", "ports_per_card": 1}), "card 0000:0c:00 of 1 port(s)"),
        (changed(rail_map=[{"rail": 1, "pci": "0000:0c:00.0"}]), "rail_map does not follow"),
        (changed(nic={"vendor": "1dd8"}), "no reason in 'refused'"),
        (changed(root_devices=[], rail_map=[]), "no reason in 'refused'"),
        (changed(sources=[]), "names no source"),
        (changed(sources=["elsewhere"]), "source 'elsewhere' is not described"),
    ],
)
def test_each_fault_of_an_entry_is_found(entry, fault):
    faults = catalogue.faults_of(entry, {"here": "a source"})
    assert any(fault in line for line in faults), faults


def test_faulty_data_stops_the_load(tmp_path):
    path = tmp_path / "shapes.yml"
    path.write_text(yaml.safe_dump({"sources": {}, "shapes": {"A": changed(rails=9)}}))
    with pytest.raises(catalogue.CatalogueError, match="A: root_devices has 2 entries, rails says 9"):
        catalogue.load(path)


@given(
    domain=st.integers(0, 0xFFFFFFFF), bus=st.integers(0, 255), device=st.integers(0, 31), function=st.integers(0, 7)
)
def test_every_address_as_the_kernel_prints_it_is_well_formed(domain, bus, device, function):
    text = f"{domain:04x}:{bus:02x}:{device:02x}.{function:d}"
    assert catalogue.PCI_ADDRESS.fullmatch(text)
    assert text.upper() == text or not catalogue.PCI_ADDRESS.fullmatch(text.upper())
    assert not catalogue.PCI_ADDRESS.fullmatch(text[:-1])
    assert not catalogue.PCI_ADDRESS.fullmatch(text + "0")


@given(st.text(max_size=16))
def test_other_text_is_an_address_only_if_it_parses_back_to_itself(text):
    if catalogue.PCI_ADDRESS.fullmatch(text):
        domain, bus, rest = text.split(":")
        device, function = rest.split(".")
        numbers = (int(domain, 16), int(bus, 16), int(device, 16), int(function))
        assert numbers[2] <= 31
        assert f"{numbers[1]:02x}:{numbers[2]:02x}.{numbers[3]}" == text.partition(":")[2]
