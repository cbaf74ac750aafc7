"""`nodesmith local interrupt` and `local shift`: what another process asks of a running system."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from nodesmith.errors import Rejected
from nodesmith_cli.simulator.localcommands.commands import place_of
from nodesmith_cli.simulator.localcommands.interruptcommand import interrupt
from nodesmith_cli.simulator.localcommands.kubeconfigs import kubeconfig_at
from nodesmith_cli.simulator.localcommands.shiftcommand import shift
from nodesmith_cli.views.explaining.commands import RecordSource
from nodesmith_cli.views.explaining.nodecommand import snapshot_of
from nodesmith_cli.views.status import report_of
from nodesmith_formats.localsystem.reaching import now_at, reachable
from nodesmith_formats.manifests.manifests import load_manifests
from nodesmith_formats.shipped import shipped
from nodesmith_local.runs.running import apply, settle
from nodesmith_local.runs.servedcluster import ServedCluster
from nodesmith_local.runs.system import LocalSystem
from nodesmith_local.runs.timeline import LAUNCHED
from tests.patience import eventually, hurried

SPEED = 10.0
PODS = 20


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    """Yield a system that runs the example of 20 pods and has settled."""
    manifests = load_manifests([str(shipped("_examples", "examples") / "express-test")])
    with LocalSystem(place_of(manifests, "", hurried(SPEED)), tmp_path_factory.mktemp("state")) as running:
        system = running.first
        apply(system, manifests.documents)
        assert settle(system, 300) == ""
        yield system


@pytest.fixture(scope="module")
def kubeconfig(system: ServedCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    access = reachable(
        system.cluster.kubeconfig(), system.aws.url, system.aws.region, system.clock, system.name
    )
    with kubeconfig_at(tmp_path_factory.mktemp("kube") / "config", access) as path:
        yield path


def nodes(system: ServedCluster) -> list[str]:
    return [str(node["metadata"]["name"]) for node in system.objects.list("nodes")]


def fullest(system: ServedCluster) -> str:
    """Return the Node with the most pods.

    If the pods came in two batches, as on a busy machine, the first Node may have one pod, which fits on another.
    """
    pods = Counter(pod["spec"].get("nodeName") for pod in system.objects.list("pods"))
    return max(nodes(system), key=lambda name: pods[name])


def instance_of(system: ServedCluster, node: str) -> str:
    return str(system.objects.get("nodes", node)["spec"]["providerID"]).rpartition("/")[2]


def reasons(system: ServedCluster, claim: str) -> set[str]:
    """Return the reasons in a NodeClaim's conditions; empty if the claim is gone."""
    found = system.objects.find("nodeclaims", claim) or {}
    return {str(each.get("reason")) for each in (found.get("status") or {}).get("conditions") or ()}


def states(system: ServedCluster) -> dict[str, str]:
    """Return the states of all instances by id."""
    found = system.aws.client("ec2").describe_instances()["Reservations"]
    return {i["InstanceId"]: i["State"]["Name"] for each in found for i in each["Instances"]}


@pytest.mark.parametrize(("within", "why"), [("soon", "write a duration"), ("3m", "two minutes ahead")])
def test_an_invalid_notice_time_is_refused_with_the_allowed_ones(
    kubeconfig: Path, within: str, why: str
) -> None:
    with pytest.raises(Rejected, match=f"--in .*{why}"):
        interrupt("any", within=within, kubeconfig=kubeconfig)


def test_without_a_running_system_the_error_says_what_to_start(tmp_path: Path) -> None:
    with pytest.raises(Rejected, match=r"no local system runs: .*start `nodesmith local up`"):
        interrupt("any", within="2m", kubeconfig=tmp_path / "config")


def test_a_kubeconfig_that_leads_elsewhere_is_not_taken_for_a_local_cluster(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("{clusters: [{name: production, cluster: {server: 'https://example.com'}}]}")
    with pytest.raises(Rejected, match="`nodesmith local up` did not create"):
        interrupt("any", within="2m", kubeconfig=path)


def test_a_system_that_has_ended_is_reported_as_such(kubeconfig: Path, tmp_path: Path) -> None:
    left = yaml.safe_load(kubeconfig.read_text())
    left["clusters"][0]["cluster"]["server"] = "http://127.0.0.1:9"
    (tmp_path / "config").write_text(yaml.safe_dump(left))
    with pytest.raises(Rejected, match="no cluster runs at its address any more"):
        interrupt("any", within="2m", kubeconfig=tmp_path / "config")


def test_an_unknown_node_leads_to_suggestions(system: ServedCluster, kubeconfig: Path) -> None:
    (name, *_) = nodes(system)
    with pytest.raises(Rejected, match=f"cluster {system.name} has no Node.*did you mean .*{name}"):
        interrupt(name[:-1], within="2m", kubeconfig=kubeconfig)


def test_a_name_like_no_other_leads_to_the_nodes_that_can_be_interrupted(
    system: ServedCluster, kubeconfig: Path
) -> None:
    listed = re.escape(", ".join(sorted(nodes(system))))
    said = f"^cluster {system.name} has no Node, NodeClaim or instance zzz; spot nodes: {listed}$"
    with pytest.raises(Rejected, match=said):
        interrupt("zzz", within="2m", kubeconfig=kubeconfig)


def test_an_interrupted_node_is_replaced_before_ec2_takes_its_instance(
    system: ServedCluster, kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = fullest(system)
    claim, instance = system.claims_by_node()[name], instance_of(system, name)
    began = system.clock.now()
    assert interrupt(name.partition(".")[0], within="90s", kubeconfig=kubeconfig) == 0
    assert f"EC2 reclaims {instance} at " in capsys.readouterr().out
    eventually(lambda: "SpotInterrupted" in reasons(system, claim), "its termination has started")
    now = now_at(str(kubeconfig))
    snapshot, _ = snapshot_of(RecordSource(), str(kubeconfig), now)
    (under_way,) = report_of(snapshot, now)["interruptions"]
    assert (under_way["name"], under_way["cause"]) == (name, "SpotInterrupted")
    assert 0 < under_way["secondsLeft"] < 90
    eventually(lambda: name not in nodes(system), "it is gone")
    eventually(lambda: system.report().running == PODS, "all pods run")
    assert states(system)[instance] == "terminated"
    bought = [e.at for e in system.timeline.entries if e.what == LAUNCHED and e.at > began]
    assert bought
    assert bought[0] < began + timedelta(seconds=90)


def test_ec2_takes_an_instance_on_which_pods_are_left(system: ServedCluster, kubeconfig: Path) -> None:
    (name, *_) = nodes(system)
    instance = instance_of(system, name)
    interrupt(name, within="1s", kubeconfig=kubeconfig)
    eventually(lambda: states(system)[instance] in {"shutting-down", "terminated"}, "EC2 has reclaimed it")
    eventually(lambda: system.report().running == PODS, "all pods run")


ZONE = "us-east-1b"


@pytest.mark.parametrize(
    ("zone", "lasting", "end", "why"),
    [
        ("us-east-1x", "30m", False, "us-east-1x: no zone of us-east-1, did you mean"),
        (ZONE, "soon", False, "--for 'soon': write a duration such as 30m"),
        (ZONE, "73h", False, "--for 73h: a shift lasts at most three days"),
        (ZONE, "30m", True, "nothing is shifted away from it, or from any other zone"),
    ],
)
def test_a_shift_that_cannot_be_is_refused(
    kubeconfig: Path, zone: str, lasting: str, end: bool, why: str
) -> None:
    with pytest.raises(Rejected, match=why):
        shift(zone, lasting=lasting, end=end, kubeconfig=kubeconfig)


def shown_shift(system: ServedCluster) -> str:
    """Return the status of the NodePool's condition of zonal shifts; empty without one."""
    (pool,) = system.objects.list("nodepools")
    found = {c["type"]: c["status"] for c in (pool.get("status") or {}).get("conditions") or ()}
    return str(found.get("ZoneShifted", ""))


def test_a_zone_is_shifted_away_from_until_the_shift_is_ended(
    system: ServedCluster, kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shift(ZONE, lasting="2h", end=False, kubeconfig=kubeconfig) == 0
    assert f"cluster {system.name} is shifted away from {ZONE} (use1-az1) until" in capsys.readouterr().out
    with pytest.raises(Rejected, match="has an active zonal shift: end it with --end first"):
        shift("us-east-1a", lasting="2h", end=False, kubeconfig=kubeconfig)
    eventually(lambda: shown_shift(system) == "True", "routing has noticed the shift within a minute")
    now = now_at(str(kubeconfig))
    snapshot, _ = snapshot_of(RecordSource(), str(kubeconfig), now)
    (reported,) = report_of(snapshot, now)["zonalShifts"]
    assert reported.startswith(f"zone {ZONE} (use1-az1) is shifted away from by a zonal shift until")
    assert shift("use1-az1", lasting="30m", end=True, kubeconfig=kubeconfig) == 0
    eventually(lambda: shown_shift(system) != "True", "its end is known")
