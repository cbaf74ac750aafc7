"""What keeps a cluster from being served, as its API server shows it. Pure: from what was seen to findings."""

from __future__ import annotations

from collections.abc import Iterator

from nodesmith_cli.connecting.applying import State, reference
from nodesmith_cli.connecting.findings import Finding, info, warning
from nodesmith_cli.connecting.manifests import ADMISSION
from nodesmith_cli.connecting.observed import Account, Inside
from nodesmith_cli.printing import some
from nodesmith_cli.sharing import findings as sharing

_SHARED = "shared-crds"


def inside_problems(account: Account, inside: Inside) -> Iterator[Finding]:
    """Yield what other software does in the cluster, and what of ours cannot be installed."""
    where = f"cluster {account.cluster.name}"
    for each in sharing.findings(inside.survey):
        if each.check == _SHARED:
            yield info(each.check, where, f"{each.message}: connect leaves them alone")
        else:
            yield Finding(each.check, each.severity, where, each.message, each.remedy)
    if inside.autoscalers:
        yield warning(
            "cluster-autoscaler",
            f"Deployment {some(inside.autoscalers)}",
            "scales node groups for the same pending pods: both may add nodes for one pod",
            "scale it to zero replicas, or let its node groups have taints of their own",
        )
    unknown = [each for each in inside.objects if each.state is State.UNKNOWN_KIND]
    if any(each.manifest["kind"] in ADMISSION for each in unknown):
        yield warning(
            "admission-policies",
            where,
            f"Kubernetes {account.cluster.version} has no ValidatingAdmissionPolicies: functions may do all that their "
            "roles allow",
            "connect again after the upgrade to 1.30",
        )
    for one in inside.objects:
        if one.leave:
            yield warning("crds", reference(one.manifest), f"{one.leave}: it is left as it is")
