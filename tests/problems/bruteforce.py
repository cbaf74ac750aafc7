"""The best plan of a small problem, by trying all: exact, slow, and sharing no code with what it judges.

A plan is good when its nodes, all there from the start, take every pod in some order under kube-scheduler's rules. As
nodesmith and Karpenter do, a spread counts every domain in which a node for the pod could be bought, empty ones too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.problems.drawing import Problem
from tests.problems.kubescheduler import HOSTNAME, Cluster, Node, Pod, admits, fits, may_run, repels
from tests.problems.supplies import Config, Supply, supply

_STEPS = 200_000


class TooLarge(AssertionError):
    """The problem has more plans than anybody wants to try."""


@dataclass(slots=True)
class Best:
    """The cheapest full placement: its price, USD an hour, and for every pod the node that it goes to."""

    price_hourly_usd: float
    hosts: dict[str, str]


def best_plan(problem: Problem) -> Best | None:
    """Find the cheapest plan that places every pod; None where there is none. Raises TooLarge after many steps."""
    given = supply(problem)
    search = _Search(given, sorted(given.pending, key=lambda pod: (given.alike[pod.key], pod.key)))
    search.place(0, [], 0)
    return search.best


@dataclass(slots=True)
class _Group:
    """Pods that share a node to be bought, and what that node may be."""

    pods: list[Pod]
    configs: list[Config]


@dataclass
class _Search:
    given: Supply
    pods: list[Pod]
    best: Best | None = None
    steps: int = 0
    hosts: dict[str, int] = field(default_factory=dict)
    """by pod, the number of its host: existing nodes first, then groups"""

    def place(self, index: int, groups: list[_Group], first: int) -> None:
        """Place the pods from `index` on in every way; pods alike go to hosts in ascending order, from `first`."""
        self.steps += 1
        if self.steps > _STEPS:
            raise TooLarge(f"seed {self.given.seed}")
        if self.best and sum(g.configs[0].price for g in groups) >= self.best.price_hourly_usd - 1e-9:
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
        namespaces = self.given.namespaces
        return any(
            HOSTNAME in (*repels(pod, other, namespaces), *repels(other, pod, namespaces)) for other in others
        )

    def _buy(self, groups: list[_Group]) -> None:
        """Choose for every group the node it becomes, cheapest first, so that limits and topology hold."""
        choices = [self.given.worth_trying(group.configs) for group in groups]
        refused: set[tuple[tuple[str | None, ...], ...]] = set()
        for price, bought in _by_choice(choices, self.best.price_hourly_usd if self.best else float("inf")):
            if self.best and price >= self.best.price_hourly_usd - 1e-9:
                continue
            places = tuple(config.place for config in bought)
            if places in refused or not self.given.within_limits(bought):
                continue
            if self._bindable(bought):
                names = [node.labels[HOSTNAME] for node in self.given.nodes] + [
                    f"new-{n} ({c.name})" for n, c in enumerate(bought)
                ]
                self.best = Best(price, {key: names[host] for key, host in self.hosts.items()})
            else:
                refused.add(places)

    def _bindable(self, bought: Sequence[Config]) -> bool:
        """Tell whether some order of binding takes every pod to its host."""
        fresh = [
            Node({**c.labels, HOSTNAME: f"new-{n}"}, c.taints, c.node.free) for n, c in enumerate(bought)
        ]
        cluster = Cluster([*self.given.nodes, *fresh], self.given.namespaces)
        seen: set[frozenset[str]] = set()

        def bind(waiting: frozenset[str]) -> bool:
            if not waiting:
                return True
            if waiting in seen:
                return False
            seen.add(waiting)
            cluster.bound = [*self.given.running]
            cluster.bound += [(p, self.hosts[p.key]) for p in self.pods if p.key not in waiting]
            ready = [
                p.key
                for p in self.pods
                if p.key in waiting and admits(cluster, p, self.hosts[p.key], self.given.domains[p.key])
            ]
            return any(bind(waiting - {key}) for key in ready)

        return bind(frozenset(self.hosts))


def _by_choice(
    choices: Sequence[Sequence[Config]], below: float
) -> Iterator[tuple[float, tuple[Config, ...]]]:
    """Give every combination that costs less than `below`, with its price."""
    least = [0.0]
    for configs in reversed(choices):
        least.insert(0, least[0] + configs[0].price)

    def extend(price: float, chosen: tuple[Config, ...]) -> Iterator[tuple[float, tuple[Config, ...]]]:
        if len(chosen) == len(choices):
            yield price, chosen
            return
        for config in choices[len(chosen)]:
            if price + config.price + least[len(chosen) + 1] >= below:
                break
            yield from extend(price + config.price, (*chosen, config))

    yield from extend(0.0, ())
