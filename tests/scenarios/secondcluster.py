"""A second cluster in the account of a world: what it has there, and whether it keeps that and gets what it asks for.

It is described by values alone; none of its functions run. It shares EC2, EventBridge's events, the store of notices
and the budget of CreateFleet calls with the world's own cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from nodesmith.model.commands import Owned, OwnedKind
from nodesmith.model.ec2.launches import Instance, OfferingKey
from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.model.karpenter.ownership import CLUSTER_TAG, MANAGED_BY_TAG, NODECLAIM_TAG
from nodesmith.model.ledger.learned import Backoff
from tests import builders
from tests.fakes.cloud import FakeCloud
from tests.fakes.notices import FakeNotices
from tests.fakes.store import FakeStore

NAME = "second"
IDS = ("i-0" + "a" * 16, "i-0" + "b" * 16)
WARNED = IDS[0]
"""The instance that EC2 announces to interrupt while a service fails."""
ASKS_EVERY = timedelta(minutes=1)
CALLED_WITHIN = timedelta(minutes=2)
"""How long it may wait for one CreateFleet call."""


@dataclass(slots=True)
class SecondCluster:
    """A cluster with two nodes, and what became of its requests for calls and of the warning about one of them."""

    cloud: FakeCloud
    notices: FakeNotices
    store: FakeStore
    served_at: datetime
    asked_at: datetime
    longest_wait: timedelta = timedelta()
    had: Any = None

    @classmethod
    def beside(cls, cloud: FakeCloud, notices: FakeNotices, store: FakeStore, now: datetime) -> SecondCluster:
        """Return one that shares these with the world's own cluster."""
        claims = {}
        for id_ in IDS:
            claim = builders.claim(f"default-{id_}", phase=Phase.INITIALIZED, instance_id=id_)
            claims[claim.name] = claim
            cloud.instances[id_] = Instance(
                id_, claim.name, "m5.large", builders.ZONES[0], "spot", "ami-amd64", "running", now
            )
            cloud.tags[id_] = {CLUSTER_TAG: NAME, MANAGED_BY_TAG: NAME, NODECLAIM_TAG: claim.name}
        for kind in (OwnedKind.INSTANCE_PROFILE, OwnedKind.LAUNCH_TEMPLATE):
            cloud.of_others[f"{NAME}-{kind}"] = Owned(kind, f"{NAME}-{kind}", f"{NAME}-{kind}", now)
        notices.keep(NAME, "earlier", builders.state_change(IDS[1], "running"), builders.ACCOUNT)
        short = {
            OfferingKey("spot", "c5.large", builders.ZONES[0]): Backoff(now + timedelta(days=1), 3, "none")
        }
        own = FakeStore(name=NAME, claims=claims, unavailable=short, budget=store.budget, region=store.region)
        found = cls(cloud, notices, own, now, now)
        found.had = deepcopy(found.has())
        return found

    def has(self) -> dict[str, Any]:
        """Return everything that belongs to it, but for warnings that have arrived since."""
        return {
            "instances": [self.cloud.instances.get(id_) for id_ in IDS],
            "tags": [self.cloud.tags.get(id_) for id_ in IDS],
            "resources": self.cloud.of_others,
            "notice": self.notices.kept[NAME].get("earlier"),
            "claims": self.store.claims,
            "back-offs": self.store.unavailable,
        }

    def ask(self, now: datetime) -> None:
        """Ask for a CreateFleet call, once a minute."""
        if now - self.asked_at < ASKS_EVERY:
            return
        self.asked_at = now
        if self.store.take_calls(1, now):
            self.served_at = now
        self.longest_wait = max(self.longest_wait, now - self.served_at)

    def forget_warnings(self) -> None:
        """Drop all warnings but the last, as DynamoDB does when they expire."""
        kept = self.notices.kept[NAME]
        for id_ in [id_ for id_, each in kept.items() if WARNED in each.event][:-1]:
            del kept[id_]

    def violations(self, is_own: Callable[[str], bool], *, is_warned: bool) -> list[str]:
        """Return what it has lost, waits for, or what the other cluster has taken; `is_own` tells that one's ids.

        `is_warned` is True if EventBridge has delivered the warning about its instance.
        """
        has = self.has()
        found = [f"the second cluster's {what} changed" for what, was in self.had.items() if has[what] != was]
        found += [f"the second cluster's instance {id_} was taken over" for id_ in IDS if is_own(id_)]
        own = self.notices.kept[self.notices.cluster].values()
        found += [f"its notice {each.id} went astray" for each in own if WARNED in each.event]
        reported = [each for each in self.notices.kept[NAME].values() if WARNED in each.event]
        if is_warned and not reported:
            found.append("the second cluster was not warned")
        if self.longest_wait > CALLED_WITHIN:
            found.append(f"the second cluster waited {self.longest_wait} for a call")
        return found
