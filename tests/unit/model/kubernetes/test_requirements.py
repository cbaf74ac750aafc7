import pytest

from nodesmith.model.apimachinery.requirements import (
    NO_REQUIREMENTS,
    Operator,
    Requirement,
    Requirements,
    read_requirements,
    requirement,
    write_requirements,
)

ZONE, ARCH = "topology.kubernetes.io/zone", "kubernetes.io/arch"
INT64 = 2**63 - 1


@pytest.mark.parametrize(
    ("operator", "values", "yes", "no"),
    [
        ("In", ["a", "b"], ["a", "b"], ["c", ""]),
        ("NotIn", ["a"], ["b", ""], ["a"]),
        ("Exists", [], ["a", ""], []),
        ("DoesNotExist", [], [], ["a", ""]),
        ("Gt", ["3"], ["4", "100"], ["3", "-5", "a", "4.5", ""]),
        ("Lt", ["3"], ["2", "0", "-5"], ["3", "a"]),
        ("Gte", ["3"], ["3", "4"], ["2", "a"]),
        ("Lte", ["3"], ["3", "2"], ["4", "a"]),
    ],
)
def test_each_operator_allows_its_values(
    operator: str, values: list[str], yes: list[str], no: list[str]
) -> None:
    needed = requirement("example.com/key", operator, values)
    assert [value for value in yes + no if needed.allows(value)] == yes


def test_a_value_beyond_64_bits_is_not_an_integer() -> None:
    assert not requirement("k", "Gte", ["0"]).allows(str(INT64 + 1))
    assert requirement("k", "Gte", ["0"]).allows(str(INT64))


def test_a_bound_above_the_greatest_integer_allows_nothing() -> None:
    assert requirement("k", "Gt", [str(INT64)]).is_empty


def test_keys_are_normalised() -> None:
    assert requirement("failure-domain.beta.kubernetes.io/zone", "In", ["a"]).key == ZONE


@pytest.mark.parametrize(
    ("operator", "hint"), [("Inn", "did you mean 'In'"), ("in", "did you mean 'In'"), ("", "use one of In")]
)
def test_an_unknown_operator_is_refused_with_a_hint(operator: str, hint: str) -> None:
    with pytest.raises(ValueError, match=hint):
        requirement("k", operator, ["a"])


@pytest.mark.parametrize("values", [[], ["a"], ["-1"], ["1", "2"], ["1.5"], [str(10**30)]])
def test_a_bound_that_is_not_one_natural_number_is_refused(values: list[str]) -> None:
    with pytest.raises(ValueError, match="exactly one non-negative integer"):
        requirement("k", "Gt", values)


def test_bounds_tighten_and_exclude_what_they_leave_outside() -> None:
    narrowed = requirement("k", "Gt", ["2"]).intersection(requirement("k", "Lte", ["9"]))
    assert (narrowed.gte, narrowed.lte) == (3, 9)
    assert narrowed.intersection(requirement("k", "In", ["1", "5", "x"])) == requirement("k", "In", ["5"])
    assert narrowed.intersection(requirement("k", "NotIn", ["1", "5"])).values == {"5"}


def test_crossing_bounds_leave_nothing() -> None:
    crossed = requirement("k", "Gt", ["5"], 2).intersection(requirement("k", "Lt", ["3"]))
    assert crossed == Requirement("k", min_values=2)
    assert crossed.operator is Operator.DOES_NOT_EXIST


def test_bounds_whose_every_integer_is_excluded_intersect_with_nothing() -> None:
    two = requirement("k", "Gte", ["1"]).intersection(requirement("k", "Lte", ["2"]))
    assert two.intersects(requirement("k", "NotIn", ["1"]))
    assert not two.intersects(requirement("k", "NotIn", ["1", "2"]))


@pytest.mark.parametrize(
    ("operator", "values", "fine"),
    [
        ("NotIn", ["a"], True),
        ("DoesNotExist", [], True),
        ("In", ["a"], False),
        ("Exists", [], False),
        ("Gt", ["1"], False),
    ],
)
def test_only_notin_and_doesnotexist_accept_a_node_without_the_label(
    operator: str, values: list[str], fine: bool
) -> None:
    needed = Requirements.of(requirement("k", operator, values))
    assert needed.allow_labels({}) is fine


def test_requirements_on_one_key_are_intersected() -> None:
    both = Requirements.of(requirement("k", "In", ["a", "b"]), requirement("k", "NotIn", ["b"]))
    assert both["k"] == requirement("k", "In", ["a"])
    assert len(both) == 1


def test_labels_are_requirements_of_one_value() -> None:
    assert Requirements.from_labels({"beta.kubernetes.io/arch": "arm64"})[ARCH] == requirement(
        ARCH, "In", ["arm64"]
    )


def test_a_pod_may_constrain_a_well_known_key_that_the_pool_does_not_mention() -> None:
    wanted = Requirements.of(requirement(ZONE, "In", ["us-east-1a"]))
    assert NO_REQUIREMENTS.conflict(wanted) is None
    assert NO_REQUIREMENTS.conflict(wanted, undefined=frozenset()) is not None


def test_an_undefined_key_is_a_conflict_with_a_spelling_hint() -> None:
    offered = Requirements.of(requirement("example.com/team", "In", ["a"]))
    conflict = offered.conflict(Requirements.of(requirement("example.com/taem", "In", ["a"])))
    assert str(conflict) == (
        "label 'example.com/taem' does not have known values, did you mean 'example.com/team'?"
    )


def test_a_conflict_shows_what_is_wanted_and_what_is_offered() -> None:
    offered = Requirements.of(requirement(ARCH, "In", ["amd64"]))
    conflict = offered.conflict(Requirements.of(requirement(ARCH, "In", ["arm64"])))
    assert (
        str(conflict) == "needs kubernetes.io/arch In [arm64], but kubernetes.io/arch In [amd64] is offered"
    )


def test_two_requirements_that_tolerate_absence_never_conflict() -> None:
    offered = Requirements.of(requirement("k", "DoesNotExist"))
    assert offered.conflict(Requirements.of(requirement("k", "NotIn", ["a"]))) is None
    assert offered.conflict(Requirements.of(requirement("k", "In", ["a"]))) is not None


@pytest.mark.parametrize(
    ("needed", "text"),
    [
        (requirement("k", "In", ["b", "a"]), "k In [a, b]"),
        (requirement("k", "In", list("abcdefg")), "k In [a, b, c, d, e and 2 more]"),
        (requirement("k", "Exists"), "k Exists"),
        (requirement("k", "Gt", ["3"]), "k >=4"),
        (requirement("k", "Gt", ["3"]).intersection(requirement("k", "Lt", ["9"])), "k >=4 <=8"),
    ],
)
def test_a_requirement_is_formatted_for_messages(needed: Requirement, text: str) -> None:
    assert str(needed) == text


def test_a_required_label_stays_required_if_values_are_excluded_too() -> None:
    both = requirement("team", "Exists").intersection(requirement("team", "NotIn", ("a",)))

    assert not both.tolerates_absence
    assert both.intersection(requirement("team", "NotIn", ("b",))).exists
    assert (both.allows("a"), both.allows("b")) == (False, True)
    assert requirement("team", "NotIn", ("a",)).tolerates_absence
    assert read_requirements(write_requirements(Requirements.of(both))) == Requirements.of(both)
