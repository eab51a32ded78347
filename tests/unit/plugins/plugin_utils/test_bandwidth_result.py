# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a benchmark means: verdicts, priorities, lost frames and findings, each with a faulty and a healthy twin. Figures are
those of the source articles."""

from __future__ import annotations

import copy
import json

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.bandwidth import commands, judge, priorities
from ansible_collections.railyard.rdma.plugins.module_utils.bandwidth.session import Side
from ansible_collections.railyard.rdma.plugins.plugin_utils import bandwidth
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.evaluate import evaluate
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import Context

HEAD = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
RETRY = " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\n"
SETTINGS = commands.check({"traffic_class": 41})
BW = ["BW-001", "BW-002", "BW-003", "BW-004", "BW-005"]


def good(gbps: float) -> str:
    return f"{HEAD} 65536      923824           0.00               {gbps:.2f}  \t\t   0.184766\n"


def end(host: str, function: str = "vf", rails: int = 1) -> dict:
    rail = {
        "device": "mlx5_26",
        "gid_index": 3,
        "address": "192.168.0.1",
        "port_gbps": 100,
        "function": function,
        "forced": {},
    }
    return {
        "host": host,
        "node": host,
        "pod": f"p-{host}",
        "namespace": "default",
        "rails": dict.fromkeys(range(rails), rail),
    }


def outcome(
    text: str, code: int | None = 0, client: dict | None = None, server: dict | None = None, stream=0, **more
) -> dict:
    """What run_legs gives for one rail; client and server are counters after (0 before)."""
    leg = {"client": end("a", **more), "server": end("b", **more), "stream": stream}
    sides = {}
    for name, counters in (("client", client or {}), ("server", server or {})):
        side = sides[name] = Side(name, leg[name], [{"rail": 0, "port": 1, "device": "mlx5_26", "argv": []}])
        one = side.said.rail(0)
        one.update(ready=True, ended=True, code=0, before=dict.fromkeys(counters, 0), after=counters)
    sides["client"].said.rails[0].update(text=text, code=code)
    return {"leg": leg, "left_out": {}, **sides}


def rows(*args, number: int = 0, settings: dict | None = None, **more) -> list[dict]:
    return judge.rows(outcome(*args, **more), settings or SETTINGS, number)


@pytest.mark.parametrize(
    ("gbps", "verdict"),
    [(96.86, "full"), (97.97, "full"), (90.0, "full"), (89.99, "low"), (59.45, "low"), (43.20, "low"), (0.01, "low")],
)
def test_rates_of_the_articles(gbps, verdict):
    (row,) = rows(good(gbps))
    assert (row["verdict"], row["gbps"], row["ratio"]) == (verdict, gbps, round(gbps / 100, 4))
    assert (row["reason"] is None) == (verdict == "full")
    json.dumps(row)


def test_both_directions_count_twice():
    settings = {**SETTINGS, "bidirectional": True}
    assert rows(good(193.7), settings=settings)[0]["verdict"] == "full"
    assert rows(good(96.87), settings=settings)[0]["verdict"] == "low"


def test_a_rate_without_a_port_rate_is_unknown():
    made = outcome(good(96.87))
    made["leg"]["server"]["rails"] = {0: {**made["leg"]["server"]["rails"][0], "port_gbps": None}}
    (row,) = judge.rows(made, SETTINGS, 0)
    assert (row["verdict"], row["gbps"], row["ratio"]) == ("unknown", 96.87, None)


def test_a_failure_is_told_by_the_side_that_knows():
    made = outcome("Failed to exchange data between server and clients\n", 1)
    made["server"].said.rails[0].update(code=1, text="Couldn't allocate MR\n Couldn't create IB resources\n")
    (row,) = judge.rows(made, SETTINGS, 0)
    assert (row["verdict"], row["kind"], row["said"]) == ("failed", "memlock", "Couldn't allocate MR")
    assert "ib_write_bw on b" in row["reason"] and "IPC_LOCK" in row["remedy"]


SENT, GOT = "counters/port_xmit_packets", "counters/port_rcv_packets"


@pytest.mark.parametrize(
    ("client", "server", "kind"),
    [
        ({SENT: 10003}, {GOT: 1}, "lost"),
        ({SENT: 10000}, {GOT: 10000}, "retry"),
        ({SENT: 0}, {GOT: 0}, "not_sent"),
        ({SENT: 10003}, {}, "retry"),
        ({}, {}, "retry"),
        # rdma_rxe has counters of its own.
        ({"hw_counters/sent_pkts": 500}, {"hw_counters/rcvd_pkts": 3}, "lost"),
    ],
    ids=["filtered", "arrived", "host-fault", "one-blind", "both-blind", "rxe"],
)
def test_frames_that_leave_and_never_arrive(client, server, kind):
    (row,) = rows(HEAD + RETRY, 1, client, server)
    assert (row["verdict"], row["kind"]) == ("failed", kind)
    if kind == "lost":
        count = next(iter(client.values()))
        assert f"{count} packets left mlx5_26 on a" in row["reason"]
        assert "MAC addresses of VFs" in row["remedy"]
    if kind == "not_sent":
        assert "The fault is on a" in row["remedy"]


def test_lost_frames_of_a_child_are_no_matter_of_vfs():
    (row,) = rows(HEAD + RETRY, 1, {SENT: 10003}, {GOT: 1}, function="child")
    assert row["kind"] == "lost" and "VF" not in row["remedy"]


def test_what_could_not_be_run_is_unknown():
    made = outcome("", None)
    made["client"].said.rails = {}
    made["client"].failure = "exec refused: 403 Forbidden"
    (row,) = judge.rows(made, SETTINGS, 0)
    assert (row["verdict"], row["kind"]) == ("unknown", "stream") and "403" in row["reason"]
    made["client"].failure = None
    made["server"].said.rails[0].update(taken=18515, ready=False, ended=False)
    (row,) = judge.rows(made, SETTINGS, 0)
    assert (row["verdict"], row["kind"]) == ("unknown", "port")
    made["left_out"] = {0: "b: no GID"}
    (row,) = judge.rows(made, SETTINGS, 0)
    assert (row["verdict"], row["kind"], row["reason"]) == ("unknown", "missing", "b: no GID")


@pytest.mark.parametrize(
    ("rates", "verdict", "total"),
    [((48.96, 49.00), "full", 97.96), ((30.0, 30.0), "low", 60.0), ((96.87, 96.88), "unknown", None)],
    ids=["articles", "slow", "not-at-once"],
)
def test_two_pairs_on_one_port_are_judged_by_their_sum(rates, verdict, total):
    made = [row for stream, rate in enumerate(rates) for row in rows(good(rate), stream=stream)]
    judge.share_ports(made)
    assert [row["verdict"] for row in made] == [verdict] * 2
    assert [row["shared_gbps"] for row in made] == [total] * 2


def test_a_stream_that_failed_leaves_the_other_as_it_is():
    made = [*rows(good(96.87)), *rows(HEAD + RETRY, 1, stream=1)]
    judge.share_ports(made)
    assert [row["verdict"] for row in made] == ["full", "failed"]


def test_a_node_that_is_slow_on_both_sides_is_at_fault_itself():
    def row(client, server, verdict):
        return {"rail": 0, "client": {"host": client}, "server": {"host": server}, "verdict": verdict}

    ring = [row("a", "b", "full"), row("b", "c", "low"), row("c", "d", "low"), row("d", "a", "full")]
    assert judge.slow_hosts(ring) == [{"rail": 0, "hosts": ["c"]}]
    assert judge.slow_hosts([row("a", "b", "low"), row("b", "c", "full"), row("c", "a", "full")]) == []


# -- priorities ----------------------------------------------------------------------------------------------------------

RAIL = {"rail": 0, "pci": "0000:0c:00.0"}
QOS = {
    "trust": "dscp",
    "dscp_to_priority": {str(dscp): 0 if dscp == 10 else 1 if dscp == 0 else dscp >> 3 for dscp in range(64)},
}


def facts(packets: dict[int, int], qos: dict | None = None) -> dict:
    """A PF that counted so many packets by priority."""
    counted = {
        str(number): {
            "tx_bytes": packets.get(number, 0) * 4154,
            "tx_packets": packets.get(number, 0),
            "rx_bytes": 0,
            "rx_packets": 0,
        }
        for number in range(8)
    }
    netdev = {"pci": RAIL["pci"], "qos": qos or QOS, "counters": {"priority": counted, "other": {}}, "reasons": {}}
    return {"netdevs": {"rdma0": netdev}, "devices": {}}


FORCED_0 = [{"device": "mlx5_18", "function_name": "VF", "state": "set", "value": 0}]
FORCED_41 = [{**FORCED_0[0], "value": 41}]
UNSET = [{**FORCED_0[0], "state": "unset", "value": None}]


@pytest.mark.parametrize(
    ("packets", "forced", "verdict", "reason"),
    [
        ({0: 29_563_232, 1: 22}, UNSET, "right", "right class on priority 0"),
        ({1: 29_676_723}, FORCED_0, "wrong", "priority 1: forced class 0 on the VF"),
        ({0: 29_563_058}, UNSET, "right", "right class on priority 0"),
        ({1: 29_678_580}, FORCED_0, "wrong", "priority 1: forced class 0 on the VF"),
        ({0: 29_562_736}, FORCED_41, "right", "right class on priority 0"),
        ({0: 29_563_121, 1: 22}, UNSET, "right", "right class on priority 0"),
        (
            {1: 29_676_723},
            UNSET,
            "wrong",
            "priority 1 instead of 0: 100.0% of the bytes, and no device forces a class for it",
        ),
        ({0: 20}, UNSET, "unknown", "the port carried 83080 bytes only"),
    ],
    ids=["pf-exclusive", "vf-exclusive", "vf-shared", "no-qos", "qos", "pf-hostnetwork", "not-forced", "quiet"],
)
def test_priorities_of_the_articles(packets, forced, verdict, reason):
    row = priorities.row("a", RAIL, facts({}), facts(packets), 41, forced, [])
    assert (row["verdict"], row["reason"]) == (verdict, reason)
    assert (row["remedy"] is not None) == (verdict == "wrong")
    assert row["wanted_priority"] == 0
    if verdict == "wrong" and forced is FORCED_0:
        assert "rdmaQoS with tc 41" in row["remedy"]


@pytest.mark.parametrize(
    ("before", "after", "wanted", "reason"),
    [
        (None, facts({}), 41, "there are no facts of the PF's interface from before the test"),
        (facts({}), None, 41, "there are no facts of the PF's interface from after the test"),
        (facts({}), facts({0: 10**6}), None, "no traffic class is wanted (rails_traffic_class), so no priority is"),
        (facts({}), facts({0: 10**6}, {"trust": "pcp"}), 41, "rdma0 trusts the PCP, so the class decides nothing"),
        (facts({}), facts({0: 10**6}, {"trust": "dscp"}), 41, "the priority of DSCP 10 on rdma0 is not known"),
    ],
    ids=["before", "after", "no-class", "pcp", "no-map"],
)
def test_a_priority_that_cannot_be_known_is_unknown(before, after, wanted, reason):
    row = priorities.row("a", RAIL, before, after, wanted, UNSET, [])
    assert (row["verdict"], row["reason"]) == ("unknown", reason)


def test_counters_that_the_driver_lacks_are_unknown():
    bare = facts({})
    bare["netdevs"]["rdma0"].update(counters=None, reasons={"counters": "the driver has no statistics"})
    row = priorities.row("a", RAIL, bare, bare, 41, UNSET, [])
    assert row["reason"] == "rdma0 has no counters by priority (before the test): the driver has no statistics"


# -- endpoints -----------------------------------------------------------------------------------------------------------


def layout(rails: int = 1) -> dict:
    return {
        "name": "l", "hosts": ["a", "b"], "traffic_class": 41, "ip_family": "ipv4", "pools": [],
        "rails": [{"rail": n, "pci": f"0000:0{n}:00.0", "network": f"net-{n}"} for n in range(rails)],
    }  # fmt: skip


def pod(rails: int = 1) -> dict:
    netdevs, devices = {}, {}
    for number in range(rails):
        address = f"192.168.0.{number + 34}"
        gid = {
            "index": 3,
            "gid": "x",
            "address": address,
            "type": "RoCE v2",
            "netdev": f"net{number + 1}",
            "usable": True,
            "scope": "ipv4",
        }
        port = {"gids": [gid], "rate_gbps": 100, "traffic_class": {"state": "set", "value": 41, "rules": []}}
        netdevs[f"net{number + 1}"] = {
            "pci": f"0000:0{number}:01.0", "parent_pci": f"0000:0{number}:00.0",
            "addresses": [{"address": address, "scope": "global", "tentative": False}],
        }  # fmt: skip
        devices[f"mlx5_{number + 18}"] = {
            "pci": f"0000:0{number}:01.0",
            "netdev": f"net{number + 1}",
            "ports": {"1": port},
        }
    return {"reachable": True, "netns_mode": "exclusive", "netdevs": netdevs, "devices": devices, "networks": None}


def test_pod(host: str, part: str = "", rails=None, count: int = 1) -> dict:
    meta = {"name": f"p-{host}{part}", "namespace": "default"}
    return {
        "host": host,
        "node": host,
        "rails": rails,
        "count": count,
        "pod": {"metadata": meta, "spec": {"containers": [{"name": "probe"}]}},
    }


test_pod.__test__ = False


def test_endpoints_from_what_pods_see():
    blind = {"reachable": False, "reason": "ImagePullBackOff"}
    found = bandwidth.endpoints(
        {"layouts": [layout()]}, {}, {"p-a": pod(), "p-b": blind}, [test_pod("a"), test_pod("b")]
    )
    one, other = found["endpoints"]
    assert one["rails"][0] == {
        "device": "mlx5_18", "pci": "0000:00:01.0", "interface": "net1", "function": "vf", "gid_index": 3,
        "address": "192.168.0.34", "port_gbps": 100, "forced": {"state": "set", "value": 41, "rules": []},
    }  # fmt: skip
    assert (one["traffic_class"], one["container"]) == (41, "probe")
    assert other["missing"] == {0: "the pod cannot be used: ImagePullBackOff"}
    assert (found["groups"], found["streams"]) == ([["a", "b"]], 1)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda seen: seen["netdevs"].clear(), "the pod has no interface on this rail"),
        (lambda seen: seen["devices"].clear(), "net1 has no RDMA device in the pod"),
        (lambda seen: seen["devices"]["mlx5_18"]["ports"]["1"]["gids"].clear(),
         "mlx5_18 has no usable RoCE v2 GID of an address of net1"),
    ],
    ids=["interface", "device", "gid"],
)  # fmt: skip
def test_a_rail_that_cannot_be_tested_says_why(change, reason):
    seen = copy.deepcopy(pod())
    change(seen)
    found = bandwidth.endpoints({"layouts": [layout()]}, {}, {"p-a": seen}, [test_pod("a")])
    assert found["endpoints"][0]["missing"] == {0: reason}


def test_sharing_needs_pods_with_all_rails_each():
    both = [test_pod("a", "-a", count=2), test_pod("a", "-b", count=2)]
    found = bandwidth.endpoints({"layouts": [layout(2)]}, {}, {"p-a-a": pod(2), "p-a-b": pod(2)}, both)
    assert [one["stream"] for one in found["endpoints"]] == [0, 1] and found["streams"] == 2
    half = [test_pod("a", "-a", rails=[0]), test_pod("a", "-b", rails=[1])]
    with pytest.raises(ValueError, match="share: a has no VFs enough"):
        bandwidth.endpoints({"layouts": [layout(2)]}, {}, {}, half)


# -- findings ------------------------------------------------------------------------------------------------------------


def findings(results: list[dict], table: list[dict] = (), rails: int = 1) -> list[dict]:
    measured = {"settings": {}, "slow_hosts": judge.slow_hosts(results), "results": results, "priorities": list(table)}
    known = [Context(host, layout(rails), bandwidth=bandwidth.of_host(measured, host)) for host in ("a", "b")]
    return evaluate(known, ["bandwidth"], only=BW)


def told(found: list[dict]) -> set[tuple]:
    return {(row["id"], row["severity"], row["node"], row["rail"]) for row in found}


def test_a_healthy_benchmark_has_no_finding():
    table = [priorities.row(host, RAIL, facts({}), facts({0: 29_563_058}), 41, UNSET, []) for host in ("a", "b")]
    assert findings(rows(good(96.87)), table) == []


def test_findings_of_what_went_wrong():
    assert told(findings(rows("Couldn't connect to 192.168.0.1:18515\n", 1))) == {("BW-001", "error", "a", 0)}
    assert told(findings(rows(good(51.78)))) == {("BW-002", "error", "a", 0)}
    assert told(findings(rows(HEAD + RETRY, 1, {SENT: 10003}, {GOT: 1}))) == {("BW-004", "error", "a", 0)}
    counted = {GOT: 14_830_000, "hw_counters/out_of_sequence": 5_825}
    assert told(findings(rows(good(97.97), server=counted))) == {("BW-005", "warning", "a", 0)}
    assert findings(rows(good(97.97), server={**counted, "hw_counters/out_of_sequence": 12})) == []
    wrong = priorities.row("b", RAIL, facts({}), facts({1: 29_676_723}), 41, FORCED_0, [])
    found = next(row for row in findings([], [wrong]) if row["id"] == "BW-003")
    assert (found["id"], found["node"], found["severity"]) == ("BW-003", "b", "error")
    assert found["summary"] == "rdma0: priority 1: forced class 0 on the VF" and "rdmaQoS" in found["remedy"]


def test_what_could_not_be_measured_is_unknown_and_never_a_pass():
    made = outcome(good(96.87))
    made["left_out"] = {0: "b: no GID"}
    blind = priorities.row("a", RAIL, None, None, 41, UNSET, [])
    found = findings(judge.rows(made, SETTINGS, 0), [blind])
    assert told(found) == {("BW-002", "unknown", "a", 0), ("BW-003", "unknown", "a", 0)}


def test_a_node_without_a_peer_is_unknown():
    assert told(findings([])) == {("BW-002", "unknown", host, None) for host in "ab"}


def test_one_cause_on_every_rail_is_one_finding():
    made = [dict(rows(good(51.78))[0], rail=rail) for rail in range(2)]
    (found,) = findings(made, rails=2)
    assert found["rail"] is None and found["evidence"]["rails"] == [0, 1]
    assert found["summary"].startswith("All rails, 51.78 to 51.78 Gb/s")


def test_the_whole_result():
    made = rows(HEAD + RETRY, 1)
    device = {
        "mlx5_26": {
            "pci": "x",
            "ports": {"1": {"counters": {"counters": {"port_xmit_packets": 0, "port_rcv_packets": 0}}}},
        }
    }
    after = copy.deepcopy(device)
    after["mlx5_26"]["ports"]["1"]["counters"]["counters"] = {"port_xmit_packets": 10003, "port_rcv_packets": 1}
    measured = {"settings": {"traffic_class": None}, "rounds": [], "results": made}
    found = {"endpoints": [end("a"), end("b")], "groups": [], "streams": 1}
    before_all = {host: {**facts({}), "devices": device} for host in "ab"}
    after_all = {host: {**facts({1: 10**6}), "devices": after} for host in "ab"}
    whole = bandwidth.result({"layouts": [{**layout(), "rails": [RAIL]}]}, measured, found, before_all, after_all)
    # Pods saw no counters (shared mode): those of the node tell where the frames went.
    assert (whole["schema"], whole["results"][0]["kind"]) == (1, "lost")
    assert [row["verdict"] for row in whole["priorities"]] == ["wrong", "wrong"]
    assert len(bandwidth.lines(whole)) == 1 + 1 + 2
    json.dumps(whole)
