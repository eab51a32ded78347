#!/usr/bin/python
# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: rail_bandwidth
short_description: Measure the bandwidth between pods on every rail
version_added: 0.2.0
description:
  - Runs C(ib_write_bw) between pods in rounds. In a round each node is in one pair, with all rails at once or one after the
    other.
  - A ring of nodes needs as many pairs as there are nodes, in two or three rounds, whatever their number is.
  - Each pod gets one stream of the exec subresource a round, with one shell script that starts the tools, says when servers
    listen, and ends its own children when the stream ends. So nothing is left in a pod when the module is killed.
  - A rail that gives no result does not fail the module. Its verdict is V(failed) or V(unknown), with what the tool said and
    what helps.
  - With check mode nothing is run.
author:
  - Railyard contributors (@railyard)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
attributes:
  check_mode:
    support: full
    description: Says which pairs would be tested, and tests none.
  diff_mode:
    support: none
    description: Nothing changes.
options:
  endpoints:
    description:
      - The pods, as the filter P(railyard.rdma.bandwidth_endpoints#filter) makes them of what they see.
    type: list
    elements: dict
    required: true
  groups:
    description:
      - Lists of hosts that may be paired with each other; those of one layout.
    type: list
    elements: list
    required: true
  pattern:
    description:
      - V(ring) tests every node with the next one. V(matrix) tests every ordered pair, which takes as many rounds as there
        are nodes, twice.
    type: str
    choices: [ring, matrix]
    default: ring
  streams:
    description:
      - Number of pods a node that are tested at the same time. With V(2) two pairs share each port, and are judged by their
        sum.
    type: int
    default: 1
  rails:
    description:
      - Whether the rails of a pair are tested all at once or one after the other.
    type: str
    choices: [together, one_by_one]
    default: together
  bidirectional:
    description:
      - Whether both sides of a test send at once.
    type: bool
    default: false
  seconds:
    description:
      - Duration of each test.
    type: int
    default: 5
  size:
    description:
      - Bytes of a message.
    type: int
    default: 65536
  queue_pairs:
    description:
      - Number of queue pairs of each test. With one of them packets that come out of sequence halve the bandwidth; more of
        them hide that.
    type: int
    default: 1
  traffic_class:
    description:
      - Traffic class that the tests ask for. Without it they ask for the C(traffic_class) of the endpoint, or for none.
    type: int
  low:
    description:
      - Share of the port's rate below which the bandwidth of a rail is low.
    type: float
    default: 0.9
  port:
    description:
      - First TCP port at which the two sides of a test meet. A rail has the port of its number above it, and pods that share
        ports 256 more.
    type: int
    default: 18515
  tool:
    description:
      - The program, by name or path.
    type: str
    default: ib_write_bw
  more:
    description:
      - Further words for the program on both sides.
    type: list
    elements: str
    default: []
  threads:
    description:
      - Number of pairs that are tested at the same time. A round with more pairs takes as many times longer.
    type: int
    default: 32
  only_round:
    description:
      - Number of the only round to run. It is set by the action plugin, which shows what came of a round before the next one.
    type: int
requirements:
  - kubernetes (Python library) 24.2 or newer
seealso:
  - module: railyard.rdma.pod_rdma_facts
"""

EXAMPLES = r"""
- name: Measure all rails of the test pods
  railyard.rdma.rail_bandwidth:
    endpoints: "{{ found.endpoints }}"
    groups: "{{ found.groups }}"
  vars:
    found: "{{ rails_model | railyard.rdma.bandwidth_endpoints(hostvars, pods=seen.pods, test_pods=pods) }}"
"""

RETURN = r"""
settings:
  description: How the tests were run.
  returned: always
  type: dict
  sample: {seconds: 5, size: 65536, queue_pairs: 1, traffic_class: 41, bidirectional: false, rails: together, share: false}
rounds:
  description: The pairs of each round, client first.
  returned: always
  type: list
  elements: dict
  sample:
    - round: 0
      pairs: [[gpu-1, gpu-2]]
results:
  description:
    - A row for each rail of each pair. C(gbps) is in 10^9 bit/s, C(ratio) the share of what the port can carry.
    - C(verdict) is V(full), V(low), V(failed) or V(unknown); C(reason), C(said) and C(remedy) explain it.
    - C(counters) are what the devices counted during the test, where the pod can see it.
  returned: always
  type: list
  elements: dict
  sample:
    - round: 0
      rail: 0
      stream: 0
      client: {host: gpu-1, node: gpu-1, pod: railyard-bandwidth-gpu-1, device: mlx5_18, gid_index: 3, address: 192.168.0.2}
      server: {host: gpu-2, node: gpu-2, pod: railyard-bandwidth-gpu-2, device: mlx5_18, gid_index: 3, address: 192.168.0.102}
      gbps: 96.87
      peak_gbps:
      mpps: 0.184764
      port_gbps: 100
      ratio: 0.9687
      verdict: full
      reason:
seconds:
  description: About how many seconds the rounds take.
  returned: always
  type: int
  sample: 16
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.railyard.rdma.plugins.module_utils.bandwidth import runner
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.auth import auth_argument_spec, dynamic_client
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.pod_exec import opener
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.pod_stream import PodStream

SETTINGS = ("bidirectional", "seconds", "size", "queue_pairs", "traffic_class", "port", "tool", "more")


def ready(params):
    """(settings, endpoints, rounds) of the module's parameters. Raises ValueError."""
    settings = runner.check({**{key: params[key] for key in SETTINGS}, "together": params["rails"] == "together"})
    for key, least in (("threads", 1), ("streams", 1)):
        if params[key] < least:
            raise ValueError(f"{key}: got {int(params[key])}, want a whole number from {least}")
    if not 0 < params["low"] <= 1:
        raise ValueError(f"low: got {params['low']}, want a number above 0 and up to 1")
    endpoints = runner.Endpoints(params["endpoints"], params["groups"], params["streams"])
    made = runner.plan(endpoints, params["pattern"])
    if params["only_round"] is not None and not 0 <= params["only_round"] < max(1, len(made)):
        raise ValueError(f"only_round: got {int(params['only_round'])}, there are {len(made)} rounds")
    return settings, endpoints, made


def argument_spec():
    spec = auth_argument_spec()
    spec.update(
        endpoints={"type": "list", "elements": "dict", "required": True},
        groups={"type": "list", "elements": "list", "required": True},
        pattern={"type": "str", "choices": ["ring", "matrix"], "default": "ring"},
        streams={"type": "int", "default": 1},
        rails={"type": "str", "choices": ["together", "one_by_one"], "default": "together"},
        bidirectional={"type": "bool", "default": False},
        seconds={"type": "int", "default": 5},
        size={"type": "int", "default": 65536},
        queue_pairs={"type": "int", "default": 1},
        traffic_class={"type": "int"},
        low={"type": "float", "default": 0.9},
        port={"type": "int", "default": 18515},
        tool={"type": "str", "default": "ib_write_bw"},
        more={"type": "list", "elements": "str", "default": []},
        threads={"type": "int", "default": 32},
        only_round={"type": "int"},
    )
    return spec


def perform(module):
    params = module.params
    try:
        settings, endpoints, made = ready(params)
    except (ValueError, TypeError) as error:
        module.fail_json(msg=str(error))
    rails = max((len(one["rails"]) for one in params["endpoints"]), default=0)
    result = {
        "settings": runner.told_settings(settings, params["streams"], params["endpoints"]),
        "rounds": [{"round": number, "pairs": [list(pair) for pair in pairs]} for number, pairs in enumerate(made)],
        "seconds": runner.seconds(made, settings, rails, params["threads"]),
        "results": [],
    }
    if module.check_mode or not made:
        module.exit_json(changed=False, **result)
    open_socket = opener(dynamic_client(module))

    def open_stream(endpoint, argv):
        return PodStream(open_socket, endpoint, argv)

    wanted = range(len(made)) if params["only_round"] is None else [params["only_round"]]
    for number in wanted:
        result["results"] += runner.run_round(
            made[number], number, endpoints, settings, open_stream, params["threads"], params["low"]
        )
    module.exit_json(changed=False, **result)


def main():
    perform(AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True))


if __name__ == "__main__":
    main()
