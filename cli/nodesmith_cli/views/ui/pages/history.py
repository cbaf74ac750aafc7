"""The page `history`: the fleet at any moment, from decisions and from samples of this run."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from datetime import datetime
from io import StringIO
from typing import Any

from markupsafe import Markup

from nodesmith.model.apimachinery.times import parse_time
from nodesmith_cli.output.reporting.timelines import timeline
from nodesmith_cli.views.ui.archive import Decision, runs_of
from nodesmith_cli.views.ui.charts import drawn_histories, line
from nodesmith_cli.views.ui.fleetmap import laid_out
from nodesmith_cli.views.ui.pages.kept import PageData
from nodesmith_cli.views.ui.samples import Moment

_AROUND = 8
"""How many decisions before and after a moment are listed."""
_CSV = ("at", "nodes", "usd_per_hour", "pending_pods", "decision", "summary")


def moments_of(data: PageData) -> list[Moment]:
    """Return all moments, oldest first: those of decisions, and those of this run."""
    decided = [_moment(decision) for decision in data.archive.decisions if not decision.is_superseded]
    return sorted((*decided, *data.sampler.moments), key=lambda moment: moment.at)


def _moment(decision: Decision) -> Moment:
    return Moment(
        decision.at, decision.nodes, decision.hourly_usd, decision.unplaced, decision.tiles, decision.id
    )


def history(data: PageData, at: str) -> dict[str, Any]:
    """Return what the page shows with the scrubber at a moment, given by number or as a time; the last by default."""
    moments = moments_of(data)
    number = _number(at, moments)
    chosen = moments[number] if moments else None
    decisions = [decision for decision in data.archive.decisions if not decision.is_superseded]
    after = sum(decision.at <= chosen.at for decision in decisions) if chosen else 0
    price = line([(moment.at, moment.hourly_usd) for moment in moments], "${:g}")
    nodes = line([(moment.at, float(moment.nodes)) for moment in moments])
    begins, ends = (moments[0].at, moments[-1].at) if moments else (None, None)
    return {
        "moments": len(moments),
        "number": number,
        "moment": chosen,
        "begins": begins,
        "ends": ends,
        "x": _x(chosen, begins, ends),
        "columns": laid_out(chosen.tiles) if chosen else [],
        "price": price,
        "nodes": nodes,
        "around": runs_of(decisions[max(0, after - _AROUND) : after + _AROUND][::-1]),
        "drawn": _timeline(data, begins, ends),
        "is_last": number >= len(moments) - 1,
    }


def _number(at: str, moments: Sequence[Moment]) -> int:
    """Return the number of a moment. Text that names none means the last."""
    last = max(0, len(moments) - 1)
    if at.isascii() and at.isdigit() and len(at) < 9:
        return min(int(at), last)
    try:
        time = parse_time(at) if at else None
    except ValueError:
        time = None
    if time is None:
        return last
    return max(0, sum(moment.at <= time for moment in moments) - 1)


def _x(chosen: Moment | None, begins: datetime | None, ends: datetime | None) -> float:
    if chosen is None or begins is None or ends is None or ends <= begins:
        return 100.0
    return 100 * (chosen.at - begins).total_seconds() / (ends - begins).total_seconds()


def _timeline(data: PageData, begins: datetime | None, ends: datetime | None) -> Markup | None:
    """Return the drawing of nodes that came and went."""
    decisions = data.archive.decisions
    if begins is None or ends is None or not decisions:
        return None
    histories = drawn_histories(data.archive.histories, begins, ends, decisions[-1].at)
    longest = (ends - begins).total_seconds()
    return Markup(timeline("Nodes over time", histories, longest)) if histories and longest > 0 else None  # noqa: S704


def history_csv(data: PageData) -> str:
    """Return all moments as CSV with a heading."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_CSV)
    writer.writerows(_lines(data))
    return text.getvalue()


def _lines(data: PageData) -> Iterator[tuple[object, ...]]:
    summaries = {decision.id: decision.summary for decision in data.archive.decisions}
    for moment in moments_of(data):
        hourly, summary = round(moment.hourly_usd, 6), summaries.get(moment.decision, "")
        yield moment.at.isoformat(), moment.nodes, hourly, moment.pending, moment.decision, summary
