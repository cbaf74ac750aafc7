"""The implementation of `nodesmith hash`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nodesmith.model.hashes import NODECLASS_HASH_VERSION, NODEPOOL_HASH_VERSION
from nodesmith.model.karpenter.conversion.converting import convert
from nodesmith.model.karpenter.conversion.drafts import Conversion, FieldOutcome
from nodesmith.model.karpenter.nodepools import NodePool
from nodesmith.model.karpenter.ownership import is_foreign
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith_cli.manifests.converting.objects import as_of_a_file, faults_of, reader_of, unreadable
from nodesmith_cli.manifests.validating.objects import version_findings
from nodesmith_cli.output.printing import aligned, print_data
from nodesmith_cli.sharing.foreign import owner_message
from nodesmith_formats.manifests.manifests import Document, Fault, read_documents
from nodesmith_formats.wording import printable

OK, NOT_HASHED, BAD_INPUT = 0, 1, 2
_OF_NO_CLUSTER = (
    "EC2NodeClasses: in a cluster, the hash also covers the CA bundle; use --cluster-ca-bundle to compare"
)


class Hash(NamedTuple):
    """One row of the output. The fields are in the order of the columns."""

    kind: str
    name: str
    hash: str
    version: str


def run(files: Sequence[str], ca_bundle: str, output: str) -> int:
    """Print hashes to standard output, and problems and notes to standard error. Returns the exit status."""
    items = list(read_documents(files))
    faults = [item for item in items if isinstance(item, Fault)]
    read = [item for item in items if isinstance(item, Document)]
    documents = [candidate for candidate in read if not _is_foreign_nodepool(candidate)]
    conversion = convert([document.manifest for document in documents])
    wrong = [
        finding.fault
        for candidate in documents
        if _is_karpenters(candidate)
        for finding in version_findings(candidate)
    ]
    wrong += unreadable(documents, conversion)
    hashes = list(_hashes(conversion, ca_bundle))
    if output == "table":
        print(_table(hashes))
    else:
        print_data([entry._asdict() for entry in hashes], output)
    notes = [
        candidate.fault(owner_message(candidate.manifest))
        for candidate in read
        if _is_foreign_nodepool(candidate)
    ]
    for fault in (*faults, *faults_of(documents, conversion), *notes, *wrong):
        print(printable(str(fault)), file=sys.stderr)
    if not ca_bundle and any(entry.kind == "EC2NodeClass" for entry in hashes):
        print(_OF_NO_CLUSTER, file=sys.stderr)
    if faults:
        return BAD_INPUT
    return NOT_HASHED if wrong or any(c.outcome is FieldOutcome.REFUSED for c in conversion.changes) else OK


def _is_foreign_nodepool(document: Document) -> bool:
    return document.manifest["kind"] == "NodePool" and is_foreign(document.manifest)


def _is_karpenters(document: Document) -> bool:
    return str(document.manifest["apiVersion"]).startswith("karpenter.")


def _hashes(conversion: Conversion, ca_bundle: str) -> Iterator[Hash]:
    for converted in conversion.objects:
        read = reader_of(converted)
        match read(as_of_a_file(converted).manifest).value if read else None:
            case NodePool() as pool:
                yield Hash("NodePool", pool.name, pool.hash, NODEPOOL_HASH_VERSION)
            case EC2NodeClass() as nodeclass:
                in_cluster = nodeclass.hash_in(ca_bundle)
                yield Hash("EC2NodeClass", nodeclass.name, in_cluster, NODECLASS_HASH_VERSION)


def _table(hashes: Sequence[Hash]) -> str:
    return "\n".join(aligned([("KIND", "NAME", "HASH", "VERSION"), *hashes]))
