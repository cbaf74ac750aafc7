"""The planner: places pods on existing nodes and buys for the rest, for decisions and for the trials of disruption.

What does not depend on the places of pods is computed once: where new nodes can be launched, and facts about shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count

from nodesmith.decisions.launch import Templates
from nodesmith.decisions.packing import GOOD_ENOUGH
from nodesmith.decisions.provisioning.alternatives import NO_BOUNDS, Attempt, Bounds, best
from nodesmith.decisions.provisioning.lowerbound import bounds, unschedulable
from nodesmith.decisions.provisioning.nodepooltiers import Pools
from nodesmith.decisions.provisioning.plan import Inputs, PlannedNode
from nodesmith.decisions.provisioning.purchase.claims import WarmFor
from nodesmith.decisions.provisioning.purchase.order import (
    NO_ATTEMPTS,
    Learned,
    Order,
    Origin,
    Purchase,
    written_down,
)
from nodesmith.decisions.provisioning.purchase.purchase import buy
from nodesmith.decisions.scheduling.assign import Known, assign
from nodesmith.decisions.scheduling.conflicts import PodConflicts
from nodesmith.decisions.scheduling.demands import Assignment, Choices, UnavailableDomains
from nodesmith.decisions.scheduling.existing import ExistingNode
from nodesmith.decisions.scheduling.offerings.launchable import TemplateLaunching
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.decisions.scheduling.preferences import PreferenceMode
from nodesmith.model.kubernetes.pods import Pod, Shape

Numbering = tuple["count[int]", Templates]
"""The numbers of the next planned nodes, and the launch templates of those before."""
_MANY = 1_000_000
"""as if there were so many pods that only one way of buying for them is tried"""


class Planner:
    """Plans for pods of known shapes. `tiers` is what may be bought; callers set it to what earlier plans leave.

    `shapes` are those of the pods to place, `others` those that these pods may meet on a node. `for_zones` prepares for
    `PreferenceMode.ZONES`. Planned nodes are numbered on from plan to plan, and share launch templates; with `after`
    they are numbered on from those of that planner.
    """

    def __init__(
        self,
        inputs: Inputs,
        offers: Pools,
        shapes: Iterable[Shape],
        others: Iterable[Shape],
        *,
        for_zones: bool = False,
        after: Planner | None = None,
    ) -> None:
        self.inputs, self.tiers = inputs, offers.tiers
        self.daemonsets = inputs.snapshot.daemonsets
        self.launching = TemplateLaunching(offers.templates)
        policy, shapes, others = inputs.settings.preference_policy, list(shapes), [*self.daemonsets, *others]
        self._known = self._zonal = Known.of(shapes, others, self.launching, policy)
        if for_zones:
            self._zonal = Known.of(shapes, others, self.launching, policy, zones_only=True)
        self.numbering: Numbering = (count(), Templates()) if after is None else after.numbering

    @property
    def conflicts(self) -> PodConflicts:
        """The rules for sharing a node of all shapes that this planner knows."""
        return self._known.conflicts

    @property
    def templates(self) -> tuple[Template, ...]:
        """All templates, in tier order."""
        return tuple(template for tier in self.tiers for template in tier)

    def assign(
        self,
        pods: Iterable[Pod],
        free: Sequence[ExistingNode],
        preference_mode: PreferenceMode,
        choices: Choices | None = None,
        unavailable: UnavailableDomains | None = None,
    ) -> Assignment:
        """Place pods on existing nodes, which this fills, and turn the rest into demands."""
        return assign(
            pods,
            free,
            self.launching,
            self.templates,
            self.daemonsets,
            self.inputs.settings.preference_policy,
            choices,
            unavailable,
            self._zonal if preference_mode is PreferenceMode.ZONES else self._known,
            preference_mode,
        )

    def buy(self, assignment: Assignment, order: Order) -> Purchase:
        """Buy for the demands of an assignment."""
        if self.inputs.ledger.cluster is None or not assignment.demands:
            return Purchase([list(tier) for tier in self.tiers], left=assignment.demands)
        return buy(self.tiers, assignment.demands, order)

    def written_down(
        self,
        purchase: Purchase,
        warm: WarmFor | None = None,
        attempts_of: Callable[[Iterable[Pod]], Mapping[str, int]] = lambda _: NO_ATTEMPTS,
    ) -> tuple[PlannedNode, ...]:
        """Return the nodes of the chosen purchase as intents; with `warm`, as instances that will be stopped.

        `attempts_of` returns the attempt number of each workload of some pods.
        """
        cluster = self.inputs.ledger.cluster
        if cluster is None:
            return ()
        inputs = self.inputs
        origin = Origin(inputs.decision, cluster, inputs.now, *self.numbering, warm, attempts_of)
        return written_down(purchase.nodes, origin)


class Search:
    """The search for the best way to place some pods. All its purchases learn from each other.

    Attempts fill copies of the existing nodes in `free`, which `nodes_of` returns if `remembers`. Unless `thorough`,
    one way of buying is tried. If `bounded`, the search ends as soon as a lower bound proves a plan the best.
    A purchase whose price is within the factor `good_enough` of its lower bound is not improved further. `ways` counts
    how many ways of treating the pods' preferences were tried.
    """

    def __init__(
        self,
        planner: Planner,
        pods: Sequence[Pod],
        free: Sequence[ExistingNode],
        *,
        thorough: bool = True,
        bounded: bool = False,
        remembers: bool = False,
        good_enough: float = GOOD_ENOUGH,
    ) -> None:
        self._planner, self._pods, self._free = planner, pods, free
        self._number = len(pods) if thorough else _MANY
        self._bounded, self._good_enough = bounded, good_enough
        self._templates, self._learned = planner.templates, Learned()
        self._remembers, self._filled = remembers, list[tuple[Assignment, list[ExistingNode]]]()
        self.ways = 0

    def best(self, preference_mode: PreferenceMode) -> tuple[Attempt, Bounds]:
        """Return the best attempt and its lower bounds, 0 if it is not bounded."""
        self.ways += 1

        def assigned(choices: Choices, unavailable: UnavailableDomains) -> Assignment:
            nodes = [existing.copy() for existing in self._free]
            found = self._planner.assign(self._pods, nodes, preference_mode, choices, unavailable)
            if self._remembers:
                self._filled.append((found, nodes))
            return found

        offerings = sum(len(template.type_options) for template in self._templates)
        return best(self._number, offerings, assigned, self._bought, self._bound, self._in_vain)

    def nodes_of(self, attempt: Attempt) -> list[ExistingNode]:
        """Return the existing nodes with the pods that an attempt places on them."""
        return next(nodes for found, nodes in self._filled if found is attempt.assignment)

    def _bought(self, assignment: Assignment, choices: Choices, quick: bool) -> Purchase:
        settings = self._planner.inputs.settings
        return self._planner.buy(
            assignment, Order(settings, choices, self._good_enough, self._learned, quick)
        )

    def _bound(self, attempt: Attempt) -> Bounds:
        if not self._bounded:
            return NO_BOUNDS
        planner = self._planner
        about = planner.daemonsets, planner.conflicts
        return bounds(attempt, self._pods, self._free, self._templates, *about)

    def _in_vain(self, pods: Iterable[Pod]) -> int:
        return unschedulable(pods, self._free, self._templates) if self._bounded else 0
