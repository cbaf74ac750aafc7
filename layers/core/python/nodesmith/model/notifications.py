"""Notifications: events of nodesmith's own on EventBridge, for people and programs that act on them.

A notification reports something that is committed or that the state shows. It may arrive more than once, with the same
id. The dataclasses below define its `detail`, and `schema` derives the JSON schema from them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime
from typing import Any

from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.kubernetes.events import shortened

FORMAT = "1"
MOST_NAMES = 20
"""The most names in a list of a notification, whose count is given beside it."""
LONGEST_NAME = 512
"""Characters: more than any name in Kubernetes or AWS has, including a pod's with its namespace."""
_SCHEMA = "https://json-schema.org/draft/2020-12/schema"


def _about(meaning: str, default: Any = MISSING) -> Any:
    metadata = {"about": meaning}
    return field(metadata=metadata) if default is MISSING else field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class NodeLaunched:
    """EC2 launched the instance of a NodeClaim."""

    node_claim: str = _about("the NodeClaim")
    node_pool: str = _about("its NodePool")
    instance_id: str = _about("the instance")
    instance_type: str = _about("its type")
    zone: str = _about("its availability zone")
    capacity_type: str = _about("spot, on-demand or reserved")
    price_hourly_usd: float = _about("its price, in USD an hour")
    pod_count: int = _about("the number of pods that it was bought for")
    pods: tuple[str, ...] = _about("the first of these pods, as namespace/name")
    decision: str = _about("the decision that requested it, for `nodesmith explain decision`")


@dataclass(frozen=True, slots=True)
class PodUnplaced:
    """A pod has waited for five minutes, and nothing could be bought for it."""

    namespace: str = _about("the pod's namespace")
    pod: str = _about("the pod's name")
    since: datetime = _about("when the pod was created")  # noqa: RUF009
    reason: str = _about("the one thing in the way")
    remedy: str = _about("what would help; empty if nothing is known")


@dataclass(frozen=True, slots=True)
class InterruptionServed:
    """EC2 takes or breaks an instance; its replacement is decided and its drain begins."""

    node_claim: str = _about("the NodeClaim")
    node_pool: str = _about("its NodePool")
    node: str = _about("the Node; empty if it has not joined")
    instance_id: str = _about("the instance")
    instance_type: str = _about("its type")
    zone: str = _about("its availability zone")
    capacity_type: str = _about("spot, on-demand or reserved")
    cause: str = _about("what EC2 does, such as SpotInterrupted or ScheduledChange")
    replaced_by: tuple[str, ...] = _about("NodeClaims that took its pods over and were ready before")
    deadline: datetime | None = _about("when its pods end at the latest; missing if there is no limit", None)  # noqa: RUF009


@dataclass(frozen=True, slots=True)
class BudgetBlocked:
    """For an hour nodes of a NodePool have drifted, and its disruption budgets allow none of them to be replaced."""

    node_pool: str = _about("the NodePool")
    reason: str = _about("why nodes are to be replaced: Drifted")
    since: datetime = _about("since when the first of them has drifted")  # noqa: RUF009
    node_count: int = _about("the number of these nodes")
    node_claims: tuple[str, ...] = _about("the first of their NodeClaims")
    opens_at: datetime | None = _about("when time alone allows more; missing if only a change does", None)  # noqa: RUF009


@dataclass(frozen=True, slots=True)
class SpendingAbove:
    """Nodes cost more than 80 %, or all, of a limit in dollars."""

    limit: str = _about("whose limit it is, such as `NodePool web`, `SpendingLimit red` or `the cluster`")
    unit: str = _about("USD an hour, or USD a month")
    percent: int = _about("the threshold that is passed: 80 or 100")
    used_usd: float = _about("what counts against the limit")
    limit_usd: float = _about("the limit")


Detail = NodeLaunched | PodUnplaced | InterruptionServed | BudgetBlocked | SpendingAbove
DETAILS: tuple[type[Detail], ...] = (
    NodeLaunched,
    PodUnplaced,
    InterruptionServed,
    BudgetBlocked,
    SpendingAbove,
)
"""All kinds. The name of each is its detail-type."""
_COMMON: Mapping[str, tuple[type, str]] = {
    "format": (str, "the version of this format; later ones only add fields"),
    "id": (str, "the same whenever this notification is repeated, so that consumers can drop duplicates"),
    "region": (str, "the AWS region"),
    "cluster": (str, "the EKS cluster"),
}


@dataclass(frozen=True, slots=True)
class Notification:
    """One notification about a cluster. `at` is when what it reports happened.

    `key` and the kind of `detail` identify it within the cluster.
    """

    cluster: str
    at: datetime
    key: str
    detail: Detail

    @property
    def kind(self) -> str:
        """The detail-type."""
        return type(self.detail).__name__

    @property
    def id(self) -> str:
        """Return the id, which depends on nothing but cluster, kind and key."""
        text = "\0".join((self.cluster, self.kind, self.key))
        return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:32]

    def document(self, region: str) -> dict[str, Any]:
        """Return the `detail` of the event as JSON data. Texts are truncated, because some quote user input."""
        common = {"format": FORMAT, "id": self.id, "region": region, "cluster": self.cluster}
        return {**common, **dict(_written(self.detail))}


def _written(detail: Detail) -> Iterator[tuple[str, Any]]:
    for about in fields(detail):
        value: Any = getattr(detail, about.name)
        match value:
            case None:
                continue
            case datetime():
                value = format_time(value)
            case tuple():
                value = [name[:LONGEST_NAME] for name in value[:MOST_NAMES]]
            case str():
                value = shortened(value)
        yield camel_case(about.name), value


def camel_case(name: str) -> str:
    """Return a field's name as in the JSON data: `price_hourly_usd` → `priceHourlyUsd`."""
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


_JSON: Mapping[str, Mapping[str, Any]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "datetime": {"type": "string", "format": "date-time"},
    "tuple[str, ...]": {"type": "array", "items": {"type": "string"}, "maxItems": MOST_NAMES},
}
"""The annotation of a field → its JSON schema."""


def schema(detail: type[Detail]) -> dict[str, Any]:
    """Return the JSON schema of the `detail` of this kind's events."""
    properties: dict[str, Any] = {
        name: {**_JSON[kind.__name__], "description": meaning} for name, (kind, meaning) in _COMMON.items()
    }
    required = [*_COMMON]
    for about in fields(detail):
        name, annotation = camel_case(about.name), str(about.type).removesuffix(" | None")
        properties[name] = {**_JSON[annotation], "description": about.metadata["about"]}
        required += [name] if about.default is MISSING else []
    return {
        "$schema": _SCHEMA,
        "title": detail.__name__,
        "description": (detail.__doc__ or "").strip(),
        "type": "object",
        "properties": properties,
        "required": required,
    }
