"""One view of a cluster as pure values: a row for each node, the pending pods, and totals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from math import fsum
from typing import Any

from nodesmith_formats.prices import HOURS_A_MONTH, Price


class State(StrEnum):
    """The state of a node, the most urgent first."""

    INTERRUPTED = "interrupted"
    """EC2 reclaims the instance."""
    DRAINING = "draining"
    DISRUPTING = "disrupting"
    """It is closed to new pods, because it is part of a move that has begun."""
    LAUNCHING = "launching"
    """There is a NodeClaim, but no Node yet."""
    JOINING = "joining"
    NOT_READY = "not ready"
    CORDONED = "cordoned"
    READY = "ready"
    STOPPED = "stopped"
    """A stopped instance of warm capacity. It has no Node, and runs no pods."""


SETTLED = frozenset({State.READY, State.CORDONED, State.STOPPED})
"""The states of nodes that neither come nor go."""


@dataclass(frozen=True, slots=True)
class Gauge:
    """What pods request of one resource of a node, what the node has, and what is used if that is known.

    Units are those of the resource: thousandths of a cpu, bytes, pods or devices.
    """

    requested: int = 0
    allocatable: int = 0
    used: int | None = None

    @property
    def share(self) -> float:
        """The requested share of what the node has; 0 if it has nothing."""
        return self.requested / self.allocatable if self.allocatable else 0.0


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node, or a NodeClaim that has none yet. `detail` is what it waits for; at `deadline` its instance ends."""

    name: str
    group: str
    owner: str
    instance_type: str
    zone: str
    capacity_type: str
    price: Price | None
    cpu: Gauge
    memory: Gauge
    pods: Gauge
    gpus: Gauge
    created_at: datetime
    state: State
    detail: str = ""
    deadline: datetime | None = None
    is_cordoned: bool = False

    @property
    def hourly_usd(self) -> float:
        """Its price, 0 if it is unknown."""
        return self.price.hourly_usd if self.price else 0.0

    @property
    def text(self) -> str:
        """The text in which a search looks for words."""
        return " ".join(
            (self.name, self.group, self.owner, self.instance_type, self.zone, self.capacity_type, self.state)
        )


@dataclass(frozen=True, slots=True)
class PodRow:
    """A pod. `reason` says why it is pending, and is empty for all others."""

    key: str
    node: str
    phase: str
    cpu_milli: int
    memory_bytes: int
    age_seconds: int
    reason: str = ""
    owner: str = ""


@dataclass(frozen=True, slots=True)
class SavingsEstimate:
    """What `nodesmith savings` found last, USD an hour: the lower bound, and what moves can reach."""

    bound_hourly_usd: float
    reachable_hourly_usd: float
    moves: int


@dataclass(frozen=True, slots=True)
class View:
    """One look. `nodes` are unsorted; `pending` are sorted by age, the oldest first; `notes` are sentences."""

    context: str
    at: datetime
    nodes: tuple[NodeRow, ...] = ()
    pending: tuple[PodRow, ...] = ()
    pods: int = 0
    pause: str = ""
    windows: tuple[str, ...] = ()
    prospect: SavingsEstimate | None = None
    notes: tuple[str, ...] = ()
    is_current: bool = True

    @property
    def hourly_usd(self) -> float:
        """The price of all nodes whose price is known."""
        return fsum(row.hourly_usd for row in self.nodes)

    @property
    def is_estimated(self) -> bool:
        """Whether the price includes an estimate."""
        return any(row.price.estimated for row in self.nodes if row.price)

    @property
    def unpriced(self) -> int:
        """The number of nodes whose price is not known."""
        return sum(row.price is None for row in self.nodes)

    @property
    def cpu(self) -> Gauge:
        return added(row.cpu for row in self.nodes)

    @property
    def memory(self) -> Gauge:
        return added(row.memory for row in self.nodes)

    @property
    def moving(self) -> tuple[NodeRow, ...]:
        """Nodes that come or go, the most urgent first."""
        order = list(State)
        rows = [row for row in self.nodes if row.state not in SETTLED]
        return tuple(sorted(rows, key=lambda row: (order.index(row.state), _left(row), row.name)))


def added(gauges: Iterable[Gauge]) -> Gauge:
    """Return the sum of gauges. `used` is the sum of the known values."""
    requested = allocatable = used = 0
    is_known = False
    for gauge in gauges:
        requested += gauge.requested
        allocatable += gauge.allocatable
        if gauge.used is not None:
            used, is_known = used + gauge.used, True
    return Gauge(requested, allocatable, used if is_known else None)


def _left(row: NodeRow) -> float:
    return float("inf") if row.deadline is None else row.deadline.timestamp()


def seconds_left(row: NodeRow, now: datetime) -> int | None:
    """Return the seconds until a node's deadline, None if it has none."""
    return None if row.deadline is None else max(0, int((row.deadline - now).total_seconds()))


def age_seconds(row: NodeRow, now: datetime) -> int:
    """Return how long ago a node was created, in seconds."""
    return max(0, int((now - row.created_at).total_seconds()))


_STATES = list(State)
SORTS: dict[str, Callable[[NodeRow], Any]] = {
    "name": lambda row: row.name,
    "price": lambda row: (-row.hourly_usd, row.name),
    "cpu": lambda row: (-row.cpu.share, row.name),
    "memory": lambda row: (-row.memory.share, row.name),
    "pods": lambda row: (-row.pods.requested, row.name),
    "age": lambda row: (-row.created_at.timestamp(), row.name),
    "state": lambda row: (_STATES.index(row.state), _left(row), row.name),
    "group": lambda row: (row.group, row.name),
    "type": lambda row: (row.instance_type, row.name),
    "zone": lambda row: (row.zone, row.name),
}
"""The orders of nodes, by name: the largest first where that is what people look for."""


def chosen(
    rows: Iterable[NodeRow], order: str, query: str = "", *, is_reversed: bool = False
) -> list[NodeRow]:
    """Return the rows that contain every word of `query`, in one of the orders of `SORTS`."""
    words = query.lower().split()
    matching = (
        [row for row in rows if all(word in row.text.lower() for word in words)] if words else list(rows)
    )
    return sorted(matching, key=SORTS[order], reverse=is_reversed)


def monthly(hourly_usd: float) -> str:
    """Return dollars a month of 730 hours, as text."""
    return f"${hourly_usd * HOURS_A_MONTH:,.0f}"


def duration(seconds: float) -> str:
    """Return a duration in at most four characters, as kubectl shows ages: 45s, 12m, 5h, 3d."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= (2 if unit == "d" else 1) * size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"


def totals(rows: Sequence[NodeRow]) -> dict[str, int]:
    """Return the number of nodes in each state, without states that no node is in."""
    counts = Counter(row.state for row in rows)
    return {state.value: counts[state] for state in State if counts[state]}
