# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.host import container_config, memlock, systemd_units
from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree
from ansible_collections.railyard.rdma.tests.unit.plugins.module_utils.node_tree import LiveTree, NodeTree
from hypothesis import given
from hypothesis import strategies as st

UNIT = "/usr/lib/systemd/system"
CRIO_D = "/etc/crio/crio.conf.d"
LIMITS = "Limit Soft Hard Units\\nMax locked memory         {}              {}            bytes"


@pytest.fixture
def node(tmp_path):
    return NodeTree(tmp_path)


def runs(node, comm: str, pid: int, soft="8388608", hard="8388608", service: str | None = None, arguments=()) -> None:
    service = service or comm
    node.add(
        f"""/sys/fs/cgroup/system.slice/{service}.service/cgroup.procs = 3\\n{pid}
        /proc/3/comm = conmon
        /proc/{pid}/comm = {comm}
        /proc/{pid}/cgroup = 0::/system.slice/{service}.service
        /proc/{pid}/limits = {LIMITS.format(soft, hard)}
        {UNIT}/{service}.service = [Service]\\nExecStart=/usr/bin/{comm}"""
    )
    line = "\0".join((f"/usr/bin/{comm}", *arguments, ""))
    (node.root / f"proc/{pid}/cmdline").write_text(line)


def told(node) -> dict:
    return memlock.read_memlock(LiveTree(node.root))


def test_fc63_crio_without_default_ulimits_gives_its_own_limit(node):
    runs(node, "crio", 77)
    node.add(f"/etc/crio/crio.conf = [crio.runtime]\\npids_limit = 0\n{CRIO_D}/10-crio.conf = [crio.image]")
    facts = told(node)
    assert facts["containers"] == {"soft": 8388608, "runtime": "crio", "reason": None}
    crio = facts["runtimes"]["crio"]
    assert (crio["pid"], crio["unit"], crio["soft"], crio["container_default"]) == (77, "crio.service", 8388608, None)
    assert facts["reason"] is None


def test_fc63_crio_with_default_ulimits(node):
    runs(node, "crio", 77)
    node.add(f'{CRIO_D}/99-rdma.conf = [crio.runtime]\\ndefault_ulimits = [\\n  "memlock=-1:-1",\\n]')
    facts = told(node)
    assert facts["containers"]["soft"] == "unlimited"
    assert facts["runtimes"]["crio"]["source"] == f"{CRIO_D}/99-rdma.conf"


def test_fc63_containerd_gives_the_limit_of_its_service(node):
    runs(node, "containerd", 88, "unlimited", "unlimited")
    node.add("/etc/systemd/system/containerd.service.d/rdma.conf = [Service]\\nLimitMEMLOCK=infinity")
    facts = told(node)
    assert facts["containers"] == {"soft": "unlimited", "runtime": "containerd", "reason": None}
    containerd = facts["runtimes"]["containerd"]
    assert containerd["configured"] == "unlimited" and containerd["configured_by"].endswith("rdma.conf")


def test_fc65_a_drop_in_before_the_restart_is_not_in_effect(node):
    runs(node, "containerd", 88, "65536", "65536")
    node.add("/etc/systemd/system/containerd.service.d/rdma.conf = [Service]\\nLimitMEMLOCK=infinity")
    containerd = told(node)["runtimes"]["containerd"]
    assert containerd["soft"] == 65536 and containerd["configured"] == "unlimited"
    assert told(node)["containers"]["soft"] == 65536


def started(node, pid: int, ago: float) -> None:
    """A process that started some seconds before the newest file was written."""
    ticks = os.sysconf("SC_CLK_TCK")
    now = max(path.stat().st_mtime for path in node.root.rglob("*"))
    boot = int(now) - 10_000
    fields = ["S", *["0"] * 18, str(int((now - ago - boot) * ticks)), "0"]
    node.add(f"/proc/{pid}/stat = {pid} (a (b) c) {' '.join(fields)}\n/proc/stat = cpu 1\\nbtime {boot}\\nprocesses 3")


def test_fc63_a_configuration_that_is_younger_than_the_runtime_needs_a_restart(node):
    runs(node, "crio", 77)
    node.add(f'{CRIO_D}/99-rdma.conf = [crio.runtime]\\ndefault_ulimits = ["memlock=-1:-1"]')
    started(node, 77, ago=600)
    facts = told(node)
    assert facts["runtimes"]["crio"]["restart_needed"] is True
    assert facts["containers"]["soft"] is None and "restart" in facts["containers"]["reason"]


def test_fc63_after_the_restart_it_counts(node):
    runs(node, "crio", 77)
    node.add(f'{CRIO_D}/99-rdma.conf = [crio.runtime]\\ndefault_ulimits = ["memlock=-1:-1"]')
    started(node, 77, ago=-5)
    facts = told(node)
    assert facts["runtimes"]["crio"]["restart_needed"] is False and facts["containers"]["soft"] == "unlimited"


def test_the_start_time_of_a_process_of_this_machine():
    here = memlock.start_time(Tree("/"), os.getpid())
    boot = memlock.start_time(Tree("/"), 1)
    assert boot <= here


def test_two_runtimes_are_told_apart_by_the_kubelet(node):
    runs(node, "crio", 77)
    runs(node, "containerd", 88, "unlimited", "unlimited")
    assert told(node)["containers"]["soft"] is None and "kubelet" in told(node)["containers"]["reason"]
    node.add("/var/lib/kubelet/config.yaml = containerRuntimeEndpoint: unix:///var/run/crio/crio.sock")
    assert told(node)["containers"] == {"soft": 8388608, "runtime": "crio", "reason": None}
    runs(node, "kubelet", 99, arguments=("--container-runtime-endpoint=unix:///run/containerd/containerd.sock",))
    assert told(node)["containers"] == {"soft": "unlimited", "runtime": "containerd", "reason": None}


def test_docker_beside_containerd_is_not_the_runtime_of_kubernetes(node):
    runs(node, "containerd", 88, "unlimited", "unlimited")
    runs(node, "dockerd", 89, service="docker")
    node.add(
        '/etc/docker/daemon.json = {"default-ulimits": {"memlock": {"Name": "memlock", "Soft": 65536, "Hard": -1}}}'
    )
    facts = told(node)
    assert facts["runtimes"]["dockerd"]["container_default"] == 65536
    assert facts["containers"] == {"soft": "unlimited", "runtime": "containerd", "reason": None}


def test_a_runtime_that_another_service_runs_is_found(node):
    runs(node, "containerd", 88, "unlimited", "unlimited", service="k3s")
    assert told(node)["runtimes"]["containerd"]["unit"] == "k3s.service"


def test_without_cgroups_the_process_list_is_searched_and_pods_do_not_count(node):
    node.add(
        f"""/proc/50/comm = containerd
        /proc/50/cgroup = 0::/kubepods.slice/pod1/x
        /proc/60/comm = containerd
        /proc/60/cgroup = 0::/system.slice/snap.microk8s.daemon-containerd.service
        /proc/60/limits = {LIMITS.format("unlimited", "unlimited")}
        /proc/self -> 60"""
    )
    containerd = told(node)["runtimes"]["containerd"]
    assert containerd["pid"] == 60 and containerd["unit"] == "snap.microk8s.daemon-containerd.service"


def test_nothing_runs(node):
    facts = told(node)
    assert facts["runtimes"] == {} and facts["reason"] and facts["containers"]["soft"] is None
    node.add(f"{UNIT}/containerd.service = [Service]\\nLimitMEMLOCK=infinity")
    facts = told(node)
    assert facts["runtimes"]["containerd"]["pid"] is None and facts["containers"]["soft"] is None
    assert facts["containers"]["reason"] == "no container runtime is running"


def test_another_root_tells_what_its_files_say(node):
    node.add(f"{UNIT}/containerd.service = [Service]\\nLimitMEMLOCK=infinity")
    assert memlock.read_memlock(node.tree())["containers"]["soft"] == "unlimited"


@pytest.mark.parametrize(
    ("value", "limits"),
    [
        ("infinity", ("unlimited", "unlimited")),
        ("64M", (67108864, 67108864)),
        ("8M:infinity", (8388608, "unlimited")),
        ("65536", (65536, 65536)),
        ("1G", (1 << 30, 1 << 30)),
        ("infinity:8M", None),
        ("8 M", None),
        ("-1", None),
        ("x", None),
        ("", None),
    ],
)
def test_memory_limits_of_systemd(value, limits):
    assert systemd_units.parse_memory_limit(value) == limits


def limit(node, unit: str = "crio.service") -> dict:
    return systemd_units.read_memory_limit(node.tree(), unit)


def test_the_last_drop_in_by_name_wins_whatever_its_directory(node):
    node.add(
        f"""{UNIT}/crio.service = [Service]\\nLimitMEMLOCK=1M
        {UNIT}/crio.service.d/50-vendor.conf = [Service]\\nLimitMEMLOCK=2M
        /etc/systemd/system/crio.service.d/10-site.conf = [Service]\\nLimitMEMLOCK=3M"""
    )
    assert limit(node)["soft"] == 2 << 20
    node.add("/etc/systemd/system/crio.service.d/50-vendor.conf = [Service]\\n# hides the one of the vendor")
    told = limit(node)
    assert told["soft"] == 3 << 20 and told["path"].endswith("10-site.conf")
    node.add("/etc/systemd/system/service.d/90-all.conf = [Service]\\nLimitMEMLOCK=4M")
    assert limit(node)["soft"] == 4 << 20
    node.add("/etc/systemd/system/crio.service.d/95-reset.conf = [Service]\\nLimitMEMLOCK=")
    told = limit(node)
    assert told["soft"] is None and told["path"] is None and "default" in told["reason"]


def test_a_unit_in_etc_hides_the_vendor_s_and_other_sections_do_not_count(node):
    node.add(
        f"""{UNIT}/crio.service = [Service]\\nLimitMEMLOCK=infinity
        /etc/systemd/system/crio.service = [Unit]\\nLimitMEMLOCK=5M\\n[Service]\\nLimitNOFILE=5\\n;LimitMEMLOCK=9M"""
    )
    assert limit(node)["soft"] is None


def test_the_manager_s_default_counts_last(node):
    node.add(
        f"""{UNIT}/crio.service = [Service]
        /etc/systemd/system.conf = [Manager]\\n#DefaultLimitMEMLOCK=1M
        /etc/systemd/system.conf.d/rdma.conf = [Manager]\\nDefaultLimitMEMLOCK=\\\\n  infinity"""
    )
    told = limit(node)
    assert told["soft"] == "unlimited" and told["path"] == "/etc/systemd/system.conf.d/rdma.conf"


def test_drop_ins_of_names_with_a_dash(node):
    node.add(
        f"{UNIT}/rke2-server.service = [Service]\n/etc/systemd/system/rke2-.service.d/a.conf = [Service]\\nLimitMEMLOCK=7M"
    )
    assert limit(node, "rke2-server.service")["soft"] == 7 << 20


def test_a_unit_that_is_missing_or_unreadable(node):
    assert limit(node)["reason"] == "there is no unit crio.service"
    node.add(f"{UNIT}/crio.service ! EACCES")
    told = limit(node)
    assert told["soft"] is None and "EACCES" in told["reason"]


def crio(node, *arguments: str) -> dict:
    return container_config.read_crio(node.tree(), list(arguments))


def test_crio_files_replace_the_list_of_earlier_ones(node):
    node.add(
        f"""/etc/crio/crio.conf = [crio.runtime]\\ndefault_ulimits = ["memlock=1:1"]
        {CRIO_D}/10-a.conf = [crio]\\n[crio.runtime]\\ndefault_ulimits = ["nofile=1:1", "memlock=-1"]
        {CRIO_D}/20-b.conf = [crio.runtime]\\npids_limit = 5"""
    )
    assert crio(node)["soft"] == "unlimited" and crio(node)["source"] == f"{CRIO_D}/10-a.conf"
    node.add(f'{CRIO_D}/30-c.conf = [crio.runtime]\\ndefault_ulimits = ["nofile=1:1"]')
    assert crio(node)["soft"] is None and crio(node)["reason"] is None
    node.add(f'{CRIO_D}/sub/a = [crio.runtime]\\ndefault_ulimits = ["memlock=65536:65536"]')
    assert crio(node)["soft"] == 65536
    assert crio(node, "--default-ulimits", "nofile=1,memlock=-1:-1")["soft"] == "unlimited"
    node.add('/opt/crio.conf = [crio.runtime]\\ndefault_ulimits = ["memlock=4096"]')
    assert crio(node, "--config=/opt/crio.conf", "--config-dir", "")["soft"] == 4096


@pytest.mark.parametrize(
    "text",
    [
        'default_ulimits = ["memlock=many"]',
        'default_ulimits = ["memlock=-1:5"]',
        'default_ulimits = "memlock=-1"',
        "default_ulimits = [5]",
        "default_ulimits = [",
    ],
)
def test_crio_files_that_cannot_be_understood_are_unknown(node, text):
    runs(node, "crio", 77)
    node.add(f"/etc/crio/crio.conf = [crio.runtime]\\n{text}")
    assert crio(node)["soft"] is None and "/etc/crio/crio.conf" in crio(node)["reason"]
    containers = told(node)["containers"]
    assert containers["soft"] is None and "crio.conf" in containers["reason"]


def test_a_broken_file_that_does_not_mention_it_does_not_matter(node):
    node.add(f'/etc/crio/crio.conf = [crio\n{CRIO_D}/a.conf = [crio.runtime]\\ndefault_ulimits = ["memlock=-1"]')
    assert crio(node)["soft"] == "unlimited"


def spec(soft) -> str:
    limits = [{"type": "RLIMIT_NOFILE", "soft": 1, "hard": 1}]
    limits += [{"type": "RLIMIT_MEMLOCK", "soft": soft, "hard": soft}] if soft is not None else []
    return json.dumps({"ociVersion": "1.1.0", "process": {"rlimits": limits}})


def plugin(name: str, **handlers: str) -> str:
    lines = []
    for handler, path in handlers.items():
        lines += [f'[plugins."{name}".containerd.runtimes.{handler}]', f'base_runtime_spec = "{path}"']
    return "\\n".join(lines)


V2, V3 = "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"


def containerd(node, *arguments: str) -> dict:
    return container_config.read_containerd(node.tree(), list(arguments))


@pytest.mark.parametrize("name", [V2, V3])
def test_containerd_gives_what_the_base_specification_says(node, name):
    node.add(f"/etc/containerd/config.toml = {plugin(name, runc='/etc/containerd/base.json')}")
    node.add(f"/etc/containerd/base.json = {spec(2**64 - 1)}")
    assert containerd(node)["soft"] == "unlimited" and containerd(node)["source"] == "/etc/containerd/base.json"
    node.add(f"/etc/containerd/base.json = {spec(None)}")
    assert containerd(node)["soft"] is None and containerd(node)["reason"] is None


def test_containerd_s_default_handler_counts_and_others_are_told(node):
    node.add(f"/etc/containerd/base.json = {spec(65536)}\n/etc/containerd/big.json = {spec(2**64 - 1)}")
    both = plugin(V2, runc="/etc/containerd/base.json", nvidia="/etc/containerd/big.json")
    node.add(f"/etc/containerd/config.toml = {both}")
    assert containerd(node)["soft"] == 65536 and containerd(node)["handlers"] == {"nvidia": "unlimited"}
    default = f'[plugins."{V2}".containerd]\\ndefault_runtime_name = "nvidia"\\n'
    node.add(f"/etc/containerd/config.toml = {default}{both}")
    assert containerd(node)["soft"] == "unlimited" and containerd(node)["handlers"] == {"runc": 65536}


def test_containerd_imports(node):
    node.add(
        f"""/etc/containerd/config.toml = version = 2\\nimports = ["conf.d/*.toml"]
        /etc/containerd/conf.d/50-rdma.toml = {plugin(V2, runc="/base.json")}
        /base.json = {spec(65536)}"""
    )
    assert containerd(node)["soft"] == 65536
    assert "/etc/containerd/conf.d/50-rdma.toml" in containerd(node)["files"]


def test_containerd_imports_whose_effect_depends_on_the_version(node):
    node.add(
        f"""/etc/containerd/config.toml = imports = ["/etc/containerd/conf.d/*.toml"]\\n{plugin(V2, runc="/base.json")}
        /etc/containerd/conf.d/nvidia.toml = {plugin(V2, nvidia="/base.json")}
        /base.json = {spec(65536)}"""
    )
    told = containerd(node)
    assert told["soft"] is None and "version" in told["reason"] and "nvidia.toml" in told["reason"]


def test_containerd_s_conf_d_without_an_import_depends_on_the_version(node):
    node.add(f"/etc/containerd/conf.d/a.toml = {plugin(V3, runc='/base.json')}\n/base.json = {spec(65536)}")
    assert "version" in containerd(node)["reason"]
    node.add(f"/base.json = {spec(None)}")
    assert containerd(node)["reason"] is None


def test_containerd_without_a_file_with_a_bad_one_and_with_another(node):
    assert containerd(node) == {"soft": None, "source": None, "files": [], "reason": None, "handlers": {}}
    node.add(f"/var/lib/k3s/config.toml = {plugin(V3, runc='/base.json')}\n/base.json = {spec(4096)}")
    assert containerd(node, "-c", "/var/lib/k3s/config.toml")["soft"] == 4096
    node.add("/base.json = {")
    assert "/base.json" in containerd(node, "-c", "/var/lib/k3s/config.toml")["reason"]
    node.add("/etc/containerd/config.toml = [plugins")
    assert "/etc/containerd/config.toml" in containerd(node)["reason"]
    node.add('/etc/containerd/config.toml = imports = ["*/x.toml"]')
    assert "import" in containerd(node)["reason"]


def test_deep_tables_end(node):
    deep = f'[plugins."{V2}".{"a." * 50_000}a]\\nb = 1'
    node.add(f'/etc/containerd/config.toml = imports = ["b.toml"]\\n{deep}\n/etc/containerd/b.toml = {deep}')
    containerd(node)


def test_imports_that_go_round_end(node):
    node.add('/etc/containerd/config.toml = imports = ["a.toml"]\n/etc/containerd/a.toml = imports = ["config.toml"]')
    assert containerd(node)["reason"] is None


@given(st.text())
def test_no_text_makes_the_parsers_fail(text):
    memlock.parse_limit(text)
    memlock.parse_limit("Max locked memory" + text)
    systemd_units.parse_memory_limit(text)
    systemd_units.parse_settings(text, "Service", "LimitMEMLOCK")
    container_config.parse_ulimit(text)
    container_config.parse_ulimit("memlock=" + text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["process", "rlimits", "type", "soft", "default-ulimits", "memlock", "Soft"]), inner
        )
    ),
    max_leaves=8,
)


@given(JSON | st.text())
def test_no_document_makes_the_readers_fail(tmp_path_factory, document):
    root = tmp_path_factory.mktemp("json")
    text = document if isinstance(document, str) else json.dumps(document)
    for name in ("etc/docker/daemon.json", "base.json", "etc/crio/crio.conf", "etc/containerd/config.toml"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8", errors="surrogateescape")
    tree = Tree(str(root))
    container_config.read_docker(tree, [])
    container_config.read_runtime_spec(tree, "/base.json")
    container_config.read_crio(tree, [])
    container_config.read_containerd(tree, [])
