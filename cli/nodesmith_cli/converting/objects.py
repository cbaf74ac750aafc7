"""Converted objects as files hold them, and what is to be said about them at the lines of those files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nodesmith.model.apimachinery.problems import Parsed, Problem
from nodesmith.model.conversion.changes import Change, Conversion, Converted, Fate
from nodesmith.model.conversion.converting import convert, loud
from nodesmith.model.karpenter.nodepools import parse_nodepool
from nodesmith.model.nodeclasses.nodeclasses import parse_nodeclass
from nodesmith_cli.local.manifests import Document, Fault

_SERVERS = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink")
"""What an API server writes into metadata, and nobody else may."""
READERS: Mapping[tuple[str, str], Callable[[Mapping[str, Any]], Parsed[Any]]] = {
    ("karpenter.sh/v1", "NodePool"): parse_nodepool,
    ("karpenter.k8s.aws/v1", "EC2NodeClass"): parse_nodeclass,
}


def todays_documents(documents: Sequence[Document]) -> tuple[list[Document], list[Fault]]:
    """Return the documents with Karpenter's objects as they are written today, and what should be known about that.

    Pods stay as they are: what their old keys mean is decided where they are read.
    """
    conversion = convert([document.manifest for document in documents])
    return [_todays(documents, each) for each in conversion.objects], list(faults_of(documents, conversion))


def _todays(documents: Sequence[Document], converted: Converted) -> Document:
    document = documents[converted.number]
    if converted.manifest is document.manifest:
        return document

    def field_of_old(field: str) -> str:
        origin = converted.origin(field)
        return origin.field if origin and origin.number == converted.number else ""

    return replace(document, manifest=converted.manifest, was=document, field_of_old=field_of_old)


def as_of_a_file(converted: Converted) -> Converted:
    """Leave out of one of Karpenter's objects what only a cluster says of it."""
    manifest = converted.manifest
    if not str(manifest.get("apiVersion")).startswith("karpenter."):
        return converted
    metadata = manifest.get("metadata")
    if isinstance(metadata, Mapping):
        metadata = {name: value for name, value in metadata.items() if name not in _SERVERS}
    kept = {name: value for name, value in manifest.items() if name != "status"}
    return converted._replace(manifest={**kept, "metadata": metadata} if "metadata" in kept else kept)


def faults_of(documents: Sequence[Document], conversion: Conversion) -> Iterator[Fault]:
    """Return what somebody should know before they use the objects, where it is in the files."""
    return (fault_of(documents, change) for change in loud(conversion.changes))


def fault_of(documents: Sequence[Document], change: Change) -> Fault:
    """Say one change at its line."""
    return documents[change.number].fault(change.why, change.field)


def unreadable(documents: Sequence[Document], conversion: Conversion) -> list[Fault]:
    """Return what is wrong with the objects of today, at the lines that they come from."""
    faults: list[Fault] = []
    for converted in conversion.objects:
        fatal = (problem for problem in problems_of(converted, conversion) if problem.fatal)
        faults += [problem_fault(documents, converted, problem) for problem in fatal]
    return faults


def reader_of(converted: Converted) -> Callable[[Mapping[str, Any]], Parsed[Any]] | None:
    """Return what reads an object of today; None for a kind that is none of Karpenter's two."""
    return READERS.get((str(converted.manifest.get("apiVersion")), str(converted.manifest.get("kind"))))


def problems_of(converted: Converted, conversion: Conversion) -> list[Problem]:
    """Return what is wrong with an object of today, but for what the conversion has said already."""
    read = reader_of(converted)
    problems = read(as_of_a_file(converted).manifest).problems if read else ()
    return [problem for problem in problems if not _is_refused(converted, problem, conversion)]


def problem_fault(documents: Sequence[Document], converted: Converted, problem: Problem) -> Fault:
    """Return what is wrong with a field where that comes from; what was added is said of the whole object."""
    origin = converted.origin(problem.field)
    document = documents[origin.number if origin else converted.number]
    field = origin.field if origin else ""
    moved = f" (today's {problem.field})" if field != problem.field else ""
    return document.fault(f"is {problem.found}: {problem.remedy}{moved}", field)


def _is_refused(converted: Converted, problem: Problem, conversion: Conversion) -> bool:
    """Return whether the conversion has said already what is wrong with a field."""
    origin = converted.origin(problem.field)
    return any(
        change.fate is Fate.REFUSED and origin is not None and (change.number, change.field) == origin
        for change in conversion.changes
    )
