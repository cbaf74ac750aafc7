"""The functions exactly as the CDK app deploys them, on moto. A wrong setting in `infra/` shows up here.

Everything is read off the synthesised template: queues, mappings, aliases, rules, schedules, variables, layers, roles,
access entries. `assembly` makes the template, `stacks` names things, `resources`, `functions`, `versions`,
`invocations` and `mappings` play them, `access` tells who is who, `calls` records what is done by which role, `faults`
does harm.
"""

from tests.e2e.deployed.assembly import Release
from tests.e2e.deployed.deployment import NOT_RUN, Deployed
from tests.e2e.deployed.faults import Faults
from tests.e2e.deployed.functions import NOT_IMITATED as FUNCTION_PROPERTIES_NOT_IMITATED
from tests.e2e.deployed.resources import NOT_IMITATED as TYPES_NOT_IMITATED

__all__ = [
    "FUNCTION_PROPERTIES_NOT_IMITATED",
    "NOT_RUN",
    "TYPES_NOT_IMITATED",
    "Deployed",
    "Faults",
    "Release",
]
