"""The best plan of a small problem by exhaustive search: exact, slow, and without code of what it judges.

A plan is valid if its nodes, all present from the start, accept every pod in any order in which kube-scheduler may try
them, under its rules, and if its spreads hold in the end. As in nodesmith and Karpenter, a spread counts every domain
in which a node for the pod could be bought, including empty ones; a new hostname is always one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tests.problems.drawing import Problem
from tests.problems.kubescheduler import HOSTNAME, Cluster, Node, Pod, admits, fits, is_even, may_run, repels
from tests.problems.supplies import Config, Supply, key_of, supply

_STEPS = 10_000
_CENT = 1e-9
"""Prices that differ by less than this count as equal."""


class TooLarge(AssertionError):
    """The problem has too many plans to try."""


@dataclass(slots=True)
class Best:
    """The cheapest full placement: its price in USD an hour, and the node of every pod."""

    price_hourly_usd: float
    hosts: dict[str, str]


def best_plan(problem: Problem) -> Best | None:
    """Return the cheapest plan that places every pod, None if there is none. Raises TooLarge after too many steps."""
    given = supply(problem)
    search = _Search(given, sorted(given.pending, key=lambda pod: (given.alike[pod.key], pod.key)))
    search.place(0, [], 0)
    return search.best


@dataclass(slots=True)
class _Group:
    """Pods that share a new node, and what that node may be."""

    pods: list[Pod]
    configs: list[Config]


@dataclass
class _Search:
    given: Supply
    pods: list[Pod]
    best: Best | None = None
    steps: int = 0
    hosts: dict[str, int] = field(default_factory=dict)
    """The number of each pod's host: existing nodes first, then groups."""
    repulsions: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """For two kinds of pods, the topology keys over which one repels the other."""

    def place(self, index: int, groups: list[_Group], first: int) -> None:
        """Place the pods from `index` on in every way; identical pods go to hosts in ascending order, from `first`."""
        self._step()
        if self.best and sum(g.configs[0].price for g in groups) >= self.best.price_hourly_usd - _CENT:
            return
        if index == len(self.pods):
            self._buy(groups)
            return
        pod, there = self.pods[index], len(self.given.nodes)
        for host in range(first, there + len(groups) + 1):
            if host < there:
                grown, allowed = groups, self._takes(host, pod)
            elif host < there + len(groups):
                group = self._grown(groups[host - there], pod)
                grown = [*groups[: host - there], group, *groups[host - there + 1 :]]
                allowed = bool(group.configs)
            else:
                group = self._grown(_Group([], self.given.configs), pod)
                grown, allowed = [*groups, group], bool(group.configs)
            if allowed:
                self.hosts[pod.key] = host
                following = self.pods[index + 1] if index + 1 < len(self.pods) else None
                alike = following and self.given.alike[following.key] == self.given.alike[pod.key]
                self.place(index + 1, grown, host if alike else 0)
                del self.hosts[pod.key]

    def _takes(self, host: int, pod: Pod) -> bool:
        node = self.given.nodes[host]
        mine = [p for p in self.pods if self.hosts.get(p.key) == host]
        return (
            may_run(pod, node.labels, node.taints) and fits([*mine, pod], node) and not self._apart(pod, mine)
        )

    def _grown(self, group: _Group, pod: Pod) -> _Group:
        if self._apart(pod, group.pods):
            return _Group([], [])
        pods = [*group.pods, pod]
        kept = [c for c in group.configs if may_run(pod, c.labels, c.taints) and fits(pods, c.node)]
        return _Group(pods, [c for c in kept if self.given.is_flexible(c, kept)])

    def _apart(self, pod: Pod, others: Sequence[Pod]) -> bool:
        return any(HOSTNAME in self._repulsion(pod, other) for other in others)

    def _buy(self, groups: list[_Group]) -> None:
        """Choose a node for every group, cheapest first, within limits and topology."""
        choices = [self.given.worth_trying(group.configs) for group in groups]
        least = [sum(configs[0].price for configs in choices[n:]) for n in range(len(choices) + 1)]
        refused: set[tuple[tuple[str, ...], ...]] = set()

        def extend(price: float, bought: tuple[Config, ...], first: int) -> None:
            self._step()
            done = len(bought)
            if done == len(choices):
                self._judge(price, bought, refused)
                return
            alike = done + 1 < len(groups) and self._alike(groups[done], groups[done + 1])
            for number, config in enumerate(choices[done][first:], start=first):
                if self.best and price + config.price + least[done + 1] >= self.best.price_hourly_usd - _CENT:
                    break
                if not any(
                    self._clash(groups[done], config, *other) for other in zip(groups, bought, strict=False)
                ):
                    extend(price + config.price, (*bought, config), number if alike else 0)

        extend(0.0, (), 0)

    def _judge(
        self, price: float, bought: tuple[Config, ...], refused: set[tuple[tuple[str, ...], ...]]
    ) -> None:
        places = tuple(config.place for config in bought)
        if places in refused or not self.given.within_limits(bought):
            return
        if not self._bindable(bought):
            refused.add(places)
            return
        names = [node.labels[HOSTNAME] for node in self.given.nodes]
        names += [f"new-{number} {config.name}" for number, config in enumerate(bought)]
        self.best = Best(price, {key: names[host] for key, host in self.hosts.items()})

    def _clash(self, group: _Group, config: Config, other: _Group, bought: Config) -> bool:
        """Return whether pods of two groups repel each other over a domain that their nodes would share."""
        return any(
            key != HOSTNAME and key in config.labels and config.labels[key] == bought.labels.get(key)
            for one in group.pods
            for two in other.pods
            for key in self._repulsion(one, two)
        )

    def _alike(self, group: _Group, other: _Group) -> bool:
        mine, theirs = (sorted(self.given.alike[p.key] for p in each.pods) for each in (group, other))
        return mine == theirs

    def _repulsion(self, pod: Pod, other: Pod) -> list[str]:
        pair = self.given.alike[pod.key], self.given.alike[other.key]
        if pair not in self.repulsions:
            namespaces = self.given.namespaces
            self.repulsions[pair] = [*repels(pod, other, namespaces), *repels(other, pod, namespaces)]
        return self.repulsions[pair]

    def _step(self) -> None:
        self.steps += 1
        if self.steps > _STEPS:
            raise TooLarge(f"problem {self.given.seed}")

    def _bindable(self, bought: Sequence[Config]) -> bool:
        """Return whether every order of binding takes every pod to its host: some remaining pod can always bind."""
        fresh = [
            Node({**c.labels, HOSTNAME: f"new-{n}"}, c.taints, c.node.free) for n, c in enumerate(bought)
        ]
        cluster = Cluster([*self.given.nodes, *fresh], self.given.namespaces)
        seen: set[frozenset[str]] = set()

        def bind(waiting: frozenset[str]) -> bool:
            if not waiting:
                return True
            if waiting in seen:
                return True
            seen.add(waiting)
            self._step()
            cluster.bound = [*self.given.running]
            cluster.bound += [(p, self.hosts[p.key]) for p in self.pods if p.key not in waiting]
            ready = [
                p.key
                for p in self.pods
                if p.key in waiting and admits(cluster, p, self.hosts[p.key], self.given.domains[p.key])
            ]
            return bool(ready) and all(bind(waiting - {key}) for key in ready)

        return bind(frozenset(self.hosts)) and all(self._is_even(cluster, pod) for pod in self.pods)

    def _is_even(self, cluster: Cluster, pod: Pod) -> bool:
        """Return whether a pod's spreads would allow its host if all other pods were bound before it."""
        others = [(p, self.hosts[p.key]) for p in self.pods if p is not pod]
        cluster.bound = [*self.given.running, *others]
        return is_even(cluster, pod, self.hosts[pod.key], self.given.domains[pod.key])


def without_hopeless(problem: Problem) -> Problem:
    """Leave out pending pods that fit no node even alone: with them, no plan would place every pod."""
    given = supply(problem)
    hosts = [*given.nodes, *(config.node for config in given.configs)]
    unschedulable = {
        pod.key
        for pod in given.pending
        if not any(may_run(pod, node.labels, node.taints) and fits([pod], node) for node in hosts)
    }
    kept = [m for m in problem.manifests if m["kind"] != "Pod" or key_of(m) not in unschedulable]
    return replace(problem, manifests=tuple(kept))
