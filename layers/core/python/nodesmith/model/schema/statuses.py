"""Status schemas, printer columns and short names of the kinds, and schemas of kinds before Karpenter's v1beta1.

Only the CRDs need them. Provisioner and AWSNodeTemplate are described as API servers accepted them before Karpenter's
webhooks checked them, so that old files can be applied. `nodesmith.model.karpenter.conversion` interprets their fields
and reports those that it cannot use. So these schemas check little more than types, and keep unknown fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

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
from nodesmith.model.schema.nodeclaims import ANNOTATIONS, NODE_CLAIM, requirements
from nodesmith.model.schema.nodeclasses import EC2_NODE_CLASS, KUBELET
from nodesmith.model.schema.nodepools import NODE_OVERLAY, NODE_POOL

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


class Column(NamedTuple):
    """A column of `kubectl get`. A `wide` column shows only with `-o wide`."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False


class Definition(NamedTuple):
    """A kind with its status schema and its presentation in kubectl."""

    kind: Kind
    status: Object
    columns: tuple[Column, ...]
    short_names: tuple[str, ...] = ()
    scale: tuple[str, str] | None = None
    """Paths of the desired and the actual number, for `kubectl scale`."""


_CONDITIONS = Array(
    Object(
        {
            "type": Text("Type of the condition.", max_length=316, min_length=1),
            "status": Text("Status of the condition.", enum=("True", "False", "Unknown")),
            "reason": Text("Reason for the status, in one CamelCase word.", max_length=1024),
            "message": Text("Explanation of the status, in a sentence.", max_length=32768),
            "lastTransitionTime": Text("When the status last changed.", format="date-time"),
            "observedGeneration": Integer("Generation of the spec that the condition is based on.", 0),
        },
        required=("type", "status", "reason", "message", "lastTransitionTime"),
    ),
    "Conditions that describe the current state of the object.",
    unique_by="type",
)


def _condition(name: str) -> str:
    return f'.status.conditions[?(@.type=="{name}")].status'


def _label(key: str) -> str:
    return ".metadata.labels." + key.replace(".", "\\.")


_READY = Column("Ready", _condition("Ready"))
_AGE = Column("Age", ".metadata.creationTimestamp", "date")

NODE_POOL_DEFINITION = Definition(
    NODE_POOL,
    Object(
        {
            "resources": Map(Quantity(), "Total resources of the NodePool's nodes."),
            "nodes": Integer("Number of the NodePool's nodes.", 0, default=0),
            "nodeClassObservedGeneration": Integer(
                "Generation of the NodeClass that the status is based on.", 0
            ),
            "conditions": _CONDITIONS,
        },
        "Observed state of the NodePool.",
    ),
    (
        Column("NodeClass", ".spec.template.spec.nodeClassRef.name"),
        Column("Nodes", ".status.nodes", "integer"),
        _READY,
        _AGE,
        Column("Weight", ".spec.weight", "integer", wide=True),
        Column("CPU", ".status.resources.cpu", wide=True),
        Column("Memory", ".status.resources.memory", wide=True),
    ),
    scale=(".spec.replicas", ".status.nodes"),
)
NODE_CLAIM_DEFINITION = Definition(
    NODE_CLAIM,
    Object(
        {
            "nodeName": Text("Name of the Node."),
            "providerID": Text("Provider ID of the instance, as in the Node."),
            "imageID": Text("Machine image that the instance was launched from."),
            "capacity": Map(Quantity(), "Total resources of the node."),
            "allocatable": Map(Quantity(), "Resources of the node that are available to pods."),
            "conditions": _CONDITIONS,
            "lastPodEventTime": Text("When a pod last came to the node or left it.", format="date-time"),
        },
        "Observed state of the node.",
    ),
    (
        Column("Type", _label("node.kubernetes.io/instance-type")),
        Column("Capacity", _label("karpenter.sh/capacity-type")),
        Column("Zone", _label("topology.kubernetes.io/zone")),
        Column("Node", ".status.nodeName"),
        _READY,
        _AGE,
        Column("ImageID", ".status.imageID", wide=True),
        Column("ID", ".status.providerID", wide=True),
        Column("NodePool", _label("karpenter.sh/nodepool"), wide=True),
        Column("NodeClass", ".spec.nodeClassRef.name", wide=True),
        Column("Drifted", _condition("Drifted"), wide=True),
    ),
)
EC2_NODE_CLASS_DEFINITION = Definition(
    EC2_NODE_CLASS,
    Object(
        {
            "subnets": Array(
                Object(
                    {
                        "id": Text("Subnet ID."),
                        "zone": Text("Zone of the subnet."),
                        "zoneID": Text("Zone ID of the subnet, which is the same in every account."),
                    },
                    required=("id", "zone"),
                ),
                "Subnets that the selectors find.",
            ),
            "securityGroups": Array(
                Object(
                    {"id": Text("Security group ID."), "name": Text("Name of the security group.")},
                    required=("id",),
                ),
                "Security groups that the selectors find.",
            ),
            "capacityReservations": Array(
                Object(
                    {
                        "id": Text("Capacity reservation ID."),
                        "availabilityZone": Text("Zone of the reservation."),
                        "instanceType": Text("Instance type of the reservation."),
                        "instanceMatchCriteria": Text(
                            "Which instances may run in the reservation.", enum=("open", "targeted")
                        ),
                        "ownerID": Text("ID of the account that owns the reservation."),
                        "reservationType": Text("Type of reservation.", enum=("default", "capacity-block")),
                        "interruptible": Boolean("Whether EC2 may reclaim the reservation."),
                        "state": Text("State of the reservation.", enum=("active", "expiring")),
                        "endTime": Text("When the reservation ends.", format="date-time"),
                    },
                    required=("id", "availabilityZone", "instanceType", "instanceMatchCriteria", "ownerID"),
                ),
                "Capacity reservations that the selectors find.",
            ),
            "amis": Array(
                Object(
                    {
                        "id": Text("Image ID."),
                        "name": Text("Image name."),
                        "deprecated": Boolean("Whether the image's owner has deprecated it."),
                        "requirements": requirements(()),
                    },
                    required=("id", "requirements"),
                ),
                "Machine images that the selectors find. Each instance type uses the first image that it supports.",
            ),
            "instanceProfile": Text("Instance profile of the nodes."),
            "conditions": _CONDITIONS,
        },
        "What the selectors find, and whether nodes can be launched from it.",
    ),
    (_READY, _AGE, Column("Role", ".spec.role", wide=True)),
    short_names=("ec2nc", "ec2ncs"),
)
_OLD_CONDITIONS = Array(
    Object({"type": Text(), "status": Text()}, open=True),
    "Conditions that describe the current state of the object.",
)
"""Open, so that anything that Karpenter left in them may stay."""
NODE_OVERLAY_DEFINITION = Definition(
    NODE_OVERLAY,
    Object({"conditions": _CONDITIONS}, "Whether the NodeOverlay applies."),
    (_READY, _AGE, Column("Weight", ".spec.weight", "integer", wide=True)),
    short_names=("overlays",),
)
PROVISIONER_DEFINITION = Definition(
    PROVISIONER,
    Object(
        {
            **NODE_POOL_DEFINITION.status.fields,
            "lastScaleTime": Text("When the number of nodes last changed.", format="date-time"),
            "conditions": _OLD_CONDITIONS,
        },
        "Observed state of the Provisioner.",
        open=True,
    ),
    (_READY, _AGE),
)
AWS_NODE_TEMPLATE_DEFINITION = Definition(
    AWS_NODE_TEMPLATE,
    EC2_NODE_CLASS_DEFINITION.status._replace(
        fields={**EC2_NODE_CLASS_DEFINITION.status.fields, "conditions": _OLD_CONDITIONS}, open=True
    ),
    (_READY, _AGE),
)
DEFINITIONS = (
    NODE_POOL_DEFINITION,
    NODE_CLAIM_DEFINITION,
    EC2_NODE_CLASS_DEFINITION,
    NODE_OVERLAY_DEFINITION,
    PROVISIONER_DEFINITION,
    AWS_NODE_TEMPLATE_DEFINITION,
)
