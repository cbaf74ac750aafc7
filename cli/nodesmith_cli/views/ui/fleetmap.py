"""The fleet as a map: a column for each zone, a tile for each instance type, with areas that follow prices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

MOST_TILES = 9
"""Tiles of a zone; the last one stands for all others."""
_LEAST_WIDTH, _LEAST_HEIGHT = 0.16, 0.10
"""The smallest share of a zone's width and of a tile's height, so that both can be read."""
_UNPRICED_USD = 0.01


@dataclass(frozen=True, slots=True)
class Tile:
    """Nodes of one type, sold in one way in one zone. `requested` is the share that pods request, -1 if unknown.

    `kinds` is the number of types that it stands for, and `changing` the number of nodes that come or go.
    """

    zone: str
    instance_type: str
    capacity_type: str
    nodes: int
    hourly_usd: float
    changing: int = 0
    requested: float = -1.0
    kinds: int = 1

    @property
    def weight(self) -> float:
        """The value that its area follows. Nodes without a price get a small one, so that they are visible."""
        return self.hourly_usd or _UNPRICED_USD * self.nodes


@dataclass(frozen=True, slots=True)
class Placed:
    """A tile and where it is, in percent of the map."""

    tile: Tile
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Column:
    """A zone with its tiles, and where it is, in percent of the map."""

    zone: str
    nodes: int
    hourly_usd: float
    x: float
    width: float
    tiles: tuple[Placed, ...]


def tiles_of(rows: Iterable[tuple[str, str, str, float, bool]]) -> list[Tile]:
    """Return tiles for nodes, each given as zone, type, capacity type, USD an hour and whether it comes or goes."""
    tiles: dict[tuple[str, str, str], Tile] = {}
    for zone, kind, sold, hourly, is_changing in rows:
        key = zone, kind, sold
        tile = tiles.get(key) or Tile(zone, kind, sold, 0, 0.0)
        tiles[key] = replace(
            tile,
            nodes=tile.nodes + 1,
            hourly_usd=tile.hourly_usd + hourly,
            changing=tile.changing + is_changing,
        )
    return [tiles[key] for key in sorted(tiles)]


def laid_out(tiles: Sequence[Tile]) -> list[Column]:
    """Return the map's columns, by zone, with their tiles, the most expensive at the top."""
    zones: dict[str, list[Tile]] = {}
    for tile in tiles:
        zones.setdefault(tile.zone, []).append(tile)
    names = sorted(zones)
    widths = _shares([sum(tile.weight for tile in zones[name]) for name in names], _LEAST_WIDTH)
    columns, x = [], 0.0
    for name, width in zip(names, widths, strict=True):
        columns.append(_column(name, zones[name], x, width))
        x += width
    return columns


def _column(zone: str, tiles: Sequence[Tile], x: float, width: float) -> Column:
    shown = _with_others(
        sorted(tiles, key=lambda tile: (-tile.weight, tile.instance_type, tile.capacity_type))
    )
    heights = _shares([tile.weight for tile in shown], _LEAST_HEIGHT)
    placed, y = [], 0.0
    for tile, height in zip(shown, heights, strict=True):
        placed.append(Placed(tile, x, y, width, height))
        y += height
    nodes, hourly = sum(tile.nodes for tile in tiles), sum(tile.hourly_usd for tile in tiles)
    return Column(zone, nodes, hourly, x, width, tuple(placed))


def _with_others(tiles: Sequence[Tile]) -> list[Tile]:
    if len(tiles) <= MOST_TILES:
        return list(tiles)
    shown, merged = tiles[: MOST_TILES - 1], tiles[MOST_TILES - 1 :]
    others = Tile(
        merged[0].zone,
        "",
        "",
        sum(tile.nodes for tile in merged),
        sum(tile.hourly_usd for tile in merged),
        sum(tile.changing for tile in merged),
        kinds=len(merged),
    )
    return [*shown, others]


def _shares(weights: Sequence[float], least: float) -> list[float]:
    """Return percentages in proportion to weights, with none below `least` (a fraction) if that is possible."""
    if not weights:
        return []
    floor, whole = min(least, 1 / len(weights)), sum(weights) or 1.0
    free = 1 - floor * len(weights)
    above = [max(0.0, weight / whole - floor) for weight in weights]
    total = sum(above)
    return [100 * (floor + (free * excess / total if total else free / len(weights))) for excess in above]
