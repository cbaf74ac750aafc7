"""What a Provisioner and an AWSNodeTemplate may say: as their own API servers took it, before webhooks looked at it.

Only for CRDs, so that old files can be applied: what a field means, `nodesmith.model.conversion` knows, and says what
it cannot use. So types are checked here and little else, and unknown fields are kept.
"""

from __future__ import annotations

from collections.abc import Mapping

from nodesmith.model.schema.fields import (
    INT64,
    Array,
    Boolean,
    Field,
    Integer,
    Kind,
    Map,
    Object,
    Quantity,
    Text,
)
from nodesmith.model.schema.kubelet import KUBELET
from nodesmith.model.schema.nodespec import ANNOTATIONS

_TAINTS = Array(
    Object({"key": Text(), "value": Text(), "effect": Text()}, required=("key", "effect")),
    "Taints of every node.",
)
_REQUIREMENTS = Array(
    Object(
        {"key": Text("Label."), "operator": Text("How it relates to the values."), "values": Array(Text())},
        required=("key", "operator"),
        open=True,
    ),
    "What the nodes' labels must be; absent keys have defaults.",
)
_KUBELET = Object(
    {**KUBELET.fields, "containerRuntime": Text("Has no effect: it is containerd.")},
    "Settings of the kubelet.",
    open=True,
)
_SELECTOR = "by tag; values behind commas are alternatives, aws-ids names ids."
_TEMPLATE_FIELDS: Mapping[str, Field] = {
    "subnetSelector": Map(Text(), f"Subnets {_SELECTOR}"),
    "securityGroupSelector": Map(Text(), f"Security groups {_SELECTOR}"),
    "amiSelector": Map(Text(), f"Images {_SELECTOR}"),
    "amiFamily": Text(
        "How user data is made, and which images are taken where none are selected; AL2 by default."
    ),
    "userData": Text("User data that is merged with what the node needs to join."),
    "instanceProfile": Text("Instance profile of the nodes."),
    "tags": Map(Text(), "Tags of everything that is made for it."),
    "context": Text("Passed on to EC2 as the fleet's Context."),
    "launchTemplate": Text("Has no effect: launch templates are made from the other fields."),
    "metadataOptions": Object({}, "The instance metadata service of every node.", open=True),
    "blockDeviceMappings": Array(Object({}, open=True), "Volumes of every node."),
    "detailedMonitoring": Boolean("Whether CloudWatch samples nodes every minute."),
}
PROVISIONER = Kind(
    "karpenter.sh",
    "Provisioner",
    "provisioners",
    Object(
        {
            "labels": Map(Text(), "Labels of every node."),
            "annotations": ANNOTATIONS,
            "taints": _TAINTS,
            "startupTaints": _TAINTS,
            "requirements": _REQUIREMENTS,
            "kubeletConfiguration": _KUBELET,
            "provider": Object(_TEMPLATE_FIELDS, "How nodes are built on EC2.", open=True),
            "providerRef": Object(
                {"apiVersion": Text(), "kind": Text(), "name": Text()},
                "Which AWSNodeTemplate says how nodes are built.",
            ),
            "ttlSecondsAfterEmpty": Integer("Seconds until a node without pods is taken away.", 0, INT64),
            "ttlSecondsUntilExpired": Integer("Greatest age of a node, in seconds.", 0, INT64),
            "limits": Object({"resources": Map(Quantity(), "Most that all nodes may sum up to.")}, open=True),
            "weight": Integer("Provisioners of higher weight are tried first.", 1, 100),
            "consolidation": Object(
                {"enabled": Boolean("Whether nodes are consolidated.")}, "Whether pods are moved."
            ),
        },
        "What nodes may be bought.",
        open=True,
    ),
    "A set of nodes that may be bought alike, as of 2022; it is read as a NodePool.",
    "v1alpha5",
)
AWS_NODE_TEMPLATE = Kind(
    "karpenter.k8s.aws",
    "AWSNodeTemplate",
    "awsnodetemplates",
    Object(_TEMPLATE_FIELDS, "How nodes are built on EC2.", open=True),
    "How nodes are built on EC2, as of 2022; it is read as an EC2NodeClass.",
    "v1alpha1",
)
