"""The Lambda functions of a region: their versions, and the version that each alias points to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from nodesmith.adapters.aws.calls import rows
from nodesmith.model.apimachinery.times import parse_time
from nodesmith.settings import ALIAS, function_name
from nodesmith_cli.access.awssession import asking, if_there
from nodesmith_cli.deployment.rollback.releases import FunctionVersion

_PREFIX = function_name("")
_LATEST = "$LATEST"


class Functions:
    """The Lambda calls of a rollback. Every method may raise Denied, Transient, Rejected."""

    def __init__(self, client: Callable[[str], Any]) -> None:
        self._lambda = client("lambda")

    def live(self) -> dict[str, int]:
        """Return the live version of each nodesmith function, by function name."""
        result = {}
        for name in self._names():
            with asking("lambda:GetAlias", name):
                alias = if_there(partial(self._lambda.get_alias, FunctionName=name, Name=ALIAS))
            if alias is not None:
                result[name] = int(alias["FunctionVersion"])
        return result

    def versions(self, function: str) -> list[FunctionVersion]:
        """Return the published versions of a function."""
        with asking("lambda:ListVersionsByFunction", function):
            found = [*rows(self._lambda, "list_versions_by_function", "Versions", FunctionName=function)]
        return [_version(function, entry) for entry in found if entry["Version"] != _LATEST]

    def switch(self, function: str, version: int) -> None:
        """Point a function's alias to this version."""
        with asking("lambda:UpdateAlias", f"{function}:{ALIAS}"):
            self._lambda.update_alias(FunctionName=function, Name=ALIAS, FunctionVersion=str(version))

    def _names(self) -> list[str]:
        with asking("lambda:ListFunctions", "*"):
            names = [str(each["FunctionName"]) for each in rows(self._lambda, "list_functions", "Functions")]
        return [name for name in names if _is_ours(name)]


def _is_ours(name: str) -> bool:
    return name.startswith(_PREFIX)


def _version(function: str, raw: Any) -> FunctionVersion:
    release = raw.get("Environment", {}).get("Variables", {}).get("RELEASE", "")
    published_at = parse_time(raw["LastModified"])
    return FunctionVersion(function, int(raw["Version"]), release, published_at)
