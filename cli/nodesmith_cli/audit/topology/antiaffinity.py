"""Required anti-affinity in both directions: of the plan's pods, and of all other pods against the plan's pods.

The order of binding does not matter: of two pods that exclude each other, the later one always finds the first one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from nodesmith_cli.audit.outcome import Outcome
from nodesmith_cli.audit.reading.places import Place
from nodesmith_cli.audit.reading.pods import Pod
from nodesmith_cli.audit.topology.peers import EqualPods, Peers, Term
from nodesmith_cli.audit.violations import Kind


class _AntiAffinityTerm:
    """A term, with the number of pods in each domain that it selects (`met`) and that have it (`held`)."""

    def __init__(self, term: Term) -> None:
        self.term = term
        self.met: Counter[str] = Counter()
        self.held: Counter[str] = Counter()


class AntiAffinityTerms:
    """All required anti-affinity terms of a plan's pods and of existing pods."""

    def __init__(self, result: Outcome, peers: Peers) -> None:
        self._peers = peers
        self._places = result.places
        self._by_term: dict[tuple[str, str], _AntiAffinityTerm] = {}
        self._about: dict[int, list[_AntiAffinityTerm]] = {}
        for place in result.places.values():
            for pod in () if place.closed else (*place.bound, *place.pods):
                self._hold(pod, place)
        for aversion in self._by_term.values():
            for alike in peers.selected(aversion.term):
                self._about.setdefault(id(alike), []).append(aversion)
                self._meet(aversion, alike)

    def _hold(self, pod: Pod, place: Place) -> None:
        for term in {_key(t): t for t in self._peers.affinity_terms(pod, "podAntiAffinity")}.values():
            aversion = self._by_term.setdefault(_key(term), _AntiAffinityTerm(term))
            domain = place.labels.get(term.topology_key)
            if domain is not None:
                aversion.held[domain] += 1

    def _meet(self, aversion: _AntiAffinityTerm, alike: EqualPods) -> None:
        for name, count in alike.on.items():
            domain = self._places[name].labels.get(aversion.term.topology_key)
            if domain is not None:
                aversion.met[domain] += count

    def of(self, pod: Pod) -> dict[tuple[str, str], _AntiAffinityTerm]:
        """Return the anti-affinity terms of a pod."""
        terms = self._peers.affinity_terms(pod, "podAntiAffinity")
        return {_key(term): self._by_term[_key(term)] for term in terms if _key(term) in self._by_term}

    def about(self, pod: Pod) -> Sequence[_AntiAffinityTerm]:
        """Return the anti-affinity terms of other pods that select a pod."""
        return self._about.get(id(self._peers.group_of(pod)), ())


def check_anti_affinity(result: Outcome, aversions: AntiAffinityTerms) -> None:
    """Check that no pod of the plan shares a domain with a pod that it excludes, or that excludes it."""
    for pod, place in result.placed():
        _judge(result, pod, place, aversions.of(pod), aversions.about(pod))


def _key(term: Term) -> tuple[str, str]:
    return term.topology_key, term.key


def _judge(
    result: Outcome,
    pod: Pod,
    place: Place,
    own: Mapping[tuple[str, str], _AntiAffinityTerm],
    objecting: Iterable[_AntiAffinityTerm],
) -> None:
    for aversion in own.values():
        key = aversion.term.topology_key
        domain = place.labels.get(key)
        if key in place.unsettled:
            result.report(
                Kind.UNSETTLED,
                pod.key,
                f"has anti-affinity by {key}, whose value on {place.name} is undetermined",
            )
        elif domain is not None and aversion.met[domain] > aversion.term.takes(pod):
            message = f"shares {key}={domain} with a pod that its anti-affinity excludes"
            result.report(Kind.ANTI_AFFINITY, pod.key, f"on {place.name}: {message}")
    for aversion in objecting:
        key = aversion.term.topology_key
        domain = place.labels.get(key)
        if domain is not None and aversion.held[domain] > (_key(aversion.term) in own):
            message = f"shares {key}={domain} with a pod whose anti-affinity excludes it"
            result.report(Kind.ANTI_AFFINITY, pod.key, f"on {place.name}: {message}")
