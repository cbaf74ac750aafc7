"""What manifests of Cluster Autoscaler's users ask for, and what the schedule of a NodePool says, happens."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from nodesmith.model.apimachinery.times import parse_time
from nodesmith.model.karpenter.disruption import SCHEDULE
from nodesmith.model.kubernetes.nodes import DELETION_DELAY
from nodesmith.model.kubernetes.podannotations import DAEMON_EVICTION, SCALE_UP_DELAY
from nodesmith_local.runs.timeline import condition
from tests.e2e.conftest import Figures, Start
from tests.e2e.systems.system import CLUSTER, Manifest, System
from tests.objects.manifests import daemonset, deployment, nodeclass, nodepool, taint
from tests.patience import patient

STARTUP = "startup-taint.cluster-autoscaler.kubernetes.io/cni"
HOLD = f"{DELETION_DELAY}/volumes"
DELAY_SECONDS = 20
PROMPT_SECONDS = 15.0
"""Within this time, on an idle machine, a purchase follows the moment from which it is allowed."""


def annotated(made: Manifest, key: str, value: str) -> Manifest:
    """Return a workload whose pods carry an annotation."""
    template = made["spec"]["template"]
    metadata = {**template["metadata"], "annotations": {key: value}}
    return {**made, "spec": {**made["spec"], "template": {**template, "metadata": metadata}}}


def pool(**fields: Any) -> Manifest:
    made = nodepool(**fields)
    return {**made, "spec": {**made["spec"], "disruption": {"consolidateAfter": "Never"}}}


def created(manifest: Manifest) -> datetime:
    return parse_time(manifest["metadata"]["creationTimestamp"])


def evicted(system: System) -> set[str]:
    """Return the names of the pods with an Event that they were evicted."""
    return {event["involvedObject"]["name"] for event in system.events("Evicted")}


def test_manifests_of_cluster_autoscalers_users_keep_their_meaning(start: Start, figures: Figures) -> None:
    system = start()
    leaving = annotated(daemonset("leaving"), DAEMON_EVICTION, "true")
    staying = annotated(
        daemonset("staying", tolerations=[{"key": STARTUP, "operator": "Exists"}]), DAEMON_EVICTION, "false"
    )
    system.apply(nodeclass(CLUSTER), pool(taints=[taint(STARTUP, "")]), leaving, staying)
    system.until_nodepools_ready()

    # The purchase waits for the delay of the pod, which does not tolerate the startup taint.
    system.apply(annotated(deployment("web", 1), SCALE_UP_DELAY, f"{DELAY_SECONDS}s"))
    system.until("a node is bought", lambda: bool(system.claims()), DELAY_SECONDS + 60)
    (pod,), (claim,) = system.pods("web"), system.claims()
    waited = created(claim) - created(pod)
    figures("delayed-20-s-pod-to-nodeclaim-s", waited.total_seconds())
    assert DELAY_SECONDS <= waited.total_seconds() <= DELAY_SECONDS + patient(PROMPT_SECONDS)

    # The node is initialized once its startup taint is gone.
    name = claim["metadata"]["name"]

    def shown() -> Manifest:
        return next((c for c in system.claims() if c["metadata"]["name"] == name), {"metadata": {}})

    system.until(
        "the node waits for its startup taint",
        lambda: condition(shown(), "Initialized").get("reason") == "StartupTaintsExist",
    )
    (node,) = (node["metadata"]["name"] for node in system.nodes())
    system.kubectl("taint", "node", node, f"{STARTUP}-")
    system.until_running(1, "web")
    system.until_settled()

    # Its end waits for another controller; the DaemonSets' pods leave or stay as they ask.
    system.apply(deployment("web", 0))
    there: dict[str, str] = {}

    def are_there() -> bool:
        for pod in (*system.pods("leaving"), *system.pods("staying")):
            if pod["spec"].get("nodeName") == node:
                there[pod["metadata"]["labels"]["app"]] = pod["metadata"]["name"]
        return len(there) == 2

    system.until("both DaemonSets have a pod on the node", are_there)
    system.kubectl("annotate", "node", node, f"{HOLD}=")
    system.kubectl("delete", "nodeclaim", name, "--wait=false")
    system.until(
        "the drained node waits for the annotation",
        lambda: condition(shown(), "InstanceTerminating").get("reason") == "DeletionDelayed",
    )
    system.until("an Event tells of the eviction", lambda: there["leaving"] in evicted(system))
    assert there["staying"] not in evicted(system)
    system.stays("the instance runs", lambda: len(system.instances()) == 1, 5)
    system.kubectl("annotate", "node", node, f"{HOLD}-")
    system.until(
        "the node is gone", lambda: not (system.claims() or system.nodes() or system.instances()), 30
    )


def opens_in(system: System, wait: timedelta) -> datetime:
    """Set the NodePool's schedule, and return when it opens: in at most this time, rounded down to minutes."""
    opening = (datetime.now(UTC) + wait).replace(second=0, microsecond=0)
    schedule = json.dumps([{"schedule": f"{opening.minute} {opening.hour} * * *", "duration": "1h"}])
    system.kubectl("annotate", "nodepool", "default", "--overwrite", f"{SCHEDULE}={schedule}")
    return opening


@pytest.mark.slow
def test_a_nodepool_closes_and_opens_by_its_schedule(start: Start, figures: Figures) -> None:
    system = start()
    always = [{"schedule": "* * * * *", "duration": "1h"}]
    made = pool()
    metadata = {**made["metadata"], "annotations": {SCHEDULE: json.dumps(always)}}
    system.apply(nodeclass(CLUSTER), {**made, "metadata": metadata}, deployment("web", 1))
    system.until_running(1, "web")
    system.until_settled()

    much_later = opens_in(system, timedelta(hours=6))
    system.until(
        "the nodes are gone", lambda: not (system.claims() or system.nodes() or system.instances()), 80
    )
    (pod,) = system.pods("web")
    assert pod["status"]["phase"] == "Pending"
    until = f"closed until {much_later:%a %Y-%m-%d %H:%M} UTC"
    system.until(
        "the pod's Event says when the NodePool opens",
        lambda: any(until in event["message"] for event in system.events("FailedScheduling")),
    )

    opening = opens_in(system, timedelta(seconds=150))
    seconds = (opening - datetime.now(UTC)).total_seconds()
    system.until("a node is bought", lambda: bool(system.claims()), seconds + 60)
    (claim,) = system.claims()
    late = created(claim) - opening
    figures("opening-to-nodeclaim-s", late.total_seconds())
    assert 0 <= late.total_seconds() <= patient(PROMPT_SECONDS)
    system.until_running(1, "web")
