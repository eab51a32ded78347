# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which RDMA driver stack is loaded: NVIDIA's DOCA-OFED (formerly MLNX_OFED) or the kernel's own (inbox).

It decides which checks are possible at all: forced traffic classes, trust and ECN files exist with DOCA-OFED only, and
DOCA-OFED hides the GIDs of other network namespaces from sysfs and from queue pairs while the upstream kernel does not.
"""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree

_CHECK = b" rdma_check_gid_user_access\t[ib_core]"
_ANY_SYMBOL = b"\t[ib_core]"


def read_driver(tree: Tree) -> dict:
    """Return ``{flavour, version, gid_netns_check, reasons}``.

    flavour is ``doca_ofed``, ``inbox``, ``none`` (no RDMA module is loaded) or ``unknown``. DOCA-OFED is told by
    ``mlx_compat``, the module that carries its backports and that no kernel has. gid_netns_check tells whether the
    loaded ib_core contains the function that compares a GID's namespace with the caller's; None when the symbol table
    cannot tell.
    """
    reasons: dict = {}
    if not tree.names("/sys/module"):
        return {
            "flavour": "unknown",
            "version": None,
            "gid_netns_check": None,
            "reasons": {"flavour": "no /sys/module"},
        }
    loaded = [name for name in ("mlx_compat", "mlx5_core", "ib_core") if tree.exists(f"/sys/module/{name}")]
    flavour = "doca_ofed" if "mlx_compat" in loaded else "inbox" if loaded else "none"
    version = tree.text("/sys/module/mlx5_core/version") or tree.text("/sys/module/mlx_compat/version")
    if version is None:
        reasons["version"] = "no RDMA module is loaded" if flavour == "none" else "the module states no version"
    check: bool | None = False
    if flavour == "doca_ofed":
        check, reason = _gid_check(tree)
        if reason:
            reasons["gid_netns_check"] = reason
    elif flavour == "none":
        check = None
        reasons["gid_netns_check"] = "no RDMA module is loaded"
    return {"flavour": flavour, "version": version, "gid_netns_check": check, "reasons": reasons}


def _gid_check(tree: Tree) -> tuple[bool | None, str | None]:
    seen = False
    tail = b""
    try:
        with open(tree.path("/proc/kallsyms"), "rb", buffering=0) as symbols:
            while True:
                data = symbols.read(1 << 20)
                if not data:
                    break
                data = tail + data
                if _CHECK in data:
                    return True, None
                seen = seen or _ANY_SYMBOL in data
                tail = data[-len(_CHECK) :]
    except OSError as error:
        return None, f"/proc/kallsyms: {error.strerror}"
    return (False, None) if seen else (None, "/proc/kallsyms lists no symbol of ib_core")
