"""Namespaces by their labels: which of them a selector means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodesmith.model.apimachinery.labelselectors import Selector

NAME_LABEL = "kubernetes.io/metadata.name"
"""Every namespace has it, with its own name."""


@dataclass(frozen=True, slots=True)
class Namespaces:
    """The namespaces of a cluster: their labels by name, as far as any selector reads them."""

    labels: Mapping[str, Mapping[str, str]]
    _selected: dict[str, frozenset[str]] = field(default_factory=dict, repr=False, compare=False)

    def selected(self, selector: Selector) -> frozenset[str]:
        """Return the names of those that a selector means. Asked for every pod's shape, worked out once."""
        if selector.key not in self._selected:
            names = (name for name, labels in self.labels.items() if selector.matches(labels))
            self._selected[selector.key] = frozenset(names)
        return self._selected[selector.key]
