"""One run: manifests applied to a local system, watched until it is quiet or time is up."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from nodesmith.model.karpenter.conversion.converting import convert
from nodesmith_formats.manifests.manifests import Document, Fault, Manifests, load_manifests
from nodesmith_formats.manifests.places import selected_images, selected_tags
from nodesmith_formats.shipped import shipped
from nodesmith_formats.wording import counted
from nodesmith_local.runs.applying import apply_documents, is_read, surroundings_first
from nodesmith_local.runs.latency import Latency, latencies
from nodesmith_local.runs.quiet import pending_activity, undecided_nodepools
from nodesmith_local.runs.report import Report
from nodesmith_local.runs.servedcluster import ServedCluster

_GLANCE_SECONDS = 0.2
_GLANCES_A_COLLECTION = 5
"""Listing the bucket costs more than all else that is looked at."""
_MOST_PATIENCES = 10
_READY_WITHIN_SECONDS = 30
_DEFAULTS = ("nodeclass.yaml", "nodepool.yaml")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a run. `activity` is the activity that was still under way when time was up."""

    report: Report
    latencies: tuple[Latency, ...]
    faults: tuple[Fault, ...]
    activity: str = ""

    def problems(self) -> tuple[str, ...]:
        """Return nodesmith's findings about objects that no fault reports already."""
        fields = tuple(f"{fault.object}: {fault.field} " for fault in self.faults if fault.field)
        return tuple(problem for problem in self.report.problems if not problem.startswith(fields))


def with_defaults(manifests: Manifests) -> Manifests:
    """Add the NodePool and the EC2NodeClass named `default` if the files have none of that kind.

    Provisioners and the like count as such; objects that nodesmith does not read do not count.
    """
    folder = shipped("_examples", "examples") / "express-test"
    kinds = {obj["kind"] for obj in converted_objects(manifests.documents) if is_read(obj)}
    defaults = load_manifests([str(folder / name) for name in _DEFAULTS])
    missing = tuple(d for d in defaults.documents if d.manifest["kind"] not in kinds)
    return replace(manifests, documents=(*missing, *manifests.documents))


def apply(cluster: ServedCluster, documents: Sequence[Document]) -> list[Fault]:
    """Apply the objects that pods depend on, wait until they are ready, then apply the workloads."""
    surroundings, workloads = surroundings_first(documents)
    nodeclasses = [obj for obj in converted_objects(surroundings) if obj["kind"] == "EC2NodeClass"]
    cluster.aws.ensure_tags(*selected_tags(nodeclasses), cluster.name)
    for term in selected_images(nodeclasses):
        cluster.aws.ensure_image(term)
    for nodeclass in nodeclasses:
        spec = nodeclass.get("spec") or {}
        for name, ensure in (
            ("role", cluster.aws.ensure_role),
            ("instanceProfile", cluster.aws.ensure_instance_profile),
        ):
            if isinstance(spec.get(name), str) and spec[name]:
                ensure(spec[name])
    faults = apply_documents(cluster.objects, surroundings)
    wait_for(
        cluster, _READY_WITHIN_SECONDS, lambda: ", ".join(undecided_nodepools(cluster.state().nodepools))
    )
    return faults + apply_documents(cluster.objects, workloads)


def settle(cluster: ServedCluster, patience_seconds: float) -> str:
    """Wait until the cluster is quiet; return what is still under way if patience ends first, else ""."""
    return wait_for(cluster, patience_seconds, lambda: pending_activity(cluster.state()))


def simulate(cluster: ServedCluster, manifests: Manifests, patience_seconds: float) -> Outcome:
    """Apply manifests, wait until the cluster is quiet, and return the outcome."""
    with cluster.stage(f"applying {counted(len(manifests.documents), 'object')}"):
        faults = sorted(
            (*manifests.faults, *apply(cluster, manifests.documents)),
            key=lambda fault: (fault.file, fault.line),
        )
    activity = settle(cluster, patience_seconds)
    report = cluster.report()
    return Outcome(report, latencies(report.timeline, cluster.claims_by_node()), tuple(faults), activity)


def wait_for(cluster: ServedCluster, patience_seconds: float, activity: Callable[[], str]) -> str:
    """Poll until nothing is under way; return what is left when patience is over, else "".

    Patience is over when nothing has happened for `patience_seconds` of the cluster's time, since slow progress on a
    busy machine is no failure, and in any case after ten times as many. Afterwards, the timeline has what objects show.
    """
    started_at, patience = cluster.clock.now(), timedelta(seconds=patience_seconds)
    glances = 0
    while left := activity():
        now = cluster.clock.now()
        if (
            now - max(started_at, cluster.last_change()) > patience
            or now - started_at > _MOST_PATIENCES * patience
        ):
            break
        time.sleep(_GLANCE_SECONDS)
        glances += 1
        if glances % _GLANCES_A_COLLECTION == 0:  # one invocation may decide many times before its end
            cluster.decisions.collect()
    cluster.until_recorded()
    return left


def converted_objects(documents: Sequence[Document]) -> list[Mapping[str, Any]]:
    """Return the manifests, with Karpenter's converted to their current form."""
    return [obj.manifest for obj in convert([document.manifest for document in documents]).objects]
