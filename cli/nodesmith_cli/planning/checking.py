"""Validation of objects as an API server does it: types and fields of built-in kinds, and Karpenter's rules."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from nodesmith.model.apimachinery.problems import Parsed, did_you_mean
from nodesmith.model.apimachinery.times import parse_time
from nodesmith.model.karpenter.nodeclaimobjects import parse_nodeclaim
from nodesmith.model.karpenter.nodeoverlays import parse_nodeoverlay
from nodesmith.model.karpenter.nodepools import parse_nodepool
from nodesmith.model.karpenter.ownership import is_foreign
from nodesmith.model.nodeclasses.nodeclasses import parse_nodeclass
from nodesmith.observation.decoding import UNREADABLE
from nodesmith_cli.manifests.validating.requests import faults_of, is_request
from nodesmith_cli.planning.ledger import claims
from nodesmith_cli.planning.nodeclasses import AVAILABLE, statuses, unlaunchable
from nodesmith_formats.kubernetes.builtin import Schema, fields_of, schema_of_kind, type_of
from nodesmith_formats.kubernetes.defaults import with_defaults
from nodesmith_formats.kubernetes.errors import FieldProblem
from nodesmith_formats.kubernetes.kinds import BUILTIN
from nodesmith_formats.kubernetes.objects import dig
from nodesmith_formats.kubernetes.podchecks import pod_spec_problems
from nodesmith_formats.kubernetes.schemas import misfits, prune
from nodesmith_formats.kubernetes.validation import problems_of
from nodesmith_formats.manifests.manifests import Document, Fault

_RESOURCES = {resource.kind: resource for resource in BUILTIN}
_SOME_TIME = parse_time("2000-01-01T00:00:00Z")
_OWN: Mapping[str, Callable[[Mapping[str, Any]], Parsed[Any]]] = {
    "NodePool": parse_nodepool,
    "EC2NodeClass": parse_nodeclass,
    "NodeOverlay": parse_nodeoverlay,
    "NodeClaim": lambda manifest: parse_nodeclaim(manifest, _SOME_TIME),
}
_IRRELEVANT = (".image", ".restartPolicy", "metadata.annotations")
"""Suffixes of fields that an API server requires but that do not affect scheduling."""
_INDEX = re.compile(r"\[\d+\]")
UNKNOWN = "is an unknown field, which is ignored"
"""How the message about an unknown field begins."""


def checked(documents: Iterable[Document]) -> tuple[list[Document], list[Fault]]:
    """Return the objects that an API server accepts, as it stores them, and the faults of all objects.

    An unknown field is reported once for all objects of its kind.
    """
    accepted: list[Document] = []
    faults: list[Fault] = []
    reported: set[tuple[str, str]] = set()
    for document in documents:
        kind = str(document.manifest["kind"])
        if kind in {"NodePool", "NodeClaim"} and is_foreign(document.manifest):
            accepted.append(document)
            continue
        if kind in _OWN:
            problems = _OWN[kind](document.manifest).problems
            faults += [document.fault(f"is {p.found}: {p.remedy}", p.field) for p in problems]
            sound, new_faults = _readable(document)
            faults += new_faults
            if kind == "EC2NodeClass" and (fault := unlaunchable(document)) and fault not in faults:
                faults.append(fault)  # once for all classes that come from one old object
            accepted.append(sound)  # the decision reports the consequences for the NodePool
            continue
        if is_request(document.manifest):
            request_faults = list(faults_of(document))
            faults += [fault for fault, _ in request_faults]
            if not any(is_error for _, is_error in request_faults):
                accepted.append(document)
            continue
        stored, new_faults = _decoded(document, reported)
        faults += new_faults
        if stored is not None:
            accepted.append(stored)
    return accepted, faults


def _readable(document: Document) -> tuple[Document, list[Fault]]:
    """Return a Karpenter object, without its status if that is unreadable, and the faults found."""
    manifest, kind = document.manifest, str(document.manifest["kind"])
    faults: list[Fault] = []
    try:
        if kind == "NodeClaim":
            claims([manifest], _SOME_TIME)
        elif kind == "EC2NodeClass":
            statuses([manifest], ())
    except UNREADABLE as error:
        faults = [document.fault(f"unreadable, and ignored: {error!r}", "status")]
        manifest = {name: value for name, value in manifest.items() if name != "status"}
    for index, reservation in enumerate(dig(dict(manifest), "status", "capacityReservations") or ()):
        if kind == "EC2NodeClass" and AVAILABLE not in reservation:
            message = "is missing: the number of free instances is unknown, so the plan uses one"
            faults.append(document.fault(message, f"status.capacityReservations[{index}].{AVAILABLE}"))
    if kind == "NodeClaim" and not dig(dict(manifest), "status", "allocatable"):
        message = "is missing: the node's capacity is unknown, so the plan ignores the node"
        faults.append(document.fault(message, "status.allocatable"))
    return replace(document, manifest=manifest), faults


def _decoded(document: Document, reported: set[tuple[str, str]]) -> tuple[Document | None, list[Fault]]:
    manifest, kind = document.manifest, str(document.manifest["kind"])
    group = str(manifest["apiVersion"]).rpartition("/")[0]
    if not fields_of(type_of(group, kind)):
        return document, []
    schema, dropped = schema_of_kind(group, kind), list[str]()
    pruned = prune(schema, dict(manifest), dropped)
    unknown = list(_unknown(document, schema, dropped, reported))
    faults = [document.fault(f"{problem}; the object is ignored") for problem in misfits(schema, pruned)]
    if faults:
        return None, faults + unknown
    full = with_defaults(kind, pruned)
    faults = [
        document.fault(f"{p.message}; the object is ignored", p.field)
        for p in _problems(kind, full)
        if not p.field.endswith(_IRRELEVANT)
    ]
    if faults:
        return None, faults + unknown
    return replace(document, manifest=full), unknown


def _problems(kind: str, manifest: Mapping[str, Any]) -> Iterator[FieldProblem]:
    if kind in _RESOURCES:
        yield from problems_of(_RESOURCES[kind], manifest)
    if kind == "ReplicationController":
        yield from pod_spec_problems(dig(manifest, "spec", "template", "spec"), "spec.template.spec")
    elif kind == "CronJob":
        path = ("spec", "jobTemplate", "spec", "template", "spec")
        yield from pod_spec_problems(dig(manifest, *path), ".".join(path))


def _unknown(
    document: Document, schema: Schema, dropped: Iterable[str], reported: set[tuple[str, str]]
) -> Iterator[Fault]:
    """Yield a fault for each unknown field, except in a status, which a newer API server may have written."""
    for path in dropped:
        place = _INDEX.sub("", path)
        key = str(document.manifest["kind"]), place
        if not path.startswith(("status", "metadata.managedFields")) and key not in reported:
            reported.add(key)
            hint = did_you_mean(place.rpartition(".")[2], _fields_beside(schema, place))
            yield document.fault(f"{UNKNOWN}{hint.replace(',', ':', 1)}", path)


def _fields_beside(schema: Schema, place: str) -> Collection[str]:
    """Return the names of all fields that belong to the same object as a field. `place` is a path without indices."""
    for name in place.split(".")[:-1]:
        schema = (schema.get("properties") or {}).get(name) or schema.get("additionalProperties") or {}
        while "items" in schema:
            schema = schema["items"]
    return (schema.get("properties") or {}).keys()
