"""A release on trial: its code serves some clusters, while the versions that serve today keep serving the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from nodesmith.registration import CLUSTER_NAME
from nodesmith.settings import ALIAS


@dataclass(frozen=True, slots=True)
class Serving:
    """The split during a trial: the new release serves `clusters`; `versions`, by function, serve all others."""

    clusters: frozenset[str]
    versions: Mapping[str, str]


def read_canary(value: Any) -> frozenset[str]:
    """Read the context value `canary`: names of clusters, separated by commas; empty if it is not set.

    Raises ValueError naming what is expected.
    """
    if value is None or value == "":
        return frozenset()
    names = [name.strip() for name in value.split(",")] if isinstance(value, str) else [""]
    if not all(CLUSTER_NAME.fullmatch(name) for name in names):
        raise ValueError(
            f"canary: expected names of clusters, such as -c canary=dev,staging; found {value!r}"
        )
    return frozenset(names)


def trial(
    clusters: frozenset[str], region: str, functions: Iterable[str], client: Callable[[str, str], Any]
) -> Serving | None:
    """Return the versions that serve in a region during a trial, or None if no cluster is on trial.

    `client` returns boto3's client of a service in a region. A function that is not deployed yet has no version. Raises
    ValueError if nothing is deployed, or if AWS cannot be queried.
    """
    if not clusters:
        return None
    versions = {}
    try:
        for name in functions:
            version = _serving(client("lambda", region), name)
            if version:
                versions[name] = version
    except (ClientError, BotoCoreError) as error:
        raise ValueError(f"canary: cannot look up which versions serve in {region}: {error}") from None
    if not versions:
        raise ValueError(f"canary: no release is deployed in {region} that could serve the other clusters")
    return Serving(clusters, versions)


def _serving(functions: Any, name: str) -> str:
    try:
        return str(functions.get_alias(FunctionName=name, Name=ALIAS)["FunctionVersion"])
    except ClientError as error:
        if error.response["Error"]["Code"] == "ResourceNotFoundException":
            return ""
        raise
