# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a write does to an object: create, update, patch and delete, without HTTP.

Everything here is synchronous, so each request is one transaction in the event loop's thread.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from . import builtins, crds, errors, fields, names, patches, rules, schema
from .errors import MODIFIED, ApiError, Cause
from .kinds import Registry, Resource
from .store import Object, Store


@dataclass
class Options:
    """Query options of a write. `warnings` is filled with what fieldValidation=Warn has to say."""

    manager: str = "unknown"
    dry_run: bool = False
    field_validation: str = "Warn"
    force: bool = False
    subresource: str = ""
    warnings: list[str] = field(default_factory=list)


def now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class Api:
    """The cluster's objects. `crd_folder`: schemas there stand in for those of CRDs with the same name."""

    def __init__(self, crd_folder: Path | None = None, store: Store | None = None) -> None:
        self.store = store or Store()
        self.registry = Registry()
        self.crd_folder = crd_folder
        namespaces = self.registry.get("", "v1", "namespaces")
        for name in ("default", "kube-system", "kube-public", "kube-node-lease"):
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            self.create(namespaces, "", body, Options(manager="kube-apiserver"))

    # -- reading ------------------------------------------------------------------------------------------------

    def get(self, resource: Resource, namespace: str, name: str) -> Object:
        obj = self.store.get(resource.key, namespace, name)
        if obj is None:
            raise errors.not_found(resource.plural, resource.group, name)
        return obj

    # -- decoding -----------------------------------------------------------------------------------------------

    def decode(self, resource: Resource, body: Any, options: Options) -> Object:
        """The body as an object of this kind: type checked, without unknown fields or with a complaint about them."""
        if not isinstance(body, dict):
            raise errors.bad_request("the object provided is unrecognized (must be of type object)")
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        if body["apiVersion"] != resource.api_version:
            text = f"the API version in the data ({body['apiVersion']}) does not match the expected API version"
            raise errors.bad_request(f"{text} ({resource.api_version})")
        if body["kind"] != resource.kind:
            text = f"the kind in the data ({body['kind']}) does not match the expected kind ({resource.kind})"
            raise errors.bad_request(text)
        body.setdefault("metadata", {})
        if not resource.custom:
            body = builtins.normalise(body)
        pruned, unknown = schema.prune(body, resource.schema)
        if unknown and options.field_validation == "Strict":
            listed = ", ".join(f'unknown field "{path}"' for path in unknown)
            raise errors.bad_request(f"{self._refusal(resource)}: strict decoding error: {listed}")
        if unknown and options.field_validation != "Ignore":
            options.warnings += [f'unknown field "{path}"' for path in unknown]
        self._check_types(resource, pruned)
        return pruned

    @staticmethod
    def _refusal(resource: Resource) -> str:
        return f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}'

    def _check_types(self, resource: Resource, obj: Object) -> None:
        """Wrong types in metadata, and anywhere in a built-in kind, fail to decode: 400."""
        checked = (
            {"metadata": obj["metadata"]} if resource.custom else {k: v for k, v in obj.items() if k != "metadata"}
        )
        causes = [] if resource.custom else schema.validate(checked, resource.schema)
        causes += [
            Cause(f"metadata.{cause.field}", cause.reason, cause.message)
            for cause in schema.validate(obj["metadata"], schema.metadata_schema())
        ]
        wrong = [cause for cause in causes if cause.reason == "FieldValueTypeInvalid"]
        if wrong:
            got = wrong[0].message.rsplit('"', 2)[1]
            wanted = wrong[0].message.partition("of type ")[2].partition(":")[0]
            text = (
                f"json: cannot unmarshal {got} into Go struct field {resource.kind}.{wrong[0].field} of type {wanted}"
            )
            raise errors.bad_request(f"{self._refusal(resource)}: {text}")

    def _validate(self, resource: Resource, obj: Object, old: Object | None = None) -> None:
        kind, name = resource.kind, obj["metadata"]["name"]
        causes = names.metadata_mistakes(obj["metadata"])
        if resource.custom:
            causes += schema.validate(obj, resource.schema)
        else:
            causes += [
                c for c in schema.validate(obj, resource.schema, skip=("status",)) if c.reason == "FieldValueRequired"
            ]
            causes = causes or builtins.mistakes(obj)
            if old:
                causes += builtins.forbidden_changes(old, obj)
        if resource.key == crds.KEY:
            causes += crds.mistakes(obj)
        if causes:
            raise errors.invalid(kind, resource.group, name, causes)

    # -- create -------------------------------------------------------------------------------------------------

    def create(self, resource: Resource, namespace: str, body: Object, options: Options) -> Object:
        obj = self.decode(resource, body, options)
        meta = rules.url_meta(resource, namespace, "", obj["metadata"])
        if meta.get("resourceVersion"):
            raise errors.bad_request("resourceVersion should not be set on objects to be created")
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = meta["generateName"][:58] + "".join(
                secrets.choice("bcdfghjklmnpqrstvwxz2456789") for _ in range(5)
            )
        if not meta.get("name"):
            cause = Cause("metadata.name", "FieldValueRequired", "Required value: name or generateName is required")
            raise errors.invalid(resource.kind, resource.group, "", [cause])
        self._check_namespace(resource, meta)
        wrong = names.name_mistakes(resource.kind, meta["name"])
        if wrong:
            raise errors.invalid(resource.kind, resource.group, meta["name"], wrong)
        if self.store.get(resource.key, meta.get("namespace", ""), meta["name"]):
            raise errors.already_exists(resource.plural, resource.group, meta["name"])
        return self._insert(resource, {**obj, "metadata": meta}, options)

    def _insert(
        self, resource: Resource, obj: Object, options: Options, managers: fields.Managers | None = None
    ) -> Object:
        dropped = ("deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "selfLink", "generation")
        meta = {key: value for key, value in obj["metadata"].items() if key not in dropped}
        meta |= {"uid": str(uuid.uuid4()), "creationTimestamp": now()}
        if resource.generation or resource.custom:
            meta["generation"] = 1
        obj = {**obj, "metadata": meta}
        if resource.has_status and resource.kind not in ("Node", "PersistentVolume"):
            obj.pop("status", None)
        obj = self._defaults(resource, obj)
        self._validate(resource, obj)
        sent = obj
        if not resource.custom:
            obj = builtins.on_create(obj)
        if resource.key == crds.KEY:
            obj = crds.established(obj, now())
        if managers is None:
            managers = fields.own_update(
                {}, None, sent, resource.schema, self._manager(resource, options), rules.reset(resource, "")
            )
        obj["metadata"]["managedFields"] = fields.write_managers(managers, {}, now())
        if options.dry_run:
            return obj
        stored = self.store.put(resource.key, obj)
        self._after_write(resource, stored)
        return stored

    @staticmethod
    def _defaults(resource: Resource, obj: Object) -> Object:
        return schema.apply_defaults(obj, resource.schema) if resource.custom else builtins.set_defaults(obj)

    def _check_namespace(self, resource: Resource, meta: Object) -> None:
        if not resource.namespaced:
            return
        namespace = self.store.get(("", "namespaces"), "", meta["namespace"])
        if namespace is None:
            raise errors.not_found("namespaces", "", meta["namespace"])
        if namespace["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {meta['namespace']} because it is being terminated"
            cause = Cause(
                "metadata.namespace", "NamespaceTerminating", f"namespace {meta['namespace']} is being terminated"
            )
            raise errors.forbidden(resource.plural, resource.group, meta["name"], why, [cause])

    @staticmethod
    def _manager(resource: Resource, options: Options, operation: str = "Update") -> fields.Manager:
        return fields.Manager(options.manager, operation, resource.api_version, options.subresource)

    # -- update and patch ---------------------------------------------------------------------------------------

    def update(self, resource: Resource, namespace: str, name: str, body: Object, options: Options) -> Object:
        obj = self.decode(resource, body, options)
        obj["metadata"] = rules.url_meta(resource, namespace, name, obj["metadata"])
        old = self.get(resource, namespace, name)
        if resource.custom and not obj["metadata"].get("resourceVersion"):
            text = "Invalid value: 0x0: must be specified for an update"
            cause = Cause("metadata.resourceVersion", "FieldValueInvalid", text)
            raise errors.invalid(resource.kind, resource.group, name, [cause])
        return self._replace(resource, old, obj, options)

    def patch(self, resource: Resource, namespace: str, name: str, patch: Any, media: str, options: Options) -> Object:
        """Patch by media type. Returns the object; server-side apply creates it when it is not there."""
        if media == "application/apply-patch+yaml":
            return self._apply(resource, namespace, name, patch, options)
        old = self.get(resource, namespace, name)
        readable = rules.present(resource, old)
        if media == "application/json-patch+json":
            body = patches.json_patch(readable, patch)
        elif media == "application/merge-patch+json":
            body = patches.merge_patch(readable, patch)
        elif media == "application/strategic-merge-patch+json" and not resource.custom:
            body = patches.strategic_merge(readable, patch, resource.schema)
        else:
            kinds = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
            text = f"the body of the request was in an unknown format - accepted media types include: {kinds}"
            raise ApiError(415, "UnsupportedMediaType", text)
        obj = self.decode(resource, body, options)
        obj["metadata"] = rules.url_meta(resource, namespace, name, obj["metadata"])
        return self._replace(resource, old, obj, options)

    def _apply(self, resource: Resource, namespace: str, name: str, body: Any, options: Options) -> Object:
        if not isinstance(body, dict) or not body.get("apiVersion") or not body.get("kind"):
            raise errors.bad_request("Object 'Kind' or 'apiVersion' is missing in the applied configuration")
        if (body.get("metadata") or {}).get("managedFields"):
            raise errors.bad_request("metadata.managedFields must be nil")
        # Unknown fields are told by the typed merge (fields.apply), whatever fieldValidation says.
        obj = self.decode(resource, body, Options(field_validation="Ignore"))
        obj = body if resource.custom else builtins.normalise({**body, "metadata": body.get("metadata") or {}})
        obj = {**obj, "metadata": rules.url_meta(resource, namespace, name, obj.get("metadata") or {})}
        version = obj["metadata"].pop("resourceVersion", None)
        live = self.store.get(resource.key, namespace, name)
        reset = rules.reset(resource, options.subresource)
        me = self._manager(resource, options, "Apply")
        if live is None:
            if options.subresource:
                raise errors.not_found(resource.plural, resource.group, name)
            if version or obj["metadata"].get("uid"):
                raise errors.conflict(resource.plural, resource.group, name, MODIFIED)
            self._check_namespace(resource, obj["metadata"])
            wrong = names.name_mistakes(resource.kind, name)
            if wrong:
                raise errors.invalid(resource.kind, resource.group, name, wrong)
            merged, managers = fields.apply(None, obj, {}, resource.schema, me, options.force, reset)
            return self._insert(resource, merged, options, managers)
        shown = rules.present(resource, live)
        managers = fields.read_managers(live)
        merged, managers = fields.apply(shown, obj, managers, resource.schema, me, options.force, reset)
        if version:
            merged["metadata"] = {**merged["metadata"], "resourceVersion": version}
        return self._replace(resource, live, merged, options, managers)

    def _replace(
        self, resource: Resource, old: Object, obj: Object, options: Options, managers: fields.Managers | None = None
    ) -> Object:
        """Put `obj` in the place of `old` under the rules of an update; `managers` comes from an apply."""
        sent = fields.read_managers(
            obj
        )  # a client may rewrite managedFields; kubectl does, to move to server-side apply
        obj = rules.carry_over(resource, old, obj, options.subresource)
        obj = self._defaults(resource, obj)
        self._validate(resource, obj, old)
        before = fields.read_managers(old)
        if managers is None:
            me, reset = self._manager(resource, options), rules.reset(resource, options.subresource)
            shown = rules.present(resource, old)
            managers = fields.own_update(sent or before, shown, obj, resource.schema, me, reset)
        meta = {**obj["metadata"], "managedFields": fields.write_managers(managers, before, now())}
        if (resource.generation or resource.custom) and rules.spec_changed(resource, old, obj):
            meta["generation"] = old["metadata"].get("generation", 0) + 1
        obj = {**obj, "metadata": meta}
        if not meta["managedFields"]:
            del meta["managedFields"]
        if {**obj, "apiVersion": old["apiVersion"]} == old:
            return old
        if options.dry_run:
            return obj
        if rules.is_over(resource.key, obj):
            return self.remove_now(resource.key, obj)
        stored = self.store.put(resource.key, obj)
        self._after_write(resource, stored)
        return stored

    def change(
        self, key: tuple[str, str], namespace: str, name: str, change: Callable[[Object], Object]
    ) -> Object | None:
        """An internal write (garbage collection, binding …): `change` makes the new object from the stored one."""
        old = self.store.get(key, namespace, name)
        if old is None:
            return None
        new = change(old)
        if rules.is_over(key, new):
            return self.remove_now(key, new)
        return old if new == old else self.store.put(key, new)

    # -- delete -------------------------------------------------------------------------------------------------

    def delete(
        self, resource: Resource, namespace: str, name: str, options: Object, dry_run: bool = False
    ) -> tuple[Object, bool]:
        """(object or its last state, whether it is gone). `options` is a metav1.DeleteOptions."""
        obj = self.get(resource, namespace, name)
        meta = obj["metadata"]
        wanted = options.get("preconditions") or {}
        for key, label in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
            if wanted.get(key) and wanted[key] != meta[key]:
                why = (
                    f"Precondition failed: {label} in precondition: {wanted[key]}, {label} in object meta: {meta[key]}"
                )
                raise errors.conflict(resource.plural, resource.group, name, why)
        finalizers = list(meta.get("finalizers") or [])
        policy = options.get("propagationPolicy") or ("Orphan" if options.get("orphanDependents") else "Background")
        special = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}
        finalizers = [item for item in finalizers if item not in special.values()]
        if policy in special and (policy == "Orphan" or meta["uid"] in self.store.dependents):
            finalizers.append(special[policy])
        if resource.key == crds.KEY and crds.FINALIZER not in finalizers:
            finalizers.append(crds.FINALIZER)
        grace = rules.grace(resource, obj, options.get("gracePeriodSeconds"))
        held = bool(finalizers) or (
            resource.key == ("", "namespaces") and bool((obj.get("spec") or {}).get("finalizers"))
        )
        if dry_run:
            return obj, not held and not grace
        if not held and not grace:
            return self._remove(resource, obj), True
        changed = {**meta, "deletionGracePeriodSeconds": grace}
        if finalizers:
            changed["finalizers"] = finalizers
        changed.setdefault("deletionTimestamp", rules.later(grace))
        if not meta.get("deletionTimestamp") and (resource.generation or resource.custom):
            changed["generation"] = meta.get("generation", 0) + 1
        obj = {**obj, "metadata": changed}
        if resource.key == ("", "namespaces"):
            obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
        if changed != meta:
            obj = self.store.put(resource.key, obj)
        return obj, False

    def remove_now(self, key: tuple[str, str], obj: Object) -> Object:
        resource = self.registry.by_kind(key[0], obj["kind"])
        self.store.kind(key).objects[(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])] = obj
        if resource is None:
            return self.store.remove(key, obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        return self._remove(resource, obj)

    def _remove(self, resource: Resource, obj: Object) -> Object:
        meta = obj["metadata"]
        if resource.key == crds.KEY:
            spec = obj["spec"]
            self.registry.remove(spec["group"], spec["names"]["plural"])
        return self.store.remove(resource.key, meta.get("namespace", ""), meta["name"])

    def _after_write(self, resource: Resource, obj: Object) -> None:
        if resource.key == crds.KEY:
            crds.serve(self.registry, obj, self.crd_folder)
