"""NodePools whose own requirements, or their minValues, leave nothing to buy, whatever the pods ask for."""

from __future__ import annotations

from collections.abc import Iterable

from nodesmith.decisions.provisioning.nodepools.tiers import Pools
from nodesmith.decisions.scheduling.offerings.options import TypeOption
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, ZONE
from nodesmith.model.policies import MinValuesPolicy


def without_types(offers: Pools, policy: MinValuesPolicy) -> dict[str, str]:
    """Return the NodePools from which no pod can get a node, by name, each with the reason."""
    found = {name: offers.obstacles[name] for name in offers.without_types}
    if policy is MinValuesPolicy.STRICT:
        found.update((each.name, unmet) for each in offers.templates if (unmet := unmet_min_values(each)))
    return dict(sorted(found.items()))


def unmet_min_values(template: Template) -> str:
    """Return which minValues all instance types of a NodePool together do not reach; empty if they reach all."""
    reached = {
        requirement.key: (len(_values(requirement.key, template.choices)), requirement.min_values)
        for requirement in template.requirements.values()
        if requirement.min_values
    }
    short = [f"{key} {had} of {needed}" for key, (had, needed) in sorted(reached.items()) if had < needed]
    if not short:
        return ""
    remedy = "lower minValues, or allow more instance types"
    return f"minValues requirement is not met for label(s) {', '.join(short)}; {remedy}"


def _values(key: str, choices: Iterable[TypeOption]) -> set[str]:
    if key == CAPACITY_TYPE:
        return {offering.capacity_type for option in choices for offering in option.offerings}
    if key == ZONE:
        return {offering.zone for option in choices for offering in option.offerings}
    labels = (option.type.labels.get(key) for option in choices)
    return {value for value in labels if value is not None}
