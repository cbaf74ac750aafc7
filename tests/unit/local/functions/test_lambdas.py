"""Lambda's Invoke as boto3's client calls it, and EventBridge's deliveries to functions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from botocore.exceptions import ClientError

from nodesmith_formats.localsystem.clock import LocalClock
from nodesmith_local.functions import loopdetection
from nodesmith_local.functions.asynchronous import AsyncInvocations, InvokeConfig
from nodesmith_local.functions.deployment import function_arn
from nodesmith_local.functions.lambdas import LARGEST_EVENT_BYTES, Lambdas
from nodesmith_local.functions.loading import Function, environment
from nodesmith_local.functions.sharedclients import SharedClients
from tests.aws.account import REGION, client, strict_aws

NAME = "nodesmith-lifecycle"
ARN = function_arn(REGION, "lifecycle")
EVENT = {"messages": [{"cluster": "prod", "reason": "pods are pending"}]}
NEWS = {
    "Source": "aws.ec2",
    "DetailType": "EC2 Instance State-change Notification",
    "Detail": json.dumps({"instance-id": "i-1", "state": "stopping"}),
    "Resources": ["arn:aws:ec2:us-east-1:123456789012:instance/i-1"],
    "Time": 1_795_608_000,
}


class Spy:
    """A handler that records its events and raises on request."""

    def __init__(self) -> None:
        self.events: list[Mapping[str, Any]] = []
        self.raises = False

    def __call__(self, event: Mapping[str, Any], context: Any) -> Any:  # noqa: ARG002
        self.events.append(event)
        if self.raises:
            raise RuntimeError("a bug")
        return {"seen": len(self.events)}


@pytest.fixture
def lambdas() -> Iterator[Lambdas]:
    lambdas = Lambdas()
    with strict_aws(), lambdas.answering():
        yield lambdas


@pytest.fixture
def spy() -> Spy:
    return Spy()


@pytest.fixture
def invocations(lambdas: Lambdas, spy: Spy) -> AsyncInvocations:
    made = AsyncInvocations(ARN, Function("lifecycle", spy), LocalClock())
    lambdas.know(made)
    return made


def invoke(**asked: Any) -> Any:
    given = {"FunctionName": NAME, "Qualifier": "live", "InvocationType": "Event", **asked}
    return client("lambda").invoke(**{name: value for name, value in given.items() if value is not None})


def code(**asked: Any) -> tuple[str, int]:
    with pytest.raises(ClientError) as refused:
        invoke(**asked)
    response: Any = refused.value.response
    return response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"]


@pytest.mark.parametrize(
    "named",
    [
        {},
        {"FunctionName": ARN, "Qualifier": None},
        {"FunctionName": ARN.removesuffix(":live")},
        {"FunctionName": f"{NAME}:live", "Qualifier": None},
    ],
    ids=["by name and alias", "by the alias's ARN", "by ARN and alias", "by name with alias"],
)
def test_an_asynchronous_invocation_is_accepted_and_run_later(
    invocations: AsyncInvocations, spy: Spy, named: dict[str, Any]
) -> None:
    answer = invoke(Payload=json.dumps(EVENT), **named)

    assert answer["StatusCode"] == 202
    assert answer["Payload"].read() == b""
    assert spy.events == []
    assert invocations.poll() == 1
    assert spy.events == [EVENT]


@pytest.mark.parametrize(
    "named",
    [{"FunctionName": "nodesmith-private-lifecycle"}, {"Qualifier": "next"}, {"Qualifier": None}],
    ids=["another function", "another alias", "no alias"],
)
@pytest.mark.usefixtures("invocations")
def test_an_unknown_function_is_not_found(named: dict[str, Any]) -> None:
    assert code(**named) == ("ResourceNotFoundException", 404)


def test_an_event_has_at_most_one_mebibyte(invocations: AsyncInvocations) -> None:
    text = json.dumps("x" * (LARGEST_EVENT_BYTES - 2))
    invoke(Payload=text)

    assert code(Payload=text.replace('"x', '"xx', 1)) == ("RequestEntityTooLargeException", 413)
    assert invocations.pending == 1


@pytest.mark.usefixtures("invocations")
def test_an_event_that_is_not_json_is_refused() -> None:
    assert code(Payload=b"{") == ("InvalidRequestContentException", 400)


def test_a_dry_run_runs_nothing(invocations: AsyncInvocations) -> None:
    assert invoke(InvocationType="DryRun")["StatusCode"] == 204
    assert invocations.pending == 0


@pytest.mark.usefixtures("invocations")
def test_a_synchronous_invocation_returns_the_functions_result_or_error(spy: Spy) -> None:
    answer = invoke(InvocationType="RequestResponse", Payload=json.dumps(EVENT))
    spy.raises = True
    failed = invoke(InvocationType="RequestResponse")

    assert (answer["StatusCode"], json.load(answer["Payload"])) == (200, {"seen": 1})
    assert "FunctionError" not in answer
    assert (failed["StatusCode"], failed["FunctionError"]) == (200, "Unhandled")
    assert json.load(failed["Payload"]) == {"errorMessage": "a bug", "errorType": "RuntimeError"}


@pytest.mark.parametrize(("recursive_loop", "runs"), [("Allow", 30), ("Terminate", 16)])
def test_the_chain_of_a_function_that_invokes_itself_is_counted_through_the_clients_calls(
    lambdas: Lambdas, recursive_loop: loopdetection.RecursiveLoop, runs: int
) -> None:
    ran: list[Any] = []

    def invoke_itself(event: Mapping[str, Any], context: Any) -> None:  # noqa: ARG001
        ran.append(event)
        own.invoke(FunctionName=NAME, Qualifier="live", InvocationType="Event", Payload=b"{}")

    config = InvokeConfig(recursive_loop=recursive_loop)
    made = AsyncInvocations(ARN, Function("lifecycle", invoke_itself), LocalClock(), config)
    lambdas.know(made)
    with environment({"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}):
        own = SharedClients().create_client("lambda", region_name=REGION, config=None)
        invoke(Payload=b"{}")
        for _ in range(30):
            made.poll()

    assert len(ran) == runs


def rule(pattern: Mapping[str, Any]) -> str:
    events = client("events")
    arn: str = events.put_rule(Name="news", EventPattern=json.dumps(pattern))["RuleArn"]
    events.put_targets(Rule="news", Targets=[{"Id": "lifecycle", "Arn": ARN}])
    return arn


def test_a_rule_hands_a_function_the_whole_event(invocations: AsyncInvocations, spy: Spy) -> None:
    rule({"source": ["aws.ec2"], "detail": {"state": ["stopping"]}})
    running = {**NEWS, "Detail": json.dumps({"instance-id": "i-1", "state": "running"})}

    answer = client("events").put_events(Entries=[NEWS, running])
    while invocations.poll():
        pass

    assert spy.events == [
        {
            "version": "0",
            "id": answer["Entries"][0]["EventId"],
            "detail-type": NEWS["DetailType"],
            "source": "aws.ec2",
            "account": "123456789012",
            "time": "2026-11-25T12:00:00Z",
            "region": REGION,
            "resources": NEWS["Resources"],
            "detail": {"instance-id": "i-1", "state": "stopping"},
        }
    ]


def test_a_rule_does_not_invoke_a_function_whose_policy_forbids_it(
    lambdas: Lambdas, invocations: AsyncInvocations
) -> None:
    asked: list[tuple[str, str]] = []

    def refuse(by: str, function: str) -> bool:
        asked.append((by, function))
        return False

    lambdas.may_pass_on = refuse
    arn = rule({"source": ["aws.ec2"]})

    client("events").put_events(Entries=[NEWS])

    assert asked == [(arn, ARN)]
    assert invocations.pending == 0
    assert lambdas.undelivered == [f"{arn} cannot invoke {ARN}: its policy does not allow it"]


def test_a_rule_cannot_invoke_a_function_that_does_not_exist(lambdas: Lambdas) -> None:
    arn = rule({"source": ["aws.ec2"]})

    client("events").put_events(Entries=[NEWS])

    assert lambdas.undelivered == [f"{arn} cannot invoke {ARN}: there is no such function"]


def test_a_rule_reaches_its_other_targets_too(invocations: AsyncInvocations) -> None:
    sqs = client("sqs")
    url = sqs.create_queue(QueueName="others")["QueueUrl"]
    rule({"source": ["aws.ec2"]})
    target = {"Id": "others", "Arn": f"arn:aws:sqs:{REGION}:123456789012:others"}
    client("events").put_targets(Rule="news", Targets=[target])

    client("events").put_events(Entries=[NEWS])

    assert len(sqs.receive_message(QueueUrl=url)["Messages"]) == 1
    assert invocations.pending == 1
