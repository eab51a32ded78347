# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node in memory: it answers the operators' scripts from a model of its functions and records what was run."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from rehearsal.operators import cni_main, cni_meta, sriov_daemon
from rehearsal.operators.inventory import SCRIPT
from rehearsal.operators.machines import Fleet, Machine

PFS = ("0000:0c:00.0", "0000:0c:00.1")
GPU = "0000:0f:00.0"


@dataclass
class FakeMachine(Machine):
    """``vfs`` is sriov_numvfs by PF; ``failures`` maps a script to the text with which it fails."""

    vfs: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PFS, 0))
    exclusive: bool = False
    traffic_class: str = ""
    boot_number: int = 1
    up: bool = True
    calls: list[tuple[str, list[str], str | None]] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)

    def boot(self):
        return {"kernel": "6.14.0"} if self.up else None

    def boot_id(self):
        return f"{self.name}-boot-{self.boot_number}" if self.up else None

    async def run(self, argv, netns=None, stdin=b""):
        script, words = (argv[2], argv[4:]) if argv[:2] == ["/bin/sh", "-ec"] else (" ".join(argv), [])
        self.calls.append((script, words, netns))
        if script in self.failures:
            return 1, "", self.failures[script]
        return 0, self._answer(script, words), ""

    def scripts(self, script: str) -> list[list[str]]:
        return [words for ran, words, _ in self.calls if ran == script]

    def vf(self, pf: str, index: int) -> str:
        return f"{pf[:-1]}{2 + 2 * index + PFS.index(pf)}"

    def _answer(self, script: str, words: list[str]) -> str:
        if script == SCRIPT:
            return self._sysfs()
        if script == sriov_daemon.SET_VFS:
            self.vfs[words[0]] = int(words[1])
        if script == cni_main.LOOK_AT_DEVICE:
            return "physfn\nnet rdma0v0\n"
        if script == cni_main.CONFIGURE:
            return "0c:42:a1:00:00:01\n"
        if script == cni_meta.SBR:
            return f"inet {words[3]}/32 100\n"
        if script == cni_meta.RDMA_HOST:
            if not self.exclusive:
                return "mode Y\ndevices 1 mlx5_18\n"
            old, self.traffic_class = self.traffic_class, f"Global tclass={words[2]}"
            return f"mode N\ndevices 1 mlx5_18\ntos 0\ntc {old}\nmoved yes\n"
        if script == cni_meta.RDMA_RESTORE:
            self.traffic_class = f"Global tclass={words[2]}"
        return ""

    def _sysfs(self) -> str:
        lines = []
        for number, pf in enumerate(PFS):
            lines += [f"{pf}/vendor:0x15b3", f"{pf}/device:0x1019", f"{pf}/class:0x020000", f"{pf}/sriov_totalvfs:8"]
            lines += [
                f"{pf}/sriov_numvfs:{self.vfs[pf]}",
                f"{pf}/net/rdma{number}/mtu:4220",
                f"{pf}/driver:x/mlx5_core",
            ]
            for index in range(self.vfs[pf]):
                vf = self.vf(pf, index)
                lines += [f"{pf}/virtfn{index}:../{vf}", f"{vf}/physfn:../{pf}", f"{vf}/driver:x/mlx5_core"]
                lines += [
                    f"{vf}/vendor:0x15b3",
                    f"{vf}/device:0x101a",
                    f"{vf}/class:0x020000",
                    f"{vf}/infiniband/mlx5_{index}:",
                ]
        return "\n".join(lines)


class FakeFleet(Fleet):
    """Nodes in memory; their folders hold only the operators' own notes."""

    def __init__(self, state: Path, names: tuple[str, ...]):
        super().__init__(state)
        for name in names:
            folder = state / "nodes" / name
            folder.mkdir(parents=True)
            self._machines[name] = FakeMachine(name, folder)
            spec = {"name": name, "shape": "TEST.2", "address": f"10.140.0.{len(self._machines)}"}
            rails = [{"pci": pci, "gpu_pci": GPU} for pci in PFS]
            (folder / "spec.json").write_text(json.dumps({**spec, "nic": {"vendor": "15b3"}, "rails": rails}))

    def machines(self):
        return self._machines
