# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook C(render): what it writes, what it leaves alone, and how it refuses a wrong inventory."""

from __future__ import annotations

import re
import shutil
import textwrap

from tests.golden.conftest import EXAMPLES, bundle, playbook

EXAMPLE = str(EXAMPLES / "a100-sriov-node")

# Ten different mistakes, and what the message must say about each.
TEN_MISTAKES = """\
---
rails_shape: BM.GPU.B4.8
rails:
  - {pci: 0000:47:00.0}
  - {pci: "0000:0C:00.1"}
  - {pci: "0000:6b:00.0"}
rails_network: ipvlan
rails_netns_mode: exclusive
rails_traffic_class: 300
rails_mtuu: 4220
rails_max_unavailable: 0%
rails_resource_name: rdma.vf
rails_externally_managed: "{{ not_there }}"
rails_pools:
  - {name: rails, subnet: 10.224.0.0/16, per_node_block_size: 2}
"""
MESSAGES = (
    r"rails\[0\]\.pci: got 2820\.0; allowed: a PCI address in quotes",
    r'rails\[1\]\.pci: got "0000:0C:00\.1"; allowed: a lower-case address .*; here 0000:0c:00\.1',
    r'rails\[2\]\.pci: got "0000:6b:00\.0"; allowed: a rail; 0000:6b:00\.0 is a front-end NIC',
    r"rails: got 3 rails; allowed: 16 rails",
    r'rails_netns_mode: got "exclusive"; allowed: shared or keep with rails_network ipvlan',
    r"rails_traffic_class: got 300; allowed: 0 to 255",
    r"rails_mtuu: got 4220; allowed: no such variable; did you mean 'rails_mtu'\?",
    r'rails_max_unavailable: got "0%"; allowed: a number from 1, or "1%" to "100%"',
    r'rails_resource_name: got "rdma\.vf"; allowed: 1 to 63 letters',
    r"rails_externally_managed: got a template that fails; allowed: a value \(.*not_there.*undefined",
    r"rails_pools\[0\]\.subnet: got \"10\.224\.0\.0/16\"; allowed: a range apart from 10\.224\.0\.0/12",
)


def test_a_second_run_changes_nothing_and_foreign_files_stay(rendered, tmp_path):
    folder = tmp_path / "bundle"
    shutil.copytree(rendered("a100-sriov-node"), folder)
    (folder / "60-networkattachmentdefinition.yml").write_text("# Written by hand.\n")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    end = playbook("render.yml", "-i", EXAMPLE, "-e", f"render_dir={folder}")
    assert end.returncode == 0, end.stdout
    assert "changed=0 " in end.stdout
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_check_mode_shows_the_difference_and_writes_nothing(tmp_path):
    end = playbook("render.yml", "-i", EXAMPLE, "-e", f"render_dir={tmp_path / 'bundle'}", "--check", "--diff")
    assert end.returncode == 0, end.stdout
    assert "+kind: SriovNetwork" in end.stdout
    assert not (tmp_path / "bundle").exists()


def test_files_of_an_earlier_bundle_are_removed_and_changed_ones_restored(rendered, tmp_path):
    folder = tmp_path / "bundle"
    shutil.copytree(rendered("a100-sriov-node"), folder)
    (folder / "21-cidrpool.yml").write_bytes((folder / "20-ippool.yml").read_bytes())
    wanted = (folder / "10-nicclusterpolicy.yml").read_text()
    (folder / "10-nicclusterpolicy.yml").write_text(wanted.replace("26.7.1", "26.4.1"))
    end = playbook("render.yml", "-i", EXAMPLE, "-e", f"render_dir={folder}")
    assert end.returncode == 0, end.stdout
    assert "changed=1 " in end.stdout
    assert not (folder / "21-cidrpool.yml").exists()
    assert (folder / "10-nicclusterpolicy.yml").read_text() == wanted


def test_without_a_folder_it_says_what_to_set():
    end = playbook("render.yml", "-i", EXAMPLE)
    assert end.returncode != 0
    assert "render_dir is not set" in end.stdout + end.stderr


def test_the_files_are_in_order_of_application(rendered):
    kinds = [
        objects[0]["kind"] for name, objects in bundle(rendered("a100-sriov-node")).items() if name != "values.yaml"
    ]
    assert kinds == ["NicClusterPolicy", "IPPool", "SriovNetworkPoolConfig", "SriovNetworkNodePolicy", "SriovNetwork"]


def test_ten_mistakes_are_reported_in_one_go_before_any_task_on_a_node(tmp_path):
    inventory = tmp_path / "site"
    (inventory / "group_vars").mkdir(parents=True)
    (inventory / "hosts.yml").write_text((EXAMPLES / "a100-sriov-node" / "hosts.yml").read_text())
    (inventory / "group_vars" / "gpu_nodes.yml").write_text(TEN_MISTAKES)
    end = playbook("render.yml", "-i", str(inventory), "-e", f"render_dir={tmp_path / 'bundle'}")
    output = end.stdout + end.stderr
    assert end.returncode == 2
    assert not (tmp_path / "bundle").exists()
    assert f"{len(MESSAGES)} mistakes in the rails_* variables" in output
    for message in MESSAGES:
        assert re.search(message, output), message
    assert "Traceback" not in output
    recap = output[output.index("PLAY RECAP") :]
    assert re.findall(r"^(\S+)\s+: ok=", recap, re.MULTILINE) == ["localhost"]


def test_hosts_are_named_when_only_they_have_the_mistake(tmp_path):
    (tmp_path / "hosts.yml").write_text(
        textwrap.dedent("""\
            all:
              children:
                gpu_nodes:
                  vars:
                    rails_shape: BM.GPU.B4.8
                  hosts:
                    gpu-1:
                    gpu-2:
                      rails_traffic_class: -1
            """)
    )
    end = playbook("render.yml", "-i", str(tmp_path / "hosts.yml"), "-e", f"render_dir={tmp_path / 'bundle'}")
    assert end.returncode == 2
    assert "rails_traffic_class (on gpu-2): got -1; allowed: 0 to 255" in end.stdout + end.stderr
