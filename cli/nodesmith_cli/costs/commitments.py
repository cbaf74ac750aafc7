"""Commitments for the commands: read from a file or a bucket, and shown with their use, coverage and end."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import yaml

from nodesmith.decisions.provisioning import Inputs, PlannedNode
from nodesmith.decisions.scheduling.offerings.commitments import Applied, applied_now, on_demand_prices
from nodesmith.errors import Rejected
from nodesmith.keys import commitments_key
from nodesmith.model.apimachinery.problems import Problem
from nodesmith.model.costs.commitmentsettings import parse_listed
from nodesmith.model.ec2.catalog import Catalog, InstanceFacts
from nodesmith.model.ledger.commitments import (
    EXPIRING,
    NO_COMMITMENTS,
    Commitment,
    CommitmentBook,
    CommitmentPool,
    Commitments,
    read_book,
)
from nodesmith.model.ledger.ledger import Ledger
from nodesmith_formats.wording import counted

Report = Mapping[str, Any]
_OLD = timedelta(hours=3)


def commitments_in(file: str, catalog: Catalog, now: datetime) -> Commitments:
    """Return the commitments that a file lists. Raises Rejected with all of its problems."""
    commitments, problems = listed_in(file, catalog)
    if problems:
        raise Rejected(f"--commitments {file}: " + "; ".join(map(str, problems)))
    return Commitments(CommitmentBook(now, tuple(commitments), vcpus=_vcpus(catalog)))


def listed_in(
    file: str, catalog: Catalog, now: datetime | None = None
) -> tuple[list[Commitment], list[Problem]]:
    """Return the commitments in a file (JSON or YAML), and what is wrong with the others. Raises Rejected.

    With `now`, those that have expired are wrong.
    """
    try:
        entries = yaml.safe_load(Path(file).read_text())
    except OSError as error:
        raise Rejected(f"--commitments {file}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise Rejected(f"--commitments {file}: neither JSON nor YAML: {error}") from None
    listed, problems = parse_listed(_dated(entries), now)
    prices = {kind: price for (kind, _), price in sorted(on_demand_prices(catalog).items())}
    made = [rule.commitment(prices, _vcpus(catalog)) for rule in listed]
    commitments = [result for result in made if isinstance(result, Commitment)]
    return commitments, [*problems, *(result for result in made if isinstance(result, Problem))]


def _dated(entries: Any) -> Any:
    """Return the entries with times as text, which YAML reads as times."""
    if not isinstance(entries, list):
        return entries
    return [
        {key: value.isoformat() if isinstance(value, datetime) else value for key, value in entry.items()}
        if isinstance(entry, dict)
        else entry
        for entry in entries
    ]


def _vcpus(catalog: Catalog) -> dict[str, int]:
    return {
        name: facts.vcpus
        for name, facts in catalog.facts.items()
        if isinstance(facts, InstanceFacts) and name.endswith(".metal")
    }


class ObjectReader(Protocol):
    """Anything that returns objects by key."""

    def get(self, key: str) -> bytes | None: ...


def commitments_of(region: str, blobs: ObjectReader | None) -> Commitments:
    """Return the commitments that the catalog function last read; NO_COMMITMENTS if the bucket has none."""
    data = blobs.get(commitments_key(region)) if blobs is not None else None
    if data is None:
        return NO_COMMITMENTS
    try:
        return Commitments(read_book(json.loads(data)))
    except (KeyError, TypeError, ValueError) as error:
        raise Rejected(f"{commitments_key(region)}: cannot be read ({error!r})") from error


def with_commitments(inputs: Inputs, commitments: Commitments) -> Inputs:
    """Return the inputs with these commitments."""
    return replace(inputs, ledger=replace(inputs.ledger, commitments=commitments))


def commitments_report(ledger: Ledger, catalog: Catalog, now: datetime) -> dict[str, Any] | None:
    """Return the use of commitments as JSON data, or None if there are neither commitments nor faults.

    `coverage` is the share of the price of all on-demand capacity that commitments pay for.
    """
    book = ledger.commitments.book
    applied = applied_now(ledger, catalog, now)
    if applied is None and not book.faults:
        return None
    pools = applied.pools if applied is not None else ()
    total = applied.covered_hourly_usd + applied.uncovered_hourly_usd if applied is not None else 0.0
    return {
        "readAt": book.read_at.isoformat(),
        "isOld": now - book.read_at > _OLD,
        "pools": [_pool(pool, applied, book, now) for pool in pools if applied is not None],
        "coverage": round(applied.covered_hourly_usd / total, 4) if applied is not None and total else None,
        "uncoveredHourly": round(applied.uncovered_hourly_usd, 6) if applied is not None else 0.0,
        "faults": list(book.faults),
    }


def _pool(pool: CommitmentPool, applied: Applied, book: CommitmentBook, now: datetime) -> dict[str, Any]:
    members = [
        commitment
        for commitment in book.commitments
        if commitment.pool_name() == pool.name and commitment.ends > now
    ]
    used = pool.amount - applied.left[pool.name]
    soon = sorted(
        (commitment for commitment in members if commitment.ends - now <= EXPIRING),
        key=lambda commitment: commitment.ends,
    )
    return {
        "name": pool.name,
        "kind": pool.kind.value,
        "commitments": [commitment.id for commitment in members],
        "hourly": round(sum(commitment.hourly_usd for commitment in members), 6),
        "amount": pool.in_words(pool.amount),
        "unused": pool.in_words(applied.left[pool.name]),
        "utilization": round(used / pool.amount, 4) if pool.amount else None,
        "ends": min(commitment.ends for commitment in members).isoformat(),
        "endingSoon": {commitment.id: commitment.ends.isoformat() for commitment in soon},
    }


def covered_hourly_usd(inputs: Inputs) -> float:
    """Return the on-demand price of the running capacity that commitments pay for."""
    applied = applied_now(inputs.ledger, inputs.catalog, inputs.now)
    return applied.covered_hourly_usd if applied is not None else 0.0


def lines_of(report: Report) -> Iterator[str]:
    """Yield the use of commitments in lines for people."""
    pools: Sequence[Report] = report["pools"]
    if pools:
        coverage = (
            "" if report["coverage"] is None else f", {report['coverage']:.0%} of on-demand use covered"
        )
        suffix = f" (${report['uncoveredHourly']:.4f}/hour is not)" if report["uncoveredHourly"] else ""
        yield f"{counted(len(pools), 'commitment')}{coverage}{suffix}"
    width = max((len(pool["name"]) for pool in pools), default=0)
    for pool in pools:
        used = "unused" if not pool["utilization"] else f"{pool['utilization']:.0%} used"
        yield f"  {pool['name']:<{width}}  {used:>9}  {pool['unused']} left of {pool['amount']} ({pool['kind']})"
        for name, ends in pool["endingSoon"].items():
            yield f"  {'':<{width}}  {name} ends at {ends}"
    if report["isOld"]:
        yield f"  commitments were last read at {report['readAt']}"
    for fault in report["faults"]:
        yield f"  commitments could not be read: {fault}"


def covered_of(
    instance_type: str, zone: str, ledger: Ledger, catalog: Catalog, now: datetime
) -> dict[str, Any] | None:
    """Return the share of a type's on-demand instances in a zone that commitments pay for; None without commitments.

    AWS does not say which instance a commitment pays for, and all of them cost the same.
    """
    applied = applied_now(ledger, catalog, now)
    if applied is None:
        return None
    share = applied.share_of(instance_type, zone)
    by = {
        name: round(count, 4) for name, count in sorted(applied.paid.get((instance_type, zone), {}).items())
    }
    return {"share": round(share, 4), "running": applied.usage.get((instance_type, zone), 0.0), "by": by}


def covered_line(report: Report) -> str:
    """Return the data of `covered_of` in a sentence."""
    if not report["by"]:
        return "no commitment pays for it"
    pays = "pays" if len(report["by"]) == 1 else "pay"
    return f"{', '.join(report['by'])} {pays} for {report['share']:.0%} of {report['running']:g} such nodes"


def paid_lines(nodes: Sequence[PlannedNode]) -> Iterator[str]:
    """Yield a line for each pool of commitments that pays for planned nodes."""
    planned_nodes: dict[str, list[PlannedNode]] = {}
    for node in nodes:
        if node.request.cheapest.commitment:
            planned_nodes.setdefault(node.request.cheapest.commitment, []).append(node)
    for name, paid in sorted(planned_nodes.items()):
        listed = sum(node.claim.price_hourly_usd for node in paid)
        unpaid = sum(node.price_hourly_usd for node in paid)
        suffix = f", of which ${unpaid:.4f}/hour remain to be paid" if unpaid else ""
        yield f"{name} pays for {counted(len(paid), 'node')} at ${listed:.4f}/hour on demand{suffix}"
