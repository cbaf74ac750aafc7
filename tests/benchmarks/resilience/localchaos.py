"""Services fail in a running local system: what `chaos` does in the tests' small world, with the deployed code.

Functions, forwarder, adapters and the SDK with its retries are the real ones, so errors are read as AWS and the API
server word them. `python -m tests.benchmarks.resilience.localchaos --combinations 100` runs others, for two hours.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nodesmith.adapters.dynamodb.ledger import DynamoStore
from nodesmith.model.apimachinery.labels import DISRUPTED
from nodesmith.model.karpenter.ownership import NODECLAIM_TAG
from nodesmith_cli.simulator.localcommands.commands import place_of
from nodesmith_formats.manifests.manifests import Manifests
from nodesmith_local.chaos.actions import interrupt
from nodesmith_local.chaos.faults import FAULTS, OF_ANY_SERVICE, Fault, FaultKind, Service
from nodesmith_local.functions.deployment import TABLE_NAME
from nodesmith_local.runs.running import apply, settle, with_defaults
from nodesmith_local.runs.system import LocalSystem
from tests import builders
from tests.benchmarks.figures import Figure
from tests.benchmarks.resilience.chaos import described, judged
from tests.objects.manifests import budget, deployment
from tests.scenarios.chaos import MOMENTS, SECONDS, Combination, Outcome, pairs_of_faults, single_faults

COMBINATIONS, SPEED, SEED = 12, 10.0, 34
LONGEST_FAULT_SECONDS = 300.0
LONGEST = timedelta(minutes=30)
"""How long the system may take to recover."""
_GLANCE_SECONDS = 0.2  # real seconds
_APP, _USUAL_PODS = "web", 6
_PREPARED_SECONDS = 3600.0
_ALIVE = ("pending", "running", "stopping", "stopped")
_UPGRADED = {"version": "2"}
_CALLED_HERE = frozenset(FAULTS[FaultKind.ERRORS].services)


def combinations(number: int, seed: int = SEED) -> list[Combination]:
    """Return so many combinations whose services a local system calls, in random order.

    A third are pairs of faults and a sixth are faults of one service alone, such as a damaged snapshot.
    """

    def fits(each: Combination) -> bool:
        return all(f.service in _CALLED_HERE and f.seconds <= LONGEST_FAULT_SECONDS for f in each.faults)

    dice, pairs, odd = random.Random(seed), number // 3, number // 6  # noqa: S311
    drawn = dice.sample(list(filter(fits, single_faults())), number - pairs - odd)
    drawn += dice.sample(list(filter(fits, pairs_of_faults(20 * number, seed))), pairs)
    drawn += dice.sample(list(filter(fits, _of_one_service())), odd)
    return dice.sample(drawn, number)


def _of_one_service() -> Iterator[Combination]:
    kinds = (kind for kind in FAULTS if kind not in OF_ANY_SERVICE and kind is not FaultKind.INTERRUPTED)
    for kind, seconds, moment in product(kinds, SECONDS, sorted(MOMENTS)):
        for after in MOMENTS[moment][2]:
            yield Combination((Fault(FAULTS[kind].services[0], kind, seconds),), moment, after)


@dataclass(slots=True)
class Served:
    """A running system with a Deployment of six pods on three nodes, which a PodDisruptionBudget guards."""

    system: LocalSystem
    is_upgraded: bool = False
    """Whether the NodePool has changed, so that older Nodes are outdated."""
    most: int = 0
    """How many instances were alive at once."""
    harm: set[str] = field(default_factory=set)
    """Instances that were terminated while pods ran on them."""

    @property
    def objects(self) -> Any:
        """The cluster's objects."""
        return self.system.first.objects

    def prepare(self) -> None:
        """Create the NodePool, the Deployment and its budget, and wait until all pods run."""
        manifests = with_defaults(Manifests())
        apply(self.system.first, manifests.documents)
        requirements = [
            builders.expression("karpenter.sh/capacity-type", "In", "spot"),
            builders.expression("karpenter.k8s.aws/instance-cpu", "In", "4"),
            builders.expression("kubernetes.io/arch", "In", "amd64"),
        ]
        disruption = {"consolidateAfter": "30s", "budgets": [{"nodes": "2"}]}
        template = {"spec": {"requirements": requirements}}
        self.objects.patch("nodepools", "default", {"spec": {"disruption": disruption, "template": template}})
        self.objects.create("poddisruptionbudgets", budget(_APP, maxUnavailable=1))
        self.objects.create(
            "deployments", deployment(_APP, _USUAL_PODS, "1500m", terminationGracePeriodSeconds=5)
        )
        assert settle(self.system.first, _PREPARED_SECONDS) == ""

    # What happens

    def happen(self, moment: str) -> None:
        """Change the cluster so that nodesmith has something to do."""
        changes: Mapping[str, Callable[[], object]] = {
            "scale-up": lambda: self.scale(_USUAL_PODS + 4),
            "drain": lambda: self.objects.delete("nodes", min(self._names("nodes"))),
            "interruption": self._interrupt,
            "consolidation": lambda: self.scale(_USUAL_PODS // 2),
            "upgrade": self._upgrade,
        }
        changes[moment]()

    def scale(self, pods: int) -> None:
        """Let the Deployment have so many pods."""
        self.objects.patch("deployments", _APP, {"spec": {"replicas": pods}}, "default")

    def _interrupt(self) -> None:
        system = self.system
        interrupt(system.aws.client, system.place.region, system.clock.now)(
            Fault(Service.EC2, FaultKind.INTERRUPTED, 1)
        )

    def _upgrade(self) -> None:
        """Change the NodePool so that all nodes drift."""
        self.is_upgraded = True
        template = {"metadata": {"labels": _UPGRADED}}
        self.objects.patch("nodepools", "default", {"spec": {"template": template}})

    def live(self, until: datetime) -> None:
        """Wait until a moment of the cluster's time, and look at the instances meanwhile."""
        while self.system.clock.now() < until:
            self.look()
            time.sleep(_GLANCE_SECONDS)

    def rest(self) -> timedelta:
        """Wait until nothing is under way and nothing is wrong, but no longer than LONGEST; return the time."""
        began = self.system.clock.now()
        while (passed := self.system.clock.now() - began) < LONGEST:
            self.look()
            if not self.system.first.pending_activity() and not self.violations():
                return passed
            time.sleep(_GLANCE_SECONDS)
        return passed

    # What there is

    def _names(self, resource: str) -> set[str]:
        return {each["metadata"]["name"] for each in self.objects.list(resource)}

    def instances(self) -> Mapping[str, Mapping[str, Any]]:
        """Return all instances, by id."""
        pages = self.system.aws.client("ec2").get_paginator("describe_instances").paginate()
        return {i["InstanceId"]: i for page in pages for r in page["Reservations"] for i in r["Instances"]}

    def look(self) -> None:
        """Note how many instances are alive, and which were terminated while pods ran on them."""
        nodes = {
            node["spec"].get("providerID", "").rpartition("/")[2]: node for node in self.objects.list("nodes")
        }
        running = Counter(
            pod["spec"].get("nodeName")
            for pod in self.objects.list("pods", "default")
            if pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
        )
        found = self.instances()
        self.most = max(self.most, sum(i["State"]["Name"] in _ALIVE for i in found.values()))
        for id_, node in nodes.items():
            ends = id_ not in found or found[id_]["State"]["Name"] not in _ALIVE
            if ends and running[node["metadata"]["name"]]:
                self.harm.add(id_)

    def violations(self) -> list[str]:
        """Return what is leaked, doubled, forgotten or left over."""
        claims, nodes = self._names("nodeclaims"), self.objects.list("nodes")
        alive = Counter(
            next((tag["Value"] for tag in i.get("Tags", ()) if tag["Key"] == NODECLAIM_TAG), "")
            for i in self.instances().values()
            if i["State"]["Name"] in _ALIVE
        )
        system = self.system
        store = DynamoStore(system.aws.client("dynamodb"), TABLE_NAME, system.first.name, system.clock.now)
        ledger = store.load()
        found = [f"{n} instances of claim {claim!r}" for claim, n in sorted(alive.items()) if n > 1]
        found += [f"leaked instance of {claim!r}" for claim in sorted(alive.keys() - claims)]
        found += [f"NodeClaim {claim} without instance" for claim in sorted(claims - alive.keys())]
        found += [f"claim {claim.name} is not shown" for claim in ledger.claims if claim.name not in claims]
        found += [f"move {move.id} stays {move.stage}" for move in ledger.moves]
        if len(nodes) != len(claims):
            found.append(f"{len(nodes)} Nodes of {len(claims)} NodeClaims")
        for node in nodes:
            about, taints = node["metadata"], node["spec"].get("taints") or ()
            if about.get("deletionTimestamp") or any(taint["key"] == DISRUPTED.key for taint in taints):
                found.append(f"Node {about['name']} is ending or closed")
            if self.is_upgraded and not _UPGRADED.items() <= about["labels"].items():
                found.append(f"Node {about['name']} is outdated")
        pods = self.objects.list("pods", "default")
        found += [f"forgotten {p['metadata']['name']}" for p in pods if p["status"].get("phase") != "Running"]
        needed = -(-len(pods) // 2)
        if len(nodes) > needed:
            found.append(f"{len(nodes)} Nodes for {len(pods)} pods, not {needed}")
        return found

    def run(self, combination: Combination) -> Ended:
        """Run a combination to its end."""
        self.happen(combination.moment)
        self.live(self.system.clock.now() + timedelta(seconds=combination.after))
        if combination.faults:
            self.system.faults.start(combination.faults)
            longest = max(fault.seconds for fault in combination.faults)
            self.live(self.system.clock.now() + timedelta(seconds=longest))
        took = self.rest()
        broken = [*filter(None, [self.system.first.pending_activity()]), *self.violations()]
        if combination.moment != "interruption":  # EC2 ends those whatever runs on them
            broken += [f"{each} was terminated with running pods" for each in sorted(self.harm)]
        met = {each["name"]: each["hits"] for each in self.system.faults.status()}
        return Ended(took.total_seconds(), self.most, tuple(broken), met)


@dataclass(frozen=True, slots=True)
class Ended:
    """How long the rest of a combination took after its faults, and how many instances were alive at most."""

    seconds: float
    most: int
    broken: tuple[str, ...]
    met: Mapping[str, int]


@contextmanager
def served(folder: Path, speed: float = SPEED) -> Iterator[Served]:
    """Yield a prepared system, which ends with the block. Its log is `local.log` in the folder."""
    with LocalSystem(place_of(with_defaults(Manifests()), "", speed), folder) as system:
        found = Served(system)
        found.prepare()
        yield found


@cache
def _undisturbed(moment: str, after: int) -> Ended:
    ended = _run(Combination((), moment, after))
    assert not ended.broken, ended.broken
    return ended


def _run(combination: Combination) -> Ended:
    """Run a combination in a process of its own, since systems leave caches behind."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_ended, combination).result()


def _ended(combination: Combination) -> Ended:
    """Run a combination in a system of its own: breakers count what has happened within hours."""
    with TemporaryDirectory() as folder, served(Path(folder)) as site:
        return site.run(combination)


def outcome(combination: Combination) -> Outcome:
    """Run a combination, and compare it with the same work undisturbed."""
    usual, ended = _undisturbed(combination.moment, combination.after), _run(combination)
    broken = ended.broken
    if ended.most > 2 * usual.most + 1:
        broken = (*broken, f"{ended.most} instances at once, usually {usual.most}")
    return Outcome(broken, max(0.0, ended.seconds - usual.seconds), ended.met)


def figures(number: int = COMBINATIONS, tell: Callable[[str], object] = str) -> list[Figure]:
    """Run so many combinations and report. `tell` gets a line for each."""
    ended: dict[Combination, Outcome] = {}
    for each in combinations(number):
        found = ended[each] = outcome(each)
        tell(f"{each}: {found.beyond:.0f} s, met {dict(found.met)}, {'; '.join(found.broken) or 'well'}")
    return report(ended)


def report(ended: Mapping[Combination, Outcome]) -> list[Figure]:
    """Return what broke, and how long recovery took."""
    note = f"{len(ended)} combinations, {described(ended.values())}, with real adapters"
    return judged("local-chaos", ended, note)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run another number of combinations, and print each."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.resilience.localchaos", description=__doc__
    )
    parser.add_argument("--combinations", type=int, default=COMBINATIONS)
    number = parser.parse_args(arguments).combinations
    measured = figures(number, lambda line: print(line, flush=True))
    for each in measured:
        print(each.to_item())
    return 0 if all(each.holds for each in measured) else 1


if __name__ == "__main__":
    sys.exit(main())
