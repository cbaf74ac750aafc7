"""Which version of a function serves: the targets of its aliases, and what happens to events that it cannot process."""

from __future__ import annotations

from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra import names
from infra.functions.trial import Serving
from nodesmith.settings import ALIAS, CANARY_ALIAS, DEAD_LETTER_QUEUE_NAME

RETRIES = 2
LONGEST_EVENT_AGE_SECONDS = 6 * 3600
"""How long Lambda keeps an event that it cannot deliver to the function, for example for lack of concurrency."""


def serve(
    scope: Construct,
    function: lambda_.Function,
    name: str,
    region: str,
    trial: Serving | None,
    *,
    tried: bool,
) -> lambda_.Alias:
    """Publish a version of the function called `name`, and point the alias that everything invokes to it.

    Earlier versions stay for rollbacks. During a trial, that alias stays on the version that serves today; if the
    function is `tried`, a second alias points to the new version.
    """
    version = function.current_version
    alias = lambda_.Alias(scope, "Live", alias_name=ALIAS, version=version)
    _keep_events(scope, "Asynchronous", alias, function, region)
    serving = trial.versions.get(name) if trial is not None else None
    if serving is not None:
        resource = alias.node.default_child
        assert isinstance(resource, lambda_.CfnAlias)  # noqa: S101 - what an L2 alias is made of
        resource.function_version = serving
    if trial is not None and tried:
        canary = lambda_.Alias(scope, "Canary", alias_name=CANARY_ALIAS, version=version)
        _keep_events(scope, "AsynchronousCanary", canary, function, region)
    return alias


def _keep_events(
    scope: Construct, id_: str, alias: lambda_.Alias, function: lambda_.Function, region: str
) -> None:
    """Have Lambda keep an asynchronous event until the function has run.

    If the function's process dies, Lambda retries twice, after one and two minutes, then sends the event to the
    dead-letter queue.
    """
    dead = names.queue_arn(region, DEAD_LETTER_QUEUE_NAME)
    destinations = lambda_.CfnEventInvokeConfig.DestinationConfigProperty(
        on_failure=lambda_.CfnEventInvokeConfig.OnFailureProperty(destination=dead)
    )
    config = lambda_.CfnEventInvokeConfig(
        scope,
        id_,
        function_name=function.function_name,
        qualifier=alias.alias_name,
        maximum_event_age_in_seconds=LONGEST_EVENT_AGE_SECONDS,
        maximum_retry_attempts=RETRIES,
        destination_config=destinations,
    )
    config.node.add_dependency(alias)
