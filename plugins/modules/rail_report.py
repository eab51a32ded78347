# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rail_report
short_description: Write the proof of the rails as JSON, JUnit XML and HTML
version_added: 0.2.0
description:
  - Puts together what a run found out about nodes, pods, bandwidth and NCCL, and writes it as up to three files of the
    same data. Each file is written as a whole or not at all.
  - What is missing is told in the report as not measured, and never counts as passed.
  - The HTML file needs nothing else, no network and no script. Its charts are drawn by Matplotlib, which only it needs.
  - With O(compare_with) the report says what moved since an earlier one.
options:
  model:
    description:
      - The rail model, as returned by the module M(railyard.rdma.rail_model).
    type: dict
    required: true
  result:
    description:
      - What the filter P(railyard.rdma.findings#filter) returned. Nothing is judged without it.
    type: dict
  pods:
    description:
      - What the test pods see, as returned by the module M(railyard.rdma.pod_rdma_facts).
    type: dict
  test_pods:
    description:
      - The test pods, as returned by the filter P(railyard.rdma.verify_pods#filter). They say which pod stands for which host.
    type: list
    elements: dict
    default: []
  bandwidth:
    description:
      - Result of the bandwidth test, the fact C(rdma_bandwidth_result).
    type: dict
  nccl:
    description:
      - Result of the NCCL test, the fact C(rdma_nccl_result).
    type: dict
  file:
    description:
      - Path of the JSON file. None is written when it is empty.
    type: str
  html:
    description:
      - Path of the HTML file.
    type: str
  junit:
    description:
      - Path of the JUnit XML file.
    type: str
  compare_with:
    description:
      - Path of an earlier JSON file, also of an older version of this collection. It may be the same as O(file).
    type: str
  rate_change:
    description:
      - Percent by which a rate must differ from the earlier one to count as moved.
    type: float
    default: 5.0
requirements:
  - matplotlib >= 3.8 on the controller, for O(html) alone
attributes:
  check_mode:
    description: Can run in check mode and return what it would return otherwise.
    support: full
    details:
      - Makes the report and looks whether it could be written, and writes nothing.
  diff_mode:
    description: Returns details on what has changed when run in diff mode.
    support: none
    details:
      - A report is a record of the run, not a change that it made. Use O(compare_with).
notes:
  - Runs on the controller alone. The facts C(rdma) of the hosts of O(model) are taken from their variables.
  - Paths that are not absolute start at the folder in which Ansible was started.
author:
  - Railyard contributors (@railyard)
"""

EXAMPLES = r"""
- name: Write the report
  railyard.rdma.rail_report:
    model: "{{ rails_model }}"
    result: "{{ rdma_verify_result }}"
    pods: "{{ rdma_verify_seen }}"
    test_pods: "{{ rdma_verify_pods }}"
    file: /var/www/rails/report.json
    html: /var/www/rails/report.html
    junit: /var/www/rails/report.xml
"""

RETURN = r"""
verdict:
  description: V(pass), V(fail) or V(unknown) of the whole.
  returned: success
  type: str
  sample: fail
files:
  description: Path of each file that was written, or would be in check mode, by its option.
  returned: success
  type: dict
  sample: {html: /var/www/rails/report.html}
moved:
  description: Number of differences from the earlier report, V(null) when none was given.
  returned: success
  type: int
  sample: 3
msg:
  description: The verdict in a sentence, and where the report is.
  returned: always
  type: str
  sample: "RDMA is not proven: 1 of 12 nodes fails. Report: HTML /var/www/rails/report.html."
"""

# The code is in the action plugin of the same name.
