"""Functions as Lambda keeps them: published versions stay, an alias names one of them, and its API tells of both."""

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
from tests.runtimeapi import RuntimeProcess

Run = Callable[[str, str], DeployedFunction | None]
"""Makes a version run: of a function by its logical id, under this number; None where it is not to run here."""
_TOLD = ("FunctionName", "Handler", "MemorySize", "Role", "Runtime", "Timeout", "Environment")
"""What Lambda's API is told of a function. Its code it is not told: functions run from their assets."""


class Versions:
    """The versions of a stack's functions. `client` is boto3's client of Lambda; who asks it sees what serves here."""

    def __init__(self, client: Any, region: str) -> None:
        self._client, self._region = client, region
        self._numbers: dict[str, str] = {}
        """Of the versions that the stack has, by logical id."""
        self._aliases: dict[tuple[str, str], str] = {}
        """What the stack says that an alias names, by function and alias; somebody may have switched it since."""
        self._published: Counter[str] = Counter()
        self._running: dict[tuple[str, str], DeployedFunction] = {}

    def numbers(self, text: str) -> Mapping[str, str]:
        """Return the numbers of the versions in a template's JSON, by logical id.

        For CloudFormation a version is the same while its logical id is. A new one gets its function's next number.
        """
        resources = json.loads(text)["Resources"]
        found = {}
        for id_, each in resources.items():
            if each["Type"] == "AWS::Lambda::Version":
                function = resources[each["Properties"]["FunctionName"]["Ref"]]["Properties"]["FunctionName"]
                found[id_] = self._numbers.get(id_, str(self._published[function] + 1))
        return found

    def deploy(self, template: Template, numbers: Mapping[str, str], run: Run) -> None:
        """Bring Lambda to what a template says, function by function: its configuration, its version, its aliases."""
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
        """Return the version that an alias names now. Raises InvocationFailed where there is no such alias any more."""
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
        """Give the processes that work, of all functions."""
        return {process for each in list(self._running.values()) for process in each.at_work()}

    def of(self, concern: str) -> Iterator[DeployedFunction]:
        """Yield the versions of a function that run here."""
        return (each for (name, _), each in list(self._running.items()) if concern_of(name) == concern)

    def close(self) -> None:
        """End all processes."""
        with ThreadPoolExecutor(max(1, len(self._running))) as pool:
            list(pool.map(DeployedFunction.close, self._running.values()))

    def _configure(self, properties: Mapping[str, Any]) -> None:
        told = {key: properties[key] for key in _TOLD}
        if self._published[told["FunctionName"]]:
            self._client.update_function_configuration(**told)
        else:
            self._client.create_function(**told, Code={"ZipFile": _no_code()})

    def _publish(self, name: str, number: str, running: DeployedFunction | None) -> None:
        published = self._client.publish_version(FunctionName=name)["Version"]
        assert published == number, f"Lambda calls the version of {name} {published}, not {number}"
        self._published[name] += 1
        if running is not None:
            self._running[name, number] = running

    def _point(self, alias: Alias) -> None:
        """Make an alias, or change it where the stack says something else than before."""
        before = self._aliases.get((alias.function, alias.name))
        if before == alias.version:
            return
        call = self._client.create_alias if before is None else self._client.update_alias
        call(FunctionName=alias.function, Name=alias.name, FunctionVersion=alias.version)
        self._aliases[alias.function, alias.name] = alias.version


class Aliased:
    """A function as it is invoked by an alias: each time by the version that the alias names then."""

    def __init__(self, alias: Alias, versions: Versions) -> None:
        self._alias, self._versions = alias, versions

    @property
    def concern(self) -> str:
        return self._alias.concern

    def __call__(self, event: Mapping[str, Any], trace: str = "") -> Any:
        return self._versions.serving(self._alias)(event, trace, self._alias.arn)

    def kill(self) -> bool:
        """End those processes that work of the version that serves now; False when none does."""
        return self._versions.serving(self._alias).kill()


def _no_code() -> bytes:
    """Return an archive as Lambda wants one."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as written:
        written.writestr("handler.py", "")
    return archive.getvalue()
