"""The audit's search for a binding order, compared with trying every order."""

from functools import cache
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.objects.audits import HOST, ZONE, kinds, near, node, nodepool, plan, pod, spread
from tests.samples import sampled

APPS = ("a", "b")
MOST_PODS = 7


class Preference(NamedTuple):
    """A pod's constraints: spreads (key, skew, app, minDomains) and affinities (key, app)."""

    app: str
    place: int
    spreads: tuple[tuple[str, int, str, int], ...]
    bonds: tuple[tuple[str, str], ...]


keys, apps = st.sampled_from((ZONE, HOST)), st.sampled_from(APPS)
spreads = st.tuples(keys, st.integers(1, 2), apps, st.sampled_from((1, 1, 2, 3)))
drawn = st.builds(
    Preference,
    apps,
    st.integers(0, 3),
    st.lists(spreads, max_size=2, unique_by=lambda s: (s[0], s[2])).map(tuple),
    st.lists(st.tuples(keys, apps), max_size=1).map(tuple),
)
zones = st.lists(st.sampled_from(("z-a", "z-b", "z-c")), min_size=4, max_size=4).map(tuple)


def domain(at: tuple[str, ...], key: str, place: int) -> str:
    return at[place] if key == ZONE else f"n{place}"


def may_come(one: Preference, there: list[Preference], at: tuple[str, ...]) -> bool:
    """Return by brute force whether kube-scheduler accepts a pod at its place beside the pods in `there`."""
    for key, skew, app, least_domains in one.spreads:
        every = {domain(at, key, place) for place in range(4)}
        counts = {
            each: sum(p.app == app and domain(at, key, p.place) == each for p in there) for each in every
        }
        least = min(counts.values()) if len(every) >= least_domains else 0
        if counts[domain(at, key, one.place)] + (one.app == app) - least > skew:
            return False
    for key, app in one.bonds:
        friends = [p for p in there if p.app == app]
        is_met = any(domain(at, key, p.place) == domain(at, key, one.place) for p in friends)
        if not is_met and not (not friends and one.app == app):
            return False
    return True


def has_order(bound: tuple[Preference, ...], new: tuple[Preference, ...], at: tuple[str, ...]) -> bool:
    """Return whether some binding order works, by trying every order."""

    @cache
    def reachable(left: frozenset[int]) -> bool:
        there = [*bound, *(each for number, each in enumerate(new) if number not in left)]
        return not left or any(may_come(new[n], there, at) and reachable(left - {n}) for n in sorted(left))

    return reachable(frozenset(range(len(new))))


def as_pod(name: str, preference: Preference, **fields: Any) -> dict[str, Any]:
    constraints = [
        spread(key, skew, app, minDomains=least)[0] for key, skew, app, least in preference.spreads
    ]
    affinity = {kind: rules for key, app in preference.bonds for kind, rules in near(app, key).items()}
    given_spec = {"topologySpreadConstraints": constraints, "affinity": affinity, **fields}
    return pod(name, "100m", labels={"app": preference.app}, **given_spec)


def audited(bound: tuple[Preference, ...], new: tuple[Preference, ...], at: tuple[str, ...]) -> bool:
    """Return whether the audit finds nothing."""
    nodes = [node(f"n{number}", zone) for number, zone in enumerate(at)]
    old = [as_pod(f"old-{number}", each, node=f"n{each.place}") for number, each in enumerate(bound)]
    pods = [as_pod(f"p{number}", each) for number, each in enumerate(new)]
    existing: dict[str, list[str]] = {}
    for number, each in enumerate(new):
        existing.setdefault(f"n{each.place}", []).append(f"p{number}")
    return kinds([nodepool(), *nodes, *old, *pods], plan(existing=existing)) == set()


@settings(max_examples=sampled(100, whole=400), deadline=None)
@given(
    st.lists(drawn, max_size=3).map(tuple),
    st.lists(drawn, min_size=1, max_size=MOST_PODS).map(tuple),
    zones,
)
def test_the_audit_accepts_exactly_the_plans_that_can_be_bound_in_some_order(
    bound: tuple[Preference, ...], new: tuple[Preference, ...], at: tuple[str, ...]
) -> None:
    assert audited(bound, new, at) == has_order(bound, new, at)
