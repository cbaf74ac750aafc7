"""A manifest is parsed once, however often decisions read it."""

from __future__ import annotations

from collections.abc import Mapping

from nodesmith.model.apimachinery.problems import _MOST_PARSED, Parsed, ParseOnce


class Counting:
    """Reads the name of a manifest, and counts its calls."""

    def __init__(self) -> None:
        self.times = 0
        self.names = ParseOnce(self._name)

    def _name(self, manifest: Mapping[str, object]) -> Parsed[object]:
        self.times += 1
        return Parsed(manifest["name"])


def test_manifests_of_the_same_snapshot_are_not_parsed_again() -> None:
    counting, manifests = Counting(), ({"name": "a"}, {"name": "b"})

    assert [each.value for each in counting.names(manifests)] == ["a", "b"]
    assert counting.names(manifests) is counting.names(manifests)
    assert counting.times == 2


def test_manifests_of_another_snapshot_are_parsed_if_they_differ() -> None:
    counting = Counting()
    for name in ("a", "a", "b", "a"):
        (parsed,) = counting.names(({"name": name},))
        assert parsed.value == name

    assert counting.times == 2


def test_manifests_that_are_equal_but_not_the_same_are_parsed() -> None:
    counting = Counting()
    for name in (1, True, 1.0):
        (parsed,) = counting.names(({"name": name},))
        assert parsed.value is name


def test_many_different_manifests_do_not_stay_in_memory() -> None:
    counting, names = Counting(), range(10 * _MOST_PARSED)
    counting.names(tuple({"name": name} for name in names))

    assert len(counting.names._known) <= _MOST_PARSED
    counting.names(({"name": names[0]},))
    assert counting.times == len(names) + 1


def test_a_snapshot_without_any_has_none() -> None:
    counting = Counting()

    assert counting.names(()) == ()
    counting.names(({"name": "a"},))
    assert counting.names(()) == ()
    assert counting.times == 1
