"""The hot path from an event to CreateFleet requests, in nodesmith's own code on in-memory ports."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace

from nodesmith.adapters.ec2.fleetcalls import fleet_request
from nodesmith.controllers.provisioning import provision
from nodesmith.model.ec2.launches import LaunchOutcome, LaunchRequest
from nodesmith.model.functions import hints_of
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.kubernetes.provisioningrequests import Gang
from nodesmith.model.ledger.items import claim_to_item
from nodesmith.model.ledger.moves import Move
from tests import builders
from tests.benchmarks.figures import Figure, median_ms
from tests.fakes.cloud import FakeCloud
from tests.fakes.store import FakeStore
from tests.smallworld.world import Manifest, World, pod_manifest

REPEATS = 50
_EVENT = f'{{"messages":[{{"cluster":"{builders.CLUSTER}","reason":"pods pending"}}]}}'


class StampedCloud(FakeCloud):
    """Records when the last CreateFleet request was built, as boto3 would get it."""

    asked_at = 0.0
    requests = 0
    watch = staticmethod(time.perf_counter)

    def launch(self, requests: Sequence[LaunchRequest], *, repeated: bool = False) -> list[LaunchOutcome]:
        for request in requests:
            fleet_request(request, builders.CLUSTER)
        self.asked_at = self.watch()
        self.requests = len(requests)
        return FakeCloud.launch(self, requests, repeated=repeated)


class WritingStore(FakeStore):
    """Serialises claims as DynamoDB's adapter does, and does not parse them again."""

    def commit(
        self,
        version: int,
        claims: Sequence[NodeClaim],
        decision: str,
        move: Move | None = None,
        gang: Gang | None = None,
        changed: Sequence[NodeClaim] = (),
    ) -> None:
        assert gang is None, "gangs are not part of the hot path"
        assert not changed, "stopped instances are not part of the hot path"
        assert move is None, "moves are not part of the hot path"
        for claim in claims:
            json.dumps(claim_to_item(claim))
            self.claims[claim.name] = replace(claim, revision=1)
        self.version = version + 1
        self.decisions.append(decision)


def plain_pods() -> dict[str, Manifest]:
    """Return 20 pods of one Deployment, 1 cpu and 64Mi each, without constraints."""
    return {f"web-{n}": pod_manifest(f"web-{n}", "1", "64Mi") for n in range(20)}


def express_pods() -> dict[str, Manifest]:
    """Return 20 pods of one Deployment, 1 cpu and 64Mi each, with a preferred spread over zones."""
    spread = builders.spread(hard=False)
    return {
        f"web-{n}": pod_manifest(f"web-{n}", "1", "64Mi", topologySpreadConstraints=spread) for n in range(20)
    }


def mixed_pods(count: int = 1000, shapes: int = 20) -> dict[str, Manifest]:
    """Return pods of 20 Deployments: 0.1 to 2 cpu, 128Mi to 4Gi; a third with a zone spread, half of these required."""
    found: dict[str, Manifest] = {}
    for number in range(count):
        app = number % shapes
        cpu, memory = f"{100 + app * 137 % 1900}m", f"{128 + app * 613 % 4000}Mi"
        pod = pod_manifest(f"app-{app}-{number}", cpu, memory)
        pod["metadata"]["labels"] = {"app": f"app-{app}"}
        pod["metadata"]["ownerReferences"][0]["name"] = f"app-{app}"
        if app % 3 == 0:
            pod["spec"]["topologySpreadConstraints"] = builders.spread(hard=app % 2 == 0, app=f"app-{app}")
        found[pod["metadata"]["name"]] = pod
    return found


def figures() -> list[Figure]:
    """Measure a small and a large problem, and a small one without any choice."""
    return [
        _figure("hot-path-one-shape-ms", plain_pods(), 20),
        _figure("hot-path-20-ms", express_pods(), 50),
        _figure("hot-path-1000-ms", mixed_pods(), 150),
    ]


def _figure(name: str, pods: dict[str, Manifest], at_most: float) -> Figure:
    quality = ""

    def once() -> float:
        nonlocal quality
        world = World(pods)
        world.observe()
        cloud = StampedCloud(clock=world.clock)
        known = world.store
        store = WritingStore(nodeclasses=known.nodeclasses, cluster=known.cluster, contents=known.contents)
        run = world.provisioning(store=store, cloud=cloud, stopwatch=time.perf_counter)
        started = time.perf_counter()
        hints_of(json.loads(_EVENT))
        outcome = provision(run)
        plan = outcome.plan
        quality = (
            f"{len(plan.nodes)} nodes at ${plan.price_hourly_usd:.3f}/hour,"
            f" {plan.price_hourly_usd / plan.bound_hourly_usd - 1:.1%} above the bound,"
            f" {sum(len(u.pods) for u in plan.unplaced)} pods unplaced"
        )
        return (cloud.asked_at - started) * 1000

    once()  # warm up: the catalogue is read and resolved
    middle, note = median_ms(once, REPEATS)
    return Figure(name, middle, "ms", at_most, f"{quality}; {note}")
