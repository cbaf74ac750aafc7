"""Notifications: events of nodesmith's own on EventBridge, and which of them the current state calls for.

A notification reports something that is committed or that the state shows. It may arrive more than once, with the same
id. The dataclasses below define its `detail`, and `schema` derives the JSON schema from them.

Notifications follow from the ledger, the snapshot and the last decision alone, so a run that crashes after an effect
leaves nothing to catch up on: the next run finds the same notification, with the same id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any

from nodesmith.decisions.budgets import allows_from, remaining
from nodesmith.decisions.scheduling.offerings.options import Usage
from nodesmith.model.apimachinery.problems import shortened
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.ec2.notices import InterruptionCause
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import NodePool, parsed_nodepools
from nodesmith.model.kubernetes.pods import is_planned
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.ledger.moves import Reason
from nodesmith.model.limits.quotas import SPENDING_LIMIT
from nodesmith.model.policies import MICRO, MONTHLY, USD_PER_HOUR, USD_PER_MONTH
from nodesmith.model.snapshot import Snapshot

FORMAT = "1"
MOST_NAMES = 20
"""The most names in a list of a notification. The full count is in a field of its own."""
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
    pod_count: int = _about("the number of pods that it was bought for, including planned ones")
    pods: tuple[str, ...] = _about("the first of these pods that exist, as namespace/name")
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
    """For an hour nodes of a NodePool have drifted, and its disruption budgets or a pause allow none to be replaced."""

    node_pool: str = _about("the NodePool")
    reason: str = _about("why nodes are to be replaced: Drifted")
    since: datetime = _about("since when the first of them has drifted")  # noqa: RUF009
    node_count: int = _about("the number of these nodes")
    node_claims: tuple[str, ...] = _about("the first of their NodeClaims")
    opens_at: datetime | None = _about("when time alone allows more; missing if only a change does", None)  # noqa: RUF009


@dataclass(frozen=True, slots=True)
class SpendingAbove:
    """The nodes of a cluster cost more than 80 %, or all, of a limit in dollars."""

    limit: str = _about("whose limit it is, such as `NodePool web` or `the cluster`")
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


LATELY = timedelta(hours=1)
"""How long a launch or an interruption is worth a notification: for so long, sending it is retried."""
UNPLACED_AFTER = timedelta(minutes=5)
BLOCKED_AFTER = timedelta(hours=1)
_INTERRUPTION_CAUSES = frozenset(InterruptionCause)
_UNITS = {USD_PER_HOUR: ("USD an hour", MICRO), USD_PER_MONTH: ("USD a month", MONTHLY)}
_PERCENTS = (100, 80)


@dataclass(frozen=True, slots=True)
class Unplaced:
    """A pod (namespace/name) that the last decision bought nothing for: the one reason, and what would help."""

    pod: str
    reason: str
    remedy: str = ""


def of_claims(claims: Iterable[NodeClaim], cluster: str, now: datetime) -> Iterator[Notification]:
    """Yield the launches and interruptions of the last hour, interruptions first."""
    launches: list[Notification] = []
    for claim in claims:
        if claim.is_ending and claim.cause in _INTERRUPTION_CAUSES and _is_recent(claim.terminating_at, now):
            yield _interruption(claim, cluster, claim.terminating_at or now)
        if claim.instance_id and claim.phase is not Phase.GIVEN_UP and _is_recent(claim.launched_at, now):
            launches.append(_launch(claim, cluster, claim.launched_at or now))
    yield from launches


def _is_recent(at: datetime | None, now: datetime) -> bool:
    return at is not None and now - at <= LATELY


def _launch(claim: NodeClaim, cluster: str, at: datetime) -> Notification:
    detail = NodeLaunched(
        node_claim=claim.name,
        node_pool=claim.nodepool,
        instance_id=claim.instance_id,
        instance_type=claim.instance_type,
        zone=claim.zone,
        capacity_type=claim.capacity_type,
        price_hourly_usd=claim.price_hourly_usd,
        pod_count=len(claim.nominated),
        pods=tuple(pod for pod in claim.nominated if not is_planned(pod)),
        decision=claim.decision,
    )
    return Notification(cluster, at, claim.name, detail)


def _interruption(claim: NodeClaim, cluster: str, at: datetime) -> Notification:
    detail = InterruptionServed(
        node_claim=claim.name,
        node_pool=claim.nodepool,
        node=claim.node_name,
        instance_id=claim.instance_id,
        instance_type=claim.instance_type,
        zone=claim.zone,
        capacity_type=claim.capacity_type,
        cause=claim.cause,
        replaced_by=claim.replaced_by,
        deadline=claim.deadline,
    )
    return Notification(cluster, at, claim.name, detail)


def is_anyone_waiting(snapshot: Snapshot, now: datetime) -> bool:
    """Return whether a pod has waited for so long that it would be worth a notification if nothing was bought."""
    return any(
        not pod.node and not pod.deleting and now - pod.created_at >= UNPLACED_AFTER for pod in snapshot.pods
    )


def of_unplaced(unplaced: Iterable[Unplaced], snapshot: Snapshot, now: datetime) -> Iterator[Notification]:
    """Yield the pods that have waited for five minutes and that the last decision bought nothing for."""
    waiting = {
        pod.key: pod.created_at
        for pod in snapshot.pods
        if not pod.node and not pod.deleting and now - pod.created_at >= UNPLACED_AFTER
    }
    for each in unplaced:
        since = waiting.get(each.pod)
        if since is None:
            continue
        namespace, _, name = each.pod.partition("/")
        detail = PodUnplaced(namespace, name, since, each.reason, each.remedy)
        # A pod of the same name that comes later, such as a StatefulSet's, is another one.
        yield Notification(
            snapshot.cluster, since + UNPLACED_AFTER, f"{each.pod} {since.isoformat()}", detail
        )


def of_budgets(ledger: Ledger, snapshot: Snapshot, now: datetime) -> Iterator[Notification]:
    """Yield, once a day, the NodePools whose budgets have kept drifted nodes for an hour.

    A NodePool with a node that ends or is replaced is not blocked: its budgets are in use.
    """
    moving = ledger.sources
    for name, pool in sorted(parsed_nodepools(snapshot.nodepools).items()):
        mine = [claim for claim in ledger.claims if claim.nodepool == name]
        if any(claim.is_ending or claim.name in moving for claim in mine):
            continue
        drifted = [claim for claim in mine if claim.drift and _since(claim) is not None]
        since = min((at for claim in drifted if (at := _since(claim)) is not None), default=None)
        if since is None or now - since < BLOCKED_AFTER:
            continue
        if remaining(pool, Reason.DRIFTED, ledger, (), snapshot, now) == 0:
            yield _blocked(pool, drifted, since, ledger, snapshot, now)


def _since(claim: NodeClaim) -> datetime | None:
    return claim.drifted_at if claim.phase is Phase.INITIALIZED else None


def _blocked(
    pool: NodePool,
    drifted: Sequence[NodeClaim],
    since: datetime,
    ledger: Ledger,
    snapshot: Snapshot,
    now: datetime,
) -> Notification:
    detail = BudgetBlocked(
        node_pool=pool.name,
        reason=Reason.DRIFTED.value,
        since=since,
        node_count=len(drifted),
        node_claims=tuple(sorted(claim.name for claim in drifted)),
        opens_at=allows_from(pool, Reason.DRIFTED, ledger, snapshot, now),
    )
    return Notification(snapshot.cluster, now, f"{pool.name} {now:%Y-%m-%d}", detail)


def of_spending(usages: Iterable[Usage], cluster: str, now: datetime) -> Iterator[Notification]:
    """Yield the limits in dollars of which 80 or 100 % is used: each threshold once a day, or once a month.

    A limit of 0, which closes a NodePool, is no news while nothing is spent. Clusters share SpendingLimits, so dispatch
    reports those, once for all clusters.
    """
    for usage in usages:
        if usage.quota.owner.startswith(f"{SPENDING_LIMIT} "):
            continue
        for name, (unit, dollar) in _UNITS.items():
            limit, used = usage.quota.limits.get(name), usage.used.of(name)
            if usage.quota.fault or limit is None or not used:
                continue
            passed = (percent for percent in _PERCENTS if used * 100 >= limit * percent)
            percent = next(passed, 0)
            if not percent:
                continue
            period = f"{now:%Y-%m-%d}" if name == USD_PER_HOUR else f"{now:%Y-%m}"
            detail = SpendingAbove(
                usage.quota.owner, unit, percent, round(used / dollar, 4), round(limit / dollar, 4)
            )
            yield Notification(cluster, now, f"{usage.quota.owner} {unit} {percent} {period}", detail)
