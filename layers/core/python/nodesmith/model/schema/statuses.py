"""What the kinds show of themselves: status, printer columns, short names. Only the CRDs need it."""

from __future__ import annotations

from typing import NamedTuple

from nodesmith.model.schema.fields import Array, Boolean, Integer, Kind, Map, Object, Quantity, Text
from nodesmith.model.schema.nodeclaims import NODE_CLAIM
from nodesmith.model.schema.nodeclasses import EC2_NODE_CLASS
from nodesmith.model.schema.nodepools import NODE_POOL
from nodesmith.model.schema.nodespec import requirements
from nodesmith.model.schema.oldkinds import AWS_NODE_TEMPLATE, PROVISIONER


class Column(NamedTuple):
    """A column of `kubectl get`; `wide` ones show with -o wide only."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False


class Definition(NamedTuple):
    """A kind, and how it shows itself."""

    kind: Kind
    status: Object
    columns: tuple[Column, ...]
    short_names: tuple[str, ...] = ()
    scale: tuple[str, str] | None = None
    """Paths of the wanted and the actual number, for `kubectl scale`."""


_CONDITIONS = Array(
    Object(
        {
            "type": Text("What it is about.", max_length=316, min_length=1),
            "status": Text("Whether it holds.", enum=("True", "False", "Unknown")),
            "reason": Text("Why, in one word.", max_length=1024),
            "message": Text("Why, in a sentence.", max_length=32768),
            "lastTransitionTime": Text("When the status last changed.", format="date-time"),
            "observedGeneration": Integer("Generation of the spec that was looked at.", 0),
        },
        required=("type", "status", "reason", "message", "lastTransitionTime"),
    ),
    "How far it has come, and what stands in the way.",
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
            "resources": Map(Quantity(), "Sum of all nodes of the pool."),
            "nodes": Integer("Number of nodes of the pool.", 0, default=0),
            "nodeClassObservedGeneration": Integer("Generation of the NodeClass that was looked at.", 0),
            "conditions": _CONDITIONS,
        },
        "What the pool has become.",
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
            "providerID": Text("Which instance it is, as the Node has it."),
            "imageID": Text("Machine image that it was launched from."),
            "capacity": Map(Quantity(), "What the node has."),
            "allocatable": Map(Quantity(), "What the node has for pods."),
            "conditions": _CONDITIONS,
            "lastPodEventTime": Text("When a pod last came or went.", format="date-time"),
        },
        "What the node has become.",
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
                        "id": Text("Subnet id."),
                        "zone": Text("Its zone."),
                        "zoneID": Text("Id of its zone, the same in every account."),
                    },
                    required=("id", "zone"),
                ),
                "Subnets that the selectors find.",
            ),
            "securityGroups": Array(
                Object({"id": Text("Security group id."), "name": Text("Its name.")}, required=("id",)),
                "Security groups that the selectors find.",
            ),
            "capacityReservations": Array(
                Object(
                    {
                        "id": Text("Capacity reservation id."),
                        "availabilityZone": Text("Its zone."),
                        "instanceType": Text("Its instance type."),
                        "instanceMatchCriteria": Text("Who may run in it.", enum=("open", "targeted")),
                        "ownerID": Text("Account that owns it."),
                        "reservationType": Text("Kind of reservation.", enum=("default", "capacity-block")),
                        "interruptible": Boolean("Whether EC2 may take it back."),
                        "state": Text("Whether it is about to end.", enum=("active", "expiring")),
                        "endTime": Text("When it ends.", format="date-time"),
                    },
                    required=("id", "availabilityZone", "instanceType", "instanceMatchCriteria", "ownerID"),
                ),
                "Capacity reservations that the selectors find.",
            ),
            "amis": Array(
                Object(
                    {
                        "id": Text("Image id."),
                        "name": Text("Its name."),
                        "deprecated": Boolean("Whether its owner has deprecated it."),
                        "requirements": requirements(()),
                    },
                    required=("id", "requirements"),
                ),
                "Machine images that the selectors find, the first that fits an instance type being used.",
            ),
            "instanceProfile": Text("Instance profile of the nodes."),
            "conditions": _CONDITIONS,
        },
        "What the selectors find, and whether nodes can be built from it.",
    ),
    (_READY, _AGE, Column("Role", ".spec.role", wide=True)),
    short_names=("ec2nc", "ec2ncs"),
)
_OLD_CONDITIONS = Array(Object({"type": Text(), "status": Text()}, open=True), "How far it has come.")
"""Whatever Karpenter left in them may stay there."""
PROVISIONER_DEFINITION = Definition(
    PROVISIONER,
    Object(
        {
            **NODE_POOL_DEFINITION.status.fields,
            "lastScaleTime": Text("When the number of nodes last changed.", format="date-time"),
            "conditions": _OLD_CONDITIONS,
        },
        "What it has become.",
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
    PROVISIONER_DEFINITION,
    AWS_NODE_TEMPLATE_DEFINITION,
)
