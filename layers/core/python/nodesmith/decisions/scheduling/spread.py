"""Topology spread: how many pods of a shape each zone gets.

kube-scheduler admits a pod to a zone while matching pods there (+1 if it matches itself) - fewest anywhere <= maxSkew.
Pods go one after the other to the allowed zone with the fewest; a zone that nothing can be launched in and that has no
room left still counts for the fewest, and so limits the others: that is why some pods may have to stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nodesmith.model.shapes import Shape, Spread


@dataclass(slots=True)
class ZoneCounts:
    """Matching pods per zone for one constraint; `domains` are the zones that kube-scheduler will see."""

    spread: Spread
    counts: dict[str, int]
    selects_self: bool

    def admits(self, zone: str) -> bool:
        """Tell whether one more pod may go to `zone`."""
        fewest = min(self.counts.values()) if len(self.counts) >= self.spread.min_domains else 0
        return self.counts[zone] + self.selects_self - fewest <= self.spread.max_skew

    def add(self, zone: str) -> None:
        """Count one more pod in `zone`."""
        if self.selects_self and zone in self.counts:
            self.counts[zone] += 1


def zone_counts(spread: Spread, shape: Shape, found: Mapping[str, int], zones: Sequence[str]) -> ZoneCounts:
    """Start counting: `found` are matching pods per zone that has a node, `zones` those that can be launched in."""
    counts = {zone: found.get(zone, 0) for zone in sorted({*found, *zones})}
    return ZoneCounts(spread, counts, selects_self(spread, shape))


def selects_self(spread: Spread, shape: Shape) -> bool:
    """Tell whether pods of the shape count for their own spread."""
    return spread.selector is not None and spread.selector.matches(shape.labels)


def share_out(count: int, constraints: Sequence[ZoneCounts], room: dict[str, int | None]) -> dict[str, int]:
    """Share `count` pods out over zones; `room` is what each zone can take, None for any number.

    Gives the pods per zone; what is missing to `count` cannot go anywhere. Soft constraints order the zones only.
    """
    shares = dict.fromkeys(room, 0)
    for _ in range(count):
        open_zones = [
            zone
            for zone, left in room.items()
            if (left is None or shares[zone] < left)
            and all(c.admits(zone) for c in constraints if c.spread.hard)
        ]
        if not open_zones:
            break
        zone = min(open_zones, key=lambda z: (*(c.counts[z] for c in constraints), z))
        shares[zone] += 1
        for constraint in constraints:
            constraint.add(zone)
    return shares


def blocking_zone(constraints: Sequence[ZoneCounts]) -> str:
    """Say which zone holds the others back, for a pod that found none."""
    hard = next((c for c in constraints if c.spread.hard), None)
    if hard is None or not hard.counts:
        return "no zone can be launched in"
    zone = min(hard.counts, key=lambda z: (hard.counts[z], z))
    return (
        f"topology spread over {hard.spread.topology_key} with maxSkew {hard.spread.max_skew}: {zone} has"
        f" {hard.counts[zone]} matching pods, no room, and nothing can be launched there"
    )
