"""`nodesmith plan --consolidate`: which nodes would be removed or replaced. Nothing is changed."""

from __future__ import annotations

import json
import time
from datetime import datetime

import yaml
from rich.console import Console

from nodesmith.decisions.disruption.search.search import propose
from nodesmith.decisions.provisioning import Inputs
from nodesmith_cli.planning.fleet import fleet_of
from nodesmith_cli.planning.moves import moves_json
from nodesmith_cli.planning.movestable import show_moves
from nodesmith_cli.planning.waiting import told
from nodesmith_cli.terminal import console

_STEPS = 200_000
"""The step limit of the search. It is generous, since no tick waits for it."""


def consolidated(inputs: Inputs, now: datetime | None, side: Console, output: str) -> None:
    """Search for moves once, and print them. `now` is None unless the cluster is live."""
    fleet = fleet_of(inputs, now)
    began = time.process_time()
    with told(side, f"evaluating {len(fleet.snapshot.nodes):,} nodes"):
        found = propose(fleet, steps=_STEPS)
    written = moves_json(found, fleet, time.process_time() - began)
    match output:
        case "json":
            print(json.dumps(written, indent=2))
        case "yaml":
            print(yaml.safe_dump(written, sort_keys=False), end="")
        case _:
            show_moves(console(), written)
