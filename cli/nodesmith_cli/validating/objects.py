"""Each object alone: is it of a kind that there is, is it of its shape, do its values mean anything."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from nodesmith.model.conversion.changes import Conversion, Fate
from nodesmith.model.conversion.converting import KINDS, OLD_VERSIONS, convert
from nodesmith.model.labels import did_you_mean
from nodesmith_cli.converting.objects import READERS, as_of_a_file, fault_of, problem_fault
from nodesmith_cli.local.apiserver.builtin import fields_of, type_of
from nodesmith_cli.local.apiserver.kinds import BUILTIN
from nodesmith_cli.local.manifests import Document
from nodesmith_cli.planning.checking import checked
from nodesmith_cli.planning.manifests import stamped
from nodesmith_cli.validating.findings import Finding, warning

_BUILTIN_KINDS = {resource.kind: resource.api_version() for resource in BUILTIN}
_PLANNINGS = (", the object is left out", ", it is left out")
"""What follows for a plan, which is none of ours."""
_MISFIT = re.compile(r"(?:into field |\()([a-zA-Z][\w.\[\]]*)(?: of type|: )")
"""Where the words for what does not fit name the field."""
_OURS = {kind for _, kind in KINDS}
_BUILTIN_GROUPS = frozenset(resource.group for resource in BUILTIN) | {"autoscaling", "networking.k8s.io"}


def object_findings(documents: Sequence[Document]) -> tuple[list[Finding], Conversion]:
    """Give what is wrong with each, and all of them as they are written today."""
    conversion = convert([document.manifest for document in documents], workloads=True)
    findings = [
        Finding(fault_of(documents, change), change.fate is Fate.REFUSED)
        for change in conversion.changes
        if not change.is_quiet
    ]
    for converted in conversion.objects:
        manifest = converted.manifest
        read = READERS.get((str(manifest.get("apiVersion")), str(manifest.get("kind"))))
        problems = read(as_of_a_file(converted).manifest).problems if read else ()
        findings += [Finding(problem_fault(documents, converted, p), p.fatal) for p in problems]
    for document in documents:
        findings += _kind_findings(document) or _built_in_findings(document)
    return findings + list(_given_twice(documents)), conversion


def _kind_findings(document: Document) -> list[Finding]:
    """Say that a kind is none, or none of its group and version, and what may have been meant."""
    api_version, kind = str(document.manifest["apiVersion"]), str(document.manifest["kind"])
    group = api_version.rpartition("/")[0]
    if kind in _OURS:
        known = sorted({v for v in OLD_VERSIONS if (v.partition("/")[0], kind) in KINDS})
        if api_version in known and _is_of_its_time(api_version, kind):
            return []
        served = [version for version in known if _is_of_its_time(version, kind)]
        return [
            Finding(document.fault(f"is {api_version!r}: a {kind} is of {' or '.join(served)}", "apiVersion"))
        ]
    if group.startswith("karpenter."):
        hint = did_you_mean(kind, frozenset(_OURS)) or f", known are {', '.join(sorted(_OURS))}"
        return [Finding(document.fault(f"is {kind!r}, which is no kind of {group}{hint}", "kind"))]
    wanted = _BUILTIN_KINDS.get(kind)
    if wanted and wanted.rpartition("/")[0] != group and group in _BUILTIN_GROUPS | {"extensions"}:
        return [Finding(document.fault(f"is {api_version!r}: a {kind} is of {wanted}", "apiVersion"))]
    if group in _BUILTIN_GROUPS and not fields_of(type_of(group, kind)):
        hint = did_you_mean(kind, frozenset(_BUILTIN_KINDS) | _OURS)
        return [
            Finding(document.fault(f"is {kind!r}, which is not known{hint}", "kind"), is_error=bool(hint))
        ]
    return []


def _is_of_its_time(api_version: str, kind: str) -> bool:
    is_first = api_version.endswith(("v1alpha5", "v1alpha1"))
    return is_first == (kind in {"Provisioner", "AWSNodeTemplate"})


def _built_in_findings(document: Document) -> Iterator[Finding]:
    """Hold a built-in kind against its shape."""
    if str(document.manifest["kind"]) in _OURS:
        return
    kept, faults = checked([stamped(document)])
    for fault in faults:
        message = fault.message
        for words in _PLANNINGS:
            message = message.removesuffix(words)
        misfit = "" if fault.field else next((m[1] for m in map(_MISFIT.search, [message]) if m), "")
        placed = document.fault(message, misfit) if misfit else replace(fault, message=message)
        yield Finding(placed, is_error=not kept)


def _given_twice(documents: Sequence[Document]) -> Iterator[Finding]:
    known: dict[object, Document] = {}
    for document in documents:
        earlier = known.setdefault(document.identity, document)
        if earlier is not document:
            yield warning(
                document.fault(f"is given already in {earlier.place}; the last one holds", "metadata.name")
            )
