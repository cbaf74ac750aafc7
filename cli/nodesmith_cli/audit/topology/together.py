"""Building the tallies of a plan, with the rules that use them and the pods that they count."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from nodesmith_cli.audit.outcome import Outcome
from nodesmith_cli.audit.reading.fields import Manifest, today
from nodesmith_cli.audit.reading.places import Place
from nodesmith_cli.audit.reading.pods import Pod
from nodesmith_cli.audit.reading.selectors import label_refusal, taint_refusal
from nodesmith_cli.audit.topology.binding import Batch, binding_failures
from nodesmith_cli.audit.topology.peers import Peers, Term
from nodesmith_cli.audit.topology.tallies import AffinityRule, Rule, SpreadRule, Tally, domains
from nodesmith_cli.audit.violations import Kind


def check_company(result: Outcome, peers: Peers) -> None:
    """Check that all hard spreads and required affinities can be satisfied in some order of binding."""
    board = _Tallies(result, peers)
    placed = list(result.placed())
    rules: list[list[Rule]] = [
        [*board.spreads(pod, place), *board.affinities(pod, place)] for pod, place in placed
    ]
    batches: list[Batch] = []
    for (pod, place), own in zip(placed, rules, strict=True):  # after all tallies exist
        gives = list(board.gives(pod, place))
        batches.append(Batch(own, gives, [pod.key]))
        for tally, domain, _ in gives:
            tally.lasting[domain] -= 1
    for kind, pod_key, reason in binding_failures(batches):
        result.report(kind, pod_key, reason)


class _Tallies:
    """All tallies of a plan, each created once."""

    def __init__(self, result: Outcome, peers: Peers) -> None:
        self._result, self._peers = result, peers
        self._places = [place for place in result.places.values() if not place.closed]
        self._spread: dict[str, Tally] = {}
        self._bonds: dict[str, tuple[Tally, ...]] = {}
        self._counting: dict[int, list[tuple[Tally, bool]]] = {}
        self._domains: dict[str, dict[str, str]] = {}

    def spreads(self, pod: Pod, place: Place) -> Iterator[SpreadRule]:
        """Yield the rules of a pod's hard topology spread. A place without a domain is reported."""
        constraints = [
            c
            for c in pod.spec.get("topologySpreadConstraints") or ()
            if c.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"
        ]
        keys = sorted({today(c["topologyKey"]) for c in constraints})
        for constraint in constraints:
            term = self._peers.spread_term(pod, constraint)
            domain = self._domain(pod, place, term.topology_key, Kind.SPREAD)
            if domain is not None:
                tally, matches = self._spread_tally(pod, constraint, term, keys), term.takes(pod)
                counted = matches and place.name in tally.eligible and not pod.deleting
                skew = int(constraint.get("maxSkew") or 1)
                yield SpreadRule(tally, term.topology_key, domain, skew, matches, counted)

    def _spread_tally(self, pod: Pod, constraint: Manifest, term: Term, keys: list[str]) -> Tally:
        honours = (
            constraint.get("nodeAffinityPolicy", "Honor") == "Honor",
            constraint.get("nodeTaintsPolicy", "Ignore") == "Honor",
        )
        least = int(constraint.get("minDomains") or 1)
        about = pod.placing if any(honours) else ""
        key = json.dumps([term.key, term.topology_key, keys, honours, about, least])
        if key not in self._spread:
            eligible = {
                place.name: place.labels[term.topology_key]
                for place in self._places
                if all(topology_key in place.labels for topology_key in keys)
                and _is_counted(pod, place, *honours)
            }
            self._spread[key] = Tally(eligible, least)
            self._count(self._spread[key], [term], leaving=False)
        return self._spread[key]

    def affinities(self, pod: Pod, place: Place) -> Iterator[AffinityRule]:
        """Yield the rule of a pod's required affinity. As in kube-scheduler, one pod must match all of its terms."""
        terms = self._peers.affinity_terms(pod, "podAffinity")
        term_domains = [self._domain(pod, place, term.topology_key, Kind.AFFINITY) for term in terms]
        if terms and None not in term_domains:
            key = json.dumps([(term.key, term.topology_key) for term in terms])
            if key not in self._bonds:
                self._bonds[key] = tuple(Tally(self._by_key(term.topology_key)) for term in terms)
                for tally in self._bonds[key]:
                    self._count(tally, terms, leaving=True)
            seats = [(t, d) for t, d in zip(self._bonds[key], term_domains, strict=True) if d is not None]
            keys = tuple(term.topology_key for term in terms)
            yield AffinityRule(keys, seats, all(term.takes(pod) for term in terms))

    def _by_key(self, key: str) -> dict[str, str]:
        if key not in self._domains:
            self._domains[key] = domains(self._places, key)
        return self._domains[key]

    def _count(self, tally: Tally, terms: Sequence[Term], *, leaving: bool) -> None:
        selected = [a for a in self._peers.selected(terms[0]) if all(t.takes(a.example) for t in terms[1:])]
        tally.count(selected, leaving=leaving)
        for alike in selected:
            self._counting.setdefault(id(alike), []).append((tally, leaving))

    def _domain(self, pod: Pod, place: Place, key: str, kind: Kind) -> str | None:
        if key in place.unsettled:
            message = f"depends on {key}, whose value on {place.name} is undetermined"
            self._result.report(Kind.UNSETTLED, pod.key, message)
        elif key not in place.labels:
            self._result.report(kind, pod.key, f"needs the label {key}, which {place.name} does not have")
        return None if key in place.unsettled else place.labels.get(key)

    def gives(self, pod: Pod, place: Place) -> Iterator[tuple[Tally, str, bool]]:
        """Yield the tallies that count a pod, with its domain, and whether they are for affinities."""
        for tally, affinity in self._counting.get(id(self._peers.group_of(pod)), ()):
            domain = tally.eligible.get(place.name)
            if domain is not None and (affinity or not pod.deleting) and not place.closed:
                yield tally, domain, affinity


def _is_counted(pod: Pod, place: Place, honours_affinity: bool, honours_taints: bool) -> bool:
    """Return whether a spread includes a place (nodeAffinityPolicy, nodeTaintsPolicy)."""
    if honours_affinity and label_refusal(pod.spec, place.presumed, place.node_name):
        return False
    return not honours_taints or not taint_refusal(pod.spec, place.taints)
