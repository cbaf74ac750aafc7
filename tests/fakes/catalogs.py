"""A region's catalogue in memory."""

from __future__ import annotations

from dataclasses import dataclass

from nodesmith.errors import Rejected
from nodesmith.model.ec2.catalog import Catalog


@dataclass(slots=True)
class FakeCatalogs:
    """The stored catalogue, or None for a damaged one; `writes` counts writes."""

    stored: Catalog | None
    region: str = "us-east-1"
    writes: int = 0

    def latest(self) -> Catalog:
        if self.stored is None:
            raise Rejected("catalogue: damaged")
        return self.stored

    def write(self, catalog: Catalog) -> None:
        self.stored, self.writes = catalog, self.writes + 1
