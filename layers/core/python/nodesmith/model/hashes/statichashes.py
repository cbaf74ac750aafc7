"""Karpenter's hashes for static drift, of NodePools (core v1.14) and EC2NodeClasses (AWS provider v1.14).

They cover what nodes are made from. Requirements and what selectors find are compared otherwise; limits, weight and
disruption replace no node. Sources: `NodePool.Hash` and `EC2NodeClass.Hash`, see `hashedtypes`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from nodesmith.model.hashes.gostructs import KUBELET_FIELDS, NODECLASS_SPEC, TEMPLATE
from nodesmith.model.hashes.hashstructure import text

NODEPOOL_HASH = "karpenter.sh/nodepool-hash"
NODECLASS_HASH = "karpenter.k8s.aws/ec2nodeclass-hash"
"""Annotations of NodePools, EC2NodeClasses and NodeClaims; the version stands beside each, under `…-version`."""
NODEPOOL_HASH_VERSION = "v3"
NODECLASS_HASH_VERSION = "v5"
OWN_VERSIONS = "nodesmith-"
"""Prefix of the versions of earlier releases, which hashed by rules of nodesmith's own."""
FIRST_HASH_VERSION = f"{OWN_VERSIONS}v1"


def stated_hash(annotation: str, value: str, version: str) -> dict[str, str]:
    """Return the annotations that state a hash and its version."""
    return {annotation: value, f"{annotation}-version": version}


def nodepool_hash(template: Mapping[str, Any]) -> str:
    """Hash `spec.template` of a NodePool, read with its defaults."""
    return str(TEMPLATE(template))


def nodeclass_hash(spec: Mapping[str, Any], ami_family: str) -> str:
    """Hash the spec of an EC2NodeClass, read with its defaults, for a cluster whose CA bundle is not known.

    `ami_family` is the resolved one. Fields of the kubelet that Karpenter v1.14 does not know change the hash, since
    nodesmith gives them to nodes; Karpenter v1.14 never sees any.
    """
    unknown = {k: v for k, v in spec.get("kubelet", {}).items() if k not in KUBELET_FIELDS}
    beyond = text(json.dumps(unknown, sort_keys=True)) if unknown else 0
    return str(NODECLASS_SPEC(spec) ^ text(ami_family) ^ text("") ^ beyond)


def hash_in_cluster(nodeclass_hash: str, ca_bundle: str) -> str:
    """Return the hash of an EC2NodeClass as annotations of a cluster hold it: it covers the CA bundle, in base64.

    Of a hash that covers it already, return the one without; of what is no hash of today's version, return "".
    """
    if not nodeclass_hash.isdecimal():
        return ""
    return str(int(nodeclass_hash) ^ text("") ^ text(ca_bundle))
