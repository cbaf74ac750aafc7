"""The implementation of `nodesmith top`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from nodesmith.errors import Transient
from nodesmith_cli.access.cluster import server_of
from nodesmith_cli.access.selecting import EVERYTHING, Selection
from nodesmith_cli.costs.savings.running import context_name
from nodesmith_cli.output import printing
from nodesmith_cli.views.top.actions import Actions
from nodesmith_cli.views.top.fleet import Fleet
from nodesmith_cli.views.top.plain import data, sentences
from nodesmith_cli.views.top.updates import kept_up_to_date

OK = 0
_FIRST_LOOK_SECONDS = 60.0
_PATIENCE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class TopRequest:
    """What to show. `every` is the interval of plain output in seconds, `refreshes` their number or 0 for no end."""

    kubeconfig: str = ""
    cluster: str = ""
    region: str = ""
    order: str = "name"
    words: str = ""
    every: float = 10.0
    refreshes: int = 0
    compares: bool = True
    only: Selection = EVERYTHING
    """The nodes, by label, and the pending pods, by namespace, that are listed."""


def run(request: TopRequest, output: str, clock: Callable[[], datetime]) -> int:
    """Show the cluster until the user quits, and return the exit status. Raises Rejected or Transient."""
    server = server_of(request.kubeconfig, patience_seconds=_PATIENCE_SECONDS)
    server.get("/version")  # fails at once if the cluster cannot be reached
    fleet = Fleet(request.cluster or context_name(request.kubeconfig), request.only)
    with kept_up_to_date(fleet, server, request.kubeconfig, clock, compares=request.compares):
        if output == "screen":
            from nodesmith_cli.views.top.screen import TopApp

            TopApp(fleet, Actions(server, fleet, request.cluster, request.region), clock, request.order).run()
        else:
            _print(fleet, request, output, clock)
    return OK


def _print(fleet: Fleet, request: TopRequest, output: str, clock: Callable[[], datetime]) -> None:
    _await(fleet)
    refreshes = 0
    while True:
        view = fleet.view(clock())
        if output == "json":
            print(json.dumps(printing.named(data(view, request.order, request.words), "top")), flush=True)
        else:
            print("\n".join(sentences(view, request.order, request.words)), end="\n\n", flush=True)
        refreshes += 1
        if refreshes == request.refreshes:
            return
        time.sleep(request.every)


def _await(fleet: Fleet) -> None:
    """Wait until everything was listed and polled once. Raises Transient if that takes too long."""
    end = time.monotonic() + _FIRST_LOOK_SECONDS
    while not (fleet.is_current and fleet.is_polled):
        if time.monotonic() > end:
            reason = "; ".join(fleet.notes.values()) or "the cluster is too slow"
            raise Transient(f"the cluster could not be read in {_FIRST_LOOK_SECONDS:.0f} s: {reason}")
        time.sleep(0.05)
    sys.stdout.flush()
