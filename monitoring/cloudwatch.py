"""The dashboard over CloudWatch: the functions' own health, and what nodesmith itself costs."""

from __future__ import annotations

from collections.abc import Iterator

from infra import names
from infra.functions.concerns import (
    CATALOG_MEMORY_MIB,
    CLUSTER_CONCERNS,
    DISPATCH_MEMORY_MIB,
    ROUTING_MEMORY_MIB,
)
from infra.monitoring import NAMESPACE
from monitoring.panels import Dashboard, Metric, Panel
from nodesmith.settings import DEAD_LETTER_QUEUE_NAME, QUEUE_NAME

LAMBDA, DYNAMODB, SQS = "AWS/Lambda", "AWS/DynamoDB", "AWS/SQS"
GB_SECOND_USD, RUN_USD = 0.0000133334, 0.20e-6
READ_USD, WRITE_USD = 0.125e-6, 0.625e-6
"""List prices of us-east-1: Lambda on arm64, and DynamoDB's request units on demand."""
_MEMORY_MIB = {
    **{spec.name: spec.memory_mib for spec in CLUSTER_CONCERNS},
    "catalog": CATALOG_MEMORY_MIB,
    "dispatch": DISPATCH_MEMORY_MIB,
    "routing": ROUTING_MEMORY_MIB,
}


def _of_functions(name: str, statistic: str = "Sum") -> tuple[Metric, ...]:
    """Return a metric of each function that runs outside VPCs."""
    return tuple(
        Metric(LAMBDA, name, (("FunctionName", names.function_name(concern)),), statistic, concern)
        for concern in _MEMORY_MIB
    )


def _own(name: str) -> tuple[Metric, ...]:
    """Return a metric that the functions write themselves, for each concern."""
    return tuple(Metric(NAMESPACE, name, (("concern", concern),), legend=concern) for concern in _MEMORY_MIB)


def _queue(queue: str, name: str, legend: str) -> Metric:
    return Metric(SQS, name, (("QueueName", queue),), "Maximum", legend)


def _table(name: str, legend: str = "", id_: str = "", *, hidden: bool = False) -> Metric:
    return Metric(DYNAMODB, name, (("TableName", names.TABLE_NAME),), legend=legend, id=id_, hidden=hidden)


def _bill() -> Iterator[Metric]:
    """Yield what functions and table cost an interval, and the hidden metrics that these are computed from."""
    functions: list[str] = []
    for index, (concern, memory_mib) in enumerate(_MEMORY_MIB.items()):
        function = (("FunctionName", names.function_name(concern)),)
        yield Metric(LAMBDA, "Duration", function, id=f"d{index}", hidden=True)
        yield Metric(LAMBDA, "Invocations", function, id=f"i{index}", hidden=True)
        functions.append(
            f"d{index} / 1000 * {memory_mib / 1024:g} * {GB_SECOND_USD:.10f} + i{index} * {RUN_USD:.7f}"
        )
    yield Metric(legend="Lambda", id="lambda", formula=" + ".join(functions))
    yield _table("ConsumedReadCapacityUnits", id_="reads", hidden=True)
    yield _table("ConsumedWriteCapacityUnits", id_="writes", hidden=True)
    yield Metric(legend="DynamoDB", id="table", formula=f"reads * {READ_USD:.9f} + writes * {WRITE_USD:.9f}")


OPERATION = Dashboard(
    "nodesmith-operation",
    "nodesmith: operation and bill",
    "The functions, the ledger and the queues in CloudWatch, and what they cost at the list prices of us-east-1.",
    (
        (
            "Findings",
            (
                Panel(
                    "Findings that no retry fixes",
                    (Metric(NAMESPACE, "Unhealthy", (("concern", "dispatch"),), "Maximum", "findings"),),
                    description="`nodesmith doctor` names them. Written even if cdk.json enables no metrics.",
                ),
                Panel(
                    "Inputs that were rejected",
                    _own("Rejected"),
                    description="Needs `dashboard` in cdk.json.",
                ),
            ),
        ),
        (
            "Functions",
            (
                Panel("Runs", _of_functions("Invocations")),
                Panel("Errors", _of_functions("Errors")),
                Panel("Duration, slowest hundredth", _of_functions("Duration", "p99"), "ms"),
                Panel("Throttles", _of_functions("Throttles")),
                Panel(
                    "Age of events when a function gets them", _of_functions("AsyncEventAge", "Maximum"), "ms"
                ),
                Panel(
                    "Runs that failed and are retried",
                    _own("Failed"),
                    description="Needs `dashboard` in cdk.json.",
                ),
            ),
        ),
        (
            "Queues and ledger",
            (
                Panel(
                    "Delayed invocations and dead letters",
                    (
                        _queue(QUEUE_NAME, "ApproximateNumberOfMessagesVisible", "waiting"),
                        _queue(QUEUE_NAME, "ApproximateNumberOfMessagesDelayed", "delayed"),
                        _queue(DEAD_LETTER_QUEUE_NAME, "ApproximateNumberOfMessagesVisible", "dead letters"),
                    ),
                ),
                Panel(
                    "Age of the oldest delayed invocation",
                    (_queue(QUEUE_NAME, "ApproximateAgeOfOldestMessage", "age"),),
                    "s",
                ),
                Panel(
                    "Request units of the ledger",
                    (
                        _table("ConsumedReadCapacityUnits", legend="read"),
                        _table("ConsumedWriteCapacityUnits", legend="written"),
                    ),
                ),
            ),
        ),
        (
            "Bill",
            (
                Panel(
                    "USD in each interval",
                    tuple(_bill()),
                    "currencyUSD",
                    description=(
                        "Without S3, SQS, logs and alarms, which docs/operations.md lists, and without allowances."
                    ),
                    stacked=True,
                ),
            ),
        ),
    ),
    has_cloudwatch=True,
)
