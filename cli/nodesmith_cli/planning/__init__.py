"""`nodesmith plan`: a pure decision on manifests, without AWS and without a cluster.

`manifests` reads files as the objects of a cluster, `inputs` turns them into the inputs of a decision, and `report`
writes the plan as JSON. Tests, benchmarks and the audit use the same functions.
"""

from nodesmith_cli.planning.inputs import plan_inputs
from nodesmith_cli.planning.manifests import Manifests, read_manifests
from nodesmith_cli.planning.report import plan_json

__all__ = ["Manifests", "plan_inputs", "plan_json", "read_manifests"]
