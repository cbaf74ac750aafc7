"""`nodesmith plan`: a pure decision on manifests, without a cloud and without a cluster.

`manifests` reads files as a cluster would hold what they say, `inputs` makes of them what a decision is made from,
`report` writes the plan as JSON. Tests, benchmarks and the audit come in by the same three doors.
"""

from nodesmith_cli.planning.inputs import plan_inputs
from nodesmith_cli.planning.manifests import Manifests, read_manifests
from nodesmith_cli.planning.report import plan_json

__all__ = ["Manifests", "plan_inputs", "plan_json", "read_manifests"]
