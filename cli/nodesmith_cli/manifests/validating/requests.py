"""Validation of ProvisioningRequests: their class, their pod sets and the PodTemplates that they refer to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nodesmith.model.apimachinery.problems import did_you_mean, shown
from nodesmith.model.kubernetes.provisioningrequests import (
    CHECK_CAPACITY,
    CLASSES,
    GROUP,
    KIND,
    LONGEST_VALID,
    NO_RETRY,
    VALID_FOR,
    class_fault,
    request_faults,
)
from nodesmith_cli.manifests.validating.findings import Finding
from nodesmith_formats.manifests.manifests import Document, Fault

_VERSIONS = (f"{GROUP}/v1", f"{GROUP}/v1beta1")
_CLASS = "spec.provisioningClassName"
_PARTIAL = "partialCapacityCheck"
"""A parameter that only Cluster Autoscaler knows."""


def request_findings(documents: Sequence[Document]) -> Iterator[Finding]:
    """Yield what is wrong with each ProvisioningRequest.

    A missing PodTemplate is an error if the files contain others. A class of another autoscaler is a warning.
    """
    templates = {_key(candidate) for candidate in documents if candidate.manifest["kind"] == "PodTemplate"}
    for document in documents:
        if not is_request(document.manifest):
            continue
        yield from (Finding(fault, is_error) for fault, is_error in faults_of(document))
        for number, name in enumerate(_templates(document.manifest)):
            namespace, _ = _key(document)
            if (namespace, name) not in templates:
                here = frozenset(template for place, template in templates if place == namespace)
                hint = (
                    did_you_mean(name, here) or f"; found: {', '.join(sorted(here)) or 'none in these files'}"
                )
                message = f"is {name!r}: no such PodTemplate in namespace {namespace}{hint}"
                where = f"spec.podSets[{number}].podTemplateRef.name"
                yield Finding(document.fault(message, where), is_error=bool(here))


def is_request(manifest: Mapping[str, Any]) -> bool:
    """Return whether an object is a ProvisioningRequest of any version."""
    return manifest["kind"] == KIND and str(manifest["apiVersion"]).startswith(f"{GROUP}/")


def faults_of(document: Document) -> Iterator[tuple[Fault, bool]]:
    """Yield the faults of a request's own fields, each with whether it is an error."""
    manifest = document.manifest
    version, spec = str(manifest["apiVersion"]), manifest.get("spec")
    if version not in _VERSIONS:
        yield (
            document.fault(f"is {version!r}, but a {KIND} is in {' or '.join(_VERSIONS)}", "apiVersion"),
            True,
        )
    if not isinstance(spec, Mapping):
        yield document.fault("is missing: name a class and pod sets", "spec"), True
        return
    name = spec.get("provisioningClassName")
    if (fault := class_fault(name if isinstance(name, str) else "")) != "":
        is_typo = not isinstance(name, str) or not name or bool(did_you_mean(name, CLASSES))
        yield document.fault(fault.removeprefix(f"{_CLASS} "), _CLASS), is_typo
    for problem in request_faults(spec):
        field, _, message = problem.partition(" ")
        yield document.fault(message, field), True
    parameters = spec.get("parameters")
    if isinstance(parameters, Mapping) and name in CLASSES:
        for field, message, is_error in _parameter_faults(parameters, str(name)):
            yield document.fault(message, f"spec.parameters.{field}"), is_error


def _parameter_faults(parameters: Mapping[str, Any], class_name: str) -> Iterator[tuple[str, str, bool]]:
    """Yield the name, a message and whether it is an error for each parameter that has not the effect that it asks for.

    The API server refuses values that are no texts, and ignores unknown names, as Cluster Autoscaler does.
    """
    for name, value in parameters.items():
        if not isinstance(value, str):
            example = "'true'" if name == NO_RETRY else "'600'"
            yield name, f"is {shown(value)}: write a text, such as {example}", True
        elif name == VALID_FOR:
            if value.isdecimal() and int(value) > LONGEST_VALID:
                yield name, f"is {shown(value)}: seven days ({LONGEST_VALID}) are the most, and count", False
        elif name == NO_RETRY:
            if not class_name.startswith(CHECK_CAPACITY):
                yield name, f"has no effect: it is for {CHECK_CAPACITY}", False
            elif value.lower() not in {"true", "false"}:
                yield name, f"is {shown(value)}: write 'true'; anything else counts as 'false'", False
        elif name == _PARTIAL:
            yield name, "has no effect: a request gets all of its room or none", False
        else:
            hint = did_you_mean(name, (VALID_FOR, NO_RETRY))
            yield name, f"has no effect{hint or f': nodesmith knows {VALID_FOR} and {NO_RETRY}'}", False


def _templates(manifest: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of PodTemplates of a request's readable pod sets."""
    spec = manifest.get("spec")
    pod_sets = spec.get("podSets") if isinstance(spec, Mapping) else ()
    for pod_set in pod_sets if isinstance(pod_sets, list) else ():
        reference = pod_set.get("podTemplateRef") if isinstance(pod_set, Mapping) else None
        name = reference.get("name") if isinstance(reference, Mapping) else None
        if isinstance(name, str) and name:
            yield name


def _key(document: Document) -> tuple[str, str]:
    metadata = document.manifest["metadata"]
    return str(metadata.get("namespace") or "default"), str(metadata.get("name"))
