"""Instances that boot and join: EC2 runs them, the kubelet registers a Node, the CNI makes it ready.

The taints that follow from a node's conditions are the business of Kubernetes' node lifecycle controller.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from nodesmith.errors import Transient
from nodesmith.model.catalog import Catalog
from nodesmith.model.times import format_time
from nodesmith_cli.local.apiserver.errors import ApiError
from nodesmith_cli.local.apiserver.objects import condition_of
from nodesmith_cli.local.clock import LocalClock
from nodesmith_cli.local.cloud.nodes import (
    UNINITIALIZED,
    Machine,
    cloud_labels,
    conditions,
    registered_node,
    without_taint,
)
from nodesmith_cli.local.cloud.stages import USUAL, Delays, Stage
from nodesmith_cli.local.cloud.userdata import Bootstrap, Unusable, parse_user_data
from nodesmith_cli.local.objects import Objects

HEARTBEAT_SECONDS = 10
_LOOK_SECONDS = 0.1  # of life: how closely the simulation follows the clock
_GONE = {"shutting-down", "terminated"}
_LEASES = "kube-node-lease"
_KWOK = {"metadata": {"labels": {"kwok.x-k8s.io/node": "fake"}}}
_log = logging.getLogger(__name__)


class Machines(Protocol):
    """EC2's instances, from the side of the machines."""

    def all(self) -> Iterable[Machine]:
        """Give every instance that EC2 still shows."""

    def become(self, instance_id: str, state: str) -> None:
        """Move an instance into another of EC2's states."""


@dataclass(slots=True)
class _Life:
    """One instance's progress. `trouble` says why it will never join."""

    stage: Stage
    since: datetime
    node: str = ""
    bootstrap: Bootstrap | None = None
    trouble: str = ""
    heartbeat: datetime | None = None


class Kubelets:
    """All machines of one region, and the cluster they join.

    `step` moves everything to a moment, `run` follows a clock. `announce` is told of every change of an instance's
    state, as EventBridge is. With `kwok`, a node that has become ready is left to it, lease and pods.
    """

    def __init__(
        self,
        machines: Machines,
        nodes: Objects,
        catalog: Catalog,
        *,
        endpoint: str,
        version: str,
        announce: Callable[[Machine, str], None] = lambda machine, state: None,  # noqa: ARG005
        delays: Delays = USUAL,
        kwok: bool = False,
    ) -> None:
        self._machines = machines
        self._nodes = nodes
        self._catalog = catalog
        self._endpoint = endpoint
        self._version = version
        self._announce = announce
        self._delays = delays
        self._kwok = kwok
        self._lives: dict[str, _Life] = {}
        self._held_up: set[str] = set()

    def run(self, clock: LocalClock, stop: threading.Event) -> None:
        """Follow the clock until told to stop."""
        while not stop.wait(_LOOK_SECONDS):
            self.step(clock.now())

    def troubles(self) -> dict[str, str]:
        """Give the instances that will never join, and why."""
        return {instance_id: life.trouble for instance_id, life in self._lives.items() if life.trouble}

    def step(self, now: datetime) -> None:
        """Let everything happen that is due; what the API server does not take now is tried again in the next step."""
        for machine in self._machines.all():
            try:
                self._look(machine, now)
                self._held_up.discard(machine.id)
            except (ApiError, Transient) as error:
                if machine.id not in self._held_up:
                    _log.warning("instance %s is held up: %s", machine.id, error)
                self._held_up.add(machine.id)

    def _look(self, machine: Machine, now: datetime) -> None:
        life = self._lives.get(machine.id)
        if life is None:
            life = self._lives[machine.id] = _Life(Stage.PENDING, now)
            self._announce(machine, machine.state)
        if machine.state in _GONE:
            self._end(machine, life)
        elif machine.state != "stopped":
            self._advance(machine, life, now)

    def _advance(self, machine: Machine, life: _Life, now: datetime) -> None:
        while life.stage < Stage.READY and not life.trouble:
            following = Stage(life.stage + 1)
            due = life.since + self._delays.until(following, machine.id)
            if due > now:
                return
            self._enter(following, machine, life, due)
            life.stage, life.since = following, due
        if (
            life.stage is Stage.READY
            and life.heartbeat
            and (now - life.heartbeat).total_seconds() >= HEARTBEAT_SECONDS
        ):
            self._beat(life, now)

    def _enter(self, stage: Stage, machine: Machine, life: _Life, now: datetime) -> None:
        match stage:
            case Stage.RUNNING:
                self._machines.become(machine.id, "running")
                self._announce(machine, "running")
            case Stage.REGISTERED:
                self._register(machine, life, now)
            case Stage.INITIALIZED:
                self._initialize(machine, life.node)
            case Stage.READY:
                self._make_ready(life, now)
            case _:
                raise AssertionError(f"nothing enters {stage!r} by the clock")

    def _register(self, machine: Machine, life: _Life, now: datetime) -> None:
        try:
            life.bootstrap = parse_user_data(machine.user_data)
        except Unusable as error:
            life.trouble = str(error)
            return
        if life.bootstrap.endpoint != self._endpoint:
            life.trouble = f"no API server answers at {life.bootstrap.endpoint}"
            return
        if machine.instance_type not in self._catalog.facts:
            life.trouble = f"the catalogue does not know the type {machine.instance_type}"
            return
        life.node = machine.private_dns_name
        if self._nodes.find("nodes", life.node):
            self._nodes.delete("nodes", life.node)  # of an instance that had this address before
        self._nodes.create(
            "nodes", registered_node(machine, life.bootstrap, self._catalog, self._version, now)
        )

    def _initialize(self, machine: Machine, name: str) -> None:
        """Do the cloud controller's part: labels, and its taint goes."""
        node = self._nodes.find("nodes", name)
        if node is None:  # somebody has deleted it
            return
        kept = without_taint(node["spec"].get("taints") or [], UNINITIALIZED)
        metadata = {"labels": cloud_labels(machine), "resourceVersion": node["metadata"]["resourceVersion"]}
        self._patch_node(name, {"metadata": metadata, "spec": {"taints": kept}})

    def _make_ready(self, life: _Life, now: datetime) -> None:
        self._patch_node(life.node, {"status": {"conditions": conditions(True, now)}}, "status")
        if self._kwok:
            self._patch_node(life.node, _KWOK)
        else:
            self._beat(life, now)

    def _beat(self, life: _Life, now: datetime) -> None:
        """Renew the node's lease, and post its status anew where it was given up on meanwhile."""
        life.heartbeat = now
        if (condition_of(self._nodes.find("nodes", life.node) or {}, "Ready") or {}).get(
            "status"
        ) == "Unknown":
            self._patch_node(life.node, {"status": {"conditions": conditions(True, now)}}, "status")
        renewed = {
            "spec": {"holderIdentity": life.node, "leaseDurationSeconds": 40, "renewTime": _micro(now)}
        }
        if self._nodes.find("leases", life.node, _LEASES):
            self._nodes.patch("leases", life.node, renewed, _LEASES)
        elif self._nodes.find("nodes", life.node):
            self._nodes.create("leases", {"metadata": {"name": life.node, "namespace": _LEASES}, **renewed})

    def _end(self, machine: Machine, life: _Life) -> None:
        """EC2 has taken the instance; the cloud controller sees that and removes the Node."""
        if life.stage is not Stage.GONE:
            life.stage = Stage.GONE
            self._announce(machine, machine.state)
        if not life.node:
            return
        found = self._nodes.find("nodes", life.node)
        if found is not None and found["spec"].get("providerID") == machine.provider_id:
            self._delete(life.node)
        life.node = ""

    def _patch_node(self, name: str, patch: Mapping[str, Any], subresource: str = "") -> None:
        """Somebody may have deleted the Node: then there is nothing to say any more."""
        try:
            self._nodes.patch("nodes", name, patch, subresource=subresource)
        except ApiError as error:
            if error.code != 404:
                raise

    def _delete(self, name: str) -> None:
        for resource, namespace in (("nodes", ""), ("leases", _LEASES)):
            if self._nodes.find(resource, name, namespace):
                self._nodes.delete(resource, name, namespace)


def _micro(moment: datetime) -> str:
    return format_time(moment).removesuffix("Z") + f".{moment.microsecond:06d}Z"
