"""NodePools whose own requirements, or their minValues, leave nothing to buy, whatever the pods ask for."""

from __future__ import annotations

from nodesmith.decisions.provisioning.nodepools.tiers import Pools
from nodesmith.decisions.provisioning.purchase.flexibility import (
    flexible_requirements,
    offers_for_no_pods,
    unmet_min_values,
)
from nodesmith.decisions.provisioning.purchase.order import LOWER_MIN_VALUES
from nodesmith.model.policies import MinValuesPolicy


def without_types(offers: Pools, policy: MinValuesPolicy) -> dict[str, str]:
    """Return the NodePools from which no pod can get a node, by name, each with the reason."""
    found = {name: offers.obstacles[name] for name in offers.without_types}
    for template in offers.templates if policy is MinValuesPolicy.STRICT else ():
        flexible = flexible_requirements(template)
        unmet = flexible and unmet_min_values(flexible, offers_for_no_pods(template, template.choices))
        if unmet:
            found[template.name] = f"{unmet}; {LOWER_MIN_VALUES}"
    return dict(sorted(found.items()))
