"""The analysis as JSON data, the one source of the table and the page. `docs/savings.md` lists the fields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import reduce
from math import fsum
from operator import add
from typing import Literal

from nodesmith.decisions.disruption.proposals import Proposal
from nodesmith.model.apimachinery.labels import RESERVED
from nodesmith.model.apimachinery.quantities import CPU, MEMORY, Resources, format_amount
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.ec2.catalog import Catalog
from nodesmith_cli.costs.savings.analysis import Analysis
from nodesmith_cli.costs.savings.capacity import KeptNodes, Parts, Workload
from nodesmith_cli.costs.savings.constraints import MOST
from nodesmith_cli.costs.savings.nodeprices import PricedNode, monthly
from nodesmith_cli.costs.savings.owners import AUTO_MODE
from nodesmith_cli.costs.savings.reading import Cluster, Usage
from nodesmith_cli.costs.savings.repacking import best_moves
from nodesmith_cli.output.documents.savings import (
    Alike,
    HeldNodes,
    Kind,
    Money,
    Owner,
    Repacked,
    Saving,
    SavingMove,
    Savings,
    Spending,
    SpotOption,
    WorkloadCost,
)
from nodesmith_formats.prices import HOURS_A_MONTH
from nodesmith_formats.wording import counted, printable

SCHEMA_VERSION: Literal[1] = 1
_DIGITS = 6
_MOST = 10
_MOST_NAMES = 100
_REACHABLE = (
    "Reachable: moves that nodesmith's search finds worth their evictions, and that annotations, policies and "
    "PodDisruptionBudgets allow now. They take days where NodePools' budgets are small. 6 % of the price of nodes that "
    "pods move to is added, because kube-scheduler does not follow plans."
)
_PASSING = frozenset(
    {"Nominated", "Ending", "Moving", "NotInitialized", "NotConsolidatable", "NodePoolUnread"}
)
"""Rules that keep a node for a moment only, and are not reported as what keeps it."""


def report(
    analysis: Analysis,
    cluster: Cluster,
    usage: Usage,
    catalog: Catalog,
    *,
    context: str,
    spot: str,
    at: datetime,
    selector: str = "",
) -> Savings:
    """Return the report. `spot` is the source of spot prices, `at` the time of the reading. Prices are USD.

    `selector` is the label selector of the nodes that it is about, empty for all.
    """
    now = analysis.now_hourly_usd
    return {
        "schemaVersion": SCHEMA_VERSION,
        "cluster": {
            "context": printable(context),
            "region": catalog.region,
            "readAt": format_time(at),
            "nodes": len(analysis.nodes),
            "pricedNodes": len(analysis.priced),
            "pods": analysis.pods,
            "pendingPods": analysis.pending,
            "selector": printable(selector),
        },
        "prices": {
            "catalogue": f"{catalog.made_at:%Y-%m-%d}",
            "spot": spot,
            "currency": catalog.currency,
            "hoursAMonth": HOURS_A_MONTH,
        },
        "now": {
            **_money(now),
            "estimatedMonthly": _cents(monthly(_estimated(analysis.priced))),
            "nodes": len(analysis.priced),
        },
        "repacked": _repacked(analysis),
        "reachable": {
            **_saving(now, min(now, analysis.moves.hourly_usd), analysis.moves.nodes),
            "moves": len(analysis.moves.moves),
            "evictions": analysis.moves.evictions,
            "isFinished": analysis.moves.is_finished,
        },
        "lowerBound": _money(analysis.bound_hourly_usd),
        "owners": _owners(analysis.nodes),
        "fleet": _fleet(analysis.nodes),
        "nodePools": {
            "areAssumed": analysis.are_assumed,
            "names": [str(m["metadata"]["name"]) for m in analysis.nodepools if m["kind"] == "NodePool"],
            "leftAlone": list(analysis.foreign_nodepools),
            "manifests": [dict(nodepool) for nodepool in analysis.nodepools] if analysis.are_assumed else [],
        },
        "unknown": [
            {"node": node.name, "owner": node.owner.software, "reason": node.unknown}
            for node in analysis.nodes
            if node.price is None
        ],
        "spending": _spending(analysis.parts),
        "kept": [_held(constraint) for constraint in analysis.held if constraint.rule not in _PASSING],
        "protections": [
            {**_held(held), "costMonthly": _cents(monthly(cost))} for held, cost in analysis.protections
        ],
        "unplaceable": [
            {"node": name, "reason": reason} for name, reason in sorted(analysis.whole.kept.items())
        ],
        "families": [
            {
                "family": family.name,
                "capacityType": family.capacity_type,
                "nodes": family.nodes,
                "monthly": _cents(monthly(family.hourly_usd)),
                "cheapestType": family.cheapest,
                "savingMonthly": _cents(monthly(family.hourly_usd - family.cheapest_hourly_usd)),
            }
            for family in analysis.families[:_MOST]
        ],
        "spotOption": _spot(analysis),
        "daemonSets": [_workload(daemonset) for daemonset in analysis.daemonsets[:_MOST]],
        "oversized": {
            "isKnown": not usage.fault,
            "reason": usage.fault,
            "monthly": _cents(monthly(fsum(workload.unused_hourly_usd for workload in analysis.oversized))),
            "workloads": [_workload(workload) for workload in analysis.oversized[:_MOST]],
        },
        "moves": [_move(move, analysis) for move in best_moves(analysis.moves.moves, _MOST)],
        "constraints": {
            "costs": [
                {
                    "workload": cost.constraint.workload,
                    "constraint": cost.constraint.kind,
                    "key": cost.constraint.key,
                    "pods": cost.pods,
                    "monthly": _cents(monthly(cost.hourly_usd)),
                }
                for cost in analysis.constraints.costs
            ],
            "examined": analysis.constraints.examined,
            "found": analysis.constraints.found,
        },
        "missing": [
            {"kind": missing.kind, "reason": missing.reason, "meaning": missing.meaning}
            for missing in cluster.missing
        ],
        "faults": list(analysis.faults[:_MOST_NAMES]),
        "caveats": [*_of_selection(selector), *_caveats(analysis, spot)],
    }


def _cents(usd: float) -> float:
    return round(usd, 2) + 0.0


def _money(hourly: float) -> Money:
    return {"hourly": round(hourly, _DIGITS), "monthly": _cents(monthly(hourly))}


def _saving(now: float, then: float, nodes: int) -> Saving:
    share = (now - then) / now if now else 0.0
    return {
        **_money(then),
        "savingMonthly": _cents(monthly(now - then)),
        "savingPercent": round(100 * share, 1),
        "nodes": nodes,
    }


def whole_percent(now: Mapping[str, float], then: Mapping[str, float]) -> str:
    """Return what prices save, in whole percent. It is not rounded from `savingPercent`, which is rounded itself."""
    return f"{100 * (1 - then['hourly'] / now['hourly']) if now['hourly'] else 0:.0f}"


def _estimated(nodes: Iterable[PricedNode]) -> float:
    return fsum(node.hourly_usd for node in nodes if node.price and node.price.estimated)


def _repacked(analysis: Analysis) -> Repacked:
    now, best = analysis.now_hourly_usd, analysis.best_hourly_usd
    is_plan = analysis.whole.hourly_usd <= best
    number = analysis.whole.number if is_plan else analysis.moves.nodes
    more_spot = min(analysis.on_demand.hourly_usd, now) - best
    return {
        **_saving(now, best, number if best < now else len(analysis.priced)),
        "estimatedMonthly": _cents(monthly(analysis.whole.estimated_hourly_usd)) if is_plan else 0.0,
        "ofWhichSpotMonthly": _cents(monthly(max(0.0, more_spot))),
    }


def _owners(nodes: Iterable[PricedNode]) -> list[Owner]:
    groups: dict[tuple[str, str, bool], list[PricedNode]] = {}
    for node in nodes:
        key = node.owner.software, node.owner.group, node.owner.is_ours
        groups.setdefault(key, []).append(node)
    owners: list[Owner] = [
        {
            "software": software,
            "group": group,
            "nodes": len(members),
            "unpriced": sum(node.price is None for node in members),
            "monthly": _cents(monthly(fsum(node.hourly_usd for node in members))),
            "canTakeOver": ours,
        }
        for (software, group, ours), members in groups.items()
    ]
    return sorted(owners, key=lambda row: (-row["monthly"], row["software"], row["group"]))


def _fleet(nodes: Iterable[PricedNode]) -> list[Kind]:
    """Return the kinds of nodes by zone, the most expensive first; `hourly` is the price of all nodes of a kind."""
    kinds: dict[tuple[str, str, str], list[PricedNode]] = {}
    for node in nodes:
        kinds.setdefault((node.zone, node.instance_type, node.capacity_type), []).append(node)
    rows: list[Kind] = [
        {
            "zone": zone,
            "instanceType": kind,
            "capacityType": sold,
            "nodes": len(members),
            "hourly": round(fsum(member.hourly_usd for member in members), _DIGITS),
        }
        for (zone, kind, sold), members in sorted(kinds.items())
    ]
    return sorted(rows, key=lambda row: -row["hourly"])


def _spending(parts: Mapping[str, Parts]) -> Spending:
    whole = reduce(add, parts.values(), Parts())
    return {
        "podsMonthly": _cents(monthly(whole.pods)),
        "daemonSetsMonthly": _cents(monthly(whole.daemons)),
        "unrequestedCpuMonthly": _cents(monthly(whole.free_cpu)),
        "unrequestedMemoryMonthly": _cents(monthly(whole.free_memory)),
        "unrequestedAcceleratorsMonthly": _cents(monthly(whole.free_accelerators)),
    }


def _held(constraint: KeptNodes) -> HeldNodes:
    return {
        "rule": constraint.rule,
        "object": constraint.object,
        "message": constraint.message,
        "nodes": len(constraint.nodes),
        "names": list(constraint.nodes[:_MOST_NAMES]),
        "monthly": _cents(monthly(constraint.hourly_usd)),
        "unrequestedMonthly": _cents(monthly(constraint.free_hourly_usd)),
    }


def _spot(analysis: Analysis) -> SpotOption | None:
    if analysis.spot is None:
        return None
    saved = analysis.best_hourly_usd - analysis.spot.hourly_usd
    return {"pods": analysis.spot.pods, "furtherSavingMonthly": _cents(monthly(max(0.0, saved)))}


def _workload(workload: Workload) -> WorkloadCost:
    return {
        "workload": workload.name,
        "pods": workload.pods,
        "requests": _amounts(workload.requests),
        "used": None if workload.used is None else _amounts(workload.used),
        "monthly": _cents(monthly(workload.hourly_usd)),
        "unusedMonthly": _cents(monthly(workload.unused_hourly_usd)),
    }


def _amounts(resources: Resources) -> dict[str, str]:
    return {name: format_amount(name, resources.of(name)) for name in (CPU, MEMORY)}


def _move(move: Proposal, analysis: Analysis) -> SavingMove:
    types = {node.name: f"{node.instance_type} {node.capacity_type}" for node in analysis.nodes}
    launched = [f"{n.request.cheapest.instance_type} {n.request.capacity_type}" for n in move.replacements]
    return {
        "reason": move.reason.value,
        "removed": _alike(types.get(name, "a node of an earlier move") for name in move.sources),
        "nodes": list(move.sources),
        "launched": _alike(launched),
        "pods": len(move.destinations),
        "savingMonthly": _cents(monthly(move.saving_hourly_usd)),
    }


def _alike(kinds: Iterable[str]) -> list[Alike]:
    counts: dict[str, int] = {}
    for kind in kinds:
        counts[kind] = counts.get(kind, 0) + 1
    return [{"kind": kind, "count": number} for kind, number in counts.items()]


def _caveats(analysis: Analysis, spot: str) -> list[str]:
    """Return what the reader must know to judge the figures, as sentences."""
    return [
        text
        for texts in (_of_prices(analysis, spot), _of_plans(analysis), _of_objects(analysis))
        for text in texts
    ]


def _of_selection(selector: str) -> Iterator[str]:
    if selector:
        yield (
            f"Only the nodes that -l {printable(selector)} matches, and their pods, as if there were no others: rules "
            "between these pods and those of other nodes, and free capacity on other nodes, are not taken into account."
        )


def _of_prices(analysis: Analysis, spot: str) -> list[str]:
    sentences = [
        "Prices are AWS list prices of instances: Savings Plans, other discounts, volumes and traffic are not known."
    ]
    has_spot = any(node.price and node.price.estimated for node in analysis.priced)
    if spot != "EC2" and (has_spot or analysis.spot or analysis.whole.estimated_hourly_usd):
        sentences.append(
            "Spot prices are estimated as 35 % of on-demand: with AWS credentials they are read from EC2."
        )
    assumed = sum(node.is_assumed for node in analysis.priced)
    if assumed:
        sentences.append(
            f"{counted(assumed, 'node')} without a label for the capacity type: on-demand is assumed."
        )
    reserved = sum(node.capacity_type == RESERVED for node in analysis.priced)
    if reserved:
        sentences.append(
            f"Capacity reservations count as 0 USD, because they are paid for anyway: {counted(reserved, 'node')}."
        )
    if any(node.owner.software == AUTO_MODE for node in analysis.priced):
        sentences.append("The fee of EKS Auto Mode for each instance is not included.")
    unknown = len(analysis.nodes) - len(analysis.priced)
    if unknown:
        whose = "its" if unknown == 1 else "their"
        sentences.append(
            f"In none of the figures: {counted(unknown, 'node')} of unknown price, and {whose} pods."
        )
    return sentences


def _of_plans(analysis: Analysis) -> list[str]:
    sentences = [
        "Repacked: a plan for all pods at once, whatever delays it (PodDisruptionBudgets, do-not-disrupt).",
        _REACHABLE,
    ]
    foreign = sorted({e.owner.software for e in analysis.priced if not e.owner.is_ours})
    if foreign:
        sentences.append(
            f"nodesmith leaves nodes of others alone ({', '.join(foreign)}): for these, the figures assume that their "
            "pods move to its NodePools and that you scale the groups down."
        )
    if analysis.are_assumed:
        sentences.append(
            "There is no NodePool for nodesmith in the cluster: NodePools like the present nodes are assumed. "
            "--write-nodepools FILE writes them."
        )
    left = min(MOST, analysis.constraints.found) - analysis.constraints.examined
    if left or not analysis.moves.is_finished:
        sentences.append(
            "There was no time for all moves and all costs of constraints: --seconds grants more."
        )
    return sentences


def _of_objects(analysis: Analysis) -> list[str]:
    sentences: list[str] = []
    if analysis.pending:
        sentences.append(f"In none of the figures: {counted(analysis.pending, 'pod')} without a node.")
    if analysis.claims_without_nodes:
        sentences.append(f"Not priced: {counted(analysis.claims_without_nodes, 'NodeClaim')} without a Node.")
    static: Sequence[str] = sorted(analysis.whole.kept)
    if static:
        stay, whose = ("stays as it is", "its") if len(static) == 1 else ("stay as they are", "their")
        sentences.append(
            f"{counted(len(static), 'node')} {stay}: no NodePool can take {whose} pods, or it is static."
        )
    return sentences
