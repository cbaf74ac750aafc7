"""Discovery of a running local system by other commands: its kubeconfig contains the clock and the URL of AWS.

The data is in an extension of the cluster, which is where tools add data to a kubeconfig. kubectl ignores it.
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
from nodesmith_formats.localsystem.clients import local_client
from nodesmith_formats.localsystem.clock import LocalClock
from nodesmith_formats.localsystem.contexts import kubeconfig_file

EXTENSION = "nodesmith.dev/local"


@dataclass(frozen=True, slots=True)
class Reached:
    """A local system as other processes see it. `clusters` maps contexts to cluster names."""

    kubeconfig: Path
    aws_url: str
    region: str
    clock: LocalClock
    clusters: Mapping[str, str]
    current: str
    """The context that kubectl uses by default."""
    chaos_url: str
    """Where faults are started."""

    def client(self, service: str) -> Any:
        """Return a boto3 client of a service of the system's AWS."""
        return local_client(service, self.region, self.aws_url)


def default_kubeconfig() -> Path:
    """Return the path that `local up` writes by default."""
    return Path.home() / ".kube" / "nodesmith-local"


def reachable(
    kubeconfig: Mapping[str, Any],
    aws_url: str,
    region: str,
    clock: LocalClock,
    cluster: str,
    chaos_url: str = "",
) -> dict[str, Any]:
    """Return a single-cluster kubeconfig with the data for `reach`. `cluster` is the cluster's name on EKS."""
    extension = {
        "aws": aws_url,
        "region": region,
        "clock": clock.to_json(),
        "cluster": cluster,
        "chaos": chaos_url,
    }
    (entry,) = kubeconfig["clusters"]
    cluster_data = {**entry["cluster"], "extensions": [{"name": EXTENSION, "extension": extension}]}
    return {**kubeconfig, "clusters": [{**entry, "cluster": cluster_data}]}


def reach(kubeconfig: Path) -> Reached:
    """Return the system that `reachable` described. Raises Rejected if the file does not exist or has no such data."""
    try:
        content = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Rejected(
            f"no local system runs: there is no {kubeconfig}: start `nodesmith local up` in another terminal, "
            "or name the kubeconfig that it wrote with --kubeconfig"
        ) from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise Rejected(f"{kubeconfig}: cannot be read as a kubeconfig: {error}") from None
    systems = _systems(content)
    if not systems:
        raise Rejected(
            f"{kubeconfig}: refers to a cluster that `nodesmith local up` did not create: "
            "name the kubeconfig that it wrote with --kubeconfig"
        )
    any_of_them = next(iter(systems.values()))
    clock = LocalClock.from_json(any_of_them["clock"])
    clusters = {context: data["cluster"] for context, data in systems.items()}
    current = str(content.get("current-context") or "")
    return Reached(
        kubeconfig,
        any_of_them["aws"],
        any_of_them["region"],
        clock,
        clusters,
        current,
        any_of_them.get("chaos", ""),
    )


def now_at(kubeconfig: str) -> datetime:
    """Return the current time of the cluster behind a kubeconfig or context; a local clock may run fast."""
    system = local_system(kubeconfig)
    return system.clock.now() if system else datetime.now(UTC)


def one_of_several(kubeconfig: str) -> str:
    """Return the name of the cluster behind a kubeconfig or context if its local system has several, else ""."""
    system = local_system(kubeconfig)
    if system is None or len(system.clusters) == 1:
        return ""
    context = system.current if kubeconfig == "" or kubeconfig_file(kubeconfig) else kubeconfig
    return system.clusters.get(context, "")


def local_system(kubeconfig: str) -> Reached | None:
    """Return the local system behind a kubeconfig, or behind a context of the usual one; None if there is none."""
    path = kubeconfig_file(kubeconfig) or os.environ.get("KUBECONFIG", "")
    try:
        return reach(Path(path)) if path else None
    except Rejected:
        return None


def _systems(kubeconfig: Any) -> dict[str, Mapping[str, str]]:
    """Return the data that `reachable` wrote for each cluster, by context; none if the file has another form."""
    try:
        systems = {
            entry["name"]: item["extension"]
            for entry in kubeconfig.get("clusters") or ()
            for item in (entry.get("cluster") or {}).get("extensions") or ()
            if item.get("name") == EXTENSION
        }
        contexts = {item["name"]: item["context"]["cluster"] for item in kubeconfig.get("contexts") or ()}
    except (AttributeError, KeyError, TypeError):  # `local up` has not written it
        return {}
    return {context: systems[cluster] for context, cluster in contexts.items() if cluster in systems}
