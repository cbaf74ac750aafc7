"""`nodesmith local interrupt`: announce to a running local system that EC2 reclaims an instance.

Slow imports happen only after a running system has been found.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from nodesmith.errors import Rejected, Transient
from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, INSTANCE_TYPE, SPOT, ZONE
from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith.model.apimachinery.times import duration_seconds
from nodesmith.model.ec2.notices import WARNING
from nodesmith_formats.localsystem.reaching import Reached, default_kubeconfig, reach

if TYPE_CHECKING:
    from nodesmith.model.snapshot import Snapshot
    from nodesmith_cli.views.explaining.node import Subject

_OK, _SHOWN = 0, 10
_DURATION = re.compile(r"(?:\d+[ms])+", re.ASCII)


def interrupt(node: str, *, within: str, kubeconfig: Path | None, context: str = "") -> int:
    """Send the warning and print what follows. Raises Rejected with the remedy."""
    ahead = _ahead(within)
    system = reach(kubeconfig or default_kubeconfig())
    contexts = contexts_of(system, context)
    from nodesmith_local.aws.instances.eventbus import announce_interruption

    now = system.clock.now()
    home, victim = _victim(node, system, contexts, now)
    instance = next(name for name in victim.names if name.startswith("i-"))
    announce_interruption(system.client("events"), system.region, instance, now + ahead - WARNING)
    several = len(system.clusters) > 1
    whose = f" of cluster {system.clusters[home]}" if several else ""
    print(
        f"EC2 reclaims {instance} at {now + ahead:%H:%M:%S} UTC: Node {victim.name}{whose}, {_kind(victim)}"
    )
    status = f"nodesmith status --kubeconfig {system.kubeconfig}"
    if several:
        status = f"KUBECONFIG={system.kubeconfig} nodesmith status --kubeconfig {home}"
    print(f"  {status}   # shows what happens next")
    return _OK


def contexts_of(system: Reached, context: str) -> Sequence[str]:
    """Return the contexts of the clusters to search. Raises Rejected."""
    if context and context not in system.clusters:
        hint = did_you_mean(context, system.clusters) or f", there is {', '.join(system.clusters)}"
        raise Rejected(f"--context {context}: no context of {system.kubeconfig}{hint}")
    return [context] if context else list(system.clusters)


def _ahead(text: str) -> timedelta:
    if not _DURATION.fullmatch(text):
        raise Rejected(f"--in {text!r}: write a duration such as 30s or 2m")
    ahead = timedelta(seconds=duration_seconds(text) or 0)
    if ahead > WARNING:
        raise Rejected(f"--in {text}: EC2 warns at most two minutes ahead: use 2m or less")
    return ahead


def _victim(name: str, system: Reached, contexts: Sequence[str], now: datetime) -> tuple[str, Subject]:
    """Find a node by its name, its shortened name as in `local up`, its NodeClaim's name or its instance's id.

    Return its cluster's context and the node. Raises Rejected.
    """
    seen = {context: _snapshot(system, context, now) for context in contexts}
    found = {
        context: subject
        for context, snapshot in seen.items()
        if (subject := _subject(name, snapshot, now)) is not None
    }
    if not found:
        raise Rejected("; ".join(_unknown(name, snapshot, now) for snapshot in seen.values()))
    if len(found) > 1:
        raise Rejected(f"{name}: {' and '.join(found)} have a node with that name: choose one with --context")
    ((home, subject),) = found.items()
    _require_spot_node(subject)
    return home, subject


def _unknown(name: str, snapshot: Snapshot, now: datetime) -> str:
    """Return the message for an unknown node: with similar names, else with those of nodes that can be interrupted."""
    from nodesmith_cli.views.explaining.node import label_of, subjects, unknown_node

    message = unknown_node(name, snapshot, now)
    spot = sorted(
        subject.name
        for subject in subjects(snapshot, now)
        if subject.node and label_of(subject, CAPACITY_TYPE) == SPOT
    )
    if message.endswith("?"):
        return message
    return f"{message}; spot nodes: {', '.join(spot[:_SHOWN]) or 'none'}{', …' if len(spot) > _SHOWN else ''}"


def _subject(name: str, snapshot: Snapshot, now: datetime) -> Subject | None:
    from nodesmith_cli.views.explaining.node import named, subjects

    short = [subject for subject in subjects(snapshot, now) if subject.name.partition(".")[0] == name]
    return named(name, snapshot, now) or (short[0] if len(short) == 1 else None)


def _snapshot(system: Reached, context: str, now: datetime) -> Snapshot:
    from nodesmith.adapters.kubernetes.cluster import Observer
    from nodesmith.observation.decoding import decode, encode
    from nodesmith_cli.access.cluster import server_of

    try:
        observed = Observer(server_of(context, str(system.kubeconfig))).observe()
    except Transient as error:
        raise Rejected(
            f"{system.kubeconfig}: no cluster runs at its address any more: start `nodesmith local up` again ({error})"
        ) from None
    return decode(encode(system.clusters[context], now, observed))


def _require_spot_node(subject: Subject) -> None:
    """Raise Rejected for a node that EC2 does not interrupt."""
    from nodesmith_cli.views.explaining.node import label_of

    if label_of(subject, CAPACITY_TYPE) != SPOT:
        sold = label_of(subject, CAPACITY_TYPE) or "not nodesmith's"
        raise Rejected(f"Node {subject.name}: it is {sold}, and EC2 interrupts only spot instances")
    if subject.node is None:
        raise Rejected(f"NodeClaim {subject.name}: its instance has not joined yet: wait until it is a Node")


def _kind(subject: Subject) -> str:
    from nodesmith_cli.views.explaining.node import label_of

    return f"spot {label_of(subject, INSTANCE_TYPE)} in {label_of(subject, ZONE)}"
