"""NodeClaims and the rest of the ledger as JSON data, for the store and for decision records.

Additions of later versions are ignored: unknown names, and items at the end of a list that represents a record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any

from nodesmith.model.apimachinery.frozen import FrozenMap, canonical_text, thaw
from nodesmith.model.apimachinery.quantities import Resources
from nodesmith.model.apimachinery.requirements import Requirements, read_requirements, write_requirements
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.ec2.zonalshifts import read_shift, shift_item
from nodesmith.model.karpenter.disruption import read_budget, write_budget
from nodesmith.model.karpenter.nodeclaims import (
    REACHED_AT,
    WARM,
    NodeClaim,
    NodeClassRef,
    Phase,
    Transition,
    read_taints,
    write_taints,
)
from nodesmith.model.kubernetes.provisioningrequests import gang_item, read_gang
from nodesmith.model.ledger import moves
from nodesmith.model.ledger.breakers import CLOSED, Breaker
from nodesmith.model.ledger.commitments import NO_COMMITMENTS, commitments_item, read_commitments
from nodesmith.model.ledger.learned import Backoff, Boot, DrainTime, Ending, Offered, RegistrationHealth, Risk
from nodesmith.model.ledger.ledger import (
    Ledger,
    departure_item,
    handover_item,
    pause_item,
    read_departure,
    read_handover,
    read_pause,
)
from nodesmith.model.ledger.region import NO_SPENDING, Spending
from nodesmith.model.nodeclasses.status import (
    ClusterInfo,
    nodeclass_item,
    read_nodeclass,
)

Item = dict[str, Any]


def backoff_item(backoff: Backoff) -> Item:
    """Write a back-off."""
    return {"until": backoff.until.isoformat(), "failures": backoff.failures, "reason": backoff.reason}


def read_backoff(item: Mapping[str, Any]) -> Backoff:
    """Read what `backoff_item` wrote."""
    return Backoff(datetime.fromisoformat(item["until"]), int(item["failures"]), item["reason"])


def risk_item(risk: Risk) -> Item:
    """Write a pool's risk."""
    return {"losses": risk.losses, "at": risk.at.isoformat()}


def read_risk(item: Mapping[str, Any]) -> Risk:
    """Read what `risk_item` wrote."""
    return Risk(float(item["losses"]), datetime.fromisoformat(item["at"]))


def drain_time_item(drain_time: DrainTime) -> Item:
    """Write a NodePool's drain time."""
    return {"beyond_seconds": drain_time.beyond_seconds, "at": drain_time.at.isoformat()}


def read_drain_time(item: Mapping[str, Any]) -> DrainTime:
    """Read what `drain_time_item` wrote."""
    return DrainTime(float(item["beyond_seconds"]), datetime.fromisoformat(item["at"]))


def health_item(health: RegistrationHealth) -> Item:
    """Write a NodePool's registration health."""
    return {
        "basis": health.basis,
        "since": health.since.isoformat() if health.since else "",
        "endings": [[ending.claim, ending.registered] for ending in health.endings],
        "reason": health.reason,
        "message": health.message,
        "backoff": backoff_item(health.backoff) if health.backoff else None,
        "offerings": _offering_items(health.offerings),
        **{name: breaker.to_item() for name, breaker in _breakers(health) if breaker != CLOSED},
        **({"specs": list(health.specs)} if health.specs else {}),
        **({"reset": health.reset} if health.reset else {}),
        **({"resets": [at.isoformat() for at in health.resets]} if health.resets else {}),
        "revision": health.revision,
    }


def _breakers(health: RegistrationHealth) -> tuple[tuple[str, Breaker], ...]:
    return ("launches", health.launches), ("moves", health.moves)


def read_health(item: Mapping[str, Any]) -> RegistrationHealth:
    """Read what `health_item` wrote."""
    return RegistrationHealth(
        basis=item["basis"],
        since=datetime.fromisoformat(item["since"]) if item["since"] else None,
        endings=tuple(Ending(claim, registered) for claim, registered, *_ in item["endings"]),
        reason=item["reason"],
        message=item["message"],
        backoff=read_backoff(item["backoff"]) if item["backoff"] else None,
        offerings=_read_offerings(item["offerings"]),
        launches=Breaker.from_item(item.get("launches")),
        moves=Breaker.from_item(item.get("moves")),
        specs=tuple(map(str, item.get("specs", ()))),
        reset=str(item.get("reset", "")),
        resets=tuple(map(datetime.fromisoformat, item.get("resets", ()))),
        revision=int(item["revision"]),
    )


def offered_item(offered: Offered) -> Item:
    """Write what nodes of one type and image have been observed to offer."""
    allocatable = {key: dict(sorted(value.items())) for key, value in offered.allocatable.items()}
    return {"memory_bytes": offered.memory_bytes, "allocatable": allocatable}


def read_offered(item: Mapping[str, Any]) -> Offered:
    """Read what `offered_item` wrote."""
    allocatable = {key: Resources(dict(value)) for key, value in item["allocatable"].items()}
    return Offered(int(item["memory_bytes"]), allocatable)


def _offering_items(backoffs: Mapping[OfferingKey, Backoff]) -> list[Any]:
    return [
        [k.capacity_type, k.instance_type, k.zone, backoff_item(backoffs[k]), k.group]
        for k in sorted(backoffs)
    ]


def _read_offerings(items: Any) -> dict[OfferingKey, Backoff]:
    return {OfferingKey(*row[:3], *row[4:5]): read_backoff(row[3]) for row in items}


def _keyed(rows: Iterable[Any], parts: int) -> Iterator[tuple[Any, Any]]:
    """Yield the key and the value of rows that start with the `parts` of a key."""
    return ((row[:parts], row[parts]) for row in rows)


def cluster_item(cluster: ClusterInfo) -> Item:
    """Write what a new node must know about the cluster."""
    return {
        "name": cluster.name,
        "endpoint": cluster.endpoint,
        "ca_bundle": cluster.ca_bundle,
        "service_cidr": cluster.service_cidr,
        "version": cluster.version,
        "ip_family": cluster.ip_family,
        "dns_ip": cluster.dns_ip,
    }


def read_cluster(item: Mapping[str, Any]) -> ClusterInfo:
    """Read what `cluster_item` wrote. Unknown names are ignored."""
    names = {field.name for field in fields(ClusterInfo)} & item.keys()
    return ClusterInfo(**{name: item[name] for name in names})


def ledger_item(ledger: Ledger) -> Item:
    """Write a whole ledger. The result is identical for equal ledgers."""
    return {
        "version": ledger.version,
        "claims": [claim_to_item(c) for c in sorted(ledger.claims, key=lambda c: c.name)],
        "nodeclasses": [nodeclass_item(ledger.nodeclasses[n]) for n in sorted(ledger.nodeclasses)],
        "cluster": cluster_item(ledger.cluster) if ledger.cluster else None,
        "unavailable": _offering_items(ledger.unavailable),
        "nodepool_backoffs": {
            name: backoff_item(ledger.nodepool_backoffs[name]) for name in sorted(ledger.nodepool_backoffs)
        },
        "health": {name: health_item(ledger.health[name]) for name in sorted(ledger.health)},
        "learned": [
            [boot.instance_type, boot.image_id, offered_item(ledger.learned[boot])]
            for boot in sorted(ledger.learned)
        ],
        "moves": [moves.to_item(move) for move in sorted(ledger.moves, key=lambda move: move.id)],
        "paused": pause_item(ledger.paused) if ledger.paused else None,
        "departures": [departure_item(d) for d in sorted(ledger.departures, key=lambda d: d.claim)],
        "risks": [
            [key.capacity_type, key.instance_type, key.zone, risk_item(ledger.risks[key])]
            for key in sorted(ledger.risks)
        ],
        "drain_times": {
            name: drain_time_item(ledger.drain_times[name]) for name in sorted(ledger.drain_times)
        },
        "contents": {key: ledger.contents[key] for key in sorted(ledger.contents)},
        **_subnets_item(ledger),
        **_shifts_item(ledger),
        **_gangs_item(ledger),
        **_spending_item(ledger),
        **({"handover": handover_item(ledger.handover)} if ledger.handover else {}),
        **_commitments_item(ledger),
        "move_backoffs": [
            [*kind, backoff_item(ledger.move_backoffs[kind])] for kind in sorted(ledger.move_backoffs)
        ],
    }


def _subnets_item(ledger: Ledger) -> Item:
    """Write the back-offs of subnets, as an empty item if there are none."""
    backoffs = {id_: backoff_item(ledger.subnet_backoffs[id_]) for id_ in sorted(ledger.subnet_backoffs)}
    return {"subnet_backoffs": backoffs} if backoffs else {}


def _shifts_item(ledger: Ledger) -> Item:
    """Write the zonal shifts, as an empty item if there are none."""
    return {"zonal_shifts": [*map(shift_item, ledger.zonal_shifts)]} if ledger.zonal_shifts else {}


def _gangs_item(ledger: Ledger) -> Item:
    """Write the gangs, as an empty item if there are none."""
    gangs = sorted(ledger.gangs, key=lambda gang: gang.id)
    return {"gangs": [*map(gang_item, gangs)]} if gangs else {}


def _spending_item(ledger: Ledger) -> Item:
    """Write money and launches, as an empty item if there are none."""
    return {"spending": ledger.spending.to_item()} if ledger.spending != NO_SPENDING else {}


def _commitments_item(ledger: Ledger) -> Item:
    """Write the commitments, as an empty item if there are none."""
    commitments = ledger.commitments
    return {"commitments": commitments_item(commitments)} if commitments.book.commitments else {}


def read_ledger(item: Mapping[str, Any]) -> Ledger:
    """Read what `ledger_item` wrote."""
    nodeclasses = [read_nodeclass(n) for n in item["nodeclasses"]]
    return Ledger(
        version=int(item["version"]),
        claims=tuple(claim_from_item(c) for c in item["claims"]),
        nodeclasses={n.name: n for n in nodeclasses},
        cluster=read_cluster(item["cluster"]) if item["cluster"] else None,
        unavailable=_read_offerings(item["unavailable"]),
        nodepool_backoffs={n: read_backoff(b) for n, b in item["nodepool_backoffs"].items()},
        health={name: read_health(h) for name, h in item.get("health", {}).items()},
        learned={Boot(*boot): read_offered(offered) for boot, offered in _keyed(item.get("learned", ()), 2)},
        moves=tuple(map(moves.from_item, item.get("moves", ()))),
        paused=read_pause(item["paused"]) if item.get("paused") else None,
        departures=tuple(map(read_departure, item.get("departures", ()))),
        drain_times={
            name: read_drain_time(drain_time) for name, drain_time in item.get("drain_times", {}).items()
        },
        risks={OfferingKey(*key): read_risk(risk) for key, risk in _keyed(item.get("risks", ()), 3)},
        contents=dict(item.get("contents", {})),
        zonal_shifts=tuple(map(read_shift, item.get("zonal_shifts", ()))),
        gangs=tuple(map(read_gang, item.get("gangs", ()))),
        spending=Spending.from_item(item["spending"]) if "spending" in item else NO_SPENDING,
        handover=read_handover(item["handover"]) if item.get("handover") else None,
        commitments=read_commitments(item["commitments"]) if "commitments" in item else NO_COMMITMENTS,
        subnet_backoffs={id_: read_backoff(b) for id_, b in item.get("subnet_backoffs", {}).items()},
        move_backoffs={
            moves.MoveKind(*kind): read_backoff(backoff)
            for kind, backoff in _keyed(item.get("move_backoffs", ()), 2)
        },
    )


_KEYS = {"nodepool_hash_version": "hash_version"}
"""Field → its name in items if it differs. Releases with one version for both hashes read it under this name."""
_READ_FROM = {**_KEYS, "phase": "true_phase", "history": "true_history"}


def claim_to_item(claim: NodeClaim) -> dict[str, Any]:
    """Write a claim as JSON data without empty or unset fields. The result is identical for equal claims."""
    values = ((name, getattr(claim, name)) for name in _FIELDS)
    written = {
        _KEYS.get(name, name): _write(name, value)
        for name, value in values
        if value or (type(value) not in _UNSET and name != "removals_before")
    }
    return {**written, **_as_known_before(claim)} if claim.buffer else written


class ClaimTexts:
    """Claims as canonical JSON text, 3.5 kB each.

    The texts of the last claims are kept, because most of them are among the next ones, too. Claims are compared by
    identity: a store returns the same object until a claim changes.
    """

    def __init__(self) -> None:
        self._kept: dict[int, tuple[NodeClaim, str]] = {}

    def of(self, claims: Iterable[NodeClaim]) -> list[str]:
        """Return the text of each claim, in the order of the claims. No claims leave what is kept."""
        texts = {
            id(claim): self._kept.get(id(claim)) or (claim, canonical_text(claim_to_item(claim)))
            for claim in claims
        }
        self._kept = texts or self._kept
        return [text for _, text in texts.values()]


_NEWER = {**dict.fromkeys(WARM, Phase.GIVEN_UP), Phase.STARTING: Phase.LAUNCHED}
"""Phases that releases before warm capacity do not know → the phase that they read instead.

They terminate an instance that is kept warm, and let one that starts for pods join.
"""


def _as_known_before(claim: NodeClaim) -> dict[str, Any]:
    """Return phase and history as older releases can read them, and the true ones under names of their own."""
    old = tuple(step for step in claim.history if step.phase not in _NEWER)
    return {
        "phase": str(_NEWER.get(claim.phase, claim.phase)),
        "history": _write("history", old),
        "true_phase": str(claim.phase),
        "true_history": _write("history", claim.history),
    }


def claim_from_item(item: Mapping[str, Any]) -> NodeClaim:
    """Read what `claim_to_item` wrote. Unknown names are ignored."""
    item = {"nodepool": "", **item}  # a claim that a user created may have none
    item |= {name: item[key] for name, key in _READ_FROM.items() if key in item}
    names = item.keys() & _FIELDS
    return NodeClaim(
        **{name: _READERS[name](item[name]) if name in _READERS else item[name] for name in names}
    )


_FIELDS = tuple(field.name for field in fields(NodeClaim))
_UNSET = frozenset({type(None), str, tuple})
"""Types of fields that are not written if they are empty. Comparing values takes longer, and a ledger has many."""


def _write(name: str, value: Any) -> Any:
    match value:
        case str() | int() | float():
            return value
        case datetime():
            return value.isoformat()
        case Requirements():
            return write_requirements(value)
        case NodeClassRef():
            return {"group": value.group, "kind": value.kind, "name": value.name}
        case tuple() if name == "budgets":
            return [write_budget(budget) for budget in value]
        case tuple() if name == "history":
            return [[step.phase, step.at.isoformat(), step.cause] for step in value]
        case tuple() if name in ("taints", "startup_taints"):
            return write_taints(value)
        case _:
            return thaw(value)


_TIMES = "created_at", "held_until", "phase_since", "deadline", "drifted_at", "instance_gone_at"
_READERS: Mapping[str, Callable[[Any], Any]] = {
    "inconsistency": lambda value: "" if value == "-" else value,  # older versions wrote "-" for none
    "nodeclass": lambda value: NodeClassRef(value["name"], value["group"], value["kind"]),
    "phase": Phase,
    "requirements": read_requirements,
    **dict.fromkeys(("nominated", "served", "security_groups", "replaced_by", "images"), tuple),
    **dict.fromkeys(("taints", "startup_taints"), read_taints),
    **dict.fromkeys(("requests", "capacity", "allocatable"), Resources),
    **dict.fromkeys(("labels", "annotations", "attempts", "launch"), FrozenMap),
    "budgets": lambda budgets: tuple(map(read_budget, budgets)),
    "history": lambda steps: tuple(
        Transition(Phase(phase), datetime.fromisoformat(at), cause) for phase, at, cause, *_ in steps
    ),
    **dict.fromkeys((*_TIMES, *REACHED_AT.values()), datetime.fromisoformat),
}
