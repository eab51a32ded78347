#!/usr/bin/python
# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: operator_prepare
short_description: Everything that must be so before Helm installs or upgrades the NVIDIA Network Operator
version_added: 0.2.0
description:
  - Looks at the chart and at the cluster, and refuses, in one message, what would go wrong later - values that the chart does not
    know, a version of Kubernetes that it does not take, an upgrade that leaves a release out, a release that Helm has left
    pending, a second Node Feature Discovery.
  - Decides whether the chart brings Node Feature Discovery, and whether anything is to be done at all.
  - Before an upgrade it creates and updates the CustomResourceDefinitions of the chart. Helm never upgrades them, and it looks
    up every kind of a release before the chart's own job could bring a new one.
  - Before an installation it updates those that are there already with another content, at which Helm 4 would fail.
author:
  - Railyard contributors (@railyard)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
attributes:
  check_mode:
    support: full
    description: Everything is read and judged; no CustomResourceDefinition is written.
  diff_mode:
    support: full
    description: Shows version and values of the release, and the CustomResourceDefinitions.
options:
  chart:
    description:
      - The chart. A name in O(chart_repository), C(alias/name) of a repository that Helm knows, an address that starts with
        C(oci://) or C(https://), or the path of a folder or file.
    type: str
    required: true
  chart_repository:
    description: Address of the repository; used for a plain name only.
    type: str
    default: https://helm.ngc.nvidia.com/nvidia
  version:
    description: Version of the operator. A folder or file must hold this version.
    type: str
    required: true
  release:
    description: Name of the Helm release.
    type: str
    default: network-operator
  namespace:
    description: Namespace of the release.
    type: str
    default: nvidia-network-operator
  nfd_enabled:
    description:
      - Whether the chart brings Node Feature Discovery. V(auto) looks at the cluster. Exactly one may run.
    type: str
    choices: [auto, 'true', 'false']
    default: auto
  values:
    description: Values that follow from the rail model.
    type: dict
    default: {}
  user_values:
    description: Further values, merged over O(values). Every key must be one of the chart.
    type: dict
    default: {}
  helm_binary:
    description: Path or name of Helm.
    type: str
    default: helm
  established_timeout:
    description: Seconds to wait until new CustomResourceDefinitions are served.
    type: int
    default: 60
requirements:
  - kubernetes (Python library) 24.2 or newer
  - PyYAML
  - Helm 3.5 or newer, to fetch a chart that is not a folder or file
seealso:
  - module: kubernetes.core.helm
  - module: railyard.rdma.operator_ready
"""

EXAMPLES = r"""
- name: Look at chart and cluster
  railyard.rdma.operator_prepare:
    chart: network-operator
    version: 26.7.1
    values: "{{ rails_model | railyard.rdma.operator_values }}"
  register: prepared

- name: Install or upgrade
  kubernetes.core.helm:
    name: network-operator
    release_namespace: nvidia-network-operator
    chart_ref: "{{ prepared.chart.path }}"
    values: "{{ prepared.chart_values }}"
    wait: true
  when: prepared.action != 'none'
"""

RETURN = r"""
action:
  description:
    - What Helm has to do, V(install), V(upgrade) or V(none). V(unknown) when Helm keeps its records where this module does not
      look (E(HELM_DRIVER)).
  returned: success
  type: str
  sample: install
chart:
  description:
    - The chart. C(path) is a folder or file on the controller, V(null) when nothing is to be done with it. C(fetched) is the
      folder that the caller removes, V(null) when nothing was fetched.
  returned: success
  type: dict
  sample: {name: network-operator, version: 26.7.1, path: /tmp/ansible.x/network-operator-26.7.1.tgz, fetched: /tmp/ansible.x}
release:
  description: What Helm knows about the release, C(latest) and C(deployed), V(null) where there is none.
  returned: success
  type: dict
  sample: {latest: null, deployed: null}
chart_values:
  description: All values for the chart.
  returned: success
  type: dict
  sample: {nfd: {enabled: false}, sriovNetworkOperator: {enabled: true}}
nfd:
  description: Which Node Feature Discovery the cluster has, and whether the chart brings it (C(enabled)).
  returned: success
  type: dict
  sample:
    enabled: false
    instances: [{namespace: gpu-operator, name: gpu-operator-node-feature-discovery-worker, release: gpu-operator/gpu-operator}]
    rule_crd: true
    labelled: 2
    label_owners: {nfd-master: 2}
kubernetes:
  description: Version of the cluster.
  returned: success
  type: str
  sample: 1.33.1
fields:
  description: What changes of the release, field by field.
  returned: success
  type: list
  elements: dict
  sample: [{path: values.nfd.enabled, before: null, after: false}]
crds:
  description: What was done with each CustomResourceDefinition of the chart before an upgrade.
  returned: success
  type: list
  elements: dict
  sample: [{name: nicclusterpolicies.mellanox.com, action: update}]
mistakes:
  description: Everything that does not fit.
  returned: when something does not fit
  type: list
  elements: str
  sample: ["Kubernetes is 1.30.2, the chart of 26.7.1 takes >= 1.32.0-0; upgrade the cluster"]
requests:
  description: Number of requests to the API server.
  returned: success
  type: int
  sample: 5
status:
  description: HTTP status of the API's answer that ended the look; V(0) where nobody answered.
  returned: when a request to the API failed
  type: int
  version_added: 0.2.0
  sample: 403
"""

import os
import shutil
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import ApiError, answer_text
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.auth import auth_argument_spec, connect
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.field_diff import field_diff
from ansible_collections.railyard.rdma.plugins.module_utils.operator import (
    chart as charts,
)
from ansible_collections.railyard.rdma.plugins.module_utils.operator import (
    chart_values,
    crds,
    fetching,
    nfd,
    releases,
    sources,
    versions,
)

CRD_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DRIVERS = ("", "secret", "secrets")
UNKNOWN = {"latest": None, "deployed": None}


def look(api, params, driver):
    """What decides, in five requests: ``{kubernetes, release, nfd}``; release None when Helm keeps it elsewhere."""
    release = None
    if driver in DRIVERS:
        selector = releases.SELECTOR.format(params["release"])
        secrets = api.list_items(f"/api/v1/namespaces/{params['namespace']}/secrets", [("labelSelector", selector)])
        release = releases.state([s for s in secrets if s.get("type") == "helm.sh/release.v1"])
    known = [nfd.RULE_CRD] if api.find(f"{CRD_PATH}/{nfd.RULE_CRD}") else []
    return {
        "kubernetes": (api.get("/version").get("gitVersion") or "").lstrip("v").partition("+")[0].partition("-")[0],
        "release": release,
        "nfd": nfd.look(
            api.list_items("/apis/apps/v1/daemonsets"),
            known,
            api.list_items("/api/v1/nodes"),
            f"{params['namespace']}/{params['release']}",
        ),
    }


def overlaid(base, over):
    """``over`` put over ``base`` key by key; a null stays, since Helm reads it as "take the default away"."""
    result = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = overlaid(result[key], value) if both else value
    return result


def decide_values(params, found):
    """(all values, whether the chart brings NFD, mistakes, warnings)."""
    wanted = {"auto": "auto", "true": True, "false": False}[params["nfd_enabled"]]
    enabled, mistakes, warnings = nfd.decide(wanted, found["nfd"])
    rule, more = nfd.rules(
        chart_values.at(params["user_values"], ("nfd", "deployNodeFeatureRules")), enabled, found["nfd"]
    )
    decided = overlaid(params["values"], {"nfd": {"enabled": enabled}})
    if rule is not None:
        decided = overlaid(decided, {"nfd": {"deployNodeFeatureRules": rule}})
        warnings.append(
            f"The cluster has no {nfd.RULE_CRD}, so the chart's NodeFeatureRule is left out; the label {nfd.EXACT_LABEL} must "
            "come from somebody else"
        )
    mistakes += more + chart_values.contradictions(params["user_values"], decided)
    return overlaid(decided, params["user_values"]), enabled, mistakes, warnings


def judge_chart(params, found, chart, values):
    """(mistakes, warnings) of the chart itself against cluster, release and values."""
    mistakes = chart_values.mistakes(params["user_values"], chart)
    if chart["version"] != params["version"]:
        mistakes.append(
            f"network_operator_chart: {params['chart']} holds version {chart['version']}, network_operator_version is "
            f"{params['version']}; the images of the NicClusterPolicy follow that variable, so both must be equal"
        )
    more, warnings = [], ["The version of the cluster is not readable, so nobody knows whether the chart takes it"]
    if found["kubernetes"]:
        more, warnings = versions.kubernetes(chart["version"], found["kubernetes"], chart["kube_version"])
    deployed = (found["release"] or UNKNOWN)["deployed"]
    if deployed and deployed["chart"] == chart["name"]:
        step = versions.upgrade(deployed["chart_version"], chart["version"])
        more += [step] if step else []
    elif deployed:
        more.append(
            f"Release {params['namespace']}/{params['release']} holds the chart {deployed['chart']}, not {chart['name']}; set "
            "network_operator_release to another name"
        )
    if "sriov-network-operator" in chart["sub_charts"] and not isinstance(
        values.get("sriov-network-operator", {}), dict
    ):
        more.append("network_operator_values: sriov-network-operator must be a mapping")
    return mistakes + more, warnings


def chart_crds(chart, values):
    """The CRDs of the chart and of those sub-charts that are on."""
    everything = charts.merged(chart["values"], values)
    on = {name for name, condition in chart["sub_charts"].items() if charts.enabled(condition, everything)}
    return [row for row in chart["crds"] if row["sub_chart"] is None or row["sub_chart"] in on]


def write_crds(api, rows, timeout, clock=time.monotonic, pause=time.sleep):
    """Create and update CRDs, then wait until all are established. Returns the names that still are not."""
    for row in rows:
        if row["action"] == "create":
            try:
                api.request("POST", CRD_PATH, [("fieldManager", "railyard")], row["document"])
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise
        elif row["action"] == "update":
            patch = {"spec": row["document"]["spec"]}
            query = [("fieldManager", "railyard")]
            api.request("PATCH", f"{CRD_PATH}/{row['name']}", query, patch, "application/merge-patch+json")
    deadline = clock() + timeout
    waiting = [row["name"] for row in rows if row["action"] != "none"]
    while waiting:
        waiting = [name for name in waiting if not established(api.find(f"{CRD_PATH}/{name}"))]
        if not waiting or clock() >= deadline:
            break
        pause(0.5)
    return waiting


def established(crd):
    rows = ((crd or {}).get("status") or {}).get("conditions") or []
    return any(row.get("type") == "Established" and row.get("status") == "True" for row in rows)


def release_sides(found, chart, values):
    """The release before and after, as data that a person compares."""
    deployed = (found["release"] or UNKNOWN)["deployed"]
    before = (
        {"chart": f"{deployed['chart']}-{deployed['chart_version']}", "values": deployed["values"]} if deployed else {}
    )
    return before, {"chart": f"{chart['name']}-{chart['version']}", "values": values}


def diff_of(before, after, rows):
    """Ansible's diff: the release as a whole, and each CRD by name."""
    entries = []
    if before != after:
        header = {"before_header": "Helm release", "after_header": "Helm release"}
        entries.append({**header, "before": before, "after": after})
    for row in rows:
        if row["action"] != "none":
            name = f"CustomResourceDefinition {row['name']}"
            old = "" if row["action"] == "create" else "another content\n"
            entries.append({"before_header": name, "after_header": name, "before": old, "after": "that of the chart\n"})
    return entries


def run(module, api):
    """The whole work over an Api; separate from main() so that tests bring their own."""
    params = module.params
    driver = os.environ.get("HELM_DRIVER", "")
    found = look(api, params, driver)
    values, enabled, mistakes, warnings = decide_values(params, found)
    obstacle = releases.obstacle(found["release"] or UNKNOWN, params["release"], params["namespace"])
    mistakes += [obstacle] if obstacle else []
    kind = charts.kind_of(params["chart"])
    chart, path, folder, action, rows = None, None, None, "unknown", []
    try:
        if kind in ("folder", "archive"):
            path = charts.local_path(params["chart"])
            chart = charts.read(path, kind)
        about = chart or {"name": params["chart"].rstrip("/").rpartition("/")[2], "version": params["version"]}
        if found["release"] is not None:
            action = releases.action(found["release"], about, values)
        if action != "none" and chart is None:
            path, folder = fetching.fetch(module, kind)
            chart = charts.read(path, "archive")
            if found["release"] is not None:
                action = releases.action(found["release"], chart, values)
            if action == "none":  # An address does not tell the chart's name, so it was fetched to know.
                shutil.rmtree(folder, ignore_errors=True)
                path, folder = None, None
    except charts.ChartError as error:
        text = str(error)
        mistakes.append(text if text.startswith("network_operator") else sources.MISTAKE.format(text))
    try:
        if chart is not None:
            more, warned = judge_chart(params, found, chart, values)
            mistakes += more
            warnings += warned
            if action != "none" and not mistakes:
                wanted = chart_crds(chart, values)
                live = {row["name"]: api.find(f"{CRD_PATH}/{row['name']}") for row in wanted}
                rows, more = crds.plan(wanted, live, create=action == "upgrade")
                mistakes += more
        for text in warnings:
            module.warn(text)
        if mistakes:
            module.fail_json(
                msg="\n- ".join(["The operator cannot be installed as asked:", *mistakes]), mistakes=mistakes
            )
        if not module.check_mode:
            late = write_crds(api, rows, params["established_timeout"])
            if late:
                module.fail_json(msg=f"Not established after {params['established_timeout']} s: {', '.join(late)}")
    except BaseException:
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    touched = [{"name": row["name"], "action": row["action"]} for row in rows]
    shown = {key: found["nfd"][key] for key in ("instances", "rule_crd", "labelled", "label_owners")}
    about = chart or about
    before, after = release_sides(found, about, values)
    if action == "none":
        after = before
    module.exit_json(
        changed=any(row["action"] != "none" for row in touched),
        action=action,
        chart={"name": about["name"], "version": about["version"], "path": path, "fetched": folder},
        release=found["release"] or UNKNOWN,
        chart_values=values,
        nfd={"enabled": enabled, **shown},
        kubernetes=found["kubernetes"],
        crds=touched,
        requests=api.requests,
        fields=field_diff(before, after),
        diff=diff_of(before, after, rows),
    )


def argument_spec():
    spec = auth_argument_spec()
    spec.update(
        chart={"type": "str", "required": True},
        chart_repository={"type": "str", "default": "https://helm.ngc.nvidia.com/nvidia"},
        version={"type": "str", "required": True},
        release={"type": "str", "default": "network-operator"},
        namespace={"type": "str", "default": "nvidia-network-operator"},
        nfd_enabled={"type": "str", "choices": ["auto", "true", "false"], "default": "auto"},
        values={"type": "dict", "default": {}},
        user_values={"type": "dict", "default": {}},
        helm_binary={"type": "str", "default": "helm"},
        established_timeout={"type": "int", "default": 60},
    )
    return spec


def perform(module):
    api = connect(module)
    try:
        run(module, api)
    except releases.Unreadable as error:
        module.fail_json(
            msg=f"{error}. Another program wrote it, or the Secret is damaged; helm list shows what Helm makes of it."
        )
    except ApiError as error:
        module.fail_json(msg=f"The cluster cannot be prepared: {answer_text(error)}", status=error.status)


def main():
    perform(AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True))


if __name__ == "__main__":
    main()
