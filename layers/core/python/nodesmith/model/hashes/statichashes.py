"""Karpenter's hashes for static drift, of NodePools (core v1.14) and EC2NodeClasses (AWS provider v1.14).

They cover the fields that nodes are created from. Requirements and the results of selectors are compared in other ways.
Changes of limits, weight and disruption replace no node. Sources: `NodePool.Hash` and `EC2NodeClass.Hash`, see
`gostructs`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from nodesmith.model.hashes.gostructs import KUBELET_FIELDS, NODECLASS_SPEC, TEMPLATE
from nodesmith.model.hashes.hashstructure import text

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
