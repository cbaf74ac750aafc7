"""How much sooner pods are ready on started instances than on launched ones, on the local system.

Instances boot as `nodesmith_local.aws.instances.stages` says. Each pod needs a node of its own, and a node that lacks a
pod's image pulls it for `PULL_SECONDS`. Both are a model: docs/warm-capacity.md names its sources. What is measured is
everything else: events, decisions, EC2's calls, registration, scheduling.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from nodesmith.model.apimachinery.times import parse_time
from nodesmith_cli.simulator.localcommands.commands import place_of
from nodesmith_formats.manifests.manifests import load_manifests
from nodesmith_formats.shipped import shipped
from nodesmith_local.aws.instances.kubelet import PULL_SECONDS
from nodesmith_local.runs.running import apply
from nodesmith_local.runs.servedcluster import ServedCluster
from nodesmith_local.runs.system import LocalSystem
from nodesmith_local.runs.timeline import condition
from tests.benchmarks.figures import Figure
from tests.objects.capacitybuffers import warm_buffer
from tests.patience import eventually
from tests.scenarios.crashes import WARM_STORIES, crash_report

Manifest = dict[str, Any]
PODS, SPEED, PATIENCE_SECONDS = 8, 3.0, 300.0
GOAL = 0.4
_TYPE = "c6a.large"  # 2 vCPUs: one pod of one vCPU each
_CRD = Path(__file__).parents[3] / "overlays" / "capacity-buffers" / "crd.yaml"


def figures(pods: int = PODS, sample: int = 0) -> list[Figure]:
    """Measure the median time from a pod's creation until it is ready: launched, started, and the ratio.

    Also kill functions at every boundary of the lives of stopped instances, or at `sample` of each life.
    """
    fresh, warm = (sorted(waits(pods, warm=kept)) for kept in (False, True))
    bare_fresh, bare_warm = (sorted(waits(pods, warm=kept, pull_seconds=0.0)) for kept in (False, True))
    ratio, bare = median(warm) / median(fresh), median(bare_warm) / median(bare_fresh)
    note = f"{pods} pods, a node each; images take {PULL_SECONDS:g} s to pull"
    return [
        Figure("warm-ready-ratio", ratio, "of a launch", GOAL, note),
        Figure("warm-ready-p50", median(warm), "s", note=_spread(warm)),
        Figure("fresh-ready-p50", median(fresh), "s", note=_spread(fresh)),
        Figure("warm-ready-ratio-without-images", bare, "of a launch", note="images take no time to pull"),
        _crashes(sample),
    ]


def _crashes(sample: int) -> Figure:
    report = crash_report(sample, WARM_STORIES)
    note = f"killed at {report.points} points of {len(WARM_STORIES)} lives of stopped instances"
    return Figure("warm-crash-violations", report.violations, "violations", 0, note)


def _spread(found: list[float]) -> str:
    return f"{found[0]:.0f} to {found[-1]:.0f} s"


def waits(pods: int, *, warm: bool, pull_seconds: float = PULL_SECONDS) -> list[float]:
    """Return the seconds of the cluster that each pod waited until it was ready."""
    with _system(pull_seconds) as system:
        _apply(system, _room(pods if warm else 0))
        eventually(lambda: _kept(system) == (pods if warm else 0), seconds=PATIENCE_SECONDS)
        _apply(system, _workload(pods))
        eventually(lambda: len(_ready(system)) == pods, seconds=PATIENCE_SECONDS)
        return _ready(system)


@contextmanager
def _system(pull_seconds: float) -> Iterator[ServedCluster]:
    example = shipped("_examples", "examples") / "express-test"
    manifests = load_manifests([str(example), str(_CRD)])
    kept = [each for each in manifests.documents if each.manifest["kind"] != "Deployment"]
    for each in kept:
        if each.manifest["kind"] == "NodePool":
            _narrow(each.manifest["spec"])
    place = place_of(manifests, "", SPEED)
    with (
        tempfile.TemporaryDirectory() as state,
        LocalSystem(replace(place, pull_seconds=pull_seconds), Path(state)) as running,
    ):
        apply(running.first, kept)
        yield running.first


def _narrow(spec: Manifest) -> None:
    """Let a NodePool with this spec buy nodes for one pod, on demand, and keep them."""
    spec["template"]["spec"]["requirements"] = [
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [_TYPE]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
    ]
    spec["disruption"] = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}


def _apply(system: ServedCluster, manifests: list[Manifest]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "applied.yaml"
        path.write_text(yaml.safe_dump_all(manifests))
        if manifests:
            assert not apply(system, load_manifests([str(path)]).documents)


def _template() -> Manifest:
    requests = {"cpu": "1", "memory": "64Mi"}
    container = {"name": "web", "image": "web:1", "resources": {"requests": requests}}
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}


def _room(pods: int) -> list[Manifest]:
    about = {"name": "room", "namespace": "default"}
    template = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": about, "template": _template()}
    return [template, warm_buffer(pods)] if pods else []


def _workload(pods: int) -> list[Manifest]:
    spec = {"replicas": pods, "selector": {"matchLabels": {"app": "web"}}, "template": _template()}
    about = {"name": "web", "namespace": "default"}
    return [{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": about, "spec": spec}]


def _kept(system: ServedCluster) -> int:
    """Return how many NodeClaims show that their instance is stopped."""
    shown = system.objects.list("nodeclaims")
    return sum(condition(each, "Registered").get("reason") == "Stopped" for each in shown)


def _ready(system: ServedCluster) -> list[float]:
    """Return how long each ready pod waited for that."""
    found: list[timedelta] = []
    for pod in system.objects.list("pods"):
        ready = condition(pod, "Ready")
        if pod["metadata"]["namespace"] == "default" and ready.get("status") == "True":
            at, made = (
                parse_time(str(text))
                for text in (ready["lastTransitionTime"], pod["metadata"]["creationTimestamp"])
            )
            found.append(at - made)
    return [wait.total_seconds() for wait in found]
