"""The implementation of `nodesmith validate`.

Modules that only some files need are imported lazily, since imports take most of a check's time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice

import typer

from nodesmith.errors import Rejected
from nodesmith.model.karpenter.nodepools import parse_nodepool
from nodesmith.model.karpenter.ownership import is_foreign
from nodesmith.model.nodeclasses.nodeclasses import parse_nodeclass
from nodesmith.model.schema.nodepools import NODE_OVERLAY, NODE_POOL
from nodesmith_cli.manifests.converting.objects import converted_documents
from nodesmith_cli.manifests.validating.findings import Finding, in_order, warning
from nodesmith_cli.manifests.validating.objects import object_findings
from nodesmith_cli.manifests.validating.references import class_findings
from nodesmith_cli.output.printing import print_data
from nodesmith_cli.sharing.foreign import owner_message
from nodesmith_formats.manifests.manifests import Document, Fault, read_documents
from nodesmith_formats.wording import counted

OK, ERRORS = 0, 1
_MOST_VALUES = 100_000
"""The most values in one document. Larger documents take too long to check."""
_MOST_DOCUMENTS = 5_000
_ANY_POOL = {
    "apiVersion": NODE_POOL.api_version,
    "kind": NODE_POOL.name,
    "metadata": {"name": "any"},
    "spec": {
        "template": {
            "spec": {
                "requirements": [],
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "any"},
            }
        }
    },
}
_MOST_POOLS = 100
"""The most NodePools whose instance types are checked, which takes some hundredths of a second each."""


def run(files: Sequence[str], region: str, output: str, commitments: str = "") -> int:
    """Check files, and print the findings. Returns 1 if there is an error.

    `commitments` is a file that lists Savings Plans and Reserved Instances, empty for none.
    """
    items = list(islice(read_documents(files, _MOST_VALUES), _MOST_DOCUMENTS + 1))
    documents = [item for item in items if isinstance(item, Document)]
    unreadable = [Finding(item) for item in items if isinstance(item, Fault)]
    if len(items) > _MOST_DOCUMENTS:
        reason = f"more than {_MOST_DOCUMENTS:,} objects and errors: check fewer at a time"
        documents, unreadable = [], [*unreadable[:1], Finding(Fault(reason, ", ".join(files)))]
    listed = _commitment_findings(commitments, region) if commitments else ()
    findings = list(in_order([*unreadable, *check(documents, region), *listed]))
    errors = sum(finding.is_error for finding in findings)
    if output != "text":
        print_data([_item(finding) for finding in findings], output)
    else:
        for finding in findings:
            typer.secho(str(finding), fg="red" if finding.is_error else "yellow")
        summary = f"{counted(errors, 'error')}, {counted(len(findings) - errors, 'warning')}"
        typer.secho(f"{counted(len(documents), 'object')}: {summary}", dim=True)
    return ERRORS if errors else OK


def _commitment_findings(file: str, region: str) -> Iterator[Finding]:
    from nodesmith.adapters.catalog.catalogs import REFERENCE_REGION, embedded_catalog
    from nodesmith_cli.costs.commitments import listed_in

    _, problems = listed_in(file, embedded_catalog(region or REFERENCE_REGION), datetime.now(UTC))
    for problem in problems:
        fault = Fault(
            f"is {problem.found}: {problem.remedy}", file, object=problem.object, field=problem.field
        )
        yield Finding(fault, is_error=problem.fatal)


def check(documents: Sequence[Document], region: str) -> Iterator[Finding]:
    """Yield all findings about the objects, alone and together."""
    others = [document for document in documents if _is_of_others(document)]
    yield from (warning(document.fault(owner_message(document.manifest))) for document in others)
    documents = [document for document in documents if not _is_of_others(document)]
    alone, _ = object_findings(documents)
    yield from alone
    if any(document.manifest["kind"] == "ProvisioningRequest" for document in documents):
        from nodesmith_cli.manifests.validating.requests import request_findings

        yield from request_findings(documents)
    if any(document.manifest["kind"] == "PodDisruptionBudget" for document in documents):
        from nodesmith_cli.manifests.validating.budgets import budget_findings

        yield from budget_findings(documents)
    if any(document.manifest["kind"] == "CapacityBuffer" for document in documents):
        from nodesmith_cli.manifests.validating.buffers import buffer_findings

        yield from buffer_findings(documents)
    converted, _ = converted_documents(documents)
    pools_there = {
        _name(document): document for document in converted if document.manifest["kind"] == "NodePool"
    }
    classes = {
        _name(document): document for document in converted if document.manifest["kind"] == "EC2NodeClass"
    }
    missing = list(class_findings(pools_there, classes))
    yield from missing
    yield from _unlaunchable(classes.values())
    sound = {
        name: nodepool
        for name, nodepool in pools_there.items()
        if parse_nodepool(nodepool.manifest).value is not None
    }
    if not sound:
        yield from _overlays_alone(documents, region)
        return
    if len(sound) > _MOST_POOLS:
        reason = (
            f"is one of {len(sound)} NodePools: instance types and pods are checked for at most {_MOST_POOLS}"
        )
        yield warning(next(iter(sound.values())).fault(reason))
        return
    from nodesmith_cli.manifests.validating.hosting import hosting_findings, inputs_of
    from nodesmith_cli.manifests.validating.pools import overlay_findings, pool_findings

    try:
        inputs, manifests = inputs_of(documents, region)
    except Rejected as error:
        yield Finding(next(iter(sound.values())).fault(str(error)))
        return
    yield from pool_findings(inputs, sound)
    yield from overlay_findings(inputs, documents)
    if len(sound) == len(pools_there) and not any(finding.is_error for finding in missing):
        yield from hosting_findings(inputs, manifests, documents)


def _overlays_alone(documents: Sequence[Document], region: str) -> Iterator[Finding]:
    """Yield which NodeOverlays contradict each other for a NodePool that allows everything, as there is none."""
    overlays = [document for document in documents if document.manifest["kind"] == NODE_OVERLAY.name]
    if len(overlays) > 1:
        from nodesmith_cli.manifests.validating.hosting import inputs_of
        from nodesmith_cli.manifests.validating.pools import contradictions

        inputs, _ = inputs_of([replace(overlays[0], manifest=_ANY_POOL), *overlays], region)
        yield from contradictions(inputs, overlays)


def _is_of_others(document: Document) -> bool:
    return document.manifest["kind"] in {"NodePool", "NodeClaim"} and is_foreign(document.manifest)


def _unlaunchable(classes: Iterable[Document]) -> Iterator[Finding]:
    sound = [nodeclass for nodeclass in classes if parse_nodeclass(nodeclass.manifest).value is not None]
    if sound:
        from nodesmith_cli.planning.nodeclasses import unlaunchable

        yield from (Finding(fault) for fault in map(unlaunchable, sound) if fault is not None)


def _name(document: Document) -> str:
    return str(document.manifest["metadata"].get("name"))


def _item(finding: Finding) -> dict[str, object]:
    fault = finding.fault
    return {
        "severity": "error" if finding.is_error else "warning",
        "file": fault.file,
        "line": fault.line or None,
        "object": fault.object,
        "field": fault.field,
        "message": fault.message,
    }
