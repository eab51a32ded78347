# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the examples render equals what the articles published, compared as data."""

from __future__ import annotations

import pytest

from tests.golden import articles
from tests.golden.conftest import bundle

SRIOV_ARTICLE = "000_44977c01dc16adb6.txt"
GID_ARTICLE = "003_f390c1186744cdd0.txt"

RAILS = 16
WITHOUT_QOS = {
    ".spec.metaPlugins[rdma].rdmaQoS": (
        {"tc": 41},
        None,
        "Without rdmaQoS the RDMA CNI forces class 0, which halved the bandwidth in the article; it then adds rdmaQoS.",
    )
}
MULTUS_MEMORY = {
    ".spec.secondaryNetwork.multus.containerResources": (
        [
            {
                "name": "kube-multus",
                "requests": {"cpu": "100m", "memory": "128Mi"},
                "limits": {"cpu": "100m", "memory": "512Mi"},
            }
        ],
        None,
        "The published policy leaves Multus at 50Mi, at which it was seen to be killed (multus-cni#1160, #1346).",
    )
}


def published(reference, article: str, kind: str, **conditions) -> list[dict]:
    """Return the objects of a kind in an article whose parsed spec meets every condition, repeats left out."""
    found = []
    for obj in articles.manifests((reference / "seeds" / article).read_text()):
        if obj["kind"] != kind:
            continue
        plain = articles.plain(obj)
        chain = [plugin["type"] for plugin in plain["spec"].get("metaPlugins", [])]
        qos = any("rdmaQoS" in plugin for plugin in plain["spec"].get("metaPlugins", []))
        facts = {**plain["spec"], "name": plain["metadata"]["name"], "rdma": "rdma" in chain, "qos": qos}
        if all(facts.get(key) == value for key, value in conditions.items()) and plain not in found:
            found.append(plain)
    return found


def ours(folder, kind: str) -> list[dict]:
    """Return the rendered objects of a kind, JSON texts parsed."""
    files = [objects for name, objects in bundle(folder).items() if name != "values.yaml"]
    return [articles.plain(obj) for objects in files for obj in objects if obj["kind"] == kind]


def names(prefix: str) -> list[str]:
    return [f"{prefix}-{rail}" for rail in range(RAILS)]


# Example, further variables, kind, article, conditions on the published objects, their number, differences by design.
CASES = {
    "NicClusterPolicy": ("a100-sriov-node", (), "NicClusterPolicy", SRIOV_ARTICLE, {}, 1, MULTUS_MEMORY),
    "pool": ("a100-sriov-node", (), "IPPool", SRIOV_ARTICLE, {}, 1, {}),
    "pool config": ("a100-sriov-node", (), "SriovNetworkPoolConfig", SRIOV_ARTICLE, {}, 1, {}),
    "policy with 1 VF": (
        "a100-sriov-node",
        (),
        "SriovNetworkNodePolicy",
        SRIOV_ARTICLE,
        {"name": "bm-gpu-b4-8", "numVfs": 1},
        1,
        {},
    ),
    "one policy with 2 VFs": (
        "a100-sriov-node",
        ("rails_vfs_per_pf=2", "rails_resource_scope=node"),
        "SriovNetworkNodePolicy",
        SRIOV_ARTICLE,
        {"name": "bm-gpu-b4-8", "numVfs": 2},
        1,
        {},
    ),
    "a policy a rail": ("a100-sriov-rails", (), "SriovNetworkNodePolicy", SRIOV_ARTICLE, names("rdma-vf"), RAILS, {}),
    "a network a rail": ("a100-sriov-rails", (), "SriovNetwork", SRIOV_ARTICLE, names("rdma-vf"), RAILS, {}),
    "shared network": (
        "a100-sriov-node",
        (),
        "SriovNetwork",
        SRIOV_ARTICLE,
        {"name": "rdma-vf", "rdma": False},
        1,
        {},
    ),
    "exclusive network": (
        "a100-sriov-exclusive",
        (),
        "SriovNetwork",
        SRIOV_ARTICLE,
        {"name": "rdma-vf", "qos": True},
        1,
        {},
    ),
    "exclusive network without rdmaQoS": (
        "a100-sriov-exclusive",
        (),
        "SriovNetwork",
        SRIOV_ARTICLE,
        {"name": "rdma-vf", "rdma": True, "qos": False},
        1,
        WITHOUT_QOS,
    ),
    "shared network, GID article": (
        "a100-sriov-node",
        (),
        "SriovNetwork",
        GID_ARTICLE,
        {"name": "rdma-vf", "rdma": False},
        1,
        {},
    ),
    "exclusive network, GID article": (
        "a100-sriov-exclusive",
        (),
        "SriovNetwork",
        GID_ARTICLE,
        {"name": "rdma-vf", "rdma": True},
        1,
        WITHOUT_QOS,
    ),
    "IPvlan networks": (
        "a100-ipvlan",
        (),
        "NetworkAttachmentDefinition",
        GID_ARTICLE,
        names("rdma-ipvlan"),
        RAILS,
        {},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_we_render_equals_what_was_published(case, rendered, reference):
    example, extra, kind, article, wanted, count, by_design = CASES[case]
    if isinstance(wanted, list):
        theirs = [obj for name in wanted for obj in published(reference, article, kind, name=name)]
    else:
        theirs = published(reference, article, kind, **wanted)
    assert len(theirs) == count, "the article was not read as expected"
    mine = ours(rendered(example, *extra), kind)
    assert [obj["metadata"]["name"] for obj in mine] == [obj["metadata"]["name"] for obj in theirs]
    for our_obj, their_obj in zip(mine, theirs, strict=True):
        allowed = {path: (value, published_value) for path, (value, published_value, _reason) in by_design.items()}
        # Equality of both maps: a new difference fails, and so does a listed one that no longer occurs.
        assert articles.differences(our_obj, their_obj) == allowed


def test_values_equal_the_published_ones(rendered, reference):
    theirs = articles.values((reference / "seeds" / SRIOV_ARTICLE).read_text())
    assert set(theirs) == {"nfd", "sriovNetworkOperator", "sriov-network-operator", "operator"}
    assert articles.differences(bundle(rendered("a100-sriov-node"))["values.yaml"][0], theirs) == {}


def test_every_published_object_of_our_kinds_has_a_case(reference):
    """No published object is forgotten: what the cases select is all that the articles show of our kinds."""
    kinds = {case[2] for case in CASES.values()}
    for article in (SRIOV_ARTICLE, GID_ARTICLE):
        selected = set()
        for _example, _extra, kind, source, wanted, _count, _design in CASES.values():
            if source == article:
                queries = [{"name": name} for name in wanted] if isinstance(wanted, list) else [wanted]
                selected.update(repr(obj) for query in queries for obj in published(reference, article, kind, **query))
        shown = {repr(obj) for kind in kinds for obj in published(reference, article, kind)}
        assert shown == selected


def test_the_placeholder_networks_follow_the_description_of_the_article(rendered):
    """The article describes its B300 networks in words: the placeholder range, no tuning, no sbr."""
    folder = rendered("b300-ipvlan-ipv6")
    networks = ours(folder, "NetworkAttachmentDefinition")
    assert [obj["metadata"]["name"] for obj in networks] == names("rdma-ipvlan")
    for rail, network in enumerate(networks):
        assert [plugin["type"] for plugin in network["spec"]["config"]["plugins"]] == ["ipvlan"]
        assert network["spec"]["config"]["plugins"][0]["master"] == f"rdma{rail}"
    assert ours(folder, "IPPool")[0]["spec"]["subnet"] == "fd01:0:0:100::/112"


@pytest.mark.parametrize("example", ["a100-ipvlan", "a100-host-network", "b300-host-device", "b300-ipvlan-ipv6"])
def test_the_pfs_are_offered_as_hostdev_by_their_addresses(example, rendered):
    import json

    policy = ours(rendered(example), "NicClusterPolicy")[0]
    resource = json.loads(policy["spec"]["sriovDevicePlugin"]["config"])["resourceList"]
    assert [(row["resourcePrefix"], row["resourceName"]) for row in resource] == [("nvidia.com", "hostdev")]
    assert len(resource[0]["selectors"]["pciAddresses"]) == RAILS
    assert ("nvIpam" in policy["spec"]) == ("ipvlan" in example)
