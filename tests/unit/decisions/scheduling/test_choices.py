"""Choices take the usual option unless a script says otherwise, and all of them are recorded."""

from __future__ import annotations

from nodesmith.decisions.scheduling.demands import Choices, Demand
from tests.builders import pods, shape

NAMES = [f"thing-{n}" for n in range(4)]


def test_without_a_script_things_stay_in_order_and_all_are_taken() -> None:
    choices = Choices()

    assert choices.first(("domain", "web"), NAMES) == NAMES
    assert choices.share_of(("capacity", "web", "node-1"), 7) == 7


def test_a_script_puts_one_thing_first_and_leaves_the_others_in_order() -> None:
    assert Choices({("domain", "web"): 2}).first(("domain", "web"), NAMES) == [
        "thing-2",
        "thing-0",
        "thing-1",
        "thing-3",
    ]


def test_a_script_does_not_affect_other_choices() -> None:
    assert Choices({("domain", "web"): 2}).first(("domain", "db"), NAMES) == NAMES


def test_a_node_may_get_all_pods_none_all_but_one_or_one() -> None:
    name = "capacity", "web", "node-1"

    assert [Choices({name: option}).share_of(name, 5) for option in range(4)] == [5, 0, 4, 1]
    assert [Choices({name: option}).share_of(name, 2) for option in range(3)] == [2, 0, 1]


def test_an_option_that_no_longer_exists_is_not_taken() -> None:
    name = "capacity", "web", "node-1"

    assert Choices({name: 3}).share_of(name, 1) == 1
    assert Choices({("domain", "web"): 3}).first(("domain", "web"), NAMES[:2]) == NAMES[:2]


def test_a_single_option_is_not_recorded_as_a_choice() -> None:
    choices = Choices()

    choices.first(("domain", "web"), NAMES[:1])
    choices.share_of(("capacity", "web", "node-1"), 0)
    assert not choices.met
    choices.first(("domain", "web"), NAMES)
    assert choices.met == {("domain", "web"): 4}


def test_a_demand_does_without_a_source_only_if_a_script_asks_for_that() -> None:
    web, db = (Demand(of, tuple(pods(of))) for of in (shape(), shape(app="db")))
    first = Choices()
    first.used("reserved", web)
    (name,) = first.met
    second = Choices({name: 1})

    assert not first.bars("reserved", web)
    assert first.excluded == frozenset()
    assert second.bars("reserved", web)
    assert second.excluded == {name}
    assert not second.bars("other", web)
    assert not second.bars("reserved", db)


def test_a_single_attempt_takes_the_first_option_and_notes_none() -> None:
    choices = Choices(is_single=True)

    assert (choices.pick(("domain", "web"), 3), choices.share_of(("capacity", "web"), 5)) == (0, 5)
    assert choices.first(("domain", "web"), NAMES) == NAMES
    assert not choices.met
