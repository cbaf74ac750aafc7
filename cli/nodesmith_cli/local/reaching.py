"""How a command in another terminal finds the local system that runs: its kubeconfig says where AWS is, and what time.

It says so where kubeconfigs have room for what tools add, in an extension of the cluster; kubectl passes over it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from nodesmith.errors import Rejected
from nodesmith_cli.awsclients import local_client
from nodesmith_cli.local.clock import LocalClock

EXTENSION = "nodesmith.dev/local"


@dataclass(frozen=True, slots=True)
class Reached:
    """A local system as other processes see it."""

    kubeconfig: Path
    aws_url: str
    region: str
    clock: LocalClock

    def client(self, service: str) -> Any:
        """Give a boto3 client of a service of its AWS."""
        return local_client(service, self.region, self.aws_url)


def default_kubeconfig() -> Path:
    """Name the file that `local up` writes where the user names none."""
    return Path.home() / ".kube" / "nodesmith-local"


def reachable(kubeconfig: Mapping[str, Any], aws_url: str, region: str, clock: LocalClock) -> dict[str, Any]:
    """Give a kubeconfig of one cluster that also says what `reach` has to know."""
    told = {"aws": aws_url, "region": region, "clock": clock.to_json()}
    (named,) = kubeconfig["clusters"]
    cluster = {**named["cluster"], "extensions": [{"name": EXTENSION, "extension": told}]}
    return {**kubeconfig, "clusters": [{**named, "cluster": cluster}]}


def reach(kubeconfig: Path) -> Reached:
    """Read what `reachable` wrote. Raises Rejected where nothing runs there, or something else does."""
    try:
        found = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Rejected(
            f"nothing runs: there is no {kubeconfig}: start `nodesmith local up` in another terminal, "
            "or name the kubeconfig that it wrote with --kubeconfig"
        ) from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise Rejected(f"{kubeconfig}: cannot be read as a kubeconfig: {error}") from None
    told = _extension(found)
    if told is None:
        raise Rejected(
            f"{kubeconfig}: leads to a cluster that `nodesmith local up` has not made: name its with --kubeconfig"
        )
    return Reached(kubeconfig, told["aws"], told["region"], LocalClock.from_json(told["clock"]))


def now_at(kubeconfig: str) -> datetime:
    """Give the time of the cluster behind a kubeconfig: a local one may live faster than life."""
    path = kubeconfig or os.environ.get("KUBECONFIG", "")
    try:
        return reach(Path(path)).clock.now() if path else datetime.now(UTC)
    except Rejected:
        return datetime.now(UTC)


def _extension(kubeconfig: Any) -> Mapping[str, str] | None:
    clusters = (kubeconfig.get("clusters") if isinstance(kubeconfig, dict) else None) or ()
    return next(
        (
            each["extension"]
            for named in clusters
            for each in (named.get("cluster") or {}).get("extensions") or ()
            if each.get("name") == EXTENSION
        ),
        None,
    )
