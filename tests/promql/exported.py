"""The series that the forwarder serves over HTTP, and the metrics that functions write to CloudWatch."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from datetime import timedelta
from io import StringIO
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from nodesmith.composition.telemetry import Telemetry
from nodesmith.keys import metrics_key, on_sale_key
from nodesmith.model.functions import Concern, Finding
from nodesmith.model.metrics.metrics import SERIES, Metrics
from nodesmith.model.metrics.objects import MetricsObject, OfferingOnSale, TypeOnSale, write_on_sale
from nodesmith.observation.mirror import NODECLAIMS, NODECLASSES, NODEPOOLS, NODES, PODS
from nodesmith_forwarder.health import METRICS, serve_health
from nodesmith_forwarder.metrics import FunctionMetrics, exposition_text, gauges
from tests import builders
from tests.builders import nodepool_manifest
from tests.fakes.blobs import FakeBlobs
from tests.objects.clusters import deployment_pod
from tests.unit.forwarder.test_metrics import DICE, ENDING, Scene, a_node, nodeclaim, pod_of

_AT = "2026-11-22T03:00:00Z"


def exported() -> Mapping[str, frozenset[str]]:
    """Return the labels of each series by its name, as Prometheus would scrape them."""
    found: dict[str, frozenset[str]] = {}
    for family in text_string_to_metric_families(scraped()):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, frozenset()) | frozenset(sample.labels)
    return found


def scraped() -> str:
    """Scrape a forwarder whose cluster has something of everything, and whose functions have recorded every metric."""
    scene, functions = _eventful(), _functions()

    def answer() -> bytes:
        counted, observed = scene.world.measured()
        return exposition_text([*counted, *gauges(observed, scene.time)]) + functions.text()

    server = serve_health(0, {}, answer, "127.0.0.1")
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}{METRICS}") as response:
            return str(response.read().decode())
    finally:
        server.shutdown()
        server.server_close()


def _condition(kind: str, status: str, reason: str, at: str = _AT) -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "lastTransitionTime": at}


def _eventful() -> Scene:
    """Return a world in which objects of each kind come, change, wait, end and go."""
    scene = Scene()
    for phase, is_ready, at in (
        ("Pending", False, ""),
        ("Running", False, "node-1"),
        ("Running", True, "node-1"),
    ):
        scene.put(PODS, pod_of(phase, is_ready=is_ready, node_name=at))
    waits, ready = _condition("Ready", "False", "NotReady"), _condition("Ready", "True", "Ready")
    limits = {"metadata": {"annotations": {"nodesmith.dev/limit-usd-per-hour": "10"}}}
    pool = nodepool_manifest(limits={"cpu": "100"})
    pool["metadata"].setdefault("annotations", {}).update(limits["metadata"]["annotations"])
    status = {"resources": {"cpu": "8"}, "conditions": [waits]}
    scene.put(NODEPOOLS, {**pool, "status": status})
    scene.put(NODECLASSES, {"metadata": {"name": "default"}, "status": {"conditions": [waits]}})
    claim, node, pod = nodeclaim(), a_node(), deployment_pod(0, DICE)
    for made, conditions in ((claim, [waits]), (claim, [ready]), (node, [])):
        kind = NODES if made is node else NODECLAIMS
        scene.put(kind, made if made is node else {**made, "status": {"conditions": conditions}})
    scene.put(PODS, pod, deployment_pod(1, DICE))
    scene.time += timedelta(minutes=1)
    scene.put(PODS, {**pod, "spec": {**pod["spec"], "nodeName": "node-1"}}, deployment_pod(1, DICE))
    ends = {"deletionTimestamp": "2026-11-22T03:01:00Z"}
    drained = [("DisruptionReason", "True", "Empty"), ("Drained", "True", "Drained")]
    scene.put(NODECLAIMS, nodeclaim("2026-11-22T03:00:10Z", ("DisruptionReason", "True", "Empty"), ENDING))
    scene.put(NODECLAIMS, nodeclaim("2026-11-22T03:00:10Z", *drained, **ends))
    scene.time += timedelta(minutes=1)
    scene.world.drop(NODECLAIMS, nodeclaim("2026-11-22T03:00:10Z", **ends))
    scene.world.drop(NODES, node)
    scene.put(NODES, a_node(name="node-2"))
    there = deployment_pod(2, DICE, "node-2")
    there["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet"
    scene.put(PODS, there)
    lasting = nodeclaim("2026-11-22T03:00:10Z", name="web-2", **ends)
    lasting["status"] = {"conditions": [_condition("Initialized", "Unknown", "NodeNotReady")]}
    scene.put(NODECLAIMS, lasting)
    _come_and_go(scene)
    return scene


def _come_and_go(scene: Scene) -> None:
    """Let an object of each kind become ready, be deleted and go; others of the same kinds end and stay."""
    ended = {"deletionTimestamp": "2026-11-22T03:01:30Z"}
    conditions = [
        [_condition("Ready", "False", "NotReady")],
        [
            _condition("Ready", "True", "Ready", "2026-11-22T03:01:00Z"),
            _condition("InstanceTerminating", "True", "Ends"),
        ],
    ]
    for kind, made in (
        (
            NODEPOOLS,
            {"metadata": {"name": "brief", "creationTimestamp": _AT}, "spec": nodepool_manifest()["spec"]},
        ),
        (NODECLASSES, {"metadata": {"name": "brief", "creationTimestamp": _AT}}),
        (NODECLAIMS, nodeclaim(name="brief")),
        (NODES, a_node(name="brief")),
    ):
        states = [{**made, "status": {**made.get("status", {}), "conditions": each}} for each in conditions]
        for state in states:
            scene.put(kind, state)
        gone = {**states[-1], "metadata": {**made["metadata"], **ended}}
        scene.put(kind, gone)
        scene.world.drop(kind, gone)
        scene.put(kind, {**gone, "metadata": {**gone["metadata"], "name": "lasting"}})


def _functions() -> FunctionMetrics:
    """Return the functions' metrics, with one value in each series and one offering on sale."""
    metrics = Metrics()
    for name, series in SERIES.items():
        labels = dict.fromkeys(series.labels, "x")
        match series.kind:
            case "counter":
                metrics.count(name, 1, **labels)
            case "histogram":
                metrics.observe(name, 1.0, 1, **labels)
            case "gauge":
                metrics.show(name, {tuple(sorted(labels.items())): 1.0}, builders.NOW)
    offering = OfferingOnSale("spot", "us-east-1a", 0.03, is_available=True)
    bucket = FakeBlobs()
    bucket.put(metrics_key("east", Concern.PROVISIONING), MetricsObject(metrics.take()).to_bytes())
    bucket.put(on_sale_key("east"), write_on_sale({"m5.large": TypeOnSale(2, 8 * 2**30, (offering,))}))
    functions = FunctionMetrics(bucket, "east", Scene())
    functions.families()
    if functions._reading is not None:  # on a busy machine, an answer does not wait for it
        functions._reading.join()
    return functions


def emitted() -> Iterator[tuple[str, str, frozenset[str]]]:
    """Yield the metrics that any function writes in EMF: namespace, name and names of dimensions."""
    out = StringIO()
    with redirect_stdout(out):
        telemetry = Telemetry("dispatch", "", metrics=True)
        telemetry.rejected("an input")
        telemetry.failed(RuntimeError("a fault"))
        telemetry.unhealthy(Finding("", "", "NoSuccess", ""), "")
        telemetry.alarm("Unhealthy", 1)
    for line in out.getvalue().splitlines():
        about = json.loads(line).get("_aws") if line.startswith("{") else None
        for directive in (about or {}).get("CloudWatchMetrics", ()):
            yield from _written(directive)


def _written(directive: Mapping[str, Any]) -> Iterator[tuple[str, str, frozenset[str]]]:
    for metric in directive["Metrics"]:
        for dimensions in directive["Dimensions"]:
            yield directive["Namespace"], metric["Name"], frozenset(dimensions)
