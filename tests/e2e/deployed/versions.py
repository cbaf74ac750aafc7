"""Functions' versions and aliases in Lambda: published versions stay, and an alias points to one of them."""

from __future__ import annotations

import io
import json
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from moto.awslambda.exceptions import UnknownAliasException
from moto.awslambda.models import lambda_backends
from moto.core import DEFAULT_ACCOUNT_ID

from nodesmith.settings import ALIAS
from tests.e2e.deployed.functions import DeployedFunction, InvocationFailed
from tests.e2e.deployed.invocations import Alias, aliases, concern_of
from tests.infra.templates import Template
from tests.processes.runtimeapi import RuntimeProcess

Run = Callable[[str, str], DeployedFunction | None]
"""Run a version of a function, by logical ID and number; return None where it does not run here."""
_TOLD = ("FunctionName", "Handler", "MemorySize", "Role", "Runtime", "Timeout", "Environment")
"""The configuration for Lambda's API. It gets no code, because functions run from their assets."""


class Versions:
    """The versions of a stack's functions. `client` is a boto3 Lambda client, whose API shows what serves here."""

    def __init__(self, client: Any, region: str) -> None:
        self._client, self._region = client, region
        self._numbers: dict[str, str] = {}
        """Numbers of the versions in the stack, by logical ID."""
        self._aliases: dict[tuple[str, str], str] = {}
        """Version of each alias according to the stack, by function and alias; it may have been switched since."""
        self._published: Counter[str] = Counter()
        self._running: dict[tuple[str, str], DeployedFunction] = {}

    def numbers(self, text: str) -> Mapping[str, str]:
        """Return the numbers of the versions in a template's JSON, by logical ID.

        For CloudFormation a version is the same as long as its logical ID is. A new version gets its function's next
        number.
        """
        resources = json.loads(text)["Resources"]
        found = {}
        for id_, each in resources.items():
            if each["Type"] == "AWS::Lambda::Version":
                function = resources[each["Properties"]["FunctionName"]["Ref"]]["Properties"]["FunctionName"]
                found[id_] = self._numbers.get(id_, str(self._published[function] + 1))
        return found

    def deploy(self, template: Template, numbers: Mapping[str, str], run: Run) -> None:
        """Update Lambda to a template, function by function: configuration, version, aliases."""
        versions = {each["FunctionName"]: id_ for id_, each in template.of_type("Lambda::Version").items()}
        stated = aliases(template, self._region)
        for id_, properties in template.of_type("Lambda::Function").items():
            name = properties["FunctionName"]
            if versions[name] not in self._numbers:
                self._configure(properties)
                self._publish(name, numbers[versions[name]], run(id_, numbers[versions[name]]))
            for alias in stated:
                if alias.function == name:
                    self._point(alias)
        self._numbers = dict(numbers)
        for gone in self._aliases.keys() - {(each.function, each.name) for each in stated}:
            self._client.delete_alias(FunctionName=gone[0], Name=gone[1])
            del self._aliases[gone]

    def serving(self, alias: Alias) -> DeployedFunction:
        """Return the version that an alias points to now. Raises InvocationFailed if the alias no longer exists."""
        try:
            found = lambda_backends[DEFAULT_ACCOUNT_ID][self._region].get_alias(alias.name, alias.function)
        except UnknownAliasException as error:
            raise InvocationFailed(f"ResourceNotFoundException: {error}") from None
        return self._running[alias.function, str(found.function_version)]

    def live(self) -> Mapping[str, str]:
        """Return the number of the version that serves, by function."""
        names = sorted(self._published)
        found = (self._client.get_alias(FunctionName=name, Name=ALIAS) for name in names)
        return {name: str(each["FunctionVersion"]) for name, each in zip(names, found, strict=True)}

    def at_work(self) -> set[RuntimeProcess]:
        """Return the busy processes of all functions."""
        return {process for each in list(self._running.values()) for process in each.at_work()}

    def of(self, concern: str) -> Iterator[DeployedFunction]:
        """Yield the versions of a function that run here."""
        return (each for (name, _), each in list(self._running.items()) if concern_of(name) == concern)

    def close(self) -> None:
        """End all processes."""
        with ThreadPoolExecutor(max(1, len(self._running))) as pool:
            list(pool.map(DeployedFunction.close, self._running.values()))

    def _configure(self, properties: Mapping[str, Any]) -> None:
        reported = {key: properties[key] for key in _TOLD}
        if self._published[reported["FunctionName"]]:
            self._client.update_function_configuration(**reported)
        else:
            self._client.create_function(**reported, Code={"ZipFile": _no_code()})

    def _publish(self, name: str, number: str, running: DeployedFunction | None) -> None:
        published = self._client.publish_version(FunctionName=name)["Version"]
        assert published == number, f"Lambda published version {published} of {name}, not {number}"
        self._published[name] += 1
        if running is not None:
            self._running[name, number] = running

    def _point(self, alias: Alias) -> None:
        """Create an alias, or update it if the stack's version differs from before."""
        before = self._aliases.get((alias.function, alias.name))
        if before == alias.version:
            return
        call = self._client.create_alias if before is None else self._client.update_alias
        call(FunctionName=alias.function, Name=alias.name, FunctionVersion=alias.version)
        self._aliases[alias.function, alias.name] = alias.version


class Aliased:
    """A function invoked by an alias: each time by the version that the alias points to then."""

    def __init__(self, alias: Alias, versions: Versions) -> None:
        self._alias, self._versions = alias, versions

    @property
    def concern(self) -> str:
        return self._alias.concern

    def __call__(self, event: Mapping[str, Any], trace: str = "") -> Any:
        return self._versions.serving(self._alias)(event, trace, self._alias.arn)

    def kill(self) -> bool:
        """Kill the busy processes of the version that serves now; return False if none is busy."""
        return self._versions.serving(self._alias).kill()


def _no_code() -> bytes:
    """Return a minimal archive that Lambda accepts."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as written:
        written.writestr("handler.py", "")
    return archive.getvalue()
