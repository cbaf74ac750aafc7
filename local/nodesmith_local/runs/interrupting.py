"""The demo's last act: EC2 reclaims two nodes with two minutes' notice, and a chart shows that time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from nodesmith.model.apimachinery.labels import SPOT
from nodesmith.model.ec2.notices import WARNING
from nodesmith_local.aws.instances.eventbus import announce_interruption
from nodesmith_local.runs.running import wait_for
from nodesmith_local.runs.servedcluster import ServedCluster
from nodesmith_local.runs.timeline import BOUND, DELETED, LAUNCHED, PENDING, READY, Entry

NOTICE_SECONDS = WARNING.total_seconds()
_VICTIMS = 2
_COLUMNS = 48
_COMING, _SERVING, _LEAVING = "░", "█", "▒"


@dataclass(frozen=True, slots=True)
class NodeSpan:
    """One node, in seconds since the notice; `what` is its caption.

    `since` is the time of its launch, `ready` when it became ready, `leaving` when its first pod left, `until` when it
    was gone; None if that has not happened.
    """

    name: str
    what: str
    since: float = 0.0
    ready: float = 0.0
    leaving: float | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The course of an interruption of `taken` out of `nodes` nodes.

    `waits` holds the seconds that each new pod was pending. `activity` is what was still under way when time was up.
    """

    spans: tuple[NodeSpan, ...]
    waits: tuple[float, ...]
    activity: str = ""
    taken: int = 0
    nodes: int = 0


def interrupt_two(cluster: ServedCluster, patience_seconds: float) -> Interrupted | None:
    """Let EC2 reclaim two spot nodes, and wait until they are gone and all pods run; None without spot nodes."""
    initial = cluster.report()
    victims = [node.name for node in initial.nodes if node.capacity_type == SPOT][:_VICTIMS]
    if not victims:
        return None
    homes = {pod: node.name for node in initial.nodes for pod in node.pods}
    events, started_at = cluster.aws.client("events"), cluster.clock.now()
    with cluster.stage(f"EC2 announces that it reclaims {len(victims)} nodes in two minutes"):
        for node in victims:
            provider_id = str(cluster.objects.get("nodes", node)["spec"]["providerID"])
            announce_interruption(events, cluster.aws.region, provider_id.rpartition("/")[2], started_at)

    def under_way() -> str:
        existing = {str(node["metadata"]["name"]) for node in cluster.objects.list("nodes")}
        remaining, running = sorted(existing & set(victims)), cluster.report().running
        if remaining:
            return f"{remaining[0]} still exists"
        return f"{running} of {initial.running} pods run" if running < initial.running else ""

    activity = wait_for(cluster, patience_seconds, under_way)
    entries = [entry for entry in cluster.timeline.entries if entry.at >= started_at]
    bought_spans = _bought_spans(
        entries, started_at, {name: node for node, name in cluster.claims_by_node().items()}
    )
    reclaimed_spans = [_reclaimed_span(name, entries, started_at, homes) for name in victims]
    staying_spans = [NodeSpan(node.name, "stays") for node in initial.nodes if node.name not in victims]
    return Interrupted(
        (*reclaimed_spans, *staying_spans, *bought_spans),
        tuple(_waits(entries)),
        activity,
        len(victims),
        len(initial.nodes),
    )


def _reclaimed_span(
    name: str, entries: Iterable[Entry], started_at: datetime, homes: dict[str, str]
) -> NodeSpan:
    own = {f"Pod/{pod}" for pod, home in homes.items() if home == name}
    deletions = {e.object: _seconds(e, started_at) for e in entries if e.what == DELETED}
    first_left = min((seconds for deleted, seconds in deletions.items() if deleted in own), default=None)
    until = deletions.get(f"Node/{name}")
    course = (
        ""
        if until is None or first_left is None
        else f"pods leave at {first_left:.0f} s, gone at {until:.0f} s"
    )
    return NodeSpan(name, course, leaving=first_left, until=until)


def _bought_spans(
    entries: Sequence[Entry], started_at: datetime, nodes: dict[str, str]
) -> Iterator[NodeSpan]:
    ready = {e.object: _seconds(e, started_at) for e in entries if e.what == READY}
    for entry in entries:
        if entry.what == LAUNCHED and entry.object.startswith("NodeClaim/"):
            claim, since = entry.object.partition("/")[2], _seconds(entry, started_at)
            ready_at = ready.get(f"Node/{nodes.get(claim, '')}", NOTICE_SECONDS)
            yield NodeSpan(
                nodes.get(claim, claim),
                f"bought at {since:.0f} s, ready at {ready_at:.0f} s",
                since,
                ready_at,
            )


def _waits(entries: Iterable[Entry]) -> Iterator[float]:
    """Yield how many seconds each new pod was without a node."""
    pending_since: dict[str, datetime] = {}
    for entry in entries:
        if entry.what == PENDING and entry.object.startswith("Pod/"):
            pending_since[entry.object] = entry.at
        elif entry.what == BOUND and entry.object in pending_since:
            yield (entry.at - pending_since.pop(entry.object)).total_seconds()


def _seconds(entry: Entry, started_at: datetime) -> float:
    return (entry.at - started_at).total_seconds()


def drawn(interruption: Interrupted) -> Iterator[str]:
    """Yield a chart of every node on one time scale, from the notice until EC2 takes the instances."""
    width = max(len(shown.name.partition(".")[0]) for shown in interruption.spans)
    quarters = "".join(f"{NOTICE_SECONDS * n / 4:<{_COLUMNS // 4}.0f}" for n in range(4))
    yield f"  {'':<{width}}  {quarters}{NOTICE_SECONDS:.0f} s"
    for span in interruption.spans:
        yield f"  {span.name.partition('.')[0]:<{width}}  {_bar(span):<{_COLUMNS}}  {span.what}".rstrip()
    yield f"  {_SERVING} serves   {_LEAVING} its pods leave   {_COMING} on its way"
    if interruption.waits:
        waits = interruption.waits
        waited = f"the longest waited {max(waits):.1f} s, {sum(waits):.0f} pod-seconds in total"
        yield f"  {len(waits)} pods were recreated on other nodes: {waited}"


def _bar(span: NodeSpan) -> str:
    return "".join(_sign(span, NOTICE_SECONDS * (column + 0.5) / _COLUMNS) for column in range(_COLUMNS))


def _sign(span: NodeSpan, seconds: float) -> str:
    if seconds < span.since or (span.until is not None and seconds >= span.until):
        return " "
    if seconds < span.ready:
        return _COMING
    return _LEAVING if span.leaving is not None and seconds >= span.leaving else _SERVING
