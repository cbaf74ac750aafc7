"""Converted objects as manifests, and findings about them at the lines of the original files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nodesmith.model.apimachinery.problems import Parsed, Problem
from nodesmith.model.karpenter.conversion.converting import convert, needing_attention
from nodesmith.model.karpenter.conversion.drafts import Change, Conversion, Converted, FieldOutcome
from nodesmith.model.karpenter.nodeoverlays import parse_nodeoverlay
from nodesmith.model.karpenter.nodepools import parse_nodepool
from nodesmith.model.nodeclasses.nodeclasses import parse_nodeclass
from nodesmith_formats.manifests.manifests import Document, Fault

_SERVERS = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink")
"""The metadata fields that only an API server sets."""
READERS: Mapping[tuple[str, str], Callable[[Mapping[str, Any]], Parsed[Any]]] = {
    ("karpenter.sh/v1", "NodePool"): parse_nodepool,
    ("karpenter.k8s.aws/v1", "EC2NodeClass"): parse_nodeclass,
    ("karpenter.sh/v1alpha1", "NodeOverlay"): parse_nodeoverlay,
}


def converted_documents(documents: Sequence[Document]) -> tuple[list[Document], list[Fault]]:
    """Return the documents with Karpenter's objects converted to the current version, and notes about the conversion.

    Pods are not converted: their old keys are interpreted when they are parsed.
    """
    conversion = convert([document.manifest for document in documents])
    return [_converted(documents, obj) for obj in conversion.objects], list(faults_of(documents, conversion))


def _converted(documents: Sequence[Document], converted: Converted) -> Document:
    document = documents[converted.number]
    if converted.manifest is document.manifest:
        return document

    def field_of_old(field: str) -> str:
        origin = converted.origin(field)
        return origin.field if origin and origin.number == converted.number else ""

    return replace(document, manifest=converted.manifest, original=document, field_of_old=field_of_old)


def as_of_a_file(converted: Converted) -> Converted:
    """Return a Karpenter object without its status and the metadata that an API server sets."""
    manifest = converted.manifest
    if not str(manifest.get("apiVersion")).startswith("karpenter."):
        return converted
    metadata = manifest.get("metadata")
    if isinstance(metadata, Mapping):
        metadata = {name: value for name, value in metadata.items() if name not in _SERVERS}
    kept = {name: value for name, value in manifest.items() if name != "status"}
    return converted._replace(manifest={**kept, "metadata": metadata} if "metadata" in kept else kept)


def faults_of(documents: Sequence[Document], conversion: Conversion) -> Iterator[Fault]:
    """Return the changes that users should review before they use the objects, as faults at their lines."""
    return (fault_of(documents, change) for change in needing_attention(conversion.changes))


def fault_of(documents: Sequence[Document], change: Change) -> Fault:
    """Return a change as a fault at its line."""
    return documents[change.number].fault(change.explanation, change.field)


def unreadable(documents: Sequence[Document], conversion: Conversion) -> list[Fault]:
    """Return the fatal problems of converted objects, at their original lines."""
    faults: list[Fault] = []
    for converted in conversion.objects:
        fatal = (problem for problem in problems_of(converted, conversion) if problem.fatal)
        faults += [problem_fault(documents, converted, problem) for problem in fatal]
    return faults


def reader_of(converted: Converted) -> Callable[[Mapping[str, Any]], Parsed[Any]] | None:
    """Return the parser of an object, or None if it is no NodePool, EC2NodeClass or NodeOverlay."""
    return READERS.get((str(converted.manifest.get("apiVersion")), str(converted.manifest.get("kind"))))


def problems_of(converted: Converted, conversion: Conversion) -> list[Problem]:
    """Return the problems of a converted object, except those that the conversion has already reported."""
    read = reader_of(converted)
    problems = read(as_of_a_file(converted).manifest).problems if read else ()
    return [problem for problem in problems if not _is_refused(converted, problem, conversion)]


def problem_fault(documents: Sequence[Document], converted: Converted, problem: Problem) -> Fault:
    """Return a problem as a fault at the original field. A problem of an added field concerns the whole object."""
    origin = converted.origin(problem.field)
    document = documents[origin.number if origin else converted.number]
    field = origin.field if origin else ""
    moved = f" (now {problem.field})" if field != problem.field else ""
    return document.fault(f"is {problem.found}: {problem.remedy}{moved}", field)


def _is_refused(converted: Converted, problem: Problem, conversion: Conversion) -> bool:
    """Return whether the conversion has already refused a field."""
    origin = converted.origin(problem.field)
    return any(
        change.outcome is FieldOutcome.REFUSED
        and origin is not None
        and (change.number, change.field) == origin
        for change in conversion.changes
    )
