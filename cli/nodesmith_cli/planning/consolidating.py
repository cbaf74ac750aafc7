"""`nodesmith plan --consolidate`: which nodes would be removed or replaced. Nothing is changed."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from rich.console import Console

from nodesmith.decisions.disruption.search.search import propose
from nodesmith.decisions.provisioning import Inputs
from nodesmith_cli.output.printing import print_data
from nodesmith_cli.output.progress import progress
from nodesmith_cli.output.terminal import console
from nodesmith_cli.planning.ledger import fleet_of
from nodesmith_cli.planning.moves import moves_json, show_moves

_STEPS = 200_000
"""The step limit of the search. It is generous, since no tick waits for it."""


def consolidated(inputs: Inputs, now: datetime | None, messages: Console, output: str) -> None:
    """Search for moves once, and print them. `now` is None unless the cluster is live."""
    fleet = fleet_of(inputs, now)
    began = time.process_time()
    number = len(fleet.snapshot.nodes)
    with progress(f"evaluating {number:,} nodes", to=messages, key="consolidate", size=number):
        proposals = propose(fleet, steps=_STEPS)
    report = moves_json(proposals, fleet, time.process_time() - began)
    match output:
        case "name":
            for move in report["moves"]:
                for source in move["sources"]:
                    print(f"nodeclaim/{source['nodeClaim']}")
        case "html":
            from nodesmith_cli.output.reporting.delivery import deliver
            from nodesmith_cli.planning.page import moves_page

            deliver(moves_page(report, now or datetime.now(UTC)), "moves")
        case "table" | "wide":
            show_moves(console(), report, is_wide=output == "wide")
        case _:
            print_data(report, output, "moves")
