"""The hourly changes of a simulated cluster, the same in every run and for every search.

Deployments follow the time of day, Jobs start in the evening and start over when they are moved, spot prices change
from day to day, and every ten days there is a new image.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from nodesmith.decisions.provisioning import Inputs
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.kubernetes.pods import Pod, Shape
from nodesmith.model.ledger.ledger import Ledger
from tests import builders

HOUR = timedelta(hours=1)
APPS = ((250, 500, 40), (500, 2000, 30), (1000, 2000, 16), (2000, 8000, 6), (100, 400, 60), (750, 3500, 12))
"""cpu (milli), memory (MiB) and maximum replicas of each Deployment"""
SHAPES = [builders.shape(f"{cpu}m", f"{mem}Mi", app=f"app-{n}") for n, (cpu, mem, _) in enumerate(APPS)]
JOB = replace(builders.shape("1500m", "3000Mi", app="etl"), owner="Job/etl")
_EVENING, _MOST_JOBS, _LONGEST_HOURS = (18, 19, 20, 21, 22, 23), 5, 5.0
_IMAGE_EVERY_DAYS, _NOON = 10, 12
_PRICES_MOVE = 0.06
"""standard deviation of the logarithm of a spot price's change from day to day"""


@dataclass(slots=True)
class ClusterPorts:
    """The source of changes. `work` is how long each Job's pod (by key) takes from its start."""

    dice: random.Random = field(default_factory=lambda: random.Random(5))  # noqa: S311
    born: int = 0
    work: dict[str, timedelta] = field(default_factory=dict)

    def goes_on(self, inputs: Inputs, hour: int) -> tuple[Inputs, frozenset[str]]:
        """Start an hour; return the inputs, and the Nodes that pods have left."""
        if hour % 24 == 0:
            inputs = replace(inputs, catalog=self._repriced(inputs.catalog))
        if hour % (24 * _IMAGE_EVERY_DAYS) == _NOON and hour >= 24:
            inputs = replace(inputs, ledger=_with_new_image(inputs.ledger, hour))
        left = self._without_finished(inputs)
        for shape, (_, _, most) in zip(SHAPES, APPS, strict=True):
            left = self._scaled(left, shape, most, hour, inputs)
        if hour % 24 in _EVENING:
            for _ in range(self.dice.randint(0, _MOST_JOBS)):
                left.append(self._pod(JOB, inputs))
                self.work[left[-1].key] = self.dice.uniform(1, _LONGEST_HOURS) * HOUR
        keys = {pod.key for pod in left}
        touched = frozenset(p.node for p in inputs.snapshot.pods if p.key not in keys)
        return replace(inputs, snapshot=replace(inputs.snapshot, pods=tuple(left))), touched

    def _without_finished(self, inputs: Inputs) -> list[Pod]:
        return [
            pod
            for pod in inputs.snapshot.pods
            if pod.shape is not JOB or inputs.now - pod.created_at < self.work[pod.key]
        ]

    def _scaled(self, pods: list[Pod], shape: Shape, most: int, hour: int, inputs: Inputs) -> list[Pod]:
        """Scale a Deployment to its replicas of this hour: most at noon, few at night, and some noise."""
        day = 0.55 - 0.45 * math.cos(2 * math.pi * (hour % 24) / 24)
        wanted = max(1, round(most * day * self.dice.uniform(0.93, 1.07)))
        mine = [pod for pod in pods if pod.shape is shape]
        gone = {pod.key for pod in self.dice.sample(mine, max(0, len(mine) - wanted))}
        come = [self._pod(shape, inputs) for _ in range(wanted - len(mine))]
        return [pod for pod in pods if pod.key not in gone] + come

    def _pod(self, shape: Shape, inputs: Inputs) -> Pod:
        self.born += 1
        key = f"default/{shape.labels['app']}-{self.born:06d}"
        return Pod(key, shape, inputs.now, unschedulable=True)

    def _repriced(self, catalog: Catalog) -> Catalog:
        """Return the catalogue of the next day, with every spot price slightly changed."""
        offerings = {
            name: tuple(
                replace(o, price_hourly_usd=o.price_hourly_usd * math.exp(self.dice.gauss(0, _PRICES_MOVE)))
                if o.capacity_type == "spot"
                else o
                for o in sold
            )
            for name, sold in sorted(catalog.offerings.items())
        }
        return Catalog.of(catalog.region, catalog.made_at, catalog.facts, offerings)


def begun_anew(pods: Iterable[Pod], moved: Mapping[str, str], inputs: Inputs) -> tuple[Pod, ...]:
    """Return the pods after some have moved: moved pods of Jobs start over."""
    return tuple(
        replace(pod, created_at=inputs.now) if pod.key in moved and pod.shape is JOB else pod for pod in pods
    )


def image_of(labels: Mapping[str, str], ledger: Ledger) -> str:
    """Return the image that a node with these labels boots from."""
    images = ledger.nodeclasses["default"].images
    return next(image.id for image in images if image.requirements.allow_labels(labels))


def _with_new_image(ledger: Ledger, hour: int) -> Ledger:
    status = ledger.nodeclasses["default"]
    images = tuple(replace(image, id=f"{image.id.split('.')[0]}.{hour}") for image in status.images)
    return replace(ledger, nodeclasses={**ledger.nodeclasses, "default": replace(status, images=images)})
