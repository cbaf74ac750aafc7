"""A snapshot's manifests are parsed once, however often a decision reads them."""

from __future__ import annotations

from collections.abc import Mapping

from nodesmith.model.apimachinery.problems import Parsed, ParseOnce


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


def test_of_the_next_snapshot_only_what_has_changed_is_parsed() -> None:
    counting = Counting()
    for name in ("a", "a", "b", "a"):
        first, second = counting.names(({"name": name}, {"name": "unchanged"}))
        assert (first.value, second.value) == (name, "unchanged")

    assert counting.times == 4  # "a" is forgotten with its snapshot, so that what is remembered stays small


def test_manifests_that_differ_only_in_the_type_of_a_value_are_parsed_separately() -> None:
    counting = Counting()

    assert [each.value for name in (1, True, "1") for each in counting.names(({"name": name},))] == [
        1,
        True,
        "1",
    ]
    assert counting.times == 3


def test_a_manifest_that_was_changed_in_place_is_parsed_again() -> None:
    counting, manifest = Counting(), {"name": "a"}
    counting.names((manifest,))
    manifest["name"] = "b"

    assert [each.value for each in counting.names((manifest,))] == ["b"]


def test_a_snapshot_without_any_has_none() -> None:
    counting = Counting()

    assert counting.names(()) == ()
    counting.names(({"name": "a"},))
    assert counting.names(()) == ()
    assert counting.times == 1
