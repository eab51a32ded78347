# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An API server for tests of waiting: time passes only in its pauses, and requests fail as it is told."""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import Api


class TimedServer:
    """Base of servers with a method ``answer(method, path, query, body, content_type)``.

    :param faults: ApiErrors that are raised one after the other before anything is answered.
    """

    def __init__(self, faults=()):
        self.faults, self.clock = list(faults), 0.0
        self.api = Api(self._request, pause=self.sleep, attempts=1, clock=lambda: self.clock)

    def sleep(self, seconds):
        self.clock += seconds

    def _request(self, *request):
        if self.faults:
            raise self.faults.pop(0)
        return self.answer(*request)
