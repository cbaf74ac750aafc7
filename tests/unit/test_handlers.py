"""How a function answers a batch whose messages are of several clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import boto3
import pytest

from nodesmith import handlers, parts
from nodesmith.adapters.registrations import READ_AGAIN
from nodesmith.controllers.report import Report
from nodesmith.errors import Rejected, Transient
from nodesmith.handlers import Handler, looking
from nodesmith.model.events import Concern, Hint
from nodesmith.parts import ClusterParts, Parts
from nodesmith.registration import Registration, parameter_name
from nodesmith.settings import queue_urls
from nodesmith.telemetry import Telemetry
from nodesmith_cli.local.deployment import deploy, register
from tests import builders
from tests.account import REGION, client, strict_aws

VPC = "vpc-01234567"
Look = Callable[[], None]


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")
    with strict_aws():
        for name, value in deploy(client, REGION).environment().items():
            monkeypatch.setenv(name, value)
        for cluster in ("east", "west", "north"):
            register(client, Registration(cluster, VPC, ("nodes",)))
        yield


def batch(*bodies: str) -> Mapping[str, Any]:
    """Give an event of Lambda's with these messages, `m0`, `m1` and so on."""
    arn = f"arn:aws:sqs:{REGION}:{builders.ACCOUNT}:nodesmith-lifecycle"
    attributes = {"ApproximateReceiveCount": "1"}
    return {
        "Records": [
            {
                "messageId": f"m{number}",
                "receiptHandle": f"r{number}",
                "body": body,
                "eventSourceARN": arn,
                "attributes": attributes,
            }
            for number, body in enumerate(bodies)
        ]
    }


def hints(*clusters: str) -> Mapping[str, Any]:
    return batch(*(Hint(cluster).to_json() for cluster in clusters))


def failures(answer: Mapping[str, Any] | None) -> list[str]:
    assert answer is not None
    return [each["itemIdentifier"] for each in answer["batchItemFailures"]]


class Told(Telemetry):
    """Notes what a function says of clusters."""

    def __init__(self, cluster: str = "", lines: list[str] | None = None) -> None:
        super().__init__("lifecycle", cluster)
        self.cluster, self.lines = cluster, [] if lines is None else lines

    def of(self, cluster: str) -> Told:
        return Told(cluster, self.lines)

    def rejected(self, message: str) -> None:
        self._symptoms["Rejected"] = message
        self.lines.append(f"{self.cluster} rejected: {message}")

    def failed(self, error: BaseException) -> None:
        self.lines.append(f"{self.cluster} failed: {error}")


class Looks:
    """A concern that notes whom it has looked at, and fails for some."""

    def __init__(self, **errors: Exception) -> None:
        self.errors = errors
        self.composed: list[str] = []
        self.seen: list[str] = []
        self.told = Told()

    def __call__(self, own: ClusterParts) -> Look:
        cluster = own.settings.cluster_name
        self.composed.append(cluster)

        def look() -> None:
            self.seen.append(cluster)
            if cluster in self.errors:
                raise self.errors[cluster]

        return look

    def handler(self) -> Handler:
        made = Parts(Concern.LIFECYCLE)
        made.telemetry = self.told
        return looking(made, self)


def test_each_cluster_of_a_batch_is_looked_at_once() -> None:
    looks = Looks()

    answer = looks.handler()(hints("east", "west", "east"), None)

    assert looks.seen == ["east", "west"]
    assert failures(answer) == []


@pytest.mark.parametrize("error", [Transient("EC2 is away"), RuntimeError("a bug")])
def test_what_fails_for_one_cluster_comes_back_for_that_one_alone(error: Exception) -> None:
    looks = Looks(east=error)

    answer = looks.handler()(hints("east", "west", "east"), None)

    assert looks.seen == ["east", "west"]
    assert failures(answer) == ["m0", "m2"]
    assert looks.told.lines == [f"east failed: {error}"]


def test_a_batch_of_which_nothing_succeeds_fails_as_a_whole() -> None:
    looks = Looks(east=Transient("EC2 is away"), west=RuntimeError("a bug"))

    with pytest.raises(Transient, match="EC2 is away"):
        looks.handler()(hints("east", "west"), None)
    assert looks.seen == ["east", "west"]


def test_what_is_rejected_for_one_cluster_is_told_of_and_not_given_again() -> None:
    looks = Looks(east=Rejected("the snapshot is damaged"))

    answer = looks.handler()(hints("east", "west"), None)

    assert failures(answer) == []
    assert looks.told.lines == ["east rejected: the snapshot is damaged"]


@pytest.mark.parametrize("cluster", ["nobody", "x", "../east", "e" * 300])
def test_a_message_for_an_unknown_cluster_is_told_of_and_dropped(cluster: str) -> None:
    looks = Looks()

    answer = looks.handler()(hints(cluster, "east"), None)

    assert (looks.seen, failures(answer)) == (["east"], [])
    (line,) = looks.told.lines
    assert f"cluster '{cluster[:100]}' is not registered" in line


def test_a_registration_with_nonsense_in_it_keeps_its_cluster_waiting_and_no_other() -> None:
    client("ssm").put_parameter(
        Name=parameter_name("east"), Value='{"format": 1}', Type="String", Overwrite=True
    )
    looks = Looks()

    answer = looks.handler()(hints("east", "west"), None)

    assert (looks.seen, failures(answer)) == (["west"], [])
    (line,) = looks.told.lines
    assert "vpcId: expected the id of the cluster's VPC, found None" in line


def test_what_a_process_keeps_for_a_cluster_lasts_until_its_registration_changes() -> None:
    now = [builders.NOW]
    parts.set_clock(lambda: now[0])
    try:
        looks = Looks()
        handle = looks.handler()
        handle(hints("east"), None)
        handle(hints("east"), None)
        register(client, Registration("east", VPC, ("nodes",), settings={"RESERVED_ENIS": "1"}))
        handle(hints("east"), None)
        now[0] += READ_AGAIN + timedelta(seconds=1)
        handle(hints("east"), None)
    finally:
        parts.set_clock(parts.system_time)

    assert looks.composed == ["east", "east"]
    assert looks.seen == ["east"] * 4


def test_a_process_keeps_the_parts_of_the_clusters_that_it_served_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handlers, "MOST_CLUSTERS", 2)
    looks = Looks()
    handle = looks.handler()

    for cluster in ("east", "west", "east", "north", "east", "west"):
        handle(hints(cluster), None)

    assert looks.composed == ["east", "west", "north", "west"]


def test_the_messages_of_a_cluster_of_which_a_part_failed_come_back_alone() -> None:
    def composed(own: ClusterParts) -> handlers.Run:
        return lambda: Report(again=own.settings.cluster_name == "east")

    handle = looking(Parts(Concern.INTERRUPTION), composed)

    answer = handle(hints("east", "west", "east"), None)

    assert failures(answer) == ["m0", "m2"]


def test_a_cluster_is_served_by_what_its_registration_says() -> None:
    register(
        client,
        Registration("east", VPC, ("first", "second"), "private", {"VM_MEMORY_OVERHEAD_PERCENT": "0.05"}),
    )
    found: list[ClusterParts] = []

    def composed(own: ClusterParts) -> Look:
        found.append(own)
        return lambda: None

    looking(Parts(Concern.READINESS), composed)(hints("east"), None)

    (own,) = found
    assert own.settings.default_node_role == "first"
    assert own.node_settings().vm_memory_overhead_percent == 0.05


def test_hints_for_functions_in_a_vpc_go_to_that_vpcs_queues() -> None:
    urls = queue_urls("https://sqs/1", "private")

    assert urls[Concern.LIFECYCLE] == "https://sqs/1/nodesmith-private-lifecycle"
    assert urls[Concern.DISRUPTION] == "https://sqs/1/nodesmith-private-disruption"
    assert urls[Concern.PROVISIONING] == "https://sqs/1/nodesmith-provisioning"


def test_registrations_are_read_by_name_and_faults_are_told_apart() -> None:
    boto3.client("ssm", REGION).put_parameter(
        Name=parameter_name("broken"), Value="?", Type="String", Overwrite=True
    )

    found, faults = Parts(Concern.DISPATCH).registrations.all()

    assert [each.cluster for each in found] == ["east", "north", "west"]
    assert faults.keys() == {"broken"}
    assert parameter_name("broken") in faults["broken"]
