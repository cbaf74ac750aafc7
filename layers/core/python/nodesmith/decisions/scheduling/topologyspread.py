"""Topology spread: how many pods of a shape each domain gets, as kube-scheduler's PodTopologySpread filter admits them.

A spread admits a pod to a domain while (matching pods there) + (1 if the pod matches its own selector) - (the fewest in
any domain) <= maxSkew. Pods go one after the other to the admitted domain with the fewest. A domain in which nothing
can be launched and no capacity is left still counts for the fewest and so limits the others; this is why some pods may
have to stay pending. Anti-affinity admits a pod while no matching pod is in the domain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from nodesmith.model.kubernetes.pods import Pod, Spread

Domain = tuple[str, ...]
"""One value for each topology key that matters; empty where a node lacks the label."""


@dataclass(slots=True)
class Tally:
    """Matching pods by value of one topology key (component `axis` of a domain), and how many one value may have.

    `spread` limits them by its maxSkew, `most` absolutely; with neither, the counts only give an order. `counts_self`
    is True if the pods being placed match and are counted too.
    """

    axis: int
    counts: dict[str, int]
    counts_self: bool
    spread: Spread | None = None
    most: int | None = None
    only: frozenset[str] | None = None
    """The values in which it limits anything; None for all."""
    unsure: dict[str, int] = field(default_factory=dict)
    """By value, how many of the counted pods may turn out to be on nodes that the spread does not look at."""
    adds_sure: bool = True
    """False if the pods being placed may themselves be on such nodes."""
    overlooks: Callable[[Domain], bool] | None = None
    """Returns True for domains in which no node of the pods being placed counts; None if all may count."""

    def admits(self, domain: Domain, fewest: int | None = None) -> bool:
        """Return whether one more pod may go to a domain. `fewest` saves counting the fewest in any domain again."""
        value = domain[self.axis]
        if self.most is not None:
            return not value or self.counts.get(value, 0) + self.counts_self <= self.most
        if self.spread is None or (self.only is not None and value not in self.only):
            return True
        if self.overlooks is not None and self.overlooks(domain):
            return True
        count = self.counts.get(value)
        fewest = self.fewest() if fewest is None else fewest
        return count is not None and count + self.counts_self - fewest <= self.spread.max_skew

    def fewest(self, beside: frozenset[str] = frozenset()) -> int:
        """Return the fewest pods in any value outside `beside`; 0 where there are fewer values than minDomains."""
        if self.spread is not None and len(self.counts) < self.spread.min_domains:
            return 0
        sure = (n - self.unsure.get(value, 0) for value, n in self.counts.items() if value not in beside)
        return min(sure, default=0)

    def of(self, domain: Domain) -> int:
        """Return the number of counted pods in a domain."""
        return self.counts.get(domain[self.axis], 0)

    def add(self, domain: Domain, count: int) -> None:
        """Count `count` more pods in a domain."""
        if self.overlooks is not None and self.overlooks(domain):
            return
        if self.counts_self and domain[self.axis]:
            value = domain[self.axis]
            self.counts[value] = self.counts.get(value, 0) + count
            if not self.adds_sure:
                self.unsure[value] = self.unsure.get(value, 0) + count


def share_out(
    count: int,
    tallies: Sequence[Tally],
    existing: Mapping[Domain, int | None],
    first: Domain | None = None,
) -> dict[Domain, int]:
    """Share `count` pods out over domains; `existing` is how many each can take, None for any number.

    Return the number of pods per domain; pods missing from `count` can go nowhere. Ties go in the order of `existing`.
    Pods go to the domain `first`, if given, as long as it admits them.
    """
    shares = dict.fromkeys(existing, 0)
    remaining = count
    while remaining > 0:
        spare = {
            d: remaining if most is None else min(remaining, most - shares[d])
            for d, most in existing.items()
            if most is None or most > shares[d]
        }
        fewest = [
            (tally, tally.fewest()) for tally in tallies if tally.spread is not None or tally.most is not None
        ]
        admitted = [d for d in spare if _admitted(d, fewest)]
        if not admitted:
            break
        rank = {d: () if d == first else tuple([t.of(d) for t in tallies]) for d in admitted}
        least = min(rank.values())
        equals = [d for d in admitted if rank[d] == least]
        if len(tallies) == 1:  # domains with the same value are counted together, so take one of them
            equals = list({d[tallies[0].axis]: d for d in reversed(equals)}.values())[::-1]
        if first is None and len(tallies) == 1 and tallies[0].counts_self and remaining >= len(equals):
            share = _alike(
                tallies[0], equals, spare, min(remaining // len(equals), *(spare[d] for d in equals))
            )
        else:
            equals = equals[:1]
            share = 1 if any(t.counts_self for t in tallies) else spare[equals[0]]
        for domain in equals:
            shares[domain] += share
            remaining -= share
            for tally in tallies:
                tally.add(domain, share)
    return shares


def _admitted(domain: Domain, fewest: Iterable[tuple[Tally, int]]) -> bool:
    """Return whether all these tallies, each with its fewest pods in any domain, admit one more pod."""
    for tally, number in fewest:  # noqa: SIM110 - a generator costs as much as the question
        if not tally.admits(domain, number):
            return False
    return True


def _alike(tally: Tally, equals: Sequence[Domain], others: Iterable[Domain], most: int) -> int:
    """Return how many pods each of the emptiest domains can take before another is as empty or the skew is reached."""
    level = tally.of(equals[0])
    values = frozenset(domain[tally.axis] for domain in equals)
    bounds = [most, *(tally.of(d) - level for d in others if tally.of(d) > level)]
    if tally.most is not None:
        bounds.append(tally.most - level)
    elif tally.spread is not None and (
        len(values) < len(tally.counts) or len(tally.counts) < tally.spread.min_domains or tally.unsure
    ):
        bounds.append(tally.spread.max_skew + tally.fewest(values) - level)
    return max(1, min(bounds))


def distributed(pods: Sequence[Pod], shares: Iterable[int]) -> list[Pod]:
    """Return pods in the order of domains with these shares, so that each gets pods of all sizes; the rest come last.

    The pods are in order of size. Each goes to the domain that has the least of its share.
    """
    sizes = [share for share in shares if share]
    parts: list[list[Pod]] = [[] for _ in sizes]
    number = sum(sizes)
    for pod in pods[:number]:
        place = min(range(len(sizes)), key=lambda place: (len(parts[place]) + 1) / sizes[place])
        parts[place].append(pod)
    return [*(pod for part in parts for pod in part), *pods[number:]]


def why_full(tally: Tally, spread: Spread, key: str) -> str:
    """Return why a spread over `key` admits pods to no domain that nodes can be launched in."""
    rule = f"topology spread over {key} with maxSkew {spread.max_skew}"
    number, domains = len(tally.counts), ", ".join(sorted(tally.counts))
    if number < spread.min_domains:
        most = f"each of them may have at most {spread.max_skew} matching pods until there are more"
        return f"{rule}: minDomains is {spread.min_domains}, but there are only {number} ({domains}): {most}"
    value = min(tally.counts, key=lambda v: (tally.counts[v], v))
    return (
        f"{rule}: {value} has {tally.counts[value]} matching pods, no room, and nothing can be launched there"
    )
