"""What a region's clusters share: one AWS account and one set of functions."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nodesmith_formats.localsystem.clock import LocalClock
from nodesmith_local.aws import LocalAws
from nodesmith_local.aws.account import Endpoint
from nodesmith_local.functions.sqsclock import queues_run_on
from tests.e2e.deployed import Deployed, Faults

if TYPE_CHECKING:
    from tests.e2e.systems.system import ClusterSide

REGION = "us-east-1"


def start_region(
    stack: ExitStack,
    folder: Path,
    clock: LocalClock,
    clusters: Sequence[ClusterSide],
    faults: Faults = Faults(),  # noqa: B008 frozen
    no_capacity: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
) -> Deployed:
    """Start clusters, their shared AWS account and functions; closing the stack stops everything.

    `options` are the region's options in cdk.json.
    """
    stopping = threading.Event()
    for each in clusters:
        each.start_control_plane(stack)
    stack.enter_context(queues_run_on(clock, stopping))
    first, *others = clusters
    zones = [f"{REGION}{letter}" for letter in "abc"]
    aws = LocalAws(
        REGION,
        cluster=first.name,
        endpoint=_endpoint(first),
        clock=clock,
        zones=zones,
        no_capacity=no_capacity,
        ip_family=first.ip_family,
    )
    stack.enter_context(aws)
    for each in others:
        aws.join(each.name, _endpoint(each))
    made = Deployed(aws, folder / "functions", clock, faults=faults, options=options)
    deployed = stack.enter_context(made)
    for each in clusters:
        each.start_rest(stack, aws, deployed, stopping)
    stack.callback(stopping.set)
    return deployed


def _endpoint(of: ClusterSide) -> Endpoint:
    return Endpoint(of.cluster.url, of.cluster.ca_bundle)
