"""Nodes that are bought in vain on a real control plane: few are bought, the reason is told, a reset begins anew."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.policies import RESET_LAUNCHES
from nodesmith_local.aws.instances.stages import USUAL
from tests.e2e.conftest import Figures, Start
from tests.e2e.systems.system import CLUSTER, HURRIED, Manifest, System
from tests.objects.manifests import deployment, mutations, nodeclass, nodepool

MOST = 4


def repainting() -> Sequence[Manifest]:
    """Return an admission policy that sets the label of each node to another value than its NodePool does."""
    patch = '[JSONPatch{op: "add", path: "/metadata/labels/team", value: "blue"}]'
    return mutations("repaint", patch, {"operations": ["CREATE", "UPDATE"], "resources": ["nodes"]})


def is_reported(system: System) -> bool:
    return any("bought 2 times" in each["message"] for each in system.events("ProvisioningBackOff"))


def test_a_label_that_another_controller_overwrites_costs_few_nodes_until_the_cause_is_gone(
    start: Start, figures: Figures
) -> None:
    system = start(speed=HURRIED, delays=USUAL)
    system.apply(nodeclass(CLUSTER), nodepool(labels={"team": "red"}), *repainting())
    system.until_nodepools_ready()
    system.apply(deployment("web", 1, nodeSelector={"team": "red"}))
    system.until("the pod's Event tells of two nodes in vain", lambda: is_reported(system), 180)
    assert len(system.launched_at()) == 2
    system.stays("no more are bought", lambda: len(system.launched_at()) <= MOST, 10)
    system.kubectl("delete", "mutatingadmissionpolicybinding", "repaint")
    reset = f"{RESET_LAUNCHES}={format_time(datetime.now(UTC))}"
    system.kubectl("annotate", "nodepool", "default", reset)
    system.until_running(1, "web", 180)
    figures("nodes bought in vain", len(system.launched_at()) - 1)
    assert len(system.launched_at()) <= MOST
