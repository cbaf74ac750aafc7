"""Hashes of objects: Karpenter's for static drift, and content hashes, which compare two readings of an object."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from nodesmith.model.hashstructure import KUBELET_FIELDS, NODECLASS_SPEC, TEMPLATE, text
from nodesmith.model.schema.reading import Manifest

# Hashes for static drift cover the fields that nodes are created from. Requirements and the results of selectors are
# compared in other ways. Changes of limits, weight and disruption replace no node. Sources: `NodePool.Hash` of core
# v1.14 and `EC2NodeClass.Hash` of the AWS provider v1.14.
NODEPOOL_HASH = "karpenter.sh/nodepool-hash"
NODECLASS_HASH = "karpenter.k8s.aws/ec2nodeclass-hash"
"""Annotations of NodePools, EC2NodeClasses and NodeClaims. The annotation `…-version` has the version of a hash."""
NODEPOOL_HASH_VERSION = "v3"
NODECLASS_HASH_VERSION = "v5"
OWN_VERSIONS = "nodesmith-"
"""Prefix of the hash versions of earlier releases, which used nodesmith's own rules."""
FIRST_HASH_VERSION = f"{OWN_VERSIONS}v1"


def stated_hash(annotation: str, value: str, version: str) -> dict[str, str]:
    """Return the annotations for a hash and its version."""
    return {annotation: value, f"{annotation}-version": version}


def nodepool_hash(template: Mapping[str, Any]) -> str:
    """Return the hash of a NodePool's `spec.template`, which was read with its defaults."""
    return str(TEMPLATE(template))


def nodeclass_hash(spec: Mapping[str, Any], ami_family: str) -> str:
    """Return the hash of an EC2NodeClass's spec, which was read with its defaults, without the cluster's CA bundle.

    `ami_family` is the resolved one. Kubelet fields that Karpenter v1.14 does not have change the hash, because
    nodesmith applies them to nodes. Karpenter v1.14 never sees such fields.
    """
    unknown = {k: v for k, v in spec.get("kubelet", {}).items() if k not in KUBELET_FIELDS}
    beyond = text(json.dumps(unknown, sort_keys=True)) if unknown else 0
    return str(NODECLASS_SPEC(spec) ^ text(ami_family) ^ text("") ^ beyond)


def hash_in_cluster(nodeclass_hash: str, ca_bundle: str) -> str:
    """Return the hash of an EC2NodeClass as in a cluster's annotations, which includes the CA bundle in base64.

    If `nodeclass_hash` already includes it, return the hash without it. Return "" if it is not a hash of the current
    version.
    """
    if not nodeclass_hash.isdecimal():
        return ""
    return str(int(nodeclass_hash) ^ text("") ^ text(ca_bundle))


# Readiness computes the content hash of what it reads from the API server and keeps it in the ledger. A decision
# compares it with the hash of the object in its snapshot. The hash is SHA-256 over everything that decisions read
# from the object.
OPTIONS_DOMAIN = "nodesmith.dev/"
"""The prefix of the annotations that decisions read."""


def content_hash(manifest: Manifest) -> str:
    """Return the hash, 64 hex digits, of a NodePool or EC2NodeClass that was read without fatal problems.

    It covers the spec with its defaults, nodesmith's annotations, the uid, the generation and whether the object is
    being deleted. Labels and other annotations affect no decision, so they are left out.
    """
    annotations: Mapping[str, str] = manifest.metadata.get("annotations") or {}
    options = {key: value for key, value in annotations.items() if key.startswith(OPTIONS_DOMAIN)}
    return _digest({**manifest.identity, "annotations": options, "spec": manifest.spec})


def marked_content_hash(manifest: Manifest) -> str:
    """Return the hash of a NodeClaim. It includes labels and annotations, since its Node gets them as well."""
    marks = {part: manifest.metadata.get(part) or {} for part in ("labels", "annotations")}
    return _digest({**manifest.identity, **marks, "spec": manifest.spec})


def _digest(content: Mapping[str, Any]) -> str:
    return sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
