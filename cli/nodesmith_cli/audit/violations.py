"""The violations that an audit finds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """The rule that is broken. `nodesmith plan --audit` prints the values."""

    FORMAT = "format"
    POD_MISSING = "pod-missing"
    POD_TWICE = "pod-twice"
    POD_UNKNOWN = "pod-unknown"
    POD_NOT_PENDING = "pod-not-pending"
    NODE_UNKNOWN = "node-unknown"
    NODE_TWICE = "node-twice"
    NODE_CLOSED = "node-closed"
    NODE_EMPTY = "node-empty"
    UNREADABLE = "unreadable"
    NODEPOOL = "nodepool"
    INSTANCE_TYPE = "instance-type"
    IMAGE = "image"
    OFFERING = "offering"
    PRICE = "price"
    SUM = "sum"
    BOUND = "bound"
    REQUESTS = "requests"
    REQUIREMENTS = "requirements"
    MIN_VALUES = "min-values"
    LIMIT = "limit"
    WEIGHT = "weight"
    LABELS = "labels"
    TAINT = "taint"
    RESOURCES = "resources"
    HOST_PORT = "host-port"
    VOLUME = "volume"
    ATTACH_LIMIT = "attach-limit"
    SPREAD = "spread"
    AFFINITY = "affinity"
    ANTI_AFFINITY = "anti-affinity"
    UNSETTLED = "unsettled"
    REASON = "reason"
    COULD_FIT = "could-fit"


@dataclass(frozen=True, slots=True, order=True)
class Violation:
    """A rule that the plan breaks. `subject` is the affected pod (namespace/name), node or NodePool."""

    kind: Kind
    subject: str
    message: str

    @property
    def is_warning(self) -> bool:
        """True if the plan works, but leaves a pod unplaced that an existing node has room for."""
        return self.kind is Kind.COULD_FIT

    def __str__(self) -> str:
        return f"{self.kind}: {self.subject}: {self.message}"
