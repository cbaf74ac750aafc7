"""`nodesmith local up --clusters 2`: one set of functions serves both clusters, and neither affects the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from nodesmith.adapters.aws.registrations import READ_AGAIN
from nodesmith.errors import Rejected
from nodesmith.registration import parameter_name
from nodesmith_cli.simulator.localcommands.interruptcommand import interrupt
from nodesmith_cli.simulator.localcommands.kubeconfigs import kubeconfig_at
from nodesmith_cli.simulator.localcommands.upcommand import access
from nodesmith_formats.decisions.records import clusters
from nodesmith_formats.localsystem.reaching import now_at, one_of_several
from nodesmith_formats.manifests.manifests import load_manifests
from nodesmith_formats.shipped import shipped
from nodesmith_local.backends.embedded import EmbeddedCluster
from nodesmith_local.runs.ownmanifests import of_cluster
from nodesmith_local.runs.running import apply
from nodesmith_local.runs.servedcluster import ServedCluster
from nodesmith_local.runs.system import LocalSystem, Place
from tests.objects.manifests import pod
from tests.patience import eventually, hurried

SPEED = 20.0
POOLS = ("nodeclass.yaml", "nodepool.yaml")
EXPRESS = shipped("_examples", "examples") / "express-test"
PODS = 3


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSystem]:
    """Yield two clusters, each with the default NodePool and three running pods."""
    place = Place("us-east-1", "nodesmith-local", zones=("us-east-1a",), speed=hurried(SPEED), clusters=2)
    with LocalSystem(place, tmp_path_factory.mktemp("state")) as system:
        for each in system.clusters:
            documents = load_manifests([str(EXPRESS / name) for name in POOLS]).documents
            assert apply(each, of_cluster(documents, each.name, system.first.name)) == []
        for each in system.clusters:
            add_pods(each, "web", PODS)
        for each in system.clusters:
            eventually(partial(runs, each, PODS), f"all pods of {each.name} run", 120)
        yield system


@pytest.fixture(scope="module")
def kubeconfig(system: LocalSystem, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with kubeconfig_at(tmp_path_factory.mktemp("kube") / "config", access(system)) as path:
        yield path


def add_pods(cluster: ServedCluster, name: str, count: int, cpu: str = "900m") -> None:
    for number in range(count):
        cluster.objects.create("pods", pod(f"{name}-{number}", cpu=cpu))


def running(cluster: ServedCluster) -> int:
    return cluster.report().running


def runs(cluster: ServedCluster, pods: int) -> bool:
    return running(cluster) == pods


def instances(system: LocalSystem) -> dict[str, Any]:
    """Return the running instances by id."""
    found = system.aws.client("ec2").describe_instances()["Reservations"]
    there = [i for each in found for i in each["Instances"]]
    return {i["InstanceId"]: i for i in there if i["State"]["Name"] in {"pending", "running"}}


def instances_of(cluster: ServedCluster) -> set[str]:
    return {str(n["spec"]["providerID"]).rpartition("/")[2] for n in cluster.objects.list("nodes")}


def node_names(cluster: ServedCluster) -> set[str]:
    return {str(node["metadata"]["name"]) for node in cluster.objects.list("nodes")}


def logged(system: LocalSystem, *words: str) -> Callable[[], bool]:
    """Return a check whether a line of the log contains all these words."""
    return lambda: any(all(w in line for w in words) for line in system.log.read_text().splitlines())


def test_each_clusters_instances_carry_its_tags_lie_in_its_vpc_and_join_only_it(system: LocalSystem) -> None:
    there, homes = instances(system), {each.name: instances_of(each) for each in system.clusters}
    assert list(homes) == ["nodesmith-local", "nodesmith-local-2"]
    assert set.union(*homes.values()) == set(there)
    for name, own in homes.items():
        assert own
        for instance in own:
            tags = {each["Key"]: each["Value"] for each in there[instance]["Tags"]}
            assert tags["eks:eks-cluster-name"] == tags["nodesmith.dev/managed-by"] == name
            assert there[instance]["VpcId"] == system.aws.networks[name].vpc_id
    assert not set.intersection(*homes.values())


def test_each_clusters_decisions_are_kept_under_its_own_name(system: LocalSystem) -> None:
    assert set(clusters(system.first.keep.path)) == {each.name for each in system.clusters}
    for each in system.clusters:
        each.decisions.collect()
        assert {record["cluster"] for record in each.decisions.all} == {each.name}


def test_the_kubeconfig_has_a_context_for_each_cluster(
    system: LocalSystem, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = yaml.safe_load(kubeconfig.read_text())
    assert [each["name"] for each in found["contexts"]] == ["nodesmith-local", "nodesmith-local-2"]
    assert found["current-context"] == "nodesmith-local"
    servers = {each["name"]: each["cluster"]["server"] for each in found["clusters"]}
    assert list(servers.values()) == [each.cluster.url for each in system.clusters]
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    assert one_of_several("nodesmith-local-2") == "nodesmith-local-2"
    assert one_of_several("") == one_of_several(str(kubeconfig)) == "nodesmith-local"
    assert abs((now_at("nodesmith-local-2") - system.clock.now()).total_seconds()) < 60


def test_a_node_is_interrupted_in_its_own_cluster_whichever_context_is_current(
    system: LocalSystem, kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = system.clusters
    before = instances_of(first)
    victim = sorted(instances_of(second))[0]
    with pytest.raises(Rejected, match=r"--context nodesmith-local-3.*did you mean"):
        interrupt(victim, within="30s", kubeconfig=kubeconfig, context="nodesmith-local-3")
    with pytest.raises(Rejected, match=f"no Node.*{victim}"):
        interrupt(victim, within="30s", kubeconfig=kubeconfig, context="nodesmith-local")
    (name, *_) = sorted(node_names(first) & node_names(second))  # both VPCs have the same addresses
    with pytest.raises(Rejected, match=f"{name}: nodesmith-local and nodesmith-local-2 .*--context"):
        interrupt(name, within="30s", kubeconfig=kubeconfig)
    assert interrupt(victim, within="30s", kubeconfig=kubeconfig) == 0
    assert "of cluster nodesmith-local-2" in capsys.readouterr().out
    eventually(lambda: victim not in instances(system), "EC2 has reclaimed it")
    left = len(second.objects.list("pods"))
    add_pods(second, "again", PODS)
    eventually(lambda: running(second) == left + PODS, "new pods run in addition to the remaining ones", 120)
    assert instances_of(first) == before


def test_an_invalid_registration_stops_only_its_own_cluster_and_the_log_says_why(
    system: LocalSystem,
) -> None:
    first, second = system.clusters
    ssm, name = system.aws.client("ssm"), parameter_name(second.name)
    right = ssm.get_parameter(Name=name)["Parameter"]["Value"]
    ssm.put_parameter(Name=name, Value=right.replace("vpc-", "nonsense-"), Type="String", Overwrite=True)
    changed = system.clock.now()
    why = ("nodesmith-local-2", "vpcId: expected the id of the cluster's VPC, found 'nonsense-")
    eventually(logged(system, *why), "the log names the error", 60)
    eventually(
        lambda: system.clock.now() - changed > READ_AGAIN, "no function uses the valid registration", 60
    )
    before = running(second)
    add_pods(first, "meanwhile", PODS)
    add_pods(second, "waiting", PODS, cpu="15")  # more than an existing node has left
    eventually(lambda: running(first) == 2 * PODS, "the other cluster is served", 120)
    assert running(second) == before
    ssm.put_parameter(Name=name, Value=right, Type="String", Overwrite=True)
    eventually(lambda: running(second) == before + PODS, "it is served again", 120)


def test_a_cluster_whose_api_server_goes_away_does_not_keep_the_other_from_being_served(
    system: LocalSystem,
) -> None:
    first, second = system.clusters
    cast(EmbeddedCluster, first.cluster).server.stop()
    before = running(second)
    add_pods(second, "later", PODS)
    eventually(lambda: running(second) == before + PODS, "the other cluster is served", 120)
    assert first.objects.list("nodes")
