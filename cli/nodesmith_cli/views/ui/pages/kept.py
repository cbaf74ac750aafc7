"""Pages about what was decided and what comes: why, next, proof and health."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import fsum
from typing import Any, Protocol

from markupsafe import Markup

from nodesmith.errors import NodesmithError
from nodesmith.model.ledger.ledger import Ledger
from nodesmith_cli.planning.page import alternative_sections
from nodesmith_cli.views.explaining.decision import explain
from nodesmith_cli.views.explaining.decisionpage import decision_cards, decision_sections
from nodesmith_cli.views.top.rows import State
from nodesmith_cli.views.ui.archive import Archive, Decision, ProposedMove, runs_of
from nodesmith_cli.views.ui.findings import Finding, findings
from nodesmith_cli.views.ui.pages.live import listed
from nodesmith_cli.views.ui.riskmap import HOURS, risk_map
from nodesmith_cli.views.ui.samples import FleetSample, Sampler
from nodesmith_cli.views.ui.sources import KeptLedger, Sources

_MOST, _FEW = 50, 20
_SAME_MOVE = timedelta(minutes=30)
"""A move with the same sources that is proposed again within this time is the same move."""
INTERRUPTION_COST_HOURS = 1.0


class EventsOf(Protocol):
    """Reads a pod and its Events."""

    def __call__(self, key: str, now: datetime) -> Iterator[str]:
        """Yield lines about a pod. Raises Rejected or Transient."""


@dataclass(slots=True)
class PageData:
    """The data of all pages. `name` is what the header calls the cluster."""

    name: str
    sampler: Sampler
    archive: Archive
    ledger: KeptLedger
    sources: Sources
    events_of: EventsOf
    _head: tuple[FleetSample, list[Finding]] | None = field(default=None, repr=False)

    def findings(self) -> list[Finding]:
        """Return what is wrong, the worst first."""
        sample = self.sampler.now()
        if self._head is None or self._head[0] is not sample:
            results = findings(
                sample.view, self.sampler.fleet.nodepools(), self.archive, self.ledger.get(), self.notes()
            )
            self._head = sample, results
        return self._head[1]

    def notes(self) -> list[str]:
        """Return what cannot be read, apart from the API server."""
        unreadable = self.archive.unreadable
        note = f"{unreadable} decisions of another release cannot be read, and are left out"
        return [note for note in (self.archive.note, self.ledger.note, note if unreadable else "") if note]

    def head(self) -> dict[str, Any]:
        """Return what the header of every page shows."""
        view = self.sampler.now().view
        return {
            "name": self.name,
            "at": view.at,
            "is_current": view.is_current,
            "badges": {
                "why": len(view.pending),
                "next": len(view.moving),
                "health": sum(finding.is_problem for finding in self.findings()),
            },
        }


def why(data: PageData, words: str) -> dict[str, Any]:
    """Return what the page `why` shows: pending pods by reason, decisions, and the matches of `words`."""
    sample = data.sampler.now()
    decisions = data.archive.decisions
    reasons: dict[str, list[Any]] = {}
    for pod in sample.view.pending:
        reasons.setdefault(pod.reason, []).append(pod)
    groups = sorted(reasons.items(), key=lambda group: (-len(group[1]), group[0]))
    return {
        "view": sample.view,
        "groups": [(reason, pods[:_FEW], len(pods)) for reason, pods in groups[:_FEW]],
        "more_groups": max(0, len(groups) - _FEW),
        "words": words[:200],
        "matches": _matches(data, words[:200].strip().lower()) if words.strip() else None,
        "decisions": runs_of(decision for decision in decisions[::-1] if not decision.is_superseded)[:_MOST],
        "missing": data.sources.missing,
        "is_filled": data.archive.is_filled,
        "staying": [
            listed(row, sample) for row in sample.view.nodes if row.detail and row.state is not State.READY
        ][:_FEW],
    }


def _matches(data: PageData, words: str) -> dict[str, Any]:
    """Return pods, nodes and decisions whose names contain the words."""
    view = data.sampler.now().view
    return {
        "pods": data.sampler.fleet.pods_named(words, data.sampler.clock(), _FEW),
        "nodes": sorted(row.name for row in view.nodes if words in row.name.lower())[:_FEW],
        "decisions": [decision for decision in data.archive.decisions[::-1] if words in decision.id.lower()][
            :_FEW
        ],
    }


def decision_page(data: PageData, id_: str) -> dict[str, Any] | None:
    """Return what the page of a decision shows, or None if there is no such decision."""
    decision = next((decision for decision in data.archive.decisions if decision.id == id_), None)
    if decision is None or data.archive.records is None:
        return None
    record = data.archive.records.read(id_)
    ids = [decision.id for decision in data.archive.decisions]
    place = ids.index(id_)
    plan = record["plan"]
    shapes = data.sources.shapes_of(id_)
    drawn = decision_sections(plan, shapes)
    is_purchase = bool(plan["nodes"] or plan["unplaced"]) and "moves" not in plan
    return {
        "decision": decision,
        "cards": [] if "moves" in plan else decision_cards(plan),
        "lines": list(explain(record)),
        "moves": plan.get("moves") or (),
        "sections": [Markup(section) for section in drawn if section],  # noqa: S704 - its text is escaped
        "is_purchase": is_purchase,
        "without_alternatives": "" if shapes else _NOT_STORED,
        "before": ids[place - 1] if place else "",
        "after": ids[place + 1] if place + 1 < len(ids) else "",
    }


_NOT_STORED = (
    "Its snapshot is not stored, so other plans cannot be made. The run may have failed before it was."
)


def alternatives_page(data: PageData, id_: str) -> dict[str, Any] | None:
    """Return other plans for a decision's pods with their prices, or None if there is no such decision."""
    decision = next((decision for decision in data.archive.decisions if decision.id == id_), None)
    if decision is None or data.archive.records is None:
        return None
    record = data.archive.records.read(id_)
    plan = record["plan"]
    try:
        others = data.sources.alternatives_of(record)
    except NodesmithError as error:
        return {"decision": decision, "sections": [], "problem": str(error)}
    if others is None:
        problem = "Moves are not compared with other plans." if "moves" in plan else _NOT_STORED
        return {"decision": decision, "sections": [], "problem": problem}
    fragments = alternative_sections(plan["priceHourlyUsd"], plan["boundHourlyUsd"], others)
    sections = [Markup(section) for section in fragments if section]  # noqa: S704 - its text is escaped
    return {"decision": decision, "sections": sections, "problem": ""}


def next_(data: PageData) -> dict[str, Any]:
    """Return what the page `next` shows: moves, drains, launches, windows, and back-offs that end."""
    sample, ledger = data.sampler.now(), data.ledger.get()
    now = sample.view.at
    return {
        "view": sample.view,
        "moving": [listed(row, sample) for row in sample.view.moving[:_MOST]],
        "more": max(0, len(sample.view.moving) - _MOST),
        "ledger": ledger,
        "moves": _moves(ledger),
        "backoffs": _backoffs(ledger, now)[:_FEW],
        "prospect": sample.view.prospect,
        "hourly": sample.hourly_usd,
        "missing": data.sources.missing,
    }


def _moves(ledger: Ledger | None) -> list[Any]:
    return sorted(ledger.moves, key=lambda move: (move.is_over, move.stage_since)) if ledger else []


def _backoffs(ledger: Ledger | None, now: datetime) -> list[tuple[str, Any]]:
    """Return the back-offs in effect, the next to end first."""
    if ledger is None:
        return []
    held: list[tuple[str, Any]] = [
        *((str(pool), backoff) for pool, backoff in ledger.unavailable.items()),
        *((f"NodePool {name}", backoff) for name, backoff in ledger.nodepool_backoffs.items()),
        *((f"subnet {name}", backoff) for name, backoff in ledger.subnet_backoffs.items()),
        *(
            (f"{kind.reason} moves of NodePool {kind.nodepool}", backoff)
            for kind, backoff in ledger.move_backoffs.items()
        ),
    ]
    return sorted(
        (entry for entry in held if entry[1].holds(now)), key=lambda entry: (entry[1].until, entry[0])
    )


@dataclass(frozen=True, slots=True)
class Outcome:
    """A proposed move and its outcome: done, under way, proposed, proposed again, or ended otherwise."""

    decision: Decision
    move: ProposedMove
    became: str


def proof(data: PageData) -> dict[str, Any]:
    """Return what the page `proof` shows: the price against baselines, purchases against their bounds, and moves."""
    sample = data.sampler.now()
    prospect, full = sample.view.prospect, sample.on_demand_usd
    baselines = [("All on demand", full)] if full is not None else []
    baselines += [("Now", sample.hourly_usd)]
    if prospect is not None:
        baselines += [
            ("Reachable by moves", prospect.reachable_hourly_usd),
            ("Lower bound", prospect.bound_hourly_usd),
        ]
    most = max((price for _, price in baselines), default=0.0) or 1.0
    carried_out = [decision for decision in data.archive.decisions if not decision.is_superseded]
    bought = [decision for decision in carried_out if decision.bought and not decision.moves]
    moves = outcomes(data.archive)
    return {
        "look": sample,
        "baselines": [(name, price, 100 * price / most) for name, price in baselines],
        "bought": bought[::-1][:_FEW],
        "paid": fsum(decision.price_hourly_usd for decision in bought),
        "bound": fsum(
            min(decision.bound_hourly_usd or decision.price_hourly_usd, decision.price_hourly_usd)
            for decision in bought
        ),
        "purchases": len(bought),
        "moves": moves[:_MOST],
        "done": [move for move in moves if move.became == "done"],
        "saved": fsum(move.move.saving_hourly_usd for move in moves if move.became == "done"),
        "missing": data.sources.missing,
        "since": carried_out[0].at if carried_out else None,
    }


def outcomes(archive: Archive) -> list[Outcome]:
    """Return the moves that searches have proposed, the newest first, each with its outcome.

    A node that is proposed again was not removed by the earlier move, which therefore counts as proposed again.
    """
    decisions = archive.decisions
    last = decisions[-1].at if decisions else None
    histories = {history.name: history for history in archive.histories}
    all_outcomes: list[Outcome] = []
    latest: dict[str, int] = {}
    for decision in decisions:
        for move in decision.moves if not decision.is_superseded else ():
            earlier = {latest[name] for name in move.sources if name in latest}
            if any(_is_same(all_outcomes[number], move, decision) for number in earlier):
                continue
            for number in earlier:
                all_outcomes[number] = replace(all_outcomes[number], became="proposed again")
            latest |= dict.fromkeys(move.sources, len(all_outcomes))
            all_outcomes.append(Outcome(decision, move, _became(move, histories, last)))
    return all_outcomes[::-1]


def _is_same(earlier: Outcome, move: ProposedMove, decision: Decision) -> bool:
    """Return whether a move is an earlier one, which its validation proposes again."""
    return earlier.move.sources == move.sources and decision.at - earlier.decision.at <= _SAME_MOVE


def _became(move: ProposedMove, histories: Mapping[str, Any], last: datetime | None) -> str:
    sources = [history for name in move.sources if (history := histories.get(name)) is not None]
    causes = {history.cause for history in sources if history.cause}
    if causes - {move.reason}:
        return "ended otherwise"
    if all(last is not None and history.seen_at < last for history in sources):
        return "done"
    return "under way" if causes else "proposed"


def health(data: PageData) -> dict[str, Any]:
    """Return what the page `health` shows: findings, the risk map, and how nodes of each NodePool join."""
    sample, ledger = data.sampler.now(), data.ledger.get()
    now = sample.view.at
    rows = risk_map(data.archive.decisions, now)
    return {
        "findings": data.findings(),
        "risks": rows,
        "hours": [now - timedelta(hours=HOURS - 1 - offset) for offset in range(HOURS)],
        "surcharges": _surcharges(ledger, now),
        "joins": sorted(ledger.health.items()) if ledger else [],
        "backoffs": _backoffs(ledger, now)[:_MOST],
        "ledger": ledger,
        "missing": data.sources.missing,
        "is_filled": data.archive.is_filled,
    }


def _surcharges(ledger: Ledger | None, now: datetime) -> Sequence[tuple[str, int]]:
    """Return pools that are bought as if they were more expensive, because EC2 has interrupted nodes there lately."""
    if ledger is None:
        return ()
    surcharges = [
        (str(pool), risk.surcharge_percent(now, INTERRUPTION_COST_HOURS))
        for pool, risk in ledger.risks.items()
    ]
    return sorted((entry for entry in surcharges if entry[1]), key=lambda entry: (-entry[1], entry[0]))[:_FEW]


def stay_lines(data: PageData, name: str) -> list[str]:
    """Return why a node stays, as `nodesmith explain node` says it; a single line with the error if that fails."""
    try:
        return list(data.sources.explain_node(name, data.sampler.clock()))
    except NodesmithError as error:
        return [str(error)]
