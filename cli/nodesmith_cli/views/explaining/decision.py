"""`nodesmith explain decision`: describe a decision record, and replay it from the same inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from nodesmith.errors import Rejected
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.kubernetes.pods import is_forthcoming, is_planned
from nodesmith_formats.decisions.summaries import in_a_sentence, price_and_bound, summary
from nodesmith_formats.prices import estimate_mark
from nodesmith_formats.wording import counted, moment, some

Record = Mapping[str, Any]
_PLACES = {"ready": "fit on nodes", "launching": "on nodes to come", "bought": "on the nodes above"}


def explain(record: Record) -> Iterator[str]:
    """Yield the lines that describe a decision."""
    plan, inputs = record["plan"], record["inputs"]
    yield f"decision {record['id']}: {record['concern']} of cluster {record['cluster']}"
    yield f"  at        {moment(record['at'])}"
    taken_at, version = moment(inputs["snapshot"]["takenAt"]), inputs["ledger"].get("version", 0)
    versions = f"snapshot of {taken_at}, ledger version {version}, catalogue {inputs['catalog']['ref']}"
    yield f"  inputs    sha256 {record['inputsHash'][:16]}: {versions}"
    durations = ", ".join(f"{name} {ms:g} ms" for name, ms in record["durationsMs"].items())
    yield f"  took      {durations or 'not measured'}; {counted(plan['steps'], 'search step')}"
    yield f"  outcome   {summary(record)}"
    if record.get("superseded"):
        yield "  superseded: not carried out, because another run decided first"
    if plan["nodes"]:
        yield f"  price     {price_and_bound(plan)}"
    for move in plan.get("moves", ()):
        yield f"  move      {some(move['sources'])}: {move['message']}, eviction cost {move['evictionCost']:g}"
    for node in plan["nodes"]:
        yield from _node(node)
    yield from _others(plan)


def _others(plan: Mapping[str, Any]) -> Iterator[str]:
    """Yield the outcome of the pods for which no node is launched."""
    for name, pods in plan["placed"].items():
        yield f"  fits      {name}: {some(pods)}"
    for claim, pods in _pods_by_claim(plan["waiting"]).items():
        yield f"  waits     for {claim}: {some(pods)}"
    for group in plan["unplaced"]:
        yield f"  unplaced  {some(group['pods'])}: {in_a_sentence(group)}"
    for entry in plan.get("forthcoming", ()):
        places = ", ".join(f"{entry[name]} {text}" for name, text in _PLACES.items() if entry[name])
        suffix = f"; {entry['reason']}" if entry["reason"] else ""
        yield f"  to come   {entry['workload']}: {entry['pods']} pods, {places or 'none with a place'}{suffix}"
    for group in plan["ignored"]:
        yield f"  ignored   {some(group['pods'])}: {in_a_sentence(group)}"
    for pool, reason in plan["obstacles"].items():
        yield f"  obstacle  NodePool {pool}: {reason}"
    for problem in plan["problems"]:
        yield f"  problem   {problem}"


def replayed(record: Record, snapshot: bytes, catalogs: Callable[[str], Catalog]) -> bool:
    """Repeat a decision from its inputs, and return whether it gives the same bytes.

    `catalogs` returns a region's catalogue. Raises Rejected if it is not the catalogue of the decision.
    """
    from nodesmith.decisions.disruption.search import search as moves
    from nodesmith.decisions.provisioning import canonical, replay
    from nodesmith.observation.decoding import decode

    again = moves.replay if record["concern"] == moves.DISRUPTION else replay
    return again(record, decode(snapshot), catalog_of(record, catalogs)) == canonical(record["plan"])


def catalog_of(record: Record, catalogs: Callable[[str], Catalog]) -> Catalog:
    """Return the catalogue of a decision. Raises Rejected if only a different one is available."""
    stated = record["inputs"]["catalog"]
    catalog = catalogs(stated["region"])
    if catalog.ref != stated["ref"]:
        raise Rejected(
            f"decision {record['id']} was made with catalogue {stated['ref']}, but {catalog.ref} is available: "
            "a replay needs the same catalogue"
        )
    return catalog


def _node(node: Mapping[str, Any]) -> Iterator[str]:
    claim, launch = node["claim"], node["launch"]
    overrides: Sequence[Sequence[Any]] = launch["overrides"]
    types = list(dict.fromkeys(override[1] for override in overrides))
    zones = sorted({override[2] for override in overrides})
    mark = estimate_mark(node["estimated"])
    price = f"{mark}${node['priceHourlyUsd']:.4f}/hour"
    keys = claim.get("nominated") or ()
    is_for_room = keys and all(is_planned(key) and not is_forthcoming(key) for key in keys)
    pods = f"room: {some(keys)}" if is_for_room else some(keys)
    yield f"  launch    {claim['name']} of NodePool {claim['nodepool']}, {launch['capacityType']}, {price}, for {pods}"
    yield from _overlaid(node)
    hourly = sorted(override[4] for override in overrides)
    prices = f"{mark}${hourly[0]:.4f} to {mark}${hourly[-1]:.4f}" if hourly else "none"
    yield f"            one of {some(types)} in {', '.join(zones)}: {len(overrides)} offerings, {prices}"


def _overlaid(node: Mapping[str, Any]) -> Iterator[str]:
    """Yield the NodeOverlays that set prices of a node's offerings, and what AWS charges for the cheapest."""
    names = sorted({str(override[5]) for override in node["launch"]["overrides"] if len(override) > 5})
    if names:
        listed = node.get("listPriceHourlyUsd", node["priceHourlyUsd"])
        yield f"            priced by NodeOverlay {some(names)}; AWS charges ${listed:.4f}/hour"


def _pods_by_claim(waiting: Mapping[str, str]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for pod, claim in waiting.items():
        grouped.setdefault(claim, []).append(pod)
    return grouped
