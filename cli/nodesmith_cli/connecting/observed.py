"""The observed state of an account and a cluster: the values from which problems and actions are derived."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nodesmith_cli.connecting.applying import State
from nodesmith_cli.sharing.ownership import ClusterOwnership

EVERYWHERE = "0.0.0.0/0"
MADE_TAG = "nodesmith.dev/connected"
"""The tag of everything that `connect` creates, with the cluster's name as value. `disconnect` removes only that."""
DISCOVERY_TAG = "karpenter.sh/discovery"


@dataclass(frozen=True, slots=True)
class Cluster:
    """An EKS cluster. `mode` is its authentication mode, `version` its Kubernetes version, such as `1.34`."""

    name: str
    status: str
    version: str
    mode: str
    vpc_id: str
    endpoint: str
    ca_bundle: str
    subnets: tuple[str, ...] = ()
    security_group: str = ""
    is_public: bool = True
    public_cidrs: tuple[str, ...] = (EVERYWHERE,)
    is_auto_mode: bool = False

    @property
    def is_open(self) -> bool:
        """True if functions outside a VPC can reach the API server."""
        return self.is_public and EVERYWHERE in (self.public_cidrs or (EVERYWHERE,))


@dataclass(frozen=True, slots=True)
class RegionStack:
    """The outputs of the stack `nodesmith-<region>`. `node_roles` is None if the stack has no such output."""

    version: str
    bucket: str
    table_name: str
    forwarder_role: str
    node_roles: tuple[str, ...] | None = None

    @property
    def missing(self) -> list[str]:
        """The required outputs that this stack lacks."""
        outputs = {
            "BucketName": self.bucket,
            "TableName": self.table_name,
            "ForwarderRoleArn": self.forwarder_role,
        }
        return [name for name, value in outputs.items() if not value]


@dataclass(frozen=True, slots=True)
class Entry:
    """An access entry. One that `is_stale` is for an earlier role of the same name, and gives this one no access."""

    kind: str
    username: str = ""
    groups: tuple[str, ...] = ()
    is_made: bool = False
    is_stale: bool = False


@dataclass(frozen=True, slots=True)
class Association:
    """The Pod Identity association of the forwarder's service account."""

    id: str
    role: str
    is_made: bool = False


@dataclass(frozen=True, slots=True)
class NodeRole:
    """An IAM role for nodes. `policies` are the ARNs of the attached policies, `path` is its path in IAM."""

    name: str
    policies: frozenset[str] = frozenset()
    is_trusting_ec2: bool = True
    is_made: bool = False
    path: str = "/"


@dataclass(frozen=True, slots=True)
class Tagged:
    """A subnet or security group of the cluster's VPC. `discovery` is the value of its discovery tag, or empty."""

    id: str
    discovery: str = ""
    free_addresses: int = 0
    zone: str = ""
    is_made: bool = False
    """True if connect added the discovery tag."""


@dataclass(frozen=True, slots=True)
class Account:
    """What AWS has for a cluster. `roles` are the names of the functions' roles that exist.

    `entries` are the access entries of functions and node roles, by role ARN. `parameter` is the text of the
    registration, or None. `cdk_stack` is the stack that manages this cluster's AWS resources, or empty. `denied` are
    the calls that the caller may not make, each as a sentence.
    """

    account: str
    partition: str
    region: str
    caller: str
    cluster: Cluster
    stack: RegionStack | None = None
    cdk_stack: str = ""
    roles: frozenset[str] = frozenset()
    entries: Mapping[str, Entry] = field(default_factory=dict)
    association: Association | None = None
    has_agent: bool = False
    has_spot_role: bool = True
    subnets: tuple[Tagged, ...] = ()
    groups: tuple[Tagged, ...] = ()
    node_roles: Mapping[str, NodeRole] = field(default_factory=dict)
    parameter: str | None = None
    watched: str | None = None
    """The text of its registration as a cluster that is only observed, or None."""
    denied: tuple[str, ...] = ()

    def role_arn(self, name: str) -> str:
        """Return the ARN of a role of this account."""
        return f"arn:{self.partition}:iam::{self.account}:role/{name}"


@dataclass(frozen=True, slots=True)
class Object:
    """An object that connect installs, and its state. `leave` is the reason not to change it, or empty."""

    manifest: Mapping[str, Any]
    state: State
    leave: str = ""


@dataclass(frozen=True, slots=True)
class ClusterReading:
    """The state of the cluster. `autoscalers` are the running Deployments of other autoscalers.

    `without_credentials` are forwarder pods that were created before its Pod Identity association. `image` is the
    forwarder's current image.
    """

    ownership: ClusterOwnership
    objects: tuple[Object, ...] = ()
    autoscalers: tuple[str, ...] = ()
    without_credentials: tuple[str, ...] = ()
    image: str = ""


def is_made(tags: Mapping[str, str] | None, cluster: str) -> bool:
    """Return whether `connect` created the resource with these tags."""
    return (tags or {}).get(MADE_TAG) == cluster
