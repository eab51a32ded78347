# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which role of access/ holds a right.

Generated from access/rights.yml by scripts/generate_access.py; change it there.
"""

from __future__ import annotations

# End of a ClusterRole's name, by the place where it is bound.
SUFFIXES = {"cluster": "", "operator": "-operator", "networks": "-networks", "leases": "-leases"}
# (API group, resource): {verb: [playbook@place]}.
HOLDERS = {
    ("", "configmaps"): {
        "create": ["install_operator@operator"],
        "delete": ["install_operator@operator"],
        "get": ["install_operator@operator", "apply_rails@operator", "plan@operator", "teardown@operator"],
        "list": ["install_operator@operator"],
        "patch": ["install_operator@operator"],
        "watch": ["install_operator@operator"],
    },
    ("", "events"): {
        "list": [
            "apply_rails@cluster",
            "verify@networks",
            "benchmark@networks",
            "nccl@networks",
            "plan@cluster",
            "teardown@cluster",
        ],
    },
    ("", "namespaces"): {
        "create": ["install_operator@cluster"],
        "get": ["verify@cluster", "benchmark@cluster"],
        "list": ["apply_rails@cluster", "plan@cluster", "teardown@cluster"],
        "patch": ["install_operator@cluster"],
    },
    ("", "nodes"): {
        "get": ["prepare_nodes@cluster", "apply_rails@cluster"],
        "list": [
            "prepare_nodes@cluster",
            "install_operator@cluster",
            "apply_rails@cluster",
            "verify@cluster",
            "benchmark@cluster",
            "nccl@cluster",
            "plan@cluster",
            "teardown@cluster",
        ],
        "patch": ["prepare_nodes@cluster"],
    },
    ("", "pods"): {
        "create": ["verify@networks", "benchmark@networks", "nccl@networks"],
        "delete": ["verify@networks", "benchmark@networks", "nccl@networks"],
        "get": ["nccl@networks"],
        "list": [
            "prepare_nodes@cluster",
            "install_operator@operator",
            "apply_rails@cluster",
            "verify@cluster",
            "benchmark@networks",
            "nccl@networks",
            "plan@cluster",
            "teardown@cluster",
        ],
        "patch": ["verify@networks", "benchmark@networks", "nccl@networks"],
    },
    ("", "pods/eviction"): {
        "create": ["prepare_nodes@cluster"],
    },
    ("", "pods/exec"): {
        "create": ["verify@networks", "benchmark@networks"],
        "get": ["verify@networks", "benchmark@networks"],
    },
    ("", "pods/log"): {
        "get": ["apply_rails@operator", "nccl@networks"],
    },
    ("", "secrets"): {
        "create": ["install_operator@operator"],
        "delete": ["install_operator@operator"],
        "get": ["install_operator@operator"],
        "list": ["install_operator@operator", "plan@operator"],
        "update": ["install_operator@operator"],
    },
    ("", "serviceaccounts"): {
        "create": ["install_operator@operator"],
        "delete": ["install_operator@operator"],
        "get": ["install_operator@operator"],
        "list": ["install_operator@operator"],
        "patch": ["install_operator@operator"],
        "watch": ["install_operator@operator"],
    },
    ("", "services"): {
        "create": ["nccl@networks"],
        "delete": ["nccl@networks"],
        "get": ["nccl@networks"],
        "list": ["nccl@networks"],
        "patch": ["nccl@networks"],
    },
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"): {
        "list": ["apply_rails@cluster", "plan@cluster", "teardown@cluster"],
    },
    ("apiextensions.k8s.io", "customresourcedefinitions"): {
        "create": ["install_operator@cluster"],
        "get": ["install_operator@cluster", "apply_rails@cluster", "verify@cluster", "plan@cluster"],
        "list": ["install_operator@cluster"],
        "patch": ["install_operator@cluster"],
        "watch": ["install_operator@cluster"],
    },
    ("apps", "daemonsets"): {
        "create": ["install_operator@operator"],
        "delete": ["install_operator@operator"],
        "get": ["install_operator@operator"],
        "list": ["install_operator@cluster", "apply_rails@operator", "verify@cluster", "plan@cluster"],
        "patch": ["install_operator@operator"],
        "watch": ["install_operator@operator"],
    },
    ("apps", "deployments"): {
        "create": ["install_operator@operator"],
        "delete": ["install_operator@operator"],
        "get": ["install_operator@operator"],
        "list": ["install_operator@operator", "apply_rails@operator", "plan@operator", "teardown@operator"],
        "patch": ["install_operator@operator"],
        "watch": ["install_operator@operator"],
    },
    ("apps", "replicasets"): {
        "list": ["install_operator@operator"],
    },
    ("batch", "jobs"): {
        "create": ["install_operator@operator", "verify@networks", "benchmark@networks", "nccl@networks"],
        "delete": ["install_operator@operator", "verify@networks", "benchmark@networks", "nccl@networks"],
        "get": ["install_operator@operator"],
        "list": ["install_operator@operator"],
        "patch": ["install_operator@operator"],
        "watch": ["install_operator@operator"],
    },
    ("coordination.k8s.io", "leases"): {
        "get": ["prepare_nodes@leases"],
    },
    ("k8s.cni.cncf.io", "network-attachment-definitions"): {
        "create": ["apply_rails@networks"],
        "delete": ["apply_rails@networks", "teardown@networks"],
        "get": ["apply_rails@networks", "plan@networks", "teardown@networks"],
        "list": ["apply_rails@cluster", "verify@networks", "plan@cluster", "teardown@cluster"],
        "patch": ["apply_rails@networks"],
    },
    ("kubeflow.org", "mpijobs"): {
        "create": ["nccl@networks"],
        "delete": ["nccl@networks"],
        "get": ["nccl@networks"],
        "list": ["nccl@networks"],
        "patch": ["nccl@networks"],
    },
    ("maintenance.nvidia.com", "nodemaintenances"): {
        "list": ["prepare_nodes@cluster"],
    },
    ("mellanox.com", "nicclusterpolicies"): {
        "create": ["apply_rails@cluster"],
        "delete": ["teardown@cluster"],
        "get": ["apply_rails@cluster", "verify@cluster", "plan@cluster", "teardown@cluster"],
        "list": ["apply_rails@cluster", "plan@cluster", "teardown@cluster"],
        "patch": ["apply_rails@cluster"],
    },
    ("nfd.k8s-sigs.io", "nodefeaturerules"): {
        "create": ["install_operator@cluster"],
        "delete": ["install_operator@cluster"],
        "get": ["install_operator@cluster"],
        "list": ["install_operator@cluster"],
        "patch": ["install_operator@cluster"],
        "watch": ["install_operator@cluster"],
    },
    ("nv-ipam.nvidia.com", "cidrpools"): {
        "create": ["apply_rails@operator"],
        "delete": ["apply_rails@operator", "teardown@operator"],
        "get": ["apply_rails@operator", "plan@operator"],
        "list": ["apply_rails@operator", "plan@operator", "teardown@operator"],
        "patch": ["apply_rails@operator"],
    },
    ("nv-ipam.nvidia.com", "ippools"): {
        "create": ["apply_rails@operator"],
        "delete": ["apply_rails@operator", "teardown@operator"],
        "get": ["apply_rails@operator", "plan@operator"],
        "list": ["apply_rails@operator", "plan@operator", "teardown@operator"],
        "patch": ["apply_rails@operator"],
    },
    ("policy", "poddisruptionbudgets"): {
        "list": ["prepare_nodes@cluster", "apply_rails@cluster", "plan@cluster", "teardown@cluster"],
    },
    ("rbac.authorization.k8s.io", "clusterrolebindings"): {
        "create": ["install_operator@cluster"],
        "delete": ["install_operator@cluster"],
        "get": ["install_operator@cluster"],
        "list": ["install_operator@cluster"],
        "patch": ["install_operator@cluster"],
        "watch": ["install_operator@cluster"],
    },
    ("rbac.authorization.k8s.io", "clusterroles"): {
        "bind": ["install_operator@cluster"],
        "create": ["install_operator@cluster"],
        "delete": ["install_operator@cluster"],
        "escalate": ["install_operator@cluster"],
        "get": ["install_operator@cluster"],
        "list": ["install_operator@cluster"],
        "patch": ["install_operator@cluster"],
        "watch": ["install_operator@cluster"],
    },
    ("rbac.authorization.k8s.io", "rolebindings"): {
        "create": ["install_operator@operator"],
        "delete": ["install_operator@operator"],
        "get": ["install_operator@operator"],
        "list": ["install_operator@operator"],
        "patch": ["install_operator@operator"],
        "watch": ["install_operator@operator"],
    },
    ("rbac.authorization.k8s.io", "roles"): {
        "bind": ["install_operator@operator"],
        "create": ["install_operator@operator"],
        "delete": ["install_operator@operator"],
        "escalate": ["install_operator@operator"],
        "get": ["install_operator@operator"],
        "list": ["install_operator@operator"],
        "patch": ["install_operator@operator"],
        "watch": ["install_operator@operator"],
    },
    ("sriovnetwork.openshift.io", "sriovnetworknodepolicies"): {
        "create": ["apply_rails@operator"],
        "delete": ["apply_rails@operator", "teardown@operator"],
        "get": ["apply_rails@operator", "plan@operator"],
        "list": ["apply_rails@operator", "plan@operator", "teardown@operator"],
        "patch": ["apply_rails@operator"],
    },
    ("sriovnetwork.openshift.io", "sriovnetworknodestates"): {
        "list": ["prepare_nodes@cluster", "apply_rails@operator", "plan@operator", "teardown@operator"],
    },
    ("sriovnetwork.openshift.io", "sriovnetworkpoolconfigs"): {
        "create": ["apply_rails@operator"],
        "delete": ["apply_rails@operator", "teardown@operator"],
        "get": ["apply_rails@operator", "plan@operator"],
        "list": [
            "prepare_nodes@cluster",
            "apply_rails@operator",
            "verify@operator",
            "plan@cluster",
            "teardown@operator",
        ],
        "patch": ["apply_rails@operator"],
    },
    ("sriovnetwork.openshift.io", "sriovnetworks"): {
        "create": ["apply_rails@operator"],
        "delete": ["apply_rails@operator", "teardown@operator"],
        "get": ["apply_rails@operator", "plan@operator"],
        "list": ["apply_rails@operator", "plan@operator", "teardown@operator"],
        "patch": ["apply_rails@operator"],
    },
    ("sriovnetwork.openshift.io", "sriovoperatorconfigs"): {
        "create": ["install_operator@operator"],
        "delete": ["install_operator@operator"],
        "get": ["install_operator@operator", "verify@operator"],
        "list": ["install_operator@operator", "apply_rails@cluster", "plan@cluster", "teardown@cluster"],
        "patch": ["install_operator@operator"],
        "watch": ["install_operator@operator"],
    },
}
