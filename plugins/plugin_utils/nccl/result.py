# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The result of the NCCL test: what each job printed, put beside the rails, and a verdict."""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.plugin_utils.nccl import debug, environment
from ansible_collections.railyard.rdma.plugins.plugin_utils.nccl.discovery import parse_rails
from ansible_collections.railyard.rdma.plugins.plugin_utils.nccl.errors import find_errors
from ansible_collections.railyard.rdma.plugins.plugin_utils.nccl.lines import lines_of
from ansible_collections.railyard.rdma.plugins.plugin_utils.nccl.output import parse_table

SCHEMA = 1
# Share of the rails' sum below which a bus bandwidth is low. Measured on healthy BM.GPU.B4.8 nodes: 0.944 to 0.955 of 200
# GB/s with whole nodes, 0.96 of 100 GB/s with two jobs a node; a job whose NICs are far from its GPUs got 0.18.
RATIO = 0.85
# Smaller messages do not fill a network, whatever its state.
JUDGED_FROM = 256 << 20
SKIPPED = ("bootstrap", "nccl", "test", "mpi", "warning")  # kinds that follow from a nearer cause, or say too little


def build(jobs: list[dict], runs: dict, model: dict, facts: dict, shapes: dict, options: dict) -> dict:
    """The result of all jobs.

    :param jobs: what jobs.plan returned.
    :param runs: ``{job: {state: succeeded|failed|unfinished|unseen, reason, log, pods: [{name, node, …}]}}``; a job that was
        not started has none.
    :param facts: {host: ``ansible_facts.rdma`` or None}, for the rates of ports.
    :param options: ``{expected_gbs: GB/s or None, ratio, environment}``.
    :returns: ``{schema, jobs: [{name, hosts, gpus_per_node, verdict: pass|low|failed|unknown, reason, sizes, busbw_gbs,
        expected_gbs, ratio, gdrdma, nics, channels, pods, errors, version, environment, advice, …}], environment: {NAME:
        value, reasons: {NAME: reason}}}``. Bandwidths in GB/s (10^9 byte/s).
    """
    layouts = {layout["name"]: layout for layout in model["layouts"]}
    rows = [_row(job, runs.get(job["name"]), layouts[job["layout"]], facts, shapes, options) for job in jobs]
    advice = next((row["advice"] for row in rows if row["pods"]), None)
    top: dict = {row["name"]: row["value"] for row in (advice or {}).get("variables", [])}
    top["reasons"] = {
        row["name"]: row["reason"] for key in ("variables", "left_out") for row in (advice or {}).get(key, [])
    }
    return {"schema": SCHEMA, "jobs": rows, "environment": top}


def expected_gbs(job: dict, layout: dict, facts: dict) -> tuple[float | None, str]:
    """(The sum of a job's ports on a node in GB/s, how it was counted or why it is not known)."""
    rates = []
    for host in job["hosts"]:
        told = {rail["rail"]: rail.get("rate_gbps") for rail in (facts.get(host) or {}).get("rails") or []}
        wanted = job["rails"] if job["rails"] is not None else [rail["rail"] for rail in layout["rails"]]
        if any(told.get(rail) is None for rail in wanted):
            return None, f"the rates of the ports of {host} are not known"
        # Of some rails, nobody knows beforehand which.
        own = [told[rail] for rail in wanted]
        rates.append(sum(own) if job["rails"] is not None else min(own) * job["rails_per_node"])
    share = 2 if job["shares_ports"] else 1
    text = f"{job['rails_per_node']} rails with {min(rates):g} Gb/s together"
    return min(rates) / 8 / share, text + (", shared by two jobs" if share == 2 else "")


def _row(job: dict, run: dict | None, layout: dict, facts: dict, shapes: dict, options: dict) -> dict:
    lines = lines_of((run or {}).get("log") or "")
    table, said, errors = parse_table(lines), debug.parse_debug(lines), find_errors(lines)
    pods = _pods(job, run or {}, layout, parse_rails(lines))
    hosts = {pod["pod"]: pod["host"] for pod in pods}
    shape = shapes.get(layout["shape"])
    advice = environment.recommend(layout, shape, pods, options.get("environment"))
    wanted, how = (options["expected_gbs"], "rdma_nccl_expected_gbs") if options.get("expected_gbs") else (None, "")
    if wanted is None:
        wanted, how = expected_gbs(job, layout, facts) if job["reason"] is None else (None, "")
    last = max(table["sizes"], key=lambda row: row["bytes"], default=None)
    busbw = (last or {}).get("out_of_place") and last["out_of_place"]["busbw"]
    row = {
        key: job[key] for key in ("name", "layout", "part", "hosts", "gpus_per_node", "rails_per_node", "shares_ports")
    }
    row |= {"sizes": table["sizes"], "busbw_gbs": busbw, "average_gbs": table["average_gbs"], "cut": table["cut"]}
    row |= {"out_of_bounds": table["out_of_bounds"], "expected_gbs": wanted, "expected_by": how}
    row["ratio"] = round(busbw / wanted, 4) if busbw is not None and wanted else None
    row |= {"gdrdma": debug.channel_counts(said["channels"]), "networks": said["networks"], "version": said["version"]}
    row |= {"nics": _nics(said), "channels": _channels(said, table, pods, hosts), "pods": pods, "errors": errors}
    row |= {"gids": {hosts.get(name, name): rows for name, rows in said["gids"].items()}, "advice": advice}
    row["devices"] = {hosts.get(name, name): sorted(rows.values()) for name, rows in said["devices"].items()}
    row["environment"] = {item["name"]: item["value"] for item in job["environment"]}
    row["environment"] |= {name: values[0] for name, values in said["set"].items() if len(values) == 1}
    row["verdict"], row["reason"] = verdict(job, run, row, options.get("ratio") or RATIO)
    return row


def verdict(job: dict, run: dict | None, row: dict, ratio: float = RATIO) -> tuple[str, str | None]:
    """(pass, low, failed or unknown, why). What could not be looked at is unknown, never a pass."""
    if job["reason"] is not None:
        return "unknown", job["reason"]
    if run is None:
        return "unknown", "the job was not started"
    if run["state"] != "succeeded":
        # A job that hangs has failed, too; of one that could not be looked at nobody knows.
        return "failed" if run["state"] in ("failed", "unfinished") else "unknown", failure(run, row["errors"])
    if not row["sizes"]:
        return "unknown", "the job succeeded, but its log holds no row of a result"
    wrong = sum(
        (half or {}).get("wrong") or 0 for size in row["sizes"] for half in (size["out_of_place"], size["in_place"])
    )
    if wrong or row["out_of_bounds"]:
        return "failed", f"{wrong or row['out_of_bounds']} elements of the sums were wrong"
    largest = max(size["bytes"] for size in row["sizes"])
    if row["busbw_gbs"] is None:
        return "unknown", "the largest message has no bus bandwidth"
    if largest < JUDGED_FROM:
        return "unknown", f"the largest message had {largest} bytes, too few to judge a bandwidth by"
    if row["ratio"] is None:
        return "unknown", f"{row['busbw_gbs']} GB/s, and nothing to compare it with: {row['expected_by']}"
    told = f"{row['busbw_gbs']} GB/s, {row['ratio']:.0%} of {row['expected_gbs']:g} GB/s ({row['expected_by']})"
    return ("low" if row["ratio"] < ratio else "pass"), told


def failure(run: dict, errors: list[dict]) -> str:
    """Why a job did not end well: the nearest cause that its log names, else what the cluster says of its pods."""
    cause = next((error for error in errors if error["kind"] not in SKIPPED), None)
    parts = [run.get("reason"), cause["text"] if cause else (errors[0]["text"] if errors else None)]
    return "; ".join(part for part in parts if part) or "the job did not succeed, and nothing says why"


def _pods(job: dict, run: dict, layout: dict, rails: dict) -> list[dict]:
    """The workers with their hosts and what they said of their rails."""
    by_pci = {rail["pci"]: rail["rail"] for rail in layout["rails"]}
    by_node = {node: host for host, node in job["nodes"].items() if node}
    made = []
    for pod in run.get("pods") or []:
        if pod.get("role") == "launcher":
            continue
        own = [{"rail": by_pci.get(row["pf"]), **row} for row in rails.get(pod["name"], [])]
        own.sort(key=lambda row: (row["rail"] is None, row["rail"]))
        made.append({"pod": pod["name"], "node": pod.get("node"), "host": by_node.get(pod.get("node")), "rails": own})
    return made


def _nics(said: dict) -> list[dict]:
    """The NICs that channels use, and all that NCCL made of several devices."""
    used = {(row["host"], row["nic"]) for row in said["channels"] if row["network"].startswith("IB")}
    used |= {(host, number) for host, rows in said["nics"].items() for number in rows}
    return [{"host": host, "number": number, **debug.nic_of(said, host, number)} for host, number in sorted(used)]


def _channels(said: dict, table: dict, pods: list[dict], hosts: dict) -> list[dict]:
    rails = {(pod["pod"], row["device"]): row["rail"] for pod in pods for row in pod["rails"]}
    made = []
    for row in said["channels"]:
        nic = {"name": row["network"], "devices": []}
        if row["network"].startswith("IB"):
            nic = debug.nic_of(said, row["host"], row["nic"])
        rank = said["ranks"].get(row["rank"]) or table["ranks"].get(row["rank"]) or {}
        own = sorted({rail for name in nic["devices"] if (rail := rails.get((row["host"], name))) is not None})
        kept = {key: row[key] for key in ("channel", "rank", "peer", "direction", "network", "gdrdma")}
        kept |= {"host": hosts.get(row["host"]), "pod": row["host"], "gpu": rank.get("pci"), "gpu_index": row["gpu"]}
        made.append({**kept, "nic": nic["name"], "devices": nic["devices"], "rails": own})
    return made


def text_lines(result: dict) -> list[str]:
    """The result for a person: a line a job, then for each what to set, ready to be pasted."""
    lines = []
    for job in result["jobs"]:
        lines.append(f"{job['name']}: {job['verdict']}" + (f": {job['reason']}" if job["reason"] else ""))
        if job["channels"]:
            counts = job["gdrdma"]
            lines.append(
                f"  {counts['with_gdrdma']} of {counts['channels']} channels with GPUDirect RDMA, NCCL {job['version']}"
            )
        for size in job["sizes"]:
            halves = [size[key] for key in ("out_of_place", "in_place") if size[key]]
            lines.append(f"  {size['bytes']:>12} B  " + " / ".join(str(half["busbw"]) for half in halves) + " GB/s")
    for job in result["jobs"]:
        if job["pods"]:
            lines += ["", f"Environment for pods like those of {job['name']}:", *job["advice"]["lines"]]
            lines += ["as env of a container:"]
            lines += [
                f'- {{name: {row["name"]}, value: "{_quoted(row["value"])}"}}' for row in job["advice"]["pod_env"]
            ]
    return lines


def _quoted(text: str) -> str:
    """Text inside the double quotes of YAML."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def host_part(result: dict, host: str) -> dict:
    """What concerns one host: ``{jobs}`` of the jobs with it, each with the host's own channels, NICs and ``pod`` (None when the
    job has none on it)."""
    jobs = []
    for job in result["jobs"]:
        if host not in job["hosts"]:
            continue
        pod = next((pod for pod in job["pods"] if pod["host"] == host), None)
        name = (pod or {}).get("pod")
        own = {"pod": pod, "channels": [row for row in job["channels"] if row["host"] == host]}
        own |= {"nics": [row for row in job["nics"] if row["host"] == name], "devices": job["devices"].get(host, [])}
        jobs.append({**job, **own})
    return {"jobs": jobs}
