"""Half of the work goes on the local system: the fleet follows it down, in Kubernetes' and AWS's own words."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nodesmith.model.taints import DISRUPTED
from nodesmith_cli.explain import replayed
from nodesmith_cli.local.commands import place_of
from nodesmith_cli.local.functions import shipped
from nodesmith_cli.local.manifests import load_manifests
from nodesmith_cli.local.running import apply, settle
from nodesmith_cli.local.shrinking import Shrunk, shrink
from nodesmith_cli.local.system import LocalSystem
from nodesmith_cli.records import Folder
from tests.patience import hurried

SPEED, LONGEST_SECONDS = 20.0, 3600.0


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSystem]:
    """Give a system that runs the example of 20 pods, and has settled."""
    manifests = load_manifests([str(shipped("_examples", "examples") / "express-test")])
    with LocalSystem(place_of(manifests, "", hurried(SPEED)), tmp_path_factory.mktemp("state")) as system:
        apply(system, manifests.documents)
        assert settle(system, LONGEST_SECONDS) == ""
        yield system


@pytest.fixture(scope="module")
def shrunk(system: LocalSystem) -> Shrunk:
    found = shrink(system, "express-test", 10, LONGEST_SECONDS)
    assert found.unrest == ""
    return found


def test_the_fleet_shrinks_with_the_pods_and_every_other_pod_keeps_a_place(shrunk: Shrunk) -> None:
    """To two nodes mostly; to more and smaller ones where some were looked at before all those pods had gone."""
    assert shrunk.after.price.hourly_usd < 0.9 * shrunk.before.price.hourly_usd
    assert (shrunk.after.running, shrunk.after.pending) == (10, ())


def test_the_saving_of_a_year_is_that_of_the_prices(shrunk: Shrunk) -> None:
    hourly = shrunk.before.price.hourly_usd - shrunk.after.price.hourly_usd
    assert hourly > 0
    assert shrunk.saving_yearly_usd == pytest.approx(hourly * 8760)


def test_no_node_stays_closed_to_new_pods(system: LocalSystem, shrunk: Shrunk) -> None:
    there = {node.name for node in shrunk.after.nodes}
    nodes = [node for node in system.objects.list("nodes") if node["metadata"]["name"] in there]
    assert len(nodes) == len(there)
    assert not [t for node in nodes for t in node["spec"].get("taints") or () if t["key"] == DISRUPTED.key]


def test_the_decision_is_on_record_and_replays(system: LocalSystem, shrunk: Shrunk) -> None:
    (first, *_) = shrunk.decisions
    assert first["plan"]["moves"]
    snapshot = Folder(system.log.parent).get(
        f"clusters/{first['cluster']}/decisions/{first['id']}.snapshot.json.gz"
    )
    assert snapshot is not None
    assert replayed(first, snapshot, lambda _: system.catalog)


def test_kubectl_describe_tells_why(system: LocalSystem, shrunk: Shrunk) -> None:
    assert shrunk.after.nodes
    reasons = {event["reason"] for event in system.objects.list("events")}
    assert {"ConsolidationCandidate", "DisruptionTerminating"} <= reasons
