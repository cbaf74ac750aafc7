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
    """A local system as other processes see it. `clusters` are the names of its clusters, by context."""

    kubeconfig: Path
    aws_url: str
    region: str
    clock: LocalClock
    clusters: Mapping[str, str]
    current: str
    """the context that kubectl takes where none is named"""

    def client(self, service: str) -> Any:
        """Return a boto3 client of a service of its AWS."""
        return local_client(service, self.region, self.aws_url)


def default_kubeconfig() -> Path:
    """Name the file that `local up` writes where the user names none."""
    return Path.home() / ".kube" / "nodesmith-local"


def reachable(
    kubeconfig: Mapping[str, Any], aws_url: str, region: str, clock: LocalClock, cluster: str
) -> dict[str, Any]:
    """Return a kubeconfig of one cluster that also says what `reach` has to know. `cluster` is its name on EKS."""
    told = {"aws": aws_url, "region": region, "clock": clock.to_json(), "cluster": cluster}
    (named,) = kubeconfig["clusters"]
    reached = {**named["cluster"], "extensions": [{"name": EXTENSION, "extension": told}]}
    return {**kubeconfig, "clusters": [{**named, "cluster": reached}]}


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
    told = _told(found)
    if not told:
        raise Rejected(
            f"{kubeconfig}: leads to a cluster that `nodesmith local up` has not made: name its with --kubeconfig"
        )
    any_of_them = next(iter(told.values()))
    clock = LocalClock.from_json(any_of_them["clock"])
    clusters = {context: each["cluster"] for context, each in told.items()}
    current = str(found.get("current-context") or "")
    return Reached(kubeconfig, any_of_them["aws"], any_of_them["region"], clock, clusters, current)


def now_at(kubeconfig: str) -> datetime:
    """Return the time of the cluster behind a kubeconfig, or a context: a local one may live faster than life."""
    system = _reached(kubeconfig)
    return system.clock.now() if system else datetime.now(UTC)


def one_of_several(kubeconfig: str) -> str:
    """Name the cluster behind a kubeconfig, or a context, where it is one of several of a local system; else empty."""
    system = _reached(kubeconfig)
    if system is None or len(system.clusters) == 1:
        return ""
    context = system.current if kubeconfig == "" or Path(kubeconfig).is_file() else kubeconfig
    return system.clusters.get(context, "")


def _reached(kubeconfig: str) -> Reached | None:
    """Reach the local system behind a kubeconfig, or a context of the usual one; None where there is none."""
    path = kubeconfig if Path(kubeconfig).is_file() else os.environ.get("KUBECONFIG", "")
    try:
        return reach(Path(path)) if path else None
    except Rejected:
        return None


def _told(kubeconfig: Any) -> dict[str, Mapping[str, str]]:
    """Return what `reachable` has written of each cluster, by context."""
    if not isinstance(kubeconfig, dict):
        return {}
    told = {
        named["name"]: each["extension"]
        for named in kubeconfig.get("clusters") or ()
        for each in (named.get("cluster") or {}).get("extensions") or ()
        if each.get("name") == EXTENSION
    }
    contexts = {each["name"]: each["context"]["cluster"] for each in kubeconfig.get("contexts") or ()}
    return {context: told[cluster] for context, cluster in contexts.items() if cluster in told}
