"""What a NodePool may say."""

from __future__ import annotations

from typing import Any

from nodesmith.model.apimachinery.cron import CronError, parse_cron
from nodesmith.model.schema.fields import INT64, Array, Integer, Kind, Map, Object, Quantity, Rule, Text
from nodesmith.model.schema.nodespec import (
    ANNOTATIONS,
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
    try:
        parse_cron(schedule)
    except CronError as error:
        return f"{error}; until then none of its nodes is disrupted"
    return None


_BUDGET = Object(
    {
        "nodes": Text(
            "How many nodes may be disrupted at once: a count, or a percentage of the pool.",
            "^((100|[0-9]{1,2})%|[0-9]+)$",
            "10%",
            default="10%",
        ),
        "reasons": Array(
            Text(enum=("Underutilized", "Empty", "Drifted")),
            "Which reasons it limits; unset for all.",
            max_items=50,
        ),
        "schedule": Text(
            "When it begins to hold: cron, five fields or a macro, in UTC unless the annotation "
            "nodesmith.dev/budget-timezone names another time zone; unset for always.",
            r"^(@(annually|yearly|monthly|weekly|daily|midnight|hourly)|[^\s]+(\s+[^\s]+){4})$",
            "0 9 * * mon-fri",
            rules=(
                Rule("", "must be cron", lambda text: _cron_error(text) is None, _cron_error, fatal=False),
            ),
        ),
        "duration": Text(
            "How long it holds from then on, in hours and minutes.",
            "^([0-9]+(h|m)|[0-9]+h[0-9]+m)(0s)?$",
            "8h",
        ),
    },
    rules=(
        Rule(
            "has(self.schedule) == has(self.duration)",
            "schedule and duration go together, set both or none",
            lambda budget: ("schedule" in budget) == ("duration" in budget),
            field="schedule",
        ),
    ),
)

_DISRUPTION = Object(
    {
        "consolidateAfter": Text(
            "How long a node must have been left alone by pods before it is consolidated; Never for not at all.",
            DURATION_OR_NEVER,
            "1m",
            default="0s",
        ),
        "consolidationPolicy": Text(
            "Which nodes are consolidated.",
            enum=("WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"),
            default="WhenEmptyOrUnderutilized",
        ),
        "budgets": Array(
            _BUDGET,
            "Limits on nodes disrupted at once; the strictest one that holds counts.",
            max_items=50,
            default=[{"nodes": "10%"}],
        ),
    },
    "How nodes are taken away again.",
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
            "What a node of this pool may be.",
            required=("requirements", "nodeClassRef"),
            rules=(TAINTS_DIFFER,),
        ),
    },
    "What every node of this pool is made from.",
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
                Quantity(), "Most that all nodes of the pool may sum up to; the resource nodes counts them."
            ),
            "weight": Integer("Pools of higher weight are tried first; unset counts as 0.", 1, 100),
            "replicas": Integer("Keeps exactly so many nodes instead of following pods.", 0, INT64),
        },
        "What the pool is to be.",
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
    "A set of nodes that may be bought alike.",
)
