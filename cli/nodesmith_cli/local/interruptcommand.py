"""What `nodesmith local interrupt` does: let EC2 announce, to a local system that runs, that it takes an instance.

What takes seconds to import is imported once it is known that a system runs.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from nodesmith.errors import Rejected, Transient
from nodesmith.model.durations import duration_seconds
from nodesmith.model.labels import CAPACITY_TYPE, INSTANCE_TYPE, SPOT, ZONE
from nodesmith.model.notices import WARNING
from nodesmith_cli.local.reaching import Reached, default_kubeconfig, reach

if TYPE_CHECKING:
    from nodesmith_cli.explainnode import Subject

_OK = 0
_DURATION = re.compile(r"(?:\d+[ms])+", re.ASCII)


def interrupt(node: str, *, within: str, kubeconfig: Path | None) -> int:
    """Send the warning and say what comes. Raises Rejected, with what would be right."""
    ahead = _ahead(within)
    system = reach(kubeconfig or default_kubeconfig())
    from nodesmith_cli.local.cloud.announcing import announce_interruption

    now = system.clock.now()
    victim = _victim(node, system, now)
    instance = next(name for name in victim.names if name.startswith("i-"))
    announce_interruption(system.client("events"), system.region, instance, now + ahead - WARNING)
    print(f"EC2 takes {instance} at {now + ahead:%H:%M:%S} UTC: Node {victim.name}, {_kind(victim)}")
    print(f"  nodesmith status --kubeconfig {system.kubeconfig}   # what becomes of it")
    return _OK


def _ahead(text: str) -> timedelta:
    if not _DURATION.fullmatch(text):
        raise Rejected(f"--in {text!r}: write a duration such as 30s or 2m")
    ahead = timedelta(seconds=duration_seconds(text) or 0)
    if ahead > WARNING:
        raise Rejected(f"--in {text}: EC2 warns two minutes ahead, never more: give 2m or less")
    return ahead


def _victim(name: str, system: Reached, now: datetime) -> Subject:
    """Find a node by its name (also as `local up` shows it, cut short), its NodeClaim's or its instance's id."""
    from nodesmith.adapters.observer import Observer
    from nodesmith.observation.wire import decode, encode
    from nodesmith_cli.explainnode import label_of, named, nobody, subjects
    from nodesmith_cli.planning.cluster import server_of

    try:
        observed = Observer(server_of(str(system.kubeconfig))).observe()
    except Transient as error:
        raise Rejected(
            f"{system.kubeconfig}: nothing runs any more where it leads: start `nodesmith local up` again ({error})"
        ) from None
    snapshot = decode(encode("local", now, observed))
    short = [each for each in subjects(snapshot, now) if each.name.partition(".")[0] == name]
    found = named(name, snapshot, now) or (short[0] if len(short) == 1 else None)
    if found is None:
        raise Rejected(nobody(name, snapshot, now))
    if label_of(found, CAPACITY_TYPE) != SPOT:
        sold = label_of(found, CAPACITY_TYPE) or "not nodesmith's"
        raise Rejected(f"Node {found.name}: it is {sold}, and EC2 interrupts spot instances only")
    if found.node is None:
        raise Rejected(f"NodeClaim {found.name}: its instance has not joined yet: wait until it is a Node")
    return found


def _kind(subject: Subject) -> str:
    from nodesmith_cli.explainnode import label_of

    return f"spot {label_of(subject, INSTANCE_TYPE)} in {label_of(subject, ZONE)}"
