"""A decision about made-up pods, so that the first real decision finds caches filled."""

from __future__ import annotations

from dataclasses import replace

from nodesmith.decisions.provisioning.decide import decide
from nodesmith.decisions.provisioning.plan import Inputs
from nodesmith.model.apimachinery.labels import ZONE
from nodesmith.model.apimachinery.requirements import parse_selector
from nodesmith.model.apimachinery.resources import parse_resources
from nodesmith.model.apimachinery.taints import Toleration
from nodesmith.model.kubernetes.pods import Pod, Shape, Spread

_PODS = 3
_LABELS = {"app": "rehearsal"}
_PLAIN = Shape(
    "default",
    _LABELS,
    "ReplicaSet/rehearsal",
    parse_resources({"cpu": "1", "memory": "2Gi", "pods": "1"}),
    tolerations=(Toleration(operator="Exists"),),
)
_SELECTOR = parse_selector({"matchLabels": _LABELS})
_SHAPES = (_PLAIN, replace(_PLAIN, spreads=(Spread(ZONE, 1, hard=False, selector=_SELECTOR),)))


def rehearse(inputs: Inputs) -> None:
    """Decide for some pods, with and without a spread over zones, as if there were no node.

    Most of a first decision goes into resolving instance types and finding the cheapest candidates among them.
    """
    for shape in _SHAPES:
        pods = tuple(
            Pod(f"default/rehearsal-{n}", shape, inputs.now, unschedulable=True) for n in range(_PODS)
        )
        snapshot = replace(inputs.snapshot, pods=pods, nodes=())
        decide(replace(inputs, snapshot=snapshot, ledger=replace(inputs.ledger, claims=())))
