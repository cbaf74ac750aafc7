"""Validation of Kubernetes' built-in kinds against what an API server accepts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith.observation.podgroups import APIS, group_faults
from nodesmith_cli.manifests.validating.findings import OURS, Finding
from nodesmith_cli.manifests.validating.requests import is_request
from nodesmith_cli.planning.checking import UNKNOWN, checked
from nodesmith_cli.planning.manifests import stamped
from nodesmith_formats.kubernetes.builtin import fields_of, type_of
from nodesmith_formats.kubernetes.kinds import BUILTIN
from nodesmith_formats.manifests.manifests import Document

_BUILTIN_KINDS = {resource.kind: resource.api_version() for resource in BUILTIN}
_PLANNING = "; the object is ignored"
"""The end of a message that only concerns plans."""
_MISFIT = re.compile(r"(?:into field |\()([a-zA-Z][\w.\[\]]*)(?: of type|: )")
"""Finds the field in a type error's message."""
_OTHER_KINDS = frozenset(
    "ComponentStatus ControllerRevision CSIStorageCapacity DeviceTaintRule Endpoints HorizontalPodAutoscaler Ingress "
    "IngressClass IPAddress LeaseCandidate NetworkPolicy ResourceQuota ServiceCIDR "
    "VolumeAttributesClass".split()
)
"""Kinds of the same groups that decisions do not read, and whose fields are not checked."""
_BUILTIN_GROUPS = frozenset(resource.group for resource in BUILTIN) | {"autoscaling", "networking.k8s.io"}


def built_in_findings(document: Document) -> list[Finding]:
    """Report an unknown kind or API group with a suggestion, else what is wrong with the object's fields."""
    group = str(document.manifest["apiVersion"]).rpartition("/")[0]
    if (document.manifest["kind"], group) in APIS:
        return [Finding(document.fault(reason, field)) for field, reason in group_faults(document.manifest)]
    return _kind_findings(document) or list(_shape_findings(document))


def _kind_findings(document: Document) -> list[Finding]:
    api_version, kind = str(document.manifest["apiVersion"]), str(document.manifest["kind"])
    group = api_version.rpartition("/")[0]
    wanted = _BUILTIN_KINDS.get(kind)
    if wanted and wanted.rpartition("/")[0] != group and group in _BUILTIN_GROUPS | {"extensions"}:
        return [Finding(document.fault(f"is {api_version!r}, but a {kind} is in {wanted}", "apiVersion"))]
    if group in _BUILTIN_GROUPS and kind not in _OTHER_KINDS and not fields_of(type_of(group, kind)):
        hint = did_you_mean(kind, frozenset(_BUILTIN_KINDS) | _OTHER_KINDS | OURS)
        return [Finding(document.fault(f"is {kind!r}, which is unknown{hint}", "kind"), is_error=bool(hint))]
    return []


def _shape_findings(document: Document) -> Iterator[Finding]:
    if is_request(document.manifest):
        return  # request_findings distinguishes errors from warnings
    kept, faults = checked([stamped(document)])
    for fault in faults:
        message = fault.message.removesuffix(_PLANNING)
        misfit = "" if fault.field else next((m[1] for m in map(_MISFIT.search, [message]) if m), "")
        placed = document.fault(message, misfit) if misfit else replace(fault, message=message)
        yield Finding(placed, is_error=not kept and not message.startswith(UNKNOWN))
