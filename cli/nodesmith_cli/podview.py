"""The human-readable output of `nodesmith explain pod`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nodesmith_formats.wording import ago, some

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


def lines(told: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines for the data from `nodesmith_cli.explainpod.tell`."""
    has_node = bool(told["seen"]) and told["seen"]["outcome"] == "bound"
    yield f"pod {told['pod']}: {_OUTCOMES['bound' if has_node else told['outcome']]}"
    if has_node and told["decision"]:
        yield f"  decided   {_OUTCOMES[told['outcome']]}"
    for name in ("reason", "fix"):
        if told[name]:
            yield f"  {name:<9} {told[name]}"
    node = _node(told)
    if node:
        yield f"  node      {node}"
    looked_at = f"{told['decisionsLookedAt']} searched, newest first"
    if told["decision"] is None:
        yield f"  decision  none mentions it ({looked_at})"
    else:
        yield f"  decision  {told['decision']}, {ago(told['at'], told['ageSeconds'])} ({looked_at})"
    if told["seen"]:
        yield f"  {'since' if told['decision'] else 'seen':<9} {_seen(told['seen'])}"


def _node(told: Mapping[str, Any]) -> str:
    if not told["nodeClaim"]:
        return told["node"] or ""
    types, zones = told["instanceTypes"] or (), told["zones"] or ()
    kind = f"{told['instanceType']} in {told['zone']}" if told["instanceType"] else ""
    if types and not kind:
        kind = f"one of {some(types)} in {', '.join(zones)}"
    parts = [
        f"{told['nodeClaim']} of NodePool {told['nodePool']}" if told["nodePool"] else told["nodeClaim"],
        told["capacityType"],
        f"{'~' * bool(told['priceEstimated'])}${told['priceHourly']:.4f}/hour" if told["priceHourly"] else "",
        f"priced by NodeOverlay {some(told['overlays'])}" if told["overlays"] else "",
        kind,
        f"Node {told['node']}" if told["node"] and told["node"] != told["nodeClaim"] else "",
        told["phase"],
        told["message"],
    ]
    return ", ".join(part for part in parts if part)


def _seen(seen: Mapping[str, Any]) -> str:
    what = _SINCE.get(seen["outcome"]) or f"ignored: {seen['reason']}"
    node = f", {seen['node']}" if seen["node"] else ""
    return f"{what}{node} (snapshot of {ago(seen['at'], seen['ageSeconds'])})"
