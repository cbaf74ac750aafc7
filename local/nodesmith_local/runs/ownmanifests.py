"""Manifests adapted to one of several local clusters: its EC2NodeClasses select that cluster's network and role."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from nodesmith.registration import default_node_role
from nodesmith_formats.manifests.manifests import Document
from nodesmith_formats.manifests.places import DISCOVERY_TAG

_TERMS = ("subnetSelectorTerms", "securityGroupSelectorTerms")
_SELECTORS = ("subnetSelector", "securityGroupSelector")
"""The selectors' names in an AWSNodeTemplate, where they are maps of tags."""
_NO_TAGS = ("aws-ids", "aws::")
"""Prefixes of keys in such a map that are not tags."""


def of_cluster(documents: Iterable[Document], cluster: str, first: str) -> list[Document]:
    """Return the documents for a cluster. `first` is the cluster that the files are written for.

    Clusters may have subnets with the same tags, so selectors by tags also get the cluster's own tag. The first
    cluster's usual role becomes this cluster's.
    """
    return [_own(document, cluster, first) for document in documents]


def _own(document: Document, cluster: str, first: str) -> Document:
    manifest = document.manifest
    spec = manifest.get("spec")
    if manifest.get("kind") not in {"EC2NodeClass", "AWSNodeTemplate"} or not isinstance(spec, Mapping):
        return document
    changed = {key: _spec_field(key, value, cluster, first) for key, value in spec.items()}
    return replace(document, manifest={**manifest, "spec": changed})


def _spec_field(key: str, value: Any, cluster: str, first: str) -> Any:
    if key == "role" and value == default_node_role(first):
        return default_node_role(cluster)
    if key in _SELECTORS:
        return _tags(value, cluster, first)
    if key in _TERMS and isinstance(value, list):
        return [
            {**term, "tags": _tags(term["tags"], cluster, first)}
            if isinstance(term, Mapping) and "tags" in term
            else term
            for term in value
        ]
    return value


def _tags(tags: Any, cluster: str, first: str) -> Any:
    """Return the tags with the cluster's own; selectors by ids or names stay unchanged."""
    if not isinstance(tags, Mapping) or any(str(key).startswith(_NO_TAGS) for key in tags):
        return tags
    return {**tags, DISCOVERY_TAG: cluster} if tags.get(DISCOVERY_TAG, first) == first else tags
