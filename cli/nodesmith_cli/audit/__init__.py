"""The audit of plans: an independent program, which shares no code with the solver.

It reads the same manifests and the plan's JSON, puts every pod on its planned node, and checks by kube-scheduler's
rules whether the pod could be bound there. It also checks prices, sums and the constraints of NodePools. Its code is
simple rather than fast. If it disagrees with the solver, one of them has a bug.

`reading/` reads manifests and the plan. `machines`, `purchases` and `outcome` build the resulting cluster. `checks/`
and `topology/` check one aspect in each module.
"""

from nodesmith_cli.audit.auditing import audit
from nodesmith_cli.audit.violations import Kind, Violation

__all__ = ["Kind", "Violation", "audit"]
