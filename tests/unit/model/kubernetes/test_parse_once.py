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


def test_manifests_of_another_snapshot_are_parsed_though_they_are_equal() -> None:
    counting = Counting()
    for name in ("a", "a", "b"):
        (parsed,) = counting.names(({"name": name},))
        assert parsed.value == name

    assert counting.times == 3


def test_a_snapshot_without_any_has_none() -> None:
    counting = Counting()

    assert counting.names(()) == ()
    counting.names(({"name": "a"},))
    assert counting.names(()) == ()
    assert counting.times == 1
