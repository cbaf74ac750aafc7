"""Clusters whose workload has shrunk: a random problem's plan, carried out, with pods removed and others protected.

`violations` lists what is wrong with the moves proposed for such a cluster; it shares only the parsing of prices and
manifests with the search.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, fsum
from typing import Any

from nodesmith.decisions.disruption.proposals import Proposal, Proposals
from nodesmith.decisions.provisioning import Inputs, Plan
from nodesmith.model.apimachinery.labels import CAPACITY_TYPE
from nodesmith.model.apimachinery.quantities import parse_resources
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.ec2.instancetypes import InstanceType, instance_types
from nodesmith.model.karpenter.disruption import REBALANCE_ZONES
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration
from nodesmith_cli.audit import audit
from nodesmith_cli.planning import plan_json
from nodesmith_cli.planning.ledger import fleet_of
from tests.benchmarks.packing.following import joining, running
from tests.problems.drawing import Mix, Problem, draw
from tests.problems.planning import inputs_of, planned

Manifest = dict[str, Any]
PROTECTED = "karpenter.sh/do-not-disrupt"
_BUDGETS = ("100%", "100%", "50%", "10%", "1", "2", "0")
_POLICIES = ("WhenEmptyOrUnderutilized", "WhenEmptyOrUnderutilized", "Balanced", "WhenEmpty")
_MIX = Mix(most_pods=24, most_shapes=5)
FROM_ONE = 20
"""How many clusters are shrunk, each differently, from one problem's plan."""
_LEAST_SAVING = 0.02
_SAME = 1e-6


@dataclass(frozen=True, slots=True)
class Cluster:
    """The manifests of a running cluster, and its catalogue."""

    manifests: tuple[Manifest, ...]
    catalog: Catalog

    def inputs(self) -> Inputs:
        """Read the cluster as `nodesmith plan --consolidate` does."""
        return fleet_of(inputs_of(self.manifests, self.catalog))

    def of_kind(self, kind: str) -> list[Manifest]:
        """Return the objects of a kind."""
        return [m for m in self.manifests if m["kind"] == kind]


@dataclass(frozen=True, slots=True)
class _Grown:
    """A problem, the Nodes of its carried-out plan, and the node of each placed pod."""

    problem: Problem
    nodes: tuple[Manifest, ...]
    hosts: Mapping[str, str]


@lru_cache(maxsize=4)
def _grown(seed: int) -> _Grown:
    """Carry out the plan of a problem: that is expensive, so several clusters are shrunk from each."""
    problem = draw(seed, _MIX)
    made = planned(problem.manifests, problem.catalog)
    types = types_of(problem.catalog)
    joined = [(f"new-{n:03d}", node) for n, node in enumerate(made.plan["nodes"])]
    nodes = tuple(joining(name, node, types[node["instanceType"]]) for name, node in joined)
    for (_, bought), node in zip(joined, nodes, strict=True):
        node["metadata"]["labels"] |= bought["labels"] | {"kubernetes.io/hostname": node["metadata"]["name"]}
    hosts = {pod: name for name, node in joined for pod in node["pods"]}
    hosts |= {pod: node["node"] for node in made.plan["existing"] for pod in node["pods"]}
    return _Grown(problem, nodes, hosts)


def shrunk(seed: int, *, rebalancing: bool = False, drifting: bool = False) -> Cluster:
    """Return the cluster of this seed.

    With `rebalancing`, all its NodePools that may move pods ask for zones to be rebalanced.

    With `drifting`, they no longer allow spot, so that nodes drift, including those without the label.
    """
    grown = _grown(seed // FROM_ONE)
    dice = random.Random(seed)  # noqa: S311
    kept: list[Manifest] = []
    for manifest in grown.problem.manifests:
        if manifest["kind"] == "NodePool":
            nodepool = _disruptable(manifest, dice, {REBALANCE_ZONES: "On"} if rebalancing else {})
            kept.append(_without_spot(nodepool) if drifting else nodepool)
        elif manifest["kind"] != "Pod":
            kept.append(manifest)
        elif dice.random() < 0.6:
            kept.append(_bound(manifest, grown.hosts, dice))
    return Cluster((*kept, *grown.nodes, *_budgets(dice)), grown.problem.catalog)


def _disruptable(nodepool: Manifest, dice: random.Random, annotations: Mapping[str, str]) -> Manifest:
    budgets: list[Manifest] = [{"nodes": dice.choice(_BUDGETS)}]
    if dice.random() < 0.3 and budgets[0]["nodes"] == "100%":
        reasons = dice.choice((["Empty"], ["Underutilized"], ["Empty", "Drifted"]))
        budgets.append({"nodes": dice.choice(_BUDGETS[2:]), "reasons": reasons})
    disruption = {
        "consolidateAfter": dice.choice(("0s", "30s")),
        "consolidationPolicy": dice.choice(_POLICIES),
        "budgets": budgets,
    }
    metadata = {**nodepool["metadata"]}
    if disruption["consolidationPolicy"] != "WhenEmpty":
        metadata["annotations"] = {**metadata.get("annotations", {}), **annotations}
    return {**nodepool, "metadata": metadata, "spec": {**nodepool["spec"], "disruption": disruption}}


def _without_spot(nodepool: Manifest) -> Manifest:
    spec = nodepool["spec"]
    inside = spec["template"]["spec"]
    wanted = [*inside["requirements"], {"key": CAPACITY_TYPE, "operator": "In", "values": ["on-demand"]}]
    template = {**spec["template"], "spec": {**inside, "requirements": wanted}}
    return {**nodepool, "spec": {**spec, "template": template}}


def _bound(pod: Manifest, hosts: Mapping[str, str], dice: random.Random) -> Manifest:
    metadata = dict(pod["metadata"])
    if dice.random() < 0.04:
        metadata["annotations"] = {**metadata.get("annotations", {}), PROTECTED: "true"}
    pod = {**pod, "metadata": metadata}
    host = pod["spec"].get("nodeName") or hosts.get(key_of(pod))
    return _ready(pod, host) if host else pod


def _ready(pod: Manifest, node: str) -> Manifest:
    return {
        **running(pod, node),
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


def _budgets(dice: random.Random) -> Iterator[Manifest]:
    for number in range(dice.choice((0, 0, 1, 2))):
        app = dice.choice(("a", "b", "c"))
        yield {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": f"guard-{number}", "namespace": "default", "generation": 1},
            "spec": {"selector": {"matchLabels": {"app": app}}, "maxUnavailable": 1},
            "status": {
                "observedGeneration": 1,
                "disruptionsAllowed": dice.choice((0, 1, 2)),
                "currentHealthy": 3,
                "desiredHealthy": 2,
                "expectedPods": 3,
            },
        }


def types_of(catalog: Catalog) -> dict[str, InstanceType]:
    """Return the types of a catalogue by name."""
    return {one.name: one for one in instance_types(catalog, NodeConfiguration())}


def key_of(pod: Manifest) -> str:
    """Return a pod's key, namespace/name, as decisions write it."""
    return f"{pod['metadata'].get('namespace', 'default')}/{pod['metadata']['name']}"


def moved(cluster: Cluster, found: Sequence[Proposal], inputs: Inputs, turn: int) -> Cluster:
    """Return the cluster after these moves, with each new node as the cheapest of its options."""
    types, gone = types_of(cluster.catalog), _gone(found, inputs)
    written = plan_json(Plan(nodes=tuple(n for p in found for n in p.replacements)))["nodes"]
    names = {node["name"]: f"turn-{turn}-{number:03d}" for number, node in enumerate(written)}
    hosts = {pod: names.get(at, at) for proposal in found for pod, at in proposal.destinations.items()}
    come = [joining(names[n["name"]], n, types[n["instanceType"]]) for n in written]
    for node, bought in zip(come, written, strict=True):
        node["metadata"]["labels"] = {
            **bought["labels"],
            **node["metadata"]["labels"],
        }
    left = [
        _rehosted(m, hosts, gone)
        for m in cluster.manifests
        if m["kind"] != "Node" or m["metadata"]["name"] not in gone
    ]
    return Cluster((*(m for m in left if m is not None), *come), cluster.catalog)


def _rehosted(manifest: Manifest, hosts: Mapping[str, str], gone: frozenset[str]) -> Manifest | None:
    if manifest["kind"] != "Pod":
        return manifest
    if key_of(manifest) in hosts:
        return _ready(manifest, hosts[key_of(manifest)])
    return None if manifest["spec"].get("nodeName") in gone else manifest


def _gone(found: Iterable[Proposal], inputs: Inputs) -> frozenset[str]:
    names = {claim.name: claim.node_name for claim in inputs.ledger.claims}
    return frozenset(names[source] for proposal in found for source in proposal.sources)


def violations(cluster: Cluster, inputs: Inputs, found: Proposals) -> list[str]:
    """Return everything that is wrong with the proposals for a cluster."""
    gone = _gone(found.proposals, inputs)
    return [
        *_of_sources(cluster, gone),
        *_of_node_budgets(cluster, inputs, found.proposals),
        *_of_pod_budgets(cluster, gone),
        *_of_places(cluster, inputs, found.proposals),
        *_of_limits(cluster, found.proposals),
        *_of_prices(cluster, inputs, found.proposals),
        *_of_placing(cluster, inputs, found.proposals),
    ]


def _pods_on(cluster: Cluster, nodes: Iterable[str]) -> list[Manifest]:
    names = frozenset(nodes)
    return [pod for pod in cluster.of_kind("Pod") if pod["spec"].get("nodeName") in names]


def _is_bound_to_node(pod: Manifest) -> bool:
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner["kind"] in {"DaemonSet", "Node"} for owner in owners)


def _of_sources(cluster: Cluster, gone: frozenset[str]) -> Iterator[str]:
    for pod in _pods_on(cluster, gone):
        if (pod["metadata"].get("annotations") or {}).get(PROTECTED) == "true":
            yield f"{key_of(pod)} must not be disrupted"


def _of_node_budgets(cluster: Cluster, inputs: Inputs, found: Sequence[Proposal]) -> Iterator[str]:
    pools = {claim.name: claim.nodepool for claim in inputs.ledger.claims}
    nodes = Counter(pools.values())
    for manifest in cluster.of_kind("NodePool"):
        name = manifest["metadata"]["name"]
        taken = Counter(_budgeted(p.reason.value) for p in found for s in p.sources if pools[s] == name)
        most: dict[str, float] = {}
        for reason in taken:
            mine = [
                b["nodes"]
                for b in manifest["spec"]["disruption"]["budgets"]
                if reason in b.get("reasons", [reason])
            ]
            most[reason] = min(
                ceil(int(n[:-1]) * nodes[name] / 100) if n.endswith("%") else int(n) for n in mine
            )
            if taken[reason] > most[reason]:
                yield f"NodePool {name}: {taken[reason]} nodes are disrupted for {reason}, {most[reason]} allowed"
        if taken and taken.total() > max(most.values()):
            yield f"NodePool {name}: {taken.total()} nodes are disrupted, {max(most.values())} allowed"


def _budgeted(reason: str) -> str:
    return "Underutilized" if reason == "Unbalanced" else reason


def _of_pod_budgets(cluster: Cluster, gone: frozenset[str]) -> Iterator[str]:
    budgets = cluster.of_kind("PodDisruptionBudget")
    touched: Counter[str] = Counter()
    for node in sorted(gone):
        mine: set[str] = set()
        for pod in _pods_on(cluster, [node]):
            guards = [b for b in budgets if _is_evicted(pod) and _guards(b, pod)]
            if len(guards) > 1:
                yield f"{key_of(pod)} has two budgets"
            mine |= {b["metadata"]["name"] for b in guards}
        touched.update(mine)
    for budget in budgets:
        name, most = budget["metadata"]["name"], budget["status"]["disruptionsAllowed"]
        if touched[name] > most:
            yield f"PodDisruptionBudget {name}: pods of {touched[name]} nodes are evicted, {most} allowed"


def _is_evicted(pod: Manifest) -> bool:
    """Return whether a drain evicts a pod: not if it tolerates every taint."""
    tolerations = pod["spec"].get("tolerations") or ()
    stays = any(t.get("operator") == "Exists" and not t.get("key") for t in tolerations)
    return not (stays or _is_bound_to_node(pod))


def _guards(budget: Manifest, pod: Manifest) -> bool:
    labels = pod["metadata"].get("labels") or {}
    wanted = budget["spec"]["selector"]["matchLabels"].items()
    same = pod["metadata"].get("namespace", "default") == budget["metadata"]["namespace"]
    return same and all(labels.get(key) == value for key, value in wanted)


def _of_places(cluster: Cluster, inputs: Inputs, found: Sequence[Proposal]) -> Iterator[str]:
    gone = _gone(found, inputs)
    bought = {node.claim.name for proposal in found for node in proposal.replacements}
    there = {node.name for node in inputs.snapshot.nodes} - gone
    for proposal in found:
        mine = {key_of(p) for p in _pods_on(cluster, _gone([proposal], inputs)) if not _is_bound_to_node(p)}
        if mine != set(proposal.destinations):
            yield f"{sorted(mine ^ set(proposal.destinations))} have no place, or too many"
        for pod, place in proposal.destinations.items():
            if place not in bought | there:
                yield f"{pod} must move to {place}, which is disrupted itself"
    sources = Counter(name for proposal in found for name in proposal.sources)
    yield from (f"{name} is in two moves" for name, number in sources.items() if number > 1)


def _of_limits(cluster: Cluster, found: Sequence[Proposal]) -> Iterator[str]:
    """Yield exceeded limits; sources count until they are gone, and replacements come before."""
    types = types_of(cluster.catalog)
    for manifest in cluster.of_kind("NodePool"):
        name, limits = manifest["metadata"]["name"], parse_resources(manifest["spec"].get("limits"))
        mine = [n for p in found for n in p.replacements if n.claim.nodepool == name]
        there = [
            parse_resources(node["status"]["capacity"])
            for node in cluster.of_kind("Node")
            if node["metadata"]["labels"].get("karpenter.sh/nodepool") == name
        ]
        for resource, limit in limits.items() if mine else ():
            if resource == "nodes":
                used = len(there) + len(mine)
            else:
                used = sum(one.of(resource) for one in there)
                used += sum(
                    max(types[o.instance_type].capacity.of(resource) for o in node.request.overrides)
                    for node in mine
                )
            if used > limit:
                yield f"NodePool {name}: {used} {resource} exceed its limit of {limit}"


def _of_prices(cluster: Cluster, inputs: Inputs, found: Sequence[Proposal]) -> Iterator[str]:
    claims = {claim.name: claim for claim in inputs.ledger.claims}
    for proposal in found:
        if proposal.reason.value != "Underutilized":
            continue
        now = fsum(_price(cluster, claims[name]) for name in proposal.sources)
        then = fsum(max(o.price_hourly_usd for o in n.request.overrides) for n in proposal.replacements)
        reported = now - fsum(
            min(o.price_hourly_usd for o in n.request.overrides) for n in proposal.replacements
        )
        if abs(proposal.saving_hourly_usd - reported) > _SAME:
            yield f"{proposal.sources} claims to save {proposal.saving_hourly_usd}, and saves at most {reported}"
        if then > now * (1 - _LEAST_SAVING) + _SAME:
            yield f"{proposal.sources} cost {now}, their replacements up to {then}"


def _price(cluster: Cluster, claim: Any) -> float:
    sold = cluster.catalog.offerings.get(claim.instance_type, ())
    return next(
        (o.price_hourly_usd for o in sold if (o.zone, o.capacity_type) == (claim.zone, claim.capacity_type)),
        0.0,
    )


def _of_placing(cluster: Cluster, inputs: Inputs, found: Sequence[Proposal]) -> list[str]:
    """Return the audit's violations of the result: displaced pods count as pending, and the plan places them."""
    gone = _gone(found, inputs)
    moving = {pod for proposal in found for pod in proposal.destinations}
    left: list[Manifest] = []
    for manifest in cluster.manifests:
        if manifest["kind"] == "Node" and manifest["metadata"]["name"] in gone:
            continue
        if manifest["kind"] == "Pod":
            if key_of(manifest) in moving:
                spec = {name: value for name, value in manifest["spec"].items() if name != "nodeName"}
                manifest = {**manifest, "spec": spec, "status": {}}
            elif manifest["spec"].get("nodeName", "") in gone | {""}:
                continue
        left.append(manifest)
    nodes = tuple(node for proposal in found for node in proposal.replacements)
    names = {node.claim.name for node in nodes}
    placed: dict[str, list[str]] = {}
    for proposal in found:
        for pod, place in proposal.destinations.items():
            if place not in names:
                placed.setdefault(place, []).append(pod)
    plan = Plan(nodes=nodes, placed={name: tuple(pods) for name, pods in placed.items()})
    said = audit(left, cluster.catalog, plan_json(plan))
    return [str(violation) for violation in said if not violation.is_warning]
