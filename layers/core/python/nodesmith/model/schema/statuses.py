"""Status schemas, printer columns and short names of the kinds. Only the CRDs need them."""

from __future__ import annotations

from typing import NamedTuple

from nodesmith.model.schema.fields import Array, Boolean, Integer, Kind, Map, Object, Quantity, Text
from nodesmith.model.schema.nodeclaims import NODE_CLAIM, requirements
from nodesmith.model.schema.nodeclasses import EC2_NODE_CLASS
from nodesmith.model.schema.nodepools import NODE_OVERLAY, NODE_POOL
from nodesmith.model.schema.oldkinds import AWS_NODE_TEMPLATE, PROVISIONER


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
