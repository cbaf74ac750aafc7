"""Schemas of a NodePool, and of a NodeOverlay, which changes what NodePools know of instance types."""

from __future__ import annotations

from typing import Any

from nodesmith.model.apimachinery.quantities import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from nodesmith.model.apimachinery.times import schedule_fault
from nodesmith.model.schema.fields import INT64, Array, Integer, Kind, Map, Object, Quantity, Rule, Text
from nodesmith.model.schema.nodeclaims import (
    ANNOTATIONS,
    CLAIM_REQUIREMENTS,
    DURATION_OR_NEVER,
    EXPIRE_AFTER,
    LABELS,
    NODE_CLASS_REF,
    STARTUP_TAINTS,
    TAINTS,
    TAINTS_DIFFER,
    TEMPLATE_REQUIREMENTS,
    TERMINATION_GRACE_PERIOD,
)


def _cron_error(schedule: str) -> str | None:
    fault = schedule_fault(schedule)
    return f"{fault}; until this is fixed, none of its nodes is disrupted" if fault else None


_BUDGET = Object(
    {
        "nodes": Text(
            "Maximum number of nodes disrupted at once: a count, or a percentage of the NodePool's nodes.",
            "^((100|[0-9]{1,2})%|[0-9]+)$",
            "10%",
            default="10%",
        ),
        "reasons": Array(
            Text(enum=("Underutilized", "Empty", "Drifted")),
            "Reasons that the budget limits. Defaults to all reasons.",
            max_items=50,
        ),
        "schedule": Text(
            "When the budget becomes active: a cron schedule of five fields, or a macro. Times are UTC unless the "
            "annotation nodesmith.dev/budget-timezone names another time zone. Defaults to always.",
            r"^(@(annually|yearly|monthly|weekly|daily|midnight|hourly)|[^\s]+(\s+[^\s]+){4})$",
            "0 9 * * mon-fri",
            rules=(
                Rule("", "must be cron", lambda text: _cron_error(text) is None, _cron_error, fatal=False),
            ),
        ),
        "duration": Text(
            "How long the budget stays active from each scheduled time, in hours and minutes.",
            "^([0-9]+(h|m)|[0-9]+h[0-9]+m)(0s)?$",
            "8h",
        ),
    },
    rules=(
        Rule(
            "has(self.schedule) == has(self.duration)",
            "schedule and duration go together: set both or neither",
            lambda budget: ("schedule" in budget) == ("duration" in budget),
            field="schedule",
        ),
    ),
)

_DISRUPTION = Object(
    {
        "consolidateAfter": Text(
            "How long a node must go without a pod being added or removed before it may be consolidated. The value "
            "Never disables consolidation.",
            DURATION_OR_NEVER,
            "1m",
            default="0s",
        ),
        "consolidationPolicy": Text(
            "Which nodes may be consolidated.",
            enum=("WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"),
            default="WhenEmptyOrUnderutilized",
        ),
        "budgets": Array(
            _BUDGET,
            "Limits on the number of nodes disrupted at once. The strictest active budget applies.",
            max_items=50,
            default=[{"nodes": "10%"}],
        ),
    },
    "How nodes are disrupted.",
    default={"consolidateAfter": "0s"},
)


def _unchanging(field: str) -> Rule:
    return Rule(f"self.{field} == oldSelf.{field}", f"{field} cannot be changed on a NodePool", None)


TEMPLATE = Object(
    {
        "metadata": Object(
            {"labels": LABELS, "annotations": ANNOTATIONS}, "Labels and annotations of every node."
        ),
        "spec": Object(
            {
                "requirements": TEMPLATE_REQUIREMENTS,
                "nodeClassRef": NODE_CLASS_REF._replace(rules=(_unchanging("group"), _unchanging("kind"))),
                "taints": TAINTS,
                "startupTaints": STARTUP_TAINTS,
                "expireAfter": EXPIRE_AFTER,
                "terminationGracePeriod": TERMINATION_GRACE_PERIOD,
            },
            "Desired state of every node of this NodePool.",
            required=("requirements", "nodeClassRef"),
            rules=(TAINTS_DIFFER,),
        ),
    },
    "Template of every node of this NodePool.",
    required=("spec",),
)


def _limits_only_nodes(spec: dict[str, Any]) -> bool:
    return "replicas" not in spec or set(spec.get("limits", ())) <= {"nodes"}


NODE_POOL = Kind(
    "karpenter.sh",
    "NodePool",
    "nodepools",
    Object(
        {
            "template": TEMPLATE,
            "disruption": _DISRUPTION,
            "limits": Map(
                Quantity(),
                "Maximum total resources of the NodePool's nodes. The key nodes limits their number.",
            ),
            "weight": Integer("NodePools of higher weight are tried first. Defaults to 0.", 1, 100),
            "replicas": Integer("Number of nodes to keep, regardless of pods.", 0, INT64),
        },
        "Desired state of the NodePool.",
        required=("template",),
        rules=(
            Rule(
                "has(self.replicas) == has(oldSelf.replicas)",
                "replicas cannot be added or removed once the NodePool exists",
                None,
            ),
            Rule(
                "!has(self.replicas) || !has(self.limits) || "
                "self.limits.size() == ('nodes' in self.limits ? 1 : 0)",
                "with replicas, limits may only name nodes",
                _limits_only_nodes,
                field="limits",
            ),
            Rule(
                "!has(self.replicas) || !has(self.weight)",
                "weight has no meaning with replicas, leave one of them out",
                lambda spec: "replicas" not in spec or "weight" not in spec,
                field="weight",
            ),
        ),
    ),
    "A set of nodes that are launched from one template.",
)


_OF_TYPES = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)
"""Resources that EC2 and the kubelet decide."""


def _overlay_requirements() -> Array:
    """Return the schema of a NodeOverlay's requirements: any label, also the NodePool's, and no minValues."""
    item = CLAIM_REQUIREMENTS.of
    assert isinstance(item, Object)  # noqa: S101 - as nodeclaims describes it
    excludes = Rule(
        "self.operator != 'NotIn' || (has(self.values) && self.values.size() > 0)",
        "NotIn needs at least one value",
        lambda item: item["operator"] != "NotIn" or bool(item.get("values")),
        field="values",
    )
    rules = tuple(rule for rule in item.rules if "minValues" not in rule.cel)
    without_min_values = {name: field for name, field in item.fields.items() if name != "minValues"}
    doc = "Requirements for the labels of a node of the instance type. All of them must hold; none means every node."
    return CLAIM_REQUIREMENTS._replace(
        of=item._replace(fields=without_min_values, rules=(*rules, excludes)), doc=doc
    )


CHANGES_NOTHING = "set price, priceAdjustment or capacity: without one of them it changes nothing"
NODE_OVERLAY = Kind(
    "karpenter.sh",
    "NodeOverlay",
    "nodeoverlays",
    Object(
        {
            "requirements": _overlay_requirements(),
            "price": Text(
                "Price per hour that decisions use for matching instance types, instead of AWS's.",
                r"^[0-9]+(\.[0-9]+)?$",
                "0.34",
                max_length=32,
            ),
            "priceAdjustment": Text(
                "Change of the price per hour that decisions use: an amount or a percentage, with its sign.",
                r"^([+-][0-9]*\.?[0-9]+|\+[0-9]*\.?[0-9]+%|-[0-9]{1,2}(\.[0-9]+)?%|-100%)$",
                "-15% or +0.02",
                max_length=32,
            ),
            "capacity": Map(
                Quantity(),
                "Extended resources that matching nodes offer, because a device plugin will register them.",
                keys=Text(
                    min_length=1,
                    max_length=316,
                    rules=(
                        Rule(
                            f"!(self in {list(_OF_TYPES)})",
                            "instance types decide this resource: name an extended resource, such as "
                            "example.com/device",
                            lambda name: name not in _OF_TYPES,
                        ),
                    ),
                ),
                max_entries=100,
            ),
            "weight": Integer("NodeOverlays of higher weight win. Defaults to 0.", 1, 10_000),
        },
        "What decisions assume about matching instance types.",
        required=("requirements",),
        rules=(
            Rule(
                "!has(self.price) || !has(self.priceAdjustment)",
                "price and priceAdjustment exclude each other: keep one",
                lambda spec: "price" not in spec or "priceAdjustment" not in spec,
                field="priceAdjustment",
            ),
            Rule(
                "",
                CHANGES_NOTHING,
                lambda spec: not {"price", "priceAdjustment", "capacity"}.isdisjoint(spec),
                fatal=False,
            ),
        ),
    ),
    "Changes the price or the extended resources that decisions assume for instance types.",
    version="v1alpha1",
)
