"""The laws of the requirement algebra, over every operator."""

from hypothesis import given
from hypothesis import strategies as st

from nodesmith.model.apimachinery.requirements import (
    NO_REQUIREMENTS,
    Operator,
    Requirement,
    Requirements,
    read_requirements,
    requirement,
    write_requirements,
)

WORDS = ("a", "b", "c")
NUMBERS = tuple(str(number) for number in range(-2, 8))
# Every value that distinguishes two of the requirements below, and one that none of them names.
UNIVERSE = (*WORDS, *NUMBERS, "elsewhere", "100", "-100", "")
BOUNDS = (Operator.GT, Operator.LT, Operator.GTE, Operator.LTE)
MIN_VALUES = st.none() | st.integers(1, 5)


def sets(key: str) -> st.SearchStrategy[Requirement]:
    return st.builds(
        requirement,
        st.just(key),
        st.sampled_from([operator for operator in Operator if operator not in BOUNDS]),
        st.lists(st.sampled_from((*WORDS, *NUMBERS)), max_size=4),
        MIN_VALUES,
    )


def bounds(key: str) -> st.SearchStrategy[Requirement]:
    number = st.integers(0, 6).map(lambda n: [str(n)])
    return st.builds(requirement, st.just(key), st.sampled_from(BOUNDS), number, MIN_VALUES)


def requirements_on(key: str) -> st.SearchStrategy[Requirement]:
    """Draw plain requirements and intersections: bounds with exclusions, crossed bounds, empty requirements."""
    plain = sets(key) | bounds(key)
    return plain | st.tuples(plain, plain).map(lambda pair: pair[0].intersection(pair[1]))


REQUIREMENT = requirements_on("example.com/key")
REQUIREMENTS = st.lists(
    st.sampled_from(["example.com/a", "example.com/b", "topology.kubernetes.io/zone"]).flatmap(
        requirements_on
    ),
    max_size=4,
).map(lambda found: Requirements.of(*found))
LABELS = st.dictionaries(
    st.sampled_from(["example.com/a", "example.com/b", "topology.kubernetes.io/zone"]),
    st.sampled_from(UNIVERSE),
)


def allowed(needed: Requirement) -> set[str]:
    return {value for value in UNIVERSE if needed.allows(value)}


@given(REQUIREMENT, REQUIREMENT)
def test_intersection_commutes(a: Requirement, b: Requirement) -> None:
    assert a.intersection(b) == b.intersection(a)


@given(REQUIREMENT, REQUIREMENT, REQUIREMENT)
def test_intersection_associates(a: Requirement, b: Requirement, c: Requirement) -> None:
    assert a.intersection(b).intersection(c) == a.intersection(b.intersection(c))


@given(REQUIREMENT)
def test_intersection_with_itself_changes_nothing_observable(a: Requirement) -> None:
    assert allowed(a.intersection(a)) == allowed(a)
    assert a.intersection(a).min_values == a.min_values


@given(REQUIREMENT, REQUIREMENT)
def test_an_intersection_allows_exactly_what_both_allow(a: Requirement, b: Requirement) -> None:
    assert allowed(a.intersection(b)) == allowed(a) & allowed(b)


@given(REQUIREMENT, REQUIREMENT)
def test_requirements_intersect_exactly_when_some_value_satisfies_both(
    a: Requirement, b: Requirement
) -> None:
    assert a.intersects(b) == bool(allowed(a) & allowed(b))
    assert a.intersects(b) == b.intersects(a)


@given(REQUIREMENT)
def test_exists_is_the_neutral_element(a: Requirement) -> None:
    assert allowed(a.intersection(requirement(a.key, "Exists"))) == allowed(a)


@given(REQUIREMENT, REQUIREMENT)
def test_the_higher_min_values_wins(a: Requirement, b: Requirement) -> None:
    demands = [n for n in (a.min_values, b.min_values) if n is not None]
    assert a.intersection(b).min_values == max(demands, default=None)


@given(REQUIREMENTS, REQUIREMENTS)
def test_union_commutes_and_keeps_every_key(a: Requirements, b: Requirements) -> None:
    assert a.union(b) == b.union(a)
    assert set(a.union(b)) == set(a) | set(b)


@given(REQUIREMENTS, REQUIREMENTS, LABELS)
def test_a_node_satisfies_a_union_of_present_labels_exactly_when_it_satisfies_both(
    a: Requirements, b: Requirements, labels: dict[str, str]
) -> None:
    if set(a) | set(b) <= set(labels):
        assert a.union(b).allow_labels(labels) == (a.allow_labels(labels) and b.allow_labels(labels))


@given(REQUIREMENTS, REQUIREMENTS)
def test_a_conflict_is_found_exactly_if_an_intersection_is_empty(a: Requirements, b: Requirements) -> None:
    """Keys that only `b` names are covered by the next test, so both sets define the keys of either."""
    keys = frozenset(a) | frozenset(b)
    clashing = {
        key
        for key in set(a) & set(b)
        if not a[key].intersects(b[key]) and not (a[key].tolerates_absence and b[key].tolerates_absence)
    }
    conflict = a.conflict(b, undefined=keys)
    assert (conflict.wanted.key if conflict else None) == min(clashing, default=None)


@given(REQUIREMENTS)
def test_an_undefined_key_conflicts_unless_its_absence_is_tolerated(b: Requirements) -> None:
    demanding = {key for key in b if not b[key].tolerates_absence}
    conflict = NO_REQUIREMENTS.conflict(b, undefined=frozenset())
    assert (conflict.wanted.key if conflict else None) == min(demanding, default=None)
    assert NO_REQUIREMENTS.conflict(b, undefined=frozenset(b)) is None


@given(REQUIREMENTS, LABELS)
def test_a_node_is_refused_by_the_first_requirement_that_its_labels_break(
    needed: Requirements, labels: dict[str, str]
) -> None:
    broken = {
        key
        for key in needed
        if not (needed[key].allows(labels[key]) if key in labels else needed[key].tolerates_absence)
    }
    refusal = needed.first_refusal(labels)
    assert (refusal.key if refusal else None) == min(broken, default=None)


@given(REQUIREMENTS)
def test_written_requirements_are_read_back_unchanged(needed: Requirements) -> None:
    assert read_requirements(write_requirements(needed)) == needed


@given(REQUIREMENTS)
def test_writing_is_stable(needed: Requirements) -> None:
    shuffled = Requirements(dict(reversed(list(needed.by_key.items()))))
    assert write_requirements(shuffled) == write_requirements(needed)
