"""A template's asynchronous invocations: aliases, destinations of failures, and rules that may invoke functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from moto.core import DEFAULT_ACCOUNT_ID

from nodesmith.settings import ALIAS
from nodesmith_formats.localsystem.clock import LocalClock
from nodesmith_local.functions import loopdetection
from nodesmith_local.functions.asynchronous import AsyncInvocations, Deliveries, InvokeConfig, once
from nodesmith_local.functions.invocable import Invocable
from tests.infra.templates import Template

_VERSION = frozenset({"FunctionName"})
_ALIAS = frozenset({"FunctionName", "FunctionVersion", "Name"})
_CONFIG = frozenset(
    "DestinationConfig FunctionName MaximumEventAgeInSeconds MaximumRetryAttempts Qualifier".split()
)
_DESTINATIONS = frozenset({"OnFailure"})
_PERMISSION = frozenset("Action FunctionName Principal SourceArn".split())
USUAL = 2
"""Concurrent invocations, of events and of messages. Lambda has more when they pile up, which they do not here."""


def only(known: frozenset[str], found: Mapping[str, Any], where: str) -> None:
    """Raise ValueError for a property that would be ignored."""
    unknown = found.keys() - known
    if unknown:
        raise ValueError(f"{where}: unknown properties {', '.join(sorted(unknown))}")


def concern_of(function: str) -> str:
    """Return a function's concern, prefixed with its VPC if it has one: `private-lifecycle`.

    `function` is a name or an ARN.
    """
    return function.rpartition("function:")[2].partition(":")[0].removeprefix("nodesmith-")


@dataclass(frozen=True, slots=True)
class Alias:
    """A function's alias, and the number of the version that the template assigns to it."""

    function: str
    name: str
    version: str
    arn: str

    @property
    def concern(self) -> str:
        """Return the function's concern."""
        return concern_of(self.function)

    @property
    def key(self) -> str:
        """Return its key here: the concern, with the alias's name unless that is the usual one: `lifecycle:canary`."""
        return self.concern if self.name == ALIAS else f"{self.concern}:{self.name}"


def aliases(template: Template, region: str) -> list[Alias]:
    """Return the aliases of all functions. Raises ValueError for properties that would be ignored."""
    for version in template.of_type("Lambda::Version").values():
        only(_VERSION, version, f"version of {version['FunctionName']}")
    found = []
    for alias in template.of_type("Lambda::Alias").values():
        function, name = alias["FunctionName"], alias["Name"]
        only(_ALIAS, alias, f"alias of {function}")
        found.append(Alias(function, name, alias["FunctionVersion"], _arn(region, function, name)))
    return found


def invocations(
    template: Template,
    region: str,
    functions: Mapping[str, Invocable],
    clock: LocalClock,
    bury: Callable[[str, str, str], object],
    deliveries: Callable[[str], Deliveries] = lambda concern: once,  # noqa: ARG005
) -> dict[str, AsyncInvocations]:
    """Return the asynchronous invocations of `functions`; both are by alias key.

    `bury` takes the concern, the queue's ARN and the message of each event that is given up.
    """
    configs, known = dict(_configs(template, region)), aliases(template, region)
    strays = configs.keys() - {alias.arn for alias in known}
    if strays:
        raise ValueError(f"asynchronous invocations of what has no alias: {', '.join(sorted(strays))}")
    loops = recursive_loops(template)
    found = {}
    for alias in known:
        if alias.key in functions:
            config = replace(
                configs.get(alias.arn, InvokeConfig()),
                recursive_loop=loops[alias.function],
                concurrency=USUAL,
            )
            own, late = partial(bury, alias.concern), deliveries(alias.concern)
            function = functions[alias.key]
            found[alias.key] = AsyncInvocations(alias.arn, function, clock, config, own, late)
    return found


def recursive_loops(template: Template) -> dict[str, loopdetection.RecursiveLoop]:
    """Return each function's setting for recursive loops, by function name."""
    functions = template.of_type("Lambda::Function").values()
    return {each["FunctionName"]: each.get("RecursiveLoop", "Terminate") for each in functions}


def _configs(template: Template, region: str) -> Iterator[tuple[str, InvokeConfig]]:
    """Yield the configurations with the ARNs of their aliases."""
    usual = InvokeConfig()
    for config in template.of_type("Lambda::EventInvokeConfig").values():
        name, destinations = config["FunctionName"], config.get("DestinationConfig", {})
        only(_CONFIG, config, f"asynchronous invocations of {name}")
        only(_DESTINATIONS, destinations, f"destinations of {name}")
        yield (
            _arn(region, name, config["Qualifier"]),
            InvokeConfig(
                config.get("MaximumRetryAttempts", usual.retries),
                config.get("MaximumEventAgeInSeconds", usual.longest_age_seconds),
                destinations.get("OnFailure", {}).get("Destination", ""),
            ),
        )


def _arn(region: str, name: str, alias: str) -> str:
    return f"arn:aws:lambda:{region}:{DEFAULT_ACCOUNT_ID}:function:{name}:{alias}"


def permitted(template: Template) -> frozenset[tuple[str, str]]:
    """Return pairs of rule and function ARNs that may invoke. Raises ValueError for any other permission."""
    found = set()
    for permission in template.of_type("Lambda::Permission").values():
        function = permission["FunctionName"]
        only(_PERMISSION, permission, f"permission to invoke {function}")
        said = (permission["Action"], permission["Principal"])
        if said != ("lambda:InvokeFunction", "events.amazonaws.com"):
            raise ValueError(f"permission to invoke {function}: {' for '.join(said)} is not known here")
        found.add((permission["SourceArn"], function))
    return frozenset(found)
