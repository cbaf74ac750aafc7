"""Settings of deployments, from the environment, and of clusters, from their registrations.

Settings that Karpenter has as well use its names (`CLUSTER_NAME`, `RESERVED_ENIS`, `VM_MEMORY_OVERHEAD_PERCENT`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from typing import Any, TypeVar

from nodesmith.errors import Rejected
from nodesmith.model.costs.allocations import parse_label_keys
from nodesmith.model.costs.commitmentsettings import CommitmentSettings, parse_commitment_settings
from nodesmith.model.costs.commitmentsettings import setting_faults as setting_faults
from nodesmith.model.ec2.notices import PATTERNS as PATTERNS
from nodesmith.model.ec2.notices import InterruptionCause as InterruptionCause
from nodesmith.model.functions import INFORMED as INFORMED
from nodesmith.model.functions import MEASURED as MEASURED
from nodesmith.model.functions import REGION_TICK_MINUTES as REGION_TICK_MINUTES
from nodesmith.model.functions import SCHEDULED as SCHEDULED
from nodesmith.model.functions import TALKING as TALKING
from nodesmith.model.functions import TICK_MINUTES as TICK_MINUTES
from nodesmith.model.functions import WOKEN as WOKEN
from nodesmith.model.functions import Concern as Concern
from nodesmith.model.policies import (
    LAUNCHES_OF_CLUSTER,
    DefaultSpread,
    MinValuesPolicy,
    PreferencePolicy,
    parse_cluster_limits,
    parse_default_spreads,
)
from nodesmith.model.policies import MOST_LAUNCHES as MOST_LAUNCHES

Word = TypeVar("Word", bound=StrEnum)
INDEXES = ("instance", "reservation")
"""Attributes of claims for which the table has an index of the same name, to find the cluster of an event."""
_MOST_HOURS = 1000
HEALTH_SOURCE, HEALTH_DETAIL_TYPE = "nodesmith", "nodesmith Health Change"
"""Source and detail type of the events with which dispatch reports new findings and resolved ones."""
NOTIFICATIONS = ("BudgetBlocked", "InterruptionServed", "NodeLaunched", "PodUnplaced", "SpendingAbove")
"""The detail types of notifications (`nodesmith.decisions.reporting.notifications`), which have the same source."""
DRY_RUN_NODEPOOL = "validation"
"""The NodePool in the tags of dry runs. Readiness may only create resources with this tag value."""
PROFILE_HASH_LENGTH = 16
"""Length of the hash in the name of an instance profile, after the name of its cluster."""


def _setting(name: str, meaning: str, default: Any = MISSING, read: Callable[[str], Any] = str) -> Any:
    about = {"env": name, "meaning": meaning, "read": read}
    return field(metadata=about) if default is MISSING else field(default=default, metadata=about)


def _fraction(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1:
        raise ValueError("must be at least 0 and less than 1")
    return value


def _hours(text: str) -> float:
    value = float(text)
    if not 0 <= value <= _MOST_HOURS:
        raise ValueError(f"must be from 0 to {_MOST_HOURS}")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError("must not be negative")
    return value


def _launches(text: str) -> int:
    value = int(text) if text.isdecimal() else 0
    if not 1 <= value <= MOST_LAUNCHES:
        raise ValueError(f"must be a whole number from 1 to {MOST_LAUNCHES}")
    return value


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("must be a whole number such as -10") from None


def _flag(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError("must be true or false")
    return text.lower() == "true"


def _one_of(words: type[Word]) -> Callable[[str], Word]:
    def read(text: str) -> Word:
        if text not in [word.value for word in words]:
            raise ValueError(f"must be {' or '.join(words)}")
        return words(text)

    return read


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one function. The metadata of a field has its environment variable and its meaning."""

    region: str = _setting("AWS_REGION", "the region of the deployment and its clusters")
    cluster_name: str = _setting(
        "CLUSTER_NAME", "the EKS cluster that is served; empty for functions that serve a whole region", ""
    )
    vpc_id: str = _setting("VPC_ID", "the VPC of the cluster's nodes", "")
    table_name: str = _setting("TABLE_NAME", "the DynamoDB table of the ledger", "")
    bucket_name: str = _setting("BUCKET_NAME", "the S3 bucket of snapshots, catalogue and decisions", "")
    queue_url: str = _setting("QUEUE_URL", "the SQS queue in which delayed invocations wait", "")
    release: str = _setting(
        "RELEASE", "the deployed release, as named in logs and by `nodesmith rollback`", ""
    )
    vpc_name: str = _setting(
        "VPC_NAME", "the name in cdk.json of the VPC in which the function runs; empty for none", ""
    )
    session_role_arn: str = _setting(
        "SESSION_ROLE_ARN",
        "the role to assume, with the cluster as a tag, when working for a cluster; empty for none",
        "",
    )
    cloudwatch_metrics: bool = _setting(
        "CLOUDWATCH_METRICS",
        "whether counts are written as CloudWatch metrics, for a dashboard",
        False,
        _flag,
    )
    cluster_endpoint: str = _setting("CLUSTER_ENDPOINT", "URL of the API server; if empty, EKS is asked", "")
    cluster_ca_bundle: str = _setting(
        "CLUSTER_CA_BUNDLE", "CA bundle of the API server in base64; if empty, EKS is asked", ""
    )
    cluster_service_cidr: str = _setting("CLUSTER_SERVICE_CIDR", "service CIDR; if empty, EKS is asked", "")
    cluster_version: str = _setting("CLUSTER_VERSION", "Kubernetes minor version; if empty, EKS is asked", "")
    default_node_role: str = _setting(
        "DEFAULT_NODE_ROLE", "role of nodes whose manifest names neither role nor instance profile", ""
    )
    isolated_vpc: bool = _setting(
        "ISOLATED_VPC",
        "whether the VPC is isolated, so that neither the price list API nor IAM is called",
        False,
        _flag,
    )
    vm_memory_overhead_percent: float = _setting(
        "VM_MEMORY_OVERHEAD_PERCENT",
        "the fraction of an instance type's memory that the hypervisor uses",
        0.075,
        _fraction,
    )
    reserved_enis: int = _setting(
        "RESERVED_ENIS", "number of network interfaces that are not used for pods", 0, _count
    )
    prefix_delegation: bool = _setting(
        "PREFIX_DELEGATION", "whether the VPC CNI assigns /28 prefixes", False, _flag
    )
    windows_prefix_delegation: bool = _setting(
        "WINDOWS_PREFIX_DELEGATION", "whether Windows nodes get /28 prefixes for their pods", False, _flag
    )
    shared_provisioning_classes: bool = _setting(
        "SHARED_PROVISIONING_CLASSES",
        "whether ProvisioningRequests of Cluster Autoscaler's classes are served; false if another autoscaler does",
        True,
        _flag,
    )
    preference_policy: PreferencePolicy = _setting(  # noqa: RUF009 (a field, like the others)
        "PREFERENCE_POLICY",
        "whether preferences of pods affect which nodes are bought",
        PreferencePolicy.RESPECT,
        _one_of(PreferencePolicy),
    )
    min_values_policy: MinValuesPolicy = _setting(  # noqa: RUF009
        "MIN_VALUES_POLICY",
        "whether a node may be bought without its NodePool's minValues",
        MinValuesPolicy.STRICT,
        _one_of(MinValuesPolicy),
    )
    fragility_tolerance: float = _setting(
        "FRAGILITY_TOLERANCE",
        "how much more a plan may cost, as a fraction, so that no node has all pods of a kind",
        0.01,
        _fraction,
    )
    interruption_cost_hours: float = _setting(
        "INTERRUPTION_COST_HOURS",
        "the assumed cost of one interruption, in hours of the node's price; with 0, only the price counts",
        1.0,
        _hours,
    )
    default_spreads: tuple[DefaultSpread, ...] = _setting(
        "SCHEDULER_CONFIG", "the cluster's default topology spread constraints", (), parse_default_spreads
    )
    cluster_autoscaler_events: bool = _setting(
        "CLUSTER_AUTOSCALER_EVENTS",
        "whether pods also get Cluster Autoscaler's Events TriggeredScaleUp and NotTriggerScaleUp",
        False,
        _flag,
    )
    cluster_limits: tuple[tuple[str, int], ...] = _setting(
        "CLUSTER_LIMITS",
        "limits over all nodes of the cluster, such as nodes=200,cpu=4000,nodesmith.dev/usd-per-hour=120",
        (),
        parse_cluster_limits,
    )
    launches_per_hour: int = _setting(
        "LAUNCHES_PER_HOUR",
        "how many nodes may be requested for the cluster within an hour, 1 or more",
        LAUNCHES_OF_CLUSTER,
        _launches,
    )
    expendable_priority_cutoff: int | None = _setting(
        "EXPENDABLE_PRIORITY_CUTOFF",
        "pods of a lower priority neither cause purchases nor keep nodes; empty if there are no such pods",
        None,
        _whole,
    )
    ignore_dra_requests: bool = _setting(
        "IGNORE_DRA_REQUESTS",
        "whether no node is bought for pods that claim devices (dynamic resource allocation)",
        False,
        _flag,
    )
    proactive_pod_limit: int = _setting(
        "PROACTIVE_POD_LIMIT",
        "the most pods that are pending or, with proactive scale-up, planned before they exist; 0 plans none",
        5000,
        _count,
    )
    commitments: CommitmentSettings | None = _setting(  # noqa: RUF009 (a field, like the others)
        "COMMITMENTS",
        "whether Savings Plans and Reserved Instances are used first: true, or JSON with payerRoleArn, share, listed",
        None,
        parse_commitment_settings,
    )
    notifications: bool = _setting(
        "NOTIFICATIONS",
        "whether events for people and programs are sent to EventBridge's default bus",
        True,
        _flag,
    )
    allocation_labels: tuple[str, ...] = _setting(
        "ALLOCATION_LABELS",
        "the labels of pods by which costs are grouped, in addition to the namespace: team,app.kubernetes.io/part-of",
        (),
        parse_label_keys,
    )
    heartbeat_stale_seconds: int = _setting(
        "HEARTBEAT_STALE_SECONDS",
        "age of the forwarder's heartbeat after which it counts as away",
        90,
        _count,
    )


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Read the settings. Raises Rejected with all faults: variable, value and what would be right."""
    values: dict[str, Any] = {}
    faults: list[str] = []
    for about in fields(Settings):
        name, text = about.metadata["env"], environment.get(about.metadata["env"], "")
        if text:
            try:
                values[about.name] = about.metadata["read"](text)
            except ValueError as error:
                faults.append(f"{name}={text!r}: {error} ({about.metadata['meaning']})")
        elif about.default is MISSING:
            faults.append(f"{name} is not set ({about.metadata['meaning']})")
    if faults:
        raise Rejected("settings: " + "; ".join(faults))
    return Settings(**values)


ALIAS, CANARY_ALIAS = "live", "canary"
"""The aliases by which functions are invoked: of the version in service, and of a version on trial."""


def function_name(concern: str, vpc: str = "") -> str:
    """Return the name of a concern's function. `vpc` is the name in cdk.json of the VPC that it runs in."""
    return f"nodesmith-{vpc}-{concern}" if vpc else f"nodesmith-{concern}"


COMMITMENTS, COMMITMENTS_MINUTES = "commitments", 60
"""The event that has the catalog function read commitments alone, and how often it comes."""
QUEUE_NAME = "nodesmith-waiting"
DEAD_LETTER_QUEUE_NAME = "nodesmith-dead"


def dead_letters_url(queue_url: str) -> str:
    """Return the URL of the dead-letter queue, given the URL of the queue in which delayed invocations wait."""
    return f"{queue_url.rpartition('/')[0]}/{DEAD_LETTER_QUEUE_NAME}"


def function_vpc(concern: Concern, reached_from: str) -> str:
    """Return the name in cdk.json of the VPC in which a concern's function runs for a cluster, empty for none.

    `reached_from` is the VPC from which functions reach the cluster's API server, empty if its registration has none.
    """
    return reached_from if concern in TALKING else ""


def role_name(concern: str, region: str, vpc: str = "") -> str:
    """Return the name of the IAM role of a concern's function or of the forwarder.

    It includes the region, because roles belong to the account and not to a region.
    """
    return f"{function_name(concern, vpc)}-{region}"
