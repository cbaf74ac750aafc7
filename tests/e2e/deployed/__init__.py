"""The functions exactly as the CDK app deploys them, on moto. A wrong setting in `infra/` shows up here.

Everything is read from the synthesised template: queues, mappings, aliases, rules, schedules, variables, layers, roles,
access entries. `assembly` creates the template, and `stacks` resolves names. `resources`, `functions`, `versions`,
`invocations` and `mappings` simulate the resources. `access` authenticates, `calls` records each role's calls, and
`faults` injects faults.
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
