# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the operator really got and made: its configuration, its NicClusterPolicy, its DaemonSets and their pods.

Pure functions over one snapshot (``snapshot.py``); parts that could not be read are None. Rows are ``{node, object, reason}`` as
of readiness.py, node None for the whole cluster.
"""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.module_utils.cluster import readiness
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.readiness import missing
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.selection import node_of, term_match
from ansible_collections.railyard.rdma.plugins.module_utils.operator import nfd

CONFIG = "SriovOperatorConfig default"
CONFIG_DAEMON = "sriov-network-config-daemon"
POLICY = "nic-cluster-policy"
MOFED_WAIT = "network.nvidia.com/operator.mofed.wait"
STATE_LABEL = "nvidia.network-operator.state"
# One DaemonSet of the driver for each system and kernel of the cluster: each is away from most nodes on purpose.
DRIVER_STATE = "state-OFED"
# Set by the SR-IOV operator itself once a policy selects the node.
OPERATORS_OWN_LABELS = frozenset(("sriovnetwork.openshift.io/device-plugin",))
# The DaemonSet controller adds tolerations for these itself (kubernetes.io, "DaemonSet", taints and tolerations).
TOLERATED_BY_ITSELF = tuple(
    f"node.kubernetes.io/{name}"
    for name in (
        [
            "not-ready",
            "unreachable",
            "disk-pressure",
            "memory-pressure",
            "pid-pressure",
            "unschedulable",
            "network-unavailable",
        ]
    )
)
UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "m": 1e-3}


def meta(obj):
    return (obj or {}).get("metadata") or {}


def name_of(obj):
    return meta(obj).get("name")


def pod_spec(workload):
    return (((workload or {}).get("spec") or {}).get("template") or {}).get("spec") or {}


def containers(workload, init=False):
    spec = pod_spec(workload)
    return (spec.get("containers") or []) + ((spec.get("initContainers") or []) if init else [])


def amount(text):
    """A quantity as a number; None for something else."""
    text = str(text)
    for unit, factor in UNITS.items():
        if text.endswith(unit):
            text, scale = text[: -len(unit)], factor
            break
    else:
        scale = 1
    try:
        return float(text) * scale
    except ValueError:
        return None


def config_pending(config, wanted):
    """SriovOperatorConfig against the intent; a difference that time does not heal.

    :param config: the live object or None.
    :param wanted: ``{disablePlugins, disableDrain, configurationMode}``.
    """
    if config is None:
        return [missing(CONFIG, "does not exist, so the SR-IOV operator does nothing")]
    spec, rows = config.get("spec") or {}, []
    have = spec.get("disablePlugins") or []
    if sorted(have) != sorted(wanted["disablePlugins"]):
        rows.append(
            missing(
                CONFIG,
                f"disablePlugins is {have}, wanted is {wanted['disablePlugins']}: with the mellanox plugin on, the operator "
                "changes the firmware's number of VFs and reboots nodes",
            )
        )
    mode = spec.get("configurationMode") or "daemon"
    if mode != wanted["configurationMode"]:
        rows.append(missing(CONFIG, f"configurationMode is {mode}, wanted is {wanted['configurationMode']}"))
    drain = bool(spec.get("disableDrain"))
    if drain != wanted["disableDrain"]:
        rows.append(missing(CONFIG, f"disableDrain is {drain}, wanted is {wanted['disableDrain']}"))
    return rows


def deployments_pending(deployments):
    """Every Deployment of the operator's namespace must be available."""
    rows = []
    for item in deployments:
        status, wanted = item.get("status") or {}, (item.get("spec") or {}).get("replicas", 1)
        up = status.get("availableReplicas") or 0
        if up < wanted or (status.get("observedGeneration") or 0) < (meta(item).get("generation") or 0):
            rows.append(
                missing(f"Deployment {meta(item).get('namespace')}/{name_of(item)}", f"{up} of {wanted} available")
            )
    return rows


def policy_pending(policies, wanted):
    """The NicClusterPolicy: there, of the name that is served, ready for its generation with the reasons of its states.

    :param wanted: the policy as it was applied.
    """
    live = next((p for p in policies if name_of(p) == name_of(wanted)), None)
    if live is None:
        return [
            missing(
                f"NicClusterPolicy {name_of(wanted)}",
                "does not exist; the chart does not bring one (since 24.10), so the operator has nothing to do",
            )
        ]
    return readiness.cluster_policy_pending(wanted, live)


def sections(spec):
    """(path, section) of every part of a NicClusterPolicy that has an image."""
    for name, part in (spec or {}).items():
        if isinstance(part, dict) and part.get("image"):
            yield name, part
        elif isinstance(part, dict):
            for inner, section in part.items():
                if isinstance(section, dict) and section.get("image"):
                    yield f"{name}.{inner}", section


def resources_pending(policy, daemon_sets):
    """What containerResources asks for must be on the container of the DaemonSet, also after the operator's next look.

    A name that matches no container leaves the container without any resources.
    """
    by_container = {c.get("name"): (ds, c) for ds in daemon_sets for c in containers(ds, init=True)}
    rows = []
    for path, section in sections((policy or {}).get("spec")):
        for entry in section.get("containerResources") or []:
            what = f"containerResources of {path}"
            if entry.get("name") not in by_container:
                rows.append(missing(what, f"no container is named {entry.get('name')!r}"))
                continue
            daemon_set, container = by_container[entry["name"]]
            have = container.get("resources") or {}
            for kind in ("requests", "limits"):
                for name, value in (entry.get(kind) or {}).items():
                    got = (have.get(kind) or {}).get(name)
                    if got is None or amount(got) != amount(value):
                        text = f"{kind}.{name} of {entry['name']} in DaemonSet {name_of(daemon_set)} is {got}, wanted is {value}"
                        rows.append(missing(what, text))
    return rows


def tolerated(taint, tolerations):
    """Whether one of the tolerations takes a taint (core/v1 Toleration, ToleratesTaint)."""
    for item in tolerations or []:
        if item.get("effect") and item["effect"] != taint.get("effect"):
            continue
        operator = item.get("operator") or "Equal"
        if not item.get("key"):
            if operator == "Exists":
                return True
            continue
        if item["key"] != taint.get("key"):
            continue
        if operator == "Exists" or (item.get("value") or "") == (taint.get("value") or ""):
            return True
    return False


def untolerated(workload, node):
    """The node's taints that keep the pods of a DaemonSet away."""
    tolerations = pod_spec(workload).get("tolerations")
    return [
        taint
        for taint in ((node.get("spec") or {}).get("taints") or [])
        if taint.get("effect") in ("NoSchedule", "NoExecute")
        and taint.get("key") not in TOLERATED_BY_ITSELF
        and not tolerated(taint, tolerations)
    ]


def unmatched(workload, node):
    """Labels of a DaemonSet's nodeSelector that the node lacks: ``{key: (wanted, got or None)}``."""
    labels = meta(node).get("labels") or {}
    selector = pod_spec(workload).get("nodeSelector") or {}
    return {
        key: (value, labels.get(key))
        for key, value in selector.items()
        if labels.get(key) != value and key not in OPERATORS_OWN_LABELS
    }


def affinity_refuses(workload, node):
    rule = ((pod_spec(workload).get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    return bool(rule) and not term_match(rule, node)


def taint_text(taint):
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key')}{value}:{taint.get('effect')}"


def label_reason(key, wanted, got, node):
    """Why a label is not what a daemon selects by; the operator's own labels are followed to their cause."""
    labels = meta(node).get("labels") or {}
    said = f"label {key} is {got!r}" if got is not None else f"label {key} is missing"
    exact = labels.get(nfd.EXACT_LABEL)
    if key in (nfd.EXACT_LABEL, MOFED_WAIT) and exact != "true":
        # One cause, one text: the operator takes its own label away where that of the NIC is missing.
        said = f"label {nfd.EXACT_LABEL} is {exact!r}" if exact is not None else f"label {nfd.EXACT_LABEL} is missing"
        other = {k: v for k, v in nfd.nic_labels(labels).items() if k != nfd.EXACT_LABEL}
        if other:
            form = ", ".join(f"{k}={v}" for k, v in other.items())
            return f"{said}: Node Feature Discovery writes another form, {form}, which the operator does not read"
        return f"{said}: neither Node Feature Discovery nor the rule nvidia-nics-rules has set it"
    if key == MOFED_WAIT and got == "true":
        return f"{said}: a driver pod of the operator is on the node and not ready"
    return f"{said}, wanted is {wanted!r}"


def daemons_away(daemon_sets, node):
    """Daemons that never come to a node, and why: ``[{daemon_set, reason, kind, key}]``, kind label, taint or affinity."""
    rows = []
    for item in daemon_sets:
        if (meta(item).get("labels") or {}).get(STATE_LABEL) == DRIVER_STATE:
            continue
        for taint in untolerated(item, node):
            rows.append(
                {"daemon_set": name_of(item), "kind": "taint", "key": taint_text(taint), "reason": taint_text(taint)}
            )
        for key, (wanted, got) in unmatched(item, node).items():
            reason = label_reason(key, wanted, got, node)
            rows.append({"daemon_set": name_of(item), "kind": "label", "key": key, "reason": reason})
        if affinity_refuses(item, node):
            reason = "its node affinity does not select the node"
            rows.append({"daemon_set": name_of(item), "kind": "affinity", "key": None, "reason": reason})
    return rows


def nodes_of(hosts, nodes):
    """{host: Node or None} of the hosts that the rails are on. hosts: {host: address or None}."""
    return {host: node_of(host, address, nodes) for host, address in hosts.items()}


def away_text(rows):
    """One text for all daemons that one cause keeps away."""
    by_reason = {}
    for row in rows:
        by_reason.setdefault((row["kind"], row["reason"]), []).append(row["daemon_set"])
    texts = []
    for (kind, reason), names in by_reason.items():
        who = ", ".join(dict.fromkeys(names))
        texts.append(f"{who} do not tolerate the taint {reason}" if kind == "taint" else f"{who}: {reason}")
    return texts


def killed(pods):
    """Containers that were killed for memory: ``[{node, pod, container, restarts, limit, now}]``.

    :param pods: of the operator's namespace. ``now`` tells whether it is down at this moment.
    """
    rows = []
    for pod in pods:
        spec, status = pod.get("spec") or {}, pod.get("status") or {}
        limits = {
            c.get("name"): ((c.get("resources") or {}).get("limits") or {}).get("memory")
            for c in (spec.get("containers") or []) + (spec.get("initContainers") or [])
        }
        for row in (status.get("containerStatuses") or []) + (status.get("initContainerStatuses") or []):
            state = (row.get("state") or {}).get("terminated") or {}
            last = (row.get("lastState") or {}).get("terminated") or {}
            if "OOMKilled" in (state.get("reason"), last.get("reason")):
                rows.append(
                    {
                        "node": spec.get("nodeName"),
                        "pod": name_of(pod),
                        "container": row.get("name"),
                        "restarts": row.get("restartCount") or 0,
                        "limit": limits.get(row.get("name")),
                        "now": state.get("reason") == "OOMKilled" or not row.get("ready"),
                    }
                )
    return rows


def killed_text(row):
    limit = f" at its limit of {row['limit']}" if row["limit"] else ""
    return f"container {row['container']} of pod {row['pod']} was killed for memory{limit} ({row['restarts']} restarts)"


def pending(snapshot, wanted):
    """What is still missing: rows.

    :param snapshot: of snapshot.read().
    :param wanted: ``{crds: [name], config: dict or None, policy: object or None}``.
    """
    rows = readiness.crds_pending(wanted["crds"], snapshot["crds"])
    rows += deployments_pending(snapshot["deployments"])
    if wanted["config"] is not None:
        rows += config_pending(snapshot["config"], wanted["config"])
    if wanted["policy"] is not None:
        rows += policy_pending(snapshot["policies"], wanted["policy"])
        rows += readiness.daemon_sets_pending(of_policy(snapshot["daemon_sets"]))
        rows += resources_pending(wanted["policy"], snapshot["daemon_sets"])
    return rows


def of_policy(daemon_sets):
    """The DaemonSets that a NicClusterPolicy owns."""
    kinds = ("NicClusterPolicy",)
    return [d for d in daemon_sets if any(o.get("kind") in kinds for o in meta(d).get("ownerReferences") or [])]


def troubles(snapshot, hosts):
    """What stands in the way of single nodes, and containers that were killed: rows that explain a wait and outlive it.

    :param hosts: ``{host: address or None}`` of the nodes with rails.
    """
    rows = []
    nodes = snapshot["nodes"] or []
    for host, node in nodes_of(hosts, nodes).items():
        if node is None:
            rows.append(missing("Node", "no Kubernetes node has this host's name, hostname label or address", host))
            continue
        rows += [
            missing("daemons", text, name_of(node)) for text in away_text(daemons_away(snapshot["daemon_sets"], node))
        ]
    rows += [missing("memory", killed_text(row), row["node"]) for row in killed(snapshot["pods"] or [])]
    return rows


def slim(obj):
    """An object without what only the server needs."""
    return {**obj, "metadata": {key: value for key, value in meta(obj).items() if key != "managedFields"}}


def slim_node(node):
    """Name, labels and taints of a node, in the form of a node."""
    labels, taints = meta(node).get("labels") or {}, (node.get("spec") or {}).get("taints") or []
    return {"metadata": {"name": name_of(node), "labels": labels}, "spec": {"taints": taints}}


def facts(snapshot, namespace, release, hosts, parts):
    """The snapshot as the findings take it: objects without what nobody looks at, pods only where they were killed.

    :param parts: that were asked for; the others are not among the result.
    :returns: ``{namespace, release_name, release, crds: {name: established}, deployments, config, policies, daemon_sets, killed,
        nfd, hosts: {host: node or None}, reasons}``; a part that could not be read is None.
    """
    nodes, pods, crds = snapshot["nodes"], snapshot["pods"], snapshot["crds"]
    found = {
        name: snapshot[name] and [slim(obj) for obj in snapshot[name]]
        for name in ("deployments", "policies", "daemon_sets")
    }
    found.update(
        release=snapshot["release"],
        nfd=snapshot["nfd"],
        config=snapshot["config"] and slim(snapshot["config"]),
        crds=crds and {name: readiness.condition_true(crd or {}, "Established") for name, crd in crds.items()},
        killed=None if pods is None else killed(pods),
        hosts=None if nodes is None else {h: n and slim_node(n) for h, n in nodes_of(hosts, nodes).items()},
    )
    renamed = {"pods": "killed", "nodes": "hosts"}
    asked = {renamed.get(part, part) for part in parts}
    return {
        "namespace": namespace,
        "release_name": release,
        **{name: value for name, value in found.items() if name in asked},
        "reasons": {renamed.get(part, part): text for part, text in snapshot["reasons"].items()},
    }
