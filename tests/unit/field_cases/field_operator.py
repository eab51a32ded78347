# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A healthy operator of two nodes as operator_ready returns it, and the judgement of the rules about it."""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.module_utils.operator import operands
from ansible_collections.railyard.rdma.plugins.module_utils.operator.snapshot import PARTS
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.evaluate import evaluate
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import Context

NS = "op"
LABELS = {"feature.node.kubernetes.io/pci-15b3.present": "true", "network.nvidia.com/operator.mofed.wait": "false"}
GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
GPU_TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
OWNER = ({"kind": "NicClusterPolicy", "name": "nic-cluster-policy"},)
KIND = "nicclusterpolicies.mellanox.com"


def node(name, labels=None, taints=(GPU_TAINT,)):
    found = {"name": name, "labels": LABELS if labels is None else labels}
    return {"metadata": found, "spec": {"taints": list(taints)}, "status": {"addresses": []}}


def daemon(name, container, selector=None, tolerations=(GPU_TOLERATION,), memory="512Mi", owners=OWNER):
    pod = {
        "containers": [{"name": container, "resources": {"limits": {"memory": memory}}}],
        "tolerations": list(tolerations),
        "nodeSelector": selector or {},
    }
    numbers = dict.fromkeys(("desiredNumberScheduled", "updatedNumberScheduled", "numberAvailable"), 2)
    return {
        "metadata": {"name": name, "namespace": NS, "generation": 1, "ownerReferences": list(owners)},
        "spec": {"template": {"spec": pod}},
        "status": {**numbers, "observedGeneration": 1},
    }


def multus(**changes):
    return daemon("kube-multus-ds", "kube-multus", **changes)


def config_daemon(**changes):
    given = {"selector": {operands.MOFED_WAIT: "false"}, "tolerations": [{"operator": "Exists"}], "owners": []}
    return daemon(operands.CONFIG_DAEMON, operands.CONFIG_DAEMON, **{**given, **changes})


def pod(name, where, reason=None, ready=True, container="kube-multus", limit="50Mi", restarts=3):
    last = {"terminated": {"reason": reason, "exitCode": 137}} if reason else {}
    row = {"name": container, "ready": ready, "restartCount": restarts, "state": {"running": {}}, "lastState": last}
    spec = {"nodeName": where, "containers": [{"name": container, "resources": {"limits": {"memory": limit}}}]}
    return {"metadata": {"name": name, "namespace": NS}, "spec": spec, "status": {"containerStatuses": [row]}}


def policy(state="ready", **states):
    rows = [{"name": name.replace("_", "-"), "state": value} for name, value in states.items()]
    status = {"state": state, "appliedStates": rows}
    return {"kind": "NicClusterPolicy", "metadata": {"name": "nic-cluster-policy", "generation": 1}, "status": status}


def crd(established=True):
    return {"status": {"conditions": [{"type": "Established", "status": str(established)}]}}


def snapshot(**changes):
    """What snapshot.read returns: everything is as it should be."""
    config = {"spec": {"disablePlugins": ["mellanox"], "configurationMode": "daemon", "disableDrain": False}}
    deployed = {
        "revision": 1,
        "status": "deployed",
        "chart_version": "26.7.1",
        "values": {},
        "updated": None,
        "description": "",
    }
    return {
        "crds": {KIND: crd()},
        "deployments": [],
        "config": config,
        "policies": [policy()],
        "daemon_sets": [multus(), config_daemon()],
        "pods": [pod("kube-multus-x", "node-a")],
        "nodes": [node("node-a"), node("node-b")],
        "release": {"latest": deployed, "deployed": deployed},
        "nfd": [{"namespace": "nfd", "name": "nfd-worker", "release": None}],
        "reasons": {},
        **changes,
    }


def judged(hosts=("node-a", "node-b"), network="sriov", **changes):
    """Findings of the rules about the operator."""
    seen = operands.facts(snapshot(**changes), NS, "network-operator", dict.fromkeys(hosts), PARTS)
    layout = {"name": "rails", "network": network, "rails": []}
    return evaluate([Context(host, layout, operator=seen) for host in hosts], ["operator"])
