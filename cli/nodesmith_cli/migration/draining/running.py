"""A drain's surroundings, its limits and results, and how it waits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeVar

from nodesmith.adapters.aws.calls import EXPIRED
from nodesmith.errors import Conflict, Transient
from nodesmith.model.ec2.catalog import Catalog
from nodesmith_cli.migration.draining.assessment import GroupAssessment, nodes_of, seen_of, with_room
from nodesmith_cli.migration.draining.groups import Groups, NodeGroup
from nodesmith_cli.migration.draining.objects import Objects
from nodesmith_formats.kubernetes.objects import name_of

T = TypeVar("T")
POLL = timedelta(seconds=3)
_UPDATED_WITHIN = timedelta(minutes=10)
"""How long EKS may take to update a node group."""
_NOT_GRANTED = EXPIRED | {"Forbidden", "Unauthorized"}
"""Errors that last until the user does something, such as logging in again."""
_RETRIES = 20
"""The most consecutive errors that may pass."""
SHOWN = 5


class State(StrEnum):
    """How far a group's drain is."""

    UNTOUCHED = "untouched"
    HINDERED = "hindered"
    DRAINING = "draining"
    DRAINED = "drained"
    ROLLED_BACK = "rolled back"
    RESTORED = "restored"


@dataclass(frozen=True, slots=True)
class Rules:
    """The limits of a drain: nodes at once (a number or a percentage of the group), time for each, and failures."""

    at_once: str = "1"
    timeout: timedelta = timedelta(minutes=15)
    failures: int = 3

    def nodes_at_once(self, size: int) -> int:
        """Return how many nodes of a group of this size are drained at a time, at least one."""
        share = self.at_once.removesuffix("%")
        return max(1, int(share) * size // 100 if share != self.at_once else int(share))


USUAL = Rules()


@dataclass(frozen=True, slots=True)
class Drain:
    """A cluster and what surrounds it. `say` is called with each line of progress, `ask` with each question."""

    groups: Groups
    objects: Objects
    catalog: Catalog
    clock: Callable[[], datetime]
    sleep: Callable[[float], None]
    say: Callable[[str], None]
    ask: Callable[[str], bool]
    rules: Rules = USUAL


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome for a group. `messages` name the remaining work, and `seen` is the group afterwards."""

    state: State
    seen: GroupAssessment
    messages: tuple[str, ...] = ()


def assess_group(run: Drain, name: str, *, is_planned: bool = True) -> GroupAssessment:
    """Return a group with what keeps it from being drained. Raises Rejected, Transient, Denied."""
    group = run.groups.read(name)
    nodes = nodes_of(group, run.objects.nodes())
    snapshot = run.objects.looked_at([name_of(node) for node in nodes.values()])
    group_assessment = seen_of(group, nodes, snapshot, run.objects.autoscalers(), run.clock())
    return (
        with_room(group_assessment, run.objects.documents(), run.catalog, run.clock())
        if is_planned
        else group_assessment
    )


def state_of(group: NodeGroup) -> State:
    """Return how far a group's drain is, by its tag and its instances."""
    if group.before is None:
        return State.UNTOUCHED
    return State.DRAINING if group.instances or group.size.desired else State.DRAINED


def settled(run: Drain, name: str) -> NodeGroup:
    """Return a group once EKS does not update it any more."""
    until(run, lambda: not run.groups.read(name).is_busy, f"EKS still updates group {name}")
    return run.groups.read(name)


def until(run: Drain, is_so: Callable[[], bool], reason: str) -> None:
    """Wait until a condition holds. Raises Transient with `reason` after ten minutes."""
    end = run.clock() + _UPDATED_WITHIN
    while not is_so():
        if run.clock() >= end:
            raise Transient(f"{reason} after ten minutes: run the command again", "Timeout")
        run.sleep(POLL.total_seconds())


def with_retries(run: Drain, step: Callable[[], T]) -> T:
    """Return what a step returns. Errors that may pass are retried, some times in a row, but no missing right."""
    for _ in range(_RETRIES - 1):
        try:
            return step()
        except (Transient, Conflict) as error:
            if isinstance(error, Transient) and error.code in _NOT_GRANTED:
                raise
            run.sleep(POLL.total_seconds())
    return step()
