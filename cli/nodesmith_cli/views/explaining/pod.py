"""`nodesmith explain pod`: the newest decision that mentions a pod, and the pod's state in the cluster since then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from nodesmith.decisions.scheduling.demands import provisionable
from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.problems import meant
from nodesmith.model.apimachinery.times import parse_time
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.snapshot import Snapshot
from nodesmith_formats.prices import estimate_mark
from nodesmith_formats.wording import ago, some

Record = Mapping[str, Any]
Report = dict[str, Any]
_SUGGESTED = 3
_NODE_FIELDS = {
    "nodeClaim": "name",
    "nodePool": "nodepool",
    "instanceType": "instance_type",
    "zone": "zone",
    "capacityType": "capacity_type",
    "priceHourly": "price_hourly_usd",
    "phase": "phase",
    "node": "node_name",
    "message": "message",
}
"""The output's fields about a node, with the NodeClaim fields of a record that they come from."""
_REASON_FIELDS = ("reason", "nodePool", "blocking", "fix")
_OFFERED_FIELDS = ("priceEstimated", "listPriceHourly", "overlays", "instanceTypes", "zones")
_OUTCOMES = {
    "bought": "a node is launched for it",
    "fits": "it fits on an existing or in-flight node",
    "waits": "it waits for the node launched for it",
    "unplaced": "not placed",
    "ignored": "ignored",
    "bound": "it is bound to a node",
    "pending": "no decision yet",
}
_SINCE = {
    "gone": "the pod does not exist (any more)",
    "bound": "it is bound to a node",
    "pending": "it is not bound to a node yet",
}


def pod_key(name: str) -> str:
    """Return `namespace/name` for a pod argument. Raises Rejected if it is malformed."""
    parts = name.split("/")
    if not all(parts) or len(parts) > 2:
        raise Rejected(f"pod {name!r}: expected NAMESPACE/NAME, or NAME for a pod in the namespace default")
    return name if len(parts) == 2 else f"default/{name}"


def in_namespace(name: str, namespace: str) -> str:
    """Return a pod argument with the namespace of the option -n. Raises Rejected if the argument names another."""
    if not namespace or name.startswith(f"{namespace}/"):
        return name
    if "/" in name:
        raise Rejected(f"pod {name!r} and -n {namespace} name two namespaces")
    return f"{namespace}/{name}"


@dataclass(slots=True)
class Search:
    """A search for the newest record that mentions a pod (`namespace/name`).

    `claims` are the NodeClaims of the records, each from the newest one. `mentioned` are all pods mentioned so far.
    """

    pod: str
    looked_at: int = 0
    record: Record | None = None
    verdict: Report = field(default_factory=dict)
    claims: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    mentioned: set[str] = field(default_factory=set)

    def search_records(self, records: Iterable[Record]) -> None:
        """Search records, newest first. Superseded records are ignored, since they were not carried out."""
        for record in records:
            self.looked_at += 1
            for claim in record["inputs"]["ledger"].get("claims") or ():
                self.claims.setdefault(claim["name"], claim)
            verdicts = {} if record.get("superseded") else dict(_verdicts(record["plan"]))
            self.mentioned |= verdicts.keys()
            if self.pod in verdicts:
                self.record, self.verdict = record, verdicts[self.pod]
                return


def report_of(search: Search, snapshot: Snapshot | None, now: datetime) -> Report | None:
    """Return what is known about the pod, as JSON data, or None if nothing is.

    `outcome` is bought, fits, waits, unplaced or ignored if a decision mentions the pod. Otherwise it is bound, pending
    or ignored, as `snapshot` shows. `seen` is the pod's state in a snapshot taken after the decision.
    """
    seen = _seen(search.pod, snapshot, now)
    report: Report = {"pod": search.pod, "outcome": None, "reason": None, "blocking": None, "fix": None}
    report |= dict.fromkeys((*_NODE_FIELDS, *_OFFERED_FIELDS, "decision", "at", "ageSeconds"))
    report |= {"decisionsLookedAt": search.looked_at, "seen": seen}
    if search.record is None:
        if seen is None or seen["outcome"] == "gone":
            return None
        return report | {name: seen[name] for name in ("outcome", "reason", "node")}
    if seen and parse_time(seen["at"]) <= parse_time(search.record["inputs"]["snapshot"]["takenAt"]):
        report["seen"] = None
    at = search.record["at"]
    report |= {"decision": search.record["id"], "at": at, "ageSeconds": _age(at, now)}
    return report | search.verdict | _node(search)


def unknown_pod(search: Search, snapshot: Snapshot | None) -> str:
    """Return the message for a pod that nothing mentions, with similar names."""
    names = search.mentioned | {pod.key for pod in (snapshot.pods if snapshot else ())}
    near = _similar(search.pod, sorted(names))
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    return f"no stored decision mentions pod {search.pod} ({search.looked_at} searched, newest first){hint}"


def _verdicts(plan: Mapping[str, Any]) -> Iterator[tuple[str, Report]]:
    """Yield each pod of a plan with its outcome."""
    for outcome in ("ignored", "unplaced"):
        for group in plan[outcome]:
            report = {"outcome": outcome, **{name: group.get(name) or None for name in _REASON_FIELDS}}
            yield from ((pod, report) for pod in group["pods"])
    for name, pods in plan["placed"].items():
        yield from ((pod, {"outcome": "fits", "node": name}) for pod in pods)
    for pod, claim in plan["waiting"].items():
        yield pod, {"outcome": "waits", "nodeClaim": claim}
    for node in plan["nodes"]:
        report = {"outcome": "bought", **_offered(node)}
        yield from ((pod, report) for pod in node["claim"].get("nominated") or ())


def _offered(node: Mapping[str, Any]) -> Report:
    """Return the instance types and zones a planned node may get, the cheapest first."""
    overrides: Sequence[Sequence[Any]] = node["launch"]["overrides"]
    return {
        "nodeClaim": node["claim"]["name"],
        "nodePool": node["claim"]["nodepool"],
        "capacityType": node["launch"]["capacityType"],
        "priceHourly": node["priceHourlyUsd"],
        "priceEstimated": node["estimated"],
        "listPriceHourly": node.get("listPriceHourlyUsd"),
        "overlays": sorted({str(override[5]) for override in overrides if len(override) > 5}) or None,
        "instanceTypes": list(dict.fromkeys(override[1] for override in overrides)),
        "zones": sorted({override[2] for override in overrides}),
    }


def _node(search: Search) -> Report:
    """Return the fields of the pod's node from the newest record, which may know more than the record of its launch."""
    names = {search.verdict.get("nodeClaim"), search.verdict.get("node")} - {None}
    claim = next((c for c in search.claims.values() if {c["name"], c.get("node_name")} & names), {})
    return {report: claim[name] for report, name in _NODE_FIELDS.items() if claim.get(name)}


def _seen(key: str, snapshot: Snapshot | None, now: datetime) -> Report | None:
    """Return a pod's state in a snapshot. Its `outcome` is gone, bound, ignored or pending."""
    if snapshot is None:
        return None
    at = snapshot.taken_at.isoformat()
    pod = next((pod for pod in snapshot.pods if pod.key == key), None)
    outcome, reason = ("gone", None) if pod is None else _state(pod)
    node = (pod.node or None) if pod else None
    return {"outcome": outcome, "reason": reason, "node": node, "at": at, "ageSeconds": _age(at, now)}


def _state(pod: Pod) -> tuple[str, str | None]:
    if pod.node:
        return "bound", None
    if pod.deleting:
        return "ignored", "it is being deleted"
    if pod.shape.is_daemon:
        return "ignored", f"it belongs to {pod.shape.owner}: nodes are never launched for DaemonSet pods"
    if pod.shape.is_static:
        return "ignored", "it is a static pod, which is bound to its node"
    _, refused = provisionable([pod])
    return ("ignored", refused[0][1]) if refused else ("pending", None)


def _age(at: str, now: datetime) -> int:
    """Return an age in seconds. It is never negative, even if the clock of a local run was ahead."""
    return max(0, round((now - parse_time(at)).total_seconds()))


def _similar(key: str, keys: Sequence[str]) -> list[str]:
    """Return pods of this name in other namespaces, else pods of a workload of this name, else similar names."""
    name = key.partition("/")[2]
    same = [other for other in keys if other.endswith(f"/{name}")]
    owned = [other for other in keys if other.startswith(f"{key}-")]
    return (same or owned or meant(key, keys, _SUGGESTED))[:_SUGGESTED]


def lines(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines for the data from `report_of`."""
    has_node = bool(report["seen"]) and report["seen"]["outcome"] == "bound"
    yield f"pod {report['pod']}: {_OUTCOMES['bound' if has_node else report['outcome']]}"
    if has_node and report["decision"]:
        yield f"  decided   {_OUTCOMES[report['outcome']]}"
    for name in ("reason", "fix"):
        if report[name]:
            yield f"  {name:<9} {report[name]}"
    node = _node_text(report)
    if node:
        yield f"  node      {node}"
    looked_at = f"{report['decisionsLookedAt']} searched, newest first"
    if report["decision"] is None:
        yield f"  decision  none mentions it ({looked_at})"
    else:
        yield f"  decision  {report['decision']}, {ago(report['at'], report['ageSeconds'])} ({looked_at})"
    if report["seen"]:
        yield f"  {'since' if report['decision'] else 'seen':<9} {_seen_text(report['seen'])}"


def _node_text(report: Mapping[str, Any]) -> str:
    if not report["nodeClaim"]:
        return report["node"] or ""
    types, zones = report["instanceTypes"] or (), report["zones"] or ()
    kind = f"{report['instanceType']} in {report['zone']}" if report["instanceType"] else ""
    if types and not kind:
        kind = f"one of {some(types)} in {', '.join(zones)}"
    parts = [
        f"{report['nodeClaim']} of NodePool {report['nodePool']}"
        if report["nodePool"]
        else report["nodeClaim"],
        report["capacityType"],
        f"{estimate_mark(report['priceEstimated'])}${report['priceHourly']:.4f}/hour"
        if report["priceHourly"]
        else "",
        f"priced by NodeOverlay {some(report['overlays'])}" if report["overlays"] else "",
        kind,
        f"Node {report['node']}" if report["node"] and report["node"] != report["nodeClaim"] else "",
        report["phase"],
        report["message"],
    ]
    return ", ".join(part for part in parts if part)


def _seen_text(seen: Mapping[str, Any]) -> str:
    text = _SINCE.get(seen["outcome"]) or f"ignored: {seen['reason']}"
    node = f", {seen['node']}" if seen["node"] else ""
    return f"{text}{node} (snapshot of {ago(seen['at'], seen['ageSeconds'])})"
