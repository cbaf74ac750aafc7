"""The results of the `nodesmith explain` commands as HTML reports."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nodesmith.model.snapshot import Snapshot
from nodesmith_cli.output.reporting.charts import Bar, bars
from nodesmith_cli.output.reporting.frame import Card, figure, page, paragraph, section, table
from nodesmith_cli.output.reporting.markup import Html
from nodesmith_cli.output.reporting.pricescales import money
from nodesmith_cli.planning.alternatives import Alternatives
from nodesmith_cli.planning.page import alternative_sections
from nodesmith_cli.views.explaining.decisionpage import decision_cards, decision_sections
from nodesmith_formats.decisions.summaries import price_and_bound, summary
from nodesmith_formats.wording import counted, moment, some

Report = Mapping[str, Any]
_MOST_BARS, _MOST_POOLS = 15, 50
_DOMAIN = re.compile(r"^[\w.-]+/")
"""The part of a label that a chart has no room for."""
_CONTINUED = " " * 12


def decision_page(record: Report, snapshot: Snapshot | None, others: Alternatives | None) -> Html:
    """Return the report of one decision. Without its snapshot, shapes of pods and alternatives are left out."""
    plan, inputs = record["plan"], record["inputs"]
    shapes = {pod.key: pod.shape for pod in snapshot.pods} if snapshot is not None else {}
    title = f"Decision of {record['concern']} for cluster {record['cluster']}"
    lead = f"{moment(record['at'])}: {summary(record)}."
    is_moving = "moves" in plan
    cards = _move_cards(plan["moves"]) if is_moving else decision_cards(plan)
    first, *more = decision_sections(plan, shapes)
    compared = (
        alternative_sections(plan["priceHourlyUsd"], plan["boundHourlyUsd"], others)
        if others is not None
        else ()
    )
    sections = [*_moves(plan.get("moves", ())), first, *compared, *more, _inputs(record)]
    if record.get("superseded"):
        sections.insert(0, paragraph("Not carried out, because another run decided first.", "note warn"))
    if plan["nodes"] and not is_moving:
        sections.append(section("The price", paragraph(price_and_bound(plan))))
    made = f"Decision {record['id']}, made with catalogue {inputs['catalog']['ref']}."
    return page(title, lead, cards, sections, made)


def _move_cards(moves: Sequence[Report]) -> list[Card]:
    saving = sum(move["savingHourlyUsd"] for move in moves)
    return [
        Card("Moves", f"{len(moves):,}"),
        Card("Saved" if saving >= 0 else "Added", money(abs(saving)), "/hour"),
        Card("Nodes replaced", f"{sum(len(move['sources']) for move in moves):,}"),
        Card("Eviction cost", f"{sum(move['evictionCost'] for move in moves):g}"),
    ]


def _moves(moves: Sequence[Report]) -> Iterator[Html]:
    head = ("Reason", "Removed", "#Launched", "#Saves $/hour", "#Eviction cost", "Why")
    rows = (
        (
            m["reason"],
            some(m["sources"]),
            len(m["replacements"]),
            f"{m['savingHourlyUsd']:,.4f}",
            f"{m['evictionCost']:g}",
            m["message"],
        )
        for m in moves
    )
    yield section("Moves", table(head, rows, "Moves"))


def _inputs(record: Report) -> Html:
    inputs = record["inputs"]
    rows = [
        ("Snapshot of the cluster", moment(inputs["snapshot"]["takenAt"])),
        ("SHA-256 of the inputs", record["inputsHash"]),
        ("Catalogue", f"{inputs['catalog']['ref']} ({inputs['catalog']['region']})"),
        ("Version of the ledger", inputs["ledger"].get("version", 0)),
        ("Steps of the search", f"{record['plan']['steps']:,}"),
        *((f"Time to {name}", f"{ms:,.0f} ms") for name, ms in record["durationsMs"].items()),
    ]
    title = "What it was made from"
    return section(title, table(("What", "Value"), rows, title))


def decisions_page(cluster: str, report: Sequence[Report]) -> Html:
    """Return the report of a cluster's decisions, the newest first."""
    rows = [(decision["id"], decision["summary"]) for decision in reversed(report)]
    shown = section("Decisions", table(("Decision", "What it does"), rows, "Decisions"))
    lead = f"{counted(len(report), 'decision')}, the newest first."
    return page(f"Decisions for cluster {cluster}", lead, [], [shown], "Read from the records of decisions.")


def lines_page(title: str, lines: Sequence[str]) -> Html:
    """Return the report of an explanation. Its first line is the answer."""
    lead, *following = lines or ["nothing was found"]
    rows: list[tuple[str, str]] = []
    for line in following:
        name, _, about = line.strip().partition("  ")
        if line.startswith(_CONTINUED) and rows:
            rows[-1] = (rows[-1][0], f"{rows[-1][1]} {line.strip()}")
        else:
            rows.append((name, about.strip()) if about else ("", name))
    reasons = section("Why", table(("About", "What"), rows, "Why"))
    return page(
        title, _sentence(lead), [], [reasons], "Read from the cluster, or from the records of decisions."
    )


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith(".") else ".")


def nodepools_page(pools: Sequence[Report]) -> Html:
    """Return the report of how NodePools choose instance types."""
    number = counted(len(pools), "NodePool")
    lead = f"{number}: how many instance types each requirement rules out, and how many are left."
    shown = [_pool(pool) for pool in pools[:_MOST_POOLS]]
    more = len(pools) - _MOST_POOLS
    shown += [paragraph(f"and {more:,} more NodePools: see -o json", "dim")] if more > 0 else []
    return page("Choice of instance types", lead, [], shown, "Read from the newest decision.")


def _pool(pool: Report) -> Html:
    if "types" not in pool:
        return section(f"NodePool {pool['nodePool']}", paragraph(f"It is served by {pool['servedBy']}."))
    removals = sorted(pool["removals"], key=lambda removal: -removal["types"])
    rows = [Bar("all instance types", pool["types"], f"{pool['types']:,}", 3)]
    rows += [
        Bar(_DOMAIN.sub("", removal["by"]), removal["types"], f"-{removal['types']:,}", 4)
        for removal in removals[:_MOST_BARS]
    ]
    rows += [Bar("left", pool["left"], f"{pool['left']:,}", 2)]
    notes = [
        pool["obstacle"],
        pool["nodeClassFault"],
        *pool["overlays"],
        *pool["limits"],
        *pool.get("costs", ()),
    ]
    head = ("Condition", "#Rules out", "#Only this one does")
    listed = ((removal["by"], f"{removal['types']:,}", f"{removal['onlyByIt']:,}") for removal in removals)
    title = f"NodePool {pool['nodePool']}"
    drawn = figure(bars(title, rows), name=title)
    return section(
        title, drawn, *(paragraph(note, "note") for note in notes if note), table(head, listed, title)
    )
