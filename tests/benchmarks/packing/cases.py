"""The large inputs by name, and the time limit for a plan for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from nodesmith.decisions.provisioning import Inputs
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.policies import NodeSettings, PreferencePolicy
from tests.benchmarks.packing import markets, workloads
from tests.benchmarks.packing.clusters import existing
from tests.problems.planning import inputs_of

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """One input: a NodePool, the objects in the cluster, and the catalogue. `at_most_seconds` is the goal."""

    nodepool: Callable[[], Manifest]
    objects: Callable[[], list[Manifest]]
    catalog: Callable[[], Catalog]
    at_most_seconds: float
    is_quick: bool = True
    settings: NodeSettings = field(default_factory=NodeSettings)

    def manifests(self) -> list[Manifest]:
        """Return the manifests of the input."""
        return [self.nodepool(), *self.objects()]

    def inputs(self, manifests: Iterable[Manifest]) -> Inputs:
        """Return the decision's inputs for these manifests, which are the whole input or a part of it."""
        return inputs_of(manifests, self.catalog(), self.settings)


def _fake(pods: Callable[[], list[Manifest]], seconds: float, *, is_quick: bool = True) -> Case:
    return Case(markets.anything_fake, pods, markets.fake_types, seconds, is_quick)


def _real(objects: Callable[[], list[Manifest]], seconds: float) -> Case:
    return Case(markets.everything, objects, markets.embedded, seconds)


CASES: Mapping[str, Case] = {
    "diverse-1000": _fake(partial(workloads.diverse, 1000), 0.15),
    "diverse-5000": _fake(partial(workloads.diverse, 5000), 0.7),
    "diverse-20000": _fake(partial(workloads.diverse, 20_000), 4, is_quick=False),
    "diverse-1000-all": _real(partial(workloads.diverse, 1000), 2.5),
    "preferences-4000": _fake(workloads.preferences, 1.2),
    "preferences-4000-ignored": replace(
        _fake(workloads.preferences, 1.2),
        settings=NodeSettings(preference_policy=PreferencePolicy.IGNORE),
    ),
    "distinct-5000": _real(workloads.distinct, 3),
    "deployments-150": Case(markets.on_demand_cmr, workloads.deployments, markets.embedded, 1),
    "deployments-150-all": _real(workloads.deployments, 2),
    "replicas-10000": _real(workloads.replicas, 0.1),
    "existing-2000": _real(existing, 1),
}
