"""Label keys with a meaning to Kubernetes, Karpenter or EC2, and the rules for setting them; taints and tolerations.

Source: the well-known and restricted keys of Karpenter v1 and its AWS provider.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from nodesmith.model.apimachinery.problems import did_you_mean

NODEPOOL = "karpenter.sh/nodepool"
CAPACITY_TYPE = "karpenter.sh/capacity-type"
REGISTERED = "karpenter.sh/registered"
PREPARING = "nodesmith.dev/preparing"
"""On the Node of an instance that prepares to be stopped. The Node that it has after its start lacks the label."""
INITIALIZED = "karpenter.sh/initialized"
PROVISIONER_NAME = "karpenter.sh/provisioner-name"
"""The former name of NODEPOOL. Nodes of a NodePool that was converted from a Provisioner carry both."""
DO_NOT_SYNC_TAINTS = "karpenter.sh/do-not-sync-taints"
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
MIN_VALUES_RELAXED = "karpenter.sh/nodeclaim-min-values-relaxed"
TERMINATION_TIMESTAMP = "karpenter.sh/nodeclaim-termination-timestamp"
TERMINATION_FINALIZER = "karpenter.sh/termination"
INSTANCE_PROFILE = "karpenter.k8s.aws/instance-profile-name"
"""On NodeClaims: the instance profile that the instance was launched with."""
TAGGED = "karpenter.k8s.aws/tagged"
CLUSTER_NAME_TAGGED = "compatibility.karpenter.k8s.aws/cluster-name-tagged"
"""TAGGED and CLUSTER_NAME_TAGGED are on NodeClaims, `true` once the instance has all tags of its claim and cluster."""
NODECLASS_FINALIZER = "karpenter.k8s.aws/termination"
"""Karpenter's finalizer on EC2NodeClasses. nodesmith does not set it."""
EXCLUDE_FROM_LOAD_BALANCERS = "node.kubernetes.io/exclude-from-external-load-balancers"
NODECLASS = "karpenter.k8s.aws/ec2nodeclass"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
WINDOWS_BUILD = "node.kubernetes.io/windows-build"
ARCH = "kubernetes.io/arch"
OS = "kubernetes.io/os"
HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
ZONE_ID = "topology.k8s.aws/zone-id"
REGION = "topology.kubernetes.io/region"
EKS_CAPACITY_TYPE = "eks.amazonaws.com/capacityType"
"""The name of CAPACITY_TYPE in managed node groups. Pods that were written for these select by it."""

SPOT = "spot"
ON_DEMAND = "on-demand"
RESERVED = "reserved"
CAPACITY_TYPES = (RESERVED, SPOT, ON_DEMAND)
VALUES = {CAPACITY_TYPE: CAPACITY_TYPES, ARCH: ("amd64", "arm64"), OS: ("linux", "windows")}
"""All values that nodes have, of the keys that have few."""
EKS_CAPACITY_TYPES = {SPOT: "SPOT", ON_DEMAND: "ON_DEMAND", RESERVED: "ON_DEMAND"}
"""Capacity type → its name in EKS_CAPACITY_TYPE."""

AWS_DOMAIN = "karpenter.k8s.aws"
INSTANCE_FAMILY, INSTANCE_CPU = f"{AWS_DOMAIN}/instance-family", f"{AWS_DOMAIN}/instance-cpu"
TENANCY = f"{AWS_DOMAIN}/instance-tenancy"
RESERVATION_ID = f"{AWS_DOMAIN}/capacity-reservation-id"
PLACEMENT_GROUP = f"{AWS_DOMAIN}/placement-group-id"
PARTITION = f"{AWS_DOMAIN}/placement-group-partition"
AWS_KEYS = frozenset(
    f"{AWS_DOMAIN}/{name}"
    for name in (
        "instance-category instance-generation instance-family instance-size instance-capability-flex instance-cpu "
        "instance-cpu-manufacturer instance-cpu-sustained-clock-speed-mhz instance-memory instance-ebs-bandwidth "
        "instance-network-bandwidth instance-hypervisor instance-encryption-in-transit-supported instance-local-nvme "
        "instance-gpu-name instance-gpu-manufacturer instance-gpu-count instance-gpu-memory instance-accelerator-name "
        "instance-accelerator-manufacturer instance-accelerator-count instance-tenancy capacity-reservation-id "
        "capacity-reservation-type capacity-reservation-interruptible placement-group-id placement-group-partition"
    ).split()
)
KWOK_KEYS = frozenset(f"karpenter.kwok.sh/instance-{name}" for name in ("cpu", "family", "memory", "size"))
"""Labels of instance types in the format of Karpenter's KWOK provider."""
CORE_KEYS = frozenset({NODEPOOL, ZONE, REGION, INSTANCE_TYPE, ARCH, OS, CAPACITY_TYPE, WINDOWS_BUILD})
WELL_KNOWN = CORE_KEYS | AWS_KEYS | KWOK_KEYS | {ZONE_ID, NODECLASS, EKS_CAPACITY_TYPE}
"""Keys that a pod may constrain even if no NodePool mentions them."""
DECIDED = WELL_KNOWN - {TENANCY, PARTITION}
"""Well-known keys whose value an instance type, an offering or the NodeClass decides. A launch chooses all others."""
TYPE_KEYS = KWOK_KEYS | {REGION} | {key for key in AWS_KEYS if key.startswith(f"{AWS_DOMAIN}/instance-")}
"""Well-known keys that only the instance type of a node determines."""

ALIASES = {
    "failure-domain.beta.kubernetes.io/zone": ZONE,
    "failure-domain.beta.kubernetes.io/region": REGION,
    "beta.kubernetes.io/arch": ARCH,
    "beta.kubernetes.io/os": OS,
    "beta.kubernetes.io/instance-type": INSTANCE_TYPE,
    "topology.ebs.csi.aws.com/zone": ZONE,
}
"""Old key → current key with the same meaning."""

LABEL_VALUE = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
LONGEST_LABEL_VALUE = 63
_LABEL_VALUE = re.compile(LABEL_VALUE)
_RESTRICTED_DOMAINS = ("karpenter.sh", AWS_DOMAIN)
_NODE_RESTRICTED_DOMAINS = ("kubernetes.io", "k8s.io", "node-restriction.kubernetes.io")


def normalised(key: str) -> str:
    """Return the current spelling of a label key."""
    return ALIASES.get(key, key)


def is_label_value(text: str) -> bool:
    """Return whether a label can have this value. Not every API server checks this for values in a node affinity."""
    return len(text) <= LONGEST_LABEL_VALUE and _LABEL_VALUE.fullmatch(text) is not None


def in_domain(key: str, domain: str) -> bool:
    """Return whether `key` belongs to `domain` or one of its sub-domains."""
    prefix = key.partition("/")[0] if "/" in key else ""
    return prefix == domain or prefix.endswith(f".{domain}")


def restriction(key: str) -> str | None:
    """Return the reason why users may not constrain or set `key`, None if they may.

    Restricted keys are `kubernetes.io/hostname` and those in Karpenter's domains that are not well-known.
    """
    key = normalised(key)
    if key in WELL_KNOWN:
        return None
    if key == HOSTNAME:
        return f"{HOSTNAME} is set by the node itself: leave it out"
    domain = next((d for d in _RESTRICTED_DOMAINS if in_domain(key, d)), None)
    if domain is None:
        return None
    return f"the domain {domain} is reserved{did_you_mean(key, WELL_KNOWN)}"


def kubelet_may_set(key: str) -> bool:
    """Return whether the kubelet's --node-labels may contain `key` (NodeRestriction forbids Kubernetes' domains)."""
    return not any(in_domain(key, domain) for domain in _NODE_RESTRICTED_DOMAINS)


class Effect(StrEnum):
    """The effect of a taint on pods that do not tolerate it."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


@dataclass(frozen=True, slots=True, order=True)
class Taint:
    """A taint; `value` may be empty."""

    key: str
    effect: str
    value: str = ""

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"

    @property
    def identity(self) -> tuple[str, str]:
        """Key and effect. A node has at most one taint with each such pair."""
        return self.key, self.effect


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration. An empty key with Exists tolerates every taint; an empty effect matches every effect.

    `operator` is Equal, Exists, or Gt or Lt (the taint's value is an integer above or below `value`).
    """

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Return whether a pod with this toleration tolerates the taint."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        match self.operator:
            case "Exists":
                return True
            case "Equal" | "":
                return bool(self.key) and self.value == taint.value
            case "Gt" | "Lt":
                return self._compares(taint)
            case _:
                return False

    def covers(self, other: Toleration) -> bool:
        """Return whether it tolerates every taint that `other` tolerates, judged by their fields alone."""
        if self.effect not in {"", other.effect}:
            return False
        if self.operator == "Exists":
            return self.key in {"", other.key}
        return (self.key, self.operator, self.value) == (other.key, other.operator, other.value)

    def _compares(self, taint: Taint) -> bool:
        try:
            label, bound = int(taint.value), int(self.value)
        except ValueError:
            return False
        return label > bound if self.operator == "Gt" else label < bound


def common(some: Sequence[Toleration], others: Sequence[Toleration]) -> tuple[Toleration, ...]:
    """Return the tolerations that both lists cover."""
    shared = [toleration for toleration in some if any(other.covers(toleration) for other in others)]
    shared += [
        other
        for other in others
        if other not in shared and any(toleration.covers(other) for toleration in some)
    ]
    return tuple(shared)


UNREGISTERED = Taint("karpenter.sh/unregistered", Effect.NO_EXECUTE)
DISRUPTED = Taint("karpenter.sh/disrupted", Effect.NO_SCHEDULE)
_EPHEMERAL = frozenset(
    {
        ("node.kubernetes.io/not-ready", Effect.NO_SCHEDULE.value),
        ("node.kubernetes.io/not-ready", Effect.NO_EXECUTE.value),
        ("node.kubernetes.io/unreachable", Effect.NO_SCHEDULE.value),
        ("node.cloudprovider.kubernetes.io/uninitialized", Effect.NO_SCHEDULE.value),
        UNREGISTERED.identity,
    }
)


def is_ephemeral(taint: Taint) -> bool:
    """Return whether this taint goes away while a node starts (Karpenter's known ephemeral taints)."""
    return taint.identity in _EPHEMERAL or taint.key.startswith("readiness.k8s.io/")


_STARTUP_DOMAINS = (
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
)
_STATUS_DOMAIN = "status-taint.cluster-autoscaler.kubernetes.io/"


def is_startup(taint: Taint) -> bool:
    """Return whether a taint says by its key that a node loses it before it is ready (Cluster Autoscaler's keys)."""
    return taint.key.startswith(_STARTUP_DOMAINS)


def is_status(taint: Taint) -> bool:
    """Return whether a taint says by its key that a node is not to be used for now although it may be ready."""
    return taint.key.startswith(_STATUS_DOMAIN)


def is_temporary(taint: Taint) -> bool:
    """Return whether a taint of a new node says by its key that the node will lose it: no pod needs to tolerate it."""
    return is_startup(taint) or is_status(taint)


def first_untolerated(
    taints: Iterable[Taint], tolerations: Iterable[Toleration], *, soft: bool = False
) -> Taint | None:
    """Return the first taint that no toleration tolerates, None if there is none.

    PreferNoSchedule taints count only if `soft` is True.
    """
    tolerations = tuple(tolerations)
    for taint in taints:
        if soft or taint.effect != Effect.PREFER_NO_SCHEDULE:
            for toleration in tolerations:
                if toleration.tolerates(taint):
                    break
            else:
                return taint
    return None
