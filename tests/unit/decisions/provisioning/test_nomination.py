"""Nomination: which pods are nominated, and when; and which nominations by kube-scheduler count."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodesmith.decisions.lifecycle import next_steps
from nodesmith.decisions.provisioning import Plan, decide
from nodesmith.decisions.scheduling.existing import NOMINATION, preempting_only, to_clear, to_nominate
from nodesmith.model.apimachinery.labels import INITIALIZED
from nodesmith.model.commands import ClearNominations, Command, Initialize, Nominate, Open, Register
from nodesmith.model.karpenter.nodeclaimobjects import manifest
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.pods import Pod
from tests.builders import (
    JOINED,
    NOW,
    ZONES,
    bind,
    claim,
    inputs,
    ledger,
    node,
    nodepool_manifest,
    pods,
    shape,
    snapshot,
)

WEB = pods(shape("3"), 2)
KEYS = tuple(pod.key for pod in WEB)
BOUGHT = claim(nominated=KEYS, instance_id="i-1", nodepool_uid="uid-default")
NODE = node("n1", provider_id=BOUGHT.provider_id)
REGISTERED = replace(BOUGHT, phase=Phase.REGISTERED, node_name="n1")


def initialized(ago: timedelta = timedelta()) -> NodeClaim:
    return replace(REGISTERED, phase=Phase.INITIALIZED, phase_since=NOW - ago)


def steps(bought: NodeClaim, some: list[Pod], *nodes: Any) -> list[Command]:
    seen = snapshot(pods=some, nodes=nodes, nodeclaims=(manifest(bought),), nodepools=(nodepool_manifest(),))
    return next_steps([bought], seen, {}, (), NOW)


def bought_again(bought: NodeClaim, *some: Pod, nodes: Any = (NODE,), others: Any = ()) -> Plan:
    return decide(
        inputs(snapshot=snapshot(pods=[*some, *others], nodes=nodes), ledger=ledger(claims=(bought,)))
    )


def nominated(pod: Pod, where: str = "n1", **fields: Any) -> Pod:
    return replace(pod, nominated_node=where, **fields)


class TestWhoIsNominated:
    """The pods that a claim was bought for, as long as they have neither a node nor a nomination."""

    def test_pods_are_nominated_before_their_node_is_opened_to_all_pods(self) -> None:
        nominate, opened, register = steps(BOUGHT, WEB, NODE)

        assert (nominate, opened) == (Nominate(BOUGHT, "n1", KEYS), Open(BOUGHT, "n1"))
        assert isinstance(register, Register)

    def test_a_pod_that_lost_its_nomination_is_nominated_again_while_the_node_starts(self) -> None:
        starting = replace(NODE, conditions={})

        nominations = [step for step in steps(REGISTERED, WEB, starting) if isinstance(step, Nominate)]

        assert nominations == [Nominate(REGISTERED, "n1", KEYS)]

    @pytest.mark.parametrize(
        ("ago", "again"), [(NOMINATION - timedelta(seconds=1), True), (NOMINATION, False)]
    )
    def test_pods_that_are_no_longer_expected_on_the_node_are_not_nominated(
        self, ago: timedelta, again: bool
    ) -> None:
        assert bool(to_nominate([initialized(ago)], WEB, NOW)) is again

    @pytest.mark.parametrize(
        "change",
        [
            pytest.param({"node": "elsewhere"}, id="bound"),
            pytest.param({"nominated_node": "n1"}, id="nominated by us"),
            pytest.param({"nominated_node": "elsewhere"}, id="nominated by the scheduler"),
            pytest.param({"deleting": True}, id="being deleted"),
        ],
    )
    def test_a_pod_that_needs_no_nomination_gets_none(self, change: dict[str, Any]) -> None:
        assert to_nominate([BOUGHT], [WEB[0], replace(WEB[1], **change)], NOW) == {BOUGHT.name: KEYS[:1]}

    def test_pods_that_nothing_was_bought_for_are_left_to_the_scheduler(self) -> None:
        assert to_nominate([BOUGHT], pods(shape(app="other")), NOW) == {}

    def test_a_pod_bought_for_twice_is_nominated_for_the_newer_node(self) -> None:
        again = replace(BOUGHT, name="default-a0", created_at=NOW, nominated=KEYS[:1])

        assert to_nominate([again, initialized()], WEB, NOW) == {
            "default-a0": KEYS[:1],
            BOUGHT.name: KEYS[1:],
        }

    def test_there_is_nothing_to_nominate_for_before_there_is_a_node(self) -> None:
        assert [s for s in steps(BOUGHT, WEB) if isinstance(s, Nominate)] == []

    def test_two_nodes_with_one_provider_id_get_no_pods(self) -> None:
        twins = [NODE, replace(NODE, name="n2")]

        assert [s for s in steps(BOUGHT, WEB, *twins) if isinstance(s, Nominate)] == []

    def test_a_node_with_another_name_than_the_registered_one_gets_no_pods(self) -> None:
        assert [s for s in steps(REGISTERED, WEB, replace(NODE, name="n2")) if isinstance(s, Nominate)] == []

    def test_a_node_whose_pods_are_all_nominated_only_takes_its_next_step(self) -> None:
        joined = node("n1", provider_id=BOUGHT.provider_id, labels=JOINED)
        (step,) = steps(REGISTERED, [nominated(pod) for pod in WEB], joined)

        assert isinstance(step, Initialize)


class TestOwnNominations:
    """A pod that nodesmith nominated waits for its claim, as if it had no nomination."""

    def test_the_pod_waits_for_its_node_and_its_room_there_counts_once(self) -> None:
        pod, other = nominated(WEB[0]), pods(shape("1", app="small"))[0]

        plan = bought_again(replace(REGISTERED, nominated=KEYS[:1]), pod, other)

        assert plan.waiting == {KEYS[0]: BOUGHT.name}
        assert plan.placed == {"n1": (other.key,)}, "3 of 4 CPUs are taken, not 6"
        assert not plan.nodes

    def test_the_pod_is_bought_for_again_when_its_node_and_claim_are_gone(self) -> None:
        plan = bought_again(replace(REGISTERED, phase=Phase.GIVEN_UP), nominated(WEB[0]), nodes=())

        assert [n.claim.nominated for n in plan.nodes] == [KEYS[:1]]

    def test_the_pod_is_bought_for_again_when_others_have_taken_its_room(self) -> None:
        """kube-scheduler keeps the nomination of a pod that must not preempt (preemptionPolicy: Never) forever."""
        intruders = bind(shape("2", app="intruder"), "n1", unschedulable=False)
        ready = replace(NODE, labels={**NODE.labels, INITIALIZED: "true"})

        for ago in (timedelta(), timedelta(hours=1)):
            plan = bought_again(initialized(ago), nominated(WEB[0]), nodes=(ready,), others=intruders)
            assert [n.claim.nominated for n in plan.nodes] == [KEYS[:1]]

    def test_a_pod_that_preempts_on_its_own_node_is_ignored(self) -> None:
        leaving = bind(shape("2", app="intruder"), "n1", unschedulable=False, deleting=True)

        plan = bought_again(initialized(), nominated(WEB[0]), others=leaving)

        assert not plan.nodes
        assert [u.pods for u in plan.ignored] == [KEYS[:1]]


class TestRecreatedPods:
    """A StatefulSet creates its pods again under the same names, after the node was bought and before it is there."""

    def recreated(self, **rules: Any) -> Pod:
        (pod,) = pods(shape(rules.pop("cpu", "3"), **rules))
        return replace(pod, key=KEYS[0], created_at=BOUGHT.created_at + timedelta(seconds=9))

    def test_a_pod_that_the_coming_node_has_room_for_waits_for_it(self) -> None:
        plan = bought_again(replace(BOUGHT, nominated=KEYS[:1]), self.recreated(), nodes=())

        assert (plan.waiting, plan.nodes) == ({KEYS[0]: BOUGHT.name}, ())

    @pytest.mark.parametrize(
        "changed", [{"cpu": "7"}, {"nodeSelector": {"topology.kubernetes.io/zone": ZONES[1]}}]
    )
    def test_a_pod_that_the_coming_node_cannot_hold_gets_another_one(self, changed: dict[str, Any]) -> None:
        plan = bought_again(replace(BOUGHT, nominated=KEYS[:1]), self.recreated(**changed), nodes=())

        assert [n.claim.nominated for n in plan.nodes] == [KEYS[:1]]

    def test_a_pod_whose_room_others_took_loses_its_nomination_and_gets_another_node(self) -> None:
        """kube-scheduler keeps the nomination of a pod that may not preempt: nothing else would remove it."""
        ended = initialized(timedelta(minutes=1))
        pod, intruders = nominated(self.recreated()), bind(shape("2", app="intruder"), "n1")
        seen = snapshot(pods=[pod, *intruders], nodes=[NODE])

        assert to_clear([ended], seen, NOW) == {BOUGHT.name: KEYS[:1]}
        plan = bought_again(ended, pod, others=intruders)
        assert [n.claim.nominated for n in plan.nodes] == [KEYS[:1]]


class TestNominationsThatAreCleared:
    """Obsolete nominations by nodesmith: kube-scheduler reserves their room, and may block other pods for it."""

    def cleared(self, bought: NodeClaim, *some: Pod, others: Any = ()) -> Any:
        return to_clear([bought], snapshot(pods=[*some, *others], nodes=[NODE]), NOW)

    @pytest.mark.parametrize(
        ("ago", "over"), [(NOMINATION - timedelta(seconds=1), False), (NOMINATION, True)]
    )
    def test_nominations_are_cleared_when_pods_are_no_longer_expected_on_the_node(
        self, ago: timedelta, over: bool
    ) -> None:
        found = self.cleared(initialized(ago), *(nominated(pod) for pod in WEB))

        assert found == ({BOUGHT.name: KEYS} if over else {})

    def test_nominations_are_cleared_when_the_pod_waits_for_a_newer_node(self) -> None:
        again = replace(BOUGHT, name="default-a0", created_at=NOW, nominated=KEYS[:1])
        seen = snapshot(pods=[nominated(pod) for pod in WEB], nodes=[NODE])

        assert to_clear([again, initialized()], seen, NOW) == {BOUGHT.name: KEYS[:1]}

    def test_nominations_for_a_started_instance_are_cleared_though_its_claim_is_older_than_the_pods(
        self,
    ) -> None:
        """Warm capacity is bought before the pods exist that it is started for."""
        created_at = NOW - timedelta(hours=1)
        started = replace(
            initialized(NOMINATION), buffer="default/room", created_at=created_at, started_at=NOW
        )
        pods_since = [nominated(pod, created_at=NOW - timedelta(minutes=1)) for pod in WEB]

        assert self.cleared(started, *pods_since) == {BOUGHT.name: KEYS}

    def test_clearing_names_the_node_and_does_not_replace_the_claims_next_step(self) -> None:
        ended = initialized(NOMINATION)

        assert ClearNominations(ended, "n1", KEYS) in steps(ended, [nominated(pod) for pod in WEB], NODE)

    @pytest.mark.parametrize(
        "change",
        [
            pytest.param({"nominated_node": "elsewhere"}, id="by the scheduler"),
            pytest.param({"nominated_node": "", "node": "n1"}, id="bound"),
            pytest.param({"nominated_node": ""}, id="lost already"),
            pytest.param({"deleting": True}, id="being deleted"),
            pytest.param({"created_at": NOW}, id="a new pod of the name"),
        ],
    )
    def test_nominations_of_others_are_not_cleared(self, change: dict[str, Any]) -> None:
        ended = replace(initialized(NOMINATION), created_at=NOW - timedelta(minutes=5))
        pod = replace(nominated(WEB[0], created_at=ended.created_at), **change)

        assert self.cleared(ended, pod) == {}

    def test_a_pod_that_preempts_others_on_the_node_keeps_its_nomination(self) -> None:
        leaving = bind(shape("2", app="intruder"), "n1", unschedulable=False, deleting=True)

        assert self.cleared(initialized(NOMINATION), nominated(WEB[0]), others=leaving) == {}


class TestNominationsOfTheScheduler:
    def test_nominations_of_the_scheduler_count(self) -> None:
        pod = nominated(pods(shape("3", app="vip"))[0])
        seen = snapshot(pods=[pod], nodes=[NODE])

        assert preempting_only(seen, [REGISTERED]) == seen

    def test_a_new_pod_of_a_name_that_was_bought_for_is_not_the_old_one(self) -> None:
        """A StatefulSet creates its pods again under the same names, also after nodesmith has nominated the last."""
        pod = nominated(WEB[0], created_at=NOW - timedelta(seconds=1))
        seen = snapshot(pods=[pod], nodes=[NODE])

        assert preempting_only(seen, [initialized(timedelta(minutes=1))]) == seen

    def test_a_nomination_for_a_node_that_is_gone_does_not_count(self) -> None:
        plan = bought_again(REGISTERED, nominated(pods(shape(app="vip"))[0], "n0"), nodes=())

        assert [n.claim.nominated for n in plan.nodes] == [("default/vip-0000",)]
