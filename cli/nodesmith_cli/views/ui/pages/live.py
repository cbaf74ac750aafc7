"""Pages about the cluster as it is now: the fleet, one node, one pod."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from nodesmith.errors import NodesmithError
from nodesmith_cli.views.explaining.pod import Search
from nodesmith_cli.views.explaining.pod import lines as pod_lines
from nodesmith_cli.views.explaining.pod import report_of as pod_report
from nodesmith_cli.views.top.rows import SORTS, NodeRow, State, age_seconds, chosen, seconds_left, totals
from nodesmith_cli.views.ui.fleetmap import laid_out
from nodesmith_cli.views.ui.samples import Sampler

if TYPE_CHECKING:
    from nodesmith_cli.views.ui.pages.kept import PageData

ROWS = 25
_FEW = 5
_SEARCHED = 200
"""How many decisions are searched for one that mentions a pod."""


@dataclass(frozen=True, slots=True)
class NodeQuery:
    """A query about the table of nodes."""

    words: str = ""
    order: str = "price"
    is_reversed: bool = False
    zone: str = ""
    kind: str = ""
    sold: str = ""
    state: str = ""
    page: int = 1

    def query(self, **changes: Any) -> Mapping[str, Any]:
        """Return the query of a link with some fields changed. If other fields than the page change, the page is 1."""
        changed = replace(self, **({"page": 1} | changes))
        return {
            "q": changed.words,
            "sort": changed.order if changed.order != "price" else "",
            "reverse": "1" if changed.is_reversed else "",
            "zone": changed.zone,
            "type": changed.kind,
            "sold": changed.sold,
            "state": changed.state,
            "page": changed.page if changed.page > 1 else "",
        }

    @property
    def is_filtered(self) -> bool:
        """Return whether some nodes may be left out."""
        return bool(self.words or self.zone or self.kind or self.sold or self.state)


@dataclass(frozen=True, slots=True)
class ListedNode:
    """A node of the table, with what depends on the time."""

    row: NodeRow
    age_seconds: int
    seconds_left: int | None


def now_page(sampler: Sampler, query: NodeQuery) -> dict[str, Any]:
    """Return what the page `now` shows."""
    sample = sampler.now()
    view = sample.view
    query = query if query.order in SORTS else replace(query, order="price")
    rows = chosen(_filtered(view.nodes, query), query.order, query.words, is_reversed=query.is_reversed)
    pages = max(1, -(-len(rows) // ROWS))
    number = min(max(1, query.page), pages)
    shown = rows[(number - 1) * ROWS : number * ROWS]
    return {
        "look": sample,
        "view": view,
        "columns": laid_out(sample.tiles),
        "states": totals(view.nodes),
        "pending": view.pending[:_FEW],
        "moving": [listed(row, sample) for row in view.moving[:_FEW]],
        "rows": [listed(row, sample) for row in shown],
        "found": len(rows),
        "asked": replace(query, page=number),
        "pages": pages,
        "orders": tuple(SORTS),
        "settled": (State.READY,),
    }


def _filtered(rows: tuple[NodeRow, ...], query: NodeQuery) -> list[NodeRow]:
    return [
        row
        for row in rows
        if (not query.zone or row.zone == query.zone)
        and (not query.kind or row.instance_type == query.kind)
        and (not query.sold or row.capacity_type == query.sold)
        and (not query.state or row.state == query.state)
    ]


def listed(row: NodeRow, sample: Any) -> ListedNode:
    """Return a row with its age and the time that it has left."""
    return ListedNode(row, age_seconds(row, sample.view.at), seconds_left(row, sample.view.at))


def node_page(data: PageData, name: str) -> dict[str, Any] | None:
    """Return what the page of a node shows, or None if there is no such node."""
    sample = data.sampler.now()
    row = next((node for node in sample.view.nodes if node.name == name), None)
    if row is None:
        return None
    pods = data.sampler.fleet.pods_on(name, sample.view.at)
    history = next(
        (candidate for candidate in data.archive.histories if name in (candidate.node, candidate.name)), None
    )
    return {
        "node": listed(row, sample),
        "pods": pods[:200],
        "left_out": max(0, len(pods) - 200),
        "life": history,
    }


def pod_page(data: PageData, key: str) -> dict[str, Any]:
    """Return what the page of a pod shows: its state and Events, and the newest decision that mentions it."""
    now = data.sampler.clock()
    try:
        events, problem = list(data.events_of(key, now)), ""
    except NodesmithError as error:
        events, problem = [], str(error)
    report = _decided(data, key)
    return {
        "key": key,
        "why": data.sampler.fleet.reason_of(key),
        "events": [line for line in events if line],
        "problem": problem,
        "decided": list(pod_lines(report)) if report else [],
        "decision": report["decision"] if report else "",
    }


def _decided(data: PageData, key: str) -> dict[str, Any] | None:
    """Return what the newest decision says about a pod, None if none mentions it or none can be read."""
    records = data.archive.records
    if records is None:
        return None
    search = Search(key)
    newest = [decision.id for decision in data.archive.decisions[: -_SEARCHED - 1 : -1]]
    try:
        search.search_records(records.read(decision) for decision in newest)
        return pod_report(search, None, data.sampler.clock())
    except (NodesmithError, KeyError, TypeError, ValueError):
        return None
