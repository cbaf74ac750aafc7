"""Notifications on the event bus: functions on a real control plane put them, and a rule brings them to a queue."""

from __future__ import annotations

import json
from typing import Any

from nodesmith.settings import NOTIFICATIONS
from tests.e2e.conftest import Start
from tests.e2e.observed.observing import ONE_SIZE, claims_of, pool_of
from tests.e2e.systems.system import CLUSTER, HURRIED, System
from tests.objects.manifests import deployment, nodeclass


def received(system: System, queue: str) -> list[dict[str, Any]]:
    """Take all events that a subscriber's queue has."""
    sqs, found = system.aws.client("sqs"), []
    while messages := sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages"):
        for message in messages:
            found.append(json.loads(message["Body"]))
            sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
    return found


def notified(system: System) -> dict[str, str]:
    """Return the kinds of the notifications on the bus by id, because two functions may send the same one at once.

    A busy machine may also cause findings of health.
    """
    events = system.aws.own_events.events
    return {event.detail["id"]: event.kind for event in events if event.kind in NOTIFICATIONS}


def subscribed(system: System) -> str:
    """Create a queue that gets nodesmith's events, and return its address."""
    queue = system.aws.client("sqs").create_queue(QueueName="subscriber")["QueueUrl"]
    events = system.aws.client("events")
    events.put_rule(Name="subscriber", EventPattern=json.dumps({"source": ["nodesmith"]}))
    arn = f"arn:aws:sqs:{system.aws.region}:123456789012:subscriber"
    events.put_targets(Rule="subscriber", Targets=[{"Id": "1", "Arn": arn}])
    return str(queue)


def test_a_launched_node_and_a_pod_without_a_place_are_one_notification_each(start: Start) -> None:
    system = start(speed=HURRIED)
    queue = subscribed(system)
    system.apply(nodeclass(CLUSTER), pool_of("placed", ONE_SIZE))
    system.until_nodepools_ready()
    system.apply(deployment("placed", 1, cpu="1", nodeSelector={"team": "placed"}))
    system.apply(deployment("lost", 1, cpu="1", nodeSelector={"team": "nobody"}))
    own = system.aws.own_events
    system.until("the launch is notified", lambda: bool(own.of("NodeLaunched")))
    system.until("the pod is notified after five minutes", lambda: bool(own.of("PodUnplaced")))

    def are_two() -> bool:
        assert sorted(notified(system).values()) == ["NodeLaunched", "PodUnplaced"]
        return True

    system.stays("each is one notification", are_two, seconds=12)
    launched, unplaced = own.of("NodeLaunched")[0], own.of("PodUnplaced")[0]
    (claim,) = claims_of(system, "placed")
    assert (launched["cluster"], launched["nodeClaim"]) == (CLUSTER, claim["metadata"]["name"])
    assert launched["instanceId"] in claim["status"]["providerID"]
    assert launched["pods"][0].startswith("default/placed-")
    assert unplaced["pod"].startswith("lost-")
    assert "team" in unplaced["reason"]
    arrived = {
        event["detail"]["id"] for event in received(system, queue) if event["detail-type"] in NOTIFICATIONS
    }
    assert arrived == {launched["id"], unplaced["id"]}
