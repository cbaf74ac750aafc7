"""Samples of a fleet: at most one a second, however many requests there are, and the moments kept from them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import fsum
from threading import Event, Lock, Thread

from nodesmith.model.apimachinery.labels import ON_DEMAND, SPOT
from nodesmith.model.ec2.catalog import Catalog
from nodesmith_cli.views.top.fleet import Fleet
from nodesmith_cli.views.top.rows import SETTLED, NodeRow, State, View
from nodesmith_cli.views.ui.fleetmap import Tile, tiles_of

_FRESH_SECONDS = 1.0
_MOMENT_SECONDS, _MOST_MOMENTS = 15.0, 2_880
"""A moment is kept every 15 seconds, for twelve hours."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The fleet at one time. `decision` is the id of the decision that it comes from, empty for a sample."""

    at: datetime
    nodes: int
    hourly_usd: float
    pending: int
    tiles: tuple[Tile, ...]
    decision: str = ""


@dataclass(frozen=True, slots=True)
class FleetSample:
    """A view with what pages show of it, in USD an hour. `unrequested_usd` is paid for room that no pod requests."""

    view: View
    tiles: tuple[Tile, ...]
    hourly_usd: float
    spot_usd: float
    unrequested_usd: float
    on_demand_usd: float | None
    """What the same nodes cost on demand; None while prices are unknown."""

    @property
    def spot_share(self) -> float:
        """The share of the price that is paid for spot."""
        return self.spot_usd / self.hourly_usd if self.hourly_usd else 0.0

    @property
    def unrequested_share(self) -> float:
        """The share of the price that is paid for room that no pod requests."""
        return self.unrequested_usd / self.hourly_usd if self.hourly_usd else 0.0


def sample_of(view: View, on_demand: Callable[[NodeRow], float | None]) -> FleetSample:
    """Return what the pages show of a view. `on_demand` returns the on-demand price of a node's type."""
    spot, unrequested, on_demand_prices = [], [], []
    for row in view.nodes:
        hourly = row.hourly_usd
        unrequested.append(hourly * max(0.0, 1 - max(row.cpu.share, row.memory.share)))
        if row.capacity_type == SPOT:
            spot.append(hourly)
        is_whole = row.price is not None and row.state is not State.STOPPED
        on_demand_prices.append(on_demand(row) if is_whole else hourly)
    prices = [price for price in on_demand_prices if price is not None]
    return FleetSample(
        view,
        tuple(_tiles(view.nodes)),
        view.hourly_usd,
        fsum(spot),
        fsum(unrequested),
        fsum(prices) if prices and len(prices) == len(on_demand_prices) else None,
    )


def _tiles(rows: Sequence[NodeRow]) -> list[Tile]:
    requested: dict[tuple[str, str, str], tuple[float, int]] = {}
    for row in rows:
        key = row.zone, row.instance_type, row.capacity_type
        share, number = requested.get(key, (0.0, 0))
        requested[key] = share + max(row.cpu.share, row.memory.share), number + 1
    tiles = tiles_of(
        (row.zone, row.instance_type, row.capacity_type, row.hourly_usd, row.state not in SETTLED)
        for row in rows
    )
    shares = {key: min(1.0, share / number) for key, (share, number) in requested.items()}
    return [
        replace(tile, requested=shares[tile.zone, tile.instance_type, tile.capacity_type]) for tile in tiles
    ]


@dataclass(slots=True)
class OnDemandPrices:
    """Returns the on-demand price of a node's type in its zone, from the catalogue of its region."""

    catalog_of: Callable[[str], Catalog | None]
    _prices: dict[tuple[str, str], float | None] = field(default_factory=dict)

    def __call__(self, row: NodeRow) -> float | None:
        if row.capacity_type != SPOT:
            return row.hourly_usd
        key = row.instance_type, row.zone
        if key not in self._prices:
            self._prices[key] = self._read(*key)
        return self._prices[key]

    def _read(self, kind: str, zone: str) -> float | None:
        catalog = self.catalog_of(zone[:-1])
        offers = catalog.offerings.get(kind, ()) if catalog is not None else ()
        return next(
            (
                offer.price_hourly_usd
                for offer in offers
                if offer.zone == zone and offer.capacity_type == ON_DEMAND
            ),
            None,
        )


class Sampler:
    """Takes samples of a fleet for all requests, and keeps a moment every 15 seconds while it is `started`."""

    def __init__(
        self, fleet: Fleet, clock: Callable[[], datetime], on_demand: Callable[[NodeRow], float | None]
    ) -> None:
        self.fleet, self.clock = fleet, clock
        self._on_demand = on_demand
        self._lock = Lock()
        self._last: tuple[datetime, FleetSample] | None = None
        self._moments: deque[Moment] = deque(maxlen=_MOST_MOMENTS)

    def now(self) -> FleetSample:
        """Return a sample that is at most a second old."""
        at = self.clock()
        with self._lock:
            if self._last is None or not 0 <= (at - self._last[0]).total_seconds() < _FRESH_SECONDS:
                self._last = at, sample_of(self.fleet.view(at), self._on_demand)
            return self._last[1]

    @property
    def moments(self) -> tuple[Moment, ...]:
        """The moments of this run, oldest first."""
        return tuple(self._moments)

    def keep(self) -> None:
        """Keep the present moment."""
        sample = self.now()
        view = sample.view
        if view.is_current:
            self._moments.append(
                Moment(view.at, len(view.nodes), sample.hourly_usd, len(view.pending), sample.tiles)
            )

    def start(self, stop: Event) -> None:
        """Keep moments until `stop` is set, in a thread that ends with the process."""
        Thread(target=self._keep_on, args=(stop,), daemon=True).start()

    def _keep_on(self, stop: Event) -> None:
        while not stop.wait(1.0 if not self._moments else _MOMENT_SECONDS):
            self.keep()
