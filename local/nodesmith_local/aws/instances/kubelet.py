"""Instances that boot and join: EC2 runs them, the kubelet registers a Node, the CNI makes it ready."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Protocol

from nodesmith.errors import Transient
from nodesmith.model.ec2.catalog import Catalog
from nodesmith_formats.kubernetes.errors import ApiError
from nodesmith_formats.localsystem.clock import LocalClock
from nodesmith_local.aws.instances.joining import Joining
from nodesmith_local.aws.instances.nodes import Machine
from nodesmith_local.aws.instances.reclaiming import Reclaims
from nodesmith_local.aws.instances.stages import STOPPING, USUAL, Delays, Stage
from nodesmith_local.aws.instances.userdata.bootstrap import Unusable
from nodesmith_local.aws.instances.userdata.reading import pulled_images
from nodesmith_local.backends.objects import Objects

HEARTBEAT = timedelta(seconds=10)
_CLOUD_LOOKS = timedelta(seconds=5)  # how often the cloud controller checks nodes
_DEVICES = timedelta(seconds=5)  # how often device plugins look at nodes
_LOOK_SECONDS = 0.1  # real seconds between steps of the simulation
_GONE, _HALTED = {"shutting-down", "terminated"}, {"stopping", "stopped"}
PULL_SECONDS = 20.0
"""How long an instance takes to pull the images that its user data names."""
_log = logging.getLogger(__name__)


class Machines(Protocol):
    """EC2's instances, as the simulated machines access them."""

    def all(self) -> Iterable[Machine]:
        """Return every instance that EC2 still lists."""

    def become(self, instance_id: str, state: str) -> None:
        """Move an instance into another EC2 state."""


@dataclass(slots=True)
class _Progress:
    """One instance's progress. `node` is empty before the instance joins and after it has left.

    `failure` is the reason why it will never join. `held_up` means that the API server refused its last write.
    `reported` is the last state of its end that EC2 has announced. `pull_seconds` is how long it pulls images before
    it joins. `halted_at` is when it was asked to stop.
    """

    stage: Stage
    since: datetime
    node: str = ""
    failure: str = ""
    held_up: bool = False
    heartbeat: datetime | None = None
    reported: str = ""
    delays: Delays = USUAL
    pull_seconds: float = 0.0
    halted_at: datetime | None = None


class Kubelets:
    """All machines of one cluster, and how they join it.

    `step` advances everything to a moment; `run` follows a clock. `announce` is called for every change of an
    instance's state, as EventBridge would be notified. With `kwok`, kwok handles leases and pods.
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
        reclaims: Reclaims | None = None,
        delays: Delays = USUAL,
        pull_seconds: float = PULL_SECONDS,
        kwok: bool = False,
    ) -> None:
        self._pull_seconds = pull_seconds
        self._machines = machines
        self._reclaims = reclaims
        self._joining = Joining(nodes, catalog, endpoint=endpoint, version=version, kwok=kwok)
        self._announce = announce
        self._delays = delays
        self._kwok = kwok
        self._progress_of: dict[str, _Progress] = {}
        self._devices_at: datetime | None = None

    def run(self, clock: LocalClock, stop: threading.Event) -> None:
        """Follow the clock until `stop` is set."""
        while not stop.wait(_LOOK_SECONDS):
            self.step(clock.now())

    def failures(self) -> dict[str, str]:
        """Return the instances that will never join, each with the reason."""
        return {
            instance_id: progress.failure
            for instance_id, progress in self._progress_of.items()
            if progress.failure
        }

    def step(self, now: datetime) -> None:
        """Carry out everything that is due. Writes that the API server refuses are retried in the next step."""
        if self._reclaims is not None:
            self._reclaims.step(self._machines.become, now)
        for machine in self._machines.all():
            progress = self._progress_of.get(machine.id)
            if progress is None:
                pulls = self._pull_seconds if pulled_images(machine.user_data, machine.image_name) else 0.0
                progress = _Progress(Stage.PENDING, now, delays=self._delays, pull_seconds=pulls)
                self._progress_of[machine.id] = progress
                self._announce(machine, machine.state)
            try:
                self._live(machine, progress, now)
                progress.held_up = False
            except (ApiError, Transient) as error:
                outrun = isinstance(error, ApiError) and error.code == HTTPStatus.CONFLICT
                if not progress.held_up and not outrun:
                    _log.warning("instance %s is held up: %s", machine.id, error)
                progress.held_up = not outrun

        self._plug_in_devices(now)

    def _plug_in_devices(self, now: datetime) -> None:
        if self._devices_at is None or now - self._devices_at >= _DEVICES:
            self._devices_at = now
            with suppress(ApiError, Transient):  # the next look tries again
                self._joining.plug_in_devices()
                if not self._kwok:
                    self._joining.publish_devices()

    def _live(self, machine: Machine, progress: _Progress, now: datetime) -> None:
        if machine.state in _GONE:
            self._end(machine, progress, now)
        elif machine.state in _HALTED:
            self._halt(machine, progress, now)
        else:
            if progress.halted_at is not None:
                self._start_again(machine, progress, now)
            self._advance(machine, progress, now)
            if progress.heartbeat and now - progress.heartbeat >= HEARTBEAT:
                self._beat(progress, now)

    def _advance(self, machine: Machine, progress: _Progress, now: datetime) -> None:
        while progress.stage < Stage.READY and not progress.failure:
            following = Stage(progress.stage + 1)
            due = (
                progress.since + progress.delays.until(following, machine.id) + _pulling(following, progress)
            )
            if due > now:
                return
            self._enter(following, machine, progress, due)
            progress.stage, progress.since = following, due

    def _enter(self, stage: Stage, machine: Machine, progress: _Progress, now: datetime) -> None:
        match stage:
            case Stage.RUNNING:
                self._machines.become(machine.id, "running")
                self._announce(machine, "running")
            case Stage.REGISTERED:
                try:
                    progress.node = self._joining.register(machine, now)
                except Unusable as error:
                    progress.failure = str(error)
            case Stage.INITIALIZED:
                self._joining.initialize(machine, progress.node)
            case Stage.READY:
                self._joining.make_ready(progress.node, now)
                if not self._kwok:
                    self._beat(progress, now)
            case _:
                raise AssertionError(f"nothing enters {stage!r} by the clock")

    def _beat(self, progress: _Progress, now: datetime) -> None:
        progress.heartbeat = now
        self._joining.renew_lease(progress.node, now)

    def _halt(self, machine: Machine, progress: _Progress, now: datetime) -> None:
        """Stop an instance: its kubelet falls silent at once, and EC2 shows it as stopped a little later."""
        if progress.halted_at is None:
            progress.halted_at, progress.heartbeat = now, None
            self._machines.become(machine.id, "stopping")  # moto stops it at once
            self._announce(machine, "stopping")
            if progress.node:
                self._joining.silence(machine, progress.node)
        elif machine.state == "stopping" and now - progress.halted_at >= STOPPING:
            self._machines.become(machine.id, "stopped")
            self._announce(machine, "stopped")

    def _start_again(self, machine: Machine, progress: _Progress, now: datetime) -> None:
        """Boot an instance that was stopped. Its kubelet registers its Node again."""
        progress.stage, progress.since, progress.halted_at, progress.node = Stage.PENDING, now, None, ""
        progress.delays, progress.pull_seconds = self._delays.restarted(), 0.0
        self._machines.become(machine.id, "pending")
        self._announce(machine, "pending")

    def _end(self, machine: Machine, progress: _Progress, now: datetime) -> None:
        """Handle an instance that EC2 has taken: announce its state, and let its node leave."""
        if progress.stage is not Stage.GONE:
            progress.stage, progress.since = Stage.GONE, now
        if progress.reported != machine.state:
            progress.reported = machine.state
            self._announce(machine, machine.state)
        if progress.node and now >= progress.since:
            if self._joining.leave(machine, progress.node):
                progress.node = ""
            progress.since = now + _CLOUD_LOOKS


def _pulling(following: Stage, progress: _Progress) -> timedelta:
    """Return how long images are pulled before a stage begins: the kubelet starts after that."""
    return timedelta(seconds=progress.pull_seconds if following is Stage.REGISTERED else 0.0)
