"""CapacityBuffers: their fields, and what they refer to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith.model.karpenter.capacitybuffers import (
    CAPACITY_BUFFER,
    POD_TEMPLATE,
    STRATEGIES,
    VERSIONS,
    CapacityBuffer,
    kind_key,
    parse_buffer,
)
from nodesmith_cli.manifests.validating.findings import Finding, warning
from nodesmith_cli.planning.manifests import stamped
from nodesmith_formats.manifests.manifests import Document


def buffer_findings(documents: Sequence[Document]) -> Iterator[Finding]:
    """Check each buffer, alone and with the PodTemplates, workloads and other buffers in the files."""
    seen: dict[tuple[str, str], str] = {}
    for document in documents:
        if document.manifest["kind"] != CAPACITY_BUFFER.name:
            continue
        version = str(document.manifest["apiVersion"])
        if version not in VERSIONS:
            right = f"a {CAPACITY_BUFFER.name} is in {' or '.join(VERSIONS)}"
            yield Finding(
                document.fault(f"is {version!r}, but {right}{did_you_mean(version, VERSIONS)}", "apiVersion")
            )
            continue
        read = parse_buffer(stamped(document).manifest)
        for problem in read.problems:
            yield Finding(
                document.fault(f"is {problem.found}: {problem.remedy}", problem.field), problem.fatal
            )
        if read.value is not None:
            yield from _strategy_findings(document, read.value)
            yield from _reference_findings(document, read.value, documents)
            yield from _double_findings(document, read.value, seen)


def _strategy_findings(document: Document, buffer: CapacityBuffer) -> Iterator[Finding]:
    if buffer.strategy not in STRATEGIES:
        hint = did_you_mean(buffer.strategy, STRATEGIES)
        served = " and ".join(sorted(STRATEGIES))
        message = f"is {buffer.strategy!r}, which nodesmith leaves alone; it serves {served}{hint}"
        yield warning(document.fault(message, "spec.provisioningStrategy"))


def _double_findings(
    document: Document, buffer: CapacityBuffer, seen: dict[tuple[str, str], str]
) -> Iterator[Finding]:
    """Yield a warning if a buffer keeps room for the workload of one before it at the same time: both cost money."""
    kind, _, name = buffer.reference.partition("/")
    if kind == POD_TEMPLATE or buffer.window is not None:
        return
    first = seen.setdefault((buffer.template_key, buffer.strategy), buffer.name)
    if first != buffer.name:
        both = f"for which CapacityBuffer {first} keeps room as well"
        message = f"is {name!r}, {both}: delete one, or give both a schedule"
        yield warning(document.fault(message, "spec.scalableRef.name"))


def _kind_of(document: Document) -> str:
    group = str(document.manifest["apiVersion"]).rpartition("/")[0]
    return kind_key(str(document.manifest["kind"]), group)


def _reference_findings(
    document: Document, buffer: CapacityBuffer, documents: Sequence[Document]
) -> Iterator[Finding]:
    """Yield a finding if a buffer refers to nothing: a warning if the files have no object of that kind."""
    kind, _, name = buffer.reference.partition("/")
    manifests = [stamped(candidate).manifest for candidate in documents if _kind_of(candidate) == kind]
    there = {(m["metadata"]["namespace"], m["metadata"]["name"]) for m in manifests}
    if (buffer.namespace, name) in there:
        return
    near = frozenset(own for namespace, own in there if namespace == buffer.namespace)
    elsewhere = sorted(namespace for namespace, own in there if own == name)
    hint = did_you_mean(name, near)
    if elsewhere and not hint:
        hint = f"; there is one in namespace {elsewhere[0]}, but a buffer refers to its own namespace only"
    field = "spec.podTemplateRef.name" if kind == POD_TEMPLATE else "spec.scalableRef.name"
    message = f"is {name!r}: no such {kind} in namespace {buffer.namespace}{hint}"
    yield Finding(document.fault(message, field), is_error=bool(there))
