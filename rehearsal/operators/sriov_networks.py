# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SriovNetwork to NetworkAttachmentDefinition: updated in place, removed with the network through its finalizer."""

from __future__ import annotations

from rehearsal.operators.install import running_in
from rehearsal.operators.kinds import (
    DEPLOYMENT,
    NAD,
    NAMESPACE,
    SRIOV_CONFIG,
    SRIOV_NETWORK,
    Kind,
    annotations_of,
    name_of,
    namespace_of,
)
from rehearsal.operators.networks import OWNER_ANNOTATION, RESOURCE_ANNOTATION, NetworkError, render_nad
from rehearsal.operators.runtime import Controller
from rehearsal.operators.sriov_operator import SRIOV, resource_prefix

FINALIZER = "netattdef.finalizers.sriovnetwork.openshift.io"


class SriovNetworks(Controller):
    """Keys are "<namespace>/<name>" of SriovNetworks."""

    watches = (SRIOV_NETWORK, SRIOV_CONFIG, NAD, DEPLOYMENT, NAMESPACE)

    def keys(self, kind: Kind, obj: dict) -> list[str]:
        if kind == SRIOV_NETWORK:
            return [f"{namespace_of(obj)}/{name_of(obj)}"]
        if kind == NAD:
            owner = annotations_of(obj).get(OWNER_ANNOTATION, "").split("/")
            return ["/".join(owner[1:])] if len(owner) == 3 else []
        return [f"{namespace_of(network)}/{name_of(network)}" for network in self.cache(SRIOV_NETWORK)]

    async def reconcile(self, key: str) -> float | None:
        namespace, name = key.split("/")
        network = self.cache(SRIOV_NETWORK).get(name, namespace)
        operator = running_in(self.cache(DEPLOYMENT), SRIOV)
        if network is None or operator is None:
            return None
        finalizers = network["metadata"].get("finalizers") or []
        owner = f"SriovNetwork.sriovnetwork.openshift.io/{namespace}/{name}"
        mine = [nad for nad in self.cache(NAD) if annotations_of(nad).get(OWNER_ANNOTATION) == owner]
        if network["metadata"].get("deletionTimestamp"):
            for nad in mine:
                await self.api.delete(NAD, nad)
            if FINALIZER in finalizers:
                rest = [item for item in finalizers if item != FINALIZER]
                await self.api.patch(SRIOV_NETWORK, network, {"metadata": {"finalizers": rest}})
            return None
        if FINALIZER not in finalizers:
            await self.api.patch(SRIOV_NETWORK, network, {"metadata": {"finalizers": [*finalizers, FINALIZER]}})
        try:
            wanted = render_nad(network, resource_prefix(self.cache(DEPLOYMENT)), operator)
        except NetworkError as error:
            self.log.error("%s", error)  # 26.7 has no status on SriovNetwork: the log is all there is
            return None
        if network["spec"].get("networkNamespace") and namespace != operator:
            self.log.warning("%s: networkNamespace is ignored outside of namespace %s", key, operator)
        await self._apply(wanted, mine, owner)
        return None

    async def _apply(self, wanted: dict, mine: list[dict], owner: str) -> None:
        name, namespace = name_of(wanted), namespace_of(wanted)
        for nad in mine:
            if namespace_of(nad) != namespace:
                await self.api.delete(NAD, nad)  # networkNamespace was changed
        have = self.cache(NAD).get(name, namespace)
        if have is None:
            if self.cache(NAMESPACE).served and self.cache(NAMESPACE).get(namespace) is None:
                self.log.warning("namespace %s of network %s does not exist yet", namespace, name)
                return
            await self.api.create(NAD, wanted)
            return
        if annotations_of(have).get(OWNER_ANNOTATION) != owner:
            self.log.error(
                "NetworkAttachmentDefinition %s/%s belongs to another owner and is left alone", namespace, name
            )
            return
        same = annotations_of(have).get(RESOURCE_ANNOTATION) == annotations_of(wanted)[RESOURCE_ANNOTATION]
        if not same or (have.get("spec") or {}).get("config") != wanted["spec"]["config"]:
            await self.api.patch(
                NAD, have, {"metadata": {"annotations": annotations_of(wanted)}, "spec": wanted["spec"]}
            )
