"""Convert a cluster's Karpenter objects of all API versions to current NodePools and EC2NodeClasses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from nodesmith.model.conversion.converting import convert, loud
from nodesmith.model.karpenter.nodepools import PROVISIONER, PROVISIONER_UID
from nodesmith.model.karpenter.ownership import is_foreign
from nodesmith.model.kubernetes.pods import Manifest
from nodesmith.model.nodeclasses.nodeclasses import NODE_TEMPLATE
from nodesmith.observation.observed import Observed

_NODE_POOL, _NODE_CLASS = ("karpenter.sh/v1", "NodePool"), ("karpenter.k8s.aws/v1", "EC2NodeClass")
_PROVISIONER, _NODE_TEMPLATE = (
    ("karpenter.sh/v1alpha5", "Provisioner"),
    ("karpenter.k8s.aws/v1alpha1", "AWSNodeTemplate"),
)


class Todays(NamedTuple):
    """All NodePools and EC2NodeClasses. Those without a uid are not objects of the cluster.

    `problems` are the changes of the conversion that need attention.
    """

    nodepools: Sequence[Manifest]
    nodeclasses: Sequence[Manifest]
    problems: Sequence[str]


def todays(observed: Observed) -> Todays:
    """Convert all objects together. Objects that need no conversion stay as they were reduced.

    NodePools that other software serves are not converted, because nodesmith does not report their mistakes.
    """
    foreign = [each for each in observed.nodepools if is_foreign(each)]
    nodepools = [each for each in observed.nodepools if not is_foreign(each)]
    reduced = [*nodepools, *observed.nodeclasses, *observed.provisioners, *observed.awsnodetemplates]
    named = [
        *_named(nodepools, *_NODE_POOL),
        *_named(observed.nodeclasses, *_NODE_CLASS),
        *_named(observed.provisioners, *_PROVISIONER),
        *_named(observed.awsnodetemplates, *_NODE_TEMPLATE),
    ]
    conversion = convert(named)
    made: dict[str, list[Manifest]] = {"NodePool": [], "EC2NodeClass": []}
    made["NodePool"] += foreign
    for each in conversion.objects:
        given, manifest = reduced[each.number], each.manifest
        old = named[each.number]
        if manifest is old:
            made[manifest["kind"]].append(given)
            continue
        metadata = _owning(manifest, given)
        is_template = old["kind"] == _NODE_TEMPLATE[1] and metadata["name"] == old["metadata"]["name"]
        if is_template:
            metadata = _annotated(metadata, NODE_TEMPLATE, metadata["name"])
        is_shown = "status" in given and (is_template or manifest["kind"] == "NodePool")
        shown = {"status": given["status"]} if is_shown else {}
        made[manifest["kind"]].append({**manifest, **shown, "metadata": metadata})
    return Todays(
        made["NodePool"], made["EC2NodeClass"], [str(change) for change in loud(conversion.changes)]
    )


def _owning(manifest: Manifest, given: Manifest) -> Manifest:
    """Return the metadata of a converted object, with the uid of the Provisioner that owns the NodeClaims, if any."""
    metadata: Manifest = manifest["metadata"]
    annotations, uid = metadata.get("annotations") or {}, given["metadata"].get("uid")
    if manifest["kind"] != "NodePool" or PROVISIONER not in annotations or "uid" in metadata or not uid:
        return metadata
    return _annotated(metadata, PROVISIONER_UID, uid)


def _annotated(metadata: Manifest, key: str, value: str) -> Manifest:
    return {**metadata, "annotations": {**(metadata.get("annotations") or {}), key: value}}


def _named(manifests: Iterable[Manifest], api_version: str, kind: str) -> Iterator[Manifest]:
    """Return objects with apiVersion and kind, which the items of a list from the API server do not have."""
    return ({**manifest, "apiVersion": api_version, "kind": kind} for manifest in manifests)
