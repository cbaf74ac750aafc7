"""What a bought node is recorded as: the claim, the request, and the pods that wait for it."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodesmith.decisions.launch.fleets import launched_claim
from nodesmith.decisions.provisioning import Plan, PlannedNode, decide
from nodesmith.decisions.provisioning.purchase.claims import any_value, claim_name
from nodesmith.model.apimachinery.labels import (
    CAPACITY_TYPE,
    INITIALIZED,
    INSTANCE_TYPE,
    NODEPOOL,
    ZONE,
    Taint,
)
from nodesmith.model.apimachinery.quantities import Resources
from nodesmith.model.apimachinery.requirements import Requirement
from nodesmith.model.ec2.instancetypes import instance_types
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration
from nodesmith.model.nodeclasses.status import Image
from nodesmith.model.snapshot import Snapshot
from tests.builders import (
    EXPRESS,
    NOW,
    ZONES,
    anti_affinity,
    bind,
    catalog,
    claim,
    daemon,
    expression,
    inputs,
    ledger,
    node,
    nodeclass_manifest,
    nodeclass_status,
    nodepool_manifest,
    pods,
    shape,
    snapshot,
)
from tests.objects.launching import instance_of

TYPES = {t.name: t for t in instance_types(catalog(), NodeConfiguration())}


def only(plan: Plan) -> PlannedNode:
    (planned,) = plan.nodes
    return planned


def test_a_claim_is_pending_and_says_who_asked_for_it() -> None:
    made = only(decide(inputs(pods=pods(shape(), 2)))).claim

    assert (made.phase, made.created_at, made.decision) == (Phase.PENDING, NOW, "20261121T120000Z-test")
    assert (made.nodepool, made.nodepool_uid, made.nodeclass.name) == ("default", "uid-default", "default")
    assert made.nominated == ("default/web-0000", "default/web-0001")
    assert made.nodepool_hash
    assert made.nodeclass_hash


def test_labels_taints_and_annotations_come_from_the_nodepool() -> None:
    pool = nodepool_manifest(
        labels={"team": "a"},
        taints=[{"key": "dedicated", "value": "web", "effect": "NoSchedule"}],
        startup_taints=[{"key": "cni", "effect": "NoExecute"}],
    )
    pool["spec"]["template"]["metadata"]["annotations"] = {"example.com/note": "x"}
    pool["spec"]["template"]["spec"] |= {"expireAfter": "24h", "terminationGracePeriod": "1h"}
    guest = shape(tolerations=[{"key": "dedicated", "operator": "Exists"}])

    made = only(decide(inputs(snapshot=snapshot(pods=pods(guest), nodepools=[pool])))).claim

    assert made.labels == {
        "team": "a",
        NODEPOOL: "default",
        "karpenter.k8s.aws/ec2nodeclass": "default",
    }
    assert made.taints == (Taint("dedicated", "NoSchedule", "web"),)
    assert made.startup_taints == (Taint("cni", "NoExecute"),)
    assert made.annotations == {
        "example.com/note": "x",
        "karpenter.k8s.aws/instance-profile-name": "profile",
        "karpenter.sh/nodeclaim-min-values-relaxed": "false",
    }
    assert (made.expire_after, made.termination_grace_period) == ("24h", "1h")


def test_requirements_match_the_request_to_ec2() -> None:
    planned = only(decide(inputs(pods=pods(shape(), 3))))
    overrides, requirements = planned.request.overrides, planned.claim.requirements

    assert requirements[INSTANCE_TYPE].values == {o.instance_type for o in overrides}
    assert requirements[ZONE].values == {o.zone for o in overrides}
    assert requirements[CAPACITY_TYPE].values == {planned.request.capacity_type}
    assert requirements["kubernetes.io/arch"].values == {"amd64"}


def test_the_nodepools_min_values_are_among_the_requirements() -> None:
    flexible = expression(INSTANCE_TYPE, "Exists", minValues=3)
    pool = nodepool_manifest(requirements=(flexible,))

    planned = only(decide(inputs(snapshot=snapshot(pods=pods(shape(), 1), nodepools=[pool]))))

    assert planned.claim.requirements[INSTANCE_TYPE].min_values == 3


def test_requests_are_those_of_the_pods_and_of_the_daemonsets() -> None:
    seen = snapshot(pods=pods(shape("1", "1Gi"), 2), daemonsets=[daemon(cpu="100m", memory="128Mi")])

    made = only(decide(inputs(snapshot=seen))).claim

    assert made.requests == Resources({"cpu": 2100, "memory": (2048 + 128) * 2**20, "pods": 3})


def test_until_its_type_is_known_a_claim_offers_what_all_its_types_do() -> None:
    planned = only(decide(inputs(pods=pods(shape("1", "1Gi"), 2))))
    types = [TYPES[o.instance_type] for o in planned.request.overrides]

    for name in ("cpu", "memory", "pods"):
        assert planned.claim.allocatable.of(name) == min(t.allocatable.of(name) for t in types)


@pytest.mark.parametrize("pods_", [1, 20, 150])
def test_a_request_has_at_most_sixty_overrides_of_at_least_fifteen_types_cheapest_first(pods_: int) -> None:
    for planned in decide(inputs(pods=pods(shape(), pods_))).nodes:
        prices = [o.price_hourly_usd for o in planned.request.overrides]
        assert prices == sorted(prices)
        assert len(prices) <= 60
        assert len({o.instance_type for o in planned.request.overrides}) >= 15
        assert planned.price_hourly_usd == prices[0] == planned.claim.price_hourly_usd


def test_types_that_cost_more_than_twice_the_cheapest_are_left_out_even_where_few_remain() -> None:
    any_type = nodepool_manifest(requirements=(expression(CAPACITY_TYPE, "In", "spot", "on-demand"),))

    planned = only(decide(inputs(snapshot=snapshot(pods=pods(shape("100m")), nodepools=[any_type]))))

    assert planned.request.overrides[-1].price_hourly_usd <= 2 * planned.price_hourly_usd
    assert len({o.instance_type for o in planned.request.overrides}) < 15


def test_where_there_are_few_types_all_are_asked_for() -> None:
    few = nodepool_manifest(
        requirements=(expression(INSTANCE_TYPE, "In", "m5.large", "m6i.large", "m5.xlarge"), EXPRESS[0])
    )

    planned = only(decide(inputs(snapshot=snapshot(pods=pods(shape()), nodepools=[few]))))

    assert {(o.instance_type, o.zone) for o in planned.request.overrides} >= {
        (name, zone) for name in ("m5.large", "m6i.large") for zone in ZONES
    }


def test_an_estimated_price_is_marked() -> None:
    spot = only(decide(inputs(pods=pods(shape()))))
    on_demand = only(decide(inputs(pods=pods(shape(nodeSelector={CAPACITY_TYPE: "on-demand"})))))

    assert (spot.estimated, on_demand.estimated) == (True, False)


class TestNames:
    def test_a_name_is_the_nodepools_name_with_eight_characters_and_is_reproducible(self) -> None:
        assert re.fullmatch("default-[bcdfghjklmnpqrstvwxz2456789]{8}", claim_name("default", "d", 0))
        assert claim_name("default", "d", 0) == claim_name("default", "d", 0)

    def test_names_differ_by_decision_number_and_nodepool(self) -> None:
        names = {claim_name(p, d, i) for p in ("a", "b") for d in ("d", "e") for i in range(500)}

        assert len(names) == 2000

    def test_a_long_nodepool_name_still_makes_a_label_value(self) -> None:
        assert len(claim_name("p" * 63, "d", 0)) == 63

    def test_all_nodes_of_a_decision_have_names_of_their_own(self) -> None:
        nodes = decide(inputs(pods=pods(shape(affinity=anti_affinity()), 40))).nodes

        assert len({n.claim.name for n in nodes}) == 40
        assert all(n.request.claim == n.claim.name == n.request.tags["karpenter.sh/nodeclaim"] for n in nodes)


@pytest.mark.parametrize(
    ("requirement", "value"),
    [
        (Requirement("k", frozenset({"b", "a"})), "a"),
        (Requirement("k"), None),
        (Requirement("k", complement=True), "0"),
        (Requirement("k", frozenset({"0", "1"}), complement=True), "2"),
        (Requirement("k", complement=True, gte=5), "5"),
        (Requirement("k", frozenset({"5"}), complement=True, gte=5, lte=9), "6"),
        (Requirement("k", frozenset({"5"}), complement=True, gte=5, lte=5), None),
        (Requirement("k", complement=True, lte=3), "0"),
    ],
)
def test_a_label_that_is_left_open_gets_the_first_value_allowed(
    requirement: Requirement, value: str | None
) -> None:
    assert any_value(requirement) == value
    assert value is None or requirement.allows(value)


class TestPodsThatWait:
    def decided(self, phase: Phase, *, age: timedelta = timedelta(seconds=5), **fields: Any) -> Plan:
        bought = claim(phase=phase, phase_since=NOW - age, nominated=("default/web-0000",))
        return decide(
            inputs(snapshot=snapshot(pods=pods(shape()), **fields), ledger=ledger(claims=(bought,)))
        )

    @pytest.mark.parametrize("phase", [Phase.PENDING, Phase.LAUNCHED, Phase.REGISTERED, Phase.INITIALIZED])
    def test_a_pod_whose_claim_is_on_its_way_waits_for_it(self, phase: Phase) -> None:
        plan = self.decided(phase)

        assert plan.waiting == {"default/web-0000": "default-x1"}
        assert not plan.nodes

    @pytest.mark.parametrize(
        "key", ["karpenter.k8s.aws/instance-family", "kubernetes.io/arch", "topology.k8s.aws/zone-id", ZONE]
    )
    def test_nothing_more_is_bought_in_the_domains_of_claims_that_have_not_launched(self, key: str) -> None:
        """Two pods may be in no domain together, and the claims already have one pod in each domain."""
        families = expression("karpenter.k8s.aws/instance-family", "In", "c5", "m5")
        apart = shape(affinity=anti_affinity(key=key))
        seen = snapshot(pods=pods(apart, 6), nodepools=[nodepool_manifest(requirements=[families])])
        first = decide(inputs(snapshot=seen))
        bought = ledger(claims=tuple(planned.claim for planned in first.nodes))

        again = decide(inputs(snapshot=seen, ledger=bought))

        assert [planned.claim.phase for planned in first.nodes] == [Phase.PENDING] * len(first.nodes)
        assert 0 < len(first.nodes) < len(seen.pods)
        assert again.nodes == ()

    @pytest.mark.parametrize(
        "selected",
        [{"kubernetes.io/arch": "arm64"}, {"karpenter.k8s.aws/instance-family": "c6g"}, {ZONE: ZONES[1]}],
    )
    def test_capacity_left_on_a_claim_is_used_by_pods_that_select_the_same_nodes(
        self, selected: dict[str, str]
    ) -> None:
        """The NodePool allows other nodes as well, and the claim has not launched."""
        either = nodepool_manifest(requirements=[expression("kubernetes.io/arch", "In", "amd64", "arm64")])
        first = snapshot(pods=pods(shape("1100m", "3Gi", nodeSelector=selected)), nodepools=[either])
        planned = only(decide(inputs(snapshot=first)))
        late = pods(shape("100m", "64Mi", app="late", nodeSelector=selected))

        both = replace(first, pods=(*first.pods, *late))
        plan = decide(inputs(snapshot=both, ledger=ledger(claims=(planned.claim,))))

        assert planned.claim.phase is Phase.PENDING
        assert plan.placed == {planned.claim.name: (late[0].key,)}
        assert plan.nodes == ()

    def test_a_pod_of_a_statefulset_that_leaves_a_terminating_node_is_bought_for_once(self) -> None:
        """Meanwhile the node starts: the pod is created again only when it is gone."""
        leaving = bind(shape(owner="StatefulSet/db"), "node-1", deleting=True)
        going = snapshot(pods=leaving, nodes=[node(deleting=True)])
        (planned,) = decide(inputs(snapshot=going)).nodes
        assert planned.claim.nominated == (leaving[0].key,)

        bought = ledger(claims=(claim(nominated=planned.claim.nominated),))
        back = replace(leaving[0], node="", deleting=False, unschedulable=True, created_at=NOW)
        for seen in (going, snapshot(pods=[back])):
            plan = decide(inputs(snapshot=seen, ledger=bought))
            assert (plan.nodes, plan.waiting) == ((), {leaving[0].key: "default-x1"})

    def test_a_pod_that_did_not_bind_in_time_is_looked_at_again(self) -> None:
        plan = self.decided(Phase.INITIALIZED, age=timedelta(seconds=21))

        assert not plan.waiting
        assert len(plan.nodes) == 1

    def test_a_pod_whose_claim_was_given_up_is_bought_for_again(self) -> None:
        assert len(self.decided(Phase.GIVEN_UP).nodes) == 1

    def test_capacity_that_other_pods_wait_for_is_not_given_away(self) -> None:
        bought = claim(nominated=("default/web-0000", "default/web-0001"))
        small = shape("1500m", app="late")
        seen = snapshot(pods=pods(shape("1500m"), 2) + pods(small, 2))

        plan = decide(inputs(snapshot=seen, ledger=ledger(claims=(bought,))))

        assert set(plan.waiting or {}) == {"default/web-0000", "default/web-0001"}
        assert not plan.placed
        assert sum(len(n.claim.nominated) for n in plan.nodes) == 2

    def test_capacity_left_on_a_claim_is_used(self) -> None:
        bought = claim(nominated=("default/web-0000",))
        late = shape(app="late")
        seen = snapshot(pods=pods(shape()) + pods(late, 2))

        plan = decide(inputs(snapshot=seen, ledger=ledger(claims=(bought,))))

        assert plan.placed == {"default-x1": ("default/late-0000", "default/late-0001")}

    def test_once_the_node_has_joined_its_capacity_is_still_reserved(self) -> None:
        bought = claim(phase=Phase.REGISTERED, nominated=("default/web-0000",), node_name="n1")
        joined = replace(node("n1", cpu="2", provider_id=bought.provider_id), labels={})
        seen = snapshot(pods=pods(shape("3")) + pods(shape("2", app="late")), nodes=[joined])

        plan = decide(inputs(snapshot=seen, ledger=ledger(claims=(bought,))))

        assert plan.waiting == {"default/web-0000": "default-x1"}
        assert [n.claim.nominated for n in plan.nodes] == [("default/late-0000",)]

    def initialized(self, taken_by: str) -> tuple[NodeClaim, Snapshot]:
        """Return a claim bought for one pod of 3 cpu, whose node runs something else by now."""
        bought = claim(
            phase=Phase.INITIALIZED, phase_since=NOW, nominated=("default/web-0000",), node_name="n1"
        )
        joined = node("n1", provider_id=bought.provider_id, labels={INITIALIZED: "true"})
        intruder = bind(shape(taken_by, app="intruder"), "n1", unschedulable=False)
        return bought, snapshot(pods=[*pods(shape("3")), *intruder], nodes=[joined])

    def test_a_node_is_bought_at_once_for_a_pod_whose_capacity_was_taken(self) -> None:
        bought, seen = self.initialized(taken_by="2")

        plan = decide(inputs(snapshot=seen, ledger=ledger(claims=(bought,))))

        assert not plan.waiting
        assert [n.claim.nominated for n in plan.nodes] == [("default/web-0000",)]

    def test_a_pod_whose_capacity_was_taken_may_use_what_the_other_pod_left(self) -> None:
        bought, seen = self.initialized(taken_by="2")
        other = claim("default-x2", nominated=("default/on-n1-0000",))

        plan = decide(inputs(snapshot=seen, ledger=ledger(claims=(bought, other))))

        assert not plan.nodes
        assert plan.placed == {"default-x2": ("default/web-0000",)}

    def test_a_pod_whose_capacity_is_still_free_waits_for_the_scheduler(self) -> None:
        bought, seen = self.initialized(taken_by="500m")

        plan = decide(inputs(snapshot=seen, ledger=ledger(claims=(bought,))))

        assert plan.waiting == {"default/web-0000": "default-x1"}


def test_nodes_that_are_planned_alike_all_carry_the_context_of_their_nodeclass() -> None:
    classes = (nodeclass_manifest(context="context-1"),)
    small = [*EXPRESS, expression(INSTANCE_TYPE, "In", "m5.large")]
    pools = [nodepool_manifest(requirements=small)]
    planned = decide(
        inputs(snapshot=snapshot(pods=pods(shape("1500m"), 4), nodepools=pools, nodeclasses=classes))
    )
    assert [node.request.context for node in planned.nodes] == ["context-1"] * 4


def test_a_node_advertises_efa_only_if_its_pods_asked_for_it() -> None:
    efa = "vpc.amazonaws.com/efa"
    p5 = nodepool_manifest(requirements=[expression(INSTANCE_TYPE, "In", "p5.48xlarge")])
    images = (Image("ami-gpu"),)
    kind = TYPES["p5.48xlarge"]
    known = ledger(nodeclasses={"default": nodeclass_status(images=images)})
    for asked, promised in (({"nvidia.com/gpu": "8"}, 0), ({"nvidia.com/gpu": "8", efa: "4"}, 32)):
        waiting = pods(shape(requests=asked))
        made = only(decide(inputs(snapshot=snapshot(pods=waiting, nodepools=[p5]), ledger=known)))
        launched = launched_claim(made.claim, instance_of(made, "ami-gpu"), kind, NOW)
        interfaces = made.templates[0].data["NetworkInterfaces"]
        assert (made.claim.capacity.of(efa), launched.capacity.of(efa), launched.allocatable.of(efa)) == (
            promised,
        ) * 3
        assert sum(each["InterfaceType"] == "efa" for each in interfaces) == promised
