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
    before = cluster.report()
    victims = [node.name for node in before.nodes if node.capacity_type == SPOT][:_VICTIMS]
    if not victims:
        return None
    homes = {pod: node.name for node in before.nodes for pod in node.pods}
    events, began = cluster.aws.client("events"), cluster.clock.now()
    with cluster.stage(f"EC2 announces that it reclaims {len(victims)} nodes in two minutes"):
        for node in victims:
            provider_id = str(cluster.objects.get("nodes", node)["spec"]["providerID"])
            announce_interruption(events, cluster.aws.region, provider_id.rpartition("/")[2], began)

    def under_way() -> str:
        there = {str(node["metadata"]["name"]) for node in cluster.objects.list("nodes")}
        still, running = sorted(there & set(victims)), cluster.report().running
        if still:
            return f"{still[0]} still exists"
        return f"{running} of {before.running} pods run" if running < before.running else ""

    left = wait_for(cluster, patience_seconds, under_way)
    entries = [entry for entry in cluster.timeline.entries if entry.at >= began]
    bought = _bought(entries, began, {name: node for node, name in cluster.claims_by_node().items()})
    taken = [_taken(name, entries, began, homes) for name in victims]
    stay = [NodeSpan(node.name, "stays") for node in before.nodes if node.name not in victims]
    return Interrupted(
        (*taken, *stay, *bought), tuple(_waits(entries)), left, len(victims), len(before.nodes)
    )


def _taken(name: str, entries: Iterable[Entry], began: datetime, homes: dict[str, str]) -> NodeSpan:
    own = {f"Pod/{pod}" for pod, home in homes.items() if home == name}
    gone = {e.object: _seconds(e, began) for e in entries if e.what == DELETED}
    first = min((at for what, at in gone.items() if what in own), default=None)
    until = gone.get(f"Node/{name}")
    what = "" if until is None or first is None else f"pods leave at {first:.0f} s, gone at {until:.0f} s"
    return NodeSpan(name, what, leaving=first, until=until)


def _bought(entries: Sequence[Entry], began: datetime, nodes: dict[str, str]) -> Iterator[NodeSpan]:
    ready = {e.object: _seconds(e, began) for e in entries if e.what == READY}
    for entry in entries:
        if entry.what == LAUNCHED and entry.object.startswith("NodeClaim/"):
            claim, since = entry.object.partition("/")[2], _seconds(entry, began)
            at = ready.get(f"Node/{nodes.get(claim, '')}", NOTICE_SECONDS)
            yield NodeSpan(
                nodes.get(claim, claim), f"bought at {since:.0f} s, ready at {at:.0f} s", since, at
            )


def _waits(entries: Iterable[Entry]) -> Iterator[float]:
    """Yield how many seconds each new pod was without a node."""
    came: dict[str, datetime] = {}
    for entry in entries:
        if entry.what == PENDING and entry.object.startswith("Pod/"):
            came[entry.object] = entry.at
        elif entry.what == BOUND and entry.object in came:
            yield (entry.at - came.pop(entry.object)).total_seconds()


def _seconds(entry: Entry, began: datetime) -> float:
    return (entry.at - began).total_seconds()


def drawn(found: Interrupted) -> Iterator[str]:
    """Yield a chart of every node on one time scale, from the notice until EC2 takes the instances."""
    width = max(len(life.name.partition(".")[0]) for life in found.spans)
    quarters = "".join(f"{NOTICE_SECONDS * n / 4:<{_COLUMNS // 4}.0f}" for n in range(4))
    yield f"  {'':<{width}}  {quarters}{NOTICE_SECONDS:.0f} s"
    for span in found.spans:
        yield f"  {span.name.partition('.')[0]:<{width}}  {_bar(span):<{_COLUMNS}}  {span.what}".rstrip()
    yield f"  {_SERVING} serves   {_LEAVING} its pods leave   {_COMING} on its way"
    if found.waits:
        waited = f"the longest waited {max(found.waits):.1f} s, {sum(found.waits):.0f} pod-seconds in total"
        yield f"  {len(found.waits)} pods were recreated on other nodes: {waited}"


def _bar(span: NodeSpan) -> str:
    return "".join(_sign(span, NOTICE_SECONDS * (column + 0.5) / _COLUMNS) for column in range(_COLUMNS))


def _sign(span: NodeSpan, at: float) -> str:
    if at < span.since or (span.until is not None and at >= span.until):
        return " "
    if at < span.ready:
        return _COMING
    return _LEAVING if span.leaving is not None and at >= span.leaving else _SERVING
