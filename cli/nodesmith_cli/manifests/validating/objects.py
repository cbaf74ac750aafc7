"""Validation of each object alone: its kind, its fields and their values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith.model.karpenter.conversion.converting import KINDS, OLD_VERSIONS, convert
from nodesmith.model.karpenter.conversion.drafts import Conversion, FieldOutcome
from nodesmith.model.limits.quotas import is_quota, parse_quota
from nodesmith.model.schema.nodepools import NODE_OVERLAY
from nodesmith_cli.manifests.converting.objects import fault_of, problem_fault, problems_of
from nodesmith_cli.manifests.validating.autoscaler import autoscaler_findings
from nodesmith_cli.manifests.validating.findings import OURS, Finding, warning
from nodesmith_cli.manifests.validating.placeholders import placeholder_findings
from nodesmith_cli.manifests.validating.placement import placement_findings
from nodesmith_cli.manifests.validating.proactive import proactive_findings
from nodesmith_formats.kubernetes.names import subdomain_problems
from nodesmith_formats.manifests.manifests import Document

_LONGEST_NAME = 253


def object_findings(documents: Sequence[Document]) -> tuple[list[Finding], Conversion]:
    """Return the findings about each object, and the objects converted to the current version."""
    conversion = convert([document.manifest for document in documents], workloads=True)
    findings = [
        Finding(fault_of(documents, change), change.outcome is FieldOutcome.REFUSED)
        for change in conversion.changes
        if not change.is_quiet
    ]
    for converted in conversion.objects:
        problems = problems_of(converted, conversion)
        findings += [Finding(problem_fault(documents, converted, p), p.fatal) for p in problems]
    for document in documents:
        findings += [*_findings(document), *autoscaler_findings(document)]
        findings += [*placement_findings(document), *proactive_findings(document)]
    return findings + list(_duplicates(documents)), conversion


def _findings(document: Document) -> list[Finding]:
    if is_quota(document.manifest):
        problems = parse_quota(document.manifest).problems
        return [Finding(document.fault(f"is {p.found}: {p.remedy}", p.field), p.fatal) for p in problems]
    if _is_karpenters(document):
        return [*_kind_findings(document), *placeholder_findings(document), *_name_findings(document)]
    from nodesmith_cli.manifests.validating.builtin import built_in_findings  # slow to import

    return built_in_findings(document)


def _is_karpenters(document: Document) -> bool:
    return document.manifest["kind"] in OURS or str(document.manifest["apiVersion"]).startswith("karpenter.")


def _name_findings(document: Document) -> Iterator[Finding]:
    """Yield a finding if an API server refuses the object's name. A name of another type is reported already."""
    name = document.manifest["metadata"].get("name")
    if not isinstance(name, str):
        return
    if len(name) > _LONGEST_NAME:
        yield Finding(document.fault(f"has {len(name):,} of {_LONGEST_NAME} characters", "metadata.name"))
        return
    for problem in subdomain_problems(name, "metadata.name"):
        yield Finding(document.fault(problem.message, problem.field))


def _kind_findings(document: Document) -> list[Finding]:
    """Report a kind that does not exist, or not in its group and version, with a suggestion."""
    kind = str(document.manifest["kind"])
    group = str(document.manifest["apiVersion"]).rpartition("/")[0]
    if kind in OURS:
        return version_findings(document)
    hint = did_you_mean(kind, OURS) or f"; its kinds are {', '.join(sorted(OURS))}"
    return [Finding(document.fault(f"is {kind!r}, which is not a kind in {group}{hint}", "kind"))]


def version_findings(document: Document) -> list[Finding]:
    """Report a Karpenter kind whose group and version do not have it. Returns nothing for other kinds."""
    api_version, kind = str(document.manifest["apiVersion"]), str(document.manifest["kind"])
    known_versions = sorted({v for v in OLD_VERSIONS if (v.partition("/")[0], kind) in KINDS})
    served = [version for version in known_versions if _is_of_its_time(version, kind)]
    if kind == NODE_OVERLAY.name:
        known_versions = served = [NODE_OVERLAY.api_version]
    if not known_versions or api_version in served:
        return []
    return [
        Finding(document.fault(f"is {api_version!r}, but a {kind} is in {' or '.join(served)}", "apiVersion"))
    ]


def _is_of_its_time(api_version: str, kind: str) -> bool:
    is_first = api_version.endswith(("v1alpha5", "v1alpha1"))
    return is_first == (kind in {"Provisioner", "AWSNodeTemplate"})


def _duplicates(documents: Sequence[Document]) -> Iterator[Finding]:
    earlier_documents: dict[object, Document] = {}
    for document in documents:
        earlier = earlier_documents.setdefault(document.identity, document)
        if earlier is not document:
            yield warning(
                document.fault(
                    f"is already defined in {earlier.place}; the last definition applies", "metadata.name"
                )
            )
