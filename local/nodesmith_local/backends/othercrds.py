"""CRDs of other projects that nodesmith reads if they are installed. A real cluster gets them from these projects."""

from __future__ import annotations

from typing import Any

from nodesmith.model.limits.quotas import CAPACITY_QUOTA
from nodesmith.model.schema.fields import Array, Map, Object, Quantity
from nodesmith.model.schema.statuses import Definition
from nodesmith_formats.crds import custom_resource_definition

_STATUS = Object(
    {"used": Object({"resources": Map(Quantity())}), "conditions": Array(Object({}, open=True))},
    "What counts against the quota.",
)


def other_definitions() -> list[dict[str, Any]]:
    """Return the CRD of Cluster Autoscaler's CapacityQuota, with the fields that nodesmith reads or writes."""
    quota = custom_resource_definition(Definition(CAPACITY_QUOTA, _STATUS, ()))
    (stored,) = quota["spec"]["versions"]
    older = {**stored, "name": "v1alpha1", "storage": False}
    names = {name: value for name, value in quota["spec"]["names"].items() if name != "categories"}
    return [{**quota, "spec": {**quota["spec"], "names": names, "versions": [stored, older]}}]
