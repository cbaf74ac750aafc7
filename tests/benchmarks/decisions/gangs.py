"""Twenty jobs of fifty pods, each on a node of its own, and EC2 has nodes for seven and a half of them.

A job whose pods show that they are provisioned while a node is missing is partial, at any time. After fifteen minutes,
no node may be left without the pods of a job.
"""

from __future__ import annotations

from datetime import timedelta

from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.model.kubernetes.provisioningrequests import PROVISIONED
from tests import builders
from tests.benchmarks.figures import Figure
from tests.scenarios.gangs import JobController, ask
from tests.smallworld.laws import true_of
from tests.smallworld.world import World

JOBS, PODS, FITTING = 20, 50, 7
_POOL = builders.nodepool_manifest(
    requirements=[*builders.EXPRESS, builders.expression("karpenter.k8s.aws/instance-cpu", "In", "4")]
)


class Short:
    """EC2 with a number of instances: those that end can be launched again."""

    def __init__(self, instances: int) -> None:
        self.instances = instances
        self.most = 0

    def __call__(self, world: World) -> None:
        """Count what is left."""
        alive = len(world.cloud.alive())
        self.most = max(self.most, alive)
        world.cloud.stock = {"*": self.instances - alive}


def figures(jobs: int = JOBS) -> list[Figure]:
    """Live for fifteen minutes, and count partial jobs, jobs with all of their nodes, and nodes without pods."""
    world, capacity = World({}, nodepool=_POOL), Short(FITTING * PODS + PODS // 2)
    capacity(world)
    for number in range(jobs):
        ask(world, f"job{number:02d}", PODS)
    world.controllers += [capacity, JobController()]
    world.live(timedelta(minutes=15))
    served = [name for name, each in world.cluster.requests.items() if PROVISIONED in true_of(each)]
    partial = {each for each in world.harm if "partial gang" in each}
    used = {pod["spec"].get("nodeName") for pod in world.pods.values()}
    living = [claim for claim in world.store.claims.values() if claim.phase is not Phase.GIVEN_UP]
    rest = [claim.name for claim in living if claim.node_name not in used]
    running = sum(pod["spec"].get("nodeName") is not None for pod in world.pods.values())
    note = f"{jobs} jobs of {PODS} pods, EC2 has nodes for {FITTING} and a half; after 15 minutes"
    return [
        Figure("gang-jobs-partial", len(partial), "jobs", 0, note),
        Figure("gang-jobs-whole", len(served), "jobs", FITTING, f"{running} pods run", at_least=FITTING),
        Figure("gang-nodes-left", len(rest), "nodes", 0, f"at most {capacity.most} nodes lived at once"),
    ]
