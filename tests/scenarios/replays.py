"""A recorded week: the small world's real functions with a daily rhythm, and everything that they record."""

from __future__ import annotations

import math
import random
from datetime import datetime, timedelta
from math import fsum
from pathlib import Path
from typing import Any

from nodesmith.adapters.catalog.catalogs import encode
from nodesmith.keys import catalog_key
from nodesmith.model.apimachinery.quantities import Resources
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.functions import Concern
from nodesmith_formats.decisions.records import Folder
from tests import builders
from tests.fakes.blobs import FakeBlobs
from tests.objects.fleets import pool
from tests.scenarios.weeks import LIVING, SMALL, Fleet, Usage
from tests.smallworld.world import CONCERNS, Messages, World, catalog

HOUR = timedelta(hours=1)
_BASE, _MOST = 3, 14
"""Pods of the daily rhythm for each node at the beginning: at night and at noon."""


class RecordedFleet(Fleet):
    """A fleet with disruption and a daily rhythm, whose functions' records are kept. Messages arrive as they should."""

    def __init__(self, nodes: int, seed: int = 7) -> None:
        super().__init__(nodes, seed)
        self.messages = Messages()
        self.living = LIVING | {Concern.DISRUPTION}
        self.concerns = (*CONCERNS, Concern.DISRUPTION)
        self.records.pop(Concern.DISRUPTION, None)
        self.usage.cpu_seconds[Concern.DISRUPTION] = 0.0
        self.blobs = FakeBlobs()
        manifest = pool(after="5m", budgets=[{"nodes": "30%"}])
        self.cluster.nodepools["default"] = manifest
        self.store.contents = {}
        self._idle = {Concern.PROVISIONING: Usage()}  # so that quiet hours pass at once
        self._rhythm = random.Random(seed)  # noqa: S311
        self._named = 0
        self.ended_at: dict[str, datetime] = {}
        """When EC2 stopped billing each instance that has ended."""

    def plan_days(self, days: float) -> None:
        """Plan the hourly changes of the workload, and a spot interruption a day."""
        for hour in range(round(24 * days)):
            self.mishaps.append((HOUR * hour + timedelta(minutes=self._rhythm.randrange(60)), self._scale))
        for day in range(int(days)):
            self.mishaps.append((timedelta(days=day, hours=self._rhythm.randrange(24)), self._is_taken))
        self.mishaps.sort(key=lambda mishap: mishap[0])

    def add(self, name: str, **asked: Any) -> None:
        """Create a pod now."""
        super().add(name, **asked)
        self.cluster.pods[f"default/{name}"]["metadata"]["creationTimestamp"] = format_time(self.now)

    def _scale(self, _: World) -> None:
        hour = (self.now - builders.NOW) / HOUR
        share = 0.5 - 0.5 * math.cos(2 * math.pi * hour / 24)
        wanted = round(self.size * (_BASE + (_MOST - _BASE) * share) * self._rhythm.uniform(0.95, 1.05))
        mine = sorted(name for name in self.wanted if name.startswith("app-"))
        for name in self._rhythm.sample(mine, max(0, len(mine) - wanted)):
            self.wanted.discard(name)
            self.cluster.pods.pop(f"default/{name}", None)
        for _number in range(wanted - len(mine)):
            self._named += 1
            self.add(f"app-{self._named:05d}", **SMALL)

    def _room(self) -> dict[str, Resources]:
        """Return what Nodes have left, those first that have most: kube-scheduler spreads pods, too."""
        found = super()._room()
        return dict(sorted(found.items(), key=lambda item: -item[1].cpu_milli))

    def _tell_states(self) -> None:
        for instance in self.cloud.instances.values():
            if not instance.is_alive:
                self.ended_at.setdefault(instance.id, self.now)
        super()._tell_states()

    @property
    def hourly_usd(self) -> dict[str, float]:
        """The price of each instance that was ever launched, by its offering in the catalogue."""
        known = catalog()
        return {
            i.id: next(
                o.price_hourly_usd
                for o in known.offerings[i.instance_type]
                if (o.zone, o.capacity_type) == (i.zone, i.capacity_type)
            )
            for i in self.cloud.instances.values()
        }


def recorded(folder: Path, nodes: int, days: float, seed: int = 7) -> RecordedFleet:
    """Live through these days, and write what was recorded to a folder as `--keep` reads it."""
    fleet = RecordedFleet(nodes, seed)
    fleet.plan_days(days)
    fleet.observe()
    fleet.live(timedelta(days=days))
    kept = Folder(folder)
    for key, data in fleet.blobs.objects.items():
        kept.put(key, data)
    kept.put(catalog_key(builders.REGION), encode(catalog()))
    return fleet


def billed(fleet: RecordedFleet) -> float:
    """Return what the instances of a fleet have cost until now, by their own life in EC2."""
    ends = fleet.ended_at
    price: Any = fleet.hourly_usd
    return fsum(
        price[i.id] * ((ends.get(i.id, fleet.now) - i.launched_at) / HOUR)
        for i in fleet.cloud.instances.values()
    )
