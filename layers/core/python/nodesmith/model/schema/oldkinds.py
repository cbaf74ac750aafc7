"""Schemas of Provisioner and AWSNodeTemplate, as API servers accepted them before Karpenter's webhooks checked them.

They exist only for CRDs, so that old files can be applied. `nodesmith.model.conversion` interprets the fields and
reports those that it cannot use. So these schemas check little more than types, and keep unknown fields.
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
from nodesmith.model.schema.nodeclaims import ANNOTATIONS
from nodesmith.model.schema.nodeclasses import KUBELET

_TAINTS = Array(
    Object({"key": Text(), "value": Text(), "effect": Text()}, required=("key", "effect")),
    "Taints of every node.",
)
_REQUIREMENTS = Array(
    Object(
        {
            "key": Text("Label key."),
            "operator": Text("How the label's value relates to the values."),
            "values": Array(Text()),
        },
        required=("key", "operator"),
        open=True,
    ),
    "Requirements for the labels of nodes. Absent keys have defaults.",
)
_KUBELET = Object(
    {
        **KUBELET.fields,
        "containerRuntime": Text("Has no effect: the container runtime is always containerd."),
    },
    "Settings of the kubelet.",
    open=True,
)
_SELECTOR = "by tag. Commas separate alternative values; the key aws-ids takes IDs."
_TEMPLATE_FIELDS: Mapping[str, Field] = {
    "subnetSelector": Map(Text(), f"Subnets {_SELECTOR}"),
    "securityGroupSelector": Map(Text(), f"Security groups {_SELECTOR}"),
    "amiSelector": Map(Text(), f"Images {_SELECTOR}"),
    "amiFamily": Text(
        "AMI family that determines the format of user data, and the images if none are selected. Defaults to AL2."
    ),
    "userData": Text("User data that is merged with what the node needs to join the cluster."),
    "instanceProfile": Text("Instance profile of the nodes."),
    "tags": Map(Text(), "Tags of all AWS resources that are created from it."),
    "context": Text("Passed on to EC2 as the fleet's Context."),
    "launchTemplate": Text("Has no effect: launch templates are created from the other fields."),
    "metadataOptions": Object({}, "The instance metadata service of every node.", open=True),
    "blockDeviceMappings": Array(Object({}, open=True), "Volumes of every node."),
    "detailedMonitoring": Boolean("Whether CloudWatch collects metrics of nodes every minute."),
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
            "provider": Object(_TEMPLATE_FIELDS, "How nodes are launched on EC2.", open=True),
            "providerRef": Object(
                {"apiVersion": Text(), "kind": Text(), "name": Text()},
                "The AWSNodeTemplate that nodes are launched from.",
            ),
            "ttlSecondsAfterEmpty": Integer("Seconds until a node without pods is removed.", 0, INT64),
            "ttlSecondsUntilExpired": Integer("Maximum age of a node, in seconds.", 0, INT64),
            "limits": Object(
                {"resources": Map(Quantity(), "Maximum total resources of all nodes.")}, open=True
            ),
            "weight": Integer("Provisioners of higher weight are tried first.", 1, 100),
            "consolidation": Object(
                {"enabled": Boolean("Whether nodes are consolidated.")}, "Consolidation of nodes."
            ),
        },
        "Desired state of the Provisioner.",
        open=True,
    ),
    "A set of nodes that are launched from one template, in the API of 2022. It is read as a NodePool.",
    "v1alpha5",
)
AWS_NODE_TEMPLATE = Kind(
    "karpenter.k8s.aws",
    "AWSNodeTemplate",
    "awsnodetemplates",
    Object(_TEMPLATE_FIELDS, "How nodes are launched on EC2.", open=True),
    "How nodes are launched on EC2, in the API of 2022. It is read as an EC2NodeClass.",
    "v1alpha1",
)
