"""Problems inside a cluster that keep nodesmith from serving it. Pure functions of what was observed."""

from __future__ import annotations

from collections.abc import Iterator

from nodesmith_cli.connecting.applying import State, reference
from nodesmith_cli.connecting.findings import Finding, info, warning
from nodesmith_cli.connecting.manifests import ADMISSION
from nodesmith_cli.connecting.observed import Account, Inside
from nodesmith_cli.sharing import findings as sharing
from nodesmith_formats.wording import some

_SHARED = "shared-crds"


def inside_problems(account: Account, inside: Inside) -> Iterator[Finding]:
    """Yield findings about other software in the cluster, and about objects that cannot be installed."""
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
            "scales node groups for the same pending pods, so that both may add a node for one pod",
            "scale it to zero replicas, or taint its node groups",
        )
    unknown = [each for each in inside.objects if each.state is State.UNKNOWN_KIND]
    if any(each.manifest["kind"] in ADMISSION for each in unknown):
        yield warning(
            "admission-policies",
            where,
            f"Kubernetes {account.cluster.version} has no ValidatingAdmissionPolicies: only RBAC restricts the "
            "functions",
            "run connect again after an upgrade to 1.30",
        )
    for one in inside.objects:
        if one.leave:
            yield warning("crds", reference(one.manifest), f"{one.leave}: connect does not change it")
