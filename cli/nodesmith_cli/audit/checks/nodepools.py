"""The checks across nodes: limits of NodePools and of capacity reservations, and the order of NodePools by weight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from nodesmith_cli.audit.checks.choices import AdmittingMachines
from nodesmith_cli.audit.machines import capacity_of
from nodesmith_cli.audit.outcome import Outcome
from nodesmith_cli.audit.reading.fields import HOSTNAME, Amounts, dig, shown
from nodesmith_cli.audit.reading.places import Place, pool_use
from nodesmith_cli.audit.reading.pods import Pod
from nodesmith_cli.audit.reading.pools import RESERVATION_ID, Pool
from nodesmith_cli.audit.topology.antiaffinity import AntiAffinityTerms
from nodesmith_cli.audit.topology.peers import EqualPods, Peers
from nodesmith_cli.audit.violations import Kind

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def check_limits(result: Outcome) -> None:
    """Check that launched nodes exceed no limit, whichever of their instance types they get."""
    buying = {purchase.pool.name for purchase in result.purchases.values()}
    for name in sorted(buying):
        pool = result.pools[name]
        for resource, amount in sorted(use_of_limits(result, pool).items()):
            if amount > pool.limits[resource]:
                most = shown(resource, pool.limits[resource])
                result.report(
                    Kind.LIMIT, name, f"its nodes may use {shown(resource, amount)}, but its limit is {most}"
                )


def check_reservations(result: Outcome) -> None:
    """Check that no more nodes are launched in a capacity reservation than it has free instances."""
    used = Counter(node.labels.get(RESERVATION_ID, "") for node in result.plan.nodes)
    held = {
        id_: reservation for pool in result.pools.values() for id_, reservation in pool.reservations.items()
    }
    for id_, count in sorted(used.items()):
        if id_ in held and count > held[id_].free:
            message = f"{count} nodes are launched in it, but only {held[id_].free} of its instances are free"
            result.report(Kind.LIMIT, id_, message)


def use_of_limits(result: Outcome, pool: Pool) -> Amounts:
    """Return what a NodePool's nodes use of its limits, assuming the largest type for each new node."""
    in_use = pool_use(result.places.values(), pool.name)
    used = {name: in_use.get(name, 0) for name in pool.limits}
    for bought in result.purchases.values():
        if bought.pool.name == pool.name:
            for name in used:
                used[name] += max((capacity_of(m.type, name) for m in bought.machines), default=0)
    return used


def check_weights(
    result: Outcome, aversions: AntiAffinityTerms, peers: Peers, suiting: AdmittingMachines
) -> None:
    """Check that no node comes from a NodePool if one with a higher weight could host all of its pods.

    Skips nodes whose pods depend on other pods or volumes, or have preferences. Also skips nodes whose pods are
    relevant to anti-affinity, affinity or spread of other pods in domains wider than a node.
    """
    by_weight = sorted(result.pools.values(), key=lambda pool: -pool.weight)
    if by_weight and by_weight[0].weight > by_weight[-1].weight:
        remaining = {pool.name: _left(result, pool) for pool in by_weight}
        judge, minded = _Judge(suiting, remaining), _affecting(result, peers)
        for node in result.plan.nodes:
            place, bought = result.places.get(node.name), result.purchases.get(node.name)
            if (
                bought
                and place
                and not any(
                    _is_rooted(pod, aversions) or id(peers.group_of(pod)) in minded for pod in place.pods
                )
            ):
                heavier = (pool for pool in by_weight if pool.weight > bought.pool.weight)
                name = next((pool.name for pool in heavier if judge.could_sell(pool, place)), None)
                if name:
                    message = (
                        f"NodePool {name} has a higher weight than {bought.pool.name} and could host its pods"
                    )
                    result.report(Kind.WEIGHT, node.name, message)


def _left(result: Outcome, pool: Pool) -> Amounts:
    used = use_of_limits(result, pool)
    return {name: limit - used[name] for name, limit in pool.limits.items()}


def _is_rooted(pod: Pod, aversions: AntiAffinityTerms) -> bool:
    """Return whether a pod's placement depends on volumes, other pods, or preferences, which may outweigh a weight."""
    spec = pod.spec
    spreads: Sequence[Mapping[str, str]] = dig(spec, "topologySpreadConstraints") or ()
    soft = any(
        s.get("whenUnsatisfiable") == "ScheduleAnyway" or s["topologyKey"] != HOSTNAME for s in spreads
    )
    affinity = [
        dig(spec, "affinity", kind) or {} for kind in ("nodeAffinity", "podAffinity", "podAntiAffinity")
    ]
    preferred = any(terms.get(_PREFERRED) for terms in affinity)
    apart = any(term["topologyKey"] != HOSTNAME for term in affinity[2].get(_REQUIRED) or ())
    shunned = any(aversion.term.topology_key != HOSTNAME for aversion in aversions.about(pod))
    return bool(spec.get("volumes") or soft or preferred or apart or shunned or affinity[1].get(_REQUIRED))


def _affecting(result: Outcome, peers: Peers) -> set[int]:
    """Return the identities (see `Peers.group_of`) of pods that affect others in domains wider than a node."""
    similar_pods: dict[tuple[str, str], Sequence[EqualPods]] = {}
    for pod in (pod for pod in result.cluster.pods.values() if not pod.fault):
        constraints = dig(pod.spec, "topologySpreadConstraints") or ()
        hard = [c for c in constraints if c.get("whenUnsatisfiable") != "ScheduleAnyway"]
        terms = (*(peers.spread_term(pod, c) for c in hard), *peers.affinity_terms(pod, "podAffinity"))
        for term in terms:
            if term.topology_key != HOSTNAME and (term.key, term.topology_key) not in similar_pods:
                similar_pods[term.key, term.topology_key] = peers.selected(term)
    return {id(alike) for selected in similar_pods.values() for alike in selected}


class _Judge:
    """Evaluates which NodePools could host the pods of a node within what remains of their limits."""

    def __init__(self, suiting: AdmittingMachines, remaining: Mapping[str, Amounts]) -> None:
        self._suiting, self._remaining = suiting, remaining

    def could_sell(self, pool: Pool, place: Place) -> bool:
        """Return whether a NodePool has a type within its limits that can host all pods of a node."""
        if pool.closed or any(requirement.get("minValues") for requirement in pool.requirements):
            return False
        if any(taint.get("effect") == "PreferNoSchedule" for taint in pool.taints):
            return False
        remaining = self._remaining[pool.name]
        return any(
            all(capacity_of(suited.type, name) <= amount for name, amount in remaining.items())
            for suited in self._suiting.machines(pool, place.pods)
        )
