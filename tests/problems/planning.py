"""The only interface to nodesmith: from manifests and a catalogue to a plan, with the functions of `nodesmith plan`."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from nodesmith.decisions.provisioning import Inputs, decide
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.policies import NodeSettings
from nodesmith_cli.planning import plan_inputs, plan_json, read_manifests
from nodesmith_formats.manifests.manifests import Document

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan as JSON, and the cpu seconds that the decision took."""

    plan: dict[str, Any]
    cpu_seconds: float

    @property
    def price_hourly_usd(self) -> float:
        """The total price of its nodes."""
        return float(self.plan["priceHourly"])

    @property
    def bound_hourly_usd(self) -> float:
        """The lower bound that it reports."""
        return float(self.plan["lowerBoundHourly"])

    @property
    def placed(self) -> dict[str, str]:
        """Every placed pod, with the name of its node."""
        nodes = [(n["name"], n["pods"]) for n in self.plan["nodes"]]
        nodes += [(n["node"], n["pods"]) for n in self.plan["existing"]]
        return {pod: name for name, pods in nodes for pod in pods}

    @property
    def unplaced(self) -> dict[str, str]:
        """Every unplaced pod, with the reason."""
        return {entry["pod"]: entry["reason"] for entry in self.plan["unplaced"]}


def inputs_of(
    manifests: Iterable[Manifest], catalog: Catalog, settings: NodeSettings | None = None
) -> Inputs:
    """Read manifests as `nodesmith plan` does; assert that they have no faults."""
    documents = [Document(manifest, "problem", number) for number, manifest in enumerate(manifests)]
    read = read_manifests((), documents)
    assert not read.faults, read.faults[0]
    return plan_inputs(read, catalog, settings=settings)


def planned(manifests: Iterable[Manifest], catalog: Catalog) -> Planned:
    """Decide, and return the plan as JSON with its cpu time."""
    return timed(inputs_of(manifests, catalog))


def timed(inputs: Inputs) -> Planned:
    """Decide on parsed inputs; only the decision is timed."""
    started = time.process_time()
    plan = decide(inputs)
    seconds = time.process_time() - started
    return Planned(plan_json(plan), seconds)
