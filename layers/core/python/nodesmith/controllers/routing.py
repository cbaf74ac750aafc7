"""The story of routing: each event is looked up once, and passed on as it is to the clusters that it concerns.

EC2 does not say whose an instance is. What concerns no cluster is counted and dropped here, so that no cluster is woken
by what others do in the same account.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from nodesmith.controllers.letters import Letter, Report
from nodesmith.errors import Rejected, Transient
from nodesmith.model.ec2events import read_event
from nodesmith.model.notices import Notice
from nodesmith.regionports import Post, Routes


@dataclass(frozen=True, slots=True)
class Routing:
    """What a run needs."""

    routes: Routes
    post: Post
    clock: Callable[[], datetime]


def route(run: Routing, letters: Sequence[Letter]) -> Report:
    """Pass letters on, each cluster's together. Those that could not be looked up or passed on are to come again."""
    report, now = Report(), run.clock()
    sacks: dict[str, list[Letter]] = defaultdict(list)
    for letter in letters:
        try:
            clusters = {
                c for n in read_event(letter.event, letter.account, now) for c in _clusters(run.routes, n)
            }
        except Rejected as error:
            report.rejected.append(str(error))
        except Transient:
            report.failed.append(letter.id)
        else:
            report.counts["NoticesRouted" if clusters else "NoticesOfOthers"] += 1
            for cluster in clusters:
                sacks[cluster].append(letter)
    for cluster in sorted(sacks):
        _deliver(run.post, cluster, sacks[cluster], report)
    report.failed = sorted(set(report.failed))
    return report


def _clusters(routes: Routes, notice: Notice) -> frozenset[str]:
    if notice.reservation_id:
        return routes.of_reservation(notice.reservation_id)
    return routes.of_instance(notice.instance_id)


def _deliver(post: Post, cluster: str, sack: Sequence[Letter], report: Report) -> None:
    """Hand one cluster its letters; what concerns another as well has reached that one, and is doubled if it fails."""
    try:
        lost = post.deliver(cluster, [letter.event for letter in sack])
    except Rejected as error:
        report.rejected.append(str(error))
    except Transient:
        report.failed += [letter.id for letter in sack]
    else:
        report.failed += [sack[number].id for number in lost]
