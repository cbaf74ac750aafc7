"""Functions are killed at any moment, and the cluster ends up as if they had not been."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from nodesmith_local.aws.instances.stages import USUAL
from tests.e2e.conftest import Figures, Start
from tests.e2e.deployed import Faults
from tests.e2e.resilience.test_faults import EXPECTED, MISCHIEF, two_waves
from tests.e2e.systems.system import CLUSTER, HURRIED, System
from tests.objects.manifests import nodeclass

AT_ONCE = 2
"""Seeds that run together, and as many as run without the slow tests: crashes are enumerated in tests/integration."""
BESIDE_OTHERS = [pytest.mark.xdist_group(f"seeds-{turn}") for turn in range(2)]
"""Each group keeps a processor busy while most other tests wait, so two workers run most seeds and others the rest."""


@pytest.mark.parametrize(
    ("first", "count"),
    [
        pytest.param(0, AT_ONCE, marks=BESIDE_OTHERS[0]),
        pytest.param(AT_ONCE, 3, marks=[BESIDE_OTHERS[0], pytest.mark.slow]),
        pytest.param(5, 5, marks=[BESIDE_OTHERS[1], pytest.mark.slow]),
    ],
)
def test_functions_may_be_killed_at_any_moment_on_the_real_control_plane(
    start: Start, figures: Figures, first: int, count: int
) -> None:
    survive(start(speed=HURRIED, delays=USUAL, faults=MISCHIEF), range(first, first + count), figures)


@pytest.mark.parametrize(
    ("first", "count"),
    [
        (10, AT_ONCE),
        pytest.param(10 + AT_ONCE, 10 - AT_ONCE, marks=pytest.mark.slow),
        *(
            pytest.param(10 * turn, 10, marks=[BESIDE_OTHERS[turn % 2], pytest.mark.slow])
            for turn in range(2, 5)
        ),
        pytest.param(50, 10, marks=pytest.mark.slow),
    ],
)
def test_functions_may_be_killed_at_any_moment_on_the_embedded_system(
    start: Start, figures: Figures, first: int, count: int
) -> None:
    system = start(real=False, speed=HURRIED, delays=USUAL, faults=MISCHIEF)
    survive(system, range(first, first + count), figures)


def survive(system: System, seeds: Sequence[int], figures: Figures) -> None:
    """Kill each function once per seed while it works and new pods arrive, and check for the usual outcome.

    Two seeds run at once, so one seed's pods also wait while functions die for the other.
    """
    system.apply(nodeclass(CLUSTER))  # shared by both seeds: two concurrent kubectls would both create it
    ran = survived = 0
    try:
        for start in range(0, len(seeds), AT_ONCE):
            together = seeds[start : start + AT_ONCE]
            ran, before = ran + len(together), system.deployed.killed
            system.deployed.endanger(*(Faults(seed=seed, kills=1) for seed in together))
            names = [f"seed-{seed}" for seed in together]
            with ThreadPoolExecutor(AT_ONCE) as pool:
                ends = list(pool.map(partial(two_waves, system), names))
            for name, end in zip(names, ends, strict=True):
                assert end == EXPECTED, "\n".join(bought_for(system, name))
            died = system.deployed.killed - before
            assert died >= 2 * len(together), "at least provisioning and lifecycle"
            survived += len(together)
    finally:
        figures("seeds-run", ran)
        figures("seeds-failed", ran - survived)
        figures("kills", system.deployed.killed)


def bought_for(system: System, name: str) -> list[str]:
    """Describe each node of a NodePool: the decision that bought it, its nominated pods, and its running pods."""
    claims = [claim for claim in system.ledger().claims if claim.nodepool == name]
    there: dict[str, list[str]] = {}
    for pod in system.pods():
        there.setdefault(pod["spec"].get("nodeName", ""), []).append(pod["metadata"]["name"])
    return [
        f"{claim.created_at} {claim.name} by {claim.decision} for {sorted(claim.nominated)}: "
        f"{sorted(there.get(claim.node_name, ()))}"
        for claim in sorted(claims, key=lambda claim: claim.created_at)
    ]
