"""The greeting of `nodesmith local up`: where its clusters are, and what to try."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from nodesmith_cli.simulator.localcommands.kubeconfigs import CONTEXT
from nodesmith_formats.manifests.places import numbered
from nodesmith_local.runs.system import LocalSystem


def greet(
    to: Console, system: LocalSystem, kubeconfig: Path, page: str = "", keep: Path | None = None
) -> None:
    """Print the greeting. `page` is the link to the page of `nodesmith ui`, if it is served.

    `keep` is the folder of records if it is not the default one.
    """
    for line in greeting(system, kubeconfig, page, keep):
        to.print(line, soft_wrap=True)


def greeting(
    system: LocalSystem, kubeconfig: Path, page: str = "", keep: Path | None = None
) -> Iterator[str]:
    """Yield the greeting line by line. For several clusters it names the context of each."""
    several = len(system.clusters) > 1
    for number, cluster in enumerate(system.clusters, start=1):
        context = f", context {numbered(CONTEXT, number)}" if several else ""
        yield f"cluster {cluster.name} in {system.place.region}, API server {cluster.cluster.url}{context}"
    yield f"AWS at {system.aws.url}, log in {system.log}"
    for cluster in system.clusters:
        of = f" of {cluster.name}" if several else ""
        yield f"metrics for Prometheus{of} at {cluster.metrics_url}"
    if page:
        yield f"{page_of(system)} at {page}"
    yield ""
    yield f"  export KUBECONFIG={kubeconfig}"
    yield from _to_try(several, keep)
    yield ""
    whose = " of each cluster" if several else ""
    yield f"Ctrl-C ends it; only the records of decisions{whose} are kept."


def page_of(system: LocalSystem) -> str:
    """Return the target of a link to the page."""
    return f"page of {system.first.name}" if len(system.clusters) > 1 else "page"


def _to_try(several: bool, keep: Path | None) -> Iterator[str]:
    second = numbered(CONTEXT, 2)
    kubectl = f"kubectl --context {second}" if several else "kubectl"
    yield f"  {kubectl} create deployment web --image=busybox --replicas=0 -- sleep infinity"
    yield f"  {kubectl} set resources deployment web --requests=cpu=1"
    yield f"  {kubectl} scale deployment web --replicas=20"
    yield f"  {kubectl} get nodes,pods,nodeclaims,nodepools -o wide"
    if several:
        yield f"  nodesmith status --kubeconfig {second}"
    of = " --cluster CLUSTER" if several else ""
    folder = f" --keep {shlex.quote(str(keep))}" if keep else ""
    yield f"  nodesmith explain decision latest{of}{folder}"
    yield "  nodesmith local interrupt NODE"
    yield "  nodesmith local shift ZONE"
    yield "  nodesmith chaos start throttled --service ec2"
