"""The audit of plans: a second program, which shares no code with the one that makes them.

It reads the same manifests and the plan's JSON, puts every pod where the plan has it, and asks of each, by
kube-scheduler's rules, whether it could be bound there; then it checks prices, sums and what NodePools promise. It is
written to be plainly right rather than clever: where it and the solver disagree, one of them has a fault to be found.

`reading`, `pods`, `places`, `volumes`, `cluster` read manifests; `plans` the plan; `pools`, `purchases`, `outcome`
say what the cluster will be; every other module checks one thing.
"""

from nodesmith_cli.audit.auditing import audit
from nodesmith_cli.audit.violations import Kind, Violation

__all__ = ["Kind", "Violation", "audit"]
