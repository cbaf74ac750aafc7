"""Stored EC2 events in memory, with DynamoDB's guarantees, for one cluster and for a region."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from nodesmith.model.ec2.notices import KeptEvent
from tests import builders


def _nothing(method: str) -> None:
    """Do nothing."""


@dataclass(slots=True)
class FakeNotices:
    """The RegionNotices, and the Notices of `cluster`. `raise_before` gets each method's name and may raise."""

    cluster: str = builders.CLUSTER
    kept: dict[str, dict[str, KeptEvent]] = field(default_factory=lambda: defaultdict(dict))
    """Events by cluster and id."""
    raise_before: Callable[[str], None] = _nothing

    def keep(self, cluster: str, id_: str, event: str, account: str) -> None:
        self.raise_before("keep")
        self.kept[cluster][id_] = KeptEvent(id_, event, account)

    def pending(self) -> Sequence[KeptEvent]:
        self.raise_before("pending")
        own = self.kept[self.cluster]
        return [own[id_] for id_ in sorted(own)]

    def done(self, ids: Collection[str]) -> None:
        self.raise_before("done")
        for id_ in ids:
            self.kept[self.cluster].pop(id_, None)

    def keep_all(self, *events: str) -> None:
        """Store events for `cluster`, as if routing had received them in our account; any text will do."""
        for number, event in enumerate(events):
            self.keep(self.cluster, f"{number:06}", event, builders.ACCOUNT)
