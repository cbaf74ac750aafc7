"""Namespaces and the labels by which selectors choose them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodesmith.model.apimachinery.requirements import Selector

NAME_LABEL = "kubernetes.io/metadata.name"
"""The label that every namespace has, with its name as the value."""


@dataclass(frozen=True, slots=True)
class Namespaces:
    """The namespaces of a cluster. `labels` is namespace → its labels, limited to those that any selector uses."""

    labels: Mapping[str, Mapping[str, str]]
    _selected: dict[str, frozenset[str]] = field(default_factory=dict, repr=False, compare=False)

    def selected(self, selector: Selector) -> frozenset[str]:
        """Return the names of the selected namespaces. Cached, because the shape of every pod needs them."""
        if selector.key not in self._selected:
            names = (name for name, labels in self.labels.items() if selector.matches(labels))
            self._selected[selector.key] = frozenset(names)
        return self._selected[selector.key]
