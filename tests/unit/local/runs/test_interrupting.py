"""The demo's chart of an interruption."""

from __future__ import annotations

from nodesmith_local.runs.interrupting import Interrupted, NodeSpan, drawn

TAKEN = NodeSpan("ip-10-0-0-4.ec2.internal", "gone at 60 s", leaving=45.0, until=60.0)
BOUGHT = NodeSpan("ip-10-0-0-5.ec2.internal", "ready at 40 s", since=10.0, ready=40.0)


def test_nodes_are_drawn_on_one_scale_from_the_notice_to_its_end() -> None:
    scale, taken, bought, legend, pods = drawn(Interrupted((TAKEN, BOUGHT), (1.0, 3.5)))
    assert scale.split() == ["0", "30", "60", "90", "120", "s"]
    assert taken == "  ip-10-0-0-4  " + "█" * 18 + "▒" * 6 + " " * 24 + "  gone at 60 s"
    assert bought == "  ip-10-0-0-5  " + " " * 4 + "░" * 12 + "█" * 32 + "  ready at 40 s"
    assert "serves" in legend
    assert pods == "  2 pods were recreated on other nodes: the longest waited 3.5 s, 4 pod-seconds in total"


def test_a_node_that_is_still_there_and_one_that_never_served_are_drawn_to_the_end() -> None:
    _, stays, _ = drawn(Interrupted((NodeSpan("a", ""),), ()))
    assert stays == "  a  " + "█" * 48
    _, coming, _ = drawn(Interrupted((NodeSpan("a", "", since=60.0, ready=120.0),), ()))
    assert coming == "  a  " + " " * 24 + "░" * 24
