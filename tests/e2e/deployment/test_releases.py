"""A release runs as a canary in one of two clusters, then serves both, and is rolled back, on real control planes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nodesmith.adapters.aws.registrations import READ_AGAIN
from nodesmith.adapters.dynamodb.healthrecords import HealthRecords
from nodesmith.registration import CANARY_PARAMETER, TRIAL_SUFFIX, Trial, read_trial
from nodesmith.settings import CANARY_ALIAS
from nodesmith_formats.localsystem.clock import LocalClock
from tests.e2e.conftest import UNUSED, Figures
from tests.e2e.deployed import Deployed, Release
from tests.e2e.systems.region import REGION, start_region
from tests.e2e.systems.releases import DIES_ONCE_EC2_HAS_LAUNCHED, DOES_NOT_START, Log, functions_of
from tests.e2e.systems.system import CLUSTER, HURRIED, ClusterSide, nodesmith
from tests.objects.manifests import deployment, nodeclass, nodepool, requirement

pytestmark = pytest.mark.slow
SIZES = requirement("node.kubernetes.io/instance-type", "c6a.large", "c6a.xlarge", "m6a.large")
PODS = 3
MOST_PODS = 12
BUGS = {"lifecycle": DOES_NOT_START, "provisioning": DIES_ONCE_EC2_HAS_LAUNCHED}


@dataclass(frozen=True, slots=True)
class Wave:
    """The runs that some pods took: which releases served which clusters, and which bought nodes for which."""

    served: frozenset[tuple[str, str]]
    bought: frozenset[tuple[str, str]]


class Region:
    """Two clusters, their set of functions, and the deployments that an operator makes."""

    def __init__(self, folder: Path, deployed: Deployed, tried: ClusterSide, other: ClusterSide) -> None:
        self.folder, self.deployed, self.tried, self.other = folder, deployed, tried, other
        self.clusters = (tried, other)
        self.log = Log(folder / "functions")

    def deploy(self, name: str, *, bugs: Mapping[str, str] | None = None, trial: bool = False) -> str:
        """Deploy a release for all clusters or as a canary in the first, and return its name once all know it."""
        functions = self.folder / "releases" / name
        if not functions.exists():
            functions_of(self.folder / "releases", name, bugs or {})
        self.deployed.deploy(Release(functions, (self.tried.name,) if trial else ()))
        known_at = self.tried.clock.now() + READ_AGAIN
        self.tried.until(
            "all have read which clusters are on trial", lambda: self.tried.clock.now() > known_at
        )
        self.pass_over()
        return self.deployed.outputs["Release"]

    def pass_over(self) -> None:
        """Wait until all current runs end, and discard what has been logged by then."""
        under_way = self.deployed.at_work()

        def have_ended() -> bool:
            under_way.intersection_update(self.deployed.at_work())
            return not under_way

        self.tried.until("all current runs have ended", have_ended)
        self.log.news()

    def run(self, app: str) -> Wave:
        """Run an app's pods in both clusters until they run and their nodes are settled."""
        known = {claim.name for each in self.clusters for claim in each.ledger().claims}
        for each in self.clusters:
            each.apply(deployment(app, PODS))
        for each in self.clusters:
            each.until_running(PODS, app, seconds=120)
            each.until_settled()
        done = self.log.news()
        deciders = {decision: each.release for each in done for decision in each.decisions}
        bought = {
            (each.name, deciders.get(claim.decision, "no completed run"))
            for each in self.clusters
            for claim in each.ledger().claims
            if claim.name not in known
        }
        return Wave(frozenset((each.cluster, each.release) for each in done), frozenset(bought))

    def trial(self) -> Trial:
        """Return what the functions read about a trial."""
        found = self.tried.aws.client("ssm").get_parameters(Names=[CANARY_PARAMETER])["Parameters"]
        return read_trial(found[0]["Value"])

    def findings(self) -> Mapping[str, str]:
        """Return what dispatch has found wrong, by kind."""
        _, found = HealthRecords(self.tried.aws.client("dynamodb"), "nodesmith").state()
        return {each.kind: each.message for each in found}


@pytest.fixture
def region(folder: Path, record_property: Any) -> Iterator[Region]:
    """Yield two clusters of one region, each with a NodePool. No function may call AWS without a grant."""
    clock = LocalClock(HURRIED)
    with ExitStack() as stack:
        tried, other = (ClusterSide(folder / name, clock, name=name) for name in (CLUSTER, f"{CLUSTER}-2"))
        deployed = start_region(stack, folder, clock, [tried, other])
        for each in (tried, other):
            pool = nodepool(requirements=[SIZES])
            pool["spec"]["disruption"] = {"consolidateAfter": "Never"}
            each.apply(nodeclass(each.name), pool)
        yield Region(folder, deployed, tried, other)
        record_property(UNUSED, deployed.unused())
        assert deployed.ungranted() == []
        assert deployed.undelivered == []


def test_a_release_runs_as_a_canary_serves_all_clusters_and_is_rolled_back(
    region: Region, figures: Figures
) -> None:
    first = region.deployed.outputs["Release"]
    the_first_release_serves_both(region, first)
    tried = one_cluster_is_served_by_the_release_on_trial(region, first)
    second = the_release_serves_both_once_it_is_deployed_for_all(region, tried)
    figures("trial-ended-s", a_release_that_fails_loses_its_cluster_to_the_one_before(region, second))
    a_rollback_while_pods_come_leaves_none_without_a_node(region, first)


def the_first_release_serves_both(region: Region, first: str) -> None:
    for each in region.clusters:
        each.until_nodepools_ready()
    wave = region.run("before")
    assert wave.served == wave.bought == {(each.name, first) for each in region.clusters}


def one_cluster_is_served_by_the_release_on_trial(region: Region, first: str) -> str:
    """Return the release's name. It serves its own cluster entirely, and does nothing for the other one."""
    second = region.deploy("second", trial=True)
    wave = region.run("trial")
    assert wave.served == wave.bought == {(region.tried.name, second), (region.other.name, first)}
    assert region.trial() == Trial(frozenset({region.tried.name}), second), "the trial continues"
    return second


def the_release_serves_both_once_it_is_deployed_for_all(region: Region, tried: str) -> str:
    """Return the release's name, which no longer says that it is on trial."""
    second = region.deploy("second")
    assert second + TRIAL_SUFFIX == tried
    wave = region.run("all")
    assert wave.served == wave.bought == {(each.name, second) for each in region.clusters}
    return second


def a_release_that_fails_loses_its_cluster_to_the_one_before(region: Region, second: str) -> float:
    """Return the clock seconds from the first pods that waited for the release until its trial was ended.

    Its provisioning has EC2 launch, and dies before it records the result. Its lifecycle does not even start.
    """
    tried, other = region.clusters
    third = region.deploy("third", bugs=BUGS, trial=True)
    before, began = everything(tried), tried.clock.now()
    for each in region.clusters:
        each.apply(deployment("failing", PODS))
    other.until_running(PODS, "failing")
    other.until_settled()
    undisturbed = everything(other)
    tried.until(
        "EC2 has launched instances that are not recorded",
        lambda: len(tried.instances()) > len(tried.claims()),
    )
    begun = {claim.name for claim in tried.ledger().claims} - names(tried)

    tried.until("dispatch ends the trial", lambda: "TrialEnded" in region.findings(), seconds=240)

    took = (tried.clock.now() - began).total_seconds()
    ended = region.trial()
    assert ended.clusters == frozenset()
    assert ended.ended == region.findings()["TrialEnded"]
    assert ended.ended.startswith(f"release {third} failed for 10 minutes: ")
    assert f"lifecycle of {tried.name}" in ended.ended
    tried.until_running(PODS, "failing", seconds=120)
    tried.until_settled()
    nothing_is_leaked_doubled_or_forgotten(tried)
    assert begun
    assert begun <= names(tried), "the claims it started are completed"
    assert before.items() <= everything(tried).items()
    assert everything(other) == undisturbed
    done = region.log.news()
    assert ("lifecycle", tried.name, second) in {(each.concern, each.cluster, each.release) for each in done}
    assert {each.release for each in done if each.cluster == other.name} == {second}
    return took


def a_rollback_while_pods_come_leaves_none_without_a_node(region: Region, first: str) -> None:
    pods = 1
    for each in region.clusters:
        each.apply(deployment("coming", pods))
    with ThreadPoolExecutor(1) as pool:
        command = pool.submit(nodesmith, region.tried.aws, "rollback", "--yes", "--region", REGION)
        while pods < MOST_PODS and not command.done():
            pods += 1
            for each in region.clusters:
                each.kubectl("scale", "deployment", "coming", f"--replicas={pods}")
    said = command.result()
    assert f"12 functions now run release {first}" in said.stdout, said.stderr
    for each in region.clusters:
        each.until_running(pods, "coming", seconds=120)
        each.until_settled()
    region.tried.until(
        "Lambda has dropped the events it kept for the canary",
        lambda: region.deployed.is_at_rest(CANARY_ALIAS),
    )
    region.pass_over()
    wave = region.run("since")
    assert wave.served == wave.bought == {(each.name, first) for each in region.clusters}
    for each in region.clusters:
        nothing_is_leaked_doubled_or_forgotten(each)


def everything(cluster: ClusterSide) -> Mapping[str, Any]:
    """Return the specs of all NodeClaims, nodes and pods, and whether they are being deleted, by UID."""
    there = [*cluster.claims(), *cluster.nodes(), *cluster.pods()]
    return {
        each["metadata"]["uid"]: (each["spec"], each["metadata"].get("deletionTimestamp")) for each in there
    }


def names(cluster: ClusterSide) -> set[str]:
    """Return the names of a cluster's NodeClaims."""
    return {claim["metadata"]["name"] for claim in cluster.claims()}


def nothing_is_leaked_doubled_or_forgotten(cluster: ClusterSide) -> None:
    """Assert that each claim of the ledger is a NodeClaim with one instance and node, and that no others launched."""
    assert cluster.violations() == []
    assert {claim.name for claim in cluster.ledger().claims} == names(cluster)
    assert len(cluster.launched_at()) == len(names(cluster))
