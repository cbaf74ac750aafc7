"""The live view: what a fleet shows after any changes, and lines that fit whatever the cluster's objects contain."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from nodesmith.errors import Rejected
from nodesmith.observation.mirror import NODECLAIMS, NODEPOOLS, NODES, PODS
from nodesmith_cli.access.selecting import selection
from nodesmith_cli.views.top.actions import Actions
from nodesmith_cli.views.top.fleet import Fleet
from nodesmith_cli.views.top.layout import below, header, heading, node_line, pod_line
from nodesmith_cli.views.top.plain import data, sentences
from nodesmith_cli.views.top.rows import (
    SORTS,
    Gauge,
    NodeRow,
    PodRow,
    SavingsEstimate,
    State,
    View,
    chosen,
    duration,
)
from nodesmith_cli.views.top.screen import FRAMES_PER_SECOND, Items, TopApp
from nodesmith_cli.views.top.updates import budget_windows, pricing, refusals
from nodesmith_cli.views.ui.archive import Archive
from nodesmith_cli.views.ui.findings import findings
from nodesmith_cli.views.ui.samples import sample_of
from nodesmith_formats.prices import Price
from tests.builders import NOW, catalog
from tests.objects.savingsclusters import karpenter, node, pod

_HOSTILE = "[red]x[/]\x1b[31m\u202egnp.exe\n" + "界" * 5_000


def fleet(*nodes: dict[str, Any], pods: Any = (), claims: Any = ()) -> Fleet:
    """Return a fleet that has seen these objects."""
    made = Fleet("test")
    for kind, objects in ((NODES, nodes), (PODS, pods), (NODECLAIMS, claims), (NODEPOOLS, ())):
        made.put(kind, objects)
        made.mark(kind, current=True)
    return made


def claim(name: str, on: str = "", **metadata: Any) -> dict[str, Any]:
    """Return a NodeClaim object whose node is called `on`, or that has none yet."""
    launched = {
        "type": "Launched",
        "status": "True",
        "reason": "Launched",
        "lastTransitionTime": "2026-11-21T11:58:00Z",
    }
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {
            "name": name,
            "uid": name,
            "creationTimestamp": "2026-11-21T11:57:00Z",
            "labels": {"karpenter.sh/nodepool": "default", "node.kubernetes.io/instance-type": "m5.large"},
            **metadata,
        },
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [],
        },
        "status": {
            "conditions": [launched],
            "nodeName": on,
            "providerID": f"aws:///us-east-1a/i-{on}" if on else "",
        },
    }


def row(name: str = "n", **fields: Any) -> NodeRow:
    """Return a node's row."""
    usual: dict[str, Any] = {
        "group": "default",
        "owner": "nodesmith",
        "instance_type": "m5.large",
        "zone": "us-east-1a",
        "capacity_type": "spot",
        "price": Price(0.05),
        "cpu": Gauge(1000, 2000),
        "memory": Gauge(2**30, 2**32),
        "pods": Gauge(3, 29),
        "gpus": Gauge(),
        "created_at": NOW - timedelta(seconds=60),
        "state": State.READY,
    }
    return NodeRow(name, **{**usual, **fields})


def text_of(line: Any) -> str:
    return "".join(text for text, _ in line)


def test_requests_of_a_nodes_pods_are_added_up_and_leave_with_their_pods() -> None:
    seen = fleet(node("a"), pods=[pod("p", "a", cpu="500m"), pod("q", "a", cpu="1")])
    (before,) = seen.view(NOW).nodes
    seen.drop(PODS, pod("q", "a", cpu="1"))
    (after,) = seen.view(NOW).nodes
    assert (before.cpu.requested, before.pods.requested) == (1500, 2)
    assert (after.cpu.requested, after.pods.requested) == (500, 1)


def test_a_resized_or_finished_pod_counts_as_it_is_now() -> None:
    seen = fleet(node("a"), pods=[pod("p", "a", cpu="500m")])
    seen.put(PODS, [pod("p", "a", cpu="2")])
    (resized,) = seen.view(NOW).nodes
    finished = pod("p", "a", cpu="2")
    finished["status"] = {"phase": "Succeeded"}
    seen.put(PODS, [finished])
    (over,) = seen.view(NOW).nodes
    assert (resized.cpu.requested, over.cpu.requested) == (2000, 0)


def test_pods_may_be_seen_before_their_node() -> None:
    seen = fleet(pods=[pod("p", "a", cpu="500m")])
    assert seen.view(NOW).nodes == ()
    seen.put(NODES, [node("a")])
    assert seen.view(NOW).nodes[0].cpu.requested == 500


def test_objects_that_a_new_list_lacks_are_gone() -> None:
    seen = fleet(node("a"), node("b"), pods=[pod("p", "a")])
    seen.keep_only(NODES, {"b"})
    seen.keep_only(PODS, set())
    assert [each.name for each in seen.view(NOW).nodes] == ["b"]
    assert seen.view(NOW).pods == 0


def test_nodes_of_any_origin_have_prices_and_owners() -> None:
    seen = fleet(node("g"), node("k", labels=karpenter()))
    assert seen.view(NOW).unpriced == 2
    seen.price_with(pricing(catalog()))
    view = seen.view(NOW)
    assert {each.name: each.owner for each in view.nodes} == {"g": "EKS managed node group", "k": "Karpenter"}
    assert view.hourly_usd == pytest.approx(2 * 0.192)


def test_a_nodeclaim_without_a_node_is_a_launch_until_its_node_joins() -> None:
    seen = fleet(claims=[claim("c-1", on="")])
    (coming,) = seen.view(NOW).nodes
    assert (coming.name, coming.state, coming.detail) == ("c-1", State.LAUNCHING, "the instance boots")
    seen.put(NODECLAIMS, [claim("c-1", on="a")])
    seen.put(NODES, [node("a")])
    assert [each.name for each in seen.view(NOW).nodes] == ["a"]


def stopped(name: str = "c-1") -> dict[str, Any]:
    """Return a NodeClaim object of warm capacity whose instance is stopped."""
    marks = {"nodesmith.dev/warm-capacity": "shop/burst", "nodesmith.dev/stopped-hourly-usd": "0.0022"}
    made = claim(name, annotations=marks)
    why = "instance i-1 is stopped, for CapacityBuffer shop/burst"
    registered = {"type": "Registered", "status": "Unknown", "reason": "Stopped", "message": why}
    made["status"]["conditions"].append(registered)
    made["status"]["allocatable"] = {"cpu": "4", "memory": "16Gi", "pods": "58"}
    return made


def test_a_stopped_instance_is_no_launch_and_has_no_room_and_the_price_of_its_volumes() -> None:
    view = fleet(node("a"), claims=[stopped()]).view(NOW)
    (shown,) = [row for row in view.nodes if row.name == "c-1"]
    assert (shown.state, shown.price) == (State.STOPPED, Price(0.0022, estimated=True))
    assert "CapacityBuffer shop/burst" in shown.detail
    assert view.moving == ()
    assert view.cpu == fleet(node("a")).view(NOW).cpu


def test_a_page_finds_no_slow_launch_in_a_stopped_instance_and_counts_no_price_of_its_type() -> None:
    view = fleet(claims=[stopped()]).view(NOW + timedelta(hours=1))
    found = findings(view, (), Archive(None), None, ())
    assert not any(each.is_problem for each in found)
    assert sample_of(view, lambda _: 1.0).on_demand_usd == pytest.approx(0.0022)


def test_a_terminating_node_shows_its_deadline() -> None:
    at = (NOW + timedelta(seconds=90)).strftime("%Y-%m-%dT%H:%M:%SZ")
    ending = claim(
        "c-1",
        on="a",
        deletionTimestamp="2026-11-21T11:59:00Z",
        annotations={"karpenter.sh/nodeclaim-termination-timestamp": at},
    )
    joined = node("a")
    joined["spec"]["providerID"] = ending["status"]["providerID"]
    (shown,) = fleet(joined, claims=[ending]).view(NOW).nodes
    assert (shown.state, shown.deadline) == (State.DRAINING, NOW + timedelta(seconds=90))


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ({"unschedulable": True}, State.CORDONED),
        ({"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}, State.DISRUPTING),
        ({}, State.READY),
    ],
)
def test_the_state_follows_what_kubectl_shows(change: dict[str, Any], state: State) -> None:
    made = node("a")
    made["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    made["spec"].update(change)
    assert fleet(made).view(NOW).nodes[0].state is state


def test_a_node_that_is_not_ready_says_why() -> None:
    made = node("a")
    made["status"]["conditions"] = [{"type": "Ready", "status": "False", "reason": "KubeletNotReady"}]
    (shown,) = fleet(made).view(NOW).nodes
    assert (shown.state, shown.detail) == (State.NOT_READY, "KubeletNotReady")


def test_an_object_that_cannot_be_read_is_named_and_the_others_are_shown() -> None:
    broken = node("broken")
    broken["status"]["allocatable"] = {"cpu": "much"}
    view = fleet(node("a"), broken).view(NOW)
    assert [each.name for each in view.nodes] == ["a"]
    assert any(note.startswith("Node/broken cannot be read") for note in view.notes)


def test_nodesmiths_message_on_a_pending_pod_comes_before_the_schedulers() -> None:
    def event(component: str, at: str, message: str) -> dict[str, Any]:
        return {
            "involvedObject": {"uid": "u"},
            "reportingComponent": component,
            "lastTimestamp": at,
            "message": message,
        }

    ours = event("nodesmith", "2026-11-21T11:00:00Z", "label 'team' is missing")
    older = event("nodesmith", "2026-11-21T10:00:00Z", "no NodePool")
    scheduler = event("default-scheduler", "2026-11-21T11:59:00Z", "0/3 nodes are available")
    assert refusals(iter([older, ours, scheduler])) == {"u": "label 'team' is missing"}
    assert refusals(iter([scheduler])) == {"u": "0/3 nodes are available"}


def test_a_pending_pod_shows_the_one_thing_in_its_way() -> None:
    waiting = pod("p", "")
    waiting["status"] = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}],
    }
    seen = fleet(pods=[waiting])
    assert seen.view(NOW).pending[0].reason == "0/3 nodes are available"
    seen.explanations = {
        str(waiting["metadata"].get("uid") or ""): "the limit of NodePool default is reached"
    }
    assert seen.view(NOW).pending[0].reason == "the limit of NodePool default is reached"


def test_windows_of_scheduled_budgets_are_reported() -> None:
    budgets = [{"nodes": "0", "schedule": "0 9 * * mon-fri", "duration": "8h"}, {"nodes": "10%"}]
    made: dict[str, Any] = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "default"},
        "spec": {
            "disruption": {"budgets": budgets, "consolidateAfter": "0s"},
            "template": {
                "spec": {
                    "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                    "requirements": [],
                }
            },
        },
    }
    assert list(budget_windows([made], NOW)) == ["NodePool default: its budget of 0 begins Mon 09:00 UTC"]
    assert list(budget_windows([made], NOW + timedelta(days=2))) == [
        "NodePool default: its budget of 0 ends Mon 17:00 UTC"
    ]


def test_rows_are_sorted_and_filtered_by_words() -> None:
    rows = [row("a", price=Price(0.1)), row("b", price=Price(0.3), zone="us-east-1b"), row("c", price=None)]
    assert [each.name for each in chosen(rows, "price")] == ["b", "a", "c"]
    assert [each.name for each in chosen(rows, "name", "SPOT 1a")] == ["a", "c"]
    assert [each.name for each in chosen(rows, "name", is_reversed=True)] == ["c", "b", "a"]
    assert all(len(chosen(rows, order)) == 3 for order in SORTS)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0s"), (59, "59s"), (60, "1m"), (7_199, "1h"), (172_799, "47h"), (172_800, "2d")],
)
def test_durations_are_as_in_kubectl(seconds: int, text: str) -> None:
    assert duration(seconds) == text


@given(width=st.integers(40, 250), name=st.text(max_size=300), left=st.none() | st.integers(0, 10**6))
def test_no_line_is_wider_than_the_screen(width: int, name: str, left: int | None) -> None:
    nodes = (
        row(
            name,
            detail=name,
            state=State.INTERRUPTED,
            deadline=None if left is None else NOW + timedelta(seconds=left),
        ),
        row("x", price=None),
    )
    view = View(
        name,
        NOW,
        nodes,
        (PodRow(name, "", "Pending", 1, 1, 1, name),),
        prospect=SavingsEstimate(1, 2, 3),
        notes=(name,),
    )
    lines = [
        heading(width, "name", is_reversed=True),
        *(node_line(each, width, NOW) for each in nodes),
        *(pod_line(each, width) for each in view.pending),
        *header(view, width),
        *below(view, width, 3),
    ]
    assert max(cell_len(text_of(line)) for line in lines) <= width


def test_a_narrow_screen_still_shows_price_age_and_state() -> None:
    line = text_of(node_line(row("ip-10-0-0-1.ec2.internal", state=State.DRAINING), 80, NOW))
    assert all(part in line for part in ("ip-10-0-0-1", "m5.large", "0.050", "1m", "draining"))


def test_texts_of_the_cluster_cannot_change_the_terminal() -> None:
    named = node("a")
    named["metadata"]["labels"]["node.kubernetes.io/instance-type"] = "m5.xlarge"
    waiting = pod("p", "")
    waiting["status"] = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "message": _HOSTILE}],
    }
    why = fleet(named, pods=[waiting]).view(NOW).pending[0].reason
    assert why.isprintable()
    assert len(why) < 1_000


def test_plain_output_is_sentences_without_control_characters() -> None:
    view = View(
        "shop", NOW, (row("a", detail="waits"),), (PodRow("d/p", "", "Pending", 1, 1, 120, "no room"),), 4
    )
    lines = list(sentences(view, "name"))
    assert lines[0] == "shop: 1 node (1 ready), 4 pods"
    assert "Pending: d/p, for 2m: no room" in lines
    assert all(line.isprintable() for line in lines)


def test_json_has_every_node_and_pod() -> None:
    view = View("shop", NOW, (row("a"),), (PodRow("d/p", "", "Pending", 1, 1, 120, "no room"),), 4)
    written = json.loads(json.dumps(data(view, "name")))
    assert written["nodes"][0]["cpu"] == {"requested": 1000, "allocatable": 2000, "used": None}
    assert written["pending"] == [{"name": "d/p", "ageSeconds": 120, "reason": "no room", "owner": ""}]


@pytest.mark.parametrize(
    ("price", "drawn", "said"),
    [
        (Price(0.05, estimated=True), "~$0.15/hour  ~$110/month", "Price: about $0.15 an hour"),
        (Price(0.05), "$0.15/hour  $110/month", "Price: $0.15 an hour"),
        (None, "$0.10/hour  $73/month  (1 unpriced)", "Price: $0.10 an hour"),
    ],
)
def test_the_price_of_all_nodes_is_marked_if_one_is_estimated(
    price: Price | None, drawn: str, said: str
) -> None:
    view = View("test", NOW, (row("a", price=price), row("b", price=Price(0.1))))
    assert text_of(header(view, 200)[1]).startswith(drawn)
    assert list(sentences(view, "name"))[1].startswith(said)


class RecordedActions(Actions):
    """Actions that are recorded instead of carried out."""

    def cordon(self, node: str, *, unschedulable: bool) -> str:
        self.fleet.notes["did"] = f"{node} {unschedulable}"
        return "done"


def driven(seen: Fleet, *keys: str) -> tuple[TopApp, str]:
    """Press keys in the application, and return it with the class of the screen that is then on top."""
    app = TopApp(seen, RecordedActions(None, seen), lambda: NOW)  # type: ignore[arg-type]

    async def drive() -> str:
        async with app.run_test(size=(100, 30)) as pilot:
            await pilot.pause()
            for key in keys:
                await pilot.press(key)
                await pilot.pause()
            return type(app.screen).__name__

    return app, asyncio.run(drive())


def test_a_frame_that_is_due_while_the_application_ends_is_left_out() -> None:
    async def drive() -> bool:
        app = TopApp(fleet(node("a")), RecordedActions(None, fleet()), lambda: NOW)  # type: ignore[arg-type]
        async with app.run_test(size=(100, 30)) as pilot:
            await app.query("#header").remove()
            await pilot.pause(1.5 / FRAMES_PER_SECOND)
            return app.is_running

    assert asyncio.run(drive())


@pytest.mark.parametrize(("answer", "did"), [("y", "a True"), ("n", None), ("enter", None), ("escape", None)])
def test_a_node_is_cordoned_only_after_a_confirmed_question(answer: str, did: str | None) -> None:
    seen = fleet(node("a"))
    driven(seen, "c", answer)
    assert seen.notes.get("did") == did


def test_enter_opens_a_node_and_escape_leads_back() -> None:
    seen = fleet(node("a"), pods=[pod("p", "a")])
    assert driven(seen, "enter")[1] == "Detail"
    assert driven(seen, "enter", "escape")[1] == "Screen"


def test_the_cursor_stays_on_its_node_as_others_come_and_go() -> None:
    seen = fleet(node("b"), node("c"))
    app = TopApp(seen, RecordedActions(None, seen), lambda: NOW)  # type: ignore[arg-type]

    async def drive() -> Iterator[str]:
        selected = []
        async with app.run_test(size=(100, 30)) as pilot:
            await pilot.pause()
            await pilot.press("down")
            for names in ("abc", "a"):
                seen.put(NODES, map(node, names))
                seen.keep_only(NODES, set(names))
                await pilot.press("space", "space")
                selected.append(app.query_one("#nodes", Items).selected)
        return iter(selected)

    assert list(asyncio.run(drive())) == ["c", "a"]


def test_a_pause_needs_the_name_of_the_cluster() -> None:
    with pytest.raises(Rejected, match="--cluster NAME"):
        Actions(None, fleet()).pause()  # type: ignore[arg-type]


def test_pods_are_pending_until_they_have_a_node_or_are_gone() -> None:
    seen = fleet(node("a"), pods=[pod("bound", ""), pod("gone", ""), pod("done", ""), pod("left", "")])
    done = pod("done", "")
    done["status"] = {"phase": "Succeeded"}

    seen.put(PODS, [pod("bound", "a"), done])
    seen.drop(PODS, pod("gone", ""))

    assert [each.key.partition("/")[2] for each in seen.view(NOW).pending] == ["left"]
    assert seen.has_pending
    seen.keep_only(PODS, [])
    assert not seen.has_pending


def test_only_selected_nodes_and_pending_pods_are_listed() -> None:
    made = Fleet("test", selection("shop", selector="team=a"))
    nodes = (node("mine", labels={"team": "a"}), node("theirs", labels={"team": "b"}))
    pending = [pod("p", ""), pod("q", "")]
    pending[0]["metadata"]["namespace"] = "shop"
    for kind, objects in ((NODES, nodes), (PODS, pending), (NODECLAIMS, ()), (NODEPOOLS, ())):
        made.put(kind, objects)
        made.mark(kind, current=True)

    view = made.view(NOW)

    assert [each.name for each in view.nodes] == ["mine"]
    assert [each.key for each in view.pending] == ["shop/p"]
