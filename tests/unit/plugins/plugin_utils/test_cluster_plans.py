# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.railyard.rdma.plugins.plugin_utils import preflight
from ansible_collections.railyard.rdma.plugins.plugin_utils.hosts import host_values

FITTING = {"kubernetes.core": "6.6.0", "ansible.posix": "2.2.2", "ansible.utils": "6.1.1"}


def found(**changes):
    return {
        "python": {
            "executable": "/v/python",
            "libraries": {"kubernetes": "31.0.0", "PyYAML": "6.0", "websocket-client": "1.8.0"},
        },
        "helm": {"path": "/usr/bin/helm", "version": "4.1.4", "reason": None},
        "cluster": {"host": "https://x", "version": "1.36.4", "reason": None},
        **changes,
    }


def mistakes(given=None, operator="26.7.1", collections=None, **options):
    return preflight.mistakes(given or found(), operator, version_of=(FITTING | (collections or {})).get, **options)


def test_all_fits():
    assert mistakes() == []


@pytest.mark.parametrize(
    ("name", "version", "text"),
    [
        ("kubernetes.core", None, "kubernetes.core is missing"),
        ("kubernetes.core", "6.3.9", "needed is 6.4.0 or newer and below 7.0.0"),
        ("kubernetes.core", "7.0.0", "needed is 6.4.0 or newer and below 7.0.0"),
        ("ansible.utils", "5.1.2", "Collection ansible.utils is 5.1.2"),
    ],
)
def test_collections(name, version, text):
    (one,) = mistakes(collections={name: version})
    assert text in one and "ansible-galaxy" in one


def test_libraries_name_the_interpreter():
    given = found()
    given["python"]["libraries"].update(kubernetes="12.0.1", PyYAML=None)
    old, absent = mistakes(given)
    assert "kubernetes is 12.0.1" in old and "/v/python -m pip install --upgrade" in old
    assert "PyYAML is missing" in absent


def test_helm():
    absent = found(helm={"path": None, "version": None, "reason": "helm is not on the PATH"})
    assert "network_operator_helm_binary" in mistakes(absent)[0]
    assert mistakes(absent, helm=False) == []
    assert "Helm is 3.4.2" in mistakes(found(helm={"path": "h", "version": "3.4.2", "reason": None}))[0]


@pytest.mark.parametrize(
    ("operator", "cluster", "fits"),
    [("26.7.1", "1.31.9", False), ("26.7.1", "1.32.0", True), ("26.4.1", "1.31.9", True), ("26.10.0", "1.31.0", False)],
)
def test_the_charts_gate(operator, cluster, fits):
    given = found(cluster={"host": "h", "version": cluster, "reason": None})
    assert (mistakes(given, operator) == []) is fits


def test_cluster_that_does_not_answer_is_told_in_one_line():
    given = found(cluster={"host": None, "version": None, "reason": "No connection:\nrefused"})
    assert mistakes(given) == ["Kubernetes cannot be used: No connection: refused"]
    assert mistakes(given, cluster=False) == []


def test_versions_of_real_collections_and_of_none():
    assert preflight.collection_version("no.such") is None


@pytest.mark.parametrize(("text", "value"), [("26.7.0-rc.2", (26, 7, 0)), ("5.1", (5, 1, 0)), ("devel", (0, 0, 0))])
def test_numbers_of_a_version(text, value):
    assert preflight.numbers(text) == value


def test_host_values_of_hosts_with_and_without_facts():
    hostvars = {"a": {"ansible_facts": {"rdma": {"schema": 1}}, "ansible_host": "10.0.0.1"}, "b": {}}
    facts, addresses = host_values({"hosts": {"a": "l", "b": "l", "c": "l"}}, hostvars)
    assert facts == {"a": {"schema": 1}, "b": None, "c": None}
    assert addresses == {"a": "10.0.0.1", "b": None, "c": None}
