"""Garbage collection never removes what is needed, and does not leave what is not needed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from nodesmith.decisions.garbagecollection import Inventory, garbage, suspects
from nodesmith.model.commands import EndClaim, Lift, ReleaseNode, TakeBack, Terminate
from nodesmith.model.ec2.launches import Instance
from nodesmith.model.karpenter.nodeclaimobjects import DECISION
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.nodes import Condition, Node
from tests import builders
from tests.builders import NOW, ZONES

NAMES = ("one", "two", "three")
IDS = ("i-1", "i-2", "i-3", "i-4")
AGES = (timedelta(seconds=10), timedelta(hours=1))


def provider_id(instance: str) -> str:
    return f"aws:///{ZONES[0]}/{instance}"


def claims() -> st.SearchStrategy[list[NodeClaim]]:
    def made(name: str, phase: Phase, id_: str, age: timedelta) -> NodeClaim:
        claim = builders.claim(name, phase=phase, phase_since=NOW - age)
        named = id_ if phase not in {Phase.PENDING, Phase.GIVEN_UP} else ""
        return replace(claim, instance_id=named, provider_id=provider_id(named) if named else "")

    return st.lists(
        st.builds(
            made, st.sampled_from(NAMES), st.sampled_from(Phase), st.sampled_from(IDS), st.sampled_from(AGES)
        ),
        unique_by=lambda claim: claim.name,
    )


def instance_of(claim: str, id_: str, age: timedelta = AGES[-1]) -> Instance:
    return Instance(id_, claim, "m5.large", ZONES[0], "spot", "ami", "running", NOW - age)


def instances() -> st.SearchStrategy[list[Instance]]:
    return st.lists(
        st.builds(instance_of, st.sampled_from((*NAMES, "")), st.sampled_from(IDS), st.sampled_from(AGES)),
        unique_by=lambda instance: instance.id,
    )


def node_of(
    id_: str, ours: bool = True, registered: bool = True, ready: bool = True, age: timedelta = AGES[-1]
) -> Node:
    labels = {"karpenter.sh/nodepool": "default"} if ours else {}
    labels |= {"karpenter.sh/registered": "true"} if registered else {}
    node = builders.node(f"node-{id_}", provider_id=provider_id(id_))
    state = {"Ready": Condition("True" if ready else "Unknown")}
    return replace(node, labels=labels, conditions=state, created_at=NOW - age)


def nodes() -> st.SearchStrategy[list[Node]]:
    return st.lists(
        st.builds(
            node_of, st.sampled_from(IDS), st.booleans(), st.booleans(), st.booleans(), st.sampled_from(AGES)
        ),
        unique_by=lambda node: node.name,
    )


@dataclass
class Rest:
    """What remains after everything is carried out, including termination's part for claims that end."""

    instances: dict[str, Instance] = field(default_factory=dict)
    claims: dict[str, NodeClaim] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    nodeclaims: set[str] = field(default_factory=set)


def carried_out(inventory: Inventory) -> Rest:
    rest = Rest(
        {i.id: i for i in inventory.instances},
        {c.name: c for c in inventory.ledger.claims},
        {n.name: n for n in inventory.snapshot.nodes},
        {str(m["metadata"]["name"]) for m in inventory.snapshot.nodeclaims},
    )
    for each in garbage(inventory)[0]:
        match each:
            case Terminate():
                for id_ in each.instances:
                    del rest.instances[id_]
            case TakeBack():
                assert not {claim.name for claim in each.claims} & rest.claims.keys()
                rest.claims |= {claim.name: claim for claim in each.claims}
            case EndClaim():
                rest.claims[each.claim.name] = each.claim
            case ReleaseNode():
                del rest.nodes[each.node]
            case Lift():
                rest.nodeclaims.remove(each.nodeclaim)
            case _:
                raise AssertionError(each)
    return rest


@example([], [instance_of("one", id_) for id_ in IDS[:2]], [node_of(id_) for id_ in IDS[:2]], set(), set())
@given(claims(), instances(), nodes(), st.sets(st.sampled_from(NAMES)), st.sets(st.sampled_from(IDS)))
def test_needed_objects_stay_and_others_are_removed(
    known: list[NodeClaim],
    running: list[Instance],
    shown: list[Node],
    objects: set[str],
    strangers: set[str],
) -> None:
    manifests: tuple[dict[str, Any], ...] = tuple(
        {
            "metadata": {"name": name, "annotations": {DECISION: "d1"}},
            "status": {
                "conditions": [{"type": "Launched", "status": "True"}],
                "providerID": provider_id(IDS[NAMES.index(name)]),
            },
        }
        for name in sorted(objects)
    )
    snapshot = builders.snapshot(nodes=tuple(shown), nodeclaims=manifests)
    ledger = builders.ledger(claims=tuple(known))
    living = set(suspects(snapshot, running, ledger)) & strangers
    alive = living | {instance.id for instance in running}
    inventory = Inventory(snapshot, running, {}, ledger, living, {}, NOW)

    rest = carried_out(inventory)

    named = {claim.instance_id for claim in known}
    for instance in running:
        gone = instance.id not in rest.instances
        young = NOW - instance.launched_at < timedelta(minutes=1)
        assert not (gone and (instance.id in named or young))
        served = any(
            n.provider_id == instance.provider_id and n.labels.get("karpenter.sh/registered") for n in shown
        )
        doubled = any(claim.name == instance.claim and claim.instance_id for claim in known)
        assert not (gone and served and instance.claim and not doubled), "pods ran on it"
        waiting = any(claim.name == instance.claim and not claim.instance_id for claim in known)
        # Of two instances with one claim, the first is taken back; the next collection looks at the second one.
        waiting |= instance.claim in rest.claims.keys() - {claim.name for claim in known}
        assert gone or young or waiting or instance.id in {c.instance_id for c in rest.claims.values()}
    for claim in known:
        after = rest.claims[claim.name]
        node_ready = any(n.provider_id == claim.provider_id and n.is_ready for n in shown)
        assert after == claim or not (claim.instance_id in alive or node_ready or claim.is_ending)
    for node in shown:
        instance_id = node.provider_id.rpartition("/")[2]
        if node.name not in rest.nodes:
            assert instance_id not in alive | named
            assert not node.is_ready
    for name in objects - rest.nodeclaims:
        assert name not in {claim.name for claim in known}
        assert IDS[NAMES.index(name)] not in alive
    again = replace(
        inventory,
        instances=list(rest.instances.values()),
        ledger=builders.ledger(claims=tuple(rest.claims.values())),
        snapshot=replace(
            snapshot,
            nodes=tuple(rest.nodes.values()),
            nodeclaims=tuple(m for m in manifests if m["metadata"]["name"] in rest.nodeclaims),
        ),
    )
    assert [each for each in garbage(again)[0] if not isinstance(each, Terminate | ReleaseNode | Lift)] == []
