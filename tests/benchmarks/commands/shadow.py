"""How well a shadow tells what a cluster costs: that of Karpenter's algorithm beside Karpenter's algorithm run live.

The live side is the small world with Karpenter, whose bill EC2 writes. The shadow sees what the forwarder sends, when
it sends it, and nothing else: where the scheduler binds pods and how long instances boot, it learns or assumes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime

from infra.storage import VERSION_DAYS
from nodesmith.controllers.shadow import KEPT_AT_LEAST
from nodesmith.decisions.shadow.advance import POLICIES, Policy, has_changed, step
from nodesmith.keys import snapshot_key
from nodesmith.model.costs.shadow import (
    ACTUAL,
    KARPENTER,
    NODESMITH,
    Assumptions,
    Shadow,
    Tally,
    write_shadow,
)
from nodesmith.observation.decoding import decode
from nodesmith_cli.costs.shadowing.placements import checked
from tests import builders
from tests.benchmarks.aws.bill import MONTH_HOURS, PRICES
from tests.benchmarks.figures import Figure
from tests.experiments.karpenterworld import DAY, HOUR, MINUTE, KarpenterWorld
from tests.smallworld.world import SETTINGS, catalog

DAYS = 7
_WAIT_SECONDS, _MEMORY_GB = 0.1, 1769 / 1024
_UNINTERRUPTED = Assumptions(interruptions_a_month=0.0)
"""The live side has no interruptions either."""


@dataclass(slots=True)
class Watcher:
    """The function that watches: it looks every minute, and when pods begin to wait or have got a node."""

    policies: tuple[Policy, ...] = POLICIES
    shadow: Shadow | None = None
    kept: Shadow | None = None
    looks: int = 0
    writes: int = 0
    written_bytes: int = 0
    audited_pods: int = 0
    violations: list[str] = field(default_factory=list)
    cpu_seconds: float = 0.0
    total: dict[str, Tally] = field(default_factory=dict)
    _looked_at: datetime = builders.NOW - MINUTE
    _waiting: tuple[str, ...] = ()
    _audited_at: datetime = builders.NOW

    def __call__(self, world: KarpenterWorld) -> None:
        """Look if it is time."""
        waiting = tuple(world.waiting())
        if world.now - self._looked_at < MINUTE and waiting == self._waiting:
            return
        self._looked_at, self._waiting = world.now, waiting
        started = time.process_time()
        snapshot = decode(world.blobs.objects[snapshot_key(builders.CLUSTER)])
        self.shadow = step(
            self.kept,
            snapshot,
            catalog(),
            SETTINGS,
            world.now,
            assumed=_UNINTERRUPTED,
            policies=self.policies,
        )
        before = self.kept
        if before is None or world.now - before.at >= KEPT_AT_LEAST or has_changed(before, self.shadow):
            self.kept, data = self.shadow, write_shadow(self.shadow)
            self.writes, self.written_bytes = self.writes + 1, self.written_bytes + len(data)
        self.cpu_seconds += time.process_time() - started
        self.looks += 1
        if world.now - self._audited_at >= HOUR:
            self._audited_at = world.now
            self._audit(world, self.shadow)

    def _audit(self, world: KarpenterWorld, shadow: Shadow) -> None:
        """Have the audit check where both shadows have the pods now."""
        pods = [{"apiVersion": "v1", "kind": "Pod", **pod} for pod in world.cluster.pods.values()]
        manifests = [*pods, *world.cluster.nodepools.values(), *world.cluster.nodeclasses.values()]
        for name, fleet in shadow.fleets.items():
            found = checked(fleet, manifests, catalog())
            self.audited_pods += found["pods"]
            self.violations += [f"{name}: {each}" for each in found["violations"]]

    def monthly_usd(self, hours: float) -> dict[str, float]:
        """Return what looking costs a month, by service, at list prices of us-east-1.

        A run waits 0.1 s for calls beside its processor time. Replaced versions of the object are kept for a week. The
        forwarder's part is that of a served cluster, and is not among it.
        """
        months = hours / MONTH_HOURS
        looks, writes = self.looks / months, self.writes / months
        gb_seconds = looks * (self.cpu_seconds / max(1, self.looks) + _WAIT_SECONDS) * _MEMORY_GB
        stored_gb = self.written_bytes / hours * 24 * VERSION_DAYS / 1e9
        return {
            "Lambda": gb_seconds * PRICES.lambda_gb_second + looks * PRICES.lambda_run,
            "S3": looks * 2 * PRICES.s3_get + writes * PRICES.s3_put + stored_gb * PRICES.s3_gb_month,
            "DynamoDB": MONTH_HOURS * 12 * PRICES.dynamodb_write,
        }

    def tally(self, name: str) -> Tally:
        """Return what a fleet came to in all days."""
        assert self.shadow is not None
        return sum((day.tallies.get(name, Tally()) for day in self.shadow.days), Tally())


def figures(days: int = DAYS) -> list[Figure]:
    """Live through the days, and compare the bills."""
    world, watcher = KarpenterWorld(), Watcher()
    world.looks.append(watcher)
    world.live_until(builders.NOW + days * DAY)
    assert watcher.shadow is not None
    shadow, actual, ours = (watcher.tally(name) for name in (KARPENTER, ACTUAL, NODESMITH))
    errors = {
        name: 100 * (tally.usd / world.spent_usd - 1) for name, tally in (("it", shadow), ("seen", actual))
    }
    note = (
        f"{days} days: EC2 charges ${world.spent_usd:.2f}, the shadow says ${shadow.usd:.2f} ({errors['it']:+.2f} %),"
        f" the cluster as seen ${actual.usd:.2f} ({errors['seen']:+.2f} %); nodesmith's shadow ${ours.usd:.2f},"
        f" lower bound ${ours.bound_usd:.2f};"
        f" evictions {world.evictions} live, {shadow.evictions} in the shadow, {actual.evictions} seen,"
        f" {ours.evictions} in nodesmith's; launches {world.launches}, {shadow.launches}, {actual.launches},"
        f" {ours.launches}; pods' pending seconds {shadow.pending_seconds:.0f} in the shadow,"
        f" {actual.pending_seconds:.0f} seen, {ours.pending_seconds:.0f} in nodesmith's"
    )
    bill = watcher.monthly_usd(24 * days)
    parts = ", ".join(f"{service} {usd:.3f}" for service, usd in bill.items())
    each_ms = 1000 * watcher.cpu_seconds / max(1, watcher.looks)
    return [
        Figure("shadow-error-percent", abs(errors["it"]), "%", 2.0, note),
        Figure(
            "shadow-look-ms",
            each_ms,
            "ms of cpu",
            note=f"{watcher.looks} looks, both shadows; {len(write_shadow(watcher.shadow)):,} bytes kept",
        ),
        Figure(
            "shadow-violations",
            len(watcher.violations),
            "violations",
            0,
            "; ".join(watcher.violations[:3])
            or f"{watcher.audited_pods} places of pods audited, hour by hour",
        ),
        Figure("observing-month-usd", sum(bill.values()), "USD", 1.0, f"{parts}; {watcher.writes} writes"),
    ]
