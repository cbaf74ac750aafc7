"""Shares: how many pods of a shape each domain gets, by kube-scheduler's arithmetic.

A spread admits a pod to a domain while matching pods there (+1 if it matches itself) - fewest anywhere <= maxSkew. Pods
go one after the other to the admitted domain with the fewest; a domain that nothing can be launched in and that has no
room left still counts for the fewest, and so limits the others: that is why some pods may have to stay. Anti-affinity
admits a pod while no matching one is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from nodesmith.model.kubernetes.shapes import Spread

Domain = tuple[str, ...]
"""one value for each topology key that matters; empty where a node lacks the label"""


@dataclass(slots=True)
class Tally:
    """Matching pods by value of one topology key (the `axis`-th of a domain), and how many one value may have.

    `spread` limits them by its skew and `most` absolutely; with neither they only give an order. `counts_self` tells
    whether the pods being placed are counted.
    """

    axis: int
    counts: dict[str, int]
    counts_self: bool
    spread: Spread | None = None
    most: int | None = None
    only: frozenset[str] | None = None
    """the values in which it limits anything; None for all"""
    unsure: dict[str, int] = field(default_factory=dict)
    """how many of those counted may be on nodes that do not count"""
    adds_sure: bool = True
    overlooks: Callable[[Domain], bool] | None = None
    """tells the domains in which no node of these pods counts"""

    def admits(self, domain: Domain) -> bool:
        """Return whether one more pod may go to a domain."""
        value = domain[self.axis]
        if self.most is not None:
            return not value or self.counts.get(value, 0) + self.counts_self <= self.most
        if self.spread is None or (self.only is not None and value not in self.only):
            return True
        if self.overlooks is not None and self.overlooks(domain):
            return True
        there = self.counts.get(value)
        return there is not None and there + self.counts_self - self.fewest() <= self.spread.max_skew

    def fewest(self, beside: frozenset[str] = frozenset()) -> int:
        """Return what the emptiest value has, some values aside; 0 where there are fewer values than minDomains."""
        if self.spread is not None and len(self.counts) < self.spread.min_domains:
            return 0
        sure = (n - self.unsure.get(value, 0) for value, n in self.counts.items() if value not in beside)
        return min(sure, default=0)

    def of(self, domain: Domain) -> int:
        """Count the pods in a domain."""
        return self.counts.get(domain[self.axis], 0)

    def add(self, domain: Domain, count: int) -> None:
        """Count more pods in a domain."""
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
    """Share `count` pods out over domains; `existing` is what each can take, None for any number.

    Gives the pods per domain; what is missing to `count` cannot go anywhere. Equals go in the order of `existing`, but
    for those that may go to the `first` of all.
    """
    shares = dict.fromkeys(existing, 0)
    left = count
    while left > 0:
        most_left = {d: left if most is None else min(left, most - shares[d]) for d, most in existing.items()}
        spare = {d: most for d, most in most_left.items() if most > 0}
        admitted = [d for d in spare if all(t.admits(d) for t in tallies)]
        if not admitted:
            break
        rank = {d: () if d == first else tuple(t.of(d) for t in tallies) for d in admitted}
        least = min(rank.values())
        equals = [d for d in admitted if rank[d] == least]
        if len(tallies) == 1:  # domains with the same value count together: one after the other
            equals = list({d[tallies[0].axis]: d for d in reversed(equals)}.values())[::-1]
        if first is None and len(tallies) == 1 and tallies[0].counts_self and left >= len(equals):
            each = _alike(tallies[0], equals, spare, min(left // len(equals), *(spare[d] for d in equals)))
        else:
            equals = equals[:1]
            each = 1 if any(t.counts_self for t in tallies) else spare[equals[0]]
        for domain in equals:
            shares[domain] += each
            left -= each
            for tally in tallies:
                tally.add(domain, each)
    return shares


def _alike(tally: Tally, equals: Sequence[Domain], others: Iterable[Domain], most: int) -> int:
    """Return how many pods each of the emptiest domains can take, before others are as empty or the skew is reached."""
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
