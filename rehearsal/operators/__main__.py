# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``python -m rehearsal.operators --state DIR``: runs all controllers until it is told to end."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
from pathlib import Path

from rehearsal.operators.client import Api
from rehearsal.operators.device_plugin import DevicePlugins, Registry
from rehearsal.operators.exec_server import ExecServer
from rehearsal.operators.jobs import Jobs
from rehearsal.operators.kinds import POD
from rehearsal.operators.kubelet import Kubelets
from rehearsal.operators.launchers import Launchers
from rehearsal.operators.machines import Fleet
from rehearsal.operators.mpi_operator import MpiJobs
from rehearsal.operators.network_operator import NetworkOperator
from rehearsal.operators.nodes import Nodes
from rehearsal.operators.nv_ipam import PoolAllocations
from rehearsal.operators.runtime import Manager
from rehearsal.operators.scheduler import Scheduler
from rehearsal.operators.sriov_daemon import ConfigDaemons
from rehearsal.operators.sriov_drain import Drains
from rehearsal.operators.sriov_networks import SriovNetworks
from rehearsal.operators.sriov_operator import SriovOperator
from rehearsal.operators.workloads import Workloads


async def serve(api: Api, fleet: Fleet, system_nodes: int) -> None:
    """Run every controller against ``api`` for the nodes of ``fleet``; ends only when cancelled."""
    manager, registry, ports = Manager(api), Registry(), {}
    kubelets = Kubelets(manager, fleet, registry)

    def sandbox_of(node: str, uid: str) -> dict:
        return kubelets.state(node)["sandboxes"].get(uid) or {}

    for name in fleet.machines():
        kubelets.state(name)  # devices in use are known before the device plugins look for the first time

    execs = ExecServer(fleet, manager.cache(POD), sandbox_of)
    plugins = DevicePlugins(manager, fleet, registry)
    manager.add(
        Nodes(manager, fleet, ports, system_nodes, execs.start),
        Workloads(manager),
        Jobs(manager),
        Scheduler(manager),
        kubelets,
        plugins,
        NetworkOperator(manager),
        PoolAllocations(manager),
        SriovOperator(manager),
        SriovNetworks(manager),
        Drains(manager),
        ConfigDaemons(manager, fleet, plugins),
        MpiJobs(manager),
        Launchers(manager, fleet, sandbox_of),
    )
    try:
        await manager.run()
    finally:
        await execs.close()


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m rehearsal.operators", description=__doc__)
    parser.add_argument(
        "--state",
        type=Path,
        required=True,
        help="folder of the fleet: kubeconfig and nodes/NAME/spec.json are read there",
    )
    parser.add_argument(
        "--system-nodes", type=int, default=1, help="nodes without GPUs that the cluster also has (default: 1)"
    )
    parser.add_argument(
        "--verbose", action="store_true", help="log every request that is repeated and every watch that ends"
    )
    options = parser.parse_args()
    logging.basicConfig(
        level=logging.DEBUG if options.verbose else logging.INFO,
        format="%(asctime)s %(levelname).1s %(name)s: %(message)s",
    )
    kubeconfig = options.state / "kubeconfig"
    if not kubeconfig.exists():
        parser.error(
            f"{kubeconfig} does not exist: start the API server first "
            f"(python -m rehearsal.apiserver --state {options.state})"
        )
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    async with Api(kubeconfig) as api:
        task = asyncio.create_task(serve(api, Fleet(options.state), options.system_nodes))
        await asyncio.wait({task, asyncio.create_task(ended.wait())}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        # Commands on nodes were killed with their tasks; the loop must still hear of their ends before it closes.
        await asyncio.sleep(0.2)


if __name__ == "__main__":
    asyncio.run(main())
