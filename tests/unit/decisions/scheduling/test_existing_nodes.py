"""Existing and in-flight nodes, and what they can still take."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodesmith.decisions.scheduling.conflicts import PodConflicts
from nodesmith.decisions.scheduling.existing import (
    ExistingNode,
    existing_node_of,
    existing_nodes,
    nominations,
)
from nodesmith.decisions.scheduling.placement import AvailableCapacity
from nodesmith.decisions.scheduling.topology.mergednodes import ClusterNodes
from nodesmith.model.apimachinery.labels import DISRUPTED, UNREGISTERED, Taint
from nodesmith.model.apimachinery.quantities import parse_resources
from nodesmith.model.apimachinery.requirements import Requirements, requirement
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.nodes import Node, parse_node
from nodesmith.model.kubernetes.pods import Pod, Shape
from tests.builders import NOW, ZONES, anti_affinity, bind, claim, daemon, node, pods, shape, snapshot, spread

HOSTNAME = "kubernetes.io/hostname"


def only(*claims: NodeClaim, **fields: Any) -> ExistingNode:
    (existing,) = existing_nodes(snapshot(**fields), claims)
    return existing


def takes(existing: ExistingNode, of: Shape, wanted: int = 100) -> int:
    conflicts = PodConflicts([of, *existing.hosted, *existing.expected])
    return AvailableCapacity([existing], conflicts).capacity(existing, of, wanted)


def ours(**fields: Any) -> Node:
    """A node that was bought for the claim default-x1 and has just joined."""
    return node("n1", provider_id=claim().provider_id, **fields)


def test_a_node_takes_what_its_pods_leave() -> None:
    existing = only(nodes=[node()], pods=bind(shape("1500m"), "node-1"))

    assert takes(existing, shape("500m")) == 5
    assert takes(existing, shape("1")) == 2
    assert takes(existing, shape("3")) == 0


def test_the_number_of_pods_is_a_resource_too() -> None:
    existing = only(nodes=[node(cpu="64")], pods=bind(shape("1m"), "node-1", 50))

    assert takes(existing, shape("1m")) == 8


@pytest.mark.parametrize(
    ("requests", "expected"), [({"nvidia.com/gpu": "1"}, 0), ({"nvidia.com/gpu": "0"}, 4), ({}, 4)]
)
def test_a_resource_that_a_node_lacks_matters_only_to_pods_that_request_it(
    requests: dict[str, str], expected: int
) -> None:
    assert takes(only(nodes=[node()]), shape(requests=requests)) == expected


def test_a_pod_without_a_memory_request_fits_a_node_with_overcommitted_memory() -> None:
    existing = only(nodes=[node(memory="1Gi")], pods=bind(shape("1", "2Gi"), "node-1"))

    assert takes(existing, shape("1", "0")) == 3
    assert takes(existing, shape("1", "1")) == 0


def test_an_overcommitted_node_is_not_merged_where_pods_request_nothing_of_what_it_lacks() -> None:
    crowded = only(nodes=[node(cpu="1")], pods=bind(shape("2"), "node-1"))
    assert crowded.free.cpu_milli < 0

    kept = ClusterNodes([crowded], (), [shape("0")]).without((), [shape("0")])
    assert [each.free for each in kept] == [crowded.free]


def test_expected_daemonset_pods_are_counted_once() -> None:
    agent = daemon(cpu="1")

    missing = only(nodes=[node()], daemonsets=[agent])
    present = only(nodes=[node()], daemonsets=[agent], pods=bind(daemon(cpu="1"), "node-1"))

    assert takes(missing, shape()) == takes(present, shape()) == 3


def test_daemonsets_of_one_name_in_two_namespaces_are_two() -> None:
    agent = daemon(cpu="1")
    twin = shape("1", namespace="other", owner="DaemonSet/agent")

    existing = only(nodes=[node()], daemonsets=[agent, twin], pods=bind(daemon(cpu="1"), "node-1"))

    assert takes(existing, shape()) == 2


@pytest.mark.parametrize(
    ("spec", "left"),
    [
        ({}, 4),
        ({"tolerations": [{"operator": "Exists"}]}, 3),
        ({"tolerations": [{"operator": "Exists"}], "nodeSelector": {"kubernetes.io/arch": "arm64"}}, 4),
        ({"tolerations": [{"operator": "Exists"}], "nodeSelector": {"kubernetes.io/arch": "amd64"}}, 3),
    ],
)
def test_only_daemonsets_that_belong_on_a_node_are_expected(spec: dict[str, Any], left: int) -> None:
    tainted = node(taints=[Taint("dedicated", "NoSchedule", "web")])
    guest = shape(tolerations=[{"key": "dedicated", "operator": "Exists"}])

    assert takes(only(nodes=[tainted], daemonsets=[daemon(cpu="1", **spec)]), guest) == left


@pytest.mark.parametrize(
    ("taint", "tolerations", "admitted"),
    [
        (Taint("a", "NoSchedule", "1"), [], False),
        (Taint("a", "NoExecute"), [], False),
        (Taint("a", "PreferNoSchedule"), [], True),
        (Taint("a", "NoSchedule", "1"), [{"key": "a", "value": "1"}], True),
        (Taint("a", "NoSchedule", "1"), [{"key": "a", "value": "2"}], False),
        (Taint("a", "NoSchedule", "1"), [{"key": "a", "operator": "Exists", "effect": "NoExecute"}], False),
        (Taint("node.kubernetes.io/not-ready", "NoSchedule"), [], False),
    ],
)
def test_taints_keep_out_pods_that_do_not_tolerate_them(
    taint: Taint, tolerations: list[dict[str, str]], admitted: bool
) -> None:
    assert bool(takes(only(nodes=[node(taints=[taint])]), shape(tolerations=tolerations))) is admitted


def test_a_cordoned_node_takes_nothing() -> None:
    manifest = {
        "metadata": {"name": "n", "creationTimestamp": "2026-11-21T12:00:00Z"},
        "spec": {"unschedulable": True},
        "status": {"allocatable": {"cpu": "4", "memory": "4Gi", "pods": "9"}},
    }

    assert takes(only(nodes=[parse_node(manifest)]), shape()) == 0


def test_a_node_being_deleted_takes_no_pods() -> None:
    assert existing_nodes(snapshot(nodes=[node(deleting=True)]), ()) == []


def test_a_node_that_may_be_disrupted_takes_no_pods_but_its_pods_still_count() -> None:
    tolerant = shape(tolerations=[{"operator": "Exists"}])
    closed = only(nodes=[node(taints=[DISRUPTED])], pods=bind(shape(), "node-1"))
    assert takes(closed, tolerant) == 0
    assert closed.hosted.total() == 1


@pytest.mark.parametrize(
    ("selector", "admitted"),
    [
        ({"kubernetes.io/arch": "amd64"}, True),
        ({"kubernetes.io/arch": "arm64"}, False),
        ({"topology.kubernetes.io/zone": ZONES[0]}, True),
        ({"failure-domain.beta.kubernetes.io/zone": ZONES[0]}, True),
        ({"kubernetes.io/hostname": "node-1"}, True),
        ({"kubernetes.io/hostname": "node-2"}, False),
        ({"team": "a"}, False),
    ],
)
def test_a_node_must_have_the_selected_labels(selector: dict[str, str], admitted: bool) -> None:
    assert bool(takes(only(nodes=[node()]), shape(nodeSelector=selector))) is admitted


class TestNodesThatStart:
    """For a node that is not initialized yet, the claim says what it will be."""

    def test_a_claim_without_a_node_takes_what_its_node_will_offer(self) -> None:
        existing = only(claim(), daemonsets=[daemon(cpu="1")])

        assert (existing.name, existing.in_flight) == ("default-x1", True)
        assert takes(existing, shape()) == 3

    def test_a_claim_before_launch_expects_daemonsets_and_has_labels_with_a_single_value(
        self,
    ) -> None:
        pending = claim(
            phase=Phase.PENDING,
            labels={"karpenter.sh/nodepool": "default"},
            requirements=Requirements.of(
                requirement("topology.kubernetes.io/zone", "In", [ZONES[1]]),
                requirement("node.kubernetes.io/instance-type", "In", ["m5.large", "m6i.large"]),
            ),
        )

        existing = only(pending, daemonsets=[daemon(cpu="1", nodeSelector={"kubernetes.io/os": "linux"})])

        assert takes(existing, shape(nodeSelector={"topology.kubernetes.io/zone": ZONES[1]})) == 3
        assert takes(existing, shape(nodeSelector={"topology.kubernetes.io/zone": ZONES[0]})) == 0
        assert takes(existing, shape(nodeSelector={"node.kubernetes.io/instance-type": "m5.large"})) == 0

    def test_a_claim_and_its_node_count_once(self) -> None:
        existing = only(claim(), nodes=[ours()])

        assert (existing.name, existing.in_flight) == ("n1", True)

    def test_a_node_without_a_provider_id_hides_no_claim_that_has_none_either(self) -> None:
        found = existing_nodes(snapshot(nodes=[node(provider_id="")]), [claim(phase=Phase.PENDING)])

        assert [existing.name for existing in found] == ["node-1", "default-x1"]

    @pytest.mark.parametrize(
        ("taint", "admitted"),
        [
            (Taint("node.kubernetes.io/not-ready", "NoSchedule"), True),
            (Taint("node.kubernetes.io/not-ready", "NoExecute"), True),
            (Taint("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule", "true"), True),
            (UNREGISTERED, True),
            (Taint("cni", "NoSchedule", "starting"), True),
            (Taint("dedicated", "NoSchedule"), False),
        ],
    )
    def test_taints_that_a_starting_node_loses_do_not_keep_pods_away(
        self, taint: Taint, admitted: bool
    ) -> None:
        starting = claim(startup_taints=(Taint("cni", "NoSchedule"),))

        assert bool(takes(only(starting, nodes=[ours(taints=[taint])]), shape())) is admitted

    def test_once_initialised_every_taint_counts(self) -> None:
        started = claim(phase=Phase.INITIALIZED, startup_taints=(Taint("cni", "NoSchedule"),))
        labels = {"karpenter.sh/initialized": "true"}

        existing = only(started, nodes=[ours(labels=labels, taints=[Taint("cni", "NoSchedule")])])

        assert not existing.in_flight
        assert takes(existing, shape()) == 0

    def test_labels_and_capacity_missing_on_the_node_come_from_the_claim(self) -> None:
        bare = replace(ours(), labels={}, allocatable=parse_resources({}), capacity=parse_resources({}))

        existing = only(claim(), nodes=[bare])

        assert takes(existing, shape(nodeSelector={"karpenter.sh/nodepool": "default"})) == 4

    def test_initialised_nodes_come_first_then_by_name(self) -> None:
        nodes = [node("b"), node("a"), ours()]

        found = existing_nodes(snapshot(nodes=nodes), [claim(), claim("a-claim")])

        assert [existing.name for existing in found] == ["a", "b", "a-claim", "n1"]

    @pytest.mark.parametrize("phase", [Phase.REGISTERED, Phase.INITIALIZED])
    def test_a_claim_whose_node_has_vanished_takes_no_pods(self, phase: Phase) -> None:
        assert existing_nodes(snapshot(), [claim(phase=phase)]) == []


@pytest.mark.parametrize(
    ("phase", "age", "holds"),
    [
        (Phase.PENDING, timedelta(hours=1), True),
        (Phase.LAUNCHED, timedelta(hours=1), True),
        (Phase.REGISTERED, timedelta(hours=1), True),
        (Phase.INITIALIZED, timedelta(seconds=19), True),
        (Phase.INITIALIZED, timedelta(seconds=20), False),
        (Phase.GIVEN_UP, timedelta(0), False),
    ],
)
def test_a_nomination_lasts_until_shortly_after_the_node_is_initialised(
    phase: Phase, age: timedelta, holds: bool
) -> None:
    bought = claim(phase=phase, phase_since=NOW - age, nominated=("default/web-0000",))

    assert nominations([bought], NOW) == ({"default/web-0000": "default-x1"} if holds else {})


def test_a_pod_nominated_twice_waits_for_the_same_claim_in_any_order() -> None:
    both = [claim(name, nominated=("default/web-0000",)) for name in ("a", "b")]

    assert nominations(both, NOW) == nominations(both[::-1], NOW)


def test_the_node_of_a_claim_is_found_before_and_after_it_joined() -> None:
    mine = claim()
    empty, joined = snapshot(), snapshot(nodes=[ours()])
    before, after = existing_nodes(empty, [mine]), existing_nodes(joined, [mine])

    assert existing_node_of(mine, {each.name: each for each in before}, empty) is before[0]
    by_name = {each.name: each for each in after}
    assert existing_node_of(mine, by_name, joined) is after[0]
    assert existing_node_of(claim("other"), by_name, joined) is None


class TestRulesOfTheNode:
    """Host ports, anti-affinity and spreads over nodes."""

    def port(self, number: int = 8080, **more: Any) -> dict[str, Any]:
        return {"containers": [{"name": "main", "ports": [{"hostPort": number, **more}]}]}

    @pytest.mark.parametrize(
        ("theirs", "mine", "expected"),
        [
            ({}, {}, 0),
            ({"number": 9090}, {}, 1),
            ({"protocol": "UDP"}, {}, 1),
            ({"hostIP": "10.0.0.1"}, {}, 0),
            ({"hostIP": "10.0.0.1"}, {"hostIP": "10.0.0.2"}, 1),
            ({"hostIP": "10.0.0.1"}, {"hostIP": "10.0.0.1"}, 0),
            ({"hostIP": "::"}, {"hostIP": "10.0.0.1"}, 0),
        ],
    )
    def test_a_host_port_is_used_once(
        self, theirs: dict[str, Any], mine: dict[str, Any], expected: int
    ) -> None:
        other = shape(app="other", **self.port(**theirs))

        existing = only(nodes=[node()], pods=bind(other, "node-1"))

        assert takes(existing, shape(**self.port(**mine))) == expected

    def test_the_host_port_of_a_daemonset_is_taken_before_its_pod_is_there(self) -> None:
        existing = only(nodes=[node()], daemonsets=[daemon(**self.port())])

        assert takes(existing, shape(**self.port())) == 0
        assert takes(existing, shape(**self.port(9090))) == 1

    def test_pods_that_repel_each_other_go_one_to_a_node(self) -> None:
        alone = shape(affinity=anti_affinity())

        assert takes(only(nodes=[node()]), alone) == 1
        assert takes(only(nodes=[node()], pods=bind(alone, "node-1")), alone) == 0

    def test_anti_affinity_works_both_ways(self) -> None:
        hermit, guest = shape(app="hermit", affinity=anti_affinity("web")), shape()

        assert takes(only(nodes=[node()], pods=bind(hermit, "node-1")), guest) == 0
        assert takes(only(nodes=[node()], pods=bind(guest, "node-1")), hermit) == 0
        assert takes(only(nodes=[node()]), hermit) > 1

    @pytest.mark.parametrize(
        ("term", "expected"),
        [({}, 3), ({"namespaces": ["other"]}, 0), ({"namespaceSelector": {}}, 0)],
    )
    def test_anti_affinity_reaches_as_far_as_its_namespaces(
        self, term: dict[str, Any], expected: int
    ) -> None:
        stranger = shape("1m", namespace="other")
        shy = shape(app="shy", affinity=anti_affinity("web", **term))

        assert takes(only(nodes=[node()], pods=bind(stranger, "node-1")), shy) == expected

    def test_a_pod_that_repels_only_another_namespace_shares_a_node_with_its_own(self) -> None:
        loose = shape(affinity=anti_affinity("web", namespaces=["other"]))

        assert takes(only(nodes=[node()]), loose) == 4

    @pytest.mark.parametrize(("skew", "there", "expected"), [(1, 0, 1), (1, 1, 0), (3, 1, 2), (2, 3, 0)])
    def test_a_spread_over_nodes_limits_how_many_share_one(
        self, skew: int, there: int, expected: int
    ) -> None:
        spreading = shape("100m", topologySpreadConstraints=spread(HOSTNAME, hard=True, max_skew=skew))

        existing = only(nodes=[node()], pods=bind(shape("100m"), "node-1", there))

        assert takes(existing, spreading) == expected

    @pytest.mark.parametrize(("there", "expected"), [(0, 4), (1, 3), (2, 0)])
    def test_a_spread_over_nodes_that_does_not_count_the_pod_itself_limits_nothing_but_others(
        self, there: int, expected: int
    ) -> None:
        spreading = shape(app="web", topologySpreadConstraints=spread(HOSTNAME, hard=True, app="db"))

        existing = only(nodes=[node()], pods=bind(shape(app="db"), "node-1", there))

        assert takes(existing, spreading) == expected

    def test_pods_being_deleted_count_for_resources_but_not_for_a_spread(self) -> None:
        spreading = shape(topologySpreadConstraints=spread(HOSTNAME, hard=True))

        existing = only(nodes=[node(cpu="2")], pods=bind(shape(), "node-1", deleting=True))

        assert takes(existing, spreading) == 1
        assert takes(existing, shape("2")) == 0

    def test_a_preferred_spread_over_nodes_limits_nothing(self) -> None:
        relaxation = shape(topologySpreadConstraints=spread(HOSTNAME, hard=False))

        assert takes(only(nodes=[node()]), relaxation) == 4


def test_assigned_pods_reduce_the_capacity() -> None:
    existing = only(nodes=[node()])
    web = shape()

    existing.take(web, 3)

    assert takes(existing, web) == 1
    assert existing.hosted[web] == 3


class TestNominatedPods:
    """Pods that kube-scheduler has nominated for a node, usually because it preempts others there."""

    def test_capacity_is_reserved_for_a_nominated_pod_before_it_is_bound(self) -> None:
        existing = only(nodes=[node()], pods=nominate(shape("3", app="vip"), "node-1"))

        assert takes(existing, shape()) == 1

    def test_the_pods_that_it_preempts_keep_their_capacity_until_they_are_gone(self) -> None:
        victims = bind(shape("4", app="victim"), "node-1", deleting=True)

        existing = only(nodes=[node()], pods=[*victims, *nominate(shape("3", app="vip"), "node-1")])
        after = only(nodes=[node()], pods=nominate(shape("3", app="vip"), "node-1"))

        assert takes(existing, shape("100m")) == 0
        assert takes(existing, shape("0")) > 0, "who asks for nothing is let in"
        assert takes(after, shape("100m")) == 10

    def test_capacity_is_reserved_only_on_the_nominated_node(self) -> None:
        first, second = existing_nodes(
            snapshot(nodes=[node(), node("node-2")], pods=nominate(shape("3", app="vip"), "node-2")), ()
        )

        assert (takes(first, shape()), takes(second, shape())) == (4, 1)

    def test_a_nominated_pod_already_repels_others(self) -> None:
        hermit = shape(app="hermit", affinity=anti_affinity("web"))

        assert takes(only(nodes=[node()], pods=nominate(hermit, "node-1")), shape()) == 0

    def test_a_nominated_daemonset_pod_is_not_counted_twice(self) -> None:
        agent = daemon(cpu="1")

        existing = only(nodes=[node()], daemonsets=[agent], pods=nominate(daemon(cpu="1"), "node-1"))

        assert takes(existing, shape()) == 3

    def test_no_capacity_is_reserved_for_a_nominated_pod_being_deleted(self) -> None:
        going = [replace(pod, deleting=True) for pod in nominate(shape("3", app="vip"), "node-1")]

        assert takes(only(nodes=[node()], pods=going), shape()) == 4


def nominate(of: Shape, where: str, count: int = 1) -> list[Pod]:
    return [replace(pod, nominated_node=where) for pod in pods(of, count)]
